//! Graphs of hand-made code, and of every function of real programs: structural promises that must
//! hold whatever the bytes are.

use super::*;
use crate::bytes::Bytes;
use crate::elf::ElfSummary;
use crate::functions::FunctionTable;
use crate::ids::{Segment, to_offset, to_svma};
use crate::stated::StatedBytes;
use crate::symbols::function_table;
use proptest::prelude::*;

/// Code in pieces, one function or part each.
struct Pieces(Vec<(u64, Vec<u8>)>);

impl Data for Pieces {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        let (start, bytes) = self.0.iter().find(|p| (p.0..p.0 + p.1.len() as u64).contains(&at.0))?;
        bytes.get((at.0 - start) as usize..(at.0 - start) as usize + len)
    }
}
impl Surroundings for Pieces {
    fn extent(&self, at: Svma) -> Option<Range<u64>> {
        self.0.iter().map(|p| p.0..p.0 + p.1.len() as u64).find(|r| r.contains(&at.0))
    }
    fn is_part_of(&self, _: Svma, _: Svma) -> Option<bool> {
        None
    }
    fn returns(&self, callee: Svma) -> bool {
        callee.0 != 0x9000
    }
}

fn of(pieces: Vec<(u64, Vec<u8>)>) -> Cfg {
    let code = Pieces(pieces);
    Cfg::new(code.extent(Svma(0x1000)).expect("the function"), &code)
}

fn shape(cfg: &Cfg) -> Vec<(usize, usize, EdgeKind)> {
    cfg.edges.iter().map(|e| (e.from, e.to, e.kind)).collect()
}

#[test]
fn a_loop_with_two_ways_out() {
    use EdgeKind::{Enter, Fall, Leave, Taken};
    // 0: dec edi; je +2 (4: ret at 6); 4: jmp 0; 6: ret
    let cfg = of(vec![(0x1000, vec![0xff, 0xcf, 0x74, 0x02, 0xeb, 0xfa, 0xc3])]);
    assert_eq!(shape(&cfg), [(0, 1, Fall), (0, 2, Taken), (1, 0, Taken), (2, 4, Leave), (3, 0, Enter)]);
    assert!(cfg.missing.is_empty());
    let (blocks, edges) = cfg.classes();
    assert_eq!(blocks[1], edges[0], "the back jump runs as often as the branch falls through");
    assert_eq!(blocks[2], edges[4], "one return per entry");
    assert_ne!(blocks[0], blocks[2]);
}

#[test]
fn cold_parts_tail_calls_and_calls_that_do_not_return() {
    // jne 0x2000 (cold: nop; jmp 0x1006); jmp 0x3000 (another function); call abort; never here: nop
    let hot = vec![0x0f, 0x85, 0xfa, 0x0f, 0, 0, 0xe9, 0xf5, 0x1f, 0, 0, 0xe8, 0xf0, 0x7f, 0, 0, 0x90];
    let cfg = of(vec![(0x1000, hot), (0x2000, vec![0x90, 0xe9, 0x00, 0xf0, 0xff, 0xff]), (0x3000, vec![0xc3])]);
    assert_eq!(cfg.parts.len(), 2, "{:x?}", cfg.parts);
    assert!(cfg.edges.iter().any(|e| e.kind == EdgeKind::Leave && e.to == cfg.end()));
    let abort = cfg.block_at(Svma(0x100b)).expect("the call has a block");
    assert!(!cfg.edges.iter().any(|e| e.from == abort), "nothing follows a call that never returns");
    assert_eq!(cfg.block_at(Svma(0x1010)), None, "padding is no block");
}

#[test]
fn endless_loops_and_unreached_code_still_have_classes() {
    // jmp to itself; then code nobody reaches
    let cfg = of(vec![(0x1000, vec![0xeb, 0xfe, 0xff, 0xc0, 0xc3])]);
    let (blocks, edges) = cfg.classes();
    assert_eq!((blocks.len(), edges.len()), (2, 3));
    assert_ne!(blocks[0], blocks[1]);
}

#[test]
fn what_is_not_understood_is_said() {
    // add rax,rcx; jmp rax
    let jump = of(vec![(0x1000, vec![0x48, 0x01, 0xc8, 0xff, 0xe0])]);
    assert_eq!(jump.missing, [Missing::IndirectJump(Svma(0x1003))]);
    let (blocks, edges) = jump.classes();
    assert_eq!((blocks, edges), (vec![0], vec![1]), "nothing is concluded");
    let bad = of(vec![(0x1000, vec![0x06])]);
    assert_eq!(bad.missing, [Missing::Undecodable(Svma(0x1000))]);
    // jne into its own middle
    assert!(of(vec![(0x1000, vec![0x75, 0xff, 0xc3])]).missing.contains(&Missing::Inside(Svma(0x1001))));
}

#[test]
fn a_table_that_is_not_there_is_told_from_a_jump_that_nobody_understands() {
    // cmp edi,3; ja 0x1017; lea rdx,[rip+0xff4] (0x2000); movsxd rax,[rdx+rdi*4]; add rax,rdx; jmp rax; 0x1017: ret
    let mut code = vec![0x83, 0xff, 3, 0x77, 0x10, 0x48, 0x8d, 0x15];
    code.extend(0xff4_u32.to_le_bytes());
    code.extend([0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xd0, 0xff, 0xe0, 0xc3, 0xc3]);
    assert_eq!(of(vec![(0x1000, code.clone())]).missing, [Missing::TableGone(Svma(0x1013))]);
    let table: Vec<u8> = [-0xfeb_i32; 4].into_iter().flat_map(i32::to_le_bytes).collect();
    let whole = of(vec![(0x1000, code), (0x2000, table)]);
    assert_eq!((whole.missing.len(), whole.tables.len()), (0, 1));
    assert_eq!(whole.tables[0].extent(), 0x2000..0x2014, "and the entry that tells where it ends");
}

/// A real image.
struct Image {
    data: StatedBytes,
    segments: Vec<Segment>,
    table: FunctionTable,
}

impl Data for Image {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        self.data.bytes(at, len)
    }
}
impl Surroundings for Image {
    fn extent(&self, at: Svma) -> Option<Range<u64>> {
        let f = self.table.find(to_offset(&self.segments, at)?)?;
        let start = to_svma(&self.segments, f.start)?.0;
        Some(start..start + f.size)
    }
    fn is_part_of(&self, _: Svma, _: Svma) -> Option<bool> {
        None
    }
    fn returns(&self, _: Svma) -> bool {
        true
    }
}

#[test]
fn every_function_of_a_real_program_keeps_the_promises() {
    let Ok(bytes) = std::fs::read("/usr/bin/bash").map(Bytes::from) else {
        println!("SKIP: no /usr/bin/bash");
        return;
    };
    let image = Image {
        data: StatedBytes::from_elf(&bytes).expect("ELF"),
        segments: ElfSummary::parse(&bytes).expect("ELF").segments,
        table: function_table(&bytes, None).0,
    };
    let (mut complete, mut total, mut tables) = (0, 0, 0);
    for f in image.table.functions() {
        let Some(start) = to_svma(&image.segments, f.start) else { continue };
        if f.size > 1 << 16 || !image.data.is_code(start) {
            continue;
        }
        let cfg = Cfg::new(start.0..start.0 + f.size, &image);
        total += 1;
        complete += usize::from(cfg.missing.is_empty());
        tables += cfg.tables.len();
        let mut last = 0;
        for block in &cfg.blocks {
            assert!(block.insns.start >= last && !block.insns.is_empty(), "{}: blocks overlap", f.name);
            last = block.insns.end;
        }
        for e in &cfg.edges {
            assert!(e.from <= cfg.start() && (e.to < cfg.blocks.len() || e.to == cfg.end()), "{}: {e:?}", f.name);
        }
        let (blocks, edges) = cfg.classes();
        assert_eq!((blocks.len(), edges.len()), (cfg.blocks.len(), cfg.edges.len()));
    }
    println!("{total} functions, {complete} complete, {tables} tables");
    assert!(total > 1500 && complete * 100 >= total * 98, "{complete} of {total} complete");
    assert!(tables > 20, "{tables} tables");
}

#[test]
fn a_jump_by_pointer_at_the_height_of_the_entry_is_a_tail_call() {
    let tails = |code: &[u8]| {
        let cfg = of(vec![(0x1000, code.to_vec())]);
        (cfg.tail_jumps, cfg.missing.is_empty())
    };
    // push rbx; mov rax,[rdi+8]; pop rbx; jmp rax
    assert_eq!(tails(&[0x53, 0x48, 0x8b, 0x47, 8, 0x5b, 0xff, 0xe0]), (vec![Svma(0x1006)], true));
    // jmp [rdi+16]
    assert_eq!(tails(&[0xff, 0x67, 16]), (vec![Svma(0x1000)], true));
    // push rbp; mov rbp,rsp; sub rsp,32; mov rax,[rdi]; leave; jmp rax
    let framed = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 32, 0x48, 0x8b, 0x07, 0xc9, 0xff, 0xe0];
    assert_eq!(tails(&framed), (vec![Svma(0x100c)], true));
    // The same without leave: the frame is still there, so it stays inside.
    let inside: Vec<u8> = framed.iter().copied().filter(|b| *b != 0xc9).collect();
    assert_eq!(tails(&inside), (vec![], false));
    // mov rax,[rdi+rsi*8]; jmp rax: chosen from a table
    assert_eq!(tails(&[0x48, 0x8b, 0x04, 0xf7, 0xff, 0xe0]), (vec![], false));
    // mov rax,[rdi]; add rax,rsi; jmp rax: computed
    assert_eq!(tails(&[0x48, 0x8b, 0x07, 0x48, 0x01, 0xf0, 0xff, 0xe0]), (vec![], false));
    // je +3; mov rax,[rdi]; jmp rax: on one way it is what the caller left in rax
    assert_eq!(tails(&[0x74, 3, 0x48, 0x8b, 0x07, 0xff, 0xe0]), (vec![Svma(0x1005)], true));
    // je +4; lea rax,[rdi+rsi]; jmp rax: on one way it is computed
    assert_eq!(tails(&[0x74, 4, 0x48, 0x8d, 0x04, 0x37, 0xff, 0xe0]), (vec![], false));
}

#[test]
fn a_jump_by_pointer_stays_inside_when_there_is_a_place_for_it() {
    // mov rax,[rdi]; lea rsi,[rip+4] (0x100e); jmp rax; nop; nop; 0x100e: inc eax; ret
    let own = vec![0x48, 0x8b, 0x07, 0x48, 0x8d, 0x35, 4, 0, 0, 0, 0xff, 0xe0, 0x90, 0x90, 0xff, 0xc0, 0xc3];
    let cfg = of(vec![(0x1000, own.clone())]);
    assert_eq!(
        (cfg.tail_jumps.as_slice(), cfg.missing.as_slice()),
        (&[][..], &[Missing::IndirectJump(Svma(0x100a))][..])
    );
    assert_eq!(cfg.block_at(Svma(0x100c)), None, "padding is no part of the place");
    let place = cfg.block_at(Svma(0x100e)).expect("the place");
    assert_eq!(cfg.insns[cfg.blocks[place].insns.start].address, Svma(0x100e));
    // The entry's address, as for a call-back: no place inside.
    let mut entry = own[..12].to_vec();
    entry[6..10].copy_from_slice(&(-10_i32).to_le_bytes());
    assert_eq!(of(vec![(0x1000, entry)]).tail_jumps, [Svma(0x100a)]);
    // mov rax,[rdi]; jmp rax; nop; inc eax; mov rax,[rdi]; jmp rax: places of a table somewhere
    let places = vec![0x48, 0x8b, 0x07, 0xff, 0xe0, 0x90, 0xff, 0xc0, 0x48, 0x8b, 0x07, 0xff, 0xe0];
    let cfg = of(vec![(0x1000, places)]);
    assert_eq!(cfg.missing.len(), 2, "{:?}", cfg.missing);
    // The same with a call behind it: a landing pad.
    let pad = vec![0x48, 0x8b, 0x07, 0xff, 0xe0, 0x90, 0x48, 0x89, 0xc7, 0xe8, 0xf2, 0x7f, 0, 0];
    assert_eq!(of(vec![(0x1000, pad)]).tail_jumps, [Svma(0x1003)]);
    // An address in the middle of a block divides it where a jump is not understood.
    // lea rsi,[rip+2] (0x1009); inc eax; 0x1009: inc ecx; mov rax,[rdi]; jmp rax
    let middle = vec![0x48, 0x8d, 0x35, 2, 0, 0, 0, 0xff, 0xc0, 0xff, 0xc1, 0x48, 0x8b, 0x07, 0xff, 0xe0];
    assert_eq!(of(vec![(0x1000, middle)]).blocks.len(), 2);
}

#[test]
fn behind_a_lock_prefix_is_the_same_instruction() {
    // je +1 (0x1003); lock inc dword [rdi]; ret
    let cfg = of(vec![(0x1000, vec![0x74, 1, 0xf0, 0xff, 0x07, 0xc3])]);
    assert!(cfg.missing.is_empty());
    assert_eq!(cfg.blocks.len(), 2, "{:?}", cfg.blocks);
    assert!(cfg.edges.contains(&Edge { from: 0, to: 1, kind: EdgeKind::Taken }));
}

/// Bytes in which jumps, calls, pushes and table loads are frequent.
fn any_code() -> impl Strategy<Value = Vec<u8>> {
    let common =
        [0x48_u8, 0xf0, 0x0f, 0x85, 0x75, 0xeb, 0xe9, 0xff, 0xe0, 0x24, 0xc5, 0x50, 0x5d, 0xc9, 0x83, 0xc3, 0x63, 0x04];
    prop::collection::vec(prop_oneof![prop::sample::select(common.to_vec()), any::<u8>()], 1..160)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_give_a_graph_that_holds_together(bytes in any_code(), start in prop_oneof![Just(0x1000_u64), Just(u64::MAX - 400)]) {
        let code = Pieces(vec![(start, bytes.clone())]);
        let cfg = Cfg::new(start..start + bytes.len() as u64, &code);
        for e in &cfg.edges {
            prop_assert!(e.from <= cfg.start() && (e.to < cfg.blocks.len() || e.to == cfg.end()));
        }
        for block in &cfg.blocks {
            let inner = &cfg.insns[block.insns.start..block.insns.end - 1];
            prop_assert!(inner.iter().all(|i| !matches!(i.flow, Flow::Jump(_) | Flow::Branch(_) | Flow::Return)));
        }
        let (blocks, edges) = cfg.classes();
        prop_assert_eq!((blocks.len(), edges.len()), (cfg.blocks.len(), cfg.edges.len()));
    }
}
