//! The measured processes and the kernel side together: who belongs to the group, what code is mapped, where
//! points are attached, what samples hit. Everything that must be kept up to date while experiments run.

use super::atomics::Atomics;
use super::code::Code;
use super::coz::CozMarks;
use super::elsewhere::{Counted, Elsewhere};
use super::executor::CausalExecutor;
use super::goroutines::Goroutines;
use super::later::Later;
use super::nap::Napping;
use super::options::{CausalOptions, ExecutorChoice};
use super::points::{self, Found};
use super::policy::CausalPolicy;
use super::program::{Mapped, Program};
use super::spinning::Spinning;
use super::takes_over::Threads;
use super::targets::{Targets, Wanted};
use super::words::{PointPlace, PointSpec, TargetSpec};
use crate::SessionError;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use whither_image::{ImageKind, Svma, is_go_program, to_offset};
use whither_kernel::memory::Memory;
use whither_sample::causal::{Armed, CausalModule, CausalSample, Change, Hook, SampleWhat};
use whither_store::causal::{Elsewhere as Stored, PointKind, ProgressPoint};
use whither_store::symbols::Symbols;
use whither_store::{StoredSymbols, SymbolService};

/// New code is looked for this often.
const LOOK: Duration = Duration::from_millis(50);
/// The same where programs are begun all the time: their libraries come a while after them.
const LOOK_SOON: Duration = Duration::from_millis(5);
/// A program that was begun so long ago is no new one.
const STARTING: Duration = Duration::from_millis(200);
/// Looking at a process takes about a tenth of this; the share of a big group stays small.
const LOOK_EACH: Duration = Duration::from_millis(2);
/// Functions cut out of a module's scope; the kernel side searches them at each sample.
const MOST_HOLES: usize = 200;

/// Whether the kernel side has to be told of a process that has the code that it had.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Again,
    /// It executes a program, perhaps the same one.
    Anew,
}

/// A progress point, as far as it was found.
pub(super) struct Point {
    pub(super) spec: PointSpec,
    pub(super) kind: PointKind,
    /// It ends a latency pair.
    pub(super) is_end: bool,
    /// Index of the pair's end.
    pub(super) end: Option<u32>,
    /// The kernel side's number.
    pub(super) index: Option<u32>,
    /// Counters in memory.
    pub(super) counters: Vec<Counter>,
    pub(super) refused: Option<String>,
    /// Files it was looked for in; with the process where it is attached to that one only.
    seen: FxHashSet<(usize, u32)>,
    /// What there is in its place, and in which file.
    pub(super) instead: Option<(usize, String)>,
    /// The main program has it.
    in_main: bool,
    /// Files that have it.
    pub(super) files: BTreeSet<usize>,
}

/// A counter in a process.
pub(super) struct Counter {
    memory: Memory,
    at: u64,
}

impl Counter {
    pub(super) fn value(&self) -> Option<u64> {
        self.memory.word(self.at).ok()
    }
}

impl Point {
    /// The end of a run.
    fn end() -> Self {
        Self::new(PointSpec { text: "end of the run".into(), place: PointPlace::End }, false, None)
    }

    pub(super) fn new(spec: PointSpec, is_end: bool, end: Option<u32>) -> Self {
        let kind = match spec.place {
            PointPlace::Syscall(_) | PointPlace::Tracepoint(..) => PointKind::Kernel,
            PointPlace::Counter(_) => PointKind::Counter,
            PointPlace::Sampled(_) => PointKind::Sampled,
            PointPlace::End => PointKind::End,
            _ => PointKind::Probe,
        };
        let seen = FxHashSet::default();
        Self {
            spec,
            kind,
            is_end,
            end,
            index: None,
            counters: Vec::new(),
            refused: None,
            seen,
            instead: None,
            in_main: false,
            files: BTreeSet::new(),
        }
    }

    /// Whether visits can be counted.
    pub(super) fn is_placed(&self) -> bool {
        self.index.is_some() || !self.counters.is_empty() || self.kind == PointKind::End
    }

    pub(super) fn described(&self) -> ProgressPoint {
        ProgressPoint { name: self.spec.text.clone(), kind: self.kind, end: self.end }
    }
}

/// See the module.
pub(super) struct Group {
    pub(super) exec: Box<dyn CausalExecutor>,
    pub(super) program: Program,
    pub(super) code: Code,
    pub(super) targets: Targets,
    pub(super) threads: Threads,
    pub(super) atomics: Atomics,
    pub(super) wanted: Wanted,
    pub(super) points: Vec<Point>,
    pub(super) processes: Vec<u32>,
    pub(super) most_processes: u32,
    pub(super) notes: Vec<String>,
    /// Sampled at all, and in scope.
    pub(super) sampled: u64,
    pub(super) in_scope: u64,
    later: Later,
    follow: bool,
    declared: usize,
    looked: Option<Instant>,
    /// The target of the open window.
    armed: Option<u32>,
    /// When a program was last begun.
    started: Option<Instant>,
    holes: u64,
    learnt: u64,
    /// Delays are slept, or spun.
    pub(super) napping: Napping,
    /// Threads that wait without the kernel.
    pub(super) spinning: Spinning,
    /// Whether they change threads.
    pub(super) goroutines: Goroutines,
    elsewhere: Elsewhere,
    /// Marks of Coz.
    pub(super) coz: CozMarks,
}

impl Group {
    pub(super) fn new(options: &CausalOptions, exec: Box<dyn CausalExecutor>) -> Self {
        let service = Arc::new(SymbolService::new(options.symbols.clone(), StoredSymbols::default()));
        let mut points: Vec<Point> = options.points.iter().map(|p| Point::new(p.clone(), false, None)).collect();
        for (begin, end) in &options.pairs {
            let number = points.len() as u32;
            points.push(Point::new(begin.clone(), false, Some(number + 1)));
            points.push(Point::new(end.clone(), true, None));
        }
        if options.end_to_end {
            points.push(Point::end());
        }
        Self {
            exec,
            program: Program::default(),
            code: Code::new(service, options.scope.clone()),
            targets: Targets::new(&options.targets),
            threads: Threads::default(),
            atomics: Atomics::default(),
            wanted: Wanted::new(
                options.unit,
                options.targets.clone(),
                options.waits.iter().fold(0, |bits, w| bits | w.bit()),
            ),
            points,
            processes: Vec::new(),
            most_processes: 0,
            notes: Vec::new(),
            sampled: 0,
            in_scope: 0,
            later: Later::default(),
            follow: options.follow,
            declared: 0,
            looked: None,
            armed: None,
            started: None,
            holes: 0,
            learnt: 0,
            napping: match options.executor {
                ExecutorChoice::Sleep => Napping::always(),
                ExecutorChoice::Auto | ExecutorChoice::Spin => Napping::Spin,
            },
            spinning: Spinning::default(),
            goroutines: Goroutines::default(),
            elsewhere: Elsewhere::default(),
            coz: CozMarks::default(),
        }
    }

    /// Makes the end of a run a point.
    pub(super) fn add_end(&mut self) {
        self.points.push(Point::end());
        self.forget_places();
    }

    /// Tells the user something, once.
    pub(super) fn note(&mut self, text: String) -> bool {
        if self.notes.contains(&text) {
            return false;
        }
        self.notes.push(text);
        true
    }

    /// Notices processes and code that came or went; cheap enough to be called all the time.
    ///
    /// # Errors
    /// The kernel refuses tables or points.
    pub(super) fn look(&mut self) -> Result<(), SessionError> {
        let pause = if self.is_starting() { LOOK_SOON } else { LOOK };
        let pause = pause.max(LOOK_EACH.saturating_mul(self.processes.len() as u32));
        let changes = self.exec.changes();
        if changes.is_empty() && self.looked.is_some_and(|l| l.elapsed() < pause) {
            return Ok(());
        }
        self.look_now(&changes)
    }

    /// The same at once.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub(super) fn look_now(&mut self, changes: &[Change]) -> Result<(), SessionError> {
        self.looked = Some(Instant::now());
        for change in changes {
            match *change {
                Change::Forked { pid, parent } => self.program.forked(pid, parent),
                Change::Execed { pid } => self.program.execed(pid),
            }
        }
        // Before anything else: meanwhile nothing of them is made faster.
        for change in changes {
            if let Change::Execed { pid } = *change {
                self.started = Some(Instant::now());
                self.look_at(pid, Look::Anew)?;
            }
        }
        self.processes = self.exec.processes();
        self.most_processes = self.most_processes.max(self.processes.len() as u32);
        if !self.processes.is_empty() {
            let living = self.processes.clone();
            self.program.keep(&living);
        }
        for pid in self.processes.clone() {
            self.look_at(pid, Look::Again)?;
        }
        self.place_coz_marks();
        for text in self.napping.look(&mut *self.exec, &self.processes, changes)? {
            self.note(text);
        }
        Ok(())
    }

    /// Takes in the code of one process, where that is another than before or has to be told `Anew`.
    fn look_at(&mut self, pid: u32, look: Look) -> Result<(), SessionError> {
        if self.program.refresh(pid) || look == Look::Anew {
            self.map(pid)?;
            // First of all: points take milliseconds, in which nothing of it would be made faster.
            self.rearm(pid)?;
            self.place_points(pid)?;
            self.coz.map(pid);
        }
        Ok(())
    }

    /// Says what the window that is opened makes faster.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn arm(&mut self, target: Option<u32>) -> Result<(), SessionError> {
        let armed = target.map_or(Armed::Nothing, |t| self.targets.armed(t, None, &self.code, &self.program));
        self.armed = target;
        self.exec.arm(&armed)
    }

    /// The same in a process whose code came while the window is open.
    fn rearm(&mut self, pid: u32) -> Result<(), SessionError> {
        let Some(target) = self.armed else { return Ok(()) };
        let armed = self.targets.armed(target, Some(pid), &self.code, &self.program);
        self.exec.rearm(pid, &armed)
    }

    /// Whether programs are begun all the time.
    pub(super) fn is_starting(&self) -> bool {
        self.started.is_some_and(|s| s.elapsed() < STARTING)
    }

    /// Leaves the processes as they were.
    pub(super) fn let_go(&mut self) {
        if let Some(mut naps) = self.napping.take() {
            self.exec.detach();
            naps.end();
        }
    }

    /// Takes in what debug information has told, and lets the kernel side know what is not in scope. Not while
    /// a window is open: its samples would be judged by two rules.
    ///
    /// # Errors
    /// The kernel refuses tables.
    pub(super) fn learn(&mut self) -> Result<(), SessionError> {
        self.code.poll();
        if self.code.generation == self.learnt {
            return Ok(());
        }
        self.learnt = self.code.generation;
        let files = 0..self.program.files.len();
        let holes: u64 = files.flat_map(|f| self.code.met(f)).filter(|k| k.is_foreign()).count() as u64;
        if holes != self.holes {
            self.holes = holes;
            for pid in self.program.pids() {
                self.map(pid)?;
            }
        }
        Ok(())
    }

    fn map(&mut self, pid: u32) -> Result<(), SessionError> {
        let mut modules = Vec::new();
        for mapped in self.program.modules_of(pid) {
            self.pieces(mapped, &mut modules);
        }
        modules.sort_by_key(|m| m.start);
        self.exec.map(pid, &modules)
    }

    /// A module, cut at functions that are not in scope although their module is.
    fn pieces(&self, mapped: &Mapped, into: &mut Vec<CausalModule>) {
        let Some(file) = self.program.files.get(mapped.file) else { return };
        let in_scope = self.code.scope().has_module(&file.seen_as, mapped.main);
        let base = mapped.bias.wrapping_add(file.rows.base.0);
        let piece = |start: u64, end: u64, in_scope: bool| CausalModule {
            start,
            end,
            base,
            in_scope,
            rows: Arc::clone(&file.rows),
            key: mapped.file as u64 + 1,
        };
        let mut at = mapped.start;
        if in_scope {
            let foreign = self.code.met(mapped.file).filter(|k| k.is_foreign()).take(MOST_HOLES);
            for hole in foreign {
                let (start, end) =
                    (hole.range.start.wrapping_add(mapped.bias), hole.range.end.wrapping_add(mapped.bias));
                if start < at || end > mapped.end {
                    continue;
                }
                if start > at {
                    into.push(piece(at, start, true));
                }
                into.push(piece(start, end, false));
                at = end;
            }
        }
        if at < mapped.end {
            into.push(piece(at, mapped.end, in_scope));
        }
    }

    /// Attaches points that need no code.
    ///
    /// # Errors
    /// The kernel's reason.
    pub(super) fn place_kernel_points(&mut self) -> Result<(), SessionError> {
        for i in 0..self.points.len() {
            let hook = match &self.points[i].spec.place {
                PointPlace::Syscall(number) => Hook::Syscall(*number),
                PointPlace::Tracepoint(group, name) => Hook::Tracepoint { group: group.clone(), name: name.clone() },
                _ => continue,
            };
            if let Hook::Tracepoint { group, name } = &hook {
                known_tracepoint(&self.points[i].spec, group, name)?;
            }
            self.points[i].index = Some(self.exec.point(&hook)?);
        }
        Ok(())
    }

    /// Attaches points to a program that is about to be executed, so that its first visits count.
    ///
    /// # Errors
    /// The kernel's reason.
    pub(super) fn place_before(&mut self, path: &str) -> Result<(), SessionError> {
        let Some(file) = self.program.file_at(path) else { return Ok(()) };
        for i in 0..self.points.len() {
            self.place(i, file, 0, true)?;
        }
        Ok(())
    }

    fn place_points(&mut self, pid: u32) -> Result<(), SessionError> {
        for mapped in self.program.modules_of(pid).to_vec() {
            for i in 0..self.points.len() {
                self.place(i, mapped.file, pid, mapped.main)?;
            }
        }
        Ok(())
    }

    /// Attaches a point wherever a file has it. In the main program for all processes that run it, so that
    /// children are counted from their first instruction; in libraries for this process only, so that others
    /// on the machine are not slowed down.
    fn place(&mut self, i: usize, file: usize, pid: u32, main: bool) -> Result<(), SessionError> {
        let place = self.points[i].spec.place.clone();
        let per_process = !main || matches!(place, PointPlace::Counter(_) | PointPlace::Sampled(_)) || !self.follow;
        let whom = if per_process { pid } else { 0 };
        let waits_for_memory = pid == 0 && per_process;
        if matches!(self.points[i].kind, PointKind::Kernel | PointKind::End) || waits_for_memory {
            return Ok(());
        }
        if !self.points[i].seen.insert((file, whom)) {
            return Ok(());
        }
        // What a program has itself is not looked for in its libraries, where a name may mean something else.
        if !main && self.points[i].in_main {
            return Ok(());
        }
        let found = points::find(&place, file, &self.program, &mut self.code);
        if found.is_empty() {
            if let Some(why) = found.refused {
                self.points[i].refused = Some(why);
            }
            // A program has more to tell than the wrapper without names that executes it.
            let nameless = |file: usize| points::is_nameless(&self.program.files[file], &self.code);
            if main && self.points[i].instead.as_ref().is_none_or(|(told, _)| nameless(*told)) {
                let of = &self.program.files[file];
                let text = points::instead(&place, of, &self.code);
                let told = self.points[i].instead.take();
                self.points[i].instead = text.map(|text| (file, text)).or(told);
            }
            return Ok(());
        }
        self.points[i].in_main |= main;
        self.points[i].files.insert(file);
        let done = self.attach(i, file, pid, whom, &found);
        // One that has ended meanwhile needs no point.
        if whom != 0 && done.is_err() && !self.exec.processes().contains(&whom) { Ok(()) } else { done }
    }

    fn attach(&mut self, i: usize, file: usize, pid: u32, whom: u32, found: &Found) -> Result<(), SessionError> {
        let of = &self.program.files[file];
        let path = PathBuf::from(&of.image.path);
        let mut hooks = Vec::new();
        for at in &found.code {
            let Some(offset) = to_offset(&of.image.segments, *at) else { continue };
            let (file, offset, pid) = (path.clone(), offset.0, (whom != 0).then_some(whom));
            hooks.push(if self.points[i].is_end {
                Hook::UprobeEnd { file, offset, pid }
            } else {
                Hook::Uprobe { file, offset, pid }
            });
        }
        if !found.sampled.is_empty() {
            let mut ranges = Vec::new();
            for range in &found.sampled {
                self.program.everywhere(file, range.start, range.end, &mut ranges);
            }
            hooks.push(Hook::Sampled { ranges });
        }
        for hook in hooks {
            match self.points[i].index {
                Some(index) => self.exec.also(index, &hook)?,
                None => self.points[i].index = Some(self.exec.point(&hook)?),
            }
        }
        if let Some(stated) = found.counter {
            let bias = self.program.modules_of(pid).iter().find(|m| m.file == file).map_or(0, |m| m.bias);
            let memory = Memory::open(pid)?;
            self.points[i].counters.push(Counter { memory, at: stated.0.wrapping_add(bias) });
        }
        Ok(())
    }

    /// Gives points the counters of marks of Coz that were reached meanwhile.
    fn place_coz_marks(&mut self) {
        for (pid, mark) in self.coz.look(&self.processes) {
            for point in &mut self.points {
                let is_it = matches!(&point.spec.place, PointPlace::Mark(name) if mark.is(name));
                // Where the file has a mark of ours with this name, that one counts.
                if !is_it || point.index.is_some() || !point.seen.insert((usize::MAX - mark.entry, pid)) {
                    continue;
                }
                // One that ends now needs none.
                if let Ok(memory) = Memory::open(pid) {
                    point.kind = PointKind::Counter;
                    point.counters.push(Counter { memory, at: mark.at });
                }
            }
        }
    }

    /// Points were added: all files are looked through again.
    pub(super) fn forget_places(&mut self) {
        self.looked = None;
        for pid in self.program.pids() {
            // What cannot be attached now is found missing by whoever waits for the points.
            let _ = self.place_points(pid);
        }
        self.coz.forget();
        self.place_coz_marks();
    }

    /// A file in scope, sampled, whose source lines are not known.
    pub(super) fn without_lines(&self) -> Option<&str> {
        let bare = |i: &usize| self.code.lines_known(*i) == Some(false);
        (0..self.program.files.len()).find(bare).map(|i| self.program.files[i].seen_as.as_str())
    }

    /// What the program has that resembles a target.
    pub(super) fn like_target(&self, target: &TargetSpec) -> Option<String> {
        self.program.files.iter().find_map(|of| points::like_target(target, of, &self.code))
    }

    /// Names of marks in the program, taken as points when the user names none.
    pub(super) fn own_marks(&self) -> Vec<String> {
        let mut marks = self.program.files.first().map(|of| points::own_marks(of, &self.code)).unwrap_or_default();
        for name in self.coz.names() {
            if !marks.contains(name) {
                marks.push(name.clone());
            }
        }
        marks
    }

    /// Takes in what was sampled; `plain`: no speed-up was on.
    pub(super) fn drain(&mut self, policy: &mut dyn CausalPolicy, stratum: u32, plain: bool) {
        let mut taken: Vec<CausalSample> = Vec::new();
        self.exec.samples(&mut |sample| taken.push(sample.clone()));
        for sample in &taken {
            self.take(sample, policy, stratum, plain);
        }
    }

    fn take(&mut self, sample: &CausalSample, policy: &mut dyn CausalPolicy, stratum: u32, plain: bool) {
        let hit = self.targets.hit(sample, &self.program, &mut self.code, &self.wanted);
        self.threads.saw(sample, &hit);
        for id in self.declared..self.targets.list.len() {
            policy.declare(id as u32, self.targets.list[id].unit, self.targets.parent(id as u32));
        }
        self.declared = self.targets.list.len();
        // A wait that nobody asked for is no time in which something could be made faster.
        if hit.is_empty() && sample.what != SampleWhat::Run {
            return;
        }
        if sample.what == SampleWhat::Run && !sample.kernel {
            self.look_for_spinning(sample);
            self.look_for_main(sample);
        }
        if sample.what == SampleWhat::Run {
            self.look_elsewhere(sample, !hit.is_empty());
            self.look_for_goroutines(sample);
        }
        let weight = u64::from(sample.weight);
        self.sampled = self.sampled.saturating_add(weight);
        if hit.is_empty() {
            policy.sampled(sample.t_ns, None, sample.weight);
            self.targets.count(None, stratum, plain, weight);
            return;
        }
        let (wanted, others): (Vec<u32>, Vec<u32>) =
            hit.into_iter().partition(|id| self.targets.is_wanted(*id, &self.wanted));
        if wanted.is_empty() {
            policy.sampled(sample.t_ns, None, sample.weight);
        } else {
            self.in_scope = self.in_scope.saturating_add(weight);
        }
        for id in &wanted {
            policy.sampled(sample.t_ns, Some(*id), sample.weight);
        }
        for id in wanted.into_iter().chain(others) {
            self.targets.count(Some(id), stratum, plain, weight);
        }
    }
}

impl Group {
    /// Whether a process, the only one, has all the code that it will ever have.
    pub(super) fn is_complete(&mut self, pid: u32) -> bool {
        let modules = self.program.modules_of(pid);
        let alone = self.processes.iter().all(|p| *p == pid);
        alone && !self.later.may_come(modules, &self.program.files, self.code.service())
    }

    fn look_for_main(&mut self, sample: &CausalSample) {
        let place = sample.frames.first().and_then(|pc| self.program.place(sample.pid, *pc));
        let is_main = |file: usize| self.program.modules_of(sample.pid).iter().any(|m| m.file == file && m.main);
        if let Some((file, _)) = place.filter(|(file, _)| is_main(*file)) {
            self.later.runs(file);
        }
    }

    /// Where samples lay that are in no code in scope.
    pub(super) fn elsewhere(&self) -> Stored {
        self.elsewhere.stored(|file| self.program.files.get(file).map(|f| f.seen_as.clone()))
    }

    /// Counts a sample by where it lies; `hit`: a target has it.
    fn look_elsewhere(&mut self, sample: &CausalSample, hit: bool) {
        let place = sample.frames.first().and_then(|pc| self.program.place(sample.pid, *pc));
        let file = place.map(|(file, _)| file);
        let in_scope = file.is_some_and(|f| self.is_in_scope(sample.pid, f));
        let what = Counted::of(sample.site, sample.kernel, in_scope, hit);
        self.elsewhere.count(what, file, u64::from(sample.weight));
    }

    fn is_in_scope(&self, pid: u32, file: usize) -> bool {
        let main = self.program.modules_of(pid).iter().any(|m| m.file == file && m.main);
        self.program.files.get(file).is_some_and(|of| self.code.scope().has_module(&of.seen_as, main))
    }

    /// The function that a goroutine began with is the outermost one of its stack that is not of Go's run-time system.
    fn look_for_goroutines(&mut self, sample: &CausalSample) {
        // Of a deep stack the outermost frames are not known.
        if sample.frames.len() >= whither_abi::causal::FRAMES {
            return;
        }
        let places = sample.frames.iter().enumerate().rev();
        for (i, frame) in places {
            let at = frame.wrapping_sub(u64::from(i > 0));
            let Some((file, stated)) = self.program.place(sample.pid, at) else { continue };
            let Some(of) = self.program.files.get(file) else { continue };
            let read = || self.code.service().file(&of.image).is_some_and(|bytes| is_go_program(&bytes));
            if !self.goroutines.is_go(file, read) {
                return;
            }
            let began = self.code.meet(file, of, stated);
            let name = self.code.function(file, stated).map_or("", |known| self.code.text(known.name));
            if let Some(began) = began.filter(|_| !name.starts_with("runtime.")) {
                self.goroutines.count(sample.tid, (file, Svma(began)), sample.weight);
                return;
            }
        }
    }

    fn look_for_spinning(&mut self, sample: &CausalSample) {
        let place = sample.frames.first().and_then(|pc| self.program.place(sample.pid, *pc));
        // Its clocks pause while the kernel sets them, which is hardly ever.
        let by_kernel = |file: usize| self.program.files.get(file).is_some_and(|f| f.image.kind == ImageKind::Vdso);
        let place = place.filter(|(file, _)| !by_kernel(*file));
        let (files, service) = (&self.program.files, self.code.service());
        let read = |range: Range<Svma>| {
            let image = &files.get(place?.0)?.image;
            let [start, end] = [range.start, range.end].map(|at| to_offset(&image.segments, at));
            service.code(image, start?..end?)
        };
        self.spinning.count(place, sample.weight, read);
        self.atomics.count(sample.tid, place, sample.weight, read);
    }
}

/// A tracepoint that is not there is a slip, told with what is there.
fn known_tracepoint(spec: &PointSpec, group: &str, name: &str) -> Result<(), SessionError> {
    let Some(root) = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"]
        .into_iter()
        .find(|root| std::path::Path::new(root).is_dir())
    else {
        return Ok(());
    };
    let dir = format!("{root}/{group}");
    if std::path::Path::new(&format!("{dir}/{name}")).is_dir() {
        return Ok(());
    }
    let list = |dir: &str| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).collect()
    };
    let mut near = points::nearest(name, &list(&dir));
    if near.is_empty() {
        near = points::nearest(group, &list(root));
    }
    let near = if near.is_empty() { String::new() } else { format!("; there are {}", near.join(", ")) };
    let why = format!("the kernel has no tracepoint {group}:{name}{near}");
    Err(SessionError::Point { text: spec.text.clone(), why })
}
