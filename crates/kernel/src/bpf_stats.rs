//! Run-time statistics of BPF programs: switched on for as long as a value of [`BpfStats`] lives, read
//! from the program's entry in /proc/self/fdinfo.

use crate::KernelError;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Statistics are kept while this lives.
#[derive(Debug)]
pub struct BpfStats {
    _on: OwnedFd,
}

impl BpfStats {
    /// Switches run-time statistics on (bpf(2), `BPF_ENABLE_STATS`).
    ///
    /// # Errors
    /// The kernel's reason; needs CAP_SYS_ADMIN and Linux 5.8.
    pub fn on() -> Result<Self, KernelError> {
        const BPF_ENABLE_STATS: i32 = 32;
        const BPF_STATS_RUN_TIME: u32 = 0;
        let attr = [BPF_STATS_RUN_TIME; 1];
        // SAFETY: the command reads `size` bytes of the attribute, which outlives the call.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_ENABLE_STATS, attr.as_ptr(), size_of_val(&attr)) };
        if fd < 0 {
            let source = std::io::Error::last_os_error();
            return Err(KernelError::Call { what: "switching BPF statistics on", source });
        }
        // SAFETY: the kernel has just given us this descriptor and nobody else owns it.
        Ok(Self { _on: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }
}

/// Runs of a program so far and the nanoseconds they took, counted while statistics are on.
#[must_use]
pub fn runs(program: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()?;
    let word = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.trim().parse().ok());
    Some((word("run_cnt:")?, word("run_time_ns:")?))
}
