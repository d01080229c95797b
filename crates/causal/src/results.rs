//! What answers look like. The field names are the JSON schema `whither.causal/1`: fields are added, never
//! renamed. Effects `y` are the reduction of time per visit, `1 - ps/p0`: 0.12 is "12 % less time"; negative
//! means slower. Shares are 0 to 1, amounts are percent, times are nanoseconds unless the name says otherwise.

use crate::options::{Combine, Sort};
use crate::shape::straightened;
use serde::Serialize;
use whither_store::causal::{CausalMeta, DropReason, Executor, LoadKind, PointKind, Selection, Unit};

/// Name and version of the document.
pub const SCHEMA: &str = "whither.causal/1";

/// Everything a run says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CausalAnswer {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The program, and where and how it was measured.
    #[serde(rename = "target")]
    pub meta: CausalMeta,
    /// Progress points, in the order they were named: the first one ranks.
    pub points: Vec<PointRow>,
    /// Amount in percent at which gains are compared.
    pub assume: u8,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Order of `targets`.
    pub sort: Sort,
    /// How windows of one amount became one figure.
    pub combine: Combine,
    /// Ranked; those that nothing can be said of come last.
    pub targets: Vec<TargetRow>,
    /// Latency pairs by target.
    pub latency: Vec<LatencyRow>,
    /// Waits that no virtual speed-up applies to.
    pub waits: Vec<WaitRow>,
    /// Samples outside of what is in scope; `None` where nothing was sampled, or nothing is known of it.
    pub elsewhere: Option<ElsewhereRow>,
    /// Windows that do not count.
    pub dropped: Vec<DroppedRow>,
    /// Periods without speed-up, by stratum.
    pub drift: Vec<DriftRow>,
    /// How many windows there are.
    pub windows: WindowCounts,
    /// How delays were inserted.
    pub executor: Executor,
    /// Why in this way; empty where it is not known.
    pub executor_reason: String,
    /// What decides how often the points are visited.
    pub load: LoadKind,
    /// How `load` is known.
    pub load_reason: String,
    /// Observations lost.
    pub lost: LostRow,
    /// What measuring cost; not known of profiles that were imported.
    pub overhead: Option<OverheadRow>,
    /// Seed of all random choices.
    pub seed: u64,
    /// What limits the trust in this answer: disturbed windows, a drifting program, an oversubscribed machine.
    pub warnings: Vec<String>,
    /// Sentences of the session that the user must see.
    pub notes: Vec<String>,
}

/// A progress point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointRow {
    /// As written by the user or in the source.
    pub name: String,
    /// How visits are counted.
    pub kind: PointKind,
    /// Of a latency pair's begin, the index of its end.
    pub end: Option<u32>,
    /// Visits in windows that count.
    pub visits: u64,
    /// Visits per second of virtual time without speed-up.
    pub per_second: f64,
}

/// What one target is worth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetRow {
    /// Index into the run's targets.
    pub id: u32,
    /// Kind.
    pub unit: Unit,
    /// Function or class of wait.
    pub name: String,
    /// Source file, empty when not known.
    pub file: String,
    /// Line, 0 when not known.
    pub line: u32,
    /// Callers it is limited to, the nearest first.
    pub path: Vec<String>,
    /// Other names of the same code.
    pub aliases: Vec<String>,
    /// Module path.
    pub module: String,
    /// Of the samples taken without speed-up, the part it was met in: of those of running threads, or of those of
    /// waits where it is one.
    pub share: f64,
    /// Samples in it without speed-up.
    pub samples: u64,
    /// Windows that count, those of 0 % included.
    pub windows: u32,
    /// Windows of 0 %.
    pub zero_windows: u32,
    /// Effect by amount on the first point, ascending.
    pub curve: Vec<CurvePoint>,
    /// Shape of the curve.
    pub fit: Fit,
    /// Effect over the whole run at [`CausalAnswer::assume`]; the interval is simultaneous over all targets
    /// that have one. `None` without enough data.
    pub gain: Option<Gain>,
    /// The same while the target runs, as measured in its own windows; the interval is its own.
    pub local: Option<Gain>,
    /// How much less active the target is over the run than in its own windows.
    pub phase: Option<Phase>,
    /// Slope of the regression of all effects on their amounts (the paper's rank); effect per 100 %.
    pub slope: Option<f64>,
    /// Effects on the other points.
    pub other_points: Vec<PointEffect>,
    /// Every window, dropped ones included, for plots.
    pub dots: Vec<Dot>,
    /// What to do about it.
    pub verdict: Verdict,
    /// The verdict as a sentence.
    pub reason: String,
}

/// Effect of one amount.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Virtual speed-up.
    pub percent: u8,
    /// Windows.
    pub windows: u32,
    /// Visits in them.
    pub visits: u64,
    /// Effect.
    pub y: f64,
    /// Interval of this point alone.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Effect by plain means, without trimming and without the correction for the sampler's noise.
    pub plain_mean: f64,
}

/// Shape of a curve: what describes the windows best without describing their noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Which.
    pub kind: FitKind,
    /// Effect per 100 % speed-up, up to the knee.
    pub slope: f64,
    /// Of a line that bends: how much; above 0 it rises fast at first, as latencies of queues fall, below 0 slowly. Its effect is
    /// `slope * s * (1 + bend) / (1 + bend * s)`, s up to 1.
    pub bend: Option<f64>,
    /// Where it changes, percent.
    pub knee: Option<f64>,
    /// 95 % interval of the knee.
    pub knee_low: Option<f64>,
    /// See `knee_low`.
    pub knee_high: Option<f64>,
    /// Effect per 100 % beyond the knee.
    pub slope_after: Option<f64>,
}

impl Fit {
    /// No effect at all.
    pub const NOTHING: Self = Self {
        kind: FitKind::Nothing,
        slope: 0.0,
        bend: None,
        knee: None,
        knee_low: None,
        knee_high: None,
        slope_after: None,
    };

    /// Effect at an amount in percent.
    #[must_use]
    pub fn at(&self, percent: f64) -> f64 {
        let percent = 100.0 * straightened(percent / 100.0, self.bend.unwrap_or(0.0));
        let knee = self.knee.unwrap_or(100.0);
        (self.slope * percent.min(knee) + self.slope_after.unwrap_or(0.0) * (percent - knee).max(0.0)) / 100.0
    }
}

/// Kind of a [`Fit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FitKind {
    /// No effect that the data shows.
    #[default]
    Nothing,
    /// Proportional to the amount.
    Line,
    /// Two slopes.
    Knee,
}

/// An effect with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// Amount in percent it belongs to.
    pub percent: u8,
    /// Reduction of the time per visit.
    pub y: f64,
    /// Interval.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// The same as a gain of rate: `1 / (1 - y) - 1`.
    pub rate_gain: f64,
}

/// A ratio with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Sample rate over the run by sample rate in own windows, both without speed-up.
    pub factor: f64,
    /// Interval.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Whether the gain was multiplied by it: only where its interval excludes 1.
    pub applied: bool,
}

/// Effect of a target on one more point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointEffect {
    /// Index into [`CausalAnswer::points`].
    pub point: u32,
    /// As [`TargetRow::curve`].
    pub curve: Vec<CurvePoint>,
    /// As [`TargetRow::fit`].
    pub fit: Fit,
    /// As [`TargetRow::local`].
    pub gain: Option<Gain>,
    /// As [`TargetRow::gain`]; `None` also where nothing can be said of the run.
    pub over_the_run: Option<Gain>,
}

/// One window in a plot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dot {
    /// Virtual speed-up.
    pub percent: u8,
    /// Effect relative to the target's windows of 0 %; `None` when the window has no period.
    pub y: Option<f64>,
    /// Seconds since the first window.
    pub at_s: f64,
    /// Stratum.
    pub stratum: u32,
    /// How it was chosen.
    pub selection: Selection,
    /// Why it does not count.
    pub dropped: Option<DropReason>,
}

/// What to do about a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Verdict {
    /// The gain is certainly positive.
    FixThis,
    /// It is, up to an amount.
    HelpsUntil {
        /// The amount.
        percent: f64,
        /// Its interval.
        low: f64,
        /// See `low`.
        high: f64,
    },
    /// The effect on the first point is certainly small, and that on another one is not.
    HelpsOther {
        /// Indices into [`CausalAnswer::points`].
        points: Vec<u32>,
        /// Up to this amount the first point does not gain.
        up_to: u8,
        /// It is less than this, either way.
        within: f64,
    },
    /// The effect is certainly small.
    DoNotBother {
        /// Up to this amount.
        up_to: u8,
        /// It is less than this, either way.
        within: f64,
    },
    /// Making it faster slows the program.
    Contention {
        /// Where threads wait for one another the most.
        partner: Option<String>,
    },
    /// A wait that ends when another thread gets somewhere.
    CausedBy {
        /// Who.
        who: Vec<String>,
    },
    /// Timers or arrivals decide about the rate.
    RateFixed,
    /// The program waits for something outside of it: if that waits for the program too, this holds; if it comes at a rate of
    /// its own, visits gain nothing.
    DependsOnLoad {
        /// For who waits for answers.
        closed: Box<Verdict>,
    },
    /// Not measured well enough.
    NotEnoughData {
        /// What is missing.
        missing: String,
        /// Seconds of further measurement that would probably do.
        more_seconds: Option<f64>,
    },
    /// Measured, and not to be trusted.
    CannotSay {
        /// Why.
        why: String,
    },
}

/// Effect of a target on the latency between two points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyRow {
    /// Index of the begin point.
    pub begin: u32,
    /// Index of the end point.
    pub end: u32,
    /// Names of both.
    pub name: String,
    /// Target, an index into the run's; `None`: without speed-up.
    pub target: Option<u32>,
    /// Its name.
    pub target_name: String,
    /// Mean time between the points without speed-up.
    pub mean_ns: f64,
    /// Requests under way on average.
    pub under_way: f64,
    /// Relative reduction by amount.
    pub curve: Vec<CurvePoint>,
    /// Shape of the curve.
    pub fit: Fit,
    /// Reduction at the assumed amount; `None` without enough windows.
    pub gain: Option<Gain>,
    /// Why figures are not to be trusted, or why there are none: the queue grows, too few windows, the machine was not quiet.
    pub cannot_say: Option<String>,
}

/// Wider than this, end to end, an interval tells nothing that anybody would act upon.
const WIDEST_TOLD: f64 = 0.5;

impl LatencyRow {
    /// Whether it has a figure that is only noise so far.
    #[must_use]
    pub fn is_noise(&self) -> bool {
        let narrow = self.gain.is_some_and(|g| g.high - g.low <= WIDEST_TOLD);
        self.cannot_say.is_none() && self.target.is_some() && !narrow
    }

    /// Reduction at the assumed amount, where there is nothing against telling it.
    #[must_use]
    pub fn told(&self) -> Option<Gain> {
        self.gain.filter(|_| self.cannot_say.is_none() && !self.is_noise())
    }
}

/// A wait for another thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitRow {
    /// Function that waits.
    pub name: String,
    /// Source file.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Time waited, all threads.
    pub blocked_ns: u64,
    /// Part of all such waiting.
    pub share: f64,
    /// Who ended the waits, most often first.
    pub woken_by: Vec<WakerRow>,
    /// The row as a sentence.
    pub reason: String,
}

/// Who ended waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WakerRow {
    /// Function.
    pub name: String,
    /// Source file.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Part of the wake-ups.
    pub share: f64,
    /// The target of the same code, an index into the run's, when there is one.
    pub target: Option<u32>,
}

/// Samples of running threads outside of what is in scope.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ElsewhereRow {
    /// Part of all samples that no target has.
    pub outside: f64,
    /// Part of all samples in code that is not in scope and that count for calls into it; not known of older recordings.
    pub charged: Option<f64>,
    /// By module, most samples first; empty in older recordings.
    pub modules: Vec<ModuleRow>,
    /// What the user must know; empty where little lies elsewhere.
    pub reason: String,
}

/// Samples in one module that is not in scope, as parts of all samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModuleRow {
    /// Path; empty for code of no file.
    pub module: String,
    /// See [`ElsewhereRow::outside`].
    pub outside: f64,
    /// See [`ElsewhereRow::charged`].
    pub charged: f64,
}

/// Windows that do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DroppedRow {
    /// Why.
    pub reason: DropReason,
    /// How many.
    pub n: u32,
}

/// Period without speed-up in a stratum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DriftRow {
    /// Stratum.
    pub stratum: u32,
    /// Seconds since the first window.
    pub at_s: f64,
    /// Windows of 0 %.
    pub windows: u32,
    /// Time per visit of the first point.
    pub period_ns: f64,
}

/// How many windows there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WindowCounts {
    /// That count.
    pub kept: u32,
    /// That do not.
    pub dropped: u32,
    /// Of these, those that were too short for the pauses of the program: later ones were made longer.
    pub outgrown: u32,
    /// Kept ones chosen by lot.
    pub lottery: u32,
    /// Kept ones of blocks.
    pub block: u32,
    /// Kept ones the user fixed.
    pub fixed: u32,
    /// Kept ones shorter in visits than asked for.
    pub short: u32,
    /// Kept windows per second.
    pub per_second: f64,
    /// Part of a window's shortest length that passes before it counts, while the program finds its new pace; not known
    /// of profiles that were imported.
    pub settle: Option<f64>,
}

/// Observations lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LostRow {
    /// In windows.
    pub observations: u64,
}

/// What measuring cost; shares are of the target's CPU time, or of the time measured where it used less than one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OverheadRow {
    /// From the order to the first window.
    pub startup_ns: u64,
    /// What ticks took, interrupts included.
    pub sampling: f64,
    /// The same while experiments run; intervals allow for it.
    pub tick_share: f64,
    /// What visits of progress points took by their breakpoints; 0: there are none, or they were not measured.
    pub points: f64,
    /// Delays inserted.
    pub delay: f64,
    /// CPU time of whither itself.
    pub own: f64,
}

impl OverheadRow {
    /// All but the delays, which are meant.
    #[must_use]
    pub fn own_cost(&self) -> f64 {
        self.sampling + self.points + self.own
    }
}
