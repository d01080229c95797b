//! From flows to executions. Flows tell how often blocks ran against each other; what they must be multiplied with follows
//! from time, which bounds it, from blocks counted against time, or from a number of calls, which determines it where the
//! way from the entry to where the time goes is well known.

use super::rounds::bound_of_rounds;
use super::{Study, entries, quotient};
use crate::analysis::frequency::Frequencies;
use crate::results::analysis::{Confidence, InsnAnalysis};
use whither_image::OpClass;

/// Blocks with fewer samples bound nothing by themselves.
const BOUNDING: f64 = 30.0;
/// Fewer samples in all do not bound a procedure.
const BOUNDING_TOGETHER: f64 = 10.0;
/// Share of the samples whose blocks may turn out to be faster than possible: their flow was estimated too high.
const OUTLIERS: f64 = 0.1;
/// Calls give no scale where what they lead to is less certain: standard deviation of the logarithm of the entry's flow.
const MOST_ERROR: f64 = 0.2;
/// What registers tell gives no scale to a hottest block that is bound to it more loosely than this, of the same kind.
const LOOSE: f64 = 0.5;
/// How often a loop must have been seen to end before its rounds per entry are known.
const ENDS: f64 = 50.0;
/// And before intervals tell how well they are known, where other blocks were counted.
const FEW_ENDS: f64 = 10.0;
/// Loops with a smaller share of the samples do not matter.
const MATTERS: f64 = 0.1;
/// From this share of the samples on that stand at repeated instructions time bounds nothing: how often these repeat is not in the code.
const REPEATED: f64 = 0.3;
/// No core enters the kernel and comes back in fewer cycles.
const LEAST_SYSTEM_CALL: f64 = 50.0;
/// A clock may be off by this much.
const CLOCK: f64 = 1.05;

impl Study {
    /// The largest scale that the time allows. Executions are at most this, so costs at least, as far as the model's least
    /// cases are right.
    pub(super) fn bounded_scale(&self) -> Option<f64> {
        let f = self.frequencies.as_ref()?;
        let total: f64 = self.subject.samples.iter().sum();
        if total < BOUNDING_TOGETHER {
            return None;
        }
        let of = |b: usize| Bounding {
            samples: self.subject.block_samples(b),
            least: self.least_of_leaving(b) * f.flow.blocks[b],
        };
        let blocks: Vec<Bounding> = (0..self.subject.cfg.blocks.len()).map(of).collect();
        let scale = [bound(&blocks), bound_of_rounds(&self.rounds)].into_iter().flatten().reduce(f64::min)?;
        Some(scale * self.cycles_per_sample)
    }

    /// Why the most executions that time has room for say nothing of how many there were. `all`: samples of all that ran.
    pub(super) fn boundless(&self, all: f64) -> Option<String> {
        let (f, scale) = (self.frequencies.as_ref()?, self.scale.filter(|_| !self.is_told())?);
        let effects = &self.subject.effects;
        let of = |class: OpClass| (0..effects.len()).filter(move |&i| effects[i].class == class);
        let total: f64 = self.subject.samples.iter().sum();
        let repeated: f64 = of(OpClass::Rep).map(|i| self.subject.samples[i]).sum();
        if repeated >= REPEATED * total {
            return Some(format!(
                "executions have no bound: {:.0} % of the time stands at repeated instructions, and how long these take depends on a count that \
                 no recording has",
                100.0 * repeated / total
            ));
        }
        let calls: f64 =
            of(OpClass::SystemCall).filter_map(|i| self.subject.block_of(i)).map(|b| f.flow.blocks[b]).sum();
        (calls * scale * LEAST_SYSTEM_CALL > all * self.cycles_per_sample).then(|| {
            "executions have no bound: the kernel does most of what they take, and its time is not the procedure's"
                .to_owned()
        })
    }

    /// Executions for which blocks, one after the other, take their best cases, over those of the bound: less than 1, or nothing. Most code
    /// stays below these, but blocks that overlap with others, as they do around calls, may exceed them.
    pub(super) fn at_best(&self, f: &Frequencies) -> Option<f64> {
        let scale = self.scale.filter(|_| self.is_bounded())?;
        let best: f64 = self.schedule.blocks.iter().zip(&f.flow.blocks).map(|(b, n)| b.best_cycles * n).sum();
        let cycles = self.subject.samples.iter().sum::<f64>() * self.cycles_per_sample;
        quotient(cycles, best * scale).filter(|q| *q < 1.0)
    }

    /// What an instruction stalls for certain: by the most executions of its block that the interval leaves, and nothing where these are
    /// hardly known.
    pub(super) fn surest_stall(&self, f: &Frequencies, insn: &InsnAnalysis) -> f64 {
        let (Some(b), Some(stall), Some(cycles)) = (insn.block, insn.stall_cycles, insn.cycles) else { return 0.0 };
        let executions = self.block_estimate(f, b);
        if executions.confidence == Confidence::Low || executions.high <= 0.0 {
            return 0.0;
        }
        stall - cycles * (1.0 - executions.value / executions.high)
    }

    /// With the scale that counts tell, in so much run time.
    pub(super) fn counted(mut self, run_ns: Option<f64>) -> Self {
        let rate = self.frequencies.as_ref().and_then(|f| f.counted_rate);
        if let (Some(rate), Some(run_ns)) = (rate, run_ns.filter(|ns| *ns > 0.0)) {
            match self.uncounted_loop().or_else(|| self.loose_end()) {
                // Nobody asked for what pairs of moments tell.
                Some(why) => self.declined = self.subject.counted.as_ref().map(|_| why),
                None => (self.scale, self.counted) = (Some(rate * run_ns), true),
            }
        }
        // These cover all of the time.
        if let Some(scale) = self.frequencies.as_ref().and_then(|f| f.retired_scale) {
            (self.scale, self.counted) = (Some(scale), true);
        }
        self
    }

    /// Why what registers tell gives no scale: how often the block that takes the most time runs for each round that was counted
    /// is hardly known, as no way between them was seen.
    fn loose_end(&self) -> Option<String> {
        let f = self.frequencies.as_ref().filter(|_| !self.subject.lapped.is_empty())?;
        let blocks = 0..self.subject.cfg.blocks.len();
        let hottest =
            blocks.max_by(|&a, &b| self.subject.block_samples(a).total_cmp(&self.subject.block_samples(b)))?;
        let error = f.flow.by_counts.as_ref().map_or(f.flow.block_error[hottest], |by_counts| by_counts.0[hottest]);
        (error > LOOSE).then(|| {
            format!(
                "what was counted gives no scale: how often the block at {:#x} runs, which takes the most time, is known to a factor of \
                 {:.1} of that only",
                self.subject.cfg.insns[self.subject.cfg.blocks[hottest].insns.start].address.0,
                (1.96 * error).exp()
            )
        })
    }

    /// Why counts give no scale: time goes into a loop in which nothing was counted, and whose rounds are hardly known.
    fn uncounted_loop(&self) -> Option<String> {
        let (f, counted) = (self.frequencies.as_ref()?, self.subject.counted_blocks());
        let within = |nodes: &[usize]| counted.iter().any(|b| nodes.binary_search(b).is_ok());
        let (address, ends) = self.least_known_loop(f, |nodes| !within(nodes)).filter(|l| l.1 < FEW_ENDS)?;
        Some(format!(
            "what was counted gives no scale: the loop at {address:#x} was seen to end {ends:.0} times and nothing in it was counted, so \
             its rounds are hardly known ({FEW_ENDS} are needed; record for longer or at a higher rate)"
        ))
    }

    /// With a number of calls that is known, as far as it determines anything.
    pub(super) fn called(mut self, calls: Option<f64>) -> Self {
        if let (Some(calls), Some(f)) = (calls.filter(|c| *c > 0.0 && c.is_finite()), &self.frequencies) {
            match self.refusal(f, calls) {
                Some(why) => self.declined = Some(why),
                None => (self.scale, self.calls, self.counted) = (Some(calls / entries(f)), Some(calls), false),
            }
        }
        self
    }

    /// Why so many calls give no scale.
    fn refusal(&self, f: &Frequencies, calls: f64) -> Option<String> {
        let error = entry_error(f);
        if let Some((address, ends)) = self.least_known_loop(f, |_| true).filter(|l| l.1 < ENDS) {
            return Some(format!(
                "{calls} calls give no scale: the loop at {address:#x} was seen to end {ends:.0} times, so its rounds per call \
                 are hardly known ({ENDS} are needed; record for longer, at a higher rate, or with --edges mem)"
            ));
        }
        if error > MOST_ERROR {
            return Some(format!(
                "{calls} calls give no scale: how often the hot blocks run per call is known to a factor of {:.1} only; \
                 record for longer, at a higher rate, or with --edges mem",
                (1.96 * error).exp()
            ));
        }
        let bound = self.bounded_scale().filter(|_| self.clock_is_known)?;
        let samples: f64 = self.subject.samples.iter().sum();
        let times = calls / entries(f) / bound;
        let slack = CLOCK * (1.96 * error.hypot(1.0 / samples.max(1.0).sqrt())).exp();
        (times > slack).then(|| {
            format!(
                "{calls} calls give no scale: they do not fit the time sampled, as at best they take {times:.1} times as long; \
                 are these the calls while it was recorded?"
            )
        })
    }

    /// Of the loops that time goes into, and that are asked for, the one that was seen to end least often, with how often.
    fn least_known_loop(&self, f: &Frequencies, asked: impl Fn(&[usize]) -> bool) -> Option<(u64, f64)> {
        let cfg = &self.subject.cfg;
        let total: f64 = self.subject.samples.iter().sum();
        let inside = |nodes: &[usize], b: usize| nodes.binary_search(&b).is_ok();
        let samples = |nodes: &[usize]| -> f64 {
            nodes.iter().filter(|b| **b < cfg.blocks.len()).map(|&b| self.subject.block_samples(b)).sum()
        };
        let ends = |nodes: &[usize]| -> f64 {
            let out = |e: &usize| inside(nodes, f.network.edges[*e].0) && !inside(nodes, f.network.edges[*e].1);
            (0..f.known_edges).filter(out).map(|e| f.seen[e] + f.told[e]).sum()
        };
        let loops = self.subject.loops.iter();
        let hot =
            loops.filter(|l| l.header < cfg.blocks.len() && samples(&l.nodes) >= MATTERS * total && asked(&l.nodes));
        hot.map(|l| (cfg.insns[cfg.blocks[l.header].insns.start].address.0, ends(&l.nodes)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// A block that bounds the scale: its samples, and the cycles that its executions are waited for at least, for any scale of 1. Much of what
/// a block takes at best may pass while others are waited for: only leaving the pipeline cannot be had for nothing, nor all of that.
#[derive(Clone, Copy, Debug)]
struct Bounding {
    samples: f64,
    least: f64,
}

/// Samples per cycle that flows are bounded to, so that hardly a block is faster than it can be; with room for chance.
fn bound(blocks: &[Bounding]) -> Option<f64> {
    let single = |&Bounding { samples: n, least }: &Bounding| {
        (n >= BOUNDING && least > 0.0).then(|| ((n + 2.0 * n.sqrt()) / least, n))
    };
    let mut bounds: Vec<(f64, f64)> = blocks.iter().filter_map(single).collect();
    bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = OUTLIERS * bounds.iter().map(|b| b.1).sum::<f64>();
    let single = bounds.iter().find(|b| {
        left -= b.1;
        left < 0.0
    });
    single.map(|b| b.0)
}

/// Standard deviation of the logarithm of the flow of the known ways in.
pub(super) fn entry_error(f: &Frequencies) -> f64 {
    let entering = (0..f.known_edges).filter(|&e| f.network.edges[e].0 == f.network.blocks);
    entering.map(|e| f.flow.edge_error[e]).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardly_a_block_is_faster_than_it_can_be() {
        let bound = |blocks: &[(f64, f64)]| {
            bound(&blocks.iter().map(|&(samples, least)| Bounding { samples, least }).collect::<Vec<_>>())
        };
        // The fastest block bounds all, with room for chance.
        assert_eq!(bound(&[(2500.0, 100.0), (7500.0, 100.0)]), Some(26.0));
        // But for a tenth of the samples, whose blocks may have been thought to run too often.
        assert_eq!(bound(&[(100.0, 1000.0), (2500.0, 100.0), (7500.0, 100.0)]), Some(26.0));
        // Flat: none has samples enough by itself; short blocks leave together with others.
        assert_eq!(bound(&[(5.0, 2.0); 400]), None);
        assert_eq!(bound(&[(300.0, 0.0), (300.0, -3.0)]), None);
    }
}
