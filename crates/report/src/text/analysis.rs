//! An analysed procedure as text, after the paper's figure 2: per block its cost at best and in fact and how often
//! it ran, per instruction samples, time and cycles, and above a stalled one a bubble with its suspects. What is
//! only known relatively is never printed as cycles.

use super::annotation::{AnnotationView, head, source_line};
use super::bubbles::{Bubble, bubble};
use super::header::{header, notes, wrapped};
use super::number::{cycles, executions, fractional, percent, thousands};
use super::signs::{at_least, at_least_of, count_of, is_absolute, is_loose, probability, seen};
use super::summary::causes;
use super::table::{Tone, middle_cut};
use super::{Layout, header::filled, tone_of};
use rustc_hash::FxHashMap;
use whither_cycles::results::InsnRow;
use whither_cycles::results::analysis::{
    Analysis, BlockAnalysis, Confidence, EdgeAnalysis, Evidence, InsnAnalysis, Scale,
};

/// Which blocks to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blocks {
    /// Those that matter; the others are counted.
    #[default]
    Warm,
    /// All.
    All,
    /// One, counted from 1.
    Only(usize),
}

/// Blocks below this share of the procedure's time ...
const COLD_SHARE: f64 = 0.001;
/// ... that run less often than this part of the most frequent block are cold.
const COLD_FREQUENCY: f64 = 0.01;
/// Frequent blocks without samples are shown in procedures of at most this many blocks.
const FEW_BLOCKS: usize = 24;
/// What retires with what is told in blocks with this share of the procedure's time.
const TOLD_SHARE: f64 = 0.01;
/// Fewer samples than this are no sign of an instruction's being faster than possible.
const GAIN_SAMPLES: f64 = 20.0;
/// Instructions are cut to this many characters.
const WIDEST_TEXT: usize = 44;

/// Head, blocks, causes, notes.
#[must_use]
pub fn analysis(a: &Analysis, view: AnnotationView, blocks: Blocks, layout: &Layout) -> String {
    let mut out = header(&a.annotation.provenance, layout) + &head(&a.annotation, layout);
    out.push_str(&filled("", &basis(a), layout));
    if let Some(text) = quotient(a) {
        out.push_str(&layout.style.paint(Tone::Head, &text));
        out.push('\n');
    }
    let listing = Listing::new(a, view);
    out.push_str(&listing.render(blocks, layout));
    if !matches!(blocks, Blocks::Only(_)) {
        out.push('\n');
        out.push_str(&causes(&a.summary, layout));
    }
    let missing = a.missing.iter().map(|m| format!("the control-flow graph is incomplete: {m}"));
    let all: Vec<String> = missing.chain(a.notes.iter().cloned()).chain(a.annotation.notes.iter().cloned()).collect();
    out.push_str(&notes(&all, layout));
    out.push_str(&notes(&a.annotation.provenance.notes, layout));
    out
}

/// What the figures rest on, said once.
pub(crate) fn basis(a: &Analysis) -> String {
    let mut parts = vec![match a.evidence {
        Evidence::Samples => "frequencies from samples and best cases alone".to_owned(),
        Evidence::Branches => format!(
            "frequencies from branch evidence ({} of {} register samples decided a branch)",
            thousands(a.decided.0),
            thousands(a.decided.1)
        ),
        Evidence::Walks => format!(
            "frequencies from walks from samples on ({} runs between taken branches) and branch evidence ({} of {} register \
             samples decided a branch)",
            thousands(a.recorded),
            thousands(a.decided.0),
            thousands(a.decided.1)
        ),
        Evidence::Records => {
            format!("frequencies from the CPU's branch records ({} runs between taken branches)", thousands(a.recorded))
        }
        Evidence::Instructions => format!(
            "frequencies from samples of executed instructions ({}) and what was seen of branches",
            thousands(a.retired)
        ),
        Evidence::Counts => format!(
            "frequencies from {} blocks counted by breakpoints, and branch evidence ({} of {} register samples decided a branch)",
            a.counted,
            thousands(a.decided.0),
            thousands(a.decided.1)
        ),
    }];
    parts.extend(match a.remaining {
        0 => None,
        1 => Some("the end of one loop by how many rounds were to go".to_owned()),
        n => Some(format!("the ends of {n} loops by how many rounds were to go")),
    });
    parts.push(match &a.scale {
        Scale::Relative => "F is executions per call of the procedure; how often it was called is not known".into(),
        Scale::Bounded => format!(
            "the scale of F is bounded: for more executions the time has no room (<~){}{}",
            at_best(a)
                .map(|q| format!(", and for {q:.2} of them if blocks took their best cases one after the other"))
                .unwrap_or_default(),
            match a.blocks.iter().any(|b| is_loose(a, b) && b.share >= TOLD_SHARE) {
                true => ", and may be more of blocks that were hardly compared with those (~)",
                false => "",
            }
        ),
        Scale::Absolute(source) => format!("F is executions while recorded, by {source} as told"),
        Scale::Counted if a.evidence == Evidence::Counts || a.lapped == 0 => {
            "F is executions while recorded, by blocks counted against time".into()
        }
        Scale::Counted => format!(
            "F is executions while recorded, by how far the registers got between two samples that {} step",
            match a.lapped {
                1 => "one loop".into(),
                n => format!("{n} loops"),
            }
        ),
        Scale::Sampled => "F is executions while recorded, by samples of executed instructions".into(),
    });
    if a.blocks.iter().all(|b| b.cycles.is_none()) {
        parts.push("so no cycles can be told".into());
    } else if !is_absolute(a) {
        parts.push("so cycles are about the least there can be (>~)".into());
    }
    if let Some(hz) = a.clock_hz {
        parts.push(format!("core clock {:.2} GHz", hz / 1e9));
    }
    if !a.model.is_empty() {
        parts.push(best_cases(&a.model));
    }
    if let Some(mca) = &a.mca {
        parts.push(format!("of blocks repeated without misses also by {mca}"));
    }
    parts.join("; ")
}

/// What part of the executions told there is room for at best cases, where that is much less.
fn at_best(a: &Analysis) -> Option<f64> {
    a.at_best.filter(|q| a.scale == Scale::Bounded && *q < IMPOSSIBLE)
}

/// `best cases as measured on AMD EPYC ...`, or of the model named.
fn best_cases(model: &str) -> String {
    if model.starts_with("measured") { format!("best cases as {model}") } else { format!("best cases of {model}") }
}

/// `best-case 0.32 CPI, actual 6.90 CPI` of the procedure.
pub(crate) fn quotient(a: &Analysis) -> Option<String> {
    let (best, actual) = a.best_cpi.zip(a.cpi)?;
    Some(format!("best-case {best:.2} CPI, actual {}{actual:.2} CPI", at_least(a)))
}

pub(crate) fn confidence(c: Confidence) -> &'static str {
    match c {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

/// `high`; `shape high` where executions are bounded: it is about blocks against one another, and not about the bound.
pub(crate) fn confidence_of(a: &Analysis, c: Confidence) -> String {
    let about = if a.scale == Scale::Bounded { "shape " } else { "" };
    format!("{about}{}", confidence(c))
}

fn evidence(e: Evidence) -> &'static str {
    match e {
        Evidence::Samples => "samples only",
        Evidence::Branches => "branch evidence",
        Evidence::Walks => "walks",
        Evidence::Records => "branch records",
        Evidence::Instructions => "sampled instructions",
        Evidence::Counts => "counted",
    }
}

/// `F 1.53e9 +-4 % (branch evidence, high)`.
pub(crate) fn frequency(a: &Analysis, b: &BlockAnalysis) -> String {
    format!("F {} ({}, {})", count_of(a, b), evidence(a.evidence), confidence_of(a, b.frequency.confidence))
}

/// Blocks this much faster than the model's best are marked,
const IMPOSSIBLE: f64 = 0.8;
/// with so many samples.
const TELLING: f64 = 30.0;

/// Why a block can seem faster than its best, and how often it runs if no block is.
fn below(a: &Analysis, b: &BlockAnalysis) -> String {
    let hidden = "what other blocks wait for hides it";
    match (at_best(a), &a.scale) {
        (Some(q), _) => format!(
            " (below its best: F is too high, {} if all took their best cases, or {hidden})",
            executions(q * b.frequency.value)
        ),
        (None, Scale::Bounded) => {
            format!(" (below its best: {hidden}, or F is too high, as it is bounded loosely where code calls)")
        }
        _ => format!(" (below its best: {hidden}, or F is too high)"),
    }
}

/// `best-case 1.6/5 = 0.31 CPI, actual 13.6/5 = 2.71 CPI`, and what `llvm-mca` says where it was asked.
pub(crate) fn block_cpi(a: &Analysis, b: &BlockAnalysis) -> Option<String> {
    let one = |what: &str, sign: &str, total: f64| {
        format!("{what} {}/{} {sign} {:.2} CPI", cycles(total), b.len, total / b.len.max(1) as f64)
    };
    let sign = if is_absolute(a) { "=" } else { at_least_of(a, b).trim_end() };
    let own = b.cycles.map(|actual| {
        let is_below = actual < IMPOSSIBLE * b.best_cycles && b.samples >= TELLING;
        let why = if is_below { below(a, b) } else { String::new() };
        [one("best-case", "=", b.best_cycles), one("actual", sign, actual) + &why]
    });
    let mca = b.mca_cycles.map(|best| one("llvm-mca", "=", best));
    let all: Vec<String> = own.into_iter().flatten().chain(mca).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Rows of the listing and the widths they share.
struct Listing<'a> {
    a: &'a Analysis,
    view: AnnotationView,
    rows: FxHashMap<u64, &'a InsnRow>,
    address: usize,
    text: usize,
    /// Executions of the most frequent block.
    most: f64,
    /// Decided branch samples at the end of each block.
    seen: Vec<u64>,
}

impl<'a> Listing<'a> {
    fn new(a: &'a Analysis, view: AnnotationView) -> Self {
        let rows: FxHashMap<u64, &InsnRow> = a.annotation.insns.iter().map(|i| (i.address, i)).collect();
        let address = a.insns.iter().map(|i| format!("{:x}", i.address).len()).max().unwrap_or(4).max(7);
        let longest = rows.values().map(|i| i.text.chars().count()).max().unwrap_or(0);
        let most = a.blocks.iter().map(|b| b.frequency.value).fold(0.0, f64::max);
        Self { a, view, rows, address, text: longest.clamp(11, WIDEST_TEXT), most, seen: seen(a) }
    }

    fn render(&self, which: Blocks, layout: &Layout) -> String {
        let mut out = layout.style.paint(Tone::Head, &self.titles()) + "\n";
        let (mut folded, mut insns, mut share) = (0, 0, 0.0);
        for (number, block) in self.a.blocks.iter().enumerate() {
            if !self.is_shown(number, block, which) {
                folded += 1;
                insns += block.len;
                share += block.share;
                continue;
            }
            out.push_str(&fold_line(folded, insns, share, which, layout));
            (folded, insns, share) = (0, 0, 0.0);
            self.block(&mut out, number, block, layout);
        }
        out + &fold_line(folded, insns, share, which, layout)
    }

    fn is_shown(&self, number: usize, b: &BlockAnalysis, which: Blocks) -> bool {
        match which {
            Blocks::All => true,
            Blocks::Only(n) => number + 1 == n,
            Blocks::Warm => {
                let few = self.a.blocks.len() <= FEW_BLOCKS;
                b.share >= COLD_SHARE || few && b.frequency.value > self.most * COLD_FREQUENCY
            }
        }
    }

    fn titles(&self) -> String {
        let cycles = if self.has_cycles() { "cycles" } else { "" };
        let (address, text) = (self.address + 2, self.text);
        format!("{:>address$}  {:<text$}  {:>10}  {:>6}  {cycles:>7}", "address", "instruction", "samples", "time %")
            .trim_end()
            .to_owned()
    }

    fn has_cycles(&self) -> bool {
        self.a.insns.iter().any(|i| i.cycles.is_some())
    }

    fn block(&self, out: &mut String, number: usize, b: &BlockAnalysis, layout: &Layout) {
        out.push('\n');
        out.push_str(&wrapped(&self.block_head(number, b), layout));
        let mut last = None;
        let end = (b.first + b.len).min(self.a.insns.len());
        let mut leader = None;
        for i in b.first.min(end)..end {
            let insn = &self.a.insns[i];
            let row = self.rows.get(&insn.address);
            if let Some(row) = row.filter(|r| r.line.is_some() && r.line != last) {
                last = row.line;
                out.push_str(&self.source(row, layout));
            }
            if let Some(bubble) = bubble(self.a, i) {
                out.push_str(&self.bubble(&bubble, layout));
            }
            out.push_str(&self.insn(i, leader, layout));
            if insn.best_cycles > 0.0 {
                leader = Some(insn.address);
            }
        }
        out.push_str(&self.ways(number, layout));
    }

    fn source(&self, row: &InsnRow, layout: &Layout) -> String {
        let Some(at) = row.line.filter(|_| self.view != AnnotationView::Asm) else { return String::new() };
        let line = middle_cut(&format!("  {}", source_line(&self.a.annotation, at, row)), layout.width);
        layout.style.paint(Tone::Faint, line.trim_end()) + "\n"
    }

    fn block_head(&self, number: usize, b: &BlockAnalysis) -> Vec<String> {
        let mut items =
            vec![format!("block {} of {}", number + 1, self.a.blocks.len()), format!("{} % of time", percent(b.share))];
        items.extend(block_cpi(self.a, b));
        items.push(frequency(self.a, b));
        match b.loop_header {
            Some(header) if header == number => items.push("loop".into()),
            Some(header) => items.push(format!("in the loop of block {}", header + 1)),
            None => {}
        }
        items
    }

    /// Suspects above the instruction, as many lines as they need.
    fn bubble(&self, b: &Bubble, layout: &Layout) -> String {
        let indent = self.address + 4;
        let mut lines = vec![format!("{}{}", " ".repeat(indent), b.head())];
        let within = indent + b.shape.chars().count() + 2;
        for suspect in &b.suspects {
            let line = lines.last_mut().expect("there is a first line");
            if line.chars().count() + 3 + suspect.chars().count() <= layout.width {
                line.push_str("   ");
                line.push_str(suspect);
            } else {
                lines.push(format!("{}{suspect}", " ".repeat(within)));
            }
        }
        lines.iter().map(|l| layout.style.paint(Tone::Warm, l) + "\n").collect()
    }

    fn insn(&self, i: usize, leader: Option<u64>, layout: &Layout) -> String {
        let insn = &self.a.insns[i];
        let row = self.rows.get(&insn.address);
        let share = row.map_or(0.0, |r| r.share);
        let text = row.map_or("(code not available)", |r| r.text.as_str()).replace('\t', "    ");
        let counted = row.and_then(|r| r.samples.first()).copied().unwrap_or(insn.samples);
        let samples = if insn.samples > 0.0 { fractional(counted) } else { String::new() };
        let time = if insn.samples > 0.0 { percent(share) } else { String::new() };
        let cost = insn.cycles.map(cycles).filter(|_| insn.samples > 0.0 || insn.best_cycles > 0.0).unwrap_or_default();
        let line = format!(
            "{:>address$x}  {:<width$}  {samples:>10}  {time:>6}  {cost:>7}  {}",
            insn.address,
            middle_cut(&text, self.text),
            self.remark(insn, leader),
            address = self.address + 2,
            width = self.text,
        );
        layout.style.paint(tone_of(share), line.trim_end()) + "\n"
    }

    /// Why an instruction shows little, or less than it may.
    fn remark(&self, insn: &InsnAnalysis, leader: Option<u64>) -> String {
        const GAIN: f64 = 0.5;
        let share = insn.block.and_then(|b| self.a.blocks.get(b)).map_or(0.0, |b| b.share);
        match (insn.stall_cycles, leader) {
            // Of bounded executions the cost is a lower bound: that it is low says nothing.
            (Some(stall), _) if is_absolute(self.a) && stall < -GAIN && insn.samples >= GAIN_SAMPLES => {
                format!("(faster than the best case of {})", cycles(insn.best_cycles))
            }
            (_, Some(leader)) if insn.best_cycles <= 0.0 && share >= TOLD_SHARE => {
                format!("(retires with {leader:x})")
            }
            _ => String::new(),
        }
    }

    /// Where a block with several ways out goes, the likeliest first; as many as the line holds.
    fn ways(&self, number: usize, layout: &Layout) -> String {
        let mut out: Vec<_> = self.a.edges.iter().filter(|e| e.from == number).collect();
        if out.len() < 2 {
            return String::new();
        }
        let evidence = self.seen.get(number).copied().unwrap_or(0);
        if evidence > 0 {
            out.sort_by(|x, y| y.probability.total_cmp(&x.probability));
        }
        let blocks = self.a.blocks.len();
        let to = |to: usize| if to < blocks { format!("block {}", to + 1) } else { "out".to_owned() };
        let way = |e: &&EdgeAnalysis| match probability(e, evidence, 2) {
            Some(share) => format!("{} {share} {}", to(e.to), e.kind),
            None => format!("{} {}", to(e.to), e.kind),
        };
        let seen = match evidence {
            0 => " (not seen)".into(),
            n => format!(" ({} seen)", thousands(n)),
        };
        let indent = format!("{}-> ", " ".repeat(self.address + 4));
        let room = layout.width.saturating_sub(indent.chars().count() + seen.chars().count());
        let text = format!("{indent}{}{seen}", listed(&out.iter().map(way).collect::<Vec<_>>(), room));
        layout.style.paint(Tone::Faint, &text) + "\n"
    }
}

/// Items with commas between, as many as `room` has characters for; the others are counted. One is always there.
fn listed(items: &[String], room: usize) -> String {
    let shown = |n: usize| match items.len() - n {
        0 => items.join(", "),
        more => format!("{}, {more} more", items[..n].join(", ")),
    };
    let fits = |n: &usize| shown(*n).chars().count() <= room;
    (1..=items.len()).rev().find(fits).map_or_else(|| shown(items.len().min(1)), shown)
}

fn fold_line(blocks: usize, insns: usize, share: f64, which: Blocks, layout: &Layout) -> String {
    if blocks == 0 || matches!(which, Blocks::Only(_)) {
        return String::new();
    }
    let plural = if blocks == 1 { "" } else { "s" };
    let text = format!("\n… {blocks} cold block{plural}, {insns} instructions, {} % of time", percent(share));
    layout.style.paint(Tone::Faint, &text) + "\n"
}
