//! `diff`: which procedures (or images, lines, processes, ...) gained or lost between two sets of
//! recordings, beyond chance.
//!
//! Counts of one run are not independent draws, so their variance is estimated (`variance`), each
//! row's rate is compared by a ratio test with it, and the false discovery rate over all rows (weighted
//! by their part of the time) is held at 5 %. What makes two rows the same one on both sides is told by `matched`.

use crate::error::Error;
use crate::listing::{By, groupings, resolved};
use crate::matched::{Keys, Lasting, matched};
use crate::places::{Inlines, Places};
use crate::provenance::{cpu_seconds, epoch_notes, few_note, provenance};
use crate::renamed::{note, renamed};
use crate::results::{DiffRow, Difference, Provenance, Verdict};
use crate::selection::{Filter, Selection};
use crate::variance::{Dispersions, Series};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use whither_stats::distribution::student_quantile;
use whither_stats::multiple::weighted;
use whither_stats::{Dispersion, Exposed, log_ratio};
use whither_store::model::Profile;
use whither_store::symbols::Symbols;

/// What both sides are set against.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Normalise {
    /// [`Normalise::Run`] where that can be had, else [`Normalise::Total`].
    #[default]
    Auto,
    /// Recordings, each of one command from its start to its end: CPU time per run is compared. What one procedure gains
    /// is not lost by the others then.
    Run,
    /// All samples of the selection: shares are compared.
    Total,
    /// Seconds covered, times CPUs: CPU time per time is compared.
    Wall,
    /// Units of work done, as the user counted them (requests in A and in B).
    Per(f64, f64),
}

/// Which rows to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    /// Changes beyond chance.
    #[default]
    Significant,
    /// Every row.
    All,
}

/// How to compare.
#[derive(Clone, Debug, Default)]
pub struct DiffQuery {
    /// What rows are about, as for a listing; empty: procedures.
    pub by: Vec<By>,
    /// What becomes of inlined code.
    pub inlines: Inlines,
    /// Which samples of both sides.
    pub filter: Filter,
    /// Event compared, the recordings' first one by default.
    pub event: Option<String>,
    /// What figures are set against.
    pub normalise: Normalise,
    /// Which rows to keep.
    pub show: Show,
}

/// False discovery rate.
const LEVEL: f64 = 0.05;
/// Rows with fewer samples in both sides together cannot differ significantly, and testing
/// them would only blunt the tests of the others.
const LEAST_SAMPLES: f64 = 6.0;
/// A year in minutes.
const MOST_SLICES: u32 = 525_600;

/// Compares two sets of recordings; several on a side are taken as runs of the same thing, and tell
/// the variance better than the slices of one can.
///
/// # Errors
/// [`Error::Empty`], [`Error::Event`], [`Error::NothingMatched`] of either side, [`Error::Runs`] when a run lacks the
/// event.
pub fn diff(a: &[&Profile], b: &[&Profile], symbols: &dyn Symbols, query: &DiffQuery) -> Result<Difference, Error> {
    let by = groupings(&query.by);
    let event = common_event(&named(a, "before", b, "after"), query.event.as_deref())?;
    let mut lasting = Lasting::of(a, b);
    if by.contains(&By::Image) {
        lasting.renamed = renamed(a, b, symbols);
    }
    let how = How { symbols, query, by: &by, event: &event, lasting: &lasting };
    let mut keys = Keys::default();
    let whole_commands = are_whole_commands(a, b);
    let (a, b) = both(Side::new(a, &how, &mut keys), Side::new(b, &how, &mut keys), &how)?;
    let normalise = possible(&a, &b, query.normalise, whole_commands);
    let exposures = exposures(&a, &b, normalise);
    let (dispersions, variance) = dispersions(&a, &b, keys.len(), &by, normalise);
    let mut rows = rows(&a, &b, &keys, &by, exposures, &dispersions);
    let mut notes = vec![sensitivity_note(&a, &b, rows.len(), &dispersions)];
    notes.extend(note(&lasting.renamed));
    if query.normalise == Normalise::Auto && rows.iter().all(|r| r.verdict == Verdict::Same) {
        notes.extend(shares_note(&a, &b, &keys, &by, normalise));
    }
    rows.sort_by(|x, y| y.change.0.abs().total_cmp(&x.change.0.abs()).then_with(|| x.label.cmp(&y.label)));
    let all = rows.len();
    if query.show == Show::Significant {
        rows.retain(|r| r.verdict != Verdict::Same);
    }
    Ok(Difference {
        by: by.iter().map(|b| b.name().to_owned()).collect(),
        hidden: all - rows.len(),
        cut: 0,
        rows,
        normalised: normalised(normalise).into(),
        variance: variance.into(),
        dispersion: dispersions.pooled,
        a: with_notes(a.provenance, &notes),
        b: with_notes(b.provenance, &notes),
    })
}

/// What holds for both sides.
pub(crate) struct How<'a> {
    pub(crate) symbols: &'a dyn Symbols,
    pub(crate) query: &'a DiffQuery,
    pub(crate) by: &'a [By],
    /// Event that every run is compared by.
    pub(crate) event: &'a str,
    pub(crate) lasting: &'a Lasting,
}

/// The event that all runs are compared by: the one asked for, else the first run's first. Figures of different events
/// have no common unit, so a run without it is an error. Without any event there are no samples either, which is told
/// where they are read.
pub(crate) fn common_event(runs: &[(String, &Profile)], wanted: Option<&str>) -> Result<String, Error> {
    let has = |profile: &Profile, name: &str| profile.events.iter().any(|e| e.name == name);
    let mut all = runs.iter().map(|(_, p)| *p);
    let Some(event) = wanted.map(str::to_owned).or_else(|| first_event(all.next())) else { return Ok(String::new()) };
    // An event that none has is a slip of the pen, which `Selection` answers with what is meant.
    if !runs.iter().any(|(_, p)| has(p, &event)) {
        return Ok(event);
    }
    match runs.iter().find(|(_, p)| !has(p, &event)) {
        Some((name, without)) if !without.events.is_empty() => {
            let have: Vec<&str> = without.events.iter().map(|e| e.name.as_str()).collect();
            Err(Error::Runs {
                why: format!(
                    "{name} has no event `{event}`, it has {}; compare recordings of the same event, or choose one that all \
                     have with --event",
                    have.join(", ")
                ),
            })
        }
        _ => Ok(event),
    }
}

fn first_event(profile: Option<&Profile>) -> Option<String> {
    profile.and_then(|p| p.events.first()).map(|e| e.name.clone())
}

/// Runs of both sides with what to call them in a message.
fn named<'a>(a: &[&'a Profile], a_is: &str, b: &[&'a Profile], b_is: &str) -> Vec<(String, &'a Profile)> {
    let side = |side: &[&'a Profile], is: &str| {
        let name = |i: usize| if side.len() == 1 { format!("the run {is}") } else { format!("run {} {is}", i + 1) };
        side.iter().enumerate().map(|(i, p)| (name(i), *p)).collect::<Vec<_>>()
    };
    let mut out = side(a, a_is);
    out.extend(side(b, b_is));
    out
}

/// What these data can show at all, lest "nothing changed" be read as "nothing did".
fn sensitivity_note(a: &Side, b: &Side, rows: usize, dispersions: &Dispersions) -> String {
    const SHARE: f64 = 0.1;
    let one_in = |side: &Side| 1.0 / (SHARE * side.total() / side.period);
    let level = LEVEL * attention(SHARE, rows) / rows.max(1) as f64;
    let z = student_quantile(1.0 - level / 2.0, dispersions.degrees());
    let variance = |side: &Side| dispersions.at_count(1.0 / one_in(side)) * one_in(side);
    let change = z * (variance(a) + variance(b)).sqrt();
    format!(
        "with these data a row of {:.0} % must change by about {:.0} % of itself to be told from chance",
        SHARE * 100.0,
        (change * 100.0).ceil()
    )
}

/// Of commands that always take the same time only shares change, and those are known from one run already: how CPU time
/// varies from run to run is not.
fn shares_note(a: &Side, b: &Side, keys: &Keys, by: &[By], normalise: Normalise) -> Option<String> {
    if normalise != Normalise::Run {
        return None;
    }
    let (dispersions, _) = dispersions(a, b, keys.len(), by, Normalise::Total);
    let rows = rows(a, b, keys, by, exposures(a, b, Normalise::Total), &dispersions);
    let changed = rows.iter().filter(|r| r.verdict != Verdict::Same).count();
    (changed > 0).then(|| {
        format!("shares of the total changed in {changed} rows beyond chance within a run: --per total lists them")
    })
}

fn with_notes(mut provenance: Provenance, notes: &[String]) -> Provenance {
    provenance.notes.extend(notes.iter().cloned());
    provenance
}

/// Rows that got slower, or are new, beyond chance: what a gate counts.
#[must_use]
pub fn significant_regressions(d: &Difference) -> usize {
    d.rows.iter().filter(|r| matches!(r.verdict, Verdict::Slower | Verdict::New)).count()
}

fn normalised(n: Normalise) -> &'static str {
    match n {
        Normalise::Auto | Normalise::Total => "total",
        Normalise::Run => "run",
        Normalise::Wall => "wall",
        Normalise::Per(..) => "unit",
    }
}

/// One side of the comparison.
pub(crate) struct Side {
    pub(crate) runs: Vec<Run>,
    /// Mean period of a sample: weights divided by it are counts again.
    pub(crate) period: f64,
    pub(crate) provenance: Provenance,
}

/// Weights of one recording.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) by_key: FxHashMap<usize, f64>,
    by_slice: FxHashMap<(usize, u32), f64>,
    pub(crate) total: f64,
    totals: BTreeMap<u32, f64>,
    pub(crate) cpu_seconds: f64,
    pub(crate) seconds: f64,
    pub(crate) samples: u64,
    slice_s: u32,
}

impl Side {
    pub(crate) fn new(profiles: &[&Profile], how: &How<'_>, keys: &mut Keys) -> Result<Self, Error> {
        let mut side = Self { runs: Vec::new(), period: 1.0, provenance: Provenance::default() };
        let (mut squares, mut total) = (0.0, 0.0);
        for (i, profile) in profiles.iter().enumerate() {
            let (selection, places) = select(profile, how)?;
            let described = provenance(&selection, &how.query.filter);
            let run = Run::new(&selection, &places, how, keys, &described);
            squares += sum_of_squares(&selection);
            total += run.total;
            side.runs.push(run);
            if i == 0 { side.provenance = described } else { join(&mut side.provenance, described) }
        }
        if total <= 0.0 {
            return Err(Error::Empty);
        }
        side.period = squares / total;
        if profiles.len() > 1 {
            let samples = side.provenance.events.first().map_or(0, |e| e.samples);
            side.provenance.notes = few_note(samples).into_iter().collect();
            side.provenance.notes.extend(epoch_notes(profiles.iter().copied()));
        }
        Ok(side)
    }

    fn total(&self) -> f64 {
        self.runs.iter().map(|r| r.total).sum()
    }

    fn cpu_seconds(&self) -> f64 {
        self.runs.iter().map(|r| r.cpu_seconds).sum()
    }

    fn weight(&self, key: usize) -> f64 {
        // Not `sum`, which makes -0 of nothing.
        self.runs.iter().filter_map(|r| r.by_key.get(&key)).fold(0.0, |sum, w| sum + w)
    }
}

/// Both sides, or why there are not two. What is on one side only has no share of what was asked for on the other: then
/// that is said.
fn both(a: Result<Side, Error>, b: Result<Side, Error>, how: &How<'_>) -> Result<(Side, Side), Error> {
    let only = |side: &Side, in_side: &str, missing: &str| Error::Runs {
        why: format!(
            "what was asked for ({}) has {} samples {in_side} and none {missing}; without the filter its row tells how much \
             that is",
            how.query.filter.describe().join(", "),
            side.runs.iter().map(|r| r.samples).sum::<u64>()
        ),
    };
    match (a, b) {
        (Ok(side), Err(Error::NothingMatched { .. })) => Err(only(&side, "before", "after")),
        (Err(Error::NothingMatched { .. }), Ok(side)) => Err(only(&side, "after", "before")),
        (a, b) => Ok((a?, b?)),
    }
}

/// The main event's rows and their procedures.
fn select<'a>(profile: &'a Profile, how: &How<'_>) -> Result<(Selection<'a>, Places), Error> {
    let query = how.query;
    let mut selection = Selection::new(profile, &query.filter, &[how.event.to_owned()])?;
    let places = resolved(&mut selection, how.symbols, &query.filter, query.inlines, how.by);
    if selection.rows.is_empty() {
        return Err(crate::listing::nothing_matched(profile, &query.filter));
    }
    Ok((selection, places))
}

impl Run {
    fn new(selection: &Selection<'_>, places: &Places, how: &How<'_>, keys: &mut Keys, described: &Provenance) -> Self {
        let of_row = matched(how.by, selection, places, how.symbols, how.lasting, keys);
        let slice_s = selection.profile.epochs.iter().map(|e| e.slice_s).max().unwrap_or(1);
        let cpu_seconds = cpu_seconds(selection, described);
        let mut run = Self { cpu_seconds, seconds: described.seconds, slice_s, ..Self::default() };
        for (&row, key) in selection.rows.iter().zip(of_row) {
            let s = selection.sample(row);
            let weight = s.weight() as f64;
            *run.by_key.entry(key).or_default() += weight;
            *run.by_slice.entry((key, s.slice)).or_default() += weight;
            *run.totals.entry(s.slice).or_default() += weight;
            run.total += weight;
            run.samples += u64::from(s.count);
        }
        run
    }
}

impl Run {
    /// Slices and what counts in them are set against: the slice's own total, or its length; then
    /// without the first and last slice, which are seldom whole.
    fn exposures(&self, normalise: Normalise) -> Vec<(u32, f64)> {
        if matches!(normalise, Normalise::Total | Normalise::Auto) {
            return self.totals.iter().map(|(slice, total)| (*slice, *total)).collect();
        }
        let (Some((first, _)), Some((last, _))) = (self.totals.first_key_value(), self.totals.last_key_value()) else {
            return Vec::new();
        };
        let step = self.slice_s.max(1);
        // Clocks that jumped leave a gap that is no idle time.
        if (last - first) / step > MOST_SLICES {
            return self.totals.keys().map(|slice| (*slice, 1.0)).collect();
        }
        (*first..*last).step_by(step as usize).skip(1).map(|slice| (slice, 1.0)).collect()
    }
}

fn sum_of_squares(selection: &Selection<'_>) -> f64 {
    let samples = selection.rows.iter().map(|&r| selection.sample(r));
    samples.map(|s| f64::from(s.count) * (s.period as f64).powi(2)).sum()
}

/// One provenance for several runs.
fn join(sum: &mut Provenance, other: Provenance) {
    sum.sources.extend(other.sources);
    let mean = |a: f64, b: f64| (a * sum.seconds + b * other.seconds) / (sum.seconds + other.seconds).max(1e-9);
    sum.rate_hz = mean(sum.rate_hz, other.rate_hz);
    sum.own_cost = sum.own_cost.zip(other.own_cost).map(|(a, b)| mean(a, b));
    sum.seconds += other.seconds;
    for (total, more) in sum.events.iter_mut().zip(&other.events) {
        total.samples += more.samples;
        total.weight = total.weight.saturating_add(more.weight);
        total.idle += more.idle;
    }
    for (reason, n) in other.unknown {
        match sum.unknown.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, total)) => *total += n,
            None => sum.unknown.push((reason, n)),
        }
    }
    let samples = sum.events.first().map_or(0, |e| e.samples);
    let unknown: u64 = sum.unknown.iter().map(|u| u.1).sum();
    sum.unknown_share = if samples == 0 { 0.0 } else { unknown as f64 / samples as f64 };
    sum.dropped += other.dropped;
    sum.skipped += other.skipped;
    sum.sideband_lost += other.sideband_lost;
    sum.ambiguous += other.ambiguous;
}

/// What was asked for, or totals where the recordings do not tell their length or the user gave no
/// sensible number of units; the answer names what was used.
fn possible(a: &Side, b: &Side, asked: Normalise, whole_commands: bool) -> Normalise {
    let positive = |x: f64, y: f64| x > 0.0 && y > 0.0 && x.is_finite() && y.is_finite();
    match asked {
        Normalise::Wall if positive(a.cpu_seconds(), b.cpu_seconds()) => asked,
        Normalise::Per(x, y) if positive(x, y) => asked,
        Normalise::Run => asked,
        Normalise::Auto if whole_commands => Normalise::Run,
        _ => Normalise::Total,
    }
}

/// Whether every recording is of one command that was launched and ended by itself, all alike: their CPU times can be compared
/// as they are.
fn are_whole_commands(a: &[&Profile], b: &[&Profile]) -> bool {
    let mut epochs = a.iter().chain(b).flat_map(|p| &p.epochs).peekable();
    let status = epochs.peek().and_then(|e| e.target_status);
    status.is_some()
        && a.iter().chain(b).all(|p| p.epochs.len() == 1)
        && epochs.all(|e| e.target_status == status && !e.target.is_empty())
}

/// Exposure of A and of B, in units of weight, time or work.
fn exposures(a: &Side, b: &Side, normalise: Normalise) -> (f64, f64) {
    match normalise {
        Normalise::Auto | Normalise::Total => (a.total(), b.total()),
        Normalise::Run => (a.runs.len() as f64, b.runs.len() as f64),
        Normalise::Wall => (a.cpu_seconds(), b.cpu_seconds()),
        Normalise::Per(units_a, units_b) => (units_a, units_b),
    }
}

/// From runs when a side has several, else from slices (unless those are the rows), else as if samples
/// were independent. Slices of a command's whole run show its phases and not how runs differ: that is assumed.
fn dispersions(a: &Side, b: &Side, keys: usize, by: &[By], normalise: Normalise) -> (Dispersions, &'static str) {
    let sides = |of: &dyn Fn(&Side, usize) -> Series| -> Vec<Vec<Series>> {
        (0..keys).map(|k| vec![of(a, k), of(b, k)]).collect()
    };
    if a.runs.len() > 1 || b.runs.len() > 1 {
        let found = Dispersions::from_runs(&sides(&|side, k| run_series(side, k, normalise)));
        if found.is_known() {
            return (found, "runs");
        }
    }
    if normalise == Normalise::Run && a.runs.len() == 1 && b.runs.len() == 1 {
        let mean = |k: usize| (a.weight(k) / a.period + b.weight(k) / b.period) / 2.0;
        return (Dispersions::assumed(&(0..keys).map(mean).collect::<Vec<_>>()), "an assumption");
    }
    if by.contains(&By::Slice) {
        return (Dispersions::from_slices(&[]), "poisson");
    }
    let found = Dispersions::from_slices(&sides(&|side, k| slice_series(side, k, normalise)));
    let name = if found.is_known() { "slices" } else { "poisson" };
    (found, name)
}

fn run_series(side: &Side, key: usize, normalise: Normalise) -> Series {
    let count = |r: &Run| r.by_key.get(&key).copied().unwrap_or(0.0) / side.period;
    let exposure = |r: &Run| match normalise {
        Normalise::Auto | Normalise::Total => r.total,
        Normalise::Wall => r.cpu_seconds,
        // Runs on one side are taken to do the same work.
        Normalise::Run | Normalise::Per(..) => 1.0,
    };
    Series { counts: side.runs.iter().map(count).collect(), exposures: side.runs.iter().map(exposure).collect() }
}

fn slice_series(side: &Side, key: usize, normalise: Normalise) -> Series {
    let mut out = Series::default();
    for run in &side.runs {
        for (slice, exposure) in run.exposures(normalise) {
            out.counts.push(run.by_slice.get(&(key, slice)).copied().unwrap_or(0.0) / side.period);
            out.exposures.push(exposure);
        }
    }
    out
}

fn rows(a: &Side, b: &Side, keys: &Keys, by: &[By], exposures: (f64, f64), dispersions: &Dispersions) -> Vec<DiffRow> {
    let compared: Vec<Compared> =
        (0..keys.len()).map(|k| Compared::new(a, b, k, exposures, dispersions.of(k))).collect();
    let tested: Vec<usize> = (0..compared.len()).filter(|&k| compared[k].samples >= LEAST_SAMPLES).collect();
    let p: Vec<f64> = tested.iter().map(|&k| compared[k].p).collect();
    let all: f64 = tested.iter().map(|&k| compared[k].samples).sum();
    let weights: Vec<f64> = tested.iter().map(|&k| attention(compared[k].samples / all, tested.len())).collect();
    let mut q = vec![1.0; compared.len()];
    for (&k, value) in tested.iter().zip(weighted(&p, &weights)) {
        q[k] = value;
    }
    let labels = (0..keys.len()).map(|k| keys.label_and_image(k, by));
    compared.iter().zip(q).zip(labels).map(|((c, q), (name, image))| c.row(name, image, q)).collect()
}

/// Weight of a test, 1 on average: half is shared evenly among the rows, half by their part of the time. A doubled main loop
/// must not drown among a hundred rows that hardly ran.
fn attention(share: f64, rows: usize) -> f64 {
    0.5 + 0.5 * share * rows as f64
}

/// One row on both sides.
struct Compared {
    /// Weight in A, and in B as if B had A's exposure.
    weight: (f64, f64),
    /// The same, over A's total.
    share: (f64, f64),
    half_width: f64,
    samples: f64,
    p: f64,
}

impl Compared {
    fn new(a: &Side, b: &Side, key: usize, exposures: (f64, f64), dispersion: Dispersion) -> Self {
        let (wa, wb) = (a.weight(key), b.weight(key));
        let counts = (wa / a.period, wb / b.period);
        let scale = exposures.0 / exposures.1;
        let weight = (wa, wb * scale);
        let share = (weight.0 / a.total(), weight.1 / a.total());
        let test = log_ratio(
            Exposed { count: counts.0, exposure: exposures.0 / a.period },
            Exposed { count: counts.1, exposure: exposures.1 / b.period },
            dispersion,
        );
        // A count of zero is uncertain too: by about one sample.
        let variance = |share: f64, count: f64, one: f64| {
            if count > 0.0 { share * share / count } else { one * one }
        };
        let ones = (a.period / a.total(), b.period * scale / a.total());
        let sum = variance(share.0, counts.0, ones.0) + variance(share.1, counts.1, ones.1);
        let half_width = student_quantile(0.975, dispersion.degrees) * (sum * dispersion.factor).sqrt();
        // Nothing changes by more than all there is.
        let half_width = half_width.min(share.0.max(share.1).max(1.0));
        Self { weight, share, half_width, samples: counts.0 + counts.1, p: test.p }
    }

    fn row(&self, label: String, image: String, q: f64) -> DiffRow {
        DiffRow {
            label,
            image,
            share: self.share,
            weight: self.weight,
            change: (self.share.1 - self.share.0, self.half_width),
            q,
            verdict: self.verdict(q),
        }
    }

    fn verdict(&self, q: f64) -> Verdict {
        match self.weight {
            _ if q > LEVEL => Verdict::Same,
            (a, _) if a <= 0.0 => Verdict::New,
            (_, b) if b <= 0.0 => Verdict::Gone,
            (a, b) if b > a => Verdict::Slower,
            _ => Verdict::Faster,
        }
    }
}
