//! How much of the run time threads spin, waiting for one another without the kernel: samples beside a `pause`, or in a loop
//! that only others can end. Delays follow wake-ups, and nobody is woken here: a spinner takes the lock at once, and pays
//! what it owes behind it.

use super::spin_loop;
use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_image::Svma;

const PAUSE: [u8; 2] = [0xf3, 0x90];
/// A `pause` is hardly farther from the rest of its loop, which may count its rounds, bytes to both sides.
const NEAR: usize = 24;
/// Code that is looked at for a loop, bytes to both sides.
const LOOP: u64 = 128;

/// Run time by whether threads spun.
#[derive(Debug, Default)]
pub(super) struct Spinning {
    /// By file and stated address.
    known: FxHashMap<(usize, u64), Place>,
    spun: u64,
    all: u64,
    samples: u64,
}

/// A place where threads were met. To look at code costs as much as ten samples, and large programs are met at ever new places:
/// spinners come back to theirs.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Once, with this weight.
    Met(u32),
    /// Looked at.
    Known { spins: bool },
}

impl Spinning {
    /// Counts a sample at a place; `code` reads bytes of its file.
    pub(super) fn count(
        &mut self,
        place: Option<(usize, Svma)>,
        weight: u32,
        code: impl FnMut(Range<Svma>) -> Option<Vec<u8>>,
    ) {
        self.all = self.all.saturating_add(weight.into());
        self.samples += 1;
        let Some((file, at)) = place else { return };
        let (spins, weight) = match self.known.get(&(file, at.0)) {
            None => {
                self.known.insert((file, at.0), Place::Met(weight));
                return;
            }
            Some(Place::Met(before)) => {
                let weight = weight.saturating_add(*before);
                let spins = spins(at, code);
                self.known.insert((file, at.0), Place::Known { spins });
                (spins, weight)
            }
            Some(Place::Known { spins }) => (*spins, weight),
        };
        if spins {
            self.spun = self.spun.saturating_add(weight.into());
        }
    }

    /// Those that the share is of.
    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// Share of the run time.
    pub(super) fn share(&self) -> f64 {
        self.spun as f64 / self.all.max(1) as f64
    }
}

/// Whether a thread that is met here waits for others. Where its section begins or ends, less of the code can be read.
fn spins(at: Svma, mut code: impl FnMut(Range<Svma>) -> Option<Vec<u8>>) -> bool {
    let mut read = |reach: u64| {
        let start = Svma(at.0.saturating_sub(reach));
        code(start..Svma(at.0.saturating_add(reach))).map(|bytes| (start, bytes))
    };
    let Some((start, bytes)) = read(LOOP).or_else(|| read(NEAR as u64)) else { return false };
    let middle = usize::try_from(at.0 - start.0).unwrap_or(0);
    let near = &bytes[middle.saturating_sub(NEAR).min(bytes.len())..middle.saturating_add(NEAR).min(bytes.len())];
    near.windows(PAUSE.len()).any(|w| w == PAUSE) || spin_loop::waits(&bytes, start, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_nearby_is_a_spinner() {
        let mut spinning = Spinning::default();
        let read = |range: Range<Svma>| {
            assert!(range.start.0 <= 0x1000 - 24 && range.end.0 >= 0x1000 + 24);
            let mut bytes = vec![0x90; (range.end.0 - range.start.0) as usize];
            let middle = bytes.len() / 2;
            bytes[middle + 10..middle + 12].copy_from_slice(&PAUSE);
            Some(bytes)
        };
        spinning.count(Some((0, Svma(0x1000))), 2, |_| panic!("met once"));
        spinning.count(Some((0, Svma(0x1000))), 1, read);
        spinning.count(Some((0, Svma(0x1000))), 1, |_| None);
        spinning.count(Some((1, Svma(0x1000))), 1, |_| panic!("met once"));
        spinning.count(Some((1, Svma(0x1000))), 1, |_| Some(vec![0xf3, 0x0f, 0x90]));
        spinning.count(None, 2, |_| None);
        assert!((spinning.share() - 0.5).abs() < 1e-9, "known places are not read again: {}", spinning.share());
        assert_eq!(spinning.samples(), 6);
    }

    #[test]
    fn a_loop_that_only_looks_is_one_without_a_pause() {
        let mut spinning = Spinning::default();
        // Less can be read than is asked for at first; mov (%r8),%ecx; test %ecx,%ecx; je back.
        let read = |range: Range<Svma>| {
            let mut bytes = vec![0x90; (range.end.0 - range.start.0) as usize];
            let middle = bytes.len() / 2;
            bytes[middle..middle + 7].copy_from_slice(&[0x41, 0x8b, 0x08, 0x85, 0xc9, 0x74, 0xf9]);
            (bytes.len() < 100).then_some(bytes)
        };
        for place in [0x1000, 0x1000, 0x0fff, 0x0fff] {
            spinning.count(Some((0, Svma(place))), 1, read);
        }
        assert!((spinning.share() - 1.0).abs() < 1e-9, "{}", spinning.share());
    }
}
