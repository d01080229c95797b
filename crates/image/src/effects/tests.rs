//! Known encodings, and bytes of no meaning.

use super::*;
use crate::disasm::decode;
use crate::ids::Svma;
use proptest::prelude::*;

fn one(code: &[u8]) -> Effects {
    let insns = decode(code, Svma(0x1000));
    assert_eq!(insns.len(), 1, "one instruction");
    EffectsReader::new().of(&insns[0])
}

const RAX: RegSet = RegSet::gpr(0);
const RCX: RegSet = RegSet::gpr(1);
const RDX: RegSet = RegSet::gpr(2);

fn sets(parts: &[RegSet]) -> RegSet {
    parts.iter().fold(RegSet::NONE, |all, s| all.with(*s))
}

#[test]
fn a_load_needs_its_address_only() {
    let e = one(&[0x48, 0x8b, 0x44, 0xca, 0x08]); // mov 8(%rdx,%rcx,8),%rax
    assert_eq!((e.class, e.reads, e.writes), (OpClass::Load, RCX.with(RDX), RAX));
    assert_eq!(e.address_reads, RCX.with(RDX));
    let m = e.load.unwrap();
    assert_eq!((m.base, m.index, m.scale, m.disp, m.width), (Some(2), Some(1), 8, 8, 8));
    assert!(!m.stack && !m.rip_relative && e.store.is_none());
}

#[test]
fn an_addition_from_memory_needs_its_register_later_than_its_address() {
    let e = one(&[0x48, 0x03, 0x02]); // add (%rdx),%rax
    assert_eq!((e.class, e.reads, e.address_reads), (OpClass::Alu, RAX.with(RDX), RDX));
    assert_eq!(e.writes, sets(&[RAX, RegSet::FLAGS, RegSet::CARRY]));
    let own = one(&[0x48, 0x03, 0x00]); // add (%rax),%rax
    assert_eq!(own.address_reads, RegSet::NONE, "rax is data too");
}

#[test]
fn read_modify_write_and_locked() {
    let e = one(&[0x48, 0x01, 0x08]); // add %rcx,(%rax)
    assert_eq!((e.class, e.load.is_some(), e.store.is_some()), (OpClass::Alu, true, true));
    let e = one(&[0xf0, 0x48, 0x01, 0x08]); // lock add %rcx,(%rax)
    assert_eq!(e.class, OpClass::Lock);
    let e = one(&[0x48, 0x87, 0x08]); // xchg %rcx,(%rax)
    assert_eq!(e.class, OpClass::Lock, "it locks by itself");
    let e = one(&[0x48, 0x87, 0xc8]); // xchg %rcx,%rax
    assert_eq!((e.class, e.writes), (OpClass::Exchange, RAX.with(RCX)));
}

#[test]
fn the_stack_engine_keeps_the_stack_pointer() {
    let push = one(&[0x50]); // push %rax
    assert_eq!((push.class, push.reads, push.writes), (OpClass::Store, RAX, RegSet::NONE));
    assert!(push.store.unwrap().stack);
    let ret = one(&[0xc3]);
    assert_eq!(
        (ret.class, ret.reads, ret.load.is_some(), ret.is_guessed()),
        (OpClass::Return, RegSet::NONE, true, true)
    );
    let call = one(&[0xe8, 0, 0, 0, 0]);
    assert_eq!((call.class, call.is_guessed(), call.store.is_some()), (OpClass::Call, false, true));
    assert!(one(&[0xff, 0xd0]).is_guessed(), "call *%rax");
    let spill = one(&[0x48, 0x89, 0x44, 0x24, 0x10]); // mov %rax,0x10(%rsp)
    assert_eq!((spill.class, spill.store.unwrap().disp), (OpClass::Store, 0x10));
    assert!(spill.reads.meets(RegSet::RSP) && spill.store.unwrap().stack);
}

#[test]
fn copies_and_zeros_need_no_unit() {
    assert_eq!(one(&[0x48, 0x89, 0xc8]).class, OpClass::Move); // mov %rcx,%rax
    assert_eq!(one(&[0x48, 0x89, 0xc8]).reads, RCX);
    assert_eq!(one(&[0x88, 0xc8]).class, OpClass::Alu, "mov %cl,%al keeps old bits");
    assert_eq!(one(&[0x88, 0xc8]).reads, RAX.with(RCX));
    let zero = one(&[0x31, 0xc0]); // xor %eax,%eax
    assert_eq!((zero.class, zero.reads), (OpClass::ZeroIdiom, RegSet::NONE));
    assert!(zero.writes.meets(RAX) && zero.writes.meets(RegSet::FLAGS));
    assert_eq!(one(&[0x66, 0x0f, 0xef, 0xc0]).class, OpClass::ZeroIdiom); // pxor %xmm0,%xmm0
    assert_eq!(one(&[0x31, 0xc8]).class, OpClass::Alu); // xor %ecx,%eax
    assert_eq!(one(&[0x30, 0xc0]).class, OpClass::Alu, "xor %al,%al");
    let ones = one(&[0x66, 0x0f, 0x76, 0xc0]); // pcmpeqd %xmm0,%xmm0
    assert_eq!((ones.class, ones.reads), (OpClass::VecAlu, RegSet::NONE));
    assert_eq!(one(&[0x19, 0xc0]).reads, RegSet::CARRY, "sbb %eax,%eax");
    assert_eq!(one(&[0x0f, 0x28, 0xc1]).class, OpClass::Move); // movaps %xmm1,%xmm0
    assert_eq!(one(&[0xf2, 0x0f, 0x10, 0xc1]).class, OpClass::VecShuffle, "movsd keeps the other lane");
}

#[test]
fn flags_apart_from_carry() {
    let inc = one(&[0x48, 0xff, 0xc0]); // inc %rax
    assert_eq!((inc.class, inc.writes), (OpClass::AluImmediate, RAX.with(RegSet::FLAGS)));
    let adc = one(&[0x48, 0x11, 0xc8]); // adc %rcx,%rax
    assert!(adc.reads.meets(RegSet::CARRY) && !adc.reads.meets(RegSet::FLAGS));
    let jne = one(&[0x75, 0x00]);
    assert_eq!((jne.class, jne.reads, jne.conditional), (OpClass::Branch, RegSet::FLAGS, true));
    assert_eq!(one(&[0x48, 0x83, 0xc0, 0x08]).class, OpClass::AluImmediate); // add $8,%rax
    assert_eq!(one(&[0x48, 0x01, 0xc8]).class, OpClass::Alu); // add %rcx,%rax
}

#[test]
fn units() {
    let class = |code: &[u8]| one(code).class;
    assert_eq!(class(&[0x48, 0x0f, 0xaf, 0xc1]), OpClass::Imul);
    assert_eq!((class(&[0x48, 0xf7, 0xf1]), one(&[0x48, 0xf7, 0xf1]).bits), (OpClass::Div, 64)); // div %rcx
    assert_eq!((class(&[0xf7, 0xf1]), one(&[0xf7, 0xf1]).bits), (OpClass::Div, 32)); // div %ecx
    assert_eq!(class(&[0xf2, 0x0f, 0x58, 0xc1]), OpClass::FpAdd); // addsd
    assert_eq!(class(&[0xf2, 0x0f, 0x59, 0xc1]), OpClass::FpMul); // mulsd
    assert_eq!(class(&[0xf2, 0x0f, 0x5e, 0xc1]), OpClass::FpDiv); // divsd
    assert_eq!(class(&[0xf2, 0x0f, 0x51, 0xc1]), OpClass::Sqrt); // sqrtsd
    assert_eq!(class(&[0xc4, 0xe2, 0xf9, 0xb8, 0xc2]), OpClass::Fma); // vfmadd231pd
    assert_eq!(class(&[0x66, 0x0f, 0xfe, 0xc1]), OpClass::VecAlu); // paddd
    assert_eq!(class(&[0x66, 0x0f, 0x70, 0xc1, 0x1b]), OpClass::VecShuffle); // pshufd
    assert_eq!(class(&[0x66, 0x48, 0x0f, 0x6e, 0xc0]), OpClass::Transfer); // movq %rax,%xmm0
    assert_eq!(class(&[0xf3, 0x0f, 0xb8, 0xc1]), OpClass::Bits); // popcnt
    assert_eq!(class(&[0xd9, 0xc1]), OpClass::X87); // fld %st(1)
    assert_eq!(class(&[0xd9, 0xc9]), OpClass::X87); // fxch
    assert_eq!(class(&[0xf3, 0x48, 0xab]), OpClass::Rep); // rep stosq
    assert_eq!(class(&[0x0f, 0xae, 0xf0]), OpClass::Fence); // mfence
    assert_eq!(class(&[0xf3, 0x90]), OpClass::Pause);
    assert_eq!(class(&[0x0f, 0x01, 0xd0]), OpClass::Serialising); // xgetbv
    assert_eq!(class(&[0x0f, 0x05]), OpClass::SystemCall);
    assert_eq!(class(&[0xff, 0xe0]), OpClass::IndirectBranch); // jmp *%rax
    assert_eq!(class(&[0xf3, 0x0f, 0x1e, 0xfa]), OpClass::Nop); // endbr64
    assert_eq!(class(&[0x0f, 0x18, 0x08]), OpClass::Nop); // prefetcht0
    assert_eq!(class(&[0x48, 0xd3, 0xe0]), OpClass::Shift); // shl %cl,%rax
    assert_eq!(class(&[0x48, 0x8d, 0x04, 0x0a]), OpClass::Lea);
    assert_eq!(class(&[0x48, 0x8d, 0x44, 0x0a, 0x08]), OpClass::LeaSlow);
    assert_eq!(class(&[0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88]), OpClass::Gather); // vpgatherdd
    assert_eq!(class(&[0x0f, 0x20, 0xc0]), OpClass::Serialising); // mov %cr0,%rax
}

#[test]
fn places_know_what_they_are() {
    let e = one(&[0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88]); // vpgatherdd %ymm2,(%rax,%ymm1,4),%ymm0
    let place = e.load.expect("it loads");
    assert!(place.vector && !place.same_base(&place), "{e:?}");
    assert!(!one(&[0x8b, 0x04, 0x88]).load.unwrap().vector); // mov (%rax,%rcx,4),%eax
    let e = one(&[0x0f, 0xc3, 0x08]); // movnti %ecx,(%rax)
    assert!(e.store.unwrap().non_temporal);
    let e = one(&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0]); // mov 0x10(%rip),%rax
    let m = e.load.unwrap();
    assert!(m.rip_relative);
    assert_eq!(m.disp, 0x1017);
    let e = one(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]); // mov %fs:0x28,%rax
    assert!(e.load.unwrap().segment);
    assert!(one(&[0x48, 0x8d, 0x02]).load.is_none(), "lea loads nothing");
}

#[test]
fn comparisons_fuse_with_the_branch_behind_them() {
    let all = |code: &[u8]| effects(&decode(code, Svma(0x1000)));
    let e = all(&[0x48, 0x39, 0xc3, 0x75, 0x00]); // cmp; jne
    assert!(e[0].fuses_with(&e[1]));
    let e = all(&[0x48, 0x39, 0xc3, 0x90, 0x75, 0x00]); // cmp; nop; jne
    assert!(!e[0].fuses_with(&e[1]) && !e[1].fuses_with(&e[2]));
    let e = all(&[0x48, 0x01, 0x08, 0x75, 0x00]); // add %rcx,(%rax); jne
    assert!(!e[0].fuses_with(&e[1]));
}

proptest! {
    #[test]
    fn bytes_of_no_meaning_do_no_harm(code in prop::collection::vec(any::<u8>(), 0..200)) {
        for e in effects(&decode(&code, Svma(0x1000))) {
            prop_assert!(e.reads.0 < 1 << RegSet::BITS && e.writes.0 < 1 << RegSet::BITS);
            prop_assert_eq!(e.address_reads.without(e.reads), RegSet::NONE);
        }
    }
}

#[test]
fn masks_and_widening_moves_bound_what_a_register_holds() {
    assert_eq!(one(&[0x83, 0xe6, 0x07]).holds_at_most, Some((6, 7)), "and $7,%esi");
    assert_eq!(one(&[0x48, 0x25, 0xff, 0xff, 0x00, 0x00]).holds_at_most, Some((0, 0xffff)), "and $0xffff,%rax");
    assert_eq!(one(&[0x48, 0x83, 0xe0, 0xf8]).holds_at_most, None, "and $-8,%rax");
    assert_eq!(one(&[0x80, 0xe2, 0x07]).holds_at_most, None, "and $7,%dl leaves the rest");
    assert_eq!(one(&[0x0f, 0xb6, 0xc1]).holds_at_most, Some((0, 0xff)), "movzbl %cl,%eax");
    assert_eq!(one(&[0x0f, 0xb7, 0x02]).holds_at_most, Some((0, 0xffff)), "movzwl (%rdx),%eax");
    assert_eq!(one(&[0x21, 0xc8]).holds_at_most, None, "and %ecx,%eax");
}

#[test]
fn kinds_are_as_fine_as_processors_tell_them_apart() {
    let class = |code: &[u8]| one(code).class;
    assert_eq!(class(&[0xf2, 0x48, 0x0f, 0x38, 0xf1, 0xc1]), OpClass::Crc); // crc32 %rcx,%rax
    assert_eq!(class(&[0xc4, 0xe2, 0xfb, 0xf5, 0xc1]), OpClass::Deposit); // pdep
    assert_eq!((class(&[0x48, 0x0f, 0xc8]), class(&[0x0f, 0xc8])), (OpClass::BitField, OpClass::Alu)); // bswap
    assert_eq!((class(&[0x0f, 0x47, 0xc1]), class(&[0x0f, 0x44, 0xc1])), (OpClass::TwoFlags, OpClass::Alu)); // cmova, cmove
    assert_eq!(class(&[0x0f, 0xb6, 0x07]), OpClass::Load, "movzbl (%rdi),%eax: the load port widens");
    assert_eq!(class(&[0x48, 0x8d, 0x04, 0x81]), OpClass::LeaScaled); // lea (%rcx,%rax,4),%rax
    assert_eq!(class(&[0xc4, 0xe2, 0x75, 0x36, 0xc0]), OpClass::Cross); // vpermd
    assert_eq!(class(&[0xc4, 0xe3, 0x7d, 0x04, 0xc0, 0x1b]), OpClass::VecShuffle, "vpermilps stays in its half");
    assert_eq!(class(&[0xc4, 0xe3, 0x7d, 0x39, 0xc0, 1]), OpClass::Halves); // vextracti128 $1,%ymm0,%xmm0
    assert_eq!(
        (class(&[0xc4, 0xe2, 0x7d, 0x30, 0xc0]), class(&[0x66, 0x0f, 0x38, 0x30, 0xc0])),
        (OpClass::Halves, OpClass::VecShuffle)
    ); // pmovzxbw
    assert_eq!(
        (class(&[0xf3, 0x0f, 0x5e, 0xc1]), class(&[0xf2, 0x0f, 0x5e, 0xc1])),
        (OpClass::FpDivSingle, OpClass::FpDiv)
    );
    assert_eq!(class(&[0xf2, 0x48, 0x0f, 0x2d, 0xc0]), OpClass::ConvertToInt); // cvtsd2si
    assert_eq!(
        (class(&[0xf3, 0x0f, 0x5a, 0xc0]), class(&[0x0f, 0x5b, 0xc0])),
        (OpClass::ConvertWidth, OpClass::Convert)
    );
    assert_eq!(
        (class(&[0x66, 0x0f, 0xd5, 0xc1]), class(&[0x66, 0x0f, 0x38, 0x40, 0xc1])),
        (OpClass::VecMul, OpClass::VecMulWide)
    );
    assert!(!OpClass::VecMul.is_floating() && OpClass::FpMul.is_floating());
    assert_eq!(
        (class(&[0x66, 0x0f, 0x74, 0xc1]), class(&[0x66, 0x0f, 0x38, 0x37, 0xc1])),
        (OpClass::VecAlu, OpClass::VecCompare64)
    );
    assert_eq!(class(&[0x62, 0xf1, 0x7d, 0x28, 0x76, 0xc9]), OpClass::MaskCompare); // vpcmpeqd %ymm1,%ymm0,%k1
    assert_eq!(class(&[0xc5, 0xfb, 0x92, 0xc8]), OpClass::Transfer); // kmovd %eax,%k1
    assert_eq!(
        (class(&[0x0f, 0xa2]), class(&[0x0f, 0x31]), class(&[0x9d])),
        (OpClass::Cpuid, OpClass::ReadClock, OpClass::PopFlags)
    );
    assert_eq!((class(&[0x0f, 0xae, 0xe8]), class(&[0x0f, 0xae, 0xf8])), (OpClass::LoadFence, OpClass::StoreFence));
}

#[test]
fn some_operands_are_needed_later_and_some_results_come_later() {
    let convert = one(&[0xf2, 0x48, 0x0f, 0x2a, 0xc0]); // cvtsi2sd %rax,%xmm0
    assert_eq!((convert.class, convert.merges), (OpClass::ConvertFromInt, RegSet::vector(0)));
    let insert = one(&[0x66, 0x48, 0x0f, 0x3a, 0x22, 0xc1, 0]); // pinsrq $0,%rcx,%xmm0
    assert_eq!((insert.class, insert.merges), (OpClass::Lane, RegSet::vector(0)));
    let extract = one(&[0x66, 0x48, 0x0f, 0x3a, 0x16, 0xc0, 1]); // pextrq $1,%xmm0,%rax
    assert_eq!((extract.class, extract.merges), (OpClass::Lane, RegSet::NONE));
    assert_eq!(one(&[0x48, 0xf7, 0xe1]).late, RDX, "mul %rcx");
    assert_eq!(one(&[0x48, 0x0f, 0xaf, 0xc1]).late, RegSet::NONE, "imul %rcx,%rax");
    assert_eq!(one(&[0xc4, 0xe2, 0xeb, 0xf6, 0xc1]).late, RAX, "mulx %rcx,%rdx,%rax");
}
