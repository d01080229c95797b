//! What an analysis adds to an annotated procedure on the page: heads of blocks, cycles, bubbles of suspects with
//! their ranges on hovering, a table of causes, and the control-flow graph of the hottest procedure.

use super::escape::{Text, put};
use super::number::{fraction, percent};
use super::{Annotated, Focus};
use crate::cfg::{Graph, MOST_BLOCKS, embedded};
use crate::text::{
    Length, SummaryLine, SummaryLineKind, at_least_of, basis, block_cpi, bubble, confidence_of, count, count_of,
    cycles, frequency, probability, quotient, seen, summary_caveat, summary_cpi, summary_lines,
};
use rustc_hash::FxHashMap;
use whither_cycles::results::analysis::{Analysis, Cause, InsnAnalysis, Summary};

/// Blocks of a graph inside the page.
const GRAPH_BLOCKS: usize = 200;

/// Figures of an analysed procedure by address.
pub(super) struct Figures<'a> {
    a: &'a Analysis,
    by_address: FxHashMap<u64, usize>,
    has_cycles: bool,
    /// Decided branch samples at the end of each block.
    seen: Vec<u64>,
}

impl<'a> Figures<'a> {
    /// Nothing for a procedure with counts alone.
    pub(super) fn of(shown: &'a Annotated) -> Option<Self> {
        let Annotated::Analysed(a) = shown else { return None };
        let by_address = a.insns.iter().enumerate().map(|(i, insn)| (insn.address, i)).collect();
        let has_cycles = a.insns.iter().any(|i| i.cycles.is_some());
        Some(Self { a, by_address, has_cycles, seen: seen(a) })
    }

    /// Block of an instruction; padding is in none.
    pub(super) fn block_of(&self, address: u64) -> Option<usize> {
        let i = *self.by_address.get(&address)?;
        let block = self.a.blocks.partition_point(|b| b.first <= i).checked_sub(1)?;
        (i < self.a.blocks[block].first + self.a.blocks[block].len).then_some(block)
    }

    fn insn(&self, address: u64) -> Option<&'a InsnAnalysis> {
        self.by_address.get(&address).map(|&i| &self.a.insns[i])
    }

    /// Columns added before the gutter of arrows.
    pub(super) fn columns_before(&self) -> usize {
        usize::from(self.has_cycles)
    }

    /// What a block takes: as wide as the columns of figures.
    pub(super) fn block_cost(&self, block: usize) -> String {
        let Some(b) = self.a.blocks.get(block) else { return String::new() };
        let (per, sign) = (b.len.max(1) as f64, at_least_of(self.a, b));
        let cpi = b.cycles.map(|c| format!("   CPI {sign}{:.2} (best {:.2})", c / per, b.best_cycles / per));
        format!("{}\u{2009}% of time{}", percent(b.share), cpi.unwrap_or_default())
    }

    /// Short, as it stands between instructions beside a pane of source; hovering tells all.
    pub(super) fn block_head(&self, block: usize) -> String {
        let Some(b) = self.a.blocks.get(block) else { return String::new() };
        let mut items = vec![format!("block {}", block + 1)];
        items.push(format!("F {}, {}", count_of(self.a, b), confidence_of(self.a, b.frequency.confidence)));
        match b.loop_header {
            Some(header) if header == block => items.push("loop".into()),
            Some(header) => items.push(format!("loop of block {}", header + 1)),
            None => {}
        }
        items.join("   ")
    }

    /// Where the block goes, and what its frequency is worth.
    pub(super) fn block_hover(&self, block: usize) -> String {
        const MOST: usize = 12;
        let Some(b) = self.a.blocks.get(block) else { return String::new() };
        let mut text = frequency(self.a, b);
        text.extend(block_cpi(self.a, b).map(|c| format!("\n{c}")));
        text.push_str(&format!("\nequivalence class {}", b.class));
        for e in self.a.edges.iter().filter(|e| e.from == block).take(MOST) {
            let to = if e.to < self.a.blocks.len() { format!("block {}", e.to + 1) } else { "out".into() };
            let share = probability(e, self.seen[block], 2).map(|p| format!("{p}, ")).unwrap_or_default();
            text.push_str(&format!(
                "\nto {to}: {share}{} times, {}, {} decided branch samples",
                count(self.a, &e.frequency),
                e.kind,
                e.evidence
            ));
        }
        text
    }

    pub(super) fn cycles_cell(&self, out: &mut String, address: u64) {
        if !self.has_cycles {
            return;
        }
        let insn = self.insn(address);
        let shown = insn.filter(|i| i.samples > 0.0).and_then(|i| i.cycles).map(cycles).unwrap_or_default();
        let best = insn.map_or(String::new(), |i| format!("at best {}", cycles(i.best_cycles)));
        put!(out, "<td class=\"n\" title=\"{best}\">{shown}</td>");
    }

    /// Letters, a bar as long as the logarithm of the stall, and on hovering the ranges.
    pub(super) fn stall_cell(&self, out: &mut String, address: u64) {
        let found = self.by_address.get(&address).and_then(|&i| bubble(self.a, i));
        let Some(b) = found else {
            out.push_str("<td class=\"st\"></td>");
            return;
        };
        let letters: String = b.shape.trim_end_matches('=').to_owned();
        let length = b.shape.chars().count();
        let figure = b.length.figure();
        let stall = match (&b.length, &figure) {
            (_, Some(figure)) => format!("stall of {figure} cycles per execution"),
            (Length::Static, _) => "waits at best too, as the code is written".to_owned(),
            _ => "stall of unknown length".to_owned(),
        };
        put!(
            out,
            "<td class=\"st\" title=\"{}\n{}\"><i style=\"width:{}px\"></i>{}{}</td>",
            Text(&stall),
            Text(&b.suspects.join("\n")),
            length * 5,
            Text(&letters),
            Text(&figure.map_or(String::new(), |f| format!(" {f}")))
        );
    }
}

/// Basis, causes and graph, above the listing.
pub(super) fn above(out: &mut String, f: &Figures<'_>, index: usize, focus: Focus) {
    let a = f.a;
    put!(out, "<p class=\"facts\"><span>{}</span></p>", Text(&basis(a)));
    if let Some(text) = quotient(a) {
        put!(out, "<p class=\"facts\"><span>{}</span></p>", Text(&text));
    }
    let missing = a.missing.iter().map(|m| format!("the control-flow graph is incomplete: {m}"));
    let all: Vec<String> = missing.chain(a.notes.iter().cloned()).collect();
    if !all.is_empty() {
        out.push_str("<ul class=\"remarks\">");
        for n in &all {
            put!(out, "<li class=\"note\">{}</li>", Text(n));
        }
        out.push_str("</ul>");
    }
    legend(out, a);
    if !a.summary.causes.is_empty() {
        out.push_str("<details class=\"part\"><summary>Where its cycles go</summary>");
        causes_table(out, &a.summary);
        out.push_str("</details>");
    }
    // One graph: it is large, and the hottest procedure is what is looked at.
    if index == 0 && !a.blocks.is_empty() {
        graph(out, a, index, focus);
    }
}

fn graph(out: &mut String, a: &Analysis, index: usize, focus: Focus) {
    let (most, open) = match focus {
        Focus::Listing => (GRAPH_BLOCKS, ""),
        Focus::Graph => (MOST_BLOCKS, " open"),
    };
    let graph = Graph::new(a, most);
    put!(out, "<details class=\"part\"{open}><summary>Control-flow graph of {} blocks", a.blocks.len());
    if graph.left_out() > 0 {
        put!(out, " ({})", Text(&graph.omission()));
    }
    out.push_str(
        "</summary><p class=\"facts\"><span>Colour: share of time. Border: solid, dashed, dotted for high, medium, low \
         confidence. Width of an edge: its count.</span></p>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Control-flow graph\">",
    );
    embedded(out, &graph, index);
    out.push_str("</div></details>");
}

/// Letters that occur in the listing.
fn legend(out: &mut String, a: &Analysis) {
    let occurs = |cause: &&Cause| {
        let has = |i: &InsnAnalysis| i.culprits.iter().chain(&i.static_stall).any(|c| c.cause == **cause);
        a.insns.iter().any(has)
    };
    let letters: Vec<String> =
        Cause::ALL.iter().filter(occurs).map(|c| format!("{} {}", c.letter(), c.name())).collect();
    if !letters.is_empty() {
        put!(out, "<p class=\"facts\"><span>Stalls: {}</span></p>", Text(&letters.join(", ")));
    }
}

/// The summary of a selection as a section of its own.
pub(super) fn causes_section(out: &mut String, s: &Summary) {
    out.push_str(
        "<section id=\"causes\" aria-labelledby=\"causes-h\"><div class=\"bar-line\"><h2 id=\"causes-h\">\
         Where the cycles go</h2></div>",
    );
    let (procedures, share) = s.analysed;
    put!(
        out,
        "<p class=\"hint\">{}: {procedures} procedures analysed, {}\u{2009}% of the samples selected.",
        Text(&s.about),
        percent(share)
    );
    if let Some(cpi) = summary_cpi(s) {
        put!(out, " In all {}.", Text(&cpi));
    }
    out.push_str("</p>");
    causes_table(out, s);
    let left_out = s.left_out.iter().map(|(p, why)| format!("left out {p}: {why}"));
    let all: Vec<String> = summary_caveat(s).into_iter().chain(left_out).chain(s.notes.iter().cloned()).collect();
    if !all.is_empty() {
        out.push_str("<ul class=\"remarks\">");
        for n in &all {
            put!(out, "<li class=\"note\">{}</li>", Text(n));
        }
        out.push_str("</ul>");
    }
    out.push_str("</section>");
}

fn causes_table(out: &mut String, s: &Summary) {
    out.push_str(
        "<div class=\"scroll\"><table class=\"grid narrow causes\"><thead><tr><th scope=\"col\"></th>\
         <th scope=\"col\">cause</th><th scope=\"col\" class=\"n\">share of time</th>\
         <th scope=\"col\">least and most</th></tr></thead><tbody>",
    );
    for line in summary_lines(s) {
        causes_row(out, &line);
    }
    out.push_str("</tbody></table></div>");
}

fn causes_row(out: &mut String, line: &SummaryLine) {
    let class = match line.kind {
        SummaryLineKind::Total => " class=\"sum\"",
        SummaryLineKind::Cause => "",
    };
    put!(
        out,
        "<tr{class}><td><code>{}</code></td><td>{}</td><td class=\"n\">{}</td>",
        Text(&line.letter.to_string()),
        Text(&line.name),
        Text(&line.range())
    );
    let (min, max) = (fraction(line.min) * 100.0, fraction(line.max.max(line.min)) * 100.0);
    if line.remark.is_empty() {
        put!(out, "<td class=\"span\" style=\"--a:{min:.1}%;--b:{max:.1}%\"></td></tr>");
    } else {
        put!(out, "<td>{}</td></tr>", Text(&line.remark));
    }
}
