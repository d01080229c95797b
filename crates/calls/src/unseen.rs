//! Shares of probes that were not there all the time: what they have counted is a part of the time in which they were, not of all
//! of it. And which probes are one and the same function, that was taken back and added again.

use crate::sums::{Adder, PathSum, ROUNDING, Wholes, share};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use whither_store::calls::{CallPoint, CallSnapshot, Gap, Moment, PointState, Spent};

/// What was spent while no probe of a function counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unseen(
    /// Absent where it was not noted.
    Option<Spent>,
);

impl Unseen {
    /// Parts of the CPU time and of the thread lifetimes seen; NaN where these are not known.
    fn shares(self, cpu: u64, inside: u64, whole: &Wholes) -> (f64, f64) {
        let Some(spent) = self.0 else { return (f64::NAN, f64::NAN) };
        let rest = |all: u64, unseen: u64| all.saturating_sub(unseen);
        (share(cpu, rest(whole.cpu, spent.cpu_ns)), share(inside, rest(whole.thread, spent.thread_ns)))
    }
}

/// Points by function: one that is taken back and added again has several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    /// Per point: the one that stands for its function, the last.
    of: Vec<u32>,
    /// Of each that stands for others: all of them, in order.
    members: FxHashMap<u32, Vec<u32>>,
    /// Of each that was not there all the time.
    unseen: FxHashMap<u32, Unseen>,
}

impl Functions {
    pub(crate) fn new(snapshot: &CallSnapshot) -> Self {
        let mut last: FxHashMap<(u32, u64, &[String]), u32> = FxHashMap::default();
        let key = |p| -> (u32, u64, &[String]) { place(p) };
        // Refused ones have no place that is sure.
        let placed = || snapshot.points.iter().zip(0_u32..).filter(|(p, _)| p.state != PointState::Refused);
        for (point, i) in placed() {
            last.insert(key(point), i);
        }
        let mut of: Vec<u32> = (0..u32::try_from(snapshot.points.len()).unwrap_or(u32::MAX)).collect();
        let mut members: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (point, i) in placed() {
            // Only what was taken back has a successor.
            let all = if point.state == PointState::Removed { last[&key(point)] } else { i };
            of[i as usize] = all;
            members.entry(all).or_default().push(i);
        }
        let mut functions = Self { of, members, unseen: FxHashMap::default() };
        functions.unseen = functions.all_unseen(snapshot);
        functions
    }

    /// The point that stands for the function of one.
    pub(crate) fn of(&self, point: u32) -> u32 {
        self.of.get(point as usize).copied().unwrap_or(point)
    }

    /// Points of a function, by the one that stands for them.
    pub(crate) fn points(&self, function: u32) -> &[u32] {
        self.members.get(&function).map_or(&[], Vec::as_slice)
    }

    /// Notes of the sums of all paths what was spent while their functions were not probed.
    pub(crate) fn mark(&self, snapshot: &CallSnapshot, sums: &mut [PathSum]) {
        for (sum, path) in sums.iter_mut().zip(&snapshot.paths) {
            sum.unseen = self.unseen.get(&self.of(path.point)).copied();
        }
    }

    /// The same of one function, where there is some and it was noted.
    pub(crate) fn spent_unseen(&self, point: u32) -> Option<Spent> {
        self.unseen.get(&self.of(point))?.0
    }

    fn all_unseen(&self, snapshot: &CallSnapshot) -> FxHashMap<u32, Unseen> {
        let whole = Spent { cpu_ns: snapshot.whole.cpu_ns, thread_ns: snapshot.whole.thread_ns };
        let absences = Absences::new(snapshot);
        let mut out = FxHashMap::default();
        for (&function, points) in &self.members {
            // What a probe saw is what the others of its function did not.
            let mut seen = Some(Spent::default());
            for point in points.iter().filter_map(|&p| snapshot.points.get(p as usize)) {
                seen = seen.zip(absences.of(point)).map(|(seen, away)| added(seen, less(whole, away)));
            }
            let unseen = seen.map(|seen| less(whole, seen));
            if unseen != Some(Spent::default()) {
                out.insert(function, Unseen(unseen));
            }
        }
        out
    }
}

/// How long a function had a probe that counted, nanoseconds; `None` if no probe was ever taken back or switched off.
pub(crate) fn probed_ns(snapshot: &CallSnapshot, points: &[&CallPoint]) -> Option<u64> {
    let is_one = |id: u32| points.iter().any(|p| p.id == id);
    if !snapshot.gaps.iter().any(|gap| is_one(gap.id)) {
        return None;
    }
    let late = snapshot.late.iter().filter(|late| is_one(late.id)).map(|late| late.after_ns);
    let end = Moment { after_ns: snapshot.whole.wall_ns, spent: Spent::default() };
    let gaps = snapshot.gaps.iter().filter(|gap| is_one(gap.id));
    let gaps = gaps.map(|gap| gap.until.unwrap_or(end).after_ns.saturating_sub(gap.from.after_ns));
    let all = snapshot.whole.wall_ns.saturating_mul(points.len() as u64);
    Some(late.chain(gaps).fold(all, u64::saturating_sub))
}

/// How long numbers had been counted when a probe came; `None` if it was there from the begin.
pub(crate) fn late_ns(snapshot: &CallSnapshot, id: u32) -> Option<u64> {
    snapshot.late.iter().find(|late| late.id == id).map(|late| late.after_ns)
}

fn place(point: &CallPoint) -> (u32, u64, &[String]) {
    (point.module, point.offset, &point.values)
}

/// When single probes were not there.
struct Absences<'a> {
    whole: Spent,
    late: FxHashMap<u32, Option<Spent>>,
    gaps: FxHashMap<u32, Vec<&'a Gap>>,
}

impl<'a> Absences<'a> {
    fn new(snapshot: &'a CallSnapshot) -> Self {
        let mut late = FxHashMap::default();
        for l in &snapshot.late {
            if let Entry::Vacant(free) = late.entry(l.id) {
                free.insert(l.spent);
            }
        }
        let mut gaps: FxHashMap<u32, Vec<&Gap>> = FxHashMap::default();
        for gap in &snapshot.gaps {
            gaps.entry(gap.id).or_default().push(gap);
        }
        let whole = Spent { cpu_ns: snapshot.whole.cpu_ns, thread_ns: snapshot.whole.thread_ns };
        Self { whole, late, gaps }
    }

    /// What was spent while one was away; `None` where that was not noted.
    fn of(&self, point: &CallPoint) -> Option<Spent> {
        let before = self.late.get(&point.id).copied().unwrap_or(Some(Spent::default()))?;
        let gaps = self.gaps.get(&point.id).map_or(&[][..], Vec::as_slice);
        let gap = |g: &&Gap| less(g.until.map_or(self.whole, |end| end.spent), g.from.spent);
        Some(gaps.iter().map(gap).fold(before, added))
    }
}

fn added(a: Spent, b: Spent) -> Spent {
    Spent { cpu_ns: a.cpu_ns.saturating_add(b.cpu_ns), thread_ns: a.thread_ns.saturating_add(b.thread_ns) }
}

fn less(a: Spent, b: Spent) -> Spent {
    Spent { cpu_ns: a.cpu_ns.saturating_sub(b.cpu_ns), thread_ns: a.thread_ns.saturating_sub(b.thread_ns) }
}

/// Outermost time of the paths whose functions were seen for the same part of the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partly {
    unseen: Unseen,
    cpu: u64,
    inside: u64,
}

impl Adder {
    /// Notes an outermost path by how much of the time its function was seen.
    pub(crate) fn add_partly(&mut self, sum: &PathSum) {
        let Some(unseen) = sum.unseen else { return };
        let of = |partly: &Partly| partly.unseen == unseen;
        let at = self.partly.iter().position(of).unwrap_or_else(|| {
            self.partly.push(Partly { unseen, cpu: 0, inside: 0 });
            self.partly.len() - 1
        });
        if let Some(partly) = self.partly.get_mut(at) {
            partly.cpu = partly.cpu.saturating_add(sum.inside_cpu());
            partly.inside = partly.inside.saturating_add(sum.inside());
        }
    }

    /// Parts of the CPU time and of thread lifetimes. Time of functions that were probed at different times is a part of different
    /// wholes: those parts are added. Where they come to more than all (the program has changed what it does), no number is right.
    pub(crate) fn shares(&self, whole: &Wholes) -> (f64, f64) {
        let (mut cpu, mut inside) = (self.cpu.ns, self.inside);
        let mut all = (0.0, 0.0);
        for partly in &self.partly {
            (cpu, inside) = (cpu.saturating_sub(partly.cpu), inside.saturating_sub(partly.inside));
            let (exec, wall) = partly.unseen.shares(partly.cpu, partly.inside, whole);
            all = (all.0 + exec, all.1 + wall);
        }
        // `f64::min` would make a number of NaN.
        let known = |part: f64| if part <= ROUNDING { part.min(1.0) } else { f64::NAN };
        let (exec, wall) = (all.0 + share(cpu, whole.cpu), all.1 + share(inside, whole.thread));
        (if whole.cpu_timed { known(exec) } else { f64::NAN }, known(wall))
    }
}
