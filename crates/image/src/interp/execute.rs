//! The interpreted operations, as the processor does them: results, and flags as far as they are defined.

use super::lower::{Arithmetic, Bit, Op, Operand, Scan, Shift, Step, Unary, Written};
use super::machine::Machine;
use super::value::{CF, Flags, OF, PF, SF, STATUS, Value, ZF, holds, mask, top};

const RAX: usize = 0;
const RDX: usize = 2;
const RSP: usize = 4;
const RBP: usize = 5;

/// A division that faults: the program does not go on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault;

impl Machine<'_> {
    /// Executes a step that goes on to the next instruction.
    pub(super) fn execute(&mut self, step: &Step) -> Result<(), Fault> {
        match step.op {
            Op::Move => self.write(step.dst, step, self.read(step.src, step)),
            Op::MoveSigned => {
                let value = self.read(step.src, step).sign_extended(step.src.size());
                self.write(step.dst, step, value);
            }
            Op::Lea => {
                let address = self.address(&step.address).map_or(Value::UNKNOWN, Value::exact);
                self.write(step.dst, step, address);
            }
            Op::Arithmetic(op) => self.arithmetic(op, step),
            Op::Unary(op) => self.unary(op, step),
            Op::Shift(op) => self.shift(op, step),
            Op::QuietShift(op) => self.quiet_shift(op, step),
            Op::DoubleShift(op) => self.double_shift(op, step),
            Op::Multiply => self.multiply(step),
            Op::WideMultiply { signed } => self.wide_multiply(step, signed),
            Op::Divide { signed } => self.divide(step, signed)?,
            Op::Bit(op) => self.bit(op, step),
            Op::Scan(op) => self.scan(op, step),
            Op::ZeroHigh => self.zero_high(step),
            Op::MoveIf(condition) => {
                let (old, new) = (self.read(step.dst, step), self.read(step.src, step));
                let value = match holds(condition, self.flags) {
                    Some(taken) => {
                        if taken {
                            new
                        } else {
                            old
                        }
                    }
                    None => old.common(new),
                };
                self.write(step.dst, step, value);
            }
            Op::SetIf(condition) => {
                let value = holds(condition, self.flags).map_or(Value::of(0, !1), |h| Value::exact(u64::from(h)));
                self.write(step.dst, step, value);
            }
            Op::SignInto => {
                let size = step.src.size();
                let sign = self.read(step.src, step).bit(top(size));
                let value = sign.map_or(Value::UNKNOWN, |s| Value::exact(if s { mask(size) } else { 0 }));
                self.write(step.dst, step, value);
            }
            Op::Exchange => {
                let (a, b) = (self.read(step.dst, step), self.read(step.src, step));
                self.write(step.dst, step, b);
                self.write(step.src, step, a);
            }
            Op::ExchangeAdd => {
                let (a, b) = (self.read(step.dst, step), self.read(step.src, step));
                let (sum, flags) = add(a, b, Some(false), step.dst.size());
                self.write(step.src, step, a);
                self.write(step.dst, step, sum);
                self.set_flags(STATUS, flags);
            }
            Op::Forget { registers, flags, written } => self.forget(step, registers, flags, written),
            _ => self.stack_or_flag(step),
        }
        Ok(())
    }

    fn stack_or_flag(&mut self, step: &Step) {
        match step.op {
            Op::Push => self.push(self.read(step.dst, step)),
            Op::Pop => {
                let value = self.pop();
                self.write(step.dst, step, value);
            }
            Op::Leave => {
                self.gpr[RSP] = self.gpr[RBP];
                self.gpr[RBP] = self.pop();
            }
            Op::PushFlags => self.push(Value::UNKNOWN),
            Op::PopFlags => {
                self.pop();
                self.flags = Value::UNKNOWN;
            }
            Op::SetCarry | Op::ClearCarry => {
                self.flags = self.flags.replaced(Value::exact(if step.op == Op::SetCarry { CF } else { 0 }), CF);
            }
            Op::FlipCarry => self.flags = self.flags.xor(Value::exact(CF)),
            _ => {}
        }
    }

    fn forget(&mut self, step: &Step, registers: u16, flags: bool, written: Written) {
        // The operand's address is made of the registers as they were before.
        match written {
            Written::Nothing => {}
            Written::Operand(size) => self.store(self.address(&step.address), size, Value::UNKNOWN),
            Written::Anything => self.memory.forget(),
        }
        for (n, value) in self.gpr.iter_mut().enumerate() {
            if registers >> n & 1 == 1 {
                *value = Value::UNKNOWN;
            }
        }
        if flags {
            self.set_flags(STATUS, Flags::default());
        }
    }

    /// Replaces the flags of `which` by what is known of the new ones.
    fn set_flags(&mut self, which: u64, flags: Flags) {
        self.flags = self.flags.replaced(flags.value(), which);
    }

    fn arithmetic(&mut self, op: Arithmetic, step: &Step) {
        let size = step.dst.size();
        let a = self.read(step.dst, step);
        let b = self.read(step.src, step).low(size);
        let carry = self.flags.bit(CF.trailing_zeros());
        let same = step.dst == step.src && matches!(step.dst, Operand::Register { .. });
        let (value, flags) = match op {
            Arithmetic::Add => add(a, b, Some(false), size),
            Arithmetic::Adc => add(a, b, carry, size),
            // A register less itself is 0 whatever it holds.
            Arithmetic::Sub | Arithmetic::Cmp if same => subtract(Value::exact(0), Value::exact(0), Some(false), size),
            Arithmetic::Sbb if same => subtract(Value::exact(0), Value::exact(0), carry, size),
            Arithmetic::Sub | Arithmetic::Cmp => subtract(a, b, Some(false), size),
            Arithmetic::Sbb => subtract(a, b, carry, size),
            Arithmetic::Xor if same => logic(Value::exact(0), size),
            Arithmetic::And | Arithmetic::Test => logic(a.and(b), size),
            Arithmetic::Or => logic(a.or(b), size),
            Arithmetic::Xor => logic(a.xor(b), size),
            Arithmetic::Andn => {
                let (value, mut flags) = logic(b.inverted().and(self.read(step.third, step)).low(size), size);
                flags.forget(PF);
                (value, flags)
            }
        };
        if !matches!(op, Arithmetic::Cmp | Arithmetic::Test) {
            self.write(step.dst, step, value);
        }
        self.set_flags(STATUS, flags);
    }

    fn unary(&mut self, op: Unary, step: &Step) {
        let size = step.dst.size();
        let a = self.read(step.dst, step);
        let (value, flags, which) = match op {
            Unary::Inc => with(add(a, Value::exact(1), Some(false), size), STATUS & !CF),
            Unary::Dec => with(subtract(a, Value::exact(1), Some(false), size), STATUS & !CF),
            Unary::Neg => with(subtract(Value::exact(0), a, Some(false), size), STATUS),
            Unary::Not => (a.inverted(), Flags::default(), 0),
            Unary::Swap => (swapped(a, size), Flags::default(), 0),
        };
        self.write(step.dst, step, value);
        self.set_flags(which, flags);
    }

    /// The count of a shift, as the processor cuts it.
    fn count(&self, of: Operand, step: &Step, size: u8) -> Option<u32> {
        let count = self.read(of, step).get(1)?;
        Some((count & if size == 8 { 63 } else { 31 }) as u32)
    }

    fn shift(&mut self, op: Shift, step: &Step) {
        let size = step.dst.size();
        let a = self.read(step.dst, step);
        let rotates = matches!(op, Shift::RotateLeft | Shift::RotateRight);
        let which = if rotates { CF | OF } else { STATUS };
        let Some(count) = self.count(step.src, step, size) else {
            self.write(step.dst, step, Value::UNKNOWN);
            self.set_flags(which, Flags::default());
            return;
        };
        if count == 0 {
            // Flags stay; a 32-bit register is still written.
            self.write(step.dst, step, a);
            return;
        }
        let value = shifted(op, a, count, size);
        self.write(step.dst, step, value);
        self.set_flags(which, shift_flags(op, a, value, count, size));
    }

    fn quiet_shift(&mut self, op: Shift, step: &Step) {
        let size = step.dst.size();
        let a = self.read(step.src, step);
        let value = self.count(step.third, step, size).map_or(Value::UNKNOWN, |count| shifted(op, a, count, size));
        self.write(step.dst, step, value);
    }

    fn double_shift(&mut self, op: Shift, step: &Step) {
        let size = step.dst.size();
        let bits = top(size) + 1;
        let (a, b) = (self.read(step.dst, step), self.read(step.src, step));
        let count = match self.count(step.third, step, size) {
            Some(0) => {
                self.write(step.dst, step, a);
                return;
            }
            // More than its bits: undefined.
            other => other.filter(|&c| c < bits),
        };
        let Some(count) = count else {
            self.write(step.dst, step, Value::UNKNOWN);
            self.set_flags(STATUS, Flags::default());
            return;
        };
        let (value, out) = match op {
            Shift::Left => (a.shifted_left(count).or(b.shifted_right(bits - count)), a.bit(bits - count)),
            _ => (a.shifted_right(count).or(b.shifted_left(bits - count)), a.bit(count - 1)),
        };
        let value = value.low(size);
        let mut flags = Flags::default();
        flags.result(value, size);
        flags.set_if_known(CF, out);
        if count == 1 {
            flags.set_if_known(OF, value.xor(a).bit(top(size)));
        }
        self.write(step.dst, step, value);
        self.set_flags(STATUS, flags);
    }

    fn multiply(&mut self, step: &Step) {
        let size = step.dst.size();
        let first = if step.third == Operand::None { step.dst } else { step.third };
        let (a, b) = (self.read(first, step).low(size).get(8), self.read(step.src, step).get(8));
        let mut flags = Flags::default();
        let value = match (a, b) {
            (Some(a), Some(b)) => {
                let product = i128::from(signed(a, size)) * i128::from(signed(b, size));
                let low = product as u64 & mask(size);
                let over = i128::from(signed(low, size)) != product;
                flags.set(CF, over);
                flags.set(OF, over);
                Value::exact(low)
            }
            _ => Value::UNKNOWN,
        };
        self.write(step.dst, step, value);
        self.set_flags(STATUS, flags);
    }

    /// Low and high half of a result in rdx:rax (ax for bytes).
    fn write_halves(&mut self, step: &Step, size: u8, low: Value, high: Value) {
        let part = |number, high, size| Operand::Register { number, high, size };
        self.write(part(RAX as u8, false, size), step, low);
        let upper = if size == 1 { part(RAX as u8, true, 1) } else { part(RDX as u8, false, size) };
        self.write(upper, step, high);
    }

    fn wide_multiply(&mut self, step: &Step, is_signed: bool) {
        let size = step.dst.size();
        let (a, b) = (self.gpr[RAX].get(size), self.read(step.dst, step).get(size));
        let (Some(a), Some(b)) = (a, b) else {
            self.write_halves(step, size, Value::UNKNOWN, Value::UNKNOWN);
            self.set_flags(STATUS, Flags::default());
            return;
        };
        let product = if is_signed {
            (i128::from(signed(a, size)) * i128::from(signed(b, size))).cast_unsigned()
        } else {
            u128::from(a) * u128::from(b)
        };
        let low = product as u64 & mask(size);
        let high = (product >> (top(size) + 1)) as u64 & mask(size);
        let over = if is_signed { i128::from(signed(low, size)).cast_unsigned() != product } else { high != 0 };
        self.write_halves(step, size, Value::exact(low), Value::exact(high));
        let mut flags = Flags::default();
        flags.set(CF, over);
        flags.set(OF, over);
        self.set_flags(STATUS, flags);
    }

    fn divide(&mut self, step: &Step, is_signed: bool) -> Result<(), Fault> {
        let size = step.dst.size();
        let low = self.gpr[RAX].get(size);
        let high = if size == 1 { self.gpr[RAX].shifted_right(8).get(1) } else { self.gpr[RDX].get(size) };
        let by = self.read(step.dst, step).get(size);
        self.set_flags(STATUS, Flags::default());
        let (Some(low), Some(high), Some(by)) = (low, high, by) else {
            self.write_halves(step, size, Value::UNKNOWN, Value::UNKNOWN);
            return Ok(());
        };
        let (quotient, rest) = quotient(low, high, by, size, is_signed).ok_or(Fault)?;
        self.write_halves(step, size, Value::exact(quotient), Value::exact(rest));
        Ok(())
    }

    fn bit(&mut self, op: Bit, step: &Step) {
        let size = step.dst.size();
        let a = self.read(step.dst, step);
        let n = self.read(step.src, step).get(1).map(|n| n as u32 & top(size));
        let value = match (op, n) {
            (Bit::Test, _) => None,
            (_, None) => Some(Value::UNKNOWN),
            (Bit::Set, Some(n)) => Some(a.or(Value::exact(1 << n))),
            (Bit::Reset, Some(n)) => Some(a.and(Value::exact(!(1 << n)))),
            (Bit::Flip, Some(n)) => Some(a.xor(Value::exact(1 << n))),
        };
        if let Some(value) = value {
            self.write(step.dst, step, value);
        }
        let mut flags = Flags::default();
        flags.set_if_known(CF, n.and_then(|n| a.bit(n)));
        // All but the zero flag become undefined or the bit.
        self.set_flags(STATUS & !ZF, flags);
    }

    fn scan(&mut self, op: Scan, step: &Step) {
        let size = step.dst.size();
        let bits = u64::from(top(size)) + 1;
        let Some(a) = self.read(step.src, step).get(size) else {
            self.write(step.dst, step, Value::UNKNOWN);
            self.set_flags(STATUS, Flags::default());
            return;
        };
        let mut flags = Flags::default();
        let leading = u64::from(a.leading_zeros()) - (64 - bits);
        let trailing = u64::from(a.trailing_zeros()).min(bits);
        let value = match op {
            // The result for 0 is undefined.
            Scan::Forward => (a != 0).then_some(trailing),
            Scan::Reverse => (a != 0).then(|| bits - 1 - leading),
            Scan::TrailingZeros => Some(trailing),
            Scan::LeadingZeros => Some(leading),
            Scan::Ones => Some(u64::from(a.count_ones())),
            Scan::ClearLowest => Some(a & a.wrapping_sub(1)),
            Scan::IsolateLowest => Some(a & a.wrapping_neg()),
            Scan::MaskLowest => Some((a ^ a.wrapping_sub(1)) & mask(size)),
        };
        match (op, value) {
            (Scan::Forward | Scan::Reverse, _) => flags.set(ZF, a == 0),
            (Scan::TrailingZeros | Scan::LeadingZeros, Some(n)) => {
                flags.set(CF, a == 0);
                flags.set(ZF, n == 0);
            }
            (Scan::Ones, _) => {
                flags.set(STATUS & !ZF, false);
                flags.set(ZF, a == 0);
            }
            (_, Some(n)) => {
                flags.set(OF, false);
                flags.set(ZF, n == 0);
                flags.set(SF, n >> top(size) & 1 == 1);
                flags.set(CF, (a == 0) != (op == Scan::IsolateLowest));
            }
            _ => {}
        }
        self.write(step.dst, step, value.map_or(Value::UNKNOWN, Value::exact));
        self.set_flags(STATUS, flags);
    }

    fn zero_high(&mut self, step: &Step) {
        let size = step.dst.size();
        let bits = u64::from(top(size)) + 1;
        let (a, n) = (self.read(step.src, step), self.read(step.third, step).get(1));
        let mut flags = Flags::default();
        let value = match n {
            Some(n) => {
                flags.set(CF, n >= bits);
                flags.set(OF, false);
                let kept = if n >= bits { a } else { a.and(Value::exact((1 << n) - 1)) };
                flags.result(kept, size);
                // Parity is undefined here.
                flags.forget(PF);
                kept
            }
            None => Value::UNKNOWN,
        };
        self.write(step.dst, step, value);
        self.set_flags(STATUS, flags);
    }
}

fn with(result: (Value, Flags), which: u64) -> (Value, Flags, u64) {
    (result.0, result.1, which)
}

fn signed(value: u64, size: u8) -> i64 {
    let shift = 63 - top(size);
    (value << shift).cast_signed() >> shift
}

fn add(a: Value, b: Value, carry: Option<bool>, size: u8) -> (Value, Flags) {
    let mut flags = Flags::default();
    let (Some(x), Some(y), Some(c)) = (a.get(size), b.get(size), carry) else {
        return (Value::UNKNOWN.low(size), flags);
    };
    let sum = u128::from(x) + u128::from(y) + u128::from(c);
    let low = sum as u64 & mask(size);
    flags.result(Value::exact(low), size);
    flags.set(CF, sum > u128::from(mask(size)));
    flags.set(OF, ((x ^ low) & (y ^ low)) >> top(size) & 1 == 1);
    (Value::exact(low), flags)
}

fn subtract(a: Value, b: Value, borrow: Option<bool>, size: u8) -> (Value, Flags) {
    let mut flags = Flags::default();
    let (Some(x), Some(y), Some(c)) = (a.get(size), b.get(size), borrow) else {
        return (Value::UNKNOWN.low(size), flags);
    };
    let low = x.wrapping_sub(y).wrapping_sub(u64::from(c)) & mask(size);
    flags.result(Value::exact(low), size);
    flags.set(CF, u128::from(x) < u128::from(y) + u128::from(c));
    flags.set(OF, ((x ^ y) & (x ^ low)) >> top(size) & 1 == 1);
    (Value::exact(low), flags)
}

fn logic(value: Value, size: u8) -> (Value, Flags) {
    let mut flags = Flags::default();
    flags.result(value, size);
    flags.set(CF | OF, false);
    (value, flags)
}

fn swapped(a: Value, size: u8) -> Value {
    match (a.get(size), size) {
        (Some(v), 8) => Value::exact(v.swap_bytes()),
        (Some(v), 4) => Value::exact(u64::from((v as u32).swap_bytes())),
        // Undefined for 16 bits.
        _ => Value::UNKNOWN,
    }
}

fn shifted(op: Shift, a: Value, count: u32, size: u8) -> Value {
    let bits = top(size) + 1;
    match op {
        Shift::Left => a.shifted_left(count).low(size),
        Shift::Right => a.low(size).shifted_right(count),
        Shift::Signed => match a.get(size) {
            Some(v) => Value::exact((signed(v, size) >> count.min(63)).cast_unsigned() & mask(size)),
            None => Value::UNKNOWN.low(size),
        },
        Shift::RotateLeft => rotated(a, count % bits, size),
        Shift::RotateRight => rotated(a, (bits - count % bits) % bits, size),
    }
}

fn rotated(a: Value, left: u32, size: u8) -> Value {
    if left == 0 {
        return a.low(size);
    }
    let bits = top(size) + 1;
    a.shifted_left(left).low(size).or(a.low(size).shifted_right(bits - left))
}

/// Flags of a shift or rotation by a count that is not 0.
fn shift_flags(op: Shift, a: Value, value: Value, count: u32, size: u8) -> Flags {
    let (bits, highest) = (top(size) + 1, top(size));
    let mut flags = Flags::default();
    if !matches!(op, Shift::RotateLeft | Shift::RotateRight) {
        flags.result(value, size);
    }
    let (carry, over) = match op {
        Shift::Left => {
            (bits.checked_sub(count).and_then(|n| a.bit(n)).filter(|_| count < bits), value.xor(a).bit(highest))
        }
        Shift::Right => (a.bit(count - 1).filter(|_| count < bits), a.bit(highest)),
        Shift::Signed => (a.bit((count - 1).min(highest)), Some(false)),
        Shift::RotateLeft => (value.bit(0), value.xor(value.shifted_left(highest)).bit(highest)),
        Shift::RotateRight => (value.bit(highest), value.xor(value.shifted_left(1)).bit(highest)),
    };
    flags.set_if_known(CF, carry);
    // Told for a count of 1 only.
    if count == 1 {
        flags.set_if_known(OF, over);
    }
    flags
}

/// Quotient and remainder, unless the division faults.
fn quotient(low: u64, high: u64, by: u64, size: u8, is_signed: bool) -> Option<(u64, u64)> {
    let bits = top(size) + 1;
    let whole = u128::from(high) << bits | u128::from(low);
    if !is_signed {
        let quotient = whole.checked_div(u128::from(by)).filter(|q| *q <= u128::from(mask(size)))?;
        return Some((quotient as u64, (whole % u128::from(by)) as u64));
    }
    let spare = 128 - 2 * bits;
    let whole = (whole << spare).cast_signed() >> spare;
    let by = i128::from(signed(by, size));
    let quotient = whole.checked_div(by)?;
    let rest = whole.checked_rem(by)?;
    let limit = 1_i128 << (bits - 1);
    let fits = (-limit..limit).contains(&quotient);
    fits.then_some((quotient as u64 & mask(size), rest as u64 & mask(size)))
}
