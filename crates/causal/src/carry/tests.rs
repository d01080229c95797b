//! Windows with and without traces of those before them.

use super::*;
use crate::options::{PolicyOptions, Step};
use crate::policy::Policy;
use whither_stats::random::Random;
use whither_store::causal::PointVisits;

fn window(percent: u8, at: u64, period_ns: f64) -> Window {
    let visits = 101;
    let last_virtual_ns = (period_ns * 100.0) as i64;
    let visits = PointVisits { visits, last_ns: 1, last_virtual_ns, ..PointVisits::default() };
    Window { percent, begin_ns: at, wall_ns: 100_000_000, visits: vec![visits], ..Window::default() }
}

/// Windows of a program that gains `min(s, 0.4)`, where those after a gain are faster by this part of it.
fn windows(n: usize, trace: f64, noise: f64, seed: u64) -> Vec<Window> {
    let mut random = Random::new(seed);
    let mut left = 0.0;
    let mut all = Vec::new();
    for i in 0..n {
        let percent = if random.chance(0.5) { 0 } else { [15, 30, 60, 90][random.below(4)] };
        let y = (f64::from(percent) / 100.0_f64).min(0.4);
        let trace = if y < 0.4 { 1.0 - trace * left } else { 1.0 };
        let period = 1e6 * (1.0 - y) * trace * (1.0 + noise * random.normal());
        all.push(window(percent, i as u64 * 140_000_000, period));
        left = y;
    }
    all
}

fn found(all: &[Window]) -> Option<Carried> {
    carried(&followed(all, |_| true))
}

#[test]
fn traces_are_found_with_their_size() {
    let found = found(&windows(200, 0.2, 0.02, 1)).unwrap();
    // On average the window before gains 0.14 (half of the windows are zeros, 60 and 90 % gain 0.4), of which a fifth is left.
    assert!(found.matters() && (found.bias + 0.2 * 0.156).abs() < 0.012, "{found:?}");
}

#[test]
fn noise_is_no_trace() {
    let alarms = (0..200).filter(|seed| found(&windows(150, 0.0, 0.03, *seed)).is_some_and(|c| c.matters())).count();
    assert!(alarms <= 1, "{alarms} of 200");
}

#[test]
fn too_few_windows_and_windows_without_effect_say_nothing() {
    assert_eq!(found(&windows(12, 0.2, 0.02, 1)), None);
    let flat: Vec<Window> = (0..60).map(|i| window(0, i, 1e6)).collect();
    assert_eq!(found(&flat), None);
}

#[test]
fn windows_that_had_too_little_time_are_left_out_where_enough_remain() {
    let mut all = windows(60, 0.0, 0.02, 1);
    all.iter_mut().skip(30).for_each(|w| w.stratum = SETTLED);
    assert_eq!(settled_from(&all, |_| true), SETTLED);
    assert_eq!(settled_from(&all, |w| w.percent > 60), 0);
    assert_eq!(settled_from(&all[..30], |_| true), 0);
}

#[test]
fn the_policy_gives_more_time_until_nothing_is_seen() {
    let mut policy = Policy::new(PolicyOptions { fixed_target: Some(0), ..PolicyOptions::default() });
    policy.sampled(0, Some(0), 300);
    let (mut random, mut now, mut left, mut settles) = (Random::new(5), 0, 0.0, Vec::new());
    while settles.len() < 300 {
        match policy.next(now, &[1000.0]) {
            Step::Window(order) => {
                let y = (f64::from(order.percent) / 100.0_f64).min(0.4);
                // What is left of the window before fades with the time to settle.
                let trace = 0.4 * left * (-(order.settle_ns as f64) / 40e6).exp();
                let period =
                    1e6 * (1.0 - y) * (if y < 0.4 { 1.0 - trace } else { 1.0 }) * (1.0 + 0.02 * random.normal());
                let window = Window { stratum: order.stratum, ..window(order.percent, now, period) };
                policy.finished(&window);
                settles.push(order.settle_ns / 1_000_000);
                now += order.settle_ns + order.min_ns;
                left = y;
            }
            Step::Rest { ns } | Step::Warm { ns } => now += ns,
            Step::Done(_) => break,
        }
    }
    assert_eq!((settles[0], settles[299]), (33, 100), "{settles:?}");
}

#[test]
fn further_experiments_keep_their_time_to_settle() {
    assert_eq!(strata_behind([].into_iter()), 0);
    assert_eq!(strata_behind([0, 1, 12].into_iter()), 13);
    // The first recording needed more time; the second one began with the usual one.
    let behind = strata_behind([0, 3, 1000, 1001].into_iter());
    assert_eq!((behind, settle(behind), settle(SETTLED + behind)), (4, SETTLE[0], SETTLE[1]));
}

/// Windows of 100 ms of a program that gains `min(s, 0.4)`: beyond that the first `burst` of the window passes at the full speed-up,
/// since a queue that was full is emptied.
fn bursts(n: usize, burst: f64, seed: u64) -> Vec<Window> {
    let mut random = Random::new(seed);
    let window = |i: usize| {
        let percent = if random.chance(0.5) { 0 } else { [15, 30, 60, 90][random.below(4)] };
        let s = f64::from(percent) / 100.0_f64;
        let (fast, slow) = (1e6 * (1.0 - s), 1e6 * (1.0 - s.min(0.4)));
        let (mut now, mut stamps) = (0.0, Vec::new());
        while now < 100e6 {
            stamps.push(now);
            let period = if now < burst * 100e6 { fast } else { slow };
            now += period * (1.0 + 0.2 * random.normal()).max(0.1);
        }
        let visits = PointVisits {
            visits: stamps.len() as u64,
            last_ns: 1,
            first_virtual_ns: stamps[0] as i64,
            last_virtual_ns: stamps[stamps.len() - 1] as i64,
            sum_virtual_ns: stamps.iter().sum::<f64>() as i64,
            ..PointVisits::default()
        };
        Window {
            percent,
            begin_ns: i as u64 * 140_000_000,
            wall_ns: 100_000_000,
            visits: vec![visits],
            ..Window::default()
        }
    };
    (0..n).map(window).collect()
}

#[test]
fn a_queue_that_is_emptied_within_windows_is_seen_and_its_size_told() {
    let found = |burst| unsettled(&followed(&bursts(120, burst, 3), |_| true)).unwrap();
    let emptied = found(0.3);
    // At 60 and 90 % speed-up 30 % of the window hold 30 * (1/0.4 - 1/0.6) and 30 * (1/0.1 - 1/0.6) visits too many.
    assert!(emptied.matters() && emptied.bias < -0.2, "{emptied:?}");
    assert!(!found(0.0).matters(), "{:?}", found(0.0));
    assert!(traces(&followed(&bursts(120, 0.3, 3), |_| true)).unwrap().may_matter());
}

#[test]
fn even_paces_are_no_trace() {
    let alarms =
        (0..200).filter(|seed| unsettled(&followed(&bursts(80, 0.0, *seed), |_| true)).is_some_and(|c| c.matters()));
    let alarms = alarms.count();
    assert!(alarms <= 2, "{alarms} of 200");
}
