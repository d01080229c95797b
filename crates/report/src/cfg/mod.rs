//! Control-flow graphs as pictures: what to draw (here), where (`layout`, a layered drawing of our own), and the
//! formats (`svg`, `dot`). Colour is share of time, line style confidence, width of an edge its count; what is not
//! known leads to a `?`.

mod dot;
mod layers;
mod layout;
mod svg;

pub use dot::dot;
pub(crate) use svg::embedded;
pub use svg::svg;

use crate::text::{at_least_of, basis, block_cpi, confidence_of, count, count_of, probability, seen};
use rustc_hash::FxHashMap;
use whither_cycles::results::analysis::{Analysis, BlockAnalysis, Confidence, EdgeAnalysis};

/// Most blocks drawn in a file of their own; a picture of more tells nobody anything.
pub const MOST_BLOCKS: usize = 2000;
/// In graphs of more blocks than this ...
const FOLD_ABOVE: usize = 400;
/// What an execution costs is not told of blocks with fewer samples: nothing is known of it.
const TELLING: f64 = 3.0;
/// ... those with less of the procedure's time are counted, not drawn.
const COLD_SHARE: f64 = 0.0005;

/// What is drawn of an analysis.
pub(crate) struct Graph<'a> {
    a: &'a Analysis,
    /// Blocks drawn, in order of addresses: indices into the analysis.
    nodes: Vec<usize>,
    /// Edges between drawn blocks: positions in `nodes`.
    edges: Vec<(usize, usize, &'a EdgeAnalysis)>,
    /// Positions of blocks from which control goes somewhere unknown.
    unknown: Vec<usize>,
    /// Most executions of an edge or block.
    most: f64,
    /// Ways out of each block of the analysis, and decided branch samples at its end.
    ways: Vec<usize>,
    seen: Vec<u64>,
}

impl<'a> Graph<'a> {
    /// The `most` hottest blocks, or all; of a large graph those that are not cold.
    pub(crate) fn new(a: &'a Analysis, most: usize) -> Self {
        let warm = a.blocks.iter().filter(|b| b.share >= COLD_SHARE).count();
        let folds = a.blocks.len() > FOLD_ABOVE;
        // Without time anywhere there is no cold and warm.
        let nodes = match (folds, warm) {
            (true, 0) => hottest(a, most.min(FOLD_ABOVE)),
            (true, _) => hottest(a, most.min(warm + usize::from(a.blocks[0].share < COLD_SHARE))),
            _ => hottest(a, most),
        };
        let position: FxHashMap<usize, usize> = nodes.iter().enumerate().map(|(at, &b)| (b, at)).collect();
        let inside = |e: &'a EdgeAnalysis| Some((*position.get(&e.from)?, *position.get(&e.to)?, e));
        let edges = a.edges.iter().filter(|e| is_known(e)).filter_map(inside).collect();
        let mut leaves = vec![false; a.blocks.len()];
        a.edges.iter().filter(|e| e.from < a.blocks.len() && is_known(e)).for_each(|e| leaves[e.from] = true);
        let unknown =
            if a.missing.is_empty() { Vec::new() } else { (0..nodes.len()).filter(|&at| !leaves[nodes[at]]).collect() };
        let frequencies = a.edges.iter().map(|e| e.frequency.value).chain(a.blocks.iter().map(|b| b.frequency.value));
        let most = frequencies.filter(|f| f.is_finite()).fold(0.0, f64::max);
        let mut ways = vec![0; a.blocks.len()];
        a.edges.iter().filter(|e| e.from < a.blocks.len()).for_each(|e| ways[e.from] += 1);
        Self { a, nodes, edges, unknown, most, ways, seen: seen(a) }
    }

    fn block(&self, at: usize) -> &'a BlockAnalysis {
        &self.a.blocks[self.nodes[at]]
    }

    /// Blocks left out.
    pub(crate) fn left_out(&self) -> usize {
        self.a.blocks.len() - self.nodes.len()
    }

    /// What is drawn, as a sentence; empty when everything is.
    pub(crate) fn omission(&self) -> String {
        match self.left_out() {
            0 => String::new(),
            n => format!(
                "the {} hottest blocks; {n} cold ones, {} of time, are not drawn",
                self.nodes.len(),
                self.cold_share()
            ),
        }
    }

    fn cold_share(&self) -> String {
        let shares =
            |blocks: &mut dyn Iterator<Item = f64>| blocks.filter(|s| s.is_finite()).fold(0.0, |sum, s| sum + s);
        let all = shares(&mut self.a.blocks.iter().map(|b| b.share));
        let drawn = shares(&mut self.nodes.iter().map(|&b| self.a.blocks[b].share));
        format!("{:.1} %", ((all - drawn) * 100.0).max(0.0))
    }

    fn known(&self) -> impl Iterator<Item = &EdgeAnalysis> {
        self.a.edges.iter().filter(|e| is_known(e))
    }

    /// Executions that enter the procedure at this block, if calls do.
    fn entered(&self, at: usize) -> Option<f64> {
        let from = self.a.blocks.len();
        self.known().find(|e| e.from == from && e.to == self.nodes[at]).map(|e| e.frequency.value)
    }

    /// Executions that leave the procedure from this block, if any do.
    fn left(&self, at: usize) -> Option<f64> {
        let to = self.a.blocks.len() + 1;
        self.known().find(|e| e.to == to && e.from == self.nodes[at]).map(|e| e.frequency.value)
    }

    /// Lines of text inside a block's box.
    fn lines(&self, at: usize) -> Vec<String> {
        let b = self.block(at);
        let mut lines = vec![
            format!("block {}   {:x}", self.nodes[at] + 1, b.address),
            format!("{:.1} % of time", (b.share * 100.0).max(0.0)),
            format!("F {}", count_of(self.a, b)),
        ];
        let drawn = |to: usize| to >= self.a.blocks.len() || self.nodes.binary_search(&to).is_ok();
        let folded = self.known().filter(|e| e.from == self.nodes[at] && !drawn(e.to)).count();
        if folded > 0 && self.left_out() > 0 {
            lines.push(format!("{folded} way{} to cold blocks", if folded == 1 { "" } else { "s" }));
        }
        if let Some(cycles) = b.cycles.filter(|_| b.samples >= TELLING) {
            let per = b.len.max(1) as f64;
            lines.push(format!("CPI {}{:.2}, best {:.2}", at_least_of(self.a, b), cycles / per, b.best_cycles / per));
        }
        lines
    }

    /// Everything known of a block, for hovering.
    fn tooltip(&self, at: usize) -> String {
        const MOST: usize = 14;
        let b = self.block(at);
        let mut text = format!(
            "block {}, equivalence class {}\nruns {} times, confidence {}",
            self.nodes[at] + 1,
            b.class,
            count_of(self.a, b),
            confidence_of(self.a, b.frequency.confidence)
        );
        text.extend(block_cpi(self.a, b).map(|c| format!("\n{c}")));
        let twins: Vec<String> = (0..self.a.blocks.len())
            .filter(|&i| i != self.nodes[at] && self.a.blocks[i].class == b.class)
            .map(|i| (i + 1).to_string())
            .collect();
        if !twins.is_empty() {
            let shown = twins.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
            let more = if twins.len() > MOST { ", ..." } else { "" };
            text.push_str(&format!("\nruns as often as block {shown}{more}"));
        }
        text.push_str(&self.instructions(b, MOST));
        text
    }

    fn instructions(&self, b: &BlockAnalysis, most: usize) -> String {
        let mut text = String::new();
        for i in self.a.insns.iter().skip(b.first).take(b.len.min(most)) {
            let row = self.a.annotation.insns.binary_search_by_key(&i.address, |r| r.address).ok();
            let code = row.map_or("", |r| self.a.annotation.insns[r].text.as_str());
            text.push_str(&format!("\n{:x}  {code}", i.address));
        }
        if b.len > most {
            text.push_str(&format!("\n... {} more", b.len - most));
        }
        text
    }

    fn edge_tooltip(&self, e: &EdgeAnalysis) -> String {
        let share = match self.seen.get(e.from).and_then(|&seen| probability(e, seen, 2)) {
            Some(share) => format!("{share} of the block's"),
            None => "which way was not seen".to_owned(),
        };
        format!(
            "block {} to block {}, {}\n{} times, {share}; confidence {}\n{} decided branch samples",
            e.from + 1,
            e.to + 1,
            e.kind,
            count(self.a, &e.frequency),
            confidence_of(self.a, e.frequency.confidence),
            e.evidence
        )
    }

    /// What stands beside an edge: its share of the block's executions, `?` where the block has several ways out and
    /// none was seen, nothing where it has but one.
    fn edge_label(&self, e: &EdgeAnalysis) -> Option<String> {
        let ways = self.ways.get(e.from).copied().unwrap_or(0);
        let seen = self.seen.get(e.from).copied().unwrap_or(0);
        (ways > 1).then(|| probability(e, seen, 1).unwrap_or_else(|| "?".to_owned()))
    }

    /// Width of an edge's line: grows with the logarithm of its count.
    fn width(&self, frequency: f64) -> f64 {
        if frequency.is_nan() || frequency <= 0.0 || self.most <= 0.0 {
            return 0.6;
        }
        // Twelve powers of two below the most frequent one a line is at its thinnest.
        let below = (self.most / frequency).log2() / 12.0;
        0.8 + 3.2 * (1.0 - below).clamp(0.0, 1.0)
    }
}

/// Sentences above a picture in a file of its own: what the figures rest on, what is not drawn.
fn above(a: &Analysis, graph: &Graph<'_>) -> Vec<String> {
    let mut out = vec![basis(a)];
    out.extend(Some(graph.omission()).filter(|o| !o.is_empty()));
    out
}

/// A sentence broken between words.
fn lines(sentence: &str, width: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in sentence.split(' ') {
        match out.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => out.push(word.to_owned()),
        }
    }
    out
}

/// Edges that the analysis only assumes, so that every block can be reached, are not drawn; those that were seen are.
fn is_known(e: &EdgeAnalysis) -> bool {
    e.kind != "unknown" || e.evidence > 0
}

/// Dash pattern of a confidence.
fn dashes(c: Confidence) -> &'static str {
    match c {
        Confidence::High => "",
        Confidence::Medium => "6 3",
        Confidence::Low => "2 3",
    }
}

/// The hottest blocks in order of addresses; among equals the more frequent ones. The entry is always there.
fn hottest(a: &Analysis, most: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..a.blocks.len()).collect();
    if all.len() > most {
        let by = |b: usize| (a.blocks[b].share, a.blocks[b].frequency.value);
        all.sort_by(|&x, &y| {
            let (x, y) = ((x == 0, by(x)), (y == 0, by(y)));
            y.0.cmp(&x.0).then(y.1.0.total_cmp(&x.1.0)).then(y.1.1.total_cmp(&x.1.1))
        });
        all.truncate(most);
        all.sort_unstable();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis_fixture;

    #[test]
    fn only_the_hottest_are_drawn_and_the_entry_always() {
        let a = analysis_fixture::analysis();
        let g = Graph::new(&a, 2);
        assert_eq!((g.nodes.as_slice(), g.left_out()), (&[0, 1][..], 2));
        assert_eq!(g.edges.iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
    }

    #[test]
    fn cold_blocks_of_a_large_graph_are_counted() {
        let mut a = analysis_fixture::analysis();
        let cold = whither_cycles::results::analysis::BlockAnalysis { share: 0.0001, ..a.blocks[2].clone() };
        a.blocks.extend(std::iter::repeat_n(cold.clone(), FOLD_ABOVE - 4));
        assert_eq!(Graph::new(&a, MOST_BLOCKS).left_out(), 0, "a small graph is drawn whole");
        a.blocks.extend(std::iter::repeat_n(cold, 100));
        let g = Graph::new(&a, MOST_BLOCKS);
        assert_eq!(g.nodes, [0, 1], "the entry and what is warm");
        assert_eq!(g.omission(), "the 2 hottest blocks; 498 cold ones, 5.0 % of time, are not drawn");
        assert!(g.lines(1).contains(&"2 ways to cold blocks".to_owned()), "{:?}", g.lines(1));
        assert!(crate::cfg::svg(&a).contains("498 cold ones") && crate::cfg::dot(&a).contains("498 cold ones"));
    }

    #[test]
    fn a_block_without_known_successors_leads_to_the_unknown() {
        let mut a = analysis_fixture::analysis();
        a.edges.retain(|e| e.from != 2);
        assert!(Graph::new(&a, 9).unknown.is_empty(), "a complete graph ends where it ends");
        a.missing = vec!["a jump through a table at 1196 was not resolved".into()];
        assert_eq!(Graph::new(&a, 9).unknown, [2]);
    }

    #[test]
    fn pictures_have_the_signs_of_the_text_and_say_what_they_rest_on() {
        let a = analysis_fixture::bounded();
        let (svg, dot) = (crate::cfg::svg(&a), crate::cfg::dot(&a));
        assert!(svg.contains("F &lt;~ 1.53e9, shape +-4 %") && dot.contains("F <~ 1.53e9, shape +-4 %"), "{svg}");
        assert!(svg.contains("CPI &gt;~ 6.88") && dot.contains("CPI >~ 6.88"), "{svg}");
        assert!(svg.contains("called &lt;~ 12,000"), "{svg}");
        for text in [&svg, &dot] {
            assert!(text.contains("frequencies from branch evidence") && text.contains("bounded"), "{text}");
        }
    }

    #[test]
    fn ways_that_were_not_seen_have_no_figures() {
        let mut a = analysis_fixture::analysis();
        a.edges.iter_mut().for_each(|e| e.evidence = 0);
        let g = Graph::new(&a, 9);
        let label = |from, to| g.edge_label(a.edges.iter().find(|e| (e.from, e.to) == (from, to)).unwrap());
        assert_eq!((label(0, 1).as_deref(), label(2, 3)), (Some("?"), None), "one way needs no figure");
        assert!(crate::cfg::dot(&a).contains("b0 -> b1 [label=\"?\""));
        let seen = Graph::new(&a, 9).edge_tooltip(&a.edges[1]);
        assert!(seen.contains("which way was not seen"), "{seen}");
    }

    #[test]
    fn hovering_tells_class_and_twins() {
        let a = analysis_fixture::analysis();
        let text = Graph::new(&a, 9).tooltip(0);
        assert!(text.contains("equivalence class 0") && text.contains("runs as often as block 4"), "{text}");
        assert!(text.contains("1173  je     119a"), "{text}");
    }
}
