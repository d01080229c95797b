//! What one target's windows say about one measure: values that are comparable over the whole run, with
//! weights. Drift of the program is divided out by the windows of 0 % of all targets in the same stratum;
//! what remains is compared with the target's own windows of 0 %, so that costs that come with a target cancel.

use rustc_hash::FxHashMap;
use whither_store::causal::Window;

/// What is measured in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Virtual time per visit of a point.
    Period(u32),
    /// Mean virtual time between two points, by Little's law.
    Latency(u32, u32),
}

/// Value of a window, and how many periods or requests it is the mean of; `None` when it has none.
pub(crate) fn value(window: &Window, measure: Measure) -> Option<(f64, f64)> {
    match measure {
        Measure::Period(point) => period(window, point),
        Measure::Latency(begin, end) => latency(window, begin, end),
    }
}

fn period(window: &Window, point: u32) -> Option<(f64, f64)> {
    let v = window.visits.iter().find(|v| v.point == point)?;
    let virtual_ns = float(v.last_virtual_ns) - float(v.first_virtual_ns);
    // Stamped visits are the ends of periods; others are counted in a window that has no such ends.
    let stamped = v.first_ns > 0 || v.last_ns > 0;
    let periods = if stamped { v.visits.checked_sub(1)? } else { v.visits };
    (periods > 0).then(|| (virtual_ns / periods as f64, periods as f64))
}

/// Area under the number of requests under way, divided by arrivals.
fn latency(window: &Window, begin: u32, end: u32) -> Option<(f64, f64)> {
    let b = window.visits.iter().find(|v| v.point == begin).filter(|v| v.visits > 0)?;
    let (departures, left) =
        window.visits.iter().find(|v| v.point == end).map_or((0, 0), |v| (v.visits, v.sum_virtual_ns));
    let remaining = float(b.under_way) + b.visits as f64 - departures as f64;
    let area = float(left) - float(b.sum_virtual_ns) + remaining * length(window);
    Some((area / b.visits as f64, b.visits as f64))
}

/// Requests under way on average; the time-averaged queue of Little's law.
pub(crate) fn under_way(window: &Window, begin: u32, end: u32) -> Option<f64> {
    let (mean, arrivals) = latency(window, begin, end)?;
    let length = length(window);
    (length > 0.0).then(|| mean * arrivals / length)
}

/// Virtual length of a window.
pub(crate) fn length(window: &Window) -> f64 {
    window.wall_ns as f64 - window.delay_ns as f64
}

fn float(n: i64) -> f64 {
    n as f64
}

/// One window of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Observation {
    /// Amount in percent.
    pub(crate) percent: u8,
    /// Value over the value without speed-up in its stratum.
    pub(crate) value: f64,
    /// Share of the run that it stands for, about 1.
    pub(crate) weight: f64,
    /// Samples in the target per period: part of the noise comes from the sampler and is known.
    pub(crate) hits: f64,
    /// Periods.
    pub(crate) visits: f64,
}

impl Observation {
    /// Amount, 0 to 1.
    pub(crate) fn s(&self) -> f64 {
        f64::from(self.percent) / 100.0
    }
}

/// Values without speed-up by stratum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baselines {
    by_stratum: FxHashMap<u32, f64>,
    /// Length of the strata.
    lengths: FxHashMap<u32, f64>,
}

/// Fewer windows of 0 % than this do not make a baseline of their own.
const ENOUGH: usize = 3;

impl Baselines {
    /// From all windows that count, of all targets.
    pub(crate) fn new<'a>(windows: impl Iterator<Item = &'a Window> + Clone, measure: Measure) -> Self {
        let mut zeros: FxHashMap<u32, Vec<f64>> = FxHashMap::default();
        let mut spans: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
        for window in windows {
            let end = window.begin_ns.saturating_add(window.wall_ns);
            let span = spans.entry(window.stratum).or_insert((window.begin_ns, end));
            *span = (span.0.min(window.begin_ns), span.1.max(end));
            if window.percent == 0
                && let Some((v, _)) = value(window, measure).filter(|(v, _)| *v > 0.0)
            {
                zeros.entry(window.stratum).or_default().push(v);
            }
        }
        let all: Vec<f64> = zeros.values().flatten().copied().collect();
        let own = |stratum: &u32| zeros.get(stratum).filter(|z| z.len() >= ENOUGH).map(|z| trimmed_mean(z));
        let known: Vec<(u32, f64)> = spans.keys().filter_map(|s| Some((*s, own(s)?))).collect();
        let nearest = |stratum: u32| {
            let near = known.iter().min_by_key(|(s, _)| (s.abs_diff(stratum), *s));
            near.map_or_else(|| trimmed_mean(&all), |(_, mean)| *mean)
        };
        let by_stratum = spans.keys().map(|s| (*s, nearest(*s))).filter(|(_, b)| *b > 0.0).collect();
        let lengths = spans.iter().map(|(s, (from, to))| (*s, (to - from) as f64)).collect();
        Self { by_stratum, lengths }
    }

    /// Of a stratum.
    pub(crate) fn of(&self, stratum: u32) -> Option<f64> {
        self.by_stratum.get(&stratum).copied()
    }
}

/// Mean without the tenth at either end.
pub(crate) fn trimmed_mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 10;
    let middle = &sorted[cut..sorted.len() - cut];
    if middle.is_empty() { 0.0 } else { middle.iter().sum::<f64>() / middle.len() as f64 }
}

/// The observations of one target. Windows of one stratum share its length as weight, apart for 0 % and for
/// the other amounts: a target that had many windows in some stratum because earlier ones were promising
/// does not count more for it.
pub(crate) fn series<'a>(
    windows: impl Iterator<Item = &'a Window>,
    measure: Measure,
    baselines: &Baselines,
) -> Vec<Observation> {
    let usable: Vec<(&Window, f64, f64, f64)> = windows
        .filter_map(|w| {
            let (value, visits) = value(w, measure)?;
            Some((w, value / baselines.of(w.stratum)?, visits, 0.0))
        })
        .filter(|(_, v, ..)| v.is_finite())
        .collect();
    let key = |w: &Window| (w.stratum, w.percent == 0);
    let mut counts: FxHashMap<(u32, bool), f64> = FxHashMap::default();
    usable.iter().for_each(|(w, ..)| *counts.entry(key(w)).or_default() += 1.0);
    let raw = |w: &Window| {
        let length = baselines.lengths.get(&w.stratum).copied().unwrap_or(0.0).max(1.0);
        length / counts.get(&key(w)).copied().unwrap_or(1.0)
    };
    let mean = |zero: bool| {
        let of: Vec<f64> = usable.iter().filter(|(w, ..)| (w.percent == 0) == zero).map(|(w, ..)| raw(w)).collect();
        of.iter().sum::<f64>() / of.len().max(1) as f64
    };
    let means = [mean(false), mean(true)];
    usable
        .iter()
        .map(|(w, value, visits, _)| Observation {
            percent: w.percent.min(100),
            value: *value,
            weight: raw(w) / means[usize::from(w.percent == 0)],
            hits: w.hits as f64 / visits,
            visits: *visits,
        })
        .collect()
}

/// As [`series`] for the paper's way: plain periods, weighted by how many there were, so that groups are sums
/// of durations over sums of visits.
pub(crate) fn plain_series<'a>(windows: impl Iterator<Item = &'a Window>, measure: Measure) -> Vec<Observation> {
    let values: Vec<(u8, f64, f64, u64)> =
        windows.filter_map(|w| value(w, measure).map(|(v, visits)| (w.percent, v, visits, w.hits))).collect();
    let mean = values.iter().map(|v| v.2).sum::<f64>() / values.len().max(1) as f64;
    values
        .iter()
        .map(|&(percent, value, visits, hits)| Observation {
            percent: percent.min(100),
            value,
            weight: visits / mean,
            hits: hits as f64 / visits,
            visits,
        })
        .collect()
}
