//! The flame graph's data: the call tree flattened into small arrays that the page's script draws.
//! Flattening is iterative, because stacks of a runaway recursion are deep.

use super::escape::{Text, json, put};
use super::number::grouped;
use rustc_hash::FxHashMap;
use serde::Serialize;
use whither_cycles::results::{FlameNode, Provenance};

/// Nodes below this part of the total are added up into one node per parent: they would be narrower
/// than a fifth of a pixel, and deep whole-system trees have hundreds of thousands of them.
const SMALLEST: u64 = 10_000;

const KERNEL: u8 = 1;
const INLINED: u8 = 2;
const FOLDED: u8 = 4;

/// Preorder arrays; `nodes` holds five numbers per node: name, image, flags, own, children. A
/// node's total is the sum below it.
#[derive(Serialize, Default)]
struct Flat<'a> {
    unit: &'a str,
    event: &'a str,
    names: Vec<&'a str>,
    images: Vec<&'a str>,
    nodes: Vec<u64>,
}

#[derive(Default)]
struct Interner<'a> {
    index: FxHashMap<&'a str, u64>,
    list: Vec<&'a str>,
}

impl<'a> Interner<'a> {
    fn get(&mut self, text: &'a str) -> u64 {
        *self.index.entry(text).or_insert_with(|| {
            self.list.push(text);
            self.list.len() as u64 - 1
        })
    }
}

pub(super) fn section(out: &mut String, root: Option<&FlameNode>, p: &Provenance) {
    out.push_str(
        "<section id=\"flame\" aria-labelledby=\"flame-h\"><div class=\"bar-line\"><h2 id=\"flame-h\">Flame graph</h2>",
    );
    let Some(root) = root.filter(|r| r.total > 0) else {
        out.push_str("</div><p class=\"empty\">No call stacks in this recording; <code>whither record -g</code> takes them.</p></section>");
        return;
    };
    tools(out, "");
    put!(
        out,
        "<noscript><p class=\"empty\">The flame graph of {} samples' worth of stacks needs JavaScript; \
         <code>whither export flamegraph</code> writes it as an SVG.</p></noscript>",
        grouped(p.stacks.0)
    );
    let event = p.events.first();
    let (unit, event) = (event.map_or("count", |e| e.unit.as_str()), event.map_or("", |e| e.name.as_str()));
    put!(
        out,
        "<script type=\"application/json\" id=\"flame-data\">{}</script></section>",
        json(&flatten(root, unit, event))
    );
}

/// The flame graph of call paths, one tree per metric (name, unit); the first is shown.
pub(super) fn calls_section(out: &mut String, trees: &[(&str, &str, FlameNode)]) {
    let shown: Vec<&(&str, &str, FlameNode)> = trees.iter().filter(|(_, _, root)| root.total > 0).collect();
    if shown.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"flame\" aria-labelledby=\"flame-h\"><div class=\"bar-line\"><h2 id=\"flame-h\">Flame graph of call paths</h2>",
    );
    let mut choice = String::new();
    if shown.len() > 1 {
        choice.push_str("<label class=\"find\">Width is <select id=\"flame-metric\">");
        for (i, (name, ..)) in shown.iter().enumerate() {
            put!(choice, "<option value=\"{}\">{}</option>", data_id(i), Text(name));
        }
        choice.push_str("</select></label>");
    }
    tools(out, &choice);
    out.push_str(
        "<noscript><p class=\"empty\">The flame graph needs JavaScript; the tree below says the same.</p></noscript>",
    );
    for (i, (name, unit, root)) in shown.iter().enumerate() {
        let data = json(&flatten(root, unit, name));
        put!(out, "<script type=\"application/json\" id=\"{}\">{data}</script>", data_id(i));
    }
    out.push_str("</section>");
}

fn data_id(index: usize) -> String {
    if index == 0 { "flame-data".into() } else { format!("flame-data-{index}") }
}

/// Search, direction and zoom, and the empty places that the script fills; closes the heading's line.
fn tools(out: &mut String, first: &str) {
    put!(
        out,
        "<span id=\"flame-tools\" class=\"tools\" hidden>{first}\
         <label class=\"find\">Search <input type=\"search\" id=\"flame-q\" placeholder=\"function, or /regex/\" autocomplete=\"off\" spellcheck=\"false\"></label>\
         <output id=\"flame-hit\" class=\"count\" aria-live=\"polite\"></output>\
         <button type=\"button\" id=\"flame-dir\" aria-pressed=\"false\">Callers at the bottom</button>\
         <button type=\"button\" id=\"flame-inv\" aria-pressed=\"false\">Bottom-up</button>\
         <button type=\"button\" id=\"flame-reset\">Reset zoom</button></span></div>"
    );
    out.push_str(
        "<p class=\"hint\">Width is share of the stacks' weight; order is by size, not time. Click to zoom, \
         Escape to go back, arrow keys to move.</p><p id=\"flame-info\" class=\"info\" role=\"status\"></p>\
         <div id=\"flame-view\" role=\"tree\" aria-label=\"Call tree\"></div><div id=\"flame-legend\" class=\"legend\"></div>",
    );
}

fn flatten<'a>(root: &'a FlameNode, unit: &'a str, event: &'a str) -> Flat<'a> {
    let (mut names, mut images, mut nodes) = (Interner::default(), Interner::default(), Vec::new());
    let least = root.total / SMALLEST;
    let mut work: Vec<&FlameNode> = vec![root];
    while let Some(node) = work.pop() {
        let (kept, small): (Vec<&FlameNode>, Vec<&FlameNode>) = node.children.iter().partition(|c| c.total > least);
        let small_total = small.iter().fold(0_u64, |sum, c| sum.saturating_add(c.total));
        let flags = if node.kernel { KERNEL } else { 0 } | if node.inlined { INLINED } else { 0 };
        let below = kept.iter().fold(small_total, |sum, c| sum.saturating_add(c.total));
        // The tree's own figure is kept when consistent; a foreign tree may have only totals.
        let own = node.own.max(node.total.saturating_sub(below));
        let children = kept.len() as u64 + u64::from(small_total > 0);
        nodes.extend([names.get(&node.name), images.get(&node.image), u64::from(flags), own, children]);
        if small_total > 0 {
            nodes.extend([names.get("(smaller callees)"), images.get(""), u64::from(FOLDED), small_total, 0]);
        }
        work.extend(kept.into_iter().rev());
    }
    Flat { unit, event, names: names.list, images: images.list, nodes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, own: u64, children: Vec<FlameNode>) -> FlameNode {
        let total = own + children.iter().map(|c| c.total).sum::<u64>();
        FlameNode { name: name.into(), own, total, children, ..FlameNode::default() }
    }

    #[test]
    fn flattening_keeps_the_total_and_folds_the_tiny() {
        let tiny: Vec<FlameNode> = (0..50).map(|i| node(&format!("t{i}"), 1, vec![])).collect();
        let tree = node("all", 0, vec![node("main", 1_000_000, vec![]), node("init", 0, tiny)]);
        let flat = flatten(&tree, "count", "");
        let own: u64 = flat.nodes.chunks(5).map(|n| n[3]).sum();
        assert_eq!(own, tree.total);
        assert!(flat.names.contains(&"(smaller callees)"));
        assert!(!flat.names.contains(&"t0"));
    }

    #[test]
    fn deep_recursion_is_flattened_without_recursion() {
        let mut tree = node("leaf", 10, vec![]);
        for _ in 0..5_000 {
            tree = node("rec", 0, vec![tree]);
        }
        assert_eq!(flatten(&tree, "count", "").nodes.len(), 5 * 5_001);
    }
}
