//! `topcounts`: the hottest single instructions of everything, skid-corrected, with their text and
//! source line.

use crate::annotate::{AnnotateQuery, Extent, annotation};
use crate::error::Error;
use crate::find::{Procedure, procedures};
use crate::groups::{Sampling, ratio};
use crate::provenance::provenance;
use crate::remark;
use crate::results::{Annotation, Cell, EventTotals, InsnRow, Listing, ListingRow, Provenance};
use crate::selection::Selection;
use whither_store::model::Profile;
use whither_store::symbols::Symbols;

/// The `n` instructions with the most weight of the main event. Columns: instruction (address and
/// procedure), text, source line, image. Samples of split instructions are rounded.
///
/// # Errors
/// Those of [`Selection::new`], and [`Error::NoProcedure`] when no sample is in a function.
pub fn topcounts(profile: &Profile, symbols: &dyn Symbols, query: &AnnotateQuery, n: usize) -> Result<Listing, Error> {
    let selection = Selection::new(profile, &query.filter, &query.events)?;
    let mut provenance = provenance(&selection, &query.filter);
    let top = Top::of(&selection, symbols, query, n, &provenance.events);
    if top.rows.is_empty() {
        return Err(Error::NoProcedure { name: "any".into(), near: Vec::new() });
    }
    provenance.notes.extend(outside_note(&selection, symbols, &provenance.events));
    let by = ["insn", "text", "line", "image"].map(Into::into).into();
    let rows = rows(top, &selection, &provenance.events);
    Ok(Listing { provenance, by, rows, rest: None, filters: query.filter.describe() })
}

fn rows(top: Top, selection: &Selection<'_>, totals: &[EventTotals]) -> Vec<ListingRow> {
    let sampling = Sampling::of(selection);
    let mut sum = 0u64;
    let row = |c: Candidate| {
        let cells: Vec<Cell> = c.sums.iter().zip(totals).map(|(sum, total)| cell(*sum, total)).collect();
        sum = sum.saturating_add(cells[0].weight);
        ListingRow {
            labels: c.labels,
            cumulative: ratio(sum, totals[0].weight),
            error: sampling.half_width(cells[0].share.min(1.0)),
            cells,
            remark: c.remark,
        }
    };
    top.rows.into_iter().map(row).collect()
}

fn cell((samples, weight): (f64, f64), total: &EventTotals) -> Cell {
    let weight = weight.round() as u64;
    Cell { samples: samples.round() as u64, weight, share: ratio(weight, total.weight) }
}

/// Samples in no function have no instruction to list.
fn outside_note(selection: &Selection<'_>, symbols: &dyn Symbols, totals: &[EventTotals]) -> Option<String> {
    let inside: u64 = procedures(&selection.only_column(0), symbols).iter().map(|p| p.samples).sum();
    let outside = totals[0].samples.saturating_sub(inside);
    (outside > 0).then(|| format!("{outside} samples lie outside of any function and are not listed"))
}

/// One instruction: labels, and samples and weight per column.
struct Candidate {
    labels: Vec<String>,
    sums: Vec<(f64, f64)>,
    remark: Option<String>,
}

impl Candidate {
    fn new(a: &Annotation, insn: &InsnRow, remark: Option<&str>) -> Self {
        let sum = |(i, (&samples, cell)): (usize, (&f64, &Cell))| {
            let of_cell = if i == 0 { insn.share } else { samples / (cell.samples as f64).max(1.0) };
            (samples, of_cell * cell.weight as f64)
        };
        let sums = insn.samples.iter().zip(&a.cells).enumerate().map(sum).collect();
        Self { labels: labels(a, insn), sums, remark: remark.map(Into::into) }
    }

    fn weight(&self) -> f64 {
        self.sums.first().map_or(0.0, |s| s.1)
    }
}

fn labels(a: &Annotation, insn: &InsnRow) -> Vec<String> {
    let within = insn.address.wrapping_sub(a.range.0);
    let line = insn.line.map_or_else(String::new, |(file, line)| format!("{}:{line}", a.files[file as usize]));
    vec![format!("{:#x} {}+{within:#x}", insn.address, a.procedure), insn.text.clone(), line, a.image.clone()]
}

/// The best so far, largest first.
struct Top {
    n: usize,
    rows: Vec<Candidate>,
}

impl Top {
    fn of(
        selection: &Selection<'_>,
        symbols: &dyn Symbols,
        query: &AnnotateQuery,
        n: usize,
        totals: &[EventTotals],
    ) -> Self {
        let mut top = Self { n, rows: Vec::new() };
        let event = selection.profile.event(selection.columns[0]);
        for procedure in by_weight(selection, symbols) {
            // Weight never leaves its procedure: one lighter than the least row cannot add to the top.
            if top.is_full_above(procedure.1) {
                break;
            }
            let procedure = procedure.0;
            let shared = Provenance { events: totals.to_vec(), ..Provenance::default() };
            let remark = remark::of(selection.profile.image(procedure.image), Some(&procedure.name), event);
            top.take(&annotation(selection, symbols, &procedure, Extent::Own, query, shared), remark.as_deref());
        }
        top
    }

    fn is_full_above(&self, weight: f64) -> bool {
        self.rows.len() >= self.n && self.rows.last().is_none_or(|least| least.weight() >= weight)
    }

    fn take(&mut self, a: &Annotation, remark: Option<&str>) {
        let hot = a.insns.iter().filter(|i| i.share > 0.0);
        self.rows.extend(hot.map(|i| Candidate::new(a, i, remark)));
        self.rows.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        self.rows.truncate(self.n);
    }
}

/// Procedures with at most this weight of the first column each, heaviest first.
fn by_weight(selection: &Selection<'_>, symbols: &dyn Symbols) -> Vec<(Procedure, f64)> {
    let main = selection.only_column(0);
    let longest = main.rows.iter().map(|&r| main.sample(r).period).max().unwrap_or(1);
    let bound = |p: Procedure| {
        let weight = p.samples as f64 * longest as f64;
        (p, weight)
    };
    procedures(&main, symbols).into_iter().map(bound).collect()
}
