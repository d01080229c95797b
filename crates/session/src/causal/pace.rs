//! How far apart ticks are. What a tick takes (an interrupt: 1 us, or 15 under a hypervisor) makes a program slower and predictions
//! worse, in proportion to how many there are; delays that come at the next tick make them worse the farther apart ticks are. Here is
//! the judgement alone; `run/ticks.rs` acts on it. It looks at how often threads are woken, never at what delays did to visits.

use std::collections::VecDeque;
use whither_sample::causal::{Facts, Ticks};

/// Part of an effect that is told wrongly for each turn that fits between two ticks (`causal/turns.rs`); all of the share of the time
/// that ticks take (`causal/quality.rs`, `ticks_mistell`).
const MISTOLD: f64 = 0.1;
/// Wake-ups that tell how fast turns are to within a quarter, of which the root counts.
const ENOUGH: u64 = 16;
/// Turns may be so slow that fewer are seen in this time.
const LONG_NS: u64 = 300_000_000;
/// A program that is alone is taken for that after so long: threads are begun at the beginning.
const ALONE_NS: u64 = 50_000_000;
/// Nobody needs to be delayed in time: ticks that take so little of it are often enough.
const CHEAP: f64 = 0.005;
/// Observations that tell whether turns have become faster.
const RECENT: usize = 8;
/// By how much shorter they must have become: what was measured before is lost.
const MUCH: u64 = 2;

/// What was seen of the program's turns for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    wall_ns: u64,
    wakes: u64,
    alone: bool,
}

impl Met {
    /// From the facts of a window.
    pub(super) fn of(facts: &Facts) -> Self {
        Self { wall_ns: facts.wall_ns, wakes: facts.wakes, alone: facts.alone }
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

    /// The time between two ticks to begin with; `None` while too little is known. `often`: threads meet without waking one another,
    /// or ticks are what is counted.
    pub(super) fn begin(&mut self, ticks: &Ticks, often: bool) -> Option<u64> {
        let wall: u64 = self.seen.iter().map(|m| m.wall_ns).sum();
        let wakes: u64 = self.seen.iter().map(|m| m.wakes).sum();
        let known = match () {
            () if often || self.wanted_alone(ticks) <= ticks.least_ns => true,
            () if self.is_alone() => wall >= ALONE_NS,
            () => wakes >= ENOUGH || wall >= LONG_NS,
        };
        if known {
            self.chosen = Some(self.wanted(ticks, often));
        }
        self.chosen
    }

    /// A much shorter time where turns have become faster: at least half of what was seen lately must show it, as threads that are there
    /// for a moment do not make another program.
    pub(super) fn shorter(&mut self, ticks: &Ticks, often: bool) -> Option<u64> {
        let chosen = self.chosen.filter(|c| *c >= MUCH * ticks.least_ns && (often || self.seen.len() == RECENT))?;
        let one = |met: &Met| Self { seen: VecDeque::from([*met]), chosen: None }.wanted(ticks, often);
        let mut each: Vec<u64> = self.seen.iter().map(one).collect();
        each.sort_unstable();
        let wanted = if often { ticks.least_ns } else { *each.get(each.len() / 2)? };
        (wanted * MUCH <= chosen).then(|| {
            self.chosen = Some(wanted);
            wanted
        })
    }

    fn is_alone(&self) -> bool {
        !self.seen.is_empty() && self.seen.iter().all(|m| m.alone)
    }

    /// Where what ticks cost and how late they come make least of an error together.
    fn wanted(&self, ticks: &Ticks, often: bool) -> u64 {
        if often || self.seen.is_empty() {
            return ticks.least_ns;
        }
        if self.is_alone() {
            return self.wanted_alone(ticks);
        }
        let wall: u64 = self.seen.iter().map(|m| m.wall_ns).sum();
        let turn = wall as f64 / self.seen.iter().map(|m| m.wakes).sum::<u64>().max(1) as f64;
        // Threads that never wake one another may meet where nobody sees it.
        let most = if turn > LONG_NS as f64 / 2.0 { ticks.least_ns } else { ticks.most_shared_ns };
        ((ticks.cost_ns as f64 * turn / MISTOLD).sqrt() as u64).clamp(ticks.least_ns, most)
    }

    fn wanted_alone(&self, ticks: &Ticks) -> u64 {
        ((ticks.cost_ns as f64 / CHEAP) as u64).clamp(ticks.least_ns, ticks.most_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ticks(cost_ns: u64) -> Ticks {
        Ticks { cost_ns, least_ns: MS / 4, most_shared_ns: MS / 2, most_ns: 2 * MS }
    }

    fn pace(seen: &[Met]) -> Pace {
        let mut pace = Pace::default();
        seen.iter().for_each(|met| pace.saw(*met));
        pace
    }

    fn met(wakes: u64, alone: bool) -> Met {
        Met { wall_ns: 100 * MS, wakes, alone }
    }

    #[test]
    fn dear_ticks_are_rarer_where_turns_are_slow() {
        let begin = |cost, wakes| pace(&[met(wakes, false); 3]).begin(&ticks(cost), false);
        assert_eq!(begin(15_000, 10), Some(MS / 2), "a barrier each 10 ms");
        assert_eq!(begin(15_000, 100), Some(387_298), "a queue with items of 1 ms");
        assert_eq!(begin(15_000, 1000), Some(MS / 4), "turns of 0.1 ms");
        assert_eq!(begin(1_000, 100), Some(MS / 4), "they are cheap");
        assert_eq!(begin(15_000, 0), Some(MS / 4), "they may meet where nobody sees it");
    }

    #[test]
    fn a_single_thread_has_as_many_as_are_cheap() {
        let begin = |cost| pace(&[met(7, true)]).begin(&ticks(cost), false);
        assert_eq!(begin(7_000), Some(1_400_000));
        assert_eq!(begin(15_000), Some(2 * MS));
        assert_eq!(begin(1_000), Some(MS / 4));
        assert_eq!(pace(&[met(7, true)]).begin(&ticks(15_000), true), Some(MS / 4), "visits are counted by ticks");
    }

    #[test]
    fn it_is_not_decided_before_enough_was_seen_unless_it_does_not_matter() {
        assert_eq!(pace(&[]).begin(&ticks(15_000), false), None);
        assert_eq!(pace(&[]).begin(&ticks(0), false), Some(MS / 4));
        assert_eq!(pace(&[met(5, false)]).begin(&ticks(15_000), false), None);
        assert_eq!(pace(&[met(5, false); 3]).begin(&ticks(15_000), false), Some(MS / 2));
    }

    #[test]
    fn ticks_come_more_often_where_a_program_has_become_another_one() {
        let mut pace = pace(&[met(7, true); RECENT]);
        assert_eq!(pace.begin(&ticks(15_000), false), Some(2 * MS));
        (0..3).for_each(|_| pace.saw(met(100, false)));
        assert_eq!(pace.shorter(&ticks(15_000), false), None, "for a moment");
        (0..3).for_each(|_| pace.saw(met(100, false)));
        assert_eq!(pace.shorter(&ticks(15_000), false), Some(387_298));
        assert_eq!(pace.shorter(&ticks(15_000), false), None, "once");
        assert_eq!(pace.shorter(&ticks(15_000), true), None, "not for so little");
    }
}
