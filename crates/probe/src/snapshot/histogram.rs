//! Histograms of ticks as histograms of nanoseconds. A bin of ticks covers parts of two or three bins of
//! nanoseconds: its calls are shared out as if they lay evenly in it, so a bin's count is right to
//! within that assumption and the sum of all bins is exact.

use crate::engine::clock::SHIFT;

/// `[i]` calls of `[2^i, 2^(i+1))` ticks, of which `inside` are the agent's, as the same of nanoseconds.
pub(crate) fn in_ns(ticks: &[u64; 64], mult: u64, inside: u64) -> Vec<u64> {
    let mut bins = vec![0_u64; 64];
    for (i, &count) in ticks.iter().enumerate() {
        if count == 0 {
            continue;
        }
        let ns = |ticks: u128| {
            (ticks.saturating_sub(u128::from(inside)) * u128::from(mult)) as f64 / (1_u64 << SHIFT) as f64
        };
        share(&mut bins, count, ns(1_u128 << i), ns(1_u128 << (i + 1)));
    }
    bins
}

/// Shares `count` out over the bins that `[from, to)` ns touches.
fn share(bins: &mut [u64], count: u64, from: f64, to: f64) {
    let bin_of = |ns: f64| if ns < 2.0 { 0 } else { (ns.log2().floor() as usize).min(bins.len() - 1) };
    let (first, last) = (bin_of(from), bin_of(to));
    let width = to - from;
    let mut left = count;
    for (bin, slot) in bins.iter_mut().enumerate().take(last).skip(first) {
        let upper = (2_f64).powi(bin as i32 + 1).min(to);
        let lower = if bin == first { from } else { (2_f64).powi(bin as i32) };
        let part = if width > 0.0 { ((upper - lower) / width * count as f64).round() as u64 } else { 0 };
        let part = part.min(left);
        *slot += part;
        left -= part;
    }
    bins[last] += left;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stay_and_bins_move_by_the_factor() {
        let mut ticks = [0_u64; 64];
        ticks[10] = 1_000;
        ticks[20] = 7;
        // A tick of exactly 1/4 ns: two bins down, nothing shared.
        let bins = in_ns(&ticks, 1 << (SHIFT - 2), 0);
        assert_eq!((bins[8], bins[18]), (1_000, 7));
        // A tick of 0.385 ns: 1024 to 2048 ticks are 394 to 788 ns, 30 % of them below 512.
        let bins = in_ns(&ticks, (0.385 * (1_u64 << SHIFT) as f64) as u64, 0);
        assert_eq!(bins.iter().sum::<u64>(), 1_007);
        assert!((250..350).contains(&bins[8]), "{bins:?}");
        assert_eq!(bins[8] + bins[9], 1_000);
    }

    #[test]
    fn own_cost_moves_short_calls_down_and_extremes_do_not_overflow() {
        let mut ticks = [0_u64; 64];
        ticks[5] = 10;
        ticks[63] = 3;
        let bins = in_ns(&ticks, 1 << SHIFT, 100);
        assert_eq!(bins[0], 10);
        assert_eq!(bins.iter().sum::<u64>(), 13);
        let bins = in_ns(&ticks, u64::MAX, u64::MAX);
        assert_eq!(bins.iter().sum::<u64>(), 13);
    }
}
