//! Weights of walks under which what they show is steady. Time chooses where walks begin, so at first they show slow stretches too
//! often, and the further on they are the more they show what the program does on average. With the right weights their beginnings and
//! their ends would show the same, since each execution is as good a beginning of a walk as any other. What a place takes on average
//! (`begun`) does not tell of code that goes at unlike speeds in different stretches; where walks lead out of a slow stretch, this does.
//!
//! What a walk counts may depend on its beginning alone, where time was measured: each weight is multiplied by the exponential of a
//! sum over the runs near there, one unknown per run, and these are found by least squares. (With weights by how a walk changes, those
//! that lead out of slow stretches would make up for those that stay in them.) What few walks differ in by chance must not be made up for, so
//! unknowns are held near 0. Not here: what weights are to begin with, and what is done with them. Constraint: it is paid out of the budget
//! of the recording, so it is one linear system, solved to some percent.

/// Instructions near a beginning, and late, without which a walk is no evidence.
const SHORTEST: f64 = 100.0;
/// How firmly unknowns are held near 0, against what one walk says; with so few walks twice as firmly, as what unknowns do is not known
/// well either then.
const HOLD: f64 = 20.0;
const FEW: f64 = 400.0;
/// Steps of the solver. Twice as many change nothing that can be told from chance.
const STEPS: usize = 4;
/// Where what walks differ in is no more than so many times what it would be by chance, they tell nothing; else weights are changed by
/// the part that is beyond that.
const DOUBT: f64 = 1.5;
/// No weight is changed by more than the exponential of this.
const MOST: f64 = 3.0;

/// A number for each run of each walk, as far as it is not 0.
#[derive(Default)]
struct Matrix {
    values: Vec<(u32, f64)>,
    /// Where those of each walk end.
    ends: Vec<usize>,
    runs: usize,
}

impl Matrix {
    fn of(runs: usize) -> Self {
        Self { runs, ..Self::default() }
    }

    /// Ends a walk.
    fn end(&mut self) {
        self.ends.push(self.values.len());
    }

    fn each(&self) -> f64 {
        1.0 / self.ends.len() as f64
    }

    /// Of each walk, the sum of its numbers times what each run has.
    fn by_walk(&self, of_runs: &[f64]) -> Vec<f64> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let values = begins.zip(&self.ends).map(|(begin, end)| &self.values[begin..*end]);
        values.map(|v| v.iter().map(|(run, value)| value * of_runs[*run as usize]).sum()).collect()
    }

    /// Of each run, the mean over walks of its numbers times what each walk has.
    fn by_run(&self, of_walks: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.runs];
        let mut begin = 0;
        for (end, of_walk) in self.ends.iter().zip(of_walks) {
            for (run, value) in &self.values[begin..*end] {
                sums[*run as usize] += value * of_walk * self.each();
            }
            begin = *end;
        }
        sums
    }

    /// Divides the numbers of each run by the root of their mean square, or of the mean square around `means`.
    fn standardise(&mut self, means: &[f64]) -> Vec<f64> {
        let mut squares = vec![0.0; self.runs];
        for (run, value) in &self.values {
            squares[*run as usize] += value * value * self.each();
        }
        let scale = |(square, mean): (f64, &f64)| {
            let around = square - mean * mean;
            if around > 1e-9 * square { 1.0 / around.sqrt() } else { 0.0 }
        };
        let scales: Vec<f64> = squares.into_iter().zip(means).map(scale).collect();
        self.values.iter_mut().for_each(|(run, value)| *value *= scales[*run as usize]);
        scales
    }
}

/// How often walks show runs near their beginning, per instruction, and how much more often than late.
pub(super) struct Shown {
    near: Matrix,
    more: Matrix,
    /// Of the walk that is added, by run; all 0 in between.
    sums: Vec<f64>,
    touched: Vec<u32>,
}

impl Shown {
    /// Of walks over so many different runs.
    pub(super) fn of(runs: usize) -> Self {
        Self { near: Matrix::of(runs), more: Matrix::of(runs), sums: vec![0.0; runs], touched: Vec::new() }
    }

    /// Adds the next walk. `insns`: of a run.
    pub(super) fn add(&mut self, near: &[u32], late: &[u32], insns: impl Fn(u32) -> f64) {
        let long = |runs: &[u32]| runs.iter().map(|run| insns(*run)).sum::<f64>();
        let (near_insns, late_insns) = (long(near), long(late));
        if near_insns >= SHORTEST && late_insns >= SHORTEST {
            self.sum_up(near, 1.0 / near_insns);
            let of_run = self.touched.iter().map(|run| (*run, self.sums[*run as usize]));
            self.near.values.extend(of_run);
            self.sum_up(late, -1.0 / late_insns);
            let sums = &mut self.sums;
            self.more.values.extend(self.touched.drain(..).map(|run| (run, std::mem::take(&mut sums[run as usize]))));
        }
        self.near.end();
        self.more.end();
    }

    fn sum_up(&mut self, runs: &[u32], each: f64) {
        for &run in runs {
            if self.sums[run as usize] == 0.0 {
                self.touched.push(run);
            }
            self.sums[run as usize] += each;
        }
    }

    /// Changes weights, one for each walk, so that what walks show is steady.
    pub(super) fn steady(mut self, weights: &mut [f64]) {
        debug_assert_eq!(weights.len(), self.near.ends.len(), "one for each walk");
        if self.near.values.is_empty() {
            return;
        }
        self.more.standardise(&vec![0.0; self.more.runs]);
        let mut means = self.near.by_run(&vec![1.0; weights.len()]);
        let scales = self.near.standardise(&means);
        means.iter_mut().zip(scales).for_each(|(mean, scale)| *mean *= scale);
        let system = Linear { near: &self.near, means: &means, more: &self.more, weights };
        let part = (1.0 - DOUBT / system.beyond_chance()).max(0.0);
        let by = system.beyond_means(&system.solve());
        for (weight, by) in weights.iter_mut().zip(by) {
            *weight *= (-by * part).clamp(-MOST, MOST).exp();
        }
    }
}

/// What unknowns do to how much more often walks show runs near their beginnings, when weights change by little.
struct Linear<'a> {
    near: &'a Matrix,
    means: &'a [f64],
    more: &'a Matrix,
    weights: &'a [f64],
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

impl Linear<'_> {
    /// How many times what walks would differ by chance between their beginnings and ends they do.
    fn beyond_chance(&self) -> f64 {
        let walks = self.weights.len() as f64;
        let means = self.more.by_run(self.weights);
        let squares = |(begin, end, weight): (usize, &usize, &f64)| {
            self.more.values[begin..*end].iter().map(|v| v.1 * v.1).sum::<f64>() * weight * weight
        };
        let begins = std::iter::once(0).chain(self.more.ends.iter().copied());
        let walk = begins.zip(&self.more.ends).zip(self.weights).map(|((begin, end), weight)| (begin, end, weight));
        let by_chance = walk.map(squares).sum::<f64>() / walks;
        walks * dot(&means, &means) / by_chance
    }

    /// The logarithm of what each weight is divided by.
    fn beyond_means(&self, unknowns: &[f64]) -> Vec<f64> {
        let usual = dot(self.means, unknowns);
        self.near.by_walk(unknowns).into_iter().map(|by| by - usual).collect()
    }

    /// What of runs is taken off.
    fn effect(&self, unknowns: &[f64]) -> Vec<f64> {
        self.more.by_run(&product(self.weights, &self.beyond_means(unknowns)))
    }

    /// What each unknown does for some wish by run: the transposed of [`Self::effect`].
    fn pull(&self, wish: &[f64]) -> Vec<f64> {
        let of_walks = product(self.weights, &self.more.by_walk(wish));
        let all = of_walks.iter().sum::<f64>() * self.near.each();
        let pulls = self.near.by_run(&of_walks).into_iter().zip(self.means);
        pulls.map(|(pull, mean)| (pull - mean * all) * self.weights.len() as f64).collect()
    }

    /// The unknowns, by conjugate gradients.
    fn solve(&self) -> Vec<f64> {
        let hold = HOLD * (1.0 + (FEW / self.weights.len() as f64).powi(2));
        let mut found = vec![0.0; self.near.runs];
        let mut left = self.pull(&self.more.by_run(self.weights));
        let mut step = left.clone();
        let mut size = dot(&left, &left);
        for _ in 0..STEPS {
            let held = self.pull(&self.effect(&step)).into_iter().zip(&step).map(|(pull, step)| pull + hold * step);
            let held: Vec<f64> = held.collect();
            let far = size / dot(&step, &held);
            if !far.is_finite() {
                break;
            }
            found.iter_mut().zip(&step).for_each(|(f, s)| *f += far * s);
            left.iter_mut().zip(&held).for_each(|(l, h)| *l -= far * h);
            let before = std::mem::replace(&mut size, dot(&left, &left));
            step.iter_mut().zip(&left).for_each(|(s, l)| *s = l + size / before * *s);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INSNS: f64 = 10.0;

    /// Walks of 100 runs through a program of two phases of 150 runs on average, in which run 0 is seven or three of ten. Where it
    /// is three of ten, all takes `slow` times as long, so that more walks begin there.
    fn walks(slow: u64, count: usize) -> Vec<Vec<u32>> {
        let mut random = 12345_u64;
        let mut roll = move |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        let mut walk = || {
            let mut is_slow = roll(slow + 1) > 0;
            let mut next = || {
                is_slow ^= roll(150) == 0;
                u32::from(roll(10) >= if is_slow { 3 } else { 7 })
            };
            (0..100).map(|_| next()).collect()
        };
        (0..count).map(|_| walk()).collect()
    }

    fn steadied(walks: &[Vec<u32>]) -> Vec<f64> {
        let mut shown = Shown::of(2);
        walks.iter().for_each(|w| shown.add(&w[..30], &w[65..], |_| INSNS));
        let mut weights = vec![1.0; walks.len()];
        shown.steady(&mut weights);
        weights
    }

    /// What is told of run 0: half would be right.
    fn share(walks: &[Vec<u32>], weights: &[f64]) -> f64 {
        let part = |w: &Vec<u32>| w[30..].iter().filter(|run| **run == 0).count() as f64 / 70.0;
        walks.iter().zip(weights).map(|(w, weight)| part(w) * weight).sum::<f64>() / weights.iter().sum::<f64>()
    }

    #[test]
    fn a_phase_in_which_the_same_code_is_slower_is_not_told_too_often() {
        let walks = walks(3, 4000);
        let plain = share(&walks, &vec![1.0; walks.len()]);
        assert!(plain < 0.47, "the test's walks are biased: {plain}");
        let told = share(&walks, &steadied(&walks));
        assert!((told - 0.5).abs() < 0.6 * (0.5 - plain), "{told} for {plain}");
    }

    #[test]
    fn what_is_steady_stays_as_it_is() {
        let walks = walks(1, 4000);
        let weights = steadied(&walks);
        assert!((share(&walks, &weights) - 0.5).abs() < 0.01, "{}", share(&walks, &weights));
        let worth = weights.iter().sum::<f64>().powi(2) / weights.iter().map(|w| w * w).sum::<f64>();
        assert!(worth > 0.99 * 4000.0, "{worth}");
    }

    #[test]
    fn few_walks_change_little_by_chance() {
        let walks = walks(1, 12);
        let weights = steadied(&walks);
        assert!(weights.iter().all(|w| (0.9..1.11).contains(w)), "{weights:?}");
    }

    #[test]
    fn short_walks_are_no_evidence() {
        let mut shown = Shown::of(3);
        shown.add(&[0; 30], &[1; 9], |_| INSNS);
        shown.add(&[2; 9], &[1; 30], |_| INSNS);
        let mut weights = vec![1.5, 0.5];
        shown.steady(&mut weights);
        assert_eq!(weights, [1.5, 0.5]);
    }

    proptest! {
        /// Whatever walks show, weights are finite, positive and change within bounds.
        #[test]
        fn weights_stay_within_bounds(walks in prop::collection::vec((prop::collection::vec(0..9_u32, 0..40), prop::collection::vec(0..9_u32, 0..40)), 1..40)) {
            let mut shown = Shown::of(9);
            walks.iter().for_each(|(near, late)| shown.add(near, late, |run| f64::from(run * 7)));
            let mut weights: Vec<f64> = (0..walks.len()).map(|i| 0.1 + i as f64).collect();
            let before = weights.clone();
            shown.steady(&mut weights);
            for (now, before) in weights.iter().zip(before) {
                prop_assert!(now.is_finite() && (now / before).ln().abs() <= MOST + 1e-9, "{now} {before}");
            }
        }
    }
}
