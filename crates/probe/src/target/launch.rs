//! A program started and stopped at its entry point: the loader has done its work, libraries are
//! initialised, not one instruction of the program itself has run. Static programs, scripts and shells
//! work alike: what stands there is whatever the kernel was made to execute.

pub(super) mod approach;

use super::remote::Caller;
use super::stop::{let_go, note_end, take_end, tend};
use crate::ProbeError;
use approach::{Approach, Sign};
use std::time::Duration;
use whither_kernel::launch::hold;
use whither_kernel::memory::Memory;
use whither_kernel::proc;
use whither_kernel::ptrace::{Event, Tracee, Watching, examine_program};

/// A process that stands at its program's entry point.
#[derive(Debug)]
pub struct Launched {
    tracee: Tracee,
    child: Child,
}

/// A process of ours whose end can be waited for.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    done: Option<i32>,
}

/// Starts a command. It has our standard streams, default signal dispositions, nothing else of ours.
///
/// # Errors
/// [`whither_kernel::KernelError::Launch`] when it cannot be executed.
pub fn launch(command: &[String]) -> Result<Launched, ProbeError> {
    command.first().map_or(Ok(()), |program| examine_program(program))?;
    let held = hold(command)?;
    let pid = held.pid();
    let tracee = Tracee::seize(pid, pid, Watching::EXECS)?;
    // An exec that fails ends the child, which `release` waits for.
    let _running = held.release()?;
    let mut child = Child { pid, done: None };
    match to_exec(&tracee).and_then(|()| to_entry(&tracee)) {
        Ok(()) => Ok(Launched { tracee, child }),
        Err(e) => {
            end(&tracee, &mut child);
            Err(e)
        }
    }
}

/// Ends a traced child: its end is for its tracer to wait for.
fn end(tracee: &Tracee, child: &mut Child) {
    child.signal(libc::SIGKILL);
    while let Ok(event) = tracee.wait() {
        if !event.stands() {
            note_end(tracee, event);
            break;
        }
    }
    child.wait();
}

/// Waits until the program has been executed.
fn to_exec(tracee: &Tracee) -> Result<(), ProbeError> {
    loop {
        match next(tracee)? {
            Event::Exec(_) => return Ok(()),
            Event::Signal(signal) => tracee.go(signal)?,
            _ => tracee.go(0)?,
        }
    }
}

/// Runs a process that has just executed a program to the program's entry point, where it then stands
/// so that calls can be made. Signals reach it as always.
fn to_entry(tracee: &Tracee) -> Result<(), ProbeError> {
    // Its calls stop it on the way: it is waited for, so each costs some microseconds only.
    let mut approach = Approach::begin(tracee, Sign::Call)?;
    if approach.arrived() {
        // From here to a plain stop, from which everything else starts.
        tracee.interrupt()?;
    }
    approach.go(tracee, 0)?;
    loop {
        match next(tracee)? {
            event if approach.reached(tracee, event) => {
                approach.finish(tracee)?;
                tracee.interrupt()?;
                tracee.go(0)?;
            }
            Event::Stopped if approach.arrived() => return Ok(()),
            Event::Signal(signal) => approach.go(tracee, signal)?,
            Event::GroupStop(_) => tracee.listen()?,
            _ => approach.go(tracee, 0)?,
        }
    }
}

/// What happens to a thread next; its end is an error.
fn next(tracee: &Tracee) -> Result<Event, ProbeError> {
    let event = tracee.wait()?;
    if event.stands() {
        return Ok(event);
    }
    note_end(tracee, event);
    Err(ProbeError::Ended { pid: tracee.pid(), what: "it was being started" })
}

impl Launched {
    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid
    }

    /// Its thread, for calls. The process stays where it is until the caller is released.
    ///
    /// # Errors
    /// When it has ended.
    pub fn into_caller(self) -> Result<(Caller, Child), ProbeError> {
        let regs = self.tracee.registers()?;
        let memory = Memory::open(self.child.pid)?;
        Ok((Caller::on(self.tracee, regs, memory)?, self.child))
    }

    /// Lets it run, untouched.
    #[must_use]
    pub fn release(self) -> Child {
        let_go(self.tracee, Event::Stopped);
        self.child
    }

    /// Lets it run, untouched and followed.
    ///
    /// # Errors
    /// When it has ended.
    pub fn follow(self, tree: &mut super::Tree) -> Result<Child, ProbeError> {
        tree.start(self.tracee)?;
        Ok(self.child)
    }

    /// Ends it before it has begun.
    pub fn abandon(mut self) {
        end(&self.tracee, &mut self.child);
    }
}

impl Child {
    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Status as a shell tells it (128+n for a signal), when it has ended.
    pub fn status(&mut self) -> Option<i32> {
        tend();
        self.done = self.done.or_else(|| take_end(self.pid)).or_else(|| self.reap());
        self.done
    }

    fn reap(&self) -> Option<i32> {
        // While it is traced its waits belong to those who trace it; they keep its end for us.
        let tracer = proc::tracer(self.pid);
        if tracer != 0 && proc::tgid(tracer) == Some(std::process::id()) {
            return None;
        }
        let tracee = Tracee::adopt(self.pid, self.pid);
        loop {
            match tracee.poll() {
                Ok(None) => return None,
                Ok(Some(Event::Exited(status))) => return Some(status),
                Ok(Some(Event::Killed(signal))) => return Some(128 + signal),
                // A stop that nobody waited for any more.
                Ok(Some(event)) => let_go(Tracee::adopt(self.pid, self.pid), event),
                Err(_) => return Some(127),
            }
        }
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> i32 {
        loop {
            if let Some(status) = self.status() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends it a signal; it may be gone.
    pub fn signal(&self, signal: i32) {
        if self.done.is_none() {
            // SAFETY: our own child, not reaped yet, so the id cannot be anybody else's.
            unsafe { libc::kill(self.pid as i32, signal) };
        }
    }
}
