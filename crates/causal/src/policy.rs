//! Which experiment comes next.

use crate::options::{PolicyOptions, Step};
use whither_store::causal::{Unit, Window};

/// The state machine.
#[derive(Clone, Debug)]
pub struct Policy {
    options: PolicyOptions,
}

impl Policy {
    /// In its warm-up.
    #[must_use]
    pub fn new(options: PolicyOptions) -> Self {
        Self { options }
    }

    /// Makes a target known, before it is sampled: its kind, and for lines and callers the function they
    /// refine.
    pub fn declare(&mut self, _target: u32, _unit: Unit, _parent: Option<u32>) {}

    /// A sample, resolved; one that belongs to several targets is passed for each.
    pub fn sampled(&mut self, _at_ns: u64, _target: Option<u32>, _weight: u32) {}

    /// What to do at this time. `rates`: visits per second by point.
    pub fn next(&mut self, _at_ns: u64, _rates: &[f64]) -> Step {
        Step::Warm { ns: self.options.warm_ns }
    }

    /// What came of an order.
    pub fn finished(&mut self, _window: &Window) {}
}
