//! A difference as text: what grew and shrank, by how much, and how sure that is.

use super::header::{header, notes};
use super::number::{percent, signed_percent, thousands};
use super::table::{Column, Table, Tone};
use super::{Layout, grouping};
use whither_cycles::BETWEEN_RUNS;
use whither_cycles::results::{DiffRow, Difference, Provenance, Verdict};

/// Both sides' provenance, the rows, and how the error was obtained.
#[must_use]
pub fn difference(d: &Difference, layout: &Layout) -> String {
    let mut out = side("A", &d.a, layout) + &side("B", &d.b, layout);
    let meaning = match d.normalised.as_str() {
        "total" => " (shares: what one gains, the others lose; --per tells more)",
        "run" => " (CPU time of whole runs)",
        _ => "",
    };
    out.push_str(&format!(
        "normalised by {}{meaning}; variance from {}, {:.2} times that of independent samples\n",
        d.normalised, d.variance, d.dispersion
    ));
    if d.variance == "an assumption" {
        out.push_str(&format!(
            "one run on each side: runs of the same are taken to differ by {:.0} %; several on a side (a1.wh,a2.wh) tell\n",
            100.0 * BETWEEN_RUNS
        ));
    }
    if d.rows.is_empty() {
        out.push_str(&format!("no {} changed beyond chance\n", row_word(d)));
    } else {
        out.push_str(&table(d).render(layout.style, layout.width));
    }
    if d.cut > 0 {
        out.push_str(&format!("{} smaller changes not shown\n", thousands(d.cut as u64)));
    }
    if d.hidden > 0 {
        out.push_str(&format!("{} {} within chance not shown\n", thousands(d.hidden as u64), rows_word(d)));
    }
    out + &both_notes(d, layout)
}

fn side(name: &str, p: &Provenance, layout: &Layout) -> String {
    let title = format!("{name}: {}", p.sources.join(", "));
    layout.style.paint(Tone::Head, &title) + "\n" + &header(p, layout)
}

/// What one row is: a procedure, an image; a row where several things make one.
fn row_word(d: &Difference) -> &str {
    match names(d).as_slice() {
        [one] => grouping(one),
        _ => "row",
    }
}

fn rows_word(d: &Difference) -> String {
    let word = row_word(d);
    format!("{word}{}", if word.ends_with('s') { "es" } else { "s" })
}

/// The groupings that make up the label: all but the image, which has a column of its own unless it is
/// the only one.
fn names(d: &Difference) -> Vec<&str> {
    let all = d.by.iter().map(String::as_str);
    all.filter(|b| *b != "image" || d.by.len() == 1).collect()
}

fn has_image_column(d: &Difference) -> bool {
    d.by.len() > 1 && d.by.iter().any(|b| b == "image")
}

fn table(d: &Difference) -> Table {
    let with_image = has_image_column(d);
    let mut columns = vec![Column::Number; 5];
    columns.extend([Column::Mark, Column::Name]);
    let mut titles: Vec<String> = ["A %", "B %", "change", "+-95%", "q", "verdict"].map(Into::into).into();
    titles.push(names(d).iter().map(|b| grouping(b)).collect::<Vec<_>>().join(", "));
    if with_image {
        columns.push(Column::Name);
        titles.push("image".into());
    }
    let mut table = Table::new(columns);
    table.row(Tone::Head, titles);
    for row in &d.rows {
        table.row(tone(row.verdict), cells(d, row, with_image));
    }
    table
}

fn cells(d: &Difference, row: &DiffRow, with_image: bool) -> Vec<String> {
    let mut cells = vec![
        percent(row.share.0),
        percent(row.share.1),
        signed_percent(row.change.0),
        percent(row.change.1),
        chance(row.q),
        verdict(d, row.verdict).into(),
        row.label.clone(),
    ];
    cells.extend(with_image.then(|| row.image.clone()));
    cells
}

fn chance(q: f64) -> String {
    if q < 0.001 { "<0.001".into() } else { format!("{q:.3}") }
}

/// A larger share is no proof of being slower.
fn verdict(d: &Difference, v: Verdict) -> &'static str {
    let shares = d.normalised == "total";
    match v {
        Verdict::Slower if shares => "more",
        Verdict::Faster if shares => "less",
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
