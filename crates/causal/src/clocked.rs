//! Whether the clock decides when a point is visited: frames, ticks, polls at fixed times. Such a program waits out whatever
//! it saves, so a change gains no rate; how it waits (a timer's descriptor, a deadline, a sleep for what remains) the kernel
//! side cannot see in each case. Here it is told by the visits alone: those of a clock stay on its beat over the whole run,
//! while the lengths of rounds that follow from one another add up their chances.
//!
//! Measured with 57 recordings: programs paced in four ways stayed within 0.02 to 0.04 periods of the beat over 2,100 periods,
//! the others were off by 0.4 periods and more.

use whither_store::causal::Window;

/// Fewer windows tell nothing.
const ENOUGH: usize = 20;
/// Lengths of windows that the run must span: over fewer, regular rounds would stay in step by chance.
const SPAN: f64 = 60.0;
/// Part of a period by which visits may be off the beat.
const OFF_BEAT: f64 = 0.1;
/// How far off they may be over the run against within a window: chances that add up make it the square root of a twelfth of the
/// windows' lengths that the run spans, 2.2 and more.
const NO_WORSE: f64 = 1.2;
/// Part of the windows that may have a beat too few or too many.
const MISSED: f64 = 0.05;

/// The length of the clock's beat in nanoseconds, if the first point is visited on each. Of windows without speed-up, of one run,
/// as delays move visits.
pub(crate) fn beat_ns(windows: &[&Window]) -> Option<f64> {
    let spans = spans(windows);
    let (first, last) = (spans.first()?, spans.last()?);
    let within: f64 = spans.iter().map(|s| s.steps).sum::<f64>() / spans.len() as f64;
    let guess = median(spans.iter().map(|s| (s.to - s.from) / s.steps).collect())?;
    if spans.len() < ENOUGH || (last.to - first.from) / guess < SPAN * within {
        return None;
    }
    let beats = beats(&spans, guess);
    let (period, off) = line(&beats)?;
    let inside = spans.iter().map(|s| (s.to - s.from - period * s.steps).powi(2)).sum::<f64>() / spans.len() as f64;
    let missed = spans.iter().filter(|s| ((s.to - s.from) / period).round() != s.steps).count();
    let on_beat = off < OFF_BEAT * period && off < NO_WORSE * inside.sqrt();
    (on_beat && missed as f64 <= MISSED * spans.len() as f64).then_some(period)
}

/// First and last visit of a window, nanoseconds, and the periods between them.
struct Span {
    from: f64,
    to: f64,
    steps: f64,
}

fn spans(windows: &[&Window]) -> Vec<Span> {
    let Some(run) = windows.first().map(|w| w.run) else { return Vec::new() };
    let base = windows.iter().map(|w| w.begin_ns).min().unwrap_or(0);
    let of = |w: &&Window| {
        let v = w.visits.iter().find(|v| v.point == 0).filter(|v| v.visits >= 3 && v.last_ns > v.first_ns)?;
        let begin = (w.begin_ns - base) as f64;
        Some(Span { from: begin + v.first_ns as f64, to: begin + v.last_ns as f64, steps: (v.visits - 1) as f64 })
    };
    let mut spans: Vec<Span> = windows.iter().filter(|w| w.percent == 0 && w.run == run).filter_map(of).collect();
    spans.sort_by(|a, b| a.from.total_cmp(&b.from));
    spans
}

/// Times of first and last visits with the beat that each would be, counted from the first; the period is learnt on the way, so
/// that it is known well enough to pass over the time between windows.
fn beats(spans: &[Span], guess: f64) -> Vec<(f64, f64)> {
    let (mut period, mut beat) = (guess, 0.0);
    let mut out: Vec<(f64, f64)> = Vec::with_capacity(2 * spans.len());
    for span in spans {
        for at in [span.from, span.to] {
            if let (Some(before), Some(first)) = (out.last(), out.first()) {
                beat += ((at - before.1) / period).round();
                if beat > 0.0 {
                    period = (at - first.1) / beat;
                }
            }
            out.push((beat, at));
        }
    }
    out
}

/// The period that fits best, and the standard deviation of what is off.
fn line(beats: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = beats.len() as f64;
    let (x, y) = beats.iter().fold((0.0, 0.0), |(x, y), b| (x + b.0 / n, y + b.1 / n));
    let (xx, xy) = beats.iter().fold((0.0, 0.0), |(xx, xy), b| (xx + (b.0 - x).powi(2), xy + (b.0 - x) * (b.1 - y)));
    let period = (xx > 0.0).then(|| xy / xx).filter(|p| *p > 0.0)?;
    let off = beats.iter().map(|b| (b.1 - y - period * (b.0 - x)).powi(2)).sum::<f64>() / n;
    Some((period, off.sqrt()))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::causal::PointVisits;

    /// Windows of 100 ms, 5 ms apart, over a program whose visits come at these times.
    fn windows(visits: &[f64]) -> Vec<Window> {
        let mut all = Vec::new();
        let (mut begin, mut next) = (0.0, 0);
        while next < visits.len() {
            let end = begin + 100e6;
            let from = visits.partition_point(|v| *v < begin);
            next = visits.partition_point(|v| *v < end);
            if next > from + 2 {
                let stamp = |i: usize| (visits[i] - begin) as u64;
                let of = PointVisits {
                    visits: (next - from) as u64,
                    first_ns: stamp(from),
                    last_ns: stamp(next - 1),
                    ..PointVisits::default()
                };
                all.push(Window {
                    begin_ns: 7_000_000 + begin as u64,
                    wall_ns: 100_000_000,
                    visits: vec![of],
                    ..Window::default()
                });
            }
            begin = end + 5e6;
        }
        all
    }

    fn dice() -> impl FnMut() -> f64 {
        let mut state = 7_u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1 << 24) as f64
        }
    }

    fn beat(visits: &[f64]) -> Option<f64> {
        let all = windows(visits);
        beat_ns(&all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn visits_on_the_beat_of_a_clock_are_told() {
        let mut dice = dice();
        let clock: Vec<f64> = (0..2000).map(|i| f64::from(i) * 5e6 + 300e3 * dice()).collect();
        let found = beat(&clock).unwrap();
        assert!((found - 5e6).abs() < 1e3, "{found}");
        assert!(beat(&clock[..1000]).is_none(), "too short to be told from chance");
    }

    #[test]
    fn rounds_that_follow_from_one_another_are_none() {
        // Work of 3 ms, a sleep of 2: as regular as sleeps are, to within 60 us, and far less regular.
        for spread in [120e3, 1e6] {
            let mut dice = dice();
            let visits: Vec<f64> = (0..4000)
                .scan(0.0, |at, _| {
                    *at += 5e6 + spread * dice();
                    Some(*at)
                })
                .collect();
            assert_eq!(beat(&visits), None, "{spread}");
        }
    }

    /// It waits for the beat, and when its work takes longer it has no time to wait: that can be made faster.
    #[test]
    fn a_clock_that_is_missed_now_and_then_does_not_decide() {
        let mut dice = dice();
        let visits = (0..3000).filter(|_| dice() > 0.1).map(|i| f64::from(i) * 5e6).collect::<Vec<_>>();
        assert_eq!(beat(&visits), None);
        assert_eq!(beat_ns(&[]), None);
    }
}
