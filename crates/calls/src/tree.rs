//! The call-path tree: outermost callers at the root, probed functions where calls end, weighted by a
//! metric. A node's own weight is the self figure of the paths that end there, so every node is the exact
//! sum of what is below it.

use crate::analysis::Analysis;
use crate::frames::{Function, base};
use crate::results::{Metric, TreeNode};
use rustc_hash::{FxHashMap, FxHashSet};
use whither_store::calls::FrameKind;

/// How to build a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeQuery {
    /// Weight.
    pub metric: Metric,
    /// Show the start of the program (`_start`, `__libc_start_main`, a thread's `clone`).
    pub startup: bool,
}

/// Chains are cut here: the tree is walked recursively by everything that shows it.
const DEEPEST: usize = 400;

/// A function as called from one place of its caller.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Step {
    function: Function,
    /// Frame of the caller whose call leads here; siblings of one function differ by it.
    site: Option<u32>,
    /// Position in the chain of functions inlined at a frame.
    inlined: Option<(u32, usize)>,
}

struct Node {
    step: Step,
    name: String,
    module: String,
    func: Option<u32>,
    calls: u64,
    own: u64,
    children: Vec<usize>,
}

impl Analysis<'_> {
    /// The tree; its root is `all`.
    #[must_use]
    pub fn tree(&self, query: TreeQuery) -> TreeNode {
        let mut builder = Builder { analysis: self, nodes: Vec::new(), index: FxHashMap::default() };
        builder.nodes.push(Node {
            step: Step { function: Function::Label(FrameKind::Caller), site: None, inlined: None },
            name: "all".into(),
            module: String::new(),
            func: None,
            calls: 0,
            own: 0,
            children: Vec::new(),
        });
        for path in 0..self.snapshot.paths.len() {
            builder.add(path, query);
        }
        builder.finish()
    }

    fn weight(&self, path: usize, metric: Metric) -> u64 {
        let sum = &self.sums[path];
        match metric {
            Metric::Wall => sum.self_wall,
            Metric::Cpu => sum.self_cpu,
            Metric::Off => sum.self_wall.saturating_sub(sum.running.elapsed_ns).saturating_sub(sum.self_cpu),
            Metric::Count => sum.calls,
        }
    }
}

struct Builder<'a> {
    analysis: &'a Analysis<'a>,
    nodes: Vec<Node>,
    index: FxHashMap<(usize, Step), usize>,
}

impl Builder<'_> {
    fn add(&mut self, path: usize, query: TreeQuery) {
        let analysis = self.analysis;
        let chain = &analysis.frames.chains[path];
        let first = if query.startup { 0 } else { crate::listing::first_shown(&analysis.frames, chain) };
        let (mut at, mut site) = (0, None);
        for &frame in chain.iter().skip(first).take(DEEPEST) {
            at = self.frame(at, frame, site);
            site = Some(frame);
        }
        at = self.probed(at, analysis.snapshot.paths[path].point, site);
        let node = &mut self.nodes[at];
        node.calls = node.calls.saturating_add(analysis.sums[path].calls);
        node.own = node.own.saturating_add(analysis.weight(path, query.metric));
    }

    fn frame(&mut self, parent: usize, frame: u32, site: Option<u32>) -> usize {
        let row = &self.analysis.frames.rows[frame as usize];
        let function = self.analysis.frames.functions[frame as usize].clone();
        let step = Step { function, site, inlined: None };
        let mut at = self.child(parent, step.clone(), &row.name, &row.module, None);
        if self.analysis.options.inlines {
            for (i, inlined) in row.inlined.iter().enumerate() {
                let step = Step { inlined: Some((frame, i)), site: None, ..step.clone() };
                at = self.child(at, step, &inlined.name, &row.module, None);
            }
        }
        at
    }

    fn probed(&mut self, parent: usize, point: u32, site: Option<u32>) -> usize {
        let Some(p) = self.analysis.snapshot.points.get(point as usize) else { return parent };
        let module = self.analysis.snapshot.modules.get(p.module as usize).map_or("", |m| m.path.as_str());
        let step = Step { function: Function::At(p.module, p.offset), site, inlined: None };
        let name = self.analysis.point_name(point);
        let at = self.child(parent, step, &name, module, Some(p.id));
        self.nodes[at].func = Some(p.id);
        at
    }

    fn child(&mut self, parent: usize, step: Step, name: &str, module: &str, func: Option<u32>) -> usize {
        if let Some(&child) = self.index.get(&(parent, step.clone())) {
            return child;
        }
        let child = self.nodes.len();
        self.index.insert((parent, step.clone()), child);
        self.nodes[parent].children.push(child);
        let (name, module) = (name.to_owned(), base(module).to_owned());
        self.nodes.push(Node { step, name, module, func, calls: 0, own: 0, children: Vec::new() });
        child
    }

    /// Children come after their parents, so one pass from the back builds every subtree.
    fn finish(self) -> TreeNode {
        let twins = self.twins();
        let mut done: Vec<Option<TreeNode>> = Vec::new();
        done.resize_with(self.nodes.len(), || None);
        for (i, node) in self.nodes.iter().enumerate().rev() {
            let mut children: Vec<TreeNode> = node.children.iter().filter_map(|&c| done[c].take()).collect();
            children.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
            done[i] = Some(TreeNode {
                name: self.shown_name(node, twins.contains(&i)),
                module: node.module.clone(),
                func: node.func,
                inlined: node.step.inlined.is_some(),
                calls: node.calls,
                own: node.own,
                total: children.iter().fold(node.own, |sum, c| sum.saturating_add(c.total)),
                children,
            });
        }
        done.swap_remove(0).unwrap_or_default()
    }

    /// Nodes that share their function with a sibling.
    fn twins(&self) -> FxHashSet<usize> {
        let mut twins = FxHashSet::default();
        for node in &self.nodes {
            let mut seen: FxHashMap<(&Function, &str), usize> = FxHashMap::default();
            for &child in node.children.iter().filter(|&&c| self.nodes[c].step.inlined.is_none()) {
                let kin = &self.nodes[child];
                if let Some(&other) = seen.get(&(&kin.step.function, kin.name.as_str())) {
                    twins.extend([other, child]);
                }
                seen.insert((&kin.step.function, &kin.name), child);
            }
        }
        twins
    }

    /// `callee @+0x33 (file.c:12)`: called from there.
    fn shown_name(&self, node: &Node, twin: bool) -> String {
        let site = node.step.site.filter(|_| twin).map(|f| &self.analysis.frames.rows[f as usize]);
        let Some(row) = site else { return node.name.clone() };
        let at = row.within.map_or_else(|| format!("{:#x}", row.offset), |w| format!("+{w:#x}"));
        match row.file.as_str() {
            "" => format!("{} @{at}", node.name),
            file => format!("{} @{at} ({}:{})", node.name, base(file), row.line),
        }
    }
}
