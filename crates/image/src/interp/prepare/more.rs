//! Instructions on general registers that only walks know: the interpreter of samples has others for them or gives up. Locked ones
//! are as others, as a walk sees nothing of other threads anyway.

use super::super::lower::{Operand, operand};
use super::{in_memory, nothing, place, reads, writes};
use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};
use whither_abi::path::{self, Kind, NO_GPR, towards};

pub(super) fn known(raw: &Instruction) -> Option<path::Op> {
    if raw.is_string_instruction() {
        return string(raw);
    }
    match raw.mnemonic() {
        M::Xchg if raw.op0_kind() == OpKind::Memory => changed(raw, Kind::Swap),
        M::Xadd => changed(raw, Kind::AddSwap),
        // Whether the upper half of a register that is compared falls is told differently by the manuals.
        M::Cmpxchg if raw.op0_kind() == OpKind::Memory => changed(raw, Kind::SwapIfEqual),
        M::Bswap => Some(path::Op { kind: Kind::SwapBytes, ..on(operand(raw, 0)?) }).filter(|op| op.size >= 4),
        M::Blsr => made(raw, Kind::ClearLowest, 1, None),
        M::Blsi => made(raw, Kind::IsolateLowest, 1, None),
        M::Blsmsk => made(raw, Kind::MaskLowest, 1, None),
        M::Andn => made(raw, Kind::AndNot, 2, Some(1)),
        M::Bzhi => made(raw, Kind::ZeroHigh, 1, Some(2)),
        M::Shlx => quiet(raw, towards::LEFT),
        M::Shrx => quiet(raw, towards::RIGHT),
        M::Sarx => quiet(raw, towards::RIGHT_SIGNED),
        M::Rorx => quiet(raw, towards::ROUND_RIGHT),
        M::Shld => double(raw, towards::LEFT),
        M::Shrd => double(raw, towards::RIGHT),
        M::Clc => Some(carry(0)),
        M::Stc => Some(carry(1)),
        M::Cmc => Some(carry(2)),
        _ => None,
    }
}

fn carry(condition: u8) -> path::Op {
    path::Op { kind: Kind::Carry, condition, ..nothing() }
}

fn on(dst: Operand) -> path::Op {
    path::Op { size: dst.size(), from: dst.size(), dst: place(dst), ..nothing() }
}

/// A low part of a register.
fn low(operand: Operand) -> Option<u8> {
    Some(place(operand)).filter(|p| *p < NO_GPR)
}

/// Its first operand, of which it makes something with its second one, a register that may change as well.
fn changed(raw: &Instruction, kind: Kind) -> Option<path::Op> {
    let (dst, src) = (operand(raw, 0)?, operand(raw, 1)?);
    if !in_memory(dst) {
        low(dst)?;
    }
    Some(path::Op { kind, src: low(src)?, bits: reads(dst) | writes(dst), ..on(dst) })
}

/// Its first operand, made of others.
fn made(raw: &Instruction, kind: Kind, src: u32, with: Option<u32>) -> Option<path::Op> {
    let src = operand(raw, src)?;
    let with = match with {
        Some(n) => low(operand(raw, n)?)?,
        None => path::NOWHERE,
    };
    Some(path::Op { kind, src: place(src), with, bits: reads(src), ..on(operand(raw, 0)?) })
}

fn quiet(raw: &Instruction, condition: u8) -> Option<path::Op> {
    let by_register = raw.op2_kind() == OpKind::Register;
    let op = made(raw, Kind::ShiftQuietly, 1, by_register.then_some(2))?;
    Some(path::Op { condition, imm: if by_register { 0 } else { raw.immediate(2) }, ..op })
}

fn double(raw: &Instruction, condition: u8) -> Option<path::Op> {
    let (dst, src) = (operand(raw, 0)?, operand(raw, 1)?);
    let (with, imm) = match operand(raw, 2)? {
        Operand::Immediate => (path::NOWHERE, raw.immediate(2)),
        count => (low(count)?, 0),
    };
    let bits = reads(dst) | writes(dst);
    Some(path::Op { kind: Kind::ShiftDouble, src: low(src)?, with, imm, condition, bits, ..on(dst) })
}

fn string(raw: &Instruction) -> Option<path::Op> {
    let plain = |kind| matches!(kind, OpKind::MemoryESRDI | OpKind::MemorySegRSI | OpKind::Register);
    if !raw.op_kinds().all(plain) || raw.segment_prefix() != Register::None {
        return None;
    }
    let (kind, compares) = match raw.mnemonic() {
        M::Stosb | M::Stosw | M::Stosd | M::Stosq => (Kind::StringStore, false),
        M::Movsb | M::Movsw | M::Movsd | M::Movsq => (Kind::StringCopy, false),
        M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq => (Kind::StringCompare, true),
        M::Scasb | M::Scasw | M::Scasd | M::Scasq => (Kind::StringScan, true),
        _ => return None,
    };
    let condition = match (raw.has_rep_prefix(), raw.has_repne_prefix()) {
        (false, false) => 0,
        (_, true) if compares => 2,
        _ => 1,
    };
    let size = u8::try_from(raw.memory_size().size()).ok()?;
    Some(path::Op { kind, size, condition, ..nothing() })
}
