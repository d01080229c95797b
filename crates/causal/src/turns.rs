//! Programs whose threads wait for one another more often than ticks come. A tick credits all that its thread has run since
//! the one before in one lump; where that holds several turns, the thread it takes turns with pays for what both had won long
//! before, and what should have been absorbed in its waits is lost. How fast is too fast was measured: K3, K17 to K19.

use crate::analyse::Analysis;
use whither_store::causal::CausalRun;

/// Fewer waits than this say nothing.
const LEAST_WAITS: u64 = 20;
/// Where ticks are so many turns apart nothing is said. Programs are told rightly with one and a half turns to a tick (K3), and not
/// with four (pong of K17).
const TOO_FAST: f64 = 2.0;
/// Part of a speed-up that may be told wrongly, by turns to a tick.
const MISTOLD: f64 = 0.1;
/// Turns to a tick from which on it is told.
const NOTABLE: f64 = 1.0;

/// Whether threads of the program wait for one another.
pub(crate) fn are_taken(run: &CausalRun) -> bool {
    run.turns.iter().map(|t| t.waits).fold(0, u64::saturating_add) >= LEAST_WAITS
}

/// How fast the threads of a target take turns with others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// Run time from one wait for another thread to the next.
    pub(crate) turn_ns: f64,
    /// Real time between ticks.
    pub(crate) tick_ns: f64,
}

impl Pace {
    /// `None` where they hardly wait for others, or nobody knows.
    pub(crate) fn of(analysis: &Analysis<'_>, target: u32) -> Option<Self> {
        let turns = analysis.run.turns.iter().find(|t| t.target == target)?;
        let tick_ns = analysis.run.tick_ns() as f64;
        (turns.waits >= LEAST_WAITS && tick_ns > 0.0)
            .then(|| Self { turn_ns: turns.run_ns as f64 / turns.waits as f64, tick_ns })
    }

    fn turns_to_a_tick(self) -> f64 {
        self.tick_ns / self.turn_ns.max(1.0)
    }

    /// What may be wrong of an effect.
    pub(crate) fn allowance(self, percent: u8) -> f64 {
        f64::from(percent) / 100.0 * (MISTOLD * self.turns_to_a_tick()).min(1.0)
    }

    /// Why there can be no verdict.
    pub(crate) fn cannot_say(self) -> Option<String> {
        (self.turns_to_a_tick() > TOO_FAST).then(|| {
            format!(
                "threads take turns every {} in it, ticks come every {}: delays cannot follow; try the change itself \
                 (`whither causal verify`)",
                time(self.turn_ns),
                time(self.tick_ns)
            )
        })
    }

    /// What the user should know of intervals that are wide for this.
    pub(crate) fn note(self, name: &str) -> Option<String> {
        (self.turns_to_a_tick() > NOTABLE).then(|| {
            format!(
                "in {name} threads take turns every {}, and ticks come every {}: its intervals allow for delays that come late, \
                 {:.1} points at 30 %",
                time(self.turn_ns),
                time(self.tick_ns),
                100.0 * self.allowance(30)
            )
        })
    }
}

fn time(ns: f64) -> String {
    if ns < 950_000.0 { format!("{:.0} us", ns / 1e3) } else { format!("{:.1} ms", ns / 1e6) }
}
