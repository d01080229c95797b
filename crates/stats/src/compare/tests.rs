//! Known answers, degenerate input, and the calibration of p under A/A.

use super::*;
use proptest::prelude::*;

/// A small generator of our own: the same numbers on every machine.
struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().max(1e-300).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn poisson(&mut self, mean: f64) -> f64 {
        let (mut k, mut left) = (0.0, mean);
        loop {
            left += self.unit().max(1e-300).ln();
            if left < 0.0 {
                return k;
            }
            k += 1.0;
        }
    }
}

fn e(count: f64, exposure: f64) -> Exposed {
    Exposed { count, exposure }
}

/// Shares of p-values below 1 %, 5 %, 20 %, 50 %.
fn below(ps: &[f64]) -> [f64; 4] {
    [0.01, 0.05, 0.2, 0.5].map(|q| ps.iter().filter(|p| **p < q).count() as f64 / ps.len() as f64)
}

fn assert_uniform(ps: &[f64]) {
    let found = below(ps);
    for (share, (expect, tolerance)) in found.iter().zip([(0.01, 0.004), (0.05, 0.01), (0.2, 0.02), (0.5, 0.025)]) {
        assert!((share - expect).abs() < tolerance, "{found:?}");
    }
}

#[test]
fn p_is_uniform_when_nothing_changed() {
    let mut d = Dice(1);
    let trial = |d: &mut Dice| log_ratio(e(d.poisson(200.0), 2.0), e(d.poisson(100.0), 1.0), Dispersion::POISSON).p;
    let ps: Vec<f64> = (0..10_000).map(|_| trial(&mut d)).collect();
    assert_uniform(&ps);
}

#[test]
fn p_is_uniform_with_bursts_when_their_size_is_estimated() {
    // Every sample comes in a burst of 4: the variance is 4 times Poisson's. It is estimated
    // from 6 runs per side of the procedure itself, so Student's t has to pay for it.
    let mut d = Dice(2);
    let ps: Vec<f64> = (0..10_000)
        .map(|_| {
            let runs: Vec<Vec<f64>> = (0..2).map(|_| (0..6).map(|_| 4.0 * d.poisson(60.0)).collect()).collect();
            let dispersion = Dispersion::pooled(runs.iter().map(Vec::as_slice), 5.0);
            let [a, b] = [0, 1].map(|i: usize| runs[i].iter().sum::<f64>());
            log_ratio(e(a, 6.0), e(b, 6.0), dispersion).p
        })
        .collect();
    let found = below(&ps);
    assert!((found[1] - 0.05).abs() < 0.012 && found[0] < 0.015, "{found:?}");
}

#[test]
fn bursts_taken_for_independent_samples_raise_false_alarms() {
    // The reason why the dispersion is asked for at all.
    let mut d = Dice(3);
    let trial =
        |d: &mut Dice| log_ratio(e(4.0 * d.poisson(60.0), 1.0), e(4.0 * d.poisson(60.0), 1.0), Dispersion::POISSON).p;
    let ps: Vec<f64> = (0..2_000).map(|_| trial(&mut d)).collect();
    assert!(below(&ps)[1] > 0.2);
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let mut d = Dice(4);
    let held = (0..5_000)
        .filter(|_| {
            log_ratio(e(d.poisson(50.0), 1.0), e(d.poisson(75.0), 1.0), Dispersion::POISSON).interval.contains(1.5)
        })
        .count();
    assert!((4_700..4_800).contains(&held), "{held} of 5000");
}

#[test]
fn welch_is_uniform_and_finds_what_is_there() {
    let mut d = Dice(5);
    let runs =
        |d: &mut Dice, n: usize, mean: f64, sd: f64| -> Vec<f64> { (0..n).map(|_| mean + sd * d.normal()).collect() };
    let ps: Vec<f64> =
        (0..10_000).map(|_| welch(&runs(&mut d, 8, 10.0, 1.0), &runs(&mut d, 10, 10.0, 1.5)).2).collect();
    assert_uniform(&ps);
    let (difference, interval, p) = welch(&[1.0, 1.1, 0.9, 1.0], &[2.0, 2.1, 1.9, 2.0]);
    assert!((difference - 1.0).abs() < 1e-9 && interval.contains(1.0) && p < 1e-4);
}

#[test]
fn too_little_data_proves_nothing() {
    assert_eq!(log_ratio(e(0.0, 1.0), e(0.0, 1.0), Dispersion::POISSON).p, 1.0);
    assert_eq!(log_ratio(e(5.0, 0.0), e(5.0, 1.0), Dispersion::POISSON), Comparison::UNKNOWN);
    assert_eq!(welch(&[1.0], &[2.0, 3.0]).2, 1.0);
    assert!(log_ratio(e(0.0, 1.0), e(1.0, 1.0), Dispersion::POISSON).p > 0.2);
    let new = log_ratio(e(0.0, 1.0), e(50.0, 1.0), Dispersion::POISSON);
    assert!(new.ratio.is_infinite() && new.interval.low > 5.0 && new.p < 1e-10);
}

proptest! {
    #[test]
    fn swapping_sides_inverts_the_ratio(a in 0.0..1e6_f64, b in 0.0..1e6_f64, x in 0.01..1e3_f64, y in 0.01..1e3_f64, f in 1.0..50.0_f64) {
        let d = Dispersion { factor: f, degrees: 10.0 };
        let (ab, ba) = (log_ratio(e(a, x), e(b, y), d), log_ratio(e(b, y), e(a, x), d));
        prop_assert!((ab.p - ba.p).abs() < 1e-6);
        prop_assert!((0.0..=1.0).contains(&ab.p));
        prop_assert!(ab.interval.low <= ab.ratio && ab.ratio <= ab.interval.high);
        if a > 1.0 && b > 1.0 {
            prop_assert!((ab.ratio * ba.ratio - 1.0).abs() < 1e-9);
        }
    }
}

#[test]
fn what_a_machine_does_to_both_runs_of_a_pair_cancels() {
    let old = [100.0, 140.0, 90.0, 120.0];
    let new = [90.0, 129.0, 81.0, 108.0];
    let (difference, interval) = paired(&old, &new);
    assert!((difference + 10.5).abs() < 1e-9);
    // Deviation 1.29, four pairs.
    assert!((interval.high - interval.low - 2.0 * 3.182 * 1.291 / 2.0).abs() < 0.01, "{interval:?}");
    assert!(welch(&old, &new).1.high > 0.0, "by themselves they tell nothing");
    assert!(paired(&old[..1], &new[..1]).1.high.is_infinite());
}
