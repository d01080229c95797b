//! One engine per target process tree: puts modules, patterns, stubs, stops and tables together. Lives
//! here: the public face and what a session goes through. Not here: how any of it is done (see the
//! sibling modules). Constraint: ptrace is bound to the OS thread, so an engine stays on one.

use crate::api::{Added, Candidate, Detached, Options, Order, PointAction, PointId, PointSpec, Removed};
use crate::error::ProbeError;
use std::time::Duration;
use whither_store::calls::CallSnapshot;

/// An instrumented process tree.
#[derive(Debug)]
pub struct Engine {
    pid: u32,
}

/// A file mapped executable in the target.
#[derive(Debug)]
pub struct Module {
    /// Path as the target saw it.
    pub path: String,
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
    /// Starts a command and holds it at its entry point, libraries initialised, `main` not begun;
    /// [`Engine::resume`] lets it go.
    ///
    /// # Errors
    /// [`ProbeError`] with the reason; nothing of ours runs then.
    pub fn launch(_command: &[String], _options: Options) -> Result<Self, ProbeError> {
        Err(unfinished())
    }

    /// Puts the agent into a running process, which runs on; no point yet.
    ///
    /// # Errors
    /// [`ProbeError`] with the reason; the process is then as before.
    pub fn attach(_pid: u32, _options: Options) -> Result<Self, ProbeError> {
        Err(unfinished())
    }

    /// Looks at a process without changing anything: [`Engine::resolve`], [`Engine::suggest`] and
    /// [`Engine::modules`] work, [`Engine::add`] does not.
    ///
    /// # Errors
    /// [`ProbeError`] when its memory may not be read.
    pub fn look(_pid: u32, _options: Options) -> Result<Self, ProbeError> {
        Err(unfinished())
    }

    /// Takes over a process whose controller is gone.
    ///
    /// # Errors
    /// [`ProbeError`], also when there is no agent in it or its controller lives.
    pub fn take_over(_pid: u32, _options: Options) -> Result<Self, ProbeError> {
        Err(unfinished())
    }

    /// Lets a launched command run.
    ///
    /// # Errors
    /// [`ProbeError`] when it is gone.
    pub fn resume(&mut self) -> Result<(), ProbeError> {
        Err(unfinished())
    }

    /// The process that was launched or attached to.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its modules, kept fresh by [`Engine::poll`]; unmapped ones stay in their places.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &[]
    }

    /// All functions that match, with the way each would be patched.
    ///
    /// # Errors
    /// [`ProbeError`] for a pattern that is no regular expression.
    pub fn resolve(&mut self, _orders: &[Order]) -> Result<Vec<Candidate>, ProbeError> {
        Err(unfinished())
    }

    /// Names near a pattern that matched nothing.
    pub fn suggest(&mut self, _pattern: &str) -> Vec<String> {
        Vec::new()
    }

    /// Adds points, all in one stop.
    ///
    /// # Errors
    /// [`ProbeError`] when the target could not be stopped; single functions are refused in the answer.
    pub fn add(&mut self, _specs: &[PointSpec]) -> Result<Added, ProbeError> {
        Err(unfinished())
    }

    /// Takes points back, all in one stop: the bytes of the text are the original ones again.
    ///
    /// # Errors
    /// [`ProbeError`] when the target could not be stopped.
    pub fn remove(&mut self, _ids: &[PointId]) -> Result<Removed, ProbeError> {
        Err(unfinished())
    }

    /// Switches points on or off without stopping the target; valid from the next entry.
    pub fn enable(&mut self, _ids: &[PointId], _on: bool) {}

    /// Standing orders: applied by [`Engine::poll`] to libraries loaded and programs executed later.
    pub fn keep(&mut self, _orders: Vec<Order>, _actions: Vec<PointAction>) {}

    /// Looks after the target: heartbeat, loader, forks, programs executed, ended threads and
    /// processes. Returns after `wait` at the latest.
    ///
    /// # Errors
    /// [`ProbeError`] when a fresh library could not be instrumented for lack of a stop.
    pub fn poll(&mut self, _wait: Duration) -> Result<Vec<Happening>, ProbeError> {
        Err(unfinished())
    }

    /// Everything counted so far; the target is not paused.
    pub fn snapshot(&mut self) -> CallSnapshot {
        CallSnapshot::default()
    }

    /// Numbers count from here.
    pub fn reset(&mut self) {}

    /// Functions that a point's function calls directly, through its import table too.
    ///
    /// # Errors
    /// [`ProbeError`] when the point is unknown or its code cannot be read.
    pub fn callees(&mut self, _id: PointId) -> Result<Vec<Candidate>, ProbeError> {
        Err(unfinished())
    }

    /// Functions that called a point's function so far.
    ///
    /// # Errors
    /// [`ProbeError`] when the point is unknown.
    pub fn callers(&mut self, _id: PointId) -> Result<Vec<Candidate>, ProbeError> {
        Err(unfinished())
    }

    /// Exit status of a launched command, once it has ended; 128 + n for a signal. Does not wait.
    pub fn status(&mut self) -> Option<i32> {
        None
    }

    /// Leaves the target: bytes and return addresses restored and verified, the agent unmapped.
    ///
    /// # Errors
    /// [`ProbeError`] when it could not be stopped; everything is then as before.
    pub fn detach(self) -> Result<Detached, ProbeError> {
        Err(unfinished())
    }

    /// Kills a launched command that was never let go.
    pub fn abandon(self) {}
}

fn unfinished() -> ProbeError {
    ProbeError::Agent { why: "not built yet".into() }
}
