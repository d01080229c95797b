//! A call tree as indented text, small branches left out and counted.

use super::header::{header, notes};
use super::number::{percent, thousands};
use super::{Layout, tone_of};
use whither_cycles::results::{CallTree, FlameNode};

/// Header, the tree down to nodes that hold at least `least` (0 to 1) of the whole and of those the `rows` heaviest, notes.
#[must_use]
pub fn tree(answer: &CallTree, least: f64, rows: Option<usize>, layout: &Layout) -> String {
    let mut out = header(&answer.provenance, layout);
    if !answer.filters.is_empty() {
        out.push_str(&format!("only {}\n", answer.filters.join(", ")));
    }
    out.push_str("     %   own %  call tree\n");
    let root = &answer.tree;
    let whole = root.total.max(1) as f64;
    let lightest = rows.and_then(|rows| nth_heaviest(root, rows)).map_or(0.0, |total| total as f64 / whole);
    let mut walk = Walk { whole, least: least.max(lightest), layout, out: &mut out };
    walk.node(root, 0);
    out + &notes(&answer.provenance.notes, layout)
}

/// Weight of the `n`-th heaviest node; no node is heavier than its caller.
fn nth_heaviest(root: &FlameNode, n: usize) -> Option<u64> {
    let mut totals = Vec::new();
    let mut left = vec![root];
    while let Some(node) = left.pop() {
        totals.push(node.total);
        left.extend(&node.children);
    }
    totals.sort_unstable_by(|a, b| b.cmp(a));
    totals.get(n.max(1) - 1).copied()
}

struct Walk<'a> {
    whole: f64,
    least: f64,
    layout: &'a Layout,
    out: &'a mut String,
}

impl Walk<'_> {
    fn node(&mut self, node: &FlameNode, depth: usize) {
        let share = node.total as f64 / self.whole;
        let own = node.own as f64 / self.whole;
        let line = format!("{:>6}  {:>6}  {}{}", percent(share), percent(own), "  ".repeat(depth), label(node));
        let line = super::table::middle_cut(&line, self.layout.width);
        self.out.push_str(&self.layout.style.paint(tone_of(own), &line));
        self.out.push('\n');
        self.children(node, depth + 1);
    }

    /// A stack deeper than the line is long says no more.
    fn children(&mut self, node: &FlameNode, depth: usize) {
        if depth * 2 > self.layout.width {
            return;
        }
        let (shown, small): (Vec<_>, Vec<_>) =
            node.children.iter().partition(|c| c.total as f64 / self.whole >= self.least);
        for child in shown {
            self.node(child, depth);
        }
        if !small.is_empty() {
            let share = small.iter().map(|c| c.total).sum::<u64>() as f64 / self.whole;
            let n = thousands(small.len() as u64);
            self.out.push_str(&format!("{:>6}          {}({n} smaller)\n", percent(share), "  ".repeat(depth)));
        }
    }
}

fn label(node: &FlameNode) -> String {
    let mut text = node.name.clone();
    if node.inlined {
        text.push_str(" (inlined)");
    }
    if !node.image.is_empty() {
        text.push_str(&format!("  {}", node.image));
    }
    text
}
