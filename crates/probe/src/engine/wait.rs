//! Waiting for the end of a process without being its parent: by a descriptor of it, as long as wanted.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A descriptor that becomes readable when the process has ended; `None` when it is gone already.
pub(super) fn process(pid: u32) -> Option<OwnedFd> {
    // SAFETY: pidfd_open(2) takes plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: just opened, nobody else has it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of two can be read (or was closed at its other end), at most so long; which can.
pub(super) fn readable(fds: &[Option<RawFd>; 2], limit: Duration) -> [bool; 2] {
    // poll(2) leaves negative descriptors out.
    let mut entries = fds.map(|fd| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 });
    let limit = i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: two entries that live through the call.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), 2, limit) };
    entries.map(|e| ready > 0 && e.revents != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    #[test]
    fn the_end_of_a_process_is_seen_at_once() {
        let mut child = std::process::Command::new("sleep").arg("0.1").spawn().expect("sleep");
        let fd = process(child.id()).expect("a descriptor");
        let fds = [None, Some(fd.as_raw_fd())];
        assert_eq!(readable(&fds, Duration::from_millis(1)), [false, false]);
        let began = Instant::now();
        assert_eq!(readable(&fds, Duration::from_secs(20)), [false, true]);
        assert!(began.elapsed() < Duration::from_secs(10));
        child.wait().expect("waits");
    }
}
