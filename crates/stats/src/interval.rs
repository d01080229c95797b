//! Intervals for shares and for counts.

use crate::distribution::normal_quantile;

/// A range that holds the true value with the confidence asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Half of its width: what is printed after "+-".
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether a value lies inside.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// 95 % interval of a share from `count` of `total` independent samples (Wilson): right also for
/// shares near 0 and 1. Nothing sampled: 0 to 1.
#[must_use]
pub fn share(count: u64, total: u64) -> Interval {
    share_at(as_f64(count), as_f64(total), 0.95)
}

/// As [`share`], for fractional (over-dispersion corrected) counts and any confidence.
#[must_use]
pub fn share_at(count: f64, total: f64, confidence: f64) -> Interval {
    if total <= 0.0 || !total.is_finite() {
        return Interval { low: 0.0, high: 1.0 };
    }
    let z = two_sided_z(confidence);
    let p = (count / total).clamp(0.0, 1.0);
    let z2 = z * z / total;
    let centre = (p + z2 / 2.0) / (1.0 + z2);
    let half = (z / (1.0 + z2)) * (p * (1.0 - p) / total + z2 / (4.0 * total)).sqrt();
    // Rounding must not push the ends past what is certain.
    let low = if count <= 0.0 { 0.0 } else { (centre - half).max(0.0) };
    let high = if count >= total { 1.0 } else { (centre + half).min(1.0) };
    Interval { low, high }
}

/// 95 % interval of the mean of a Poisson count (score interval; within a few per cent of the
/// exact one from counts of 1 on).
#[must_use]
pub fn poisson(count: u64) -> Interval {
    let z = two_sided_z(0.95);
    let n = as_f64(count);
    let centre = n + z * z / 2.0;
    let half = z * (n + z * z / 4.0).sqrt();
    Interval { low: (centre - half).max(0.0), high: centre + half }
}

pub(crate) fn two_sided_z(confidence: f64) -> f64 {
    normal_quantile(0.5 + confidence.clamp(0.0, 1.0) / 2.0)
}

#[expect(clippy::cast_precision_loss, reason = "statistics of counts do not need the 54th bit")]
pub(crate) fn as_f64(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        let i = share(10, 100);
        assert!((i.low - 0.055_229).abs() < 1e-5 && (i.high - 0.174_365).abs() < 1e-5, "{i:?}");
        assert_eq!(share(0, 0), Interval { low: 0.0, high: 1.0 });
        assert_eq!(share(0, 10).low, 0.0);
        assert_eq!(share(10, 10).high, 1.0);
        let p = poisson(100);
        assert!((p.low - 82.22).abs() < 0.1 && (p.high - 121.6).abs() < 0.1, "{p:?}");
    }

    proptest! {
        #[test]
        fn an_interval_holds_its_estimate(total in 1_u64..1_000_000_000, part in 0.0..=1.0_f64) {
            let count = (as_f64(total) * part) as u64;
            let i = share(count, total);
            prop_assert!(i.contains(as_f64(count) / as_f64(total)));
            prop_assert!(0.0 <= i.low && i.low <= i.high && i.high <= 1.0);
        }
    }
}
