//! Vector instructions for walks: which operation of `include/whither_vector.h` one is, on what. What is not here is
//! forgotten. Constraint: embedded broadcasts and rounding, AVX2's stores under masks and MMX are not known there.

use super::nothing;
use iced_x86::{EncodingKind, Instruction, InstructionInfoFactory, Mnemonic as M, OpAccess, OpKind, Register};
use whither_abi::path::{self, IN_MEMORY, KEEP, Kind, MASK, MASK_ZERO, Order, VECTOR, bits, relation, towards};

pub(super) fn known(raw: &Instruction) -> Option<path::Op> {
    if raw.is_broadcast() || raw.is_string_instruction() {
        return None;
    }
    moves(raw).or_else(|| elements(raw)).or_else(|| orders(raw)).or_else(|| scalars(raw)).or_else(|| masks(raw))
}

/// The vector or mask register that an instruction writes, [`path::NOWHERE`] for none; `None` for several.
pub(super) fn written(raw: &Instruction, infos: &mut InstructionInfoFactory) -> Option<u8> {
    let changes =
        |a| matches!(a, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    let all = infos.info(raw).used_registers().iter().filter(|u| changes(u.access()));
    let mut all: Vec<u8> = all.filter_map(|u| number(u.register())).collect();
    all.dedup();
    match all[..] {
        [] => Some(path::NOWHERE),
        [one] => Some(one),
        _ => None,
    }
}

/// Of a vector or mask register.
fn number(which: Register) -> Option<u8> {
    if which.is_vector_register() {
        return Some(VECTOR + (which.number() as u8 & 31));
    }
    which.is_k().then(|| MASK + (which.number() as u8 & 7))
}

/// An operand: a vector, a mask, 32 or 64 bits of a general register, memory.
fn operand(raw: &Instruction, n: u32) -> Option<u8> {
    match raw.op_kind(n) {
        OpKind::Memory => Some(IN_MEMORY),
        OpKind::Register => {
            let which = raw.op_register(n);
            let general = (which.is_gpr32() || which.is_gpr64()).then(|| which.full_register().number() as u8);
            number(which).or(general)
        }
        _ => None,
    }
}

fn legacy(raw: &Instruction) -> bool {
    raw.encoding() == EncodingKind::Legacy
}

/// What is written of the destination.
fn chosen(raw: &Instruction) -> u8 {
    let by = if raw.op_mask() == Register::None { 0 } else { raw.op_mask().number() as u8 & 7 };
    by | if raw.zeroing_masking() { MASK_ZERO } else { 0 } | if legacy(raw) { KEEP } else { 0 }
}

fn memory_bytes(raw: &Instruction) -> Option<u8> {
    u8::try_from(raw.memory_size().size()).ok().filter(|n| n.is_power_of_two() && *n <= 64)
}

/// Bytes of a vector operand.
fn width(raw: &Instruction, n: u32) -> Option<u8> {
    let which = if raw.op_kind(n) == OpKind::Register { raw.op_register(n) } else { Register::None };
    which.is_vector_register().then(|| which.size() as u8)
}

/// From `src` (an operand's number) to the first operand.
fn from_one(raw: &Instruction, kind: Kind, lane: u8, src: u32) -> Option<path::Op> {
    let (dst, src_at) = (operand(raw, 0)?, operand(raw, src)?);
    let size = [0, src, 1].into_iter().find_map(|n| width(raw, n))?;
    let in_memory = src_at == IN_MEMORY;
    let from = if in_memory { memory_bytes(raw)? } else { width(raw, src).unwrap_or(lane) };
    let bits = if in_memory { bits::ADDRESS | bits::READS } else { 0 };
    Some(path::Op { kind, size, from, dst, src: src_at, lane, bits, mask: chosen(raw), ..nothing() })
}

/// Two inputs: the first operand is one of them where there are only two.
fn from_two(raw: &Instruction, kind: Kind, lane: u8) -> Option<path::Op> {
    let (with, src) = if legacy(raw) { (0, 1) } else { (1, 2) };
    let op = path::Op { with: operand(raw, with)?, size: width(raw, with)?, ..from_one(raw, kind, lane, src)? };
    // Memory of another size than the vector's is for scalars.
    let fits = op.src != IN_MEMORY || op.from == op.size;
    (vector_at(op.with) && (op.src == IN_MEMORY || vector_at(op.src)) && fits).then_some(op)
}

fn vector_at(place: u8) -> bool {
    (VECTOR..MASK).contains(&place)
}

fn moves(raw: &Instruction) -> Option<path::Op> {
    use M::*;
    let whole = |lane| {
        if raw.op0_kind() != OpKind::Memory {
            return from_one(raw, Kind::VMove, lane, 1).filter(|op| vector_at(op.dst));
        }
        let src = operand(raw, 1).filter(|s| vector_at(*s))?;
        let bits = bits::ADDRESS | bits::WRITES;
        Some(path::Op { kind: Kind::VStore, size: width(raw, 1)?, src, lane, bits, mask: chosen(raw), ..nothing() })
    };
    match raw.mnemonic() {
        Movaps | Movups | Movapd | Movupd | Movdqa | Movdqu | Lddqu | Movntdq | Movntps | Movntpd => whole(8),
        Vmovdqa | Vmovdqu | Vlddqu | Vmovntdq | Vmovntps | Vmovntpd | Movntdqa | Vmovntdqa => whole(8),
        Vmovaps | Vmovups | Vmovdqa32 | Vmovdqu32 => whole(4),
        Vmovapd | Vmovupd | Vmovdqa64 | Vmovdqu64 => whole(8),
        Vmovdqu8 => whole(1),
        Vmovdqu16 => whole(2),
        Movd | Vmovd => part(raw, 4, 0),
        Movq | Vmovq => part(raw, 8, 0),
        Movss | Vmovss => scalar_move(raw, 4),
        Movsd | Vmovsd => scalar_move(raw, 8),
        Movlps | Movlpd | Vmovlps | Vmovlpd => half(raw, 0),
        Movhps | Movhpd | Vmovhps | Vmovhpd => half(raw, 8),
        Vpbroadcastb => broadcast(raw, 1),
        Vpbroadcastw => broadcast(raw, 2),
        Vpbroadcastd | Vbroadcastss => broadcast(raw, 4),
        Vpbroadcastq | Vbroadcastsd => broadcast(raw, 8),
        Pinsrb | Vpinsrb => insert(raw, 1),
        Pinsrw | Vpinsrw => insert(raw, 2),
        Pinsrd | Vpinsrd => insert(raw, 4),
        Pinsrq | Vpinsrq => insert(raw, 8),
        Pextrw | Vpextrw => extract(raw, 2, (raw.immediate(2) & 7) * 2),
        Pextrd | Vpextrd => extract(raw, 4, (raw.immediate(2) & 3) * 4),
        Pextrq | Vpextrq => extract(raw, 8, (raw.immediate(2) & 1) * 8),
        _ => None,
    }
}

/// Bytes of the second operand, a vector, to a register or memory.
fn extract(raw: &Instruction, from: u8, imm: u64) -> Option<path::Op> {
    let (dst, src) = (operand(raw, 0)?, operand(raw, 1).filter(|s| vector_at(*s))?);
    let bits = if dst == IN_MEMORY { bits::ADDRESS | bits::WRITES } else { 0 };
    let general = dst < path::NO_GPR || dst == IN_MEMORY;
    general.then_some(path::Op { kind: Kind::VExtract, size: 16, from, dst, src, imm, bits, ..nothing() })
}

/// The lowest bytes, zeros above; or from a vector to elsewhere.
fn part(raw: &Instruction, bytes: u8, imm: u64) -> Option<path::Op> {
    if !vector_at(operand(raw, 0)?) {
        return extract(raw, bytes, imm);
    }
    let op = from_one(raw, Kind::VMove, 8, 1)?;
    Some(path::Op { from: bytes, size: 16, ..op }).filter(|op| op.src < MASK)
}

fn scalar_move(raw: &Instruction, bytes: u8) -> Option<path::Op> {
    if raw.op_mask() != Register::None {
        return None;
    }
    if raw.op_kinds().any(|k| k == OpKind::Memory) {
        return part(raw, bytes, 0);
    }
    let (with, src) = if legacy(raw) { (0, 1) } else { (1, 2) };
    let op = path::Op { with: operand(raw, with)?, ..from_one(raw, Kind::VInsert, 8, src)? };
    Some(path::Op { from: bytes, size: 16, ..op })
}

/// Eight bytes of memory to one half of a vector, or back.
fn half(raw: &Instruction, imm: u64) -> Option<path::Op> {
    if raw.op0_kind() == OpKind::Memory {
        return extract(raw, 8, imm);
    }
    let (with, src) = if legacy(raw) { (0, 1) } else { (1, 2) };
    let op = path::Op { with: operand(raw, with)?, imm, size: 16, ..from_one(raw, Kind::VInsert, 8, src)? };
    (op.src == IN_MEMORY).then_some(op)
}

fn broadcast(raw: &Instruction, lane: u8) -> Option<path::Op> {
    let op = from_one(raw, Kind::VBroadcast, lane, 1)?;
    Some(path::Op { from: lane, ..op }).filter(|op| op.src < MASK && vector_at(op.dst))
}

fn insert(raw: &Instruction, bytes: u8) -> Option<path::Op> {
    let (with, src) = if legacy(raw) { (0, 1) } else { (1, 2) };
    let imm = raw.immediate(src + 1) & u64::from(16 / bytes - 1);
    let op = from_one(raw, Kind::VInsert, 8, src)?;
    Some(path::Op { with: operand(raw, with)?, imm: imm * u64::from(bytes), from: bytes, size: 16, ..op })
}

fn elements(raw: &Instruction) -> Option<path::Op> {
    use M::*;
    let two = |kind, lane| from_two(raw, kind, lane);
    let related = |condition, lane| Some(path::Op { condition, ..two(Kind::VCompare, lane)? });
    let picked = |condition, lane| Some(path::Op { condition, ..two(Kind::VPick, lane)? });
    let signed = relation::SIGNED;
    match raw.mnemonic() {
        Pand | Andps | Andpd | Vpand | Vandps | Vpandd => two(Kind::VAnd, 4),
        Vandpd | Vpandq => two(Kind::VAnd, 8),
        Pandn | Andnps | Andnpd | Vpandn | Vandnps | Vpandnd => two(Kind::VAndNot, 4),
        Vandnpd | Vpandnq => two(Kind::VAndNot, 8),
        Por | Orps | Orpd | Vpor | Vorps | Vpord => two(Kind::VOr, 4),
        Vorpd | Vporq => two(Kind::VOr, 8),
        Pxor | Xorps | Xorpd | Vpxor | Vxorps | Vpxord => two(Kind::VXor, 4).map(nulled),
        Vxorpd | Vpxorq => two(Kind::VXor, 8).map(nulled),
        Paddb | Vpaddb => two(Kind::VAdd, 1),
        Paddw | Vpaddw => two(Kind::VAdd, 2),
        Paddd | Vpaddd => two(Kind::VAdd, 4),
        Paddq | Vpaddq => two(Kind::VAdd, 8),
        Psubb | Vpsubb => two(Kind::VSub, 1).map(nulled),
        Psubw | Vpsubw => two(Kind::VSub, 2).map(nulled),
        Psubd | Vpsubd => two(Kind::VSub, 4).map(nulled),
        Psubq | Vpsubq => two(Kind::VSub, 8).map(nulled),
        Pcmpeqb | Vpcmpeqb => related(relation::EQUAL, 1).map(filled),
        Pcmpeqw | Vpcmpeqw => related(relation::EQUAL, 2).map(filled),
        Pcmpeqd | Vpcmpeqd => related(relation::EQUAL, 4).map(filled),
        Pcmpeqq | Vpcmpeqq => related(relation::EQUAL, 8).map(filled),
        Pcmpgtb | Vpcmpgtb => related(relation::MORE | signed, 1),
        Pcmpgtw | Vpcmpgtw => related(relation::MORE | signed, 2),
        Pcmpgtd | Vpcmpgtd => related(relation::MORE | signed, 4),
        Pcmpgtq | Vpcmpgtq => related(relation::MORE | signed, 8),
        Vpcmpb | Vpcmpw | Vpcmpd | Vpcmpq | Vpcmpub | Vpcmpuw | Vpcmpud | Vpcmpuq => {
            let unsigned = matches!(raw.mnemonic(), Vpcmpub | Vpcmpuw | Vpcmpud | Vpcmpuq);
            let lane = match raw.mnemonic() {
                Vpcmpb | Vpcmpub => 1,
                Vpcmpw | Vpcmpuw => 2,
                Vpcmpd | Vpcmpud => 4,
                _ => 8,
            };
            related(raw.immediate(3) as u8 & 7 | if unsigned { 0 } else { signed }, lane)
        }
        Pminub | Vpminub => picked(relation::LESS, 1),
        Pminuw | Vpminuw => picked(relation::LESS, 2),
        Pminud | Vpminud => picked(relation::LESS, 4),
        Pmaxub | Vpmaxub => picked(relation::MORE, 1),
        Pmaxuw | Vpmaxuw => picked(relation::MORE, 2),
        Pmaxud | Vpmaxud => picked(relation::MORE, 4),
        Pminsb | Vpminsb => picked(relation::LESS | signed, 1),
        Pminsw | Vpminsw => picked(relation::LESS | signed, 2),
        Pminsd | Vpminsd => picked(relation::LESS | signed, 4),
        Pmaxsb | Vpmaxsb => picked(relation::MORE | signed, 1),
        Pmaxsw | Vpmaxsw => picked(relation::MORE | signed, 2),
        Pmaxsd | Vpmaxsd => picked(relation::MORE | signed, 4),
        Vptestmb => two(Kind::VTest, 1),
        Vptestmw => two(Kind::VTest, 2),
        Vptestmd => two(Kind::VTest, 4),
        Vptestmq => two(Kind::VTest, 8),
        Vptestnmb => Some(path::Op { condition: 1, ..two(Kind::VTest, 1)? }),
        Vptestnmw => Some(path::Op { condition: 1, ..two(Kind::VTest, 2)? }),
        Vptestnmd => Some(path::Op { condition: 1, ..two(Kind::VTest, 4)? }),
        Vptestnmq => Some(path::Op { condition: 1, ..two(Kind::VTest, 8)? }),
        Vpternlogd => Some(path::Op { imm: raw.immediate(3), ..two(Kind::VTernary, 4)? }),
        Vpternlogq => Some(path::Op { imm: raw.immediate(3), ..two(Kind::VTernary, 8)? }),
        _ => shifts(raw),
    }
}

/// The same register twice: 0 whatever it holds.
fn nulled(op: path::Op) -> path::Op {
    if op.with == op.src && op.mask & 7 == 0 { path::Op { kind: Kind::VZero, ..op } } else { op }
}

/// Equal to itself.
fn filled(op: path::Op) -> path::Op {
    if op.with == op.src && vector_at(op.dst) { path::Op { kind: Kind::VOnes, ..op } } else { op }
}

/// By a stated count.
fn shifts(raw: &Instruction) -> Option<path::Op> {
    use M::*;
    let (condition, lane) = match raw.mnemonic() {
        Psllw | Vpsllw => (towards::LEFT, 2),
        Pslld | Vpslld => (towards::LEFT, 4),
        Psllq | Vpsllq => (towards::LEFT, 8),
        Psrlw | Vpsrlw => (towards::RIGHT, 2),
        Psrld | Vpsrld => (towards::RIGHT, 4),
        Psrlq | Vpsrlq => (towards::RIGHT, 8),
        Psraw | Vpsraw => (towards::RIGHT_SIGNED, 2),
        Psrad | Vpsrad => (towards::RIGHT_SIGNED, 4),
        _ => return None,
    };
    let last = raw.op_count() - 1;
    if raw.op_kind(last) != OpKind::Immediate8 {
        return None;
    }
    let op = from_one(raw, Kind::VShift, lane, last - 1)?;
    Some(path::Op { condition, imm: raw.immediate(last), ..op }).filter(|op| vector_at(op.dst))
}

fn orders(raw: &Instruction) -> Option<path::Op> {
    use M::*;
    let two = |order: Order, lane| Some(path::Op { condition: order as u8, ..from_two(raw, Kind::VPermute, lane)? });
    let last = raw.op_count().checked_sub(1)?;
    let stated = || (raw.op_kind(last) == OpKind::Immediate8).then(|| raw.immediate(last));
    let one = |order: Order, imm, src| {
        let op = from_one(raw, Kind::VPermute, 4, src)?;
        Some(path::Op { condition: order as u8, imm, ..op }).filter(|op| vector_at(op.dst))
    };
    match raw.mnemonic() {
        Punpcklbw | Vpunpcklbw => two(Order::UnpackLow, 1),
        Punpcklwd | Vpunpcklwd => two(Order::UnpackLow, 2),
        Punpckldq | Vpunpckldq | Unpcklps | Vunpcklps => two(Order::UnpackLow, 4),
        Punpcklqdq | Vpunpcklqdq | Unpcklpd | Vunpcklpd | Movlhps | Vmovlhps => two(Order::UnpackLow, 8),
        Punpckhbw | Vpunpckhbw => two(Order::UnpackHigh, 1),
        Punpckhwd | Vpunpckhwd => two(Order::UnpackHigh, 2),
        Punpckhdq | Vpunpckhdq | Unpckhps | Vunpckhps => two(Order::UnpackHigh, 4),
        Punpckhqdq | Vpunpckhqdq | Unpckhpd | Vunpckhpd => two(Order::UnpackHigh, 8),
        Palignr | Vpalignr => Some(path::Op { imm: stated()?.min(32), ..two(Order::Align, 1)? }),
        Shufps | Vshufps => Some(path::Op { imm: stated()?, ..two(Order::ShuffleTwo, 4)? }),
        // Of 32 bits, two and two; in wider vectors each 16 bytes have bits of their own.
        Shufpd | Vshufpd => {
            let chosen = |bit: u64| if stated()? >> bit & 1 == 1 { Some(0b1110) } else { Some(0b0100) };
            let imm = chosen(0)? | chosen(1)? << 4;
            Some(path::Op { imm, ..two(Order::ShuffleTwo, 4)? }).filter(|op| op.size == 16 && op.mask & 7 == 0)
        }
        Pshufd | Vpshufd => one(Order::Shuffle, stated()?, 1),
        Pshuflw | Vpshuflw => one(Order::ShuffleLow, stated()?, 1),
        Pshufhw | Vpshufhw => one(Order::ShuffleHigh, stated()?, 1),
        Pslldq | Vpslldq => one(Order::BytesLeft, stated()?.min(16), last - 1),
        Psrldq | Vpsrldq => one(Order::BytesRight, stated()?.min(16), last - 1),
        Pshufb | Vpshufb => from_two(raw, Kind::VLookUp, 1),
        _ => None,
    }
}

/// Single numbers of vectors, and what becomes of vectors in flags and registers.
fn scalars(raw: &Instruction) -> Option<path::Op> {
    use M::*;
    match raw.mnemonic() {
        Pmovmskb | Vpmovmskb => signs(raw, 1),
        Movmskps | Vmovmskps => signs(raw, 4),
        Movmskpd | Vmovmskpd => signs(raw, 8),
        Ptest | Vptest => compared(raw, Kind::VAll, 8).filter(|op| op.src != IN_MEMORY || op.from == op.size),
        Ucomisd | Comisd | Vucomisd | Vcomisd => compared(raw, Kind::FCompare, 8),
        Ucomiss | Comiss | Vucomiss | Vcomiss => compared(raw, Kind::FCompare, 4),
        Cvttsd2si | Vcvttsd2si => truncated(raw, 8),
        Cvttss2si | Vcvttss2si => truncated(raw, 4),
        Cvtsi2sd | Vcvtsi2sd => {
            let op = number_made(raw, Kind::FFromInteger)?;
            let from = if op.src == IN_MEMORY { op.from } else { raw.op_register(raw.op_count() - 1).size() as u8 };
            Some(path::Op { from, ..op }).filter(|op| op.src < path::NO_GPR || op.src == IN_MEMORY)
        }
        Addsd | Vaddsd => arithmetic(raw, Kind::FAdd),
        Subsd | Vsubsd => arithmetic(raw, Kind::FSub),
        Mulsd | Vmulsd => arithmetic(raw, Kind::FMultiply),
        Divsd | Vdivsd => arithmetic(raw, Kind::FDivide),
        Pcmpistri | Vpcmpistri => {
            Some(path::Op { imm: raw.immediate(2), ..compared(raw, Kind::VFind, 1)? }).filter(|op| op.size == 16)
        }
        Vzeroupper => Some(path::Op { kind: Kind::VUpperZero, ..nothing() }),
        _ => None,
    }
}

fn signs(raw: &Instruction, lane: u8) -> Option<path::Op> {
    let op = from_one(raw, Kind::VSigns, lane, 1)?;
    Some(path::Op { mask: 0, ..op }).filter(|op| op.dst < path::NO_GPR && vector_at(op.src))
}

/// Both operands are read.
fn compared(raw: &Instruction, kind: Kind, lane: u8) -> Option<path::Op> {
    let op = from_one(raw, kind, lane, 1)?;
    Some(path::Op { with: op.dst, dst: path::NOWHERE, mask: 0, ..op }).filter(|op| vector_at(op.with))
}

fn truncated(raw: &Instruction, lane: u8) -> Option<path::Op> {
    let src = operand(raw, 1)?;
    let bits = if src == IN_MEMORY { bits::ADDRESS | bits::READS } else { 0 };
    let (dst, size) = (operand(raw, 0)?, raw.op0_register().size() as u8);
    Some(path::Op { kind: Kind::FToInteger, size, from: lane, dst, src, lane, bits, ..nothing() })
}

fn number_made(raw: &Instruction, kind: Kind) -> Option<path::Op> {
    let (with, src) = if legacy(raw) { (0, 1) } else { (1, 2) };
    let op = path::Op { with: operand(raw, with)?, size: 16, ..from_one(raw, kind, 8, src)? };
    (op.mask & 7 == 0).then_some(op)
}

/// Of the lowest doubles.
fn arithmetic(raw: &Instruction, kind: Kind) -> Option<path::Op> {
    Some(path::Op { from: 8, ..number_made(raw, kind)? })
}

fn masks(raw: &Instruction) -> Option<path::Op> {
    use M::*;
    let (kind, bytes) = match raw.mnemonic() {
        Kmovb => (Kind::Move, 1),
        Kmovw => (Kind::Move, 2),
        Kmovd => (Kind::Move, 4),
        Kmovq => (Kind::Move, 8),
        Kortestb | Ktestb => (Kind::KTest, 1),
        Kortestw | Ktestw => (Kind::KTest, 2),
        Kortestd | Ktestd => (Kind::KTest, 4),
        Kortestq | Ktestq => (Kind::KTest, 8),
        Kunpckbw => (Kind::KJoin, 1),
        Kunpckwd => (Kind::KJoin, 2),
        Kunpckdq => (Kind::KJoin, 4),
        _ => return None,
    };
    let (dst, second) = (operand(raw, 0)?, operand(raw, 1)?);
    let op = path::Op { kind, size: bytes, from: bytes, dst, src: second, ..nothing() };
    Some(match kind {
        Kind::KTest => {
            path::Op { condition: u8::from(matches!(raw.mnemonic(), Ktestb | Ktestw | Ktestd | Ktestq)), ..op }
        }
        Kind::KJoin => path::Op { with: second, src: operand(raw, 2)?, ..op },
        _ => {
            let to_memory = if dst == IN_MEMORY { bits::ADDRESS | bits::WRITES } else { 0 };
            let from_memory = if second == IN_MEMORY { bits::ADDRESS | bits::READS } else { 0 };
            let size = if dst < path::NO_GPR { bytes.max(4) } else { bytes };
            path::Op { size, bits: to_memory | from_memory, ..op }
        }
    })
}
