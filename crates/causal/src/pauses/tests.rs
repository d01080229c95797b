//! A program that visits steadily and pauses now and then, cut into windows.

use super::*;
use whither_stats::random::Random;
use whither_store::causal::PointVisits;

const MS: f64 = 1e6;

/// Times of visits: every 2 ms, and after each 400 of them a pause.
fn visits(pause_ms: f64) -> Vec<f64> {
    let mut at = 0.0;
    let step = |i: u32| {
        at += 2.0 * MS + if i.is_multiple_of(400) { pause_ms * MS } else { 0.0 };
        at
    };
    (1..=30_000).map(step).collect()
}

/// `n` windows of such a length at any times.
fn windows(visits: &[f64], length_ms: f64, n: usize) -> Vec<Window> {
    let mut random = Random::new(7);
    let end = visits.last().copied().unwrap() - length_ms * MS;
    let window = |_| {
        let begin = random.unit() * end;
        // A window lasts until there are five.
        let visits: Vec<f64> = visits.iter().map(|v| v - begin).skip_while(|v| *v < 0.0).take(10_000).collect();
        let length = (length_ms * MS).max(visits.get(4).copied().unwrap_or(0.0).min(2.0 * length_ms * MS));
        let within: Vec<f64> = visits.into_iter().take_while(|v| *v <= length).collect();
        let (first, last) = (within.first().copied().unwrap_or(0.0), within.last().copied().unwrap_or(0.0));
        let count = within.len() as u64;
        let visits = vec![PointVisits {
            visits: count,
            first_ns: first as u64,
            last_ns: last as u64,
            first_virtual_ns: first as i64,
            last_virtual_ns: last as i64,
            ..PointVisits::default()
        }];
        Window { wall_ns: length as u64, visits, ..Window::default() }
    };
    // Those that count.
    (0..n).map(window).filter(|w| w.visits[0].visits > 1).collect()
}

fn seen(visits: &[f64], length_ms: f64, n: usize) -> Option<Pauses> {
    Pauses::of(windows(visits, length_ms, n).iter(), 0)
}

#[test]
fn pauses_as_long_as_windows_are_seen_with_their_part_of_the_time() {
    let short = seen(&visits(150.0), 100.0, 600).unwrap();
    // 400 visits in 950 ms; between visits of one window there are only 2 ms.
    assert!(short.least < 0.158 && short.most > 0.158, "{short:?}");
    assert!(short.wanted_ns().is_some_and(|ns| ns > 500_000_000), "{short:?}");
    assert!(short.told().contains("longer windows help (--window 1s)"), "{}", short.told());
    // Of pauses much longer than windows these see the ends.
    let long = seen(&visits(1000.0), 100.0, 600).unwrap();
    assert!(long.part < 0.4 && long.wanted_ns().is_some_and(|ns| ns > 700_000_000), "{long:?}");
}

#[test]
fn long_windows_hold_most_of_a_pause_and_are_not_made_longer_still() {
    let long = seen(&visits(150.0), 1600.0, 130);
    assert!(long.is_none_or(|p| p.part < 0.03 && p.wanted_ns().is_none()), "{long:?}");
    assert_eq!(seen(&visits(0.0), 100.0, 130), None);
    assert_eq!(seen(&visits(8.0), 100.0, 130), None);
}

#[test]
fn visits_at_random_pause_for_nothing() {
    let mut random = Random::new(3);
    let mut at = 0.0;
    let times: Vec<f64> = (0..30_000)
        .map(|_| {
            at -= 10.0 * MS * random.unit().max(1e-9).ln();
            at
        })
        .collect();
    for length_ms in [100.0, 300.0] {
        assert_eq!(seen(&times, length_ms, 200), None, "{length_ms}");
    }
}

#[test]
fn intervals_hold_a_pause_that_is_all_of_the_target_and_one_that_is_none() {
    let pauses = seen(&visits(150.0), 100.0, 600).unwrap();
    let holds = |(low, high): (f64, f64), y: f64| low < y && y < high;
    // What runs between pauses takes 84 % of the time, what runs in them the rest.
    assert!(holds(pauses.interval(30, (0.29, 0.31)), 0.3 * 0.842));
    assert!(holds(pauses.interval(30, (-0.01, 0.01)), 0.3 * 0.158));
    assert!((pauses.effect(30, 0.3) - 0.276).abs() < 0.01, "{}", pauses.effect(30, 0.3));
}

#[test]
fn windows_made_longer_for_pauses_count_alone() {
    let mut all = windows(&visits(150.0), 100.0, 40);
    all.extend(windows(&visits(150.0), 800.0, 20));
    let kept: Vec<&Window> = all.iter().collect();
    let count = |kept: &[&Window]| kept.iter().filter(|w| w.wall_ns >= shortest(kept)).count();
    assert_eq!(count(&kept), 20);
    assert_eq!(count(&kept[..45]), 45, "too few of them");
    // Where nothing is cut off, lengths do not matter.
    let mut steady = windows(&visits(0.0), 100.0, 40);
    steady.extend(windows(&visits(0.0), 800.0, 20));
    let kept: Vec<&Window> = steady.iter().collect();
    assert_eq!(count(&kept), 60);
}
