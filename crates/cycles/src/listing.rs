//! `prof`: samples grouped by image, procedure, line, instruction, process, thread or cgroup, one
//! column per event. Every sample of the selection is in exactly one row or in the rest, so the
//! sums over any grouping equal the total.

use crate::axis::{Axis, axis};
use crate::error::Error;
use crate::groups::{Groups, Sampling, ratio};
use crate::near::near_matches;
use crate::pileups::PileUps;
use crate::places::{Inlines, Places};
use crate::provenance::provenance;
use crate::remark::IRQS_OFF;
use crate::results::{EventTotals, Listing, ListingRow};
use crate::selection::{Filter, Selection};
use std::str::FromStr;
use whither_store::model::{EventIx, Image, Precision, Profile};
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

    pub(crate) fn needs_places(self) -> bool {
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
    let Prepared { selection, by, places } = Prepared::new(profile, symbols, query)?;
    let axes: Vec<Axis<'_>> = by.iter().map(|b| axis(*b, &selection, &places, symbols)).collect();
    let groups = Groups::new(&selection, &axes);
    let mut provenance = provenance(&selection, &query.filter);
    provenance.notes.extend(late_note(&selection, &by, query.inlines == Inlines::Expand));
    let totals = &provenance.events;
    let order = groups.largest_first();
    let shown = query.limit.unwrap_or(usize::MAX).min(order.len());
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
    tell_callers(&mut rows, &order, &groups, &Asked { selection: &selection, places: &places, symbols, query });
    finish(&mut rows, totals, Sampling::of(&selection));
    let rest = groups.rest(&order[shown..], totals);
    let by = by.iter().map(|b| b.name().to_owned()).collect();
    Ok(Listing { provenance, by, rows, rest, filters: query.filter.describe() })
}

/// Rows finer than procedures are of where the CPU stood, not of what it waited for.
fn late_note(selection: &Selection<'_>, by: &[By], inlines: bool) -> Option<String> {
    let fine = inlines || by.iter().any(|b| matches!(b, By::Insn | By::Line));
    let late = |e: &EventIx| {
        let precision = selection.profile.event(*e).precision;
        !matches!(precision, Precision::Exact | Precision::Skid(0))
    };
    (fine && selection.columns.iter().any(late)).then(|| {
        "instructions, lines and inlined functions are those at which the CPU was interrupted, mostly one instruction behind the one that took the time; `whither topcounts` and `whither annotate` move samples back"
            .to_owned()
    })
}

/// What rows were made from.
struct Asked<'a> {
    selection: &'a Selection<'a>,
    places: &'a Places,
    symbols: &'a dyn Symbols,
    query: &'a Query,
}

/// Names who is behind time that piles up; stacks are looked at only where it does.
fn tell_callers(rows: &mut [ListingRow], order: &[usize], groups: &Groups, asked: &Asked<'_>) {
    if !rows.iter().any(|r| r.remark.as_deref() == Some(IRQS_OFF)) {
        return;
    }
    let piles = PileUps::of(asked.selection, asked.symbols, &asked.query.filter);
    for (row, &group) in rows.iter_mut().zip(order).filter(|(r, _)| r.remark.as_deref() == Some(IRQS_OFF)) {
        row.remark = groups.function(group, asked.places).map(|f| piles.remark(f));
    }
}

/// A question made ready for grouping.
struct Prepared<'a> {
    selection: Selection<'a>,
    by: Vec<By>,
    places: Places,
}

impl<'a> Prepared<'a> {
    fn new(profile: &'a Profile, symbols: &dyn Symbols, query: &Query) -> Result<Self, Error> {
        let mut selection = Selection::new(profile, &query.filter, &query.events)?;
        let by = groupings(&query.by);
        let places = resolved(&mut selection, symbols, &query.filter, query.inlines, &by);
        if selection.rows.is_empty() {
            return Err(nothing_matched(profile, &query.filter));
        }
        Ok(Self { selection, by, places })
    }
}

/// Labels of the largest groups, and for each selected row (by index into the profile) its group.
pub(crate) struct Grouped {
    pub labels: Vec<String>,
    pub of_row: Vec<(u32, Option<usize>)>,
}

/// The grouping of a listing, row by row, for answers of other shapes.
pub(crate) fn grouped(profile: &Profile, symbols: &dyn Symbols, query: &Query) -> Result<Grouped, Error> {
    let Prepared { selection, by, places } = Prepared::new(profile, symbols, query)?;
    let axes: Vec<Axis<'_>> = by.iter().map(|b| axis(*b, &selection, &places, symbols)).collect();
    let groups = Groups::new(&selection, &axes);
    let order = groups.largest_first();
    let shown = query.limit.unwrap_or(usize::MAX).min(order.len());
    let mut rank = vec![None; order.len()];
    order[..shown].iter().enumerate().for_each(|(r, &g)| rank[g] = Some(r));
    let of_row = selection.rows.iter().zip(&groups.of_row).map(|(&row, &g)| (row, rank[g as usize])).collect();
    let labels = order[..shown].iter().map(|&g| groups.labels(g, &axes).join("  ")).collect();
    Ok(Grouped { labels, of_row })
}

/// The groupings asked for, without repetitions, with the image where rows need it.
pub(crate) fn groupings(asked: &[By]) -> Vec<By> {
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

/// The procedures of a selection where groupings or the filter ask for them; the filter's part that
/// concerns them is applied.
pub(crate) fn resolved(
    selection: &mut Selection<'_>,
    symbols: &dyn Symbols,
    filter: &Filter,
    inlines: Inlines,
    by: &[By],
) -> Places {
    if filter.procs.is_empty() && !by.iter().any(|b| b.needs_places()) {
        return Places::default();
    }
    let mut places = Places::resolve(selection, symbols, inlines);
    places.retain(selection, &filter.procs);
    places
}

pub(crate) fn nothing_matched(profile: &Profile, filter: &Filter) -> Error {
    let filters = filter.describe();
    let mut filters = if filters.is_empty() { "the events asked for".to_owned() } else { filters.join(", ") };
    filters.extend(stored_under_another_path(profile, filter));
    let samples = profile.samples.iter().map(|s| u64::from(s.count)).sum();
    Error::NothingMatched { filters, near: near_images(profile, filter), samples }
}

/// Images with samples whose file names look like those of the images asked for, when the recording has none of these.
#[must_use]
pub fn near_images(profile: &Profile, filter: &Filter) -> Vec<String> {
    const NAMED: usize = 3;
    if profile.images.iter().any(|i| filter.images.iter().any(|p| p.matches_path(&i.path))) {
        return Vec::new();
    }
    let mut samples = vec![0_u64; profile.images.len()];
    profile.samples.iter().for_each(|s| samples[s.image.0 as usize] += u64::from(s.count));
    let mut images: Vec<(u64, &Image)> = samples.into_iter().zip(&profile.images).filter(|i| i.0 > 0).collect();
    images.sort_by_key(|(samples, _)| std::cmp::Reverse(*samples));
    let mut near: Vec<String> = Vec::new();
    for pattern in &filter.images {
        let wanted = pattern.text().rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
        let names: Vec<String> = near_matches(wanted, images.iter().map(|i| i.1.short_name()), NAMED);
        let paths = images.iter().filter(|i| names.iter().any(|n| n == i.1.short_name())).map(|i| i.1.path.clone());
        near.extend(paths);
    }
    near.dedup();
    near.truncate(NAMED);
    near
}

/// Files of the same contents are one image, under the first path seen: says so where another path was asked for.
fn stored_under_another_path(profile: &Profile, filter: &Filter) -> Option<String> {
    let asked = |path: &str| filter.images.iter().any(|p| p.matches_path(path));
    if filter.images.is_empty() || profile.images.iter().any(|i| asked(&i.path)) {
        return None;
    }
    let exe = &profile.processes.iter().find(|p| asked(&p.exe))?.exe;
    Some(format!(
        " ({exe} ran, but its code is that of another file with the same contents or build-id: such files are one image, under the \
         first path seen; choose with --process)"
    ))
}

fn finish(rows: &mut [ListingRow], totals: &[EventTotals], sampling: Sampling) {
    let mut sum = 0u64;
    for row in rows {
        sum = sum.saturating_add(row.cells[0].weight);
        row.cumulative = ratio(sum, totals[0].weight);
        row.error = sampling.half_width(row.cells[0].share);
    }
}
