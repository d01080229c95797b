//! `topcounts`: the hottest single instructions of everything, skid-corrected, with their text and
//! source line.

use crate::annotate::{AnnotateQuery, annotate_procedure};
use crate::error::Error;
use crate::find::{Procedure, procedures};
use crate::groups::{Sampling, ratio};
use crate::provenance::provenance;
use crate::results::{Annotation, Cell, InsnRow, Listing, ListingRow};
use crate::selection::Selection;
use whither_store::model::Profile;
use whither_store::symbols::Symbols;

/// The `n` instructions with the most samples of the main event. Columns: instruction (address and
/// procedure), text, source line, image. Samples of split instructions are rounded.
///
/// # Errors
/// Those of [`Selection::new`], and [`Error::NoProcedure`] when no sample is in a function.
pub fn topcounts(profile: &Profile, symbols: &dyn Symbols, query: &AnnotateQuery, n: usize) -> Result<Listing, Error> {
    let selection = Selection::new(profile, &query.filter, &query.events)?;
    let provenance = provenance(&selection, &query.filter);
    let mut top = Top { n, rows: Vec::new() };
    let procedures = by_main_event(&selection, symbols);
    for (procedure, samples) in &procedures {
        // Samples never leave their procedure: one with fewer than the least row cannot add to the top.
        if top.is_full_above(*samples) {
            break;
        }
        top.take(&annotate_procedure(&selection, symbols, procedure, query));
    }
    if top.rows.is_empty() {
        return Err(Error::NoProcedure { name: "any".into(), near: Vec::new() });
    }
    let totals = provenance.events.clone();
    let cells = |row: &Candidate| {
        let cell = |(&samples, total): (&f64, &crate::results::EventTotals)| {
            let samples = samples.round() as u64;
            Cell {
                samples,
                weight: samples.saturating_mul(total.weight / total.samples.max(1)),
                share: ratio(samples, total.samples),
            }
        };
        row.samples.iter().zip(&totals).map(cell).collect::<Vec<_>>()
    };
    let sampling = Sampling::of(&selection);
    let mut sum = 0;
    let rows = top.rows.iter().map(|row| {
        let cells = cells(row);
        sum += cells[0].samples;
        let error = sampling.half_width(cells[0].share.min(1.0));
        ListingRow { labels: row.labels.clone(), error, cumulative: ratio(sum, totals[0].samples), cells, remark: None }
    });
    let rows = rows.collect();
    let by = ["insn", "text", "line", "image"].map(Into::into).into();
    Ok(Listing { provenance, by, rows, rest: None, filters: query.filter.describe() })
}

/// Procedures with their samples of the first column, most first.
fn by_main_event(selection: &Selection<'_>, symbols: &dyn Symbols) -> Vec<(Procedure, f64)> {
    let main = selection.only_column(0);
    procedures(&main, symbols).into_iter().map(|p| (p.samples as f64, p)).map(|(n, p)| (p, n)).collect()
}

struct Candidate {
    labels: Vec<String>,
    samples: Vec<f64>,
}

/// The best so far, largest first.
struct Top {
    n: usize,
    rows: Vec<Candidate>,
}

impl Top {
    fn is_full_above(&self, samples: f64) -> bool {
        self.rows.len() >= self.n && self.rows.last().is_none_or(|least| least.samples[0] >= samples)
    }

    fn take(&mut self, a: &Annotation) {
        let hot = a.insns.iter().filter(|i| i.samples.first().is_some_and(|s| *s > 0.0));
        self.rows.extend(hot.map(|i| Candidate { labels: labels(a, i), samples: i.samples.clone() }));
        self.rows.sort_by(|a, b| b.samples[0].total_cmp(&a.samples[0]));
        self.rows.truncate(self.n);
    }
}

fn labels(a: &Annotation, insn: &InsnRow) -> Vec<String> {
    let within = insn.address.wrapping_sub(a.range.0);
    let line = insn.line.map_or_else(String::new, |(file, line)| format!("{}:{line}", a.files[file as usize]));
    vec![format!("{:#x} {}+{within:#x}", insn.address, a.procedure), insn.text.clone(), line, a.image.clone()]
}
