//! State while interpreting: registers and flags of which some bits are known, and what is known of memory.
//! A load is answered by the latest store of the walk that covers it, else by what was read at the interrupt,
//! else by read-only data of the image. A store to an unknown address may have changed all but the last.

use super::lower::{Address, Operand, Step};
use super::value::{Value, mask};
use crate::ids::Svma;
use crate::jump_tables::Data;

const RSP: usize = 4;

/// A value at a runtime address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) at: u64,
    pub(super) size: u8,
    pub(super) value: Value,
}

impl Kept {
    fn overlaps(&self, at: u64, size: u8) -> bool {
        at.wrapping_sub(self.at) < u64::from(self.size) || self.at.wrapping_sub(at) < u64::from(size)
    }

    /// The part of it that `size` bytes at `at` are, if it holds them all.
    fn part(&self, at: u64, size: u8) -> Option<Value> {
        let from = at.wrapping_sub(self.at);
        let inside = from < u64::from(self.size) && from + u64::from(size) <= u64::from(self.size);
        // What is wider than a register was never known.
        let narrow = self.size <= 8;
        inside.then(
            || if narrow { self.value.shifted_right(from as u32 * 8).low(size) } else { Value::UNKNOWN.low(size) },
        )
    }
}

/// Memory as far as known.
pub(super) struct Memory<'a> {
    stores: Vec<Kept>,
    at_interrupt: &'a [Kept],
    forgotten: bool,
    image: &'a dyn Data,
    bias: u64,
}

impl<'a> Memory<'a> {
    pub(super) fn new(at_interrupt: &'a [Kept], image: &'a dyn Data, bias: u64) -> Self {
        Self { stores: Vec::new(), at_interrupt, forgotten: false, image, bias }
    }

    fn load(&self, at: u64, size: u8) -> Value {
        if let Some(store) = self.stores.iter().rev().find(|s| s.overlaps(at, size)) {
            return store.part(at, size).unwrap_or(Value::UNKNOWN.low(size));
        }
        if !self.forgotten
            && let Some(value) = self.at_interrupt.iter().find_map(|k| k.part(at, size))
        {
            return value;
        }
        self.constant(at, size).map_or(Value::UNKNOWN.low(size), Value::exact)
    }

    fn constant(&self, at: u64, size: u8) -> Option<u64> {
        little_endian(self.image.bytes(Svma(at.wrapping_sub(self.bias)), usize::from(size))?)
    }

    fn store(&mut self, at: u64, size: u8, value: Value) {
        self.stores.push(Kept { at, size, value });
    }

    pub(super) fn forget(&mut self) {
        self.stores.clear();
        self.forgotten = true;
    }

    /// Whether anything may have been written meanwhile, but for read-only data.
    #[cfg(test)]
    pub(super) fn is_forgotten(&self) -> bool {
        self.forgotten
    }
}

/// A number of 1 to 8 bytes.
pub(super) fn little_endian(bytes: &[u8]) -> Option<u64> {
    let mut whole = [0; 8];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(whole))
}

/// A processor and its memory.
pub(super) struct Machine<'a> {
    pub(super) gpr: [Value; 16],
    pub(super) flags: Value,
    pub(super) memory: Memory<'a>,
    pub(super) bias: u64,
}

impl Machine<'_> {
    /// Runtime address of a memory operand.
    pub(super) fn address(&self, of: &Address) -> Option<u64> {
        if of.strange {
            return None;
        }
        let part = |register: Option<u8>| match register {
            Some(n) => self.gpr[usize::from(n)].get(if of.short { 4 } else { 8 }),
            None => Some(0),
        };
        let index = part(of.index)?.wrapping_mul(u64::from(of.scale));
        let sum = part(of.base)?.wrapping_add(index).wrapping_add_signed(of.disp);
        let sum = if of.image { sum.wrapping_add(self.bias) } else { sum };
        Some(if of.short { sum & mask(4) } else { sum })
    }

    pub(super) fn load(&self, address: Option<u64>, size: u8) -> Value {
        address.map_or(Value::UNKNOWN.low(size), |at| self.memory.load(at, size))
    }

    pub(super) fn store(&mut self, address: Option<u64>, size: u8, value: Value) {
        match address {
            Some(at) => self.memory.store(at, size, value),
            None => self.memory.forget(),
        }
    }

    /// An operand, zero-extended to 64 bits.
    pub(super) fn read(&self, operand: Operand, step: &Step) -> Value {
        match operand {
            Operand::Register { number, high, size } => {
                let whole = self.gpr[usize::from(number & 15)];
                whole.shifted_right(if high { 8 } else { 0 }).low(size)
            }
            Operand::Memory { size } => self.load(self.address(&step.address), size),
            Operand::Immediate => Value::exact(step.immediate),
            Operand::None => Value::UNKNOWN,
        }
    }

    /// Writes an operand: 32 bits clear the upper half of a register, 8 and 16 keep the rest.
    pub(super) fn write(&mut self, operand: Operand, step: &Step, value: Value) {
        match operand {
            Operand::Register { number, high, size } => {
                let whole = &mut self.gpr[usize::from(number & 15)];
                *whole = match (size, high) {
                    (8, _) => value,
                    (4, _) => value.low(4),
                    (_, true) => whole.replaced(value.shifted_left(8), 0xff00),
                    _ => whole.replaced(value, mask(size)),
                };
            }
            Operand::Memory { size } => {
                let at = self.address(&step.address);
                self.store(at, size, value.low(size));
            }
            Operand::Immediate | Operand::None => {}
        }
    }

    pub(super) fn push(&mut self, value: Value) {
        let at = self.gpr[RSP].get(8).map(|sp| sp.wrapping_sub(8));
        self.gpr[RSP] = at.map_or(Value::UNKNOWN, Value::exact);
        self.store(at, 8, value);
    }

    pub(super) fn pop(&mut self) -> Value {
        let at = self.gpr[RSP].get(8);
        self.gpr[RSP] = at.map_or(Value::UNKNOWN, |sp| Value::exact(sp.wrapping_add(8)));
        self.load(at, 8)
    }
}
