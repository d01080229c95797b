//! A snapshot made ready to be asked, and the whole of it as one document.

use crate::facts::{PathFact, PathFacts};
use crate::forked::add_children;
use crate::frames::{Frames, nameless};
use crate::labels::Sites;
use crate::names::Names;
use crate::results::*;
use crate::sums::{Adder, Nesting, PathSum, Wholes, path_sums};
use crate::unseen::{Functions, late_ns, probed_ns};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::OnceCell;
use whither_store::calls::{CallPath, CallPoint, CallSnapshot, PatchKind, PointState, Spent};

/// How names are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Show functions that were inlined at a call site.
    pub inlines: bool,
}

/// A snapshot with its paths completed, named and corrected.
pub struct Analysis<'a> {
    pub(crate) snapshot: &'a CallSnapshot,
    pub(crate) options: Options,
    pub(crate) functions: Functions,
    pub(crate) frames: Frames,
    pub(crate) nesting: Nesting,
    /// As single threads entered them, where that differs.
    entered: Option<Nesting>,
    pub(crate) sums: Vec<PathSum>,
    pub(crate) wholes: Wholes,
    /// Made when they are asked for.
    marks: OnceCell<Vec<Mark>>,
    /// Made when the first path is told.
    pub(crate) sites: OnceCell<Sites>,
    sources: Vec<(String, u32)>,
}

impl<'a> Analysis<'a> {
    /// Prepares a snapshot, or the difference of two.
    #[must_use]
    pub fn new(snapshot: &'a CallSnapshot, names: &dyn Names, options: Options) -> Self {
        let nesting = Nesting::new(snapshot);
        let frames = Frames::new(snapshot, &nesting.parents, &nesting.order, names);
        let running = running(snapshot, None);
        let totals = |path: usize| snapshot.paths[path].totals.clone();
        let mut sums = path_sums(snapshot, &nesting, &totals, &|path| running[path]);
        let (nesting, entered) = match add_children(snapshot, &nesting, &frames, &mut sums) {
            Some(all) => (all, Some(nesting)),
            None => (nesting, None),
        };
        let functions = Functions::new(snapshot);
        functions.mark(snapshot, &mut sums);
        let wholes = wholes(snapshot, &sums);
        let sources = snapshot.points.iter().map(|p| source(snapshot, p, names)).collect();
        Self {
            snapshot,
            options,
            functions,
            frames,
            nesting,
            entered,
            sums,
            wholes,
            marks: OnceCell::new(),
            sites: OnceCell::new(),
            sources,
        }
    }

    /// How calls of single threads nest: a child's are in none that its parent's thread entered.
    pub(crate) fn nesting_of_threads(&self) -> &Nesting {
        self.entered.as_ref().unwrap_or(&self.nesting)
    }

    /// Everything, as one document.
    #[must_use]
    pub fn profile(&self) -> CallProfile {
        let paths = self.order().into_iter().map(|i| self.path(i)).collect();
        CallProfile { paths, facts: None, ..self.brief() }
    }

    /// Everything but the paths, of which it is told what they are together: there may be a million.
    #[must_use]
    pub fn brief(&self) -> CallProfile {
        CallProfile {
            schema: SCHEMA,
            epoch: String::new(),
            target: self.target(),
            whole: self.whole(),
            functions: self.functions(),
            paths: Vec::new(),
            facts: Some(self.facts()),
            listing: None,
            frames: self.frames.rows.clone(),
            in_progress: self.in_progress(),
            lost: self.snapshot.lost,
            refused: self.refused(),
            own_cost: self.own_cost(),
            marks: self.marks().to_vec(),
            steps: Vec::new(),
            notes: self.snapshot.notes.clone(),
        }
    }

    /// The text of a path.
    #[must_use]
    pub fn label(&self, path: u32) -> Option<String> {
        let at = self.snapshot.paths.iter().position(|p| p.id == path)?;
        Some(self.label_of(at))
    }

    /// What was spent while a function had no probe that counted; `None` if it had one all the time, or nobody noted it. By the
    /// number of its point.
    #[must_use]
    pub fn unseen(&self, id: u32) -> Option<Spent> {
        let point = self.snapshot.points.iter().zip(0_u32..).find(|(p, _)| p.id == id);
        point.and_then(|(_, at)| self.functions.spent_unseen(at))
    }

    /// Marks of all functions.
    #[must_use]
    pub fn marks(&self) -> &[Mark] {
        self.marks.get_or_init(|| self.all_marks())
    }

    /// Totals that shares refer to.
    #[must_use]
    pub fn whole(&self) -> WholeRow {
        let w = self.snapshot.whole;
        WholeRow {
            wall_ns: w.wall_ns,
            cpu_ns: w.cpu_ns,
            thread_ns: w.thread_ns,
            threads: w.threads,
            threads_ended: w.threads_ended,
            thread_unsure_ns: w.thread_unsure_ns,
            processes: self.processes(),
            calls: self.wholes.calls,
        }
    }

    /// A process has a row for each program that it was, and is one all the same.
    fn processes(&self) -> u32 {
        let pids: FxHashSet<u32> = self.snapshot.processes.iter().map(|p| p.pid).collect();
        u32::try_from(pids.len()).unwrap_or(u32::MAX)
    }

    /// Figures of a path.
    fn figures_of(&self, path: usize) -> Figures {
        let mut adder = Adder::default();
        adder.add(&self.sums[path], self.value_names(path), true);
        adder.figures(&self.wholes)
    }

    pub(crate) fn value_names(&self, path: usize) -> &[String] {
        self.snapshot.points.get(self.snapshot.paths[path].point as usize).map_or(&[], |p| &p.values)
    }

    pub(crate) fn point_name(&self, point: u32) -> String {
        self.snapshot.points.get(point as usize).map_or_else(|| "[unknown]".into(), |p| point_name(self.snapshot, p))
    }

    pub(crate) fn is_patched(&self, point: u32) -> bool {
        let point = self.snapshot.points.get(point as usize);
        point.is_some_and(|p| !matches!(p.patch, Some(PatchKind::Trap | PatchKind::Uprobe) | None))
    }

    pub(crate) fn has_traps(&self) -> bool {
        let mut paths = self.sums.iter().zip(&self.snapshot.paths);
        paths.any(|(sum, path)| {
            let point = self.snapshot.points.get(path.point as usize);
            sum.calls > 0 && point.is_some_and(|p| p.patch == Some(PatchKind::Trap))
        })
    }

    fn target(&self) -> Target {
        let first = self.snapshot.processes.first().cloned().unwrap_or_default();
        let mut used: Vec<&str> = self.frames.rows.iter().map(|f| f.module.as_str()).collect();
        used.extend(self.snapshot.points.iter().filter_map(|p| self.module(p.module)));
        let known = self.snapshot.modules.iter().filter(|m| used.contains(&m.path.as_str()));
        let mut build_ids: Vec<BuildId> =
            known.filter_map(|m| Some(BuildId { module: m.path.clone(), build_id: m.id?.to_string() })).collect();
        build_ids.sort_by(|a, b| a.module.cmp(&b.module));
        build_ids.dedup();
        let processes = self.snapshot.processes.clone();
        Target { pid: first.pid, exe: first.exe, command: first.command, build_ids, processes }
    }

    fn module(&self, module: u32) -> Option<&str> {
        self.snapshot.modules.get(module as usize).map(|m| m.path.as_str())
    }

    fn functions(&self) -> Vec<FunctionRow> {
        let mut by_point: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (i, path) in self.snapshot.paths.iter().enumerate() {
            by_point.entry(self.functions.of(path.point)).or_default().push(i);
        }
        let points = self.snapshot.points.iter().zip(0_u32..);
        let points = points.filter(|(p, i)| p.state != PointState::Refused && self.functions.of(*i) == *i);
        let mut rows: Vec<FunctionRow> =
            points.map(|(p, i)| self.function(p, i, by_point.get(&i).map_or(&[], Vec::as_slice))).collect();
        rows.sort_by(|a, b| b.totals.wall_ns.cmp(&a.totals.wall_ns).then(b.totals.calls.cmp(&a.totals.calls)));
        rows
    }

    fn function(&self, point: &CallPoint, index: u32, paths: &[usize]) -> FunctionRow {
        let (file, line) = self.sources.get(index as usize).cloned().unwrap_or_default();
        let mut names = point.names.clone();
        if names.is_empty() {
            names.push(point_name(self.snapshot, point));
        }
        let probes: Vec<&CallPoint> =
            self.functions.points(index).iter().filter_map(|&p| self.snapshot.points.get(p as usize)).collect();
        let first = probes.first().map_or(point.id, |p| p.id);
        FunctionRow {
            id: point.id,
            names,
            module: self.module(point.module).unwrap_or_default().to_owned(),
            offset: point.offset,
            size: point.size,
            patch: point.patch,
            cost_class: if matches!(point.patch, Some(PatchKind::Trap | PatchKind::Uprobe)) { "us" } else { "ns" },
            state: point.state,
            entry_only: point.entry_only.clone(),
            file,
            line,
            after_ns: late_ns(self.snapshot, first),
            probed_ns: probed_ns(self.snapshot, &probes),
            paths: u32::try_from(paths.len()).unwrap_or(u32::MAX),
            totals: self.function_totals(paths),
        }
    }

    /// The recursion level tells outermost activations, also where the path around was not kept.
    fn function_totals(&self, paths: &[usize]) -> Figures {
        let mut adder = Adder::default();
        for &path in paths {
            adder.add(&self.sums[path], self.value_names(path), self.snapshot.paths[path].same == 0);
        }
        adder.figures(&self.wholes)
    }

    /// Indexes of paths, most time first.
    pub(crate) fn order(&self) -> Vec<usize> {
        let key = |i: usize| {
            let figures = self.figures_of(i);
            (std::cmp::Reverse((figures.wall_ns, figures.calls)), self.snapshot.paths[i].id)
        };
        let mut order: Vec<usize> = (0..self.snapshot.paths.len()).collect();
        order.sort_by_cached_key(|&i| key(i));
        order
    }

    pub(crate) fn path(&self, index: usize) -> PathRow {
        let path = &self.snapshot.paths[index];
        let end = self.frames.ends[index];
        PathRow {
            id: path.id,
            func: self.func(path),
            frames: self.frames.chains.outermost_first(end),
            parent: path.parent,
            level: path.same,
            folded: path.folded,
            truncated: self.frames.is_truncated(end),
            other: self.frames.is_other(end),
            figures: self.figures_of(index),
        }
    }

    pub(crate) fn func(&self, path: &CallPath) -> u32 {
        self.snapshot.points.get(self.functions.of(path.point) as usize).map_or(0, |p| p.id)
    }

    fn facts(&self) -> PathFacts {
        let mut facts = PathFacts::default();
        for (i, (path, sum)) in self.snapshot.paths.iter().zip(&self.sums).enumerate() {
            let end = self.frames.ends[i];
            facts.add(&PathFact {
                func: self.func(path),
                level: path.same,
                folded: path.folded,
                truncated: self.frames.is_truncated(end),
                other: self.frames.is_other(end),
                calls: sum.calls,
                untimed: sum.untimed,
                timed: sum.done > 0 || sum.running.calls > 0,
            });
        }
        facts
    }

    fn in_progress(&self) -> Vec<ProgressRow> {
        let row = |c: &whither_store::calls::InProgress| ProgressRow {
            pid: c.pid,
            tid: c.tid,
            path: c.path,
            elapsed_ns: c.elapsed_ns,
        };
        let mut rows: Vec<ProgressRow> = self.snapshot.in_progress.iter().map(row).collect();
        rows.sort_by_key(|r| (std::cmp::Reverse(r.elapsed_ns), r.tid));
        rows
    }

    fn refused(&self) -> Vec<RefusedRow> {
        let refused = self.snapshot.points.iter().filter(|p| p.state == PointState::Refused);
        let row = |p: &CallPoint| RefusedRow {
            name: point_name(self.snapshot, p),
            reason: p.refused.clone().unwrap_or_else(|| "no reason given".into()),
        };
        refused.map(row).collect()
    }
}

/// Preferred name of a point.
pub(crate) fn point_name(snapshot: &CallSnapshot, point: &CallPoint) -> String {
    let module = snapshot.modules.get(point.module as usize).map_or("", |m| m.path.as_str());
    point.names.first().cloned().unwrap_or_else(|| nameless(module, point.offset))
}

fn source(snapshot: &CallSnapshot, point: &CallPoint, names: &dyn Names) -> (String, u32) {
    let place = snapshot.modules.get(point.module as usize).map(|m| names.place(m, point.offset));
    place.and_then(|p| p.positions.into_iter().next_back()).map(|p| (p.file, p.line)).unwrap_or_default()
}

/// Calls in progress by path, of one thread or all.
pub(crate) fn running(snapshot: &CallSnapshot, tid: Option<u32>) -> Vec<Running> {
    let index: FxHashMap<u32, usize> = snapshot.paths.iter().enumerate().map(|(i, p)| (p.id, i)).collect();
    let mut running = vec![Running::default(); snapshot.paths.len()];
    for call in snapshot.in_progress.iter().filter(|c| tid.is_none_or(|t| c.tid == t)) {
        if let Some(&path) = index.get(&call.path) {
            let (elapsed_ns, cpu_ns) = (call.elapsed_ns, call.cpu_ns.unwrap_or(0));
            let one = Running { calls: 1, elapsed_ns, cpu_ns, cpu_unknown: u64::from(call.cpu_ns.is_none()) };
            running[path] = running[path].with(one);
        }
    }
    running
}

/// CPU times that lack one in a hundred calls are no CPU times.
fn knows_cpu(snapshot: &CallSnapshot, sums: &[PathSum]) -> bool {
    let calls = sums.iter().fold(0_u64, |all, s| all.saturating_add(s.calls));
    snapshot.lost.cpu <= calls / 100
}

/// Whether a process has ended whose times nobody may have read at its end.
fn was_cut_off(snapshot: &CallSnapshot) -> bool {
    let ended = snapshot.whole.threads == 0;
    let by_signal = |status: i32| status & 0x7f != 0;
    snapshot.processes.iter().any(|p| p.status.map_or(ended, by_signal))
}

fn wholes(snapshot: &CallSnapshot, sums: &[PathSum]) -> Wholes {
    let own_cpu = sums.iter().fold(0_u64, |all, s| all.saturating_add(s.self_cpu));
    Wholes {
        // Of a process that was killed the time is the last one read: parts of it add up to no more than all, all the same. Elsewhere they
        // may: handlers of signals run in the time of what they interrupt, and so do calls whose callers were jumped out of.
        cpu: if snapshot.whole.cpu_ns > 0 && was_cut_off(snapshot) {
            snapshot.whole.cpu_ns.max(own_cpu)
        } else {
            snapshot.whole.cpu_ns
        },
        thread: snapshot.whole.thread_ns,
        // The bound of shares' rounding.
        thread_sure: snapshot.whole.thread_unsure_ns <= snapshot.whole.thread_ns / 50,
        self_wall: sums.iter().fold(0, |all, s| all.saturating_add(s.self_wall)),
        calls: sums.iter().fold(0, |all, s| all.saturating_add(s.calls)),
        cpu_timed: crate::sums::clocks(snapshot).cpu && knows_cpu(snapshot, sums),
    }
}
