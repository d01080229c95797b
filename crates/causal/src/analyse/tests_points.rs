//! What the breakpoints of progress points and dear ticks cost, in what is told; and spinning that can be none.

use super::tests::{named, two};
use super::*;
use whither_store::causal::Turns;

/// 20 us of trap for each unit of 400 us: what nothing gains may look like as much, and gains are of a shorter time than that.
#[test]
fn breakpoints_of_points_widen_intervals_and_beyond_a_seventh_of_the_time_nothing_is_said() {
    let mut run = two().run(400, 3);
    (run.meta.pid, run.meta.duration_ns, run.overhead.target_cpu_ns) = (4711, 1_000_000_000, 1_000_000_000);
    let gain = |run: &CausalRun| named(&analyse(run, &AnalyseOptions::default()), "f0").gain.unwrap();
    let before = gain(&run);
    run.overhead.points_ns = 50_000_000;
    let after = gain(&run);
    let wider = 0.3 * 0.05 + before.y * 0.05 / 0.95;
    assert!((after.high - before.high - wider).abs() < 1e-9 && (before.low - after.low - wider).abs() < 1e-9);
    let told = analyse(&run, &AnalyseOptions::default());
    assert!(told.warnings.iter().any(|w| w.contains("take some 5 % of the program's CPU time")), "{:?}", told.warnings);
    run.overhead.points_ns = 210_000_000;
    let verdict = named(&analyse(&run, &AnalyseOptions::default()), "f0").verdict.clone();
    assert!(matches!(verdict, Verdict::CannotSay { .. }), "{verdict:?}");
}

#[test]
fn a_single_thread_spins_for_nobody() {
    let mut run = two().run(400, 3);
    run.meta.period_ns = run.windows.iter().find(|w| w.percent == 0).map_or(1, |w| 2 * w.wall_ns / w.visits[0].visits);
    run.overhead.spun = 0.2;
    let told =
        |run: &CausalRun| analyse(run, &AnalyseOptions::default()).warnings.iter().any(|w| w.contains("threads spin"));
    run.meta.threads = 2;
    assert!(told(&run));
    run.meta.threads = 1;
    assert!(!told(&run));
}

/// Ticks of a twentieth of the time: half of their share is allowed for, and all of it where threads wait for one another.
#[test]
fn dear_ticks_count_more_where_threads_wait_for_one_another() {
    let gain = |tick_cost_ns: u64, waits: u64| {
        let mut run = two().run(400, 3);
        run.meta.period_ns = 500_000;
        run.overhead.tick_cost_ns = tick_cost_ns;
        run.turns = vec![Turns { target: 0, run_ns: 10_000_000_000, waits, begun_ns: 0 }];
        named(&analyse(&run, &AnalyseOptions::default()), "f0").gain.unwrap()
    };
    for (waits, wider) in [(0, 0.0075), (200, 0.015)] {
        let (cheap, dear) = (gain(0, waits), gain(25_000, waits));
        assert!((cheap.low - dear.low - wider).abs() < 1e-9, "{waits}: {cheap:?} {dear:?}");
    }
}
