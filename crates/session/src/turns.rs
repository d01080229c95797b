//! More events than counters: the multiplexed ones run by turns, in random order and for random
//! times (paper section 4.1; a fixed rotation would lock onto periodic programs). Over a round every
//! event runs equally long, so its period is multiplied by their number.

use whither_kernel::clock;
use whither_sample::{Chosen, Collector};

/// A turn lasts at least and at most so long.
const SHORTEST_NS: u64 = 5_000_000;
const LONGEST_NS: u64 = 15_000_000;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Numbers of the events that share.
    members: Vec<u16>,
    /// Those whose turn is still to come in this round.
    round: Vec<u16>,
    ends: u64,
    random: u64,
}

impl Turns {
    /// The last `shared` of the events take turns; their periods are stretched.
    pub(crate) fn new(shared: usize, events: &mut [Chosen]) -> Self {
        if shared < 2 {
            return Self::default();
        }
        let first = events.len().saturating_sub(shared);
        let members: Vec<u16> = (first..events.len()).map(|i| i as u16).collect();
        for &m in &members {
            // The kernel keeps sampling at the plain period; only the weight of a sample grows.
            events[usize::from(m)].turns = members.len() as u64;
        }
        Self { members, random: clock::monotonic_ns() | 1, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Gives the next event its turn when the last one's is over.
    pub(crate) fn take(&mut self, now: u64, collector: &Collector) {
        if self.members.is_empty() || now < self.ends {
            return;
        }
        if self.round.is_empty() {
            self.round.clone_from(&self.members);
        }
        let pick = self.draw() as usize % self.round.len();
        let next = self.round.swap_remove(pick);
        self.ends = now + SHORTEST_NS + self.draw() % (LONGEST_NS - SHORTEST_NS);
        collector.run_only(&self.members, next);
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
