//! Whether goroutines change threads. Delays are paid by threads; a goroutine that goes on in another one leaves there what it has
//! paid and finds what somebody else owes. Seen from samples: a thread in which functions ran that different goroutines
//! began with. One goroutine alone may move: it meets nobody who has paid less.

use rustc_hash::FxHashMap;
use whither_image::Svma;

/// Part of the run time below which a goroutine does not matter.
const LITTLE: f64 = 0.05;
/// Part of its own run time that it must have spent in a thread to count there.
const AT_HOME: f64 = 0.1;

/// Run time of goroutines by the function they began with.
#[derive(Debug, Default)]
pub(super) struct Goroutines {
    /// Which files Go has linked.
    go: FxHashMap<usize, bool>,
    /// By thread, file and function.
    run: FxHashMap<(u32, (usize, Svma)), u64>,
}

impl Goroutines {
    /// Whether Go has linked a file; `look` finds out, once.
    pub(super) fn is_go(&mut self, file: usize, look: impl FnOnce() -> bool) -> bool {
        *self.go.entry(file).or_insert_with(look)
    }

    /// Counts a sample of a thread in which a goroutine runs that began with a function.
    pub(super) fn count(&mut self, tid: u32, began: (usize, Svma), weight: u32) {
        let run = self.run.entry((tid, began)).or_default();
        *run = run.saturating_add(weight.into());
    }

    /// Whether two that matter have been seen in one thread.
    pub(super) fn change_threads(&self) -> bool {
        let mut of: FxHashMap<(usize, Svma), u64> = FxHashMap::default();
        self.run.iter().for_each(|((_, began), run)| *of.entry(*began).or_default() += run);
        let all = of.values().sum::<u64>() as f64;
        let mut guests: FxHashMap<u32, u32> = FxHashMap::default();
        for ((tid, began), run) in &self.run {
            let own = of.get(began).copied().unwrap_or(0) as f64;
            if own >= LITTLE * all && *run as f64 >= AT_HOME * own {
                *guests.entry(*tid).or_default() += 1;
            }
        }
        guests.values().any(|n| *n > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run time as (thread, function, ticks).
    fn change(run: &[(u32, u64, u32)]) -> bool {
        let mut goroutines = Goroutines::default();
        run.iter().for_each(|(tid, began, weight)| goroutines.count(*tid, (0, Svma(*began)), *weight));
        goroutines.change_threads()
    }

    #[test]
    fn two_in_one_thread_change_threads() {
        assert!(change(&[(1, 0x10, 60), (1, 0x20, 30), (2, 0x10, 50), (2, 0x20, 40)]));
        // Each in its own, but for a moment; or one that does next to nothing.
        assert!(!change(&[(1, 0x10, 100), (2, 0x20, 60), (2, 0x10, 3)]));
        assert!(!change(&[(1, 0x10, 100), (1, 0x20, 4)]));
    }

    #[test]
    fn one_may_move_and_many_of_a_kind_may_have_threads_of_their_own() {
        assert!(!change(&[(1, 0x10, 50), (2, 0x10, 50)]));
        assert!(!change(&[(1, 0x10, 50), (2, 0x10, 50), (3, 0x20, 40)]));
        assert!(!change(&[]));
    }

    #[test]
    fn a_file_is_looked_at_once() {
        let mut goroutines = Goroutines::default();
        assert!(goroutines.is_go(3, || true) && goroutines.is_go(3, || false) && !goroutines.is_go(4, || false));
    }
}
