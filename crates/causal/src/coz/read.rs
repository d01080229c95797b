//! Reading: lines to records, records to windows. Coz writes neither times nor delays, so windows are put one
//! after another, and its runs (each begins with a `startup`) never share a stratum.

use super::{CozError, Record};
use rustc_hash::FxHashMap;
use whither_store::causal::{
    CausalRun, Executor, PointKind, PointVisits, ProgressPoint, Selection, Target, TargetSamples, Unit, Window,
};

/// Real time between two samples of a thread, of which a delay is `speedup` parts.
const PERIOD_NS: u64 = 1_000_000;
/// Longer periods than this are none.
const LONGEST_PERIOD_NS: u64 = 1_000_000_000;
/// Pieces of a run that share a baseline.
const STRATUM_NS: u64 = 10_000_000_000;
/// Thirty years.
const LONGEST_NS: u64 = 1_000_000_000_000_000_000;
/// Reason for an executor that is a guess.
const NOT_KNOWN: &str = "not known: the profile does not tell";
/// What makes intervals of a recording wider than chance does, and is not in other profiles.
const UNTOLD: &str = "a profile of Coz does not tell what its ticks cost, whether threads spin for one another, or whether they wait \
                      for cores: intervals hold only how windows scatter, and effects may be off by more";
/// Lines that were not understood and are told one by one.
const TOLD: usize = 10;

/// Reads a profile of either form, several runs in one file as well.
///
/// # Errors
/// [`CozError::NoExperiment`].
pub fn import(text: &str) -> Result<CausalRun, CozError> {
    let mut reader = Reader::default();
    let lines = text.lines().count();
    // Of a line that is cut off nobody knows how much: half a number is one, too. JSON has its own end.
    let cut = |i: usize, line: &str| i + 1 == lines && !text.ends_with('\n') && !line.starts_with('{');
    let mut is_cut = false;
    for (i, line) in text.lines().enumerate() {
        is_cut = cut(i, line);
        match record(line) {
            Ok(Some(record)) if !is_cut => reader.take(record),
            Ok(_) => {}
            Err(what) => {
                is_cut |= i + 1 == lines && !text.ends_with('\n');
                reader.problems.push(format!("line {} of the Coz profile is left out: {what}", i + 1));
            }
        }
    }
    reader.end(lines, is_cut)
}

fn record(line: &str) -> Result<Option<Record>, String> {
    let line = line.trim_end_matches(['\r', ' ']);
    if line.is_empty() {
        return Ok(None);
    }
    let found = if line.starts_with('{') {
        serde_json::from_str(line).map_err(|e| e.to_string())?
    } else {
        match fields(line)? {
            Some(record) => record,
            None => return Ok(None),
        }
    };
    match &found {
        Record::Experiment { speedup, .. } if !(0.0..=1.0).contains(speedup) => {
            Err(format!("a speed-up of {speedup} is not between 0 and 1"))
        }
        Record::Experiment { duration, .. } if *duration > LONGEST_NS => {
            Err(format!("a duration of {duration} ns is longer than a program can run"))
        }
        _ => Ok(Some(found)),
    }
}

/// The tab form; `None` for records of other tools, which are nobody's fault.
fn fields(line: &str) -> Result<Option<Record>, String> {
    let mut parts = line.split('\t');
    let kind = parts.next().unwrap_or_default();
    let values: FxHashMap<&str, &str> = parts.filter_map(|p| p.split_once('=')).collect();
    let text = |name: &str| values.get(name).map(|v| (*v).to_owned()).ok_or_else(|| format!("{kind} without {name}"));
    let number = |name: &str| text(name)?.parse::<u64>().map_err(|e| format!("{name} of {kind}: {e}"));
    let record = match kind {
        "startup" => Record::Startup {
            time: number("time")?,
            period: number("period").ok(),
            executor: values.get("executor").and_then(|word| executor(word)),
            tick_cost: number("tick-cost").ok(),
            spun: text("spun").ok().and_then(|part| part.parse().ok()),
        },
        "runtime" => Record::Runtime { time: number("time")? },
        "shutdown" => Record::Shutdown {},
        "experiment" => Record::Experiment {
            selected: text("selected")?,
            speedup: text("speedup")?.parse().map_err(|e| format!("speedup: {e}"))?,
            duration: number("duration")?,
            selected_samples: if values.contains_key("selected-samples") { number("selected-samples")? } else { 0 },
        },
        "throughput-point" | "progress-point" => {
            Record::ThroughputPoint { name: text("name")?, delta: number("delta")? }
        }
        "latency-point" => Record::LatencyPoint {
            name: text("name")?,
            arrivals: number("arrivals")?,
            departures: number("departures")?,
            difference: text("difference")?.parse().map_err(|e| format!("difference: {e}"))?,
        },
        "samples" => Record::Samples { location: text("location")?, count: number("count")? },
        _ => return Ok(None),
    };
    Ok(Some(record))
}

fn executor(word: &str) -> Option<Executor> {
    [Executor::Spin, Executor::Sleep, Executor::Agent].into_iter().find(|e| super::word(*e) == word)
}

#[derive(Default)]
struct Reader {
    run: CausalRun,
    targets: FxHashMap<String, u32>,
    points: FxHashMap<(String, bool), u32>,
    samples: FxHashMap<u32, u64>,
    problems: Vec<String>,
    /// Of the run of the program that is being read.
    stratum: u32,
    stratum_ns: u64,
    now_ns: u64,
    runtime_ns: u64,
    /// Told by profiles of our own.
    period_ns: Option<u64>,
    executor: Option<Executor>,
    /// What ticks take, and whether threads spin.
    tells_costs: bool,
    started: bool,
    /// Experiments came behind the last record of an end.
    open: bool,
}

impl Reader {
    fn take(&mut self, record: Record) {
        match record {
            Record::Startup { time, period, executor, tick_cost, spun } => {
                // A tick that takes longer than a period is none.
                let cost = tick_cost.filter(|ns| (0..=period.unwrap_or(PERIOD_NS)).contains(ns));
                self.run.overhead.tick_cost_ns = cost.unwrap_or(0).max(self.run.overhead.tick_cost_ns);
                let part = spun.filter(|part| (0.0..=1.0).contains(part));
                self.run.overhead.spun = part.unwrap_or(0.0).max(self.run.overhead.spun);
                self.tells_costs |= cost.is_some() && part.is_some();
                self.executor = executor.or(self.executor);
                self.period_ns = period.filter(|p| (1..=LONGEST_PERIOD_NS).contains(p)).or(self.period_ns);
                self.startup(time);
            }
            Record::Experiment { selected, speedup, duration, selected_samples } => {
                self.experiment(&selected, speedup, duration, selected_samples);
            }
            Record::ThroughputPoint { name, delta } => {
                let point = self.point(name, false);
                self.visits(PointVisits { visits: delta, ..PointVisits { point, ..PointVisits::default() } });
            }
            Record::LatencyPoint { name, arrivals, departures, difference } => {
                self.latency(&name, arrivals, departures, difference);
            }
            Record::Runtime { time } => {
                self.open = false;
                self.runtime_ns = self.runtime_ns.saturating_add(time);
            }
            Record::Samples { location, count } => {
                let target = self.target(&location);
                let samples = self.samples.entry(target).or_default();
                *samples = samples.saturating_add(count);
            }
            Record::Shutdown {} => self.open = false,
        }
    }

    fn startup(&mut self, time: u64) {
        if self.started {
            self.run.meta.runs = self.run.meta.runs.saturating_add(1);
            self.next_stratum();
        } else {
            self.run.meta.began_ns = time;
        }
        self.started = true;
    }

    fn next_stratum(&mut self) {
        self.stratum = self.stratum.saturating_add(1);
        self.stratum_ns = 0;
    }

    fn experiment(&mut self, selected: &str, speedup: f64, duration: u64, hits: u64) {
        self.open = true;
        if self.stratum_ns >= STRATUM_NS {
            self.next_stratum();
        }
        let percent = (100.0 * speedup).round() as u8;
        // Each sample of the line delayed the others.
        let delay_ns =
            hits.saturating_mul(self.period_ns.unwrap_or(PERIOD_NS) / 100).saturating_mul(u64::from(percent));
        let wall_ns = duration.saturating_add(delay_ns);
        let window = Window {
            run: self.run.meta.runs,
            target: self.target(selected),
            percent,
            selection: Selection::Lottery,
            stratum: self.stratum,
            begin_ns: self.now_ns,
            wall_ns,
            delay_ns,
            hits,
            ..Window::default()
        };
        self.now_ns = self.now_ns.saturating_add(wall_ns);
        self.stratum_ns = self.stratum_ns.saturating_add(wall_ns);
        self.run.windows.push(window);
    }

    /// Adds visits to the last experiment; those that come before any belong to none.
    fn visits(&mut self, mut visits: PointVisits) {
        let Some(window) = self.run.windows.last_mut() else { return };
        // From the beginning to the end of the experiment; checked when the line was read.
        visits.last_virtual_ns = i64::try_from(window.wall_ns - window.delay_ns).unwrap_or(i64::MAX);
        window.visits.push(visits);
    }

    /// Coz knows how many were under way at the end, and takes that for the average: an area of that height.
    fn latency(&mut self, name: &str, arrivals: u64, departures: u64, difference: i64) {
        let (begin, end) = (self.point(name.to_owned(), false), self.point(name.to_owned(), true));
        if let Some(point) = self.run.points.get_mut(begin as usize) {
            point.end = Some(end);
        }
        let change = super::signed(arrivals).saturating_sub(super::signed(departures));
        let under_way = difference.saturating_sub(change);
        self.visits(PointVisits { point: begin, visits: arrivals, under_way, ..PointVisits::default() });
        self.visits(PointVisits { point: end, visits: departures, ..PointVisits::default() });
    }

    fn point(&mut self, name: String, is_end: bool) -> u32 {
        let points = &mut self.run.points;
        *self.points.entry((name, is_end)).or_insert_with_key(|(name, is_end)| {
            let name = if *is_end { format!("{name} (end)") } else { name.clone() };
            points.push(ProgressPoint { name, kind: PointKind::Counter, end: None });
            points.len() as u32 - 1
        })
    }

    fn target(&mut self, location: &str) -> u32 {
        let targets = &mut self.run.targets;
        *self.targets.entry(location.to_owned()).or_insert_with_key(|location| {
            targets.push(target(location));
            targets.len() as u32 - 1
        })
    }

    /// What tells that a profile has no end.
    fn cut_off(&self, cut: bool) -> Option<String> {
        let what = match (cut, self.open) {
            (true, _) => "ends in the middle of a line, which is left out",
            (false, true) => "has no end (no runtime behind its last experiment)",
            (false, false) => return None,
        };
        Some(format!(
            "the Coz profile {what}: it was cut off, or the program was killed; experiments, samples and the run time may be missing"
        ))
    }

    /// `cut`: the last line has no end.
    fn end(mut self, lines: usize, cut: bool) -> Result<CausalRun, CozError> {
        let cut_off = self.cut_off(cut);
        if self.run.windows.is_empty() {
            return Err(CozError::NoExperiment { lines, problem: self.problems.into_iter().next() });
        }
        let delays: u64 = self.run.windows.iter().map(|w| w.delay_ns).fold(0, u64::saturating_add);
        let measured = self.now_ns.saturating_sub(delays);
        // Coz counts samples over the whole run, delays included in its time; our own profiles leave both out.
        let plain_ns = match self.period_ns {
            Some(_) => self.runtime_ns.max(1),
            None => self.runtime_ns.saturating_sub(delays).max(measured),
        };
        let mut samples: Vec<(u32, u64)> = self.samples.into_iter().collect();
        samples.sort_unstable();
        let row = |(target, n)| TargetSamples { target: Some(target), stratum: 0, plain: n, plain_ns, all: n };
        self.run.samples = samples.into_iter().map(row).collect();
        self.run.meta.runs = self.run.meta.runs.saturating_add(1);
        self.run.meta.duration_ns = self.runtime_ns.max(self.now_ns);
        // Delays of Coz are slept; of older profiles of our own nobody knows.
        self.run.meta.executor = self.executor.unwrap_or(Executor::Sleep);
        self.run.meta.executor_reason = match (self.executor, self.period_ns) {
            (Some(_), _) => "told by the profile",
            (None, None) => "as Coz does",
            (None, Some(_)) => NOT_KNOWN,
        }
        .to_owned();
        self.run.meta.launched = true;
        self.run.meta.period_ns = self.period_ns.unwrap_or(PERIOD_NS);
        self.run.notes.push("read from a profile of Coz, which has no times, delays or disturbances in it".to_owned());
        let more = self.problems.len().saturating_sub(TOLD);
        self.run.notes.extend(self.problems.into_iter().take(TOLD));
        if more > 0 {
            self.run.notes.push(format!("{more} more lines of the Coz profile are left out"));
        }
        self.run.notes.extend(cut_off);
        if !self.tells_costs {
            self.run.notes.push(UNTOLD.to_owned());
        }
        Ok(self.run)
    }
}

/// `file:line`, with the name of a function behind it where several begin there, or a function alone where other tools
/// write one.
fn target(location: &str) -> Target {
    let Some((file, line, rest)) = place(location) else { return named(Unit::Function, location, "", 0, &[]) };
    if rest.is_empty() {
        return named(Unit::Line, location, file, line, &[]);
    }
    let (name, unit) = match rest.strip_suffix(super::CALLEES) {
        Some(name) => (name, Unit::Inclusive),
        None => (rest, Unit::Function),
    };
    let mut path = name.split(super::CALLER);
    let name = path.next().unwrap_or(name);
    let path: Vec<&str> = path.collect();
    named(if path.is_empty() { unit } else { Unit::Path }, name, file, line, &path)
}

/// A file, a line, and what stands behind them.
fn place(location: &str) -> Option<(&str, u32, &str)> {
    location.match_indices(':').find_map(|(at, _)| {
        let (number, rest) = location[at + 1..].split_once(' ').unwrap_or((&location[at + 1..], ""));
        Some((&location[..at], number.parse().ok()?, rest))
    })
}

fn named(unit: Unit, name: &str, file: &str, line: u32, path: &[&str]) -> Target {
    Target {
        unit,
        name: name.to_owned(),
        file: file.to_owned(),
        line,
        path: path.iter().map(|p| (*p).to_owned()).collect(),
        aliases: Vec::new(),
        module: String::new(),
        image: None,
        ranges: Vec::new(),
    }
}
