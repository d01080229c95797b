//! Two call-path profiles, before and after, as text.

use super::Layout;
use super::calls::{RUNNING, bounds, per_call, total};
use super::number::{duration, thousands};
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
    for line in signs(d, top) {
        out.push_str(&layout.style.paint(Tone::Faint, &line));
        out.push('\n');
    }
    out
}

/// What signs beside the times shown mean.
fn signs(d: &CallDifference, top: usize) -> Vec<String> {
    let rows = || d.functions.iter().chain(d.paths.iter().take(top)).flat_map(|r| r.before.iter().chain(&r.after));
    let running = rows().any(|f| f.timed && f.running.calls > 0);
    let running = running.then(|| RUNNING.to_owned());
    let all = || d.functions.iter().chain(d.paths.iter().take(top));
    let within = all().any(|row| cells(row).iter().any(|cell| cell == WITHIN)).then(|| {
        format!(
            "{WITHIN}: the difference is no larger than what measuring may add or hide on both sides: there may be none"
        )
    });
    running.into_iter().chain(bounds(rows())).chain(within).collect()
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
    three(&mut cells, (b, a), |f| f.timed.then_some(f.wall_ns as f64), all_time, sureness);
    three(&mut cells, (b, a), |f| f.average_ns, per_call, |f| sureness(f).of_each(f.done));
    three(&mut cells, (b, a), |f| Some(f.calls as f64), |f| thousands(f.calls), |_| Sure::Yes);
    cells.push(row.label.clone());
    cells
}

/// Total wall time, where times were measured.
fn all_time(f: &Figures) -> String {
    if f.timed { total(f) } else { "-".into() }
}

/// What can be said of the change of a figure by one side of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sure {
    Yes,
    /// To so many nanoseconds.
    Roughly(f64),
    /// No more than a bound is known.
    No,
}

impl Sure {
    /// The same of an average of so many calls.
    fn of_each(self, calls: u64) -> Self {
        match self {
            Self::Roughly(ns) => Self::Roughly(ns / calls.max(1) as f64),
            other => other,
        }
    }

    /// What is known of a difference of two figures.
    fn both(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Roughly(a), Self::Roughly(b)) => Self::Roughly(a + b),
            (Self::Roughly(ns), Self::Yes) | (Self::Yes, Self::Roughly(ns)) => Self::Roughly(ns),
            (Self::Yes, Self::Yes) => Self::Yes,
        }
    }
}

/// Of times.
fn sureness(f: &Figures) -> Sure {
    match (f.wall_below_ns, f.lacking) {
        (Some(_), _) => Sure::No,
        (None, false) if !f.rough => Sure::Yes,
        _ => Sure::Roughly(f.unsure_ns as f64),
    }
}

/// Instead of a change that may be none.
const WITHIN: &str = "within ~";

/// Before, after and change of one figure.
fn three(
    cells: &mut Vec<String>,
    sides: (Option<&Figures>, Option<&Figures>),
    figure: impl Fn(&Figures) -> Option<f64>,
    show: impl Fn(&Figures) -> String,
    sure: impl Fn(&Figures) -> Sure,
) {
    let (before, after) = (sides.0.and_then(&figure), sides.1.and_then(&figure));
    let shown = |side: Option<&Figures>| side.map_or_else(|| "-".into(), &show);
    cells.extend([shown(sides.0), shown(sides.1)]);
    cells.push(match (sides, before, after) {
        ((None, _), ..) => "new".into(),
        ((_, None), ..) => "gone".into(),
        ((Some(b), Some(a)), Some(before), Some(after)) => match sure(b).both(sure(a)) {
            Sure::Yes => change(before, after),
            Sure::Roughly(_) if before == after => change(before, after),
            Sure::Roughly(ns) if (after - before).abs() <= ns => WITHIN.into(),
            Sure::Roughly(_) => format!("~{}", change(before, after)),
            Sure::No => "-".into(),
        },
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
