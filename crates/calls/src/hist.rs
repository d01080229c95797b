//! Histograms of durations: adding them up, and quantiles as bounds of their bin. Not here: what is measured at all (sums).

use crate::results::Bounds;

pub(crate) fn add_hist(into: &mut Option<Vec<u64>>, hist: Option<&[u64]>) {
    let Some(hist) = hist else { return };
    let all = into.get_or_insert_default();
    if all.len() < hist.len() {
        all.resize(hist.len(), 0);
    }
    for (sum, n) in all.iter_mut().zip(hist) {
        *sum = sum.saturating_add(*n);
    }
}

/// Bounds of the bin that holds the quantile, narrowed by the shortest and longest call.
pub(crate) fn quantile(hist: &[u64], q: f64, (min, max): (u64, u64)) -> Option<Bounds> {
    let total: u64 = hist.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
    if total == 0 {
        return None;
    }
    // The smallest rank that is not below the quantile, counted from 1.
    let rank = ((total as f64 * q).ceil() as u64).clamp(1, total);
    let mut seen = 0_u64;
    let bin = hist.iter().position(|n| {
        seen = seen.saturating_add(*n);
        seen >= rank
    })?;
    let low = 1_u64.checked_shl(u32::try_from(bin).ok()?).unwrap_or(u64::MAX);
    let high = low.saturating_add(low - 1);
    let max = if max == 0 { u64::MAX } else { max };
    // Rounding of the clock may put a call beside its bin: then the bin stands as it is.
    let inside = min <= high && max >= low;
    Some(if inside {
        Bounds { low_ns: low.max(min), high_ns: high.min(max) }
    } else {
        Bounds { low_ns: low, high_ns: high }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds_of_their_bin() {
        let mut hist = vec![0; 64];
        (hist[3], hist[10], hist[20]) = (50, 49, 1);
        let at = |q| quantile(&hist, q, (9, 1_500_000)).unwrap();
        assert_eq!(at(0.5), Bounds { low_ns: 9, high_ns: 15 });
        assert_eq!(at(0.51), Bounds { low_ns: 1024, high_ns: 2047 });
        assert_eq!(at(0.99), Bounds { low_ns: 1024, high_ns: 2047 });
        assert_eq!(at(1.0), Bounds { low_ns: 1 << 20, high_ns: 1_500_000 });
        assert_eq!(quantile(&[0; 64], 0.5, (0, 0)), None);
        let mut last = vec![0; 64];
        last[63] = 1;
        assert_eq!(quantile(&last, 0.5, (0, 0)).unwrap().high_ns, u64::MAX);
    }
}
