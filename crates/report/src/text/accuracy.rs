//! How far estimates are from exact counts, as text: the paper's figures 8 and 9 as histograms, how well each
//! confidence held, and the procedures one by one.

use super::Layout;
use super::analysis::confidence;
use super::header::{filled, header, notes};
use super::number::{percent, thousands};
use super::table::{Column, Table, Tone};
use whither_cycles::results::accuracy::{Accuracy, ERROR_BINS, ErrorShares};

/// Characters of a bar that stands for everything, where there is room.
const BAR: usize = 60;
/// Characters before a bar.
const BEFORE_BAR: usize = 28;

/// Figures, histograms, confidences, procedures.
#[must_use]
pub fn accuracy(a: &Accuracy, limit: usize, layout: &Layout) -> String {
    let mut out = header(&a.provenance, layout);
    let (selected, compared) = a.samples;
    let head = format!(
        "estimated executions against {}: {} of {} samples compared, {} procedures",
        a.exact,
        whole(compared),
        whole(selected),
        a.procedures.len()
    );
    out.push_str(&painted(Tone::Head, "", &head, layout));
    for warning in &a.warnings {
        out.push_str(&painted(Tone::Hot, "warning: ", warning, layout));
    }
    out.push_str(&lines(a, layout));
    out.push_str(&histogram("instructions, weighted by samples", &a.instructions, layout));
    if a.baseline.weight > 0.0 {
        let text = format!("the paper's own estimator, from samples alone: {}", within(&a.baseline));
        out.push_str(&filled("", &text, layout));
    }
    if a.edges.weight > 0.0 {
        out.push_str(&histogram("edges, weighted by executions", &a.edges, layout));
    }
    out.push('\n');
    out.push_str(&confidences(a).render(layout.style, layout.width));
    out.push('\n');
    out.push_str(&procedures(a, limit).render(layout.style, layout.width));
    if a.procedures.len() > limit {
        out.push_str(&format!("{} more procedures, not listed\n", a.procedures.len() - limit));
    }
    out.push_str(&notes(&a.notes, layout));
    out + &notes(&a.provenance.notes, layout)
}

fn whole(x: f64) -> String {
    thousands(x.max(0.0).round() as u64)
}

fn lines(a: &Accuracy, layout: &Layout) -> String {
    let b = &a.branches;
    let branches = (b.branches > 0).then(|| {
        format!(
            "branch probabilities are off by {:.3} on average ({} branches, by samples; {:.3} by executions, {:.3} of those \
             seen 100 times)",
            b.mean_by_samples,
            thousands(b.branches as u64),
            b.mean_by_executions,
            b.mean_seen
        )
    });
    let overlap = [format!("overlap of executions {} %", percent(a.overlap))];
    let mut sentences: Vec<String> = branches.into_iter().chain(overlap).collect();
    if a.never_executed > 0.0 {
        sentences.push(format!("{} samples lie on code that the exact run never reached", whole(a.never_executed)));
    }
    sentences.iter().map(|s| filled("", s, layout)).collect()
}

/// A sentence broken to the width, each line painted.
fn painted(tone: Tone, label: &str, text: &str, layout: &Layout) -> String {
    filled(label, text, layout).lines().map(|l| layout.style.paint(tone, l) + "\n").collect()
}

/// Labels of the bins of [`ERROR_BINS`], in percent.
pub(crate) fn bin_labels() -> Vec<String> {
    let between = ERROR_BINS.windows(2).map(|b| format!("{:+} .. {:+}", b[0], b[1]));
    let (first, last) = (ERROR_BINS[0], ERROR_BINS[ERROR_BINS.len() - 1]);
    std::iter::once(format!("below {first:+}")).chain(between).chain([format!("above {last:+}")]).collect()
}

/// `within 5 % 73.1 %, 10 % 87.2 %, 15 % 92.0 %, a factor of two 97.5 %`.
pub(crate) fn within(e: &ErrorShares) -> String {
    let [five, ten, fifteen] = e.within.map(percent);
    format!("within 5 % {five} %, 10 % {ten} %, 15 % {fifteen} %, a factor of two {} %", percent(e.within_double))
}

fn histogram(what: &str, e: &ErrorShares, layout: &Layout) -> String {
    let mut out = format!("\n{}", painted(Tone::Head, "", &format!("{what}: {}", within(e)), layout));
    let whole = BAR.min(layout.width.saturating_sub(BEFORE_BAR));
    if e.weight <= 0.0 {
        return out + "nothing was compared\n";
    }
    for (label, share) in bin_labels().iter().zip(&e.bins) {
        let bar = "█".repeat((share.clamp(0.0, 1.0) * whole as f64).round() as usize);
        let line = format!("{label:>14} %  {:>6} %  {bar}", percent(*share));
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn confidences(a: &Accuracy) -> Table {
    let mut columns = vec![Column::Mark];
    columns.extend([Column::Number; 5]);
    let mut table = Table::new(columns);
    table
        .row(Tone::Head, ["confidence", "of samples", "within 5 %", "10 %", "15 %", "factor 2"].map(Into::into).into());
    for (c, weight, e) in &a.confidence {
        table.row(Tone::Plain, shares(confidence(*c).into(), *weight, e));
    }
    table
}

fn shares(first: String, weight: f64, e: &ErrorShares) -> Vec<String> {
    // What has no weight was neither right nor wrong.
    let share = |x: f64| if e.weight > 0.0 { percent(x) } else { "-".to_owned() };
    let mut out = vec![first, percent(weight)];
    out.extend(e.within.map(share));
    out.push(share(e.within_double));
    out
}

fn procedures(a: &Accuracy, limit: usize) -> Table {
    let mut columns = vec![Column::Number; 7];
    columns.extend([Column::Name, Column::Name]);
    let mut table = Table::new(columns);
    let titles = ["samples", "within 5 %", "10 %", "15 %", "factor 2", "decided %", "missing", "procedure", "image"];
    table.row(Tone::Head, titles.map(Into::into).into());
    for r in a.procedures.iter().take(limit) {
        let mut cells = vec![whole(r.errors.weight)];
        cells.extend(r.errors.within.map(percent));
        cells.extend([percent(r.errors.within_double), percent(r.decided), r.missing.to_string()]);
        cells.extend([r.procedure.clone(), r.image.clone()]);
        table.row(Tone::Plain, cells);
    }
    table
}
