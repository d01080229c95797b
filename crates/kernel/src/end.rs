//! How a process ended that is nobody's child of ours: by a descriptor opened while it lived. The kernel tells its
//! status there once the parent has asked for it, and in `/proc/PID/stat` before.

use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The way in which a process ended, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended by itself, with this status.
    Exit(i32),
    /// A signal ended it.
    Signal(i32),
    /// The kernel does not say.
    Unknown,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "ended with exit status {status}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::Unknown => f.write_str("ended"),
        }
    }
}

impl End {
    fn of_wait_status(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            Self::Exit(libc::WEXITSTATUS(status))
        } else if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Unknown
        }
    }
}

/// A process that may end. Whoever gets its number afterwards is not taken for it.
#[derive(Debug)]
pub struct Mortal {
    pid: u32,
    process: OwnedFd,
}

impl Mortal {
    /// `None` when it is gone, or the kernel has no such descriptors.
    #[must_use]
    pub fn open(pid: u32) -> Option<Self> {
        // SAFETY: pidfd_open(2) takes plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: just opened, nobody else has it.
        Some(Self { pid, process: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// How it ended, if it does within `patience`.
    #[must_use]
    pub fn end(&self, patience: Duration) -> Option<End> {
        let mut entry = libc::pollfd { fd: self.process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one entry that lives through the call.
        let ready = unsafe { libc::poll(&raw mut entry, 1, limit) };
        // Its parent may ask for the status between the two looks: then the first one finds it the second time.
        (ready > 0).then(|| {
            let status = self.status_kept().or_else(|| self.status_of_body()).or_else(|| self.status_kept());
            status.map_or(End::Unknown, End::of_wait_status)
        })
    }

    /// Once the parent has asked; since Linux 6.15.
    fn status_kept(&self) -> Option<i32> {
        let mut info = PidfdInfo { mask: PidfdInfo::EXIT, ..PidfdInfo::default() };
        // SAFETY: the request's number holds the size of the structure, which lives through the call.
        let done = unsafe { libc::ioctl(self.process.as_raw_fd(), PidfdInfo::GET, &raw mut info) };
        (done == 0 && info.mask & PidfdInfo::EXIT != 0).then_some(info.exit_code)
    }

    /// Until then.
    fn status_of_body(&self) -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let (_, words) = stat.rsplit_once(") ")?;
        if !words.starts_with(['Z', 'X']) {
            return None;
        }
        // The 52nd word of the line; those up to the name are cut off.
        words.split_ascii_whitespace().nth(49)?.parse().ok()
    }
}

/// `struct pidfd_info` in its first size.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    /// pid, tgid, ppid; then the four kinds of user and group.
    numbers: [u32; 11],
    exit_code: i32,
}

impl PidfdInfo {
    /// `PIDFD_INFO_EXIT`.
    const EXIT: u64 = 1 << 3;
    /// `PIDFD_GET_INFO`: read and write, size, type 0xff, number 11.
    const GET: libc::Ioctl = ((3 << 30) | ((size_of::<Self>() as u32) << 16) | (0xff << 8) | 11) as libc::Ioctl;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn how_a_process_ended_is_known_before_and_after_its_parent_asked() {
        for (script, signal, end) in
            [("read x; exit 7", false, End::Exit(7)), ("read x; kill -TERM $$; read x", true, End::Signal(15))]
        {
            let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
            let mortal = Mortal::open(child.id()).unwrap();
            assert_eq!(mortal.end(Duration::ZERO), None, "it waits for a line");
            std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
            assert_eq!(mortal.end(LONG), Some(end), "its parent has not asked yet");
            assert_eq!(child.wait().unwrap().code().is_none(), signal);
            // Kernels before 6.15 forget it.
            assert!(matches!(mortal.end(LONG), Some(e) if e == end || e == End::Unknown));
        }
    }

    #[test]
    fn nobody_has_the_number_of_nobody() {
        assert!(Mortal::open(4_194_305).is_none());
    }
}
