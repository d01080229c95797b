//! Pairs of moments of one thread, by what became of a register that code steps: how often a place was executed in
//! between, and how many rounds of a loop were still to go at a moment, as rows. How they are read is told in `cycles/analysis/laps`
//! and `cycles/analysis/trips`.

use crate::model::{ImageIx, ImageOffset};

/// Steps of a pace to a power of two.
const FINE: f64 = 8.0;
/// No loop goes round faster, picoseconds: a third of a cycle at 6 GHz.
const FASTEST_PS: f64 = 60.0;

/// What a pair of moments showed of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Course {
    /// The second was in the kernel.
    Kernel,
    /// It was in other code of the program.
    Left,
    /// It was in the stretch of code that belongs to the place, as the first, but what the register changed by is no number of
    /// steps: the stretch was left in between.
    #[default]
    Otherwise,
    /// No pair but a moment in a stretch that the place, a branch, leaves when a register has got to its bound: how often the
    /// branch is executed until then, that time included; eight times the logarithm to base 2, cut down.
    Remaining(u16),
    /// The register was so many steps further; the time each took: eight times its logarithm to base 2, in picoseconds, cut
    /// down.
    Steps(u16),
}

impl Course {
    /// With so many executions to go; `None` for 0.
    #[must_use]
    pub fn remaining(executions: u64) -> Option<Self> {
        (executions > 0).then(|| Self::Remaining((FINE * (executions as f64).log2()) as u16))
    }

    /// Of so many executions within so many nanoseconds; `None` for none, and for more than any loop makes.
    #[must_use]
    pub fn steps(laps: u64, ns: u64) -> Option<Self> {
        let each_ps = ns as f64 * 1000.0 / laps as f64;
        let pace = FINE * each_ps.log2();
        (laps > 0 && each_ps >= FASTEST_PS && pace <= f64::from(u16::MAX)).then_some(Self::Steps(pace as u16))
    }
}

/// Pairs of moments that began in the stretch of code around a place that steps a register, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LapCount {
    /// Image of the place.
    pub image: ImageIx,
    /// The instruction that steps the register, or the branch that leaves.
    pub offset: ImageOffset,
    /// How far the second is from the beginning of the first one's handler: the logarithm to base 2 of the nanoseconds, cut
    /// down. 0 of moments.
    pub span: u8,
    /// What they showed.
    pub course: Course,
    /// Pairs, or moments.
    pub pairs: u64,
    /// Executions of the place in all of them, or still to go.
    pub laps: u64,
    /// Time between their moments, nanoseconds.
    pub ns: u64,
    /// What the handlers of the first ones had taken, nanoseconds.
    pub handler_ns: u64,
}

impl LapCount {
    /// What rows with equal keys are the parts of.
    #[must_use]
    pub fn key(&self) -> (ImageIx, ImageOffset, u8, Course) {
        (self.image, self.offset, self.span, self.course)
    }

    /// Adds pairs with the same key.
    pub fn add(&mut self, other: &Self) {
        self.pairs = self.pairs.saturating_add(other.pairs);
        self.laps = self.laps.saturating_add(other.laps);
        self.ns = self.ns.saturating_add(other.ns);
        self.handler_ns = self.handler_ns.saturating_add(other.handler_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_eighths_of_a_power_of_two() {
        // 1 ns each: 1000 ps, 2^9.97.
        assert_eq!(Course::steps(100_000, 100_000), Some(Course::Steps(79)));
        assert_eq!(Course::steps(50_000, 100_000), Some(Course::Steps(87)));
        assert_eq!(Course::steps(0, 5), None);
        assert_eq!(Course::steps(u64::MAX, 1), None);
        assert_eq!(Course::steps(1, u64::MAX), Some(Course::Steps(591)));
        let to_go = [0, 1, 2, 3, 1 << 40, u64::MAX].map(Course::remaining);
        assert_eq!(to_go, [None, Some(0), Some(8), Some(12), Some(320), Some(512)].map(|n| n.map(Course::Remaining)));
    }
}
