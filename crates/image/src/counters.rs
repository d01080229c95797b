//! Registers that count: places where code steps a register by a constant, with the stretch of code within which
//! nothing else writes it. As long as a thread stays in that stretch, the difference of the register between two moments, over the
//! step, is how often the place was executed in between: the pointer or the counter of nearly every loop tells so, whatever the
//! loop does besides (DCPI section 7 calls two samples that come together a double sample). Here is only code; who
//! takes the samples, and how long threads stay, is told elsewhere.

mod exits;

pub use exits::{Bound, Exit, Exits, Relation, Sign};

use crate::cfg::Cfg;
use crate::disasm::{Flow, Insn, decode_first};
use crate::effects::{Effects, RegSet, effects};
use crate::ids::Svma;
use crate::jump_tables::Data;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeMap;

/// Registers a call may change (System V ABI for x86-64, 3.2.1): rax, rcx, rdx, rsi, rdi, r8 to r11.
const LOST_BY_CALLS: [u32; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
const RSP: u8 = 4;
/// Bytes of the longest instruction.
const LONGEST: usize = 15;

/// A place that steps a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The instruction, as an index.
    pub at: usize,
    /// The register, as instructions number it (0 to 15, rax to r15).
    pub register: u8,
    /// What is added each time, never 0.
    pub step: i64,
    /// Whether only the register's lower 32 bits count.
    pub narrow: bool,
    /// Instructions from each of which the place and each other are reached without another write of the register, in ascending
    /// order.
    pub stretch: Vec<usize>,
}

impl Counter {
    /// Executions of the place between two values of the register, if it was nothing else that changed it, however often the
    /// register overflowed meanwhile: the step divides the difference as numbers of the register's width do, where a power of two
    /// has no inverse and an odd number has one. `None` where no number of steps makes the difference; one that was
    /// made by something else mostly gives a very large number.
    #[must_use]
    pub fn executions(&self, before: u64, after: u64) -> Option<u64> {
        steps_between(before, after, self.step, if self.narrow { 32 } else { 64 })
    }
}

/// How often a step must be added to a number of so many bits to make the other.
fn steps_between(before: u64, after: u64, step: i64, bits: u32) -> Option<u64> {
    let twos = step.trailing_zeros();
    let modulo = |value: u64, bits: u32| value & u64::MAX.checked_shr(64 - bits).unwrap_or(0);
    let difference = modulo(after.wrapping_sub(before), bits);
    if twos >= bits || modulo(difference, twos) != 0 {
        return None;
    }
    let odd = step.cast_unsigned() >> twos;
    Some(modulo((difference >> twos).wrapping_mul(inverse(odd)), bits - twos))
}

/// The inverse of an odd number modulo 2^64 (Warren, Hacker's Delight, 10-16: each step doubles the digits that are right).
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd.wrapping_mul(3) ^ 2, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// Instructions and what may be executed after each, as indices. What an indirect jump leads to may be missing.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// By address.
    pub insns: Vec<Insn>,
    /// What follows each within the function.
    pub next: Vec<Vec<usize>>,
}

impl Code {
    /// Of a function's graph.
    #[must_use]
    pub fn of(cfg: &Cfg) -> Self {
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); cfg.insns.len()];
        for block in &cfg.blocks {
            (block.insns.start..block.insns.end.saturating_sub(1)).for_each(|i| next[i].push(i + 1));
        }
        for edge in &cfg.edges {
            if let (Some(from), Some(to)) = (cfg.blocks.get(edge.from), cfg.blocks.get(edge.to)) {
                next[from.insns.end - 1].push(to.insns.start);
            }
        }
        Self { insns: cfg.insns.clone(), next }
    }

    /// What direct branches reach from an address on, calls passed over, as far as `most` instructions.
    #[must_use]
    pub fn from(data: &dyn Data, at: Svma, most: usize) -> Self {
        let mut found: BTreeMap<Svma, Insn> = BTreeMap::new();
        let mut todo = vec![at];
        while let Some(at) = todo.pop() {
            if found.len() >= most || found.contains_key(&at) {
                continue;
            }
            let Some(insn) = insn_at(data, at) else { continue };
            todo.extend(after(&insn));
            found.insert(at, insn);
        }
        let insns: Vec<Insn> = found.into_values().collect();
        let index = |at: Svma| insns.binary_search_by_key(&at, |i| i.address).ok();
        let next = insns.iter().map(|i| after(i).filter_map(index).collect()).collect();
        Self { insns, next }
    }

    /// Number of the straight run of instructions that each belongs to: all of one are executed equally often.
    #[must_use]
    pub fn blocks(&self) -> Vec<usize> {
        let before = self.before();
        let follows = |i: usize| i > 0 && before[i] == [i - 1] && self.next[i - 1] == [i];
        let mut number = 0;
        (0..self.next.len())
            .map(|i| {
                number += usize::from(!follows(i));
                number
            })
            .collect()
    }

    /// What precedes each.
    fn before(&self) -> Vec<Vec<usize>> {
        let mut before = vec![Vec::new(); self.next.len()];
        self.next.iter().enumerate().for_each(|(i, next)| next.iter().for_each(|&to| before[to].push(i)));
        before
    }

    /// All its counters.
    #[must_use]
    pub fn counters(&self) -> Vec<Counter> {
        let writes = written_by(&self.insns);
        let steps: Vec<Option<Step>> = self.insns.iter().map(step).collect();
        (0..16).filter(|r| *r != RSP).flat_map(|register| self.of_register(register, &writes, &steps)).collect()
    }

    /// Whether a counter's register is set to a constant wherever its stretch is entered. Else an entry may begin at what a loop around it
    /// has stepped, and then moments in different stays are as far apart as that loop got, however many rounds there were.
    #[must_use]
    pub fn begins_at_constants(&self, counter: &Counter) -> bool {
        let writes = written_by(&self.insns);
        let set = RegSet::gpr(counter.register.into());
        let before = self.before();
        let inside = |i: usize| counter.stretch.binary_search(&i).is_ok();
        let mut met = vec![false; self.insns.len()];
        let mut todo: Vec<usize> = counter.stretch.iter().flat_map(|&i| before[i].iter().copied()).collect();
        let mut constants = 0;
        while let Some(i) = todo.pop() {
            if inside(i) || std::mem::replace(&mut met[i], true) {
                continue;
            }
            if writes[i].meets(set) {
                if !sets_constant(&self.insns[i], counter.register) {
                    return false;
                }
                constants += 1;
            } else if before[i].is_empty() {
                return false;
            } else {
                todo.extend(&before[i]);
            }
        }
        constants > 0
    }

    fn of_register(&self, register: u8, writes: &[RegSet], steps: &[Option<Step>]) -> Vec<Counter> {
        let own = |i: usize| steps[i].filter(|s| s.register == register);
        if (0..steps.len()).all(|i| own(i).is_none()) {
            return Vec::new();
        }
        let set = RegSet::gpr(register.into());
        let barred = |i: usize| own(i).is_none() && writes[i].meets(set);
        let mut out = Vec::new();
        for stretch in components(&self.next, barred) {
            let mut at = stretch.iter().copied().filter(|&i| own(i).is_some());
            // Two places that step one register cannot be told apart.
            if let (Some(at), None) = (at.next(), at.next())
                && let Some(step) = own(at)
            {
                out.push(Counter { at, register, step: step.by, narrow: step.narrow, stretch });
            }
        }
        out
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    register: u8,
    by: i64,
    narrow: bool,
}

fn step(insn: &Insn) -> Option<Step> {
    let (register, by, narrow) = added(&insn.raw)?;
    Some(Step { register, by, narrow })
}

/// The register that an instruction does nothing but add a constant to, what is added, never 0, and whether only the lower 32 bits count.
pub(crate) fn added(raw: &Instruction) -> Option<(u8, i64, bool)> {
    if raw.op0_kind() != OpKind::Register {
        return None;
    }
    let register = raw.op0_register();
    if !(register.is_gpr32() || register.is_gpr64()) {
        return None;
    }
    let immediate = || {
        let is = matches!(
            raw.op1_kind(),
            OpKind::Immediate8to32 | OpKind::Immediate8to64 | OpKind::Immediate32 | OpKind::Immediate32to64
        );
        is.then(|| raw.immediate(1).cast_signed())
    };
    let by = match raw.mnemonic() {
        Mnemonic::Inc => 1,
        Mnemonic::Dec => -1,
        Mnemonic::Add => immediate()?,
        Mnemonic::Sub => immediate()?.checked_neg()?,
        Mnemonic::Lea => {
            let base = raw.memory_base();
            let own = base != Register::None && base.full_register() == register.full_register();
            let bare = raw.memory_index() == Register::None && raw.segment_prefix() == Register::None;
            (own && bare).then(|| raw.memory_displacement64().cast_signed())?
        }
        _ => return None,
    };
    let narrow = register.is_gpr32();
    let by = if narrow { i64::from(by as i32) } else { by };
    (by != 0).then_some((register.full_register().number() as u8, by, narrow))
}

/// Whether an instruction gives all of a register a value that it states itself.
fn sets_constant(insn: &Insn, register: u8) -> bool {
    let raw = &insn.raw;
    let is = |op: u32| {
        raw.op_kind(op) == OpKind::Register && raw.op_register(op).full_register().number() == register.into()
    };
    let own = raw.op_count() == 2 && is(0) && (raw.op0_register().is_gpr32() || raw.op0_register().is_gpr64());
    own && match raw.mnemonic() {
        Mnemonic::Mov => matches!(raw.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64),
        Mnemonic::Xor | Mnemonic::Sub => is(1) && raw.op0_register() == raw.op1_register(),
        Mnemonic::Lea => raw.is_ip_rel_memory_operand(),
        _ => false,
    }
}

/// Registers that each instruction changes.
fn written_by(insns: &[Insn]) -> Vec<RegSet> {
    insns.iter().zip(&effects(insns)).map(|(i, e)| written(i, e)).collect()
}

/// Registers that an instruction changes, calls included.
fn written(insn: &Insn, effects: &Effects) -> RegSet {
    match insn.flow {
        Flow::Call(_) | Flow::IndirectCall => {
            LOST_BY_CALLS.iter().fold(effects.writes, |set, &r| set.with(RegSet::gpr(r)))
        }
        // The kernel answers in rax.
        _ if insn.raw.mnemonic() == Mnemonic::Syscall => effects.writes.with(RegSet::gpr(0)),
        _ => effects.writes,
    }
}

fn insn_at(data: &dyn Data, at: Svma) -> Option<Insn> {
    let bytes = (1..=LONGEST).rev().find_map(|n| data.bytes(at, n))?;
    decode_first(bytes, at)
}

/// Where control goes behind an instruction, as far as it says so.
fn after(insn: &Insn) -> impl Iterator<Item = Svma> {
    let (straight, to) = match insn.flow {
        Flow::Next | Flow::Call(_) | Flow::IndirectCall => (true, None),
        Flow::Branch(to) => (true, Some(to)),
        Flow::Jump(to) => (false, Some(to)),
        Flow::IndirectJump | Flow::Return | Flow::Trap | Flow::Invalid => (false, None),
    };
    straight.then_some(insn.end()).into_iter().chain(to)
}

/// Strongly connected components with a cycle, without the barred nodes; each in ascending order. Tarjan 1972, with a
/// stack of its own, as code may be deep.
fn components(next: &[Vec<usize>], barred: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    const NONE: usize = usize::MAX;
    let n = next.len();
    let (mut number, mut low, mut on_stack) = (vec![NONE; n], vec![NONE; n], vec![false; n]);
    let (mut stack, mut out, mut count) = (Vec::new(), Vec::new(), 0);
    for root in (0..n).filter(|&i| !barred(i)) {
        if number[root] != NONE {
            continue;
        }
        let mut work = vec![(root, 0)];
        while let Some((node, edge)) = work.last_mut() {
            let node = *node;
            if *edge == 0 {
                (number[node], low[node], on_stack[node]) = (count, count, true);
                count += 1;
                stack.push(node);
            }
            if let Some(&to) = next[node].get(*edge) {
                *edge += 1;
                if barred(to) {
                    continue;
                }
                if number[to] == NONE {
                    work.push((to, 0));
                } else if on_stack[to] {
                    low[node] = low[node].min(number[to]);
                }
                continue;
            }
            work.pop();
            if let Some((above, _)) = work.last() {
                low[*above] = low[*above].min(low[node]);
            }
            if low[node] == number[node] {
                let from = stack.iter().rposition(|&i| i == node).unwrap_or(0);
                let mut found = stack.split_off(from);
                found.iter().for_each(|&i| on_stack[i] = false);
                if found.len() > 1 || next[node].contains(&node) {
                    found.sort_unstable();
                    out.push(found);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
