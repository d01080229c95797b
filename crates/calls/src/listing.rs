//! Tables: rows of paths, or of these put together by site, caller, function, thread or process, ordered and
//! limited. What a limit leaves out is added up into one row, so that nothing vanishes. Constraint: of rows that are not shown
//! nothing but what orders them is kept, for there may be a million.

use crate::analysis::{Analysis, running};
use crate::marks::Marked;
use crate::metric::Sort;
use crate::names::frame_text;
use crate::results::*;
use crate::sums::{Adder, PathSum, path_sums};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use whither_store::calls::{FrameKind, PathTotals};

/// What to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListQuery {
    /// What a row is.
    pub group: Group,
    /// Order.
    pub sort: Sort,
    /// Most rows.
    pub top: Option<usize>,
    /// Rows below this part of the whole execution (CPU and wall, calls where there are no times) go into
    /// the rest.
    pub min_share: f64,
    /// So many rows are shown however small they are.
    pub at_least: usize,
}

/// Rows by thread or process were asked of a snapshot without numbers per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these numbers were not kept apart by thread; ask for --group thread or process when measuring")]
pub struct NoThreads;

/// A row before its numbers are known.
struct Draft {
    name: Name,
    /// Of the thread or process.
    id: Option<u32>,
    /// All of them where threads are told.
    paths: Vec<usize>,
    /// Whose numbers these are; all threads' where none is told.
    tids: Vec<u32>,
}

/// What a row is called.
enum Name {
    Text(String),
    /// As the path is, by index: told of rows that are shown.
    Path(usize),
}

/// What orders a row, and whether it is shown.
struct Rank {
    draft: usize,
    by: f64,
    calls: u64,
    share: f64,
}

impl Rank {
    /// Largest first.
    fn order(&self, other: &Self) -> Ordering {
        let by = |r: &Self| (r.by, r.calls as f64);
        by(other).partial_cmp(&by(self)).unwrap_or(Ordering::Equal)
    }
}

/// All rows of a table.
struct Drafts {
    drafts: Vec<Draft>,
    /// Per path: the row that has it; none where rows are of threads, for several may.
    owners: Vec<u32>,
}

impl Drafts {
    fn new(drafts: Vec<Draft>, paths: usize) -> Self {
        let mut owners = Vec::new();
        if drafts.iter().all(|draft| draft.tids.is_empty()) {
            owners.resize(paths, u32::MAX);
            for (draft, number) in drafts.iter().zip(0_u32..) {
                draft.paths.iter().for_each(|&path| owners[path] = number);
            }
        }
        Self { drafts, owners }
    }

    /// Whether a row has a path.
    fn holds(&self, draft: usize, path: usize) -> bool {
        match self.owners.get(path) {
            Some(&owner) => owner as usize == draft,
            None => self.drafts[draft].paths.binary_search(&path).is_ok(),
        }
    }
}

impl Analysis<'_> {
    /// A table.
    ///
    /// # Errors
    /// [`NoThreads`] when rows by thread or process are wanted and the snapshot has none.
    pub fn listing(&self, query: &ListQuery) -> Result<Listing, NoThreads> {
        let table = Drafts::new(self.drafts(query.group)?, self.snapshot.paths.len());
        let mut ranks: Vec<Rank> = Vec::new();
        let mut all = Adder::default();
        for (i, draft) in table.drafts.iter().enumerate() {
            let sums = self.sums_of(draft);
            let figures = self.figures(&table, i, &sums);
            // All rows have all paths, but for those of threads, which have numbers of their own.
            self.add_up(&mut all, &sums, draft, &|p| draft.tids.is_empty() || table.holds(i, p));
            if figures.is_active() {
                let (by, share) = (query.sort.of(&figures), share(&figures));
                ranks.push(Rank { draft: i, by, calls: figures.calls, share });
            }
        }
        let (rows, hidden) = self.shown(query, &table, ranks);
        let rest = (!hidden.is_empty()).then(|| Rest {
            rows: hidden.len() as u64,
            below: if hidden.iter().all(|rank| rank.share < query.min_share) { query.min_share } else { 0.0 },
            figures: self.rest(&table, &hidden),
        });
        let all = all.figures(&self.wholes);
        Ok(Listing { schema: SCHEMA, group: query.group, sort: query.sort.clone(), rows, rest, all })
    }

    /// The rows that the limits leave, in their order, and the others.
    fn shown(&self, query: &ListQuery, table: &Drafts, mut ranks: Vec<Rank>) -> (Vec<ListRow>, Vec<Rank>) {
        let top = query.top.unwrap_or(usize::MAX).min(ranks.len());
        // Of equal ones at the limit those that were met first.
        ranks.sort_by(Rank::order);
        let mut hidden = ranks.split_off(top);
        let mut labels = self.labels(ranks.iter().map(|rank| &table.drafts[rank.draft]));
        let mut named: Vec<(Rank, String)> = ranks.into_iter().zip(labels.drain(..)).collect();
        named.sort_by(|a, b| a.0.order(&b.0).then_with(|| a.1.cmp(&b.1)));
        let (marked, mut rows) = (self.marked(query.group), Vec::new());
        for (i, (rank, label)) in named.into_iter().enumerate() {
            if is_shown(query, i, rank.share) {
                rows.push(self.row(table, rank.draft, label, &marked));
            } else {
                hidden.push(rank);
            }
        }
        (rows, hidden)
    }

    /// What rows are called, functions of one name told apart.
    fn labels<'d>(&self, drafts: impl Iterator<Item = &'d Draft>) -> Vec<String> {
        let drafts: Vec<&Draft> = drafts.collect();
        let path = |d: &&Draft| if let Name::Path(path) = d.name { Some(path) } else { None };
        let mut of_paths = self.labels_apart(&drafts.iter().filter_map(path).collect::<Vec<_>>()).into_iter();
        let text = |d: &&Draft| match &d.name {
            Name::Text(text) => Some(text.clone()),
            Name::Path(_) => of_paths.next(),
        };
        let mut labels: Vec<String> = drafts.iter().map(text).map(Option::unwrap_or_default).collect();
        let mut alike: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (i, label) in labels.iter().enumerate() {
            alike.entry(label).or_default().push(i);
        }
        let alike: Vec<Vec<usize>> = alike.into_values().filter(|same| same.len() > 1).collect();
        for same in alike {
            let paths: Vec<Option<usize>> = same.iter().map(|&i| drafts[i].paths.first().copied()).collect();
            let places = self.places(&paths);
            for (i, place) in same.into_iter().zip(places) {
                labels[i] += &place.map_or_else(String::new, |place| format!(" ({place})"));
            }
        }
        labels
    }

    fn drafts(&self, group: Group) -> Result<Vec<Draft>, NoThreads> {
        if matches!(group, Group::Thread | Group::Process) {
            return self.thread_drafts(group);
        }
        let mut groups: FxHashMap<(u32, Option<u32>, bool), Vec<usize>> = FxHashMap::default();
        for path in 0..self.snapshot.paths.len() {
            groups.entry(self.group_of(path, group)).or_default().push(path);
        }
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        groups.sort_unstable_by_key(|paths| paths.first().copied());
        if group == Group::Path {
            let draft = |paths: Vec<usize>| Draft { name: Name::Path(paths[0]), id: None, paths, tids: Vec::new() };
            return Ok(groups.into_iter().map(draft).collect());
        }
        // Callers of one name are one row.
        let mut named: BTreeMap<(String, u64), Vec<usize>> = BTreeMap::new();
        for paths in groups {
            named.entry(self.name_of(paths[0], group)).or_default().extend(paths);
        }
        named.values_mut().for_each(|paths| paths.sort_unstable());
        let draft = |((text, _), paths)| Draft { name: Name::Text(text), id: None, paths, tids: Vec::new() };
        Ok(named.into_iter().map(draft).collect())
    }

    /// What paths of one group have in common. A path is another one to the engine once a function on it is probed, too, and inside
    /// of a call of the same function that left no frame: those of the same callers are one.
    fn group_of(&self, path: usize, group: Group) -> (u32, Option<u32>, bool) {
        let p = &self.snapshot.paths[path];
        let function = self.functions.of(p.point);
        match group {
            Group::Path => (function, Some(self.frames.ends[path]), p.folded),
            Group::Callsite | Group::Caller => (function, self.frames.caller(path), false),
            _ => (function, None, false),
        }
    }

    /// Where functions of one name are, each by a path to it: their files, and where these do not tell them apart, their places there.
    fn places(&self, paths: &[Option<usize>]) -> Vec<Option<String>> {
        let point = |path: usize| self.snapshot.points.get(self.snapshot.paths[path].point as usize);
        let places: Vec<Option<(u32, u64)>> =
            paths.iter().map(|path| path.and_then(point).map(|p| (p.module, p.offset))).collect();
        let told = |place: &Option<(u32, u64)>| {
            let (module, offset) = (*place)?;
            if places.iter().flatten().all(|other| *other == (module, offset)) {
                return None;
            }
            let file = self.snapshot.modules.get(module as usize).map_or("", |m| crate::frames::base(&m.path));
            let alone = !places.iter().flatten().any(|&(m, o)| m == module && o != offset);
            Some(if alone { file.to_owned() } else { format!("{file}+{offset:#x}") })
        };
        places.iter().map(told).collect()
    }

    /// Label of a path's group, and a number that keeps groups of equal text apart.
    fn name_of(&self, path: usize, group: Group) -> (String, u64) {
        let point = self.functions.of(self.snapshot.paths[path].point);
        let callee = self.point_name(point);
        let caller = self.frames.caller(path).map(|f| (f, &self.frames.rows[f as usize]));
        match (group, caller) {
            (Group::Callsite, Some((f, row))) => {
                let site = frame_text(row, row.kind == FrameKind::Caller, self.options.inlines);
                (format!("{site} > {callee}"), u64::from(point) << 32 | u64::from(f))
            }
            (Group::Caller, Some((_, row))) => (format!("{} > {callee}", row.name), u64::from(point)),
            _ => (callee, u64::from(point)),
        }
    }

    fn thread_drafts(&self, group: Group) -> Result<Vec<Draft>, NoThreads> {
        let tids: std::collections::BTreeSet<u32> =
            self.snapshot.paths.iter().flat_map(|p| p.threads.iter().map(|(tid, _)| *tid)).collect();
        if tids.is_empty() && !self.snapshot.paths.is_empty() {
            return Err(NoThreads);
        }
        let mut members: BTreeMap<(u32, String), Vec<u32>> = BTreeMap::new();
        for tid in tids {
            let thread = self.snapshot.threads.iter().find(|t| t.tid == tid);
            let pid = thread.map_or(0, |t| t.pid);
            let key = match group {
                Group::Process => (pid, self.process_label(pid)),
                // Of one that had ended before anyone asked the name is not known.
                _ => (
                    tid,
                    match thread.map(|t| t.name.trim()) {
                        None | Some("") => format!("thread {tid}"),
                        Some(name) => format!("{name} ({tid})"),
                    },
                ),
            };
            members.entry(key).or_default().push(tid);
        }
        let draft = |((id, text), tids): ((u32, String), Vec<u32>)| {
            let has = |&p: &usize| {
                let mut threads = self.snapshot.paths[p].threads.iter();
                threads.any(|(tid, t)| (t.calls > 0 || t.done > 0) && tids.contains(tid))
            };
            let runs = running_paths(self, &tids);
            let paths = (0..self.snapshot.paths.len()).filter(|p| has(p) || runs.contains(p)).collect();
            Draft { name: Name::Text(text), id: Some(id), paths, tids }
        };
        Ok(members.into_iter().map(draft).collect())
    }

    /// By what it executed last: a child is its parent's program until it executes its own.
    fn process_label(&self, pid: u32) -> String {
        let process = self.snapshot.processes.iter().rfind(|p| p.pid == pid);
        process.map_or_else(|| format!("process {pid}"), |p| format!("{} ({pid})", crate::frames::base(&p.exe)))
    }

    /// The sums of all paths that a row is made of.
    fn sums_of(&self, draft: &Draft) -> Cow<'_, [PathSum]> {
        if draft.tids.is_empty() {
            return Cow::Borrowed(&self.sums);
        }
        let tids = &draft.tids;
        let running: Vec<Vec<Running>> = tids.iter().map(|&t| running(self.snapshot, Some(t))).collect();
        let running = |path: usize| running.iter().fold(Running::default(), |all, of| all.with(of[path]));
        let totals = |path: usize| {
            let wanted = self.snapshot.paths[path].threads.iter().filter(|(tid, _)| tids.contains(tid));
            wanted.fold(PathTotals::default(), |sum, (_, t)| added(sum, t))
        };
        let mut sums = path_sums(self.snapshot, self.nesting_of_threads(), &totals, &running);
        self.functions.mark(self.snapshot, &mut sums);
        Cow::Owned(sums)
    }

    fn row(&self, table: &Drafts, at: usize, label: String, marked: &Marked) -> ListRow {
        let draft = &table.drafts[at];
        let paths: Vec<u32> = draft.paths.iter().map(|&p| self.snapshot.paths[p].id).collect();
        let functions = draft.paths.iter().map(|&p| self.func(&self.snapshot.paths[p]));
        let remarks = marked.of(&paths, functions).into_iter().map(|mark| self.marks()[mark].sentence()).collect();
        let figures = self.figures(table, at, &self.sums_of(draft));
        ListRow { label, id: draft.id, paths, figures, remarks }
    }

    fn figures(&self, table: &Drafts, at: usize, sums: &[PathSum]) -> Figures {
        let mut adder = Adder::default();
        self.add_up(&mut adder, sums, &table.drafts[at], &|path| table.holds(at, path));
        adder.figures(&self.wholes)
    }

    /// Rows added up; times nested in one another count once.
    fn rest(&self, table: &Drafts, hidden: &[Rank]) -> Figures {
        let mut is_hidden = vec![false; table.drafts.len()];
        hidden.iter().for_each(|rank| is_hidden[rank.draft] = true);
        let mut adder = Adder::default();
        for at in hidden.iter().map(|rank| rank.draft) {
            let draft = &table.drafts[at];
            let holds = |path: usize| match table.owners.get(path) {
                Some(&owner) => is_hidden[owner as usize],
                None => table.holds(at, path),
            };
            self.add_up(&mut adder, &self.sums_of(draft), draft, &holds);
        }
        adder.figures(&self.wholes)
    }

    /// Adds paths up, of a set that `holds` these and perhaps others: time inside of another one of them counts once.
    fn add_up(&self, adder: &mut Adder, sums: &[PathSum], draft: &Draft, holds: &impl Fn(usize) -> bool) {
        let nesting = if draft.tids.is_empty() { &self.nesting } else { self.nesting_of_threads() };
        for &path in &draft.paths {
            adder.add(&sums[path], self.value_names(path), !nesting.below(path, holds));
        }
    }
}

/// Paths that calls in progress of some threads are by.
fn running_paths(analysis: &Analysis<'_>, tids: &[u32]) -> FxHashSet<usize> {
    let ids: FxHashSet<u32> =
        analysis.snapshot.in_progress.iter().filter(|call| tids.contains(&call.tid)).map(|call| call.path).collect();
    let paths = analysis.snapshot.paths.iter().enumerate().filter(|(_, path)| ids.contains(&path.id));
    paths.map(|(i, _)| i).collect()
}

fn is_shown(query: &ListQuery, index: usize, share: f64) -> bool {
    // A share that is not known hides nothing.
    let large = index < query.at_least || share.is_nan() || share >= query.min_share;
    query.top.is_none_or(|top| index < top) && large
}

/// Part of the whole execution.
fn share(f: &Figures) -> f64 {
    if f.timed { f.share_exec.max(f.share_wall) } else { f.share_listed }
}

fn added(mut sum: PathTotals, t: &PathTotals) -> PathTotals {
    sum.calls = sum.calls.saturating_add(t.calls);
    sum.done = sum.done.saturating_add(t.done);
    sum.wall_ns = sum.wall_ns.saturating_add(t.wall_ns);
    sum.cpu_ns = sum.cpu_ns.saturating_add(t.cpu_ns);
    sum.max_ns = sum.max_ns.max(t.max_ns);
    sum.min_ns = if sum.min_ns == 0 || (t.min_ns > 0 && t.min_ns < sum.min_ns) { t.min_ns } else { sum.min_ns };
    sum.values = [0, 1].map(|i| sum.values[i].saturating_add(t.values[i]));
    crate::sums::add_usage(&mut sum.usage, t.usage);
    crate::hist::add_hist(&mut sum.hist, t.hist.as_deref());
    sum
}
