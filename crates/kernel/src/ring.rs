//! The perf ring buffer: mapping it and copying whole records out. What the bytes mean is in
//! `records`. Constraint: the kernel writes while we read, so head and tail are atomics and bytes are
//! copied out before the tail moves.

use crate::KernelError;
use crate::perf::PerfEvent;
use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A mapped ring.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    /// Bytes of the data area, a power of two.
    size: usize,
    page: usize,
}

/// Sleeps until one of these is readable (an event is when it has as much in its ring as its
/// [`crate::perf::Attr::wakeup_bytes`] asks for), until the time is over, or until a signal comes; returns whether one is,
/// as far as can be told.
pub fn wait<'a>(events: impl Iterator<Item = BorrowedFd<'a>>, at_most: Duration) -> bool {
    let mut fds: Vec<PollFd<'_>> = events.map(|e| PollFd::from_borrowed_fd(e, PollFlags::IN)).collect();
    // A time too long for the kernel's struct cannot come: rings are read every second.
    let limit = Timespec::try_from(at_most).ok();
    // A signal is no ring; the caller looks at its rings again soon in any case.
    if !poll(&mut fds, limit.as_ref()).is_ok_and(|filled| filled > 0) {
        return false;
    }
    if !fds.iter().any(|fd| fd.revents().contains(PollFlags::IN)) {
        // The thread of an event has ended, which is told for ever; its children write into the ring unheard.
        std::thread::sleep(UNHEARD.min(at_most));
    }
    true
}

/// Rings that nobody is woken for are read this often.
const UNHEARD: Duration = Duration::from_millis(10);

/// Whether the page of a counter allows its thread to read it by an instruction.
///
/// # Errors
/// [`KernelError::RingMap`].
pub(crate) fn allows_reading(event: &PerfEvent) -> Result<bool, KernelError> {
    const CAPABILITIES: usize = 40;
    const USER_RDPMC: u64 = 1 << 2;
    let page = rustix::param::page_size();
    let fd = event.as_fd().as_raw_fd();
    // SAFETY: a fresh mapping of our own choosing of address; the descriptor is an open perf event.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), page, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(KernelError::RingMap { bytes: page, source: std::io::Error::last_os_error() });
    }
    let word = base.wrapping_byte_add(CAPABILITIES).cast::<u64>();
    // SAFETY: an aligned word inside the mapped page.
    let capabilities = unsafe { word.read_volatile() };
    // SAFETY: mapped above, and nothing refers to it any more.
    unsafe { libc::munmap(base, page) };
    Ok(capabilities & USER_RDPMC != 0)
}

// SAFETY: the mapping is owned by this value alone; moving it to another thread moves the only reader.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the event's ring with `pages` data pages (rounded up to a power of two).
    ///
    /// # Errors
    /// [`KernelError::RingMap`]: often `perf_event_mlock_kb` for users without rights.
    pub fn map(event: &PerfEvent, pages: usize) -> Result<Self, KernelError> {
        let page = rustix::param::page_size();
        let size = pages.next_power_of_two() * page;
        // SAFETY: a fresh mapping of our own choosing of address; the descriptor is an open perf event.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size + page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(KernelError::RingMap { bytes: size + page, source: std::io::Error::last_os_error() });
        }
        let base = NonNull::new(base.cast()).expect("mmap does not return null on success");
        Ok(Self { base, size, page })
    }

    /// Hands every whole record that is in the ring to `each`, then frees the space. Returns the
    /// bytes read.
    pub fn drain(&mut self, scratch: &mut Vec<u8>, mut each: impl FnMut(&[u8])) -> usize {
        let head = self.head().load(Ordering::Acquire);
        let tail = self.tail().load(Ordering::Relaxed);
        let bytes = (head.wrapping_sub(tail) as usize).min(self.size);
        scratch.clear();
        self.copy(tail, bytes, scratch);
        let mut rest = scratch.as_slice();
        while let Some(length) = record_length(rest) {
            each(&rest[..length]);
            rest = &rest[length..];
        }
        self.tail().store(head, Ordering::Release);
        bytes
    }

    fn copy(&self, from: u64, bytes: usize, into: &mut Vec<u8>) {
        let start = from as usize & (self.size - 1);
        let first = bytes.min(self.size - start);
        let (a, b) = (self.span(start, first), self.span(0, bytes - first));
        into.extend_from_slice(a);
        into.extend_from_slice(b);
    }

    /// Bytes of the data area. The caller names a span between tail and head, which the kernel does
    /// not write.
    fn span(&self, start: usize, length: usize) -> &[u8] {
        assert!(start + length <= self.size, "a span of the ring ends inside it");
        // SAFETY: the data area lies behind the control page and `start` is inside it.
        let first = unsafe { self.base.as_ptr().add(self.page + start) };
        // SAFETY: the span lies inside the mapping (asserted), which lives as long as `self`; the
        // kernel does not write between tail and head, and the tail has not been moved yet.
        unsafe { std::slice::from_raw_parts(first, length) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset lies inside the control page.
        let word = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: the control page is mapped as long as `self`, the word is aligned, and both sides
        // access it atomically.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    fn head(&self) -> &AtomicU64 {
        self.word(std::mem::offset_of!(perf_event_mmap_page, data_head))
    }

    fn tail(&self) -> &AtomicU64 {
        self.word(std::mem::offset_of!(perf_event_mmap_page, data_tail))
    }
}

/// Length of the record at the front by its header, when it is whole.
fn record_length(bytes: &[u8]) -> Option<usize> {
    let length = usize::from(u16::from_le_bytes([*bytes.get(6)?, *bytes.get(7)?]));
    (length >= 8 && length <= bytes.len()).then_some(length)
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size + self.page) };
    }
}
