//! The call-path tree: outermost callers at the root, probed functions where calls end, weighted by a
//! metric. A node's own weight is the self figure of the paths that end there, so every node is the exact
//! sum of what is below it.

use crate::analysis::Analysis;
use crate::frames::{Function, TAIL, base};
use crate::metric::Metric;
use crate::results::{Figures, TreeNode};
use crate::sums::Adder;
use rustc_hash::{FxHashMap, FxHashSet};
use whither_store::calls::FrameKind;

/// How to build a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    negative: u64,
    times: Adder,
    /// Probed calls that the calls which end here make.
    callees: Adder,
    children: Vec<usize>,
}

impl Analysis<'_> {
    /// The tree; its root is `all`.
    #[must_use]
    pub fn tree(&self, query: &TreeQuery) -> TreeNode {
        let probed_at = self.snapshot.points.iter().map(|p| (p.module, p.offset)).collect();
        let ends = vec![0; self.snapshot.paths.len()];
        let mut builder = Builder { analysis: self, nodes: Vec::new(), index: FxHashMap::default(), probed_at, ends };
        builder.nodes.push(Node {
            step: Step { function: Function::Label(FrameKind::Caller), site: None, inlined: None },
            name: "all".into(),
            module: String::new(),
            func: None,
            calls: 0,
            own: 0,
            negative: 0,
            times: Adder::default(),
            callees: Adder::default(),
            children: Vec::new(),
        });
        for &path in &self.nesting.order {
            builder.add(path, query);
        }
        builder.finish()
    }

    /// Of the calls of a path alone; sums of values may be negative.
    fn weight(&self, path: usize, metric: &Metric) -> i64 {
        let sum = &self.sums[path];
        let own = match metric {
            Metric::Wall => sum.self_wall,
            Metric::Cpu => sum.self_cpu,
            Metric::Off => sum.self_wall.saturating_sub(sum.running.elapsed_ns).saturating_sub(sum.self_cpu),
            Metric::Count => sum.calls,
            Metric::Switches => sum.self_usage.switches,
            Metric::Faults => sum.self_usage.faults_minor.saturating_add(sum.self_usage.faults_major),
            Metric::Value(name) => return self.value(path, name),
        };
        i64::try_from(own).unwrap_or(i64::MAX)
    }

    pub(crate) fn value(&self, path: usize, name: &str) -> i64 {
        let names = self.value_names(path).iter().zip(self.sums[path].values);
        names.filter(|(n, _)| *n == name).fold(0, |all, (_, value)| all.saturating_add(value))
    }
}

struct Builder<'a> {
    analysis: &'a Analysis<'a>,
    nodes: Vec<Node>,
    index: FxHashMap<(usize, Step), usize>,
    /// Where probes are.
    probed_at: FxHashSet<(u32, u64)>,
    /// Per path: the node where its calls end.
    ends: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn add(&mut self, path: usize, query: &TreeQuery) {
        let analysis = self.analysis;
        let chain = &analysis.frames.chains[path];
        let first = if query.startup { 0 } else { crate::listing::first_shown(&analysis.frames, chain) };
        let (mut at, mut site) = (0, None);
        let mut around = vec![at];
        for &frame in chain.iter().skip(first).take(DEEPEST) {
            at = self.frame(at, frame, site);
            around.push(at);
            site = Some(frame);
        }
        at = self.probed(at, analysis.snapshot.paths[path].point, site);
        around.push(at);
        self.add_times(path, &around);
        let node = &mut self.nodes[at];
        node.calls = node.calls.saturating_add(analysis.sums[path].calls);
        match u64::try_from(analysis.weight(path, &query.metric)) {
            Ok(own) => node.own = node.own.saturating_add(own),
            Err(_) => node.negative += 1,
        }
    }

    /// Adds the times of a path to the nodes around it. Those that hold the probed call around it as well have its time with that.
    fn add_times(&mut self, path: usize, around: &[usize]) {
        let sum = &self.analysis.sums[path];
        let outer = self.analysis.nesting.parents[path].map(|parent| self.ends[parent]);
        let inside = outer.and_then(|outer| around.iter().rposition(|&node| node == outer));
        for &node in around.iter().skip(inside.map_or(0, |i| i + 1)) {
            self.nodes[node].times.add_times(sum, true);
        }
        if let Some(outer) = outer {
            self.nodes[outer].callees.add_times(sum, true);
        }
        self.ends[path] = around.last().copied().unwrap_or(0);
    }

    fn frame(&mut self, parent: usize, frame: u32, site: Option<u32>) -> usize {
        let row = &self.analysis.frames.rows[frame as usize];
        let (function, name) = self.function(frame);
        let step = Step { function, site, inlined: None };
        let mut at = self.child(parent, step.clone(), name, &row.module, None);
        if self.analysis.options.inlines {
            for (i, inlined) in row.inlined.iter().enumerate() {
                let step = Step { inlined: Some((frame, i)), site: None, ..step.clone() };
                at = self.child(at, step, &inlined.name, &row.module, None);
            }
        }
        at
    }

    /// A function that left no frame is the same as the one that is probed, or has frames at other calls.
    fn function(&self, frame: u32) -> (Function, &'a str) {
        let frames = &self.analysis.frames;
        let name = frames.rows[frame as usize].name.as_str();
        match frames.functions[frame as usize] {
            Function::Tail(module, start) => {
                let known = self.probed_at.contains(&(module, start));
                let name = if known { name.strip_suffix(TAIL).unwrap_or(name) } else { name };
                (Function::At(module, start), name)
            }
            ref function => (function.clone(), name),
        }
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
            if self.nodes[child].name.strip_suffix(TAIL) == Some(name) {
                name.clone_into(&mut self.nodes[child].name);
            }
            return child;
        }
        let child = self.nodes.len();
        self.index.insert((parent, step.clone()), child);
        self.nodes[parent].children.push(child);
        let (name, module) = (name.to_owned(), base(module).to_owned());
        let (times, callees) = (Adder::default(), Adder::default());
        let children = Vec::new();
        self.nodes.push(Node { step, name, module, func, calls: 0, own: 0, negative: 0, times, callees, children });
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
            let wholes = &self.analysis.wholes;
            let callees = node.callees.clone().figures(wholes);
            done[i] = Some(TreeNode {
                name: self.shown_name(node, twins.contains(&i)),
                module: node.module.clone(),
                func: node.func,
                inlined: node.step.inlined.is_some(),
                calls: node.calls,
                own: node.own,
                total: children.iter().fold(node.own, |sum, c| sum.saturating_add(c.total)),
                negative: children.iter().fold(node.negative, |sum, c| sum.saturating_add(c.negative)),
                times: node.times.clone().figures(wholes),
                own_rough: leaves_rough(&callees, node.own),
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

    /// `callee @+0x33 (file.c:12)`: called from there; `callee @jump`: the caller ended in a jump to it.
    fn shown_name(&self, node: &Node, twin: bool) -> String {
        let site = node.step.site.filter(|_| twin).map(|f| &self.analysis.frames.rows[f as usize]);
        let Some(row) = site else { return node.name.clone() };
        if row.kind == FrameKind::Tail {
            return format!("{} @jump", node.name);
        }
        let at = row.within.map_or_else(|| format!("{:#x}", row.offset), |w| format!("+{w:#x}"));
        match row.file.as_str() {
            "" => format!("{} @{at}", node.name),
            file => format!("{} @{at} ({}:{})", node.name, base(file), row.line),
        }
    }
}

/// Whether what callees leave of a time is known less well for them: their own is missing in part, or it is rough or bounded
/// and no small thing beside what they leave.
fn leaves_rough(callees: &Figures, own: u64) -> bool {
    let inside = callees.wall_below_ns.unwrap_or(callees.wall_ns);
    callees.lacking || ((callees.rough || callees.wall_below_ns.is_some()) && inside > own / 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::fixture::{Named, Take, call, leaf};
    use crate::metric::{Sort, Unsorted};
    use whither_store::calls::{CallSnapshot, Usage};

    /// f1 calls f2; what f1 uses holds what f2 does, and each call has a value of its own.
    fn snapshot() -> CallSnapshot {
        let mut snapshot =
            Take::of([1, 2]).snapshot(&call(0, 0, 0, 1, vec![call(1, 0x10, 100, 10, vec![leaf(2, 0x30, 10, 2)])]));
        snapshot.points.iter_mut().for_each(|p| p.values = vec!["bytes".into()]);
        let usage = |switches, faults_minor, faults_major| Some(Usage { switches, faults_minor, faults_major });
        (snapshot.paths[0].totals.usage, snapshot.paths[0].totals.values) = (usage(3, 7, 1), [-5, 0]);
        (snapshot.paths[1].totals.usage, snapshot.paths[1].totals.values) = (usage(3, 5, 0), [300, 0]);
        snapshot
    }

    #[test]
    fn trees_are_weighed_by_whatever_was_measured() {
        let snapshot = snapshot();
        let analysis = Analysis::new(&snapshot, &Named, Options::default());
        let own = |metric: Metric| {
            let tree = analysis.tree(&TreeQuery { metric, startup: false });
            let f1 = tree.children[0].children[0].clone();
            assert_eq!((f1.name.as_str(), f1.children[0].name.as_str()), ("f1", "f2"));
            (f1.own, f1.children[0].own, tree.total, tree.negative)
        };
        assert_eq!(own(Metric::Switches), (0, 3, 3, 0));
        assert_eq!(own(Metric::Faults), (3, 5, 8, 0));
        assert_eq!(own(Metric::Value("bytes".into())), (0, 300, 300, 1), "a negative sum weighs nothing, and is told");
        use Metric::{Count, Cpu, Faults, Off, Switches, Value, Wall};
        assert_eq!(Metric::measured(&snapshot), [Wall, Cpu, Off, Count, Switches, Faults, Value("bytes".into())]);
        assert_eq!(Metric::measured(&CallSnapshot::default()), [Count]);
    }

    #[test]
    fn an_order_by_what_was_not_measured_is_refused() {
        let sort = |word: &str| word.parse::<Sort>().unwrap_or_default();
        let mut snapshot = snapshot();
        for word in ["bytes", "faults", "switches", "avg", "cpu", "off"] {
            assert_eq!(sort(word).check(&snapshot), Ok(()), "{word}");
            assert_eq!(sort(word).to_string(), word);
        }
        let error = sort("bites").check(&snapshot).unwrap_err();
        assert!(error.to_string().contains("self-cpu") && error.to_string().contains("(bytes)"), "{error}");
        snapshot.paths.iter_mut().for_each(|p| p.totals.usage = None);
        assert_eq!(sort("faults").check(&snapshot), Err(Unsorted::Usage("page faults")));
        snapshot.paths.iter_mut().for_each(|p| p.totals.cpu_ns = 0);
        for word in ["cpu", "off", "self-cpu"] {
            assert_eq!(sort(word).check(&snapshot), Err(Unsorted::Cpu), "{word}");
        }
        assert_eq!(sort("bites").check(&CallSnapshot::default()), Ok(()), "where nothing is there is no order");
    }
}
