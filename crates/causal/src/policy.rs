//! Which experiment comes next: a state machine without clock, process or global state. Equal options and
//! equal observations give equal steps, so that a run can be replayed.
//!
//! Part of the windows is always the paper's lottery: the target of a recent sample, an amount without memory.
//! The rest comes in blocks, which are laid down at the beginning of a stratum from what earlier strata told, and
//! never change within it: given the past, each stratum is a randomised experiment of fixed design, so more
//! windows for a promising target make its interval narrower and leave its mean unbiased.

mod allocation;
mod length;

use crate::carry::{self, SETTLE};
use crate::options::{DoneReason, Order, PolicyKind, PolicyOptions, Step};
use crate::pauses::Pauses;
use crate::series::{Measure, value};
use allocation::{Amounts, Candidate, Planned};
use length::{Length, VISITS};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use whither_stats::random::Random;
use whither_store::causal::{Selection, Unit, Window};

/// Of all windows, at least.
const LOTTERY: f64 = 0.3;
/// Samples among which the lottery draws.
const RECENT: usize = 512;
/// Samples of a stratum that tell what share its targets have.
const SEEN: f64 = 200.0;
/// Windows between two looks at whether it is.
const LOOKS: usize = 16;
/// Strata from here on are as long as the options say; earlier ones are shorter, so that the first allocation
/// by results comes soon.
const SHORT_STRATA: u32 = 2;

/// The state machine.
#[derive(Clone, Debug)]
pub struct Policy {
    options: PolicyOptions,
    amounts: Amounts,
    random: Random,
    phase: Phase,
    began_ns: Option<u64>,
    seen: u64,
    all: Shares,
    /// Of this stratum.
    lately: Shares,
    recent: VecDeque<u32>,
    known: FxHashMap<u32, Known>,
    /// Windows that count, for the allocation.
    windows: Vec<Window>,
    /// Target and amount of the window before each of them.
    before: Vec<Option<(u32, u8)>>,
    last: Option<(u32, u32, u8)>,
    /// Into `SETTLE`.
    settle: usize,
    stratum: u32,
    stratum_ends: u64,
    /// Blocks of this stratum, shuffled; taken from the end.
    plan: Vec<Planned>,
    /// By how much windows are longer than the shortest.
    length: Length,
    /// Mean time from one window to the next.
    pace_ns: f64,
    last_wall_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Warm,
    Ready,
    /// A window was ordered.
    Running,
    /// It is over, its pause is due.
    Over,
}

/// Samples of a time: their weight, in all and by target.
#[derive(Clone, Debug, Default)]
struct Shares {
    total: f64,
    weights: FxHashMap<u32, f64>,
}

impl Shares {
    fn add(&mut self, target: Option<u32>, weight: u32) {
        self.total += f64::from(weight);
        if let Some(target) = target {
            *self.weights.entry(target).or_default() += f64::from(weight);
        }
    }

    fn of(&self, target: u32) -> f64 {
        self.weights.get(&target).copied().unwrap_or(0.0) / self.total.max(1.0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    unit: Unit,
    parent: Option<u32>,
}

impl Policy {
    /// In its warm-up.
    #[must_use]
    pub fn new(options: PolicyOptions) -> Self {
        Self {
            amounts: amounts(&options),
            random: Random::new(options.seed),
            phase: Phase::Warm,
            began_ns: None,
            seen: 0,
            all: Shares::default(),
            lately: Shares::default(),
            recent: VecDeque::with_capacity(RECENT),
            known: FxHashMap::default(),
            windows: Vec::new(),
            before: Vec::new(),
            last: None,
            settle: 0,
            stratum: 0,
            stratum_ends: 0,
            plan: Vec::new(),
            length: Length::new(),
            pace_ns: options.min_window_ns as f64,
            last_wall_ns: 0,
            options,
        }
    }

    /// Makes a target known, before it is sampled: its kind, and for lines and callers the function they
    /// refine. Targets that were not made known count as functions.
    pub fn declare(&mut self, target: u32, unit: Unit, parent: Option<u32>) {
        self.known.insert(target, Known { unit, parent });
    }

    /// A sample, resolved; one that belongs to several targets is passed for each.
    pub fn sampled(&mut self, _at_ns: u64, target: Option<u32>, weight: u32) {
        self.seen = self.seen.saturating_add(u64::from(weight.max(1)));
        self.all.add(target, weight);
        self.lately.add(target, weight);
        let Some(target) = target else { return };
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(target);
    }

    /// What to do at this time. `rates`: visits per second by point. Asked again without
    /// [`Policy::finished`] after an order, it takes the window for lost.
    pub fn next(&mut self, at_ns: u64, rates: &[f64]) -> Step {
        let began = *self.began_ns.get_or_insert(at_ns);
        let age = at_ns.saturating_sub(began);
        if self.options.max_ns.is_some_and(|max| age >= max) {
            return Step::Done(DoneReason::Time);
        }
        match self.phase {
            Phase::Warm if age < self.options.warm_ns && self.seen < self.options.warm_samples => {
                return Step::Warm { ns: (self.options.warm_ns - age).min(20_000_000) };
            }
            Phase::Over => {
                self.phase = Phase::Ready;
                return Step::Rest { ns: self.pause() };
            }
            _ => {}
        }
        if self.is_narrow() {
            return Step::Done(DoneReason::Narrow);
        }
        let Some((planned, selection, probability)) = self.choose(at_ns, began) else {
            return Step::Warm { ns: 20_000_000 };
        };
        self.phase = Phase::Running;
        Step::Window(self.order(&planned, selection, probability, self.min_ns(age, rates)))
    }

    /// What came of an order.
    pub fn finished(&mut self, window: &Window) {
        self.phase = Phase::Over;
        let settled = self.settle_ns(window.wall_ns.min(self.options.max_window_ns));
        self.last_wall_ns = window.wall_ns.saturating_add(window.drain_ns).saturating_add(settled);
        let took = self.last_wall_ns as f64 + self.pause() as f64;
        self.pace_ns += (took - self.pace_ns) * 0.2;
        if self.length.learn(window, &self.options) {
            // What made few visits is over: the program without speed-up is another one from here on.
            self.stratum_ends = 1;
        }
        if window.dropped.is_none() && value(window, Measure::Period(0)).is_some() {
            let of_this_run = self.last.filter(|(run, ..)| *run == window.run);
            self.before.push(of_this_run.map(|(_, target, percent)| (target, percent)));
            self.windows.push(window.clone());
            self.look_behind();
            self.look_for_pauses();
        }
        self.last = Some((window.run, window.target, window.percent));
    }

    /// Gives the program more time to settle where windows show traces of those before them, and begins anew.
    fn look_behind(&mut self) {
        if self.settle + 1 >= SETTLE.len() || !self.windows.len().is_multiple_of(LOOKS) {
            return;
        }
        let windows: Vec<carry::Followed<'_>> = self.windows.iter().zip(self.before.iter().copied()).collect();
        if carry::traces(&windows).is_some_and(|c| c.may_matter()) {
            self.settle += 1;
            self.anew();
            self.stratum = (self.stratum / carry::SETTLED + 1) * carry::SETTLED - 1;
        }
    }

    /// Makes windows longer where they cut off pauses of the program, and begins anew.
    fn look_for_pauses(&mut self) {
        let (shortest, longest) = (self.options.min_window_ns.max(1), self.options.max_window_ns);
        if self.windows.is_empty() || !self.windows.len().is_multiple_of(LOOKS) {
            return;
        }
        let Some(wanted) = Pauses::of(self.windows.iter(), 0).and_then(|p| p.wanted_ns()) else { return };
        let stretch = (wanted.min(longest) / shortest).max(1).next_power_of_two();
        if self.length.times().saturating_mul(shortest) < longest && self.length.demand(stretch) {
            self.anew();
        }
    }

    /// Forgets all windows, since later ones do not go together with them; the next stratum begins at once.
    pub fn anew(&mut self) {
        self.windows.clear();
        self.before.clear();
        self.stratum_ends = 1;
    }

    /// Time to settle before a window of such a length.
    fn settle_ns(&self, ns: u64) -> u64 {
        (ns as f64 * SETTLE[self.settle.min(SETTLE.len() - 1)]) as u64
    }

    /// Between two windows.
    fn pause(&self) -> u64 {
        let least = match self.options.policy {
            PolicyKind::Paper => self.options.cool_off_ns.max(10_000_000),
            PolicyKind::Adaptive => self.options.cool_off_ns,
        };
        let duty = u64::from(self.options.duty_percent.clamp(1, 100));
        least.max(self.last_wall_ns.saturating_mul(100 - duty) / duty)
    }

    fn choose(&mut self, at_ns: u64, began: u64) -> Option<(Planned, Selection, f64)> {
        if self.windows.is_empty() && self.stratum_ends == 0 || at_ns >= self.stratum_ends {
            self.begin_stratum(at_ns, began);
        }
        if let Some(target) = self.options.fixed_target {
            let percent = self.lot();
            return Some((Planned { target, percent }, Selection::Fixed, 1.0));
        }
        let lottery = if self.plan.is_empty() { 1.0 } else { LOTTERY };
        let by_lot = self.random.chance(lottery);
        if by_lot && self.recent.is_empty() {
            return None;
        }
        let planned = if by_lot {
            // A moment at random, not what runs right after a pause.
            let target = self.recent[self.random.below(self.recent.len())];
            Planned { target, percent: self.lot() }
        } else {
            self.plan.pop()?
        };
        let selection = match (by_lot, self.options.fixed_percent) {
            (_, Some(_)) => Selection::Fixed,
            (true, None) => Selection::Lottery,
            (false, None) => Selection::Block,
        };
        Some((planned, selection, self.probability(planned, by_lot, lottery)))
    }

    /// Probability with which this target had been chosen.
    fn probability(&self, chosen: Planned, by_lot: bool, lottery: f64) -> f64 {
        let recent = self.recent.iter().filter(|t| **t == chosen.target).count() as f64;
        let lot = if self.recent.is_empty() { 0.0 } else { recent / self.recent.len() as f64 };
        // The plan as it was before this window was taken from it.
        let taken = usize::from(!by_lot);
        let planned = self.plan.iter().filter(|p| p.target == chosen.target).count() + taken;
        let all = self.plan.len() + taken;
        let block = if all == 0 { 0.0 } else { planned as f64 / all as f64 };
        lottery * lot + (1.0 - lottery) * block
    }

    /// An amount without memory: 0 half of the time, the others evenly.
    fn lot(&mut self) -> u8 {
        if self.amounts.all.is_empty() || self.random.chance(0.5) {
            return 0;
        }
        self.amounts.all[self.random.below(self.amounts.all.len())]
    }

    /// How long the next window is at least. That visits are rare is believed for half the time for which they were seen to be: a
    /// few of them while a program starts make no long window that reaches far into what comes after.
    fn min_ns(&self, age: u64, rates: &[f64]) -> u64 {
        let rate = rates.first().copied().filter(|r| r.is_finite() && *r > 0.0);
        let wanted = rate.map_or(0.0, |r| 1e9 * VISITS / r) as u64;
        let shortest = self.options.min_window_ns;
        let wanted = wanted.min(age / 2).max(shortest.saturating_mul(self.length.times()));
        wanted.min(self.options.max_window_ns)
    }

    fn order(&self, planned: &Planned, selection: Selection, probability: f64, min_ns: u64) -> Order {
        Order {
            target: planned.target,
            percent: planned.percent,
            settle_ns: self.settle_ns(min_ns),
            min_ns,
            max_ns: min_ns.saturating_mul(2).min(self.options.max_window_ns).max(min_ns),
            min_visits: self.options.min_visits,
            selection,
            probability,
            stratum: self.stratum,
        }
    }

    fn begin_stratum(&mut self, at_ns: u64, began: u64) {
        if self.stratum_ends != 0 {
            self.stratum += 1;
        }
        let length = match self.stratum % carry::SETTLED {
            0..SHORT_STRATA => self.options.stratum_ns / 4,
            _ => self.options.stratum_ns,
        };
        let length = length.max(self.options.min_window_ns);
        self.stratum_ends = at_ns.saturating_add(length).max(began + 1);
        self.plan.clear();
        let lately = std::mem::take(&mut self.lately);
        let by_blocks = self.options.policy == PolicyKind::Adaptive && self.options.fixed_target.is_none();
        if by_blocks && !self.amounts.all.is_empty() {
            let windows = length as f64 / self.pace_ns.max(1.0) * (1.0 - LOTTERY);
            let candidates = self.candidates(&lately);
            self.plan = allocation::plan(&candidates, windows, &self.amounts, &mut self.random);
        }
    }

    /// Targets that blocks are made for: functions, and what refines a function that matters. Those of the whole run, each with
    /// its share of the last stratum: what ran while the program started may come again, but its share then is past.
    fn candidates(&self, lately: &Shares) -> Vec<Candidate> {
        let lately = if lately.total < SEEN { &self.all } else { lately };
        let mut targets: Vec<u32> = self.all.weights.keys().copied().collect();
        targets.retain(|target| self.all.of(*target) >= allocation::LEAST_SHARE);
        targets.sort_unstable();
        let estimates = allocation::estimates(&self.windows, &self.options);
        let refines = |target: u32| match self.known.get(&target) {
            Some(Known { unit: Unit::Line | Unit::Path, parent: Some(parent) }) => Some(*parent),
            _ => None,
        };
        let matters = |target: u32| {
            refines(target).is_none_or(|parent| estimates.get(&parent).is_some_and(allocation::Range::matters))
        };
        targets
            .iter()
            .filter(|target| matters(**target))
            .map(|&target| Candidate { target, share: lately.of(target), estimate: estimates.get(&target).copied() })
            .collect()
    }

    /// Whether intervals are as narrow as was asked for: of the targets with most samples, whatever their
    /// estimates are.
    fn is_narrow(&self) -> bool {
        let Some(wanted) = self.options.until_points else { return false };
        if self.windows.len() < 12 || !self.windows.len().is_multiple_of(4) {
            return false;
        }
        let estimates = allocation::estimates(&self.windows, &self.options);
        let mut top: Vec<(&u32, &f64)> = self.all.weights.iter().collect();
        top.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
        let narrow = |t: &u32| estimates.get(t).is_some_and(|e| (e.high - e.low) * 50.0 <= wanted);
        match self.options.fixed_target {
            Some(target) => narrow(&target),
            None => !top.is_empty() && top.iter().take(3).all(|(t, _)| narrow(t)),
        }
    }
}

/// Amounts other than 0.
fn amounts(options: &PolicyOptions) -> Amounts {
    let assume = options.fixed_percent.unwrap_or(options.assume);
    let mut all: Vec<u8> = match (options.fixed_percent, options.speedups.as_slice()) {
        (Some(percent), _) => vec![percent],
        (None, []) => (1..=20).map(|i| 5 * i).collect(),
        (None, given) => given.to_vec(),
    };
    all.iter_mut().for_each(|p| *p = (*p).min(100));
    all.retain(|p| *p > 0);
    all.sort_unstable();
    all.dedup();
    Amounts { all, assume }
}

#[cfg(test)]
mod tests;
