//! Who decides how often the points are visited, where the visits themselves cannot tell it: a program that at times waits
//! with all of its threads waits for something outside of it. Where that is clients who wait for answers, less time per visit
//! means more visits; where requests come at a rate of their own, it means more waiting. A program of one thread is never
//! paused by delays, so that visits per real second are the same for both, and its answer has to be told for both.

use crate::asked;
use whither_store::causal::{CausalRun, Executor, LoadKind, Window};

/// With less spare time than this the program is what limits its visits, wherever they come from. Ticks of dear machines and
/// time in interrupts make some points of a busy program look idle.
const SPARE: f64 = 0.1;

/// Part of the time without speed-up in which certainly no thread of the program ran or waited for a core. A lower bound:
/// threads that run at once hide what others idle. `None` where CPU time was not measured.
pub(crate) fn idle(run: &CausalRun, kept: &[&Window]) -> Option<f64> {
    let period = run.meta.period_ns as f64;
    let plain = kept.iter().filter(|w| w.percent == 0);
    let (wall, ran, waited) = plain.fold((0.0, 0.0, 0.0), |(wall, ran, waited), w| {
        let queued = w.own_wait_ns.saturating_add(w.foreign_wait_ns).saturating_add(w.steal_ns);
        (wall + w.wall_ns as f64, ran + w.samples as f64 * period, waited + queued as f64)
    });
    if wall <= 0.0 || ran <= 0.0 {
        return None;
    }
    // Ticks without BPF see user code only.
    let whole = run.overhead.target_cpu_ns as f64 / run.meta.duration_ns.max(1) as f64;
    let kernel = if run.meta.executor == Executor::Agent { whole } else { 0.0 };
    Some((1.0 - ((ran + waited) / wall).max(kernel)).max(0.0))
}

/// What shows that the answer hangs on somebody outside of the program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hangs {
    /// This part of the time nothing of the program ran.
    Idle(f64),
    /// Its visits are answers to requests from outside, and its threads, which may take turns, have this part of their time to spare.
    OnRequests(f64),
}

/// That, where nobody said who decides. What was launched has its clients with it, unless requests are seen to come from outside.
pub(crate) fn undecided(run: &CausalRun, kept: &[&Window], load: LoadKind) -> Option<Hangs> {
    if load != LoadKind::Unknown {
        return None;
    }
    let idle = idle(run, kept).filter(|idle| *idle >= SPARE);
    let paced = asked::is_paced(run, kept).then(|| asked::spare_time(run, kept)).flatten();
    match (idle, paced) {
        (Some(idle), paced) if paced.is_some() || !run.meta.launched => Some(Hangs::Idle(idle)),
        (None, Some(spare)) => Some(Hangs::OnRequests(spare)),
        _ => None,
    }
}

/// What is said of such a program, before all else.
pub(crate) fn told(hangs: Hangs) -> String {
    let seen = match hangs {
        Hangs::Idle(idle) => {
            format!(
                "in {:.0} % of the time no thread of the program ran: it waited for something outside of it, and nothing measured \
                 tells whether that waits for the program as well",
                100.0 * idle
            )
        }
        Hangs::OnRequests(spare) => format!(
            "requests from outside set the pace: threads of the program waited for them, or for one another, in {:.0} % of their time, \
             and nothing measured tells whether who asks waits for the answers",
            100.0 * spare
        ),
    };
    format!(
        "{seen}. If clients wait for answers before they ask again, gains are as told; if requests come at a rate of their own, no change \
         gains visits, only time for each of them. Say which it is: --load closed or --load open (then --latency BEGIN,END)"
    )
}

#[cfg(test)]
mod tests {
    use crate::analyse::tests::{Program, named};
    use crate::{AnalyseOptions, Verdict, analyse};
    use whither_store::causal::{CausalRun, FromOutside, LoadKind};

    /// One thread that is busy for this part of the time and was attached to.
    fn server(busy: f64) -> CausalRun {
        let mut run = Program { y: |_, s| 0.45 * s, shares: vec![0.7, 0.3], noise: 0.02 }.run(300, 4);
        (run.meta.period_ns, run.meta.launched) = (1_000_000, false);
        for w in &mut run.windows {
            (w.threads, w.samples) = (1, (300.0 * busy) as u64);
        }
        run
    }

    #[test]
    fn who_waits_for_the_outside_is_told_both_answers() {
        let answer = analyse(&server(0.65), &AnalyseOptions::default());
        let row = named(&answer, "f0");
        assert!(matches!(row.verdict, Verdict::DependsOnLoad { .. }), "{:?}", row.verdict);
        assert!(row.reason.starts_with("if clients wait for answers, fix this: +13 "), "{}", row.reason);
        assert!(row.reason.contains("at a rate of their own, no gain"), "{}", row.reason);
        assert!(answer.warnings[0].contains("in 35 % of the time") && answer.warnings[0].contains("--load"));
    }

    /// Two threads that take turns: one of them runs at any time.
    #[test]
    fn threads_that_take_turns_leave_nothing_idle_and_are_told_all_the_same() {
        let mut run = server(1.0);
        run.meta.launched = true;
        run.windows.iter_mut().for_each(|w| w.threads = 2);
        run.asked = vec![FromOutside { wall_ns: 1_000_000_000, times: 1_000_000, ..FromOutside::default() }];
        let answer = analyse(&run, &AnalyseOptions::default());
        assert!(matches!(named(&answer, "f0").verdict, Verdict::DependsOnLoad { .. }));
        let told = &answer.warnings[0];
        assert!(
            told.starts_with("requests from outside set the pace") && told.contains("in 50 % of their time"),
            "{told}"
        );
        assert!(told.contains("--load open"), "{told}");
        run.windows.iter_mut().for_each(|w| w.samples /= 2);
        let told = &analyse(&run, &AnalyseOptions::default()).warnings[0];
        assert!(told.starts_with("in 50 % of the time no thread"), "{told}");
    }

    #[test]
    fn who_has_no_spare_time_says_so_or_brought_its_clients_is_told_one() {
        let verdict = |run: &CausalRun| named(&analyse(run, &AnalyseOptions::default()), "f0").verdict.clone();
        assert_eq!(verdict(&server(0.97)), Verdict::FixThis);
        let mut closed = server(0.65);
        closed.meta.load = LoadKind::Closed;
        assert_eq!(verdict(&closed), Verdict::FixThis);
        let mut launched = server(0.65);
        launched.meta.launched = true;
        assert_eq!(verdict(&launched), Verdict::FixThis);
        let mut open = server(0.65);
        open.meta.load = LoadKind::Open;
        assert_eq!(verdict(&open), Verdict::RateFixed);
        // Who waits for a core is not idle.
        let mut queued = server(0.65);
        queued.windows.iter_mut().for_each(|w| w.foreign_wait_ns = w.wall_ns / 3);
        assert_eq!(verdict(&queued), Verdict::FixThis);
    }
}
