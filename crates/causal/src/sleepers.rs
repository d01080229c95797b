//! Threads that sleep, without BPF: what a target earns meanwhile they pay at their first tick, behind what they were woken
//! for. Where that is a lock, its next owner waits for the payment too, and as much of the effect is lost: all of it, with a
//! thread that wakes every 2 ms and takes the lock at once. (By BPF they pay before they go on.)

use crate::analyse::Analysis;
use whither_stats::describe::median;
use whither_store::causal::{Executor, Window};

/// Who runs is asked to pay at each tick: threads that tick apart owe for two of another's ticks, and a tick or two more where
/// that comes late. Who owes for more was not running.
const AWAKE: f64 = 4.0;
/// Windows that tell it.
const ENOUGH: usize = 4;

/// By how much an effect may be told too small.
pub(crate) fn hide(analysis: &Analysis<'_>, target: u32, percent: u8) -> f64 {
    let meta = &analysis.run.meta;
    let own = analysis.by_target.get(&target).map_or(&[][..], Vec::as_slice);
    let delayed = || own.iter().filter(|w| w.percent > 0 && w.hits > 0 && w.wall_ns > 0);
    if meta.executor != Executor::Agent || delayed().count() < ENOUGH {
        return 0.0;
    }
    let s = |w: &Window| f64::from(w.percent) / 100.0;
    let ticks = |w: &Window| w.max_debt_ns as f64 / (s(w) * meta.period_ns.max(1) as f64);
    let owed: Vec<f64> = delayed().map(|w| ticks(w)).collect();
    if median(&owed) <= AWAKE {
        return 0.0;
    }
    // All that others were to pay.
    let earned: f64 = delayed().map(|w| w.delay_ns as f64 / w.wall_ns as f64 / s(w)).sum();
    f64::from(percent) / 100.0 * earned / owed.len() as f64
}

/// Why there can be no verdict.
pub(crate) fn cannot_say(hidden: f64) -> String {
    format!(
        "without BPF threads that sleep pay behind what they are woken for, and whoever waits for that waits longer: \
         the gain may be up to {:.0} points more than was seen; measure with BPF, or try the change itself (`whither causal verify`)",
        100.0 * hidden
    )
}

#[cfg(test)]
mod tests {
    use crate::analyse::tests::{Program, named};
    use crate::{AnalyseOptions, Verdict, analyse};
    use whither_store::causal::{CausalRun, Executor, LoadKind};

    /// A target that is told to gain nothing, beside a thread that owes for so many of its ticks at once.
    fn flat(ticks: f64) -> CausalRun {
        let mut run = Program { y: |_, _| 0.0, shares: vec![0.35, 0.35], noise: 0.01 }.run(300, 4);
        (run.meta.executor, run.meta.period_ns, run.meta.load) = (Executor::Agent, 1_000_000, LoadKind::Closed);
        for w in &mut run.windows {
            w.max_debt_ns = (ticks * f64::from(w.percent) * 1e4) as u64;
        }
        run
    }

    #[test]
    fn nobody_is_told_not_to_bother_with_what_sleepers_may_hide() {
        let answer = analyse(&flat(5.0), &AnalyseOptions::default());
        let row = named(&answer, "f0");
        let gain = row.gain.expect("told");
        assert!(matches!(row.verdict, Verdict::CannotSay { .. }), "{:?}", row.verdict);
        assert!(
            row.reason.contains("up to 10 points more") || row.reason.contains("up to 11 points more"),
            "{}",
            row.reason
        );
        // 0.35 of the time at 30 %.
        assert!(gain.high > 0.105 && gain.low > -0.08 && gain.low < 0.0, "{gain:?}");
        assert!((gain.y - f64::midpoint(gain.low, gain.high)).abs() < 1e-9);
    }

    #[test]
    fn threads_that_pay_as_they_run_hide_nothing() {
        let verdict = |run: &CausalRun| named(&analyse(run, &AnalyseOptions::default()), "f0").verdict.clone();
        assert!(matches!(verdict(&flat(2.0)), Verdict::DoNotBother { .. }), "{:?}", verdict(&flat(2.0)));
        // By BPF they pay before they go on.
        let mut run = flat(5.0);
        run.meta.executor = Executor::Spin;
        assert!(matches!(verdict(&run), Verdict::DoNotBother { .. }));
    }
}
