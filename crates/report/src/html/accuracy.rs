//! Estimates against exact counts on the page: the paper's figures 8 and 9 as bars, confidences, procedures.

use super::escape::{Text, put};
use super::number::{fraction, grouped, percent};
use super::summary::put_remarks;
use crate::text::{bin_labels, confidence, within};
use whither_cycles::results::accuracy::{Accuracy, ErrorShares};

pub(super) fn section(out: &mut String, a: &Accuracy) {
    out.push_str(
        "<section id=\"accuracy\" aria-labelledby=\"accuracy-h\"><div class=\"bar-line\"><h2 id=\"accuracy-h\">\
         Accuracy</h2></div>",
    );
    let warnings: Vec<(&str, String)> = a.warnings.iter().map(|w| ("warn", w.clone())).collect();
    put_remarks(out, &warnings);
    let whole = |x: f64| grouped(if x.is_finite() { x.max(0.0).round() as u64 } else { 0 });
    put!(
        out,
        "<p class=\"hint\">Estimated executions against {}: {} of {} samples compared. Branch probabilities are off by {:.3} \
         on average ({} branches); overlap of executions {}\u{2009}%.</p><div class=\"plots\">",
        Text(&a.exact),
        whole(a.samples.1),
        whole(a.samples.0),
        a.branches.mean_by_samples,
        grouped(a.branches.branches as u64),
        percent(a.overlap)
    );
    histogram(out, "Instructions, weighted by samples", &a.instructions);
    histogram(out, "Edges, weighted by executions", &a.edges);
    out.push_str("</div>");
    confidences(out, a);
    procedures(out, a);
    let notes: Vec<(&str, String)> = a.notes.iter().map(|n| ("note", n.clone())).collect();
    put_remarks(out, &notes);
    out.push_str("</section>");
}

fn histogram(out: &mut String, title: &str, e: &ErrorShares) {
    const ROW: usize = 15;
    let labels = bin_labels();
    let tall = labels.len() * ROW + 4;
    let most = e.bins.iter().copied().fold(0.0, f64::max);
    put!(
        out,
        "<figure><figcaption><code>{title}</code><span>{}</span></figcaption><svg class=\"bins\" viewBox=\"0 0 380 {tall}\" \
         role=\"img\" aria-label=\"{title}\">",
        Text(&within(e))
    );
    for (i, (label, share)) in labels.iter().zip(&e.bins).enumerate() {
        let y = i * ROW;
        let wide = if most > 0.0 { 200.0 * fraction(share / most) } else { 0.0 };
        put!(
            out,
            "<text x=\"96\" y=\"{}\" text-anchor=\"end\">{label}</text><rect x=\"104\" y=\"{}\" width=\"{wide:.1}\" \
             height=\"{}\"/><text x=\"{:.1}\" y=\"{}\">{}</text>",
            y + 12,
            y + 2,
            ROW - 3,
            110.0 + wide,
            y + 12,
            percent(*share)
        );
    }
    out.push_str("</svg></figure>");
}

fn confidences(out: &mut String, a: &Accuracy) {
    out.push_str("<h3>By confidence</h3><div class=\"scroll\"><table class=\"grid narrow\"><thead><tr><th scope=\"col\">confidence</th>");
    heads(out, "of samples");
    out.push_str("</tr></thead><tbody>");
    for (c, weight, e) in &a.confidence {
        put!(out, "<tr><td>{}</td><td class=\"n\">{}</td>", confidence(*c), percent(*weight));
        figures(out, e);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

fn heads(out: &mut String, first: &str) {
    for title in [first, "within 5\u{2009}%", "10\u{2009}%", "15\u{2009}%", "factor 2"] {
        put!(out, "<th scope=\"col\" class=\"n\">{title}</th>");
    }
}

fn figures(out: &mut String, e: &ErrorShares) {
    for share in e.within.iter().chain([&e.within_double]) {
        let text = if e.weight > 0.0 { percent(*share) } else { "-".into() };
        put!(out, "<td class=\"n\">{text}</td>");
    }
}

fn procedures(out: &mut String, a: &Accuracy) {
    const MOST: usize = 300;
    out.push_str("<h3>By procedure</h3><div class=\"scroll\"><table class=\"grid\"><thead><tr>");
    heads(out, "samples");
    out.push_str("<th scope=\"col\" class=\"n\">decided %</th><th scope=\"col\">procedure</th><th scope=\"col\">image</th></tr></thead><tbody>");
    for r in a.procedures.iter().take(MOST) {
        put!(out, "<tr><td class=\"n\">{:.0}</td>", r.errors.weight);
        figures(out, &r.errors);
        put!(
            out,
            "<td class=\"n\">{}</td><td class=\"t\" title=\"{1}\">{1}</td><td class=\"t\" title=\"{2}\">{2}</td></tr>",
            percent(r.decided),
            Text(&r.procedure),
            Text(&r.image)
        );
    }
    out.push_str("</tbody></table></div>");
}
