//! Stacks of branch records that came with samples of time, weighed so that their runs stand for executions. What such a
//! stack shows ran just before time passed somewhere, so slow stretches show far more often than they run. How
//! much more follows from the stacks themselves: the run that was under way when the sample came has taken time in proportion to
//! how often it is found under way, over how often it is found complete. A stack counts by the inverse.
//!
//! Weights depend on what runs begin where, which they change, so they are found by repeating. Rows hold
//! whole numbers: weights are scaled so that all together count as many stacks as would be as certain if none were
//! worth more than another, and rounded by chance.

use super::Place;
use crate::aggregate::EdgeKey;
use rustc_hash::FxHashMap;

/// So many stacks are weighed together: two megabytes, and enough to know places by.
const MOST: usize = 16 << 10;
/// Rounds of weighing.
const ROUNDS: usize = 30;
/// A place is weighed as if it had been found under way so much more often, with the weight it had: few stacks tell little.
const INERTIA: f64 = 0.5;

/// Stacks that wait to be weighed.
#[derive(Debug, Default)]
pub(crate) struct Weighing {
    keys: FxHashMap<EdgeKey, u32>,
    places: FxHashMap<Option<Place>, u32>,
    /// Where the run began that was under way, and the end of the stack's part of `runs`.
    stacks: Vec<(u32, usize)>,
    /// Of each stack: rows, with where they begin.
    runs: Vec<(u32, u32)>,
    chance: u64,
}

impl Weighing {
    /// Takes a stack in. `under_way`: where its last record led.
    pub(crate) fn add(&mut self, under_way: Option<Place>, rows: &[EdgeKey]) {
        let under_way = number(&mut self.places, under_way);
        for row in rows {
            let begins = number(&mut self.places, Some((row.image, row.pc.0)));
            self.runs.push((number(&mut self.keys, *row), begins));
        }
        self.stacks.push((under_way, self.runs.len()));
    }

    /// Whether it is time to count.
    pub(crate) fn is_full(&self) -> bool {
        self.stacks.len() >= MOST
    }

    /// Rows that wait.
    pub(crate) fn rows(&self) -> usize {
        self.keys.len()
    }

    /// Counts all stacks into rows, and forgets them.
    pub(crate) fn count(&mut self) -> Vec<(EdgeKey, u32)> {
        let weights = self.weights();
        let mut sums = vec![0.0; self.keys.len()];
        for (&(under_way, _), runs) in self.stacks.iter().zip(self.by_stack()) {
            runs.iter().for_each(|run| sums[run.0 as usize] += weights[under_way as usize]);
        }
        let mut keys: Vec<(EdgeKey, u32)> = std::mem::take(&mut self.keys).into_iter().collect();
        // In the order in which they came, so that equal input gives equal rows.
        keys.sort_unstable_by_key(|k| k.1);
        let mut chance = self.chance;
        let counted = keys.into_iter().map(|(key, no)| (key, rounded(&mut chance, sums[no as usize])));
        let counted = counted.filter(|c| c.1 > 0).collect();
        *self = Self { chance, ..Self::default() };
        counted
    }

    fn by_stack(&self) -> impl Iterator<Item = &[(u32, u32)]> {
        let begins = std::iter::once(0).chain(self.stacks.iter().map(|s| s.1));
        begins.zip(&self.stacks).map(|(begin, stack)| &self.runs[begin..stack.1])
    }

    /// What a stack counts, by where its run under way began.
    fn weights(&self) -> Vec<f64> {
        let mut found = vec![0.0_f64; self.places.len()];
        self.stacks.iter().for_each(|s| found[s.0 as usize] += 1.0);
        let mut weights = vec![1.0; self.places.len()];
        for _ in 0..ROUNDS {
            let mut complete = vec![0.0; self.places.len()];
            for (&(under_way, _), runs) in self.stacks.iter().zip(self.by_stack()) {
                runs.iter().for_each(|run| complete[run.1 as usize] += weights[under_way as usize]);
            }
            let all: f64 = complete.iter().sum();
            if all <= 0.0 {
                break;
            }
            let per_stack = self.stacks.len() as f64 / all;
            for ((weight, found), complete) in weights.iter_mut().zip(&found).zip(&complete) {
                *weight = (complete * per_stack + INERTIA * *weight) / (found + INERTIA);
            }
        }
        let sum = |power: i32| self.stacks.iter().map(|s| weights[s.0 as usize].powi(power)).sum::<f64>();
        let scale = sum(1) / sum(2).max(f64::MIN_POSITIVE);
        weights.iter().map(|w| w * scale).collect()
    }
}

/// Up or down, so that the mean is right (`SplitMix64`).
pub(super) fn rounded(state: &mut u64, sum: f64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let chance = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
    (sum + chance) as u32
}

/// Number of a key, in order of appearance.
pub(super) fn number<K: std::hash::Hash + Eq>(of: &mut FxHashMap<K, u32>, key: K) -> u32 {
    let next = of.len() as u32;
    *of.entry(key).or_insert(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lives::ImageNo;
    use proptest::prelude::*;
    use whither_store::model::{EdgeSource, ImageOffset, Way};

    fn key(pc: u64, to: u64) -> EdgeKey {
        let (branch, way) = (ImageOffset(pc + 4), Way::To(ImageOffset(to)));
        EdgeKey { image: ImageNo(0), pc: ImageOffset(pc), branch, way, source: EdgeSource::Records }
    }

    /// A chain of places: in each a step to another by chance, which takes the time of the place. Sampled by time, as
    /// stacks of `depth` runs.
    fn stacks(steps: u64, depth: usize) -> (Weighing, [f64; 3]) {
        // From the quick loop of 0 and 10 one step in ten leads to 20, which is slow, and stays for four.
        let mut random = 12345_u64;
        let mut roll = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        let (mut weighing, mut truth) = (Weighing::default(), [0.0; 3]);
        let (mut at, mut last, mut left) = (0_u64, std::collections::VecDeque::new(), 100_u64);
        for _ in 0..steps {
            let time = if at == 20 { 60 } else { 1 };
            while left <= time {
                let rows: Vec<EdgeKey> = last.iter().copied().collect();
                weighing.add(Some((ImageNo(0), at)), &rows);
                left += 40 + roll(60);
            }
            left -= time;
            truth[(at / 10) as usize] += 1.0;
            let to = match at {
                0 if roll(10) == 0 => 20,
                0 => 10,
                20 if roll(4) > 0 => 20,
                _ => 0,
            };
            last.push_front(key(at, to));
            last.truncate(depth);
            at = to;
        }
        (weighing, truth)
    }

    #[test]
    fn slow_places_count_as_often_as_they_run() {
        let (mut weighing, truth) = stacks(400_000, 8);
        let found = weighing.stacks.len() as f64;
        let unweighed = weighing.runs.iter().filter(|r| r.1 == weighing.places[&Some((ImageNo(0), 20))]).count() as f64;
        let share = unweighed / weighing.runs.len() as f64;
        let true_share = truth[2] / truth.iter().sum::<f64>();
        assert!(share > 1.15 * true_share, "the test's stacks are biased: {share} for {true_share}");
        let rows = weighing.count();
        let all: u32 = rows.iter().map(|r| r.1).sum();
        let slow: u32 = rows.iter().filter(|r| r.0.pc.0 == 20).map(|r| r.1).sum();
        let share = f64::from(slow) / f64::from(all);
        assert!((share / true_share - 1.0).abs() < 0.05, "{share} for {true_share}");
        assert!(f64::from(all) < 8.0 * found, "weighing costs certainty: {all} runs of {found} stacks");
        assert_eq!((weighing.rows(), weighing.count()), (0, vec![]), "all were counted");
    }

    #[test]
    fn stacks_of_nothing_are_no_trouble() {
        let mut weighing = Weighing::default();
        assert_eq!(weighing.count(), []);
        weighing.add(None, &[]);
        assert_eq!(weighing.count(), []);
        weighing.add(None, &[key(1, 2)]);
        assert_eq!(weighing.count(), [(key(1, 2), 1)]);
    }

    proptest! {
        /// Whatever comes, all together count at most what there is, but for rounding.
        #[test]
        fn counts_are_bounded(stacks in prop::collection::vec((0..6_u64, prop::collection::vec((0..6_u64, 0..6_u64), 0..9)), 0..60)) {
            let mut weighing = Weighing::default();
            let mut most = 0_usize;
            for (under_way, runs) in &stacks {
                let rows: Vec<EdgeKey> = runs.iter().map(|r| key(r.0, r.1)).collect();
                most = most.max(rows.len());
                weighing.add(Some((ImageNo(0), *under_way)), &rows);
            }
            let counted = weighing.count();
            let all: f64 = counted.iter().map(|c| f64::from(c.1)).sum();
            prop_assert!(all <= (stacks.len() * most + counted.len()) as f64 + 1.0);
        }
    }
}
