//! Programs executed by processes that have an agent, and by their children: the kernel's side
//! (`bpf/follow.bpf.c`) stops such a process before the program's first instruction and says so here;
//! [`super::Tree::catch`] takes it from there.
//!
//! The kernel can only stop it by SIGSTOP. Its parent is sent a SIGCHLD for that, as by job control, unless
//! we seize the process before the stop is complete. When the
//! controller is killed, a small process that outlives it lets those go on who stand; the kernel's side goes
//! with the controller.

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
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;

/// What is wanted of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Be told of its children, and have it stopped when it executes a program.
    Stop = 1,
    /// Its processor time only: it is traced.
    Count = 2,
}

/// Threads of a process that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Sum of their lifetimes.
    pub ns: u64,
    /// How many.
    pub threads: u64,
    /// How they got CPUs.
    pub queue: Queue,
}

/// CPU time of threads, and for how long they waited for it while they could have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// CPU time, nanoseconds.
    pub ran_ns: u64,
    /// Runnable and on no CPU, nanoseconds.
    pub queued_ns: u64,
}

impl Queue {
    /// Of a thread, since its birth; nothing where the kernel does not note it (`CONFIG_SCHED_INFO`).
    pub(crate) fn of(pid: u32, tid: u32) -> Self {
        let text = whither_kernel::proc::read_text(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
        let mut words = text.split_whitespace().map_while(|word| word.parse().ok());
        let (ran_ns, queued_ns) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        Self { ran_ns, queued_ns }
    }

    pub(crate) fn less(self, other: Self) -> Self {
        let rest = u64::saturating_sub;
        Self { ran_ns: rest(self.ran_ns, other.ran_ns), queued_ns: rest(self.queued_ns, other.queued_ns) }
    }

    pub(crate) fn with(self, other: Self) -> Self {
        let sum = u64::saturating_add;
        Self { ran_ns: sum(self.ran_ns, other.ran_ns), queued_ns: sum(self.queued_ns, other.queued_ns) }
    }
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
    _guard: Option<Guard>,
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
        libbpf_rs::set_print(None);
        let mut skel = FollowSkelBuilder::default().open(storage)?.load()?;
        if let Some(bss) = skel.maps.bss_data.as_deref_mut() {
            bss.wh_controller = std::process::id();
        }
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
        let guard = Guard::start(skel.maps.stopped.as_fd().as_raw_fd());
        Ok(Self { _links: links, ring, skel, told, _guard: guard })
    }

    /// Watches a process and all children it makes from now on. Of its threads counts what they live from `since` on.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn watch(&self, pid: u32, how: Watch, since: u64) -> Result<(), libbpf_rs::Error> {
        let lived = [since, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
        self.skel.maps.lived.update(&pid.to_ne_bytes(), &lived, MapFlags::ANY)?;
        self.skel.maps.tracked.update(&pid.to_ne_bytes(), &(how as u32).to_ne_bytes(), MapFlags::ANY)
    }

    /// A process told of goes on, or is in our hands.
    pub fn caught(&self, pid: u32) {
        let _ = self.skel.maps.stopped.delete(&pid.to_ne_bytes());
    }

    /// Processor time of a watched process that has ended, in nanoseconds.
    #[must_use]
    pub fn used(&self, pid: u32) -> Option<u64> {
        let bytes = self.skel.maps.used.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok()??;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Lifetimes of a watched process's threads that have ended.
    #[must_use]
    pub fn lived(&self, pid: u32) -> Option<Lived> {
        let bytes = self.skel.maps.lived.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok()??;
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let queue = Queue { ran_ns: word(24)?, queued_ns: word(32)? };
        Some(Lived { ns: word(8)?, threads: word(16)?, queue })
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

/// A process of ours that outlives a controller that is killed, only to send SIGCONT to those who were just
/// stopped. It holds nothing open but the table of them and the end of a pipe.
#[derive(Debug)]
struct Guard {
    pid: i32,
    pipe: i32,
}

impl Guard {
    fn start(table: i32) -> Option<Self> {
        let mut ends = [0_i32; 2];
        // SAFETY: pipe2(2) writes two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return None;
        }
        let [read, write] = ends;
        // SAFETY: the child makes system calls only, nothing that needs a lock another thread may hold.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            guard(read, write, table);
        }
        close(read);
        if pid < 0 {
            close(write);
            return None;
        }
        Some(Self { pid, pipe: write })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        close(self.pipe);
        // SAFETY: waits for our own child, which ends now; no status is wanted.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

fn close(descriptor: i32) {
    // SAFETY: a descriptor of ours that nobody else has.
    unsafe { libc::close(descriptor) };
}

/// In the child: waits for the controller's end.
fn guard(read: i32, write: i32, table: i32) -> ! {
    // Ctrl-C is meant for others.
    // SAFETY: setsid(2) takes nothing.
    unsafe { libc::setsid() };
    close(write);
    let (low, high) = (read.min(table), read.max(table));
    // Streams too: whoever reads our output waits for its end.
    close_range(0, low - 1);
    close_range(low + 1, high - 1);
    close_range(high + 1, i32::MAX);
    let mut byte = 0_u8;
    loop {
        // SAFETY: reads one byte at most into one; nobody writes, so it ends with the last writer.
        let got = unsafe { libc::read(read, (&raw mut byte).cast(), 1) };
        if got >= 0 {
            break;
        }
    }
    // One may have been on its way into the table.
    for _ in 0..3 {
        wake_all(table);
        // SAFETY: usleep(3) takes a number.
        unsafe { libc::usleep(20_000) };
    }
    // SAFETY: ends this process at once, without anything that the controller would do at its end.
    unsafe { libc::_exit(0) }
}

fn close_range(first: i32, last: i32) {
    if first <= last {
        // SAFETY: close_range(2) takes numbers; these descriptors are used by nobody in this process.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// SIGCONT to everybody in the table.
fn wake_all(table: i32) {
    /// `BPF_MAP_GET_NEXT_KEY`.
    const NEXT: i64 = 4;
    #[repr(C)]
    struct Ask {
        map: u64,
        key: u64,
        next: u64,
    }
    let (mut key, mut next) = (u32::MAX, 0_u32);
    for _ in 0..65536 {
        let ask = Ask { map: table as u64, key: &raw const key as u64, next: &raw mut next as u64 };
        // SAFETY: bpf(2) reads the question and the key, and writes the next key.
        if unsafe { libc::syscall(libc::SYS_bpf, NEXT, &raw const ask, size_of::<Ask>()) } != 0 {
            return;
        }
        key = next;
        // SAFETY: kill(2) takes numbers.
        unsafe { libc::kill(key as i32, libc::SIGCONT) };
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
