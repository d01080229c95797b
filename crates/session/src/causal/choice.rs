//! Whether delays are to be slept instead of spun, seen from what the program does. A delay that is spun keeps a core:
//! where threads wait for cores, with delays or without, it stands in the way of threads that it is not meant for. Here is
//! the judgement alone; `run/changeover.rs` acts on it.
//!
//! It goes one way, from spinning to sleeping. It looks at waits, never at what delays did to the visits, and a run that
//! changed over starts anew: what came of its experiments cannot bias it.

use std::collections::VecDeque;
use whither_sample::causal::Facts;

/// Observations that are looked at, of each kind: programs change.
const RECENT: usize = 16;
/// So many, or a second of them, tell how the program is without delays.
const ENOUGH: usize = 5;
const ENOUGH_NS: u64 = 1_000_000_000;
/// Windows that tell how it is with delays; they differ in their amounts.
const ENOUGH_DELAYED: usize = 6;
/// Threads that wait for a core, for each that can run, from which on cores are scarce at any time. The same share of
/// their time doubles the intervals of a run that spins.
const SCARCE: f64 = 0.05;
/// Threads that wait for a core more than without delays: the same figure may pass for a knee where delays were spun.
const LONGER: f64 = 0.02;
/// Part of the windows with delays that must show it: all threads of a program now and then share a core for a while.
const MOST: f64 = 0.75;

/// What was seen of the program's threads for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// So long.
    pub(super) wall_ns: u64,
    /// Threads on cores, on average.
    pub(super) running: f64,
    /// Threads that waited for a core behind others of the program.
    pub(super) waiting: f64,
}

impl Seen {
    /// From the facts of a window. What others took from the program makes its threads share the rest, which is not the
    /// program's own way; as much as it waited for others is left out.
    pub(super) fn of(facts: &Facts) -> Self {
        let wall = facts.wall_ns.max(1) as f64;
        Self {
            wall_ns: facts.wall_ns,
            running: facts.samples as f64 * facts.unit_ns as f64 / wall,
            waiting: facts.own_wait_ns.saturating_sub(facts.foreign_wait_ns) as f64 / wall,
        }
    }
}

/// Why delays are to be slept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lack {
    /// Threads wait for cores without any delay.
    Always {
        /// Threads that could run.
        runnable: f64,
        /// Those of them that had no core.
        waiting: f64,
    },
    /// They wait longer, by so many threads, while delays are spun.
    Delayed(f64),
}

impl Lack {
    /// As a reason; `cpus`: that the program may use.
    pub(super) fn told(self, cpus: usize) -> String {
        let are = if cpus == 1 { "CPU" } else { "CPUs" };
        match self {
            Self::Always { runnable, .. } if runnable > cpus as f64 => {
                format!("{runnable:.1} threads runnable on {cpus} {are}")
            }
            Self::Always { waiting, .. } => {
                format!("threads waited for a core {:.0} % of the time", 100.0 * waiting)
            }
            Self::Delayed(longer) => {
                format!("spun delays made threads wait for a core in {:.0} % more of the time", 100.0 * longer)
            }
        }
    }
}

/// What has been seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    plain: VecDeque<Seen>,
    delayed: VecDeque<Seen>,
}

impl Choice {
    /// Takes in an observation: with delays, or without.
    pub(super) fn saw(&mut self, seen: Seen, delayed: bool) {
        let kind = if delayed { &mut self.delayed } else { &mut self.plain };
        if kind.len() == RECENT {
            kind.pop_front();
        }
        kind.push_back(seen);
    }

    /// Whether too little was seen of the program without delays.
    pub(super) fn is_blind(&self) -> bool {
        let watched = self.plain.iter().map(|s| s.wall_ns).fold(0, u64::saturating_add);
        self.plain.len() < ENOUGH && watched < ENOUGH_NS
    }

    /// Why it is time to sleep; `None` while spinning will do, or nothing is known yet.
    pub(super) fn lacking(&self) -> Option<Lack> {
        if self.is_blind() {
            return None;
        }
        let waiting = median(self.plain.iter().map(|s| s.waiting));
        let runnable = waiting + median(self.plain.iter().map(|s| s.running));
        if waiting > SCARCE * runnable.max(1.0) {
            return Some(Lack::Always { runnable, waiting });
        }
        if self.delayed.len() < ENOUGH_DELAYED {
            return None;
        }
        let longer = median(self.delayed.iter().map(|s| s.waiting)) - waiting;
        let show = self.delayed.iter().filter(|s| s.waiting > waiting + LONGER).count();
        let most = show as f64 >= MOST * self.delayed.len() as f64;
        (longer > LONGER && most).then_some(Lack::Delayed(longer))
    }
}

/// Of at least one value.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(plain: &[(f64, f64)], delayed: &[(f64, f64)]) -> Choice {
        let mut choice = Choice::default();
        let seen = |(running, waiting): &(f64, f64)| Seen { wall_ns: 20_000_000, running: *running, waiting: *waiting };
        plain.iter().for_each(|s| choice.saw(seen(s), false));
        delayed.iter().for_each(|s| choice.saw(seen(s), true));
        choice
    }

    #[test]
    fn more_threads_than_cores_are_told_from_the_warm_up_alone() {
        let lack = choice(&[(1.9, 1.9); 5], &[]).lacking();
        assert!(matches!(lack, Some(Lack::Always { .. })), "{lack:?}");
        assert_eq!(lack.map(|l| l.told(2)).as_deref(), Some("3.8 threads runnable on 2 CPUs"));
        assert_eq!(choice(&[(1.9, 1.9); 4], &[]).lacking(), None, "judged by 80 ms");
        // Threads that compute and wait by turns: cores lack now and then.
        let lack = choice(&[(1.2, 0.4); 5], &[]).lacking();
        assert_eq!(lack.map(|l| l.told(2)).as_deref(), Some("threads waited for a core 40 % of the time"));
        // One long look is as good as some short ones.
        let mut long = Choice::default();
        long.saw(Seen { wall_ns: ENOUGH_NS, running: 2.0, waiting: 1.0 }, false);
        assert!(long.lacking().is_some());
    }

    #[test]
    fn a_core_for_each_thread_is_no_reason_to_sleep() {
        assert_eq!(choice(&[(2.0, 0.0); 16], &[(2.0, 0.0); 16]).lacking(), None);
        // For a moment all threads shared one core.
        let odd = [(2.0, 0.0), (2.0, 0.0), (1.0, 0.9), (1.0, 0.9), (2.0, 0.0)];
        assert_eq!(choice(&odd, &[(2.0, 0.0), (1.0, 0.9), (2.0, 0.0)].repeat(4)).lacking(), None);
        // Many cores, most of them busy: somebody always waits somewhere.
        assert_eq!(choice(&[(60.0, 1.0); 16], &[(60.0, 1.01); 16]).lacking(), None);
        // A program that hardly runs hardly waits.
        assert_eq!(choice(&[(0.05, 0.01); 16], &[(0.05, 0.02); 16]).lacking(), None);
    }

    #[test]
    fn cores_that_only_delays_take_are_seen_too() {
        let lack = choice(&[(1.2, 0.02); 8], &[(1.3, 0.32); 6]).lacking();
        assert_eq!(
            lack.map(|l| l.told(2)).as_deref(),
            Some("spun delays made threads wait for a core in 30 % more of the time")
        );
        assert_eq!(choice(&[(1.2, 0.02); 8], &[(1.3, 0.32); 5]).lacking(), None, "judged by five windows");
        // Not by some of them.
        let some = [[(1.3, 0.32); 5].as_slice(), &[(1.3, 0.02); 3]].concat();
        assert_eq!(choice(&[(1.2, 0.02); 8], &some).lacking(), None);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut choice = choice(&[(2.0, 0.0); RECENT], &[]);
        (0..RECENT).for_each(|_| choice.saw(Seen { wall_ns: 20_000_000, running: 2.0, waiting: 2.0 }, false));
        assert!(choice.lacking().is_some());
    }

    #[test]
    fn waits_behind_others_are_not_the_programs_own() {
        let facts = |own_wait_ns, foreign_wait_ns| Facts {
            wall_ns: 100_000_000,
            samples: 200,
            unit_ns: 500_000,
            own_wait_ns,
            foreign_wait_ns,
            ..Facts::default()
        };
        assert_eq!(Seen::of(&facts(50_000_000, 0)), Seen { wall_ns: 100_000_000, running: 1.0, waiting: 0.5 });
        assert_eq!(Seen::of(&facts(50_000_000, 60_000_000)).waiting, 0.0);
    }
}
