//! `stats`: many runs of the same thing side by side (paper figure 3). Per procedure how much it varies, against
//! what counting alone would vary, and whether the runs fall into two groups; then, for one procedure, which causes
//! differ between its slowest and its fastest run (paper section 3.3).
//!
//! Figures are amounts of the event (CPU time, cycles), not samples: periods may differ from run to run.

use crate::diff::{DiffQuery, How, Side, common_event};
use crate::error::Error;
use crate::listing::By;
use crate::matched::{Keys, Lasting};
use crate::results::analysis::{Cause, Summary};
use crate::results::runs::{Explanation, MovedCause, RunRow, RunSet, RunStatistics, Together};
use crate::selection::Filter;
use whither_stats::distribution::normal_quantile;
use whither_stats::multiple::benjamini_hochberg;
use whither_stats::{Random, Summary as Figures};
use whither_store::model::{EventUnit, Profile};
use whither_store::symbols::Symbols;

/// What the figures of a run are set against.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RunsPer {
    /// Nothing: amounts as they are.
    #[default]
    Nothing,
    /// The run's total: percent.
    Total,
    /// The CPU seconds covered: milliseconds per second.
    Wall,
    /// Units of work done, one figure per run.
    Units(Vec<f64>),
}

/// How to compare runs.
#[derive(Clone, Debug, Default)]
pub struct RunsQuery {
    /// Which samples.
    pub filter: Filter,
    /// Event, the first run's first one by default.
    pub event: Option<String>,
    /// What figures are set against.
    pub per: RunsPer,
    /// Procedures below this share of everything are left out, 0 to 1.
    pub least: f64,
}

/// Two groups of runs are told from one by this false discovery rate.
const LEVEL: f64 = 0.05;
/// Draws of the null distribution.
const DRAWS: usize = 4999;
/// Runs whose lengths differ by less than this factor are of one length.
const ALIKE: f64 = 1.5;
/// Two groups need two runs each.
const LEAST_GROUP: usize = 2;

/// The statistics; `names` label the runs.
///
/// # Errors
/// [`Error::Empty`], [`Error::Event`], [`Error::NothingMatched`] of any run, [`Error::Runs`] when a run lacks the event
/// or the units do not fit the runs.
pub fn run_statistics(
    runs: &[&Profile],
    names: &[String],
    symbols: &dyn Symbols,
    query: &RunsQuery,
) -> Result<RunStatistics, Error> {
    let by = [By::Proc, By::Image];
    let diff = DiffQuery { filter: query.filter.clone(), event: query.event.clone(), ..DiffQuery::default() };
    let name = |i: usize| names.get(i).map_or_else(|| format!("run {}", i + 1), |n| format!("the run {n}"));
    let named: Vec<(String, &Profile)> = runs.iter().enumerate().map(|(i, p)| (name(i), *p)).collect();
    let event = common_event(&named, query.event.as_deref())?;
    let how = How { symbols, query: &diff, by: &by, event: &event, lasting: &Lasting::of(&[], &[]) };
    let mut keys = Keys::default();
    let side = Side::new(runs, &how, &mut keys)?;
    let unit_of = unit_of(runs, &event);
    let scales = scales(&side, unit_of, &query.per)?;
    let mut rows: Vec<RunRow> = (0..keys.len()).map(|k| row(&side, k, &scales, keys.label_and_image(k, &by))).collect();
    mark_two_peaks(&mut rows);
    let all = rows.len();
    rows.retain(|r| r.share >= query.least);
    rows.sort_by(|a, b| b.range.total_cmp(&a.range).then_with(|| b.sum.total_cmp(&a.sum)));
    Ok(RunStatistics {
        unit: unit(unit_of, &query.per).into(),
        event,
        normalised: normalised(&query.per).into(),
        sets: sets(&side, names, &scales),
        hidden: all - rows.len(),
        rows,
        explained: None,
        notes: notes(&side, &query.per),
        provenance: side.provenance,
    })
}

fn unit_of(runs: &[&Profile], event: &str) -> EventUnit {
    let found = runs.iter().flat_map(|p| &p.events).find(|e| e.name == event);
    found.map_or(EventUnit::Count, |e| e.unit)
}

fn unit(unit: EventUnit, per: &RunsPer) -> &'static str {
    match (per, unit) {
        (RunsPer::Nothing, EventUnit::Nanoseconds) => "ms",
        (RunsPer::Nothing, EventUnit::Count) => "events",
        (RunsPer::Total, _) => "%",
        (RunsPer::Wall, EventUnit::Nanoseconds) => "ms/s",
        (RunsPer::Wall, EventUnit::Count) => "events/s",
        (RunsPer::Units(_), EventUnit::Nanoseconds) => "ms/unit",
        (RunsPer::Units(_), EventUnit::Count) => "events/unit",
    }
}

fn normalised(per: &RunsPer) -> &'static str {
    match per {
        RunsPer::Nothing => "none",
        RunsPer::Total => "total",
        RunsPer::Wall => "wall",
        RunsPer::Units(_) => "unit",
    }
}

/// What weights of each run are multiplied by.
fn scales(side: &Side, unit: EventUnit, per: &RunsPer) -> Result<Vec<f64>, Error> {
    let base = match unit {
        EventUnit::Nanoseconds => 1e-6,
        EventUnit::Count => 1.0,
    };
    let by = |exposure: &dyn Fn(usize) -> f64, base: f64| {
        let all: Vec<f64> = (0..side.runs.len()).map(exposure).collect();
        match all.iter().position(|e| !(e.is_finite() && *e > 0.0)) {
            Some(run) => Err(Error::Runs { why: format!("run {} has nothing to be set against", run + 1) }),
            None => Ok(all.into_iter().map(|e| base / e).collect()),
        }
    };
    match per {
        RunsPer::Nothing => Ok(vec![base; side.runs.len()]),
        RunsPer::Total => by(&|r| side.runs[r].total, 100.0),
        RunsPer::Wall => by(&|r| side.runs[r].seconds, base),
        RunsPer::Units(units) if units.len() != side.runs.len() => Err(Error::Runs {
            why: format!("{} figures of work for {} runs; give one for each", units.len(), side.runs.len()),
        }),
        RunsPer::Units(units) => by(&|r| units[r], base),
    }
}

fn sets(side: &Side, names: &[String], scales: &[f64]) -> Vec<RunSet> {
    let set = |(i, run): (usize, &crate::diff::Run)| RunSet {
        name: names.get(i).cloned().unwrap_or_else(|| format!("run {}", i + 1)),
        samples: run.samples,
        weight: run.total as u64,
        seconds: run.seconds,
        total: run.total * scales[i],
    };
    side.runs.iter().enumerate().map(set).collect()
}

fn row(side: &Side, key: usize, scales: &[f64], (procedure, image): (String, String)) -> RunRow {
    let weights: Vec<f64> = side.runs.iter().map(|r| r.by_key.get(&key).copied().unwrap_or(0.0)).collect();
    let values: Vec<f64> = weights.iter().zip(scales).map(|(w, s)| w * s).collect();
    let all: f64 = side.runs.iter().zip(scales).map(|(r, s)| r.total * s).sum();
    let f = Figures::of(&values);
    let interval = (f.n >= 2).then(|| f.mean_interval(0.95)).map(|i| (i.low, i.high));
    RunRow {
        procedure,
        image,
        range: f.range_share(),
        sum: f.sum,
        share: if all > 0.0 { f.sum / all } else { 0.0 },
        n: f.n,
        mean: f.mean,
        deviation: f.deviation,
        min: f.min,
        max: f.max,
        interval,
        noise: counting_range(weights.iter().sum::<f64>() / side.period, f.n),
        two_peaks: false,
        values,
    }
}

/// The normalised range that `n` runs of independent counts, `counted` in all, have on average.
fn counting_range(counted: f64, n: usize) -> f64 {
    if n < 2 || counted <= 0.0 {
        return 0.0;
    }
    let n = n as f64;
    // Blom's approximation of the mean range of n normal values.
    let range = 2.0 * normal_quantile((n - 0.375) / (n + 0.25));
    range / (n * counted).sqrt()
}

fn notes(side: &Side, per: &RunsPer) -> Vec<String> {
    let mut out = Vec::new();
    let seconds = || side.runs.iter().map(|r| r.seconds).filter(|s| *s > 0.0);
    let (short, long) = (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
    if *per == RunsPer::Nothing && long > ALIKE * short {
        out.push(format!(
            "the runs are not of one length, {short:.1} to {long:.1} s, so figures differ by that alone; `--per wall` sets each \
             against its time, `--per total` against its total"
        ));
    }
    if side.runs.len() < 2 {
        out.push("one run does not vary: name several recordings, or epochs of a database".to_owned());
    } else if side.runs.len() < 2 * LEAST_GROUP {
        out.push(format!("fewer than {} runs cannot show two groups", 2 * LEAST_GROUP));
    }
    out
}

/// Marks rows whose runs fall into two groups more sharply than runs from one bell curve do, and by more than
/// counting could make.
fn mark_two_peaks(rows: &mut [RunRow]) {
    let n = rows.first().map_or(0, |r| r.n);
    if n < 2 * LEAST_GROUP {
        return;
    }
    let null = null_distribution(n);
    let tested: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].range > 2.0 * rows[i].noise).collect();
    let p: Vec<f64> = tested
        .iter()
        .map(|&i| {
            let within = within_groups(&rows[i].values);
            let smaller = null.partition_point(|x| *x <= within);
            (smaller + 1) as f64 / (null.len() + 1) as f64
        })
        .collect();
    for (&i, q) in tested.iter().zip(benjamini_hochberg(&p)) {
        rows[i].two_peaks = q < LEVEL;
    }
}

/// Spread inside the best two groups over the whole spread: 0 for two sharp peaks, 1 for values that are all alike.
fn within_groups(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let whole = squares(&sorted);
    if whole <= 0.0 || whole.is_nan() {
        return 1.0;
    }
    let splits = LEAST_GROUP..=sorted.len().saturating_sub(LEAST_GROUP);
    let best = splits.map(|k| squares(&sorted[..k]) + squares(&sorted[k..])).fold(whole, f64::min);
    best / whole
}

fn squares(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter().map(|v| (v - mean).powi(2)).sum()
}

/// What one bell curve gives, sorted; the same at every call.
fn null_distribution(n: usize) -> Vec<f64> {
    let mut random = Random::new(0x5eed);
    let mut draw = || within_groups(&(0..n).map(|_| random.normal()).collect::<Vec<f64>>());
    let mut out: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    out.sort_by(f64::total_cmp);
    out
}

/// The slowest and the fastest run of a row, as indices.
#[must_use]
pub fn extremes(row: &RunRow) -> Option<(usize, usize)> {
    let all = || row.values.iter().enumerate();
    let slow = all().max_by(|a, b| a.1.total_cmp(b.1))?.0;
    let fast = all().min_by(|a, b| a.1.total_cmp(b.1))?.0;
    Some((slow, fast))
}

/// How far executions may be off, as a part of them: their scale, and the clock.
const UNSURE: f64 = 0.15;

/// What a cause's figure may be off by because executions are: static waits go with them, dynamic ones are what is left of the time.
fn doubt(summary: &Summary, cause: Cause, figure: f64) -> f64 {
    let with_executions = match cause.is_static() {
        true => summary.causes.iter().find(|c| c.cause == cause).map_or(0.0, |c| c.max),
        false => summary.execution + summary.static_stall,
    };
    UNSURE * with_executions * figure
}

/// Puts the summaries of a procedure's slowest and fastest run side by side.
#[must_use]
pub fn explained(statistics: &RunStatistics, row: &RunRow, slow: Summary, fast: Summary) -> Explanation {
    let (s, f) = extremes(row).unwrap_or((0, 0));
    let figure = |run: usize| row.values.get(run).copied().unwrap_or(0.0);
    let name = |run: usize| statistics.sets.get(run).map_or(String::new(), |set| set.name.clone());
    // A static wait is as many executions as there were, which nobody knows where they are only bounded.
    let open = |summary: &Summary, cause: Cause| summary.bounded && cause.is_static();
    let of = |summary: &Summary, cause: Cause, figure: f64| {
        let found = summary.causes.iter().find(|c| c.cause == cause);
        let least = |min: f64| if open(summary, cause) { 0.0 } else { min };
        found.map_or((0.0, 0.0), |c| (least(c.min) * figure, c.max * figure))
    };
    let known = |cause: Cause| !open(&slow, cause) && !open(&fast, cause);
    let doubt = |cause: Cause| doubt(&slow, cause, figure(s)).hypot(doubt(&fast, cause, figure(f)));
    let moved = |cause: Cause| {
        let (certain, doubt) = (known(cause), doubt(cause));
        let (slow, fast) = (of(&slow, cause, figure(s)), of(&fast, cause, figure(f)));
        let apart = (slow.0 - fast.1).max(fast.0 - slow.1);
        MovedCause { cause, slow, fast, certain: certain && apart > doubt }
    };
    let change = |m: &MovedCause| (m.slow.0 + m.slow.1 - m.fast.0 - m.fast.1).abs();
    let mut all: Vec<MovedCause> = Cause::ALL.iter().map(|&c| moved(c)).filter(|m| change(m) > 0.0).collect();
    all.sort_by(|a, b| change(b).total_cmp(&change(a)));
    let least = slow.dynamic_range.0 * figure(s) - fast.dynamic_range.1 * figure(f) - doubt(Cause::DCache);
    let among: Vec<Cause> =
        all.iter().filter(|m| !m.cause.is_static() && m.slow.1 - m.fast.0 >= least / 2.0).map(|m| m.cause).collect();
    let is_told = all.iter().any(|m| m.certain && !m.cause.is_static());
    Explanation {
        together: (least > 0.0 && !is_told && !among.is_empty()).then_some(Together { least, among }),
        procedure: row.procedure.clone(),
        runs: (name(s), name(f)),
        figures: (figure(s), figure(f)),
        slow,
        fast,
        moved: all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::analysis::CauseRange;

    #[test]
    fn the_range_of_counts_is_what_draws_have() {
        let mut random = Random::new(1);
        for (n, mean) in [(2usize, 400.0), (8, 100.0), (20, 900.0)] {
            let mut total = 0.0;
            for _ in 0..3000 {
                let counts: Vec<f64> = (0..n).map(|_| mean + random.normal() * f64::sqrt(mean)).collect();
                total += Figures::of(&counts).range_share();
            }
            let expected = counting_range(mean * n as f64, n);
            let found = total / 3000.0;
            assert!((found / expected - 1.0).abs() < 0.07, "{n} runs: {found} and {expected}");
        }
    }

    fn rows_of(values: Vec<Vec<f64>>) -> Vec<RunRow> {
        let row = |values: Vec<f64>| {
            let f = Figures::of(&values);
            RunRow { range: f.range_share(), n: f.n, noise: 1e-6, values, ..RunRow::default() }
        };
        values.into_iter().map(row).collect()
    }

    #[test]
    fn two_groups_are_seen_and_one_is_not() {
        let mut random = Random::new(7);
        let mut bell = || (0..8).map(|_| 100.0 + random.normal()).collect::<Vec<f64>>();
        let mut values: Vec<Vec<f64>> = (0..60).map(|_| bell()).collect();
        values.push(vec![100.0, 100.4, 99.8, 100.2, 112.0, 111.7, 112.3, 100.1]);
        values.push(vec![100.0, 100.4, 99.8, 100.2, 100.3, 100.1, 99.9, 130.0]);
        let mut rows = rows_of(values);
        mark_two_peaks(&mut rows);
        let marked: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].two_peaks).collect();
        assert_eq!(marked, [60], "one outlier is no group");
        let mut few = rows_of(vec![vec![1.0, 1.0, 9.0]; 3]);
        mark_two_peaks(&mut few);
        assert!(few.iter().all(|r| !r.two_peaks), "three runs cannot tell");
    }

    #[test]
    fn what_counting_explains_is_no_peak() {
        let mut rows = rows_of(vec![vec![1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0]]);
        rows[0].noise = rows[0].range;
        mark_two_peaks(&mut rows);
        assert!(!rows[0].two_peaks);
    }

    #[test]
    fn a_cause_moved_for_certain_when_its_ranges_do_not_touch() {
        let summary = |dcache: (f64, f64), dtlb: (f64, f64)| Summary {
            causes: vec![
                CauseRange { cause: Cause::DCache, min: dcache.0, max: dcache.1 },
                CauseRange { cause: Cause::Dtlb, min: dtlb.0, max: dtlb.1 },
            ],
            ..Summary::default()
        };
        let row = RunRow { values: vec![100.0, 150.0, 120.0], ..RunRow::default() };
        let set = |name: &str| RunSet { name: name.into(), ..RunSet::default() };
        let statistics = RunStatistics { sets: vec![set("a"), set("b"), set("c")], ..RunStatistics::default() };
        let e =
            explained(&statistics, &row, summary((0.448, 0.448), (0.14, 0.339)), summary((0.279, 0.279), (0.1, 0.2)));
        assert_eq!((e.runs.0.as_str(), e.runs.1.as_str(), e.figures), ("b", "a", (150.0, 100.0)));
        let causes: Vec<(Cause, bool)> = e.moved.iter().map(|m| (m.cause, m.certain)).collect();
        assert_eq!(causes, [(Cause::DCache, true), (Cause::Dtlb, true)]);
        assert!((e.moved[0].slow.0 - 67.2).abs() < 1e-9);
    }

    #[test]
    fn a_static_cause_of_bounded_executions_never_moved_for_certain() {
        let summary = |share: f64, bounded: bool| Summary {
            causes: vec![CauseRange { cause: Cause::Operand, min: share, max: share }],
            bounded,
            ..Summary::default()
        };
        let row = RunRow { values: vec![100.0, 150.0], ..RunRow::default() };
        let certain = |slow: bool, fast: bool| {
            let statistics = RunStatistics::default();
            let e = explained(&statistics, &row, summary(0.9, slow), summary(0.1, fast));
            (e.moved[0].certain, e.moved[0].slow.0)
        };
        assert_eq!(certain(false, false), (true, 135.0));
        assert_eq!(certain(true, false), (false, 0.0));
        assert_eq!(certain(false, true), (false, 135.0));
        assert_eq!(certain(true, true), (false, 0.0));
    }

    #[test]
    fn what_executions_may_be_off_by_is_no_change_and_causes_that_overlap_count_together() {
        let summary = |operand: f64, dynamic: f64| Summary {
            causes: vec![
                CauseRange { cause: Cause::DCache, min: 0.0, max: dynamic },
                CauseRange { cause: Cause::Dtlb, min: 0.0, max: dynamic },
                CauseRange { cause: Cause::Operand, min: operand, max: operand },
            ],
            dynamic,
            dynamic_range: (dynamic, dynamic),
            static_stall: operand,
            execution: 1.0 - operand - dynamic,
            ..Summary::default()
        };
        // 329 and 2,371 ms; the operands took 155 and 139 ms, within what their executions may be off.
        let row = RunRow { values: vec![329.0, 2371.0], ..RunRow::default() };
        let e = explained(&RunStatistics::default(), &row, summary(139.0 / 2371.0, 0.9), summary(155.0 / 329.0, 0.4));
        assert!(e.moved.iter().all(|m| !m.certain), "{:?}", e.moved);
        let together = e.together.expect("the time went somewhere");
        assert_eq!(together.among, [Cause::DCache, Cause::Dtlb]);
        assert!((1900.0..2010.0).contains(&together.least), "{}", together.least);
    }
}
