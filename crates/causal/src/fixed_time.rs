//! Whole runs that a clock ends: benchmarks that loop until their second is over. Delays leave such a run as long as it was,
//! which virtual time turns into a gain; but what was delayed did less, and that is seen. A program with a given amount of
//! work does all of it however it is delayed: where its runs get no longer for delays, these lay in waits, and it runs for as
//! much CPU time as before.

use crate::quality::owed;
use whither_stats::distribution::student_quantile;
use whither_store::causal::{CausalRun, PointKind, Window};

/// Fewer runs tell nothing.
const ENOUGH: usize = 8;
/// A run that a clock ends grows by less than this part of what was inserted.
const GROWS: f64 = 0.1;
/// Its threads run for less by more than this part of what they paid: all of it, but for what fell into waits.
const LESS_WORK: f64 = 0.5;

/// Whether the points are ends of whole runs.
pub(crate) fn is_whole(run: &CausalRun) -> bool {
    run.points.first().is_some_and(|p| p.kind == PointKind::End)
}

/// Whether a clock ends the runs, for certain (97.5 % for each of two slopes over what was owed: length, and CPU time).
pub(crate) fn is_fixed(run: &CausalRun, kept: &[&Window]) -> bool {
    // CPU time is measured in real time; that of the insertion itself is no sample.
    let of = |w: &&Window| {
        let owed = owed(run, w).max(0.0) * w.wall_ns as f64;
        let ran = w.samples as f64 * run.meta.period_ns as f64;
        (owed, w.wall_ns as f64, ran / f64::from(w.threads.max(1)))
    };
    let rows: Vec<(f64, f64, f64)> = kept.iter().map(of).collect();
    let longer = slope(rows.iter().map(|r| (r.0, r.1)));
    let worked = slope(rows.iter().map(|r| (r.0, r.2)));
    longer.is_some_and(|high| high < GROWS) && worked.is_some_and(|high| high < -LESS_WORK)
}

/// Upper bound of the slope of a regression line.
fn slope(values: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let n = values.clone().count() as f64;
    if n < ENOUGH as f64 {
        return None;
    }
    let (x, y) = values.clone().fold((0.0, 0.0), |(x, y), v| (x + v.0 / n, y + v.1 / n));
    let (xx, xy) = values.clone().fold((0.0, 0.0), |(a, b), v| (a + (v.0 - x).powi(2), b + (v.0 - x) * (v.1 - y)));
    let slope = (xx > 0.0).then(|| xy / xx)?;
    let rest: f64 = values.map(|v| (v.1 - y - slope * (v.0 - x)).powi(2)).sum();
    Some(slope + student_quantile(0.975, n - 2.0) * (rest / (n - 2.0) / xx).sqrt())
}

/// Why there is no gain.
pub(crate) const FIXED: &str = "run time fixed by a clock: delays leave the runs as long as they were, and less is done in them; name what \
                                the program does again and again with --progress (`whither causal suggest`)";

/// What is said of whole runs where delays have shown nothing.
pub(crate) const NOT_SHOWN: &str = "whole runs are compared, and nothing has shown that delays make them longer: of a program that runs until a \
                                    clock says so (a benchmark of so many seconds) nothing makes the runs shorter, and gains told here are \
                                    none; --progress names what it does again and again";

#[cfg(test)]
mod tests {
    use crate::analyse::tests::{named, target};
    use crate::{AnalyseOptions, Verdict, analyse};
    use whither_stats::random::Random;
    use whither_store::causal::*;

    /// Runs of a program of two threads: `f0` in one of them, which is not paused; `wall` and the CPU time of the other by what that owes.
    fn runs(wall: fn(f64) -> f64, other: fn(f64) -> f64) -> CausalRun {
        let mut random = Random::new(5);
        let points = vec![ProgressPoint { name: "end".to_owned(), kind: PointKind::End, end: None }];
        let mut run = CausalRun { points, targets: vec![target("f0")], ..CausalRun::default() };
        run.meta = CausalMeta { period_ns: 1_000_000, launched: true, ..CausalMeta::default() };
        for i in 0..40_u64 {
            let percent = if i % 2 == 0 { 0 } else { 5 * (1 + random.below(20)) as u8 };
            let s = f64::from(percent) / 100.0;
            let noise = 1.0 + 0.003 * random.normal();
            let hits = (1000.0 * noise).round();
            let wall_ns = 1e9 * wall(s) * noise;
            let delay_ns = hits * 1e6 * s;
            run.windows.push(Window {
                run: i as u32,
                percent,
                begin_ns: i * 2_000_000_000,
                wall_ns: wall_ns as u64,
                delay_ns: delay_ns as u64,
                hits: hits as u64,
                samples: (hits + 1000.0 * other(s) * noise) as u64,
                visits: vec![PointVisits {
                    visits: 1,
                    last_virtual_ns: (wall_ns - delay_ns) as i64,
                    ..PointVisits::default()
                }],
                threads: 2,
                max_debt_ns: 1_000_000,
                stratum: i as u32 / 10,
                ..Window::default()
            });
        }
        run
    }

    #[test]
    fn runs_that_a_clock_ends_gain_nothing() {
        let answer = analyse(&runs(|_| 1.0, |s| 1.0 - s), &AnalyseOptions::default());
        let row = named(&answer, "f0");
        assert!(row.verdict == Verdict::RateFixed && row.gain.is_none(), "{row:?}");
        assert!(row.reason.contains("run time fixed by a clock"), "{}", row.reason);
        assert_eq!(answer.load, LoadKind::Open);
    }

    /// A thread that waits for the target's pays in its waits: as long, and as much done.
    #[test]
    fn runs_as_long_as_the_target_takes_gain_all_and_are_warned_of() {
        let answer = analyse(&runs(|_| 1.0, |_| 0.2), &AnalyseOptions::default());
        let row = named(&answer, "f0");
        assert!(row.verdict == Verdict::FixThis && row.gain.is_some_and(|g| g.y > 0.27), "{row:?}");
        assert!(answer.warnings.iter().any(|w| w.contains("until a clock says so")), "{:?}", answer.warnings);
    }

    #[test]
    fn runs_that_delays_make_longer_are_not_warned_of() {
        let answer = analyse(&runs(|s| 1.0 + s, |_| 1.0), &AnalyseOptions::default());
        assert_eq!(answer.load, LoadKind::Closed);
        assert!(answer.warnings.iter().all(|w| !w.contains("clock")), "{:?}", answer.warnings);
    }
}
