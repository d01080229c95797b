//! A `prof` listing as a table that the script makes sortable and filterable; one column group per
//! event, bars in the share of the first.

use super::escape::{Text, put};
use super::number::{fraction, grouped, percent, weight};
use super::{Annotated, annotation};
use whither_cycles::results::{Annotation, Cell, EventTotals, Listing, ListingRow};

/// Rows open at first sight; the rest is one click away.
const FIRST_ROWS: usize = 25;

pub(super) fn anchor(index: usize) -> String {
    format!("list-{index}")
}

/// `By procedure, image`.
pub(super) fn heading(l: &Listing) -> String {
    let names: Vec<&str> = l.by.iter().map(|b| spelled(b)).collect();
    format!("By {}", names.join(", "))
}

fn spelled(by: &str) -> &str {
    match by {
        "proc" => "procedure",
        "insn" => "instruction",
        "line" => "source line",
        "group" => "cgroup",
        "cpu" => "CPU",
        other => other,
    }
}

pub(super) fn section(out: &mut String, index: usize, l: &Listing, annotated: &[Annotated]) {
    let id = anchor(index);
    put!(
        out,
        "<section id=\"{id}\" aria-labelledby=\"{id}-h\"><div class=\"bar-line\"><h2 id=\"{id}-h\">{}</h2>",
        Text(&heading(l))
    );
    put!(
        out,
        "<label class=\"find\" hidden>Filter <input type=\"search\" data-filter=\"{id}-t\" \
         placeholder=\"words, or /regex/\" autocomplete=\"off\" spellcheck=\"false\"></label>\
         <output class=\"count\" for=\"{id}-t\" data-count=\"{id}-t\" aria-live=\"polite\"></output></div>"
    );
    if !l.filters.is_empty() {
        put!(out, "<p class=\"filters\">Filters in force: <code>{}</code></p>", Text(&l.filters.join(" ")));
    }
    let events = &l.provenance.events;
    put!(out, "<div class=\"scroll\"><table class=\"grid sortable\" id=\"{id}-t\" data-first=\"{FIRST_ROWS}\">");
    header(out, l, events);
    out.push_str("<tbody>");
    let most = largest(l);
    for row in &l.rows {
        body_row(out, l, row, &most, annotated);
    }
    out.push_str("</tbody>");
    rest_row(out, l, &most);
    out.push_str("</table></div>");
    footnotes(out, l);
    out.push_str("</section>");
}

fn header(out: &mut String, l: &Listing, events: &[EventTotals]) {
    put!(out, "<caption class=\"sr\">{}</caption><thead><tr>", Text(&heading(l)));
    let first = events.first().map_or("share", |e| e.name.as_str());
    put!(out, "<th scope=\"col\" class=\"n w-share\" aria-sort=\"descending\">{}\u{2009}%</th>", Text(first));
    out.push_str(
        "<th scope=\"col\" class=\"n opt\">\u{b1}</th><th scope=\"col\" class=\"n opt\">cum.\u{2009}%</th>\
         <th scope=\"col\" class=\"n\">samples</th><th scope=\"col\" class=\"n opt\">amount</th>",
    );
    for by in &l.by {
        put!(out, "<th scope=\"col\" class=\"t\">{}</th>", Text(spelled(by)));
    }
    for e in events.iter().skip(1) {
        put!(
            out,
            "<th scope=\"col\" class=\"n w-share\">{}\u{2009}%</th><th scope=\"col\" class=\"n\">samples</th>",
            Text(&e.name)
        );
    }
    out.push_str("</tr></thead>");
}

/// Largest share per event: the bars are relative to it, or those of a flat profile would be
/// invisible.
fn largest(l: &Listing) -> Vec<f64> {
    let cells = |e: usize| l.rows.iter().filter_map(move |r| r.cells.get(e));
    (0..l.provenance.events.len().max(1)).map(|e| cells(e).map(|c| fraction(c.share)).fold(0.0, f64::max)).collect()
}

fn body_row(out: &mut String, l: &Listing, row: &ListingRow, most: &[f64], annotated: &[Annotated]) {
    let main = row.cells.first().copied().unwrap_or_default();
    let class = if row.labels.first().is_some_and(|l| l.starts_with("[unknown")) { " class=\"unknown\"" } else { "" };
    put!(out, "<tr{class}>");
    share_cell(out, main.share, most[0]);
    put!(
        out,
        "<td class=\"n dim opt\">{}</td><td class=\"n dim opt\">{}</td>",
        percent(row.error),
        percent(row.cumulative)
    );
    put!(out, "<td class=\"n\" data-v=\"{}\">{}</td>", main.samples, grouped(main.samples));
    let unit = unit(l);
    put!(out, "<td class=\"n dim opt\" data-v=\"{}\">{}</td>", main.weight, weight(main.weight, unit));
    let target = annotation_of(l, row, annotated);
    for (i, label) in row.labels.iter().enumerate() {
        label_cell(out, label, if i == 0 { target } else { None }, if i == 0 { row.remark.as_deref() } else { None });
    }
    other_events(out, &row.cells, most);
    out.push_str("</tr>");
}

fn unit(l: &Listing) -> &str {
    l.provenance.events.first().map_or("count", |e| e.unit.as_str())
}

fn share_cell(out: &mut String, share: f64, most: f64) {
    put!(
        out,
        "<td class=\"n bar\" data-v=\"{:.9}\" style=\"--w:{:.2}%\">{}</td>",
        fraction(share),
        if most > 0.0 { fraction(share / most) * 100.0 } else { 0.0 },
        percent(share)
    );
}

fn label_cell(out: &mut String, label: &str, target: Option<usize>, remark: Option<&str>) {
    put!(out, "<td class=\"t\" title=\"{0}\">", Text(label));
    match target {
        Some(i) => put!(out, "<a href=\"#{}\">{}</a>", annotation::anchor(i), Text(label)),
        None => put!(out, "{}", Text(label)),
    }
    if let Some(r) = remark {
        put!(out, " <abbr class=\"mark\" title=\"{}\">*</abbr>", Text(r));
    }
    out.push_str("</td>");
}

fn other_events(out: &mut String, cells: &[Cell], most: &[f64]) {
    for (cell, most) in cells.iter().zip(most).skip(1) {
        share_cell(out, cell.share, *most);
        put!(out, "<td class=\"n\" data-v=\"{}\">{}</td>", cell.samples, grouped(cell.samples));
    }
}

/// The annotated procedure a row speaks of, if the page has it. Listings add the address to names
/// that occur twice in an image, and the build to paths that do.
fn annotation_of(l: &Listing, row: &ListingRow, annotated: &[Annotated]) -> Option<usize> {
    let label = |by: &str| l.by.iter().position(|b| b == by).and_then(|i| row.labels.get(i));
    let procedure = label("proc")?;
    let image = label("image");
    let same_image = |a: &Annotation| {
        image.is_none_or(|i| a.image == *i || i.strip_prefix(&a.image).is_some_and(|rest| rest.starts_with(" (build ")))
    };
    annotated.iter().map(Annotated::listing).position(|a| {
        (a.procedure == *procedure || format!("{}@{:#x}", a.procedure, a.range.0) == *procedure) && same_image(a)
    })
}

fn rest_row(out: &mut String, l: &Listing, most: &[f64]) {
    let Some((n, cells)) = &l.rest else { return };
    let main = cells.first().copied().unwrap_or_default();
    out.push_str("<tfoot><tr class=\"rest\">");
    share_cell(out, main.share, most[0]);
    put!(out, "<td class=\"opt\"></td><td class=\"opt\"></td><td class=\"n\">{}</td>", grouped(main.samples));
    put!(out, "<td class=\"n dim opt\">{}</td>", weight(main.weight, unit(l)));
    put!(out, "<td class=\"t\" colspan=\"{}\">{} more rows, not listed</td>", l.by.len().max(1), grouped(*n as u64));
    other_events(out, cells, most);
    out.push_str("</tr></tfoot>");
}

fn footnotes(out: &mut String, l: &Listing) {
    let mut seen: Vec<&str> = Vec::new();
    for r in l.rows.iter().filter_map(|r| r.remark.as_deref()) {
        if !seen.contains(&r) {
            seen.push(r);
        }
    }
    if seen.is_empty() {
        return;
    }
    out.push_str("<ul class=\"footnotes\">");
    for r in seen {
        put!(out, "<li>* {}</li>", Text(r));
    }
    out.push_str("</ul>");
}
