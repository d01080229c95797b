//! Least time of loops as wholes. Blocks by themselves are bounded by slots alone; rounds also wait for the round before, and for the front
//! end, which goes on at few other places per cycle. Neither may exceed the truth: what can be done ahead while something else is waited
//! for is taken off each time a loop is entered.

use super::machine::Machine;
use super::{FEWEST_SAMPLES, Study};
use crate::analysis::frequency::Frequencies;
use crate::model::{AHEAD, CoreModel, Rounds, chain_of_rounds};
use std::ops::Range;
use whither_image::Flow as After;
use whither_image::cfg::EdgeKind;
use whither_image::graph::Loop;

/// Loops with a smaller share of the procedure's samples bound nothing: their flow may have been estimated too high.
const LEAST_PART: f64 = 0.1;

/// Cycles that something took at least, for a scale of 1, against the samples of all that can have gone on meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    samples: f64,
    least: f64,
}

impl Study {
    /// What bounds the scale besides blocks. `all`: samples of all that ran, of whatever process.
    pub(super) fn rounds(&self, machine: &Machine, all: f64) -> Vec<Round> {
        let Some(f) = &self.frequencies else { return Vec::new() };
        let total: f64 = self.subject.samples.iter().sum();
        let of = |nodes: &[usize]| -> f64 { self.inside(nodes).map(|b| self.subject.block_samples(b)).sum() };
        let loops = self.subject.loops.iter().map(|l| (l, of(&l.nodes)));
        let hot = loops.filter(|(_, samples)| *samples >= (LEAST_PART * total).max(FEWEST_SAMPLES));
        let own = hot.map(|(l, samples)| Round { samples, least: self.least_of(f, machine, l) });
        // Whatever is fetched while others are waited for is fetched while something runs.
        let whole = Round { samples: all.max(total), least: self.least_of_jumps(f, &machine.core) };
        own.chain([whole]).filter(|r| r.least > 0.0).collect()
    }

    fn inside<'s>(&'s self, nodes: &'s [usize]) -> impl Iterator<Item = usize> + 's {
        nodes.iter().copied().filter(|b| *b < self.subject.cfg.blocks.len())
    }

    fn least_of(&self, f: &Frequencies, machine: &Machine, body: &Loop) -> f64 {
        let cfg = &self.subject.cfg;
        let member = |b: usize| b < cfg.blocks.len() && body.nodes.binary_search(&b).is_ok();
        let edges = || f.network.edges.iter().zip(&f.flow.edges).enumerate();
        let entries: f64 = edges().filter(|(_, (e, _))| !member(e.0) && member(e.1)).map(|(_, (_, x))| x).sum();
        let executed: Vec<(usize, f64)> = self.inside(&body.nodes).map(|b| (b, f.flow.blocks[b])).collect();
        let blocks: Vec<Range<usize>> = cfg.blocks.iter().map(|b| b.insns.clone()).collect();
        let rounds = Rounds { blocks: &executed, entries };
        let chain = chain_of_rounds(&machine.core, &self.subject.effects, &blocks, &rounds);
        let jumps = edges().filter(|(e, (ends, _))| member(ends.0) && member(ends.1) && self.is_taken(f, *e));
        let (mut taken, mut densest) = (0.0, 0.0_f64);
        for (_, (ends, x)) in jumps {
            taken += x;
            densest = densest.max(1.0 / blocks[ends.0].len().max(1) as f64);
        }
        chain.max((taken - entries * AHEAD * densest) / machine.core.most_taken())
    }

    /// Of all jumps within the procedure; its calls of itself and their returns are some.
    fn least_of_jumps(&self, f: &Frequencies, core: &dyn CoreModel) -> f64 {
        let cfg = &self.subject.cfg;
        let within = |ends: &(usize, usize)| ends.0 < cfg.blocks.len() && ends.1 < cfg.blocks.len();
        let edges = f.network.edges.iter().zip(&f.flow.edges).enumerate();
        let taken: f64 = edges.filter(|(e, (ends, _))| within(ends) && self.is_taken(f, *e)).map(|(_, (_, x))| x).sum();
        let calls_itself = |i: &usize| match cfg.insns[*i].flow {
            After::Call(to) => cfg.insns.binary_search_by_key(&to, |i| i.address).is_ok(),
            _ => false,
        };
        let calls = |b: usize| cfg.blocks[b].insns.clone().filter(calls_itself).count() as f64;
        let called: f64 = (0..cfg.blocks.len()).map(|b| calls(b) * f.flow.blocks[b]).sum();
        (taken + 2.0 * called) / core.most_taken()
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
