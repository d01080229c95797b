//! Keeps sampling within a budget. What a sample costs is measured on this machine (in a virtual
//! machine the interrupt alone takes 13 us, design note 3.1), and so is our own CPU time; the rate is
//! what the budget buys.

use crate::choose::FULL_HERTZ;
use crate::options::Pace;
use std::time::Duration;
use whither_kernel::{clock, gap};
use whither_sample::{Chosen, Collector, probe_own_thread};
use whither_store::model::OwnCost;

/// How long the cost of a sample is measured.
const MEASURE: Duration = Duration::from_millis(60);
/// The rate is looked at again this often, and once early: a recording of ten seconds has its budget, too.
const REVIEW_NS: u64 = 10_000_000_000;
const FIRST_REVIEW_NS: u64 = 3_000_000_000;
/// Below this many samples a profile says nothing.
const LEAST_HERTZ: f64 = 20.0;
/// Events that no rate drives may come by the million a second: they are looked at before a recording of seconds is over.
const FIRST_LOOK_NS: u64 = 250_000_000;
/// What a sample costs that takes no interrupt: a page fault took 250 to 360 ns longer with one (of 1,650).
const SYNCHRONOUS_NS: f64 = 300.0;
/// Synchronous events may take this part of a budget together before they are sampled less often.
const SYNCHRONOUS_PART: f64 = 0.5;
/// What interrupts get of a budget in any case. Reading the files of many new programs takes most of a second once, and a
/// profile of 20 samples a second would be no profile: the cost is told, and the next look finds it gone.
const INTERRUPT_PART: f64 = 0.25;
/// Share of the budget set aside for our own process until its cost is known.
const RESERVE: f64 = 0.15;

/// The governor of one recording.
#[derive(Debug)]
pub(crate) struct Governor {
    budget: Option<f64>,
    /// Samples per second and CPU that the user asked for.
    asked: Option<f64>,
    cpus: f64,
    /// Whether no sample takes an interrupt.
    all_synchronous: bool,
    interrupt_ns: f64,
    handler_ns: f64,
    /// Time that walks took in the kernel: no probe of a sample's cost meets any.
    walks_ns: u64,
    /// Share of all CPU time our own process takes, and walks.
    user_share: f64,
    reviewed: (u64, u64),
    /// Samples of synchronous events by then.
    synchronous: u64,
    began: (u64, u64),
    /// When to look at the rate next.
    due: u64,
    hertz: f64,
}

impl Governor {
    /// A governor for this pace; measures nothing yet. `hertz` is 0 without an event that a rate drives.
    pub(crate) fn new(pace: Pace, cpus: usize, events: &[Chosen]) -> Self {
        let hertz = events.iter().find(|e| e.is_rated()).map_or(0.0, Chosen::hertz);
        let now = (clock::monotonic_ns(), clock::own_cpu_ns());
        let budget = if let Pace::Budget(b) = pace { Some(b) } else { None };
        let asked = if let Pace::Hertz(h) = pace { Some(f64::from(h)) } else { None };
        Self {
            budget,
            asked,
            cpus: cpus as f64,
            all_synchronous: events.iter().all(Chosen::is_synchronous),
            interrupt_ns: 0.0,
            handler_ns: 0.0,
            walks_ns: 0,
            user_share: 0.0,
            reviewed: now,
            synchronous: 0,
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
        self.buy(gaps?.median_ns)
    }

    /// The same before anything is opened, for rings of a target, which say nothing of this CPU: a ring on our own thread
    /// stands in for them. Processes keep the period that they inherit, so the rate is known before they can.
    pub(crate) fn measure_ahead(&mut self, events: &[Chosen]) -> Option<f64> {
        let probe = probe_own_thread(events)?;
        let gaps = gap::measure(MEASURE);
        drop(probe);
        self.buy(gaps?.median_ns)
    }

    fn buy(&mut self, interrupt_ns: f64) -> Option<f64> {
        self.interrupt_ns = interrupt_ns;
        let now = (clock::monotonic_ns(), clock::own_cpu_ns());
        (self.reviewed, self.began, self.due) = (now, now, now.0 + FIRST_REVIEW_NS);
        let budget = self.budget?;
        self.hertz = rate(budget * (1.0 - RESERVE), self.interrupt_ns);
        Some(self.hertz)
    }

    /// Looks at our own cost from time to time, with how many samples of synchronous events `synchronous` says there were
    /// so far; returns what should change.
    pub(crate) fn review(&mut self, synchronous: impl FnOnce() -> u64) -> Option<Change> {
        let now = (clock::monotonic_ns(), clock::own_cpu_ns() + self.walks_ns);
        if self.synchronous == 0 && now.0 >= self.began.0 + FIRST_LOOK_NS && now.0 < self.due {
            return self.first_look(now.0, synchronous());
        }
        if now.0 < self.due {
            return None;
        }
        self.due = now.0 + REVIEW_NS;
        let elapsed = (now.0 - self.reviewed.0) as f64 * self.cpus;
        self.user_share = (now.1 - self.reviewed.1) as f64 / elapsed;
        self.reviewed = now;
        let so_far = synchronous();
        let new = so_far.saturating_sub(std::mem::replace(&mut self.synchronous, so_far));
        if let Some(asked) = self.asked {
            return only_thinner(thinner(new as f64 * 1e9 / elapsed, asked));
        }
        let budget = self.budget?;
        let synchronous = new as f64 * SYNCHRONOUS_NS / elapsed;
        let thinner = thinner(synchronous, (budget - self.user_share).max(budget / 4.0) * SYNCHRONOUS_PART);
        let left = budget - self.user_share - synchronous / thinner as f64;
        let hertz = self.next_rate(left.max(budget * INTERRUPT_PART));
        (hertz.is_some() || thinner > 1).then_some(Change { hertz, thinner })
    }

    fn first_look(&mut self, now: u64, synchronous: u64) -> Option<Change> {
        // Not again, even where there are none.
        self.synchronous = synchronous.max(1);
        let elapsed = (now - self.began.0) as f64 * self.cpus;
        only_thinner(match self.asked {
            Some(asked) => thinner(synchronous as f64 * 1e9 / elapsed, asked),
            None => thinner(synchronous as f64 * SYNCHRONOUS_NS / elapsed, self.budget? * SYNCHRONOUS_PART),
        })
    }

    /// Walks have taken so much time so far.
    pub(crate) fn walked(&mut self, ns: u64) {
        self.walks_ns = ns;
    }

    /// Why events are thinned.
    pub(crate) fn reason(&self) -> &'static str {
        if self.asked.is_some() { "to keep to the rate asked for" } else { "to stay within the budget" }
    }

    fn next_rate(&mut self, share: f64) -> Option<f64> {
        if self.interrupt_ns == 0.0 {
            return None;
        }
        let next = stepped(self.hertz, rate(share, self.interrupt_ns));
        let changed = (next - self.hertz).abs() > f64::EPSILON;
        self.hertz = next;
        changed.then_some(next)
    }

    /// The account for the recording, from all samples delivered so far and how many of them took no interrupt.
    pub(crate) fn cost(&self, delivered: u64, synchronous: u64) -> OwnCost {
        let elapsed = clock::monotonic_ns().saturating_sub(self.began.0).max(1) as f64 * self.cpus;
        let user_ns = clock::own_cpu_ns().saturating_sub(self.began.1);
        let synchronous = if self.all_synchronous { delivered } else { synchronous.min(delivered) };
        let interrupts = delivered - synchronous;
        let walks = self.walks_ns as f64;
        let stolen = interrupts as f64 * self.interrupt_ns + synchronous as f64 * SYNCHRONOUS_NS + walks;
        // Without the cost of a sample the share would be a half-truth: 0 stands for "not measured".
        let measured = self.interrupt_ns > 0.0 || self.all_synchronous;
        let share = if measured { (stolen + user_ns as f64) / elapsed } else { 0.0 };
        OwnCost { interrupt_ns: self.interrupt_ns, handler_ns: self.handler_ns, user_ns, share, budget: self.budget }
    }
}

/// What a review asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// A new rate.
    pub(crate) hertz: Option<f64>,
    /// How many times less often synchronous events are to be sampled.
    pub(crate) thinner: u64,
}

fn only_thinner(thinner: u64) -> Option<Change> {
    (thinner > 1).then_some(Change { hertz: None, thinner })
}

/// The power of two that brings a share within what it may be.
fn thinner(share: f64, allowed: f64) -> u64 {
    let steps = (share / allowed.max(1e-6)).log2().ceil().clamp(0.0, 20.0);
    if steps.is_finite() { 1 << steps as u32 } else { 1 }
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
    fn events_without_a_rate_are_thinned_until_they_fit() {
        assert_eq!([0.0, 0.004, 0.005].map(|share| thinner(share, 0.005)), [1, 1, 1]);
        assert_eq!([0.006, 0.01, 0.3].map(|share| thinner(share, 0.005)), [2, 2, 64]);
        assert_eq!(thinner(f64::NAN, 0.005), 1);
    }

    #[test]
    fn a_rate_asked_for_thins_events_too() {
        let mut governor = Governor::new(Pace::Hertz(500), 2, &[]);
        assert_eq!(governor.reason(), "to keep to the rate asked for");
        // 40,000 samples in a quarter of a second on two CPUs are 80,000 a second and CPU.
        let change = governor.first_look(governor.began.0 + FIRST_LOOK_NS, 40_000).expect("too many");
        assert_eq!((change.thinner, change.hertz), (256, None));
        assert!(governor.first_look(governor.began.0 + FIRST_LOOK_NS, 200).is_none());
    }

    #[test]
    fn walks_are_paid_from_the_budget() {
        let mut governor = Governor::new(Pace::Budget(0.03), 2, &[]);
        (governor.interrupt_ns, governor.hertz, governor.due) = (13_500.0, 1_000.0, 0);
        let without = governor.cost(0, 0).share;
        governor.walked(1 << 40);
        assert!(governor.cost(0, 0).share > without + 1.0, "they are told");
        let change = governor.review(|| 0).expect("much too much");
        assert!(change.hertz.is_some_and(|hertz| hertz < 600.0), "{change:?}");
    }

    #[test]
    fn a_budget_buys_a_rate() {
        assert!((rate(0.01, 13_500.0) - 740.7).abs() < 1.0);
        assert!((rate(0.01, 500.0) - f64::from(FULL_HERTZ)).abs() < 1e-9);
        assert!((rate(-1.0, 13_500.0) - LEAST_HERTZ).abs() < 1e-9);
    }
}
