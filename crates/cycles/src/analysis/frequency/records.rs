//! Branch records, and walks, as evidence of frequencies. Which executions a CPU's records show does not depend on where a branch
//! stands, what it waits for or which turn of its loop it is in, so nothing is weighed down here as interpreted evidence is.
//! Records that come with samples of time show more of slow stretches: enough to doubt proportions, and to say
//! nothing of blocks against each other but by way of the branches between them. Walks pass over what is near their sample and are long, so
//! they do; they are doubted more, and least trusted behind places where they end.

use super::{DOUBT, Flow, Network};
use crate::analysis::recorded::{Recorded, WORTH_OF_WALKED};
use crate::analysis::subject::Subject;
use crate::flow::{Count, Ran};
use rustc_hash::FxHashMap;

/// Standard deviation of the logarithm of a branch's odds that even records have however many there are.
const DOUBT_OF_EVEN: f64 = 0.02;
/// That walks have: they begin where time is spent, so phases that take long show more than they run.
const DOUBT_OF_WALKED: f64 = 0.2;
/// And what they have where all time is spent waiting for memory: then they begin in the executions that waited, and a search
/// whose last pages miss the caches shows these and not the first ones. On an SQLite join, 84 % were seen of what were 37.
const DOUBT_OF_WAITS: f64 = 1.0;
/// Cycles that a load takes without waiting.
const AT_ONCE: f64 = 1.0;
/// Executions of one stack of records are near each other: so many tell as much of where executions are as one by chance.
const TOGETHER: f64 = 31.0;
/// Standard deviation of the logarithm of how often walks show a block that they have however many there are, as they begin where time is
/// spent. In a program of much code, where each block is seen a few times, it is little beside chance.
const DOUBT_OF_PLACES: f64 = 0.3;
/// Fewer runs are no evidence to speak of.
const FEWEST: u64 = 30;

/// Whether records are what frequencies rest on.
pub(super) fn decide(recorded: &Recorded) -> bool {
    recorded.observations() >= FEWEST
}

/// Adds what records show to observations per edge. `covers`: what part of it counts, by node.
pub(super) fn add(recorded: &Recorded, network: &Network, covers: Option<&[f64]>, seen: &mut [f64]) {
    let worth = if recorded.walked > 0 { WORTH_OF_WALKED } else { 1.0 };
    let part = |e: usize| worth * covers.map_or(1.0, |c| c[network.edges[e].0]);
    for (e, n) in recorded.edges.iter().enumerate() {
        seen[e] += n * part(e);
    }
    let edges: FxHashMap<(usize, usize), usize> = match recorded.jumps.is_empty() {
        true => FxHashMap::default(),
        // The first of several.
        false => network.edges.iter().enumerate().rev().map(|(e, edge)| (*edge, e)).collect(),
    };
    for (from, to, n) in &recorded.jumps {
        if let Some(&e) = edges.get(&(*from, *to)) {
            seen[e] += n * part(e);
        }
    }
}

/// How far what walks show of each node stands for all its executions. A walk ends where it needs something unknown, so what
/// follows such a place is shown by other ways only: it is shown less often than it runs.
pub(super) fn covers(recorded: &Recorded, network: &Network, flow: &Flow) -> Vec<f64> {
    let mut shown = vec![0.0; network.blocks + 1];
    if recorded.walked == 0 {
        return vec![1.0; network.blocks + 1];
    }
    let mut edges = vec![0.0; network.edges.len()];
    add(recorded, network, None, &mut edges);
    network.edges.iter().zip(&edges).for_each(|(e, n)| shown[e.0] += n);
    let rate = |b: usize| shown[b] / flow.blocks[b].max(f64::MIN_POSITIVE);
    // The rate at which most of what is shown is shown.
    let mut rates: Vec<(f64, f64)> = (0..network.blocks).map(|b| (rate(b), shown[b])).collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = shown.iter().sum::<f64>() / 2.0;
    let usual = rates.iter().find(|(_, n)| {
        left -= n;
        left <= 0.0
    });
    let usual = usual.map_or(0.0, |u| u.0);
    let of = |b: usize| if b < network.blocks && usual > 0.0 { (rate(b) / usual).min(1.0) } else { 1.0 };
    (0..=network.blocks).map(of).map(|c| c * c).collect()
}

/// What part of the time is spent at loads that wait, as far as flows tell. `cycles`: of one sample.
pub(super) fn waiting(subject: &Subject, cycles: f64, flow: &Flow) -> f64 {
    let at = |i: usize| {
        let block = subject.block_of(i).filter(|_| subject.effects[i].load.is_some())?;
        Some((subject.samples[i] - AT_ONCE * flow.blocks[block] / cycles).max(0.0))
    };
    let all: f64 = subject.samples.iter().sum();
    (0..subject.samples.len()).filter_map(at).sum::<f64>() / all.max(f64::MIN_POSITIVE)
}

/// Doubts where some observations, `weighed`, are interpreted and the rest are records. `waiting`: part of the time.
pub(super) fn doubts(
    recorded: &Recorded,
    network: &Network,
    (covers, waiting): (&[f64], f64),
    weighed: &[f64],
    doubt: &mut [f64],
) {
    let mut by_records = vec![0.0; network.edges.len()];
    add(recorded, network, Some(covers), &mut by_records);
    let sum = |of: &[f64]| {
        let mut sum = vec![0.0; network.blocks + 1];
        network.edges.iter().zip(of).for_each(|(e, n)| sum[e.0] += n);
        sum
    };
    let (interpreted, recorded_at) = (sum(weighed), sum(&by_records));
    let own = match () {
        () if recorded.walked > 0 => DOUBT_OF_WALKED.hypot(DOUBT_OF_WAITS * waiting),
        () if recorded.is_even() => DOUBT_OF_EVEN,
        () => DOUBT,
    };
    for (e, doubt) in network.edges.iter().zip(doubt) {
        let share = recorded_at[e.0] / (recorded_at[e.0] + interpreted[e.0]).max(f64::MIN_POSITIVE);
        *doubt = (1.0 - share) * *doubt + share * own;
    }
}

/// Executions of blocks, in independent observations. `counts`: of some blocks, from elsewhere.
pub(super) fn ran(recorded: &Recorded, counts: &[Count]) -> Vec<Ran> {
    let walked = recorded.walked > 0;
    let doubt = if walked { DOUBT_OF_PLACES.max(apart(&recorded.blocks, counts)) } else { 0.0 };
    let together = if walked { 1.0 + doubt.powi(2) * usual(&recorded.blocks) } else { TOGETHER };
    recorded.blocks.iter().map(|n| Ran { seen: n / together, chance: 1.0, doubt }).collect()
}

/// How far the logarithms of what walks saw are from those of counts, on average: as walks begin where time is spent, far where the rounds
/// of loops cost unlike times.
fn apart(blocks: &[f64], counts: &[Count]) -> f64 {
    let off = |c: &Count| blocks.get(c.block).filter(|n| **n > 0.0).map(|n| n.ln() - c.log);
    let off: Vec<f64> = counts.iter().filter_map(off).collect();
    if off.len() < 2 { 0.0 } else { whither_stats::Summary::of(&off).deviation }
}

/// How often most of what was seen was seen.
fn usual(blocks: &[f64]) -> f64 {
    blocks.iter().map(|n| n * n).sum::<f64>() / blocks.iter().sum::<f64>().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_in_full_and_are_doubted_less() {
        let network = Network { blocks: 2, edges: vec![(2, 0), (0, 0), (0, 1), (1, 3), (1, 0)] };
        let edges = vec![0.0, 90.0, 10.0, 8.0];
        let mut recorded = Recorded { edges, jumps: vec![(1, 0, 2.0)], runs: 100, even: 100, ..Recorded::default() };
        let mut seen = vec![1.0; 5];
        add(&recorded, &network, None, &mut seen);
        assert_eq!(seen, [1.0, 91.0, 11.0, 9.0, 3.0]);
        let doubts_of = |recorded: &Recorded, weighed: &[f64]| {
            let mut doubt = vec![0.5; 5];
            doubts(recorded, &network, (&[1.0; 3], 0.0), weighed, &mut doubt);
            doubt
        };
        assert_eq!(doubts_of(&recorded, &[0.0; 5]), [0.5, 0.02, 0.02, 0.02, 0.02], "callers are not recorded");
        let half = doubts_of(&recorded, &[0.0, 50.0, 50.0, 0.0, 0.0]);
        assert!((half[1] - 0.26).abs() < 1e-9 && half[3] == 0.02, "{half:?}");
        recorded.even = 0;
        assert_eq!(doubts_of(&recorded, &[0.0; 5])[1], DOUBT);
    }

    #[test]
    fn walks_that_disagree_with_counts_tell_little_of_blocks() {
        let recorded = Recorded { blocks: vec![900.0, 90.0, 9.0], runs: 9, walked: 9, ..Recorded::default() };
        let doubt = |logs: &[(usize, f64)]| {
            let counts: Vec<Count> = logs.iter().map(|&(block, log)| Count { block, log, error: 0.1 }).collect();
            ran(&recorded, &counts)[0]
        };
        let agreeing = doubt(&[(0, 0.0), (1, 0.1_f64.ln())]);
        assert_eq!(
            (agreeing, agreeing.doubt),
            (doubt(&[(0, 0.0)]), DOUBT_OF_PLACES),
            "one count says nothing of another"
        );
        let apart = doubt(&[(0, 0.0), (1, 1.0_f64.ln()), (2, 1.0_f64.ln())]);
        assert!(apart.doubt > 2.0 && apart.seen < 0.05 * agreeing.seen, "{apart:?}");
    }

    #[test]
    fn walks_tell_of_blocks_but_many_not_much_more_than_some() {
        let walked = |blocks: &[f64]| Recorded { blocks: blocks.to_vec(), runs: 9, walked: 9, ..Recorded::default() };
        let seen = |blocks: &[f64]| ran(&walked(blocks), &[]).iter().map(|r| r.seen).collect::<Vec<f64>>();
        let few = seen(&[2.0, 1.0, 0.0]);
        assert!(few[0] > 1.5 && few[0] / few[1] == 2.0 && few[2] == 0.0, "{few:?}");
        let many = seen(&[20_000.0, 10_000.0, 0.0]);
        assert!((5.0..15.0).contains(&many[0]) && (many[0] / many[1] - 2.0).abs() < 1e-9, "{many:?}");
        let even = Recorded { blocks: vec![31.0], runs: 31, even: 31, ..Recorded::default() };
        assert_eq!(ran(&even, &[]), [Ran { seen: 1.0, chance: 1.0, doubt: 0.0 }]);
    }
}
