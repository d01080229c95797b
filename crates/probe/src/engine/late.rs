//! Libraries that programs without agent load: launchers and programs in which nothing matched when they
//! began. Lives here: noticing them, and giving the program an agent then. Constraint: such a program is not
//! touched before, so nobody waits for us; calls of the first milliseconds are not counted, and that is said.

use super::tree::Tree as Processes;
use super::{Engine, Happening};
use crate::error::ProbeError;
use crate::target::{Stopped, maps};
use rustc_hash::FxHashMap;
use whither_kernel::proc;

/// What is known of the code that a process without agent has mapped.
#[derive(Debug, Default)]
pub(super) struct Known(FxHashMap<u32, Mapped>);

#[derive(Debug, PartialEq, Eq)]
struct Mapped {
    /// Its size: as long as that stays, nothing was loaded.
    pages: u64,
    /// Start and inode of each piece.
    code: Vec<(u64, u64)>,
}

impl Known {
    /// Whether a process has code that it had not when this was asked last; not at the first time.
    fn has_new(&mut self, pid: u32) -> bool {
        let pages = pages(pid);
        let Some(known) = self.0.get_mut(&pid) else {
            self.0.insert(pid, Mapped { pages, code: code(pid) });
            return false;
        };
        if known.pages == pages {
            return false;
        }
        let code = code(pid);
        let old = code.iter().filter(|piece| known.code.contains(piece)).count();
        // Where nothing is as before it has executed another program, which is met at its entry point.
        let fresh = old > 0 && old < code.len();
        *known = Mapped { pages, code };
        fresh
    }

    /// Keeps those of living processes.
    fn retain(&mut self, pids: &[u32]) {
        self.0.retain(|pid, _| pids.contains(pid));
    }

    /// What a process has now is known.
    pub(super) fn renew(&mut self, pid: u32) {
        self.0.remove(&pid);
        self.has_new(pid);
    }
}

fn pages(pid: u32) -> u64 {
    let text = proc::read_text(format!("/proc/{pid}/statm")).unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn code(pid: u32) -> Vec<(u64, u64)> {
    let all = maps::read(pid).into_iter();
    all.filter(|m| m.execute && m.inode != 0).map(|m| (m.start, m.inode)).collect()
}

impl Engine {
    /// Looks for libraries that matter in processes without agent.
    pub(super) fn look_for_libraries(&mut self, happened: &mut Vec<Happening>) {
        if self.standing.is_empty() || self.follow.inner {
            return;
        }
        let mut pids = self.follow.tree.at_rest();
        if !self.is_measured() && !self.follow.left && !self.follow.tree.pids().contains(&self.pid) {
            pids.push(self.pid);
        }
        self.follow.known.retain(&pids);
        for pid in pids {
            if !self.follow.known.has_new(pid) {
                continue;
            }
            if let Err(e) = self.enter_late(pid, happened)
                && Processes::lives(pid)
            {
                let exe = proc::exe(pid);
                happened.push(Happening::Note(format!("new libraries of {exe}, process {pid}, are not measured: {e}")));
            }
        }
    }

    /// Gives a running process an agent, if anything in it matches.
    fn enter_late(&mut self, pid: u32, happened: &mut Vec<Happening>) -> Result<(), ProbeError> {
        let mut other = self.engine_for(pid, super::Hold::Runs)?;
        if !other.has_match()? {
            return Ok(());
        }
        let followed = self.follow.tree.forget(pid);
        let mut refused = Vec::new();
        let (measured, obeyed) = if pid == self.pid && !self.follow.left {
            drop(other);
            // Numbers of modules that are known stay.
            let _ = self.modules.refresh();
            let obeyed = self.obey(&mut refused);
            (self.is_measured(), obeyed)
        } else {
            let obeyed = other.obey(&mut refused);
            let measured = other.is_measured();
            if measured {
                self.follow.launchers.leave(pid);
                self.follow.others.push(other);
            }
            (measured, obeyed)
        };
        if measured {
            if self.follows() {
                self.watch(pid);
            }
            let exe = proc::exe(pid);
            happened.push(Happening::Executed { pid, exe: exe.clone() });
            let when = "when it had loaded a library: calls in the first milliseconds after that are not counted";
            happened.push(Happening::Note(format!("{exe}, process {pid}, is measured from the moment {when}")));
        } else if followed {
            self.follow.tree.follow(Stopped::stop(pid)?)?;
        }
        self.tell_refused(refused, happened);
        obeyed
    }
}
