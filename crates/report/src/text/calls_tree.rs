//! The call-path tree as text.

use super::calls::{RUNNING, bounds};
use super::number::{nanoseconds, percent, thousands};
use super::table::{Tone, middle_cut};
use super::{Layout, tone_of};
use whither_calls::{Known, Metric, TreeNode, Unit};

/// What a node must hold of the whole (0 to 1) to have a line of its own.
#[derive(Clone, Copy, Debug)]
pub struct Least {
    /// Any node.
    pub any: f64,
    /// One of a probed function, which was asked for by name.
    pub probed: f64,
}

impl Least {
    /// No node with less has a line.
    #[must_use]
    pub fn any_at_all(self) -> f64 {
        self.any.min(self.probed)
    }

    fn shows(self, node: &TreeNode, whole: f64) -> bool {
        let share = node.total as f64 / whole;
        let asked = node.func.is_some() && node.calls > 0;
        share >= self.any || (share >= self.probed && (asked || node.children.iter().any(|c| self.shows(c, whole))))
    }
}

/// The tree, small branches added up.
#[must_use]
pub fn call_tree(root: &TreeNode, metric: &Metric, least: Least, layout: &Layout) -> String {
    let unit = metric.unit();
    let title = if unit == Unit::Number { middle_cut(metric.head(), 11) } else { "total".into() };
    let head = format!("     %   own % {title:>11}         calls  call tree");
    let mut out = layout.style.paint(Tone::Head, &head) + "\n";
    let whole = root.total.max(1) as f64;
    let mut work: Vec<Line<'_>> = vec![Line::Node(root, 0)];
    let mut lines = Vec::new();
    while let Some(line) = work.pop() {
        let (node, depth) = match line {
            Line::Node(node, depth) => (node, depth),
            Line::Small(n, total, depth) => {
                let (share, total) = (percent(total as f64 / whole), amount(total, unit));
                let n = thousands(n);
                out.push_str(&format!(
                    "{share:>6} {:>7} {total:>11} {:>13}  {}({n} smaller)\n",
                    "",
                    "",
                    "  ".repeat(depth)
                ));
                continue;
            }
        };
        out.push_str(&tree_line(node, depth, whole, metric, layout));
        lines.push(node);
        if depth * 2 > layout.width {
            continue;
        }
        let (shown, small): (Vec<_>, Vec<_>) = node.children.iter().partition(|c| least.shows(c, whole));
        let nodes = node.small.nodes.saturating_add(small.len() as u64);
        if nodes > 0 {
            let total = small.iter().fold(node.small.total, |sum, c| sum.saturating_add(c.total));
            work.push(Line::Small(nodes, total, depth + 1));
        }
        work.extend(shown.into_iter().rev().map(|c| Line::Node(c, depth + 1)));
    }
    let weightless = (root.negative > 0).then(|| weightless(root.negative));
    let signs = if unit == Unit::Time { signs(&lines, metric) } else { Vec::new() };
    for line in weightless.into_iter().chain(signs) {
        out.push_str(&(layout.style.paint(Tone::Faint, &line) + "\n"));
    }
    out
}

/// A line of the tree: a node, or small ones together.
enum Line<'a> {
    Node(&'a TreeNode, usize),
    Small(u64, u64, usize),
}

fn tree_line(node: &TreeNode, depth: usize, whole: f64, metric: &Metric, layout: &Layout) -> String {
    let own = node.own as f64 / whole;
    let calls = if node.func.is_some() { thousands(node.calls) } else { String::new() };
    let inlined = if node.inlined { " (inlined)" } else { "" };
    let module = if node.module.is_empty() { String::new() } else { format!("  {}", node.module) };
    let line = format!(
        "{:>6} {:>7} {:>11} {calls:>13}  {}{}{inlined}{module}",
        part_of_all(node, whole, metric),
        own_part(node, whole, metric),
        weight(node, metric),
        "  ".repeat(depth),
        node.name
    );
    layout.style.paint(tone_of(own), &middle_cut(&line, layout.width)) + "\n"
}

/// The weight of a node as a part of the whole, with the signs that tables have beside times.
pub(crate) fn part_of_all(node: &TreeNode, whole: f64, metric: &Metric) -> String {
    node.times.known(metric).beside(percent(node.total as f64 / whole))
}

/// Its own part; `~` where what callees take of it is not known well.
pub(crate) fn own_part(node: &TreeNode, whole: f64, metric: &Metric) -> String {
    let part = percent(node.own as f64 / whole);
    match metric.unit() {
        Unit::Time if node.own_rough => format!("~{part}"),
        Unit::Time if node.own > 0 => node.times.known(metric).beside(part),
        _ => part,
    }
}

/// The weight itself.
pub(crate) fn weight(node: &TreeNode, metric: &Metric) -> String {
    let f = &node.times;
    match (metric.unit(), f.known(metric)) {
        (Unit::Time, Known::AtMost(most)) => format!("<{}", nanoseconds(most as f64)),
        (Unit::Time, known) => {
            let open = if *metric == Metric::Wall && f.running.calls > 0 { "+" } else { "" };
            known.beside(nanoseconds(node.total as f64) + open)
        }
        (unit, _) => amount(node.total, unit),
    }
}

/// What signs beside the times of nodes mean.
fn signs(shown: &[&TreeNode], metric: &Metric) -> Vec<String> {
    let times = || shown.iter().map(|node| &node.times);
    let goes_on = *metric == Metric::Wall && times().any(|f| f.timed && f.running.calls > 0);
    let running = goes_on.then(|| RUNNING.to_owned());
    let own = shown.iter().any(|node| node.own_rough);
    let own = own.then(|| {
        "~ of own %: the time of probed calls below, which is taken off there, is not known better".to_owned()
    });
    running.into_iter().chain(bounds(times())).chain(own).collect()
}

fn amount(n: u64, unit: Unit) -> String {
    if unit == Unit::Time { nanoseconds(n as f64) } else { thousands(n) }
}

/// Said below a tree of values.
pub(crate) fn weightless(paths: u64) -> String {
    let (have, weigh) = if paths == 1 { ("path has", "weighs") } else { ("paths have", "weigh") };
    format!("{} {have} a negative sum and {weigh} nothing here", thousands(paths))
}
