//! What limits the trust in a run: windows that others disturbed, a program that drifts, too many threads for
//! the cores, load that comes from outside. The rules that drop a window use nothing that its speed-up
//! influences, else dropping would bias what remains.

use crate::analyse::Analysis;
use crate::asked;
use crate::carry::Carried;
use crate::clocked;
use crate::crowd;
use crate::fixed_time;
use crate::options::AnalyseOptions;
use crate::outside;
use crate::pauses::Pauses;
use crate::results::{DriftRow, DroppedRow, OverheadRow};
use crate::series::{Baselines, Measure, length, value};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use whither_stats::distribution::{normal_two_sided, student_quantile};
use whither_stats::interval::share_at;
use whither_store::causal::{CHEAPER_POINT, CausalRun, DropReason, Executor, LoadKind, Window};

/// Above this share of dropped windows nothing is said.
const TOO_MANY_DROPPED: f64 = 0.3;
/// Part of their time that threads wait for a core behind one another, above which a spin in a thread's
/// place takes a core from another one.
pub(crate) const OVERSUBSCRIBED: f64 = 0.05;
/// More of the windows with speed-up than this without their delays paid are told.
const TOO_MANY_UNPAID: f64 = 0.05;
/// Above this part of the time per visit, left over from the window before, nothing is said.
const TOO_MUCH_CARRIED: f64 = 0.05;
/// Ticks that take more of the time than this are told.
const DEAR_TICKS: f64 = 0.02;

/// Without BPF effects beyond a knee are told too small: as root by up to 3.3 points, as an ordinary user by up to 4.0 (K2, K3).
const AGENT_MISSES: f64 = 0.04;
/// So do naps of threads that BPF sends to sleep, by less: on average by 1.8 points in eight runs of K20 `feed`, by 1.3 and 1.4 in
/// K3 and K4.
const NAPS_MISS: f64 = 0.02;
/// Both were seen in full from here on.
const MISSED_FROM: f64 = 30.0;

/// Part of an effect that may be wrong where threads always wait for cores and delays are slept: who gets the core that a sleeper
/// has left runs in a time that was to stand still. Six independent threads on two cores (K10) had 19 to 23 points at 30 %
/// and 32 to 35 at 45 % for 18 and 27; four with a lock (K4) 13 to 17 for 16.
const SLEPT_MISTOLD: f64 = 0.25;

/// What may be told wrongly of an effect since naps cost their threads some microseconds beside themselves.
pub(crate) fn naps_miss(run: &CausalRun, percent: u8) -> f64 {
    let part = (f64::from(percent) / MISSED_FROM).min(1.0);
    match run.meta.executor {
        Executor::Agent => AGENT_MISSES * part,
        Executor::Sleep => NAPS_MISS * part,
        Executor::Spin => 0.0,
    }
}

/// Whether a window counts.
pub(crate) fn counts(window: &Window, options: &AnalyseOptions) -> bool {
    window.dropped.is_none() || (spoilt(window) && !is_disturbed(window, options))
}

/// Part of the time from which on breakpoints of points are told of.
const DEAR_POINTS: f64 = 0.04;
/// And from which on nothing can be said: what they take is charged to the code around them, too.
const DEAREST_POINTS: f64 = 0.15;

/// Whether others disturbed it so that it does not count.
pub(crate) fn is_disturbed(window: &Window, options: &AnalyseOptions) -> bool {
    spoilt(window) && !options.keep_disturbed
}

fn spoilt(window: &Window) -> bool {
    matches!(window.dropped, Some(DropReason::ForeignLoad | DropReason::Steal))
}

/// Of a whole run.
#[derive(Clone, Debug)]
pub(crate) struct Quality {
    pub(crate) load: LoadKind,
    pub(crate) load_reason: String,
    /// It waits for the outside, and nobody knows whether that waits for it.
    pub(crate) waits_outside: Option<outside::Hangs>,
    pub(crate) warnings: Vec<String>,
    /// Why no verdict can be given.
    pub(crate) cannot_say: Option<String>,
    oversubscribed: bool,
    /// The same, with delays that slept.
    slept_on: bool,
    /// What is told of windows whose delays could not be paid, where they are many.
    unpaid: Option<String>,
    /// Part of an effect that may be wrong because threads wait for one another without the kernel.
    spun_past: f64,
    /// Part of the program's time that breakpoints of points take.
    pub(crate) points: f64,
    /// What the window before makes of a window, as an error of effects.
    pub(crate) carried: f64,
    /// Figures would be those of another program: none are told.
    pub(crate) is_void: bool,
}

impl Quality {
    pub(crate) fn of(run: &CausalRun, kept: &[&Window], carried: Option<Carried>, pauses: Option<Pauses>) -> Self {
        let (load, load_reason) = load(run, kept);
        let mut quality = Self {
            load,
            load_reason,
            waits_outside: outside::undecided(run, kept, load),
            warnings: Vec::new(),
            cannot_say: None,
            oversubscribed: false,
            unpaid: None,
            slept_on: false,
            spun_past: 0.0,
            points: 0.0,
            carried: 0.0,
            is_void: false,
        };
        quality.warnings.extend(quality.waits_outside.map(outside::told));
        let fixed = Some(&quality.load_reason).filter(|r| *r == fixed_time::FIXED).cloned();
        quality.warnings.extend(fixed);
        if fixed_time::is_whole(run) && load == LoadKind::Unknown {
            quality.warnings.push(fixed_time::NOT_SHOWN.to_owned());
        } else {
            quality.warnings.extend(Some(&quality.load_reason).filter(|r| *r == ONE_UNCHANGED).cloned());
        }
        quality.back_end(run);
        quality.disturbance(run);
        quality.points(run);
        quality.unpaid(run);
        quality.goroutines(run);
        quality.threads(run, kept);
        quality.spinning(run, kept);
        quality.trend(kept);
        quality.carried(carried);
        quality.warnings.extend(pauses.map(|p| p.told() + "; intervals allow for it"));
        quality
    }

    /// Why harm cannot be told where windows are missing since their delays could not be paid: others waited for who had to.
    pub(crate) fn unpaid_told(&self) -> Option<String> {
        let why = |seen: &String| {
            format!(
                "it looks slower, but {seen}: threads that wait for one that cannot pay look like harm; try the change itself \
                 (`whither causal verify`)"
            )
        };
        self.unpaid.as_ref().map(why)
    }

    /// Whether intervals are.
    pub(crate) fn is_doubled(&self) -> bool {
        self.oversubscribed
    }

    /// An interval, doubled where spinning stood in other threads' way.
    pub(crate) fn widened(&self, y: f64, (low, high): (f64, f64)) -> (f64, f64) {
        if self.oversubscribed { (2.0 * low - y, 2.0 * high - y) } else { (low, high) }
    }

    /// What may be wrong of an effect for delays that slept while others waited for their cores, or that came behind a lock for which
    /// threads spin.
    pub(crate) fn mistold(&self, y: f64) -> f64 {
        let slept = if self.slept_on { SLEPT_MISTOLD } else { 0.0 };
        (slept.max(self.spun_past) + self.points / (1.0 - self.points)) * y.abs()
    }

    /// A program that does little between two visits is slowed down by the breakpoints: effects are relative to a time that is too
    /// long, and the code around the point seems to take what they take.
    fn points(&mut self, run: &CausalRun) {
        let share = overhead(run).map_or(0.0, |o| o.points);
        self.points = share.min(DEAREST_POINTS);
        if share <= DEAR_POINTS {
            return;
        }
        let seen = format!("breakpoints of progress points take some {:.0} % of the program's CPU time", 100.0 * share);
        if share > DEAREST_POINTS {
            let why = format!("{seen}: it is another program; {CHEAPER_POINT}");
            self.warnings.push(why.clone());
            self.cannot_say = Some(why);
        } else {
            self.warnings.push(format!("{seen}: intervals allow for it; {CHEAPER_POINT}"));
        }
    }

    /// Spinners take what they wait for at once, and pay what they owe at the next tick, behind it: the shorter turns are, the more
    /// of the effect is lost. Measured with spin locks: of 65 points 27 were missing with a round of 3.2 ticks, none with 32; with
    /// rounds far below a tick two thirds of all.
    fn spinning(&mut self, run: &CausalRun, kept: &[&Window]) {
        let plain = kept.iter().filter(|w| w.percent == 0);
        let (wall, visits) = plain.fold((0.0, 0.0), |(wall, visits), w| {
            (wall + w.wall_ns as f64, visits + w.visits.first().map_or(0.0, |v| v.visits as f64))
        });
        let ticks = wall / visits / run.tick_ns().max(1) as f64;
        // What may be more than the threshold is not known to be less.
        let in_earnest = if ticks < 1.0 { SPINNING_SHORT } else { SPINNING };
        // One thread waits for nobody in that way; its loops that look so wait for memory that it changes itself.
        let alone = run.meta.threads == 1;
        if alone || spun_at_most(run) < in_earnest || !ticks.is_finite() || SPUN_PAST / ticks < LITTLE_SPUN {
            return;
        }
        self.spun_past = (SPUN_PAST / ticks).min(1.0);
        let how = format!(
            "threads spin {:.0} % of the time, waiting for others without the kernel, and a round takes {ticks:.1} ticks",
            100.0 * run.overhead.spun
        );
        if ticks < 1.0 {
            let why = format!("{how}: delays cannot follow; try the change itself");
            self.warnings.push(why.clone());
            self.cannot_say.get_or_insert(why);
        } else {
            self.warnings.push(format!(
                "{how}: effects may be told too small by {:.0} % of themselves, and intervals allow for that",
                100.0 * self.spun_past
            ));
        }
    }

    fn back_end(&mut self, run: &CausalRun) {
        if run.meta.executor == Executor::Agent {
            self.warnings.push(format!(
                "measured without BPF: effects may be told {:.0} points too small, and intervals allow for that",
                100.0 * AGENT_MISSES
            ));
        }
    }

    fn disturbance(&mut self, run: &CausalRun) {
        let judged: Vec<&Window> = run.windows.iter().filter(|w| w.dropped.is_none() || spoilt(w)).collect();
        let (mut zeros, mut others) = ((0.0, 0.0), (0.0, 0.0));
        for window in &judged {
            let side = if window.percent == 0 { &mut zeros } else { &mut others };
            side.0 += f64::from(u8::from(spoilt(window)));
            side.1 += 1.0;
        }
        let dropped = zeros.0 + others.0;
        let share = dropped / (judged.len() as f64).max(1.0);
        if share > TOO_MANY_DROPPED {
            let why = format!(
                "other work on the machine disturbed {:.0} % of the windows; repeat on a quiet machine, or keep CPUs free for \
                 the program (taskset)",
                100.0 * share
            );
            self.warnings.push(why.clone());
            self.cannot_say = Some(why);
        } else if share > 0.0 && unequal(zeros, others) {
            self.warnings.push(format!(
                "windows with speed-up were dropped for foreign load more or less often ({:.0} of {:.0}) than those without \
                 ({:.0} of {:.0}): what remains may be biased",
                others.0, others.1, zeros.0, zeros.1
            ));
        }
    }

    /// A goroutine that goes on in another thread leaves there what it has paid.
    fn goroutines(&mut self, run: &CausalRun) {
        if run.meta.goroutines_move {
            let why = "goroutines of the program change threads, and delays are of threads: who has to pay is lost on the way; \
                       lock them to threads while measuring (runtime.LockOSThread), or try the change itself (`whither causal \
                       verify`)";
            self.warnings.push(why.to_owned());
            self.cannot_say = Some(why.to_owned());
            self.is_void = true;
        }
    }

    /// Windows whose delays could not be paid are those with many delays: what remains had fewer.
    fn unpaid(&mut self, run: &CausalRun) {
        // There it is unknown what effects look like.
        if run.meta.goroutines_move {
            return;
        }
        let judged = || run.windows.iter().filter(|w| w.percent > 0);
        let unpaid = judged().filter(|w| w.dropped == Some(DropReason::NotDrained)).count() as f64;
        let all = judged().filter(|w| w.dropped.is_none()).count() as f64 + unpaid;
        if unpaid > 2.0 && unpaid / all > TOO_MANY_UNPAID {
            let seen = format!("delays could not be paid in {unpaid:.0} of {all:.0} windows with speed-up");
            self.warnings.push(format!(
                "{seen}, and those were dropped: the ones with most delays are missing, so effects may look smaller than they are"
            ));
            self.unpaid = Some(seen);
        }
    }

    fn threads(&mut self, run: &CausalRun, kept: &[&Window]) {
        let time: f64 = kept.iter().map(|w| w.wall_ns as f64 * f64::from(w.threads.max(1))).sum();
        let waited: f64 = kept.iter().map(|w| w.own_wait_ns as f64).sum();
        if time <= 0.0 || waited / time <= OVERSUBSCRIBED {
            return;
        }
        if run.meta.executor == Executor::Agent {
            let why = format!(
                "threads of the program waited {:.0} % of their time for a core behind one another, and without BPF nobody \
                 sees behind whom; measure with more cores, fewer threads, or BPF",
                100.0 * waited / time
            );
            self.warnings.push(why.clone());
            self.cannot_say = Some(why);
        } else if run.meta.executor == Executor::Spin {
            self.oversubscribed = true;
            self.warnings.push(format!(
                "spin on an oversubscribed machine: threads of the program waited {:.0} % of their time for a core behind \
                 one another; intervals are doubled",
                100.0 * waited / time
            ));
        } else {
            self.slept_on = true;
            self.warnings.push(format!(
                "threads of the program waited {:.0} % of their time for a core behind one another: which core a thread gets in a \
                 faster program is the scheduler's choice, and not foreseen; effects may be told wrongly by a quarter of \
                 themselves, and intervals allow for that",
                100.0 * waited / time
            ));
        }
    }

    /// Queues that a speed-up filled, and the like.
    fn carried(&mut self, carried: Option<Carried>) {
        let Some(carried) = carried else { return };
        self.carried = carried.bias.abs();
        let seen = format!(
            "what one experiment does to the program is still seen in the next one ({:.0} % of the time per visit: a long \
             queue, a cache)",
            100.0 * self.carried
        );
        if self.carried > TOO_MUCH_CARRIED {
            let why = format!("{seen}; measure longer, with longer windows (--window 1s)");
            self.warnings.push(why.clone());
            self.cannot_say = Some(why);
        } else {
            self.warnings.push(format!("{seen}: intervals allow for it; longer windows help (--window 1s)"));
        }
    }

    /// Whether the program itself gets slower or faster.
    fn trend(&mut self, kept: &[&Window]) {
        let zeros: Vec<(f64, f64)> = kept
            .iter()
            .filter(|w| w.percent == 0)
            .filter_map(|w| Some((w.begin_ns as f64, value(w, Measure::Period(0))?.0)))
            .collect();
        if let Some((change, certain)) = trend(&zeros)
            && certain
            && change.abs() > 0.03
        {
            self.warnings.push(format!(
                "the program drifts: time per visit without speed-up changed by {:+.0} % from the first window to the last; \
                 effects are relative to their own part of the run",
                100.0 * change
            ));
        }
    }
}

/// Two shares differ by more than chance.
fn unequal(a: (f64, f64), b: (f64, f64)) -> bool {
    if a.1 < 1.0 || b.1 < 1.0 {
        return false;
    }
    let p = (a.0 + b.0) / (a.1 + b.1);
    let error = (p * (1.0 - p) * (1.0 / a.1 + 1.0 / b.1)).sqrt();
    error > 0.0 && normal_two_sided((a.0 / a.1 - b.0 / b.1).abs() / error) < 0.01
}

/// Relative change of values over their time by a regression line, and whether that is certain (99 %).
pub(crate) fn trend(values: &[(f64, f64)]) -> Option<(f64, bool)> {
    let n = values.len() as f64;
    let (x, y) = values.iter().fold((0.0, 0.0), |(x, y), v| (x + v.0 / n, y + v.1 / n));
    let (mut xx, mut xy) = (0.0, 0.0);
    values.iter().for_each(|v| {
        xx += (v.0 - x).powi(2);
        xy += (v.0 - x) * (v.1 - y);
    });
    if values.len() < 6 || xx <= 0.0 || y <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let rest: f64 = values.iter().map(|v| (v.1 - y - slope * (v.0 - x)).powi(2)).sum();
    let error = (rest / (n - 2.0) / xx).sqrt();
    let (first, last) = values.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(v.0), b.max(v.0)));
    Some((slope * (last - first) / y, slope.abs() > student_quantile(0.995, n - 2.0) * error))
}

/// Upper end of the 95 % interval of the share of the run time in which threads spun.
fn spun_at_most(run: &CausalRun) -> f64 {
    let (share, of) = (run.overhead.spun, run.overhead.spun_of as f64);
    if share > 0.0 && of > 0.0 { share_at(share * of, of, 0.95).high } else { share }
}

/// Share of the run time from which on threads spin in earnest.
const SPINNING: f64 = 0.05;
/// The same where rounds are shorter than a tick, and all of an effect may be lost: of two threads one waits unseen for as much of its
/// time as the smallest effect that is told. Seen in one program (1.7 to 7 % of the samples in a ring with `pause`), on one machine.
const SPINNING_SHORT: f64 = 0.01;
/// Part of an effect that is lost to spinners, times the ticks that a round takes; not worth a word below the lesser.
const SPUN_PAST: f64 = 2.4;
const LITTLE_SPUN: f64 = 0.1;

/// Part of a window's time that must be delay before its rate says something about the load.
const NOTABLE: f64 = 0.05;

/// Closed loops visit less often per real second when threads are delayed, open ones do not. A single thread
/// is never delayed by itself, threads that all run the target owe one another nothing, and a thread that waits
/// anyway, also for a core, hides its delays: only when delays that were really owed leave the rate as it is for
/// each of several targets, the load comes from outside.
fn load(run: &CausalRun, kept: &[&Window]) -> (LoadKind, String) {
    if run.meta.load == LoadKind::Open {
        return (LoadKind::Open, "as the session was told or saw: visits follow timers or arrivals".to_owned());
    }
    if run.meta.load == LoadKind::Closed {
        return (LoadKind::Closed, "as the session was told".to_owned());
    }
    if fixed_time::is_whole(run) && run.overhead.spun < SPINNING && fixed_time::is_fixed(run, kept) {
        return (LoadKind::Open, fixed_time::FIXED.to_owned());
    }
    if let Some(beat) = clocked::beat_ns(kept) {
        let each = beat / 1e6;
        return (
            LoadKind::Open,
            format!("visits stay on the beat of a clock, one each {each:.3} ms, whatever they take"),
        );
    }
    if asked::is_on_a_beat(run, kept) {
        return (LoadKind::Open, "requests come from programs that sleep to the beat of a clock".to_owned());
    }
    let rate = |w: &Window| {
        let visits = w.visits.iter().find(|v| v.point == 0)?.visits as f64;
        (visits > 0.0 && w.wall_ns > 0).then(|| visits / w.wall_ns as f64)
    };
    let mut by_target: FxHashMap<u32, [Vec<f64>; 2]> = FxHashMap::default();
    for window in kept.iter().filter(|w| w.threads > 1 && !crowd::is_crowded(w)) {
        let delayed = owed(run, window) > NOTABLE && window.max_debt_ns > 0;
        if (window.percent == 0 || delayed)
            && let Some(rate) = rate(window)
        {
            by_target.entry(window.target).or_default()[usize::from(window.percent > 0)].push(rate);
        }
    }
    let enough = by_target.iter().filter(|(_, [a, b])| a.len() >= 4 && b.len() >= 4);
    let judged = enough.map(|(target, rates)| (*target, delayed(rates)));
    let said = |(target, seen): &(u32, Delayed)| *seen != Delayed::AsBefore || asked::were_paid(run, *target);
    let judged: Vec<Delayed> = judged.filter(said).map(|(_, seen)| seen).collect();
    let as_they_were = judged.iter().filter(|d| **d == Delayed::AsBefore).count();
    let (load, reason) = match judged.len() {
        _ if judged.contains(&Delayed::Rarer) => {
            (LoadKind::Closed, "delays make visits rarer: the program visits its points as often as it can")
        }
        2.. if as_they_were == judged.len() => {
            (LoadKind::Open, "delays of several targets left the visits per second as they were: arrivals decide")
        }
        1 if as_they_were == 1 => (LoadKind::Unknown, ONE_UNCHANGED),
        _ => (LoadKind::Unknown, "no delays have shown whether the program visits its points as often as it can"),
    };
    (load, reason.to_owned())
}

/// The slowest of several threads is like that, and so is a program that serves what arrives.
const ONE_UNCHANGED: &str = "delays of the one target that was tried left the visits per second as they were: if arrivals (clients, timers) decide how \
                             many there are, a change gains no rate but latency; try other targets as well, or say --load open";

/// Part of a window that its threads owed on average: what all of them together had to be delayed, less what they had earned
/// in the target themselves.
pub(crate) fn owed(run: &CausalRun, window: &Window) -> f64 {
    let threads = f64::from(window.threads.max(1));
    let earned = window.hits as f64 * run.meta.period_ns as f64 * f64::from(window.percent) / 100.0;
    (window.delay_ns as f64 - earned / threads) / (window.wall_ns as f64).max(1.0)
}

/// What delays made of the visits per second, with certainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delayed {
    /// As many, to within 2 %.
    AsBefore,
    /// More than 2 % fewer.
    Rarer,
    Unclear,
}

fn delayed([plain, delayed]: &[Vec<f64>; 2]) -> Delayed {
    let (_, interval, _) = whither_stats::welch(plain, delayed);
    let little = 0.02 * plain.iter().sum::<f64>() / plain.len() as f64;
    match () {
        () if interval.low > -little && interval.high < little => Delayed::AsBefore,
        () if interval.high < -little => Delayed::Rarer,
        () => Delayed::Unclear,
    }
}

/// By reason.
pub(crate) fn dropped(run: &CausalRun) -> Vec<DroppedRow> {
    let mut rows: BTreeMap<DropReason, u32> = BTreeMap::new();
    run.windows.iter().filter_map(|w| w.dropped).for_each(|reason| *rows.entry(reason).or_default() += 1);
    rows.into_iter().map(|(reason, n)| DroppedRow { reason, n }).collect()
}

/// Baselines of the first point.
pub(crate) fn drift(analysis: &Analysis<'_>) -> Vec<DriftRow> {
    let measure = Measure::Period(0);
    let baselines = Baselines::new(analysis.kept.iter().copied(), measure);
    let mut strata: BTreeMap<u32, (f64, u32)> = BTreeMap::new();
    for window in &analysis.kept {
        let row = strata.entry(window.stratum).or_insert((f64::INFINITY, 0));
        row.0 = row.0.min(analysis.at_s(window));
        row.1 += u32::from(window.percent == 0);
    }
    let row = |(stratum, (at_s, windows)): (&u32, &(f64, u32))| {
        let period_ns = baselines.of(*stratum)?;
        (*windows > 0).then_some(DriftRow { stratum: *stratum, at_s: *at_s, windows: *windows, period_ns })
    };
    strata.iter().filter_map(row).collect()
}

/// Shares of the target's CPU time, or of the time measured where it used less than one CPU; delays that were spun are part
/// of that time. Only a run of our own has a process.
pub(crate) fn overhead(run: &CausalRun) -> Option<OverheadRow> {
    if run.meta.pid == 0 {
        return None;
    }
    let o = &run.overhead;
    let own = o.target_cpu_ns.saturating_sub(o.inserted_ns).max(run.meta.duration_ns) as f64;
    let share = |ns: u64| if own > 0.0 { ns as f64 / own } else { 0.0 };
    Some(OverheadRow {
        startup_ns: o.startup_ns,
        sampling: share(o.handlers_ns),
        tick_share: tick_share(run),
        points: share(o.points_ns),
        delay: share(o.inserted_ns),
        own: share(o.user_ns),
    })
}

/// Part of a thread's time that ticks take while a window is open.
pub(crate) fn tick_share(run: &CausalRun) -> f64 {
    run.overhead.tick_cost_ns as f64 / run.tick_ns().max(1) as f64
}

/// What dear ticks may make of an effect of an amount. Who pauses is spared the ticks of that time, and pays for it (`worth` of
/// `bpf/causal_time.h`); what remains is how well the cost of a tick is known, and what a walk costs beside it: with ticks of 5.3 % of the
/// time two independent threads (11 recordings) missed 1.9 and 0.9 points of amounts around 83 %, that is 0.44 and 0.2 of the ticks'
/// share, and nothing around 25 %. Where threads wait for one another delays that come at the next tick also round off knees: with the same
/// ticks 1.4 points around 25 % were missing (lock and barrier, knees at 33 %, 40 recordings), about all of the share.
pub(crate) fn ticks_mistell(run: &CausalRun, percent: u8, threads_wait: bool) -> f64 {
    let part = if threads_wait { 1.0 } else { 0.5 };
    f64::from(percent) / 100.0 * tick_share(run) * part
}

/// What is said where ticks are dear.
pub(crate) fn dear_ticks(run: &CausalRun) -> Option<String> {
    let share = tick_share(run);
    (share > DEAR_TICKS).then(|| {
        format!(
            "a timer tick takes {:.0} us on this machine, {:.1} % of the time while experiments run (virtual machines are like \
             that): intervals allow for it, by up to {:.1} points at 30 %",
            run.overhead.tick_cost_ns as f64 / 1e3,
            100.0 * share,
            100.0 * ticks_mistell(run, 30, true)
        )
    })
}

/// Virtual seconds measured.
pub(crate) fn seconds(windows: &[&Window]) -> f64 {
    windows.iter().map(|w| length(w).max(0.0)).sum::<f64>() / 1e9
}
