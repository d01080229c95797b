//! Whether delays are to be slept instead of spun, seen from what the program does. A delay that is spun keeps a core; where
//! threads wait longer for cores in windows with delays than in those without, it is in the way of threads that it is not
//! meant for. By the same figure an answer from spun delays says that it cannot tell. Here is the judgement alone;
//! `run/changeover.rs` acts on it.
//!
//! More threads than cores alone are no reason: where threads always wait for cores, each gets one with the clock of the
//! thread that had it, paid, and delays that are slept are told too large. It goes one way, from spinning to
//! sleeping; it looks at waits, never at what delays did to the visits, and a run that changed over starts anew: what came of
//! its experiments cannot bias it.

use std::collections::{BTreeSet, VecDeque};
use whither_sample::causal::Facts;

/// Observations that are looked at, of each kind: programs change, but the figure is looked at after every window, and must not
/// cross its limit by chance when many have been made that would be lost.
const RECENT: usize = 64;
/// So many of each tell; windows with delays differ in their amounts.
const ENOUGH: usize = 6;
/// Part of their time that threads wait for cores without any delay, from which on waits meet all of them: what is longer is
/// shared out then.
const ALWAYS: f64 = 0.05;
/// Threads that wait for a core more than without delays: as much may pass for a knee where delays are spun.
const LONGER: f64 = 0.02;
/// The same where one target's delays alone show it, and those of others do not: it is looked at for each of them.
const PLAINLY: f64 = 0.05;
/// Part of the windows with delays that must show it: all threads of a program now and then share a core for a while.
const MOST: f64 = 0.75;

/// What was seen of the program's threads for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// So long.
    pub(super) wall_ns: u64,
    /// Threads that were sampled.
    threads: u32,
    /// Threads that waited for a core behind others of the program, on average.
    waiting: f64,
    /// Threads that could run.
    runnable: f64,
}

impl Seen {
    /// From the facts of a window. What others took from the program makes its threads share the rest, which is not the
    /// program's own way; as much as it waited for others is left out.
    pub(super) fn of(facts: &Facts) -> Self {
        let wall = facts.wall_ns.max(1) as f64;
        let waiting = facts.own_wait_ns.saturating_sub(facts.foreign_wait_ns) as f64 / wall;
        Self {
            wall_ns: facts.wall_ns,
            threads: facts.threads,
            waiting,
            runnable: waiting + facts.samples as f64 * facts.unit_ns as f64 / wall,
        }
    }
}

/// Spun delays are in the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Crowd {
    /// Part of the time that threads wait longer.
    longer: f64,
    /// Threads that can run while delays are spun.
    runnable: f64,
}

impl Crowd {
    /// As a reason; `cpus`: on line.
    pub(super) fn told(self, cpus: usize) -> String {
        let are = if cpus == 1 { "CPU" } else { "CPUs" };
        format!(
            "spun delays made threads wait for cores in {:.0} % more of the time, {:.1} runnable on {cpus} {are}",
            100.0 * self.longer,
            self.runnable
        )
    }
}

/// What has been seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    plain: VecDeque<Seen>,
    /// With the target whose speed-up the delays stand for.
    delayed: VecDeque<(u32, Seen)>,
}

impl Choice {
    /// Takes in an observation without delays.
    pub(super) fn saw_plain(&mut self, seen: Seen) {
        remember(&mut self.plain, seen);
    }

    /// Takes in one with delays for a target.
    pub(super) fn saw_delayed(&mut self, target: u32, seen: Seen) {
        remember(&mut self.delayed, (target, seen));
    }

    /// Why it is time to sleep; `None` while spinning will do, or too little is known. Delays of one target may stand in the
    /// way where those of all others do not.
    pub(super) fn crowd(&self) -> Option<Crowd> {
        if self.plain.len() < ENOUGH {
            return None;
        }
        let targets: BTreeSet<u32> = self.delayed.iter().map(|(target, _)| *target).collect();
        let of_one = |target: u32| self.crowd_of(|t| t == target, PLAINLY);
        self.crowd_of(|_| true, LONGER).or_else(|| targets.into_iter().find_map(of_one))
    }

    /// The same by the delays of some targets, which make threads wait longer by more than `least`.
    fn crowd_of(&self, wanted: impl Fn(u32) -> bool, least: f64) -> Option<Crowd> {
        let delayed: Vec<&Seen> = self.delayed.iter().filter(|(t, _)| wanted(*t)).map(|(_, seen)| seen).collect();
        if delayed.len() < ENOUGH {
            return None;
        }
        let threads = delayed.iter().map(|s| s.threads).max().map_or(1.0, |n| f64::from(n.max(1)));
        let without = median(self.plain.iter().map(|s| s.waiting));
        let shared = if without > ALWAYS * threads { threads } else { 1.0 };
        let longer = |s: &Seen| (s.waiting - without) / shared;
        let show = delayed.iter().filter(|s| longer(s) > least).count();
        let crowd = Crowd {
            longer: median(delayed.iter().map(|s| longer(s))),
            runnable: median(delayed.iter().map(|s| s.runnable)),
        };
        (crowd.longer > least && show as f64 >= MOST * delayed.len() as f64).then_some(crowd)
    }
}

fn remember<T>(kind: &mut VecDeque<T>, one: T) {
    if kind.len() == RECENT {
        kind.pop_front();
    }
    kind.push_back(one);
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

    /// Four threads, of which so many wait in each window without and with delays.
    fn crowd(plain: &[f64], delayed: &[f64]) -> Option<Crowd> {
        let mut choice = Choice::default();
        let seen =
            |waiting: &f64| Seen { wall_ns: 100_000_000, threads: 4, waiting: *waiting, runnable: 1.5 + waiting };
        plain.iter().for_each(|w| choice.saw_plain(seen(w)));
        delayed.iter().for_each(|w| choice.saw_delayed(0, seen(w)));
        choice.crowd()
    }

    #[test]
    fn one_target_of_several_whose_delays_keep_cores_is_reason_to_sleep() {
        let seen = |waiting: f64| Seen { wall_ns: 100_000_000, threads: 3, waiting, runnable: 1.5 + waiting };
        let of_two = |second: f64, windows: usize| {
            let mut choice = Choice::default();
            (0..8).for_each(|_| choice.saw_plain(seen(0.02)));
            (0..20).for_each(|_| choice.saw_delayed(0, seen(0.02)));
            (0..windows).for_each(|_| choice.saw_delayed(1, seen(second)));
            choice.crowd()
        };
        let found = of_two(0.62, 6).unwrap();
        assert!((found.longer - 0.6).abs() < 1e-9, "{found:?}");
        assert_eq!(of_two(0.62, 5), None, "judged by five windows");
        assert_eq!(of_two(0.06, 8), None, "of several targets one shows a little by chance");
    }

    #[test]
    fn delays_that_keep_cores_are_reason_to_sleep() {
        let found = crowd(&[0.02; 8], &[0.32; 6]);
        let told = "spun delays made threads wait for cores in 30 % more of the time, 1.8 runnable on 2 CPUs";
        assert_eq!(found.map(|c| c.told(2)).as_deref(), Some(told));
        assert_eq!(crowd(&[0.02; 8], &[0.32; 5]), None, "judged by five windows");
        assert_eq!(crowd(&[0.02; 5], &[0.32; 8]), None, "compared with five windows");
    }

    #[test]
    fn a_core_for_each_thread_is_no_reason_to_sleep() {
        assert_eq!(crowd(&[0.0; 16], &[0.0; 16]), None);
        // For a moment all threads shared one core.
        assert_eq!(crowd(&[0.0, 0.0, 0.9], &[0.0, 0.9, 0.0].repeat(4)), None);
        // In some windows, not in most of them.
        assert_eq!(crowd(&[0.02; 8], &[[0.32; 5].as_slice(), &[0.02; 3]].concat()), None);
    }

    #[test]
    fn threads_that_always_wait_are_no_reason_unless_they_wait_longer() {
        assert_eq!(crowd(&[2.0; 8], &[2.03; 8]), None);
        assert_eq!(crowd(&[1.4; 8], &[1.3; 8]), None);
        let found = crowd(&[1.4; 8], &[1.6; 8]).unwrap();
        assert!((found.longer - 0.05).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let delayed = [[0.0; RECENT].as_slice(), &[0.5; RECENT]].concat();
        assert!(crowd(&[0.0; 8], &delayed).is_some());
    }

    #[test]
    fn waits_behind_others_are_not_the_programs_own() {
        let facts = |own_wait_ns, foreign_wait_ns| Facts {
            wall_ns: 100_000_000,
            samples: 200,
            unit_ns: 500_000,
            threads: 3,
            own_wait_ns,
            foreign_wait_ns,
            ..Facts::default()
        };
        let seen = Seen::of(&facts(50_000_000, 0));
        assert_eq!((seen.threads, seen.waiting, seen.runnable), (3, 0.5, 1.5));
        assert_eq!(Seen::of(&facts(50_000_000, 60_000_000)).waiting, 0.0);
    }
}
