//! A difference as text: what grew and shrank, by how much, and how sure that is.

use super::Layout;
use super::header::{header, notes};
use super::number::{percent, signed_percent, thousands};
use super::table::{Column, Table, Tone};
use whither_cycles::results::{DiffRow, Difference, Provenance, Verdict};

/// Both sides' provenance, the rows, and how the error was obtained.
#[must_use]
pub fn difference(d: &Difference, layout: &Layout) -> String {
    let mut out = side("A", &d.a, layout) + &side("B", &d.b, layout);
    let meaning = if d.normalised == "total" { " (shares: what one gains, the others lose)" } else { "" };
    out.push_str(&format!(
        "normalised by {}{meaning}; variance from {}, {:.2} times that of independent samples\n",
        d.normalised, d.variance, d.dispersion
    ));
    if d.rows.is_empty() {
        out.push_str("no procedure changed beyond chance\n");
    } else {
        out.push_str(&table(d).render(layout.style, layout.width));
    }
    if d.hidden > 0 {
        out.push_str(&format!("{} procedures within chance not shown\n", thousands(d.hidden as u64)));
    }
    out + &both_notes(d, layout)
}

fn side(name: &str, p: &Provenance, layout: &Layout) -> String {
    let title = format!("{name}: {}", p.sources.join(", "));
    layout.style.paint(Tone::Head, &title) + "\n" + &header(p, layout)
}

fn table(d: &Difference) -> Table {
    let mut columns = vec![Column::Number; 5];
    columns.extend([Column::Mark, Column::Name, Column::Name]);
    let mut table = Table::new(columns);
    let titles = ["A %", "B %", "change", "+-95%", "q", "verdict", "procedure", "image"];
    table.row(Tone::Head, titles.map(Into::into).into());
    for row in &d.rows {
        table.row(tone(row.verdict), cells(row));
    }
    table
}

fn cells(row: &DiffRow) -> Vec<String> {
    vec![
        percent(row.share.0),
        percent(row.share.1),
        signed_percent(row.change.0),
        percent(row.change.1),
        chance(row.q),
        verdict(row.verdict).into(),
        row.label.clone(),
        row.image.clone(),
    ]
}

fn chance(q: f64) -> String {
    if q < 0.001 { "<0.001".into() } else { format!("{q:.3}") }
}

fn verdict(v: Verdict) -> &'static str {
    match v {
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::Same => "same",
        Verdict::New => "new",
        Verdict::Gone => "gone",
    }
}

fn tone(v: Verdict) -> Tone {
    match v {
        Verdict::Slower | Verdict::New => Tone::Hot,
        Verdict::Faster | Verdict::Gone => Tone::Warm,
        Verdict::Same => Tone::Plain,
    }
}

/// Notes of both sides, those in common once.
fn both_notes(d: &Difference, layout: &Layout) -> String {
    let common = |n: &&String| d.a.notes.contains(n) && d.b.notes.contains(n);
    let mut lines: Vec<String> = d.a.notes.iter().filter(common).cloned().collect();
    for (name, p) in [("A", &d.a), ("B", &d.b)] {
        lines.extend(p.notes.iter().filter(|n| !common(n)).map(|n| format!("{name}: {n}")));
    }
    notes(&lines, layout)
}
