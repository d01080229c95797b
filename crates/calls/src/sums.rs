//! Corrected sums per path, and adding them up without counting nested time twice.
//!
//! A probed call costs its caller time that is not the caller's: `whole_ps` per call. So the cost of every
//! nested probed call is taken off the wall and CPU time of all probed calls around it; self time is what
//! remains after the probed callees. The cost of a single call is not constant, so for callees of a few
//! nanoseconds the product may exceed what there is: a caller keeps at least the time of its callees, as
//! far as it was measured. Where a callee has more time than its caller (the caller was left by longjmp and
//! carries none), self time is 0.

use crate::cpu::{CpuAdder, doubt_waiting, queued_ns};
use crate::hist::{add_hist, quantile};
use crate::hits::{cost_of_hit, doubt_remainder, hits_of, is_by_uprobe, without_hits};
use crate::results::{Figures, Running, ValueRow};
use crate::unseen::{Partly, Unseen};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use whither_store::calls::{CallSnapshot, PatchKind, PathTotals, Usage};

/// What nested probes cost is taken off the average, not off the least time: so many times what can be told from nothing.
const FAR_SHORTER: u64 = 8;

/// Times are told as they are where they are known to this part (one in so many) of themselves, or to so many nanoseconds a call: as
/// roughly known where what measuring adds or hides may come to more than both.
pub(crate) const KNOWN_PART: u64 = 50;
pub(crate) const KNOWN_NS: u64 = 10;

/// How paths nest.
pub(crate) struct Nesting {
    /// Per path: index of the path of the probed call around it.
    pub(crate) parents: Vec<Option<usize>>,
    /// Indexes of all paths, callers before callees.
    pub(crate) order: Vec<usize>,
}

impl Nesting {
    pub(crate) fn new(snapshot: &CallSnapshot) -> Self {
        let index: FxHashMap<u32, usize> = snapshot.paths.iter().enumerate().map(|(i, p)| (p.id, i)).collect();
        let parent = |p: &whither_store::calls::CallPath| p.parent.and_then(|id| index.get(&id).copied());
        Self::of(snapshot.paths.iter().map(parent).collect())
    }

    pub(crate) fn of(mut parents: Vec<Option<usize>>) -> Self {
        let order = outer_first(&mut parents);
        Self { parents, order }
    }

    /// Whether a probed call around `path` fulfils `is`.
    pub(crate) fn below(&self, path: usize, is: impl Fn(usize) -> bool) -> bool {
        self.around(path).any(is)
    }

    /// The probed calls around one, innermost first.
    pub(crate) fn around(&self, path: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.parents[path], |&p| self.parents[p])
    }
}

/// Orders paths so that parents come first; a loop, which no engine writes, is cut.
fn outer_first(parents: &mut [Option<usize>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(parents.len());
    let mut state = vec![0_u8; parents.len()];
    let mut chain = Vec::new();
    for start in 0..parents.len() {
        let mut at = start;
        while state[at] == 0 {
            state[at] = 1;
            chain.push(at);
            match parents[at] {
                Some(p) if state[p] == 1 => parents[at] = None,
                Some(p) => at = p,
                None => {}
            }
        }
        while let Some(done) = chain.pop() {
            state[done] = 2;
            order.push(done);
        }
    }
    order
}

/// Numbers of one path after correction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PathSum {
    pub(crate) calls: u64,
    pub(crate) done: u64,
    pub(crate) timed: bool,
    /// Completed calls.
    pub(crate) wall: u64,
    /// The same with what measuring their callees cost.
    pub(crate) raw_wall: u64,
    pub(crate) running: Running,
    /// Completed calls.
    pub(crate) cpu: u64,
    /// The same with what measuring their callees cost.
    pub(crate) raw_cpu: u64,
    /// As `doubt` and `bound`, of CPU time.
    pub(crate) cpu_doubt: u64,
    pub(crate) cpu_bound: bool,
    pub(crate) self_wall: u64,
    pub(crate) self_cpu: u64,
    pub(crate) min: u64,
    /// The shortest call may have been shorter.
    pub(crate) min_open: bool,
    /// What was taken off for measuring callees. It may be off by about as much as it is: a call that is measured no longer overlaps
    /// with what stands around it (measured as 54 ns on the agent's own function, one cost 82 ns in a loop of 50 ns each, and 70
    /// to 140 in others). Where less than that remains there is a bound.
    pub(crate) doubt: u64,
    /// What remains is less: it is mostly the error of what was taken off.
    pub(crate) bound: bool,
    /// Calls left by an exception or a jump, or on a stack without shadow.
    pub(crate) untimed: u64,
    /// There are some; of a folded path it is not known how many.
    pub(crate) lacking: bool,
    /// Of a function that was not probed all the time: what was spent meanwhile.
    pub(crate) unseen: Option<Unseen>,
    /// Calls shorter than this cannot be told from one another: what measuring takes inside one, and the clock's step.
    pub(crate) resolution_ns: u64,
    pub(crate) max: u64,
    pub(crate) usage: Option<Usage>,
    /// The same without probed callees.
    pub(crate) self_usage: Usage,
    pub(crate) hist: Option<Vec<u64>>,
    pub(crate) values: [i64; 2],
}

impl PathSum {
    /// Time inside at most: what was measured, where the correction is doubtful.
    fn most(&self) -> u64 {
        if self.bound { self.raw_wall.saturating_add(self.running.elapsed_ns) } else { self.inside() }
    }

    /// How far off the time inside may be: what measuring adds to each call and hides of it, and what was taken off for callees.
    fn unsure(&self) -> u64 {
        self.doubt.saturating_add(self.done.saturating_mul(self.resolution_ns))
    }

    /// Time inside, completed or not.
    pub(crate) fn inside(&self) -> u64 {
        self.wall.saturating_add(self.running.elapsed_ns)
    }

    /// CPU time of calls, completed or not, as far as it is known.
    pub(crate) fn inside_cpu(&self) -> u64 {
        self.cpu.saturating_add(self.running.cpu_ns)
    }
}

/// The sums of every path, `totals` giving those of the threads wanted.
pub(crate) fn path_sums(
    snapshot: &CallSnapshot,
    nesting: &Nesting,
    totals: &dyn Fn(usize) -> PathTotals,
    running: &dyn Fn(usize) -> Running,
) -> Vec<PathSum> {
    let raw: Vec<PathTotals> = (0..snapshot.paths.len()).map(totals).collect();
    let costly: Vec<u64> =
        raw.iter().enumerate().map(|(i, t)| if is_timed(snapshot, i) { t.calls } else { 0 }).collect();
    let mut nested = vec![0_u64; raw.len()];
    let mut hits_ns: Vec<u64> = vec![0; raw.len()];
    let hit_ps = cost_of_hit(snapshot);
    for &path in nesting.order.iter().rev() {
        if let Some(parent) = nesting.parents[path] {
            nested[parent] = nested[parent].saturating_add(nested[path]).saturating_add(costly[path]);
            let own = cost_ns(hits_of(snapshot, path, &raw[path]), hit_ps);
            hits_ns[parent] = hits_ns[parent].saturating_add(hits_ns[path]).saturating_add(own);
        }
    }
    let all = costly.iter().fold(0_u64, |all, n| all.saturating_add(*n));
    let whole = cost_of_call(snapshot, all);
    // Of calls left by an exception or a jump there is no time to take it off from; folded ones lie in calls that have some, and
    // have cost these.
    let timed = |i: usize| {
        let t = &raw[i];
        let folded = if costly[i] > 0 { t.calls.saturating_sub(t.done) } else { 0 };
        let all = nested[i].saturating_add(folded);
        if snapshot.paths[i].folded { all } else { part_of(nested[i], t.done, t.calls) }
    };
    let nested: Vec<u64> = (0..raw.len()).map(timed).collect();
    let hits_ns: Vec<u64> = raw.iter().zip(hits_ns).map(|(t, ns)| part_of(ns, t.done, t.calls)).collect();
    let raw: Vec<PathTotals> = raw
        .into_iter()
        .enumerate()
        .map(|(i, t)| if is_by_uprobe(snapshot, snapshot.paths[i].point) { without_hits(t, hit_ps) } else { t })
        .collect();
    let has_wall = clocks(snapshot).wall;
    // What the agent has taken off is known in all only: each call has its part.
    let apart =
        u64::try_from(u128::from(snapshot.own_cost.apart_ns) * 1000 / u128::from(all.max(1))).unwrap_or(u64::MAX);
    let costs = |i: usize| {
        let in_all = cost_ns(nested[i], whole.saturating_add(apart)).saturating_add(hits_ns[i]);
        let queued = queued_ns(snapshot, in_all, &raw[i]);
        Costs { off: cost_ns(nested[i], whole).saturating_add(hits_ns[i]), in_all, queued }
    };
    let costs: Vec<Costs> = (0..raw.len()).map(costs).collect();
    let measured: Vec<(u64, u64)> = raw.iter().map(|t| (t.wall_ns, t.cpu_ns)).collect();
    let mut sums: Vec<PathSum> = raw
        .into_iter()
        .enumerate()
        .map(|(i, t)| corrected(t, &costs[i], has_wall && has_exits(snapshot, i), running(i)))
        .collect();
    for (i, (sum, path)) in sums.iter_mut().zip(&snapshot.paths).enumerate() {
        // Folded calls lie in timed ones and may be far shorter.
        let folded = path.folded && sum.calls > sum.done.saturating_add(sum.running.calls);
        // How many measured callees the shortest call had is not known, so their cost is still in it.
        let in_each = costs[i].off.checked_div(sum.done).unwrap_or(0);
        sum.min_open = folded || (costs[i].off > 0 && in_each >= sum.min / KNOWN_PART);
        sum.resolution_ns = resolution_ns(snapshot, i, hit_ps);
        if is_by_uprobe(snapshot, path.point) {
            doubt_remainder(sum, hit_ps);
        }
        doubt_waiting(snapshot, sum);
        // Of a folded path only what has no time at all is known to have lost it.
        let all_lost = sum.done == 0 && !is_by_uprobe(snapshot, path.point);
        let lost = if path.folded && !lost_some(snapshot) { 0 } else { untimed(snapshot, sum) };
        (sum.untimed, sum.lacking) = if path.folded && !all_lost { (0, lost > 0) } else { (lost, lost > 0) };
    }
    hold_callees(&mut sums, &measured, nesting);
    exclude_callees(&mut sums, nesting);
    sums
}

/// Gives callers back what the correction took too much: they last at least as long as their callees, and
/// never longer than measured.
fn hold_callees(sums: &mut [PathSum], measured: &[(u64, u64)], nesting: &Nesting) {
    let mut callees = vec![(0_u64, 0_u64, 0_u64); sums.len()];
    for &path in nesting.order.iter().rev() {
        let (sum, most, inner) = (&mut sums[path], measured[path], callees[path]);
        sum.wall = sum.wall.max(inner.0.min(most.0));
        sum.cpu = sum.cpu.max(inner.1.min(most.1));
        // Of calls in progress the kernel tells it, without what a hypervisor took; of their callees mostly the clock, with that.
        if sum.running.calls > 0 {
            let known = inner.2.saturating_sub(sum.cpu).min(sum.running.elapsed_ns);
            sum.running.cpu_ns = sum.running.cpu_ns.max(known);
        }
        sum.self_wall = sum.inside();
        sum.self_cpu = sum.inside_cpu();
        let (wall, cpu, inside) = (sum.wall, sum.cpu, sum.inside_cpu());
        if let Some(parent) = nesting.parents[path] {
            let all = &mut callees[parent];
            *all = (all.0.saturating_add(wall), all.1.saturating_add(cpu), all.2.saturating_add(inside));
        }
    }
}

/// Whether calls were left without returning.
fn lost_some(snapshot: &CallSnapshot) -> bool {
    let lost = &snapshot.lost;
    lost.jumped.saturating_add(lost.shadow).saturating_add(lost.exit) > 0
}

/// Calls that ended without a time. Where threads still run, what was read at different moments may differ by a call each.
fn untimed(snapshot: &CallSnapshot, sum: &PathSum) -> u64 {
    let missing = sum.calls.saturating_sub(sum.done).saturating_sub(sum.running.calls);
    // With its process, or its thread, a call ends that has not returned.
    let ended = snapshot.whole.threads == 0 && !snapshot.processes.is_empty();
    if (lost_some(snapshot) || ended) && missing > u64::from(snapshot.whole.threads) { missing } else { 0 }
}

/// Calls of a path shorter than this cannot be told from nothing: what measuring takes inside one, and the clock's step.
fn resolution_ns(snapshot: &CallSnapshot, path: usize, hit_ps: u64) -> u64 {
    let cost = &snapshot.own_cost;
    if is_by_uprobe(snapshot, snapshot.paths[path].point) && hit_ps > 0 {
        return hit_ps.div_ceil(1000);
    }
    cost.inside_ps.saturating_add(cost.step_ps).div_ceil(1000)
}

/// The part of `n` that falls to `some` of `all`.
fn part_of(n: u64, some: u64, all: u64) -> u64 {
    if some >= all {
        return n;
    }
    u64::try_from(u128::from(n) * u128::from(some) / u128::from(all)).unwrap_or(n)
}

/// What a probed call costs, picoseconds. It is measured on a function of the agent's own, where calls come one after the other;
/// in a program they overlap with its work, and so many `calls` have cost no more than all CPU time there was.
fn cost_of_call(snapshot: &CallSnapshot, calls: u64) -> u64 {
    no_more_than_all(snapshot, calls, snapshot.own_cost.whole_ps)
}

/// As much of `measured` picoseconds a call as so many calls can have cost.
pub(crate) fn no_more_than_all(snapshot: &CallSnapshot, calls: u64, measured: u64) -> u64 {
    let cpu_ns = snapshot.whole.cpu_ns;
    if calls == 0 || cpu_ns == 0 {
        return measured;
    }
    let most = u128::from(cpu_ns) * 1000 / u128::from(calls);
    measured.min(u64::try_from(most).unwrap_or(u64::MAX))
}

/// Time of `calls` calls at `ps` picoseconds.
pub(crate) fn cost_ns(calls: u64, ps: u64) -> u64 {
    u64::try_from(u128::from(calls) * u128::from(ps) / 1000).unwrap_or(u64::MAX)
}

/// Which times a snapshot has.
pub(crate) struct Clocks {
    pub(crate) wall: bool,
    pub(crate) cpu: bool,
}

/// No call takes no time at all: what is nothing in all of them was not asked for.
pub(crate) fn clocks(snapshot: &CallSnapshot) -> Clocks {
    let totals = || snapshot.paths.iter().map(|p| &p.totals);
    Clocks {
        wall: totals().any(|t| t.max_ns > 0 || t.wall_ns > 0)
            || snapshot.in_progress.iter().any(|call| call.elapsed_ns > 0),
        cpu: totals().any(|t| t.cpu_ns > 0) || totals().all(|t| t.done == 0),
    }
}

/// Points whose calls have times.
pub(crate) fn has_exits(snapshot: &CallSnapshot, path: usize) -> bool {
    let point = snapshot.paths[path].point;
    let sees_exits = || snapshot.points.get(point as usize).is_some_and(|p| p.entry_only.is_none());
    is_timed(snapshot, path) || (is_by_uprobe(snapshot, point) && sees_exits() && snapshot.own_cost.hit_ps > 0)
}

/// Points of the agent that see exits; only their cost has been measured once for all.
fn is_timed(snapshot: &CallSnapshot, path: usize) -> bool {
    let point = snapshot.points.get(snapshot.paths[path].point as usize);
    point.is_some_and(|p| p.entry_only.is_none() && !matches!(p.patch, Some(PatchKind::Trap | PatchKind::Uprobe)))
}

/// What measuring the callees of a path has cost.
struct Costs {
    /// Still to be taken off.
    off: u64,
    /// With what the agent has taken off.
    in_all: u64,
    /// Wall time that threads have waited for CPUs on account of it.
    queued: u64,
}

fn corrected(t: PathTotals, cost: &Costs, jumped_patch: bool, running: Running) -> PathSum {
    // The clocks of single short calls differ: nobody has more CPU time than time.
    let cpu_ns = if t.wall_ns > 0 { t.cpu_ns.min(t.wall_ns) } else { t.cpu_ns };
    let (wall, cpu) = (t.wall_ns.saturating_sub(cost.off), cpu_ns.saturating_sub(cost.off));
    let in_all = cost.in_all.saturating_add(cost.queued);
    PathSum {
        calls: t.calls,
        done: t.done,
        timed: jumped_patch || t.wall_ns > 0 || t.cpu_ns > 0,
        wall,
        raw_wall: t.wall_ns,
        running,
        cpu,
        raw_cpu: t.cpu_ns,
        cpu_doubt: cost.in_all.min(t.cpu_ns),
        cpu_bound: cpu < cost.in_all && t.cpu_ns > 0,
        self_wall: 0,
        self_cpu: 0,
        min: t.min_ns,
        min_open: false,
        doubt: in_all.min(t.wall_ns),
        bound: wall < in_all,
        untimed: 0,
        lacking: false,
        unseen: None,
        resolution_ns: 0,
        max: t.max_ns,
        usage: t.usage,
        self_usage: t.usage.unwrap_or_default(),
        hist: t.hist,
        values: t.values,
    }
}

/// Takes the callees' times and usage off their callers' own. The cost of nested calls has been taken off
/// both already: what remains is the caller's own.
fn exclude_callees(sums: &mut [PathSum], nesting: &Nesting) {
    let inside: Vec<(u64, u64, Usage)> =
        sums.iter().map(|s| (s.inside(), s.inside_cpu(), s.usage.unwrap_or_default())).collect();
    for (path, (wall, cpu, usage)) in inside.into_iter().enumerate() {
        if let Some(parent) = nesting.parents[path] {
            let sum = &mut sums[parent];
            sum.self_wall = sum.self_wall.saturating_sub(wall);
            sum.self_cpu = sum.self_cpu.saturating_sub(cpu);
            let own = &mut sum.self_usage;
            own.switches = own.switches.saturating_sub(usage.switches);
            own.faults_minor = own.faults_minor.saturating_sub(usage.faults_minor);
            own.faults_major = own.faults_major.saturating_sub(usage.faults_major);
        }
    }
}

/// Averages up to so many times what can be told from nothing are of that order only: the cost inside of a call is measured where caches
/// are warm. A function of 2 ns behind a sleep was told with 51 to 88 ns where that cost was 55.
/// Nor does what it holds overlap with anything: 50 ns were told as 89 to 140 in a loop.
const ROUGH: f64 = 3.0;

/// Totals that shares refer to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wholes {
    pub(crate) cpu: u64,
    pub(crate) thread: u64,
    /// That is known well enough to bound times of calls.
    pub(crate) thread_sure: bool,
    pub(crate) self_wall: u64,
    pub(crate) calls: u64,
    /// CPU time was measured.
    pub(crate) cpu_timed: bool,
}

/// Calls whose cost of being measured is as much as was measured.
#[derive(Clone, Copy, Debug, Default)]
struct Unclear {
    /// What was measured, where that is something.
    wall: u64,
    /// Calls of those where it is nothing.
    calls: u64,
}

impl Unclear {
    fn add(&mut self, sum: &PathSum) {
        if sum.max == 0 || sum.inside() > 0 {
            return;
        }
        match sum.raw_wall {
            0 => self.calls = self.calls.saturating_add(sum.done),
            raw => self.wall = self.wall.saturating_add(raw),
        }
    }

    /// None of them took as long as can be told from nothing.
    fn most(self, resolution_ns: u64) -> u64 {
        self.wall.saturating_add(self.calls.saturating_mul(resolution_ns.max(1)))
    }
}

/// Adds paths up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adder {
    calls: u64,
    done: u64,
    nested: u64,
    timed: bool,
    pub(crate) inside: u64,
    /// What calls may have taken at most that are left without time by the correction.
    unclear: Unclear,
    /// How far off `inside` may be, and of how many completed calls that is.
    unsure: u64,
    outer_done: u64,
    open: u64,
    /// The worst of the paths.
    resolution_ns: u64,
    /// No less than `inside`, whatever callees cost to be measured.
    most: u64,
    /// CPU time of outermost calls.
    pub(crate) cpu: CpuAdder,
    /// Those of them whose functions were not probed all the time.
    pub(crate) partly: Vec<Partly>,
    self_wall: u64,
    self_cpu: u64,
    /// Wall of completed calls, nested ones too: for the average.
    every_wall: u64,
    min: Option<u64>,
    min_open: bool,
    untimed: u64,
    lacking: bool,
    max: u64,
    usage: Option<Usage>,
    hist: Option<Vec<u64>>,
    values: BTreeMap<String, i64>,
    running: Running,
}

impl Adder {
    /// Adds a path; time is added only when no path around it is in the same sum (`outermost`).
    pub(crate) fn add(&mut self, sum: &PathSum, names: &[String], outermost: bool) {
        self.add_times(sum, outermost);
        if outermost {
            add_usage(&mut self.usage, sum.usage);
        }
        add_hist(&mut self.hist, sum.hist.as_deref());
        for (name, value) in names.iter().zip(sum.values) {
            let all = self.values.entry(name.clone()).or_default();
            *all = all.saturating_add(value);
        }
    }

    /// Calls and times alone, with what is to be known of these.
    pub(crate) fn add_times(&mut self, sum: &PathSum, outermost: bool) {
        if outermost {
            self.inside = self.inside.saturating_add(sum.inside());
            self.add_partly(sum);
            self.unclear.add(sum);
            self.unsure = self.unsure.saturating_add(sum.unsure());
            self.outer_done = self.outer_done.saturating_add(sum.done);
            self.open = self.open.saturating_add(if sum.bound { sum.doubt } else { 0 });
            self.most = self.most.saturating_add(sum.most());
            self.untimed = self.untimed.saturating_add(sum.untimed);
            self.lacking |= sum.lacking;
            self.cpu.add(sum);
            self.running = self.running.with(Running { calls: 0, ..sum.running });
        } else {
            self.nested = self.nested.saturating_add(sum.calls);
        }
        self.resolution_ns = self.resolution_ns.max(sum.resolution_ns);
        self.running.calls += sum.running.calls;
        self.calls = self.calls.saturating_add(sum.calls);
        self.done = self.done.saturating_add(sum.done);
        self.timed |= sum.timed;
        self.self_wall = self.self_wall.saturating_add(sum.self_wall);
        self.self_cpu = self.self_cpu.saturating_add(sum.self_cpu);
        self.every_wall = self.every_wall.saturating_add(sum.wall);
        self.max = self.max.max(sum.max);
        if sum.max > 0 {
            self.min = Some(self.min.map_or(sum.min, |m| m.min(sum.min)));
        }
        self.min_open |= sum.min_open;
    }

    /// The shortest call, or what it is shorter than.
    fn shortest(&self, least: u64, average: Option<f64>) -> (Option<u64>, Option<u64>) {
        match self.min {
            Some(min) if min < least => (None, Some(least)),
            // Nor is it longer than the average, which is rid of more.
            Some(min) if self.min_open => (None, Some(average.map_or(min, |a| min.min(a.ceil() as u64).max(least)))),
            min => (min, None),
        }
    }

    /// The longest call. What measuring its callees cost is in it, but no call lasts longer than all together, and where all
    /// have times, than the outermost ones.
    fn longest(&self, wall_ns: u64) -> u64 {
        let all = if self.untimed > 0 { self.every_wall } else { self.every_wall.min(wall_ns) };
        if all > 0 { self.max.min(all) } else { self.max }
    }

    /// Whether the time may be off by more than it is told to be known to.
    fn is_beyond_the_bar(&self) -> bool {
        self.unsure > self.inside / KNOWN_PART && self.unsure > self.outer_done.saturating_mul(KNOWN_NS)
    }

    pub(crate) fn figures(self, whole: &Wholes) -> Figures {
        let average = (self.done > 0 && self.every_wall > 0).then(|| self.every_wall as f64 / self.done as f64);
        // An average of calls cannot be: too much was taken off.
        let shortest = self.min.unwrap_or(0).saturating_sub(FAR_SHORTER * self.resolution_ns) as f64;
        let average = average.filter(|a| *a >= shortest / 2.0);
        let quantile = |q: f64| self.hist.as_deref().and_then(|h| quantile(h, q, (self.min.unwrap_or(0), self.max)));
        let listed =
            if whole.self_wall > 0 { part(self.self_wall, whole.self_wall) } else { part(self.calls, whole.calls) };
        let per_call =
            |sum: i64| ValueRow { sum, average: if self.calls > 0 { sum as f64 / self.calls as f64 } else { 0.0 } };
        let shares = self.shares(whole);
        let (mut min_ns, min_below_ns) = self.shortest(self.resolution_ns.max(1), average);
        let most = self.unclear.most(self.resolution_ns);
        // No calls last longer than their threads: such times are counted several times.
        let beyond = whole.thread > 0 && whole.thread_sure && share(self.inside, whole.thread).is_nan();
        // A part of a sum that could not change it much is no reason to doubt it.
        let matters = |part: u64| self.inside > 0 && part > self.inside / 10;
        let bounded = matters(self.open);
        // Calls without a time may have lasted for any: then nothing but the threads' time is above them.
        let below = match (beyond, bounded) {
            (true, _) => Some(whole.thread),
            _ if self.lacking => None,
            (false, true) => Some(self.most),
            (false, false) => Some(most).filter(|most| self.inside == 0 && *most > 0),
        };
        let wall_ns = match (beyond, bounded && self.lacking) {
            (true, _) => whole.thread,
            (false, true) => self.inside.saturating_sub(self.open),
            (false, false) => self.inside,
        };
        let average = average.filter(|_| !bounded);
        let max_ns = (self.max > 0 && !bounded).then(|| self.longest(wall_ns));
        // Of a call that was in progress at the begin of an interval the longest has the part within.
        min_ns = min_ns.zip(max_ns).map(|(min, max)| min.min(max)).or(min_ns);
        let (share_exec, share_wall) = shares;
        let cpu_timed = self.timed && whole.cpu_timed;
        Figures {
            calls: self.calls,
            done: self.done,
            untimed: self.untimed,
            lacking: self.lacking,
            nested: self.nested,
            timed: self.timed,
            cpu_timed,
            wall_ns,
            wall_below_ns: below,
            rough: average.is_some_and(|a| a < ROUGH * self.resolution_ns as f64 || self.is_beyond_the_bar()),
            unsure_ns: self.unsure,
            self_wall_ns: if beyond { self.self_wall.min(wall_ns) } else { self.self_wall },
            cpu_ns: if self.lacking { self.cpu.at_least() } else { self.cpu.ns },
            cpu_below_ns: self.cpu.below().filter(|_| cpu_timed),
            cpu_rough: cpu_timed && self.cpu.is_rough(),
            cpu_unsure_ns: self.cpu.unsure(),
            self_cpu_ns: self.self_cpu,
            off_cpu_ns: if whole.cpu_timed {
                self.cpu.off.min(if self.lacking { wall_ns } else { u64::MAX })
            } else {
                0
            },
            average_ns: average,
            min_ns,
            min_below_ns,
            max_ns,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            share_exec,
            share_wall,
            share_listed: listed,
            values: self.values.iter().map(|(name, &sum)| (name.clone(), per_call(sum))).collect(),
            usage: self.usage,
            running: self.running,
            hist: self.hist,
        }
    }
}

/// Clocks round: up to so many times the whole is the whole.
pub(crate) const ROUNDING: f64 = 1.02;

/// A part of a whole that was measured by other means: both clocks round, so a little more than the whole is
/// the whole. More than that shows that the whole is not known: then the share is NaN.
pub(crate) fn share(of: u64, whole: u64) -> f64 {
    match part(of, whole) {
        _ if whole == 0 && of > 0 => f64::NAN,
        part if part > ROUNDING => f64::NAN,
        part => part.min(1.0),
    }
}

/// A part of a whole, 0 of nothing.
pub(crate) fn part(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

pub(crate) fn add_usage(into: &mut Option<Usage>, usage: Option<Usage>) {
    if let Some(u) = usage {
        let all = into.get_or_insert_default();
        all.switches = all.switches.saturating_add(u.switches);
        all.faults_minor = all.faults_minor.saturating_add(u.faults_minor);
        all.faults_major = all.faults_major.saturating_add(u.faults_major);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_whole_is_unknown() {
        assert!((share(1, 4) - 0.25).abs() < 1e-12);
        assert!((share(101, 100) - 1.0).abs() < 1e-12, "rounding");
        assert!(share(110, 100).is_nan());
        assert!(share(1, 0).is_nan());
        assert!(share(0, 0) == 0.0);
    }

    #[test]
    fn parents_come_first_and_loops_are_cut() {
        let mut parents = vec![Some(2), None, Some(1), Some(4), Some(3), Some(5)];
        let order = outer_first(&mut parents);
        let at = |p: usize| order.iter().position(|&o| o == p).unwrap();
        assert_eq!(order.len(), 6);
        assert!(at(1) < at(2) && at(2) < at(0));
        assert_eq!(parents[3..].iter().filter(|p| p.is_none()).count(), 2, "each loop is cut once: {parents:?}");
    }
}
