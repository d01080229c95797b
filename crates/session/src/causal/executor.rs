//! What a session needs of the kernel side, as a trait: its own logic is then tested without a process.

use crate::SessionError;
use std::os::fd::BorrowedFd;
use whither_sample::causal::{Armed, CausalBpf, CausalModule, CausalSample, Change, Facts, Hook, Loads, Ticks};

/// Methods are those of [`CausalBpf`] with the same names.
pub(super) trait CausalExecutor {
    fn watch(&mut self, pid: u32) -> Result<(), SessionError>;
    fn processes(&mut self) -> Vec<u32>;
    fn changes(&mut self) -> Vec<Change>;
    /// By default nobody is woken.
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn map(&mut self, pid: u32, modules: &[CausalModule]) -> Result<(), SessionError>;
    fn arm(&mut self, target: &Armed) -> Result<(), SessionError>;
    fn rearm(&mut self, pid: u32, target: &Armed) -> Result<(), SessionError>;
    fn begin(&mut self, percent: u8) -> Result<(), SessionError>;
    fn settled(&mut self, paid: bool) -> Result<(), SessionError>;
    fn beat(&mut self);
    fn end(&mut self) -> Result<Facts, SessionError>;
    fn peek(&mut self, point: u32) -> u64;
    fn samples(&mut self, take: &mut dyn FnMut(&CausalSample));
    fn point(&mut self, hook: &Hook) -> Result<u32, SessionError>;
    fn also(&mut self, point: u32, hook: &Hook) -> Result<(), SessionError>;
    fn loads(&mut self) -> Loads;
    /// By default they come as they come.
    fn ticks(&self) -> Ticks {
        Ticks::default()
    }
    fn tick_every(&mut self, _ns: u64) -> Result<(), SessionError> {
        Ok(())
    }
    fn detach(&mut self);
    fn naps_by(&mut self, signal: u32) -> Result<(), SessionError>;
    fn napper(&mut self, pid: u32, handler: u64) -> Result<(), SessionError>;
    fn napper_of(&self, pid: u32) -> u64;
}

impl CausalExecutor for CausalBpf {
    fn watch(&mut self, pid: u32) -> Result<(), SessionError> {
        Ok(CausalBpf::watch(self, pid)?)
    }
    fn processes(&mut self) -> Vec<u32> {
        CausalBpf::processes(self)
    }
    fn changes(&mut self) -> Vec<Change> {
        CausalBpf::changes(self)
    }
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(CausalBpf::bell(self))
    }
    fn map(&mut self, pid: u32, modules: &[CausalModule]) -> Result<(), SessionError> {
        Ok(CausalBpf::map(self, pid, modules)?)
    }
    fn arm(&mut self, target: &Armed) -> Result<(), SessionError> {
        Ok(CausalBpf::arm(self, target)?)
    }
    fn rearm(&mut self, pid: u32, target: &Armed) -> Result<(), SessionError> {
        Ok(CausalBpf::rearm(self, pid, target)?)
    }
    fn begin(&mut self, percent: u8) -> Result<(), SessionError> {
        Ok(CausalBpf::begin(self, percent)?)
    }
    fn settled(&mut self, paid: bool) -> Result<(), SessionError> {
        Ok(CausalBpf::settled(self, paid)?)
    }
    fn beat(&mut self) {
        CausalBpf::beat(self);
    }
    fn end(&mut self) -> Result<Facts, SessionError> {
        Ok(CausalBpf::end(self)?)
    }
    fn peek(&mut self, point: u32) -> u64 {
        CausalBpf::peek(self, point)
    }
    fn samples(&mut self, take: &mut dyn FnMut(&CausalSample)) {
        CausalBpf::samples(self, take);
    }
    fn point(&mut self, hook: &Hook) -> Result<u32, SessionError> {
        Ok(CausalBpf::point(self, hook)?)
    }
    fn also(&mut self, point: u32, hook: &Hook) -> Result<(), SessionError> {
        Ok(CausalBpf::also(self, point, hook)?)
    }
    fn loads(&mut self) -> Loads {
        CausalBpf::loads(self)
    }
    fn ticks(&self) -> Ticks {
        CausalBpf::ticks(self)
    }
    fn tick_every(&mut self, ns: u64) -> Result<(), SessionError> {
        Ok(CausalBpf::tick_every(self, ns)?)
    }
    fn detach(&mut self) {
        CausalBpf::detach(self);
    }
    fn naps_by(&mut self, signal: u32) -> Result<(), SessionError> {
        Ok(CausalBpf::naps_by(self, signal)?)
    }
    fn napper(&mut self, pid: u32, handler: u64) -> Result<(), SessionError> {
        Ok(CausalBpf::napper(self, pid, handler)?)
    }
    fn napper_of(&self, pid: u32) -> u64 {
        CausalBpf::napper_of(self, pid)
    }
}
