//! The process that decides how long a session lives, and sleeping that ends with it.

use crate::SessionError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use whither_kernel::launch::Running;
use whither_kernel::proc;

/// A process, launched by us or not.
pub(super) struct Alive {
    pub(super) pid: u32,
    running: Option<Running>,
    /// Readable when the process has ended; kernels and rights without it make us look.
    handle: Option<OwnedFd>,
    over: bool,
}

impl Alive {
    /// A process that runs already.
    ///
    /// # Errors
    /// There is none, or it may never be measured.
    pub(super) fn attached(pid: u32) -> Result<Self, SessionError> {
        let refuse = |why: &str| Err(SessionError::Unmeasurable { pid, why: why.to_owned() });
        if pid == 1 {
            return refuse("it is the first process, on which the whole system depends");
        }
        if pid == std::process::id() {
            return refuse("it is whither itself");
        }
        if !proc::exists(pid) {
            return Err(SessionError::NoSuchProcess(pid));
        }
        if proc::tgid(pid).is_some_and(|tgid| tgid != pid) {
            let tgid = proc::tgid(pid).unwrap_or(pid);
            return refuse(&format!("it is a thread of process {tgid}; name that one"));
        }
        if !proc::runs(pid) {
            return refuse("it has ended and waits for its parent");
        }
        // Kernel threads have no memory of their own.
        if proc::status_word(proc::with_memory(pid), "VmSize:").is_none() {
            return refuse("it is a thread of the kernel");
        }
        Ok(Self { pid, running: None, handle: handle(pid), over: false })
    }

    /// Whether experiments may pause the threads of a process that [`Self::attached`] accepts. Watching harms none.
    ///
    /// # Errors
    /// Others may rely on it being in time.
    pub(super) fn pausable(pid: u32) -> Result<(), SessionError> {
        Self::attached(pid)?;
        let refuse = |tid| SessionError::Unmeasurable {
            pid,
            why: format!(
                "its thread {tid} runs under a real-time policy, and what others rely on being in time is not delayed"
            ),
        };
        proc::realtime_thread(pid).map_or(Ok(()), |tid| Err(refuse(tid)))
    }

    /// A command of ours.
    pub(super) fn launched(running: Running) -> Self {
        let pid = running.pid();
        Self { pid, running: Some(running), handle: handle(pid), over: false }
    }

    /// Sleeps, at most until the process has ended.
    pub(super) fn sleep(&mut self, time: Duration) {
        self.sleep_or(time, None);
    }

    /// The same, at most until `bell` is readable.
    pub(super) fn sleep_or(&mut self, time: Duration, bell: Option<BorrowedFd<'_>>) {
        let handle = self.handle.as_ref().filter(|_| !self.over).map(AsFd::as_fd);
        if handle.or(bell).is_none() {
            return std::thread::sleep(time);
        }
        let mut polled: Vec<PollFd<'_>> =
            handle.iter().chain(&bell).map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let timeout = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        // A signal ends the sleep early, which does no harm.
        let woken = poll(&mut polled, Some(&timeout)).is_ok_and(|n| n > 0);
        if woken && handle.is_some() && polled.first().is_some_and(|fd| !fd.revents().is_empty()) {
            self.over = true;
        }
    }

    /// Whether it has ended.
    pub(super) fn is_over(&mut self) -> bool {
        if !self.over {
            self.over = match &mut self.running {
                Some(running) => running.poll().is_some(),
                None if self.handle.is_some() => false,
                None => !proc::exists(self.pid),
            };
        }
        self.over
    }

    /// Status of a command of ours, when it has ended.
    pub(super) fn status(&mut self) -> Option<i32> {
        self.running.as_mut().and_then(Running::poll)
    }

    /// Whether it is a command of ours.
    pub(super) fn is_ours(&self) -> bool {
        self.running.is_some()
    }

    /// Asks a command of ours to end, and what it has begun, which would go on without it. `known`: processes of the command that
    /// need not be its children any more.
    pub(super) fn terminate(&self, known: &mut dyn FnMut() -> Vec<u32>) {
        /// What one of them begins before it is asked is found by the next look.
        const LOOKS: u32 = 4;
        let Some(running) = &self.running else { return };
        let mut asked = BTreeSet::from([self.pid]);
        for look in 0..LOOKS {
            let new: Vec<(u32, OwnedFd)> = descendants(&asked, known())
                .into_iter()
                .filter(|pid| !asked.contains(pid))
                .filter_map(|pid| Some((pid, handle(pid)?)))
                .collect();
            // Who is still one of them has not handed its number to another process before the handle was opened.
            let still = descendants(&asked, known());
            // A shell goes on with its next command when the one before ends.
            if look == 0 {
                running.signal(SIGTERM);
            }
            for (pid, handle) in new.iter().filter(|(pid, _)| still.contains(pid)) {
                asked.insert(*pid);
                // One that has ended meanwhile is what was wanted.
                let _ = pidfd_send_signal(handle, Signal::TERM);
            }
            if look > 0 && new.is_empty() {
                break;
            }
        }
    }
}

const SIGTERM: i32 = 15;

/// Children of these processes, their children, and the others with theirs.
fn descendants(roots: &BTreeSet<u32>, others: Vec<u32>) -> BTreeSet<u32> {
    let mut found: BTreeSet<u32> = BTreeSet::new();
    let mut open: Vec<u32> = roots.iter().flat_map(|root| proc::children(*root)).chain(others).collect();
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(proc::children(pid));
        }
    }
    found
}

fn handle(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn command(words: &[&str]) -> Alive {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        Alive::launched(whither_kernel::launch::hold(&words).expect("forks").release().expect("runs"))
    }

    #[test]
    fn sleeping_ends_with_the_process() {
        let mut target = command(&["sleep", "0.05"]);
        let began = Instant::now();
        target.sleep(Duration::from_secs(30));
        assert!(began.elapsed() < Duration::from_secs(25) && target.is_over());
        assert_eq!(target.status(), Some(0));
    }

    #[test]
    fn sleeping_ends_when_the_bell_rings() {
        let mut target = command(&["sleep", "30"]);
        let (bell, rope) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::write(&rope, b"x").expect("room");
        let began = Instant::now();
        target.sleep_or(Duration::from_secs(25), Some(bell.as_fd()));
        assert!(began.elapsed() < Duration::from_secs(20) && !target.is_over());
        target.terminate(&mut Vec::new);
        let handle = target.handle.take();
        target.sleep_or(Duration::from_secs(25), Some(bell.as_fd()));
        assert!(began.elapsed() < Duration::from_secs(20) && !target.over, "without a handle of the process");
        target.handle = handle;
        target.sleep(Duration::from_secs(30));
        assert!(target.is_over());
    }

    /// A shell was ended, and the program that it ran went on.
    #[test]
    fn what_a_command_has_begun_ends_with_it() {
        let mut shell = command(&["sh", "-c", "sleep 77 & sh -c 'sleep 78; sleep 79'; sleep 79"]);
        let deadline = Instant::now() + Duration::from_secs(20);
        let sleeps = |pids: &BTreeSet<u32>| pids.iter().filter(|pid| proc::comm(**pid) == "sleep").count();
        let mut begun = BTreeSet::new();
        while sleeps(&begun) < 2 && Instant::now() < deadline {
            std::thread::yield_now();
            begun = descendants(&BTreeSet::from([shell.pid]), Vec::new());
        }
        assert_eq!(sleeps(&begun), 2, "{begun:?}");
        shell.terminate(&mut Vec::new);
        shell.sleep(Duration::from_secs(30));
        assert_eq!(shell.status(), Some(128 + SIGTERM));
        while begun.iter().any(|pid| proc::runs(*pid)) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let left: Vec<&u32> = begun.iter().filter(|pid| proc::runs(**pid)).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn what_may_not_be_measured_is_refused_with_the_reason() {
        let why = |pid| Alive::attached(pid).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(why(1).contains("first process"), "{}", why(1));
        assert!(why(std::process::id()).contains("whither itself"));
        assert!(why(u32::MAX / 2).contains("no process"));
        if proc::comm(2) == "kthreadd" {
            assert!(why(2).contains("kernel"), "{}", why(2));
        } else {
            eprintln!("SKIP: no kernel threads are visible here");
        }
        let mut soon = command(&["chrt", "-f", "1", "sleep", "30"]);
        let deadline = Instant::now() + Duration::from_secs(10);
        while proc::comm(soon.pid) != "sleep" && !soon.is_over() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        if proc::comm(soon.pid) == "sleep" {
            let refused = Alive::pausable(soon.pid).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(refused.contains("real-time"), "{refused}");
            assert!(Alive::attached(soon.pid).is_ok(), "watching it pauses nobody");
        } else {
            eprintln!("SKIP: chrt is missing or may not make a thread a real-time one");
        }
        soon.terminate(&mut Vec::new);
        let mut child = command(&["sleep", "30"]);
        let attached = Alive::attached(child.pid);
        child.terminate(&mut Vec::new);
        assert!(attached.is_ok() && Alive::pausable(std::process::id()).is_err());
        child.sleep(Duration::from_secs(30));
        assert_eq!(child.status(), Some(128 + 15));
    }
}
