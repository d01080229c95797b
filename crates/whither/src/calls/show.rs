//! Snapshots as answers: named, analysed, printed as table, tree or JSON.

use crate::answer;
use crate::cli::ShapeArgs;
use crate::failure::Usage;
use anyhow::Context;
use std::path::Path;
use whither_calls::{
    Analysis, CallDifference, CallProfile, Group, ListQuery, Metric, Names, Options, Sort, TreeNode, TreeQuery,
};
use whither_report::exports;
use whither_report::html::{CallsPage, calls_page};
use whither_report::text::{self, CallColumn, Layout, Least};
use whither_store::calls::CallSnapshot;

/// How answers look.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    shape: ShapeArgs,
    columns: Vec<CallColumn>,
}

impl Shape {
    /// `metrics`: the columns asked for by `-m`; those that have numbers when empty.
    pub(super) fn new(shape: &ShapeArgs, metrics: &[String]) -> Self {
        Self { shape: shape.clone(), columns: columns(metrics, &shape.sort) }
    }

    /// A short one for summaries.
    pub(super) fn brief(&self) -> Self {
        let shape = ShapeArgs { top: self.shape.top.min(BRIEF), tree: false, folded: false, ..self.shape.clone() };
        Self { shape, columns: self.columns.clone() }
    }

    fn query(&self) -> ListQuery {
        ListQuery {
            group: self.shape.group,
            sort: self.shape.sort.clone(),
            top: Some(self.shape.top),
            min_share: self.shape.min_share.unwrap_or(TRIFLE),
            at_least: if self.shape.min_share.is_none() { BRIEF } else { 0 },
        }
    }

    /// What trees are weighed by, the one asked for first: where no times are, calls are.
    fn metrics(&self, snapshot: &CallSnapshot) -> Vec<Metric> {
        let mut all = Metric::measured(snapshot);
        let first = all.iter().position(|m| *m == self.shape.sort.metric()).unwrap_or(0);
        all[..=first].rotate_right(1);
        all
    }
}

/// Rows below this part of the whole are added up when there are many and nothing else was asked for.
const TRIFLE: f64 = 0.0001;
/// Most rows of a page's table, unless more are asked for: 23,000 paths of python3 made a page of 69 MB.
const PAGE_ROWS: usize = 1000;
/// Rows of a periodic summary.
const BRIEF: usize = 8;

/// Everything a snapshot says, under the name of its epoch; rows of threads or processes when those are asked for, which
/// the paths do not tell.
pub(super) fn profile(snapshot: &CallSnapshot, epoch: &str, names: &dyn Names, shape: &ShapeArgs) -> CallProfile {
    let analysis = Analysis::new(snapshot, names, Options { inlines: shape.inlines });
    let mut profile = CallProfile { epoch: epoch.into(), ..analysis.profile() };
    profile.notes.extend(shape.sort.check(snapshot).err().map(|e| format!("--sort: {e}")));
    if matches!(shape.group, Group::Thread | Group::Process) {
        match analysis.listing(&ListQuery { group: shape.group, sort: shape.sort.clone(), ..ListQuery::default() }) {
            Ok(listing) => profile.listing = Some(listing),
            Err(e) => profile.notes.push(e.to_string()),
        }
    }
    profile
}

/// A snapshot as text.
///
/// # Errors
/// A grouping or an order that the numbers do not allow.
pub(super) fn table(
    snapshot: &CallSnapshot,
    epoch: &str,
    names: &dyn Names,
    shape: &Shape,
    layout: &Layout,
) -> anyhow::Result<String> {
    shape.shape.sort.check(snapshot).map_err(|e| Usage(format!("--sort: {e}")))?;
    let analysis = Analysis::new(snapshot, names, Options { inlines: shape.shape.inlines });
    let profile = CallProfile { epoch: epoch.into(), ..analysis.profile() };
    if shape.shape.tree || shape.shape.folded {
        let metric = shape.metrics(snapshot).swap_remove(0);
        let tree = analysis.tree(&TreeQuery { metric: metric.clone(), startup: false });
        if shape.shape.folded {
            return folded(&tree);
        }
        let least = shape.shape.min_share.map_or(LEAST, |share| Least { any: share, probed: share });
        let tree = text::call_tree(&tree, &metric, least, layout);
        let late = text::probed_part(&profile).fold(String::new(), |all, line| all + &line + "\n");
        return Ok(text::calls_header(&profile) + "\n" + &tree + &late);
    }
    let listing = analysis.listing(&shape.query()).map_err(|e| Usage(e.to_string()))?;
    Ok(text::calls(&profile, &listing, &shape.columns, layout))
}

/// Folded stacks; nothing where nothing was counted.
fn folded(tree: &TreeNode) -> anyhow::Result<String> {
    let mut out = Vec::new();
    if tree.total > 0 {
        exports::calls::folded(tree, &mut out)?;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// A snapshot as a self-contained HTML page, written to a file.
///
/// # Errors
/// An order that the numbers do not allow; the file cannot be written.
pub(super) fn page(
    path: &Path,
    (snapshot, epoch): (&CallSnapshot, &str),
    names: &dyn Names,
    shape: &Shape,
    difference: Option<CallDifference>,
) -> anyhow::Result<()> {
    shape.shape.sort.check(snapshot).map_err(|e| Usage(format!("--sort: {e}")))?;
    let analysis = Analysis::new(snapshot, names, Options { inlines: shape.shape.inlines });
    let profile = CallProfile { epoch: epoch.into(), ..analysis.profile() };
    let top = Some(shape.shape.top.max(PAGE_ROWS));
    let listing = |group| analysis.listing(&ListQuery { group, top, min_share: 0.0, ..shape.query() }).ok();
    let tree = |metric: Metric| (metric.clone(), analysis.tree(&TreeQuery { metric, startup: false }));
    let trees = shape.metrics(snapshot).into_iter().map(tree);
    let page = CallsPage {
        title: if profile.target.exe.is_empty() { "calls".into() } else { profile.target.exe.clone() },
        profile: &profile,
        listings: [Group::Path, Group::Function, Group::Caller].into_iter().filter_map(listing).collect(),
        trees: trees.filter(|(_, tree)| tree.total > 0).collect(),
        difference,
    };
    std::fs::write(path, calls_page(&page)).with_context(|| format!("cannot write {}", path.display()))
}

/// Branches of the tree below this part are added up: without one given those of functions asked for are shown longer.
const LEAST: Least = Least { any: 0.005, probed: 0.001 };

/// Prints text answers, one after the other.
///
/// # Errors
/// stdout cannot be written.
pub(super) fn print(texts: &[String]) -> std::io::Result<()> {
    answer::print(&texts.join("\n"))
}

fn columns(metrics: &[String], sort: &Sort) -> Vec<CallColumn> {
    use CallColumn::*;
    let asked = |word: &str| metrics.iter().any(|m| m == word);
    let off = asked("off") || *sort == Sort::Off;
    let own = matches!(sort, Sort::SelfWall | Sort::SelfCpu);
    if !off && !own {
        return Vec::new();
    }
    let all = [
        (Exec, true),
        (WallShare, true),
        (Total, true),
        (SelfWall, own),
        (Cpu, true),
        (Off, off),
        (Average, true),
        (Min, true),
        (Max, true),
        (Percentiles, asked("hist")),
        (Values, metrics.iter().any(|m| !WORDS.contains(&m.as_str()))),
        (Usage, ["ctxsw", "faults", "usage"].into_iter().any(asked)),
        (Count, true),
    ];
    all.into_iter().filter(|(_, there)| *there).map(|(column, _)| column).collect()
}

/// Metrics that are not names of values.
const WORDS: [&str; 8] = ["count", "wall", "cpu", "off", "hist", "ctxsw", "faults", "usage"];
