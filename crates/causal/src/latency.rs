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
            let why = analysis.quality.cannot_say.clone();
            Some(LatencyRow {
                target: Some(target),
                target_name: analysis.run.targets.get(target as usize).map(|t| t.name.clone()).unwrap_or_default(),
                curve: analysis.curve(target, &estimate, measure),
                fit: estimate.fit,
                gain: analysis.is_told(target).then(|| analysis.gain(target, &estimate, 1, measure)),
                cannot_say: why.or_else(|| Pace::of(analysis, target).and_then(Pace::cannot_say)),
                ..whole.clone()
            })
        })
        .collect();
    rows.sort_by(|a, b| b.gain.map_or(0.0, |g| g.low).total_cmp(&a.gain.map_or(0.0, |g| g.low)));
    // What holds for effects holds for the time itself: windows that are left may not be like the others.
    let cannot_say = whole.cannot_say.clone().or_else(|| analysis.quality.cannot_say.clone());
    rows.insert(0, LatencyRow { cannot_say, ..whole });
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

#[cfg(test)]
mod tests {
    use crate::analyse::tests::two;
    use crate::{AnalyseOptions, CausalAnswer, LatencyRow, analyse};
    use whither_stats::random::Random;
    use whither_store::causal::{CausalRun, DropReason, PointKind, PointVisits, ProgressPoint, Window};

    /// Service and time between arrivals, and the part of the service that is the target.
    const SERVICE: f64 = 3e6;
    const BETWEEN: f64 = 5.7e6;
    const PART: f64 = 0.386;
    const WINDOW: f64 = 2e9;

    /// Fills windows of `f0` with what passes one server when requests arrive at random; the queue goes on through all of them.
    fn served(run: &mut CausalRun) {
        let mut random = Random::new(5);
        run.points = vec![
            ProgressPoint { name: "in".to_owned(), kind: PointKind::Probe, end: Some(1) },
            ProgressPoint { name: "out".to_owned(), kind: PointKind::Probe, end: None },
        ];
        for window in &mut run.windows {
            let service = SERVICE * (1.0 - PART * f64::from(window.percent) / 100.0);
            let (mut now, mut free, mut under_way) = (-10.0 * SERVICE, f64::NEG_INFINITY, 0);
            let (mut begins, mut ends) = (PointVisits::default(), PointVisits { point: 1, ..PointVisits::default() });
            loop {
                now += -BETWEEN * (1.0 - random.unit()).ln();
                if now >= WINDOW {
                    break;
                }
                free = free.max(now) + service;
                if now < 0.0 {
                    under_way += i64::from(free >= 0.0);
                } else {
                    count(&mut begins, now);
                }
                if (0.0..WINDOW).contains(&free) {
                    count(&mut ends, free);
                }
            }
            begins.under_way = under_way;
            (window.wall_ns, window.delay_ns, window.visits) = (WINDOW as u64, 0, vec![begins, ends]);
        }
    }

    fn count(visits: &mut PointVisits, at: f64) {
        visits.visits += 1;
        visits.sum_virtual_ns += at as i64;
    }

    fn queue() -> CausalRun {
        let mut run = two().run(300, 1);
        run.windows.retain(|w: &Window| w.target == 0);
        served(&mut run);
        run
    }

    fn of_f0(answer: &CausalAnswer) -> &LatencyRow {
        answer.latency.iter().find(|l| l.target == Some(0)).expect("measured")
    }

    #[test]
    fn requests_that_arrive_at_random_gain_what_their_queue_gains() {
        let latency = |s: f64| {
            let (service, rate) = (SERVICE * (1.0 - PART * s), 1.0 / BETWEEN);
            service + rate * service * service / (2.0 * (1.0 - rate * service))
        };
        let truth = 1.0 - latency(0.3) / latency(0.0);
        let answer = analyse(&queue(), &AnalyseOptions::default());
        let (whole, gain) = (&answer.latency[0], of_f0(&answer).gain.expect("a figure"));
        assert!((whole.mean_ns / latency(0.0) - 1.0).abs() < 0.05, "{} {}", whole.mean_ns, latency(0.0));
        assert!(gain.low <= truth && truth <= gain.high && (gain.y - truth).abs() < 0.025, "{truth} {gain:?}");
        assert!(gain.low > 0.1 && gain.high < 0.3, "{gain:?}");
    }

    #[test]
    fn latencies_of_a_disturbed_run_are_not_told() {
        let mut run = queue();
        assert!(of_f0(&analyse(&run, &AnalyseOptions::default())).told().is_some());
        run.windows.iter_mut().step_by(2).for_each(|w| w.dropped = Some(DropReason::ForeignLoad));
        let answer = analyse(&run, &AnalyseOptions::default());
        let why = |l: &LatencyRow| l.cannot_say.clone().unwrap_or_default();
        assert!(of_f0(&answer).told().is_none() && why(of_f0(&answer)).contains("disturbed 50 %"));
        assert!(why(&answer.latency[0]).contains("disturbed 50 %") && answer.latency[0].mean_ns > 0.0);
    }
}
