//! Sums on random programs: whatever is grouped, limited or subtracted, nothing vanishes and nothing counts
//! twice, and the correction for own cost gives back the true times.

use crate::fixture::{Call, Named, SIZE, START, Take, call, leaf};
use crate::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use whither_store::calls::*;

fn program() -> impl Strategy<Value = Call> {
    let leaf = (0..6_u32, 1..4_u64, 100..9_000_u64, 1..4_u64)
        .prop_map(|(f, site, wall, times)| leaf(f, site * 16, wall, times));
    let tree = leaf.prop_recursive(4, 40, 4, |inner| {
        (0..6_u32, 1..4_u64, 100..9_000_u64, 1..4_u64, prop::collection::vec(inner, 0..4))
            .prop_map(|(f, site, wall, times, callees)| call(f, site * 16, wall, times, callees))
    });
    prop::collection::vec(tree, 1..4).prop_map(|callees| call(0, 0, 50, 1, callees))
}

fn take() -> impl Strategy<Value = Take> {
    (prop::collection::btree_set(0..6_u32, 1..6), 0..40_u64, any::<bool>(), 1..3_u64)
        .prop_map(|(probed, cost, join, runs)| Take { probed, cost, join, runs })
}

/// True inclusive and self wall time per path text.
fn truth(main: &Call, take: &Take) -> BTreeMap<Vec<u64>, (u64, u64, u64)> {
    fn own(c: &Call, take: &Take) -> u64 {
        let unprobed = c.callees.iter().filter(|x| !take.probed.contains(&x.function));
        c.wall + unprobed.map(|x| x.times * own(x, take)).sum::<u64>()
    }
    fn walk(c: &Call, chain: &[u64], times: u64, take: &Take, out: &mut BTreeMap<Vec<u64>, (u64, u64, u64)>) {
        if take.probed.contains(&c.function) {
            let mut key = chain.to_vec();
            key.push(u64::from(c.function) * SIZE);
            let row = out.entry(key).or_default();
            row.0 += times;
            row.1 += times * c.inclusive();
            row.2 += times * own(c, take);
        }
        for callee in &c.callees {
            let mut chain = chain.to_vec();
            chain.push(u64::from(c.function) * SIZE + callee.site);
            walk(callee, &chain, times * callee.times, take, out);
        }
    }
    let mut out = BTreeMap::new();
    walk(main, &[START], take.runs, take, &mut out);
    out
}

fn queries() -> Vec<ListQuery> {
    let groups = [Group::Path, Group::Callsite, Group::Caller, Group::Function];
    let limits = [(None, 0.0), (Some(2), 0.0), (None, 0.2), (Some(0), 0.0)];
    let sorts = [Sort::Wall, Sort::Count, Sort::Average];
    let query = |group, sort, (top, min_share)| ListQuery { group, sort, top, min_share, at_least: 0 };
    groups
        .into_iter()
        .zip(sorts.into_iter().cycle())
        .flat_map(|(g, s)| limits.map(|l| query(g, s.clone(), l)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn paths_have_their_true_times(main in program(), take in take()) {
        let snapshot = take.snapshot(&main);
        let profile = Analysis::new(&snapshot, &Named, Options::default()).profile();
        let mut found = BTreeMap::new();
        for p in &profile.paths {
            let mut key: Vec<u64> = p.frames.iter().map(|&f| profile.frames[f as usize].offset).collect();
            key.push(profile.functions.iter().find(|f| f.id == p.func).unwrap().offset);
            found.insert(key, (p.figures.calls, p.figures.wall_ns, p.figures.self_wall_ns));
        }
        prop_assert_eq!(found, truth(&main, &take));
    }

    #[test]
    fn nothing_vanishes_and_nothing_counts_twice(main in program(), take in take()) {
        let snapshot = take.snapshot(&main);
        let analysis = Analysis::new(&snapshot, &Named, Options::default());
        let truth = truth(&main, &take);
        let calls: u64 = truth.values().map(|t| t.0).sum();
        let own: u64 = truth.values().map(|t| t.2).sum();
        for query in queries() {
            let l = analysis.listing(&query).unwrap();
            let figures = || l.rows.iter().map(|r| &r.figures).chain(l.rest.as_ref().map(|r| &r.figures));
            prop_assert_eq!(figures().map(|f| f.calls).sum::<u64>(), calls, "{:?}", query);
            prop_assert_eq!(figures().map(|f| f.self_wall_ns).sum::<u64>(), own, "{:?}", query);
            prop_assert_eq!(l.all.calls, calls);
            prop_assert_eq!(l.all.wall_ns, own, "the outermost calls last as long as all self times together");
            let listed: f64 = figures().map(|f| f.share_listed).sum();
            prop_assert!(calls == 0 || (listed - 1.0).abs() < 1e-9);
            prop_assert!(figures().all(|f| f.share_wall <= 1.0 + 1e-9 && f.share_exec <= 1.0 + 1e-9));
            prop_assert!(l.rows.windows(2).all(|w| query.sort.of(&w[0].figures) >= query.sort.of(&w[1].figures)));
            prop_assert!(query.top.is_none_or(|top| l.rows.len() <= top));
            prop_assert!(l.rows.iter().all(|r| r.figures.share_wall >= query.min_share));
        }
    }

    #[test]
    fn trees_are_the_sum_of_their_parts(main in program(), take in take()) {
        let snapshot = take.snapshot(&main);
        let analysis = Analysis::new(&snapshot, &Named, Options::default());
        let truth = truth(&main, &take);
        fn consistent(n: &TreeNode) -> bool {
            n.total == n.own + n.children.iter().map(|c| c.total).sum::<u64>()
                && n.children.windows(2).all(|w| w[0].total >= w[1].total)
                && n.children.iter().all(consistent)
        }
        let sum = |f: fn(&(u64, u64, u64)) -> u64| truth.values().map(f).sum::<u64>();
        for (metric, total) in [(Metric::Wall, sum(|t| t.2)), (Metric::Cpu, sum(|t| t.2)), (Metric::Count, sum(|t| t.0)), (Metric::Off, 0)] {
            let tree = analysis.tree(&TreeQuery { metric, ..TreeQuery::default() });
            prop_assert_eq!(tree.total, total);
            prop_assert!(consistent(&tree));
        }
    }

    #[test]
    fn the_difference_of_two_moments_is_what_happened_between(main in program(), take in take()) {
        let earlier = take.snapshot(&main);
        let later = Take { runs: take.runs + 2, ..take.clone() }.snapshot(&main);
        let between = Take { runs: 2, ..take }.snapshot(&main);
        let found = difference(&later, &earlier);
        prop_assert_eq!(found.whole, between.whole);
        prop_assert_eq!(found.paths.len(), between.paths.len());
        for (f, b) in found.paths.iter().zip(&between.paths) {
            let key = |t: &PathTotals| (t.calls, t.done, t.wall_ns, t.cpu_ns, t.hist.clone());
            prop_assert_eq!(key(&f.totals), key(&b.totals));
            prop_assert!(f.totals.min_ns <= b.totals.min_ns && f.totals.max_ns >= b.totals.max_ns);
        }
    }
}

#[test]
fn function_totals_count_recursion_once() {
    // main calls f1, which calls itself twice more: 100 + (100 + (100)).
    let inner = leaf(1, 0x30, 100, 1);
    let main = call(0, 0, 1, 1, vec![call(1, 0x20, 100, 1, vec![call(1, 0x30, 100, 1, vec![inner])])]);
    let snapshot = Take::of([1]).snapshot(&main);
    let analysis = Analysis::new(&snapshot, &Named, Options::default());
    let profile = analysis.profile();
    let totals = &profile.functions[0].totals;
    assert_eq!((totals.calls, totals.wall_ns, totals.self_wall_ns), (3, 300, 300));
    assert_eq!(totals.average_ns, Some(200.0), "each activation counts: 300, 200, 100");
    assert_eq!((totals.min_ns, totals.max_ns), (Some(100), Some(300)));
    let levels: Vec<u16> = profile.paths.iter().map(|p| p.level).collect();
    assert_eq!(levels, [0, 1, 2]);
    let sites = analysis.listing(&ListQuery { group: Group::Callsite, ..ListQuery::default() }).unwrap();
    let rows: Vec<(&str, u64, u64)> =
        sites.rows.iter().map(|r| (r.label.as_str(), r.figures.calls, r.figures.wall_ns)).collect();
    assert_eq!(rows, [("main+0x20 (0.c:31) > f1", 1, 300), ("f1+0x30 (1.c:47) > f1", 2, 200)]);
}

#[test]
fn call_sites_are_named_where_they_tell_paths_apart() {
    let wait = |site| leaf(3, site, 10, 1);
    let gather = |site| call(2, site, 0, 1, vec![wait(0x33), wait(0x58)]);
    let main = call(0, 0, 0, 1, vec![call(1, 0x10, 0, 1, vec![gather(0x20), gather(0x40)])]);
    let snapshot = Take::of([3]).snapshot(&main);
    let analysis = Analysis::new(&snapshot, &Named, Options::default());
    let mut labels: Vec<String> = snapshot.paths.iter().filter_map(|p| analysis.label(p.id)).collect();
    labels.sort_unstable();
    assert_eq!(
        labels,
        [
            "main > f1+0x20 (1.c:31) > f2+0x33 (2.c:50) > f3",
            "main > f1+0x20 (1.c:31) > f2+0x58 (2.c:87) > f3",
            "main > f1+0x40 (1.c:63) > f2+0x33 (2.c:50) > f3",
            "main > f1+0x40 (1.c:63) > f2+0x58 (2.c:87) > f3",
        ]
    );
}

#[test]
fn calls_in_progress_count_with_the_time_inside_the_interval() {
    let main = call(0, 0, 0, 1, vec![leaf(1, 0x10, 100, 1)]);
    let mut earlier = Take::of([1]).snapshot(&main);
    // Each has half of its time on a CPU.
    let running = |elapsed_ns| InProgress { tid: 7, pid: 7, path: 100, elapsed_ns, cpu_ns: Some(elapsed_ns / 2) };
    (earlier.at_ns, earlier.whole.wall_ns, earlier.whole.thread_ns) = (1_000, 1_000, 2_000);
    earlier.paths[0].totals =
        PathTotals { calls: 3, done: 1, wall_ns: 100, cpu_ns: 50, min_ns: 100, max_ns: 100, ..PathTotals::default() };
    // One entered 400 ns ago, one 700 ns ago.
    earlier.in_progress = vec![running(400), running(700)];
    let mut later = earlier.clone();
    (later.at_ns, later.whole.wall_ns, later.whole.thread_ns) = (1_500, 1_500, 3_000);
    // The second one returned after 750; the first goes on; a third came 200 ns ago.
    later.paths[0].totals =
        PathTotals { calls: 4, done: 2, wall_ns: 850, cpu_ns: 425, min_ns: 100, max_ns: 750, ..PathTotals::default() };
    later.in_progress = vec![running(900), running(200)];
    let interval = difference(&later, &earlier);
    let profile = Analysis::new(&interval, &Named, Options::default()).profile();
    let f = &profile.paths[0].figures;
    assert_eq!((f.calls, f.done), (1, 1));
    assert_eq!(f.running, Running { calls: 2, elapsed_ns: 700, cpu_ns: 350, cpu_unknown: 0 });
    // 50 of the one that returned, 500 of the one that lasts, 200 of the new one.
    assert_eq!(f.wall_ns, 750);
    assert_eq!((f.cpu_ns, f.off_cpu_ns), (375, 375));
    assert!((f.share_wall - 0.75).abs() < 1e-9, "of two threads' 500");
    assert_eq!(difference(&earlier, &later), earlier, "after a reset numbers are new");
}

#[test]
fn a_process_that_executes_another_program_is_one() {
    let mut snapshot = Take::of([1]).snapshot(&call(0, 0, 0, 1, vec![leaf(1, 0x10, 100, 4)]));
    let row = |pid, exe: &str| CallProcess { pid, exe: exe.into(), command: String::new(), status: None, since_ns: 0 };
    snapshot.processes = vec![row(7, "/bin/sh"), row(8, "/bin/sh"), row(8, "/bin/true")];
    assert_eq!(Analysis::new(&snapshot, &Named, Options::default()).whole().processes, 2);
}

#[test]
fn threads_and_processes_are_told_apart() {
    let main = call(0, 0, 0, 1, vec![leaf(1, 0x10, 100, 4), call(2, 0x20, 10, 2, vec![leaf(1, 0x30, 50, 2)])]);
    let mut snapshot = Take::of([1, 2]).snapshot(&main);
    let none = Analysis::new(&snapshot, &Named, Options::default())
        .listing(&ListQuery { group: Group::Thread, ..ListQuery::default() });
    assert_eq!(none, Err(NoThreads));
    for path in &mut snapshot.paths {
        let half = PathTotals {
            calls: path.totals.calls / 2,
            done: path.totals.done / 2,
            wall_ns: path.totals.wall_ns / 2,
            ..PathTotals::default()
        };
        let rest = PathTotals {
            calls: path.totals.calls - half.calls,
            done: path.totals.done - half.done,
            wall_ns: path.totals.wall_ns - half.wall_ns,
            ..PathTotals::default()
        };
        path.threads = vec![(7, half), (8, rest)];
    }
    let thread = |tid, name: &str| CallThread { tid, pid: 7, name: name.into(), lived_ns: 0 };
    snapshot.threads = vec![thread(7, "app"), thread(8, "")];
    let analysis = Analysis::new(&snapshot, &Named, Options::default());
    let list = |group, top| analysis.listing(&ListQuery { group, top, ..ListQuery::default() }).unwrap();
    let threads = list(Group::Thread, None);
    let rows: Vec<(&str, u64, u64)> =
        threads.rows.iter().map(|r| (&*r.label, r.figures.calls, r.figures.wall_ns)).collect();
    // Half of f1 from main (400) and of f2 (220) with the f1 inside, which do not count again.
    assert_eq!(rows, [("app (7)", 5, 310), ("thread 8", 5, 310)]);
    assert_eq!(threads.rows.iter().map(|r| r.id).collect::<Vec<_>>(), [Some(7), Some(8)]);
    let top = list(Group::Thread, Some(1));
    assert_eq!(top.rest.unwrap().figures.wall_ns, 310);
    let rest_of = |min_share| {
        let query = ListQuery { group: Group::Thread, top: Some(1), min_share, ..ListQuery::default() };
        analysis.listing(&query).unwrap().rest.unwrap().below
    };
    assert_eq!(rest_of(0.001), 0.0, "left out for its number is not small");
    assert_eq!(rest_of(0.999), 0.999);
    let processes = list(Group::Process, None);
    assert_eq!(processes.rows.len(), 1);
    assert_eq!((&*processes.rows[0].label, processes.rows[0].figures.wall_ns), ("app (7)", 620));
}

#[test]
fn hostile_snapshots_do_not_panic() {
    const EXTREME: MostOfKind = MostOfKind { same_ps: u64::MAX, deep_ps: u64::MAX, varied_ps: u64::MAX };
    let path = |id, frame, parent| CallPath {
        id,
        point: 9,
        frame,
        parent,
        same: 3,
        folded: true,
        totals: PathTotals {
            calls: u64::MAX,
            wall_ns: u64::MAX,
            done: u64::MAX,
            cpu_ns: u64::MAX,
            hist: Some(vec![u64::MAX; 70]),
            ..PathTotals::default()
        },
        threads: vec![(1, PathTotals::default())],
    };
    let frame = |caller| CallFrame { kind: FrameKind::Caller, module: 77, offset: 0, caller, by_frame_pointer: false };
    let snapshot = CallSnapshot {
        frames: vec![frame(1), frame(0)],
        paths: vec![path(1, 0, Some(2)), path(2, 1, Some(1)), path(2, 9, Some(2)), path(3, u32::MAX, Some(50))],
        in_progress: vec![
            InProgress { tid: 1, pid: 1, path: 1, elapsed_ns: u64::MAX, ..InProgress::default() },
            InProgress { tid: 1, pid: 1, path: 99, elapsed_ns: 1, ..InProgress::default() },
        ],
        own_cost: OwnCost {
            inside_ps: u64::MAX,
            whole_ps: u64::MAX,
            step_ps: u64::MAX,
            count_ps: u64::MAX,
            count_least_ps: Some(u64::MAX),
            kernel_ns: Some(u64::MAX),
            hit_ps: u64::MAX,
            apart_ns: u64::MAX,
            most: Some(MostCost { timed: EXTREME, counted: EXTREME, frames: 0 }),
        },
        ..CallSnapshot::default()
    };
    let analysis = Analysis::new(&snapshot, &NoNames, Options { inlines: true });
    let profile = analysis.profile();
    assert_eq!(profile.paths.len(), 4);
    for (_, group) in Group::ALL {
        assert!(analysis.listing(&ListQuery { group, ..ListQuery::default() }).is_ok());
    }
    let _ = analysis.tree(&TreeQuery::default());
    let _ = difference(&snapshot, &snapshot);
    let _ = compare(&profile, &profile);
    let _ = Drill::new(1, Metric::Wall).step(&snapshot, &[]);
    let _ = names_of([&snapshot], &NoNames);
}

/// Calls cannot have cost more than all CPU time there was, whatever was measured beforehand: their callers keep more of theirs.
#[test]
fn own_cost_is_no_more_than_the_cpu_time() {
    let take = Take { cost: 50, ..Take::of([1, 2]) };
    let main = call(0, 0, 50, 1, vec![call(1, 16, 1_000, 100, vec![leaf(2, 32, 20, 40)])]);
    let mut snapshot = take.snapshot(&main);
    let all = |s: &CallSnapshot| Analysis::new(s, &Named, Options::default()).own_cost();
    snapshot.whole.cpu_ns = 4_100 * 30;
    assert_eq!((all(&snapshot).ns, all(&snapshot).share), (4_100 * 30, 1.0));
    snapshot.whole.cpu_ns = 4_100 * 500;
    assert_eq!((all(&snapshot).ns, all(&snapshot).share), (4_100 * 50, 0.1));
}

/// Each call by the kernel's breakpoints has hit two: one hit's worth of it lies inside of the call, both in those around.
#[test]
fn what_uprobes_cost_is_taken_off() {
    let hit = 6_000;
    let take = Take { cost: 2 * hit, ..Take::of([1, 2]) };
    let main = call(0, 0, 50, 1, vec![call(1, 16, 100_000, 10, vec![leaf(2, 32, 3_000, 4), leaf(2, 48, 20, 1)])]);
    let mut snapshot = take.snapshot(&main);
    snapshot.own_cost = OwnCost { hit_ps: hit * 1000, kernel_ns: Some(120 * hit), ..OwnCost::default() };
    snapshot.whole.cpu_ns += 120 * hit;
    snapshot.points.iter_mut().for_each(|p| p.patch = Some(PatchKind::Uprobe));
    for path in &mut snapshot.paths {
        let t = &mut path.totals;
        (t.wall_ns, t.cpu_ns) = (t.wall_ns + t.done * hit, t.cpu_ns + t.done * hit);
        (t.min_ns, t.max_ns) = (t.min_ns + hit, t.max_ns + hit);
    }
    let profile = Analysis::new(&snapshot, &Named, Options::default()).profile();
    let (outer, inner) = (&profile.functions[0].totals, &profile.functions[1].totals);
    assert_eq!((outer.wall_ns, outer.cpu_ns, outer.self_wall_ns), (10 * 112_020, 10 * 112_020, 10 * 100_000));
    assert!(outer.rough, "100 us beside 60 of breakpoints");
    assert_eq!(
        (inner.wall_ns, inner.wall_below_ns, inner.average_ns),
        (10 * 12_020, Some(10 * (12_020 + 5 * hit)), None),
        "less is left than was taken off: no more than was measured"
    );
    assert_eq!(
        (inner.min_ns, inner.min_below_ns),
        (None, Some(hit)),
        "neither 20 ns nor 3 us can be told from nothing"
    );
    snapshot.own_cost.hit_ps = 0;
    let profile = Analysis::new(&snapshot, &Named, Options::default()).profile();
    assert_eq!(profile.functions[1].totals.wall_ns, 10 * (12_020 + 5 * hit), "what is not known is taken off nothing");
}

/// Calls left by an exception have no time, so what measuring their callees cost is in nobody's.
#[test]
fn calls_that_were_left_by_a_jump_take_no_correction_from_the_others() {
    let take = Take { cost: 50, ..Take::of([1, 2]) };
    let main = call(0, 0, 50, 1, vec![call(1, 16, 1_000, 100, vec![leaf(2, 32, 20, 40)])]);
    let mut snapshot = take.snapshot(&main);
    // What measuring cost is in the program's CPU time, too.
    snapshot.whole.cpu_ns += 4_100 * 50;
    // Nine of ten did not return.
    for path in &mut snapshot.paths {
        let t = &mut path.totals;
        (t.done, t.wall_ns, t.cpu_ns) = (t.done / 10, t.wall_ns / 10, t.cpu_ns / 10);
    }
    let profile = Analysis::new(&snapshot, &Named, Options::default()).profile();
    let wall = |id: usize| (profile.functions[id].totals.done, profile.functions[id].totals.wall_ns);
    assert_eq!((wall(0), wall(1)), ((10, 10 * (1_000 + 40 * 20)), (400, 400 * 20)));
}

/// Calls beyond the limit of recursion are counted, not timed: part of no average, and shorter than the shortest that was.
#[test]
fn folded_calls_are_no_part_of_the_average() {
    let main = call(0, 0, 1, 1, vec![call(1, 0x20, 100, 1, vec![leaf(1, 0x30, 1_000, 1)])]);
    let mut snapshot = Take::of([1]).snapshot(&main);
    let figures = |s: &CallSnapshot| {
        let profile = Analysis::new(s, &Named, Options::default()).profile();
        let f = &profile.functions[0].totals;
        (f.calls, f.average_ns, f.min_ns, f.min_below_ns)
    };
    snapshot.paths[1].folded = true;
    assert_eq!(figures(&snapshot), (2, Some(1_050.0), Some(1_000), None), "nothing was folded");
    snapshot.paths[1].totals.calls = 500;
    assert_eq!(figures(&snapshot), (501, Some(1_050.0), None, Some(1_000)));
    // What their callees cost is in the time of the calls around them.
    let inner = call(1, 0x30, 1_000, 1, vec![leaf(2, 0x40, 10, 90)]);
    let main = call(0, 0, 1, 1, vec![call(1, 0x20, 100, 1, vec![inner])]);
    let mut snapshot = Take { cost: 50, ..Take::of([1, 2]) }.snapshot(&main);
    snapshot.whole.cpu_ns = 1_000_000;
    (snapshot.paths[1].folded, snapshot.paths[1].totals.calls) = (true, 10);
    snapshot.paths.iter_mut().take(2).for_each(|p| p.totals.wall_ns += 9 * 50);
    let profile = Analysis::new(&snapshot, &Named, Options::default()).profile();
    let wall: Vec<u64> = profile.paths.iter().map(|p| p.figures.wall_ns).collect();
    assert_eq!(wall, [100 + 1_000 + 900, 1_000 + 900, 900]);
}

/// How many measured callees the shortest call had is not known: its time is a bound, and no longer than the average.
#[test]
fn the_least_time_is_a_bound_where_measured_callees_are_in_it() {
    let main = call(0, 0, 50, 1, vec![call(1, 16, 1_000, 100, vec![leaf(2, 32, 20, 4)])]);
    let figures = |take: &Take| {
        let mut snapshot = take.snapshot(&main);
        snapshot.whole.cpu_ns += 1_000_000;
        let profile = Analysis::new(&snapshot, &Named, Options::default()).profile();
        let of = |f: &Figures| (f.min_ns, f.min_below_ns, f.max_ns);
        profile.functions.iter().map(|f| of(&f.totals)).collect::<Vec<_>>()
    };
    let both = figures(&Take { cost: 50, ..Take::of([1, 2]) });
    assert_eq!(both, [(None, Some(1_080), Some(1_280)), (Some(20), None, Some(20))]);
    assert_eq!(figures(&Take { cost: 50, ..Take::of([1]) }), [(Some(1_080), None, Some(1_080))]);
    // One call: it is no longer than all of them together.
    let once = call(0, 0, 50, 1, vec![call(1, 16, 1_000, 1, vec![leaf(2, 32, 20, 4)])]);
    let mut snapshot = Take { cost: 50, ..Take::of([1, 2]) }.snapshot(&once);
    snapshot.whole.cpu_ns += 1_000_000;
    let profile = Analysis::new(&snapshot, &Named, Options::default()).profile();
    let f = &profile.functions[0].totals;
    assert_eq!((f.wall_ns, f.min_below_ns, f.max_ns), (1_080, Some(1_080), Some(1_080)));
}

/// Calls that seem to have cost more than they took: a bound, not 0. And none longer than the threads lived.
#[test]
fn what_correction_leaves_nothing_of_is_a_bound() {
    let main = call(0, 0, 50, 1, vec![call(1, 16, 10, 100, vec![leaf(2, 32, 20, 4)])]);
    let mut snapshot = Take { cost: 0, ..Take::of([1, 2]) }.snapshot(&main);
    snapshot.own_cost = OwnCost { inside_ps: 7_000, whole_ps: 50_000, step_ps: 1_000, ..OwnCost::default() };
    snapshot.whole.cpu_ns = 1_000_000;
    // The probe's own part was all of it, but of the longest.
    let inner = &mut snapshot.paths[1].totals;
    (inner.wall_ns, inner.cpu_ns, inner.min_ns, inner.max_ns) = (0, 0, 1, 1);
    let wall = |s: &CallSnapshot| {
        let analysis = Analysis::new(s, &Named, Options::default());
        let of = |f: &Figures| (f.wall_ns, f.wall_below_ns, f.self_wall_ns, f.average_ns);
        let all = analysis.listing(&ListQuery { group: Group::Function, ..ListQuery::default() }).unwrap().all;
        let mut functions = analysis.profile().functions;
        functions.sort_by_key(|f| f.id);
        (functions.iter().map(|f| of(&f.totals)).collect::<Vec<_>>(), of(&all))
    };
    let (rows, all) = wall(&snapshot);
    assert_eq!(rows[0], (0, Some(100 * 90), 0, None), "what was measured, with its callees");
    assert_eq!(rows[1], (0, Some(400 * 8), 0, None), "what can be told from nothing, of each");
    assert_eq!(all, (0, Some(9_000), 0, None));
    snapshot.paths[0].totals.wall_ns = 1_000_000;
    let (rows, _) = wall(&snapshot);
    let lived = snapshot.whole.thread_ns;
    assert_eq!((rows[0].0, rows[0].1, rows[0].2), (lived, Some(lived), lived), "more than there was");
    snapshot.whole.thread_unsure_ns = lived / 10;
    let (rows, _) = wall(&snapshot);
    assert!(rows[0].0 > lived && rows[0].1.is_none(), "lifetimes that are not known bound nothing: {rows:?}");
}

/// Calls that an exception has left have no time: what there is, is a lower bound, and it is said whose.
#[test]
fn calls_left_by_an_exception_mark_their_row() {
    let main = call(0, 0, 50, 1, vec![call(1, 16, 1_000, 100, vec![leaf(2, 32, 20, 4)])]);
    let mut snapshot = Take::of([1, 2]).snapshot(&main);
    let untimed = |s: &CallSnapshot| {
        let profile = Analysis::new(s, &Named, Options::default()).profile();
        profile.paths.iter().map(|p| p.figures.untimed).collect::<Vec<_>>()
    };
    snapshot.whole.threads = 1;
    snapshot.paths[0].totals.done = 40;
    assert_eq!(untimed(&snapshot), [0, 0], "nothing was lost: read at another moment");
    (snapshot.lost.jumped, snapshot.whole.threads) = (60, 0);
    assert_eq!(untimed(&snapshot), [60, 0]);
    snapshot.in_progress =
        vec![InProgress { tid: 7, pid: 7, path: snapshot.paths[0].id, elapsed_ns: 9, ..InProgress::default() }];
    assert_eq!(untimed(&snapshot), [59, 0]);
    snapshot.whole.threads = 100;
    assert_eq!(untimed(&snapshot), [0, 0], "threads still run");
    (snapshot.whole.threads, snapshot.paths[0].folded) = (0, true);
    assert_eq!(untimed(&snapshot), [0, 0], "folded calls lie in timed ones");
    let lacking = |s: &CallSnapshot| {
        let f = Analysis::new(s, &Named, Options::default()).profile().paths.remove(0).figures;
        (f.lacking, f.wall_below_ns)
    };
    assert_eq!(lacking(&snapshot), (true, None), "but some that were lost may not: nothing bounds their time");
    (snapshot.paths[0].totals.done, snapshot.in_progress) = (0, Vec::new());
    assert_eq!(untimed(&snapshot), [100, 0], "there is none that they could lie in");
    snapshot.points[0].patch = Some(PatchKind::Uprobe);
    assert_eq!(untimed(&snapshot), [0, 0], "uprobes do not time them");
}

/// The CPU time of a process that was killed was read some time before its end: what its calls took is part of it nevertheless.
#[test]
fn shares_of_a_killed_process_add_up_to_no_more_than_all() {
    let main = call(0, 0, 50, 1, vec![leaf(1, 16, 300, 1), leaf(2, 32, 900, 1)]);
    let mut snapshot = Take::of([1, 2]).snapshot(&main);
    let shares = |s: &CallSnapshot| {
        let profile = Analysis::new(s, &Named, Options::default()).profile();
        profile.functions.iter().map(|f| f.totals.share_exec).collect::<Vec<_>>()
    };
    snapshot.whole.cpu_ns = 1_000;
    assert_eq!(shares(&snapshot), [0.9, 0.3], "of one that runs, parts are of what was read now");
    (snapshot.processes[0].status, snapshot.whole.threads) = (Some(9), 0);
    assert_eq!(shares(&snapshot), [0.75, 0.25]);
    snapshot.whole.cpu_ns = 2_400;
    assert_eq!(shares(&snapshot), [0.375, 0.125]);
    snapshot.whole.cpu_ns = 0;
    assert!(shares(&snapshot).iter().all(|s| s.is_nan()), "it is not known");
}

fn function_rows(snapshot: &CallSnapshot, min_share: f64) -> Vec<(String, Figures)> {
    let analysis = Analysis::new(snapshot, &Named, Options::default());
    let query = ListQuery { group: Group::Function, min_share, at_least: 0, ..ListQuery::default() };
    analysis.listing(&query).unwrap().rows.into_iter().map(|row| (row.label, row.figures)).collect()
}

/// A time that was not asked for is not a time of nothing: it hides no row, and is no number.
#[test]
fn times_that_were_not_measured_are_told_as_such() {
    let main = call(0, 0, 50, 1, vec![leaf(1, 16, 300, 1), leaf(2, 32, 900, 3)]);
    let mut snapshot = Take::of([1, 2]).snapshot(&main);
    let known = |s: &CallSnapshot| {
        let rows = function_rows(s, 0.01);
        rows.into_iter().map(|(_, f)| (f.timed, f.cpu_timed, f.share_exec.is_nan())).collect::<Vec<_>>()
    };
    assert_eq!(known(&snapshot), [(true, true, false); 2]);
    snapshot.lost.cpu = 4;
    assert_eq!(known(&snapshot), [(true, false, true); 2], "of every call it could not be asked for");
    snapshot.lost.cpu = 0;
    snapshot.paths.iter_mut().for_each(|p| p.totals.cpu_ns = 0);
    assert_eq!(known(&snapshot), [(true, false, true); 2]);
    assert!(function_rows(&snapshot, 0.0).iter().all(|(_, f)| f.off_cpu_ns == 0), "nothing was taken from nothing");
    snapshot
        .paths
        .iter_mut()
        .for_each(|p| p.totals = PathTotals { calls: p.totals.calls, done: p.totals.done, ..PathTotals::default() });
    assert_eq!(known(&snapshot), [(false, false, true); 2], "by count no row is small");
}

/// Functions of one name in two files, or twice in one.
#[test]
fn rows_of_one_name_are_told_apart() {
    let main = call(0, 0, 50, 1, vec![leaf(1, 16, 300, 1), leaf(2, 32, 900, 3)]);
    let mut snapshot = Take::of([1, 2]).snapshot(&main);
    let labels = |s: &CallSnapshot| function_rows(s, 0.0).into_iter().map(|(label, _)| label).collect::<Vec<_>>();
    let one = snapshot.points[0].names[0].clone();
    assert_ne!(labels(&snapshot)[0], labels(&snapshot)[1]);
    assert!(labels(&snapshot).contains(&one));
    snapshot.points[1].names[0].clone_from(&one);
    let places = snapshot.points.iter().rev().map(|p| format!("{one} (app+{:#x})", p.offset));
    assert_eq!(labels(&snapshot), places.collect::<Vec<_>>());
    snapshot.modules.push(CallModule { path: "/lib/libb.so".into(), ..snapshot.modules[0].clone() });
    snapshot.points[1].module = 1;
    assert_eq!(labels(&snapshot), [format!("{one} (libb.so)"), format!("{one} (app)")]);
}

/// What remains of a caller once a million calibrated costs are taken off is mostly their error: a bound, with no average.
#[test]
fn callers_of_very_short_functions_have_a_bound() {
    let main = call(0, 0, 50, 1, vec![call(1, 16, 1_000, 1, vec![leaf(2, 32, 20, 1_000)])]);
    let mut snapshot = Take { cost: 0, ..Take::of([1, 2]) }.snapshot(&main);
    snapshot.own_cost = OwnCost { inside_ps: 7_000, whole_ps: 16_000, step_ps: 1_000, ..OwnCost::default() };
    (snapshot.whole.cpu_ns, snapshot.whole.thread_ns) = (10_000_000, 10_000_000);
    let outer = |s: &CallSnapshot| {
        let mut functions = Analysis::new(s, &Named, Options::default()).profile().functions;
        functions.sort_by_key(|f| f.id);
        let f = &functions[0].totals;
        (f.wall_below_ns, f.average_ns.is_some(), f.max_ns.is_some(), f.rough)
    };
    (snapshot.paths[0].totals.wall_ns, snapshot.paths[0].totals.max_ns) = (28_800, 28_800);
    assert_eq!(outer(&snapshot), (Some(28_800), false, false, false));
    (snapshot.paths[0].totals.wall_ns, snapshot.paths[0].totals.max_ns) = (40_000, 40_000);
    assert_eq!(outer(&snapshot), (None, true, true, true), "as much as was taken off, and no more than that again");
    (snapshot.paths[0].totals.wall_ns, snapshot.paths[0].totals.max_ns) = (900_000, 900_000);
    assert_eq!(outer(&snapshot), (None, true, true, false), "far more than what was taken off");
}

/// `f1` is called from one place: by the engine's tables once while `f2`, on the way, was not probed, and once inside of it.
#[test]
fn paths_of_the_same_callers_are_one_row() {
    let main = call(0, 0, 50, 1, vec![call(2, 16, 1_000, 1, vec![leaf(1, 32, 300, 1)])]);
    let mut snapshot = Take::of([1, 2]).snapshot(&main);
    let inner = snapshot.paths.iter().position(|p| p.parent.is_some()).unwrap();
    // Then its frames were walked to the outermost one.
    let outer = snapshot.paths.iter().find(|p| Some(p.id) == snapshot.paths[inner].parent).unwrap().frame;
    let own = snapshot.frames[snapshot.paths[inner].frame as usize];
    snapshot.frames.push(CallFrame { caller: outer, ..own });
    let frame = snapshot.frames.len() as u32 - 1;
    let twin = CallPath { id: 900, parent: None, frame, ..snapshot.paths[inner].clone() };
    snapshot.paths.push(twin);
    let listing = Analysis::new(&snapshot, &Named, Options::default()).listing(&ListQuery::default()).unwrap();
    let rows: Vec<(usize, u64)> = listing.rows.iter().map(|r| (r.paths.len(), r.figures.calls)).collect();
    let both = 2 * snapshot.paths[inner].totals.calls;
    assert!(rows.contains(&(2, both)) && rows.len() == 2, "{rows:?}");
}

/// Calls that are only counted cost less than those with times, and what they cost is an estimate.
#[test]
fn counted_calls_cost_what_counting_does() {
    let main = call(0, 0, 50, 1, vec![leaf(1, 16, 300, 1000)]);
    let mut snapshot = Take { cost: 60, ..Take::of([1]) }.snapshot(&main);
    (snapshot.own_cost.count_ps, snapshot.whole.cpu_ns) = (20_000, 400_000);
    let cost = |s: &CallSnapshot| Analysis::new(s, &Named, Options::default()).own_cost();
    assert_eq!((cost(&snapshot).ns, cost(&snapshot).open, cost(&snapshot).rough), (60_000, true, false));
    snapshot.whole.cpu_ns = 4_000_000;
    assert!(!cost(&snapshot).open, "a part that changes nothing if it is twice as much");
    snapshot.own_cost.apart_ns = 50_000;
    assert!(!cost(&snapshot).open, "less than ordinary calls have cost");
    snapshot.own_cost.apart_ns = 70_000;
    assert!(cost(&snapshot).open, "mostly of paths that were new");
    snapshot.own_cost.apart_ns = 0;
    snapshot.points[0].entry_only = Some("asked for".into());
    assert_eq!((cost(&snapshot).ns, cost(&snapshot).open, cost(&snapshot).rough), (20_000, false, true));
}

/// Where caches are cold, or calls no longer overlap with others, measuring takes some times of what calibration knows.
#[test]
fn averages_below_some_times_what_measuring_adds_are_of_that_order_only() {
    let main = call(0, 0, 50, 1, vec![leaf(1, 16, 300, 10)]);
    let mut snapshot = Take { cost: 0, ..Take::of([1]) }.snapshot(&main);
    snapshot.own_cost = OwnCost { inside_ps: 40_000, whole_ps: 60_000, step_ps: 0, ..OwnCost::default() };
    let rough = |s: &mut CallSnapshot, ns: u64| {
        let totals = &mut s.paths[0].totals;
        (totals.wall_ns, totals.min_ns, totals.max_ns) = (totals.done * ns, ns, ns);
        let total = Analysis::new(s, &Named, Options::default()).profile().functions[0].totals.clone();
        assert_eq!(total.average_ns.map(f64::round), Some(ns as f64));
        total.rough
    };
    assert!(rough(&mut snapshot, 30) && rough(&mut snapshot, 110));
    assert!(rough(&mut snapshot, 130) && rough(&mut snapshot, 1_900), "40 ns are more than a fiftieth");
    assert!(!rough(&mut snapshot, 2_100));
}

/// Each level of recursion is a path of its own, with all levels around: they are kept once, and so are nodes of trees.
#[test]
fn what_many_deep_paths_have_in_common_is_kept_once() {
    const LEVELS: u32 = 200;
    let inner = (0..LEVELS).fold(leaf(1, 0x30, 10, 1), |inner, _| call(1, 0x30, 10, 1, vec![inner]));
    let snapshot = Take { join: false, ..Take::of([1]) }.snapshot(&call(0, 0, 0, 1, vec![inner]));
    let analysis = Analysis::new(&snapshot, &Named, Options::default());
    let paths = snapshot.paths.len();
    assert!(paths as u32 > LEVELS && analysis.frames.chains.all().len() < paths + 5);
    assert_eq!(analysis.profile().paths.iter().map(|p| p.frames.len()).max(), Some(paths + 1));
    let listing = analysis.listing(&ListQuery { top: Some(2), sort: Sort::Count, ..ListQuery::default() }).unwrap();
    let rest = listing.rest.unwrap();
    assert_eq!((listing.rows.len(), rest.rows as usize, rest.figures.calls as usize), (2, paths - 2, paths - 2));
}

/// Nodes that are too small are counted with what they weigh, and what remains has its weight and its times.
#[test]
fn small_nodes_are_added_up() {
    let main = call(0, 0, 0, 1, vec![leaf(1, 16, 9_000, 1), leaf(2, 32, 5, 1), leaf(3, 48, 6, 1)]);
    let snapshot = Take::of([1, 2, 3]).snapshot(&main);
    let analysis = Analysis::new(&snapshot, &Named, Options::default());
    let tree = |least| analysis.tree(&TreeQuery { least, ..TreeQuery::default() });
    let (all, large) = (tree(0.0), tree(0.01));
    let (all, large) = (&all.children[0], &large.children[0]);
    assert_eq!((all.total, all.children.len(), all.small), (9_011, 3, Small::default()));
    assert_eq!((large.total, large.children.len(), large.small), (9_011, 1, Small { nodes: 2, total: 11 }));
    assert_eq!((&large.children[0], &large.times), (&all.children[0], &all.times));
}

/// Two callers of one name: the texts of their paths would be the same.
#[test]
fn paths_by_functions_of_one_name_are_told_apart() {
    struct OneName;
    impl Names for OneName {
        fn place(&self, module: &CallModule, address: u64) -> CallPlace {
            let place = Named.place(module, address);
            let function = if matches!(place.function.as_str(), "f1" | "f2") { "same".into() } else { place.function };
            CallPlace { function, positions: Vec::new(), ..place }
        }
    }
    let by = |f, site| call(f, site, 0, 1, vec![leaf(3, 0x20, 10, 1)]);
    let snapshot = Take::of([3]).snapshot(&call(0, 0, 0, 1, vec![by(1, 0x10), by(2, 0x10)]));
    let analysis = Analysis::new(&snapshot, &OneName, Options::default());
    let rows = analysis.listing(&ListQuery::default()).unwrap().rows;
    let labels: Vec<String> = rows.into_iter().map(|row| row.label).collect();
    assert!(labels.len() == 2 && labels[0] != labels[1], "{labels:?}");
    assert!(labels.iter().all(|l| l.contains("same+0x20 (app+0x")), "{labels:?}");
}
