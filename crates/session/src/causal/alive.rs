//! The process that decides how long a session lives, and sleeping that ends with it.

use crate::SessionError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
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
        let Some(handle) = self.handle.as_ref().filter(|_| !self.over) else { return std::thread::sleep(time) };
        let mut polled = [PollFd::new(handle, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        // A signal ends the sleep early, which does no harm.
        if poll(&mut polled, Some(&timeout)).is_ok_and(|n| n > 0) {
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

    /// Asks a command of ours to end.
    pub(super) fn terminate(&self) {
        const SIGTERM: i32 = 15;
        if let Some(running) = &self.running {
            running.signal(SIGTERM);
        }
    }
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
        soon.terminate();
        let mut child = command(&["sleep", "30"]);
        let attached = Alive::attached(child.pid);
        child.terminate();
        assert!(attached.is_ok() && Alive::pausable(std::process::id()).is_err());
        child.sleep(Duration::from_secs(30));
        assert_eq!(child.status(), Some(128 + 15));
    }
}
