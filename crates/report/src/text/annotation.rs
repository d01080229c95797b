//! An annotated procedure as text: instructions with their samples, source lines between them, a
//! bar of heat beside them; long cold stretches are folded and counted.

use super::header::{header, notes, wrapped};
use super::number::{fractional, percent, thousands};
use super::table::{Column, Table, Tone, middle_cut};
use super::{Layout, tone_of};
use whither_cycles::results::{Annotation, InsnRow, LineRow};

/// What of a procedure to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnnotationView {
    /// Instructions with source lines between.
    #[default]
    Both,
    /// Instructions only.
    Asm,
    /// Source lines only.
    Source,
}

/// Cold rows kept on either side of a warm one.
const CONTEXT: usize = 4;
/// A cold stretch is folded when this many rows or more would vanish.
const FOLD: usize = 6;

/// Head line, rows, notes.
#[must_use]
pub fn annotation(a: &Annotation, view: AnnotationView, layout: &Layout) -> String {
    let mut out = header(&a.provenance, layout) + &head(a, layout);
    let rows = match view {
        AnnotationView::Source if !a.lines.is_empty() => source_rows(a),
        AnnotationView::Source | AnnotationView::Asm => insn_rows(a, false),
        AnnotationView::Both => insn_rows(a, true),
    };
    out.push_str(&table(a, view, &rows).render(layout.style, layout.width));
    out.push_str(&notes(&a.notes, layout));
    out.push_str(&notes(&a.provenance.notes, layout));
    out
}

pub(super) fn head(a: &Annotation, layout: &Layout) -> String {
    let cell = a.cells.first().copied().unwrap_or_default();
    let event = a.provenance.events.first().map_or("", |e| e.name.as_str());
    let kind =
        if a.corrected { "samples moved to the instruction waited for" } else { "samples where they were taken" };
    let items = [
        middle_cut(&a.procedure, layout.width),
        middle_cut(&a.image, layout.width),
        ranges(a),
        format!("{} % of {event}, {} samples", percent(cell.share), thousands(cell.samples)),
        kind.to_owned(),
    ];
    wrapped(&items, layout)
}

/// Where its code lies.
fn ranges(a: &Annotation) -> String {
    let range = |(start, size): (u64, u64)| format!("{start:#x}..{:#x}", start.saturating_add(size));
    let cold: Vec<String> = a.parts.iter().map(|part| range(*part)).collect();
    let own = range(a.range);
    if cold.is_empty() { own } else { format!("{own} and cold {}", cold.join(", ")) }
}

/// One row before layout.
enum Row<'a> {
    Insn(&'a InsnRow),
    Line(&'a LineRow),
    /// Source text above the instructions it became.
    Between(String),
}

impl Row<'_> {
    fn is_warm(&self) -> bool {
        match self {
            Row::Insn(i) => i.samples.iter().any(|s| *s > 0.0),
            Row::Line(l) => l.samples.iter().any(|s| *s > 0.0),
            Row::Between(_) => false,
        }
    }
}

fn source_rows(a: &Annotation) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut file = None;
    for line in &a.lines {
        if file != Some(line.file) {
            rows.push(Row::Between(file_name(a, line.file).to_owned()));
            file = Some(line.file);
        }
        rows.push(Row::Line(line));
    }
    rows
}

fn insn_rows(a: &Annotation, with_source: bool) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut last = None;
    for insn in &a.insns {
        if with_source && insn.line.is_some() && insn.line != last {
            rows.extend(insn.line.map(|at| Row::Between(source_line(a, at, insn))));
            last = insn.line;
        }
        rows.push(Row::Insn(insn));
    }
    rows
}

/// `copy.c:14  c[i] = a[i];`, with the inlined function's name where there is one.
pub(super) fn source_line(a: &Annotation, (file, line): (u32, u32), insn: &InsnRow) -> String {
    let name = file_name(a, file).rsplit('/').next().unwrap_or_default();
    let found = a.lines.iter().find(|l| l.file == file && l.line == line);
    let text = found.and_then(|l| l.text.as_deref()).unwrap_or_default().trim_end();
    match &insn.inlined {
        Some(f) => format!("{name}:{line}  {text}  (inlined {f})"),
        None => format!("{name}:{line}  {text}"),
    }
}

fn file_name(a: &Annotation, file: u32) -> &str {
    a.files.get(file as usize).map_or("", String::as_str)
}

fn table(a: &Annotation, view: AnnotationView, rows: &[Row<'_>]) -> Table {
    let events = a.cells.len().max(1);
    let mut columns = vec![Column::Number; events + 1];
    columns.extend([Column::Mark, Column::Number, Column::Name]);
    let mut table = Table::new(columns);
    table.row(Tone::Head, titles(a, view));
    let hottest = rows.iter().map(share).fold(0.0, f64::max);
    let keep = kept(rows);
    let mut i = 0;
    while i < rows.len() {
        if keep[i] {
            table.row(tone(&rows[i]), cells(&rows[i], events, hottest));
            i += 1;
        } else {
            let end = (i..rows.len()).find(|&j| keep[j]).unwrap_or(rows.len());
            table.row(Tone::Faint, blank(events, format!("… {} rows without samples", end - i)));
            // The source line that the next instruction belongs to must not vanish with the others.
            let above = rows[i..end].iter().rfind(|r| matches!(r, Row::Between(_)));
            if let (Some(line), Some(Row::Insn(_))) = (above, rows.get(end)) {
                table.row(tone(line), cells(line, events, hottest));
            }
            i = end;
        }
    }
    table
}

fn titles(a: &Annotation, view: AnnotationView) -> Vec<String> {
    let mut out = vec!["samples".to_owned(), "%".into()];
    out.extend(a.provenance.events.iter().skip(1).map(|e| e.name.clone()));
    out.resize(a.cells.len().max(1) + 1, String::new());
    let (at, what) = match view {
        AnnotationView::Source => ("line", "source"),
        _ => ("address", "instruction"),
    };
    out.extend([String::new(), at.into(), what.into()]);
    out
}

/// Rows near a warm one, and short stretches between.
fn kept(rows: &[Row<'_>]) -> Vec<bool> {
    let mut keep = vec![false; rows.len()];
    for i in (0..rows.len()).filter(|&i| rows[i].is_warm()) {
        keep[i.saturating_sub(CONTEXT)..(i + CONTEXT + 1).min(rows.len())].fill(true);
    }
    if !keep.contains(&true) {
        return vec![true; rows.len()];
    }
    let mut i = 0;
    while i < keep.len() {
        let end = (i..keep.len()).find(|&j| keep[j] != keep[i]).unwrap_or(keep.len());
        if !keep[i] && end - i < FOLD {
            keep[i..end].fill(true);
        }
        i = end;
    }
    keep
}

fn share(row: &Row<'_>) -> f64 {
    match row {
        Row::Insn(i) => i.share,
        Row::Line(l) => l.share,
        Row::Between(_) => 0.0,
    }
}

fn tone(row: &Row<'_>) -> Tone {
    match row {
        Row::Between(_) => Tone::Faint,
        row => tone_of(share(row)),
    }
}

fn cells(row: &Row<'_>, events: usize, hottest: f64) -> Vec<String> {
    match row {
        Row::Between(text) => blank(events, text.clone()),
        Row::Insn(i) => {
            let text = if i.text.is_empty() { "(code not available)" } else { &i.text };
            numbers(&i.samples, i.share, hottest, format!("{:x}", i.address), text)
        }
        Row::Line(l) => numbers(&l.samples, l.share, hottest, l.line.to_string(), l.text.as_deref().unwrap_or("")),
    }
}

fn blank(events: usize, text: String) -> Vec<String> {
    let mut out = vec![String::new(); events + 3];
    out.push(text);
    out
}

fn numbers(samples: &[f64], share: f64, hottest: f64, at: String, text: &str) -> Vec<String> {
    let number = |s: f64| if s > 0.0 { fractional(s) } else { String::new() };
    let main = samples.first().copied().unwrap_or(0.0);
    let mut out = vec![number(main), if main > 0.0 { percent(share) } else { String::new() }];
    out.extend(samples.iter().skip(1).map(|s| number(*s)));
    out.extend([bar(share, hottest), at, text.replace('\t', "    ")]);
    out
}

/// Up to six blocks, the hottest row having all of them.
fn bar(share: f64, hottest: f64) -> String {
    const WIDTH: f64 = 6.0;
    if share <= 0.0 || hottest <= 0.0 {
        return String::new();
    }
    let eighths = (share / hottest * WIDTH * 8.0).round() as usize;
    let mut out = "█".repeat(eighths / 8);
    out.extend([' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'].get(eighths % 8).filter(|c| **c != ' '));
    out
}
