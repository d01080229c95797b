//! Requests from outside, and what is not known of them. Who waits for the program's answers asks earlier when it gets faster; where
//! nobody knows which answer a request waited for (a new connection, datagrams of many peers), the thread that it wakes pays for a delay
//! that the answer would have come earlier by, and as much of a gain is lost, down to all of it.

use crate::analyse::Analysis;
use whither_store::causal::{CausalRun, FromOutside, Window};

/// Requests for each visit, from which on they are what visits are made of.
const PACED: f64 = 0.5;
/// Part of the requests that come at times of the world, from which on the world decides.
const BY_THE_WORLD: f64 = 0.9;
/// A lesser part of the delays was hardly asked of anybody: who owed was woken by who had paid.
const PAID: f64 = 0.5;
/// Part of their time that threads must have to spare.
const SPARE: f64 = 0.1;

/// What all windows saw.
fn all(run: &CausalRun) -> FromOutside {
    let mut all = FromOutside::default();
    run.asked.iter().for_each(|a| all.add(a));
    all
}

/// Whether requests of others are what the first point's visits are made of.
pub(crate) fn is_paced(run: &CausalRun, kept: &[&Window]) -> bool {
    let visits: u64 = kept.iter().filter_map(|w| w.visits.iter().find(|v| v.point == 0)).map(|v| v.visits).sum();
    let wall: u64 = kept.iter().map(|w| w.wall_ns).sum();
    let all = all(run);
    if visits == 0 || wall == 0 || all.wall_ns == 0 {
        return false;
    }
    let requests = all.times as f64 / all.wall_ns as f64;
    requests >= PACED * visits as f64 / wall as f64
}

/// Whether they come at times of the world: by programs of this machine that sleep to the beat of a clock.
pub(crate) fn is_on_a_beat(run: &CausalRun, kept: &[&Window]) -> bool {
    let all = all(run);
    is_paced(run, kept) && all.by_world as f64 >= BY_THE_WORLD * all.times as f64
}

/// Part of their time that threads have to spare, those that were seen to run, without speed-up; `None` where it is no good part.
pub(crate) fn spare_time(run: &CausalRun, kept: &[&Window]) -> Option<f64> {
    let (mut had, mut used) = (0.0, 0.0);
    for w in kept.iter().filter(|w| w.percent == 0) {
        had += w.wall_ns as f64 * f64::from(w.threads.max(1));
        used += w.samples as f64 * run.meta.period_ns as f64 + w.own_wait_ns.saturating_add(w.foreign_wait_ns) as f64;
    }
    (had > 0.0).then(|| 1.0 - used / had).filter(|spare| *spare >= SPARE)
}

/// Whether delays of a target were made at all. Where each thread is woken by one that has them behind it, visits are as many as before
/// and say nothing of the load.
pub(crate) fn were_paid(run: &CausalRun, target: u32) -> bool {
    let of = run.asked.iter().find(|a| a.target == target);
    of.is_none_or(|a| a.paid_ns as f64 >= PAID * a.delay_ns as f64)
}

/// By how much an effect may be told too small: by what threads were to pay for requests of which nobody knows what they waited for.
pub(crate) fn hide(analysis: &Analysis<'_>, target: u32, percent: u8) -> f64 {
    let Some(of) = analysis.run.asked.iter().find(|a| a.target == target && a.delay_ns > 0) else { return 0.0 };
    let part = (of.unknown_debt_ns as f64 / of.delay_ns as f64).min(1.0);
    let own = analysis.by_target.get(&target).map_or(&[][..], Vec::as_slice);
    let delayed = || own.iter().filter(|w| w.percent > 0 && w.wall_ns > 0);
    let earned: f64 = delayed().map(|w| w.delay_ns as f64 / w.wall_ns as f64 * 100.0 / f64::from(w.percent)).sum();
    part * f64::from(percent) / 100.0 * earned / delayed().count().max(1) as f64
}

/// Why there can be no verdict.
pub(crate) fn cannot_say(run: &CausalRun, hidden: f64) -> String {
    let all = all(run);
    let share = 100.0 * all.unknown as f64 / all.times.max(all.unknown).max(1) as f64;
    format!(
        "{share:.0} % of the waits for requests were ended by something outside of which nobody knows which answer it had waited for (a new \
         connection, datagrams of many): if it waits for answers the gain may be up to {:.0} points more than was seen; measure the \
         clients too (begin both with one command), let them keep their connections, or look at latency (--latency BEGIN,END)",
        100.0 * hidden
    )
}

#[cfg(test)]
mod tests {
    use crate::analyse::tests::{Program, named};
    use crate::{AnalyseOptions, Verdict, analyse};
    use whither_store::causal::{CausalRun, FromOutside, LoadKind};

    /// Targets that are told to gain nothing, beside requests for each visit.
    fn flat(of: &FromOutside) -> CausalRun {
        let mut run = Program { y: |_, _| 0.0, shares: vec![0.35, 0.35], noise: 0.01 }.run(300, 4);
        (run.meta.period_ns, run.meta.load) = (1_000_000, LoadKind::Closed);
        let wall_ns = 1_000_000_000;
        let times = 1_000_000;
        run.asked = (0..2).map(|target| FromOutside { target, wall_ns, times, ..*of }).collect();
        run
    }

    #[test]
    fn what_unknown_requests_may_hide_is_no_reason_not_to_bother() {
        let of = FromOutside { delay_ns: 100, unknown_debt_ns: 90, unknown: 900_000, ..FromOutside::default() };
        let answer = analyse(&flat(&of), &AnalyseOptions::default());
        let row = named(&answer, "f0");
        assert!(matches!(row.verdict, Verdict::CannotSay { .. }), "{:?}", row.verdict);
        assert!(row.reason.contains("90 % of the waits"), "{}", row.reason);
        assert!(row.gain.is_some_and(|g| g.high > 0.08 && g.low < 0.0), "{:?}", row.gain);
        let known = FromOutside { unknown_debt_ns: 1, unknown: 3, ..of };
        let answer = analyse(&flat(&known), &AnalyseOptions::default());
        assert!(matches!(named(&answer, "f0").verdict, Verdict::DoNotBother { .. }));
    }

    /// A program that helps, launched, with one thread of two at work.
    fn served(of: &FromOutside) -> CausalRun {
        let mut run = Program { y: |_, s| 0.45 * s, shares: vec![0.7, 0.3], noise: 0.02 }.run(300, 4);
        (run.meta.period_ns, run.meta.launched) = (1_000_000, true);
        run.windows.iter_mut().for_each(|w| (w.threads, w.samples) = (2, 300));
        run.asked = vec![FromOutside { wall_ns: 1_000_000_000, ..*of }];
        run
    }

    #[test]
    fn requests_from_outside_make_the_load_a_question() {
        let told = |of: &FromOutside| {
            let answer = analyse(&served(of), &AnalyseOptions::default());
            (named(&answer, "f0").verdict.clone(), answer.load)
        };
        let many = FromOutside { times: 1_000_000, ..FromOutside::default() };
        assert!(matches!(told(&many).0, Verdict::DependsOnLoad { .. }), "{:?}", told(&many));
        assert_eq!(told(&FromOutside::default()).0, Verdict::FixThis, "nobody asks");
        let on_a_beat = FromOutside { by_world: 1_000_000, ..many };
        assert_eq!(told(&on_a_beat), (Verdict::RateFixed, LoadKind::Open));
    }
}
