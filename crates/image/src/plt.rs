//! Names for procedure-linkage stubs of x86-64: a stub is an indirect jump through a slot of the
//! global offset table, and the relocation of that slot names the function.
//!
//! ```text
//! [f3 0f 1e fa] [f2] ff 25 DISP32      (endbr64)  (bnd)  jmp *DISP(%rip)
//! ```

use crate::view::{Section, View, string_at};
use object::elf;
use rustc_hash::FxHashMap;

/// A stub: where it is and what it jumps to.
pub(crate) struct Stub {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) target: Target,
}

/// What the relocation of a stub's slot says.
pub(crate) enum Target {
    /// A symbol of this name.
    Name(Vec<u8>),
    /// Whatever the resolver at this stated address chooses.
    Resolver(u64),
}

/// All stubs whose slot has a relocation; none for other machines.
pub(crate) fn stubs(view: &View<'_>) -> Vec<Stub> {
    if view.machine != elf::EM_X86_64 || !view.is_64 {
        return Vec::new();
    }
    let slots = slots(view);
    let sections = view.sections.iter().filter(|s| s.executable && s.name.starts_with(b".plt"));
    sections.flat_map(|s| stubs_of(view, s, &slots)).collect()
}

/// Targets by slot address, and slots by stub address.
pub(crate) type SlotsAndStubs = (Vec<(u64, Target)>, Vec<(u64, u64)>);

/// What fills each slot, by slot address, and the slot of each stub, by stub address.
pub(crate) fn linkage(view: &View<'_>) -> SlotsAndStubs {
    if view.machine != elf::EM_X86_64 || !view.is_64 {
        return Default::default();
    }
    let slots = slots(view);
    let sections = view.sections.iter().filter(|s| s.executable && s.name.starts_with(b".plt"));
    let jumps = sections.flat_map(|s| {
        let step = step(s);
        let pieces = view.bytes(s).unwrap_or_default().chunks(step).enumerate();
        pieces.filter_map(move |(i, code)| {
            let stub = s.address.wrapping_add((i * step) as u64);
            Some((stub, slot_address(code, stub)?))
        })
    });
    let stubs = jumps.filter(|(_, slot)| slots.contains_key(slot)).collect();
    (slots.iter().filter_map(|(at, slot)| Some((*at, slot.target(view)?))).collect(), stubs)
}

/// Bytes of a stub.
fn step(section: &Section<'_>) -> usize {
    if section.entry_size == 8 { 8 } else { 16 }
}

fn stubs_of(view: &View<'_>, section: &Section<'_>, slots: &FxHashMap<u64, Slot>) -> Vec<Stub> {
    let step = step(section);
    let code = view.bytes(section).unwrap_or_default();
    let stub = |(i, code): (usize, &[u8])| {
        let address = section.address.wrapping_add((i * step) as u64);
        let slot = slots.get(&slot_address(code, address)?)?;
        Some(Stub { address, size: code.len() as u64, target: slot.target(view)? })
    };
    code.chunks(step).enumerate().filter_map(stub).collect()
}

/// Address of the slot that the stub `code` at `address` jumps through.
fn slot_address(code: &[u8], address: u64) -> Option<u64> {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    let rest = code.strip_prefix(ENDBR64).unwrap_or(code);
    let rest = rest.strip_prefix(&[0xf2]).unwrap_or(rest);
    let displacement = rest.strip_prefix(&[0xff, 0x25])?.first_chunk::<4>()?;
    let next = address.wrapping_add((code.len() - rest.len() + 6) as u64);
    Some(next.wrapping_add_signed(i64::from(i32::from_le_bytes(*displacement))))
}

/// A relocation of a slot, not yet looked up: most slots have no stub.
struct Slot {
    symbols: usize,
    symbol: u32,
    addend: u64,
}

impl Slot {
    fn target(&self, view: &View<'_>) -> Option<Target> {
        const SYMBOL_SIZE: usize = 24;
        if self.symbol == 0 {
            return Some(Target::Resolver(self.addend));
        }
        let symbols = view.sections.get(self.symbols)?;
        let strings = view.bytes(view.sections.get(symbols.link as usize)?)?;
        let name = view.u32(view.bytes(symbols)?, SYMBOL_SIZE * self.symbol as usize)?;
        Some(Target::Name(string_at(strings, name as usize)?.to_vec()))
    }
}

/// Relocations that fill slots, by slot address.
fn slots(view: &View<'_>) -> FxHashMap<u64, Slot> {
    const RELOCATION_SIZE: usize = 24;
    const GLOB_DAT: u64 = 6;
    const JUMP_SLOT: u64 = 7;
    const IRELATIVE: u64 = 37;
    let mut slots = FxHashMap::default();
    for section in view.sections.iter().filter(|s| s.kind == elf::SHT_RELA) {
        for entry in view.bytes(section).unwrap_or_default().chunks_exact(RELOCATION_SIZE) {
            let (Some(at), Some(info), Some(addend)) = (view.u64(entry, 0), view.u64(entry, 8), view.u64(entry, 16))
            else {
                continue;
            };
            if matches!(info & 0xffff_ffff, GLOB_DAT | JUMP_SLOT | IRELATIVE) {
                slots.insert(at, Slot { symbols: section.link as usize, symbol: (info >> 32) as u32, addend });
            }
        }
    }
    slots
}
