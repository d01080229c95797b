//! Memory shared with kernel-side programs: a mapped BPF array seen as atomic words, and the barrier
//! that makes a flip visible to every running handler.

use crate::KernelError;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A mapped array of words that the kernel writes too.
#[derive(Debug)]
pub struct SharedWords {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: all access goes through atomics, so sharing between threads is sound.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps `words` 8-byte words of a mappable BPF array.
    ///
    /// # Errors
    /// [`KernelError::Call`] with the kernel's reason.
    pub fn map(fd: BorrowedFd<'_>, words: usize) -> Result<Self, KernelError> {
        let bytes = words * 8;
        // SAFETY: a fresh shared mapping at an address of the kernel's choosing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(KernelError::Call { what: "mapping a BPF array", source: std::io::Error::last_os_error() });
        }
        Ok(Self { base: NonNull::new(base.cast()).expect("mmap does not return null on success"), words })
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds this many words, is page-aligned, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; borrows of it end with `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * 8) };
    }
}

/// Returns when every CPU has gone through a full memory barrier: a handler that begins later sees
/// what was written before, and a `busy` mark set earlier is visible here.
pub fn barrier_on_all_cpus() {
    const MEMBARRIER_CMD_GLOBAL: i32 = 1;
    // SAFETY: membarrier(2) takes plain numbers.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if done != 0 {
        // Kernels without it (or nohz_full): handlers last under 30 us, so a wait is as good.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
