//! Known curves with noise of known kinds: the estimates meet them, and their intervals hold as often as they
//! promise.

use super::*;

/// Windows of a program whose true curve is `y`; `noise` is the deviation of a window.
fn windows(random: &mut Random, n: usize, y: impl Fn(f64) -> f64, noise: f64) -> Vec<Observation> {
    (0..n)
        .map(|i| {
            let percent = if i % 2 == 0 { 0 } else { 5 * (1 + random.below(20)) as u8 };
            let s = f64::from(percent) / 100.0;
            let value = (1.0 - y(s)) * (1.0 + noise * random.normal());
            Observation { percent, value, weight: 1.0, hits: 6.0, visits: 20.0 }
        })
        .collect()
}

const METHOD: Method = Method { assume: 0.3, confidence: 0.95, draws: 400, robust: true, seed: 1 };

/// Share of runs in which the intervals at 30 % and at the largest amount hold the truth.
fn coverage(runs: u64, n: usize, y: impl Fn(f64) -> f64 + Copy, noise: f64) -> (f64, f64, f64) {
    let (mut at, mut end, mut width) = (0.0, 0.0, 0.0);
    for seed in 0..runs {
        let data = windows(&mut Random::new(1000 + seed), n, y, noise);
        let e = estimate(&data, &Method { seed, ..METHOD }).unwrap();
        let holds = |effect: Effect, s: f64| {
            let (low, high) = effect.interval(1);
            f64::from(u8::from(low <= y(s) && y(s) <= high))
        };
        at += holds(e.assumed, 0.3);
        end += holds(e.largest, f64::from(e.largest_percent) / 100.0);
        let (low, high) = e.assumed.interval(1);
        width += (high - low) / 2.0;
    }
    let n = runs as f64;
    (at / n, end / n, width / n)
}

#[test]
fn intervals_hold_as_often_as_they_say() {
    for n in [20, 40, 80] {
        for (name, y) in [
            ("line", (|s| 0.6 * s) as fn(f64) -> f64),
            ("nothing", |_| 0.0),
            ("knee", |s: f64| s.min(0.25)),
            ("late knee", |s: f64| s.min(0.6)),
            ("down", |s| -0.2 * s),
        ] {
            let (at, end, width) = coverage(400, n, y, 0.03);
            println!("{n:3} {name:10} {at:.3} {end:.3} half-width {width:.4}");
        }
    }
}
