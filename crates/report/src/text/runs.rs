//! Many runs side by side as text: the columns of the paper's figure 3, and what chance alone would vary; then, if
//! asked for, the causes of one procedure's slowest and fastest run.

use super::header::{header, notes};
use super::number::{duration, percent, thousands};
use super::table::{Column, Table, Tone};
use super::{Layout, bubbles, summary_caveat};
use whither_cycles::results::runs::{Explanation, MovedCause, RunRow, RunStatistics, Together};

/// Set totals, rows, explanation, notes.
#[must_use]
pub fn run_statistics(s: &RunStatistics, limit: Option<usize>, layout: &Layout) -> String {
    let mut out = header(&s.provenance, layout);
    out.push_str(&layout.style.paint(Tone::Head, &head(s)));
    out.push('\n');
    out.push_str(&sets(s).render(layout.style, layout.width));
    out.push('\n');
    let shown = limit.unwrap_or(usize::MAX).min(s.rows.len());
    out.push_str(&rows(s, &s.rows[..shown]).render(layout.style, layout.width));
    if s.rows[..shown].iter().any(|r| r.two_peaks) {
        out.push_str("* the runs fall into two groups\n");
    }
    let rest = s.rows.len() - shown;
    if rest > 0 {
        out.push_str(&layout.style.paint(Tone::Faint, &format!("{rest} more procedures, not listed")));
        out.push('\n');
    }
    if s.hidden > 0 {
        let text = format!("{} procedures with too small a share to tell are left out", s.hidden);
        out.push_str(&layout.style.paint(Tone::Faint, &text));
        out.push('\n');
    }
    if let Some(e) = &s.explained {
        out.push('\n');
        out.push_str(&explanation(e, &s.unit, layout));
    }
    out.push_str(&notes(&s.notes, layout));
    out.push_str(&notes(&s.provenance.notes, layout));
    out
}

fn head(s: &RunStatistics) -> String {
    let plural = if s.sets.len() == 1 { "" } else { "s" };
    let per = match s.normalised.as_str() {
        "total" => ", each set against its total",
        "wall" => ", each set against its time",
        "unit" => ", each set against its work",
        _ => "",
    };
    format!("{} set{plural} of samples of {}, figures in {}{per}", s.sets.len(), s.event, s.unit)
}

fn sets(s: &RunStatistics) -> Table {
    let mut table = Table::new(vec![Column::Number; 4].into_iter().chain([Column::Name]).collect());
    table.row(Tone::Head, ["set", "samples", "total", "time", "recording"].map(Into::into).into());
    for (i, set) in s.sets.iter().enumerate() {
        let cells =
            [(i + 1).to_string(), thousands(set.samples), amount(set.total), duration(set.seconds), set.name.clone()];
        table.row(Tone::Plain, cells.into());
    }
    let (samples, total) = s.sets.iter().fold((0, 0.0), |(n, t), set| (n + set.samples, t + set.total));
    table.row(Tone::Head, ["all".into(), thousands(samples), amount(total), String::new(), String::new()].into());
    table
}

fn rows(s: &RunStatistics, rows: &[RunRow]) -> Table {
    let mut columns = vec![Column::Number; 9];
    columns.extend([Column::Mark, Column::Name, Column::Name]);
    let mut table = Table::new(columns);
    let titles =
        ["range %", "chance %", "sum", "sum %", "N", "mean", "std-dev", "min", "max", "", "procedure", "image"];
    table.row(Tone::Head, titles.map(Into::into).into());
    for r in rows {
        // What chance makes half of is nothing to look at.
        let tone = if r.range < 2.0 * r.noise || s.sets.len() < 2 { Tone::Faint } else { super::tone_of(r.share) };
        table.row(tone, cells(r));
    }
    table
}

fn cells(r: &RunRow) -> Vec<String> {
    let mark = if r.two_peaks { "*" } else { "" };
    let figures = [r.mean, r.deviation, r.min, r.max].map(amount);
    let mut out = vec![percent(r.range), percent(r.noise), amount(r.sum), percent(r.share), r.n.to_string()];
    out.extend(figures);
    out.extend([mark.into(), r.procedure.clone(), r.image.clone()]);
    out
}

/// A figure with one decimal, whole from ten thousand on.
pub(crate) fn amount(x: f64) -> String {
    match x {
        x if !x.is_finite() => "?".into(),
        x if x >= 9_999.5 => thousands(x.round() as u64),
        x if x >= 1000.0 => {
            let tenths = (x * 10.0).round() as u64;
            format!("{}.{}", thousands(tenths / 10), tenths % 10)
        }
        x if x >= 1.0 || x <= 0.0 => format!("{:.1}", x + 0.0),
        x => format!("{x:.3}"),
    }
}

fn explanation(e: &Explanation, unit: &str, layout: &Layout) -> String {
    let (slow, fast) = e.figures;
    let head =
        format!("{}: {} {unit} in {}, {} {unit} in {}", e.procedure, amount(slow), e.runs.0, amount(fast), e.runs.1);
    let mut out = layout.style.paint(Tone::Head, &head) + "\n";
    let mut table = Table::new(vec![Column::Mark, Column::Number, Column::Number, Column::Mark]);
    table.row(Tone::Head, ["cause", "slowest", "fastest", ""].map(Into::into).into());
    for m in &e.moved {
        let tone = if m.certain { Tone::Hot } else { Tone::Plain };
        table.row(tone, moved_cells(m).into());
    }
    out.push_str(&table.render(layout.style, layout.width));
    if e.moved.is_empty() {
        out.push_str("no cause differs between the two runs\n");
    } else if let Some(together) = &e.together {
        out.push_str(&together_line(together, unit, &e.runs.0));
    } else if !e.moved.iter().any(|m| m.certain) {
        let bounded = e.slow.bounded || e.fast.bounded;
        let why = if bounded {
            "the ranges touch, or are only bounds"
        } else {
            "every range of the one touches that of the other"
        };
        out.push_str(&format!("{why}: nothing moved for certain\n"));
    }
    let caveats = [&e.slow, &e.fast].into_iter().filter_map(summary_caveat).take(1);
    out + &notes(&caveats.collect::<Vec<_>>(), layout)
}

/// `at least 1,950.0 ms more in rec/b went to D-cache miss or DTLB miss, or to several of them`.
pub(crate) fn together_line(t: &Together, unit: &str, slow: &str) -> String {
    let names: Vec<String> = t.among.iter().map(|c| format!("{} {}", c.letter(), c.name())).collect();
    let (last, others) = names.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
    let which = match others {
        [] => last.to_owned(),
        _ => format!("{} or {last}, or to several of them: samples alone do not tell which", others.join(", ")),
    };
    format!("for certain: at least {} {unit} more in {slow} went to {which}\n", amount(t.least))
}

/// Cause, range in the slow run, range in the fast run, verdict.
pub(crate) fn moved_cells(m: &MovedCause) -> [String; 4] {
    let range = |(min, max): (f64, f64)| bubbles::span(&amount(min), &amount(max));
    let verdict = match (m.certain, m.slow.0 > m.fast.1) {
        (true, true) => "more, for certain",
        (true, false) => "less, for certain",
        _ => "",
    };
    [format!("{} {}", m.cause.letter(), m.cause.name()), range(m.slow), range(m.fast), verdict.into()]
}
