//! The back end at work.

use super::{Armed, CausalConfig, CausalModule, CausalSample, Change, Facts, Hook, Loads};
use crate::SampleError;

/// A running back end. Dropping it detaches everything; when its owner stops calling
/// [`CausalBpf::beat`] the kernel side neither credits nor pays any more.
#[derive(Debug)]
pub struct CausalBpf {}

impl CausalBpf {
    /// Loads and attaches; nobody is watched yet.
    ///
    /// # Errors
    /// [`SampleError::Bpf`] when BPF is refused, [`SampleError::Kernel`] when an event is.
    pub fn open(_config: &CausalConfig) -> Result<Self, SampleError> {
        Err(SampleError::Bpf { what: "opening the causal back end", why: "not in this build".into() })
    }

    /// Watches a process with all its threads; children join by themselves.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn watch(&mut self, _pid: u32) -> Result<(), SampleError> {
        Ok(())
    }

    /// Living processes of the group.
    pub fn processes(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// Forks and execs since the last call.
    pub fn changes(&mut self) -> Vec<Change> {
        Vec::new()
    }

    /// Tells all the code a process has mapped now.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses.
    pub fn map(&mut self, _pid: u32, _modules: &[CausalModule]) -> Result<(), SampleError> {
        Ok(())
    }

    /// Chooses what the next window speeds up.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses.
    pub fn arm(&mut self, _target: &Armed) -> Result<(), SampleError> {
        Ok(())
    }

    /// Opens a window: all clocks begin at 0, hits are worth so many percent of the time they stand for.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn begin(&mut self, _percent: u8) -> Result<(), SampleError> {
        Ok(())
    }

    /// Shows the kernel side that somebody is there; at least every 20 ms while a window is open.
    pub fn beat(&mut self) {}

    /// Closes the window: stops crediting, lets debts be paid, reads.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn end(&mut self) -> Result<Facts, SampleError> {
        Ok(Facts::default())
    }

    /// Visits of a point in the open window so far.
    pub fn peek(&mut self, _point: u32) -> u64 {
        0
    }

    /// Hands over the samples since the last call.
    pub fn samples(&mut self, _take: &mut dyn FnMut(&CausalSample)) {}

    /// Attaches a progress point; its index.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn point(&mut self, _hook: &Hook) -> Result<u32, SampleError> {
        Ok(0)
    }

    /// Attaches a further place (an inlined copy of the same line) to a point.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn also(&mut self, _point: u32, _hook: &Hook) -> Result<(), SampleError> {
        Ok(())
    }

    /// What has been going on since [`CausalBpf::open`].
    pub fn loads(&mut self) -> Loads {
        Loads::default()
    }
}
