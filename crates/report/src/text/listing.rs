//! A listing as text: the paper's figure 1, with the sampling error beside every share.

use super::header::{filled, header, notes};
use super::number::{percent, thousands};
use super::table::{Column, Table, Tone};
use super::{Layout, grouping, tone_of};
use whither_cycles::results::{Cell, Listing, ListingRow};

/// Header, table, remarks, notes.
#[must_use]
pub fn listing(l: &Listing, layout: &Layout) -> String {
    let mut remarks: Vec<&str> = Vec::new();
    let mut table = Table::new(columns(l));
    table.row(Tone::Head, titles(l));
    for row in &l.rows {
        let mark = row.remark.as_deref().map(|r| number_of(r, &mut remarks));
        table.row(tone_of(row.cells.first().map_or(0.0, |c| c.share)), cells(row, mark));
    }
    if let Some((n, cells)) = &l.rest {
        table.row(Tone::Faint, rest(l, *n, cells));
    }
    let mut out = header(&l.provenance, layout);
    if !l.filters.is_empty() {
        out.push_str(&format!("only {}\n", l.filters.join(", ")));
    }
    out.push_str(&table.render(layout.style, layout.width));
    for (i, remark) in remarks.iter().enumerate() {
        out.push_str(&filled(&format!("[{}] ", i + 1), remark, layout));
    }
    out.push_str(&notes(&l.provenance.notes, layout));
    out
}

/// Remarks are numbered in order of appearance.
fn number_of<'a>(remark: &'a str, remarks: &mut Vec<&'a str>) -> usize {
    let at = remarks.iter().position(|r| *r == remark).unwrap_or_else(|| {
        remarks.push(remark);
        remarks.len() - 1
    });
    at + 1
}

fn columns(l: &Listing) -> Vec<Column> {
    let numbers = 4 + 2 * l.provenance.events.len().saturating_sub(1);
    let mut columns = vec![Column::Number; numbers];
    columns.extend(l.by.iter().map(|_| Column::Name));
    columns
}

fn titles(l: &Listing) -> Vec<String> {
    let mut out: Vec<String> = ["samples", "%", "cum%", "+-95%"].map(Into::into).into();
    for e in l.provenance.events.iter().skip(1) {
        out.extend([e.name.clone(), "%".into()]);
    }
    out.extend(l.by.iter().map(|b| grouping(b).to_owned()));
    out
}

fn cells(row: &ListingRow, mark: Option<usize>) -> Vec<String> {
    let main = row.cells.first().copied().unwrap_or_default();
    let mut out = vec![thousands(main.samples), percent(main.share), percent(row.cumulative), percent(row.error)];
    out.extend(row.cells.iter().skip(1).flat_map(other_event));
    out.extend(row.labels.iter().cloned());
    if let (Some(n), Some(label)) = (mark, row.labels.first()) {
        let at = out.len() - row.labels.len();
        out[at] = format!("{label} [{n}]");
    }
    out
}

fn other_event(cell: &Cell) -> [String; 2] {
    [thousands(cell.samples), percent(cell.share)]
}

fn rest(l: &Listing, n: usize, cells: &[Cell]) -> Vec<String> {
    let main = cells.first().copied().unwrap_or_default();
    let mut out = vec![thousands(main.samples), percent(main.share), percent(1.0), String::new()];
    out.extend(cells.iter().skip(1).flat_map(other_event));
    let what = if n == 1 { "row" } else { "rows" };
    out.push(format!("({} more {what})", thousands(n as u64)));
    out.extend(l.by.iter().skip(1).map(|_| String::new()));
    out
}
