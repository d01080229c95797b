//! How far estimates are from exact counts (paper figures 8 and 9), as plain values. Made by `accuracy`.

use super::Provenance;
use super::analysis::Confidence;
use serde::Serialize;

/// Edges of the error histogram in percent: below the first, between neighbours, above the last.
pub const ERROR_BINS: [f64; 19] = [
    -90.0, -60.0, -45.0, -35.0, -30.0, -25.0, -20.0, -15.0, -10.0, -5.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 45.0,
    90.0,
];

/// Shares of a weight by the error of the estimate, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ErrorShares {
    /// Weight in all: samples, or executions.
    pub weight: f64,
    /// Within 5, 10, 15 % of the exact count.
    pub within: [f64; 3],
    /// Within a factor of two.
    pub within_double: f64,
    /// Share in each bin of [`ERROR_BINS`]; one more than it has edges.
    pub bins: Vec<f64>,
}

/// Directions of conditional branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BranchErrors {
    /// Branches compared.
    pub branches: usize,
    /// Mean absolute error of the probability, weighted by the samples of the branch's block.
    pub mean_by_samples: f64,
    /// The same weighted by exact executions.
    pub mean_by_executions: f64,
    /// The same, by executions, of branches that were seen at least a hundred times.
    pub mean_seen: f64,
}

/// One procedure compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AccuracyRow {
    /// Demangled name.
    pub procedure: String,
    /// Image.
    pub image: String,
    /// Errors weighted by samples.
    pub errors: ErrorShares,
    /// What the graph lacks.
    pub missing: usize,
    /// Share of register samples that decided a branch.
    pub decided: f64,
}

/// Answer of `accuracy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// Where the samples come from.
    pub provenance: Provenance,
    /// Where the exact counts come from.
    pub exact: String,
    /// Instructions, by samples. The scale of each procedure is given: its total of executed instructions.
    pub instructions: ErrorShares,
    /// The same by the paper's estimator, which knows samples and best cases only.
    pub baseline: ErrorShares,
    /// Edges, by exact executions.
    pub edges: ErrorShares,
    /// Branches.
    pub branches: BranchErrors,
    /// For each confidence: what of the weight has it, and how it did.
    pub confidence: Vec<(Confidence, f64, ErrorShares)>,
    /// Share of the common weight of blocks, estimated and exact (Levin et al.'s overlap), 0 to 1.
    pub overlap: f64,
    /// Procedures, most samples first.
    pub procedures: Vec<AccuracyRow>,
    /// Samples in instructions that were never executed under the exact counter.
    pub never_executed: f64,
    /// Samples selected, and those compared.
    pub samples: (f64, f64),
    /// Why the figures may not be about what was recorded, to be read before them.
    pub warnings: Vec<String>,
    /// Plain sentences.
    pub notes: Vec<String>,
}
