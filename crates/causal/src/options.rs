//! What callers of this crate choose: how experiments are allocated and how windows become answers. Values
//! only; the defaults are those of the documentation.

use whither_store::causal::Selection;

/// How [`crate::Policy`] chooses.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyOptions {
    /// Seed of every random choice: equal seeds and equal observations give equal steps.
    pub seed: u64,
    /// Who decides about targets.
    pub policy: PolicyKind,
    /// Amounts in percent; 0 is always among them. Empty: multiples of 5 up to 100.
    pub speedups: Vec<u8>,
    /// Only this target.
    pub fixed_target: Option<u32>,
    /// Only this amount (and 0, which it is compared with).
    pub fixed_percent: Option<u8>,
    /// A window with fewer visits doubles the length of later ones.
    pub min_visits: u64,
    /// Shortest window.
    pub min_window_ns: u64,
    /// Longest window.
    pub max_window_ns: u64,
    /// Least pause between two windows.
    pub cool_off_ns: u64,
    /// Share of the time with experiments, 1 to 100.
    pub duty_percent: u8,
    /// Length of the warm-up, which ends as soon as `warm_samples` have come.
    pub warm_ns: u64,
    /// See `warm_ns`.
    pub warm_samples: u64,
    /// Pieces of the run for which the allocation is fixed beforehand.
    pub stratum_ns: u64,
    /// Stop when the 95 % interval of the gain at `assume` is at most plus or minus so many percentage
    /// points wide for the targets that matter.
    pub until_points: Option<f64>,
    /// Stop after this time, warm-up included.
    pub max_ns: Option<u64>,
    /// Amount in percent at which gains are compared.
    pub assume: u8,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            policy: PolicyKind::Adaptive,
            speedups: Vec::new(),
            fixed_target: None,
            fixed_percent: None,
            min_visits: 5,
            min_window_ns: 100_000_000,
            max_window_ns: 8_000_000_000,
            cool_off_ns: 1_000_000,
            duty_percent: 100,
            warm_ns: 1_000_000_000,
            warm_samples: 200,
            stratum_ns: 10_000_000_000,
            until_points: None,
            max_ns: None,
            assume: 30,
        }
    }
}

/// Who decides about targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// Blocks for targets that could matter, and the paper's lottery in between.
    #[default]
    Adaptive,
    /// The paper's lottery alone.
    Paper,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Observe without delays for this long, then ask again.
    Warm {
        /// At most this long.
        ns: u64,
    },
    /// Make this experiment, report it by [`crate::Policy::finished`], then ask again.
    Window(Order),
    /// Nothing for this long, then ask again.
    Rest {
        /// So long.
        ns: u64,
    },
    /// No more experiments.
    Done(DoneReason),
}

/// An experiment to be made. It counts after `settle_ns`; from there it ends when it is `min_ns` old and has
/// `min_visits` visits, at `max_ns` at the latest.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Target.
    pub target: u32,
    /// Virtual speed-up in percent.
    pub percent: u8,
    /// See above.
    pub settle_ns: u64,
    /// See above.
    pub min_ns: u64,
    /// See above.
    pub max_ns: u64,
    /// Of the first point. See above.
    pub min_visits: u64,
    /// Goes into the window as it is.
    pub selection: Selection,
    /// Goes into the window as it is.
    pub probability: f64,
    /// Goes into the window as it is.
    pub stratum: u32,
}

/// Why a policy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoneReason {
    /// The time is over.
    Time,
    /// The intervals are as narrow as was asked for.
    Narrow,
}

/// How [`crate::analyse()`] answers.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalyseOptions {
    /// Amount in percent at which gains are compared.
    pub assume: u8,
    /// Order of the targets.
    pub sort: Sort,
    /// Of all intervals.
    pub confidence: f64,
    /// How windows of one amount become one figure.
    pub combine: Combine,
    /// Different amounts that a curve needs, 0 not counted. Windows of a single fixed amount need one.
    pub min_amounts: usize,
    /// Only targets for which this holds by name or `file:line`; empty: all.
    pub only: Vec<String>,
    /// Also read windows that were dropped for what others did to the machine.
    pub keep_disturbed: bool,
}

impl Default for AnalyseOptions {
    fn default() -> Self {
        Self {
            assume: 30,
            sort: Sort::Gain,
            confidence: 0.95,
            combine: Combine::Ours,
            min_amounts: 5,
            only: Vec::new(),
            keep_disturbed: false,
        }
    }
}

/// Order of the targets in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// Lower bound of the gain at the assumed amount.
    #[default]
    Gain,
    /// Slope of the regression line, as in the paper.
    Slope,
    /// Share of the samples.
    Share,
}

/// How windows of one amount become one figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combine {
    /// Trimmed means of periods relative to their stratum, noise of the sampler taken out.
    #[default]
    Ours,
    /// Sums of durations over sums of visits, as in the paper and in Coz.
    Sum,
}
