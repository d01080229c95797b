//! What happened between two snapshots of one session.
//!
//! Counters are subtracted path by path. A call that was in progress at a boundary counts with the part
//! that lies between the two: its time before the earlier snapshot is taken off, its time after the later
//! one is not known. Shortest and longest calls cannot be subtracted; where the path existed before, they
//! are narrowed to the bins of the histogram that grew, or unknown (0) without one.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use whither_store::calls::{
    CallLost, CallPath, CallSnapshot, CallThread, Gap, InProgress, LatePoint, Moment, PathTotals, Spent, Usage, Whole,
};

/// The interval from `earlier` to `later`. After a reset in between this is `later` itself.
#[must_use]
pub fn difference(later: &CallSnapshot, earlier: &CallSnapshot) -> CallSnapshot {
    if later.whole.wall_ns < earlier.whole.wall_ns || later.at_ns < earlier.at_ns {
        return later.clone();
    }
    let interval = later.at_ns - earlier.at_ns;
    let before: FxHashMap<u32, &CallPath> = earlier.paths.iter().map(|p| (p.id, p)).collect();
    let (in_progress, carried) = divided(later, earlier, interval);
    let path = |p: &CallPath| match before.get(&p.id) {
        Some(b) => between(p, b, carried.get(&p.id).copied().unwrap_or_default()),
        None => p.clone(),
    };
    CallSnapshot {
        whole: Whole {
            wall_ns: later.whole.wall_ns - earlier.whole.wall_ns,
            cpu_ns: later.whole.cpu_ns.saturating_sub(earlier.whole.cpu_ns),
            thread_ns: later.whole.thread_ns.saturating_sub(earlier.whole.thread_ns),
            threads: later.whole.threads,
            threads_ended: later.whole.threads_ended.saturating_sub(earlier.whole.threads_ended),
            thread_unsure_ns: later.whole.thread_unsure_ns.saturating_sub(earlier.whole.thread_unsure_ns),
            ran_ns: later.whole.ran_ns.saturating_sub(earlier.whole.ran_ns),
            queued_ns: later.whole.queued_ns.saturating_sub(earlier.whole.queued_ns),
        },
        late: late(later, earlier),
        gaps: gaps(later, earlier),
        paths: later.paths.iter().map(path).collect(),
        threads: threads(later, earlier),
        in_progress,
        lost: lost(&later.lost, &earlier.lost),
        ..later.clone()
    }
}

/// Probes that came within the interval.
fn late(later: &CallSnapshot, earlier: &CallSnapshot) -> Vec<LatePoint> {
    let within = |late: &LatePoint| {
        let after_ns = late.after_ns.checked_sub(earlier.whole.wall_ns).filter(|ns| *ns > 0)?;
        Some(LatePoint { after_ns, spent: late.spent.map(|spent| spent_since(spent, earlier)), ..*late })
    };
    later.late.iter().filter_map(within).collect()
}

/// The parts within the interval of times in which probes were away.
fn gaps(later: &CallSnapshot, earlier: &CallSnapshot) -> Vec<Gap> {
    let since = |m: Moment| Moment {
        after_ns: m.after_ns.saturating_sub(earlier.whole.wall_ns),
        spent: spent_since(m.spent, earlier),
    };
    let within = |gap: &Gap| {
        let until = gap.until.map(since);
        until.is_none_or(|end| end.after_ns > 0).then(|| Gap { from: since(gap.from), until, ..*gap })
    };
    later.gaps.iter().filter_map(within).collect()
}

fn spent_since(spent: Spent, earlier: &CallSnapshot) -> Spent {
    Spent {
        cpu_ns: spent.cpu_ns.saturating_sub(earlier.whole.cpu_ns),
        thread_ns: spent.thread_ns.saturating_sub(earlier.whole.thread_ns),
    }
}

/// Calls in progress at the end, each with the time it has had within the interval, and by path what was had before it by calls that
/// ended within it.
fn divided(later: &CallSnapshot, earlier: &CallSnapshot, interval: u64) -> (Vec<InProgress>, FxHashMap<u32, Before>) {
    let mut open: FxHashMap<(u32, u32, u32), VecDeque<&InProgress>> = FxHashMap::default();
    let mut before: FxHashMap<u32, Before> = FxHashMap::default();
    for call in &earlier.in_progress {
        open.entry((call.pid, call.tid, call.path)).or_default().push_back(call);
        let all = before.entry(call.path).or_default();
        all.wall_ns = all.wall_ns.saturating_add(call.elapsed_ns);
        all.cpu_ns = all.cpu_ns.saturating_add(call.cpu_ns.unwrap_or(0));
    }
    let rest = |call: &InProgress| {
        let had = call.elapsed_ns.saturating_sub(interval);
        let elapsed_ns = call.elapsed_ns.min(interval);
        // Nested ones of a path stand in the order of their entries.
        let known = (had > 0).then(|| open.get_mut(&(call.pid, call.tid, call.path))?.pop_front()).flatten();
        let cpu_before = known.map_or(Some(0), |call| call.cpu_ns);
        // Still running ones have not been added to any counter.
        if let Some(all) = before.get_mut(&call.path) {
            all.wall_ns = all.wall_ns.saturating_sub(had);
            all.cpu_ns = all.cpu_ns.saturating_sub(cpu_before.unwrap_or(0));
        }
        let cpu = call.cpu_ns.zip(cpu_before).map(|(now, before)| now.saturating_sub(before).min(elapsed_ns));
        InProgress { elapsed_ns, cpu_ns: cpu, ..*call }
    };
    let running = later.in_progress.iter().map(rest).collect();
    (running, before)
}

/// Time before an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    wall_ns: u64,
    cpu_ns: u64,
}

fn between(later: &CallPath, earlier: &CallPath, carried: Before) -> CallPath {
    let before: FxHashMap<u32, &PathTotals> = earlier.threads.iter().map(|(tid, t)| (*tid, t)).collect();
    let thread = |(tid, t): &(u32, PathTotals)| match before.get(tid) {
        Some(b) => (*tid, subtract(t, b, Before::default())),
        None => (*tid, t.clone()),
    };
    CallPath {
        totals: subtract(&later.totals, &earlier.totals, carried),
        threads: later.threads.iter().map(thread).collect(),
        ..later.clone()
    }
}

fn subtract(later: &PathTotals, earlier: &PathTotals, carried: Before) -> PathTotals {
    let hist = match (&later.hist, &earlier.hist) {
        (Some(l), Some(e)) => Some(subtract_hist(l, e)),
        (hist, _) => hist.clone(),
    };
    let done = later.done.saturating_sub(earlier.done);
    let (min_ns, max_ns) = extremes(later, earlier, hist.as_deref(), done);
    PathTotals {
        calls: later.calls.saturating_sub(earlier.calls),
        done,
        wall_ns: later.wall_ns.saturating_sub(earlier.wall_ns).saturating_sub(carried.wall_ns),
        cpu_ns: later.cpu_ns.saturating_sub(earlier.cpu_ns).saturating_sub(carried.cpu_ns),
        min_ns,
        max_ns,
        values: [0, 1].map(|i| later.values[i].saturating_sub(earlier.values[i])),
        usage: usage(later.usage, earlier.usage),
        hist,
    }
}

fn subtract_hist(later: &[u64], earlier: &[u64]) -> Vec<u64> {
    let before = earlier.iter().copied().chain(std::iter::repeat(0));
    later.iter().zip(before).map(|(l, e)| l.saturating_sub(e)).collect()
}

fn extremes(later: &PathTotals, earlier: &PathTotals, hist: Option<&[u64]>, done: u64) -> (u64, u64) {
    if done == 0 {
        return (0, 0);
    }
    if earlier.done == 0 {
        return (later.min_ns, later.max_ns);
    }
    // A new extreme was reached in the interval; an old one tells only a bound.
    let shifted = |bin: usize| u32::try_from(bin).ok().and_then(|b| 1_u64.checked_shl(b)).unwrap_or(u64::MAX);
    let first = hist.and_then(|h| h.iter().position(|&n| n > 0)).map(shifted);
    let last = hist.and_then(|h| h.iter().rposition(|&n| n > 0)).map(|bin| shifted(bin + 1).saturating_sub(1));
    let min = if later.min_ns < earlier.min_ns { later.min_ns } else { first.map_or(0, |f| f.max(later.min_ns)) };
    let max = if later.max_ns > earlier.max_ns { later.max_ns } else { last.map_or(0, |l| l.min(later.max_ns)) };
    (min, max)
}

fn usage(later: Option<Usage>, earlier: Option<Usage>) -> Option<Usage> {
    let (later, earlier) = (later?, earlier.unwrap_or_default());
    Some(Usage {
        switches: later.switches.saturating_sub(earlier.switches),
        faults_minor: later.faults_minor.saturating_sub(earlier.faults_minor),
        faults_major: later.faults_major.saturating_sub(earlier.faults_major),
    })
}

fn threads(later: &CallSnapshot, earlier: &CallSnapshot) -> Vec<CallThread> {
    let lived = |tid, pid| earlier.threads.iter().find(|t| (t.tid, t.pid) == (tid, pid)).map_or(0, |t| t.lived_ns);
    let thread = |t: &CallThread| CallThread { lived_ns: t.lived_ns.saturating_sub(lived(t.tid, t.pid)), ..t.clone() };
    later.threads.iter().map(thread).collect()
}

fn lost(later: &CallLost, earlier: &CallLost) -> CallLost {
    CallLost {
        busy: later.busy.saturating_sub(earlier.busy),
        depth: later.depth.saturating_sub(earlier.depth),
        table: later.table.saturating_sub(earlier.table),
        early: later.early.saturating_sub(earlier.early),
        locked: later.locked.saturating_sub(earlier.locked),
        shared: later.shared.saturating_sub(earlier.shared),
        edge: later.edge.saturating_sub(earlier.edge),
        shadow: later.shadow.saturating_sub(earlier.shadow),
        foreign: later.foreign.saturating_sub(earlier.foreign),
        jumped: later.jumped.saturating_sub(earlier.jumped),
        exit: later.exit.saturating_sub(earlier.exit),
        ring: later.ring.saturating_sub(earlier.ring),
        paths: later.paths.saturating_sub(earlier.paths),
        cpu: later.cpu.saturating_sub(earlier.cpu),
    }
}
