//! Which processes of the group have the handler that sleeps delays: it is put into each as it comes, lost with an exec,
//! inherited by a fork, and taken back at the end. A child that cannot have it spins its delays.

use super::executor::CausalExecutor;
use crate::SessionError;
use rustc_hash::FxHashMap;
use std::time::Duration;
use whither_kernel::proc;
use whither_probe::ProbeError;
use whither_probe::target::{Napper, free_signal};
use whither_sample::causal::Change;

/// A process that is busy executing, or has no thread at a good place, is asked again so often.
const TRIES: u32 = 20;
/// Nobody naps longer than half of this.
const LAST_NAP: Duration = Duration::from_millis(10);

/// Whether delays are slept.
#[derive(Debug, Default)]
pub(super) enum Napping {
    /// They are spun.
    #[default]
    Spin,
    /// They shall be, if that is possible.
    Trial(Naps),
    /// They are.
    Sleep(Naps),
    /// They are spun for this reason.
    Refused(SessionError),
}

impl Napping {
    /// From the first process on.
    pub(super) fn always() -> Self {
        Self::Sleep(Naps::default())
    }

    /// Where it is possible.
    pub(super) fn try_it() -> Self {
        Self::Trial(Naps::default())
    }

    /// Looks after all processes; what the user should know of those that spin.
    ///
    /// # Errors
    /// Delays are to be slept, and the first process cannot have the handler.
    pub(super) fn look(
        &mut self,
        exec: &mut dyn CausalExecutor,
        processes: &[u32],
        changes: &[Change],
    ) -> Result<Vec<String>, SessionError> {
        match std::mem::take(self) {
            Self::Sleep(mut naps) => {
                let notes = naps.look(exec, processes, changes);
                *self = Self::Sleep(naps);
                notes
            }
            Self::Trial(mut naps) => match naps.look(exec, processes, changes) {
                Ok(notes) => {
                    *self = if naps.are_in(exec, processes) { Self::Sleep(naps) } else { Self::Trial(naps) };
                    Ok(notes)
                }
                Err(error) => {
                    *self = Self::Refused(error);
                    Ok(Vec::new())
                }
            },
            other => {
                *self = other;
                Ok(Vec::new())
            }
        }
    }

    /// The handlers to be taken back.
    pub(super) fn take(&mut self) -> Option<Naps> {
        match std::mem::take(self) {
            Self::Trial(naps) | Self::Sleep(naps) => Some(naps),
            Self::Spin | Self::Refused(_) => None,
        }
    }
}

/// The handlers.
#[derive(Debug, Default)]
pub(super) struct Naps {
    signal: Option<u32>,
    planted: Vec<Napper>,
    /// Times that it was tried in vain, by process.
    tried: FxHashMap<u32, u32>,
}

impl Naps {
    /// Looks after all processes; what the user should know of those that spin.
    ///
    /// # Errors
    /// When the first process cannot have the handler: nothing would be slept.
    fn look(
        &mut self,
        exec: &mut dyn CausalExecutor,
        processes: &[u32],
        changes: &[Change],
    ) -> Result<Vec<String>, SessionError> {
        let mut notes = Vec::new();
        for &pid in processes {
            if changes.contains(&Change::Execed { pid }) {
                self.tried.remove(&pid);
                // Planted just before the exec, told just after it.
                if self.signal.is_some_and(|signal| !catches(pid, signal)) {
                    exec.napper(pid, 0)?;
                }
            }
            if exec.napper_of(pid) != 0 || self.tried.get(&pid).is_some_and(|n| *n >= TRIES) {
                continue;
            }
            match self.plant(exec, pid) {
                Ok(()) => {}
                Err(SessionError::Probe(error)) => self.failed(pid, error, &mut notes)?,
                Err(other) => return Err(other),
            }
        }
        Ok(notes)
    }

    /// Whether all processes have the handler that can have it.
    fn are_in(&self, exec: &dyn CausalExecutor, processes: &[u32]) -> bool {
        let given_up = |pid| self.tried.get(pid).is_some_and(|n| *n >= TRIES);
        !self.planted.is_empty() && processes.iter().all(|pid| exec.napper_of(*pid) != 0 || given_up(pid))
    }

    fn plant(&mut self, exec: &mut dyn CausalExecutor, pid: u32) -> Result<(), SessionError> {
        let signal = match self.signal {
            Some(signal) => signal,
            None => {
                let why =
                    || ProbeError::Injection { pid, why: "it uses or blocks all real-time signals itself".into() };
                let signal = free_signal(pid).ok_or_else(why)?;
                exec.naps_by(signal)?;
                self.signal = Some(signal);
                signal
            }
        };
        let napper = Napper::plant(pid, signal)?;
        exec.napper(pid, napper.handler)?;
        self.planted.push(napper);
        Ok(())
    }

    fn failed(&mut self, pid: u32, error: ProbeError, notes: &mut Vec<String>) -> Result<(), SessionError> {
        // Threads that are just being made block all signals.
        let passing = self.signal.is_none()
            || matches!(
                error,
                ProbeError::Executed { .. }
                    | ProbeError::Ended { .. }
                    | ProbeError::NoSafeThread { .. }
                    | ProbeError::Unstoppable { .. }
            );
        let tried = self.tried.entry(pid).or_default();
        *tried = if passing { *tried + 1 } else { TRIES };
        if *tried < TRIES || !proc::exists(pid) {
            return Ok(());
        }
        if self.planted.is_empty() {
            return Err(error.into());
        }
        notes.push(format!("process {pid} cannot sleep its delays, it spins them: {error}"));
        Ok(())
    }

    /// Gives all signals back, once nothing sends them any more.
    pub(super) fn end(&mut self) {
        let living: Vec<Napper> = self.planted.drain(..).filter(|n| proc::exists(n.pid)).collect();
        if living.is_empty() {
            return;
        }
        std::thread::sleep(LAST_NAP);
        for napper in living {
            if let Err(error) = napper.uproot() {
                tracing::debug!(%error, ?napper, "the handler stays");
            }
        }
    }
}

/// Takes away what a session has left in a process that was killed while delays were slept; what to say of it.
pub(super) fn take_back(pid: u32) -> Option<String> {
    match Napper::take_back(pid) {
        Ok(0) => None,
        Ok(_) => Some(format!("the signal handler that a killed session had left in process {pid} was taken away")),
        Err(error) => {
            Some(format!("the signal handler that a killed session had left in process {pid} stays there: {error}"))
        }
    }
}

fn catches(pid: u32, signal: u32) -> bool {
    let mask = proc::status_word(pid, "SigCgt:").and_then(|word| u64::from_str_radix(&word, 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}
