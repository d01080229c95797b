//! Branch records as evidence of frequencies. Which executions a CPU's records show does not depend on where a branch
//! stands, what it waits for or which turn of its loop it is in, so nothing is weighed down here as interpreted evidence is.
//! Records that come with samples of time show more of slow stretches: enough to doubt proportions, and to say
//! nothing of blocks against each other but by way of the branches between them.

use super::{DOUBT, Network};
use crate::analysis::recorded::Recorded;

/// Standard deviation of the logarithm of a branch's odds that even records have however many there are.
const DOUBT_OF_EVEN: f64 = 0.02;
/// Executions of one stack of records are near each other: so many tell as much of where executions are as one by chance.
const TOGETHER: f64 = 31.0;
/// Fewer runs are no evidence to speak of.
const FEWEST: u64 = 30;

/// Whether records are what frequencies rest on.
pub(super) fn decide(recorded: &Recorded) -> bool {
    recorded.runs >= FEWEST
}

/// Adds what records show to observations per edge.
pub(super) fn add(recorded: &Recorded, network: &Network, seen: &mut [f64]) {
    seen.iter_mut().zip(&recorded.edges).for_each(|(seen, n)| *seen += n);
    for (from, to, n) in &recorded.jumps {
        if let Some(e) = network.edges.iter().position(|e| e == &(*from, *to)) {
            seen[e] += n;
        }
    }
}

/// Doubts where some observations, `weighed`, are interpreted and the rest are records.
pub(super) fn doubts(recorded: &Recorded, network: &Network, weighed: &[f64], doubt: &mut [f64]) {
    let mut by_records = vec![0.0; network.edges.len()];
    add(recorded, network, &mut by_records);
    let sum = |of: &[f64]| {
        let mut sum = vec![0.0; network.blocks + 1];
        network.edges.iter().zip(of).for_each(|(e, n)| sum[e.0] += n);
        sum
    };
    let (interpreted, recorded_at) = (sum(weighed), sum(&by_records));
    let own = if recorded.is_even() { DOUBT_OF_EVEN } else { DOUBT };
    for (e, doubt) in network.edges.iter().zip(doubt) {
        let share = recorded_at[e.0] / (recorded_at[e.0] + interpreted[e.0]).max(f64::MIN_POSITIVE);
        *doubt = (1.0 - share) * *doubt + share * own;
    }
}

/// Executions of blocks, in independent observations.
pub(super) fn ran(recorded: &Recorded) -> Vec<f64> {
    recorded.blocks.iter().map(|n| n / TOGETHER).collect()
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
        add(&recorded, &network, &mut seen);
        assert_eq!(seen, [1.0, 91.0, 11.0, 9.0, 3.0]);
        let doubts_of = |recorded: &Recorded, weighed: &[f64]| {
            let mut doubt = vec![0.5; 5];
            doubts(recorded, &network, weighed, &mut doubt);
            doubt
        };
        assert_eq!(doubts_of(&recorded, &[0.0; 5]), [0.5, 0.02, 0.02, 0.02, 0.02], "callers are not recorded");
        let half = doubts_of(&recorded, &[0.0, 50.0, 50.0, 0.0, 0.0]);
        assert!((half[1] - 0.26).abs() < 1e-9 && half[3] == 0.02, "{half:?}");
        recorded.even = 0;
        assert_eq!(doubts_of(&recorded, &[0.0; 5])[1], DOUBT);
    }
}
