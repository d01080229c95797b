//! How much of the run time threads spin, waiting for one another without the kernel: samples beside a `pause`. Delays follow
//! wake-ups, and nobody is woken here: a spinner takes the lock at once, and pays what it owes behind it.

use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_image::Svma;

const PAUSE: [u8; 2] = [0xf3, 0x90];
/// A loop that spins is hardly longer than this, bytes to both sides.
const LOOP: u64 = 24;

/// Run time by whether threads spun.
#[derive(Debug, Default)]
pub(super) struct Spinning {
    /// By file and stated address.
    known: FxHashMap<(usize, u64), bool>,
    spun: u64,
    all: u64,
}

impl Spinning {
    /// Counts a sample at a place; `code` reads bytes of its file.
    pub(super) fn count(
        &mut self,
        place: Option<(usize, Svma)>,
        weight: u32,
        code: impl FnOnce(Range<Svma>) -> Option<Vec<u8>>,
    ) {
        self.all = self.all.saturating_add(weight.into());
        let Some((file, at)) = place else { return };
        let around = || code(Svma(at.0.saturating_sub(LOOP))..Svma(at.0.saturating_add(LOOP)));
        let spins = *self
            .known
            .entry((file, at.0))
            .or_insert_with(|| around().is_some_and(|bytes| bytes.windows(PAUSE.len()).any(|w| w == PAUSE)));
        if spins {
            self.spun = self.spun.saturating_add(weight.into());
        }
    }

    /// Share of the run time.
    pub(super) fn share(&self) -> f64 {
        self.spun as f64 / self.all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_nearby_is_a_spinner() {
        let mut spinning = Spinning::default();
        let read = |range: Range<Svma>| {
            assert_eq!((range.start.0, range.end.0), (0x1000 - 24, 0x1000 + 24));
            Some(vec![0x90, 0xf3, 0x90, 0xeb])
        };
        spinning.count(Some((0, Svma(0x1000))), 3, read);
        spinning.count(Some((0, Svma(0x1000))), 1, |_| None);
        spinning.count(Some((1, Svma(0x1000))), 2, |_| Some(vec![0xf3, 0x0f, 0x90]));
        spinning.count(None, 2, |_| None);
        assert!((spinning.share() - 0.5).abs() < 1e-9, "known places are not read again: {}", spinning.share());
    }
}
