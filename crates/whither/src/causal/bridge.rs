//! The pure policy of `whither_causal` as the session wants it. Two sets of the same words, because neither
//! crate may know the other.

use whither_causal::{DoneReason, Policy, Step as Decided};
use whither_session::causal::{CausalPolicy, Order, Step};
use whither_store::causal::{Selection, Unit, Window};

/// A policy that a session can obey.
pub(super) struct Adapter(pub(super) Policy);

impl CausalPolicy for Adapter {
    fn declare(&mut self, target: u32, unit: Unit, parent: Option<u32>) {
        self.0.declare(target, unit, parent);
    }

    fn sampled(&mut self, at_ns: u64, target: Option<u32>, weight: u32) {
        self.0.sampled(at_ns, target, weight);
    }

    fn next(&mut self, at_ns: u64, rates: &[f64]) -> Step {
        match self.0.next(at_ns, rates) {
            Decided::Warm { ns } => Step::Warm { ns },
            Decided::Rest { ns } => Step::Rest { ns },
            Decided::Done(DoneReason::Time) => Step::Over,
            Decided::Done(DoneReason::Narrow) => Step::Narrow,
            Decided::Window(order) => Step::Window(Order {
                target: order.target,
                percent: order.percent,
                settle_ns: order.settle_ns,
                min_ns: order.min_ns,
                min_visits: order.min_visits,
                max_ns: order.max_ns,
                selection: order.selection,
                probability: order.probability,
                stratum: order.stratum,
            }),
        }
    }

    fn finished(&mut self, window: &Window) {
        self.0.finished(window);
    }

    fn anew(&mut self) {
        self.0.anew();
    }
}

/// A policy without experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// The kernel side watches points and samples.
    Watch,
    /// It is attached and does nothing.
    Rest,
    /// Experiments on nothing: the cost of sampling and crediting without any delay.
    Zero,
}

impl CausalPolicy for Idle {
    fn declare(&mut self, _target: u32, _unit: Unit, _parent: Option<u32>) {}
    fn sampled(&mut self, _at_ns: u64, _target: Option<u32>, _weight: u32) {}
    fn finished(&mut self, _window: &Window) {}
    fn anew(&mut self) {}

    fn next(&mut self, _at_ns: u64, _rates: &[f64]) -> Step {
        match self {
            Self::Watch => Step::Warm { ns: 50_000_000 },
            Self::Rest => Step::Rest { ns: 50_000_000 },
            Self::Zero => Step::Window(Order {
                target: 0,
                percent: 0,
                settle_ns: 0,
                min_ns: 200_000_000,
                min_visits: 0,
                max_ns: 200_000_000,
                selection: Selection::Fixed,
                probability: 1.0,
                stratum: 0,
            }),
        }
    }
}
