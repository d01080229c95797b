//! A delay that is spun keeps a core. Where the program has more to run than cores just then, another of its threads waits for
//! that core, which a delay that left the core alone would not have made it do: the program looks slower by that, and a
//! target that gains nothing looks as if it did harm. How much longer threads wait is measured in every window.

use crate::analyse::Analysis;
use crate::quality::OVERSUBSCRIBED;
use crate::results::TargetRow;
use whither_stats::describe::median;
use whither_store::causal::{CausalRun, Executor, SLEEP_REFUSED, Window};

/// Longer waits below this part of the time are noise.
const NOTABLE: f64 = 0.01;
/// More than this may pass for a knee.
const LITTLE: f64 = 0.02;
/// Windows that a median needs.
const ENOUGH: usize = 3;

/// Part of the time that threads, taken together, waited longer for cores behind one another while this target was made so much
/// faster than while it was not. All of it may have met the one thread that the others wait for, and an effect may be told
/// wrongly by as much.
pub(crate) fn crowding(analysis: &Analysis<'_>, target: u32, percent: u8) -> f64 {
    if analysis.run.meta.executor != Executor::Spin || percent == 0 {
        return 0.0;
    }
    let own = analysis.by_target.get(&target).map_or(&[][..], Vec::as_slice);
    let threads = f64::from(own.iter().map(|w| w.threads).max().unwrap_or(0).max(1));
    let of = |wanted: &dyn Fn(u8) -> bool| {
        let shares: Vec<f64> = own.iter().filter(|w| wanted(w.percent)).map(|w| waited(w)).collect();
        (shares.len() >= ENOUGH).then(|| median(&shares))
    };
    // The scheduler now and then leaves all threads on one core for a while, delays or not: such windows are odd ones.
    // Delays grow with the amount, waits not in proportion: only amounts like this one tell.
    let alike = |p: u8| p > 0 && p >= percent / 2 && u32::from(p) <= 2 * u32::from(percent);
    let (plain, delayed) = (of(&|p| p == 0), of(&alike).or_else(|| of(&|p| p > 0)));
    let longer = plain.zip(delayed).map_or(0.0, |(plain, delayed)| delayed - plain);
    // Where threads always wait for cores, waits meet all of them, and a core is handed over with its holder's clock.
    let spread = if plain.is_some_and(|p| p > OVERSUBSCRIBED * threads) { longer / threads } else { longer };
    if spread > NOTABLE { spread } else { 0.0 }
}

/// Whether threads waited so much for cores in a window that delays may have vanished in it.
pub(crate) fn is_crowded(window: &Window) -> bool {
    waited(window) > OVERSUBSCRIBED * f64::from(window.threads.max(1))
}

/// Time that threads waited for a core behind one another in a window, as a part of its length.
fn waited(window: &Window) -> f64 {
    window.own_wait_ns as f64 / (window.wall_ns as f64).max(1.0)
}

/// Whether a knee may be no more than that: delays grow with the amount, and so does the time in which cores lack.
pub(crate) fn hides_the_knee(analysis: &Analysis<'_>, target: u32, percent: u8) -> bool {
    crowding(analysis, target, percent) > LITTLE
}

/// Why there is no verdict where this alone makes the interval hold both a gain and none.
pub(crate) fn cannot_say(run: &CausalRun, crowding: f64) -> String {
    format!(
        "delays that are spun kept cores from other threads of the program, which waited for one in {:.0} % more of the \
         time; {}",
        100.0 * crowding,
        advice(run)
    )
}

/// What helps where delays keep cores; nothing that the session has found to be impossible.
pub(crate) fn advice(run: &CausalRun) -> &'static str {
    if cannot_sleep(run) {
        "repeat with more cores than threads, or try the change itself (`whither causal verify`)"
    } else {
        "repeat with --executor sleep where that is possible, or with no more threads than cores"
    }
}

fn cannot_sleep(run: &CausalRun) -> bool {
    run.meta.executor_reason.starts_with(SLEEP_REFUSED)
}

/// What is said of targets that have a verdict all the same.
pub(crate) fn note(analysis: &Analysis<'_>, targets: &[TargetRow]) -> Option<String> {
    let percent = analysis.options.assume;
    let told = targets.iter().filter(|t| t.verdict.is_an_answer());
    let (name, most) = told.map(|t| (&t.name, crowding(analysis, t.id, percent))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most > 0.0).then(|| {
        let instead = if cannot_sleep(analysis.run) {
            ""
        } else {
            "; --executor sleep leaves cores free where it is possible"
        };
        format!(
            "delays that are spun kept cores from other threads of the program (most with {name}, in {:.1} % of the time): its \
             intervals allow for that{instead}",
            100.0 * most
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_is_not_advised_where_it_was_found_to_be_impossible() {
        let mut run = CausalRun::default();
        assert!(cannot_say(&run, 0.12).contains("--executor sleep"));
        run.meta.executor_reason = format!("{SLEEP_REFUSED} (why), but it is not possible: all signals are taken");
        let why = cannot_say(&run, 0.12);
        assert!(why.contains("12 %") && !why.contains("--executor sleep"), "{why}");
    }
}
