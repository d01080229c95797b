//! A tree of processes without agent, followed so that every program one of them executes can be given
//! one before its first instruction: launchers and shells stay traced, and run as always otherwise.
//! Their signals, stops and ends pass through unchanged. A process that got an agent is no longer traced.
//!
//! Nothing here blocks: while one program runs to its entry point the others run too, because one may
//! wait for the other.

use super::launch::approach::{Approach, Sign};
use super::remote::Caller;
use super::stop::{Stopped, note_end};
use crate::ProbeError;
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};
use whither_kernel::memory::Memory;
use whither_kernel::ptrace::{Event, Tracee, Untraceable, Watching, deprived};
use whither_kernel::{KernelError, proc};

/// How long threads may take to be let go.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was seen of a tree.
#[derive(Debug)]
pub enum Seen {
    /// A process stands at the entry point of a program it has executed, which [`Tree::new`]'s choice
    /// names. Inject, or give it back by [`Tree::keep`].
    Entry {
        /// Its thread.
        caller: Box<Caller>,
        /// Path of the program.
        exe: String,
    },
    /// A process has executed a program that cannot be stopped at its entry point. It runs.
    Passed {
        /// The process.
        pid: u32,
        /// Path of the program.
        exe: String,
        /// What is in the way.
        why: ProbeError,
    },
    /// A process made another one, which is followed too.
    Forked {
        /// Who made it.
        parent: u32,
        /// The new process.
        child: u32,
    },
    /// A process ended.
    Ended {
        /// The process.
        pid: u32,
        /// Status as a shell tells it.
        status: i32,
    },
}

/// Processes that are followed.
pub struct Tree {
    threads: Vec<Followed>,
    /// Caught, and running again.
    freed: Vec<u32>,
    choose: Box<dyn Fn(&str) -> bool>,
}

struct Followed {
    tracee: Tracee,
    approach: Option<Approach>,
    /// It is being stopped by the kernel's side, by a SIGSTOP that the program must not see.
    caught: bool,
}

impl Followed {
    fn new(tracee: Tracee) -> Self {
        Self { tracee, approach: None, caught: false }
    }

    /// Lets it run on, with a signal (0 = none).
    fn go(&self, signal: i32) -> Result<(), ProbeError> {
        match &self.approach {
            Some(approach) => approach.go(&self.tracee, signal),
            None => Ok(self.tracee.go(signal)?),
        }
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.threads.iter().map(|t| &t.tracee)).finish()
    }
}

/// What becomes of a thread after an event.
enum Then {
    Follow(Followed),
    Drop,
}

impl Tree {
    /// An empty tree; `choose` says by the path of a program whether it is to be stopped at its entry.
    #[must_use]
    pub fn new(choose: impl Fn(&str) -> bool + 'static) -> Self {
        Self { threads: Vec::new(), freed: Vec::new(), choose: Box::new(choose) }
    }

    /// Whether nobody is followed: then [`Self::poll`] need not be called.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Processes that are followed.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let pids: HashSet<u32> = self.threads.iter().map(|t| t.tracee.pid()).collect();
        pids.into_iter().collect()
    }

    /// Those of them that are on no way to an entry point.
    #[must_use]
    pub fn at_rest(&self) -> Vec<u32> {
        let moves =
            |pid: &u32| self.threads.iter().any(|t| t.tracee.pid() == *pid && (t.caught || t.approach.is_some()));
        self.pids().into_iter().filter(|pid| !moves(pid)).collect()
    }

    /// Whether anybody is on such a way, or about to set out.
    #[must_use]
    pub fn is_on_the_way(&self) -> bool {
        self.threads.iter().any(|t| t.caught || t.approach.is_some())
    }

    /// Lets a process that stands still run, and follows it.
    ///
    /// # Errors
    /// When it has ended.
    pub fn keep(&mut self, caller: Caller) -> Result<(), ProbeError> {
        let stopped = caller.into_stopped()?;
        self.follow(stopped)
    }

    /// Lets a stopped process run, and follows it.
    ///
    /// # Errors
    /// When it has ended.
    pub fn follow(&mut self, stopped: Stopped) -> Result<(), ProbeError> {
        for tracee in stopped.into_tracees() {
            tracee.watch(Watching::CHILDREN)?;
            tracee.go(0)?;
            self.threads.push(Followed::new(tracee));
        }
        Ok(())
    }

    /// Follows a launched program that stands at its entry point.
    pub(super) fn start(&mut self, tracee: Tracee) -> Result<(), ProbeError> {
        tracee.watch(Watching::CHILDREN)?;
        tracee.go(0)?;
        self.threads.push(Followed::new(tracee));
        Ok(())
    }

    /// Follows a process that has executed a program and was sent a SIGSTOP for our sake before its first
    /// instruction (see [`super::Execs`]). The stop ends with this.
    ///
    /// # Errors
    /// When it may not be traced or has ended; it then runs on.
    pub fn catch(&mut self, pid: u32) -> Result<(), ProbeError> {
        match Tracee::seize(pid, pid, Watching::CHILDREN) {
            Ok(tracee) => {
                self.threads.push(Followed { caught: true, ..Followed::new(tracee) });
                Ok(())
            }
            Err(e) => {
                go_on(pid);
                if !is_ours(&e) {
                    return Err(e.into());
                }
                // The kernel seized it when it was made: its exec is told by that way.
                self.freed.push(pid);
                Ok(())
            }
        }
    }

    /// Processes caught whose stop has ended since this was asked last.
    pub fn take_freed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.freed)
    }

    /// Takes what has happened since the last time; does not wait.
    ///
    /// # Errors
    /// Never for what single processes do: one that ends or cannot be brought to its entry point is only
    /// not followed any more.
    pub fn poll(&mut self) -> Result<Vec<Seen>, ProbeError> {
        let mut seen = Vec::new();
        let mut at = 0;
        // Children are added behind while their parents' events are taken.
        while at < self.threads.len() {
            match self.threads[at].tracee.poll() {
                Ok(None) => at += 1,
                Ok(Some(event)) => {
                    let followed = self.threads.swap_remove(at);
                    match self.advance(followed, event, &mut seen) {
                        Ok(Then::Follow(followed)) => {
                            self.threads.push(followed);
                            let last = self.threads.len() - 1;
                            self.threads.swap(at, last);
                            at += 1;
                        }
                        // Gone, or handed out; another one stands in its place now.
                        Ok(Then::Drop) | Err(_) => {}
                    }
                }
                // Ended with an exec of another thread of its process.
                Err(_) => drop(self.threads.swap_remove(at)),
            }
        }
        Ok(seen)
    }

    fn advance(&mut self, mut it: Followed, event: Event, seen: &mut Vec<Seen>) -> Result<Then, ProbeError> {
        let pid = it.tracee.pid();
        if it.approach.as_ref().is_some_and(|a| a.reached(&it.tracee, event)) {
            return Self::arrive(it);
        }
        match event {
            Event::Child(child) => self.add(pid, child, seen),
            // Seized so soon that the exec is told too: the stop that was sent for it is yet to come.
            Event::Exec(_) if it.caught => {}
            Event::Exec(_) => self.executed(&mut it, seen),
            Event::Signal(libc::SIGSTOP) if it.caught => {
                it.caught = false;
                self.freed.push(pid);
                self.executed(&mut it, seen);
            }
            Event::GroupStop(libc::SIGSTOP) if it.caught => {
                it.caught = false;
                self.executed(&mut it, seen);
                go_on(pid);
                self.freed.push(pid);
            }
            Event::Stopped if it.approach.as_ref().is_some_and(Approach::arrived) => {
                let regs = it.tracee.registers()?;
                let memory = Memory::open(pid)?;
                let caller = Box::new(Caller::on(it.tracee, regs, memory)?);
                seen.push(Seen::Entry { caller, exe: proc::exe(pid) });
                return Ok(Then::Drop);
            }
            Event::Signal(signal) => {
                it.go(signal)?;
                return Ok(Then::Follow(it));
            }
            Event::GroupStop(_) => {
                it.tracee.listen()?;
                return Ok(Then::Follow(it));
            }
            Event::Exited(status) => return Ok(ended(&it.tracee, event, status, seen)),
            Event::Killed(signal) => return Ok(ended(&it.tracee, event, 128 + signal, seen)),
            Event::Stopped | Event::Syscall => {}
        }
        it.go(0)?;
        Ok(Then::Follow(it))
    }

    /// It stands before the first instruction of another program.
    fn executed(&self, it: &mut Followed, seen: &mut Vec<Seen>) {
        it.approach = None;
        let pid = it.tracee.pid();
        let exe = proc::exe(pid);
        if deprived(Path::new(&exe)) {
            let why = KernelError::Untraceable { pid, why: Untraceable::Deprived }.into();
            seen.push(Seen::Passed { pid, exe, why });
            return;
        }
        if !(self.choose)(&exe) {
            return;
        }
        match Approach::begin(&it.tracee, Sign::Signal) {
            Ok(approach) => {
                if approach.arrived() {
                    // It fails for a process that is gone only.
                    let _ = it.tracee.interrupt();
                }
                it.approach = Some(approach);
            }
            Err(_) if super::stop::ended(pid, pid) => {}
            // It just runs on.
            Err(why) => seen.push(Seen::Passed { pid, exe, why }),
        }
    }

    /// It has come to its entry point: from here on to a plain stop there.
    fn arrive(mut it: Followed) -> Result<Then, ProbeError> {
        if let Some(approach) = &mut it.approach {
            approach.finish(&it.tracee)?;
        }
        it.tracee.interrupt()?;
        it.tracee.go(0)?;
        Ok(Then::Follow(it))
    }

    /// A thread or process that a followed one has made: the kernel has seized it for us.
    fn add(&mut self, parent: u32, child: u32, seen: &mut Vec<Seen>) {
        let process = proc::tgid(child).unwrap_or(child);
        self.threads.push(Followed::new(Tracee::adopt(process, child)));
        if process != parent {
            seen.push(Seen::Forked { parent, child: process });
        }
    }

    /// Lets everybody go.
    pub fn release(mut self) {
        self.let_go();
    }

    /// Lets a process go, which runs on; false when it is not followed. Its children stay followed.
    pub fn forget(&mut self, pid: u32) -> bool {
        let (theirs, others): (Vec<_>, Vec<_>) = self.threads.drain(..).partition(|t| t.tracee.pid() == pid);
        self.threads = others;
        let followed = !theirs.is_empty();
        self.threads.extend(let_go_of(theirs));
        followed
    }

    fn let_go(&mut self) {
        let mut threads = std::mem::take(&mut self.threads);
        while !threads.is_empty() {
            threads = let_go_of(threads);
        }
    }
}

/// Lets threads go. Those that they make meanwhile are traced too: of their own processes they are let go,
/// children come back.
fn let_go_of(mut threads: Vec<Followed>) -> Vec<Followed> {
    let end = Instant::now() + PATIENCE;
    let mut children = Vec::new();
    for it in &threads {
        // One that has just ended shows when it is waited for.
        let _ = it.tracee.interrupt();
    }
    while !threads.is_empty() && Instant::now() < end {
        let mut at = 0;
        while at < threads.len() {
            match threads[at].tracee.poll() {
                Ok(None) => at += 1,
                Ok(Some(event)) => {
                    let it = threads.swap_remove(at);
                    if let Event::Child(child) = event {
                        let process = proc::tgid(child).unwrap_or(child);
                        let made = Followed::new(Tracee::adopt(process, child));
                        if process == it.tracee.pid() { &mut threads } else { &mut children }.push(made);
                    }
                    leave(it, event);
                }
                Err(_) => drop(threads.swap_remove(at)),
            }
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    // Asleep where no signal reaches.
    for mut it in threads {
        if let Some(approach) = it.approach.take() {
            approach.cancel();
        }
        super::stop::into_limbo(it.tracee);
    }
    super::stop::tend();
    children
}

/// Lets go of a thread that this has happened to.
fn leave(mut it: Followed, event: Event) {
    if !event.stands() {
        return note_end(&it.tracee, event);
    }
    let mut event = event;
    match (&mut it.approach, event) {
        (Some(approach), _) if approach.reached(&it.tracee, event) => {
            // It fails for a process that is gone only.
            let _ = approach.finish(&it.tracee);
            event = Event::Stopped;
        }
        (_, Event::Signal(libc::SIGSTOP)) if it.caught => event = Event::Stopped,
        (_, Event::GroupStop(_)) if it.caught => {
            go_on(it.tracee.pid());
            event = Event::Stopped;
        }
        _ => {}
    }
    if let Some(approach) = it.approach.take() {
        approach.cancel();
    }
    super::stop::let_go(it.tracee, event);
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Whether it cannot be traced because we do already.
fn is_ours(error: &KernelError) -> bool {
    let KernelError::Untraceable { why: Untraceable::Traced { tracer, .. }, .. } = error else { return false };
    proc::tgid(*tracer) == Some(std::process::id())
}

/// Ends a stop: the program is new, so it has no handler that could see the signal.
fn go_on(pid: u32) {
    // SAFETY: kill(2) takes plain numbers; the process stands still, so the number is still its own.
    unsafe { libc::kill(pid as i32, libc::SIGCONT) };
}

fn ended(tracee: &Tracee, event: Event, status: i32, seen: &mut Vec<Seen>) -> Then {
    note_end(tracee, event);
    if tracee.tid() == tracee.pid() {
        seen.push(Seen::Ended { pid: tracee.pid(), status });
    }
    Then::Drop
}
