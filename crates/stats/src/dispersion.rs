//! Over-dispersion: how much more counts vary than independent samples would. Samples of one run
//! come in bursts and phases, so a test that assumes Poisson counts sees changes where there are none.

use crate::describe::count;

/// Variance over Poisson variance, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispersion {
    /// Variance divided by the mean; at least 1.
    pub factor: f64,
    /// Degrees of freedom it was estimated from; infinite when it is assumed.
    pub degrees: f64,
}

impl Dispersion {
    /// Independent samples.
    pub const POISSON: Self = Self { factor: 1.0, degrees: f64::INFINITY };

    /// Pooled over several groups of repeated counts (one group per procedure and side; within a
    /// group one count per run or time slice, all of the same exposure): Pearson's chi-square per
    /// degree of freedom. Groups whose mean is below `min_mean` carry no information and are left
    /// out; without any group left the answer is [`Self::POISSON`].
    #[must_use]
    pub fn pooled<'a>(groups: impl IntoIterator<Item = &'a [f64]>, min_mean: f64) -> Self {
        let (mut chi, mut degrees) = (0.0, 0.0);
        for group in groups.into_iter().filter(|g| g.len() >= 2) {
            let mean = group.iter().sum::<f64>() / count(group.len());
            if mean >= min_mean.max(f64::MIN_POSITIVE) {
                chi += group.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / mean;
                degrees += count(group.len() - 1);
            }
        }
        // Less variation than Poisson is possible (timers are regular), but a test that relied on it
        // would find changes where the regularity ends.
        if degrees > 0.0 { Self { factor: (chi / degrees).max(1.0), degrees } } else { Self::POISSON }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_counts_are_poisson_at_worst() {
        let d = Dispersion::pooled([&[100.0, 100.0, 100.0][..]], 5.0);
        assert_eq!((d.factor, d.degrees), (1.0, 2.0));
    }

    #[test]
    fn bursts_show() {
        let d = Dispersion::pooled([&[80.0, 120.0][..], &[150.0, 250.0][..]], 5.0);
        // (2 * 400 / 100 + 2 * 2500 / 200) / 2
        assert!((d.factor - 16.5).abs() < 1e-12);
    }

    #[test]
    fn nothing_known_is_assumed_poisson() {
        assert_eq!(Dispersion::pooled([&[7.0][..], &[0.0, 1.0][..]], 5.0), Dispersion::POISSON);
    }
}
