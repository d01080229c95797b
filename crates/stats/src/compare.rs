//! Comparing two measurements: counts with different exposure (samples of a procedure among all
//! samples, or per second), and repeated values (Welch).

use crate::describe::Summary;
use crate::dispersion::Dispersion;
use crate::distribution::{student_quantile, student_two_sided};
use crate::interval::Interval;

/// A count and what it is counted against: total samples, seconds, requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exposed {
    /// Events counted (may be fractional after corrections).
    pub count: f64,
    /// Exposure, positive.
    pub exposure: f64,
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Rate of B over rate of A; infinite when A has none, 1 when neither has.
    pub ratio: f64,
    /// 95 % interval of the ratio.
    pub interval: Interval,
    /// Probability of a ratio at least as far from 1 when nothing changed.
    pub p: f64,
}

impl Comparison {
    const UNKNOWN: Self = Self { ratio: 1.0, interval: Interval { low: 0.0, high: f64::INFINITY }, p: 1.0 };
}

/// Ratio of two rates. Given both counts, the share of B is binomial when nothing changed: p is
/// from the signed root of its likelihood ratio, the interval is Wilson's, both widened by the
/// dispersion and, when that was estimated from few runs, by Student's t. Zero counts need no
/// special case.
#[must_use]
pub fn log_ratio(a: Exposed, b: Exposed, dispersion: Dispersion) -> Comparison {
    let usable = |e: Exposed| e.exposure > 0.0 && e.exposure.is_finite() && e.count >= 0.0 && e.count.is_finite();
    let n = a.count + b.count;
    if !usable(a) || !usable(b) || n <= 0.0 {
        return Comparison::UNKNOWN;
    }
    let factor = dispersion.factor.max(1.0);
    let expected = b.exposure / (a.exposure + b.exposure);
    let odds = a.exposure / b.exposure;
    let share = share_interval(b.count / n, n / factor, student_quantile(0.975, dispersion.degrees));
    let to_ratio = |p: f64| if p >= 1.0 { f64::INFINITY } else { p / (1.0 - p) * odds };
    Comparison {
        ratio: to_ratio(b.count / n),
        interval: Interval { low: to_ratio(share.low), high: to_ratio(share.high) },
        p: student_two_sided(signed_root(b.count, n, expected) / factor.sqrt(), dispersion.degrees),
    }
}

/// Difference of the means of two sets of runs with unequal variances (Welch): B minus A, its 95 %
/// interval, and the two-sided p. Fewer than two runs on a side say nothing: p = 1.
#[must_use]
pub fn welch(a: &[f64], b: &[f64]) -> (f64, Interval, f64) {
    let (a, b) = (Summary::of(a), Summary::of(b));
    let difference = b.mean - a.mean;
    if a.n < 2 || b.n < 2 {
        return (difference, Interval { low: f64::NEG_INFINITY, high: f64::INFINITY }, 1.0);
    }
    let (va, vb) = (a.mean_variance(), b.mean_variance());
    let variance = va + vb;
    if variance == 0.0 {
        let p = if difference == 0.0 { 1.0 } else { 0.0 };
        return (difference, Interval { low: difference, high: difference }, p);
    }
    let degrees = variance.powi(2)
        / (va.powi(2) / crate::describe::count(a.n - 1) + vb.powi(2) / crate::describe::count(b.n - 1));
    let half = student_quantile(0.975, degrees) * variance.sqrt();
    let interval = Interval { low: difference - half, high: difference + half };
    (difference, interval, student_two_sided(difference / variance.sqrt(), degrees))
}

/// Difference of the means of two sets of runs that were made in pairs, one after the other, so that what a machine does to both
/// of a pair cancels: B minus A, and its 95 % interval by Student's distribution over the pairs. Fewer than two pairs say nothing.
#[must_use]
pub fn paired(a: &[f64], b: &[f64]) -> (f64, Interval) {
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    let all = Summary::of(&differences);
    if all.n < 2 {
        return (all.mean, Interval { low: f64::NEG_INFINITY, high: f64::INFINITY });
    }
    let half = student_quantile(0.975, crate::describe::count(all.n - 1)) * all.mean_variance().sqrt();
    (all.mean, Interval { low: all.mean - half, high: all.mean + half })
}

/// Signed root of twice the log likelihood ratio of `k` of `n` against an expected share: standard
/// normal when the share is as expected, from counts of a few on.
fn signed_root(k: f64, n: f64, expected: f64) -> f64 {
    let part = |seen: f64, expected: f64| if seen > 0.0 { seen * (seen / expected).ln() } else { 0.0 };
    let deviance = 2.0 * (part(k, n * expected) + part(n - k, n * (1.0 - expected)));
    deviance.max(0.0).sqrt() * (k - n * expected).signum()
}

fn share_interval(p: f64, n: f64, z: f64) -> Interval {
    let z2 = z * z / n;
    let centre = (p + z2 / 2.0) / (1.0 + z2);
    let half = (z / (1.0 + z2)) * (p * (1.0 - p) / n + z2 / (4.0 * n)).sqrt();
    let low = if p <= 0.0 { 0.0 } else { (centre - half).max(0.0) };
    let high = if p >= 1.0 { 1.0 } else { (centre + half).min(1.0) };
    Interval { low, high }
}

#[cfg(test)]
mod tests;
