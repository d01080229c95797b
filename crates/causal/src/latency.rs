//! Latency between two points by Little's law, averaged over time: the area under the number of requests under
//! way, divided by arrivals. No request is followed, no order is assumed. It holds for stable queues only, so a
//! queue that grows has no figure.

use crate::analyse::Analysis;
use crate::quality::trend;
use crate::results::{Fit, LatencyRow};
use crate::series::{Baselines, Measure, under_way, value};
use crate::turns::Pace;

/// One row per pair and target that was measured.
pub(crate) fn rows(analysis: &Analysis<'_>) -> Vec<LatencyRow> {
    let points = analysis.run.points.iter().enumerate();
    let pairs = points.filter_map(|(begin, p)| Some((begin as u32, p.end?)));
    pairs.flat_map(|(begin, end)| pair(analysis, begin, end)).collect()
}

fn pair(analysis: &Analysis<'_>, begin: u32, end: u32) -> Vec<LatencyRow> {
    let name = |point: u32| analysis.run.points.get(point as usize).map_or("?", |p| p.name.as_str());
    let measure = Measure::Latency(begin, end);
    let zeros = analysis.kept.iter().filter(|w| w.percent == 0);
    let queue: Vec<(f64, f64)> =
        zeros.clone().filter_map(|w| Some((w.begin_ns as f64, under_way(w, begin, end)?))).collect();
    let sums = zeros.filter_map(|w| value(w, measure)).fold((0.0, 0.0), |(t, n), (v, k)| (t + v * k, n + k));
    let average = queue.iter().map(|q| q.1).sum::<f64>() / queue.len().max(1) as f64;
    let whole = LatencyRow {
        begin,
        end,
        name: format!("{} to {}", name(begin), name(end)),
        target: None,
        target_name: String::new(),
        mean_ns: if sums.1 > 0.0 { sums.0 / sums.1 } else { 0.0 },
        under_way: average,
        curve: Vec::new(),
        fit: Fit::NOTHING,
        gain: None,
        cannot_say: unstable(&queue, average),
    };
    let baselines = Baselines::new(analysis.kept.iter().copied(), measure);
    let mut targets: Vec<u32> = analysis.by_target.keys().copied().collect();
    targets.sort_unstable();
    let mut rows: Vec<LatencyRow> = targets
        .into_iter()
        .filter(|_| whole.cannot_say.is_none())
        .filter_map(|target| {
            let estimate = analysis.estimate(target, measure, &baselines)?;
            Some(LatencyRow {
                target: Some(target),
                target_name: analysis.run.targets.get(target as usize).map(|t| t.name.clone()).unwrap_or_default(),
                curve: analysis.curve(target, &estimate, measure),
                fit: estimate.fit,
                gain: Some(analysis.gain(target, &estimate, 1, measure)),
                cannot_say: Pace::of(analysis, target).and_then(Pace::cannot_say),
                ..whole.clone()
            })
        })
        .collect();
    rows.sort_by(|a, b| b.gain.map_or(0.0, |g| g.low).total_cmp(&a.gain.map_or(0.0, |g| g.low)));
    rows.insert(0, whole);
    rows
}

/// Why the law does not hold.
fn unstable(queue: &[(f64, f64)], average: f64) -> Option<String> {
    if queue.len() < 3 || average <= 0.0 {
        return Some("too few requests in windows without speed-up".to_owned());
    }
    let grows = trend(queue).is_some_and(|(change, certain)| certain && change > 0.5);
    grows.then(|| "the queue grows: Little's law does not hold, and no speed-up can be read from it".to_owned())
}
