//! What an instruction does as plain values, for the processor model and the search for culprits: registers it reads
//! and writes, what it loads and stores, and which kind of work it is. How long that takes is not known here: it
//! differs between processors. Values are small (`Copy`), as whole programs are held as vectors of them.

mod classes;
mod kinds;

pub use kinds::OpClass;

use crate::counters::added;
use crate::disasm::{Flow, Insn};
use iced_x86::{
    Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

/// Registers as a bit set: 16 general ones, flags without carry, carry, x87 as one, 32 vectors, 8 masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegSet(pub u64);

impl RegSet {
    /// No register.
    pub const NONE: Self = Self(0);
    /// Bits in use.
    pub const BITS: usize = 59;
    /// The stack pointer.
    pub const RSP: Self = Self(1 << 4);
    /// All general registers.
    pub const GENERAL: Self = Self(0xffff);
    /// All flags but carry, which `inc` leaves alone.
    pub const FLAGS: Self = Self(1 << 16);
    /// The carry flag.
    pub const CARRY: Self = Self(1 << 17);
    /// The x87 stack and MMX registers, as one.
    pub const X87: Self = Self(1 << 18);
    /// All vectors.
    pub const VECTORS: Self = Self(0xffff_ffff << Self::FIRST_VECTOR);
    const FIRST_VECTOR: u32 = 19;
    const FIRST_MASK: u32 = 51;

    /// A general register by its number (`rax` 0, `rcx` 1, ... `r15` 15).
    #[must_use]
    pub const fn gpr(number: u32) -> Self {
        Self(1 << (number & 15))
    }

    /// A vector register by its number.
    #[must_use]
    pub const fn vector(number: u32) -> Self {
        Self(1 << (Self::FIRST_VECTOR + (number & 31)))
    }

    /// Registers of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Registers of `self` that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether both have a register in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their numbers, below [`Self::BITS`].
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            next
        })
    }

    fn of(register: Register) -> Self {
        let number = register.number() as u32;
        if register.is_gpr() {
            Self::gpr(register.full_register().number() as u32)
        } else if register.is_vector_register() {
            Self::vector(number)
        } else if register.is_k() {
            Self(1 << (Self::FIRST_MASK + (number & 7)))
        } else if register.is_st() || register.is_mm() {
            Self::X87
        } else {
            Self::NONE
        }
    }
}

/// A place in memory as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemRef {
    /// Register that the address counts from, number as in [`RegSet::gpr`].
    pub base: Option<u8>,
    /// Register that is scaled and added.
    pub index: Option<u8>,
    /// Factor of `index`: 1, 2, 4, 8.
    pub scale: u8,
    /// Added; the stated address itself when `rip_relative`.
    pub disp: i64,
    /// Bytes; 0 when it depends on more than the instruction.
    pub width: u16,
    /// Names a fixed place of the image.
    pub rip_relative: bool,
    /// Counts from the stack pointer (pushes, pops, calls and returns too).
    pub stack: bool,
    /// Goes past the caches.
    pub non_temporal: bool,
    /// Has a segment of its own (`fs:`, thread-local).
    pub segment: bool,
    /// Adds a vector of offsets (gathers and scatters): the first of several places, which nothing here tells.
    pub vector: bool,
}

impl MemRef {
    /// Whether both count from the same registers, so that their distance is known while these keep their values.
    #[must_use]
    pub fn same_base(&self, other: &Self) -> bool {
        !self.vector
            && !other.vector
            && (self.base, self.index, self.scale, self.rip_relative, self.segment)
                == (other.base, other.index, other.scale, other.rip_relative, other.segment)
    }

    /// Registers that the address is made from.
    #[must_use]
    pub fn registers(&self) -> RegSet {
        let set = |r: Option<u8>| r.map_or(RegSet::NONE, |r| RegSet::gpr(u32::from(r)));
        set(self.base).with(set(self.index))
    }
}

/// What one instruction does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effects {
    /// Address of its first byte.
    pub address: u64,
    /// Bytes.
    pub len: u8,
    /// Registers whose values it needs, those of addresses too. The stack pointer is left out where the stack
    /// engine keeps it: pushes, pops, calls and returns.
    pub reads: RegSet,
    /// Of `reads`, those that only addresses need.
    pub address_reads: RegSet,
    /// Of `reads`, vectors whose bits it keeps beside what comes from a general register: needed later than that.
    pub merges: RegSet,
    /// Registers it changes.
    pub writes: RegSet,
    /// Of `writes`, those that come later than the others: the high half of a product.
    pub late: RegSet,
    /// First place it loads from.
    pub load: Option<MemRef>,
    /// First place it stores to.
    pub store: Option<MemRef>,
    /// Kind.
    pub class: OpClass,
    /// Width of the operation in bits, 0 when not known.
    pub bits: u16,
    /// Micro-operations at least, with those counted as one that go through the pipeline as one.
    pub uops: u8,
    /// A conditional branch.
    pub conditional: bool,
    /// A comparison or the like that can go through the pipeline as one with a conditional branch behind it.
    pub fusible: bool,
    /// The register, of 64 bits, that it does nothing but add a constant to, and the constant.
    pub adds: Option<(u8, i64)>,
    /// The register, of 64 bits, that holds no more than this afterwards, whatever it held: masked by a constant, or widened from few
    /// bits.
    pub holds_at_most: Option<(u8, u64)>,
}

impl Effects {
    /// Whether this and the conditional branch directly behind it may be one for the pipeline.
    #[must_use]
    pub fn fuses_with(&self, next: &Self) -> bool {
        self.fusible && next.conditional && self.address.wrapping_add(u64::from(self.len)) == next.address
    }

    /// Whether it may compute with numbers so small that microcode must help.
    #[must_use]
    pub fn is_floating(&self) -> bool {
        self.class.is_floating()
    }

    /// Whether control may go elsewhere than to the next instruction, and the place has to be guessed.
    #[must_use]
    pub fn is_guessed(&self) -> bool {
        self.conditional || matches!(self.class, OpClass::IndirectBranch | OpClass::Return) || self.calls_pointer()
    }

    /// Address of the byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.address.wrapping_add(u64::from(self.len))
    }

    fn calls_pointer(&self) -> bool {
        self.class == OpClass::Call && (self.load.is_some() || !self.reads.is_empty())
    }
}

/// Says what instructions do; holds the working space of the decoder's book.
#[derive(Debug)]
pub struct EffectsReader {
    factory: InstructionInfoFactory,
}

impl Default for EffectsReader {
    fn default() -> Self {
        Self::new()
    }
}

impl EffectsReader {
    /// With working space.
    #[must_use]
    pub fn new() -> Self {
        Self { factory: InstructionInfoFactory::new() }
    }

    /// What one instruction does. Bytes that are no instruction do nothing.
    pub fn of(&mut self, insn: &Insn) -> Effects {
        if insn.flow == Flow::Invalid {
            return Effects { address: insn.address.0, len: insn.len, class: OpClass::Nop, ..Effects::default() };
        }
        describe(insn, self.factory.info(&insn.raw))
    }
}

/// What each instruction does.
#[must_use]
pub fn effects(insns: &[Insn]) -> Vec<Effects> {
    let mut reader = EffectsReader::new();
    insns.iter().map(|i| reader.of(i)).collect()
}

fn describe(insn: &Insn, info: &InstructionInfo) -> Effects {
    let raw = &insn.raw;
    let mut effects = Effects { address: insn.address.0, len: insn.len, ..Effects::default() };
    registers(raw, info, &mut effects);
    flags(raw, &mut effects);
    memory(raw, info, &mut effects);
    effects.class = classes::class(insn, &effects);
    effects.bits = width(raw);
    effects.uops = 1;
    effects.conditional = matches!(insn.flow, Flow::Branch(_));
    effects.fusible = fusible(raw);
    effects.adds = added(raw).filter(|(.., narrow)| !narrow).map(|(register, by, _)| (register, by));
    effects.holds_at_most = held_at_most(raw);
    effects.late = RegSet(high_half(raw).0 & effects.writes.0);
    tidy(raw, &mut effects);
    effects
}

/// Where the high half of a product goes.
fn high_half(raw: &Instruction) -> RegSet {
    match raw.mnemonic() {
        Mnemonic::Mul | Mnemonic::Imul if raw.op_count() == 1 => RegSet::gpr(2),
        Mnemonic::Mulx => RegSet::of(raw.op0_register()),
        _ => RegSet::NONE,
    }
}

/// Operations on 32 bits or more, which leave nothing of what was there before.
fn held_at_most(raw: &Instruction) -> Option<(u8, u64)> {
    let to = raw.op0_register();
    let whole = raw.op0_kind() == OpKind::Register && to.is_gpr() && to.size() >= 4;
    let most = match raw.mnemonic() {
        Mnemonic::And => raw.try_immediate(1).ok().filter(|mask| mask.cast_signed() >= 0)?,
        Mnemonic::Movzx if raw.op1_kind() == OpKind::Register => (1 << (8 * raw.op1_register().size())) - 1,
        Mnemonic::Movzx => (1 << (8 * raw.memory_size().size())) - 1,
        _ => return None,
    };
    whole.then(|| (to.full_register().number() as u8, most))
}

fn registers(raw: &Instruction, info: &InstructionInfo, effects: &mut Effects) {
    let stack_engine = raw.is_stack_instruction();
    for used in info.used_registers() {
        let register = used.register();
        let set = RegSet::of(register);
        if stack_engine && set == RegSet::RSP {
            continue;
        }
        let (reads, writes) = match used.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            // Old bits that stay are an input, as is what a condition may leave.
            OpAccess::Write => (register.is_gpr8() || register.is_gpr16(), true),
            OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            OpAccess::None | OpAccess::NoMemAccess => (false, false),
        };
        if reads {
            effects.reads = effects.reads.with(set);
        }
        if writes {
            effects.writes = effects.writes.with(set);
        }
    }
}

fn flags(raw: &Instruction, effects: &mut Effects) {
    use iced_x86::RflagsBits;
    let status = RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::PF;
    let set = |bits: u32| {
        let others = if bits & status != 0 { RegSet::FLAGS } else { RegSet::NONE };
        let carry = if bits & RflagsBits::CF != 0 { RegSet::CARRY } else { RegSet::NONE };
        others.with(carry)
    };
    effects.reads = effects.reads.with(set(raw.rflags_read()));
    effects.writes = effects.writes.with(set(raw.rflags_modified()));
}

fn memory(raw: &Instruction, info: &InstructionInfo, effects: &mut Effects) {
    let mut addresses = RegSet::NONE;
    for used in info.used_memory() {
        let place = place(raw, used);
        addresses = addresses.with(place.registers());
        let (load, store) = match used.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::Write | OpAccess::CondWrite => (false, true),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            OpAccess::None | OpAccess::NoMemAccess => (false, false),
        };
        if load {
            effects.load.get_or_insert(place);
        }
        if store {
            effects.store.get_or_insert(place);
        }
    }
    effects.address_reads = addresses.without(data_registers(raw));
    if raw.is_stack_instruction() {
        effects.address_reads = effects.address_reads.without(RegSet::RSP);
    }
}

/// Registers that are operands themselves, not parts of an address.
fn data_registers(raw: &Instruction) -> RegSet {
    (0..raw.op_count())
        .filter(|&i| raw.op_kind(i) == OpKind::Register)
        .fold(RegSet::NONE, |set, i| set.with(RegSet::of(raw.op_register(i))))
}

fn place(raw: &Instruction, used: &UsedMemory) -> MemRef {
    let general = |r: Register| r.is_gpr().then(|| r.full_register().number() as u8);
    let rip_relative =
        raw.is_ip_rel_memory_operand() && used.base() == Register::None && used.index() == Register::None;
    MemRef {
        base: general(used.base()),
        index: general(used.index()),
        scale: used.scale() as u8,
        disp: used.displacement() as i64,
        width: used.memory_size().size() as u16,
        rip_relative: rip_relative || matches!(used.base(), Register::RIP | Register::EIP),
        stack: used.base() == Register::RSP,
        non_temporal: classes::is_non_temporal(raw.mnemonic()),
        segment: matches!(used.segment(), Register::FS | Register::GS),
        vector: raw.is_vsib(),
    }
}

fn width(raw: &Instruction) -> u16 {
    let register = (0..raw.op_count()).find(|&i| raw.op_kind(i) == OpKind::Register).map(|i| raw.op_register(i).size());
    let bytes = match raw.memory_size().size() {
        0 => register.unwrap_or(0),
        memory => register.map_or(memory, |r| if raw.op0_kind() == OpKind::Register { r } else { memory }),
    };
    (bytes * 8).min(usize::from(u16::MAX)) as u16
}

/// Intel and AMD both fuse `cmp` and `test`; the others are fused by some, and the cost of being wrong is one slot.
fn fusible(raw: &Instruction) -> bool {
    use Mnemonic::{Add, And, Cmp, Dec, Inc, Sub, Test};
    let stores = raw.op0_kind() == OpKind::Memory && !matches!(raw.mnemonic(), Cmp | Test);
    let fixed = raw.is_ip_rel_memory_operand() && (0..raw.op_count()).any(|i| raw.try_immediate(i).is_ok());
    matches!(raw.mnemonic(), Cmp | Test | Add | And | Sub | Inc | Dec) && !stores && !fixed
}

/// What the class implies for registers.
fn tidy(raw: &Instruction, effects: &mut Effects) {
    match effects.class {
        OpClass::ZeroIdiom | OpClass::Nop => effects.reads = RegSet::NONE,
        // The false dependence on the destination that compilers break themselves stays; a full copy has none.
        OpClass::Move if raw.op_count() == 2 => effects.reads = RegSet::of(raw.op1_register()),
        _ if classes::is_same_whatever(raw) => effects.reads = RegSet(effects.reads.0 & RegSet::CARRY.0),
        _ => {}
    }
    effects.address_reads = RegSet(effects.address_reads.0 & effects.reads.0);
    if matches!(effects.class, OpClass::Lane | OpClass::ConvertFromInt) && effects.writes.meets(RegSet::VECTORS) {
        effects.merges = RegSet(effects.reads.0 & RegSet::VECTORS.0);
    }
}

#[cfg(test)]
mod tests;
