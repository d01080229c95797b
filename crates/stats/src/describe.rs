//! Summaries of repeated runs: the columns of the paper's figure 3, and robust counterparts.

use crate::distribution::student_quantile;
use crate::interval::{Interval, as_f64};

/// Figures of a set of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub n: usize,
    /// Sum.
    pub sum: f64,
    /// Mean, 0 for no values.
    pub mean: f64,
    /// Standard deviation of the population they came from (n - 1), 0 for fewer than two.
    pub deviation: f64,
    /// Smallest, 0 for no values.
    pub min: f64,
    /// Largest, 0 for no values.
    pub max: f64,
}

impl Summary {
    /// Summarises values.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let n = values.len();
        let sum: f64 = values.iter().sum();
        let mean = if n == 0 { 0.0 } else { sum / count(n) };
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let deviation = if n < 2 { 0.0 } else { (squares / count(n - 1)).sqrt() };
        let min = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let max = values.iter().copied().reduce(f64::max).unwrap_or(0.0);
        Self { n, sum, mean, deviation, min, max }
    }

    /// Largest minus smallest, as a share of the sum (the paper's `range%` is this times 100);
    /// 0 when the sum is.
    #[must_use]
    pub fn range_share(&self) -> f64 {
        if self.sum == 0.0 { 0.0 } else { (self.max - self.min) / self.sum }
    }

    /// t interval of the mean; unbounded for fewer than two values.
    #[must_use]
    pub fn mean_interval(&self, confidence: f64) -> Interval {
        if self.n < 2 {
            return Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };
        }
        let t = student_quantile(0.5 + confidence.clamp(0.0, 1.0) / 2.0, count(self.n - 1));
        let half = t * self.deviation / count(self.n).sqrt();
        Interval { low: self.mean - half, high: self.mean + half }
    }

    /// Variance of the mean.
    pub(crate) fn mean_variance(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.deviation.powi(2) / count(self.n) }
    }
}

/// Middle value, the mean of the two middle ones for an even number; 0 for none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Median of the absolute distances from the median, scaled by 1.4826 so that it estimates the
/// standard deviation of normal values while outliers do not move it.
#[must_use]
pub fn robust_deviation(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
    1.482_602_218_505_602 * median(&distances)
}

pub(crate) fn count(n: usize) -> f64 {
    as_f64(n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_small_set() {
        let s = Summary::of(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!((s.n, s.sum, s.mean, s.min, s.max), (4, 10.0, 2.5, 1.0, 4.0));
        assert!((s.deviation - 1.290_994_448_735_805_6).abs() < 1e-12);
        assert!((s.range_share() - 0.3).abs() < 1e-12);
        let i = s.mean_interval(0.95);
        assert!((i.half_width() - 3.182_446_305_284_263 * 1.290_994_448_735_805_6 / 2.0).abs() < 1e-9);
    }

    #[test]
    fn too_little_data_says_so() {
        assert_eq!(Summary::of(&[]).mean, 0.0);
        assert_eq!(Summary::of(&[5.0]).mean_interval(0.95).high, f64::INFINITY);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn outliers_do_not_move_the_robust_figures() {
        let values = [10.0, 11.0, 9.0, 10.5, 9.5, 1e9];
        assert!((median(&values) - 10.25).abs() < 1e-12);
        assert!(robust_deviation(&values) < 2.0);
    }
}
