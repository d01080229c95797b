//! The files of Coz, both forms: written from a run so that Coz's viewer shows it, and read so that Coz's own
//! measurements (and those of tools that write the same) get intervals and verdicts. Coz knows source lines and
//! sums only: functions are written as their first line, waits off the CPU not at all. What is read is foreign:
//! lines that make no sense are told and left out.

mod read;

pub use read::import;

use crate::series::{Measure, length, value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use whither_store::causal::{CausalRun, Executor, Target, Unit, Window};

/// The two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Words and tabs, as Coz has always written.
    Tabs,
    /// One JSON object a line, as newer versions write.
    JsonLines,
}

/// Why a file cannot be read as a profile of Coz.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CozError {
    /// No experiment in it.
    #[error(
        "no experiment in this Coz profile of {lines} lines{}; is it one, and did the program reach a progress point?",
        .problem.as_ref().map_or_else(String::new, |p| format!(" ({p})"))
    )]
    NoExperiment {
        /// Lines.
        lines: usize,
        /// The first line that was not understood.
        problem: Option<String>,
    },
}

/// A line of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Record {
    Startup {
        time: u64,
        /// Time between two samples, where it is not Coz's. A field of our own: Coz and its viewer pass it over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period: Option<u64>,
        /// How delays were inserted, another field of our own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executor: Option<Executor>,
        /// What a tick takes from the program, nanoseconds: our own too. Without it intervals could not allow for ticks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tick_cost: Option<u64>,
        /// Part of the run time in which threads spun for others: our own too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spun: Option<f64>,
    },
    Experiment {
        selected: String,
        speedup: f64,
        /// Time without the delays.
        duration: u64,
        #[serde(default)]
        selected_samples: u64,
    },
    /// Older files call it `progress-point`.
    #[serde(alias = "progress-point")]
    ThroughputPoint {
        name: String,
        delta: u64,
    },
    LatencyPoint {
        name: String,
        arrivals: u64,
        departures: u64,
        /// Under way at the end.
        difference: i64,
    },
    Runtime {
        time: u64,
    },
    Samples {
        location: String,
        count: u64,
    },
    Shutdown {},
}

/// What became of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The file.
    pub text: String,
    /// Windows left out because Coz has no notion of their targets (off the CPU, without a source line).
    pub left_out: usize,
    /// Targets that have the place of another one, with which they are one to readers.
    pub shared: usize,
}

/// A profile that Coz's viewer reads, of the windows that count.
#[must_use]
pub fn export(run: &CausalRun, format: Format) -> Exported {
    let mut exported = Exported::default();
    let mut put = |record: &Record| exported.text.push_str(&line(record, format));
    put(&Record::Startup {
        time: run.meta.began_ns,
        period: Some(run.meta.period_ns).filter(|p| *p > 0),
        executor: Some(run.meta.executor).filter(|_| run.meta.pid > 0),
        tick_cost: Some(run.overhead.tick_cost_ns).filter(|_| run.meta.pid > 0),
        spun: Some(run.overhead.spun).filter(|_| run.meta.pid > 0),
    });
    let places = locations(run);
    let location = |target: u32| places.get(target as usize).cloned().flatten();
    let mut left_out = 0;
    for window in run.windows.iter().filter(|w| w.dropped.is_none()) {
        match location(window.target) {
            Some(selected) => experiment(run, window, selected).iter().for_each(&mut put),
            None => left_out += 1,
        }
    }
    // Readers set samples against this time: both are those without speed-ups.
    put(&Record::Runtime { time: plain_ns(run) });
    for i in 0..run.targets.len() as u32 {
        let of = run.samples.iter().filter(|s| s.target == Some(i)).map(|s| s.plain);
        let count = of.fold(0, u64::saturating_add);
        if let Some(location) = location(i).filter(|_| count > 0) {
            put(&Record::Samples { location, count });
        }
    }
    exported.left_out = left_out;
    exported.shared = shared(&places);
    exported
}

/// Time in which samples without speed-ups were taken.
fn plain_ns(run: &CausalRun) -> u64 {
    let mut strata: BTreeMap<u32, u64> = BTreeMap::new();
    for row in &run.samples {
        let ns = strata.entry(row.stratum).or_default();
        *ns = row.plain_ns.max(*ns);
    }
    strata.into_values().fold(0, u64::saturating_add)
}

/// What targets are called, by index. Readers take those of one name for one: where several begin on a line, all but lines
/// themselves have their own names behind it.
fn locations(run: &CausalRun) -> Vec<Option<String>> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    run.targets.iter().filter_map(location).for_each(|place| *counts.entry(place).or_default() += 1);
    let own = |target: &Target| {
        let place = location(target)?;
        let is_shared = counts.get(&place).is_some_and(|n| *n > 1);
        Some(if is_shared && target.unit != Unit::Line { format!("{place} {}", name(target)) } else { place })
    };
    run.targets.iter().map(own).collect()
}

fn location(target: &Target) -> Option<String> {
    let has_line = target.unit != Unit::OffCpu && !target.file.is_empty() && target.line > 0;
    has_line.then(|| format!("{}:{}", target.file, target.line))
}

/// What may stand behind the callees of a function.
const CALLEES: &str = " and callees";

/// A function with its callers.
fn name(target: &Target) -> String {
    let callees = if target.unit == Unit::Inclusive { CALLEES } else { "" };
    let path = std::iter::once(target.name.as_str()).chain(target.path.iter().map(String::as_str));
    path.collect::<Vec<_>>().join(CALLER) + callees
}

/// Between a function and its caller.
const CALLER: &str = " < ";

/// How many have a name that another one has.
fn shared(places: &[Option<String>]) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    places.iter().flatten().for_each(|place| *counts.entry(place).or_default() += 1);
    counts.values().filter(|n| **n > 1).sum()
}

/// One window. Its duration is from the first visit to the last of the first point, where those are known, with
/// the periods in between as visits; other points follow by their own periods.
fn experiment(run: &CausalRun, window: &Window, selected: String) -> Vec<Record> {
    let measured = value(window, Measure::Period(0));
    let duration = measured.map_or_else(|| length(window), |(period, periods)| period * periods).max(0.0);
    // Where a thread runs nothing but the target, all of a window is delay at 100 %. Viewers divide by the time that is left.
    if duration.round() == 0.0 {
        return Vec::new();
    }
    let speedup = f64::from(window.percent) / 100.0;
    let mut records = vec![Record::Experiment {
        selected,
        speedup,
        duration: duration.round() as u64,
        selected_samples: window.hits,
    }];
    let is_end = |i: usize| run.points.iter().any(|p| p.end == Some(i as u32));
    let visits = |i: usize| window.visits.iter().find(|v| v.point as usize == i);
    for (i, point) in run.points.iter().enumerate().filter(|(i, _)| !is_end(*i)) {
        let name = point.name.clone();
        if let Some(end) = point.end {
            let (arrivals, under_way) = visits(i).map_or((0, 0), |v| (v.visits, v.under_way));
            let departures = visits(end as usize).map_or(0, |v| v.visits);
            let difference = under_way.saturating_add(signed(arrivals)).saturating_sub(signed(departures));
            records.push(Record::LatencyPoint { name, arrivals, departures, difference });
        } else {
            let delta = match value(window, Measure::Period(i as u32)) {
                Some((_, periods)) if i == 0 => periods as u64,
                Some((period, _)) if period > 0.0 => (duration / period).round() as u64,
                _ => visits(i).map_or(0, |v| v.visits),
            };
            records.push(Record::ThroughputPoint { name, delta });
        }
    }
    records
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn line(record: &Record, format: Format) -> String {
    match format {
        // Strings and numbers always have a JSON form.
        Format::JsonLines => serde_json::to_string(record).unwrap_or_default() + "\n",
        Format::Tabs => tabs(record),
    }
}

/// As the JSON form has it.
fn word(executor: Executor) -> &'static str {
    match executor {
        Executor::Spin => "spin",
        Executor::Sleep => "sleep",
        Executor::Agent => "agent",
    }
}

fn tabs(record: &Record) -> String {
    // What would end the field or the line.
    let clean = |name: &str| name.replace(['\t', '\n', '\r'], " ");
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match record {
        Record::Startup { time, period, executor, tick_cost, spun } => {
            let period = period.map_or_else(String::new, |p| format!("\tperiod={p}"));
            let executor = executor.map_or_else(String::new, |e| format!("\texecutor={}", word(e)));
            let tick_cost = tick_cost.map_or_else(String::new, |ns| format!("\ttick-cost={ns}"));
            let spun = spun.map_or_else(String::new, |part| format!("\tspun={part}"));
            writeln!(text, "startup\ttime={time}{period}{executor}{tick_cost}{spun}")
        }
        Record::Experiment { selected, speedup, duration, selected_samples } => writeln!(
            text,
            "experiment\tselected={}\tspeedup={speedup:.2}\tduration={duration}\tselected-samples={selected_samples}",
            clean(selected)
        ),
        Record::ThroughputPoint { name, delta } => {
            writeln!(text, "throughput-point\tname={}\tdelta={delta}", clean(name))
        }
        Record::LatencyPoint { name, arrivals, departures, difference } => writeln!(
            text,
            "latency-point\tname={}\tarrivals={arrivals}\tdepartures={departures}\tdifference={difference}",
            clean(name)
        ),
        Record::Runtime { time } => writeln!(text, "runtime\ttime={time}"),
        Record::Samples { location, count } => writeln!(text, "samples\tlocation={}\tcount={count}", clean(location)),
        Record::Shutdown {} => writeln!(text, "shutdown"),
    };
    text
}

#[cfg(test)]
mod tests;
