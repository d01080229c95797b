//! What a function calls: direct calls and tail jumps out of its body, and those through a slot of the
//! global offset table, with or without a linkage stub in between. What a slot holds is known only in a
//! running process; here stand its address and the symbol the linker was told to put there.

use crate::bytes::Bytes;
use crate::cfg::{Cfg, Surroundings};
use crate::disasm::{Flow, Insn};
use crate::error::ImageError;
use crate::ids::Svma;
use crate::jump_tables::Data;
use crate::plt::{Target, linkage};
use crate::view::View;
use crate::window::CodeMap;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// What a call leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Callee {
    /// The function at this stated address of the same image.
    Here(Svma),
    /// Whatever the eight bytes at this stated address point to.
    Slot(Svma),
}

/// What the dynamic linker puts into a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotTarget {
    /// The symbol of this name.
    Name(String),
    /// What the resolver at this stated address of the same image chooses.
    Resolver(Svma),
}

/// Slots of the global offset table of an image, and the stubs that jump through them.
#[derive(Clone, Debug, Default)]
pub struct Linkage {
    slots: FxHashMap<u64, SlotTarget>,
    stubs: FxHashMap<u64, u64>,
}

impl Linkage {
    /// Reads relocations and stubs of an ELF file; none for machines other than x86-64.
    ///
    /// # Errors
    /// When it is not ELF or its headers cannot be read.
    pub fn from_elf(file: &Bytes) -> Result<Self, ImageError> {
        let view = View::parse(file)?;
        let (slots, stubs) = linkage(&view);
        let target = |t| match t {
            Target::Name(name) => SlotTarget::Name(String::from_utf8_lossy(&name).into_owned()),
            Target::Resolver(at) => SlotTarget::Resolver(Svma(at)),
        };
        Ok(Self {
            slots: slots.into_iter().map(|(at, t)| (at, target(t))).collect(),
            stubs: stubs.into_iter().collect(),
        })
    }

    /// The slot that the stub at an address jumps through.
    #[must_use]
    pub fn slot_of_stub(&self, stub: Svma) -> Option<Svma> {
        self.stubs.get(&stub.0).copied().map(Svma)
    }

    /// What the linker puts into a slot.
    #[must_use]
    pub fn target(&self, slot: Svma) -> Option<&SlotTarget> {
        self.slots.get(&slot.0)
    }

    /// Slots for which `wanted` holds, in order.
    #[must_use]
    pub fn slots(&self, wanted: impl Fn(&SlotTarget) -> bool) -> Vec<Svma> {
        let mut found: Vec<Svma> = self.slots.iter().filter(|(_, t)| wanted(t)).map(|(at, _)| Svma(*at)).collect();
        found.sort_unstable();
        found
    }
}

/// What the function that begins at an address calls directly, in order of addresses, each once. Calls of
/// itself and calls through registers and tables are left out.
#[must_use]
pub fn callees(map: &CodeMap, linkage: &Linkage, at: Svma) -> Vec<Callee> {
    let (Some(extent), Some(body)) = (map.extent(at), map.body(at)) else { return Vec::new() };
    let mut found: Vec<Callee> = body
        .iter()
        .filter_map(|insn| match insn.flow {
            Flow::Call(target) | Flow::Jump(target) | Flow::Branch(target) if !extent.contains(&target.0) => {
                let slot = linkage.slot_of_stub(target).map(Callee::Slot);
                slot.or_else(|| map.is_code(target).then_some(Callee::Here(target)))
            }
            Flow::IndirectCall | Flow::IndirectJump if insn.raw.is_ip_rel_memory_operand() => {
                Some(Callee::Slot(Svma(insn.raw.ip_rel_memory_address())))
            }
            _ => None,
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Where a function hands on to others that only the running program knows: by function pointers and virtual tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointerCalls {
    /// Where its calls return to, in order: behind each such instruction.
    pub returns: Vec<Svma>,
    /// Its tail jumps, in order. Nothing on a stack tells of a function left by one.
    pub jumps: Vec<Svma>,
}

/// The calls and tail jumps through pointers of the function that begins at an address, its cold parts and what was
/// inlined included. Those through slots that the linker fills are left out, as [`callees`] has them, and so are jumps
/// by tables (`switch`) and computed ones within the function.
#[must_use]
pub fn pointer_calls(map: &CodeMap, linkage: &Linkage, at: Svma) -> PointerCalls {
    let Some(extent) = map.extent(at) else { return PointerCalls::default() };
    let cfg = Cfg::new(extent, &Around(map));
    let linked = |insn: &Insn| {
        let slot = insn.raw.is_ip_rel_memory_operand().then(|| Svma(insn.raw.ip_rel_memory_address()));
        slot.is_some_and(|slot| linkage.target(slot).is_some())
    };
    let through = |flow: Flow| cfg.insns.iter().filter(move |i| i.flow == flow && !linked(i));
    let leaves = |i: &&Insn| {
        let by_table = cfg.tables.iter().any(|t| t.jump == i.address);
        cfg.tail_jumps.contains(&i.address) || i.raw.is_ip_rel_memory_operand() && !by_table
    };
    PointerCalls {
        returns: through(Flow::IndirectCall).map(Insn::end).collect(),
        jumps: through(Flow::IndirectJump).filter(leaves).map(|i| i.address).collect(),
    }
}

/// A function's surroundings as far as the code itself tells.
struct Around<'m>(&'m CodeMap);

impl Data for Around<'_> {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        self.0.bytes().bytes(at, len)
    }
}

impl Surroundings for Around<'_> {
    fn extent(&self, at: Svma) -> Option<Range<u64>> {
        self.0.extent(self.0.function_of(at)?)
    }

    fn is_part_of(&self, _: Svma, _: Svma) -> Option<bool> {
        None
    }

    fn returns(&self, _: Svma) -> bool {
        true
    }
}
