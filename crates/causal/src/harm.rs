//! Before a negative effect is told as contention: whether it may be the doing of the delays themselves. A thread that pays late,
//! and more at once than ticks can explain, has the others wait for it: the program stands still, which no faster code
//! would have made it do. Windows whose delays could not be paid at all are a sign of the same. It only ever takes a verdict back.

use crate::analyse::Analysis;
use crate::fixed_time;
use crate::quality::seconds;
use crate::results::Verdict;
use whither_stats::describe::median;
use whither_store::causal::{Executor, Window};

/// Windows with a speed-up before harm is told: schedulers that place threads anew make one or two of them twice as long.
const WINDOWS: usize = 8;
/// Visits that make a window tell of a period.
const VISITS: u64 = 5;
/// Who runs pays at each tick, and owes for two or three of another thread's; 1.0 to 3.1 ticks were usual in 16 programs. Where
/// half of the windows saw one that owed for more, it had slept or been given another's clock.
const LATE: f64 = 4.0;

/// What is to be said instead of contention; `None`: it is that. `percent`: the amount at which effects are told.
pub(crate) fn doubt(analysis: &Analysis<'_>, target: u32, percent: u8) -> Option<Verdict> {
    let own = analysis.by_target.get(&target).map_or(&[][..], Vec::as_slice);
    if let Some(why) = late(analysis, own).or_else(|| analysis.quality.unpaid_told()) {
        return Some(Verdict::CannotSay { why });
    }
    let whole = fixed_time::is_whole(analysis.run);
    let carries = |w: &&&Window| w.percent > 0 && (whole || visits(w) >= VISITS);
    let (all, near) =
        own.iter().filter(carries).fold((0, 0), |(a, n), w| (a + 1, n + usize::from(w.percent >= percent / 2)));
    if near >= WINDOWS {
        return None;
    }
    let more = seconds(&analysis.kept) * (WINDOWS as f64 / near.max(1) as f64 - 1.0);
    let missing = if near == all {
        format!("windows: {all} with a speed-up are no proof of harm")
    } else {
        format!("windows: {near} with a speed-up of {} % or more are no proof of harm", percent / 2)
    };
    Some(Verdict::NotEnoughData { missing, more_seconds: Some((2.0 * more).clamp(1.0, 1e6)) })
}

fn visits(window: &Window) -> u64 {
    window.visits.iter().find(|v| v.point == 0).map_or(0, |v| v.visits)
}

/// Debts that ticks do not explain. Delays that are slept are asked for in larger pieces, and the agent has a rule of its own
/// (`sleepers.rs`).
fn late(analysis: &Analysis<'_>, own: &[&Window]) -> Option<String> {
    if analysis.run.meta.executor != Executor::Spin {
        return None;
    }
    let tick = analysis.run.tick_ns().max(1) as f64;
    let delayed: Vec<(f64, f64)> = own
        .iter()
        .filter(|w| w.percent > 0 && w.hits > 0)
        .map(|w| (w.max_debt_ns as f64, w.max_debt_ns as f64 / (f64::from(w.percent) / 100.0 * tick)))
        .collect();
    let middle = |of: fn(&(f64, f64)) -> f64| median(&delayed.iter().map(of).collect::<Vec<f64>>());
    (!delayed.is_empty() && middle(|d| d.1) > LATE).then(|| {
        format!(
            "it looks slower, but a thread owed {:.1} ms of delay at once in half of the windows, and whoever waits for it while it \
             pays waits longer than a faster program would make it; try the change itself (`whither causal verify`)",
            middle(|d| d.0) / 1e6
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::analyse::tests::{Program, named};
    use crate::{AnalyseOptions, Verdict, analyse};
    use whither_store::causal::{CausalRun, DropReason, LoadKind};

    fn hurts(n: u32) -> CausalRun {
        let y = |at: usize, s: f64| if at == 0 { -0.5 * s } else { 0.3 * s };
        let mut run = Program { y, shares: vec![0.5, 0.4], noise: 0.02 }.run(n, 7);
        (run.meta.period_ns, run.meta.load) = (1_000_000, LoadKind::Closed);
        owes(&mut run, 2.0);
        run
    }

    /// The largest debt of each window, in ticks of its target.
    fn owes(run: &mut CausalRun, ticks: f64) {
        for w in &mut run.windows {
            w.max_debt_ns = (ticks * f64::from(w.percent) * 1e4) as u64;
        }
    }

    fn verdict(run: &CausalRun) -> Verdict {
        named(&analyse(run, &AnalyseOptions::default()), "f0").verdict.clone()
    }

    #[test]
    fn debts_that_ticks_do_not_explain_are_no_contention() {
        let mut run = hurts(200);
        assert!(matches!(verdict(&run), Verdict::Contention { .. }), "{:?}", verdict(&run));
        owes(&mut run, 120.0);
        assert!(matches!(verdict(&run), Verdict::CannotSay { why } if why.contains("ms of delay at once")));
        // It takes nothing else back.
        let other = named(&analyse(&run, &AnalyseOptions::default()), "f1").verdict.clone();
        assert_eq!(other, Verdict::FixThis);
        // Now and then a thread wakes that had slept.
        run = hurts(200);
        run.windows.iter_mut().step_by(3).for_each(|w| w.max_debt_ns *= 50);
        assert!(matches!(verdict(&run), Verdict::Contention { .. }), "{:?}", verdict(&run));
    }

    #[test]
    fn windows_that_could_not_be_paid_are_no_contention() {
        let mut run = hurts(200);
        let delayed = run.windows.iter_mut().filter(|w| w.percent > 0);
        delayed.step_by(8).for_each(|w| w.dropped = Some(DropReason::NotDrained));
        assert!(
            matches!(verdict(&run), Verdict::CannotSay { why } if why.contains("could not be paid")),
            "{:?}",
            verdict(&run)
        );
    }

    #[test]
    fn windows_of_few_visits_or_small_amounts_are_no_proof() {
        let mut run = hurts(200);
        run.windows.iter_mut().filter(|w| w.percent > 0).skip(8).for_each(|w| {
            w.visits[0].last_virtual_ns = w.visits[0].last_virtual_ns / 30 * 3;
            w.visits[0].visits = 4;
        });
        assert!(matches!(verdict(&run), Verdict::NotEnoughData { .. }), "{:?}", verdict(&run));
    }

    /// The line through all windows falls for certain, the effect that is told may be a gain: nothing is told of harm.
    #[test]
    fn an_interval_that_holds_both_is_no_contention() {
        for seed in 0..20 {
            let y = |at: usize, s: f64| if at == 0 { 0.4 * s.min(0.3) - 0.6 * (s - 0.3).max(0.0) } else { 0.3 * s };
            let mut run = Program { y, shares: vec![0.5, 0.4], noise: 0.15 }.run(60, seed);
            run.meta.period_ns = 1_000_000;
            let answer = analyse(&run, &AnalyseOptions::default());
            let row = named(&answer, "f0");
            let holds_zero = row.gain.is_none_or(|g| g.high >= 0.0);
            assert!(!(holds_zero && matches!(row.verdict, Verdict::Contention { .. })), "{seed} {:?}", row.gain);
        }
    }
}
