//! How far executions can be trusted: one answer, which listings, summaries and exports show and `accuracy` judges. Lives here:
//! what an estimate's interval and confidence rest on besides the errors that the flow solver draws. Not here: those errors
//! (`flow/fit`), and what deviations are called high and medium (`frequency`).
//!
//! Drawing evidence anew says what chance does to it, and nothing of what was never seen. So an estimate is called sure only where
//! enough was seen of the block itself, or of one that must run as often: a procedure may be known well but for a loop of it.

use super::Study;
use super::frequency::{Frequencies, SURE_OBSERVED, estimate};
use super::retired::Retired;
use super::scale::entry_error;
use super::subject::Subject;
use crate::flow::{Count, Network};
use crate::results::analysis::{Confidence, Estimate};

/// What was seen of a block, or of one of its class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Witnessed {
    /// How often control was seen to come or go, or executions were sampled; counts are as many as would be as certain.
    pub(super) executions: f64,
    /// Samples of time.
    pub(super) samples: f64,
}

/// Of each block. `seen`: per edge, how often it was; so many edges are `known` to exist.
pub(super) fn witnessed(
    subject: &Subject,
    network: &Network,
    known: usize,
    seen: &[f64],
    counts: &[Count],
) -> Vec<Witnessed> {
    let blocks = subject.cfg.blocks.len();
    let (mut into, mut out) = (vec![0.0; network.blocks + 2], vec![0.0; network.blocks + 2]);
    for (&(from, to), seen) in network.edges.iter().zip(seen).take(known) {
        into[to] += seen;
        out[from] += seen;
    }
    let worth = |error: f64| 1.0 / (error * error).max(1e-9);
    let ratios = subject.counted.iter().flat_map(|c| &c.ratios);
    let of_ratios = ratios.flat_map(|r| [(r.from, worth(r.error)), (r.to, worth(r.error))]);
    let mut counted = vec![0.0; blocks];
    for (b, worth) in counts.iter().map(|c| (c.block, worth(c.error))).chain(of_ratios) {
        counted[b] += worth;
    }
    let retired: Vec<f64> = subject.retired.iter().flat_map(Retired::ran).map(|r| r.seen).collect();
    let own = |b: usize| Witnessed {
        executions: into[b].max(out[b]) + counted[b] + retired.get(b).copied().unwrap_or(0.0),
        samples: subject.block_samples(b),
    };
    best_of_class(&subject.classes.0[..blocks], own)
}

/// What runs equally often is known as well as the best known of it.
fn best_of_class(classes: &[usize], own: impl Fn(usize) -> Witnessed) -> Vec<Witnessed> {
    let mut best = vec![Witnessed::default(); classes.iter().max().map_or(0, |most| most + 1)];
    for (b, class) in classes.iter().enumerate() {
        let (own, best) = (own(b), &mut best[*class]);
        best.executions = best.executions.max(own.executions);
        best.samples = best.samples.max(own.samples);
    }
    classes.iter().map(|class| best[*class]).collect()
}

impl Study {
    /// How far the executions of an instruction can be trusted.
    pub(crate) fn confidence_of(&self, insn: usize) -> Confidence {
        match (&self.frequencies, self.subject.block_of(insn)) {
            (Some(f), Some(b)) => self.block_estimate(f, b).confidence,
            _ => Confidence::Low,
        }
    }

    /// Executions of a block. What was never seen may never have run: what flow leaves it is the most.
    pub(super) fn block_estimate(&self, f: &Frequencies, b: usize) -> Estimate {
        let error = self.by_counts(f).map_or(f.flow.block_error[b], |by_counts| by_counts.0[b]);
        let observed = f.witnessed[b];
        let estimate = self.estimate(f, f.flow.blocks[b] * self.unit(f), error, observed);
        match observed.executions + observed.samples > 0.0 {
            true => estimate,
            false => Estimate { low: 0.0, confidence: Confidence::Low, ..estimate },
        }
    }

    /// Those of an edge, of which as much is seen as of what it leaves, or of what it leads to where callers enter.
    pub(super) fn edge_estimate(&self, f: &Frequencies, e: usize) -> Estimate {
        let error = self.by_counts(f).map_or(f.flow.edge_error[e], |by_counts| by_counts.1[e]);
        let (from, to) = f.network.edges[e];
        let observed = f.witnessed.get(from).or_else(|| f.witnessed.get(to)).copied().unwrap_or_default();
        self.estimate(f, f.flow.edges[e] * self.unit(f), error, observed)
    }

    fn estimate(&self, f: &Frequencies, value: f64, error: f64, observed: Witnessed) -> Estimate {
        // Scaled by the entries, a block is as uncertain as both.
        let of_scale = match self.calls {
            Some(_) => entry_error(f),
            None if self.counted => self.subject.lapped_error(),
            None => 0.0,
        };
        let error = error.hypot(of_scale);
        let mut estimate = estimate(value, error, f.evidence, self.subject.cfg.missing.is_empty());
        if self.foreign_branches || self.is_contradicted() {
            estimate.confidence = Confidence::Low;
        } else if observed.executions < SURE_OBSERVED && estimate.confidence == Confidence::High {
            estimate.confidence = Confidence::Medium;
        }
        estimate
    }

    /// Errors of executions as counted, where these give the scale.
    fn by_counts<'f>(&self, f: &'f Frequencies) -> Option<&'f (Vec<f64>, Vec<f64>)> {
        f.flow.by_counts.as_ref().filter(|_| self.counted && self.calls.is_none() && f.retired_scale.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_known_as_well_as_the_best_known_of_its_class() {
        let own = [(3.0, 0.0), (40.0, 1.0), (0.0, 7.0), (0.0, 0.0)];
        let of = |b: usize| Witnessed { executions: own[b].0, samples: own[b].1 };
        let found: Vec<(f64, f64)> =
            best_of_class(&[5, 0, 5, 2], of).into_iter().map(|o| (o.executions, o.samples)).collect();
        assert_eq!(found, [(3.0, 7.0), (40.0, 1.0), (3.0, 7.0), (0.0, 0.0)]);
        assert_eq!(best_of_class(&[], |_| Witnessed::default()), []);
    }
}
