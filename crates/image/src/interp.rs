//! What a sampled user instruction leads to: interpreted forward from the registers of the sample, code decides
//! its next branches, so that each such sample is evidence on edges (DCPI's plan for edge samples). A [`Slice`]
//! is made once per sampled address and used for all samples there; nothing here reads a process or a file.
//!
//! What comes out is certain or absent. A value is followed bit by bit only as long as the processor's manual
//! defines it; flags left undefined, vector registers, thread-local data, and memory that another store may have
//! changed are unknown, and a branch that depends on them is not decided.

mod execute;
mod lower;
mod machine;
mod prepare;
mod recipe;
mod slice;
mod symbolic;
mod value;
mod walk;

pub use prepare::{Prepared, Preparer};
pub use slice::Slice;
pub use walk::{Sampled, WalkEnd, Walks};

use crate::ids::Svma;

/// Loads per recipe.
pub const MOST_LOADS: usize = 4;
/// Steps per recipe.
pub const MOST_STEPS: usize = 6;
/// Terms per step.
pub const MOST_TERMS: usize = 3;

/// General registers of a sample. Its instruction has not been executed yet: they are its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// In the order of their numbers in machine code: rax rcx rdx rbx rsp rbp rsi rdi r8 to r15.
    pub gpr: [u64; 16],
    /// Flags as in rflags.
    pub flags: u64,
}

/// What a step is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A sampled register, by number.
    Gpr(u8),
    /// The value of an earlier step of the recipe.
    Step(u8),
}

/// A source times a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// What is multiplied.
    pub source: Source,
    /// By what.
    pub scale: i16,
}

/// Some bits of a number, in front of which there are zeros or copies of the highest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// The lowest of them.
    pub from: u8,
    /// How many, 1 to 64; `from + bits` is at most 64.
    pub bits: u8,
    /// Whether the highest of them is a sign.
    pub signed: bool,
}

impl Field {
    /// All bits.
    pub const WHOLE: Self = Self::low(64);

    /// The lowest bits, without a sign.
    #[must_use]
    pub const fn low(bits: u8) -> Self {
        Self { from: 0, bits, signed: false }
    }

    /// This field of a number.
    #[must_use]
    pub fn of(self, number: u64) -> u64 {
        let (up, down) = self.shifts();
        let top = number << up;
        if self.signed { (top.cast_signed() >> down).cast_unsigned() } else { top >> down }
    }

    /// The shift to the left, and the one to the right after it, that leave it alone.
    #[must_use]
    pub fn shifts(self) -> (u8, u8) {
        (64_u8.saturating_sub(self.from).saturating_sub(self.bits) & 63, 64_u8.saturating_sub(self.bits) & 63)
    }
}

/// A step to be taken at the interrupt: a field of the sum of `terms` and `disp`, or what stands in memory there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecipeStep {
    /// What is summed up, modulo 2^64.
    pub terms: [Option<Term>; MOST_TERMS],
    /// Added to the terms.
    pub disp: i64,
    /// What is taken of the sum.
    pub field: Field,
    /// Bytes to load from there (1, 2, 4 or 8), extended by zeros; `None`: the sum is the value.
    pub load: Option<u8>,
    /// `disp` is a stated address: the load bias must be added.
    pub image_relative: bool,
}

impl RecipeStep {
    /// Its value, or the address of its load, given its sources.
    #[must_use]
    pub fn sum(&self, value: impl Fn(Source) -> Option<u64>, bias: u64) -> Option<u64> {
        let start = if self.image_relative { bias } else { 0 }.wrapping_add_signed(self.disp);
        let sum = self.terms.iter().flatten().try_fold(start, |sum, term| {
            Some(sum.wrapping_add(value(term.source)?.wrapping_mul(i64::from(term.scale).cast_unsigned())))
        })?;
        Some(self.field.of(sum))
    }
}

/// Where control goes after the sample; certain for the registers (and loads) given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// A conditional branch.
    Branch {
        /// Its stated address.
        at: Svma,
        /// Whether it goes to its target, not to the next instruction.
        taken: bool,
    },
    /// An indirect jump or call.
    Target {
        /// Its stated address.
        at: Svma,
        /// Runtime address it goes to.
        to: u64,
    },
}

/// What decides the first branch behind the sampled address, or why nothing can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// Registers alone.
    Registers,
    /// Registers and the loads of the recipe.
    NeedsLoads,
    /// A call comes first.
    Call,
    /// A return comes first.
    Return,
    /// A jump through a fixed slot of memory comes first: into another image.
    IndirectUnknown,
    /// A system call, a repeated string operation or the like comes first.
    Unsupported,
    /// The branch depends on an instruction that is not interpreted: floating point, vectors, thread-local data.
    Uninterpreted,
    /// It depends on a load that a store before it may have changed.
    Aliased,
    /// It depends on a load whose address is no sum of registers and loads, or on too many loads.
    Address,
    /// No branch within reach.
    TooLong,
    /// The bytes are no instructions, or not at hand.
    Undecodable,
}

#[cfg(test)]
mod tests;
