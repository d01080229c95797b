//! The drill: from a function that takes long to the one that makes it long. One step puts probes on what
//! the function in focus calls, the next reads one interval, takes away callees that hold next to nothing
//! and moves the focus to the callee that stands out; it stops where none does. Pure: the session asks what
//! to add and remove, does it, and comes back with the interval that followed.
//!
//! A callee with half of the time stands out, whatever else there is. Half alone is no policy: of three
//! callees with 50, 25 and 24 % the first is plainly the one to follow, yet it falls below half in every
//! second interval. So a clear leader is followed, too: so far ahead of all others, the function's own code
//! among them, that another interval would not change the order. Where two share the lead the drill stops,
//! as going on would hide one of them.

use crate::analysis::Options;
use crate::names::NoNames;
use crate::{Analysis, Metric};
use rustc_hash::FxHashSet;
use whither_store::calls::{CallPoint, CallSnapshot, PointState};

/// A callee holds the bottleneck with at least this part of the focus's time,
const HALF: f64 = 0.5;
/// or with this part, if the next largest part is smaller by this factor.
const LEAST_LEAD: f64 = 1.0 / 3.0;
const AHEAD: f64 = 1.5;
/// A callee below this part of the focus's time is not worth its probe.
const NOTHING: f64 = 0.01;
/// Intervals without time in the focus, or without a callee entered, before giving up.
const PATIENCE: u32 = 3;
/// Levels; deeper than any program a person wants to read.
const DEEPEST: usize = 64;

/// A function that the one in focus calls, as the engine resolved it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Callee {
    /// Path of its file.
    pub module: String,
    /// Stated address.
    pub offset: u64,
    /// Name.
    pub name: String,
}

/// What the session shall do now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrillStep {
    /// Indexes into the callees given: probe these.
    pub add: Vec<usize>,
    /// Points (their ids) to take away.
    pub remove: Vec<u32>,
    /// The focus moved: come back at once with the callees of the new [`Drill::focus`].
    pub moved: bool,
    /// The end, and what was found.
    pub done: Option<Verdict>,
}

/// Where the drill ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Points from the first to the last focus: the last one is the culprit.
    pub chain: Vec<u32>,
    /// Time of the last focus as a part of the first one's.
    pub share: f64,
    /// Its own part (own code and callees without a probe) of its time.
    pub own: f64,
    /// Callees with their parts of the focus's time, largest first.
    pub callees: Vec<(u32, f64)>,
    /// Steps taken: levels expanded.
    pub steps: u32,
    /// Why it stopped, in words.
    pub reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Wants the callees of the focus.
    Expand,
    /// Wants an interval with the callees probed.
    Measure {
        waited: u32,
    },
    Done,
}

/// A drill in progress.
#[derive(Clone, Debug)]
pub struct Drill {
    chain: Vec<u32>,
    state: State,
    metric: Metric,
    /// What this drill asked for, by module and address: nothing else is ever removed.
    asked: FxHashSet<(String, u64)>,
    /// Points worth keeping at the level they were found.
    kept: FxHashSet<u32>,
    steps: u32,
    share: f64,
}

impl Drill {
    /// Starts at a probed function (its point's id). Points that the drill did not ask for stay.
    #[must_use]
    pub fn new(point: u32, metric: Metric) -> Self {
        Self {
            chain: vec![point],
            state: State::Expand,
            metric,
            asked: FxHashSet::default(),
            kept: FxHashSet::default(),
            steps: 0,
            share: 1.0,
        }
    }

    /// The function whose callees are wanted with the next step.
    #[must_use]
    pub fn focus(&self) -> u32 {
        self.chain.last().copied().unwrap_or(0)
    }

    /// One step: `interval` is what happened since the probes of the last one were in place, `callees` what
    /// [`Drill::focus`] calls.
    pub fn step(&mut self, interval: &CallSnapshot, callees: &[Callee]) -> DrillStep {
        match self.state {
            State::Expand => self.expand(interval, callees),
            State::Measure { waited } => self.measure(interval, waited),
            State::Done => {
                DrillStep { done: Some(self.verdict(0.0, Vec::new(), "it had ended")), ..DrillStep::default() }
            }
        }
    }

    fn expand(&mut self, interval: &CallSnapshot, callees: &[Callee]) -> DrillStep {
        let mut seen = FxHashSet::default();
        let fresh: Vec<usize> = (0..callees.len())
            .filter(|&i| seen.insert((&callees[i].module, callees[i].offset)) && !is_probed(interval, &callees[i]))
            .collect();
        let probed = callees.iter().any(|c| is_probed(interval, c));
        if fresh.is_empty() && !probed {
            return self.end(1.0, Vec::new(), "it calls nothing that can be probed");
        }
        self.steps += 1;
        self.state = State::Measure { waited: 0 };
        self.asked.extend(fresh.iter().map(|&i| (callees[i].module.clone(), callees[i].offset)));
        DrillStep { add: fresh, ..DrillStep::default() }
    }

    fn measure(&mut self, interval: &CallSnapshot, waited: u32) -> DrillStep {
        let measured = Measured::new(interval, &self.chain, &self.metric);
        let waits = measured.focus == 0 || (measured.entered == 0 && measured.focus_running);
        if waits && waited + 1 < PATIENCE {
            self.state = State::Measure { waited: waited + 1 };
            return DrillStep::default();
        }
        let parts: Vec<(u32, f64)> = measured.parts();
        let own = (1.0 - parts.iter().map(|(_, part)| part).sum::<f64>()).max(0.0);
        if measured.focus == 0 {
            return self.end(own, parts, "no time was spent in it");
        }
        self.share = (measured.focus as f64 / measured.root.max(1) as f64).min(1.0);
        self.kept.extend(parts.iter().filter(|(_, part)| *part >= NOTHING).map(|(id, _)| *id));
        let remove = self.unneeded(interval);
        let hottest = leader(&parts, own).filter(|(id, _)| !self.chain.contains(id));
        match hottest {
            Some((id, part)) if self.chain.len() < DEEPEST => {
                self.share *= part;
                self.chain.push(id);
                self.state = State::Expand;
                DrillStep { remove, moved: true, ..DrillStep::default() }
            }
            Some(_) => DrillStep { remove, ..self.end(own, parts, "it is as deep as a drill goes") },
            None => DrillStep { remove, ..self.end(own, parts, "no callee stands out") },
        }
    }

    /// Points of ours that hold next to nothing, or were not called under the focus at all.
    fn unneeded(&self, interval: &CallSnapshot) -> Vec<u32> {
        let module = |p: &CallPoint| interval.modules.get(p.module as usize).map_or("", |m| m.path.as_str());
        let ours = |p: &&CallPoint| {
            matches!(p.state, PointState::On | PointState::Off)
                && self.asked.contains(&(module(p).to_owned(), p.offset))
        };
        let needed = |id: &u32| self.chain.contains(id) || self.kept.contains(id);
        interval.points.iter().filter(ours).map(|p| p.id).filter(|id| !needed(id)).collect()
    }

    fn end(&mut self, own: f64, callees: Vec<(u32, f64)>, reason: &'static str) -> DrillStep {
        self.state = State::Done;
        DrillStep { done: Some(self.verdict(own, callees, reason)), ..DrillStep::default() }
    }

    fn verdict(&self, own: f64, callees: Vec<(u32, f64)>, reason: &'static str) -> Verdict {
        Verdict { chain: self.chain.clone(), share: self.share, own, callees, steps: self.steps, reason }
    }
}

/// The callee that stands out; `parts` are sorted, largest first.
fn leader(parts: &[(u32, f64)], own: f64) -> Option<(u32, f64)> {
    let (id, part) = *parts.first()?;
    let next = parts.get(1).map_or(own, |(_, second)| own.max(*second));
    (part >= HALF || (part >= LEAST_LEAD && part >= AHEAD * next)).then_some((id, part))
}

fn is_probed(snapshot: &CallSnapshot, callee: &Callee) -> bool {
    let here = |module: u32| snapshot.modules.get(module as usize).is_some_and(|m| m.path == callee.module);
    let on = |state| matches!(state, PointState::On | PointState::Off);
    snapshot.points.iter().any(|p| on(p.state) && p.offset == callee.offset && here(p.module))
}

/// Times of one interval along the chain of focuses.
struct Measured {
    /// Time of the first focus.
    root: u64,
    /// Time of the last focus, below all before it.
    focus: u64,
    /// Time of probed calls made directly by the focus, by point id.
    callees: Vec<(u32, u64)>,
    /// Calls of those.
    entered: u64,
    /// Whether a call of the focus had not returned.
    focus_running: bool,
}

impl Measured {
    fn new(interval: &CallSnapshot, chain: &[u32], metric: &Metric) -> Self {
        let analysis = Analysis::new(interval, &NoNames, Options::default());
        let ids: Vec<u32> =
            interval.paths.iter().map(|p| interval.points.get(p.point as usize).map_or(u32::MAX, |p| p.id)).collect();
        let time = |path: usize| match metric {
            Metric::Cpu => analysis.sums[path].cpu,
            Metric::Off => analysis.sums[path].wall.saturating_sub(analysis.sums[path].cpu),
            Metric::Count => analysis.sums[path].calls,
            Metric::Wall => analysis.sums[path].inside(),
            Metric::Switches => analysis.sums[path].usage.map_or(0, |u| u.switches),
            Metric::Faults => analysis.sums[path].usage.map_or(0, |u| u.faults_minor.saturating_add(u.faults_major)),
            Metric::Value(name) => u64::try_from(analysis.value(path, name)).unwrap_or(0),
        };
        let follows = |path: usize, chain: &[u32]| follows(path, chain, &ids, &analysis);
        let outermost = |chain: &[u32]| -> Vec<usize> {
            let all: Vec<usize> = (0..ids.len()).filter(|&p| follows(p, chain)).collect();
            let set: FxHashSet<usize> = all.iter().copied().collect();
            all.into_iter().filter(|&p| !analysis.nesting.below(p, |a| set.contains(&a))).collect()
        };
        let inside: FxHashSet<usize> = (0..ids.len()).filter(|&p| follows(p, chain)).collect();
        let focus = outermost(chain);
        let mut measured = Self {
            root: outermost(&chain[..1]).into_iter().map(time).fold(0, u64::saturating_add),
            focus: focus.iter().map(|&p| time(p)).fold(0, u64::saturating_add),
            callees: Vec::new(),
            entered: 0,
            focus_running: focus.iter().any(|&p| analysis.sums[p].running.calls > 0),
        };
        for path in (0..ids.len()).filter(|p| !inside.contains(p)) {
            if analysis.nesting.parents[path].is_some_and(|p| inside.contains(&p)) {
                measured.entered = measured.entered.saturating_add(analysis.sums[path].calls);
                measured.add(ids[path], time(path));
            }
        }
        measured
    }

    fn add(&mut self, id: u32, time: u64) {
        match self.callees.iter_mut().find(|(known, _)| *known == id) {
            Some((_, sum)) => *sum = sum.saturating_add(time),
            None => self.callees.push((id, time)),
        }
    }

    /// Parts of the focus's time, largest first.
    fn parts(&self) -> Vec<(u32, f64)> {
        let whole = self.focus.max(1) as f64;
        let mut parts: Vec<(u32, f64)> = self.callees.iter().map(|(id, t)| (*id, *t as f64 / whole)).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        parts
    }
}

/// Whether a path is of the last point of the chain, inside calls of the ones before it, in order.
fn follows(path: usize, chain: &[u32], ids: &[u32], analysis: &Analysis<'_>) -> bool {
    let Some((last, outer)) = chain.split_last() else { return false };
    let mut wanted = outer.iter().rev();
    let mut next = wanted.next();
    for around in analysis.nesting.around(path) {
        if next == Some(&ids[around]) {
            next = wanted.next();
        }
    }
    ids[path] == *last && next.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Call, Named, SIZE, Take, call, leaf, name};
    use crate::{Mark, Options};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// What a session and its engine do: probes come and go, one interval per step.
    struct Session<'a> {
        program: &'a Call,
        probed: BTreeSet<u32>,
        intervals: u32,
        removed: u32,
    }

    impl Session<'_> {
        fn callees(&self, function: u32) -> Vec<Callee> {
            fn walk(c: &Call, function: u32, out: &mut BTreeSet<u32>) {
                if c.function == function {
                    out.extend(c.callees.iter().map(|c| c.function));
                }
                c.callees.iter().for_each(|c| walk(c, function, out));
            }
            let mut found = BTreeSet::new();
            walk(self.program, function, &mut found);
            let callee = |f| Callee { module: "/bin/app".into(), offset: u64::from(f) * SIZE, name: name(f) };
            found.into_iter().map(callee).collect()
        }

        /// Ids that stay the same while points come and go: the function's number.
        fn interval(&mut self) -> CallSnapshot {
            self.intervals += 1;
            let take = Take { cost: 20, ..Take::of(self.probed.iter().copied()) };
            let mut snapshot = take.snapshot(self.program);
            snapshot.points.iter_mut().for_each(|p| p.id = (p.offset / SIZE) as u32);
            snapshot
        }

        fn run(&mut self, start: u32) -> Verdict {
            self.probed.insert(start);
            let mut drill = Drill::new(start, Metric::Wall);
            let mut interval = self.interval();
            for _ in 0..200 {
                let callees = self.callees(drill.focus());
                let step = drill.step(&interval, &callees);
                self.probed.extend(step.add.iter().map(|&i| (callees[i].offset / SIZE) as u32));
                for id in &step.remove {
                    assert!(self.probed.remove(id), "only what is probed is removed");
                    self.removed += 1;
                }
                if let Some(verdict) = step.done {
                    return verdict;
                }
                if !step.moved {
                    interval = self.interval();
                }
            }
            panic!("the drill does not end");
        }
    }

    fn session(program: &Call) -> Session<'_> {
        Session { program, probed: BTreeSet::new(), intervals: 0, removed: 0 }
    }

    /// A request to insert code: 45 of 48.5 s in the catch-up, 41.5 in the search, 81 % of whose calls come
    /// from one caller. Microseconds for milliseconds.
    fn insertion() -> Call {
        let search = |site, times| leaf(4, site, 1_000, times);
        let triggered = call(3, 0x40, 15_000, 1, vec![search(0x50, 33_615)]);
        let catch_up = call(2, 0x30, 1_000, 1, vec![triggered, call(5, 0x60, 2_000, 1, vec![search(0x10, 4_000)])]);
        let write = call(6, 0x70, 400_000, 1, vec![search(0x20, 3_885)]);
        call(0, 0, 10, 1, vec![call(1, 0x10, 50_000, 1, vec![catch_up, write, leaf(7, 0x80, 10, 100)])])
    }

    #[test]
    fn finds_the_search_below_the_insertion() {
        let program = insertion();
        let mut session = session(&program);
        let verdict = session.run(1);
        assert_eq!(verdict.chain, [1, 2, 3, 4], "{verdict:?}");
        assert!(verdict.steps <= 6 && session.intervals <= 6, "{} steps", session.intervals);
        assert!(verdict.share > 0.7 && verdict.own > 0.99, "{verdict:?}");
        assert!(!session.probed.contains(&7), "what holds nothing loses its probe");
        assert!(session.probed.contains(&6), "what holds something keeps it");

        let snapshot = Take::of([4]).snapshot(&program);
        let marks = Analysis::new(&snapshot, &Named, Options::default()).marks().to_vec();
        let Some(Mark::OneCaller { caller, share, .. }) = marks.iter().find(|m| matches!(m, Mark::OneCaller { .. }))
        else {
            panic!("no mark: {marks:?}");
        };
        assert_eq!(caller, "f3");
        assert!((share - 0.81).abs() < 0.001, "{share}");
    }

    /// A solver with 16 waits, every first one of a pair 20 times as long as the second, half of its time;
    /// a reduction with 22 %.
    fn solver() -> Call {
        let waits = (0..16_u64).map(|i| leaf(3, 0x100 + i * 16, if i % 2 == 0 { 2_000 } else { 100 }, 50));
        let mut callees: Vec<Call> = waits.collect();
        callees.push(leaf(4, 0x300, 7_200, 50));
        callees.push(leaf(5, 0x320, 5, 100));
        let congrad = call(2, 0x20, 470_000, 1, callees);
        call(0, 0, 10, 1, vec![call(1, 0x10, 5_000, 1, vec![congrad, leaf(6, 0x40, 100_000, 1)])])
    }

    #[test]
    fn finds_the_waits_of_the_solver_and_the_slow_ones_among_them() {
        let program = solver();
        let mut session = session(&program);
        let verdict = session.run(1);
        assert_eq!(verdict.chain, [1, 2, 3], "{verdict:?}");
        assert!(session.intervals <= 6, "{} intervals", session.intervals);

        let snapshot = Take::of([3]).snapshot(&program);
        let marks = Analysis::new(&snapshot, &Named, Options::default()).marks().to_vec();
        assert_eq!(marks.len(), 8, "{marks:?}");
        for mark in marks {
            let Mark::SlowSite { average_ns, others_ns, share, site, .. } = mark else { panic!("{mark:?}") };
            assert!(
                (average_ns / others_ns - 20.0).abs() < 1e-9 && share > 0.1,
                "{site}: {average_ns} {others_ns} {share}"
            );
        }
    }

    #[test]
    fn waits_for_a_function_that_is_idle_and_gives_up_at_last() {
        let program = solver();
        let empty = CallSnapshot { paths: Vec::new(), ..Take::of([1]).snapshot(&program) };
        let mut drill = Drill::new(1, Metric::Wall);
        let callees = session(&program).callees(1);
        assert_eq!(drill.step(&empty, &callees).add.len(), 2);
        assert_eq!(drill.step(&empty, &callees), DrillStep::default());
        assert_eq!(drill.step(&empty, &callees), DrillStep::default());
        let end = drill.step(&empty, &callees).done.unwrap();
        assert_eq!(end.reason, "no time was spent in it");
        assert!(drill.step(&empty, &callees).done.is_some(), "it stays at its end");
    }

    #[test]
    fn a_clear_leader_is_followed_and_a_shared_lead_is_not() {
        // A solver that waits, computes and reduces: just below half, twice as much as the next.
        assert_eq!(leader(&[(3, 0.4958), (5, 0.2495), (4, 0.2334)], 0.02), Some((3, 0.4958)));
        assert_eq!(leader(&[(1, 0.34), (2, 0.33), (3, 0.33)], 0.0), None, "three alike");
        assert_eq!(leader(&[(1, 0.45), (2, 0.10)], 0.40), None, "its own code has as much");
        assert_eq!(leader(&[(1, 0.5), (2, 0.5)], 0.0), Some((1, 0.5)), "half is enough");
        assert_eq!(leader(&[(1, 0.2), (2, 0.01)], 0.02), None, "most of the time is elsewhere");
        assert_eq!(leader(&[], 1.0), None);
    }

    #[test]
    fn recursion_is_no_callee() {
        // f1 calls itself and f2; most of the time is in the recursion's own code.
        let inner = call(1, 0x30, 900, 1, vec![leaf(2, 0x40, 50, 1)]);
        let program = call(0, 0, 10, 1, vec![call(1, 0x10, 900, 1, vec![inner, leaf(2, 0x40, 50, 1)])]);
        let verdict = session(&program).run(1);
        assert_eq!(verdict.chain, [1]);
        assert!((verdict.share - 1.0).abs() < 1e-9 && verdict.own > 0.9, "{verdict:?}");
    }

    /// Trees whose functions are called from one place only: the way down is then known.
    fn trees() -> impl Strategy<Value = Call> {
        let leaf = (1_000..100_000_u64).prop_map(|wall| leaf(0, 0, wall, 1));
        let tree = leaf.prop_recursive(6, 60, 5, |inner| {
            (1_000..100_000_u64, prop::collection::vec(inner, 0..5))
                .prop_map(|(wall, callees)| call(0, 0, wall, 1, callees))
        });
        fn number(c: &mut Call, next: &mut u32, site: u64) {
            (c.function, c.site) = (*next, site);
            *next += 1;
            for (callee, i) in c.callees.iter_mut().zip(1..) {
                number(callee, next, i * 16);
            }
        }
        tree.prop_map(|mut program| {
            number(&mut program, &mut 0, 0);
            program
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]
        #[test]
        fn ends_where_no_callee_stands_out(program in trees()) {
            let mut session = session(&program);
            let verdict = session.run(0);
            let mut at = &program;
            let mut chain = vec![0];
            while let Some(next) = at.callees.iter().find(|c| {
                let others = at.callees.iter().filter(|o| o.function != c.function).map(Call::inclusive);
                let next = others.max().unwrap_or(0).max(at.wall);
                let (time, all) = (c.inclusive(), at.inclusive());
                time * 2 >= all || (time * 3 >= all && time * 2 >= next * 3)
            }) {
                at = next;
                chain.push(next.function);
            }
            prop_assert_eq!(&verdict.chain, &chain);
            let share = at.inclusive() as f64 / program.inclusive() as f64;
            prop_assert!((verdict.share - share).abs() < 1e-9, "{} {}", verdict.share, share);
            let own = at.wall as f64 / at.inclusive() as f64;
            prop_assert!((verdict.own - own).abs() < 1e-9, "{} {}", verdict.own, own);
            prop_assert!(session.probed.iter().all(|f| *f < 400));
        }
    }
}
