//! Two call-path profiles, before and after, as text.

use super::Layout;
use super::number::{duration, nanoseconds, thousands};
use super::table::{Column, Table, Tone};
use whither_calls::{CallDifference, DifferenceRow, Figures};

/// Totals, functions and paths, those that changed most first; at most `top` paths.
#[must_use]
pub fn calls_difference(d: &CallDifference, top: usize, layout: &Layout) -> String {
    let seconds = |ns: u64| duration(ns as f64 / 1e9);
    let (a, b) = d.whole;
    let head = format!(
        "before -> after: wall {} -> {} ({}), CPU {} -> {} ({}), calls {} -> {}",
        seconds(a.wall_ns),
        seconds(b.wall_ns),
        change(a.wall_ns as f64, b.wall_ns as f64),
        seconds(a.cpu_ns),
        seconds(b.cpu_ns),
        change(a.cpu_ns as f64, b.cpu_ns as f64),
        thousands(a.calls),
        thousands(b.calls)
    );
    let mut out = layout.style.paint(Tone::Head, &head) + "\n";
    if d.rebuilt {
        out.push_str("the program was rebuilt: call sites are matched by their order, not by address\n");
    }
    out.push_str(&table(&d.functions, d.functions.len(), "function", Column::Name).render(layout.style, layout.width));
    out.push_str(&table(&d.paths, top, "call path", Column::Path).render(layout.style, layout.width));
    if d.paths.len() > top {
        out.push_str(&format!("... {} more paths that changed less\n", thousands((d.paths.len() - top) as u64)));
    }
    out
}

fn table(rows: &[DifferenceRow], top: usize, what: &str, name: Column) -> Table {
    let mut columns = vec![Column::Number; 9];
    columns.push(name);
    let mut table = Table::new(columns);
    let titles = ["total", "after", "change", "avg", "after", "change", "count", "after", "change", what];
    table.row(Tone::Head, titles.map(Into::into).into());
    for row in rows.iter().take(top) {
        table.row(tone(row), cells(row));
    }
    table
}

fn cells(row: &DifferenceRow) -> Vec<String> {
    let (b, a) = (row.before.as_ref(), row.after.as_ref());
    let mut cells = Vec::with_capacity(10);
    three(&mut cells, (b, a), |f| Some(f.wall_ns as f64), nanoseconds);
    three(&mut cells, (b, a), |f| f.average_ns, nanoseconds);
    three(&mut cells, (b, a), |f| Some(f.calls as f64), |n| thousands(n as u64));
    cells.push(row.label.clone());
    cells
}

/// Before, after and change of one figure.
fn three(
    cells: &mut Vec<String>,
    sides: (Option<&Figures>, Option<&Figures>),
    figure: impl Fn(&Figures) -> Option<f64>,
    show: impl Fn(f64) -> String,
) {
    let (before, after) = (sides.0.and_then(&figure), sides.1.and_then(&figure));
    let shown = |value: Option<f64>| value.map_or_else(|| "-".into(), &show);
    cells.extend([shown(before), shown(after)]);
    cells.push(match (sides, before, after) {
        ((None, _), ..) => "new".into(),
        ((_, None), ..) => "gone".into(),
        (_, Some(before), Some(after)) => change(before, after),
        _ => "-".into(),
    });
}

/// `-38.6 %`.
fn change(before: f64, after: f64) -> String {
    if before == after {
        return "=".into();
    }
    if before <= 0.0 {
        return "new".into();
    }
    format!("{:+.1} %", (after - before) / before * 100.0)
}

/// Slower is hot, faster is warm; a tenth either way is not worth colour.
fn tone(row: &DifferenceRow) -> Tone {
    let wall = |f: &Option<Figures>| f.as_ref().map_or(0.0, |f| f.wall_ns as f64);
    let (before, after) = (wall(&row.before), wall(&row.after));
    if after > before * 1.1 {
        Tone::Hot
    } else if after < before * 0.9 {
        Tone::Warm
    } else {
        Tone::Plain
    }
}
