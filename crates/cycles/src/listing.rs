//! `prof`: samples grouped by image, procedure, line, instruction, process, thread or cgroup, one
//! column per event. Every sample of the selection is in exactly one row or in the rest, so the
//! sums over any grouping equal the total.

use crate::axis::{Axis, axis};
use crate::error::Error;
use crate::places::{Inlines, PlaceKind, Places};
use crate::provenance::provenance;
use crate::remark;
use crate::results::{Cell, EventTotals, Listing, ListingRow};
use crate::selection::{Filter, Selection};
use rustc_hash::FxHashMap;
use std::str::FromStr;
use whither_stats::interval;
use whither_store::model::Profile;
use whither_store::symbols::Symbols;

/// What rows of a listing are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// Executable, library, kernel, module.
    Image,
    /// Procedure (with its image, unless images are asked for already).
    Proc,
    /// Source line of the innermost inlined function.
    Line,
    /// Instruction.
    Insn,
    /// Source file.
    File,
    /// Process.
    Process,
    /// Command name of processes.
    Command,
    /// Thread.
    Thread,
    /// Cgroup.
    Cgroup,
    /// Time slice.
    Slice,
}

impl By {
    /// All names, in the order of the variants.
    pub const NAMES: [&'static str; 10] =
        ["image", "proc", "line", "insn", "file", "process", "command", "thread", "cgroup", "slice"];
    const ALL: [Self; 10] = [
        Self::Image,
        Self::Proc,
        Self::Line,
        Self::Insn,
        Self::File,
        Self::Process,
        Self::Command,
        Self::Thread,
        Self::Cgroup,
        Self::Slice,
    ];

    /// Name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Rows of these groupings say which image they are in.
    fn wants_image(self) -> bool {
        matches!(self, Self::Proc | Self::Insn | Self::Line)
    }

    fn needs_places(self) -> bool {
        matches!(self, Self::Proc | Self::Insn)
    }
}

impl FromStr for By {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let alias = match name {
            "procedure" | "function" | "symbol" => "proc",
            "instruction" => "insn",
            "group" => "cgroup",
            "comm" => "command",
            "pid" => "process",
            "tid" => "thread",
            "time" => "slice",
            other => other,
        };
        let found = Self::NAMES.iter().position(|n| *n == alias);
        found.map(|i| Self::ALL[i]).ok_or_else(|| Error::Grouping { name: name.to_owned() })
    }
}

/// A question to [`listing`].
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Groupings, outermost column first; empty: by procedure.
    pub by: Vec<By>,
    /// Which samples.
    pub filter: Filter,
    /// Event columns, the first one sorts; empty: all, in the recording's order.
    pub events: Vec<String>,
    /// Rows shown; the others go into the rest. `None`: all.
    pub limit: Option<usize>,
    /// What becomes of inlined code.
    pub inlines: Inlines,
}

/// Groups the samples that pass the filter.
///
/// # Errors
/// [`Error::Empty`], [`Error::Event`], or [`Error::NothingMatched`].
pub fn listing(profile: &Profile, symbols: &dyn Symbols, query: &Query) -> Result<Listing, Error> {
    let mut selection = Selection::new(profile, &query.filter, &query.events)?;
    let by = groupings(&query.by);
    let places = places(&mut selection, symbols, query, &by);
    if selection.rows.is_empty() {
        return Err(nothing_matched(profile, &query.filter));
    }
    let axes: Vec<Axis<'_>> = by.iter().map(|b| axis(*b, &selection, &places, symbols)).collect();
    let groups = Groups::new(&selection, &axes);
    let provenance = provenance(&selection, &query.filter);
    let totals = &provenance.events;
    let order = groups.largest_first();
    let shown = query.limit.unwrap_or(usize::MAX).min(order.len());
    let sampling = Sampling::of(&selection);
    let mut rows: Vec<ListingRow> = order[..shown]
        .iter()
        .map(|&g| ListingRow {
            labels: groups.labels(g, &axes),
            cells: groups.cells(g, totals),
            cumulative: 0.0,
            error: 0.0,
            remark: groups.remark(g, &by, &selection, &places),
        })
        .collect();
    finish(&mut rows, totals, sampling);
    let rest = groups.rest(&order[shown..], totals);
    let by = by.iter().map(|b| b.name().to_owned()).collect();
    Ok(Listing { provenance, by, rows, rest, filters: query.filter.describe() })
}

/// The groupings asked for, without repetitions, with the image where rows need it.
fn groupings(asked: &[By]) -> Vec<By> {
    let mut by: Vec<By> = Vec::new();
    for b in asked.iter().copied().chain(asked.is_empty().then_some(By::Proc)) {
        if !by.contains(&b) {
            by.push(b);
        }
    }
    if by.iter().any(|b| b.wants_image()) && !by.contains(&By::Image) {
        by.push(By::Image);
    }
    by
}

fn places(selection: &mut Selection<'_>, symbols: &dyn Symbols, query: &Query, by: &[By]) -> Places {
    if query.filter.procs.is_empty() && !by.iter().any(|b| b.needs_places()) {
        return Places::default();
    }
    let mut places = Places::resolve(selection, symbols, query.inlines);
    places.retain(selection, &query.filter.procs);
    places
}

fn nothing_matched(profile: &Profile, filter: &Filter) -> Error {
    let filters = filter.describe();
    let filters = if filters.is_empty() { "the events asked for".to_owned() } else { filters.join(", ") };
    let samples = profile.samples.iter().map(|s| u64::from(s.count)).sum();
    Error::NothingMatched { filters, samples }
}

/// The groups of a listing and their sums.
struct Groups {
    columns: usize,
    /// One value per axis, group after group.
    keys: Vec<Vec<u32>>,
    /// First row (index into the selection) of each group.
    first: Vec<usize>,
    /// Samples and weight per column, group after group.
    sums: Vec<(u64, u64)>,
}

impl Groups {
    fn new(selection: &Selection<'_>, axes: &[Axis<'_>]) -> Self {
        let columns = selection.columns.len();
        let (of_row, keys) = combine(selection.rows.len(), axes);
        let mut sums = vec![(0u64, 0u64); keys.len() * columns];
        let mut first = vec![usize::MAX; keys.len()];
        for (i, (&row, &group)) in selection.rows.iter().zip(&of_row).enumerate() {
            let sample = selection.sample(row);
            let column = selection.column(sample.event).expect("selected rows have a column");
            let group = group as usize;
            let sum = &mut sums[group * columns + column];
            sum.0 += u64::from(sample.count);
            sum.1 = sum.1.saturating_add(sample.weight());
            first[group] = first[group].min(i);
        }
        Self { columns, keys, first, sums }
    }

    fn sums(&self, group: usize) -> &[(u64, u64)] {
        &self.sums[group * self.columns..][..self.columns]
    }

    /// By weight in the first event, then the others; equal ones in order of first appearance.
    fn largest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        let weights = |g: usize| self.sums(g).iter().map(|s| s.1);
        order.sort_by(|&a, &b| weights(b).cmp(weights(a)).then(self.first[a].cmp(&self.first[b])));
        order
    }

    fn labels(&self, group: usize, axes: &[Axis<'_>]) -> Vec<String> {
        self.keys[group].iter().zip(axes).map(|(&v, axis)| (axis.label)(v)).collect()
    }

    fn cells(&self, group: usize, totals: &[EventTotals]) -> Vec<Cell> {
        self.sums(group).iter().zip(totals).map(|(s, t)| cell(*s, t)).collect()
    }

    fn rest(&self, groups: &[usize], totals: &[EventTotals]) -> Option<(usize, Vec<Cell>)> {
        let mut sums = vec![(0u64, 0u64); self.columns];
        for &g in groups {
            for (sum, part) in sums.iter_mut().zip(self.sums(g)) {
                sum.0 += part.0;
                sum.1 = sum.1.saturating_add(part.1);
            }
        }
        let cells = sums.iter().zip(totals).map(|(s, t)| cell(*s, t)).collect();
        (!groups.is_empty()).then_some((groups.len(), cells))
    }

    fn remark(&self, group: usize, by: &[By], selection: &Selection<'_>, places: &Places) -> Option<String> {
        if !by.contains(&By::Image) {
            return None;
        }
        let row = self.first[group];
        let sample = selection.sample(selection.rows[row]);
        let image = selection.profile.image(sample.image);
        let name = by.iter().any(|b| b.needs_places()).then(|| places.get(places.of_row[row]));
        let name = name.and_then(|p| match &p.kind {
            PlaceKind::Function { name, .. } => Some(&**name),
            _ => None,
        });
        remark::of(image, name, selection.profile.event(selection.columns[0]))
    }
}

fn cell((samples, weight): (u64, u64), total: &EventTotals) -> Cell {
    Cell { samples, weight, share: ratio(weight, total.weight) }
}

/// 0 of 0 is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Numbers the distinct combinations of the axes' values: for each row its group, and per group
/// the values.
fn combine(rows: usize, axes: &[Axis<'_>]) -> (Vec<u32>, Vec<Vec<u32>>) {
    let mut group = vec![0u32; rows];
    let mut keys: Vec<Vec<u32>> = vec![Vec::new()];
    for axis in axes {
        let mut seen: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut next: Vec<Vec<u32>> = Vec::new();
        for (g, &value) in group.iter_mut().zip(&axis.of_row) {
            *g = *seen.entry((*g, value)).or_insert_with(|| {
                let mut key = keys[*g as usize].clone();
                key.push(value);
                next.push(key);
                u32::try_from(next.len() - 1).expect("fewer groups than sample rows")
            });
        }
        keys = next;
    }
    (group, keys)
}

/// How many independent samples the first column is worth.
#[derive(Clone, Copy)]
struct Sampling {
    effective: f64,
}

impl Sampling {
    /// Samples of unequal periods are worth fewer than their number (Kish): the square of the sum
    /// of weights over the sum of their squares.
    fn of(selection: &Selection<'_>) -> Self {
        let (mut sum, mut squares) = (0.0, 0.0);
        for &row in &selection.rows {
            let s = selection.sample(row);
            if selection.column(s.event) == Some(0) {
                let (n, period) = (f64::from(s.count), s.period as f64);
                sum += n * period;
                squares += n * period * period;
            }
        }
        Self { effective: if squares > 0.0 { sum * sum / squares } else { 0.0 } }
    }

    /// Half width of the 95 % interval; it does not claim certainty for shares of 0 or 1 seen in few
    /// samples.
    fn half_width(self, share: f64) -> f64 {
        interval::share_at(share * self.effective, self.effective, 0.95).half_width()
    }
}

fn finish(rows: &mut [ListingRow], totals: &[EventTotals], sampling: Sampling) {
    let mut sum = 0u64;
    for row in rows {
        sum = sum.saturating_add(row.cells[0].weight);
        row.cumulative = ratio(sum, totals[0].weight);
        row.error = sampling.half_width(row.cells[0].share);
    }
}
