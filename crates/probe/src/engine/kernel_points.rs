//! Functions that the kernel's breakpoints count: those that must not be patched, and all where nothing
//! may be written into the target. Lives here: which functions take this way, where their exits are, the
//! unwind rows of the code now mapped, processes that share a breakpoint. Not here: the breakpoints
//! themselves (`uprobe`), rows of a snapshot (`snapshot`).
//!
//! Constraints: a breakpoint is set where the bytes in memory are the file's, never inside of code that
//! somebody has changed; indexes count down from the top, out of the way of the segment's.

use super::points::{self, Point};
use super::{Engine, Happening, Module};
use crate::agent::SHADOW;
use crate::api::{Added, Candidate, PointAction, PointId, PointSpec, Refusal, Source, ValueSpec};
use crate::modules::Rows;
use crate::resolve::{self, ModuleView};
use crate::snapshot::{Counted, KernelReader};
use crate::target::{self, Memory, maps};
use crate::uprobe::exits::{Code, exits};
use crate::uprobe::{UprobeError, UprobePoint, Uprobes};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use whither_abi::agent as abi;
use whither_image::ids::to_offset;
use whither_image::{CodeMap, ElfSummary, Segment, Svma, decode};
use whither_kernel::proc;
use whither_store::calls::{CallSnapshot, PatchKind, PointState};

/// The kernel's side of a session; nothing is loaded before the first function needs it.
#[derive(Debug, Default)]
pub(super) struct KernelPoints {
    uprobes: Option<Uprobes>,
    points: Vec<KernelPoint>,
    given: u32,
    reader: KernelReader,
    /// Ranges of code with their rows, in the order of the engine's modules.
    ranges: Vec<abi::Module>,
    attached: FxHashSet<u32>,
    agent: bool,
}

/// A function with breakpoints.
#[derive(Debug)]
struct KernelPoint {
    id: PointId,
    words: UprobePoint,
    /// An address in the mapping of its file.
    address: u64,
    inode: u64,
    /// Addresses at which breakpoints stand.
    sites: Vec<u64>,
}

/// Whether a function that cannot be patched may be counted by a breakpoint on its first byte.
pub(super) fn may_serve(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::TooShort { .. }
            | Refusal::BranchInto { .. }
            | Refusal::CallInside
            | Refusal::ReturnInside
            | Refusal::Immovable { .. }
            | Refusal::NoRoom
    )
}

/// Whether a seccomp filter that is not ours too judges the process: what the agent does later, by
/// itself, might be its death.
fn is_confined(pid: u32) -> bool {
    let filters = |pid| proc::status_word(pid, "Seccomp_filters:").and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    target::filtered(pid) && filters(pid) != filters(std::process::id())
}

impl Engine {
    /// A process whose system calls are judged is not given an agent.
    pub(super) fn heed_filters(&mut self) {
        if !self.options.safe && self.options.uprobes && is_confined(self.pid) {
            self.options.safe = true;
            self.note(format!(
                "process {} runs under a seccomp filter, which might kill it for a system call of an agent: uprobes only",
                self.pid
            ));
        }
    }

    /// The way a candidate goes: by a breakpoint where it must, or where nothing else is allowed.
    pub(super) fn choose_way(&self, candidate: &mut Candidate) {
        let by_kernel = match &candidate.patch {
            Ok(_) => self.options.safe,
            Err(refusal) => (self.options.safe || self.options.uprobes) && may_serve(refusal),
        };
        if by_kernel {
            candidate.patch = Ok(PatchKind::Uprobe);
            if let Some(module) = self.modules.list().get(candidate.module) {
                candidate.cost = resolve::trap_cost(module, candidate);
            }
        }
    }

    /// The same point, by a breakpoint.
    pub(super) fn by_kernel(&self, spec: &PointSpec) -> PointSpec {
        let mut spec = spec.clone();
        spec.candidate.patch = Ok(PatchKind::Uprobe);
        if let Some(module) = self.modules.list().get(spec.candidate.module) {
            spec.candidate.cost = resolve::trap_cost(module, &spec.candidate);
        }
        spec
    }

    /// Whether anything of this program is counted.
    pub(super) fn is_measured(&self) -> bool {
        self.seat.is_some() || self.kernel.points.iter().any(|p| !p.sites.is_empty())
    }

    /// Adds those points that are the kernel's; the others come back.
    pub(super) fn add_by_kernel(&mut self, specs: &[PointSpec], added: &mut Added) -> Vec<PointSpec> {
        let (mine, others): (Vec<_>, Vec<_>) =
            specs.iter().cloned().partition(|s| s.candidate.patch == Ok(PatchKind::Uprobe));
        let mut surroundings = Surroundings::default();
        let mut ready: Vec<Ready> = Vec::new();
        let mut refuse = |spec: &PointSpec, why| added.refused.push((super::adding::name(&spec.candidate), why));
        let mut seen = FxHashSet::default();
        for spec in mine.iter().filter(|s| seen.insert(s.candidate.address)) {
            match self.prepare(spec, &mut surroundings, &ready) {
                Ok(one) => ready.push(one),
                Err(refusal) => refuse(spec, refusal),
            }
        }
        let new: Vec<&KernelPoint> = ready.iter().map(|r| &r.point).collect();
        let mut failed = self.set_in_all(&new);
        for one in ready {
            match failed.remove(&one.point.words.index) {
                None => added.ids.push(self.take_in(one)),
                Some(refusal) => added.refused.push((super::adding::name(&one.candidate), refusal)),
            }
        }
        self.know_agent();
        others
    }

    /// A point as it would be set, if it may be.
    fn prepare(&mut self, spec: &PointSpec, around: &mut Surroundings, before: &[Ready]) -> Result<Ready, Refusal> {
        let candidate = &spec.candidate;
        if let Some(id) = self.book.at(candidate.address) {
            return Err(Refusal::Already(id));
        }
        if !candidate.callers.is_empty() {
            return Err(Refusal::CallersByKernel);
        }
        self.load().map_err(refused)?;
        let module = self.modules.list().get(candidate.module).filter(|m| !m.gone).ok_or(Refusal::NotMapped)?;
        if module.inode == 0 {
            return Err(Refusal::Uprobe("its code is in no file".into()));
        }
        let given = self.kernel.given + before.len() as u32;
        let index = (abi::MAX_POINTS - 1).checked_sub(given).filter(|&i| i > abi::MAX_POINTS / 2);
        let index = index.ok_or(Refusal::TooMany)?;
        if !may_stand(module, candidate.offset) {
            return Err(Refusal::Uprobe(
                "its first instruction is one that the kernel executes wrongly under them, or sets none on".into(),
            ));
        }
        let (entry_only, stated) = way_out(module, candidate, &spec.actions);
        let mut flags = points::flags(&spec.actions, entry_only.is_some()) & !(abi::DO_USAGE | abi::DO_EMIT);
        let (values, names, notes) = values(spec, flags & abi::DO_EXIT != 0);
        if values.is_empty() {
            flags &= !abi::DO_VALUES;
        }
        let mut sites = vec![candidate.address];
        sites.extend(stated.iter().map(|at| at.wrapping_add(module.bias)));
        let segments = around.segments(candidate.module, module)?;
        let offset = |at| to_offset(segments, Svma(at)).map(|o| o.0).ok_or(Refusal::NotMapped);
        let words = UprobePoint {
            index,
            entry: offset(candidate.offset)?,
            exits: stated.iter().map(|&at| offset(at)).collect::<Result<_, _>>()?,
            by_path: flags & abi::DO_PATH != 0,
            values,
        };
        let point = KernelPoint { id: PointId(0), words, address: candidate.address, inode: module.inode, sites };
        self.is_unchanged(&point, candidate.module, around)?;
        let candidate = Candidate { entry_only, ..candidate.clone() };
        Ok(Ready { point, candidate, flags, names, notes })
    }

    fn take_in(&mut self, ready: Ready) -> PointId {
        let Ready { point, candidate, flags, names, notes } = ready;
        self.kernel.given = self.kernel.given.max(abi::MAX_POINTS - point.words.index);
        let id = self.book.push(Point {
            id: PointId(0),
            index: point.words.index,
            candidate,
            flags,
            values: names,
            state: PointState::On,
            patch: None,
        });
        self.kernel.points.push(KernelPoint { id, ..point });
        notes.into_iter().for_each(|n| self.note(n));
        id
    }

    /// Bytes where breakpoints are to stand must be those of the file, or breakpoints of ours.
    fn is_unchanged(&self, point: &KernelPoint, module: usize, around: &mut Surroundings) -> Result<(), Refusal> {
        let ours = around
            .ours
            .get_or_insert_with(|| self.kernel.points.iter().flat_map(|p| p.sites.iter().copied()).collect());
        let memory = match &around.memory {
            Some(memory) => memory,
            None => around.memory.insert(Memory::open(self.pid).map_err(|_| Refusal::NotMapped)?),
        };
        let module = self.modules.list().get(module).ok_or(Refusal::NotMapped)?;
        let code = module.image().and_then(|i| i.code()).ok_or(Refusal::NotMapped)?;
        for &site in point.sites.iter().filter(|s| !ours.contains(s)) {
            let at = site.wrapping_sub(module.bias);
            let file = code.bytes().get(at..at.saturating_add(1)).ok_or(Refusal::NotMapped)?;
            let mut there = [0];
            memory.read(site, &mut there).map_err(|_| Refusal::NotMapped)?;
            if there != file {
                return Err(Refusal::of_difference(&there, file));
            }
        }
        Ok(())
    }

    /// Sets points in every process; those that the first process refuses.
    fn set_in_all(&mut self, points: &[&KernelPoint]) -> FxHashMap<u32, Refusal> {
        let mut failed = FxHashMap::default();
        let Some(uprobes) = &mut self.kernel.uprobes else { return failed };
        for pid in self.tree.alive() {
            let refused = set(uprobes, pid, points);
            if refused.len() < points.len() {
                self.kernel.attached.insert(pid);
            }
            // A child that ends or executes something needs none.
            if pid == self.pid {
                failed.extend(refused);
            }
        }
        if !failed.is_empty() {
            let indexes: Vec<u32> = failed.keys().copied().collect();
            let _ = uprobes.remove(&indexes);
        }
        failed
    }

    /// Loads the program and gives it the rows of all code.
    fn load(&mut self) -> Result<(), UprobeError> {
        if self.kernel.uprobes.is_some() {
            return Ok(());
        }
        let all: Vec<&Module> = self.modules.list().iter().collect();
        let rows = Rows::of_all(&all);
        // Room for libraries loaded later.
        let room = rows.iter().map(Rows::len).sum::<usize>().saturating_mul(3) / 2;
        self.kernel.uprobes = Some(Uprobes::new(room + (1 << 18))?);
        self.kernel.reader = KernelReader::splitting(self.options.threads);
        self.describe_code(rows)
    }

    /// Rows of the modules that are new, and the ranges of those that are still there.
    fn describe_code(&mut self, rows: Vec<Rows>) -> Result<(), UprobeError> {
        let Some(uprobes) = &mut self.kernel.uprobes else { return Ok(()) };
        let mut full = Vec::new();
        for (module, rows) in self.modules.list().iter().skip(self.kernel.ranges.len()).zip(rows) {
            let moved = rows.moved(uprobes.next_rule());
            let first = uprobes.add_rows(&moved, &rows.big)?;
            if first.is_none() {
                full.push(module.path.clone());
            }
            self.kernel.ranges.push(abi::Module {
                base: module.bias.wrapping_add(rows.base),
                first_row: first.unwrap_or(0),
                n_rows: first.map_or(0, |_| moved.len() as u32),
                ..abi::Module::default()
            });
        }
        for (range, module) in self.kernel.ranges.iter_mut().zip(self.modules.list()) {
            (range.start, range.end, range.state) = (module.start, module.end, if module.gone { 2 } else { 1 });
        }
        uprobes.set_code(&self.kernel.ranges)?;
        for path in full {
            self.note(format!("{path}: the table of unwind rows is full, uprobe paths through it are truncated"));
        }
        Ok(())
    }

    /// What changes while the target runs: libraries, children, ends. Without agent nobody else looks.
    pub(super) fn look_after_kernel(&mut self, happened: &mut Vec<Happening>) {
        if self.seat.is_none() && self.options.safe && self.may_change && self.tree.alive().contains(&self.pid) {
            self.libraries_by_kernel(happened);
        }
        if self.kernel.uprobes.is_none() {
            return;
        }
        self.follow_modules();
        self.bury_by_kernel();
        self.know_agent();
        if self.options.follow {
            self.take_in_children(happened);
        }
    }

    fn libraries_by_kernel(&mut self, happened: &mut Vec<Happening>) {
        self.absorb_by_kernel();
        let changes = self.modules.refresh();
        let gone: Vec<PointId> = self
            .book
            .list()
            .iter()
            .filter(|p| p.state != PointState::Removed && changes.unmapped.contains(&p.candidate.module))
            .map(|p| p.id)
            .collect();
        for id in gone {
            if let Some(point) = self.book.get_mut(id) {
                point.state = PointState::Removed;
            }
        }
        if changes.loaded.is_empty() {
            return;
        }
        let fresh = changes.loaded.iter().filter_map(|&i| self.modules.list().get(i));
        happened.extend(fresh.map(|m| Happening::Loaded { module: m.path.clone() }));
        if let Err(e) = self.obey_standing(&changes.loaded, happened) {
            happened.push(Happening::Note(format!("new libraries of process {} are not measured: {e}", self.pid)));
        }
    }

    /// Rows for modules that came, none for those that went.
    fn follow_modules(&mut self) {
        let list = self.modules.list();
        let known = self.kernel.ranges.len();
        let is_stale =
            |(range, module): (&abi::Module, &Module)| (range.state == 2) != module.gone || range.end != module.end;
        if list.len() == known && !self.kernel.ranges.iter().zip(list).any(is_stale) {
            return;
        }
        let fresh: Vec<&Module> = list.iter().skip(known).collect();
        let rows = Rows::of_all(&fresh);
        if let Err(e) = self.describe_code(rows) {
            self.note(format!("uprobe paths through libraries loaded later are truncated: {e}"));
        }
    }

    /// Breakpoints of points that are over, and of processes that are gone.
    pub(super) fn bury_by_kernel(&mut self) {
        let alive = self.tree.alive();
        let Some(uprobes) = &mut self.kernel.uprobes else { return };
        let book = &self.book;
        let over = |p: &KernelPoint| book.get(p.id).is_none_or(|p| p.state == PointState::Removed);
        let mut indexes = Vec::new();
        for point in self.kernel.points.iter_mut().filter(|p| over(p) && !p.sites.is_empty()) {
            indexes.push(point.words.index);
            point.sites.clear();
        }
        if !indexes.is_empty() {
            let _ = uprobes.remove(&indexes);
        }
        self.kernel.attached.retain(|pid| {
            let stays = alive.contains(pid);
            if !stays {
                uprobes.leave(*pid);
            }
            stays
        });
    }

    /// Where the agent works too, it keeps return addresses.
    fn know_agent(&mut self) {
        if let (Some(seat), Some(uprobes), false) = (&self.seat, &mut self.kernel.uprobes, self.kernel.agent) {
            self.kernel.agent = uprobes.set_agent(&seat.exits(), SHADOW).is_ok();
        }
    }

    /// Forked children that run the same program get breakpoints of their own.
    fn take_in_children(&mut self, happened: &mut Vec<Happening>) {
        if self.seat.is_none() {
            let main = self.modules.list().iter().find(|m| m.main).map(|m| (m.start, m.inode));
            for pid in self.tree.children() {
                let same = |m: &maps::Map| main == Some((m.start, m.inode));
                if maps::read(pid).iter().any(same) && self.tree.add(pid, true) {
                    happened.push(Happening::Forked { pid });
                }
            }
        }
        let fresh: Vec<u32> = self.tree.alive().into_iter().filter(|pid| !self.kernel.attached.contains(pid)).collect();
        for pid in fresh {
            self.kernel.attached.insert(pid);
            let Some(uprobes) = &mut self.kernel.uprobes else { return };
            let standing: Vec<&KernelPoint> = self.kernel.points.iter().filter(|p| !p.sites.is_empty()).collect();
            let _ = set(uprobes, pid, &standing);
            if !self.options.safe {
                self.note(
                    "calls that uprobes count in forked children count from some milliseconds after the fork".into(),
                );
            }
        }
    }

    /// Takes breakpoints away.
    pub(super) fn remove_by_kernel(&mut self, ids: &[PointId]) {
        self.absorb_by_kernel();
        let Some(uprobes) = &mut self.kernel.uprobes else { return };
        let mut indexes = Vec::new();
        for point in self.kernel.points.iter_mut().filter(|p| ids.contains(&p.id)) {
            indexes.push(point.words.index);
            point.sites.clear();
        }
        if let Err(e) = uprobes.remove(&indexes) {
            self.note(e.to_string());
        }
    }

    /// Switches a point, if it is one of the kernel's.
    pub(super) fn enable_by_kernel(&mut self, id: PointId, on: bool) -> bool {
        let Some(uprobes) = &mut self.kernel.uprobes else { return false };
        let Some(point) = self.kernel.points.iter().find(|p| p.id == id) else { return false };
        uprobes.enable(&point.words, on).is_ok()
    }

    fn counted(&self) -> FxHashMap<u32, Counted> {
        let mut all = FxHashMap::default();
        for point in &self.kernel.points {
            let Some(known) = self.book.get(point.id) else { continue };
            let start = known.candidate.address;
            let code = start..start.saturating_add(known.candidate.size);
            all.insert(point.words.index, Counted { row: point.id.0 - 1, flags: known.flags, code });
        }
        all
    }

    /// Works out frames while their modules are known.
    pub(super) fn absorb_by_kernel(&mut self) {
        let points = self.counted();
        let Some(Ok(tables)) = self.kernel.uprobes.as_ref().map(Uprobes::read) else { return };
        let modules = &self.modules;
        self.kernel.reader.absorb(&tables, &points, &|ra| modules.place(ra));
    }

    /// Adds what the kernel has counted.
    pub(super) fn add_kernel_rows(&mut self, snapshot: &mut CallSnapshot) {
        let points = self.counted();
        let Some(uprobes) = &self.kernel.uprobes else { return };
        match uprobes.read() {
            Ok(tables) => {
                let modules = &self.modules;
                let reader = &mut self.kernel.reader;
                reader.add(&tables, &points, &|ra| modules.place(ra), snapshot);
                let trap_ns = uprobes.trap_ns();
                snapshot.own_cost.kernel_ns = trap_ns.map(|ns| reader.cost(&tables, ns));
                snapshot.own_cost.hit_ps = trap_ns.map_or(0, |ns| reader.hit_ps(&tables, ns));
            }
            Err(e) => snapshot.notes.push(e.to_string()),
        }
        let count = self.kernel.points.iter().filter(|p| !p.sites.is_empty()).count();
        if count > 0 {
            let what = if count == 1 { "1 function is".into() } else { format!("{count} functions are") };
            let each = match uprobes.trap_ns() {
                Some(ns) => {
                    let us = (ns as f64 / 1000.0).max(1.0);
                    format!("here some {us:.0} us for each entry and each exit, taken off times, not off histograms")
                }
                None => {
                    "1 to 10 us per call, twenty and more in some virtual machines, times not corrected for it".into()
                }
            };
            snapshot.notes.push(format!("{what} counted by uprobes ({each})"));
        }
    }

    /// Numbers count from here.
    pub(super) fn reset_kernel(&mut self) {
        if let Some(Ok(tables)) = self.kernel.uprobes.as_ref().map(Uprobes::read) {
            self.kernel.reader.reset(&tables);
        }
    }

    /// Takes all breakpoints away; how many functions had some.
    pub(super) fn leave_kernel(&mut self) -> usize {
        let kernel = std::mem::take(&mut self.kernel);
        kernel.points.iter().filter(|p| !p.sites.is_empty()).count()
    }
}

fn refused(error: UprobeError) -> Refusal {
    Refusal::Uprobe(error.to_string())
}

/// Sets points in one process, by paths to their files that we can open; those refused, by index.
fn set(uprobes: &mut Uprobes, pid: u32, points: &[&KernelPoint]) -> Vec<(u32, Refusal)> {
    let all = maps::read(pid);
    let mut failed = Vec::new();
    let mut by_file: FxHashMap<PathBuf, Vec<UprobePoint>> = FxHashMap::default();
    let mut files: FxHashMap<u64, Result<PathBuf, Refusal>> = FxHashMap::default();
    for point in points {
        let map = all.iter().find(|m| m.holds(point.address) && m.inode == point.inode);
        let file = match map {
            Some(map) => files.entry(map.start).or_insert_with(|| file_of(pid, map)).clone(),
            None => Err(Refusal::NotMapped),
        };
        match file {
            Ok(file) => by_file.entry(file).or_default().push(point.words.clone()),
            Err(refusal) => failed.push((point.words.index, refusal)),
        }
    }
    for (file, its) in by_file {
        match uprobes.add(pid, &file, &its) {
            Ok(some) => failed.extend(some.into_iter().map(|(index, e)| (index, refused(e)))),
            Err(e) => {
                let why = refused(e);
                failed.extend(its.iter().map(|p| (p.index, why.clone())));
            }
        }
    }
    failed
}

fn file_of(pid: u32, map: &maps::Map) -> Result<PathBuf, Refusal> {
    let places = proc::mapped_file_candidates(pid, map.start, map.end, &map.path);
    let is_it = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|m| m.ino() == map.inode);
    places.into_iter().find(is_it).ok_or_else(|| Refusal::Uprobe(format!("{} cannot be opened", map.path)))
}

/// What many points ask for alike.
#[derive(Default)]
struct Surroundings {
    ours: Option<FxHashSet<u64>>,
    memory: Option<Memory>,
    segments: FxHashMap<usize, Vec<Segment>>,
}

impl Surroundings {
    fn segments(&mut self, number: usize, module: &Module) -> Result<&[Segment], Refusal> {
        match self.segments.entry(number) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let file = module.file.as_ref().ok_or(Refusal::NotMapped)?;
                Ok(new.insert(ElfSummary::parse(file).map_err(|_| Refusal::NotMapped)?.segments))
            }
        }
    }
}

/// A point that may be set.
struct Ready {
    point: KernelPoint,
    candidate: Candidate,
    flags: u32,
    names: Vec<String>,
    notes: Vec<String>,
}

/// Whether a uprobe may stand on the instruction at a stated address.
fn may_stand(module: &Module, at: u64) -> bool {
    let Some(code) = module.image().and_then(|i| i.code()) else { return false };
    // The file may end before the longest instruction would.
    let text = (1..=15).rev().find_map(|n| code.bytes().get(at..at.saturating_add(n)));
    text.and_then(|text| decode(text, Svma(at)).first().copied()).is_some_and(|first| !first.takes_no_uprobe())
}

/// Why only entries are counted, if so, and the stated addresses of the exits that are wanted.
fn way_out(module: &Module, candidate: &Candidate, actions: &[PointAction]) -> (Option<String>, Vec<u64>) {
    if candidate.entry_only.is_some() || points::flags(actions, false) & abi::DO_EXIT == 0 {
        return (candidate.entry_only.clone(), Vec::new());
    }
    let Some(code) = module.image().and_then(|i| i.code()) else {
        return (Some("its code is not in the file".into()), Vec::new());
    };
    let extent = code.extent(Svma(candidate.offset)).unwrap_or(candidate.offset..candidate.offset);
    match exits(extent, &Parts(code)) {
        Ok(found) if !found.iter().all(|&at| may_stand(module, at)) => {
            (Some("one of its exits is an instruction that no uprobe can stand on".into()), Vec::new())
        }
        Ok(found) => (None, found),
        Err(why) => (Some(format!("{why}: no uprobe can stand at its exits")), Vec::new()),
    }
}

/// Code of a module as the search for exits wants it.
struct Parts<'a>(&'a CodeMap);

impl Code for Parts<'_> {
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        self.0.bytes().get(range)
    }

    fn extent(&self, address: u64) -> Option<Range<u64>> {
        let start = self.0.function_of(Svma(address))?;
        self.0.extent(start).filter(|r| r.contains(&address))
    }
}

/// Integers that the kernel's side can sum, their names, and sentences about those it cannot.
fn values(spec: &PointSpec, sees_exit: bool) -> (Vec<ValueSpec>, Vec<String>, Vec<String>) {
    let (mut taken, mut names, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let of = super::adding::name(&spec.candidate);
    for action in &spec.actions {
        match action {
            PointAction::Sum(value)
                if names.len() < 2 && is_plain(value) && (sees_exit || value.source != Source::Ret) =>
            {
                taken.push(value.clone());
                names.push(value.name.clone());
            }
            PointAction::Sum(value) if matches!(value.source, Source::Event(_)) => {
                notes.push(format!("{of}: `{}` is not counted by its uprobe", value.name));
            }
            PointAction::Sum(value) if names.len() == 2 => {
                notes.push(format!("{of}: `{}` is not summed: two integers per function are", value.name));
            }
            PointAction::Sum(value) => notes.push(format!(
                "{of}: `{}` is not summed: a uprobe takes integers in registers, arguments 1 to 6 or the return value",
                value.name
            )),
            PointAction::Usage => notes.push(format!("{of}: switches and faults are not counted by its uprobe")),
            PointAction::Emit(_) => notes.push(format!("{of}: its uprobe emits no records")),
            _ => {}
        }
    }
    (taken, names, notes)
}

fn is_plain(value: &ValueSpec) -> bool {
    let known = matches!(value.source, Source::Arg(1..=6) | Source::Ret);
    known && value.loads.is_empty()
}
