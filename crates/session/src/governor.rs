//! Keeps sampling within a budget. What a sample costs is measured on this machine (in a virtual
//! machine the interrupt alone takes 6 to 13 us, design note 3.1), what walks take is counted as they end, and so is our own
//! CPU time; what the budget leaves is what rate and walks may spend. Constraint: the budget is that of the whole recording, so
//! what was overspent (a program's files are read once, its code learnt once) is paid back later. A cost is the part of the time of
//! what is recorded, not of all CPUs: walks of a program on one of 64 CPUs take all of theirs from it.

use crate::choose::FULL_HERTZ;
use crate::options::Pace;
use std::time::Duration;
use whither_kernel::clock;
use whither_kernel::gap::{self, Gaps};
use whither_sample::{Chosen, Collector, ENOUGH_WALKS, Taken, probe_own_thread};
use whither_store::model::{OwnCost, Slower};

/// How long the cost of a sample is measured.
const MEASURE: Duration = Duration::from_millis(60);
/// Costs are looked at when a recording has become twice as long since the last time, from here on, and this often in the
/// end. Events that no rate drives may come by the million a second, so it begins early.
const FIRST_REVIEW_NS: u64 = 250_000_000;
const REVIEW_NS: u64 = 4_000_000_000;
/// What was overspent is paid back until the next look, but not sooner than in this time.
const PAY_BACK_NS: u64 = 1_000_000_000;
/// Our own CPU time before this is mostly that of the beginning, which does not come again: it is paid back, not expected.
const BEGINNING_NS: u64 = 2_000_000_000;
/// Below this many samples a profile says nothing.
const LEAST_HERTZ: f64 = 20.0;
/// What a sample costs that takes no interrupt: a page fault took 250 to 360 ns longer with one (of 1,650).
const SYNCHRONOUS_NS: f64 = 300.0;
/// Of what an interrupt costs, the part that no jump of the clock shows: caches and predictors that have to be learnt anew. A loop of
/// dependent multiplications, one over 256 KiB of table and one of branches that are known by heart all lost 10 to 20 % more than the jumps
/// (Zen 4 VM, 4 kHz).
const UNSEEN: f64 = 0.2;
/// Synchronous events may take this part of a budget together before they are sampled less often.
const SYNCHRONOUS_PART: f64 = 0.5;
/// What samples and walks get of a budget in any case. Reading the files of many new programs takes most of a second once, and a
/// profile of 20 samples a second would be no profile: the cost is told, and the next look finds it gone.
const LEAST_PART: f64 = 0.25;
/// Of what samples and walks get, what walks may take: executions are known by walks, and with fewer samples than walks nothing is known
/// of what executions cost.
const WALKS_PART: f64 = 0.6;
/// Share of the budget set aside for our own process until its cost is known.
const RESERVE: f64 = 0.15;

/// The governor of one recording.
#[derive(Debug)]
pub(crate) struct Governor {
    budget: Option<f64>,
    /// Share that walks may take beside it.
    for_walks: f64,
    /// Samples per second and CPU that the user asked for.
    asked: Option<f64>,
    cpus: f64,
    /// Whether no sample takes an interrupt.
    all_synchronous: bool,
    interrupt_ns: f64,
    /// Within which it was found.
    interrupt_range_ns: (f64, f64),
    handler_ns: f64,
    began: u64,
    /// Our own CPU time when it began, ns.
    own_began: u64,
    last: Seen,
    /// When to look again.
    due: u64,
    hertz: f64,
}

/// What there was by some time, since the beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// ns since the beginning.
    elapsed: u64,
    /// Our own CPU time, ns.
    own_ns: u64,
    taken: Taken,
    /// Of the samples, those of synchronous events.
    synchronous: u64,
    /// Ticks that a CPU had which was always busy: idle ones sleep through theirs.
    ticks: f64,
}

impl Seen {
    fn since(&self, earlier: &Self) -> Self {
        let less = u64::saturating_sub;
        Self {
            elapsed: less(self.elapsed, earlier.elapsed),
            own_ns: less(self.own_ns, earlier.own_ns),
            taken: Taken {
                samples: less(self.taken.samples, earlier.taken.samples),
                of_target: less(self.taken.of_target, earlier.taken.of_target),
                walks: less(self.taken.walks, earlier.taken.walks),
                walks_ns: less(self.taken.walks_ns, earlier.taken.walks_ns),
                seconds: less(self.taken.seconds, earlier.taken.seconds),
            },
            synchronous: less(self.synchronous, earlier.synchronous),
            ticks: self.ticks - earlier.ticks,
        }
    }

    /// The part of all CPUs' time in which they run what is recorded. Not of all samples: CPUs that have nothing to do are interrupted or
    /// sleep on, as the kernel likes, and by those that came a program on one of two CPUs would seem to have both.
    fn busy(&self, cpus: f64) -> f64 {
        let Taken { samples, of_target, .. } = self.taken;
        if of_target == 0 || samples < TELLING {
            return 1.0;
        }
        (of_target as f64 / (samples as f64).max(self.ticks * cpus)).clamp(LEAST_BUSY, 1.0)
    }
}

impl Governor {
    /// A governor for this pace; measures nothing yet. `hertz` is 0 without an event that a rate drives.
    pub(crate) fn new(pace: Pace, cpus: usize, events: &[Chosen]) -> Self {
        let hertz = events.iter().find(|e| e.is_rated()).map_or(0.0, Chosen::hertz);
        let budget = if let Pace::Budget(b) = pace { Some(b) } else { None };
        let asked = if let Pace::Hertz(h) = pace { Some(f64::from(h)) } else { None };
        let mut governor = Self {
            budget,
            for_walks: 0.0,
            asked,
            cpus: cpus as f64,
            all_synchronous: events.iter().all(Chosen::is_synchronous),
            interrupt_ns: 0.0,
            interrupt_range_ns: (0.0, 0.0),
            handler_ns: 0.0,
            began: 0,
            own_began: 0,
            last: Seen::default(),
            due: 0,
            hertz,
        };
        governor.begin();
        governor
    }

    /// Walks may take a share of the time beside the budget.
    pub(crate) fn allow_walks(&mut self, share: f64) {
        self.for_walks = share;
    }

    /// From now on it counts.
    fn begin(&mut self) {
        (self.began, self.own_began) = (clock::monotonic_ns(), clock::own_cpu_ns());
        (self.last, self.due) = (Seen::default(), self.began + FIRST_REVIEW_NS);
    }

    /// Measures what one sample steals from the CPU this runs on, which must be sampled meanwhile;
    /// returns the rate that the budget buys, when a budget decides.
    pub(crate) fn measure(&mut self, collector: &Collector) -> Option<f64> {
        let mut gaps = None;
        let hertz = self.hertz;
        self.handler_ns = collector.handler_ns(|| gaps = gap::measure(MEASURE, hertz)).unwrap_or(0.0);
        self.buy(&gaps?)
    }

    /// The same before anything is opened, for rings of a target, which say nothing of this CPU: a ring on our own thread
    /// stands in for them. Processes keep the period that they inherit, so the rate is known before they can.
    pub(crate) fn measure_ahead(&mut self, events: &[Chosen]) -> Option<f64> {
        let probe = probe_own_thread(events)?;
        let gaps = gap::measure(MEASURE, self.hertz);
        drop(probe);
        self.buy(&gaps?)
    }

    fn buy(&mut self, gaps: &Gaps) -> Option<f64> {
        (self.interrupt_ns, self.interrupt_range_ns) = (gaps.mean_ns, gaps.range_ns);
        self.begin();
        let budget = self.budget?;
        self.hertz = rate(budget * (1.0 - RESERVE), self.interrupt_ns);
        Some(self.hertz)
    }

    /// Looks at what is spent from time to time: `taken` says what there was so far, and how many samples of
    /// synchronous events. Returns what should change.
    pub(crate) fn review(&mut self, taken: impl FnOnce() -> (Taken, u64)) -> Option<Change> {
        let now = clock::monotonic_ns();
        if now < self.due {
            return None;
        }
        let (taken, synchronous) = taken();
        let elapsed = now.saturating_sub(self.began);
        self.due = now + elapsed.clamp(FIRST_REVIEW_NS, REVIEW_NS);
        let own_ns = clock::own_cpu_ns().saturating_sub(self.own_began);
        self.reviewed(self.ticking(Seen { elapsed, own_ns, taken, synchronous, ticks: 0.0 }))
    }

    /// With the ticks until then.
    fn ticking(&self, seen: Seen) -> Seen {
        let more = self.hertz * seen.elapsed.saturating_sub(self.last.elapsed) as f64 / 1e9;
        Seen { ticks: self.last.ticks + more, ..seen }
    }

    fn reviewed(&mut self, all: Seen) -> Option<Change> {
        let new = all.since(&std::mem::replace(&mut self.last, all));
        let length = new.elapsed.max(1) as f64 * self.cpus;
        if let Some(asked) = self.asked {
            return only_thinner(thinner(new.synchronous as f64 * 1e9 / length, asked));
        }
        let budget = self.budget?;
        let own = if all.elapsed < BEGINNING_NS { budget * RESERVE } else { new.own_ns as f64 / length };
        let allowed = (budget + self.for_walks) * all.elapsed as f64 * self.cpus;
        let pay_back = all.elapsed.clamp(PAY_BACK_NS, REVIEW_NS);
        let debt = (self.spent(&all, self.interrupt_ns) - allowed).max(0.0) / (pay_back as f64 * self.cpus);
        let left = budget - own - debt;
        let synchronous = new.synchronous as f64 * SYNCHRONOUS_NS / length;
        let thinner = thinner(synchronous, left.max(budget * LEAST_PART) * SYNCHRONOUS_PART);
        let left = (left - synchronous / thinner as f64).max(budget * LEAST_PART);
        let walks = self.walks(&new, left);
        let hertz = self.next_rate(left - walks.as_ref().map_or(0.0, |w| (w.share - self.for_walks).max(0.0)));
        let walks = walks.map(|w| w.a_second);
        (hertz.is_some() || thinner > 1 || walks.is_some()).then_some(Change { hertz, thinner, walks })
    }

    /// What samples and walks have taken and we ourselves, ns of all CPUs, if they were all as busy with what is recorded. The
    /// interrupts of samples meet every CPU alike that is not asleep; walks only those that run what is recorded.
    fn spent(&self, seen: &Seen, interrupt_ns: f64) -> f64 {
        self.stolen(seen, interrupt_ns) + seen.own_ns as f64
    }

    /// The same without ourselves.
    fn stolen(&self, seen: &Seen, interrupt_ns: f64) -> f64 {
        let synchronous = seen.synchronous.min(seen.taken.samples);
        let samples = (seen.taken.samples - synchronous) as f64;
        let interrupts = samples.max(seen.ticks * self.cpus) + seen.taken.seconds as f64;
        let walks = seen.taken.walks_ns as f64 / seen.busy(self.cpus);
        interrupts * interrupt_ns + synchronous as f64 * SYNCHRONOUS_NS + walks
    }

    /// What walks may take of a share, if there are any. One takes 100 to 400 us, by how much of what it reads is in caches.
    fn walks(&self, new: &Seen, left: f64) -> Option<Walks> {
        let Taken { walks, walks_ns, .. } = new.taken;
        if walks == 0 {
            return None;
        }
        let each = (walks_ns as f64 / walks as f64).max(1.0) / (1e9 * self.cpus * new.busy(self.cpus));
        let wanted = ENOUGH_WALKS.max(walks as f64 * 1e9 / new.elapsed.max(1) as f64);
        let share = (left * WALKS_PART + self.for_walks).min(wanted * each);
        Some(Walks { a_second: share / each, share })
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

    /// The account for the recording, from all samples delivered so far, how many of them took no interrupt, walks, and what
    /// exact counts took from what is recorded, ns: at least and at most.
    pub(crate) fn cost(&self, delivered: u64, synchronous: u64, taken: Taken, counting_ns: (u64, u64)) -> OwnCost {
        let elapsed = clock::monotonic_ns().saturating_sub(self.began).max(1);
        let own_ns = clock::own_cpu_ns().saturating_sub(self.own_began);
        let synchronous = if self.all_synchronous { delivered } else { synchronous.min(delivered) };
        let taken = Taken { samples: delivered, ..taken };
        let seen = self.ticking(Seen { elapsed, own_ns, taken, synchronous, ticks: 0.0 });
        let length = elapsed as f64 * self.cpus;
        let stolen = |interrupt_ns: f64, counting_ns: u64| {
            (self.stolen(&seen, interrupt_ns) + counting_ns as f64 / seen.busy(self.cpus)) / length
        };
        // Without the cost of a sample the share would be a half-truth: 0 stands for "not measured".
        let measured = self.interrupt_ns > 0.0 || self.all_synchronous;
        let own = own_ns as f64 / length;
        let share = if measured { stolen(self.interrupt_ns, counting_ns.1) + own } else { 0.0 };
        let (least, most) = self.interrupt_range_ns;
        // Our own process takes nothing from the program while a CPU is free, and its share of a CPU's time where none is.
        let slower = measured.then(|| Slower {
            least: slow_down(stolen(least, counting_ns.0)),
            most: slow_down(stolen(most * (1.0 + UNSEEN), counting_ns.1) + own),
        });
        let (interrupt_ns, handler_ns) = (self.interrupt_ns, self.handler_ns);
        OwnCost { interrupt_ns, handler_ns, user_ns: own_ns, share, slower, budget: self.budget }
    }
}

/// How much longer takes what has lost this part of its time.
fn slow_down(lost: f64) -> f64 {
    const MOST: f64 = 0.99;
    let lost = lost.clamp(0.0, MOST);
    lost / (1.0 - lost)
}

/// Fewer samples do not tell which part of the CPUs runs what is recorded.
const TELLING: u64 = 100;
/// Less is not believed: most of it would be chance.
const LEAST_BUSY: f64 = 0.001;

/// Walks a second, of all CPUs, and the share of CPU time that they take.
struct Walks {
    a_second: f64,
    share: f64,
}

/// What a review asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// A new rate.
    pub(crate) hertz: Option<f64>,
    /// How many times less often synchronous events are to be sampled.
    pub(crate) thinner: u64,
    /// No more walks than so many a second, of all CPUs.
    pub(crate) walks: Option<f64>,
}

fn only_thinner(thinner: u64) -> Option<Change> {
    (thinner > 1).then_some(Change { hertz: None, thinner, walks: None })
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
        let so_far = |synchronous| Seen { elapsed: FIRST_REVIEW_NS, synchronous, ..Seen::default() };
        let change = governor.reviewed(so_far(40_000)).expect("too many");
        assert_eq!((change.thinner, change.hertz), (256, None));
        let mut governor = Governor::new(Pace::Hertz(500), 2, &[]);
        assert!(governor.reviewed(so_far(200)).is_none());
    }

    /// What a governor makes of a program on one of two CPUs whose walks take 200 us each and that costs us `own` of a CPU:
    /// what was spent of its time in so many seconds, and of all CPUs' by ourselves.
    fn spends(governor: &mut Governor, own: f64, seconds: u64) -> f64 {
        const STEP_NS: u64 = 50_000_000;
        let (mut seen, mut walks) = (Seen::default(), ENOUGH_WALKS);
        let mut due = FIRST_REVIEW_NS;
        while seen.elapsed < seconds * 1_000_000_000 {
            seen.elapsed += STEP_NS;
            seen.own_ns += (own * STEP_NS as f64) as u64;
            let samples = (governor.hertz * STEP_NS as f64 / 1e9) as u64;
            seen.taken.samples += 2 * samples;
            seen.taken.of_target += samples;
            let more = (walks * STEP_NS as f64 / 1e9).round() as u64;
            seen.taken.walks += more;
            seen.taken.walks_ns += more * 200_000;
            if seen.elapsed >= due {
                due = seen.elapsed + seen.elapsed.min(REVIEW_NS);
                walks = governor.reviewed(governor.ticking(seen)).and_then(|c| c.walks).unwrap_or(walks);
            }
        }
        // Each CPU is interrupted at this rate; walks meet the one that is busy.
        let (interrupts, walks) = (seen.taken.samples as f64 / 2.0 * governor.interrupt_ns, seen.taken.walks_ns as f64);
        (interrupts + walks) / seen.elapsed as f64 + own / 2.0
    }

    fn with_budget(budget: f64) -> Governor {
        let mut governor = Governor::new(Pace::Budget(budget), 2, &[]);
        (governor.interrupt_ns, governor.hertz) = (13_500.0, 2_000.0);
        governor
    }

    #[test]
    fn walks_are_paid_from_the_budget() {
        let spent = spends(&mut with_budget(0.03), 0.01, 20);
        assert!((0.02..0.031).contains(&spent), "{spent}");
        let spent = spends(&mut with_budget(0.01), 0.005, 20);
        assert!((0.005..0.0115).contains(&spent), "{spent}");
        let without = with_budget(0.03).cost(0, 0, Taken::default(), (0, 0)).share;
        let with = with_budget(0.03).cost(0, 0, Taken { walks_ns: 1 << 40, ..Taken::default() }, (0, 0)).share;
        assert!(with > without + 1.0, "they are told");
    }

    #[test]
    fn walks_may_have_a_share_of_their_own() {
        let (mut own, mut none) = (with_budget(0.03), with_budget(0.03));
        own.allow_walks(0.02);
        let spent = (spends(&mut own, 0.01, 20), spends(&mut none, 0.01, 20));
        assert!((0.042..0.051).contains(&spent.0) && spent.1 < 0.031, "{spent:?}");
        assert!((own.hertz / none.hertz - 1.0).abs() < 0.3, "samples are as many: {} {}", own.hertz, none.hertz);
    }

    #[test]
    fn exact_counts_are_told_as_part_of_the_programs_time() {
        let of = |counting_ns| {
            let mut governor = with_budget(0.03);
            // Ten seconds, on one of two CPUs.
            governor.began = clock::monotonic_ns() - 10_000_000_000;
            let taken = Taken { samples: 40_000, of_target: 20_000, ..Taken::default() };
            governor.cost(40_000, 0, taken, (0, counting_ns))
        };
        let told = of(500_000_000).share - of(0).share;
        assert!((told - 0.05).abs() < 0.002, "{told}");
        let slower = of(500_000_000).slower.expect("told");
        assert!(
            slower.least < 0.01 && slower.most > 0.05,
            "what may be lost is not what is lost for certain: {slower:?}"
        );
    }

    /// A program that keeps one of two CPUs busy for ten seconds, at 2 kHz; the other CPU sleeps through its ticks or does not.
    #[test]
    fn a_program_loses_the_same_whether_idle_cpus_sleep_or_not() {
        let of = |idle: u64| {
            let mut governor = with_budget(0.03);
            governor.interrupt_range_ns = (12_000.0, 15_000.0);
            governor.began = clock::monotonic_ns() - 10_000_000_000;
            (governor.own_began, governor.cpus) = (clock::own_cpu_ns(), 2.0);
            let samples = 20_000 + idle;
            let taken = Taken { samples, of_target: 20_000, walks: 2_500, walks_ns: 500_000_000, seconds: 8_000 };
            governor.cost(samples, 0, taken, (0, 0))
        };
        // Interrupts take 13.5 us of each half millisecond and of each 2.5, walks a twentieth of its time.
        let lost = 0.0135 * 2.4 + 0.05;
        for idle in [0, 9_000, 20_000] {
            let told = of(idle);
            assert!((told.share - lost).abs() < 0.001, "{idle} {told:?}");
            let (slower, truth) = (told.slower.expect("told"), lost / (1.0 - lost));
            assert!(slower.least < truth && truth < slower.most, "{idle} {slower:?}");
        }
    }

    #[test]
    fn a_program_that_costs_much_gets_its_least_part() {
        let mut governor = with_budget(0.03);
        let spent = spends(&mut governor, 0.06, 20);
        assert!((0.03..0.042).contains(&spent), "{spent}");
        assert!(governor.hertz > 100.0, "{}", governor.hertz);
    }

    #[test]
    fn what_was_overspent_is_paid_back() {
        let mut governor = with_budget(0.03);
        let seen = |elapsed: u64, own_ns| Seen { elapsed: elapsed * 1_000_000_000, own_ns, ..Seen::default() };
        let wanted = |c: Option<Change>| c.and_then(|c| c.hertz);
        // A second of our own time at the beginning, and nothing later.
        assert!(wanted(governor.reviewed(seen(4, 1_000_000_000))).is_some_and(|h| h < 600.0));
        assert!(wanted(governor.reviewed(seen(14, 1_000_000_000))).is_some_and(|h| h > 600.0), "{}", governor.hertz);
        assert!(wanted(governor.reviewed(seen(24, 1_000_000_000))).is_some_and(|h| h > 1_500.0), "{}", governor.hertz);
    }

    #[test]
    fn a_budget_buys_a_rate() {
        assert!((rate(0.01, 13_500.0) - 740.7).abs() < 1.0);
        assert!((rate(0.01, 500.0) - f64::from(FULL_HERTZ)).abs() < 1e-9);
        assert!((rate(-1.0, 13_500.0) - LEAST_HERTZ).abs() < 1e-9);
    }
}
