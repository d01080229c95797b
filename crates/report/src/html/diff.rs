//! The difference of two sets of recordings: a table with a bar around zero, the interval of the
//! change as a whisker, and the verdict in words.

use super::escape::{Text, put};
use super::number::{grouped, percent};
use whither_cycles::results::{DiffRow, Difference, Verdict};

pub(super) fn section(out: &mut String, d: &Difference) {
    out.push_str(
        "<section id=\"diff\" aria-labelledby=\"diff-h\"><div class=\"bar-line\"><h2 id=\"diff-h\">Difference</h2>\
         <label class=\"find\" hidden>Filter <input type=\"search\" data-filter=\"diff-t\" placeholder=\"words, or /regex/\" \
         autocomplete=\"off\" spellcheck=\"false\"></label><output class=\"count\" for=\"diff-t\" data-count=\"diff-t\" aria-live=\"polite\"></output></div>",
    );
    put!(
        out,
        "<p class=\"hint\">A: <code>{}</code> \u{b7} B: <code>{}</code> \u{b7} normalised by {} \u{b7} variance from {} \
         (dispersion {:.2}) \u{b7} {} rows within chance not shown</p>",
        Text(&d.a.sources.join(" ")),
        Text(&d.b.sources.join(" ")),
        Text(&d.normalised),
        Text(&d.variance),
        d.dispersion,
        grouped(d.hidden as u64)
    );
    if d.rows.is_empty() {
        out.push_str("<p class=\"empty\">No change beyond chance.</p></section>");
        return;
    }
    out.push_str(
        "<div class=\"scroll\"><table class=\"grid sortable\" id=\"diff-t\"><caption class=\"sr\">What changed</caption><thead><tr>\
         <th scope=\"col\" class=\"n\">A\u{2009}%</th><th scope=\"col\" class=\"n\">B\u{2009}%</th><th scope=\"col\" class=\"n\">change, points</th>\
         <th scope=\"col\" class=\"n opt\">\u{b1}</th><th class=\"delta\" aria-label=\"change drawn\"></th><th scope=\"col\" class=\"t\">verdict</th>\
         <th scope=\"col\" class=\"n opt\">q</th>",
    );
    columns(out, &d.by);
    out.push_str("</tr></thead><tbody>");
    let scale =
        d.rows.iter().map(|r| r.change.0.abs() + r.change.1.abs()).filter(|x| x.is_finite()).fold(1e-9, f64::max);
    for r in &d.rows {
        row(out, r, scale, d.normalised == "total");
    }
    out.push_str("</tbody></table></div>");
    if d.cut > 0 {
        put!(out, "<p class=\"hint\">{} smaller changes not shown</p>", grouped(d.cut as u64));
    }
    out.push_str("</section>");
}

/// The name's parts in one column; the image has its own, empty where a name is of no image.
fn columns(out: &mut String, by: &[String]) {
    let word = |b: &String| if b == "proc" { "procedure".to_owned() } else { b.clone() };
    let names: Vec<String> = by.iter().filter(|b| *b != "image" || by.len() == 1).map(word).collect();
    put!(out, "<th scope=\"col\" class=\"t\">{}</th>", Text(&names.join(", ")));
    let image = if by.len() > 1 && by.iter().any(|b| b == "image") { "image" } else { "" };
    put!(out, "<th scope=\"col\" class=\"t\">{image}</th>");
}

fn row(out: &mut String, r: &DiffRow, scale: f64, shares: bool) {
    let (word, class) = verdict(r.verdict, shares);
    put!(
        out,
        "<tr class=\"{class}\"><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\" data-v=\"{:.9}\">{:+.2}</td><td class=\"n dim opt\">{:.2}</td>",
        percent(r.share.0),
        percent(r.share.1),
        100.0 * r.change.0,
        100.0 * r.change.0,
        100.0 * r.change.1
    );
    whisker(out, r, scale);
    put!(
        out,
        "<td class=\"t v\"><span class=\"verdict\">{word}</span></td><td class=\"n dim opt\">{}</td><td class=\"t\" title=\"{2}\">{2}</td><td class=\"t dim\">{1}</td></tr>",
        chance(r.q),
        Text(&r.image),
        Text(&r.label)
    );
}

/// Word and class. A larger share is no proof of being slower.
fn verdict(v: Verdict, shares: bool) -> (&'static str, &'static str) {
    match v {
        Verdict::Slower if shares => ("more", "slower"),
        Verdict::Faster if shares => ("less", "faster"),
        Verdict::Slower => ("slower", "slower"),
        Verdict::Faster => ("faster", "faster"),
        Verdict::Same => ("within chance", "same"),
        Verdict::New => ("new", "slower"),
        Verdict::Gone => ("gone", "faster"),
    }
}

fn chance(q: f64) -> String {
    if q < 1e-4 { "<0.0001".into() } else { format!("{q:.4}") }
}

/// A bar from zero (the middle, 60) to the change, with its interval.
fn whisker(out: &mut String, r: &DiffRow, scale: f64) {
    let x = |share: f64| 60.0 + 58.0 * (share / scale).clamp(-1.0, 1.0);
    let (mid, change) = (60.0_f64, x(if r.change.0.is_finite() { r.change.0 } else { 0.0 }));
    let half = if r.change.1.is_finite() { r.change.1.abs() } else { 0.0 };
    let centre = if r.change.0.is_finite() { r.change.0 } else { 0.0 };
    put!(
        out,
        "<td class=\"delta\"><svg width=\"120\" height=\"14\" aria-hidden=\"true\" focusable=\"false\"><path class=\"zero\" d=\"M60 0V14\"/>\
         <rect x=\"{:.1}\" y=\"3\" width=\"{:.1}\" height=\"8\"/><path class=\"whisk\" d=\"M{:.1} 7H{:.1}\"/></svg></td>",
        mid.min(change),
        (change - mid).abs().max(0.5),
        x(centre - half),
        x(centre + half)
    );
}
