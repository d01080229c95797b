//! How far apart ticks are. What a tick takes (an interrupt: 1 us, or 15 under a hypervisor) makes a program slower. Threads that wait for
//! one another need delays in time, which come at the next tick; a program of one thread has nobody to be delayed, and ticks tell only
//! where it is. Here is the judgement alone; `run/ticks.rs` acts on it. It looks at threads, never at what delays did to visits.

use std::collections::VecDeque;
use whither_sample::causal::{Facts, Ticks};

/// A program that is alone is taken for that after so long: threads are begun at the beginning.
const ALONE_NS: u64 = 50_000_000;
/// Nobody needs to be delayed in time: ticks that take so little of it are often enough.
const CHEAP: f64 = 0.005;
/// Observations that tell whether it has become another program.
const RECENT: usize = 8;

/// What was seen of the program's threads for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    wall_ns: u64,
    alone: bool,
}

impl Met {
    /// From the facts of a window.
    pub(super) fn of(facts: &Facts) -> Self {
        Self { wall_ns: facts.wall_ns, alone: facts.alone }
    }
}

/// What has been seen lately, and what was made of it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    seen: VecDeque<Met>,
    chosen: Option<u64>,
}

impl Pace {
    pub(super) fn saw(&mut self, met: Met) {
        if self.seen.len() == RECENT {
            self.seen.pop_front();
        }
        self.seen.push_back(met);
    }

    pub(super) fn is_chosen(&self) -> bool {
        self.chosen.is_some()
    }

    /// The time between two ticks to begin with; `None` while too little is known. `often`: ticks are what is counted.
    pub(super) fn begin(&mut self, ticks: &Ticks, often: bool) -> Option<u64> {
        let wall: u64 = self.seen.iter().map(|m| m.wall_ns).sum();
        let (alone, rare) = (self.seen.iter().all(|m| m.alone), Self::cheap(ticks));
        self.chosen = match () {
            () if often || !alone || rare <= ticks.least_ns => Some(ticks.least_ns),
            () if wall >= ALONE_NS => Some(rare),
            () => None,
        };
        self.chosen
    }

    /// The shortest time where the program has more threads now: at least half of what was seen lately must show it, as a child that is
    /// there for a moment does not make another program.
    pub(super) fn shorter(&mut self, ticks: &Ticks) -> Option<u64> {
        self.chosen.filter(|c| *c > ticks.least_ns && self.seen.len() == RECENT)?;
        let others = self.seen.iter().filter(|m| !m.alone).count();
        (2 * others >= RECENT).then(|| *self.chosen.insert(ticks.least_ns))
    }

    fn cheap(ticks: &Ticks) -> u64 {
        ((ticks.cost_ns as f64 / CHEAP) as u64).clamp(ticks.least_ns, ticks.most_ns.max(ticks.least_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ticks(cost_ns: u64) -> Ticks {
        Ticks { cost_ns, least_ns: MS / 4, most_ns: 2 * MS }
    }

    fn pace(seen: &[bool]) -> Pace {
        let mut pace = Pace::default();
        seen.iter().for_each(|alone| pace.saw(met(*alone)));
        pace
    }

    fn met(alone: bool) -> Met {
        Met { wall_ns: 50 * MS, alone }
    }

    #[test]
    fn a_single_thread_has_as_many_as_are_cheap() {
        let begin = |cost| pace(&[true]).begin(&ticks(cost), false);
        assert_eq!(begin(7_000), Some(1_400_000));
        assert_eq!(begin(15_000), Some(2 * MS));
        assert_eq!(begin(1_000), Some(MS / 4));
        assert_eq!(pace(&[true]).begin(&ticks(15_000), true), Some(MS / 4), "visits are counted by ticks");
        assert_eq!(pace(&[true, false]).begin(&ticks(15_000), false), Some(MS / 4), "somebody is to be delayed");
    }

    #[test]
    fn it_is_not_decided_before_it_was_seen_unless_it_does_not_matter() {
        assert_eq!(pace(&[]).begin(&ticks(15_000), false), None);
        assert_eq!(pace(&[]).begin(&ticks(0), false), Some(MS / 4));
        assert_eq!(Pace::default().begin(&Ticks::default(), false), Some(0), "a back end that has no choice");
    }

    #[test]
    fn ticks_come_more_often_where_a_program_has_got_more_threads() {
        let mut pace = pace(&[true; RECENT]);
        assert_eq!(pace.begin(&ticks(15_000), false), Some(2 * MS));
        (0..3).for_each(|_| pace.saw(met(false)));
        assert_eq!(pace.shorter(&ticks(15_000)), None, "for a moment");
        pace.saw(met(false));
        assert_eq!(pace.shorter(&ticks(15_000)), Some(MS / 4));
        assert_eq!(pace.shorter(&ticks(15_000)), None, "once");
    }
}
