//! Programs executed by processes that have an agent, and by their children: the kernel's side
//! (`bpf/follow.bpf.c`) stops such a process before the program's first instruction and says so here;
//! [`super::Tree::catch`] takes it from there.
//!
//! The kernel can only stop it by SIGSTOP. Its parent is sent a SIGCHLD for that, as by job control, unless
//! we seize the process before the stop is complete. A process stopped in the instant in which the
//! controller is killed stays stopped until it is sent SIGCONT; the kernel's side goes with the controller.

#[allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub, unsafe_code, dead_code)]
#[allow(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block, clippy::unwrap_used)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/follow.skel.rs"));
}

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, RingBuffer, RingBufferBuilder};
use skeleton::{FollowSkel, FollowSkelBuilder};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::rc::Rc;

/// What is wanted of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Be told of its children, and have it stopped when it executes a program.
    Stop = 1,
    /// Its processor time only: it is traced.
    Count = 2,
}

/// What the kernel's side has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A watched process has made another one, which is watched too.
    Forked {
        /// Who made it.
        parent: u32,
        /// The new process.
        child: u32,
    },
    /// A process has executed a program and is not watched any more.
    Executed {
        /// The process.
        pid: u32,
        /// It stands still, or does so in an instant, before the program's first instruction.
        stopped: bool,
    },
}

/// The kernel's side.
pub struct Execs {
    // Links go before the object they run, the ring before its map.
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    skel: FollowSkel<'static>,
    told: Rc<RefCell<Vec<Told>>>,
}

impl std::fmt::Debug for Execs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Execs").field("told", &self.told).finish_non_exhaustive()
    }
}

impl Execs {
    /// Loads it; nobody is watched yet.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn load() -> Result<Self, libbpf_rs::Error> {
        // One program per session: its few hundred bytes of book-keeping stay until whither ends.
        let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let skel = FollowSkelBuilder::default().open(storage)?.load()?;
        let told = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&told);
        let mut builder = RingBufferBuilder::new();
        builder.add(&skel.maps.events, move |bytes| {
            into.borrow_mut().extend(decode(bytes));
            0
        })?;
        let ring = builder.build()?;
        let links = vec![
            skel.progs.wh_free.attach()?,
            skel.progs.wh_exit.attach()?,
            skel.progs.wh_fork.attach()?,
            skel.progs.wh_exec.attach()?,
        ];
        Ok(Self { _links: links, ring, skel, told })
    }

    /// Watches a process and all children it makes from now on.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn watch(&self, pid: u32, how: Watch) -> Result<(), libbpf_rs::Error> {
        self.skel.maps.tracked.update(&pid.to_ne_bytes(), &(how as u32).to_ne_bytes(), MapFlags::ANY)
    }

    /// Processor time of a watched process that has ended, in nanoseconds.
    #[must_use]
    pub fn used(&self, pid: u32) -> Option<u64> {
        let bytes = self.skel.maps.used.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok()??;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Stops watching everybody; who stands still already is still told of.
    pub fn forget_all(&self) {
        for key in self.skel.maps.tracked.keys().collect::<Vec<_>>() {
            let _ = self.skel.maps.tracked.delete(&key);
        }
    }

    /// What has happened since the last time; does not wait.
    #[must_use]
    pub fn take(&self) -> Vec<Told> {
        // What cannot be read now is there the next time.
        let _ = self.ring.consume();
        self.told.take()
    }

    /// Programs that could not be told of: they run without agent.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.wh_missed)
    }

    /// Readable when there is something to [`Self::take`].
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.ring.epoll_fd()
    }
}

fn decode(bytes: &[u8]) -> Option<Told> {
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    Some(match (word(0)?, word(4)?, word(8)?) {
        (pid, 0, error) => Told::Executed { pid, stopped: error == 0 },
        (child, parent, _) => Told::Forked { parent, child },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read() {
        let bytes = |words: [u32; 3]| words.map(u32::to_ne_bytes).concat();
        assert_eq!(decode(&bytes([7, 0, 0])), Some(Told::Executed { pid: 7, stopped: true }));
        assert_eq!(decode(&bytes([7, 0, 1])), Some(Told::Executed { pid: 7, stopped: false }));
        assert_eq!(decode(&bytes([7, 6, 0])), Some(Told::Forked { parent: 6, child: 7 }));
        assert_eq!(decode(&bytes([7, 6, 0])[..11]), None);
    }
}
