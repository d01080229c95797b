//! Counter blocks of all threads added up by path. Constraint: 64 threads with 10 000 paths each are
//! 41 MB of blocks, to be read in a few milliseconds.

use crate::segment::{Copied, Segment};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::time::{Duration, Instant};
use whither_abi::agent as abi;
use whither_abi::agent::Block;

/// Counters of a path over all threads, in the agent's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) calls: u64,
    /// Entries that were never left, or not yet.
    pub(crate) open: u64,
    pub(crate) wall: u64,
    pub(crate) cpu: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) value: [u64; 2],
}

/// Each exit adds two to `seq`, so calls and exits differ by what was not left: few, where both counts
/// are many, so that it does not matter how often `seq` has wrapped. Less than none are exits without an entry.
fn open(block: &Block) -> u64 {
    const BITS: u32 = 31;
    let apart = block.calls.wrapping_sub(u64::from(block.seq / 2)) << (u64::BITS - BITS);
    (apart.cast_signed() >> (u64::BITS - BITS)).max(0).cast_unsigned()
}

impl Sum {
    fn add(&mut self, block: &Block) {
        self.calls = self.calls.wrapping_add(block.calls);
        self.open = self.open.wrapping_add(open(block));
        self.wall = self.wall.wrapping_add(block.wall);
        self.cpu = self.cpu.wrapping_add(block.cpu);
        // Sums of signed integers, which stay at their limits, as the agent's own do.
        for (sum, one) in self.value.iter_mut().zip(block.value) {
            *sum = sum.cast_signed().saturating_add(one.cast_signed()).cast_unsigned();
        }
        self.max = self.max.max(block.max);
        if block.min != 0 && (self.min == 0 || block.min < self.min) {
            self.min = block.min;
        }
    }

    /// Calls that were left in order.
    pub(crate) fn done(&self) -> u64 {
        self.calls.wrapping_sub(self.open)
    }

    /// What was counted since `base`, when shortest and longest were begun anew.
    pub(crate) fn since(&self, base: Sum) -> Self {
        let none = self.wall == base.wall && self.calls == base.calls;
        Self {
            calls: self.calls.wrapping_sub(base.calls),
            // Negative for calls entered before and left since: `done` comes out right.
            open: self.open.wrapping_sub(base.open),
            wall: self.wall.wrapping_sub(base.wall),
            cpu: self.cpu.wrapping_sub(base.cpu),
            min: if none { 0 } else { self.min },
            max: if none { 0 } else { self.max },
            value: std::array::from_fn(|i| {
                self.value[i].cast_signed().saturating_sub(base.value[i].cast_signed()).cast_unsigned()
            }),
        }
    }
}

/// What stands behind blocks that want more than the plain counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) switches: u64,
    pub(crate) faults_minor: u64,
    pub(crate) faults_major: u64,
    /// Completed calls without times.
    pub(crate) folded: u64,
    pub(crate) hist: [u64; 64],
}

impl Default for Extra {
    fn default() -> Self {
        Self { switches: 0, faults_minor: 0, faults_major: 0, folded: 0, hist: [0; 64] }
    }
}

impl Extra {
    pub(crate) fn since(&self, base: Option<&Extra>) -> Self {
        let Some(base) = base else { return *self };
        Self {
            switches: self.switches.wrapping_sub(base.switches),
            faults_minor: self.faults_minor.wrapping_sub(base.faults_minor),
            faults_major: self.faults_major.wrapping_sub(base.faults_major),
            folded: self.folded.wrapping_sub(base.folded),
            hist: std::array::from_fn(|i| self.hist[i].wrapping_sub(base.hist[i])),
        }
    }
}

/// Sums of all paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    paths: Vec<Sum>,
    extras: FxHashMap<u32, Extra>,
    torn: usize,
}

/// A block met in the middle of an update.
struct Later {
    path: u32,
    page: u32,
    slot: u32,
    dead: bool,
}

impl Sums {
    /// Adds up everything.
    pub(crate) fn read(segment: &Segment) -> Self {
        Self::read_some(segment, 0..segment.n_threads())
    }

    /// The counters of one thread block.
    pub(crate) fn of_thread(segment: &Segment, thread: u32) -> Self {
        Self::read_some(segment, thread..thread + 1)
    }

    fn read_some(segment: &Segment, threads: Range<u32>) -> Self {
        let count = segment.n_paths();
        let mut sums = Self { paths: vec![Sum::default(); count as usize], ..Self::default() };
        let mut later = Vec::new();
        for thread in threads {
            let dead = segment.thread(thread).state == abi::THREAD_DEAD;
            for (first, page) in segment.pages(thread, count) {
                for slot in 0..64.min(count - first) {
                    let path = first + slot;
                    match segment.block(page, slot) {
                        None => {}
                        Some(Copied::Whole(block)) => sums.add(segment, path, &block),
                        Some(Copied::Torn(_)) => later.push(Later { path, page, slot, dead }),
                    }
                }
            }
        }
        sums.come_back(segment, later);
        sums
    }

    /// A writer in the middle of an update does not run: it gets some time to do so, unless it is dead.
    fn come_back(&mut self, segment: &Segment, later: Vec<Later>) {
        let until = Instant::now() + Duration::from_millis(20);
        for Later { path, page, slot, dead } in later {
            loop {
                match segment.block(page, slot) {
                    Some(Copied::Torn(block)) if dead || Instant::now() > until => {
                        self.torn += 1;
                        self.add(segment, path, &block);
                    }
                    Some(Copied::Torn(_)) => {
                        std::thread::yield_now();
                        continue;
                    }
                    Some(Copied::Whole(block)) => self.add(segment, path, &block),
                    None => {}
                }
                break;
            }
        }
    }

    fn add(&mut self, segment: &Segment, path: u32, block: &Block) {
        if let Some(sum) = self.paths.get_mut(path as usize) {
            sum.add(block);
        }
        let Some(more) = segment.more(block.extra) else { return };
        let extra = self.extras.entry(path).or_default();
        extra.switches = extra.switches.wrapping_add(more.switches);
        extra.faults_minor = extra.faults_minor.wrapping_add(more.faults_minor);
        extra.faults_major = extra.faults_major.wrapping_add(more.faults_major);
        extra.folded = extra.folded.wrapping_add(more.folded);
        for (sum, one) in extra.hist.iter_mut().zip(more.hist) {
            *sum = sum.wrapping_add(one);
        }
    }

    /// Number of paths, index 0 included.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.paths.len()).unwrap_or(abi::MAX_PATHS)
    }

    /// Changes what was read of one path.
    pub(super) fn change(&mut self, path: u32, change: impl FnOnce(&mut Sum)) {
        if let Some(sum) = self.paths.get_mut(path as usize) {
            change(sum);
        }
    }

    /// Of one path; zeros when it is new.
    pub(crate) fn get(&self, path: u32) -> Sum {
        self.paths.get(path as usize).copied().unwrap_or_default()
    }

    /// Of one path, when it has more.
    pub(crate) fn extra(&self, path: u32) -> Option<&Extra> {
        self.extras.get(&path)
    }

    /// Blocks copied in the middle of an update.
    pub(crate) fn torn(&self) -> usize {
        self.torn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_without_an_entry_are_no_calls_in_progress() {
        let block = |calls, seq| Block { calls, seq, ..Block::default() };
        assert_eq!(open(&block(5, 6)), 2);
        assert_eq!(open(&block(5, 14)), 0, "two more were left than entered");
        // The count of exits has wrapped.
        assert_eq!(open(&block((1 << 31) + 7, 10)), 2);
        let mut sum = Sum::default();
        sum.add(&block(5, 14));
        assert_eq!(sum.done(), 5);
    }
}
