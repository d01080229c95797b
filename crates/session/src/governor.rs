//! Keeps sampling within a budget. What a sample costs is measured on this machine (in a virtual
//! machine the interrupt alone takes 13 us, design note 3.1), and so is our own CPU time; the rate is
//! what the budget buys.

use crate::choose::FULL_HERTZ;
use crate::options::Pace;
use std::time::Duration;
use whither_kernel::{clock, gap};
use whither_sample::Collector;
use whither_store::model::OwnCost;

/// How long the cost of a sample is measured.
const MEASURE: Duration = Duration::from_millis(60);
/// The rate is looked at again this often, and once early: a recording of ten seconds has its budget, too.
const REVIEW_NS: u64 = 10_000_000_000;
const FIRST_REVIEW_NS: u64 = 3_000_000_000;
/// Below this many samples a profile says nothing.
const LEAST_HERTZ: f64 = 20.0;
/// Share of the budget set aside for our own process until its cost is known.
const RESERVE: f64 = 0.15;

/// The governor of one recording.
#[derive(Debug)]
pub(crate) struct Governor {
    budget: Option<f64>,
    cpus: f64,
    interrupt_ns: f64,
    handler_ns: f64,
    /// Share of all CPU time our own process takes.
    user_share: f64,
    reviewed: (u64, u64),
    began: (u64, u64),
    /// When to look at the rate next.
    due: u64,
    hertz: f64,
}

impl Governor {
    /// A governor for this pace; measures nothing yet.
    pub(crate) fn new(pace: Pace, cpus: usize, hertz: f64) -> Self {
        let now = (clock::monotonic_ns(), clock::own_cpu_ns());
        let budget = if let Pace::Budget(b) = pace { Some(b) } else { None };
        Self {
            budget,
            cpus: cpus as f64,
            interrupt_ns: 0.0,
            handler_ns: 0.0,
            user_share: 0.0,
            reviewed: now,
            began: now,
            due: now.0 + FIRST_REVIEW_NS,
            hertz,
        }
    }

    /// Measures what one sample steals from the CPU this runs on, which must be sampled meanwhile;
    /// returns the rate that the budget buys, when a budget decides.
    pub(crate) fn measure(&mut self, collector: &Collector) -> Option<f64> {
        let mut gaps = None;
        self.handler_ns = collector.handler_ns(|| gaps = gap::measure(MEASURE)).unwrap_or(0.0);
        self.interrupt_ns = gaps?.median_ns;
        let now = (clock::monotonic_ns(), clock::own_cpu_ns());
        (self.reviewed, self.began, self.due) = (now, now, now.0 + FIRST_REVIEW_NS);
        let budget = self.budget?;
        self.hertz = rate(budget * (1.0 - RESERVE), self.interrupt_ns);
        Some(self.hertz)
    }

    /// Looks at our own cost from time to time; returns a new rate when it should change.
    pub(crate) fn review(&mut self) -> Option<f64> {
        if clock::monotonic_ns() < self.due || self.interrupt_ns == 0.0 {
            return None;
        }
        let now = (clock::monotonic_ns(), clock::own_cpu_ns());
        self.due = now.0 + REVIEW_NS;
        self.user_share = (now.1 - self.reviewed.1) as f64 / ((now.0 - self.reviewed.0) as f64 * self.cpus);
        self.reviewed = now;
        let wanted = rate(self.budget? - self.user_share, self.interrupt_ns);
        let next = stepped(self.hertz, wanted);
        let changed = (next - self.hertz).abs() > f64::EPSILON;
        self.hertz = next;
        changed.then_some(next)
    }

    /// The account for the recording, from all samples delivered so far.
    pub(crate) fn cost(&self, delivered: u64) -> OwnCost {
        let elapsed = clock::monotonic_ns().saturating_sub(self.began.0).max(1) as f64 * self.cpus;
        let user_ns = clock::own_cpu_ns().saturating_sub(self.began.1);
        let stolen = delivered as f64 * self.interrupt_ns;
        // Without the cost of a sample the share would be a half-truth: 0 stands for "not measured".
        let share = if self.interrupt_ns > 0.0 { (stolen + user_ns as f64) / elapsed } else { 0.0 };
        OwnCost { interrupt_ns: self.interrupt_ns, handler_ns: self.handler_ns, user_ns, share, budget: self.budget }
    }
}

/// The next rate on the way to the wanted one. Few distinct rates, and no flutter: steps of a quarter of an octave,
/// down as soon as the budget is exceeded, up when a whole step fits.
fn stepped(hertz: f64, wanted: f64) -> f64 {
    const PER_OCTAVE: f64 = 4.0;
    let steps = ((wanted / hertz).log2() * PER_OCTAVE).floor();
    (hertz * 2_f64.powf(steps / PER_OCTAVE)).clamp(LEAST_HERTZ, FULL_HERTZ.into())
}

/// Samples per second and CPU that a share of CPU time buys.
fn rate(share: f64, interrupt_ns: f64) -> f64 {
    (share.max(0.0) * 1e9 / interrupt_ns.max(1.0)).clamp(LEAST_HERTZ, FULL_HERTZ.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_costs_too_much_is_lowered_and_one_that_fits_stays() {
        let below = stepped(2000.0, 1990.0);
        assert!((1650.0..1990.0).contains(&below), "{below}");
        // What was lowered is not raised again by the same figures.
        assert!((stepped(below, 1990.0) - below).abs() < 1e-9);
        assert!((stepped(2000.0, 2300.0) - 2000.0).abs() < 1e-9);
        assert!((2800.0..=3000.0).contains(&stepped(2000.0, 3000.0)));
        assert!((stepped(30.0, 1.0) - LEAST_HERTZ).abs() < 1e-9);
    }

    #[test]
    fn a_budget_buys_a_rate() {
        assert!((rate(0.01, 13_500.0) - 740.7).abs() < 1.0);
        assert!((rate(0.01, 500.0) - f64::from(FULL_HERTZ)).abs() < 1e-9);
        assert!((rate(-1.0, 13_500.0) - LEAST_HERTZ).abs() < 1e-9);
    }
}
