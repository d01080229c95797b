//! Which experiment comes next, as the session sees it: it asks, obeys and reports. The decisions themselves
//! are those of the analysis, which the session may not know.

use whither_store::causal::{Selection, Unit, Window};

/// Decides about experiments.
pub trait CausalPolicy {
    /// A target exists from now on; `parent`: the function that a line or path refines.
    fn declare(&mut self, target: u32, unit: Unit, parent: Option<u32>);
    /// A sample, once for every target it belongs to; `None` when it belongs to none.
    fn sampled(&mut self, at_ns: u64, target: Option<u32>, weight: u32);
    /// What to do now; visits per second by point.
    fn next(&mut self, at_ns: u64, rates: &[f64]) -> Step;
    /// What came of an experiment.
    fn finished(&mut self, window: &Window);
    /// Experiments so far do not count any more: delays are made in another way from here on.
    fn anew(&mut self);
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Observe without delays.
    Warm {
        /// So long.
        ns: u64,
    },
    /// Make an experiment.
    Window(Order),
    /// Nothing.
    Rest {
        /// So long.
        ns: u64,
    },
    /// The time is over.
    Over,
    /// Intervals are narrow enough.
    Narrow,
}

/// An experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Target.
    pub target: u32,
    /// Amount.
    pub percent: u8,
    /// It counts when it has lasted so long: the program is on its way to its new pace until then.
    pub settle_ns: u64,
    /// Counted from there it ends when it is so old ...
    pub min_ns: u64,
    /// ... and has so many visits of the first point,
    pub min_visits: u64,
    /// at the latest when it is so old.
    pub max_ns: u64,
    /// For the record.
    pub selection: Selection,
    /// For the record.
    pub probability: f64,
    /// For the record.
    pub stratum: u32,
}
