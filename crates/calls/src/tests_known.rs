//! How well times and shares are known, and that this is said wherever they are: in tables, trees and comparisons.

use crate::fixture::{Named, SIZE, Take, call, leaf, name};
use crate::*;
use whither_store::calls::*;

/// `f1` makes so many calls of `f2`, `own` ns of its own; a call is measured to cost 60 ns.
fn calling(own: u64, times: u64) -> CallSnapshot {
    let main = call(0, 0, 50, 1, vec![call(1, 16, own, 1, vec![leaf(2, 32, 5_000, times)])]);
    Take { cost: 60, ..Take::of([1, 2]) }.snapshot(&main)
}

fn totals(snapshot: &CallSnapshot, id: u32) -> Figures {
    let functions = Analysis::new(snapshot, &Named, Options::default()).profile().functions;
    functions.into_iter().find(|f| f.id == id).unwrap().totals
}

/// What a probe costs may be off by as much as it is.
#[test]
fn callers_are_rough_where_what_was_taken_off_is_more_than_a_fiftieth() {
    let outer = |own, times| totals(&calling(own, times), 1);
    let f = outer(0, 4);
    assert_eq!((f.rough, f.unsure_ns), (false, 240), "240 of 20,000");
    let short = |own: u64, wall: u64| {
        let main = call(0, 0, 50, 1, vec![call(1, 16, own, 1, vec![leaf(2, 32, wall, 4)])]);
        totals(&Take { cost: 60, ..Take::of([1, 2]) }.snapshot(&main), 1)
    };
    assert!(short(2_000, 50).rough, "240 of 2,200");
    assert!(!short(12_000, 50).rough, "240 of 12,200");
}

/// The clock reads up to so much before the work of a call is done.
#[test]
fn calls_are_rough_where_one_reading_of_the_clock_may_be_a_fiftieth_of_them() {
    let rough = |ns: u64| {
        let mut snapshot = Take::of([1]).snapshot(&call(0, 0, 50, 1, vec![leaf(1, 16, ns, 10)]));
        snapshot.own_cost.step_ps = 45_000;
        let f = totals(&snapshot, 1);
        assert_eq!(f.unsure_ns, 450);
        f.rough
    };
    assert!(rough(112) && rough(177) && rough(2_000) && !rough(2_300));
}

/// Half of the second since the probe came; of the whole epoch it is an eighth.
#[test]
fn shares_of_late_probes_are_of_the_time_since() {
    let mut snapshot = calling(100_000, 20);
    let inside = totals(&snapshot, 2).wall_ns;
    (snapshot.whole.thread_ns, snapshot.whole.cpu_ns) = (8 * inside, 8 * inside);
    let spent = |late: u64| Some(Spent { cpu_ns: late * inside, thread_ns: late * inside });
    let share = |snapshot: &CallSnapshot, id| totals(snapshot, id).share_wall;
    assert!((share(&snapshot, 2) - 0.125).abs() < 1e-9);
    let first = share(&snapshot, 1);
    snapshot.late = vec![LatePoint { id: 2, after_ns: 1, spent: spent(6) }];
    assert!((share(&snapshot, 2) - 0.5).abs() < 1e-9 && (totals(&snapshot, 2).share_exec - 0.5).abs() < 1e-9);
    assert!((share(&snapshot, 1) - first).abs() < 1e-12, "there from the begin");
    let listing = Analysis::new(&snapshot, &Named, Options::default()).listing(&ListQuery::default()).unwrap();
    let inner = listing.rows.iter().find(|r| r.label.ends_with("f2")).unwrap();
    assert!((inner.figures.share_wall - 0.5).abs() < 1e-9);
    snapshot.late[0].spent = None;
    assert!(share(&snapshot, 2).is_nan(), "a recording that does not tell");
    snapshot.late[0].spent = spent(6);
    let mut earlier = snapshot.clone();
    (earlier.whole.thread_ns, earlier.whole.cpu_ns, earlier.whole.wall_ns) = (5 * inside, 4 * inside, 0);
    snapshot.late[0].after_ns = 7;
    let since = difference(&snapshot, &earlier).late[0].spent.unwrap();
    assert_eq!(since, Spent { cpu_ns: 2 * inside, thread_ns: inside });
}

/// A function that is taken back and added again is one, and its share is of the time in which it was probed.
#[test]
fn functions_probed_anew_are_one() {
    let mut snapshot = calling(100_000, 20);
    let inside = totals(&snapshot, 2).wall_ns;
    (snapshot.whole.thread_ns, snapshot.whole.cpu_ns, snapshot.whole.wall_ns) = (8 * inside, 8 * inside, 8);
    let at = |part: u64| Moment { after_ns: part, spent: Spent { cpu_ns: part * inside, thread_ns: part * inside } };
    let calls = totals(&snapshot, 2).calls;
    // The second probe sees the same again on the same path.
    let (index, first) =
        snapshot.paths.iter().enumerate().find(|(_, p)| snapshot.points[p.point as usize].id == 2).unwrap();
    let again = CallPath { id: 1_000, point: snapshot.points.len() as u32, ..first.clone() };
    let point = CallPoint { id: 9, ..snapshot.points[first.point as usize].clone() };
    snapshot.points[first.point as usize].state = PointState::Removed;
    assert!(index < snapshot.paths.len());
    snapshot.points.push(point);
    snapshot.paths.push(again);
    snapshot.late = vec![LatePoint { id: 9, after_ns: 5, spent: Some(at(5).spent) }];
    snapshot.gaps = vec![Gap { id: 2, from: at(1), until: None }, Gap { id: 9, from: at(6), until: Some(at(7)) }];
    let analysis = Analysis::new(&snapshot, &Named, Options::default());
    let profile = analysis.profile();
    let rows: Vec<&FunctionRow> = profile.functions.iter().filter(|f| f.offset == 2 * SIZE).collect();
    let [row] = rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.id, row.totals.calls, row.after_ns, row.probed_ns), (9, 2 * calls, None, Some(3)));
    assert!((row.totals.share_wall - 2.0 / 3.0).abs() < 1e-9, "two of one + one + one: {}", row.totals.share_wall);
    for group in [Group::Function, Group::Path, Group::Caller, Group::Callsite] {
        let rows = analysis.listing(&ListQuery { group, ..ListQuery::default() }).unwrap().rows;
        let of: Vec<&ListRow> = rows.iter().filter(|r| r.label.contains("f2")).collect();
        assert_eq!((of.len(), of[0].figures.calls), (1, 2 * calls), "{group:?}: {of:?}");
    }
    let mut earlier = snapshot.clone();
    earlier.whole = Whole { wall_ns: 6, cpu_ns: 6 * inside, thread_ns: 6 * inside, ..earlier.whole };
    let gap = |id, from, until: Option<u64>| Gap { id, from: at(from), until: until.map(at) };
    assert_eq!(difference(&snapshot, &earlier).gaps, [gap(2, 0, None), gap(9, 0, Some(1))]);
}

/// In the tree as in the table; what calls around it took is known all the same.
#[test]
fn trees_tell_how_well_times_are_known() {
    let mut snapshot = calling(100_000, 20);
    let node = |snapshot: &CallSnapshot| {
        let tree = Analysis::new(snapshot, &Named, Options::default()).tree(&TreeQuery::default());
        let outer = tree.children[0].children[0].clone();
        assert_eq!((outer.name.as_str(), outer.children[0].name.as_str()), ("f1", "f2"));
        outer
    };
    let plain = node(&snapshot);
    assert!(!plain.own_rough && !plain.times.rough && plain.times.wall_ns == plain.total, "{plain:?}");
    let inner = snapshot.paths.iter_mut().find(|p| p.point == 1).unwrap();
    inner.totals.done -= 10;
    snapshot.lost.jumped = 10;
    let left = node(&snapshot);
    assert_eq!((left.times.untimed, left.children[0].times.untimed), (0, 10));
    assert!(left.own_rough, "what is left by callees that have no time");
}

/// A call lasts no longer than the outermost ones together, however its functions call each other.
#[test]
fn the_longest_call_is_no_longer_than_all() {
    let main = call(0, 0, 50, 1, vec![call(1, 16, 500, 1, vec![call(1, 32, 500, 1, vec![leaf(1, 32, 500, 1)])])]);
    let mut snapshot = Take { cost: 60, ..Take::of([1]) }.snapshot(&main);
    snapshot.own_cost.whole_ps = 60_000;
    let f = totals(&snapshot, 1);
    assert!(f.max_ns.unwrap() <= f.wall_ns && f.wall_ns == 1_500, "{f:?}");
}

/// Calls behind waits cost more than is known of calls one after the other.
#[test]
fn own_cost_of_programs_that_wait_is_more_than_known() {
    let mut snapshot = calling(100_000, 20);
    let open = |s: &CallSnapshot| Analysis::new(s, &Named, Options::default()).own_cost().open;
    (snapshot.whole.cpu_ns, snapshot.whole.thread_ns) = (50_000, 60_000);
    assert!(!open(&snapshot));
    snapshot.whole.thread_ns = 1_000_000;
    assert!(open(&snapshot));
    snapshot.whole.cpu_ns = 400_000;
    assert!(!open(&snapshot), "a trifle");
}

/// What hides behind the program's work in calibration need not do so in a program, and paths that change cost more than one that does not.
#[test]
fn own_cost_has_an_upper_end_by_kinds_of_calls_changes_and_frames() {
    let kind = |same_ps| MostOfKind { same_ps, deep_ps: same_ps + 48_000, varied_ps: same_ps + 100_000 };
    let of = |calls: Vec<crate::fixture::Call>, entry_only: bool| {
        let mut snapshot = Take { cost: 10, ..Take::of([1]) }.snapshot(&call(0, 0, 50, 1, calls));
        (snapshot.own_cost.count_ps, snapshot.own_cost.count_least_ps) = (8_000, Some(4_000));
        snapshot.own_cost.most = Some(MostCost { timed: kind(50_000), counted: kind(20_000), frames: 48 });
        (snapshot.whole.cpu_ns, snapshot.whole.thread_ns) = (1_000_000, 1_000_000);
        snapshot.points[0].entry_only = entry_only.then(|| "asked for".into());
        Analysis::new(&snapshot, &Named, Options::default()).own_cost()
    };
    let one = of(vec![leaf(1, 16, 30, 1000)], false);
    assert_eq!((one.ns, one.most_ns, one.open), (10_000, Some(75_000), false));
    assert!((one.share_most - 0.075).abs() < 1e-12);
    let counted = of(vec![leaf(1, 16, 30, 1000)], true);
    assert_eq!((counted.ns, counted.most_ns, counted.rough), (4_000, Some(30_000), false));
    let two = of(vec![leaf(1, 16, 30, 900), leaf(1, 32, 30, 100)], false);
    assert_eq!(two.most_ns, Some((50_000 + 200 * 100) * 3 / 2), "each of a hundred is a change twice");
    let deep = |frames: u32| (0..frames).fold(leaf(1, 16, 30, 1000), |inner, _| call(2, 16, 0, 1, vec![inner]));
    let (few, many) = (of(vec![deep(4)], false), of(vec![deep(30)], false));
    assert_eq!(few.most_ns, Some(75_000));
    assert!((105_000..=111_000).contains(&many.most_ns.unwrap()), "some 21 frames more than ten: {many:?}");
    let beyond = of(vec![leaf(1, 16, 30, 100_000)], false);
    assert_eq!(beyond.most_ns, Some(1_000_000.max(beyond.ns)), "no more than there is");
}

/// Threads that wait for CPUs wait for what measuring costs, too: what is left of the wall time is mostly that.
#[test]
fn waiting_for_cpus_on_account_of_probes_is_no_time_of_calls() {
    let inner = (0..40).fold(leaf(1, 16, 1, 1), |inner, _| call(1, 16, 1, 1, vec![inner]));
    let mut snapshot = Take { cost: 60, join: false, ..Take::of([1]) }.snapshot(&call(0, 0, 0, 1, vec![inner]));
    let all = snapshot.own_cost.whole_ps / 1000 * 40;
    let whole = &mut snapshot.whole;
    (whole.cpu_ns, whole.thread_ns, whole.ran_ns, whole.queued_ns) = (1_000_000, 2_000_000, 1_000_000, 0);
    for path in &mut snapshot.paths {
        // As long on a CPU as measuring took, and the same waiting for it.
        (path.totals.cpu_ns, path.totals.wall_ns) = (all + 40, 2 * all + 80);
    }
    let outermost =
        |s: &CallSnapshot| Analysis::new(s, &Named, Options::default()).profile().functions[0].totals.clone();
    assert_eq!(outermost(&snapshot).wall_known(), Known::Roughly, "it may have waited for anything");
    snapshot.whole.queued_ns = 1_000_000;
    assert_eq!(outermost(&snapshot).wall_known(), Known::AtMost(2 * all + 80));
}

/// Of a call that sleeps the wall time is known, whatever probed callees cost; its CPU time is not.
#[test]
fn cpu_time_is_a_bound_where_measuring_cost_most_of_it() {
    let sleeps = call(1, 16, 1_000_000, 1, vec![leaf(2, 16, 1, 20)]);
    let mut snapshot = Take { cost: 60, ..Take::of([1, 2]) }.snapshot(&call(0, 0, 0, 1, vec![sleeps]));
    (snapshot.whole.cpu_ns, snapshot.whole.thread_ns) = (10_000, 2_000_000);
    snapshot.paths[0].totals.cpu_ns = 1_500;
    let of = |s: &CallSnapshot| {
        let profile = Analysis::new(s, &Named, Options::default()).profile();
        profile.functions.iter().find(|f| f.names[0] == "f1").unwrap().totals.clone()
    };
    let f = of(&snapshot);
    assert_eq!((f.wall_known(), f.cpu_known(), f.off_known()), (Known::Well, Known::AtMost(1_500), Known::Well));
    snapshot.paths[0].totals.cpu_ns = 500_000;
    assert_eq!(of(&snapshot).cpu_known(), Known::Well);
}

/// Nobody may know what a call in progress has used: at least as much as its callees.
#[test]
fn cpu_time_of_calls_in_progress_is_no_less_than_that_of_their_callees() {
    let main = call(0, 0, 0, 1, vec![call(1, 16, 0, 1, vec![leaf(2, 16, 400_000, 2)])]);
    let mut snapshot = Take::of([1, 2]).snapshot(&main);
    (snapshot.whole.cpu_ns, snapshot.whole.thread_ns) = (1_000_000, 1_000_000);
    let outer = snapshot.paths[0].id;
    snapshot.paths[0].totals = PathTotals { calls: 1, ..PathTotals::default() };
    let mut running = InProgress { tid: 1, pid: 1, path: outer, elapsed_ns: 900_000, cpu_ns: None };
    let of = |s: &CallSnapshot| {
        let profile = Analysis::new(s, &Named, Options::default()).profile();
        profile.functions.iter().find(|f| f.names[0] == "f1").unwrap().totals.clone()
    };
    snapshot.in_progress = vec![running];
    assert_eq!((of(&snapshot).cpu_ns, of(&snapshot).cpu_known()), (800_000, Known::AtLeast));
    running.cpu_ns = Some(850_000);
    snapshot.in_progress = vec![running];
    let known = of(&snapshot);
    assert_eq!((known.cpu_ns, known.self_cpu_ns, known.off_cpu_ns), (850_000, 50_000, 50_000));
    assert_eq!((known.cpu_known(), known.running.cpu_ns), (Known::Well, 850_000));
}

/// A signal handler's calls run in the time of what they interrupt: parts may add up to more than all, and each is what it is.
#[test]
fn shares_of_calls_that_overlap_are_of_what_there_was() {
    let mut snapshot = calling(100_000, 20);
    for path in &mut snapshot.paths {
        (path.parent, path.totals.wall_ns, path.totals.cpu_ns) = (None, 180_000, 180_000);
    }
    (snapshot.whole.cpu_ns, snapshot.whole.thread_ns) = (200_000, 200_000);
    assert!((totals(&snapshot, 1).share_exec - 0.9).abs() < 0.02, "{:?}", totals(&snapshot, 1));
}

/// A call that exits has no time of its own, and that is said.
#[test]
fn calls_that_end_with_their_process_lack_their_time() {
    let main = call(0, 0, 0, 1, vec![call(1, 16, 0, 1, vec![leaf(2, 16, 400_000, 2)])]);
    let mut snapshot = Take::of([1, 2]).snapshot(&main);
    (snapshot.whole.cpu_ns, snapshot.whole.thread_ns) = (1_000_000, 1_000_000);
    snapshot.paths[0].totals = PathTotals { calls: 1, ..PathTotals::default() };
    let id = snapshot.points[0].id;
    assert_eq!(totals(&snapshot, id).untimed, 0, "one that runs may be about to be read");
    snapshot.whole.threads = 0;
    let f = totals(&snapshot, id);
    assert_eq!((f.untimed, f.lacking, f.wall_known()), (1, true, Known::Not));
}

/// Trees are weighed by time as soon as a call lasts.
#[test]
fn calls_in_progress_are_times() {
    let mut snapshot = Take::of([1]).snapshot(&call(0, 0, 0, 1, vec![leaf(1, 16, 0, 1)]));
    snapshot.paths[0].totals = PathTotals { calls: 1, ..PathTotals::default() };
    assert_eq!(Metric::measured(&snapshot), [Metric::Count]);
    let path = snapshot.paths[0].id;
    snapshot.in_progress = vec![InProgress { tid: 1, pid: 1, path, elapsed_ns: 900, cpu_ns: Some(300) }];
    assert_eq!(Metric::measured(&snapshot), [Metric::Wall, Metric::Cpu, Metric::Off, Metric::Count]);
    let weight = |metric: Metric| {
        let analysis = Analysis::new(&snapshot, &Named, Options::default());
        let tree = analysis.tree(&TreeQuery { metric, ..TreeQuery::default() });
        tree.total
    };
    assert_eq!((weight(Metric::Wall), weight(Metric::Cpu), weight(Metric::Off)), (900, 300, 600));
}

/// Where CPUs were waited for, calls that breakpoints measured are bounded by all that was measured, the breakpoints' own time included.
#[test]
fn bounds_of_calls_by_breakpoints_hold_what_these_cost() {
    let mut snapshot = Take::of([1]).snapshot(&call(0, 0, 0, 1, vec![leaf(1, 16, 20_000, 1_000)]));
    snapshot.points[0].patch = Some(PatchKind::Uprobe);
    snapshot.own_cost.hit_ps = 6_000_000;
    let totals_of = &mut snapshot.paths[0].totals;
    (totals_of.wall_ns, totals_of.cpu_ns) = (40_000_000, 20_000_000);
    (snapshot.whole.cpu_ns, snapshot.whole.thread_ns) = (30_000_000, 60_000_000);
    (snapshot.whole.ran_ns, snapshot.whole.queued_ns) = (30_000_000, 30_000_000);
    let id = snapshot.points[0].id;
    assert_eq!(totals(&snapshot, id).wall_known(), Known::AtMost(40_000_000));
}

/// A child that was forked in a call: there its callees have no probed call around them, though their callers are the same.
#[test]
fn calls_that_a_child_was_forked_in_last_at_least_as_long_as_what_it_does_there() {
    let main = call(0, 0, 0, 1, vec![call(2, 16, 1_000, 1, vec![leaf(1, 32, 300, 1)])]);
    let mut snapshot = Take { cost: 0, ..Take::of([0, 1, 2]) }.snapshot(&main);
    let at = |s: &CallSnapshot, function| {
        s.paths.iter().position(|p| s.points[p.point as usize].names[0] == name(function)).unwrap()
    };
    let (inner, outer) = (at(&snapshot, 1), at(&snapshot, 2));
    // The child's own path: frames up to the outermost one.
    let mut frame = snapshot.paths[at(&snapshot, 0)].frame;
    for path in [outer, inner] {
        let own = snapshot.frames[snapshot.paths[path].frame as usize];
        snapshot.frames.push(CallFrame { caller: frame, ..own });
        frame = snapshot.frames.len() as u32 - 1;
    }
    let totals = PathTotals { wall_ns: 5_000, cpu_ns: 4_000, max_ns: 5_000, ..snapshot.paths[inner].totals.clone() };
    snapshot.paths.push(CallPath { id: 900, parent: None, frame, totals, ..snapshot.paths[inner].clone() });
    let told = |s: &CallSnapshot| {
        let analysis = Analysis::new(s, &Named, Options::default());
        let f =
            |function| analysis.profile().functions.into_iter().find(|f| f.names[0] == name(function)).unwrap().totals;
        [f(0), f(2), f(1)].map(|f| (f.lacking, f.wall_ns, f.cpu_ns, f.running.calls))
    };
    let process = |pid| CallProcess { pid, ..CallProcess::default() };
    snapshot.processes = vec![process(1)];
    assert_eq!(told(&snapshot)[1], (false, 1_300, 1_300, 0), "it may have been called before its caller was probed");
    snapshot.processes.push(process(2));
    (snapshot.whole.thread_ns, snapshot.whole.cpu_ns) = (10_000, 10_000);
    let each = told(&snapshot);
    assert_eq!(each[0], (true, 6_300, 5_300, 0));
    assert_eq!(each[1], (true, 6_300, 5_300, 0));
    assert_eq!(each[2], (false, 5_300, 4_300, 0));
}
