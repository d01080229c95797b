//! Results of many runs side by side: how much each procedure varies, and what made the slowest run slow. Made by
//! `runs`, printed by `report`. Field names are JSON names (`whither.cycles/1`).

use super::Provenance;
use super::analysis::{Cause, Summary};
use serde::Serialize;

/// Answer of `stats` (paper figure 3).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunStatistics {
    /// Of all runs together.
    pub provenance: Provenance,
    /// Event compared.
    pub event: String,
    /// Unit of the figures: `samples` of equal weight, `%` of the run, `ms` of CPU time per second, or per unit of work.
    pub unit: String,
    /// What runs were set against: `none`, `total`, `wall`, `unit`.
    pub normalised: String,
    /// The runs, in the order given.
    pub sets: Vec<RunSet>,
    /// One row per procedure, largest normalised range first.
    pub rows: Vec<RunRow>,
    /// Rows with too little weight to be told from noise, left out.
    pub hidden: usize,
    /// What changed between the slowest and the fastest run of one procedure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explanation>,
    /// Plain sentences.
    pub notes: Vec<String>,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunSet {
    /// Label: path or epoch.
    pub name: String,
    /// Samples of the event.
    pub samples: u64,
    /// Amount of the event: nanoseconds, cycles.
    pub weight: u64,
    /// Wall seconds.
    pub seconds: f64,
    /// Sum of the figures compared.
    pub total: f64,
}

/// One procedure over all runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunRow {
    /// Procedure.
    pub procedure: String,
    /// Image.
    pub image: String,
    /// Largest minus smallest, over the sum, 0 to 1.
    pub range: f64,
    /// Sum over the runs.
    pub sum: f64,
    /// Share of the sum of everything, 0 to 1.
    pub share: f64,
    /// Runs.
    pub n: usize,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// 95 % interval of the mean; `None` for fewer than two runs.
    pub interval: Option<(f64, f64)>,
    /// Range that counting alone would give, as `range`: what lies well above it is real.
    pub noise: f64,
    /// Whether the runs fall into two groups with a gap between that chance does not make.
    pub two_peaks: bool,
    /// Figure of each run.
    pub values: Vec<f64>,
}

/// The slowest and the fastest run of one procedure side by side (paper section 3.3).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// Procedure.
    pub procedure: String,
    /// Names of the slowest and the fastest run.
    pub runs: (String, String),
    /// Figures of both.
    pub figures: (f64, f64),
    /// Causes in both.
    pub slow: Summary,
    /// See `slow`.
    pub fast: Summary,
    /// Causes whose ranges moved, largest change first.
    pub moved: Vec<MovedCause>,
    /// What all dynamic causes together changed by for certain, where no single one did.
    pub together: Option<Together>,
}

/// A change that one or several of some causes must have made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Together {
    /// At least so much more in the slow run, as a figure of the procedure.
    pub least: f64,
    /// Those of them that may have grown by as much as half of it, largest first.
    pub among: Vec<Cause>,
}

/// A cause in the slow and in the fast run, as figures of the procedure (share times the run's figure).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MovedCause {
    /// Which.
    pub cause: Cause,
    /// Least and most in the slow run.
    pub slow: (f64, f64),
    /// Least and most in the fast run.
    pub fast: (f64, f64),
    /// Whether the two ranges lie apart by more than executions may be off, so that it did change whatever the truth is within them.
    pub certain: bool,
}
