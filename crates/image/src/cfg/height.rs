//! How far the stack pointer stands below where it stood at the function's entry, instruction by instruction,
//! and what follows: an indirect jump at height 0 whose target is a plain pointer hands the frame on, it is a
//! tail call. What moves the stack pointer in another way than compilers do makes the height unknown.

use crate::disasm::{Flow, Insn};
use crate::ids::Svma;
use crate::jump_tables::JumpTable;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashSet;

/// A function with more of them is an interpreter whose jumps we do not understand.
const MOST_TAIL_JUMPS: usize = 24;
/// Instructions looked at for where one jump's target comes from.
const MOST_LOOKED_AT: usize = 4_000;

/// Bytes below the entry's value, when known.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Heights {
    rsp: Option<i64>,
    rbp: Option<i64>,
}

impl Heights {
    fn meet(self, other: Self) -> Self {
        let same = |a: Option<i64>, b| a.filter(|_| a == b);
        Self { rsp: same(self.rsp, other.rsp), rbp: same(self.rbp, other.rbp) }
    }

    fn after(mut self, insn: &Insn) -> Self {
        let raw = &insn.raw;
        if matches!(insn.flow, Flow::Call(_) | Flow::IndirectCall) {
            return self;
        }
        let constant = |n: u32| raw.try_immediate(n).ok().map(u64::cast_signed);
        let target = writes(raw);
        match raw.mnemonic() {
            Mnemonic::Leave => return Self { rsp: self.rbp.and_then(|h| h.checked_sub(8)), rbp: None },
            Mnemonic::Add | Mnemonic::Sub if target == Some(Register::RSP) => {
                let by = constant(1).map(|c| if raw.mnemonic() == Mnemonic::Add { c.wrapping_neg() } else { c });
                self.rsp = self.rsp.zip(by).and_then(|(h, by)| h.checked_add(by));
            }
            Mnemonic::Lea | Mnemonic::Mov if matches!(target, Some(Register::RSP | Register::RBP)) => {
                let value = self.value(raw);
                *(if target == Some(Register::RSP) { &mut self.rsp } else { &mut self.rbp }) = value;
            }
            _ => {
                match target {
                    Some(Register::RSP) => self.rsp = None,
                    Some(Register::RBP) => self.rbp = None,
                    _ => {}
                }
                let pushed = i64::from(raw.stack_pointer_increment()).wrapping_neg();
                self.rsp = self.rsp.and_then(|h| h.checked_add(pushed));
            }
        }
        self
    }

    /// What `mov` and `lea` put into a register, when it is one of the two and a constant.
    fn value(&self, raw: &Instruction) -> Option<i64> {
        let of = |register: Register| match register {
            Register::RSP => self.rsp,
            Register::RBP => self.rbp,
            _ => None,
        };
        match raw.op1_kind() {
            OpKind::Register => of(raw.op1_register()),
            OpKind::Memory if raw.mnemonic() == Mnemonic::Lea && raw.memory_index() == Register::None => {
                of(raw.memory_base())?.checked_sub(raw.memory_displacement64().cast_signed())
            }
            _ => None,
        }
    }
}

/// The whole register that an instruction names as its first operand and writes.
fn writes(raw: &Instruction) -> Option<Register> {
    let reads_only = matches!(raw.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt);
    (raw.op_count() > 0 && raw.op0_kind() == OpKind::Register && !reads_only)
        .then(|| raw.op0_register().full_register())
}

/// Indirect jumps that leave for another function, by address.
pub(super) fn tail_jumps(insns: &[Insn], entry: Svma, tables: &[JumpTable]) -> Vec<Svma> {
    let unresolved = |i: &Insn| i.flow == Flow::IndirectJump && !tables.iter().any(|t| t.jump == i.address);
    let jumps: Vec<usize> = (0..insns.len()).filter(|&i| unresolved(&insns[i])).collect();
    if jumps.is_empty() || !own_addresses(insns, entry, tables).is_empty() {
        return Vec::new();
    }
    let (heights, before) = (heights(insns, entry, tables), predecessors(insns));
    if has_code_for_jumps(insns, &heights) {
        return Vec::new();
    }
    let leaves = |&i: &usize| heights[i].is_some_and(|h| h.rsp == Some(0)) && by_pointer(insns, &before, i);
    let found: Vec<Svma> = jumps.into_iter().filter(leaves).map(|i| insns[i].address).collect();
    if found.len() > MOST_TAIL_JUMPS { Vec::new() } else { found }
}

/// Instructions whose address the function itself takes, other than its entry: a jump by pointer may lead there.
pub(super) fn own_addresses(insns: &[Insn], entry: Svma, tables: &[JumpTable]) -> Vec<Svma> {
    let taken = |insn: &Insn| {
        let raw = &insn.raw;
        let address = match raw.mnemonic() {
            Mnemonic::Lea if raw.is_ip_rel_memory_operand() => Svma(raw.ip_rel_memory_address()),
            Mnemonic::Mov if raw.op1_kind() == OpKind::Memory || raw.op1_kind() == OpKind::Register => return None,
            Mnemonic::Mov => Svma(raw.try_immediate(1).ok()?),
            _ => return None,
        };
        let inside = address != entry && insns.binary_search_by_key(&address, |i| i.address).is_ok();
        (inside && !tables.iter().any(|t| t.table == address)).then_some(address)
    };
    insns.iter().filter_map(taken).collect()
}

/// Whether there is code that nothing known leads to and that gets to an end without any call: the places of a computed
/// jump. (Landing pads of exceptions call the run-time.)
fn has_code_for_jumps(insns: &[Insn], heights: &[Option<Heights>]) -> bool {
    let falls = |i: &Insn| !matches!(i.flow, Flow::Jump(_) | Flow::IndirectJump | Flow::Return | Flow::Trap);
    let stray = |&i: &usize| {
        let begins = i > 0 && (heights[i - 1].is_some() || !falls(&insns[i - 1]) || insns[i - 1].is_idle());
        heights[i].is_none() && !insns[i].is_idle() && begins
    };
    (0..insns.len()).filter(stray).any(|i| {
        let same_part = |(a, b): &(&Insn, &Insn)| a.end() == b.address;
        let straight = insns[i..].iter().zip(&insns[i + 1..]).take_while(same_part).count() + 1;
        let last = insns[i..i + straight].iter().find(|i| i.flow != Flow::Next && !matches!(i.flow, Flow::Branch(_)));
        last.is_some_and(|l| matches!(l.flow, Flow::Return | Flow::IndirectJump))
    })
}

/// Heights before each instruction; `None` for those that are not reached by direct jumps and known tables.
fn heights(insns: &[Insn], entry: Svma, tables: &[JumpTable]) -> Vec<Option<Heights>> {
    let index = |at: Svma| insns.binary_search_by_key(&at, |i| i.address).ok();
    let mut known: Vec<Option<Heights>> = vec![None; insns.len()];
    let Some(first) = index(entry) else { return known };
    known[first] = Some(Heights { rsp: Some(0), rbp: None });
    let mut todo = vec![first];
    while let Some(i) = todo.pop() {
        let Some(before) = known[i] else { continue };
        let after = before.after(&insns[i]);
        let next = || insns.get(i + 1).filter(|n| n.address == insns[i].end()).map(|_| i + 1);
        let to: Vec<usize> = match insns[i].flow {
            Flow::Next | Flow::Call(_) | Flow::IndirectCall => next().into_iter().collect(),
            Flow::Branch(to) => next().into_iter().chain(index(to)).collect(),
            Flow::Jump(to) => index(to).into_iter().collect(),
            Flow::IndirectJump => {
                let own = tables.iter().filter(|t| t.jump == insns[i].address);
                own.flat_map(|t| &t.targets).filter_map(|&t| index(t)).collect()
            }
            Flow::Return | Flow::Trap | Flow::Invalid => Vec::new(),
        };
        for to in to {
            let joined = known[to].map_or(after, |old| old.meet(after));
            if known[to] != Some(joined) {
                // Each value can only become unknown: the search ends.
                known[to] = Some(joined);
                todo.push(to);
            }
        }
    }
    known
}

/// Whether a jump's target is a pointer out of a register or memory on every way to it, not an entry chosen from
/// a table or an address made by arithmetic.
fn by_pointer(insns: &[Insn], before: &[Vec<usize>], jump: usize) -> bool {
    let raw = &insns[jump].raw;
    match raw.op0_kind() {
        OpKind::Memory => raw.memory_index() == Register::None,
        OpKind::Register => {
            Origins { insns, before, seen: FxHashSet::default() }.all_pointers(jump, raw.op0_register())
        }
        _ => false,
    }
}

/// Instructions from which each is reached directly; several for targets of branches.
fn predecessors(insns: &[Insn]) -> Vec<Vec<usize>> {
    let mut before = vec![Vec::new(); insns.len()];
    for (i, insn) in insns.iter().enumerate() {
        if let Flow::Jump(to) | Flow::Branch(to) = insn.flow
            && let Ok(to) = insns.binary_search_by_key(&to, |i| i.address)
        {
            before[to].push(i);
        }
        let falls = matches!(insn.flow, Flow::Next | Flow::Call(_) | Flow::IndirectCall | Flow::Branch(_));
        if falls && insns.get(i + 1).is_some_and(|n| n.address == insn.end()) {
            before[i + 1].push(i);
        }
    }
    before
}

/// Where a register's value comes from, backwards over all ways.
struct Origins<'a> {
    insns: &'a [Insn],
    before: &'a [Vec<usize>],
    seen: FxHashSet<(usize, Register)>,
}

impl Origins<'_> {
    fn all_pointers(&mut self, at: usize, register: Register) -> bool {
        let mut todo = vec![(at, register.full_register())];
        while let Some((at, register)) = todo.pop() {
            for &i in &self.before[at] {
                if !self.seen.insert((i, register)) {
                    continue;
                }
                if self.seen.len() > MOST_LOOKED_AT {
                    return false;
                }
                match step_back(&self.insns[i], register) {
                    Origin::Pointer => {}
                    Origin::Same => todo.push((i, register)),
                    Origin::Copy(from) => todo.push((i, from)),
                    Origin::Either(from) => todo.extend([(i, register), (i, from)]),
                    Origin::Computed => return false,
                }
            }
        }
        true
    }
}

/// What an instruction says of a register's value behind it.
enum Origin {
    /// Loaded from a plain place, or the answer of a call.
    Pointer,
    /// The instruction leaves it alone.
    Same,
    Copy(Register),
    Either(Register),
    Computed,
}

fn step_back(insn: &Insn, register: Register) -> Origin {
    let raw = &insn.raw;
    if matches!(insn.flow, Flow::Call(_) | Flow::IndirectCall) {
        let kept = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
        return if kept.contains(&register) { Origin::Same } else { Origin::Pointer };
    }
    if writes(raw) != Some(register) {
        return Origin::Same;
    }
    let copied = (raw.op_count() > 1 && raw.op1_kind() == OpKind::Register).then(|| raw.op1_register().full_register());
    let loaded = raw.op_count() > 1 && raw.op1_kind() == OpKind::Memory && raw.memory_index() == Register::None;
    match (raw.mnemonic(), copied) {
        (Mnemonic::Mov, Some(from)) => Origin::Copy(from),
        (Mnemonic::Mov, None) if loaded => Origin::Pointer,
        (Mnemonic::Cmove | Mnemonic::Cmovne, Some(from)) => Origin::Either(from),
        (Mnemonic::Pop, _) => Origin::Pointer,
        _ => Origin::Computed,
    }
}
