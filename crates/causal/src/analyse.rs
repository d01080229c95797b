//! From a run to an answer.

use crate::options::AnalyseOptions;
use crate::results::*;
use whither_store::causal::CausalRun;

/// Everything a run says.
#[must_use]
pub fn analyse(run: &CausalRun, options: &AnalyseOptions) -> CausalAnswer {
    CausalAnswer {
        schema: SCHEMA,
        meta: run.meta.clone(),
        points: Vec::new(),
        assume: options.assume,
        confidence: options.confidence,
        sort: options.sort,
        combine: options.combine,
        targets: Vec::new(),
        latency: Vec::new(),
        waits: Vec::new(),
        dropped: Vec::new(),
        drift: Vec::new(),
        windows: WindowCounts::default(),
        executor: run.meta.executor,
        load: run.meta.load,
        load_reason: String::new(),
        lost: LostRow::default(),
        overhead: OverheadRow::default(),
        seed: run.meta.seed,
        warnings: Vec::new(),
        notes: run.notes.clone(),
    }
}
