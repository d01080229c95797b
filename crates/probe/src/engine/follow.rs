//! Programs that the tree executes. Each that matches the standing orders gets an agent, tables and an
//! engine of its own before its first instruction; launchers and shells without a match are only traced,
//! to their next program. Lives here: whom to follow, how, and what becomes of a program at its entry
//! point. Not here: stopping and tracing (`target`), adding the numbers up (`snapshot`).
//!
//! Two ways lead to an entry point. Processes without agent are traced by us all the while. Those with
//! one run free; the kernel's side stops them when they execute something.

use super::cost::Cost;
use super::late::Known;
use super::tree::Tree as Processes;
use super::{Engine, Happening, Hold};
use crate::api::{Added, Detached, Options, Refusal};
use crate::apply::sleep_promptly;
use crate::error::ProbeError;
use crate::segment::{Segment, field};
use crate::select::SelectError;
use crate::snapshot::Merge;
use crate::target::{Caller, Execs, Seen, Told, Tree, Watch};
use regex::Regex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use whither_kernel::clock::monotonic_ns;
use whither_kernel::{KernelError, proc};
use whither_store::calls::CallSnapshot;

/// So long after an event the next one is expected at once.
const LIVELY: Duration = Duration::from_millis(10);
/// Sleep between two looks at traced processes: after an event, and else.
const SHORT: Duration = Duration::from_micros(100);
/// The same while a program is on the way to its entry point, where it stands until we look.
const SHORTEST: Duration = Duration::from_micros(10);
const LONG: Duration = Duration::from_millis(1);
/// Sleep between two looks at the loaders and processes of other programs.
const ROUND: Duration = Duration::from_millis(20);

/// Everything about programs executed in a tree.
#[derive(Debug)]
pub(crate) struct Follow {
    /// Part of another engine, which follows for it.
    pub(super) inner: bool,
    over: bool,
    programs: Programs,
    kernel: Kernel,
    pub(super) tree: Tree,
    /// Programs executed, with their engines.
    pub(super) others: Vec<Engine>,
    pub(super) merge: Option<Merge>,
    /// Processes that are only traced.
    pub(super) launchers: Processes,
    watched: FxHashSet<u32>,
    /// What was refused in one program needs no second sentence for the next.
    refused: FxHashSet<String>,
    /// Functions that were taken back: programs executed later do not get them either. Module, address.
    pub(super) withdrawn: FxHashSet<(String, u64)>,
    /// Code of processes without agent.
    pub(super) known: Known,
    /// What a probed call costs, once it was measured.
    pub(super) cost: Option<Cost>,
    /// What was seen of the time that programs stood still before their first instructions.
    held: Held,
    /// The first process executes something else now.
    pub(super) left: bool,
    ended: bool,
    lively: Instant,
    looked: Instant,
}

/// Which executables are measured.
#[derive(Clone, Debug)]
enum Programs {
    All,
    Only(Regex),
}

/// The kernel's side.
#[derive(Debug)]
enum Kernel {
    NotAsked,
    Has {
        execs: Box<Execs>,
        _waker: Option<Waker>,
    },
    /// What is missed for it, where a probed process could execute something.
    Refused(String),
    Gone,
}

/// How long programs stood still for our sake before their first instructions. What passed before we heard of it is not
/// in it.
#[derive(Debug, Default)]
struct Held {
    since: FxHashMap<u32, Instant>,
    programs: u64,
    time: Duration,
}

impl Held {
    fn begins(&mut self, pid: u32) {
        self.since.insert(pid, Instant::now());
    }

    /// At the entry point, once for each program that comes there.
    fn arrives(&mut self, pid: u32) {
        self.programs += 1;
        self.begins(pid);
    }

    fn ends(&mut self, pid: u32) {
        if let Some(since) = self.since.remove(&pid) {
            self.time += since.elapsed();
        }
    }

    /// For whoever takes that time for the program's own.
    fn note(&self) -> Option<String> {
        let (programs, ms) = (self.programs, self.time.as_secs_f64() * 1e3);
        (programs > 0).then(|| {
            format!(
                "at least {ms:.1} ms in all passed while executed programs were held to look into them (programs: {programs}): that is in \
                 the times of those who waited for them, and not in the own cost (--follow none does without)"
            )
        })
    }
}

impl Programs {
    fn take(&self, exe: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(pattern) => pattern.is_match(exe),
        }
    }
}

impl Follow {
    pub(super) fn new(options: &Options) -> Result<Self, ProbeError> {
        let programs = match &options.executables {
            None => Programs::All,
            Some(pattern) => Programs::Only(compile(pattern)?),
        };
        let choose = programs.clone();
        Ok(Self {
            inner: false,
            over: !options.follow,
            programs,
            kernel: Kernel::NotAsked,
            tree: Tree::new(move |exe| choose.take(exe)),
            others: Vec::new(),
            merge: None,
            launchers: Processes::default(),
            watched: FxHashSet::default(),
            refused: FxHashSet::default(),
            withdrawn: FxHashSet::default(),
            known: Known::default(),
            cost: None,
            held: Held::default(),
            left: false,
            ended: false,
            lively: Instant::now(),
            looked: Instant::now(),
        })
    }

    /// Whether somebody else has to be looked after than the first program.
    pub(super) fn is_busy(&self) -> bool {
        !self.tree.is_empty() || !self.others.is_empty()
    }

    fn pause(&self) -> Duration {
        match self.lively.elapsed() < LIVELY {
            true if self.tree.is_on_the_way() => SHORTEST,
            true => SHORT,
            false => LONG,
        }
    }

    fn execs(&self) -> Option<&Execs> {
        match &self.kernel {
            Kernel::Has { execs, .. } => Some(execs),
            _ => None,
        }
    }
}

impl Engine {
    /// Whether programs executed from here on shall be looked at.
    pub(super) fn follows(&self) -> bool {
        !self.follow.over && !self.follow.inner && !self.standing.is_empty() && self.may_change && !self.options.safe
    }

    /// Whether the program may be measured at all.
    pub(super) fn is_wanted(&self) -> bool {
        self.follow.programs.take(&proc::exe(self.pid))
    }

    /// Whether another engine answers for programs that this one's processes execute.
    pub(super) fn is_followed(&self) -> bool {
        self.follow.inner || self.follow.execs().is_some()
    }

    /// Lets the process run that is held, followed in the way that suits it.
    pub(super) fn let_run(&mut self) -> Result<(), ProbeError> {
        match std::mem::replace(&mut self.hold, Hold::Runs) {
            Hold::Runs => {}
            Hold::Entry(launched) if self.follows() => {
                self.count(self.pid);
                self.child = Some(launched.follow(&mut self.follow.tree)?);
            }
            Hold::Entry(launched) => self.child = Some(launched.release()),
            Hold::Borrowed(caller) if !self.is_measured() && self.follows() => {
                self.count(self.pid);
                self.follow.tree.keep(*caller)?;
            }
            Hold::Borrowed(caller) => {
                self.watch_all();
                let _ = caller.release();
            }
        }
        Ok(())
    }

    /// Has the kernel's side watch all processes that share an agent.
    pub(super) fn watch_all(&mut self) {
        if !self.follows() {
            return;
        }
        let pids = if self.is_measured() { self.tree.alive() } else { Vec::new() };
        for pid in pids {
            self.watch(pid);
        }
    }

    pub(super) fn watch(&mut self, pid: u32) {
        if !self.follow.watched.insert(pid) {
            return;
        }
        self.ask_kernel();
        // Those without probes are traced, and what they execute is seen all the same.
        if let Kernel::Refused(why) = &self.follow.kernel {
            let why = why.clone();
            self.note(why);
        }
        if let Some(execs) = self.follow.execs()
            && let Err(e) = execs.watch(pid, Watch::Stop, self.tree.since(pid))
        {
            self.note(format!("programs that process {pid} executes are not measured: {e}"));
        }
    }

    /// Has the kernel's side tell how much processor time a traced process will have used, and its children.
    fn count(&mut self, pid: u32) {
        self.ask_kernel();
        if let Some(execs) = self.follow.execs() {
            // Without it the time is the last one read before the end.
            let _ = execs.watch(pid, Watch::Count, monotonic_ns());
        }
    }

    fn ask_kernel(&mut self) {
        if !matches!(self.follow.kernel, Kernel::NotAsked) {
            return;
        }
        self.follow.kernel = match Execs::load() {
            Ok(execs) => {
                let waker = self.seat.as_ref().and_then(|seat| Waker::start(&execs, &seat.segment));
                Kernel::Has { execs: Box::new(execs), _waker: waker }
            }
            Err(e) => Kernel::Refused(format!(
                "programs that probed processes execute (system, popen, fork and exec) are not measured: the kernel refused to tell \
                 of them ({e}); as root, or with CAP_BPF and CAP_PERFMON, it does"
            )),
        };
    }

    /// Looks after traced processes, programs executed, and their engines; does not wait.
    pub(super) fn follow_on(&mut self, happened: &mut Vec<Happening>) {
        let told = self.follow.execs().map(Execs::take).unwrap_or_default();
        let mut lively = !told.is_empty();
        for one in told {
            self.hear(one, happened);
        }
        // It never fails for what single processes do.
        let seen = self.follow.tree.poll().unwrap_or_default();
        let freed = self.follow.tree.take_freed();
        for pid in freed {
            self.follow.held.ends(pid);
            if let Some(execs) = self.follow.execs() {
                execs.caught(pid);
            }
        }
        lively |= !seen.is_empty();
        for one in seen {
            self.see(one, happened);
        }
        if lively {
            self.follow.lively = Instant::now();
        }
        self.look_at_others(happened);
    }

    /// The end of a traced process is told to whoever traces it, so here first.
    pub(super) fn see_traced(&mut self) {
        if !self.follow.tree.is_empty() {
            self.follow_on(&mut Vec::new());
        }
    }

    /// Waits for something to look after, at most so long.
    pub(super) fn rest(&mut self, limit: Duration, happened: &mut Vec<Happening>) {
        let until = Instant::now() + limit;
        while happened.is_empty() && !self.is_called() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            sleep_promptly(self.follow.pause().min(left));
            self.follow_on(happened);
        }
    }

    /// Whether the loader has something to tell.
    fn is_called(&self) -> bool {
        let called = |s: &Segment| s.header32(field::LOADS) != s.header32(field::LOADS_SEEN);
        !self.follow.left && self.seat.as_ref().is_some_and(|seat| called(&seat.segment))
    }

    fn hear(&mut self, told: Told, happened: &mut Vec<Happening>) {
        match told {
            Told::Forked { parent, child } => {
                self.follow.watched.insert(child);
                let newborn = self.has_child(parent, child)
                    || self.follow.others.iter_mut().any(|other| other.has_child(parent, child));
                if newborn {
                    happened.push(Happening::Forked { pid: child });
                }
            }
            Told::Executed { pid, stopped } => {
                self.follow.watched.remove(&pid);
                self.leaves(pid);
                self.follow.others.iter_mut().for_each(|other| other.leaves(pid));
                if stopped {
                    self.follow.held.begins(pid);
                }
                let caught = if stopped { self.follow.tree.catch(pid) } else { Ok(()) };
                self.follow.launchers.renew(pid);
                if !stopped || caught.is_err() {
                    let why = caught.err().map(|e| e.to_string()).unwrap_or_else(|| why_not_stopped(pid));
                    let exe = proc::exe(pid);
                    // A debugger's children come in hundreds: one sentence per program.
                    if self.follow.refused.insert(format!("{exe}: {why}")) {
                        happened
                            .push(Happening::Note(format!("{exe} executed by process {pid} is not measured: {why}")));
                    }
                }
            }
        }
    }

    /// A process of ours has made a child, which shares the agent.
    fn has_child(&mut self, parent: u32, child: u32) -> bool {
        self.tree.add_child(parent, child)
    }

    /// A process executes something else: it is none of this engine's any more.
    fn leaves(&mut self, pid: u32) {
        let mine = self.tree.leave(pid);
        if mine {
            // Breakpoints are the process's, not the program's.
            self.bury_by_kernel();
        }
        if mine && pid == self.pid {
            self.follow.left = true;
        }
    }

    fn see(&mut self, seen: Seen, happened: &mut Vec<Happening>) {
        match seen {
            Seen::Forked { child, .. } => {
                self.follow.launchers.add(child, true);
            }
            // One sentence per program, however often it is executed.
            Seen::Passed { exe, why, .. } => {
                let why = match why {
                    ProbeError::Kernel(KernelError::Untraceable { why, .. }) => why.to_string(),
                    other => other.to_string(),
                };
                if self.follow.refused.insert(format!("{exe}: {why}")) {
                    happened.push(Happening::Note(format!("{exe} is not measured: {why}")));
                }
            }
            Seen::Ended { pid, status } => {
                if let Some(process) = self.follow.launchers.list.iter_mut().rfind(|p| p.pid == pid) {
                    process.status = Some(status);
                }
            }
            Seen::Entry { caller, exe } => {
                let pid = caller.pid();
                self.follow.held.arrives(pid);
                let arrived = self.arrive(*caller, &exe, happened);
                self.follow.held.ends(pid);
                if let Err(e) = arrived
                    && !matches!(e, ProbeError::Ended { .. })
                {
                    happened.push(Happening::Note(format!("{exe} executed by process {pid} is not measured: {e}")));
                }
            }
        }
    }

    /// A process stands at the entry point of a program.
    fn arrive(&mut self, caller: Caller, exe: &str, happened: &mut Vec<Happening>) -> Result<(), ProbeError> {
        let pid = caller.pid();
        let mut refused = Vec::new();
        if pid == self.pid && self.seat.is_none() && self.book.list().is_empty() {
            // The launcher has become what it launches.
            self.tree.renew(pid);
            self.modules = crate::modules::Modules::of(pid);
            self.hold = Hold::Borrowed(Box::new(caller));
            let obeyed = self.obey(&mut refused);
            self.let_run()?;
            obeyed?;
            if self.is_measured() {
                happened.push(Happening::Executed { pid, exe: exe.to_string() });
            } else {
                self.follow.known.renew(pid);
            }
        } else {
            let mut other = self.engine_for(pid, Hold::Borrowed(Box::new(caller)))?;
            other.tracer().into_iter().for_each(|note| self.note(note));
            let obeyed = other.obey(&mut refused);
            self.follow.cost = self.follow.cost.or(other.follow.cost);
            if other.is_measured() {
                self.follow.launchers.leave(pid);
                // Before it runs, for it may execute the next program at once.
                self.watch(pid);
                other.let_run()?;
                self.follow.others.push(other);
                happened.push(Happening::Executed { pid, exe: exe.to_string() });
            } else if let Hold::Borrowed(caller) = std::mem::replace(&mut other.hold, Hold::Runs) {
                self.follow.launchers.renew(pid);
                self.follow.known.renew(pid);
                self.follow.tree.keep(*caller)?;
            }
            obeyed?;
        }
        self.tell_refused(refused, happened);
        Ok(())
    }

    /// An engine for another program of the tree.
    pub(super) fn engine_for(&self, pid: u32, hold: Hold) -> Result<Self, ProbeError> {
        let mut other = Self::new(pid, self.options.clone(), hold)?;
        other.follow.inner = true;
        other.standing.clone_from(&self.standing);
        other.follow.withdrawn.clone_from(&self.follow.withdrawn);
        other.follow.cost = self.follow.cost;
        Ok(other)
    }

    /// What was not told yet.
    pub(super) fn tell_refused(&mut self, mut refused: Vec<(String, Refusal)>, happened: &mut Vec<Happening>) {
        refused.retain(|(name, why)| self.follow.refused.insert(format!("{name}: {why}")));
        if !refused.is_empty() {
            happened.push(Happening::Added(Added { refused, ..Added::default() }));
        }
    }

    /// Applies the standing orders to a program; without match nothing is put in, unless it may load libraries.
    pub(super) fn obey(&mut self, refused: &mut Vec<(String, Refusal)>) -> Result<(), ProbeError> {
        let specs = self.ordered()?;
        refused.extend(self.add_points(&specs)?.refused);
        if matches!(self.hold, Hold::Borrowed(_)) { self.listen() } else { Ok(()) }
    }

    /// Loaders and ends of the other programs.
    fn look_at_others(&mut self, happened: &mut Vec<Happening>) {
        let due = self.follow.looked.elapsed() >= ROUND;
        if due {
            self.follow.looked = Instant::now();
            self.settle_times();
            self.look_for_libraries(happened);
        }
        let mut at = 0;
        while let Some(other) = self.follow.others.get_mut(at) {
            at += 1;
            if !due && !other.is_called() {
                continue;
            }
            let mut news = Vec::new();
            if let Err(e) = other.look_once(&mut news) {
                news.push(Happening::Note(format!("process {}: {e}", other.pid)));
            }
            self.lines.extend(other.lines.iter().cloned());
            let first = self.pid;
            // The end of the first process is told in its own place.
            happened.extend(news.into_iter().filter(|h| !matches!(h, Happening::Ended { pid, .. } if *pid == first)));
            if due && self.follow.others[at - 1].tree.alive().is_empty() {
                at -= 1;
                let other = self.follow.others.swap_remove(at);
                self.bury_program(other);
            }
        }
        if due && self.follow.left {
            self.first_ended(happened);
        }
    }

    /// Times of processes that have ended since they were looked at last.
    pub(super) fn settle_times(&mut self) {
        let Follow { launchers, others, kernel: Kernel::Has { execs, .. }, .. } = &mut self.follow else { return };
        let used = |pid: u32| execs.used(pid);
        let lived = |pid: u32| execs.lived(pid);
        let trees = others.iter_mut().map(|other| &mut other.tree);
        for tree in trees.chain([launchers, &mut self.tree]) {
            tree.look();
            tree.count_lives(&lived);
            tree.settle(&used);
        }
    }

    /// A program has ended: its numbers stay.
    fn bury_program(&mut self, mut other: Self) {
        if let Some(execs) = self.follow.execs() {
            other.tree.count_lives(&|pid| execs.lived(pid));
            other.tree.settle(&|pid| execs.used(pid));
        }
        let last = other.own_snapshot();
        self.follow.merge.get_or_insert_default().keep(last);
        // Nobody is there to be left in order.
        other.seat = None;
    }

    /// The first process has executed something else before it ended.
    fn first_ended(&mut self, happened: &mut Vec<Happening>) {
        if self.follow.ended || Processes::lives(self.pid) {
            return;
        }
        self.follow.ended = true;
        let status = self.child.as_mut().and_then(|c| c.status());
        happened.push(Happening::Ended { pid: self.pid, status });
    }

    /// All programs' numbers together.
    pub(super) fn joined(&mut self, mut first: CallSnapshot) -> CallSnapshot {
        first.notes.extend(self.follow.held.note());
        let launchers = &mut self.follow.launchers;
        let alone = self.follow.others.is_empty() && self.follow.merge.is_none() && launchers.list.is_empty();
        // A library that was unloaded and loaded again is one for the user, wherever it stands now.
        if alone && !self.modules.has_come_again() {
            return first;
        }
        // Their time is part of the whole; they are not among the processes that are measured.
        let whole = launchers.whole();
        let mut others: Vec<CallSnapshot> = vec![CallSnapshot { whole, ..CallSnapshot::default() }];
        others.extend(self.follow.others.iter_mut().map(Self::own_snapshot));
        self.follow.merge.get_or_insert_default().join(first, others)
    }

    /// Numbers of all programs count from here.
    pub(super) fn reset_others(&mut self) {
        self.follow.launchers.reset();
        self.follow.others.iter_mut().for_each(Self::reset);
        if let Some(merge) = &mut self.follow.merge {
            merge.reset();
        }
    }

    /// Lets go of everybody who is traced, and leaves the other programs.
    pub(super) fn leave_others(&mut self) -> Detached {
        self.follow.over = true;
        if let Kernel::Has { execs, .. } = std::mem::replace(&mut self.follow.kernel, Kernel::Gone) {
            execs.forget_all();
            // Who was on the way to a stop meanwhile has come there.
            std::thread::sleep(Duration::from_millis(1));
            for told in execs.take() {
                if let Told::Executed { pid, stopped: true } = told {
                    self.leaves(pid);
                    self.follow.others.iter_mut().for_each(|other| other.leaves(pid));
                    let _ = self.follow.tree.catch(pid);
                }
            }
        }
        std::mem::replace(&mut self.follow.tree, Tree::new(|_| false)).release();
        let mut all = Detached::default();
        for mut other in std::mem::take(&mut self.follow.others) {
            match other.leave() {
                Ok(one) => {
                    all.restored += one.restored;
                    all.returns += one.returns;
                    all.pause = all.pause.max(one.pause);
                    all.left.extend(one.left);
                }
                Err(e) => all.left.push(format!("process {}: {e}", other.pid)),
            }
            let last = other.own_snapshot();
            self.follow.merge.get_or_insert_default().keep(last);
        }
        all
    }
}

fn compile(pattern: &str) -> Result<Regex, SelectError> {
    Regex::new(pattern).map_err(|e| SelectError::Regex { text: pattern.into(), why: e.to_string() })
}

/// A thread that wakes the engine out of its sleep on the loader's word when the kernel's side has
/// something to tell.
#[derive(Debug)]
struct Waker {
    stop: Arc<AtomicBool>,
}

impl Waker {
    fn start(execs: &Execs, segment: &Arc<Segment>) -> Option<Self> {
        // SAFETY: the descriptor is open as long as `execs` lives, which is longer than this call.
        let ring = unsafe { BorrowedFd::borrow_raw(execs.descriptor()) };
        let ring: OwnedFd = ring.try_clone_to_owned().ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, segment) = (Arc::clone(&stop), Arc::clone(segment));
        let wake = move || {
            while !stopped.load(Ordering::Relaxed) {
                if is_readable(&ring, Duration::from_millis(100)) {
                    segment.wake(field::LOADS);
                    // Until it has been read; the engine may be about to fall asleep.
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        };
        std::thread::Builder::new().name("programs".into()).spawn(wake).ok()?;
        Some(Self { stop })
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn is_readable(descriptor: &OwnedFd, limit: Duration) -> bool {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: poll(2) reads and writes the one entry given.
    unsafe { libc::poll(&raw mut poll, 1, limit) > 0 }
}

/// Why the kernel's side has let a process go on that executes a program.
fn why_not_stopped(pid: u32) -> String {
    match proc::status_word(pid, "TracerPid:").and_then(|word| word.parse().ok()) {
        Some(tracer) if tracer != 0 => format!("process {tracer} ({}) traces it", proc::exe(tracer)),
        _ => "it could not be stopped".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_held_at_exec_is_told() {
        let mut held = Held::default();
        assert_eq!(held.note(), None, "nobody was held");
        held.begins(7);
        held.ends(7);
        held.arrives(7);
        std::thread::sleep(Duration::from_millis(2));
        held.ends(7);
        held.ends(7);
        assert!(held.time >= Duration::from_millis(2) && held.since.is_empty());
        assert!(held.note().is_some_and(|note| note.contains("(programs: 1)")));
    }
}
