//! Annotated procedures: source on the left, machine code on the right, linked row by row; heat in
//! the share column, arrows for jumps, a strip that shows where the hot places lie.

use super::analysis::{self, Figures};
use super::arrows::{self, Jump};
use super::escape::{Text, put};
use super::number::{fraction, grouped, percent, samples};
use super::{Annotated, Focus};
use std::collections::HashMap;
use whither_cycles::results::{Annotation, EventTotals, InsnRow, LineRow};

/// Above this many instructions, stretches without samples are folded.
const FOLD_ABOVE: usize = 200;
/// Instructions kept around a sampled one when folding.
const CONTEXT: usize = 8;
/// Most rows shown per procedure and pane; more would make the page unusable, and is said.
const MOST_ROWS: usize = 4000;

pub(super) fn anchor(index: usize) -> String {
    format!("proc-{index}")
}

pub(super) fn sections(out: &mut String, all: &[Annotated], focus: Focus) {
    if all.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"annotations\" aria-labelledby=\"ann-h\"><div class=\"bar-line\"><h2 id=\"ann-h\">\
         Annotated procedures</h2></div>",
    );
    for (i, a) in all.iter().enumerate() {
        procedure(out, i, a, focus);
    }
    out.push_str("</section>");
}

fn procedure(out: &mut String, index: usize, shown: &Annotated, focus: Focus) {
    let a = shown.listing();
    let open = if index == 0 { " open" } else { "" };
    let main = a.cells.first().copied().unwrap_or_default();
    put!(
        out,
        "<details class=\"proc\" id=\"{}\"{open}><summary><span class=\"chip\" style=\"--w:{:.2}%\">{}\u{2009}%</span>\
         <span class=\"name\">{}</span><span class=\"dim\">{}</span><span class=\"dim n\">{} samples</span></summary>",
        anchor(index),
        fraction(main.share) * 100.0,
        percent(main.share),
        Text(&a.procedure),
        Text(&a.image),
        grouped(main.samples)
    );
    facts(out, index, a);
    let figures = Figures::of(shown);
    if let Some(f) = &figures {
        analysis::above(out, f, index, focus);
    }
    let view = Rows::choose(a, figures.as_ref());
    let source = has_source(a);
    put!(out, "<div class=\"panes{}\">", if source { "" } else { " single" });
    if source {
        source_pane(out, a);
    }
    code_pane(out, index, a, &view, figures.as_ref());
    out.push_str("</div></details>");
}

fn has_source(a: &Annotation) -> bool {
    a.lines.iter().any(|l| l.text.is_some())
}

fn facts(out: &mut String, index: usize, a: &Annotation) {
    put!(
        out,
        "<p class=\"facts\"><span>{:#x}, {} bytes{}</span><span>id <code>{}</code></span><span>{}</span></p>",
        a.range.0,
        grouped(a.range.1),
        cold_parts(a),
        Text(&a.image_id),
        if a.corrected { "samples moved to the instruction waited for" } else { "raw samples, not corrected for skid" }
    );
    let mut hot: Vec<&InsnRow> = a.insns.iter().filter(|i| i.share >= 0.01).collect();
    hot.sort_by(|x, y| y.share.total_cmp(&x.share));
    if !hot.is_empty() {
        out.push_str("<p class=\"facts\">Hottest:");
        for i in hot.iter().take(6) {
            put!(
                out,
                " <a class=\"go\" href=\"#i{index}-{:x}\">{:x} <b>{}\u{2009}%</b></a>",
                i.address,
                i.address,
                percent(i.share)
            );
        }
        out.push_str("</p>");
    }
    if !a.notes.is_empty() {
        out.push_str("<ul class=\"remarks\">");
        for n in &a.notes {
            put!(out, "<li class=\"note\">{}</li>", Text(n));
        }
        out.push_str("</ul>");
    }
}

/// One line of the code pane: an instruction, or a fold of several without samples.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shown {
    Insn(usize),
    Fold(usize),
    /// The head of a block of the analysis.
    Block(usize),
}

struct Rows {
    shown: Vec<Shown>,
    cut: usize,
}

impl Rows {
    fn choose(a: &Annotation, figures: Option<&Figures<'_>>) -> Self {
        let mut shown =
            if a.insns.len() > FOLD_ABOVE { fold(&sampled(a)) } else { (0..a.insns.len()).map(Shown::Insn).collect() };
        if let Some(figures) = figures {
            shown = with_heads(shown, a, figures);
        }
        let cut = shown.len().saturating_sub(MOST_ROWS);
        shown.truncate(MOST_ROWS);
        Self { shown, cut }
    }

    fn jumps(&self, a: &Annotation) -> Vec<Jump> {
        let insns = || {
            self.shown.iter().enumerate().filter_map(|(row, s)| match s {
                Shown::Insn(i) => Some((row, &a.insns[*i])),
                Shown::Fold(_) | Shown::Block(_) => None,
            })
        };
        let by_address: HashMap<u64, (usize, f64)> = insns().map(|(row, i)| (i.address, (row, i.share))).collect();
        insns()
            .filter_map(|(from, i)| {
                let &(to, share) = by_address.get(&i.target?)?;
                Some(Jump { from, to, heat: i.share.max(share) })
            })
            .collect()
    }
}

/// Puts the head of a block above the first of its instructions that is shown.
fn with_heads(rows: Vec<Shown>, a: &Annotation, figures: &Figures<'_>) -> Vec<Shown> {
    let mut out = Vec::with_capacity(rows.len());
    let mut last = None;
    for row in rows {
        let block = match row {
            Shown::Insn(i) => figures.block_of(a.insns[i].address),
            _ => None,
        };
        if block.is_some() && block != last {
            out.extend(block.map(Shown::Block));
            last = block;
        }
        out.push(row);
    }
    out
}

fn sampled(a: &Annotation) -> Vec<bool> {
    a.insns.iter().map(|i| i.samples.iter().any(|&s| s > 0.0) || i.raw.iter().any(|&s| s > 0)).collect()
}

/// Keeps rows within [`CONTEXT`] of a sampled one; longer stretches become one fold. A fold of one
/// row would save nothing, so it is shown as it is.
fn fold(sampled: &[bool]) -> Vec<Shown> {
    let mut keep = vec![false; sampled.len()];
    for (i, _) in sampled.iter().enumerate().filter(|(_, s)| **s) {
        keep[i.saturating_sub(CONTEXT)..sampled.len().min(i + CONTEXT + 1)].fill(true);
    }
    let mut shown = Vec::new();
    let mut at = 0;
    while at < keep.len() {
        let run = keep[at..].iter().take_while(|&&k| k == keep[at]).count();
        if keep[at] || run == 1 {
            shown.extend((at..at + run).map(Shown::Insn));
        } else {
            shown.push(Shown::Fold(run));
        }
        at += run;
    }
    shown
}

fn code_pane(out: &mut String, index: usize, a: &Annotation, view: &Rows, figures: Option<&Figures<'_>>) {
    if a.insns.is_empty() {
        out.push_str(
            "<p class=\"empty\">No machine code: the image's bytes were not found or do not match its id.</p>",
        );
        return;
    }
    let gutter = arrows::gutter(&view.jumps(a), view.shown.len());
    let class = if a.insns.iter().any(|i| i.line.is_some() || i.inlined.is_some()) { "asm" } else { "asm nosrc" };
    put!(
        out,
        "<div class=\"pane\"><div class=\"code\" tabindex=\"0\" role=\"region\" aria-label=\"Machine code\"><table class=\"{class}\">"
    );
    code_header(out, &a.provenance.events, gutter.is_some(), figures);
    out.push_str("<tbody>");
    let hottest = a.insns.iter().map(|i| i.share).fold(0.0, f64::max);
    let mut block = None;
    let before = a.provenance.events.len().max(1) + 3 + figures.map_or(0, Figures::columns_before);
    for (row, shown) in view.shown.iter().enumerate() {
        let gutter = if row == 0 { gutter.as_deref().map(|g| (g, view.shown.len())) } else { None };
        match shown {
            Shown::Insn(i) => {
                let insn = &a.insns[*i];
                let new_block = figures.is_none() && block.is_some_and(|b| b != insn.block);
                code_row(out, index, a, insn, (hottest, new_block), gutter, figures);
                block = Some(insn.block);
            }
            Shown::Fold(n) => fold_row(out, *n, before, gutter, figures),
            Shown::Block(b) => {
                if let Some(figures) = figures {
                    put!(out, "<tr class=\"blk\"><td colspan=\"{before}\">{}</td>", Text(&figures.block_cost(*b)));
                    gutter_cell(out, gutter);
                    put!(out, "<td colspan=\"3\" title=\"{}\">", Text(&figures.block_hover(*b)));
                    put!(out, "{}</td></tr>", Text(&figures.block_head(*b)));
                }
            }
        }
    }
    out.push_str("</tbody></table>");
    if view.cut > 0 {
        put!(
            out,
            "<p class=\"empty\">{} more rows are not shown; `whither annotate` prints all.</p>",
            grouped(view.cut as u64)
        );
    }
    out.push_str("</div>");
    strip(out, a, view, hottest);
    out.push_str("</div>");
}

fn code_header(out: &mut String, events: &[EventTotals], gutter: bool, figures: Option<&Figures<'_>>) {
    out.push_str("<thead><tr><th scope=\"col\" class=\"n\">%</th>");
    for (i, e) in events.iter().enumerate() {
        let name = if events.len() > 1 || i > 0 { e.name.as_str() } else { "samples" };
        put!(out, "<th scope=\"col\" class=\"n\">{}</th>", Text(name));
    }
    if events.is_empty() {
        out.push_str("<th scope=\"col\" class=\"n\">samples</th>");
    }
    if figures.is_some_and(|f| f.columns_before() > 0) {
        out.push_str("<th scope=\"col\" class=\"n\" title=\"Cycles per execution\">cycles</th>");
    }
    out.push_str("<th scope=\"col\" class=\"n dim\" title=\"Samples before the correction for skid\">raw</th><th scope=\"col\" class=\"n\">address</th>");
    if gutter {
        out.push_str("<th aria-label=\"jumps\"></th>");
    }
    out.push_str("<th scope=\"col\">instruction</th>");
    if figures.is_some() {
        out.push_str("<th scope=\"col\" title=\"Causes that were not ruled out, as long as the logarithm of the stall\">stall</th>");
    }
    out.push_str("<th scope=\"col\">source</th></tr></thead>");
}

type Gutter<'a> = Option<(&'a str, usize)>;

fn gutter_cell(out: &mut String, gutter: Gutter<'_>) {
    if let Some((svg, rows)) = gutter {
        put!(out, "<td class=\"gut\" rowspan=\"{rows}\" aria-hidden=\"true\">{svg}</td>");
    }
}

fn code_row(
    out: &mut String,
    index: usize,
    a: &Annotation,
    i: &InsnRow,
    (hottest, new_block): (f64, bool),
    gutter: Gutter<'_>,
    figures: Option<&Figures<'_>>,
) {
    put!(out, "<tr id=\"i{index}-{:x}\"", i.address);
    if new_block {
        out.push_str(" class=\"nb\"");
    }
    if let Some((f, l)) = i.line.filter(|(_, l)| *l > 0) {
        put!(out, " data-l=\"{f}:{l}\"");
    }
    out.push('>');
    if i.fused {
        out.push_str("<td class=\"n fu\" title=\"retires together with the instruction above, which shows the samples of both\">\u{2570}</td>");
    } else {
        heat_cell(out, i.share, hottest);
    }
    for n in 0..a.provenance.events.len().max(1) {
        let s = i.samples.get(n).copied().unwrap_or(0.0);
        put!(out, "<td class=\"n\">{}</td>", if s > 0.0 { samples(s) } else { String::new() });
    }
    if let Some(f) = figures {
        f.cycles_cell(out, i.address);
    }
    let raw = i.raw.first().copied().unwrap_or(0);
    put!(
        out,
        "<td class=\"n dim\">{}</td><td class=\"n ad\">{:x}</td>",
        if raw > 0 { grouped(raw) } else { String::new() },
        i.address
    );
    gutter_cell(out, gutter);
    insn_text(out, index, i);
    if let Some(f) = figures {
        f.stall_cell(out, i.address);
    }
    where_cell(out, a, i);
    out.push_str("</tr>");
}

fn heat_cell(out: &mut String, share: f64, hottest: f64) {
    if share <= 0.0 {
        out.push_str("<td class=\"n h\"></td>");
        return;
    }
    // The square root keeps a 5 % line visible beside a 60 % one.
    let heat = if hottest > 0.0 { fraction(share / hottest).sqrt() } else { 0.0 };
    put!(
        out,
        "<td class=\"n h\" style=\"--h:{:.0}%;--w:{:.1}%\">{}</td>",
        heat * 100.0,
        fraction(share) * 100.0,
        percent(share)
    );
}

/// Cold parts elsewhere, whose instructions are listed too.
fn cold_parts(a: &Annotation) -> String {
    let part = |(start, size): &(u64, u64)| format!("; cold part {start:#x}, {} bytes", grouped(*size));
    a.parts.iter().map(part).collect()
}

fn insn_text(out: &mut String, index: usize, i: &InsnRow) {
    let text = if i.text.is_empty() { "(bytes not found)" } else { &i.text };
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    put!(
        out,
        "<td class=\"in\"><b>{}</b>{}{}",
        Text(name),
        if rest.is_empty() { "" } else { " " },
        Text(rest.trim_start())
    );
    if let Some(t) = i.target {
        let mark = if t <= i.address { '\u{2191}' } else { '\u{2193}' };
        // The address stands in the text already, unless the disassembler printed a symbol.
        let told =
            text.split(|c: char| !c.is_ascii_alphanumeric()).any(|w| w.trim_start_matches("0x") == format!("{t:x}"));
        put!(out, " <a class=\"jump\" href=\"#i{index}-{t:x}\" aria-label=\"target {t:x}\">{mark}");
        if !told {
            put!(out, "{t:x}");
        }
        out.push_str("</a>");
    }
    out.push_str("</td>");
}

fn where_cell(out: &mut String, a: &Annotation, i: &InsnRow) {
    let file = i.line.and_then(|(f, l)| Some((a.files.get(f as usize)?, l)));
    let place = file.map(|(f, l)| format!("{}:{l}", f.rsplit('/').next().unwrap_or(f)));
    let full = file.map_or(String::new(), |(f, l)| format!("{f}:{l}"));
    put!(out, "<td class=\"wh\" title=\"{}\">{}", Text(&full), Text(place.as_deref().unwrap_or("")));
    if let Some(inlined) = &i.inlined {
        put!(out, " <i title=\"inlined from {0}\">{0}</i>", Text(inlined));
    }
    out.push_str("</td>");
}

fn fold_row(out: &mut String, n: usize, before: usize, gutter: Gutter<'_>, figures: Option<&Figures<'_>>) {
    // The gutter column lies between address and text, so the fold is split around it.
    put!(out, "<tr class=\"fold\"><td colspan=\"{before}\"></td>");
    gutter_cell(out, gutter);
    let behind = if figures.is_some() { 3 } else { 2 };
    put!(out, "<td colspan=\"{behind}\">\u{22ee} {} instructions without samples</td></tr>", grouped(n as u64));
}

fn strip(out: &mut String, a: &Annotation, view: &Rows, hottest: f64) {
    let rows = view.shown.len().max(1);
    put!(
        out,
        "<svg class=\"strip\" viewBox=\"0 0 1 {rows}\" preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\">"
    );
    for (row, shown) in view.shown.iter().enumerate() {
        let Shown::Insn(i) = shown else { continue };
        let share = a.insns[*i].share;
        if share > 0.0 && hottest > 0.0 {
            // A mark is at least a two-hundredth of the strip, to be seen and hit.
            #[allow(clippy::cast_precision_loss)] // at most MOST_ROWS
            let tall = (rows as f64 / 200.0).max(1.0);
            put!(
                out,
                "<rect y=\"{row}\" width=\"1\" height=\"{tall:.2}\" style=\"--h:{:.0}%\"/>",
                fraction(share / hottest).sqrt() * 100.0
            );
        }
    }
    out.push_str("</svg>");
}

fn source_pane(out: &mut String, a: &Annotation) {
    let hottest = a.lines.iter().map(|l| l.share).fold(0.0, f64::max);
    let events = a.provenance.events.len().max(1);
    out.push_str(
        "<div class=\"pane\"><div class=\"code\" tabindex=\"0\" role=\"region\" aria-label=\"Source\"><table class=\"asm src\"><thead><tr>\
         <th scope=\"col\" class=\"n\">%</th><th scope=\"col\" class=\"n\">samples</th>\
         <th scope=\"col\" class=\"n\">line</th><th scope=\"col\">source</th></tr></thead><tbody>",
    );
    let mut left = MOST_ROWS;
    for (file, lines) in by_file(a) {
        file_row(out, a, file);
        let mut last = None;
        for l in lines.iter().take(left) {
            let gap = last.is_some_and(|n| l.line > n + 1);
            line_row(out, l, hottest, gap, events);
            last = Some(l.line);
        }
        left = left.saturating_sub(lines.len());
    }
    out.push_str("</tbody></table></div></div>");
}

/// Lines per file, the file with most of the time first.
fn by_file(a: &Annotation) -> Vec<(u32, Vec<&LineRow>)> {
    let mut files: Vec<(u32, Vec<&LineRow>)> = Vec::new();
    for l in &a.lines {
        match files.iter_mut().find(|(f, _)| *f == l.file) {
            Some((_, list)) => list.push(l),
            None => files.push((l.file, vec![l])),
        }
    }
    let share = |list: &[&LineRow]| list.iter().map(|l| l.share).sum::<f64>();
    files.sort_by(|x, y| share(&y.1).total_cmp(&share(&x.1)));
    files
}

fn file_row(out: &mut String, a: &Annotation, file: u32) {
    let name = a.files.get(file as usize).map_or("(unknown file)", String::as_str);
    put!(out, "<tr class=\"file\"><th colspan=\"4\" scope=\"rowgroup\" title=\"{0}\">{0}</th></tr>", Text(name));
}

fn line_row(out: &mut String, l: &LineRow, hottest: f64, gap: bool, events: usize) {
    put!(out, "<tr data-l=\"{}:{}\"{}>", l.file, l.line, if gap { " class=\"nb\"" } else { "" });
    heat_cell(out, l.share, hottest);
    let shown: Vec<String> = (0..events)
        .map(|n| l.samples.get(n).copied().unwrap_or(0.0))
        .map(|s| if s > 0.0 { samples(s) } else { String::new() })
        .collect();
    put!(out, "<td class=\"n\">{}</td><td class=\"n ad\">{}</td>", shown[0], l.line);
    put!(out, "<td class=\"in\">{}</td></tr>", Text(l.text.as_deref().unwrap_or("(source not found)")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_keeps_context_and_counts_the_rest() {
        let mut sampled = vec![false; 100];
        sampled[50] = true;
        let rows = fold(&sampled);
        assert_eq!(rows.first(), Some(&Shown::Fold(50 - CONTEXT)));
        assert_eq!(rows.last(), Some(&Shown::Fold(100 - 51 - CONTEXT)));
        assert_eq!(rows.len(), 2 + 2 * CONTEXT + 1);
    }

    #[test]
    fn folding_loses_no_instruction() {
        for seed in 0..50_usize {
            let sampled: Vec<bool> = (0..200).map(|i| (i * 7919 + seed * 31) % 61 == 0).collect();
            let n: usize = fold(&sampled).iter().map(|s| if let Shown::Fold(n) = s { *n } else { 1 }).sum();
            assert_eq!(n, 200);
        }
    }
}
