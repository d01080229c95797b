//! The words by which threads of a target are paced, as the controller sees them: what a window says, what the threads
//! have counted, samples. Constraint: the target can scribble over all of it, so numbers read here are believed only as
//! far as they do no harm.

use crate::engine::clock::{self, Clock};
use crate::segment::Segment;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;
use whither_abi::agent::AT_PACE;
use whither_abi::causal as cz;
use whither_abi::pace::{self as abi, Ctl, Record, Slot};

/// A word of the control struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs, reason = "told in the header")]
pub enum PaceWord {
    State = offset_of!(Ctl, state),
    Epoch = offset_of!(Ctl, epoch),
    Begin = offset_of!(Ctl, begin),
    Percent = offset_of!(Ctl, percent),
    Unit = offset_of!(Ctl, unit),
    Callers = offset_of!(Ctl, callers),
    Sampled = offset_of!(Ctl, sampled),
    Counted = offset_of!(Ctl, counted),
    Signal = offset_of!(Ctl, signal),
    Period = offset_of!(Ctl, period),
    Delay = offset_of!(Ctl, g),
    Births = offset_of!(Ctl, births),
    AbsolutePoints = offset_of!(Ctl, absolute_points),
    Lost = offset_of!(Ctl, lost),
    Threads = offset_of!(Ctl, n_slots),
}

/// See the module.
#[derive(Debug)]
pub struct Pace {
    segment: Arc<Segment>,
    next: u64,
}

impl Pace {
    pub(crate) fn new(segment: Arc<Segment>) -> Self {
        Self { segment, next: 0 }
    }

    pub(crate) fn prepare(&self, signal: u32) {
        self.put(offset_of!(Ctl, silence), Clock::get().ticks(Duration::from_nanos(cz::SILENCE_NS)));
        self.set(PaceWord::Signal, u64::from(signal));
        self.beat();
    }

    /// A word.
    #[must_use]
    pub fn get(&self, word: PaceWord) -> u64 {
        self.segment.word(AT_PACE + word as u64)
    }

    /// Sets it.
    pub fn set(&self, word: PaceWord, value: u64) {
        self.put(word as usize, value);
    }

    fn put(&self, at: usize, value: u64) {
        self.segment.set_word(AT_PACE + at as u64, value);
    }

    /// Shows the threads that somebody is there.
    pub fn beat(&self) {
        self.put(offset_of!(Ctl, beat), clock::now());
    }

    /// Time as the threads tell it, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        Clock::get().ns(clock::now())
    }

    /// Says what a window looks for: sorted ranges with bits, as `whither_abi::causal` has them.
    pub fn mark(&self, marks: &[(u64, u64, u64)]) {
        self.change(abi::AT_MARKS, offset_of!(Ctl, n_marks), &marks[..marks.len().min(abi::MARKS)]);
    }

    /// Says what is mapped: sorted ranges, 1 for those in scope.
    pub fn scope(&self, scopes: &[(u64, u64, u64)]) {
        self.change(abi::AT_SCOPES, offset_of!(Ctl, n_scopes), &scopes[..scopes.len().min(abi::SCOPES)]);
    }

    /// Whoever looks meanwhile does not believe what it sees.
    fn change(&self, table: u64, count: usize, rows: &[(u64, u64, u64)]) {
        let layout = offset_of!(Ctl, layout);
        let number = self.segment.word(AT_PACE + layout as u64) | 1;
        self.put(layout, number);
        self.put(count, 0);
        for (i, row) in rows.iter().enumerate() {
            for (word, value) in (0..).zip([row.0, row.1, row.2]) {
                self.segment.set_word(table + i as u64 * 24 + word * 8, value);
            }
        }
        self.put(count, rows.len() as u64);
        self.put(layout, number.wrapping_add(1));
    }

    /// All threads that were ever seen.
    #[must_use]
    pub fn slots(&self) -> Vec<Slot> {
        let n = self.get(PaceWord::Threads).min(abi::SLOTS as u64);
        (0..n).map(|i| self.segment.load(abi::AT_SLOTS + i * size_of::<Slot>() as u64)).collect()
    }

    /// Forgets the largest debts seen, and what was owed last.
    pub fn forget_debts(&self) {
        for i in 0..self.get(PaceWord::Threads).min(abi::SLOTS as u64) {
            let at = abi::AT_SLOTS + i * size_of::<Slot>() as u64;
            self.segment.set_word(at + offset_of!(Slot, max_debt) as u64, 0);
            self.segment.set_word(at + offset_of!(Slot, owing) as u64, 0);
        }
    }

    /// Hands over the samples since the last call; how many were lost.
    pub fn samples(&mut self, take: &mut dyn FnMut(&Record)) -> u64 {
        let end = self.segment.word(AT_PACE + offset_of!(Ctl, next_record) as u64);
        let oldest = end.saturating_sub(abi::RECORDS as u64);
        let mut lost = oldest.saturating_sub(self.next);
        self.next = self.next.max(oldest);
        while self.next < end {
            let at = abi::AT_RECORDS + self.next % abi::RECORDS as u64 * size_of::<Record>() as u64;
            let mut record: Record = self.segment.load(at);
            // One that is being written now comes with the next call; one that was left unfinished never.
            let complete = self.segment.word(at) == self.next + 1 && record.seq == self.next + 1;
            if complete {
                record.n = record.n.min(cz::FRAMES as u32);
                take(&record);
            } else if end - self.next < 64 {
                break;
            } else {
                lost += 1;
            }
            self.next += 1;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_in_order_and_lost_ones_are_counted() {
        let segment = Arc::new(Segment::private());
        let mut pace = Pace::new(Arc::clone(&segment));
        let put = |n: u64| {
            let at = abi::AT_RECORDS + n % abi::RECORDS as u64 * size_of::<Record>() as u64;
            segment.set_word(at + offset_of!(Record, t) as u64, 100 + n);
            segment.set_word(at + offset_of!(Record, n) as u64 - 4, u64::from(u32::MAX) << 32);
            segment.set_word(at, n + 1);
            segment.set_word(AT_PACE + offset_of!(Ctl, next_record) as u64, n + 1);
        };
        let mut got = Vec::new();
        (0..3).for_each(&put);
        assert_eq!(pace.samples(&mut |r| got.push((r.t, r.n))), 0);
        assert_eq!(got, [(100, 16), (101, 16), (102, 16)], "never more frames than there are");
        (3..3 + abi::RECORDS as u64 + 5).for_each(&put);
        got.clear();
        assert_eq!((pace.samples(&mut |r| got.push((r.t, r.n))), got.len()), (5, abi::RECORDS));
        segment.set_word(AT_PACE + offset_of!(Ctl, next_record) as u64, 3 + abi::RECORDS as u64 + 6);
        assert_eq!(pace.samples(&mut |_| panic!("not complete")), 0);
    }

    #[test]
    fn tables_are_not_believed_while_they_change() {
        let pace = Pace::new(Arc::new(Segment::private()));
        let word = |at: usize| pace.segment.word(AT_PACE + at as u64);
        pace.mark(&[(1, 2, 3), (4, 5, 6)]);
        assert_eq!((word(offset_of!(Ctl, n_marks)), word(offset_of!(Ctl, layout)) & 1), (2, 0));
        assert_eq!(pace.segment.word(abi::AT_MARKS + 32), 5);
        let before = word(offset_of!(Ctl, layout));
        pace.scope(&[]);
        assert!(word(offset_of!(Ctl, layout)) > before && word(offset_of!(Ctl, layout)).is_multiple_of(2));
    }
}
