//! Walks, weighed so that what they show stands for executions. A walk begins where time passes, so of stretches in which
//! instructions take long there are more walks, and what they show next is of such stretches too: a matcher's short searches, which
//! wait for memory, were shown more often than its long ones, and loops told at two thirds of their rounds. How long instructions take at a
//! place follows from the walks themselves: how often they began there, over how often they showed it. A walk counts by the inverse of
//! what the instructions near its beginning take.
//!
//! Only walks that got to their end tell how often places are shown: one that is cut short shows less of where it began than it would
//! have, which looks like time. Stretches that no walk leads from one to the other are not compared: in each, as many walks begin as are
//! shown.
//!
//! Rows hold whole numbers, as those of records do (`weigh`).

use super::Place;
use super::weigh::{number, rounded};
use crate::aggregate::EdgeKey;
use rustc_hash::FxHashMap;

/// So many walks are weighed together, of a thousand instructions each: some megabytes. Those that were counted before are kept until then:
/// rows are wanted every few seconds, and what places take is known the better the more walks tell.
const MOST: usize = 4 << 10;
/// Each weighing rests on the one before, and errors grow with every one: the second differs from the fourth by less than walks by chance.
const ROUNDS: usize = 2;
/// A place is taken to have been shown so much more often, taking what all do: few walks tell little.
const INERTIA: f64 = 20.0;
/// The same of instructions near a beginning.
const INERTIA_OF_NEAR: f64 = 30.0;

/// One walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk<'r> {
    /// Where it began.
    pub(crate) start: Place,
    /// Its runs near there, and how many instructions these are about.
    pub(crate) near: &'r [EdgeKey],
    pub(crate) near_insns: u32,
    /// Those that tell.
    pub(crate) told: &'r [EdgeKey],
    /// How many instructions tell, of a walk that got to its end.
    pub(crate) whole: Option<u32>,
}

/// Walks that wait to be weighed, behind those that were counted already.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    keys: FxHashMap<EdgeKey, u32>,
    walks: Vec<Kept>,
    /// Walks that were counted.
    counted: usize,
    /// Runs of all: by key.
    runs: Vec<u32>,
    chance: u64,
}

/// A walk, with where its parts of [`Begun::runs`] end.
#[derive(Clone, Copy, Debug)]
struct Kept {
    start: Place,
    near: usize,
    near_insns: f64,
    told: usize,
    whole: Option<u32>,
}

impl Begun {
    pub(crate) fn add(&mut self, walk: &Walk<'_>) {
        let mut keep = |rows: &[EdgeKey]| {
            self.runs.extend(rows.iter().map(|row| number(&mut self.keys, *row)));
            self.runs.len()
        };
        let (near, told) = (keep(walk.near), keep(walk.told));
        let (start, near_insns, whole) = (walk.start, f64::from(walk.near_insns), walk.whole);
        self.walks.push(Kept { start, near, near_insns, told, whole });
    }

    /// Whether it is time to count.
    pub(crate) fn is_full(&self) -> bool {
        self.walks.len() >= MOST
    }

    /// Rows that wait, at most.
    pub(crate) fn rows(&self) -> usize {
        if self.counted < self.walks.len() { self.keys.len() } else { 0 }
    }

    /// Counts the walks that wait into rows. What was told at all is told.
    pub(crate) fn count(&mut self) -> Vec<(EdgeKey, u32)> {
        if self.counted == self.walks.len() {
            return Vec::new();
        }
        let mut keys: Vec<(EdgeKey, u32)> = self.keys.iter().map(|(key, no)| (*key, *no)).collect();
        // In the order in which they came, so that equal input gives equal rows.
        keys.sort_unstable_by_key(|k| k.1);
        let mut sums = vec![0.0; keys.len()];
        for ((_, _, told), weight) in self.by_walk().zip(self.weights(&keys)).skip(self.counted) {
            told.iter().for_each(|run| sums[*run as usize] += weight);
        }
        let mut chance = self.chance;
        let rows = keys.into_iter().zip(sums).filter(|(_, sum)| *sum > 0.0);
        let rows = rows.map(|((key, _), sum)| (key, rounded(&mut chance, sum).max(1))).collect();
        (self.chance, self.counted) = (chance, self.walks.len());
        if self.is_full() {
            *self = Self { chance, ..Self::default() };
        }
        rows
    }

    /// Each walk with its runs near its beginning, and those that tell.
    fn by_walk(&self) -> impl Iterator<Item = (&Kept, &[u32], &[u32])> {
        let begins = std::iter::once(0).chain(self.walks.iter().map(|w| w.told));
        begins.zip(&self.walks).map(|(begin, w)| (w, &self.runs[begin..w.near], &self.runs[w.near..w.told]))
    }

    /// What each walk counts.
    fn weights(&self, keys: &[(EdgeKey, u32)]) -> Vec<f64> {
        let wholes: Vec<f64> = self.walks.iter().filter_map(|w| w.whole).map(f64::from).collect();
        let mut weights = vec![1.0; self.walks.len()];
        let usual = wholes.len() as f64 / wholes.iter().sum::<f64>();
        if !usual.is_finite() {
            return weights;
        }
        let places = Places::of(self, keys);
        for _ in 0..ROUNDS {
            let shown = places.shown(self, &weights);
            let takes = places.takes(&shown);
            for (weight, (walk, near, _)) in weights.iter_mut().zip(self.by_walk()) {
                let of_run = walk.near_insns / near.len().max(1) as f64;
                let time = |run: &u32| {
                    let (first, end) = places.of_key[*run as usize];
                    takes[end] - takes[first] + of_run * usual * INERTIA / (shown[first] + INERTIA)
                };
                let time = near.iter().map(time).sum::<f64>() / usual;
                *weight = (walk.near_insns + INERTIA_OF_NEAR) / (time + INERTIA_OF_NEAR);
            }
            let mean = weights.iter().sum::<f64>() / weights.len() as f64;
            weights.iter_mut().for_each(|w| *w /= mean);
        }
        // Together they count as many walks as would be as certain if none were worth more than another.
        let scale = weights.len() as f64 / weights.iter().map(|w| w * w).sum::<f64>();
        weights.iter().map(|w| w * scale).collect()
    }
}

/// Where walks began and where runs begin.
struct Places {
    /// How often whole walks began at each, in the order of places.
    began: Vec<f64>,
    /// Per key, the places that its run passes: the first, and the one behind the last.
    of_key: Vec<(usize, usize)>,
}

impl Places {
    fn of(begun: &Begun, keys: &[(EdgeKey, u32)]) -> Self {
        let starts = || begun.walks.iter().filter(|w| w.whole.is_some()).map(|w| w.start);
        let mut all: Vec<Place> = starts().chain(keys.iter().map(|(k, _)| (k.image, k.pc.0))).collect();
        all.sort_unstable();
        all.dedup();
        let mut began = vec![0.0; all.len()];
        starts().filter_map(|s| all.binary_search(&s).ok()).for_each(|at| began[at] += 1.0);
        let passes = |k: &EdgeKey| {
            let first = all.partition_point(|p| *p < (k.image, k.pc.0));
            (first, all.partition_point(|p| *p <= (k.image, k.branch.0)).max(first))
        };
        Self { began, of_key: keys.iter().map(|(k, _)| passes(k)).collect() }
    }

    /// How often whole walks show each.
    fn shown(&self, begun: &Begun, weights: &[f64]) -> Vec<f64> {
        let mut shown = vec![0.0; self.began.len() + 1];
        for ((walk, _, told), weight) in begun.by_walk().zip(weights) {
            for run in told.iter().filter(|_| walk.whole.is_some()) {
                let (first, end) = self.of_key[*run as usize];
                shown[first] += weight;
                shown[end] -= weight;
            }
        }
        let mut sum = 0.0;
        for shown in &mut shown {
            sum += *shown;
            *shown = sum;
        }
        shown
    }

    /// What is begun in each execution of the places before each, summed up.
    fn takes(&self, shown: &[f64]) -> Vec<f64> {
        let mut sum = 0.0;
        let each = self.began.iter().zip(shown).map(|(began, shown)| began / (shown + INERTIA));
        let sums = each.map(|each| {
            sum += each;
            sum
        });
        std::iter::once(0.0).chain(sums).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lives::ImageNo;
    use whither_store::model::{EdgeSource, ImageOffset, Way};

    const LONG: u32 = 100;

    /// A run of ten instructions from a place.
    fn key(pc: u64) -> EdgeKey {
        let (branch, way) = (ImageOffset(pc + 9), Way::To(ImageOffset(0)));
        EdgeKey { image: ImageNo(0), pc: ImageOffset(pc), branch, way, source: EdgeSource::Walks }
    }

    /// A program of two stretches by turns, 150 runs of place 0 and 150 of place 10 on average, where one of the latter takes eight times as
    /// long. Walks begin by time. Those that begin at 0 are cut short in so many of ten cases.
    fn walks(cut: u64) -> Begun {
        let mut random = 12345_u64;
        let mut roll = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        let mut begun = Begun::default();
        for _ in 0..2000 {
            let mut at = if roll(9) == 0 { 0 } else { 10 };
            let start = (ImageNo(0), at + roll(10));
            let runs: Vec<EdgeKey> = (0..LONG)
                .map(|_| {
                    at = if roll(150) == 0 { 10 - at } else { at };
                    key(at)
                })
                .collect();
            let short = start.1 < 10 && roll(10) < cut;
            let told = &runs[30..if short { 40 } else { 100 }];
            let whole = (!short).then_some(700);
            begun.add(&Walk { start, near: &runs[..30], near_insns: 300, told, whole });
        }
        begun
    }

    /// What is told of place 0: half would be right.
    fn share(rows: &[(EdgeKey, u32)]) -> f64 {
        let sum = |of: &dyn Fn(&EdgeKey) -> bool| rows.iter().filter(|r| of(&r.0)).map(|r| f64::from(r.1)).sum::<f64>();
        sum(&|k| k.pc.0 == 0) / sum(&|_| true)
    }

    #[test]
    fn quick_stretches_count_as_often_as_they_run() {
        let mut begun = walks(0);
        let told: Vec<u32> = begun.by_walk().flat_map(|(_, _, told)| told.to_vec()).collect();
        let quick = begun.keys[&key(0)];
        let plain = told.iter().filter(|r| **r == quick).count() as f64 / told.len() as f64;
        assert!(plain < 0.36, "the test's walks are biased: {plain}");
        let rows = begun.count();
        assert!((0.44..0.55).contains(&share(&rows)), "{} for {plain}", share(&rows));
        assert_eq!((begun.rows(), begun.count()), (0, vec![]), "all were counted");
    }

    /// In pieces, as rows are wanted every few seconds: what the first ones told of how long places take is not forgotten.
    #[test]
    fn walks_counted_before_help_to_weigh_the_next() {
        let whole = walks(0);
        let told = |rows: &[(EdgeKey, u32)]| rows.iter().map(|r| f64::from(r.1)).sum::<f64>();
        let (mut kept, mut sums, mut forgotten) = (Begun::default(), Vec::new(), Vec::new());
        let keys: FxHashMap<u32, EdgeKey> = whole.keys.iter().map(|(k, no)| (*no, *k)).collect();
        let runs = |of: &[u32]| -> Vec<EdgeKey> { of.iter().map(|no| keys[no]).collect() };
        for piece in whole.by_walk().collect::<Vec<_>>().chunks(10) {
            let mut alone = Begun::default();
            for (walk, near, told) in piece {
                let (near, told) = (runs(near), runs(told));
                let walk = Walk { start: walk.start, near: &near, near_insns: 300, told: &told, whole: walk.whole };
                kept.add(&walk);
                alone.add(&walk);
            }
            sums.extend(kept.count());
            forgotten.extend(alone.count());
            assert_eq!((kept.rows(), kept.count()), (0, vec![]), "each is counted once");
        }
        assert!(share(&sums) > share(&forgotten) + 0.03, "{} {}", share(&sums), share(&forgotten));
        assert!((0.42..0.55).contains(&share(&sums)), "{}", share(&sums));
        assert!(told(&sums) < 1.02 * 2000.0 * 70.0, "{}", told(&sums));
    }

    #[test]
    fn walks_that_are_cut_short_do_not_make_their_place_slow() {
        let all = share(&walks(0).count());
        let cut = walks(8);
        let of_whole = |from: bool| {
            let mut keys: Vec<(EdgeKey, u32)> = cut.keys.iter().map(|(k, no)| (*k, *no)).collect();
            keys.sort_unstable_by_key(|k| k.1);
            let weights = cut.weights(&keys);
            let each = cut.walks.iter().zip(weights).filter(|(w, _)| (w.start.1 < 10) == from).map(|w| w.1);
            let each: Vec<f64> = each.collect();
            each.iter().sum::<f64>() / each.len() as f64
        };
        assert!(of_whole(true) > 1.5 * of_whole(false), "{} {} {all}", of_whole(true), of_whole(false));
    }

    #[test]
    fn what_was_told_at_all_is_told() {
        let mut begun = Begun::default();
        assert_eq!(begun.count(), []);
        let start = (ImageNo(0), 3);
        begun.add(&Walk { start, near: &[], near_insns: 5, told: &[], whole: None });
        assert_eq!(begun.count(), []);
        begun.add(&Walk { start, near: &[key(0)], near_insns: 10, told: &[key(20)], whole: Some(10) });
        assert_eq!(begun.count(), [(key(20), 1)]);
    }
}
