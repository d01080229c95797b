//! Call trees from stacks, root first, inlined functions in their place.

use crate::error::Error;
use crate::names::demangled;
use crate::places::Inlines;
use crate::provenance::provenance;
use crate::results::{CallTree, FlameNode};
use crate::selection::{Filter, Selection, is_kernel};
use crate::thinned::weighed;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use whither_image::FunctionTable;
use whither_store::model::{EventIx, Frame, ImageIx, ImageKind, ProcessIx, Profile, Stack, StackEnd, StackSample};
use whither_store::symbols::Symbols;

/// What the first level below the root is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// One node per command name.
    #[default]
    Command,
    /// The outermost functions of all processes together.
    Function,
}

/// How to build a tree.
#[derive(Clone, Debug, Default)]
pub struct FlameQuery {
    /// Which stacks; image and procedure filters keep stacks with a matching frame anywhere.
    pub filter: Filter,
    /// Event, the recording's first one by default.
    pub event: Option<String>,
    /// First level.
    pub roots: Roots,
    /// Whether inlined functions get nodes of their own.
    pub inlines: Inlines,
}

/// Name of the node that holds stacks whose outer part is missing.
pub const CUT_SHORT: &str = "[stack cut short]";
/// Name of the node that holds samples of processes of which no stack was taken.
const NOT_TAKEN: &str = "[no stack taken]";
/// Recursion deeper than this is cut: the tree is walked recursively by everything that shows it.
const DEEPEST: usize = 400;

/// Builds the tree of one event; weights are count x period, and where stacks were taken of some samples only, what the
/// samples of each process weigh.
///
/// # Errors
/// [`Error::NoStacks`] when none was recorded or none passes the filter; [`Error::Event`].
pub fn flame(profile: &Profile, symbols: &dyn Symbols, query: &FlameQuery) -> Result<FlameNode, Error> {
    let event = event(profile, query)?;
    let mut tree = Tree::new(profile, symbols, query.inlines);
    let weighed = weighed(profile, event, &query.filter);
    for (s, weight) in weighed.stacks {
        let stack = &profile.stacks[s.stack.0 as usize];
        let path = tree.path(stack, s, query.roots);
        if tree.passes(&path, &query.filter) {
            tree.add(&path, weight);
        }
    }
    for (process, weight) in weighed.without {
        let mut path = tree.first(process, query.roots);
        path.push(label(NOT_TAKEN));
        if tree.passes(&path, &query.filter) {
            tree.add(&path, weight);
        }
    }
    let root = tree.finish();
    if root.total == 0 { Err(Error::NoStacks { recorded: profile.stack_samples.len() }) } else { Ok(root) }
}

/// The tree with what an answer says of its data. The provenance counts the samples of the processes
/// and the time asked for; image and procedure filters are about stacks.
///
/// # Errors
/// As [`flame`].
pub fn call_tree(profile: &Profile, symbols: &dyn Symbols, query: &FlameQuery) -> Result<CallTree, Error> {
    let tree = flame(profile, symbols, query)?;
    let event = profile.event(event(profile, query)?).name.clone();
    let about = Filter { images: Vec::new(), procs: Vec::new(), ..query.filter.clone() };
    let selection = Selection::new(profile, &about, std::slice::from_ref(&event))?;
    let filters = query.filter.describe();
    Ok(CallTree { provenance: provenance(&selection, &about), event, filters, tree })
}

fn event(profile: &Profile, query: &FlameQuery) -> Result<EventIx, Error> {
    let names: Vec<String> = query.event.iter().cloned().collect();
    let columns = crate::selection::columns(profile, &names)?;
    columns.first().copied().ok_or(Error::Empty)
}

/// One function of a path; nodes with the same one are the same.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Step {
    name: Arc<str>,
    image: Option<ImageIx>,
    inlined: bool,
}

struct Node {
    step: Step,
    own: u64,
    children: Vec<usize>,
}

struct Tree<'a> {
    profile: &'a Profile,
    symbols: &'a dyn Symbols,
    inlines: Inlines,
    nodes: Vec<Node>,
    index: FxHashMap<(usize, Step), usize>,
    tables: FxHashMap<ImageIx, Arc<FunctionTable>>,
    steps: FxHashMap<Frame, Vec<Step>>,
}

impl<'a> Tree<'a> {
    fn new(profile: &'a Profile, symbols: &'a dyn Symbols, inlines: Inlines) -> Self {
        let root = Node { step: label("all"), own: 0, children: Vec::new() };
        Self {
            profile,
            symbols,
            inlines,
            nodes: vec![root],
            index: FxHashMap::default(),
            tables: FxHashMap::default(),
            steps: FxHashMap::default(),
        }
    }

    fn first(&self, process: ProcessIx, roots: Roots) -> Vec<Step> {
        match roots {
            Roots::Command => vec![label(&self.profile.process(process).comm)],
            Roots::Function => Vec::new(),
        }
    }

    /// Root first.
    fn path(&mut self, stack: &Stack, sample: &StackSample, roots: Roots) -> Vec<Step> {
        let mut path = self.first(sample.process, roots);
        if stack.end == StackEnd::Truncated {
            path.push(label(CUT_SHORT));
        }
        for frame in stack.frames.iter().rev() {
            path.extend_from_slice(self.steps_of(*frame));
        }
        path
    }

    /// Outermost first: the physical function, then what was inlined into it.
    fn steps_of(&mut self, frame: Frame) -> &[Step] {
        if !self.steps.contains_key(&frame) {
            let steps = self.resolve(frame);
            self.steps.insert(frame, steps);
        }
        &self.steps[&frame]
    }

    fn resolve(&mut self, frame: Frame) -> Vec<Step> {
        let image = self.profile.image(frame.image);
        let here = Some(frame.image);
        let physical = self.function(frame).unwrap_or_else(|| match image.kind {
            ImageKind::Unknown => image.path.as_str().into(),
            _ => format!("[{}]", image.short_name().trim_matches(['[', ']'])).into(),
        });
        let mut steps = vec![Step { name: physical, image: here, inlined: false }];
        if self.inlines == Inlines::Expand {
            let chain = self.symbols.frames(image, frame.offset);
            let inner = chain.iter().rev().skip(1);
            steps.extend(inner.filter_map(|f| f.function.as_deref()).map(|f| Step {
                name: demangled(f).into(),
                image: here,
                inlined: true,
            }));
        }
        steps
    }

    fn function(&mut self, frame: Frame) -> Option<Arc<str>> {
        let (profile, symbols) = (self.profile, self.symbols);
        let table = self.tables.entry(frame.image).or_insert_with(|| symbols.functions(profile.image(frame.image)));
        table.find(frame.offset).map(|f| demangled(&f.name).into())
    }

    fn passes(&self, path: &[Step], filter: &Filter) -> bool {
        let images = path.iter().filter_map(|s| s.image).map(|i| self.profile.image(i));
        let mut images = images.map(|i| i.path.as_str());
        let image = filter.images.is_empty() || images.any(|path| filter.images.iter().any(|p| p.matches_path(path)));
        let proc = || path.iter().any(|s| filter.procs.iter().any(|p| p.matches(&s.name)));
        image && (filter.procs.is_empty() || proc())
    }

    fn add(&mut self, path: &[Step], weight: u64) {
        let mut at = 0;
        for step in path.iter().take(DEEPEST) {
            at = self.child(at, step);
        }
        let own = &mut self.nodes[at].own;
        *own = own.saturating_add(weight);
    }

    fn child(&mut self, parent: usize, step: &Step) -> usize {
        if let Some(&child) = self.index.get(&(parent, step.clone())) {
            return child;
        }
        let child = self.nodes.len();
        self.nodes.push(Node { step: step.clone(), own: 0, children: Vec::new() });
        self.nodes[parent].children.push(child);
        self.index.insert((parent, step.clone()), child);
        child
    }

    /// Children come after their parents, so one pass from the back builds every subtree.
    fn finish(self) -> FlameNode {
        let mut done: Vec<Option<FlameNode>> = Vec::new();
        done.resize_with(self.nodes.len(), || None);
        for (i, node) in self.nodes.iter().enumerate().rev() {
            let mut children: Vec<FlameNode> = node.children.iter().filter_map(|&c| done[c].take()).collect();
            children.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
            done[i] = Some(self.node(node, children));
        }
        done.swap_remove(0).expect("the root is built last")
    }

    fn node(&self, node: &Node, children: Vec<FlameNode>) -> FlameNode {
        let image = node.step.image.map(|i| self.profile.image(i));
        FlameNode {
            name: node.step.name.to_string(),
            image: image.map_or_else(String::new, |i| i.short_name().to_owned()),
            kernel: image.is_some_and(is_kernel),
            inlined: node.step.inlined,
            own: node.own,
            total: children.iter().fold(node.own, |sum, c| sum.saturating_add(c.total)),
            children,
        }
    }
}

/// A node that is no function.
fn label(name: &str) -> Step {
    Step { name: name.into(), image: None, inlined: false }
}
