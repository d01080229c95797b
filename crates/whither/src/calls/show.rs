//! Snapshots as answers: named, analysed, printed as table, tree or JSON.

use crate::answer;
use crate::cli::ShapeArgs;
use crate::failure::Usage;
use anyhow::Context;
use std::path::Path;
use whither_calls::{
    Analysis, CallDifference, CallProfile, Document, Group, ListQuery, Metric, Names, Options, Sort, TreeQuery,
};
use whither_report::html::{CallsPage, calls_page};
use whither_report::text::{self, CallColumn, Layout, Least};
use whither_report::{exports, json};
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
/// So many paths are shown as pictures without what nobody can see there.
const MANY: usize = 1000;
/// Nodes of a page's tree of these: a hundredth of a pixel on a wide screen is nothing.
const PAGE_LEAST: f64 = 1e-5;
/// Rows of a periodic summary.
const BRIEF: usize = 8;

/// A snapshot, worked out once for whatever is shown of it.
pub(super) struct Counted<'a> {
    snapshot: &'a CallSnapshot,
    analysis: Analysis<'a>,
    /// Everything but the paths.
    pub(super) profile: CallProfile,
}

impl<'a> Counted<'a> {
    /// Under the name of its epoch; with rows of threads or processes when those are asked for, which the paths do not tell.
    pub(super) fn new(snapshot: &'a CallSnapshot, epoch: &str, names: &dyn Names, shape: &ShapeArgs) -> Self {
        let analysis = Analysis::new(snapshot, names, Options { inlines: shape.inlines });
        let profile = CallProfile { epoch: epoch.into(), ..analysis.brief() };
        Self { snapshot, analysis, profile }
    }

    /// With all paths.
    pub(super) fn whole(self) -> CallProfile {
        let Self { analysis, profile, .. } = self;
        CallProfile { paths: analysis.profile().paths, facts: None, ..profile }
    }

    /// Writes everything as one line of JSON.
    ///
    /// # Errors
    /// stdout cannot be written.
    pub(super) fn json(&self, shape: &ShapeArgs) -> std::io::Result<()> {
        let mut profile = self.profile.clone();
        profile.notes.extend(shape.sort.check(self.snapshot).err().map(|e| format!("--sort: {e}")));
        if matches!(shape.group, Group::Thread | Group::Process) {
            let query = ListQuery { group: shape.group, sort: shape.sort.clone(), ..ListQuery::default() };
            match self.analysis.listing(&query) {
                Ok(listing) => profile.listing = Some(listing),
                Err(e) => profile.notes.push(e.to_string()),
            }
        }
        answer::stream(|out| json::write_calls(&Document::new(&profile, &self.analysis), out))
    }

    /// As text.
    ///
    /// # Errors
    /// A grouping or an order that the numbers do not allow.
    pub(super) fn text(&self, shape: &Shape, layout: &Layout) -> anyhow::Result<String> {
        shape.shape.sort.check(self.snapshot).map_err(|e| Usage(format!("--sort: {e}")))?;
        if shape.shape.tree {
            return Ok(self.tree(shape, layout));
        }
        let listing = self.analysis.listing(&shape.query()).map_err(|e| Usage(e.to_string()))?;
        Ok(text::calls(&self.profile, &listing, &shape.columns, layout))
    }

    fn tree(&self, shape: &Shape, layout: &Layout) -> String {
        let metric = shape.metrics(self.snapshot).swap_remove(0);
        let least = shape.shape.min_share.map_or(LEAST, |share| Least { any: share, probed: share });
        let query = TreeQuery { metric: metric.clone(), least: least.any_at_all(), ..TreeQuery::default() };
        let tree = text::call_tree(&self.analysis.tree(&query), &metric, least, layout);
        let late = text::probed_part(&self.profile).fold(String::new(), |all, line| all + &line + "\n");
        text::calls_header(&self.profile) + "\n" + &tree + &late
    }

    /// Writes folded stacks; nothing where nothing was counted.
    ///
    /// # Errors
    /// An order that the numbers do not allow; stdout cannot be written.
    pub(super) fn folded(&self, shape: &Shape) -> anyhow::Result<()> {
        shape.shape.sort.check(self.snapshot).map_err(|e| Usage(format!("--sort: {e}")))?;
        let query = TreeQuery { metric: shape.metrics(self.snapshot).swap_remove(0), ..TreeQuery::default() };
        let mut written = Ok(());
        answer::stream(|out| {
            written = exports::calls::folded(&self.analysis, &query, out);
            Ok(())
        })?;
        match written {
            Ok(()) | Err(whither_report::error::Error::Empty { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// A self-contained HTML page, written to a file.
    ///
    /// # Errors
    /// An order that the numbers do not allow; the file cannot be written.
    pub(super) fn page(&self, path: &Path, shape: &Shape, difference: Option<CallDifference>) -> anyhow::Result<()> {
        shape.shape.sort.check(self.snapshot).map_err(|e| Usage(format!("--sort: {e}")))?;
        let top = Some(shape.shape.top.max(PAGE_ROWS));
        let listing = |group| self.analysis.listing(&ListQuery { group, top, min_share: 0.0, ..shape.query() }).ok();
        let least = if self.snapshot.paths.len() > MANY { PAGE_LEAST } else { 0.0 };
        let tree =
            |metric: Metric| (metric.clone(), self.analysis.tree(&TreeQuery { metric, least, ..TreeQuery::default() }));
        let trees = shape.metrics(self.snapshot).into_iter().map(tree);
        let exe = &self.profile.target.exe;
        let page = CallsPage {
            title: if exe.is_empty() { "calls".into() } else { exe.clone() },
            profile: &self.profile,
            listings: [Group::Path, Group::Function, Group::Caller].into_iter().filter_map(listing).collect(),
            trees: trees.filter(|(_, tree)| tree.total > 0).collect(),
            difference,
        };
        std::fs::write(path, calls_page(&page)).with_context(|| format!("cannot write {}", path.display()))
    }
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
