//! Many runs on the page: totals of the sets, the columns of the paper's figure 3, a dot per run, and the causes
//! that moved.

use super::escape::{Text, put};
use super::number::{duration, fraction, grouped, percent};
use crate::text::{amount, moved_cells, together_line};
use whither_cycles::results::runs::{RunRow, RunStatistics};

/// Most rows on the page.
const MOST_ROWS: usize = 300;

pub(super) fn section(out: &mut String, s: &RunStatistics) {
    out.push_str(
        "<section id=\"runs\" aria-labelledby=\"runs-h\"><div class=\"bar-line\"><h2 id=\"runs-h\">Runs</h2></div>",
    );
    put!(
        out,
        "<p class=\"hint\">{} sets of samples of {}; figures in {}. Chance: the range that counting alone would give.</p>",
        s.sets.len(),
        Text(&s.event),
        Text(&s.unit)
    );
    sets(out, s);
    explanation(out, s);
    rows(out, s);
    out.push_str("</section>");
}

fn sets(out: &mut String, s: &RunStatistics) {
    out.push_str(
        "<div class=\"scroll\"><table class=\"grid narrow\"><thead><tr><th scope=\"col\" class=\"n\">set</th>\
         <th scope=\"col\" class=\"n\">samples</th><th scope=\"col\" class=\"n\">total</th>\
         <th scope=\"col\" class=\"n\">time</th><th scope=\"col\">recording</th></tr></thead><tbody>",
    );
    for (i, set) in s.sets.iter().enumerate() {
        put!(
            out,
            "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            i + 1,
            grouped(set.samples),
            amount(set.total),
            duration(set.seconds),
            Text(&set.name)
        );
    }
    out.push_str("</tbody></table></div>");
}

fn rows(out: &mut String, s: &RunStatistics) {
    out.push_str("<div class=\"scroll\"><table class=\"grid\"><thead><tr>");
    for title in ["range %", "chance %", "sum", "sum %", "N", "mean", "std-dev", "min", "max"] {
        put!(out, "<th scope=\"col\" class=\"n\">{title}</th>");
    }
    out.push_str(
        "<th scope=\"col\">runs</th><th scope=\"col\">procedure</th><th scope=\"col\">image</th></tr></thead><tbody>",
    );
    for r in s.rows.iter().take(MOST_ROWS) {
        row(out, r);
    }
    out.push_str("</tbody></table></div>");
    let rest = s.rows.len().saturating_sub(MOST_ROWS) + s.hidden;
    if rest > 0 {
        put!(out, "<p class=\"hint\">{} more procedures are not listed.</p>", grouped(rest as u64));
    }
}

fn row(out: &mut String, r: &RunRow) {
    out.push_str("<tr>");
    let figures = [r.mean, r.deviation, r.min, r.max].map(amount);
    let first = [percent(r.range), percent(r.noise), amount(r.sum), percent(r.share), r.n.to_string()];
    for figure in first.iter().chain(&figures) {
        put!(out, "<td class=\"n\">{}</td>", Text(figure));
    }
    dots(out, r);
    let mark = if r.two_peaks { " <span class=\"mark\" title=\"the runs fall into two groups\">*</span>" } else { "" };
    put!(out, "<td class=\"t\" title=\"{0}\">{0}{mark}</td>", Text(&r.procedure));
    put!(out, "<td class=\"t\" title=\"{0}\">{0}</td></tr>", Text(&r.image));
}

/// A dot per run between nothing and the largest.
fn dots(out: &mut String, r: &RunRow) {
    put!(out, "<td><svg class=\"dots\" width=\"130\" height=\"14\" aria-hidden=\"true\" focusable=\"false\">");
    for (i, v) in r.values.iter().enumerate() {
        let x = if r.max > 0.0 { 5.0 + 120.0 * fraction(v / r.max) } else { 5.0 };
        put!(out, "<circle cx=\"{x:.1}\" cy=\"7\" r=\"3.5\"><title>set {}: {}</title></circle>", i + 1, amount(*v));
    }
    out.push_str("</svg></td>");
}

fn explanation(out: &mut String, s: &RunStatistics) {
    let Some(e) = &s.explained else { return };
    put!(
        out,
        "<h3>{}: {} {u} in {}, {} {u} in {}</h3><div class=\"scroll\"><table class=\"grid narrow\"><thead><tr>\
         <th scope=\"col\">cause</th><th scope=\"col\" class=\"n\">slowest</th><th scope=\"col\" class=\"n\">fastest</th>\
         <th scope=\"col\"></th></tr></thead><tbody>",
        Text(&e.procedure),
        amount(e.figures.0),
        Text(&e.runs.0),
        amount(e.figures.1),
        Text(&e.runs.1),
        u = Text(&s.unit)
    );
    for m in &e.moved {
        let [cause, slow, fast, verdict] = moved_cells(m);
        put!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            Text(&cause),
            Text(&slow),
            Text(&fast),
            Text(&verdict)
        );
    }
    out.push_str("</tbody></table></div>");
    if let Some(together) = &e.together {
        put!(out, "<p>{}</p>", Text(together_line(together, &s.unit, &e.runs.0).trim_end()));
    }
}
