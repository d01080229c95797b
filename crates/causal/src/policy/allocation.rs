//! How many blocks each target gets in a stratum, and their order. A block is three different amounts, two of them close to the one
//! of interest, and two windows of 0 %; blocks of all targets are shuffled together, so that nothing in them depends on what
//! the program does at the time.

use crate::estimate::{Method, estimate};
use crate::options::PolicyOptions;
use crate::series::{Baselines, Measure, series};
use rustc_hash::FxHashMap;
use whither_stats::random::Random;
use whither_store::causal::Window;

/// Targets above this share of the samples always keep a chance of blocks.
pub(super) const LEAST_SHARE: f64 = 0.001;
/// Different amounts of a block, and how many of them are close to the one of interest: what is told of that hangs on windows there and
/// at 0, others tell of the curve. Simulated (28 windows, twelve curves): estimates were off by 1.1 points with one of three and as many
/// windows of 0 %, by 0.9 with two and two, and intervals of 2.2 points are 1.8.
const AMOUNTS: usize = 3;
const NEAR: usize = 2;
/// Nothing is known: an effect could be anything up to the target's share.
const WIDE: f64 = 1.0;

/// What windows may speed up by, percent, ascending.
#[derive(Clone, Debug)]
pub(super) struct Amounts {
    pub(super) all: Vec<u8>,
    /// The one that gains are told for.
    pub(super) assume: u8,
}

impl Amounts {
    /// Within half of the amount of interest.
    fn is_near(&self, amount: u8) -> bool {
        2 * u16::from(amount.abs_diff(self.assume)) <= u16::from(self.assume)
    }
}

/// A window that is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) target: u32,
    pub(super) percent: u8,
}

/// What is known of a target when a stratum begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) target: u32,
    /// Of the samples.
    pub(super) share: f64,
    pub(super) estimate: Option<Range>,
}

/// Interval of a gain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
    /// From so many windows.
    pub(super) windows: usize,
}

impl Range {
    /// Certain enough to look at lines and callers: an interval that is looked at again and again excludes 0
    /// by chance sooner or later, one of a dozen windows sooner.
    pub(super) fn matters(&self) -> bool {
        self.windows >= 20 && (self.low > 0.005 || self.high < -0.005)
    }
}

impl Candidate {
    /// Width of the interval x gain that is still possible x share; never nothing.
    fn weight(&self) -> f64 {
        let (width, possible) = self.estimate.map_or((WIDE, WIDE), |e| {
            ((e.high - e.low).clamp(0.005, WIDE), e.high.abs().max(e.low.abs()).clamp(0.01, WIDE))
        });
        (width * possible * self.share.max(LEAST_SHARE)).sqrt()
    }
}

/// About `windows` windows in blocks, in the order in which they are to be *popped*.
pub(super) fn plan(candidates: &[Candidate], windows: f64, amounts: &Amounts, random: &mut Random) -> Vec<Planned> {
    let total: f64 = candidates.iter().map(Candidate::weight).sum();
    let speedups = AMOUNTS.min(amounts.all.len());
    let blocks = windows / (speedups + zeros(speedups)).max(1) as f64;
    let mut planned = Vec::new();
    for candidate in candidates {
        // Parts of a block are drawn by lot, so that small weights keep their chance.
        let wanted = (blocks * candidate.weight() / total).min(1e4);
        let count = wanted.floor() as usize + usize::from(random.chance(wanted.fract()));
        for _ in 0..count {
            block(candidate.target, speedups, amounts, random, &mut planned);
        }
    }
    random.shuffle(&mut planned);
    planned
}

/// Windows of 0 % that go with so many others.
fn zeros(speedups: usize) -> usize {
    (2 * speedups).div_ceil(AMOUNTS)
}

fn block(target: u32, speedups: usize, amounts: &Amounts, random: &mut Random, planned: &mut Vec<Planned>) {
    let mut drawn = amounts.all.clone();
    random.shuffle(&mut drawn);
    let (near, far): (Vec<u8>, Vec<u8>) = drawn.into_iter().partition(|a| amounts.is_near(*a));
    let (first, spare) = near.split_at(NEAR.min(near.len()));
    let drawn = first.iter().chain(&far).chain(spare).take(speedups);
    planned.extend(drawn.map(|&percent| Planned { target, percent }));
    planned.extend(std::iter::repeat_n(Planned { target, percent: 0 }, zeros(speedups)));
}

/// Gains at the assumed amount from the windows so far.
pub(super) fn estimates(windows: &[Window], options: &PolicyOptions) -> FxHashMap<u32, Range> {
    let measure = Measure::Period(0);
    let baselines = Baselines::new(windows.iter(), measure);
    let mut by_target: FxHashMap<u32, Vec<&Window>> = FxHashMap::default();
    windows.iter().for_each(|w| by_target.entry(w.target).or_default().push(w));
    let assume = f64::from(options.fixed_percent.unwrap_or(options.assume)) / 100.0;
    let method = Method { assume, confidence: 0.95, draws: 0, bends: false, robust: true, seed: 0 };
    let of = |windows: &[&Window]| {
        let (low, high) = estimate(&series(windows.iter().copied(), measure, &baselines), &method)?.assumed.interval(1);
        (low.is_finite() && high.is_finite()).then_some(Range { low, high, windows: windows.len() })
    };
    by_target.iter().filter_map(|(target, windows)| Some((*target, of(windows)?))).collect()
}
