//! Memory of another process, through /proc/PID/mem (which also writes read-only text, copy on write,
//! private to the process) and `process_vm_readv`. The right to it is checked when it is opened and is
//! bound to the program of that moment: after an exec it must be opened anew.

use crate::{KernelError, proc};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;

/// Memory of a process.
#[derive(Debug)]
pub struct Memory {
    pid: u32,
    file: File,
}

impl Memory {
    /// Opens it.
    ///
    /// # Errors
    /// [`KernelError::Read`].
    pub fn open(pid: u32) -> Result<Self, KernelError> {
        let path = format!("/proc/{pid}/mem");
        let open = |path: &str| OpenOptions::new().read(true).write(true).open(path);
        let other = || proc::with_memory(pid);
        let file =
            open(&path).or_else(|e| if other() == pid { Err(e) } else { open(&format!("/proc/{}/mem", other())) });
        file.map(|file| Self { pid, file }).map_err(|source| KernelError::Read { path: path.into(), source })
    }

    /// Whose it is.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    /// [`KernelError::Memory`] when not all of it is readable.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), KernelError> {
        self.file.read_exact_at(bytes, address).map_err(|source| self.fault("reading", address, bytes.len(), source))
    }

    /// Fills as much of the start of `bytes` as is readable, and says how much.
    pub fn read_some(&self, address: u64, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], address.wrapping_add(done as u64)) {
                Ok(n) if n > 0 => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        done
    }

    /// The same, but only what the process itself may read: guard pages between stacks end it. Nothing on kernels
    /// without `process_vm_readv`.
    pub fn read_allowed(&self, address: u64, bytes: &mut [u8]) -> usize {
        self.gather(&[(address, bytes.len())], bytes)
    }

    /// Writes, also where the process itself could not.
    ///
    /// # Errors
    /// [`KernelError::Memory`].
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), KernelError> {
        self.file.write_all_at(bytes, address).map_err(|source| self.fault("writing", address, bytes.len(), source))
    }

    /// A 64-bit word.
    ///
    /// # Errors
    /// [`KernelError::Memory`].
    pub fn word(&self, address: u64) -> Result<u64, KernelError> {
        let mut bytes = [0_u8; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Sets a 64-bit word.
    ///
    /// # Errors
    /// [`KernelError::Memory`].
    pub fn set_word(&self, address: u64, word: u64) -> Result<(), KernelError> {
        self.write(address, &word.to_le_bytes())
    }

    /// Text up to NUL, at most `limit` bytes; `None` when it is not readable.
    #[must_use]
    pub fn text(&self, address: u64, limit: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0_u8; limit];
        let got = self.read_some(address, &mut bytes);
        bytes.truncate(got);
        let end = bytes.iter().position(|&b| b == 0)?;
        bytes.truncate(end);
        Some(bytes)
    }

    /// Many ranges in one system call: fills `into`, range after range, and says how many bytes were
    /// readable before the first fault.
    pub fn gather(&self, ranges: &[(u64, usize)], into: &mut [u8]) -> usize {
        let mut done = 0_usize;
        // IOV_MAX ranges at a time.
        for chunk in ranges.chunks(1024) {
            let wanted: usize = chunk.iter().map(|r| r.1).sum();
            let Some(room) = into.get_mut(done..done.saturating_add(wanted)) else { break };
            let local = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let remote: Vec<libc::iovec> =
                chunk.iter().map(|r| libc::iovec { iov_base: r.0 as *mut _, iov_len: r.1 }).collect();
            // SAFETY: the local range is ours and as long as said; remote addresses are only numbers to us.
            let got = unsafe {
                libc::process_vm_readv(self.pid as i32, &raw const local, 1, remote.as_ptr(), remote.len() as u64, 0)
            };
            done += usize::try_from(got).unwrap_or(0);
            if got != wanted as isize {
                break;
            }
        }
        done
    }

    fn fault(&self, what: &'static str, address: u64, bytes: usize, source: Error) -> KernelError {
        KernelError::Memory { what, pid: self.pid, address, bytes, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_ourselves() {
        let memory = Memory::open(std::process::id()).expect("our own memory");
        let mut word = 5_u64;
        let at = (&raw mut word) as u64;
        assert_eq!(memory.word(at).expect("reads"), 5);
        memory.set_word(at, 9).expect("writes");
        // SAFETY: a live local; volatile since the kernel changed it behind the compiler's back.
        assert_eq!(unsafe { (&raw const word).read_volatile() }, 9);
        assert!(memory.word(8).is_err(), "the first page is never mapped");
        let text = b"hello\0world";
        assert_eq!(memory.text(text.as_ptr() as u64, 11).as_deref(), Some(&b"hello"[..]));
        let mut into = [0_u8; 8];
        let start = text.as_ptr() as u64;
        assert_eq!(memory.gather(&[(start, 5), (start + 6, 3)], &mut into), 8);
        assert_eq!(&into, b"hellowor");
        assert_eq!(memory.gather(&[(start, 4), (8, 4)], &mut into), 4);
        assert_eq!(memory.read_allowed(start, &mut into), 8);
        assert_eq!(memory.read_allowed(8, &mut into), 0);
    }
}
