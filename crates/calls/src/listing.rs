//! Tables: paths as text, rows put together by site, caller, function, thread or process, ordered and
//! limited. What a limit leaves out is added up into one row, so that nothing vanishes.

use crate::analysis::{Analysis, point_name, running};
use crate::frames::{Frames, Function};
use crate::metric::Sort;
use crate::names::{frame_text, is_startup};
use crate::results::*;
use crate::sums::{Adder, PathSum, path_sums};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::rc::Rc;
use whither_store::calls::{CallSnapshot, FrameKind, PathTotals};

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
    label: String,
    /// Of the thread or process.
    id: Option<u32>,
    paths: Vec<usize>,
    sums: Rc<Vec<PathSum>>,
}

impl Analysis<'_> {
    /// A table.
    ///
    /// # Errors
    /// [`NoThreads`] when rows by thread or process are wanted and the snapshot has none.
    pub fn listing(&self, query: &ListQuery) -> Result<Listing, NoThreads> {
        let drafts = self.drafts(query.group)?;
        let marks = self.marks();
        let all = self.total(&drafts);
        let mut rows: Vec<(Draft, ListRow)> = drafts
            .into_iter()
            .map(|d| {
                let row = self.row(&d, query.group, &marks);
                (d, row)
            })
            .filter(|(_, row)| row.figures.is_active())
            .collect();
        rows.sort_by(|(_, a), (_, b)| {
            let by = |r: &ListRow| (query.sort.of(&r.figures), r.figures.calls as f64);
            by(b).partial_cmp(&by(a)).unwrap_or(std::cmp::Ordering::Equal).then_with(|| a.label.cmp(&b.label))
        });
        let (shown, hidden): (Vec<_>, Vec<_>) =
            rows.into_iter().enumerate().partition(|(i, (_, row))| is_shown(query, *i, row));
        let all_small = hidden.iter().all(|(_, (_, row))| share(&row.figures) < query.min_share);
        let hidden: Vec<Draft> = hidden.into_iter().map(|(_, (draft, _))| draft).collect();
        let rest = (!hidden.is_empty()).then(|| Rest {
            rows: hidden.len() as u64,
            below: if all_small { query.min_share } else { 0.0 },
            figures: self.total(&hidden),
        });
        let rows = shown.into_iter().map(|(_, (_, row))| row).collect();
        Ok(Listing { schema: SCHEMA, group: query.group, sort: query.sort.clone(), rows, rest, all })
    }

    fn drafts(&self, group: Group) -> Result<Vec<Draft>, NoThreads> {
        if matches!(group, Group::Thread | Group::Process) {
            return self.thread_drafts(group);
        }
        let mut drafts: BTreeMap<(String, u64), Vec<usize>> = BTreeMap::new();
        for (path, first) in self.first_alike().into_iter().enumerate() {
            let (label, number) = self.group_of(first, group);
            drafts.entry((label, number)).or_default().push(path);
        }
        let sums = Rc::new(self.sums.clone());
        let mut drafts: Vec<Draft> = drafts
            .into_iter()
            .map(|((label, _), paths)| Draft { label, id: None, paths, sums: Rc::clone(&sums) })
            .collect();
        for twins in drafts.chunk_by_mut(|a, b| a.label == b.label).filter(|twins| twins.len() > 1) {
            self.tell_apart(twins);
        }
        Ok(drafts)
    }

    /// Per path the first one of the same callers: a path is another one to the engine once a function on it is probed, too,
    /// and inside of a call of the same function that left no frame.
    fn first_alike(&self) -> Vec<usize> {
        let mut first: FxHashMap<(u32, &[u32], bool), usize> = FxHashMap::default();
        let paths = self.snapshot.paths.iter().zip(&self.frames.chains).enumerate();
        paths.map(|(i, (p, chain))| *first.entry((self.functions.of(p.point), chain, p.folded)).or_insert(i)).collect()
    }

    /// Functions of one name: their files stand behind the labels, and where these do not tell them apart, their places there.
    fn tell_apart(&self, twins: &mut [Draft]) {
        let point = |d: &Draft| {
            let path = *d.paths.first()?;
            self.snapshot.points.get(self.snapshot.paths[path].point as usize)
        };
        let places: Vec<Option<(u32, u64)>> = twins.iter().map(|d| point(d).map(|p| (p.module, p.offset))).collect();
        for (twin, place) in twins.iter_mut().zip(&places) {
            let Some((module, offset)) = *place else { continue };
            if places.iter().flatten().all(|other| *other == (module, offset)) {
                continue;
            }
            let file = self.snapshot.modules.get(module as usize).map_or("", |m| crate::frames::base(&m.path));
            let alone = !places.iter().flatten().any(|&(m, o)| m == module && o != offset);
            let place = if alone { file.to_owned() } else { format!("{file}+{offset:#x}") };
            twin.label = format!("{} ({place})", twin.label);
        }
    }

    /// Label of a path's group, and a number that keeps groups of equal text apart.
    fn group_of(&self, path: usize, group: Group) -> (String, u64) {
        let point = self.functions.of(self.snapshot.paths[path].point);
        let callee = self.point_name(point);
        let caller = self.frames.chains[path].last().map(|&f| (f, &self.frames.rows[f as usize]));
        match (group, caller) {
            (Group::Path, _) => (self.labels[path].clone(), path as u64),
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
        Ok(members.into_iter().map(|((id, label), tids)| self.thread_draft((id, label), &tids)).collect())
    }

    /// By what it executed last: a child is its parent's program until it executes its own.
    fn process_label(&self, pid: u32) -> String {
        let process = self.snapshot.processes.iter().rfind(|p| p.pid == pid);
        process.map_or_else(|| format!("process {pid}"), |p| format!("{} ({pid})", crate::frames::base(&p.exe)))
    }

    fn thread_draft(&self, (id, label): (u32, String), tids: &[u32]) -> Draft {
        let running: Vec<Vec<Running>> = tids.iter().map(|&t| running(self.snapshot, Some(t))).collect();
        let running = |path: usize| {
            running.iter().fold(Running::default(), |all, of| Running {
                calls: all.calls + of[path].calls,
                elapsed_ns: all.elapsed_ns.saturating_add(of[path].elapsed_ns),
            })
        };
        let totals = |path: usize| {
            let wanted = self.snapshot.paths[path].threads.iter().filter(|(tid, _)| tids.contains(tid));
            wanted.fold(PathTotals::default(), |sum, (_, t)| added(sum, t))
        };
        let mut sums = path_sums(self.snapshot, &self.nesting, &totals, &running);
        self.functions.mark(self.snapshot, &mut sums);
        let paths = (0..sums.len()).filter(|&p| sums[p].is_active()).collect();
        Draft { label, id: Some(id), paths, sums: Rc::new(sums) }
    }

    fn row(&self, draft: &Draft, group: Group, marks: &[Mark]) -> ListRow {
        let paths: Vec<u32> = draft.paths.iter().map(|&p| self.snapshot.paths[p].id).collect();
        let remarks = marks.iter().filter(|m| concerns(m, group, &paths, self, draft)).map(Mark::sentence).collect();
        let figures = self.add(&draft.paths, &draft.sums, &self.wholes);
        ListRow { label: draft.label.clone(), id: draft.id, paths, figures, remarks }
    }

    /// Rows added up; times nested in one another count once.
    fn total(&self, drafts: &[Draft]) -> Figures {
        let mut adder = Adder::default();
        let mut groups: Vec<(&Rc<Vec<PathSum>>, FxHashSet<usize>)> = Vec::new();
        for draft in drafts {
            match groups.iter_mut().find(|(sums, _)| Rc::ptr_eq(sums, &draft.sums)) {
                Some((_, paths)) => paths.extend(&draft.paths),
                None => groups.push((&draft.sums, draft.paths.iter().copied().collect())),
            }
        }
        for (sums, paths) in groups {
            for &path in &paths {
                let outermost = !self.nesting.below(path, |p| paths.contains(&p));
                adder.add(&sums[path], self.value_names(path), outermost);
            }
        }
        adder.figures(&self.wholes)
    }
}

fn is_shown(query: &ListQuery, index: usize, row: &ListRow) -> bool {
    let share = share(&row.figures);
    // A share that is not known hides nothing.
    let large = index < query.at_least || share.is_nan() || share >= query.min_share;
    query.top.is_none_or(|top| index < top) && large
}

/// Part of the whole execution.
fn share(f: &Figures) -> f64 {
    if f.timed { f.share_exec.max(f.share_wall) } else { f.share_listed }
}

fn concerns(mark: &Mark, group: Group, paths: &[u32], analysis: &Analysis<'_>, draft: &Draft) -> bool {
    match (mark, group) {
        (Mark::SlowSite { paths: slow, .. }, Group::Path | Group::Callsite) => slow.iter().any(|p| paths.contains(p)),
        (Mark::OneCaller { func, .. }, Group::Function) => draft.paths.iter().any(|&p| {
            let function = analysis.functions.of(analysis.snapshot.paths[p].point);
            let point = analysis.snapshot.points.get(function as usize);
            point.is_some_and(|point| point.id == *func)
        }),
        _ => false,
    }
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
    crate::sums::add_hist(&mut sum.hist, t.hist.as_deref());
    sum
}

/// The text of every path: outermost caller first, call sites where they tell paths apart and at the
/// innermost caller, the start of the program left out.
pub(crate) fn path_labels(snapshot: &CallSnapshot, frames: &Frames, inlines: bool) -> Vec<String> {
    let sites = Sites::new(frames);
    let label = |(path, chain): (&whither_store::calls::CallPath, &Vec<u32>)| {
        let mut parts: Vec<String> = Vec::with_capacity(chain.len() + 1);
        let first = first_shown(frames, chain);
        let mut node = ROOT;
        for (i, &frame) in chain.iter().enumerate() {
            node = sites.children.get(&(node, &frames.functions[frame as usize])).copied().unwrap_or(ROOT);
            let row = &frames.rows[frame as usize];
            let apart = i + 1 == chain.len() || sites.sites[node].len() > 1;
            if i >= first || row.kind != FrameKind::Caller {
                parts.push(frame_text(row, apart && row.kind == FrameKind::Caller, inlines));
            }
        }
        parts.push(
            snapshot.points.get(path.point as usize).map_or_else(|| "[unknown]".into(), |p| point_name(snapshot, p)),
        );
        parts.join(" > ") + if path.folded { " …" } else { "" }
    };
    snapshot.paths.iter().zip(&frames.chains).map(label).collect()
}

/// Position of the first frame that says something: `main`, or behind a thread's start.
pub(crate) fn first_shown(frames: &Frames, chain: &[u32]) -> usize {
    let name = |f: &u32| frames.rows[*f as usize].name.as_str();
    let main = chain.iter().position(|f| name(f) == "main");
    main.unwrap_or_else(|| chain.iter().take_while(|f| is_startup(name(f))).count())
}

const ROOT: usize = 0;

/// Which call sites of a function occur behind the same functions.
struct Sites<'a> {
    children: FxHashMap<(usize, &'a Function), usize>,
    sites: Vec<FxHashSet<u32>>,
}

impl<'a> Sites<'a> {
    fn new(frames: &'a Frames) -> Self {
        let mut all = Self { children: FxHashMap::default(), sites: vec![FxHashSet::default()] };
        for chain in &frames.chains {
            let mut node = ROOT;
            for &frame in chain {
                let next = all.sites.len();
                node = *all.children.entry((node, &frames.functions[frame as usize])).or_insert(next);
                if node == next {
                    all.sites.push(FxHashSet::default());
                }
                all.sites[node].insert(frame);
            }
        }
        all
    }
}
