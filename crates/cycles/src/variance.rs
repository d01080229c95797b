//! How much more counts vary than independent samples would, per procedure: estimated from runs, or
//! from time slices within a recording, and steadied by what all procedures show together.

use whither_stats::Dispersion;

/// Counts of one procedure beside the exposures they were counted against: one pair per run or slice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub counts: Vec<f64>,
    pub exposures: Vec<f64>,
}

/// Chi-square of counts against a constant rate, its degrees of freedom, and the mean count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Fit {
    pub chi: f64,
    pub degrees: f64,
    pub mean: f64,
}

/// Fewer expected counts than this per cell make chi-square meaningless.
const LEAST_EXPECTED: f64 = 5.0;
/// Blocks of slices are not made longer than leaves this many.
const LEAST_BLOCKS: usize = 5;
/// Longer blocks must show this much more variation to be believed.
const CLEARLY_MORE: f64 = 1.1;
/// What all procedures together say weighs as much as this many runs or slices of one: at least
/// (also when there are too few procedures to tell), and at most.
const PRIOR: (f64, f64) = (4.0, 400.0);
/// Standard deviation of the time that the same work takes from run to run, as a part of it, where only one run is known:
/// clocks, caches and neighbours differ, and addresses drawn anew move time from one procedure to its neighbour.
pub const BETWEEN_RUNS: f64 = 0.10;
/// What that assumption is worth, as degrees of freedom. Of the pairs of ten equal runs of one query in a virtual machine
/// (0.68 to 0.95 s of CPU time) 39 of 90 were told apart with 8 % taken as certain, 15 with 10 degrees, 3 so.
const ASSUMED_DEGREES: f64 = 7.0;
/// So many procedures tell how much procedures differ.
const ENOUGH_PROCEDURES: usize = 10;

impl Series {
    /// Joins `n` neighbours: phases longer than a slice show only in longer blocks.
    fn blocks(&self, n: usize) -> Self {
        let join = |values: &[f64]| values.chunks_exact(n).map(|c| c.iter().sum()).collect();
        Self { counts: join(&self.counts), exposures: join(&self.exposures) }
    }

    fn fit(&self) -> Fit {
        let (count, exposure): (f64, f64) = (self.counts.iter().sum(), self.exposures.iter().sum());
        let used = self.exposures.iter().filter(|e| **e > 0.0).count() as f64;
        if exposure <= 0.0 {
            return Fit::default();
        }
        let mean = count / used;
        if used < 2.0 || mean < LEAST_EXPECTED {
            return Fit { mean, ..Fit::default() };
        }
        let rate = count / exposure;
        let term = |(c, e): (&f64, &f64)| if *e > 0.0 { (c - rate * e).powi(2) / (rate * e) } else { 0.0 };
        Fit { chi: self.counts.iter().zip(&self.exposures).map(term).sum(), degrees: used - 1.0, mean }
    }
}

impl Fit {
    fn of_sides(sides: &[Series], n: usize) -> Self {
        let fits: Vec<Self> = sides.iter().map(|s| s.blocks(n).fit()).collect();
        let sum = |f: fn(&Self) -> f64| fits.iter().map(f).sum::<f64>();
        let mean = sum(|f| f.mean) / fits.len().max(1) as f64;
        Self { chi: sum(|f| f.chi), degrees: sum(|f| f.degrees), mean }
    }
}

/// Dispersion of all procedures together and of each: `series[p]` holds the series of both sides.
///
/// The variance of a count of mean m is taken as m (1 + t m) s: t, the trend, as rates that wander
/// matter more for larger counts; s, what one procedure has of its own. How much procedures differ in
/// s tells how far one's own estimate is trusted (empirical Bayes, as for variances of gene counts).
pub(crate) struct Dispersions {
    /// Variance over Poisson variance, mean over the procedures.
    pub pooled: f64,
    each: Vec<Fit>,
    trend: f64,
    prior: Prior,
    assumed: bool,
}

/// Distribution of s over procedures: its typical value, and the degrees of freedom it is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Prior {
    scale: f64,
    degrees: f64,
}

impl Dispersions {
    /// From repeated runs.
    pub(crate) fn from_runs(series: &[Vec<Series>]) -> Self {
        Self::of_blocks(series, 1)
    }

    /// From slices: blocks are doubled as long as that shows more variation, since neighbouring
    /// slices of one phase are alike.
    pub(crate) fn from_slices(series: &[Vec<Series>]) -> Self {
        let slices = series.iter().flatten().map(|s| s.counts.len()).max().unwrap_or(0);
        let mut best = Self::of_blocks(series, 1);
        let mut n = 2;
        while slices / n >= LEAST_BLOCKS {
            let next = Self::of_blocks(series, n);
            if next.pooled > best.pooled * CLEARLY_MORE {
                best = next;
            }
            n *= 2;
        }
        best
    }

    fn of_blocks(series: &[Vec<Series>], n: usize) -> Self {
        let each: Vec<Fit> = series.iter().map(|sides| Fit::of_sides(sides, n)).collect();
        let known: Vec<Fit> = each.iter().copied().filter(|f| f.degrees > 0.0).collect();
        let degrees: f64 = known.iter().map(|f| f.degrees).sum();
        let chi: f64 = known.iter().map(|f| f.chi).sum();
        let pooled = if degrees > 0.0 { (chi / degrees).max(1.0) } else { 1.0 };
        let trend = trend(&known);
        Self { pooled, prior: Prior::of(&known, trend), each, trend, assumed: false }
    }

    /// For single runs, of which nothing can be estimated: phases of a program make its slices vary, but not its runs.
    /// `counts`: per procedure, the mean of both sides. Time of one piece of work varies by [`BETWEEN_RUNS`] besides chance.
    pub(crate) fn assumed(counts: &[f64]) -> Self {
        let trend = BETWEEN_RUNS * BETWEEN_RUNS;
        let all: f64 = counts.iter().sum();
        let pooled = counts.iter().map(|m| m * (1.0 + trend * m)).sum::<f64>() / all.max(f64::MIN_POSITIVE);
        let each = counts.iter().map(|&mean| Fit { chi: 0.0, degrees: 0.0, mean }).collect();
        Self {
            pooled: pooled.max(1.0),
            each,
            trend,
            prior: Prior { scale: 1.0, degrees: ASSUMED_DEGREES },
            assumed: true,
        }
    }

    /// Variance over Poisson variance of a procedure with so many counts of which nothing else is known.
    pub(crate) fn at_count(&self, count: f64) -> f64 {
        if self.assumed { 1.0 + self.trend * count } else { self.pooled }
    }

    /// Whether anything could be estimated.
    pub(crate) fn is_known(&self) -> bool {
        self.each.iter().any(|f| f.degrees > 0.0)
    }

    /// Degrees of freedom of a typical procedure's estimate.
    pub(crate) fn degrees(&self) -> f64 {
        if !self.is_known() && !self.assumed {
            return f64::INFINITY;
        }
        self.prior.degrees + self.each.iter().map(|f| f.degrees).sum::<f64>() / self.each.len().max(1) as f64
    }

    /// Of one procedure: its own estimate, drawn towards that of all.
    pub(crate) fn of(&self, procedure: usize) -> Dispersion {
        let Some(own) = self.each.get(procedure).filter(|_| self.is_known() || self.assumed) else {
            return Dispersion::POISSON;
        };
        let degrees = self.prior.degrees + own.degrees;
        let expected = self.prior.scale * (1.0 + self.trend * own.mean);
        Dispersion { factor: ((self.prior.degrees * expected + own.chi) / degrees).max(1.0), degrees }
    }
}

/// t of variance m (1 + t m): weighted least squares of chi-square over its degrees, whose spread grows with 1 + t m. Large
/// counts tell t best; without their weight, one odd procedure of ten samples a run made a doubled main loop "the same".
fn trend(fits: &[Fit]) -> f64 {
    let mut t = 0.0;
    for _ in 0..12 {
        let weight = |f: &Fit| f.mean * (1.0 + t * f.mean).powi(-2);
        let excess: f64 = fits.iter().map(|f| weight(f) * (f.chi - f.degrees)).sum();
        let means: f64 = fits.iter().map(|f| weight(f) * f.mean * f.degrees).sum();
        t = if means > 0.0 { (excess / means).max(0.0) } else { 0.0 };
    }
    t
}

impl Prior {
    /// Matches the first two moments of the logarithms of the estimates (Smyth 2004).
    fn of(fits: &[Fit], trend: f64) -> Self {
        let logs: Vec<f64> = fits
            .iter()
            .map(|f| {
                let s = (f.chi / f.degrees / (1.0 + trend * f.mean)).max(1e-3);
                s.ln() - digamma(f.degrees / 2.0) + (f.degrees / 2.0).ln()
            })
            .collect();
        if logs.len() < ENOUGH_PROCEDURES {
            return Self { scale: 1.0, degrees: PRIOR.0 };
        }
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let spread = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let chance = fits.iter().map(|f| trigamma(f.degrees / 2.0)).sum::<f64>() / n;
        let degrees = degrees_of_spread(spread - chance);
        // A scale below 1 would claim less variation than independent samples have.
        let scale = (mean + digamma(degrees / 2.0) - (degrees / 2.0).ln()).exp().max(1.0);
        Self { scale, degrees }
    }
}

/// d such that trigamma(d / 2) is the spread that chance does not explain.
fn degrees_of_spread(spread: f64) -> f64 {
    let (mut low, mut high) = PRIOR;
    for _ in 0..60 {
        let mid = (low + high) / 2.0;
        if trigamma(mid / 2.0) > spread { low = mid } else { high = mid }
    }
    low
}

/// Derivative of ln Gamma: shifted beyond 6, then its asymptotic series.
fn digamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 6.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    sum + x.ln() - 0.5 / x - r * (1.0 / 12.0 - r * (1.0 / 120.0 - r / 252.0))
}

/// Its second derivative, the same way.
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 6.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    sum + 1.0 / x + r / 2.0 + r / x * (1.0 / 6.0 - r * (1.0 / 30.0 - r / 42.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(counts: &[f64]) -> Vec<Series> {
        vec![Series { counts: counts.to_vec(), exposures: vec![100.0; counts.len()] }]
    }

    #[test]
    fn special_functions_have_their_known_values() {
        assert!((digamma(1.0) + 0.577_215_664_9).abs() < 1e-7);
        assert!((digamma(0.5) + 1.963_510_026_0).abs() < 1e-7);
        assert!((trigamma(1.0) - 1.644_934_066_8).abs() < 1e-7);
        assert!((trigamma(0.5) - 4.934_802_200_5).abs() < 1e-7);
    }

    #[test]
    fn even_counts_are_not_overdispersed() {
        let d = Dispersions::from_runs(&[series(&[50.0, 50.0, 50.0])]);
        assert_eq!((d.pooled, d.of(0).factor), (1.0, 1.0));
    }

    #[test]
    fn phases_longer_than_a_slice_need_longer_blocks() {
        let phases: Vec<f64> = (0..40).map(|i| if i / 4 % 2 == 0 { 20.0 } else { 60.0 }).collect();
        let slices = Dispersions::of_blocks(&[series(&phases)], 1).pooled;
        let blocks = Dispersions::from_slices(&[series(&phases)]).pooled;
        assert!((slices - 10.26).abs() < 0.01, "{slices}");
        assert!(blocks > 35.0, "{blocks}");
    }

    #[test]
    fn one_bursty_procedure_is_told_from_the_calm_ones() {
        let mut all: Vec<Vec<Series>> = (0..20).map(|_| series(&[50.0; 10])).collect();
        all.push(series(&[0.0, 100.0, 0.0, 100.0, 0.0, 100.0, 0.0, 100.0, 0.0, 100.0]));
        let d = Dispersions::from_runs(&all);
        assert!(d.of(20).factor > 30.0 && d.of(0).factor < 3.0, "{} {}", d.of(20).factor, d.of(0).factor);
    }

    #[test]
    fn an_odd_small_procedure_says_nothing_of_large_ones() {
        let all = [series(&[700.0, 690.0, 730.0]), series(&[830.0, 850.0, 800.0]), series(&[2.0, 3.0, 25.0])];
        let d = Dispersions::from_runs(&all);
        assert!(d.of(0).factor < 4.0 && d.of(2).factor > 4.0, "{} {}", d.of(0).factor, d.of(2).factor);
    }

    #[test]
    fn too_little_data_is_taken_as_independent() {
        assert_eq!(Dispersions::from_slices(&[series(&[1.0, 0.0])]).of(0), Dispersion::POISSON);
    }
}
