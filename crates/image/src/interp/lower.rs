//! Decoded instructions as compact steps: which of the interpreted operations one is, its operands, and for
//! all others what they change, so that it can be forgotten. What cannot be passed at all ends the walk.

use iced_x86::{
    Code, ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic as M, OpAccess, OpKind, Register,
};

/// Two operands in, one out, flags from the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Adc,
    Sub,
    Sbb,
    Cmp,
    And,
    Or,
    Xor,
    Test,
    Andn,
}

/// One operand in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Inc,
    Dec,
    Neg,
    Not,
    Swap,
}

/// By a count, flags from what is shifted out; the quiet ones (BMI2) leave flags alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    Left,
    Right,
    Signed,
    RotateLeft,
    RotateRight,
}

/// About single bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bit {
    Test,
    Set,
    Reset,
    Flip,
}

/// From one operand to another register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    Forward,
    Reverse,
    TrailingZeros,
    LeadingZeros,
    Ones,
    ClearLowest,
    IsolateLowest,
    MaskLowest,
}

/// What an uninterpreted instruction may have written to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Nothing,
    /// So many bytes at the memory operand.
    Operand(u8),
    /// Somewhere, or others may have written meanwhile (fences, locked operations).
    Anything,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Nop,
    /// `dst = src`, zero-extended.
    Move,
    /// `dst = src`, sign-extended.
    MoveSigned,
    Lea,
    Arithmetic(Arithmetic),
    Unary(Unary),
    Shift(Shift),
    QuietShift(Shift),
    /// `shld` (left) and `shrd` by the count in `third`.
    DoubleShift(Shift),
    /// `dst = src * third`.
    Multiply,
    /// rdx:rax = rax * src.
    WideMultiply {
        signed: bool,
    },
    Divide {
        signed: bool,
    },
    Bit(Bit),
    Scan(Scan),
    ZeroHigh,
    MoveIf(u8),
    SetIf(u8),
    /// `cwd`, `cdq`, `cqo`.
    SignInto,
    Exchange,
    ExchangeAdd,
    Push,
    Pop,
    Leave,
    SetCarry,
    ClearCarry,
    FlipCarry,
    PushFlags,
    PopFlags,
    /// Anything else that goes on to the next instruction.
    Forget {
        /// General registers, by number.
        registers: u16,
        flags: bool,
        written: Written,
    },
    Jump(u64),
    Branch {
        condition: u8,
        to: u64,
    },
    /// When rcx (of this many bytes) is 0.
    BranchIfNone {
        size: u8,
        to: u64,
    },
    IndirectJump,
    IndirectCall,
}

/// An operand; where in memory is told by the step's [`Address`], there being one at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    None,
    Register {
        number: u8,
        /// Bits 8 to 15.
        high: bool,
        size: u8,
    },
    Memory {
        size: u8,
    },
    /// In [`Step::immediate`].
    Immediate,
}

impl Operand {
    pub(super) fn size(self) -> u8 {
        match self {
            Self::Register { size, .. } | Self::Memory { size } => size,
            Self::None | Self::Immediate => 8,
        }
    }
}

/// How the address of a memory operand is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) base: Option<u8>,
    pub(super) index: Option<u8>,
    pub(super) scale: u8,
    pub(super) disp: i64,
    /// `disp` is a stated address of the image.
    pub(super) image: bool,
    /// Cut to 32 bits.
    pub(super) short: bool,
    /// Relative to a segment, or made of something else than general registers: never known.
    pub(super) strange: bool,
}

/// One instruction, ready to be interpreted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    pub(super) dst: Operand,
    pub(super) src: Operand,
    pub(super) third: Operand,
    pub(super) address: Address,
    pub(super) immediate: u64,
}

/// Why an instruction cannot be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barrier {
    Call,
    Return,
    Unsupported,
    Undecodable,
}

pub(super) fn lower(raw: &Instruction, infos: &mut InstructionInfoFactory) -> Result<Step, Barrier> {
    if raw.is_invalid() {
        return Err(Barrier::Undecodable);
    }
    let op = operation(raw, infos)?;
    let mut step =
        Step { op, dst: Operand::None, src: Operand::None, third: Operand::None, address: address(raw), immediate: 0 };
    if matches!(op, Op::Forget { .. } | Op::Nop) {
        return Ok(step);
    }
    if let Some((dst, src)) = accumulators(raw) {
        (step.dst, step.src) = (dst, src);
        return Ok(step);
    }
    let mut plain = true;
    for (n, place) in [&mut step.dst, &mut step.src, &mut step.third].into_iter().enumerate() {
        if (n as u32) < raw.op_count() {
            match operand(raw, n as u32) {
                Some(found) => *place = found,
                None => plain = false,
            }
            if *place == Operand::Immediate {
                step.immediate = raw.immediate(n as u32);
            }
        }
    }
    if !plain || !fits(&step, raw) {
        step.op = forget(raw, infos)?;
    }
    Ok(step)
}

/// Operands of the sign extensions of rax, which do not name them.
fn accumulators(raw: &Instruction) -> Option<(Operand, Operand)> {
    let part = |number, size| Operand::Register { number, high: false, size };
    Some(match raw.mnemonic() {
        M::Cbw => (part(0, 2), part(0, 1)),
        M::Cwde => (part(0, 4), part(0, 2)),
        M::Cdqe => (part(0, 8), part(0, 4)),
        M::Cwd => (part(2, 2), part(0, 2)),
        M::Cdq => (part(2, 4), part(0, 4)),
        M::Cqo => (part(2, 8), part(0, 8)),
        _ => return None,
    })
}

/// Shapes of operations that the interpreter does not know; `sub` and `add` of segment registers and the like.
fn fits(step: &Step, raw: &Instruction) -> bool {
    let register = |o: Operand| matches!(o, Operand::Register { .. });
    match step.op {
        // With the bit's number in a register the operand may be far from its address.
        Op::Bit(_) => register(step.dst) || step.src == Operand::Immediate,
        Op::Exchange | Op::ExchangeAdd => register(step.dst) && register(step.src),
        Op::Push | Op::Pop => step.dst.size() == 8 && raw.stack_pointer_increment().abs() == 8,
        Op::Leave => raw.code() == Code::Leaveq,
        _ => true,
    }
}

pub(super) fn operand(raw: &Instruction, n: u32) -> Option<Operand> {
    match raw.op_kind(n) {
        OpKind::Register => register(raw.op_register(n)),
        OpKind::Memory => {
            let size = u8::try_from(raw.memory_size().size()).ok().filter(|s| matches!(s, 1 | 2 | 4 | 8));
            // The operand of `lea` is not read and has no size.
            size.or((raw.mnemonic() == M::Lea).then_some(8)).map(|size| Operand::Memory { size })
        }
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => Some(Operand::None),
        OpKind::Immediate8
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64 => Some(Operand::Immediate),
        _ => None,
    }
}

fn register(which: Register) -> Option<Operand> {
    if !which.is_gpr() {
        return None;
    }
    let high = matches!(which, Register::AH | Register::BH | Register::CH | Register::DH);
    Some(Operand::Register { number: number(which)?, high, size: which.size() as u8 })
}

fn number(which: Register) -> Option<u8> {
    which.is_gpr().then(|| which.full_register().number() as u8)
}

pub(super) fn address(raw: &Instruction) -> Address {
    if !raw.op_kinds().any(|k| k == OpKind::Memory) {
        return Address::default();
    }
    if raw.is_ip_rel_memory_operand() {
        let short = raw.memory_base() == Register::EIP;
        let segment = matches!(raw.segment_prefix(), Register::FS | Register::GS);
        return Address {
            disp: raw.ip_rel_memory_address().cast_signed(),
            image: true,
            strange: short || segment,
            ..Address::default()
        };
    }
    let (base, index) = (raw.memory_base(), raw.memory_index());
    let known = |r: Register| r == Register::None || r.is_gpr();
    let segment = matches!(raw.memory_segment(), Register::FS | Register::GS) && raw.mnemonic() != M::Lea;
    Address {
        base: number(base),
        index: number(index),
        scale: raw.memory_index_scale() as u8,
        disp: raw.memory_displacement64().cast_signed(),
        image: false,
        short: base.is_gpr32() || index.is_gpr32() || raw.memory_displ_size() == 4,
        strange: segment || raw.is_vsib() || !known(base) || !known(index),
    }
}

/// Number of a condition in machine code.
fn condition(raw: &Instruction) -> Option<u8> {
    let code = raw.condition_code();
    (code != ConditionCode::None).then(|| code as u8 - 1)
}

fn operation(raw: &Instruction, infos: &mut InstructionInfoFactory) -> Result<Op, Barrier> {
    match raw.flow_control() {
        FlowControl::Next => {}
        FlowControl::UnconditionalBranch if raw.is_jmp_short_or_near() => {
            return Ok(Op::Jump(raw.near_branch_target()));
        }
        FlowControl::ConditionalBranch => return branch(raw),
        FlowControl::IndirectBranch if !raw.is_jmp_far_indirect() => return Ok(Op::IndirectJump),
        FlowControl::IndirectCall if !raw.is_call_far_indirect() => return Ok(Op::IndirectCall),
        FlowControl::Call if raw.is_call_near() => return Err(Barrier::Call),
        FlowControl::Return => return Err(Barrier::Return),
        _ => return Err(Barrier::Unsupported),
    }
    // Locked: others may write at the same time, also elsewhere. `xchg` with memory locks by itself.
    let memory = raw.op_kinds().any(|k| k == OpKind::Memory);
    if raw.has_lock_prefix() || raw.mnemonic() == M::Xchg && memory {
        return forget(raw, infos);
    }
    match known(raw) {
        Some(op) => Ok(op),
        None => forget(raw, infos),
    }
}

fn branch(raw: &Instruction) -> Result<Op, Barrier> {
    let to = raw.near_branch_target();
    if raw.is_jcc_short_or_near() {
        let condition = condition(raw).ok_or(Barrier::Unsupported)?;
        return Ok(Op::Branch { condition, to });
    }
    match raw.mnemonic() {
        M::Jrcxz => Ok(Op::BranchIfNone { size: 8, to }),
        M::Jecxz => Ok(Op::BranchIfNone { size: 4, to }),
        _ => Err(Barrier::Unsupported),
    }
}

fn known(raw: &Instruction) -> Option<Op> {
    Some(match raw.mnemonic() {
        M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Lea | M::Nop | M::Endbr64 => movement(raw),
        M::Add => Op::Arithmetic(Arithmetic::Add),
        M::Adc => Op::Arithmetic(Arithmetic::Adc),
        M::Sub => Op::Arithmetic(Arithmetic::Sub),
        M::Sbb => Op::Arithmetic(Arithmetic::Sbb),
        M::Cmp => Op::Arithmetic(Arithmetic::Cmp),
        M::And => Op::Arithmetic(Arithmetic::And),
        M::Or => Op::Arithmetic(Arithmetic::Or),
        M::Xor => Op::Arithmetic(Arithmetic::Xor),
        M::Test => Op::Arithmetic(Arithmetic::Test),
        M::Andn => Op::Arithmetic(Arithmetic::Andn),
        M::Inc => Op::Unary(Unary::Inc),
        M::Dec => Op::Unary(Unary::Dec),
        M::Neg => Op::Unary(Unary::Neg),
        M::Not => Op::Unary(Unary::Not),
        M::Bswap => Op::Unary(Unary::Swap),
        M::Shl | M::Sal => Op::Shift(Shift::Left),
        M::Shr => Op::Shift(Shift::Right),
        M::Sar => Op::Shift(Shift::Signed),
        M::Rol => Op::Shift(Shift::RotateLeft),
        M::Ror => Op::Shift(Shift::RotateRight),
        M::Shlx => Op::QuietShift(Shift::Left),
        M::Shrx => Op::QuietShift(Shift::Right),
        M::Sarx => Op::QuietShift(Shift::Signed),
        M::Rorx => Op::QuietShift(Shift::RotateRight),
        M::Shld => Op::DoubleShift(Shift::Left),
        M::Shrd => Op::DoubleShift(Shift::Right),
        M::Imul if raw.op_count() >= 2 => Op::Multiply,
        M::Imul => Op::WideMultiply { signed: true },
        M::Mul => Op::WideMultiply { signed: false },
        M::Idiv => Op::Divide { signed: true },
        M::Div => Op::Divide { signed: false },
        M::Bt => Op::Bit(Bit::Test),
        M::Bts => Op::Bit(Bit::Set),
        M::Btr => Op::Bit(Bit::Reset),
        M::Btc => Op::Bit(Bit::Flip),
        M::Bsf => Op::Scan(Scan::Forward),
        M::Bsr => Op::Scan(Scan::Reverse),
        M::Tzcnt => Op::Scan(Scan::TrailingZeros),
        M::Lzcnt => Op::Scan(Scan::LeadingZeros),
        M::Popcnt => Op::Scan(Scan::Ones),
        M::Blsr => Op::Scan(Scan::ClearLowest),
        M::Blsi => Op::Scan(Scan::IsolateLowest),
        M::Blsmsk => Op::Scan(Scan::MaskLowest),
        M::Bzhi => Op::ZeroHigh,
        M::Xchg => Op::Exchange,
        M::Xadd => Op::ExchangeAdd,
        M::Push => Op::Push,
        M::Pop => Op::Pop,
        M::Leave => Op::Leave,
        M::Stc => Op::SetCarry,
        M::Clc => Op::ClearCarry,
        M::Cmc => Op::FlipCarry,
        M::Pushfq => Op::PushFlags,
        M::Popfq => Op::PopFlags,
        M::Cwd | M::Cdq | M::Cqo => Op::SignInto,
        M::Cbw | M::Cwde | M::Cdqe => Op::MoveSigned,
        M::Cmovo | M::Cmovno | M::Cmovb | M::Cmovae | M::Cmove | M::Cmovne | M::Cmovbe | M::Cmova => {
            Op::MoveIf(condition(raw)?)
        }
        M::Cmovs | M::Cmovns | M::Cmovp | M::Cmovnp | M::Cmovl | M::Cmovge | M::Cmovle | M::Cmovg => {
            Op::MoveIf(condition(raw)?)
        }
        M::Seto | M::Setno | M::Setb | M::Setae | M::Sete | M::Setne | M::Setbe | M::Seta => Op::SetIf(condition(raw)?),
        M::Sets | M::Setns | M::Setp | M::Setnp | M::Setl | M::Setge | M::Setle | M::Setg => Op::SetIf(condition(raw)?),
        _ => return None,
    })
}

fn movement(raw: &Instruction) -> Op {
    match raw.mnemonic() {
        M::Movsx | M::Movsxd => Op::MoveSigned,
        M::Lea => Op::Lea,
        M::Nop | M::Endbr64 => Op::Nop,
        _ => Op::Move,
    }
}

/// What an instruction changes, whether it is interpreted or not; `None` when it cannot be passed.
pub(super) fn forgotten(raw: &Instruction, infos: &mut InstructionInfoFactory) -> Option<Op> {
    forget(raw, infos).ok()
}

/// What an instruction changes that is not interpreted.
fn forget(raw: &Instruction, infos: &mut InstructionInfoFactory) -> Result<Op, Barrier> {
    let repeated = raw.is_string_instruction() && (raw.has_rep_prefix() || raw.has_repne_prefix());
    // Those of 16 bits and of segment registers.
    let stack = raw.is_stack_instruction() || raw.mnemonic() == M::Leave;
    if repeated
        || stack
        || raw.is_privileged()
        || raw.is_save_restore_instruction()
        || raw.flow_control() != FlowControl::Next
    {
        return Err(Barrier::Unsupported);
    }
    let locked = raw.has_lock_prefix() || raw.mnemonic() == M::Xchg;
    let fence = matches!(
        raw.mnemonic(),
        M::Pause | M::Mfence | M::Lfence | M::Sfence | M::Serialize | M::Mwaitx | M::Tpause | M::Umwait
    );
    let info = infos.info(raw);
    let changes = |access: OpAccess| {
        matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
    };
    let mut registers = 0;
    for used in info.used_registers().iter().filter(|u| changes(u.access())) {
        registers |= number(used.register()).map_or(0, |n| 1 << n);
    }
    let stores = info.used_memory().iter().filter(|m| changes(m.access())).count();
    // A bit's number in a register may lead far away from the operand.
    let far = raw.is_vsib() || matches!(raw.mnemonic(), M::Bts | M::Btr | M::Btc);
    let operand = raw.op_kinds().filter(|k| *k == OpKind::Memory).count() == 1 && !far;
    let size = u8::try_from(raw.memory_size().size()).ok().filter(|s| (1..=64).contains(s));
    let written = match (stores, size) {
        _ if locked || fence => Written::Anything,
        (0, _) => Written::Nothing,
        (1, Some(size)) if operand => Written::Operand(size),
        _ => Written::Anything,
    };
    Ok(Op::Forget { registers, flags: raw.rflags_modified() != 0, written })
}
