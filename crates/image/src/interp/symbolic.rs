//! What the values of a walk depend on, without knowing them: sampled registers alone, or loads whose addresses
//! can be computed from sampled registers and earlier such loads. From this the recipe is made: which loads
//! to read at the interrupt. It may err on the hopeful side (an alias not seen), as the evaluation that uses
//! the values checks every address; a wrong guess here costs a read, never a wrong decision.

use super::Field;
use super::lower::{Address, Arithmetic, Bit, Op, Operand, Shift, Step, Unary, Written};
use super::recipe::{Expr, Recipe, Steps, Sum};

const RSP: usize = 4;
const RBP: usize = 5;

/// Why a value cannot be known at the interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    /// It comes out of an instruction that is not interpreted.
    Instruction,
    /// It is loaded behind a store that may have changed it.
    Aliased,
    /// It is loaded from an address that no recipe expresses.
    Address,
}

/// What a value depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    Hidden(Hidden),
    /// On sampled registers and these loads.
    Needs(Steps),
    /// The same, being a field of a sum.
    Sum(Expr),
}

impl Symbol {
    /// The loads it depends on.
    pub(super) fn loads(self) -> Result<Steps, Hidden> {
        match self {
            Self::Hidden(why) => Err(why),
            Self::Needs(loads) => Ok(loads),
            Self::Sum(of) => Ok(of.sum.needs()),
        }
    }

    fn with(self, other: Self) -> Self {
        match (self.loads(), other.loads()) {
            (Ok(a), Ok(b)) => Self::Needs(a | b),
            (Err(why), _) | (_, Err(why)) => Self::Hidden(why),
        }
    }

    fn expr(self) -> Option<Expr> {
        match self {
            Self::Sum(expr) => Some(expr),
            _ => None,
        }
    }

    /// A field of it.
    fn field(self, field: Field, around: &mut Around<'_>) -> Self {
        let Self::Sum(expr) = self else { return self };
        around.recipe.field(expr, field).map_or_else(|| self.with(self), Self::Sum)
    }

    /// Its low bytes, the rest being zeros.
    fn narrow(self, size: u8, around: &mut Around<'_>) -> Self {
        if size == 8 { self } else { self.field(Field::low(bits(size)), around) }
    }
}

/// Bits of so many bytes.
fn bits(size: u8) -> u8 {
    size.clamp(1, 8) * 8
}

#[derive(Clone, Debug)]
struct Store {
    at: Sum,
    size: u8,
    value: Symbol,
}

/// Symbols of registers, flags and stores at one place of a walk.
#[derive(Clone, Debug)]
pub(super) struct State {
    gpr: [Symbol; 16],
    flags: Symbol,
    stores: Vec<Store>,
    forgotten: bool,
}

/// What symbolic steps need from outside: the recipe in the making, and which loads the image itself answers.
pub(super) struct Around<'a> {
    pub(super) recipe: &'a mut Recipe,
    /// Whether the image holds so many bytes, read-only, at a stated address.
    pub(super) constant: &'a mut dyn FnMut(u64, u8) -> bool,
}

impl State {
    /// At the interrupt.
    pub(super) fn sampled() -> Self {
        let gpr = std::array::from_fn(|n| Symbol::Sum(Expr::whole(Sum::register(n as u8))));
        Self { gpr, flags: Symbol::Needs(0), stores: Vec::new(), forgotten: false }
    }

    pub(super) fn flags(&self) -> Symbol {
        self.flags
    }

    pub(super) fn counter(&self) -> Symbol {
        self.gpr[1]
    }

    fn address(&self, of: &Address, around: &mut Around<'_>) -> Option<Sum> {
        if of.short { None } else { self.sum_of(of, 64, around) }
    }

    /// What a memory operand's registers add up to, in its low bits.
    fn sum_of(&self, of: &Address, bits: u8, around: &mut Around<'_>) -> Option<Sum> {
        if of.strange {
            return None;
        }
        let recipe = &mut *around.recipe;
        let mut sum = Sum::address(of.disp, of.image);
        for (register, scale) in [(of.base, 1), (of.index, of.scale)] {
            if let Some(n) = register {
                let part = recipe.low(self.gpr[usize::from(n)].expr()?, bits)?;
                let part = recipe.times(part, scale.into())?;
                sum = recipe.add(sum, part)?;
            }
        }
        Some(sum)
    }

    fn load(&self, at: Option<Sum>, size: u8, around: &mut Around<'_>) -> Symbol {
        let Some(at) = at else { return Symbol::Hidden(Hidden::Address) };
        for store in self.stores.iter().rev() {
            let Some(distance) = store.at.distance(&at) else { continue };
            if distance == 0 && size <= store.size {
                return store.value.narrow(size, around);
            }
            if distance > -i64::from(size) && distance < i64::from(store.size) {
                return Symbol::Needs(store.value.loads().unwrap_or(0));
            }
        }
        if at.fixed().is_some_and(|at| (around.constant)(at.cast_unsigned(), size)) {
            return Symbol::Needs(0);
        }
        if self.forgotten {
            return Symbol::Hidden(Hidden::Aliased);
        }
        around.recipe.load(at, size).map_or(Symbol::Hidden(Hidden::Address), Symbol::Sum)
    }

    fn store(&mut self, at: Option<Sum>, size: u8, value: Symbol) {
        match at {
            Some(at) => self.stores.push(Store { at, size, value }),
            None => self.forget(),
        }
    }

    fn forget(&mut self) {
        self.stores.clear();
        self.forgotten = true;
    }

    /// An operand as it is read, the rest being zeros.
    pub(super) fn read(&self, operand: Operand, step: &Step, around: &mut Around<'_>) -> Symbol {
        match operand {
            Operand::Register { number, high, size } => {
                let whole = self.gpr[usize::from(number & 15)];
                if high {
                    whole.field(Field { from: 8, bits: 8, signed: false }, around)
                } else {
                    whole.narrow(size, around)
                }
            }
            Operand::Memory { size } => self.load(self.address(&step.address, around), size, around),
            Operand::Immediate => Symbol::Sum(Expr::constant(step.immediate.cast_signed())),
            Operand::None => Symbol::Needs(0),
        }
    }

    fn write(&mut self, operand: Operand, step: &Step, value: Symbol, around: &mut Around<'_>) {
        match operand {
            Operand::Register { number, size, .. } => {
                let whole = self.gpr[usize::from(number & 15)];
                let new = match (size >= 4, whole.loads(), value.loads()) {
                    (true, ..) => value.narrow(size, around),
                    // The rest stays, and may be asked for.
                    (_, Ok(a), Ok(b)) => Symbol::Needs(a | b),
                    _ => value.with(value),
                };
                self.gpr[usize::from(number & 15)] = new;
            }
            Operand::Memory { size } => self.store(self.address(&step.address, around), size, value),
            Operand::Immediate | Operand::None => {}
        }
    }

    /// Goes over a step that continues at the next instruction.
    pub(super) fn step(&mut self, step: &Step, around: &mut Around<'_>) {
        match step.op {
            Op::Nop => {}
            Op::Move => {
                let value = self.read(step.src, step, around);
                self.write(step.dst, step, value, around);
            }
            Op::MoveSigned => {
                let field = Field { signed: true, ..Field::low(bits(step.src.size())) };
                let value = self.read(step.src, step, around).field(field, around);
                self.write(step.dst, step, value, around);
            }
            Op::SignInto => {
                let field = Field { from: bits(step.src.size()) - 1, bits: 1, signed: true };
                let value = self.read(step.src, step, around).field(field, around);
                self.write(step.dst, step, value, around);
            }
            Op::Lea => {
                let value = self.lea(step, around);
                self.write(step.dst, step, value, around);
            }
            Op::Arithmetic(op) => self.arithmetic(op, step, around),
            Op::Unary(op) => self.unary(op, step, around),
            Op::Shift(op) => {
                let old = self.read(step.dst, step, around);
                let count = self.read(step.src, step, around);
                self.flags = old.with(count);
                let value = shifted(op, old, count, step.dst.size(), around);
                self.write(step.dst, step, value, around);
            }
            Op::QuietShift(op) => {
                let (old, count) = (self.read(step.src, step, around), self.read(step.third, step, around));
                let value = shifted(op, old, count, step.dst.size(), around);
                self.write(step.dst, step, value, around);
            }
            Op::Multiply => {
                let first = if step.third == Operand::None { step.dst } else { step.third };
                let (a, b) = (self.read(first, step, around), self.read(step.src, step, around));
                self.flags = a.with(b);
                let value = product(a, b, step.dst.size(), around).map_or(a.with(b), Symbol::Sum);
                self.write(step.dst, step, value, around);
            }
            Op::Forget { registers, flags, written } => self.forgetting(step, registers, flags, written, around),
            Op::Push | Op::Pop | Op::Leave | Op::PushFlags | Op::PopFlags => self.stack(step, around),
            _ => self.mixed(step, around),
        }
    }

    fn lea(&self, step: &Step, around: &mut Around<'_>) -> Symbol {
        let address = &step.address;
        let bits = if address.short { 32 } else { bits(step.dst.size()) };
        let sum = self.sum_of(address, bits, around).map(|s| Symbol::Sum(Expr::whole(s)));
        sum.map(|s| s.field(Field::low(bits), around)).unwrap_or_else(|| {
            let part = |n: Option<u8>| n.map_or(Symbol::Needs(0), |n| self.gpr[usize::from(n)]);
            part(address.base).with(part(address.index))
        })
    }

    fn unary(&mut self, op: Unary, step: &Step, around: &mut Around<'_>) {
        let old = self.read(step.dst, step, around);
        let (scale, plus) = match op {
            Unary::Inc => (1, 1),
            Unary::Dec => (1, -1),
            Unary::Neg => (-1, 0),
            Unary::Not => (-1, -1),
            Unary::Swap => (0, 0),
        };
        let value = (|| {
            let sum = around.recipe.low(old.expr().filter(|_| scale != 0)?, bits(step.dst.size()))?;
            Some(Symbol::Sum(Expr::whole(around.recipe.times(sum, scale)?.plus(plus))))
        })();
        self.write(step.dst, step, value.unwrap_or(old.with(old)), around);
        match op {
            Unary::Not | Unary::Swap => {}
            Unary::Inc | Unary::Dec => self.flags = self.flags.with(old),
            Unary::Neg => self.flags = old.with(old),
        }
    }

    fn arithmetic(&mut self, op: Arithmetic, step: &Step, around: &mut Around<'_>) {
        use Arithmetic::{Adc, Andn, Cmp, Sbb, Sub, Test, Xor};
        let same = step.dst == step.src && matches!(step.dst, Operand::Register { .. });
        if same && matches!(op, Xor | Sub) {
            self.write(step.dst, step, Symbol::Sum(Expr::constant(0)), around);
            self.flags = Symbol::Needs(0);
            return;
        }
        let (a, b) = (self.read(step.dst, step, around), self.read(step.src, step, around));
        let inputs = match op {
            Andn => b.with(self.read(step.third, step, around)),
            Adc => a.with(b).with(self.flags),
            Sbb if same => self.flags.with(self.flags),
            Sbb => a.with(b).with(self.flags),
            _ => a.with(b),
        };
        if !matches!(op, Cmp | Test) {
            let value = computed(op, a, b, step.dst.size(), around).map_or(inputs, Symbol::Sum);
            self.write(step.dst, step, value, around);
        }
        self.flags = inputs;
    }

    fn stack(&mut self, step: &Step, around: &mut Around<'_>) {
        let top = |symbol: Symbol, around: &mut Around<'_>| around.recipe.low(symbol.expr()?, 64);
        let pointer = |top: Option<Sum>, old: Symbol| top.map_or(old.with(old), |s| Symbol::Sum(Expr::whole(s)));
        match step.op {
            Op::Push | Op::PushFlags => {
                let value = if step.op == Op::Push {
                    self.read(step.dst, step, around)
                } else {
                    Symbol::Hidden(Hidden::Instruction)
                };
                let new = top(self.gpr[RSP], around).map(|s| s.plus(-8));
                self.gpr[RSP] = pointer(new, self.gpr[RSP]);
                self.store(new, 8, value);
            }
            _ => {
                if step.op == Op::Leave {
                    self.gpr[RSP] = self.gpr[RBP];
                }
                let old = top(self.gpr[RSP], around);
                let value = self.load(old, 8, around);
                self.gpr[RSP] = pointer(old.map(|s| s.plus(8)), self.gpr[RSP]);
                match step.op {
                    Op::Leave => self.gpr[RBP] = value,
                    Op::Pop => self.write(step.dst, step, value, around),
                    _ => self.flags = Symbol::Hidden(Hidden::Instruction),
                }
            }
        }
    }

    fn forgetting(&mut self, step: &Step, registers: u16, flags: bool, written: Written, around: &mut Around<'_>) {
        let hidden = Symbol::Hidden(Hidden::Instruction);
        match written {
            Written::Nothing => {}
            Written::Operand(size) => self.store(self.address(&step.address, around), size, hidden),
            Written::Anything => self.forget(),
        }
        for (n, symbol) in self.gpr.iter_mut().enumerate() {
            if registers >> n & 1 == 1 {
                *symbol = hidden;
            }
        }
        if flags {
            self.flags = hidden;
        }
    }

    /// All else: what is written depends on all that is read.
    fn mixed(&mut self, step: &Step, around: &mut Around<'_>) {
        let overwrites = matches!(step.op, Op::SetIf(_) | Op::Scan(_) | Op::ZeroHigh);
        let dst = if overwrites { Operand::None } else { step.dst };
        let all = [dst, step.src, step.third]
            .into_iter()
            .map(|o| self.read(o, step, around))
            .fold(Symbol::Needs(0), Symbol::with);
        match step.op {
            Op::MoveIf(_) | Op::SetIf(_) => {
                let value = all.with(self.flags);
                self.write(step.dst, step, value, around);
            }
            Op::WideMultiply { .. } | Op::Divide { .. } => {
                let divides = matches!(step.op, Op::Divide { .. });
                let value = all.with(self.gpr[0]).with(if divides { self.gpr[2] } else { Symbol::Needs(0) });
                self.gpr[0] = value;
                if step.dst.size() > 1 {
                    self.gpr[2] = value;
                }
                self.flags = value;
            }
            Op::Bit(Bit::Test) => self.flags = all,
            Op::Exchange => {
                let (a, b) = (self.read(step.dst, step, around), self.read(step.src, step, around));
                self.write(step.dst, step, b, around);
                self.write(step.src, step, a, around);
            }
            Op::ExchangeAdd => {
                self.write(step.src, step, all, around);
                self.write(step.dst, step, all, around);
                self.flags = all;
            }
            Op::SetCarry | Op::ClearCarry | Op::FlipCarry => {}
            _ => {
                self.write(step.dst, step, all, around);
                self.flags = all;
            }
        }
    }
}

/// Two operands of so many bytes, as a sum or field, if the result is one.
fn computed(op: Arithmetic, a: Symbol, b: Symbol, size: u8, around: &mut Around<'_>) -> Option<Expr> {
    let (x, y) = (a.expr()?, b.expr()?);
    let (bits, recipe) = (bits(size), &mut *around.recipe);
    match op {
        Arithmetic::Add => {
            let (x, y) = (recipe.low(x, bits)?, recipe.low(y, bits)?);
            recipe.add(x, y).map(Expr::whole)
        }
        Arithmetic::Sub => {
            let (x, y) = (recipe.low(x, bits)?, recipe.low(y, bits)?);
            let less = recipe.times(y, -1)?;
            recipe.add(x, less).map(Expr::whole)
        }
        Arithmetic::And => {
            let (of, mask) = y.known().map(|m| (x, m)).or_else(|| x.known().map(|m| (y, m)))?;
            let mask = mask.cast_unsigned() << (64 - bits) >> (64 - bits);
            let ones = mask.trailing_ones();
            // The lowest bits up to some one.
            if ones > 0 && ones == mask.count_ones() { recipe.field(of, Field::low(ones as u8)) } else { None }
        }
        _ => None,
    }
}

/// A product with a constant.
fn product(a: Symbol, b: Symbol, size: u8, around: &mut Around<'_>) -> Option<Expr> {
    let (x, y) = (a.expr()?, b.expr()?);
    let (of, by) = y.known().map(|by| (x, by)).or_else(|| x.known().map(|by| (y, by)))?;
    let of = around.recipe.low(of, bits(size))?;
    around.recipe.times(of, by).map(Expr::whole)
}

/// What is shifted by a constant is a multiple or a field; by anything else, no sum.
fn shifted(op: Shift, value: Symbol, count: Symbol, size: u8, around: &mut Around<'_>) -> Symbol {
    let mut done = || {
        let (of, count) = (value.expr()?, count.expr()?.known()?);
        let bits = bits(size);
        let count = (count & if size == 8 { 63 } else { 31 }) as u8;
        let left = bits.checked_sub(count).filter(|left| *left > 0)?;
        match op {
            Shift::Left => {
                let low = around.recipe.low(of, bits)?;
                around.recipe.times(low, 1 << count.min(62)).map(Expr::whole)
            }
            Shift::Right => around.recipe.field(of, Field { from: count, bits: left, signed: false }),
            Shift::Signed => around.recipe.field(of, Field { from: count, bits: left, signed: true }),
            Shift::RotateLeft | Shift::RotateRight => None,
        }
    };
    done().map_or(value.with(count), Symbol::Sum)
}
