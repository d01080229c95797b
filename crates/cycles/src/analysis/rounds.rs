//! Least time of loops and procedures as wholes. A sample is at what is waited for, and all else goes on meanwhile: of consecutive blocks,
//! of calls and callers, of one execution and the next. So a chain bounds the time of a loop alone, through whose rounds it leads; what is at
//! hand once per cycle (slots, dividers, taken branches) bounds the time of all that runs; and what the procedure itself is waited for is no
//! less than it takes to leave the pipeline. None may exceed the truth: what can be done ahead is taken off each time a loop is entered.

use super::machine::Machine;
use super::{FEWEST_SAMPLES, Study, entries};
use crate::analysis::frequency::Frequencies;
use crate::model::{Core, CoreModel, Rounds, chain_of_rounds};
use std::ops::Range;
use whither_image::cfg::EdgeKind;
use whither_image::graph::Loop;
use whither_image::{Effects, Flow as After, OpClass};

/// Loops with a smaller share of the procedure's samples bound nothing: their flow may have been estimated too high.
const LEAST_PART: f64 = 0.1;

/// Cycles that something took at least, for a scale of 1, against the samples of all that can have gone on meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    samples: f64,
    least: f64,
}

impl Study {
    /// What bounds the scale besides single blocks. `all`: samples of all that ran, of whatever process.
    pub(super) fn rounds(&self, machine: &Machine, all: f64) -> Vec<Round> {
        let Some(f) = &self.frequencies else { return Vec::new() };
        let core = &machine.core;
        let total: f64 = self.subject.samples.iter().sum();
        let of = |nodes: &[usize]| -> f64 { self.inside(nodes).map(|b| self.subject.block_samples(b)).sum() };
        let loops = self.subject.loops.iter().map(|l| (l, of(&l.nodes)));
        let hot = loops.filter(|(_, samples)| *samples >= (LEAST_PART * total).max(FEWEST_SAMPLES));
        let loops = hot.map(|(l, samples)| Round { samples, least: self.least_of(f, core, l) });
        let inner: f64 = self.subject.loops.iter().map(|l| self.least_of_inner(f, core, l)).sum();
        let own = Round { samples: total, least: self.least_of_retiring(f).max(inner).max(self.least_alone(f, core)) };
        // Whatever goes on while others are waited for goes on while something runs.
        let whole = Round { samples: all.max(total), least: self.least_of_all(f, core) };
        loops.chain([own, whole]).filter(|r| r.least > 0.0).collect()
    }

    fn inside<'s>(&'s self, nodes: &'s [usize]) -> impl Iterator<Item = usize> + 's {
        nodes.iter().copied().filter(|b| *b < self.subject.cfg.blocks.len())
    }

    /// Times that a loop is entered.
    fn entries_of(&self, f: &Frequencies, body: &Loop) -> f64 {
        let member = |b: usize| b < self.subject.cfg.blocks.len() && body.nodes.binary_search(&b).is_ok();
        let edges = f.network.edges.iter().zip(&f.flow.edges);
        edges.filter(|(e, _)| !member(e.0) && member(e.1)).map(|(_, x)| x).sum()
    }

    /// Calls and system calls of a block: what they lead to goes on beside what is around them.
    fn calls_of(&self, block: usize) -> usize {
        let calls = |e: &&Effects| matches!(e.class, OpClass::Call | OpClass::SystemCall);
        self.subject.effects[self.subject.cfg.blocks[block].insns.clone()].iter().filter(calls).count()
    }

    fn calls_of_itself(&self, block: usize) -> f64 {
        let cfg = &self.subject.cfg;
        let calls_itself = |i: &usize| match cfg.insns[*i].flow {
            After::Call(to) => cfg.insns.binary_search_by_key(&to, |i| i.address).is_ok(),
            _ => false,
        };
        cfg.blocks[block].insns.clone().filter(calls_itself).count() as f64
    }

    fn calls(&self, body: &Loop) -> bool {
        self.inside(&body.nodes).any(|b| self.calls_of(b) > 0)
    }

    /// Cycles that the blocks of a loop need in all of something, of which a block needs so much an execution, but for what can have been
    /// done before the loop's own turn came, each time that it was entered.
    fn needs(&self, f: &Frequencies, core: &Core, body: &Loop, each: impl Fn(usize) -> f64) -> f64 {
        let (mut cycles, mut densest) = (0.0, 0.0_f64);
        for b in self.inside(&body.nodes) {
            let own = each(b);
            cycles += own * f.flow.blocks[b];
            densest = densest.max(own / self.schedule.blocks[b].slots.max(1.0));
        }
        cycles - self.entries_of(f, body) * core.window() * densest
    }

    /// Cycles of a loop at least. One that calls has its chains alone: all else may pass while the callee is waited for.
    fn least_of(&self, f: &Frequencies, core: &Core, body: &Loop) -> f64 {
        let executed: Vec<(usize, f64)> = self.inside(&body.nodes).map(|b| (b, f.flow.blocks[b])).collect();
        let blocks: Vec<Range<usize>> = self.subject.cfg.blocks.iter().map(|b| b.insns.clone()).collect();
        let rounds = Rounds { blocks: &executed, entries: self.entries_of(f, body) };
        let chain = chain_of_rounds(core, &self.subject.effects, &blocks, &rounds);
        if self.calls(body) {
            return chain;
        }
        let slots = self.needs(f, core, body, |b| self.schedule.blocks[b].slots / core.most_slots());
        let busy = self.needs(f, core, body, |b| self.busy_of(core, b));
        let jumps = self.needs(f, core, body, |b| self.taken_of(f, body, b) / core.most_taken());
        [slots, busy, jumps, self.least_of_inner(f, core, body)].into_iter().fold(chain, f64::max)
    }

    /// Best case of a loop that neither calls nor holds another: rounds of an inner one, entered anew each time, need not wait for what was
    /// before it.
    fn least_of_inner(&self, f: &Frequencies, core: &Core, body: &Loop) -> f64 {
        let holds = |l: &Loop| l.header != body.header && body.nodes.binary_search(&l.header).is_ok();
        if self.calls(body) || self.subject.loops.iter().any(holds) {
            return 0.0;
        }
        self.needs(f, core, body, |b| self.schedule.blocks[b].best_cycles).max(0.0)
    }

    /// Cycles of a block on the unit that it keeps busy most: a divider, that of floating point, or microcode.
    fn busy_of(&self, core: &Core, block: usize) -> f64 {
        let mut busy = [0.0; 3];
        for insn in &self.subject.effects[self.subject.cfg.blocks[block].insns.clone()] {
            let unit = match insn.class {
                OpClass::Div => 0,
                class if class.is_fp_division() => 1,
                _ => 2,
            };
            busy[unit] += core.least_busy(insn);
        }
        busy.into_iter().fold(0.0, f64::max)
    }

    /// Cycles of the procedure in which it goes on alone: its own samples stand there.
    fn least_alone(&self, f: &Frequencies, core: &Core) -> f64 {
        let of = |b: usize| -> f64 {
            self.subject.effects[self.subject.cfg.blocks[b].insns.clone()].iter().map(|e| core.least_alone(e)).sum()
        };
        f.flow.blocks.iter().enumerate().take(self.subject.cfg.blocks.len()).map(|(b, n)| of(b) * n).sum()
    }

    /// Taken branches per execution of a block that lead to others of the loop.
    fn taken_of(&self, f: &Frequencies, body: &Loop, block: usize) -> f64 {
        let member = |b: usize| b < self.subject.cfg.blocks.len() && body.nodes.binary_search(&b).is_ok();
        let edges = f.network.edges.iter().zip(&f.flow.edges).enumerate();
        let taken = edges.filter(|(e, (ends, _))| ends.0 == block && member(ends.1) && self.is_taken(f, *e));
        let taken: f64 = taken.map(|(_, (_, x))| x).sum();
        taken / f.flow.blocks[block].max(f64::MIN_POSITIVE)
    }

    /// Cycles of the procedure by itself at least: what leaves the pipeline together may be told as the last of others, at each border with
    /// them. A call of itself and the return from it are none.
    fn least_of_retiring(&self, f: &Frequencies) -> f64 {
        let blocks = || self.schedule.blocks.iter().zip(&f.flow.blocks).enumerate();
        let slots: f64 = blocks().map(|(_, (at_best, n))| at_best.slots * n).sum();
        let calls: f64 =
            blocks().map(|(b, (_, n))| (self.calls_of(b) as f64 - 2.0 * self.calls_of_itself(b)) * n).sum();
        (slots - (self.retires - 1.0) * (calls + entries(f)).max(0.0)) / self.retires
    }

    /// The same of an execution of a block.
    pub(super) fn least_of_leaving(&self, block: usize) -> f64 {
        let borders = 1.0 + self.calls_of(block) as f64;
        (self.schedule.blocks[block].slots - (self.retires - 1.0) * borders) / self.retires
    }

    /// Cycles of everything at least: no stretch of time has room for more slots, divisions or taken branches, whoever they are waited for by.
    /// Calls of itself and their returns are jumps within the procedure too.
    fn least_of_all(&self, f: &Frequencies, core: &Core) -> f64 {
        let cfg = &self.subject.cfg;
        let within = |ends: &(usize, usize)| ends.0 < cfg.blocks.len() && ends.1 < cfg.blocks.len();
        let edges = f.network.edges.iter().zip(&f.flow.edges).enumerate();
        let taken: f64 = edges.filter(|(e, (ends, _))| within(ends) && self.is_taken(f, *e)).map(|(_, (_, x))| x).sum();
        let sum = |of: &dyn Fn(usize) -> f64| (0..cfg.blocks.len()).map(|b| of(b) * f.flow.blocks[b]).sum::<f64>();
        let jumps = (taken + 2.0 * sum(&|b| self.calls_of_itself(b))) / core.most_taken();
        let slots = sum(&|b| self.schedule.blocks[b].slots) / core.most_slots();
        jumps.max(slots).max(sum(&|b| self.busy_of(core, b)))
    }

    fn is_taken(&self, f: &Frequencies, edge: usize) -> bool {
        edge >= f.known_edges || matches!(self.subject.cfg.edges[edge].kind, EdgeKind::Taken | EdgeKind::Table)
    }
}

/// Samples per cycle that flows are bounded to, with room for chance.
pub(super) fn bound_of_rounds(rounds: &[Round]) -> Option<f64> {
    rounds.iter().map(|r| (r.samples + 2.0 * r.samples.sqrt()) / r.least).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_round_bounds() {
        let rounds = [Round { samples: 900.0, least: 300.0 }, Round { samples: 100.0, least: 60.0 }];
        assert_eq!(bound_of_rounds(&rounds), Some(2.0));
        assert_eq!(bound_of_rounds(&[]), None);
    }
}
