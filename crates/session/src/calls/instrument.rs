//! What a session needs of the engine, as a trait: the session's own logic is then tested without a
//! process. Methods are the engine's of the same name, unless they say more.

use super::burst::Burst;
use crate::SessionError;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::time::Duration;
use whither_probe::resolve::Nothing;
use whither_probe::{
    Added, Candidate, CodePiece, Detached, Engine, Happening, Options, Order, PointAction, PointId, PointSpec,
    PointedCalls, Removed,
};
use whither_sample::burst::{Code, stacks};
use whither_store::calls::CallSnapshot;

/// How a launched command fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It runs.
    Running,
    /// It ended with this status, 128+n for a signal.
    Ended(i32),
    /// Nobody knows any more.
    Unknown,
}

/// The engine, or a fake.
pub(super) trait Instrument {
    fn pid(&self) -> u32;
    /// Path of a module.
    fn module(&self, index: usize) -> String;
    fn resume(&mut self) -> Result<(), SessionError>;
    fn resolve(&mut self, orders: &[Order]) -> Result<Vec<Candidate>, SessionError>;
    fn suggest(&mut self, pattern: &str) -> Vec<String>;
    /// Why orders choose nothing, where more is known than that no name matches.
    fn why_nothing(&mut self, orders: &[Order]) -> Nothing;
    fn add(&mut self, specs: &[PointSpec]) -> Result<Added, SessionError>;
    /// Adds in all other programs of the tree, and to those that come.
    fn extend(&mut self, orders: &[Order], actions: &[PointAction]) -> Result<Added, SessionError>;
    fn remove(&mut self, ids: &[PointId]) -> Result<Removed, SessionError>;
    fn enable(&mut self, ids: &[PointId], on: bool);
    fn keep(&mut self, orders: Vec<Order>, actions: Vec<PointAction>);
    fn poll(&mut self, wait: Duration) -> Result<Vec<Happening>, SessionError>;
    fn snapshot(&mut self) -> CallSnapshot;
    fn reset(&mut self);
    fn callees(&mut self, id: PointId) -> Result<Vec<Candidate>, SessionError>;
    fn callers(&mut self, id: PointId) -> Result<Vec<Candidate>, SessionError>;
    fn pointed_calls(&mut self, id: PointId) -> Result<PointedCalls, SessionError>;
    fn functions_at(&mut self, addresses: &[u64]) -> Vec<Option<Candidate>>;
    /// Begins to look at the target's stacks, beside all else.
    fn look_at_stacks(&mut self, time: Duration) -> Burst;
    /// Of a launched command; works after [`Instrument::detach`] too.
    fn fate(&mut self) -> Fate;
    /// Afterwards only [`Instrument::pid`] and [`Instrument::fate`] mean anything.
    fn detach(&mut self) -> Result<Detached, SessionError>;
    /// Ends a command that has not begun; lets go of a process only looked at.
    fn abandon(&mut self);
}

/// Puts the agent into a running process.
pub(super) fn attach(pid: u32, options: Options) -> Result<Box<dyn Instrument>, SessionError> {
    Ok(Real::boxed(Engine::attach(pid, options)?))
}

/// Opens a running process for looking only.
pub(super) fn look(pid: u32, options: Options) -> Result<Box<dyn Instrument>, SessionError> {
    Ok(Real::boxed(Engine::look(pid, options)?))
}

/// Starts a command and holds it before its `main`.
pub(super) fn launch(command: &[String], options: Options) -> Result<Box<dyn Instrument>, SessionError> {
    Ok(Real::boxed(Engine::launch(command, options)?))
}

/// The engine, until it has left.
struct Real {
    pid: u32,
    engine: Option<Engine>,
    status: Option<i32>,
}

impl Real {
    fn boxed(engine: Engine) -> Box<dyn Instrument> {
        Box::new(Self { pid: engine.pid(), engine: Some(engine), status: None })
    }

    fn engine(&mut self) -> Result<&mut Engine, SessionError> {
        self.engine.as_mut().ok_or(SessionError::NoSuchProcess(self.pid))
    }
}

impl Instrument for Real {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn module(&self, index: usize) -> String {
        let modules = self.engine.as_ref().map_or(&[][..], Engine::modules);
        modules.get(index).map(|m| m.path.clone()).unwrap_or_default()
    }

    fn resume(&mut self) -> Result<(), SessionError> {
        Ok(self.engine()?.resume()?)
    }

    fn resolve(&mut self, orders: &[Order]) -> Result<Vec<Candidate>, SessionError> {
        Ok(self.engine()?.resolve(orders)?)
    }

    fn suggest(&mut self, pattern: &str) -> Vec<String> {
        self.engine().map(|e| e.suggest(pattern)).unwrap_or_default()
    }

    fn why_nothing(&mut self, orders: &[Order]) -> Nothing {
        self.engine().ok().and_then(|e| e.why_nothing(orders).ok()).unwrap_or_default()
    }

    fn add(&mut self, specs: &[PointSpec]) -> Result<Added, SessionError> {
        Ok(self.engine()?.add(specs)?)
    }

    fn extend(&mut self, orders: &[Order], actions: &[PointAction]) -> Result<Added, SessionError> {
        Ok(self.engine()?.extend(orders, actions)?)
    }

    fn remove(&mut self, ids: &[PointId]) -> Result<Removed, SessionError> {
        Ok(self.engine()?.remove(ids)?)
    }

    fn enable(&mut self, ids: &[PointId], on: bool) {
        if let Some(engine) = &mut self.engine {
            engine.enable(ids, on);
        }
    }

    fn keep(&mut self, orders: Vec<Order>, actions: Vec<PointAction>) {
        if let Some(engine) = &mut self.engine {
            engine.keep(orders, actions);
        }
    }

    fn poll(&mut self, wait: Duration) -> Result<Vec<Happening>, SessionError> {
        Ok(self.engine()?.poll(wait)?)
    }

    fn snapshot(&mut self) -> CallSnapshot {
        self.engine.as_mut().map(Engine::snapshot).unwrap_or_default()
    }

    fn reset(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.reset();
        }
    }

    fn callees(&mut self, id: PointId) -> Result<Vec<Candidate>, SessionError> {
        Ok(self.engine()?.callees(id)?)
    }

    fn callers(&mut self, id: PointId) -> Result<Vec<Candidate>, SessionError> {
        Ok(self.engine()?.callers(id)?)
    }

    fn pointed_calls(&mut self, id: PointId) -> Result<PointedCalls, SessionError> {
        Ok(self.engine()?.pointed_calls(id)?)
    }

    fn functions_at(&mut self, addresses: &[u64]) -> Vec<Option<Candidate>> {
        self.engine().map(|e| e.functions_at(addresses)).unwrap_or_default()
    }

    fn look_at_stacks(&mut self, time: Duration) -> Burst {
        let code = self.engine.as_ref().map(Engine::code_pieces).unwrap_or_default();
        let code: Vec<Code> =
            code.into_iter().map(|CodePiece { range, bias, file }| Code { range, bias, file }).collect();
        let pid = self.pid;
        Burst::begin(move |stop| stacks(pid, &code, time, stop))
    }

    fn fate(&mut self) -> Fate {
        if let Some(engine) = &mut self.engine {
            self.status = engine.status().or(self.status);
            return self.status.map_or(Fate::Running, Fate::Ended);
        }
        self.status.map_or_else(|| self.reap(), Fate::Ended)
    }

    fn detach(&mut self) -> Result<Detached, SessionError> {
        let Some(mut engine) = self.engine.take() else { return Ok(Detached::default()) };
        self.status = engine.status();
        Ok(engine.detach()?)
    }

    fn abandon(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.abandon();
        }
    }
}

impl Real {
    /// The engine is gone; the command is still our child.
    fn reap(&mut self) -> Fate {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Fate::Unknown };
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(None) => Fate::Running,
            Ok(Some((_, status))) => {
                let signal = || status.terminating_signal().map(|n| 128 + n);
                self.status = status.exit_status().or_else(signal);
                self.status.map_or(Fate::Running, Fate::Ended)
            }
            Err(_) => Fate::Unknown,
        }
    }
}
