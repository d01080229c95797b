//! Graphs of hand-made code, and of every function of real programs: structural promises that must
//! hold whatever the bytes are.

use super::*;
use crate::bytes::Bytes;
use crate::elf::ElfSummary;
use crate::functions::FunctionTable;
use crate::ids::{Segment, to_offset, to_svma};
use crate::stated::StatedBytes;
use crate::symbols::function_table;

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
    let jump = of(vec![(0x1000, vec![0xff, 0xe0])]);
    assert_eq!(jump.missing, [Missing::IndirectJump(Svma(0x1000))]);
    let (blocks, edges) = jump.classes();
    assert_eq!((blocks, edges), (vec![0], vec![1]), "nothing is concluded");
    let bad = of(vec![(0x1000, vec![0x06])]);
    assert_eq!(bad.missing, [Missing::Undecodable(Svma(0x1000))]);
    // jne into its own middle
    assert!(of(vec![(0x1000, vec![0x75, 0xff, 0xc3])]).missing.contains(&Missing::Inside(Svma(0x1001))));
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
