//! The call-path tree as nested elements that open and close without script.

use super::escape::{Text, put};
use super::number::{grouped, percent};
use crate::text::{own_part, part_of_all, weight, weightless};
use whither_calls::{Metric, TreeNode, Unit};

/// Branches below this part of the whole are added up.
const LEAST: f64 = 0.002;
/// Open at first sight: branches above this part.
const OPEN: f64 = 0.05;
/// Levels of elements; browsers slow down far beyond.
const DEEPEST: usize = 120;

pub(super) fn section(out: &mut String, metric: &Metric, root: &TreeNode) {
    put!(
        out,
        "<section id=\"tree\" aria-labelledby=\"tree-h\"><div class=\"bar-line\"><h2 id=\"tree-h\">Call tree by {}</h2></div>\
         <p class=\"hint\">Outermost callers first; measured functions are coloured. Figures: share of all measured, own share, amount, calls.</p>",
        Text(metric.name())
    );
    if root.negative > 0 {
        put!(out, "<p class=\"hint\">{}</p>", Text(&weightless(root.negative)));
    }
    out.push_str("<div class=\"calltree\">");
    let view = View { metric, whole: root.total.max(1) as f64 };
    view.children(out, root, 0);
    out.push_str("</div></section>");
}

struct View<'a> {
    metric: &'a Metric,
    whole: f64,
}

impl View<'_> {
    fn share(&self, n: u64) -> f64 {
        n as f64 / self.whole
    }

    fn node(&self, out: &mut String, node: &TreeNode, depth: usize) {
        if node.children.is_empty() || depth >= DEEPEST {
            out.push_str("<div class=\"leaf\">");
            self.line(out, node);
            out.push_str("</div>");
            return;
        }
        let open = if self.share(node.total) >= OPEN { " open" } else { "" };
        put!(out, "<details{open}><summary>");
        self.line(out, node);
        out.push_str("</summary>");
        self.children(out, node, depth + 1);
        out.push_str("</details>");
    }

    fn children(&self, out: &mut String, node: &TreeNode, depth: usize) {
        let (shown, small): (Vec<_>, Vec<_>) = node.children.iter().partition(|c| self.share(c.total) >= LEAST);
        for child in shown {
            self.node(out, child, depth);
        }
        let nodes = node.small.nodes.saturating_add(small.len() as u64);
        if nodes > 0 {
            let total = small.iter().fold(node.small.total, |sum, c| sum.saturating_add(c.total));
            let n = grouped(nodes);
            put!(
                out,
                "<div class=\"leaf dim\">{n} smaller<span class=\"figure\">{}\u{2009}%</span></div>",
                percent(self.share(total))
            );
        }
    }

    fn line(&self, out: &mut String, node: &TreeNode) {
        let class = if node.func.is_some() { " class=\"probed\"" } else { "" };
        let inlined = if node.inlined { " (inlined)" } else { "" };
        put!(out, "<span class=\"line\"><b{class}>{}</b>{inlined}", Text(&node.name));
        put!(out, "<span class=\"figure\">{}\u{2009}%", Text(&part_of_all(node, self.whole, self.metric)));
        if node.own > 0 && node.own != node.total {
            put!(out, " ({}\u{2009}% own)", Text(&own_part(node, self.whole, self.metric)));
        }
        match self.metric.unit() {
            Unit::Time | Unit::Number => put!(out, ", {}", Text(&weight(node, self.metric))),
            Unit::Calls => {}
        }
        if node.func.is_some() {
            put!(out, ", {} call{}", grouped(node.calls), if node.calls == 1 { "" } else { "s" });
        }
        put!(out, "</span> <span class=\"dim\">{}</span></span>", Text(&node.module));
    }
}
