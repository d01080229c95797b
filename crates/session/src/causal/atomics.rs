//! How much of the run time threads are at instructions that take a cache line for themselves (`lock` prefix). Where several
//! threads spend their time there they get in one another's way by memory, which no wake-up tells of: code that comes there
//! sooner makes others slower. Delays lag some ticks behind what they are for, and hide as much of that.

use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_image::{EffectsReader, Flow, OpClass, Svma, decode};

/// The longest instruction, in bytes.
const INSN: u64 = 15;
const LOCK: u8 = 0xf0;
/// Threads that are told apart.
const MOST_THREADS: usize = 4096;
/// A thread that has less of its time there meets nobody often, nor would if the rest of its time went.
const PART_OF_A_THREAD: f64 = 0.02;

/// Run time at such instructions and in all.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    there: u64,
    all: u64,
}

/// By thread.
#[derive(Debug, Default)]
pub(super) struct Atomics {
    /// By file and stated address.
    known: FxHashMap<(usize, u64), bool>,
    threads: FxHashMap<u32, Time>,
}

impl Atomics {
    /// Counts a sample of a thread at a place; `code` reads bytes of its file.
    pub(super) fn count(
        &mut self,
        tid: u32,
        place: Option<(usize, Svma)>,
        weight: u32,
        code: impl FnMut(Range<Svma>) -> Option<Vec<u8>>,
    ) {
        let is_there =
            place.is_some_and(|(file, at)| *self.known.entry((file, at.0)).or_insert_with(|| holds(at, code)));
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&tid) {
            return;
        }
        let time = self.threads.entry(tid).or_default();
        time.all = time.all.saturating_add(weight.into());
        if is_there {
            time.there = time.there.saturating_add(weight.into());
        }
    }

    /// Share of all run time that threads are there in, where several of them are there for long; else 0.
    pub(super) fn share(&self) -> f64 {
        let often = |t: &&Time| t.there as f64 > PART_OF_A_THREAD * t.all as f64;
        if self.threads.values().filter(often).count() < 2 {
            return 0.0;
        }
        let sum = |of: fn(&Time) -> u64| self.threads.values().map(of).fold(0, u64::saturating_add) as f64;
        sum(|t| t.there) / sum(|t| t.all).max(1.0)
    }
}

/// Whether a thread met here waits for such an instruction: it stands at it, or behind it, since timers interrupt after what
/// took long. At the edges of a section less of the code can be read.
fn holds(at: Svma, mut code: impl FnMut(Range<Svma>) -> Option<Vec<u8>>) -> bool {
    let here = code(at..Svma(at.0.saturating_add(INSN)));
    if here.is_some_and(|bytes| locked(&bytes, at).is_some()) {
        return true;
    }
    let before = Svma(at.0.saturating_sub(INSN));
    let Some(bytes) = code(before..at) else { return false };
    let first = |i: &usize| bytes[*i] == LOCK;
    (0..bytes.len()).filter(first).any(|i| locked(&bytes[i..], Svma(before.0 + i as u64)) == Some(at))
}

/// Where the first instruction ends, if it is one that locks.
fn locked(bytes: &[u8], at: Svma) -> Option<Svma> {
    let insn = decode(bytes, at).into_iter().next().filter(|insn| insn.flow != Flow::Invalid)?;
    (EffectsReader::new().of(&insn).class == OpClass::Lock).then(|| insn.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    // lock add $1, (%rdi); sub $1, %eax; jne
    const CODE: [u8; 10] = [0xf0, 0x48, 0x83, 0x07, 0x01, 0x83, 0xe8, 0x01, 0x75, 0xf6];

    fn read(range: Range<Svma>) -> Option<Vec<u8>> {
        let byte = |at: u64| at.checked_sub(0x1000).and_then(|i| CODE.get(i as usize)).copied().unwrap_or(0x90);
        Some((range.start.0..range.end.0).map(byte).collect())
    }

    #[test]
    fn a_thread_at_or_behind_a_locked_instruction_waits_for_it() {
        let found: Vec<bool> = [0x1000, 0x1005, 0x1008, 0x100a].map(|at| holds(Svma(at), read)).to_vec();
        assert_eq!(found, [true, true, false, false]);
    }

    #[test]
    fn several_threads_must_be_there() {
        let mut atomics = Atomics::default();
        for at in [0x1005, 0x1005, 0x1008, 0x1008] {
            atomics.count(1, Some((0, Svma(at))), 1, read);
            atomics.count(2, Some((0, Svma(0x1008))), 1, read);
        }
        assert_eq!(atomics.share(), 0.0, "nobody is met there");
        (0..4).for_each(|_| atomics.count(2, Some((0, Svma(0x1000))), 1, read));
        assert_eq!(atomics.share(), 0.5);
    }
}
