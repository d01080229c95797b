//! One experiment: arm, begin, watch until it has enough visits, end, and judge whether it was disturbed. The
//! judgement uses nothing that depends on the outcome.

use super::alive::Alive;
use super::choice::Seen;
use super::group::Group;
use super::pace::Met;
use super::policy::{CausalPolicy, Order};
use crate::{SessionError, StopFlag};
use std::time::{Duration, Instant};
use whither_kernel::{clock, proc};
use whither_sample::causal::Facts;
use whither_store::causal::{DropReason, FromOutside, PointKind, PointVisits, Turns, Window};

/// The kernel side believes that we live for 100 ms; samples and visits are looked at this often.
const BEAT: Duration = Duration::from_millis(5);
/// The same while a window cannot end yet and no process comes or goes: each look takes a CPU from the program.
const CALM: Duration = Duration::from_millis(25);
/// Part of a window's samples that may lie in programs that had just been begun. What they may hide is in the intervals.
const MOST_UNKNOWN: f64 = 0.15;
/// Part of a window's CPU time that others may have used.
const MOST_FOREIGN: f64 = 0.03;
/// Part that the hypervisor may have taken.
const MOST_STEAL: f64 = 0.01;
/// Part of the observations that may be lost.
const MOST_LOST: f64 = 0.01;

/// What ends a window beside its order.
pub(super) struct Limits<'a> {
    pub(super) stop: &'a StopFlag,
    pub(super) deadline: Option<Instant>,
}

impl Limits<'_> {
    pub(super) fn are_reached(&self) -> bool {
        self.stop.is_set() || self.deadline.is_some_and(|d| Instant::now() >= d)
    }
}

/// How a window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Target,
    Limit,
}

/// A window that was made.
pub(super) struct Made {
    pub(super) window: Window,
    /// Threads that absolute time had woken visited the first point.
    pub(super) paced: bool,
    /// How often the target's threads took turns with others.
    pub(super) turns: Turns,
    pub(super) asked: FromOutside,
    pub(super) seen: Seen,
    pub(super) met: Met,
}

/// What was seen without an experiment.
pub(super) struct Observed {
    /// By point.
    pub(super) visits: Vec<PointVisits>,
    pub(super) seen: Seen,
    pub(super) met: Met,
}

/// Makes an experiment. `None` when a limit cut it short: it is no observation then.
///
/// # Errors
/// The kernel refuses.
pub(super) fn make(
    group: &mut Group,
    order: &Order,
    run: u32,
    policy: &mut dyn CausalPolicy,
    alive: &mut Alive,
    limits: &Limits<'_>,
) -> Result<Option<Made>, SessionError> {
    let whole = group.points.iter().any(|p| p.kind == PointKind::End);
    group.arm(Some(order.target))?;
    group.exec.begin(order.percent)?;
    let began = clock::monotonic_ns();
    let over = if whole { None } else { settle(group, order, policy, alive, limits)? };
    let (counters, begin_ns) = (counters(group), clock::monotonic_ns());
    let end = match over {
        Some(end) => end,
        None => watch(group, order, policy, alive, limits, whole)?,
    };
    let facts = group.exec.end()?;
    tracing::debug!(?order, ?end, ?facts, "window");
    group.drain(policy, order.stratum, order.percent == 0);
    if order.percent == 0 {
        group.targets.plain_time(order.stratum, facts.wall_ns + (begin_ns - began));
    }
    if end == End::Limit {
        return Ok(None);
    }
    let visits = visits(group, &facts, &counters, end == End::Target);
    let dropped = judge(&facts, &visits, group, end, whole);
    let first = group.points.first().and_then(|p| p.index);
    let paced = first.is_some_and(|i| facts.absolute_points & 1_u64.checked_shl(i).unwrap_or(0) != 0);
    let turns = Turns {
        target: order.target,
        run_ns: facts.hits.saturating_mul(facts.unit_ns),
        waits: facts.hit_waits,
        begun_ns: facts.unknown.saturating_mul(facts.unit_ns),
    };
    let asked = asked(order, &facts);
    let window = Window {
        run,
        target: order.target,
        percent: order.percent,
        selection: order.selection,
        probability: order.probability,
        stratum: order.stratum,
        begin_ns,
        wall_ns: facts.wall_ns,
        drain_ns: facts.drain_ns,
        delay_ns: facts.delay_ns,
        hits: facts.hits,
        samples: facts.samples,
        visits,
        own_wait_ns: facts.own_wait_ns,
        foreign_wait_ns: facts.foreign_wait_ns,
        steal_ns: facts.steal_ns,
        major_faults: facts.major_faults,
        threads: facts.threads,
        max_debt_ns: facts.max_debt_ns,
        lost: facts.lost,
        dropped,
    };
    Ok(Some(Made { window, paced, turns, asked, seen: Seen::of(&facts), met: Met::of(&facts) }))
}

/// What came from outside. Without speed-up there are no delays to be asked of anybody.
fn asked(order: &Order, facts: &Facts) -> FromOutside {
    let delayed = |ns: u64| if order.percent > 0 { ns } else { 0 };
    FromOutside {
        target: order.target,
        wall_ns: facts.wall_ns,
        times: facts.asked.times,
        by_world: facts.asked.by_world,
        unknown: facts.asked.unknown,
        delay_ns: delayed(facts.delay_ns),
        paid_ns: delayed(facts.inserted_ns),
        unknown_debt_ns: delayed(facts.asked.unknown_debt_ns),
    }
}

/// Watches without speeding anything up.
///
/// # Errors
/// The kernel refuses.
pub(super) fn observe(
    group: &mut Group,
    ns: u64,
    stratum: u32,
    policy: &mut dyn CausalPolicy,
    alive: &mut Alive,
    limits: &Limits<'_>,
) -> Result<Observed, SessionError> {
    group.arm(None)?;
    let counters = counters(group);
    group.exec.begin(0)?;
    let until = Instant::now() + Duration::from_nanos(ns);
    while Instant::now() < until && !alive.is_over() && !limits.are_reached() {
        alive.sleep_or(BEAT.min(until.saturating_duration_since(Instant::now())), group.exec.bell());
        group.exec.beat();
        group.look()?;
        group.drain(policy, stratum, true);
    }
    let facts = group.exec.end()?;
    group.drain(policy, stratum, true);
    group.targets.plain_time(stratum, facts.wall_ns);
    let ended = alive.is_over();
    Ok(Observed { visits: visits(group, &facts, &counters, ended), seen: Seen::of(&facts), met: Met::of(&facts) })
}

/// Lets the program find its pace: queues fill or empty, what the window before left behind is worked off.
fn settle(
    group: &mut Group,
    order: &Order,
    policy: &mut dyn CausalPolicy,
    alive: &mut Alive,
    limits: &Limits<'_>,
) -> Result<Option<End>, SessionError> {
    let (began, enough) = (Instant::now(), Duration::from_nanos(order.settle_ns));
    while began.elapsed() < enough {
        let left = enough.saturating_sub(began.elapsed());
        alive.sleep_or(left.min(beat(group)), group.exec.bell());
        group.exec.beat();
        if alive.is_over() {
            return Ok(Some(End::Target));
        }
        if limits.are_reached() {
            return Ok(Some(End::Limit));
        }
        group.look()?;
        group.drain(policy, order.stratum, order.percent == 0);
    }
    if !enough.is_zero() {
        group.exec.settled(group.points.iter().any(|p| p.kind == PointKind::Counter))?;
    }
    Ok(None)
}

fn watch(
    group: &mut Group,
    order: &Order,
    policy: &mut dyn CausalPolicy,
    alive: &mut Alive,
    limits: &Limits<'_>,
    whole: bool,
) -> Result<End, SessionError> {
    let began = Instant::now();
    let (least, most) = (Duration::from_nanos(order.min_ns), Duration::from_nanos(order.max_ns.max(order.min_ns)));
    loop {
        alive.sleep_or(nap(began.elapsed(), least, most, whole, beat(group)), group.exec.bell());
        group.exec.beat();
        if alive.is_over() {
            return Ok(End::Target);
        }
        if limits.are_reached() {
            return Ok(End::Limit);
        }
        group.look()?;
        group.drain(policy, order.stratum, order.percent == 0);
        let old = began.elapsed();
        if !whole && (old >= most || (old >= least && visited(group, order.min_visits))) {
            return Ok(End::Complete);
        }
    }
}

/// How long nothing but the window's end needs a look.
fn beat(group: &Group) -> Duration {
    match group.processes.len() {
        0 | 1 if !group.is_starting() => CALM,
        _ => BEAT,
    }
}

/// How long nothing needs a look in a window of this age.
fn nap(age: Duration, least: Duration, most: Duration, whole: bool, beat: Duration) -> Duration {
    if whole {
        return BEAT;
    }
    let calm = if beat > BEAT { least.saturating_sub(age).min(beat) } else { BEAT };
    calm.max(BEAT).min(most.saturating_sub(age)).max(Duration::from_micros(200))
}

/// Whether the first point has enough visits. Counters in memory run on their own; time decides for them.
fn visited(group: &mut Group, least: u64) -> bool {
    match group.points.first().map(|p| (p.index, p.kind)) {
        Some((Some(index), _)) => group.exec.peek(index) >= least,
        Some((None, PointKind::Counter)) => true,
        _ => false,
    }
}

/// Values of the counters of each point, one for each process that has it.
fn counters(group: &Group) -> Vec<Vec<Option<u64>>> {
    group.points.iter().map(|p| p.counters.iter().map(super::group::Counter::value).collect()).collect()
}

/// By how much counters grew that could be read both times; `None` without any. Those of processes that came
/// or went meanwhile are left out.
fn grown(before: &[Option<u64>], now: &[Option<u64>]) -> Option<u64> {
    if now.is_empty() {
        return None;
    }
    let pairs = before.iter().zip(now).filter_map(|(b, n)| Some(((*b)?, (*n)?)));
    Some(pairs.map(|(b, n)| n.saturating_sub(b)).fold(0, u64::saturating_add))
}

/// Visits by point of the session, in order.
fn visits(group: &Group, facts: &Facts, before: &[Vec<Option<u64>>], ended: bool) -> Vec<PointVisits> {
    let now = counters(group);
    let wall = i64::try_from(facts.wall_ns).unwrap_or(i64::MAX);
    let delay = i64::try_from(facts.delay_ns).unwrap_or(i64::MAX);
    let drain = i64::try_from(facts.drain_ns).unwrap_or(i64::MAX);
    let unstamped = |visits: u64| PointVisits { visits, last_virtual_ns: wall - delay, ..PointVisits::default() };
    // Counters are read after the debts were paid.
    let polled = |visits: u64| PointVisits {
        visits,
        last_virtual_ns: wall.saturating_add(drain) - delay,
        ..PointVisits::default()
    };
    let ever = |i: usize| {
        let index = group.points.get(i).and_then(|p| p.index);
        index.and_then(|index| facts.visits.get(index as usize)).map_or(0, |v| v.under_way)
    };
    let of = |(i, point): (usize, &super::group::Point)| {
        let stamped = point.index.and_then(|index| facts.visits.get(index as usize)).copied();
        let counted = before.get(i).zip(now.get(i)).and_then(|(before, now)| grown(before, now));
        let mut found = match (point.kind, stamped, counted) {
            (PointKind::End, ..) => unstamped(u64::from(ended)),
            (PointKind::Sampled, Some(sampled), _) => unstamped(sampled.visits),
            (_, Some(stamped), _) => stamped,
            (_, None, Some(grown)) => polled(grown),
            _ => PointVisits::default(),
        };
        found.point = i as u32;
        // Requests that had begun and not ended, as far as both were seen; `ending` knows what was not.
        found.under_way = point.end.map_or(0, |end| ever(i) - ever(end as usize));
        found
    };
    group.points.iter().enumerate().map(of).collect()
}

fn judge(facts: &Facts, visits: &[PointVisits], group: &Group, end: End, whole: bool) -> Option<DropReason> {
    let wall = facts.wall_ns.max(1) as f64;
    let cpus = proc::online_cpus().len().max(1) as f64;
    let running = f64::from(facts.threads.max(1)).min(cpus);
    let needed = |v: &PointVisits| {
        let least = match group.points.get(v.point as usize).map(|p| p.kind) {
            Some(PointKind::End | PointKind::Counter) => 1,
            _ => 2,
        };
        v.visits >= least
    };
    if end == End::Target && !whole {
        Some(DropReason::Ended)
    } else if facts.stopped {
        Some(DropReason::Stopped)
    } else if facts.lost as f64 > MOST_LOST * facts.samples.max(100) as f64 {
        Some(DropReason::Lost)
    } else if !facts.drained && end != End::Target {
        Some(DropReason::NotDrained)
    } else if facts.unknown as f64 > MOST_UNKNOWN * facts.samples.max(100) as f64 {
        Some(DropReason::Started)
    } else if foreign_ns(facts) as f64 > MOST_FOREIGN * wall * running {
        Some(DropReason::ForeignLoad)
    } else if facts.steal_ns as f64 > MOST_STEAL * wall * cpus {
        Some(DropReason::Steal)
    } else if !visits.first().is_some_and(needed) {
        Some(DropReason::NoVisits)
    } else {
        None
    }
}

/// What others have cost the program: waits behind them, and waits behind its own threads while others had another core.
fn foreign_ns(facts: &Facts) -> u64 {
    facts.foreign_wait_ns.saturating_add(facts.own_wait_ns.min(facts.others_ns))
}

/// Whether a window was dropped for what others did to the machine.
pub(super) fn is_disturbed(window: &Window) -> bool {
    matches!(window.dropped, Some(DropReason::ForeignLoad | DropReason::Steal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_rare_while_a_window_cannot_end() {
        let ms = Duration::from_millis;
        let nap = |age, whole, beat| nap(ms(age), ms(100), ms(200), whole, beat);
        assert_eq!((nap(0, false, CALM), nap(90, false, CALM), nap(120, false, CALM)), (CALM, ms(10), BEAT));
        assert_eq!((nap(0, false, BEAT), nap(150, false, BEAT), nap(0, true, CALM)), (BEAT, BEAT, BEAT));
        assert_eq!((nap(198, false, CALM), nap(200, false, CALM)), (ms(2), Duration::from_micros(200)));
    }
}
