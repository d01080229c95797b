//! Targets of indirect jumps through tables in read-only data, as compilers emit them for `switch`: 32-bit
//! offsets from the table's own address (position-independent code) or 64-bit addresses. Recognised from
//! the instructions before the jump; what does not fit a known shape stays unresolved and is said so.
//! Bounds come from the comparison that guards the jump. Without one the table is read as long as its
//! entries lead to instructions of the function, and is marked as guessed.

use crate::disasm::{Flow, Insn};
use crate::ids::Svma;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::ops::Range;

/// A larger table is a mistake of ours (the largest seen in cc1 has under 2,000 entries).
const MOST_ENTRIES: usize = 65_536;
/// Instructions looked at before the jump: compilers hoist and schedule, but not over more.
const REACH: usize = 64;

/// What an indirect jump may lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JumpTable {
    /// The indirect jump.
    pub jump: Svma,
    /// First byte of the table.
    pub table: Svma,
    /// Bytes of an entry: 4 (offsets from the table) or 8 (addresses).
    pub entry_bytes: u8,
    /// Targets in table order, with repetitions.
    pub targets: Vec<Svma>,
    /// A guarding comparison told the number of entries; otherwise some may be missing.
    pub bounded: bool,
}

/// Bytes of the image at stated addresses, as far as the file holds them.
pub trait Data {
    /// The bytes of a range; `None` when not all are in the file.
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]>;
}

/// Resolves the indirect jump `insns[jump]` of one function, decoded without holes from its entry.
/// `code` tells where targets may lie: the function and its other parts. `None`: no known shape, so it is
/// a tail call, a computed goto, or something else.
#[must_use]
pub fn resolve(insns: &[Insn], jump: usize, code: &[Range<u64>], data: &dyn Data) -> Option<JumpTable> {
    let last = insns.get(jump).filter(|i| i.flow == Flow::IndirectJump)?;
    let shape = shape(insns, jump)?;
    let bound = bound(insns, shape.load, shape.index);
    let guarded = matches!(bound, Bound::Guarded(_));
    let most = match bound {
        Bound::Guarded(n) | Bound::AtMost(n) => n.min(MOST_ENTRIES),
        Bound::Unknown => MOST_ENTRIES,
    };
    let mut targets = Vec::new();
    for i in 0..most {
        let at = shape.table.0.checked_add(i as u64 * u64::from(shape.entry_bytes))?;
        match target(Svma(at), shape.table, shape.entry_bytes, data).filter(|t| code.iter().any(|r| r.contains(&t.0))) {
            Some(target) => targets.push(target),
            // A guarded entry that leads nowhere: this is not the table of this jump.
            None if guarded => return None,
            None => break,
        }
    }
    // One entry found by chance is no table.
    let enough = if guarded { 1 } else { 2 };
    (targets.len() >= enough).then_some(JumpTable {
        jump: last.address,
        table: shape.table,
        entry_bytes: shape.entry_bytes,
        bounded: guarded || bound == Bound::AtMost(targets.len()),
        targets,
    })
}

/// Whether a jump goes by a table whose bytes are not there, as where code alone was kept.
#[must_use]
pub fn lacks_its_table(insns: &[Insn], jump: usize, data: &dyn Data) -> bool {
    let indirect = insns.get(jump).is_some_and(|i| i.flow == Flow::IndirectJump);
    let table = if indirect { shape(insns, jump) } else { None };
    table.is_some_and(|s| data.bytes(s.table, usize::from(s.entry_bytes)).is_none())
}

impl JumpTable {
    /// Stated addresses of its entries and of the one behind them, which tells where it ends.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        let entries = self.targets.len() as u64 + 1;
        self.table.0..self.table.0.saturating_add(entries * u64::from(self.entry_bytes))
    }

    /// Where the entry behind those read would lead.
    pub(crate) fn beyond(&self, data: &dyn Data) -> Option<Svma> {
        let at = self.table.0.checked_add(self.targets.len() as u64 * u64::from(self.entry_bytes))?;
        target(Svma(at), self.table, self.entry_bytes, data)
    }
}

/// Where a table is and how an entry is chosen.
struct Shape {
    table: Svma,
    entry_bytes: u8,
    index: Register,
    /// Instruction that loads the entry.
    load: usize,
}

/// Where an entry leads.
fn target(at: Svma, table: Svma, entry_bytes: u8, data: &dyn Data) -> Option<Svma> {
    let bytes = data.bytes(at, usize::from(entry_bytes))?;
    match entry_bytes {
        4 => {
            let offset = i32::from_le_bytes(bytes.try_into().ok()?);
            Some(Svma(table.0.wrapping_add_signed(i64::from(offset))))
        }
        _ => Some(Svma(u64::from_le_bytes(bytes.try_into().ok()?))),
    }
}

fn shape(insns: &[Insn], jump: usize) -> Option<Shape> {
    let raw = &insns[jump].raw;
    if raw.op0_kind() == OpKind::Memory {
        return absolute(insns, jump);
    }
    if raw.op0_kind() != OpKind::Register {
        return None;
    }
    let target = raw.op0_register();
    let at = definition(insns, jump, target)?;
    let def = &insns[at].raw;
    match def.mnemonic() {
        // mov table(,%rax,8),%rax
        Mnemonic::Mov if def.op1_kind() == OpKind::Memory => absolute(insns, at),
        // movslq (%rdx,%rax,4),%rax ; add %rdx,%rax
        Mnemonic::Add if def.op1_kind() == OpKind::Register => relative(insns, at),
        _ => None,
    }
}

/// `[table + index*8]` without base register.
fn absolute(insns: &[Insn], load: usize) -> Option<Shape> {
    let raw = &insns[load].raw;
    let plain = raw.memory_base() == Register::None && raw.memory_index() != Register::None;
    (plain && raw.memory_index_scale() == 8).then(|| Shape {
        table: Svma(raw.memory_displacement64()),
        entry_bytes: 8,
        index: raw.memory_index().full_register(),
        load,
    })
}

/// The sum of a base that holds the table's address and an entry loaded from it.
fn relative(insns: &[Insn], add: usize) -> Option<Shape> {
    let (a, b) = (insns[add].raw.op0_register(), insns[add].raw.op1_register());
    for (loaded, base) in [(a, b), (b, a)] {
        let Some(load) = definition(insns, add, loaded).map(|i| (i, &insns[i].raw)) else { continue };
        let (at, raw) = load;
        let fits = raw.mnemonic() == Mnemonic::Movsxd
            && raw.op1_kind() == OpKind::Memory
            && raw.memory_index_scale() == 4
            && raw.memory_displacement64() == 0;
        if !fits || raw.memory_base().full_register() != base.full_register() {
            continue;
        }
        return Some(Shape {
            table: loaded_address(insns, at, base)?,
            entry_bytes: 4,
            index: raw.memory_index().full_register(),
            load: at,
        });
    }
    None
}

/// Address that `lea table(%rip),base` put into a register: the nearest such before `at`, else, for one
/// hoisted to a place that stands behind it, the only one of the function.
fn loaded_address(insns: &[Insn], at: usize, base: Register) -> Option<Svma> {
    let lea = |i: &&Insn| {
        let hit = i.raw.mnemonic() == Mnemonic::Lea && i.raw.is_ip_rel_memory_operand();
        hit && i.raw.op0_register().full_register() == base.full_register()
    };
    let address = |i: &Insn| Svma(i.raw.ip_rel_memory_address());
    if let Some(near) = insns[..at].iter().rev().find(lea) {
        return Some(address(near));
    }
    let mut all = insns.iter().filter(lea).map(address);
    let first = all.next()?;
    all.all(|a| a == first).then_some(first)
}

/// Index of the nearest instruction before `at` that writes a register; calls end the search.
fn definition(insns: &[Insn], at: usize, register: Register) -> Option<usize> {
    let from = at.saturating_sub(REACH);
    for i in (from..at).rev() {
        let raw = &insns[i].raw;
        if matches!(insns[i].flow, Flow::Call(_) | Flow::IndirectCall | Flow::Invalid) {
            return None;
        }
        let writes = raw.op_count() > 0
            && raw.op0_kind() == OpKind::Register
            && raw.op0_register().full_register() == register.full_register()
            && !matches!(raw.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Jmp);
        if writes {
            return Some(i);
        }
    }
    None
}

/// What is known of the number of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// A comparison guards the jump: so many, all of them real.
    Guarded(usize),
    /// The index has no more values than this; the table may be shorter.
    AtMost(usize),
    Unknown,
}

/// Number of entries by the guard `cmp $n,index; ja default` (or `jae`) before the instruction that loads
/// the entry. The index is followed back through plain copies; the comparison may also look at a copy made of it,
/// or at the place in memory that it was loaded from.
fn bound(insns: &[Insn], load: usize, index: Register) -> Bound {
    let mut watched = index.full_register();
    let from = load.saturating_sub(REACH);
    // Comparisons met on the way up, of registers that are not written in between.
    let mut compared: Vec<(Register, usize)> = Vec::new();
    let mut most = Bound::Unknown;
    for i in (from..load).rev() {
        let raw = &insns[i].raw;
        if matches!(insns[i].flow, Flow::Call(_) | Flow::IndirectCall | Flow::Invalid | Flow::Return) {
            return most;
        }
        if raw.op_count() == 0 || raw.op0_kind() != OpKind::Register || raw.mnemonic() == Mnemonic::Push {
            continue;
        }
        let written = raw.op0_register().full_register();
        match raw.mnemonic() {
            Mnemonic::Cmp if written == watched => return guarded(insns, i).map_or(most, Bound::Guarded),
            Mnemonic::Cmp if is_immediate(raw) => compared.push((written, i)),
            Mnemonic::Cmp | Mnemonic::Test => {}
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd if raw.op1_kind() == OpKind::Register => {
                let original = raw.op1_register().full_register();
                let seen = |r: Register| compared.iter().find(|c| c.0 == r).map(|c| c.1);
                let guard = match (written == watched, original == watched) {
                    (true, _) => seen(original),
                    (_, true) => seen(written),
                    _ => None,
                };
                if let Some(n) = guard.and_then(|g| guarded(insns, g)) {
                    return Bound::Guarded(n);
                }
                if written == watched {
                    if raw.mnemonic() == Mnemonic::Movzx && raw.op1_register().size() == 1 {
                        most = Bound::AtMost(256);
                    }
                    watched = original;
                }
                if original != written {
                    compared.retain(|c| c.0 != written);
                }
            }
            Mnemonic::And if written == watched && is_immediate(raw) => {
                let mask = raw.immediate(1);
                return if mask < MOST_ENTRIES as u64 { Bound::Guarded(mask as usize + 1) } else { most };
            }
            Mnemonic::Mov | Mnemonic::Movzx if written == watched && raw.op1_kind() == OpKind::Memory => {
                if raw.mnemonic() == Mnemonic::Movzx && raw.memory_size().size() == 1 {
                    most = Bound::AtMost(256);
                }
                return compared_in_memory(&insns[from..i], raw)
                    .and_then(|guard| guarded(insns, from + guard))
                    .map_or(most, Bound::Guarded);
            }
            _ if written == watched => return most,
            _ => compared.retain(|c| c.0 != written),
        }
    }
    most
}

/// The comparison of the operand that `load` reads, with nothing between that could change it.
fn compared_in_memory(before: &[Insn], load: &Instruction) -> Option<usize> {
    let place = |raw: &Instruction| {
        let registers = (raw.memory_base(), raw.memory_index(), raw.memory_segment());
        (registers, raw.memory_index_scale(), raw.memory_displacement64(), raw.memory_size().size())
    };
    for (i, insn) in before.iter().enumerate().rev().take(8) {
        let raw = &insn.raw;
        let memory = raw.op_count() > 0 && raw.op0_kind() == OpKind::Memory;
        if raw.mnemonic() == Mnemonic::Cmp {
            if memory && is_immediate(raw) && place(raw) == place(load) {
                return Some(i);
            }
            continue;
        }
        let base = raw.op_count() > 0
            && raw.op0_kind() == OpKind::Register
            && [load.memory_base(), load.memory_index()].contains(&raw.op0_register().full_register());
        let passes = matches!(insn.flow, Flow::Next | Flow::Branch(_));
        if memory && raw.mnemonic() != Mnemonic::Test || base || !passes {
            return None;
        }
    }
    None
}

fn is_immediate(raw: &Instruction) -> bool {
    raw.op_count() > 1 && !matches!(raw.op1_kind(), OpKind::Register | OpKind::Memory)
}

/// Entries that a comparison at `at` lets through, by the branch that follows it.
fn guarded(insns: &[Insn], at: usize) -> Option<usize> {
    if !is_immediate(&insns[at].raw) {
        return None;
    }
    let n = usize::try_from(insns[at].raw.immediate(1)).ok()?;
    let follows = |i: &&Insn| i.flow != Flow::Next || i.raw.rflags_modified() != 0;
    let branch = insns[at + 1..].iter().take(8).find(follows)?;
    let entries = match branch.raw.mnemonic() {
        Mnemonic::Ja | Mnemonic::Jbe => n.checked_add(1)?,
        Mnemonic::Jae | Mnemonic::Jb => n,
        _ => return None,
    };
    (1..=MOST_ENTRIES).contains(&entries).then_some(entries)
}

#[cfg(test)]
mod tests;
