//! What is to go at moments says of one procedure's loops: how often a branch leaves that leaves by count (`image/counters`). Rows
//! come in, chances with errors go out; `frequency` adds them to what was seen of the branch. Loops of many rounds need this: a
//! branch that leaves once in a thousand times is hardly ever seen to.
//!
//! Moments are drawn by time, so a loop of n rounds is met with anything from 1 to n executions to go, all equally often. The chance
//! that the branch leaves is the density at 1. Where all entries have the same number of rounds the mean tells it; else
//! the density is taken near its end, and it can but fall from there on, since what has many to go will have few. Where it does not,
//! something else ends the loop first, and nothing is told. Rounds that take longer towards the end look as entries of unlike
//! lengths do: so where rounds hold loops or calls, only what is even is believed.

use super::subject::{Places, Subject, To};
use whither_image::counters::{Code, Exits};
use whither_store::model::{Course, Image, LapCount};

/// Fewer moments tell nothing, nor that entries have unlike numbers of rounds.
const FEWEST: f64 = 6.0;
/// Loops of fewer rounds than this leave so often that the branch itself tells.
const FEWEST_ROUNDS: f64 = 6.0;
/// Nobody goes round more often: a bound that is never met.
const MOST_ROUNDS: f64 = 1e13;
/// The mean of squares over the square of the mean, of numbers evenly from 1 to n, and the standard deviation that one of them
/// has.
const EVEN: f64 = 4.0 / 3.0;
const SCATTER_OF_EVEN: f64 = 0.49;
/// Standard deviation of the logarithm of a chance from one moment, where all entries have the same number of rounds: of the mean, and
/// of how far they might differ.
const OF_EVEN: f64 = 1.15;
/// Where they differ.
const OF_UNEVEN: f64 = 2.8;
/// No answer is better than this.
const LEAST_ERROR: f64 = 0.04;

/// How often a branch leaves a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trip {
    /// Its block.
    pub(crate) block: usize,
    /// The branch.
    pub(crate) branch: usize,
    /// The way that leaves.
    pub(crate) leaves: To,
    /// Share of its executions that do.
    pub(crate) chance: f64,
    /// Standard deviation of its logarithm.
    pub(crate) error: f64,
}

impl Trip {
    /// Executions that tell as much when they are seen.
    pub(crate) fn observations(&self) -> f64 {
        (1.0 - self.chance) / (self.chance * self.error * self.error)
    }

    /// Whether so many executions of the branch, with so many that left, can be of the same loop. Of a loop that is mostly left soon and
    /// sometimes late moments see the late ones only; and one that something else ends, or that begins anew before its end, never comes
    /// to what they have to go.
    pub(crate) fn fits(&self, left: f64, all: f64) -> bool {
        let expected = all * self.chance;
        let by_chance = |of: f64| 3.0 * of.sqrt() + 3.0;
        let at_least = expected * (-1.96 * self.error).exp();
        left <= expected + by_chance(expected) && left >= at_least - by_chance(at_least)
    }
}

/// What rows tell of branches.
pub(super) fn trips(subject: &Subject, image: &Image, rows: &[LapCount]) -> Vec<Trip> {
    let rows: Vec<&LapCount> = rows.iter().filter(|r| matches!(r.course, Course::Remaining(_))).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let places = Places { image, cfg: &subject.cfg };
    let code = Code::of(&subject.cfg);
    let mut exits = Exits::of(&code);
    let of = |rows: &[&LapCount]| {
        let branch = places.insn(rows[0].offset)?;
        let exit = exits.at(branch)?;
        let alike = if exits.is_simple(&exit) { Alike::Rounds } else { Alike::Unknown };
        let (chance, error) = chance(rows, alike)?;
        let leaves = if exit.when_taken { To::Taken } else { To::Fall };
        Some(Trip { block: subject.block_of(branch)?, branch, leaves, chance, error })
    };
    rows.chunk_by(|a, b| a.offset == b.offset).filter_map(of).collect()
}

/// What of a loop takes about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alike {
    /// All its rounds.
    Rounds,
    Unknown,
}

/// Of rows of one branch: the chance that it leaves, and the standard deviation of its logarithm.
fn chance(rows: &[&LapCount], alike: Alike) -> Option<(f64, f64)> {
    let moments: f64 = rows.iter().map(|r| r.pairs as f64).sum();
    let mean = rows.iter().map(|r| r.laps as f64).sum::<f64>() / moments;
    // Within a row they are alike.
    let squares = rows.iter().map(|r| (r.laps as f64).powi(2) / r.pairs as f64).sum::<f64>() / moments;
    if moments < FEWEST || !(FEWEST_ROUNDS / 2.0..MOST_ROUNDS).contains(&mean) {
        return None;
    }
    let above_even = squares / (mean * mean) - EVEN;
    let scatter = SCATTER_OF_EVEN / moments.sqrt();
    let (chance, of_one) = match alike {
        _ if above_even.abs() <= 2.0 * scatter => (1.0 / (2.0 * mean - 1.0), OF_EVEN),
        Alike::Rounds => (at_the_end(rows, moments)?, OF_UNEVEN),
        Alike::Unknown => return None,
    };
    let error = (of_one * of_one / moments + LEAST_ERROR * LEAST_ERROR).sqrt();
    (chance > 0.0 && chance < 1.0).then_some((chance, error))
}

/// The density at 1: what the nearer quarter and half of the moments have of it, led on. `None` where it rises.
fn at_the_end(rows: &[&LapCount], moments: f64) -> Option<f64> {
    let within = |part: f64| {
        let mut sum = 0.0;
        let row = rows.iter().find(|r| {
            sum += r.pairs as f64;
            sum >= part * moments
        })?;
        Some(sum / moments / most_in(row.course)?)
    };
    let (eighth, quarter, half) = (within(0.125)?, within(0.25)?, within(0.5)?);
    let falls = eighth > 0.6 * quarter && quarter > 0.8 * half;
    falls.then_some((2.0 * quarter - half).max(quarter))
}

/// The most executions that a row's moments may have to go.
fn most_in(course: Course) -> Option<f64> {
    let Course::Remaining(n) = course else { return None };
    Some(((f64::from(n) + 1.0) / 8.0).exp2().ceil() - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of these numbers to go.
    fn rows(to_go: impl Iterator<Item = u64>) -> Vec<LapCount> {
        let mut rows: Vec<LapCount> = Vec::new();
        for laps in to_go {
            let course = Course::remaining(laps).expect("never 0");
            let new = LapCount { course, pairs: 1, laps, ..LapCount::default() };
            match rows.iter_mut().find(|r| r.course == course) {
                Some(row) => row.add(&new),
                None => rows.push(new),
            }
        }
        rows.sort_unstable();
        rows
    }

    fn told(to_go: impl Iterator<Item = u64>) -> Option<(f64, f64)> {
        let rows = rows(to_go);
        chance(&rows.iter().collect::<Vec<_>>(), Alike::Rounds)
    }

    /// Evenly from 0 to 1.
    fn even(i: u64) -> f64 {
        (i as f64 * 0.618_033_988_749_895).fract()
    }

    #[test]
    fn loops_of_one_length_are_told_by_the_mean() {
        for (rounds, moments, within) in [(700.0, 30, 0.1), (700.0, 400, 0.02), (8.0, 400, 0.05), (1e9, 100, 0.05)] {
            let (chance, error) = told((0..moments).map(|i| 1 + (even(i) * rounds) as u64)).expect("told");
            assert!((chance * rounds - 1.0).abs() < within, "{rounds} rounds: {chance}");
            assert!(error > within / 3.0, "{error}");
        }
        let (chance, error) = told((0..20).map(|i| 10 + i * 70 % 200)).expect("told");
        assert!((chance * 200.0).ln().abs() < error && error > 0.25, "few tell little: {chance} {error}");
        assert_eq!(told((0..5).map(|i| 20 + i * 40)), None, "too few");
        assert_eq!(told((0..500).map(|i| 1 + i % 4)), None, "four rounds");
    }

    #[test]
    fn loops_of_unlike_lengths_are_told_by_their_ends() {
        // 1 to 1000 rounds, each as often: 500 on average.
        let triangle = (0..2000).map(|i| 1 + (1000.0 * (1.0 - (1.0 - even(i)).sqrt())) as u64);
        let (density, error) = told(triangle).expect("told");
        assert!((density * 500.0).ln().abs() < 2.0 * error && error < 0.1, "{density} {error}");
        let rows = rows((0..2000).map(|i| 1 + (1000.0 * (1.0 - (1.0 - even(i)).sqrt())) as u64));
        let unlike = chance(&rows.iter().collect::<Vec<_>>(), Alike::Unknown);
        assert_eq!(unlike, None, "or its rounds take longer towards the end");
        // Left by chance, once in 300 times.
        let (chance, error) = told((0..2000).map(|i| 1 + (-(1.0 - even(i)).ln() * 300.0) as u64)).expect("told");
        assert!((chance * 300.0).ln().abs() < 2.5 * error, "{chance} {error}");
    }

    #[test]
    fn many_short_entries_that_moments_miss_are_seen_by_branches() {
        let trip = Trip { block: 0, branch: 0, leaves: To::Fall, chance: 1e-3, error: 0.1 };
        assert!(trip.fits(0.0, 5000.0) && trip.fits(5.0, 1000.0) && trip.fits(3.0, 10.0));
        assert!(!trip.fits(10.0, 1000.0) && !trip.fits(40.0, 5000.0));
        assert!(trip.fits(3.0, 15_000.0), "by chance");
        assert!(!trip.fits(0.0, 30_000.0), "it would have been seen to leave");
    }

    #[test]
    fn what_is_left_before_its_count_tells_nothing() {
        // Of 1000 rounds never more than 300 are made.
        assert_eq!(told((0..500).map(|i| 700 + (even(i) * 300.0) as u64)), None);
    }
}
