//! Instructions prepared for walks in the kernel: as `struct wh_op` of `include/whither_path.h`, for one place of an image in one
//! process. What they do there is in `include/whither_walk.h`; tests have random code executed by it and by this crate's own
//! interpreter or the processor. Constraint: what the kernel side has no operation for is forgotten (what it changes is unknown afterwards) or,
//! where even that is not known, ends the walk; never left out.

use super::lower::{Address, Arithmetic, Barrier, Bit, Op, Operand, Scan, Shift, Step, Unary, Written, address, lower};
use super::slice::MOST_BYTES;
use crate::ids::Svma;
use crate::jump_tables::Data;
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Register};
use whither_abi::path::{self, Kind, bits};

mod more;
mod vectors;

/// An instruction and what may follow it.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// What to do; without the numbers of its successors.
    pub op: path::Op,
    /// Stated address of the instruction behind it, if control can get there.
    pub next: Option<Svma>,
    /// Of its direct target.
    pub target: Option<Svma>,
    /// Of where its callee returns to.
    pub returns_to: Option<Svma>,
}

/// Prepares instructions one by one.
pub struct Preparer {
    infos: InstructionInfoFactory,
}

impl std::fmt::Debug for Preparer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preparer").finish_non_exhaustive()
    }
}

impl Default for Preparer {
    fn default() -> Self {
        Self { infos: InstructionInfoFactory::new() }
    }
}

impl Preparer {
    /// The instruction at a stated address, the same for all processes; `None` where the bytes are not at hand.
    /// What is no instruction is prepared as the end of a walk.
    pub fn at(&mut self, code: &dyn Data, at: Svma) -> Option<Prepared> {
        let bytes = (1..=MOST_BYTES).rev().find_map(|len| code.bytes(at, len))?;
        let raw = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
        Some(self.prepared(&raw))
    }

    fn prepared(&mut self, raw: &Instruction) -> Prepared {
        let next = Svma(raw.next_ip());
        let back = next.0;
        let plain = |op| Prepared { op, next: Some(next), target: None, returns_to: None };
        let away = |op, target| Prepared { op, next: None, target, returns_to: None };
        let of = |kind| path::Op { kind, ..nothing() };
        if let Some(op) = more::known(raw).or_else(|| vectors::known(raw)) {
            return plain(addressed(op, &address(raw), raw));
        }
        // What another thread may do meanwhile is not known with or without it.
        let mut raw = *raw;
        raw.set_has_lock_prefix(false);
        let raw = &raw;
        let step = match lower(raw, &mut self.infos) {
            Ok(step) => step,
            Err(Barrier::Call) => {
                let op = path::Op { imm: back, ..of(Kind::Call) };
                return Prepared { returns_to: Some(next), ..away(op, Some(Svma(raw.near_branch_target()))) };
            }
            Err(Barrier::Return) => {
                return away(path::Op { imm: dropped(raw), ..of(Kind::Return) }, None);
            }
            Err(Barrier::Unsupported | Barrier::Undecodable) => return away(of(Kind::End), None),
        };
        match step.op {
            Op::Jump(to) => away(of(Kind::Jump), Some(Svma(to))),
            Op::Branch { condition, to } => {
                Prepared { target: Some(Svma(to)), ..plain(path::Op { condition, ..of(Kind::Branch) }) }
            }
            Op::BranchIfNone { size, to } => {
                Prepared { target: Some(Svma(to)), ..plain(path::Op { size, ..of(Kind::BranchIfNone) }) }
            }
            Op::IndirectJump => away(far(Kind::JumpFar, &step, raw), None),
            Op::IndirectCall => {
                let op = path::Op { imm: back, ..far(Kind::CallFar, &step, raw) };
                Prepared { returns_to: Some(next), ..away(op, None) }
            }
            _ => match self.straight(&step, raw) {
                Some(op) => plain(op),
                None => away(of(Kind::End), None),
            },
        }
    }

    /// An instruction that goes on to the next one; `None` when it cannot be passed.
    fn straight(&mut self, step: &Step, raw: &Instruction) -> Option<path::Op> {
        let op = match step.op {
            Op::PushFlags | Op::PopFlags => return None,
            Op::Forget { .. } => None,
            _ => known(step),
        };
        match op {
            Some(op) => Some(addressed(op, &step.address, raw)),
            None => self.forgotten(raw),
        }
    }

    fn forgotten(&mut self, raw: &Instruction) -> Option<path::Op> {
        let Op::Forget { registers, flags, written } = super::lower::forgotten(raw, &mut self.infos)? else {
            return None;
        };
        let (size, written) = match written {
            Written::Nothing => (8, 0),
            Written::Operand(size) => (size, bits::ADDRESS | bits::WRITES),
            Written::Anything => return None,
        };
        let flags = if flags { bits::FLAGS } else { 0 };
        let dst = vectors::written(raw, &mut self.infos)?;
        let op = path::Op { kind: Kind::Forget, size, dst, forgets: registers, bits: written | flags, ..nothing() };
        Some(addressed(op, &address(raw), raw))
    }
}

/// No operands, no successors.
fn nothing() -> path::Op {
    path::Op {
        size: 8,
        from: 8,
        dst: path::NOWHERE,
        src: path::NOWHERE,
        base: path::NO_GPR,
        index: path::NO_GPR,
        with: path::NOWHERE,
        ..path::Op::default()
    }
}

/// Bytes that a return drops behind the address it takes.
fn dropped(raw: &Instruction) -> u64 {
    if raw.op_count() > 0 { raw.immediate16().into() } else { 0 }
}

fn far(kind: Kind, step: &Step, raw: &Instruction) -> path::Op {
    let op = path::Op { kind, src: place(step.dst), bits: reads(step.dst), ..nothing() };
    addressed(op, &step.address, raw)
}

fn place(operand: Operand) -> u8 {
    match operand {
        Operand::None => path::NOWHERE,
        Operand::Register { number, high, .. } => number & 15 | if high { 16 } else { 0 },
        Operand::Memory { .. } => path::IN_MEMORY,
        Operand::Immediate => path::IMMEDIATE,
    }
}

fn in_memory(operand: Operand) -> bool {
    matches!(operand, Operand::Memory { .. })
}

fn reads(operand: Operand) -> u8 {
    if in_memory(operand) { bits::ADDRESS | bits::READS } else { 0 }
}

fn writes(operand: Operand) -> u8 {
    if in_memory(operand) { bits::ADDRESS | bits::WRITES } else { 0 }
}

/// `op` with the memory operand's address, if it has one.
fn addressed(op: path::Op, of: &Address, raw: &Instruction) -> path::Op {
    if op.bits & bits::ADDRESS == 0 && op.kind != Kind::Lea {
        return op;
    }
    let Address { base, index, scale, disp, image, short, strange } = *of;
    let general = |r: Register| r == Register::None || r.is_gpr64();
    let local = raw.memory_segment() == Register::FS
        && !image
        && !raw.is_vsib()
        && general(raw.memory_base())
        && general(raw.memory_index())
        && op.kind != Kind::Lea;
    let how = match () {
        () if local => bits::FS,
        () if strange => bits::STRANGE,
        () if short => bits::SHORT,
        () => 0,
    };
    path::Op {
        disp: disp.cast_unsigned(),
        base: if image { path::OF_IMAGE } else { base.unwrap_or(path::NO_GPR) },
        index: index.unwrap_or(path::NO_GPR),
        shift: scale.max(1).trailing_zeros() as u8,
        bits: op.bits | bits::ADDRESS | how,
        ..op
    }
}

/// The operation, if the kernel side has it.
fn known(step: &Step) -> Option<path::Op> {
    let (dst, src) = (step.dst, step.src);
    let size = dst.size();
    // The result goes where the first input was.
    let base = path::Op { size, from: size, dst: place(dst), src: place(src), imm: step.immediate, ..nothing() };
    let changed = |kind| path::Op { kind, bits: reads(dst) | writes(dst) | reads(src), ..base };
    let made = |kind| path::Op { kind, from: src.size(), bits: writes(dst) | reads(src), ..base };
    let looked_at = |kind| path::Op { kind, bits: reads(dst) | reads(src) | bits::KEEPS, ..base };
    Some(match step.op {
        Op::Nop => path::Op { kind: Kind::Nop, ..nothing() },
        Op::Move => made(Kind::Move),
        Op::MoveSigned => made(Kind::MoveSigned),
        Op::Lea => path::Op { kind: Kind::Lea, size, dst: place(dst), ..nothing() },
        Op::Arithmetic(op) => {
            let same = dst == src && matches!(dst, Operand::Register { .. });
            match op {
                Arithmetic::Sub | Arithmetic::Xor if same => changed(Kind::Zero),
                Arithmetic::Cmp if same => looked_at(Kind::Zero),
                Arithmetic::Sbb if same => changed(Kind::ZeroBorrow),
                Arithmetic::Add => changed(Kind::Add),
                Arithmetic::Adc => changed(Kind::Adc),
                Arithmetic::Sub => changed(Kind::Sub),
                Arithmetic::Sbb => changed(Kind::Sbb),
                Arithmetic::Cmp => looked_at(Kind::Sub),
                Arithmetic::And => changed(Kind::And),
                Arithmetic::Test => looked_at(Kind::And),
                Arithmetic::Or => changed(Kind::Or),
                Arithmetic::Xor => changed(Kind::Xor),
                Arithmetic::Andn => return None,
            }
        }
        Op::Unary(Unary::Inc) => changed(Kind::Inc),
        Op::Unary(Unary::Dec) => changed(Kind::Dec),
        Op::Unary(Unary::Neg) => changed(Kind::Neg),
        Op::Unary(Unary::Not) => changed(Kind::Not),
        Op::Shift(Shift::Left) => changed(Kind::Shl),
        Op::Shift(Shift::Right) => changed(Kind::Shr),
        Op::Shift(Shift::Signed) => changed(Kind::Sar),
        Op::Shift(Shift::RotateLeft) => changed(Kind::Rol),
        Op::Shift(Shift::RotateRight) => changed(Kind::Ror),
        Op::Multiply => path::Op { third: u8::from(step.third != Operand::None), ..changed(Kind::Multiply) },
        Op::WideMultiply { signed } if size >= 4 => {
            path::Op { kind: if signed { Kind::Imul } else { Kind::Mul }, bits: reads(dst), ..base }
        }
        Op::Divide { signed } if size >= 4 => {
            path::Op { kind: if signed { Kind::Idiv } else { Kind::Div }, bits: reads(dst), ..base }
        }
        Op::Bit(Bit::Test) => looked_at(Kind::BitTest),
        Op::Bit(Bit::Set) => changed(Kind::BitSet),
        Op::Bit(Bit::Reset) => changed(Kind::BitReset),
        Op::Bit(Bit::Flip) => changed(Kind::BitFlip),
        Op::Scan(scan) => path::Op { bits: reads(src), ..made(scan_kind(scan)?) },
        Op::MoveIf(condition) => path::Op { condition, bits: reads(src), ..changed(Kind::MoveIf) },
        Op::SetIf(condition) => path::Op { condition, bits: writes(dst), ..changed(Kind::SetIf) },
        Op::SignInto => made(Kind::Sign),
        Op::Exchange if base.dst < path::NO_GPR && base.src < path::NO_GPR => changed(Kind::Swap),
        Op::Push => path::Op { kind: Kind::Push, src: place(dst), imm: step.immediate, bits: reads(dst), ..nothing() },
        Op::Pop if base.dst < path::NO_GPR => path::Op { kind: Kind::Pop, dst: place(dst), ..nothing() },
        Op::Leave => path::Op { kind: Kind::Leave, ..nothing() },
        _ => return None,
    })
}

fn scan_kind(scan: Scan) -> Option<Kind> {
    Some(match scan {
        Scan::Forward => Kind::Bsf,
        Scan::Reverse => Kind::Bsr,
        Scan::TrailingZeros => Kind::Tzcnt,
        Scan::LeadingZeros => Kind::Lzcnt,
        Scan::Ones => Kind::Popcnt,
        Scan::ClearLowest | Scan::IsolateLowest | Scan::MaskLowest => return None,
    })
}

#[cfg(test)]
mod native;
#[cfg(test)]
mod tests;
