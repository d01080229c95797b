//! Known curves with noise of known kinds: the estimates meet them, and their intervals hold as often as they
//! promise.

use super::*;
use proptest::prelude::*;

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

const METHOD: Method = Method { assume: 0.3, confidence: 0.95, draws: 400, bends: false, robust: true, seed: 1 };

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
    type Curve = fn(f64) -> f64;
    let curves: [(&str, Curve); 4] =
        [("line", |s| 0.6 * s), ("nothing", |_| 0.0), ("knee", |s| s.min(0.25)), ("down", |s| -0.2 * s)];
    for (name, y) in curves {
        let (at, end, half) = coverage(300, 60, y, 0.03);
        // 95 of 100, less three deviations of 300 runs and a little for wild windows that are none; more for what no window takes away.
        assert!(at >= 0.91 && end >= 0.9, "{name}: {at} {end}");
        assert!(half < 0.03, "{name}: {half}");
    }
}

#[test]
fn shapes_are_told_apart() {
    let kinds = |y: fn(f64) -> f64| -> Vec<FitKind> {
        let data = |seed| windows(&mut Random::new(seed), 80, y, 0.02);
        (0..40).map(|seed| estimate(&data(seed), &Method { draws: 0, ..METHOD }).unwrap().fit.kind).collect()
    };
    let count = |kinds: &[FitKind], kind| kinds.iter().filter(|k| **k == kind).count();
    assert!(count(&kinds(|_| 0.0), FitKind::Nothing) >= 28);
    assert!(count(&kinds(|s| 0.5 * s), FitKind::Line) >= 28);
    assert_eq!(count(&kinds(|s| s.min(0.4)), FitKind::Knee), 40);
}

#[test]
fn knees_are_found_with_their_interval() {
    let data = windows(&mut Random::new(3), 120, |s| s.min(0.4), 0.02);
    let fit = estimate(&data, &METHOD).unwrap().fit;
    let (low, high) = (fit.knee_low.unwrap(), fit.knee_high.unwrap());
    assert!(low <= 40.0 && 40.0 <= high && high - low < 15.0, "{fit:?}");
    assert!((fit.slope - 1.0).abs() < 0.1 && fit.slope_after.unwrap().abs() < 0.1, "{fit:?}");
}

/// Twenty windows with speed-up, one of each amount. At 50 %, told as 45 (43 to 48) of a program like that.
#[test]
fn knees_of_amounts_with_a_window_each_lie_in_their_interval() {
    let mut held = 0;
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut amounts: Vec<u8> = (0..9).map(|_| 5 * (1 + random.below(20)) as u8).collect();
        amounts.extend([10, 45, 50, 100]);
        let of = |percent: u8| {
            let value = (1.0 - 0.8 * (f64::from(percent) / 100.0).min(0.5)) * (1.0 + 0.025 * random.normal());
            Observation { percent, value, weight: 1.0, hits: 6.0, visits: 20.0 }
        };
        let data: Vec<_> = [0; 11].iter().chain(&amounts).copied().map(of).collect();
        let fit = estimate(&data, &Method { seed, ..METHOD }).unwrap().fit;
        // A line has no knee that could be told wrongly.
        held += usize::from(fit.knee_low.is_none_or(|low| low <= 50.0 && Some(50.0) <= fit.knee_high));
    }
    assert!(held >= 184, "{held}");
}

/// A knee at 30 % between a writer and a reader of a pipe was told as "28 to 28": the place was the nearest of those that are tried.
#[test]
fn a_knee_between_the_places_that_are_tried_lies_in_its_interval() {
    let (mut told, mut held) = (0, 0);
    for seed in 0..40 {
        let knee = 25.3 + (seed % 20) as f64;
        let data = windows(&mut Random::new(seed), 120, |s| s.min(knee / 100.0), 0.006);
        let fit = estimate(&data, &Method { seed, ..METHOD }).unwrap().fit;
        let Some((low, high)) = fit.knee_low.zip(fit.knee_high) else { continue };
        told += 1;
        held += usize::from(low <= knee && knee <= high && high - low < 10.0);
    }
    assert!(told >= 30 && held * 20 >= told * 19, "{held} of {told}");
}

/// What a queue before one server saves: arrivals at random, service always as long, 0.52 busy, 39 % of the service in
/// the target. A straight line said 13.7 \u{b1}3.8 % at 30 %, where it is 18.9.
#[test]
fn latencies_of_a_queue_are_told_by_lines_that_bend() {
    let latency = |s: f64| {
        let service = 1.0 - 0.386 * s;
        service + 0.52 * service * service / (2.0 * (1.0 - 0.52 * service))
    };
    let y = |s: f64| 1.0 - latency(s) / latency(0.0);
    let held = |bends: bool, noise: f64| {
        let mut held = 0;
        for seed in 0..200 {
            let data = windows(&mut Random::new(seed), 120, y, noise);
            let (low, high) = estimate(&data, &Method { bends, seed, ..METHOD }).unwrap().assumed.interval(1);
            held += usize::from(low <= y(0.3) && y(0.3) <= high);
        }
        held
    };
    let straight = held(false, 0.06);
    let (noisy, clear) = (held(true, 0.15), held(true, 0.03));
    assert!(noisy >= 184 && clear >= 184, "{noisy} {clear}");
    assert!(held(true, 0.06) >= 184 && straight < 175, "{straight}");
    let data = windows(&mut Random::new(1), 400, y, 0.03);
    let fit = estimate(&data, &Method { bends: true, ..METHOD }).unwrap().fit;
    assert!(fit.bend.is_some() && (fit.at(30.0) - y(0.3)).abs() < 0.01, "{fit:?} {}", y(0.3));
}

/// Amounts of 45 % and more of a program whose knee is at 37.5: told as +25 ±2 % at 30 %, where it is 30.
#[test]
fn a_knee_below_the_first_amount_leaves_open_how_steep_the_curve_was() {
    let only = |amounts: &'static [u8], y: fn(f64) -> f64| {
        let mut random = Random::new(7);
        let of = move |percent: u8| {
            let value = (1.0 - y(f64::from(percent) / 100.0)) * (1.0 + 0.02 * random.normal());
            Observation { percent, value, weight: 1.0, hits: 6.0, visits: 20.0 }
        };
        let data: Vec<_> = [0, 0, 0].iter().chain(amounts).copied().cycle().take(70).map(of).collect();
        estimate(&data, &METHOD).unwrap()
    };
    let flat = |s: f64| s.min(0.375);
    let found = only(&[45, 50, 65, 80], flat);
    let (low, high) = found.assumed.interval(1);
    assert!((0.2..0.26).contains(&low) && (0.3..0.35).contains(&high), "{low} {high}");
    assert!(found.fit.knee_low < Some(40.0) && found.fit.knee_high >= Some(45.0), "{:?}", found.fit);
    // Between the effect there and that amount; what was drawn until there is told again.
    let knee = found.fit.knee.unwrap();
    assert!((37.0..45.0).contains(&knee), "{:?}", found.fit);
    assert!((found.fit.at(45.0) - 0.375).abs() < 0.02, "{:?}", found.fit);
    // One on the way up has nothing to do with it: the curve was told to end at its effect.
    let found = only(&[15, 45, 65, 80], flat).fit;
    assert!((found.at(60.0) - 0.375).abs() < 0.03 && found.knee > Some(25.0), "{found:?}");
    // An amount on the way up, and a curve that still rises, leave nothing open.
    for told in [only(&[15, 45, 65, 80], flat), only(&[45, 50, 65, 80], |s| 0.6 * s)] {
        let told = told.assumed;
        let (low, high) = told.interval(1);
        assert!(told.unseen < 0.01 && high - low < 0.08, "{told:?}");
    }
}

#[test]
fn what_the_sampler_did_by_chance_is_taken_out() {
    // More hits than usual insert more delay than the amount stands for.
    let noisy = |random: &mut Random| {
        let mut data = windows(random, 60, |s| 0.6 * s, 0.003);
        for o in &mut data {
            let luck = 0.1 * random.normal();
            o.hits *= 1.0 + luck;
            o.value -= 0.6 * o.s() * luck;
        }
        data
    };
    let half = |robust| {
        let e = estimate(&noisy(&mut Random::new(5)), &Method { robust, ..METHOD }).unwrap();
        e.assumed.interval(1).1 - e.assumed.y
    };
    assert!(half(true) < 0.6 * half(false), "{} {}", half(true), half(false));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_windows_give_finite_answers_or_none(
        data in prop::collection::vec((0..=20_u8, -1.0..3.0_f64, 0.01..50.0_f64, 0.0..100.0_f64), 0..40)
    ) {
        let data: Vec<Observation> = data.into_iter()
            .map(|(p, value, weight, hits)| Observation { percent: 5 * p, value, weight, hits, visits: 9.0 }).collect();
        if let Some(e) = estimate(&data, &Method { draws: 20, ..METHOD }) {
            prop_assert!(e.assumed.y.is_finite() && e.curve.iter().all(|p| p.low <= p.high || p.low.is_nan()));
        }
    }
}

/// As windows of blocks are planned: two of three of those with a speed-up are close to 30 %.
fn planned(random: &mut Random, n: usize, y: impl Fn(f64) -> f64, noise: f64) -> Vec<Observation> {
    let all: Vec<u8> = (1..=20).map(|i| 5 * i).collect();
    let (near, far): (Vec<u8>, Vec<u8>) = all.iter().partition(|p| (15..=45).contains(*p));
    let window = |i: usize| {
        let percent = match i % 5 {
            1 | 3 => near[random.below(near.len())],
            4 => far[random.below(far.len())],
            _ => 0,
        };
        let value = (1.0 - y(f64::from(percent) / 100.0)) * (1.0 + noise * random.normal());
        Observation { percent, value, weight: 1.0, hits: 6.0, visits: 20.0 }
    };
    (0..n).map(window).collect()
}

/// Curves that are neither lines nor knees: work thrown away the more often, the faster it is made void (told as -28 to -43 % for
/// -17); transactions that fail less when they are shorter (31 ±3 for 38); a queue. And one that ends close behind 30 %.
#[test]
fn curves_of_other_shapes_are_told_at_the_amount_of_interest() {
    type Curve = fn(f64) -> f64;
    let curves: [(&str, Curve, f64); 4] = [
        ("void", |s| if s < 0.7 { -s / (3.0 - 4.0 * s) } else { -2.0 + s }, 0.12),
        ("transactions", |s| 1.0 - (1.0 - s) * (-0.4 * s).exp(), 0.05),
        ("queue", |s| 1.5 * s / (1.0 + 2.0 * s), 0.06),
        ("ends", |s| 0.6 * s.min(0.33), 0.08),
    ];
    for (name, y, widest) in curves {
        let (mut held, mut off, mut half) = (0, 0.0, 0.0);
        for seed in 0..100 {
            let data = planned(&mut Random::new(seed), 60, y, 0.05);
            let e = estimate(&data, &Method { seed, draws: 200, ..METHOD }).unwrap();
            let (low, high) = e.assumed.interval(1);
            held += u32::from(low <= y(0.3) && y(0.3) <= high);
            off += (e.assumed.y - y(0.3)) / 100.0;
            half += (high - low) / 200.0;
        }
        assert!(held >= 83 && off.abs() < 0.025 && half < widest, "{name}: {held} {off} {half}");
    }
}

/// A dozen windows of a program that something else limits behind a knee: intervals of 4.8 and 5.0 points either way were told, since
/// each draw's stray was measured with the error of the shape that it happened to choose.
#[test]
fn few_windows_of_a_knee_are_told_as_well_as_they_can_be() {
    for knee in [0.2, 0.25] {
        let (mut held, mut half) = (0, 0.0);
        for seed in 0..200 {
            let y = |s: f64| s.min(knee);
            let data = planned(&mut Random::new(9000 + seed), 14, y, 0.02);
            let told = estimate(&data, &Method { seed, ..METHOD }).unwrap().assumed;
            let (low, high) = told.interval(1);
            held += u32::from(low <= y(0.3) && y(0.3) <= high);
            half += (high - low) / 400.0;
        }
        assert!(held >= 182 && half < 0.038, "{knee}: {held} {half}");
    }
}
