//! Slices of hand-made code with known recipes and decisions. That the operations do what the processor does
//! is checked against single-stepped execution (`crates/probe/tests/live_interp.rs`).

use super::*;
use crate::jump_tables::Data;
use proptest::prelude::*;

/// Code at 0x1000, constants at 0x8000.
struct Code(Vec<u8>, Vec<u8>);

impl Data for Code {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        let (base, bytes) = if at.0 >= 0x8000 { (0x8000, &self.1) } else { (0x1000, &self.0) };
        let from = at.0.checked_sub(base)? as usize;
        bytes.get(from..from.checked_add(len)?)
    }
}

fn code(bytes: &[u8]) -> Code {
    Code(bytes.to_vec(), Vec::new())
}

fn slice(bytes: &[u8]) -> Slice {
    Slice::new(&code(bytes), Svma(0x1000))
}

/// Registers of which some are set, by number.
fn regs(values: &[(usize, u64)]) -> Registers {
    let mut regs = Registers::default();
    for &(n, value) in values {
        regs.gpr[n] = value;
    }
    regs
}

/// A step of terms with their scales.
fn step(terms: &[(Source, i16)], disp: i64, field: Field, load: Option<u8>) -> RecipeStep {
    let term = |n: usize| terms.get(n).map(|&(source, scale)| Term { source, scale });
    RecipeStep { terms: std::array::from_fn(term), disp, field, load, image_relative: false }
}

fn load(base: Source, disp: i64, width: u8) -> RecipeStep {
    step(&[(base, 1)], disp, Field::WHOLE, Some(width))
}

fn value(terms: &[(Source, i16)], field: Field) -> RecipeStep {
    step(terms, 0, field, None)
}

const LOW_32: Field = Field::low(32);
const SIGNED_32: Field = Field { from: 0, bits: 32, signed: true };
const RAX: usize = 0;
const RSP: usize = 4;
const RDI: usize = 7;
const DI: Source = Source::Gpr(7);

#[test]
fn a_counted_loop_is_followed_round_by_round() {
    // dec edi; jne 0x1000; ret
    let slice = slice(&[0xff, 0xcf, 0x75, 0xfc, 0xc3]);
    let taken = |taken| Decision::Branch { at: Svma(0x1002), taken };
    assert_eq!(slice.decide(&regs(&[(RDI, 3)]), &[], 0), [taken(true), taken(true), taken(false)]);
    assert_eq!((slice.ending(), slice.recipe().len()), (Ending::Registers, 0));
    let endless = slice.decide(&regs(&[(RDI, 1 << 31)]), &[], 0);
    assert_eq!(endless.len(), 32, "as far as 64 instructions go");
}

#[test]
fn a_load_before_the_branch_goes_into_the_recipe() {
    // mov rax,[rdi+8]; cmp dword [rax+16],5; je +0; ret
    let slice = slice(&[0x48, 0x8b, 0x47, 8, 0x83, 0x78, 16, 5, 0x74, 0, 0xc3]);
    assert_eq!(slice.recipe(), [load(DI, 8, 8), load(Source::Step(0), 16, 4)]);
    assert_eq!(slice.ending(), Ending::NeedsLoads);
    let decide = |loads: &[Option<u64>]| slice.decide(&regs(&[(RDI, 0x5000)]), loads, 0);
    let taken = |taken| Decision::Branch { at: Svma(0x1008), taken };
    assert_eq!(decide(&[Some(0x6000), Some(5)]), [taken(true)]);
    assert_eq!(decide(&[Some(0x6000), Some(4)]), [taken(false)]);
    for absent in [&[][..], &[Some(0x6000)], &[Some(0x6000), None], &[None, Some(5)]] {
        assert_eq!(decide(absent), []);
    }
}

#[test]
fn loads_behind_an_undecided_branch_are_not_asked_for() {
    // comiss xmm0,xmm1; je +3; mov rax,[rdi]; test rax,rax; je +0; ret
    let slice = slice(&[0x0f, 0x2f, 0xc1, 0x74, 3, 0x48, 0x8b, 0x07, 0x48, 0x85, 0xc0, 0x74, 0, 0xc3]);
    assert_eq!((slice.recipe().len(), slice.ending()), (0, Ending::Uninterpreted));
    assert_eq!(slice.decide(&regs(&[]), &[], 0), []);
}

#[test]
fn a_store_before_the_load_answers_it_or_forbids_it() {
    // mov [rsp+8],edi; mov [rsp+24],rdi; cmp dword [rsp+8],7; jb +0; ret
    let own = slice(&[0x89, 0x7c, 0x24, 8, 0x48, 0x89, 0x7c, 0x24, 24, 0x83, 0x7c, 0x24, 8, 7, 0x72, 0, 0xc3]);
    assert!(own.recipe().is_empty());
    let decided = own.decide(&regs(&[(RSP, 0x7000), (RDI, 6)]), &[], 0);
    assert_eq!(decided, [Decision::Branch { at: Svma(0x100e), taken: true }]);

    // mov [rax],edi; cmp dword [rdi],7; jb +0; ret
    let other = slice(&[0x89, 0x38, 0x83, 0x3f, 7, 0x72, 0, 0xc3]);
    assert_eq!(other.recipe(), [load(DI, 0, 4)]);
    let taken = |rax: u64| other.decide(&regs(&[(RAX, rax), (RDI, 0x5000)]), &[Some(3)], 0);
    assert_eq!(taken(0x6000), [Decision::Branch { at: Svma(0x1005), taken: true }], "elsewhere");
    assert_eq!(taken(0x5000), [Decision::Branch { at: Svma(0x1005), taken: false }], "0x5000 was stored");
    assert_eq!(taken(0x5002), [], "half of it was");

    // mov fs:[rax],edi; cmp dword [rdi],7; jb +0: thread-local data may be anywhere
    let far = slice(&[0x64, 0x89, 0x38, 0x83, 0x3f, 7, 0x72, 0, 0xc3]);
    assert_eq!((far.recipe().len(), far.ending()), (0, Ending::Aliased));
    assert_eq!(far.decide(&regs(&[]), &[], 0), []);
}

#[test]
fn a_jump_table_gives_a_target() {
    // lea rdx,[rip+0x6ff9] (0x8000); movsxd rax,[rdx+rdi*4]; add rax,rdx; jmp rax
    let text = vec![0x48, 0x8d, 0x15, 0xf9, 0x6f, 0, 0, 0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xd0, 0xff, 0xe0];
    let table: Vec<u8> = [-0x7000_i32, -0x6ff0].iter().flat_map(|e| e.to_le_bytes()).collect();
    let code = Code(text, table);
    let slice = Slice::new(&code, Svma(0x1000));
    let recipe = RecipeStep { image_relative: true, ..step(&[(DI, 4)], 0x8000, Field::WHOLE, Some(4)) };
    assert_eq!(slice.recipe(), [recipe]);
    let target = [Decision::Target { at: Svma(0x100e), to: 0x55_0000_1010 }];
    let regs = regs(&[(RDI, 1)]);
    assert_eq!(slice.decide(&regs, &[Some((-0x6ff0_i32 as u32).into())], 0x55_0000_0000), target);
    assert_eq!(slice.decide_with(&code, &regs, &[], 0x55_0000_0000), target, "from the file");
    assert_eq!(slice.decide(&regs, &[], 0x55_0000_0000), []);
}

#[test]
fn constants_of_the_image_need_no_load() {
    // cmp edi,[rip+0x6ffa] (0x8000); ja +0; ret
    let code = Code(vec![0x3b, 0x3d, 0xfa, 0x6f, 0, 0, 0x77, 0, 0xc3], vec![9, 0, 0, 0]);
    let slice = Slice::new(&code, Svma(0x1000));
    assert!(slice.recipe().is_empty());
    let decided = slice.decide(&regs(&[(RDI, 10)]), &[], 0x7f00_0000_0000);
    assert_eq!(decided, [Decision::Branch { at: Svma(0x1006), taken: true }]);
}

#[test]
fn what_stops_the_walk_is_named() {
    let ending = |bytes: &[u8]| slice(bytes).ending();
    assert_eq!(ending(&[0xc3]), Ending::Return);
    assert_eq!(ending(&[0x0f, 0x05]), Ending::Unsupported, "syscall");
    assert_eq!(ending(&[0xf3, 0x48, 0xab]), Ending::Unsupported, "rep stos");
    assert_eq!(ending(&[0xff, 0x25, 0, 0, 0, 0]), Ending::IndirectUnknown, "jmp through a slot");
    assert_eq!(ending(&[0x06]), Ending::Undecodable);
    assert_eq!(ending(&[0x90; 80]), Ending::TooLong);
    assert_eq!(ending(&[0xeb, 0xfe]), Ending::TooLong, "jmp to itself");
    // movzx eax,byte [rdi]; cmp byte [rdx+rax+1],0 is a sum; imul rax,rdi is none
    assert_eq!(ending(&[0x0f, 0xb6, 0x07, 0x80, 0x7c, 0x02, 1, 0, 0x74, 0]), Ending::NeedsLoads);
    assert_eq!(ending(&[0x48, 0x0f, 0xaf, 0xc7, 0x80, 0x38, 0, 0x74, 0]), Ending::Address);
    assert!(slice(&[0xeb, 0xfe]).decide(&regs(&[]), &[], 0).is_empty());
}

#[test]
fn fences_and_locks_end_what_was_read_at_the_interrupt() {
    // pause; cmp dword [rdi],0; je back
    let spin = slice(&[0xf3, 0x90, 0x83, 0x3f, 0, 0x74, 0xf9, 0xc3]);
    assert_eq!(spin.ending(), Ending::Aliased);
    // lock dec dword [rdi]; je +0
    let lock = slice(&[0xf0, 0xff, 0x0f, 0x74, 0, 0xc3]);
    assert_eq!(lock.ending(), Ending::Uninterpreted);
    assert_eq!(lock.decide(&regs(&[(RDI, 0x5000)]), &[], 0), []);
}

/// Bytes that decode to something more often than not: prefixes, common opcodes, anything.
fn any_code() -> impl Strategy<Value = Vec<u8>> {
    let common = prop::sample::select(vec![
        0x48_u8, 0x66, 0x0f, 0x89, 0x8b, 0x8d, 0x83, 0xc1, 0x75, 0xeb, 0x50, 0x58, 0xf7, 0xc9,
    ]);
    prop::collection::vec(prop_oneof![common, any::<u8>()], 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_bytes_give_a_slice_and_loads_take_no_decision_back(
        bytes in any_code(), words in prop::array::uniform16(any::<u64>()), base in prop_oneof![Just(0x1000_u64), any::<u64>()]
    ) {
        let code = crate::StatedBytes::from_pieces([(Svma(base), &bytes[..])]);
        let slice = Slice::new(&code, Svma(base));
        let loading = slice.recipe().iter().filter(|s| s.load.is_some()).count();
        prop_assert!(loading <= MOST_LOADS && slice.recipe().len() <= MOST_STEPS);
        for (n, step) in slice.recipe().iter().enumerate() {
            prop_assert!(step.field.bits > 0 && step.field.from + step.field.bits <= 64);
            for term in step.terms.iter().flatten() {
                let earlier = match term.source {
                    Source::Gpr(r) => r < 16,
                    Source::Step(s) => usize::from(s) < n,
                };
                prop_assert!(earlier, "{:?}", slice.recipe());
            }
        }
        let regs = Registers { gpr: words, flags: words[1] };
        let loads: Vec<Option<u64>> = words.iter().map(|w| Some(*w)).collect();
        let (none, all) = (slice.decide(&regs, &[], words[3]), slice.decide(&regs, &loads, words[3]));
        // Fewer only where a loaded divisor shows that the division faults.
        prop_assert!(all.starts_with(&none) || none.starts_with(&all), "{none:?} {all:?}");
        prop_assert!(slice.decide_with(&code, &regs, &[], words[3]).starts_with(&none));
    }
}

#[test]
fn sums_of_halves_of_registers_are_steps() {
    // movsxd rsi,r8d; mov eax,edx; add rax,r9; cmp [rax+rsi],r10b; jne +0
    let code = [0x49, 0x63, 0xf0, 0x89, 0xd0, 0x4c, 0x01, 0xc8, 0x44, 0x38, 0x14, 0x30, 0x75, 0];
    let gpr = Source::Gpr;
    let behind = step(&[(gpr(6), 1), (gpr(9), 1), (Source::Step(0), 1)], 0, Field::WHOLE, Some(1));
    assert_eq!(slice(&code[3..]).recipe(), [value(&[(gpr(2), 1)], LOW_32), behind]);
    let whole = slice(&code);
    let sum = step(&[(gpr(9), 1), (Source::Step(0), 1), (Source::Step(1), 1)], 0, Field::WHOLE, Some(1));
    assert_eq!(whole.recipe(), [value(&[(gpr(2), 1)], LOW_32), value(&[(gpr(8), 1)], SIGNED_32), sum]);
    let sampled = regs(&[(2, 0xffff_ffff_0000_0010), (8, 0xffff_fffe), (9, 0x5000), (10, 7)]);
    let at = whole.recipe()[2].sum(
        |s| {
            Some(if s == gpr(9) {
                0x5000
            } else if s == Source::Step(0) {
                16
            } else {
                !1
            })
        },
        0,
    );
    assert_eq!(at, Some(0x500e));
    let taken = |taken| [Decision::Branch { at: Svma(0x100c), taken }];
    assert_eq!(whole.decide(&sampled, &[Some(7)], 0), taken(false), "values are those of loads only");
    assert_eq!(whole.decide(&sampled, &[Some(8)], 0), taken(true));
}

#[test]
fn sums_of_loaded_values_are_steps() {
    // mov esi,[r11]; lea eax,[rbx+rsi]; movzx eax,byte [r13+rax]; sub eax,r9d; test eax,eax; je +0
    let code =
        [0x41, 0x8b, 0x33, 0x8d, 0x04, 0x33, 0x41, 0x0f, 0xb6, 0x44, 0x05, 0x00, 0x44, 0x29, 0xc8, 0x85, 0xc0, 0x74, 0];
    let slice = slice(&code);
    let expect = [
        load(Source::Gpr(11), 0, 4),
        value(&[(Source::Gpr(3), 1), (Source::Step(0), 1)], LOW_32),
        step(&[(Source::Gpr(13), 1), (Source::Step(1), 1)], 0, Field::WHOLE, Some(1)),
    ];
    assert_eq!(slice.recipe(), expect);
    let taken = |taken| [Decision::Branch { at: Svma(0x1011), taken }];
    let sampled = regs(&[(3, 5), (9, 0x41), (11, 0x5000), (13, 0x6000)]);
    assert_eq!(slice.decide(&sampled, &[Some(0xffff_fffe), Some(0x41)], 0), taken(true));
    assert_eq!(slice.decide(&sampled, &[Some(0xffff_fffe), Some(0x42)], 0), taken(false));
    assert_eq!(slice.decide(&sampled, &[None, Some(0x41)], 0), []);
}

#[test]
fn masks_shifts_and_multiples_are_steps() {
    let recipe = |bytes: &[u8]| slice(bytes).recipe().to_vec();
    let test_byte = |address: &[u8]| [&[0x80][..], address, &[0, 0x74, 0]].concat();
    let with = |code: &[u8]| recipe(&[code, &test_byte(&[0x3c, 0x07])[..]].concat());
    let (ax, di, own) = (Source::Gpr(0), Source::Gpr(7), Source::Step(0));
    let at = |scale| step(&[(di, 1), (own, scale)], 0, Field::WHOLE, Some(1));
    // Each before: cmp byte [rdi+rax],0; je +0
    let field = |from, bits, signed| value(&[(ax, 1)], Field { from, bits, signed });
    assert_eq!(with(&[0x25, 0xff, 0x7f, 0, 0]), [field(0, 15, false), at(1)], "and eax,0x7fff");
    assert_eq!(with(&[0xc1, 0xe8, 3]), [field(3, 29, false), at(1)], "shr eax,3");
    assert_eq!(with(&[0x48, 0xc1, 0xf8, 3]), [field(3, 61, true), at(1)], "sar rax,3");
    assert_eq!(with(&[0x0f, 0xb6, 0xc4]), [field(8, 8, false), at(1)], "movzx eax,ah");
    assert_eq!(with(&[0xc1, 0xe0, 3]), [value(&[(ax, 8)], LOW_32), at(1)], "shl eax,3");
    assert_eq!(with(&[0xf7, 0xd0]), [step(&[(ax, -1)], -1, LOW_32, None), at(1)], "not eax");
    let multiple = step(&[(ax, 56), (di, 1)], 0, Field::WHOLE, Some(1));
    assert_eq!(with(&[0x48, 0x6b, 0xc0, 56]), [multiple], "imul rax,rax,56");
    let difference = step(&[(ax, 1), (Source::Gpr(1), -1), (di, 1)], 0, Field::WHOLE, Some(1));
    assert_eq!(with(&[0x48, 0x29, 0xc8]), [difference], "sub rax,rcx");
    assert_eq!(with(&[0x89, 0xc0, 0x48, 0x98]), [value(&[(ax, 1)], SIGNED_32), at(1)], "mov eax,eax; cdqe");
    assert_eq!(with(&[0x48, 0x21, 0xc8]), [], "and rax,rcx");
}
