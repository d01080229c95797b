//! One engine per target process tree: puts modules, patterns, stubs, stops and tables together. Lives
//! here: the public face and what a session goes through. Not here: how any of it is done (see the
//! sibling modules). Constraint: ptrace is bound to the OS thread, so an engine stays on one.

mod adding;
pub(crate) mod clock;
mod cost;
mod declared;
mod everywhere;
mod follow;
mod kernel_points;
mod late;
mod leaving;
mod lives;
mod loader;
mod ours;
mod pace;
mod pointed;
mod points;
mod polling;
mod seat;
mod tracers;
mod tree;
mod wait;
mod widening;

use crate::api::{
    Added, Candidate, Detached, Options, Order, PointAction, PointId, PointSpec, Refusal, Removed, Select,
};
use crate::apply::Haste;
use crate::apply::arena::Arenas;
use crate::error::ProbeError;
use crate::modules::{self, Modules, Rows};
use crate::resolve::{self, ModuleImage, ModuleView, Nothing};
use crate::segment::field;
use crate::snapshot::Reader;
use crate::target::{self, Caller, Child, Launched, Memory};
use follow::Follow;
pub use pointed::{CodePiece, PointedCalls, Sighting};
use points::Book;
use rustc_hash::FxHashSet;
use seat::Seat;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tree::Tree;
use whither_image::{Bytes, ImageId};
use whither_kernel::clock::monotonic_ns;
use whither_kernel::ptrace::examine;
use whither_store::calls::{CallSnapshot, PatchKind, PointState};

/// An instrumented process tree.
#[derive(Debug)]
pub struct Engine {
    pid: u32,
    options: Options,
    hold: Hold,
    child: Option<Child>,
    modules: Modules,
    seat: Option<Seat>,
    arenas: Arenas,
    book: Book,
    tree: Tree,
    reader: Reader,
    standing: Vec<(Vec<Order>, Vec<PointAction>)>,
    notes: Vec<String>,
    /// What orders chose nothing, as of the last look at all of them: a library loaded later may have it.
    missed: Vec<String>,
    /// Lines asked for that this program has, or another one of the tree had.
    lines: BTreeSet<String>,
    /// First bytes of everything written into text, five bytes each at most.
    claimed: FxHashSet<u64>,
    /// Patches of our own: the notice of the loader, what locks a program in.
    notices: Vec<crate::apply::Patch>,
    may_change: bool,
    /// When its processes were looked at last; `None`: it is time to.
    looked: Option<Instant>,
    follow: Follow,
    kernel: kernel_points::KernelPoints,
    throws_alone: OnceCell<bool>,
    /// Where a static program looks for unwind rules, if it can be told of the agent's there.
    unwinder: OnceCell<Option<Candidate>>,
}

/// How a launched process is kept from running.
#[derive(Debug)]
enum Hold {
    /// It runs.
    Runs,
    /// At its entry point, untouched.
    Entry(Launched),
    /// At its entry point, with its thread borrowed.
    Borrowed(Box<Caller>),
}

/// A file mapped executable in the target.
#[derive(Debug)]
pub struct Module {
    /// Path as the target saw it.
    pub path: String,
    /// Identity, when the file could be read.
    pub id: Option<ImageId>,
    /// Address in the target - stated address.
    pub bias: u64,
    /// Addresses `[start, end)` of its code in the target.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// The program itself.
    pub main: bool,
    /// Not mapped any more.
    pub gone: bool,
    pub(crate) inode: u64,
    pub(crate) file: Option<Bytes>,
    pub(crate) image: OnceCell<Option<Rc<ModuleImage>>>,
}

impl ModuleView for Module {
    fn path(&self) -> &str {
        &self.path
    }

    fn bias(&self) -> u64 {
        self.bias
    }

    fn mapped(&self) -> Range<u64> {
        self.start..self.end
    }

    fn is_main(&self) -> bool {
        self.main
    }

    fn image(&self) -> Option<&ModuleImage> {
        if self.gone {
            return None;
        }
        self.image.get_or_init(|| modules::image(self)).as_deref()
    }
}

/// What [`Engine::poll`] noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happening {
    /// A library was loaded.
    Loaded {
        /// Its path.
        module: String,
    },
    /// A process of the tree made a child.
    Forked {
        /// The child.
        pid: u32,
    },
    /// A process of the tree began another program, and it is instrumented.
    Executed {
        /// The process.
        pid: u32,
        /// Its executable.
        exe: String,
    },
    /// Standing orders found something.
    Added(Added),
    /// A process of the tree ended.
    Ended {
        /// The process.
        pid: u32,
        /// Exit status when we could learn it, 128 + n for a signal.
        status: Option<i32>,
    },
    /// A sentence for the user.
    Note(String),
}

impl Engine {
    fn new(pid: u32, options: Options, hold: Hold) -> Result<Self, ProbeError> {
        let follow = Follow::new(&options)?;
        let mut notes = Vec::new();
        if !clock::runs_evenly() {
            notes.push("this processor's time stamp counter does not run evenly: times are unreliable".to_string());
        }
        Ok(Self {
            pid,
            hold,
            child: None,
            modules: Modules::of(pid),
            seat: None,
            arenas: Arenas::default(),
            book: Book::default(),
            tree: Tree::begin(pid),
            reader: Reader::splitting(options.threads),
            options,
            standing: Vec::new(),
            notes,
            missed: Vec::new(),
            lines: BTreeSet::new(),
            claimed: FxHashSet::default(),
            notices: Vec::new(),
            may_change: true,
            looked: None,
            follow,
            kernel: kernel_points::KernelPoints::default(),
            throws_alone: OnceCell::new(),
            unwinder: OnceCell::new(),
        })
    }

    /// Starts a command and holds it at its entry point, libraries initialised, `main` not begun;
    /// [`Engine::resume`] lets it go. The agent comes in with the first point.
    ///
    /// # Errors
    /// [`ProbeError`] with the reason; nothing of ours runs then.
    pub fn launch(command: &[String], options: Options) -> Result<Self, ProbeError> {
        let launched = target::launch(command)?;
        let mut engine = Self::new(launched.pid(), options, Hold::Entry(launched))?;
        engine.note_safe();
        engine.note_loader();
        engine.tracer().into_iter().for_each(|note| engine.note(note));
        Ok(engine)
    }

    /// Puts the agent into a running process, which runs on; no point yet.
    ///
    /// # Errors
    /// [`ProbeError`] with the reason; the process is then as before.
    pub fn attach(pid: u32, options: Options) -> Result<Self, ProbeError> {
        is_open(pid)?;
        if !options.safe {
            match Self::take_over(pid, options.clone()) {
                // What a controller that died has left goes first.
                Ok(old) => {
                    if !old.detach()?.left.is_empty() {
                        return Self::take_over(pid, options);
                    }
                }
                Err(ProbeError::NoAgent { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut engine = Self::new(pid, options, Hold::Runs)?;
        engine.heed_filters();
        engine.note_safe();
        if !engine.options.safe {
            engine.place_agent()?;
        }
        Ok(engine)
    }

    /// Looks at a process without changing anything: [`Engine::resolve`], [`Engine::suggest`] and
    /// [`Engine::modules`] work, [`Engine::add`] does not.
    ///
    /// # Errors
    /// [`ProbeError`] when its memory may not be read.
    pub fn look(pid: u32, options: Options) -> Result<Self, ProbeError> {
        is_open(pid)?;
        let mut engine = Self::new(pid, options, Hold::Runs)?;
        engine.heed_filters();
        engine.may_change = false;
        Ok(engine)
    }

    /// Takes over a process whose controller is gone.
    ///
    /// # Errors
    /// [`ProbeError`], also when there is no agent in it or its controller lives.
    pub fn take_over(pid: u32, options: Options) -> Result<Self, ProbeError> {
        let mut engine = Self::new(pid, options, Hold::Runs)?;
        engine.take_seat()?;
        Ok(engine)
    }

    /// Lets a launched command run.
    ///
    /// # Errors
    /// [`ProbeError`] when it is gone.
    pub fn resume(&mut self) -> Result<(), ProbeError> {
        if self.seat.is_some() {
            // Takes time that is not the target's.
            self.watch_all();
        }
        // A process that runs has called probed functions since they were patched: all numbers begin at one moment. One that does
        // not run yet may be at its end a moment later.
        self.reset();
        self.let_run()
    }

    /// The process that was launched or attached to.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its modules, kept fresh by [`Engine::poll`]; unmapped ones stay in their places.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        self.modules.list()
    }

    /// All functions that match, with the way each would be patched.
    ///
    /// # Errors
    /// [`ProbeError`] for a pattern that is no regular expression.
    pub fn resolve(&mut self, orders: &[Order]) -> Result<Vec<Candidate>, ProbeError> {
        if !self.is_wanted() {
            return Ok(Vec::new());
        }
        let memory = Memory::open(self.pid)?;
        let read = |at: u64| memory.word(at).ok();
        let (numbers, patterns) = self.split(orders);
        let found = resolve::candidates(self.modules.list(), &patterns, &read)?;
        for note in found.notes {
            if !self.missed.contains(&note) {
                self.missed.push(note);
            }
        }
        self.lines.extend(found.lines);
        let mut all = found.candidates;
        all.extend(numbers);
        for candidate in &mut all {
            self.mark(candidate);
        }
        Ok(all)
    }

    /// Points named by number, and the orders that remain.
    fn split(&self, orders: &[Order]) -> (Vec<Candidate>, Vec<Order>) {
        let mut numbers = Vec::new();
        let mut patterns = Vec::new();
        for order in orders {
            match order {
                Order::Include(Select::Point(id)) => {
                    let living = self.standing_for(&[*id]).into_iter().next_back();
                    numbers.extend(self.book.get(living.unwrap_or(*id)).map(|p| p.candidate.clone()));
                }
                other => patterns.push(other.clone()),
            }
        }
        (numbers, patterns)
    }

    /// Says so of a candidate that is probed already, or cannot be in this way of working.
    fn mark(&self, candidate: &mut Candidate) {
        let standing = self.book.at(candidate.address);
        if let Some(id) = standing.filter(|_| self.widened_by(candidate).is_none()) {
            candidate.patch = Err(Refusal::Already(self.shown(id)));
        } else {
            self.choose_way(candidate);
        }
        // Uprobes see exits by their instructions, and leave return addresses alone.
        let by_address = candidate.patch != Ok(PatchKind::Uprobe);
        if candidate.entry_only.is_none() && by_address && self.throws_alone() && self.unwinder().is_none() {
            candidate.entry_only = Some(loader::NO_WAY_FOR_EXCEPTIONS.into());
        }
    }

    fn throws_alone(&self) -> bool {
        *self.throws_alone.get_or_init(|| target::throws_alone(self.pid))
    }

    /// Why orders choose nothing, where more is known than that no name matches.
    ///
    /// # Errors
    /// [`ProbeError`] for a pattern that is no regular expression.
    pub fn why_nothing(&self, orders: &[Order]) -> Result<Nothing, ProbeError> {
        let memory = Memory::open(self.pid)?;
        Ok(resolve::nothing(self.modules.list(), orders, &|at| memory.word(at).ok())?)
    }

    /// Names near a pattern that matched nothing.
    pub fn suggest(&mut self, pattern: &str) -> Vec<String> {
        resolve::suggest(self.modules.list(), pattern)
    }

    /// Adds points, all in one stop.
    ///
    /// # Errors
    /// [`ProbeError`] when the target could not be stopped; single functions are refused in the answer.
    pub fn add(&mut self, specs: &[PointSpec]) -> Result<Added, ProbeError> {
        self.add_points(specs)
    }

    /// Adds what matches in all other programs of the tree, and later in libraries loaded and programs
    /// executed.
    ///
    /// # Errors
    /// [`ProbeError`] for a pattern that is no regular expression.
    pub fn extend(&mut self, orders: &[Order], actions: &[PointAction]) -> Result<Added, ProbeError> {
        self.add_everywhere(orders, actions)
    }

    /// Takes points back, all of a program in one stop: the bytes of the text are the original ones again.
    /// Programs executed later are not given them.
    ///
    /// # Errors
    /// [`ProbeError`] when the target could not be stopped.
    pub fn remove(&mut self, ids: &[PointId]) -> Result<Removed, ProbeError> {
        self.remove_everywhere(ids)
    }

    /// Switches points on or off without stopping the target; valid from the next entry.
    pub fn enable(&mut self, ids: &[PointId], on: bool) {
        self.enable_points(&self.standing_for(ids), on);
        for (other, ids) in self.elsewhere(ids) {
            if let Some(other) = self.follow.others.get_mut(other) {
                other.enable_points(&ids, on);
            }
        }
    }

    fn enable_points(&mut self, ids: &[PointId], on: bool) {
        let (word, state) = if on {
            (whither_abi::agent::POINT_ON, PointState::On)
        } else {
            (whither_abi::agent::POINT_OFF, PointState::Off)
        };
        for &id in ids {
            let by_kernel = self.enable_by_kernel(id, on);
            let Some(point) = self.book.get_mut(id).filter(|p| p.state != PointState::Removed) else { continue };
            match &self.seat {
                _ if by_kernel => {}
                Some(seat) => seat.segment.set_point_state(point.index, word),
                None => continue,
            }
            point.state = state;
        }
    }

    /// Standing orders: applied by [`Engine::poll`] to libraries loaded and programs executed later.
    pub fn keep(&mut self, orders: Vec<Order>, actions: Vec<PointAction>) {
        self.standing = vec![(orders, actions)];
        // A process attached to has the agent already, one launched is worth it.
        if (self.seat.is_some() || !matches!(self.hold, Hold::Runs))
            && let Err(e) = self.listen()
        {
            self.note(format!("functions of libraries loaded later miss their first calls: {e}"));
        }
        if matches!(self.hold, Hold::Runs) {
            self.watch_all();
        }
    }

    /// Looks after the target: heartbeat, loader, forks, programs executed, ended threads and
    /// processes. Returns after `wait` at the latest.
    ///
    /// # Errors
    /// [`ProbeError`] when a fresh library could not be instrumented for lack of a stop.
    pub fn poll(&mut self, wait: Duration) -> Result<Vec<Happening>, ProbeError> {
        self.look_after(wait)
    }

    /// Everything counted so far; the target is not paused.
    pub fn snapshot(&mut self) -> CallSnapshot {
        self.settle_times();
        let first = self.own_snapshot();
        let mut all = self.joined(first);
        let CallSnapshot { notes, modules, .. } = &mut all;
        notes.retain(|note| !resolve::is_refuted(note, modules.iter().map(|m| m.path.as_str())));
        notes.retain(|note| !self.lines.iter().any(|line| resolve::is_of_line(note, line)));
        all
    }

    /// Of this program alone, with the numbers its tables have.
    fn own_snapshot(&mut self) -> CallSnapshot {
        self.look_around();
        let mut snapshot = CallSnapshot {
            modules: self.modules.described(),
            points: self.book.described(),
            notes: self.notes.iter().chain(&self.missed).cloned().collect(),
            ..CallSnapshot::default()
        };
        if let Some(seat) = &self.seat {
            let modules = &self.modules;
            let reading = self.reader.read(&seat.segment, &self.book, &|ra| modules.place(ra));
            let notes = reading.notes();
            snapshot.frames = reading.frames;
            snapshot.paths = reading.paths;
            snapshot.threads = reading.threads;
            snapshot.in_progress = reading.in_progress;
            snapshot.lost = reading.lost;
            snapshot.own_cost = reading.own_cost;
            if seat.unmeasured {
                let why = "it began before a call could be measured";
                snapshot.notes.push(format!("the probes' own cost is not known and not subtracted: {why}"));
            }
            let late = seat.segment.header32(field::LOADS_LATE);
            if late > 0 {
                let note = "loading a library did not wait for its functions to be probed, as this machine is busy";
                snapshot.notes.push(format!("{note} ({late} times): their first calls are not counted"));
            }
            snapshot.notes.extend(notes);
        }
        self.add_kernel_rows(&mut snapshot);
        // Behind the tables: what these hold lies within what it is a part of, however long reading them took.
        snapshot.whole = self.tree.whole();
        snapshot.at_ns = monotonic_ns();
        snapshot.processes = self.tree.described();
        crate::snapshot::clip(&mut snapshot);
        snapshot
    }

    /// Numbers count from here.
    pub fn reset(&mut self) {
        // Before the tables, for the same reason for which it is read behind them.
        self.tree.reset();
        if let Some(seat) = &self.seat {
            self.reader.reset(&seat.segment);
        }
        self.reset_kernel();
        self.reset_others();
    }

    /// Functions that a point's function calls directly, through its import table too.
    ///
    /// # Errors
    /// [`ProbeError`] when the point is unknown or its code cannot be read.
    pub fn callees(&mut self, id: PointId) -> Result<Vec<Candidate>, ProbeError> {
        let address = self.book.get(id).ok_or(ProbeError::NoPoint { id: id.0 })?.candidate.address;
        let memory = Memory::open(self.pid)?;
        let mut found = resolve::callees(self.modules.list(), address, &|at| memory.word(at).ok());
        found.iter_mut().for_each(|candidate| self.mark(candidate));
        Ok(found)
    }

    /// Functions that called a point's function so far.
    ///
    /// # Errors
    /// [`ProbeError`] when the point is unknown.
    pub fn callers(&mut self, id: PointId) -> Result<Vec<Candidate>, ProbeError> {
        self.book.get(id).ok_or(ProbeError::NoPoint { id: id.0 })?;
        let snapshot = self.own_snapshot();
        let row = snapshot.points.iter().position(|p| p.id == id.0);
        let of_it = snapshot.paths.iter().filter(|p| Some(p.point as usize) == row);
        let mut found: Vec<Candidate> = Vec::new();
        for path in of_it {
            let Some(address) = self.innermost(&snapshot, path) else { continue };
            let Some(mut candidate) = resolve::candidate_at(self.modules.list(), address) else { continue };
            if found.iter().all(|f| f.address != candidate.address) {
                self.mark(&mut candidate);
                found.push(candidate);
            }
        }
        Ok(found)
    }

    /// An address in the innermost caller of a path: in the call instruction, or the probed caller.
    fn innermost(&self, snapshot: &CallSnapshot, path: &whither_store::calls::CallPath) -> Option<u64> {
        match snapshot.frames.get(path.frame as usize) {
            Some(frame) => {
                let module = self.modules.list().get(frame.module as usize)?;
                Some(frame.offset.wrapping_add(module.bias).wrapping_sub(1))
            }
            None => {
                let parent = snapshot.paths.iter().find(|p| Some(p.id) == path.parent)?;
                self.book.list().get(parent.point as usize).map(|p| p.candidate.address)
            }
        }
    }

    /// Exit status of a launched command, once it has ended; 128 + n for a signal. Does not wait.
    pub fn status(&mut self) -> Option<i32> {
        self.see_traced();
        self.look_around();
        self.child.as_mut().and_then(Child::status)
    }

    /// The launched command, to be waited for after [`Engine::detach`].
    pub fn take_child(&mut self) -> Option<Child> {
        self.child.take()
    }

    /// Leaves the target: bytes and return addresses restored and verified, the agent unmapped.
    ///
    /// # Errors
    /// [`ProbeError`] when it could not be stopped; everything is then as before.
    pub fn detach(mut self) -> Result<Detached, ProbeError> {
        let others = self.leave_others();
        let mut detached = self.leave()?;
        detached.restored += others.restored + self.leave_kernel();
        detached.returns += others.returns;
        detached.pause = detached.pause.max(others.pause);
        detached.left.extend(others.left);
        Ok(detached)
    }

    /// Kills a launched command that was never let go.
    pub fn abandon(mut self) {
        match std::mem::replace(&mut self.hold, Hold::Runs) {
            Hold::Runs => {}
            Hold::Entry(launched) => launched.abandon(),
            Hold::Borrowed(caller) => {
                if let Some(child) = &self.child {
                    child.signal(libc::SIGKILL);
                }
                drop(caller);
                if let Some(child) = &mut self.child {
                    child.wait();
                }
            }
        }
    }

    /// Adds a sentence that every snapshot carries from now on.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// What uprobes alone do not see: children are found by looking, and their programs by the agent's way in.
    fn note_safe(&mut self) {
        if self.options.safe && self.options.follow {
            self.note("with uprobes alone (--safe) programs that it executes are not measured, and forked children from some milliseconds after the fork".into());
        }
    }

    /// Code of ours in the target, where no thread may be borrowed.
    fn our_code(&self) -> Vec<Range<u64>> {
        let mut ranges = self.arenas.ranges();
        ranges.extend(self.seat.as_ref().map(|s| s.placed.image.clone()));
        ranges
    }

    /// Puts the agent in, with rows of all modules, and measures its cost.
    fn place_agent(&mut self) -> Result<(), ProbeError> {
        if self.seat.is_some() || !self.may_change {
            return Ok(());
        }
        if let Hold::Entry(_) = self.hold {
            let Hold::Entry(launched) = std::mem::replace(&mut self.hold, Hold::Runs) else { return Ok(()) };
            let (caller, child) = launched.into_caller()?;
            self.child = Some(child);
            self.hold = Hold::Borrowed(Box::new(caller));
        }
        // The long part first, while the target runs.
        let all: Vec<usize> = (0..self.modules.list().len()).collect();
        let rows = Rows::of_all(&self.modules.list().iter().collect::<Vec<_>>());
        // Both are asked for while a thread is borrowed, and take milliseconds the first time.
        clock::Clock::get();
        Rows::of_agent();
        clock::prepare_events();
        let ahead = self.modules.ahead();
        self.locker().into_iter().for_each(|note| self.note(note));
        let _haste = Haste::begin();
        let mut borrowed;
        let caller = match &mut self.hold {
            Hold::Borrowed(caller) => caller,
            _ => {
                borrowed = Caller::pick(self.pid)?;
                &mut borrowed
            }
        };
        let mut seat = Seat::take(caller, &self.options)?;
        seat.segment.set_header32(field::AHEAD, ahead);
        let calibrated = match self.follow.cost {
            Some(cost) => {
                seat.set_cost(cost);
                Ok(())
            }
            None => seat.calibrate_apart(caller, &mut self.arenas, &mut self.reader),
        };
        self.follow.cost = (calibrated.is_ok() && !seat.unmeasured).then(|| seat.cost());
        seat.segment.forget_lost();
        let notes = self.modules.publish(&seat.segment, &all, rows);
        self.seat = Some(seat);
        notes.into_iter().for_each(|n| self.note(n));
        if let Err(e) = calibrated {
            self.note(format!("the probes' own cost could not be measured ({e}) and is not subtracted"));
        }
        // What a thread of the target was borrowed for is no time of a program that has not begun.
        if matches!(self.hold, Hold::Borrowed(_)) {
            self.tree.reset();
        }
        Ok(())
    }
}

/// Whether a process lets us in; if not, what stands in the way.
fn is_open(pid: u32) -> Result<(), ProbeError> {
    match Memory::open(pid) {
        Ok(_) => Ok(()),
        Err(e) => {
            examine(pid)?;
            Err(e.into())
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.leave_others();
        if self.seat.is_some() {
            // Whoever wants to know calls `detach`.
            let _ = self.leave();
        }
    }
}
