//! The call-path tree: outermost callers at the root, probed functions where calls end, weighted by a
//! metric. A node's own weight is the self figure of the paths that end there, so every node is the exact
//! sum of what is below it. Constraint: every chain of frames is met once, whatever number of paths go on from it, and times are
//! added up for nodes that are shown.

use crate::analysis::Analysis;
use crate::chains::NOTHING;
use crate::frames::{Function, TAIL, base};
use crate::metric::{Metric, Unit};
use crate::results::{Figures, Small, TreeNode};
use crate::sums::Adder;
use rustc_hash::{FxHashMap, FxHashSet};
use whither_store::calls::FrameKind;

/// How to build a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeQuery {
    /// Weight.
    pub metric: Metric,
    /// Show the start of the program (`_start`, `__libc_start_main`, a thread's `clone`).
    pub startup: bool,
    /// Nodes below this part of the whole are added up: [`TreeNode::small`].
    pub least: f64,
}

/// A node as it is met on a walk.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// Nodes around it, `all` left out.
    pub depth: usize,
    /// [`TreeNode::name`].
    pub name: &'a str,
    /// [`TreeNode::inlined`].
    pub inlined: bool,
    /// [`TreeNode::own`].
    pub own: u64,
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
    parent: usize,
    name: String,
    module: String,
    func: Option<u32>,
    calls: u64,
    own: u64,
    total: u64,
    negative: u64,
    children: Vec<usize>,
}

/// Times of the calls of a node, and of the probed calls that the calls which end there make.
#[derive(Clone, Default)]
struct Times {
    all: Adder,
    callees: Adder,
    /// [`TreeNode::seen`].
    seen: u64,
}

impl Analysis<'_> {
    /// The tree; its root is `all`.
    #[must_use]
    pub fn tree(&self, query: &TreeQuery) -> TreeNode {
        let builder = Builder::filled(self, query);
        let least = query.least * builder.nodes[0].total as f64;
        let shown = builder.shown(least);
        builder.finish(&shown)
    }

    /// Walks over the nodes of the tree, each before those below it; false when there is no weight.
    ///
    /// # Errors
    /// That of `on`.
    pub fn walk<E>(&self, query: &TreeQuery, on: &mut dyn FnMut(Visit<'_>) -> Result<(), E>) -> Result<bool, E> {
        let builder = Builder::filled(self, query);
        let twins = builder.twins();
        let mut work: Vec<(usize, usize)> = Vec::new();
        let below = |node: usize, depth| builder.ordered(node, &twins).into_iter().rev().map(move |(c, _)| (c, depth));
        work.extend(below(0, 0));
        while let Some((at, depth)) = work.pop() {
            let node = &builder.nodes[at];
            let name = builder.shown_name(node, twins.contains(&at));
            on(Visit { depth, name: &name, inlined: node.step.inlined.is_some(), own: node.own })?;
            work.extend(below(at, depth + 1));
        }
        Ok(builder.nodes[0].total > 0)
    }

    /// Of the calls of a path alone; sums of values may be negative.
    fn weight(&self, path: usize, metric: &Metric) -> i64 {
        let sum = &self.sums[path];
        let own = match metric {
            Metric::Wall => sum.self_wall,
            Metric::Cpu => sum.self_cpu,
            Metric::Off if sum.running.cpu_unknown > 0 => {
                sum.self_wall.saturating_sub(sum.running.elapsed_ns).saturating_sub(sum.self_cpu)
            }
            Metric::Off => sum.self_wall.saturating_sub(sum.self_cpu),
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
    metric: &'a Metric,
    startup: bool,
    nodes: Vec<Node>,
    index: FxHashMap<(usize, Step), usize>,
    /// Where probes are.
    probed_at: FxHashSet<(u32, u64)>,
    /// Per chain of frames that was met: its node, and the frame that calls what is within it.
    chains: Vec<Option<(usize, Option<u32>)>>,
    /// Per path: the node where its calls end.
    ends: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn filled(analysis: &'a Analysis<'a>, query: &'a TreeQuery) -> Self {
        let mut builder = Self {
            analysis,
            metric: &query.metric,
            startup: query.startup,
            nodes: Vec::new(),
            index: FxHashMap::default(),
            probed_at: analysis.snapshot.points.iter().map(|p| (p.module, p.offset)).collect(),
            chains: vec![None; analysis.frames.chains.all().len()],
            ends: vec![0; analysis.snapshot.paths.len()],
        };
        builder.nodes.push(Node {
            step: Step { function: Function::Label(FrameKind::Caller), site: None, inlined: None },
            parent: 0,
            name: "all".into(),
            module: String::new(),
            func: None,
            calls: 0,
            own: 0,
            total: 0,
            negative: 0,
            children: Vec::new(),
        });
        for &path in &analysis.nesting.order {
            builder.add(path, query);
        }
        // Children come after their parents.
        for at in (0..builder.nodes.len()).rev() {
            let (total, negative) = (builder.nodes[at].total, builder.nodes[at].negative);
            if at > 0 {
                let parent = builder.nodes[at].parent;
                builder.nodes[parent].total = builder.nodes[parent].total.saturating_add(total);
                builder.nodes[parent].negative = builder.nodes[parent].negative.saturating_add(negative);
            }
        }
        builder
    }

    fn add(&mut self, path: usize, query: &TreeQuery) {
        let analysis = self.analysis;
        let (around, site) = self.chain(analysis.frames.ends[path]);
        let at = self.probed(around, analysis.snapshot.paths[path].point, site);
        self.ends[path] = at;
        let node = &mut self.nodes[at];
        node.calls = node.calls.saturating_add(analysis.sums[path].calls);
        match u64::try_from(analysis.weight(path, &query.metric)) {
            Ok(own) => {
                node.own = node.own.saturating_add(own);
                node.total = node.own;
            }
            Err(_) => node.negative += 1,
        }
    }

    /// The node of a chain of frames, and the frame that calls what is within it.
    fn chain(&mut self, chain: u32) -> (usize, Option<u32>) {
        let frames = &self.analysis.frames;
        // What stands before `main` is no node.
        let hidden = if self.startup { 0 } else { frames.startup(chain) };
        let mut inner = Vec::new();
        let mut at = chain;
        let mut known = (0, None);
        while at != NOTHING && frames.chains.depth(at) > hidden {
            if let Some(met) = self.chains[at as usize] {
                known = met;
                break;
            }
            inner.push(at);
            at = frames.chains.outer(at);
        }
        while let Some(at) = inner.pop() {
            known = self.step(at, hidden, known);
            self.chains[at as usize] = Some(known);
        }
        known
    }

    /// The same of a chain, by that of the one which it goes on from.
    fn step(&mut self, chain: u32, hidden: u32, around: (usize, Option<u32>)) -> (usize, Option<u32>) {
        let chains = &self.analysis.frames.chains;
        let shown = chains.depth(chain).saturating_sub(hidden) as usize;
        match chains.last(chain) {
            Some(frame) if shown <= DEEPEST => (self.frame(around.0, frame, around.1), Some(frame)),
            _ => around,
        }
    }

    /// Time of the outermost calls of a path; `None` if weights are something else.
    fn inside(&self, path: usize) -> Option<u64> {
        let sum = &self.analysis.sums[path];
        match self.metric {
            Metric::Wall => Some(sum.inside()),
            Metric::Cpu => Some(sum.inside_cpu()),
            Metric::Off if sum.running.cpu_unknown > 0 => Some(sum.wall.saturating_sub(sum.cpu)),
            Metric::Off => Some(sum.inside().saturating_sub(sum.inside_cpu())),
            Metric::Count | Metric::Switches | Metric::Faults | Metric::Value(_) => None,
        }
    }

    /// Times of nodes, as far as they are `shown`.
    fn times(&self, shown: &[bool]) -> Vec<Option<Box<Times>>> {
        let mut times: Vec<Option<Box<Times>>> = shown.iter().map(|shown| shown.then(Box::default)).collect();
        for &path in &self.analysis.nesting.order {
            let sum = &self.analysis.sums[path];
            // Nodes that hold the probed call around it as well have its time with that.
            let outer = self.analysis.nesting.parents[path].map(|parent| self.ends[parent]);
            for node in self.around(self.ends[path]).take_while(|node| Some(*node) != outer) {
                if let Some(times) = &mut times[node] {
                    times.all.add_times(sum, true);
                    let ends = node == self.ends[path];
                    times.seen = times.seen.saturating_add(self.inside(path).filter(|_| ends).unwrap_or(0));
                }
            }
            if let Some(times) = outer.and_then(|outer| times[outer].as_mut()) {
                times.callees.add_times(sum, true);
            }
        }
        times
    }

    /// A node and those around it, innermost first.
    fn around(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(node), |&n| (n != 0).then(|| self.nodes[n].parent))
    }

    /// Whether a node has so much.
    fn shown(&self, least: f64) -> Vec<bool> {
        self.nodes.iter().enumerate().map(|(i, node)| i == 0 || node.total as f64 >= least).collect()
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
        let children = Vec::new();
        let (calls, own, total, negative) = (0, 0, 0, 0);
        self.nodes.push(Node { step, parent, name, module, func, calls, own, total, negative, children });
        child
    }

    /// Children come after their parents, so one pass from the back builds every subtree.
    fn finish(self, shown: &[bool]) -> TreeNode {
        let twins = self.twins();
        let mut times = self.times(shown);
        let mut done: Vec<Option<TreeNode>> = Vec::new();
        done.resize_with(self.nodes.len(), || None);
        let wholes = &self.analysis.wholes;
        for (i, node) in self.nodes.iter().enumerate().rev() {
            let Some(Times { all, callees, seen }) = times[i].take().map(|times| *times) else { continue };
            let mut children: Vec<TreeNode> = node.children.iter().filter_map(|&c| done[c].take()).collect();
            children.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
            done[i] = Some(TreeNode {
                name: self.shown_name(node, twins.contains(&i)),
                module: node.module.clone(),
                func: node.func,
                inlined: node.step.inlined.is_some(),
                calls: node.calls,
                own: node.own,
                total: node.total,
                seen: (!matches!(self.metric.unit(), Unit::Calls | Unit::Number)).then_some(seen),
                negative: node.negative,
                times: all.figures(wholes),
                own_rough: leaves_rough(&callees.figures(wholes), node.own),
                small: self.small(node, shown),
                children,
            });
        }
        done.swap_remove(0).unwrap_or_default()
    }

    /// The children that are not shown.
    fn small(&self, node: &Node, shown: &[bool]) -> Small {
        let mut small = Small::default();
        for child in node.children.iter().filter(|&&c| !shown[c]) {
            small.nodes += 1;
            small.total = small.total.saturating_add(self.nodes[*child].total);
        }
        small
    }

    /// Children with their names, largest first.
    fn ordered(&self, node: usize, twins: &FxHashSet<usize>) -> Vec<(usize, String)> {
        let named = |&c: &usize| (c, self.shown_name(&self.nodes[c], twins.contains(&c)));
        let mut children: Vec<(usize, String)> = self.nodes[node].children.iter().map(named).collect();
        let total = |c: &(usize, String)| self.nodes[c.0].total;
        children.sort_by(|a, b| total(b).cmp(&total(a)).then_with(|| a.1.cmp(&b.1)));
        children
    }

    /// Nodes that share their function with a sibling.
    fn twins(&self) -> FxHashSet<usize> {
        let mut twins = FxHashSet::default();
        for node in self.nodes.iter().filter(|node| node.children.len() > 1) {
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
            let unit = metric.unit();
            let tree = analysis.tree(&TreeQuery { metric, ..TreeQuery::default() });
            let f1 = tree.children[0].children[0].clone();
            assert_eq!((f1.name.as_str(), f1.children[0].name.as_str()), ("f1", "f2"));
            let is_time = matches!(unit, Unit::Time);
            assert_eq!(f1.seen, is_time.then_some(f1.total), "all of it was counted inside of its calls");
            (f1.own, f1.children[0].own, tree.total, tree.negative)
        };
        assert_eq!(own(Metric::Wall), (1000, 200, 1200, 0));
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
