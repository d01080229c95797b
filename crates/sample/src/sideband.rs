//! The side-band: one event per CPU that samples nothing and reports every mapping, exec, fork and
//! exit. Opened before anything else, so that the books miss nothing.

use crate::SampleError;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use whither_kernel::perf::{Attr, PerfEvent, Watch};
use whither_kernel::records::{Record, SampleFields, parse};
use whither_kernel::ring::{Ring, wait};
use whither_kernel::{clock, proc};

/// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_DUMMY`.
const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;
/// Data pages of a ring: a build storm writes some 3,000 mappings of 150 bytes a second and CPU.
const PAGES: usize = 128;
/// Who waits is woken when a quarter of a ring is full.
const WAKE_BYTES: u32 = 128 * 4096 / 4;

/// A record is stamped a little before it can be read: what is younger than this may still have
/// older ones behind it.
pub(crate) const SETTLE_NS: u64 = 200_000;

/// Side-band rings of all CPUs.
#[derive(Debug)]
pub struct Sideband {
    rings: Vec<(u32, PerfEvent, Ring)>,
    /// Read, but not yet handed out.
    pending: Vec<Record>,
    scratch: Vec<u8>,
}

impl Sideband {
    /// Opens the rings of all CPUs on line, reporting from now on.
    ///
    /// # Errors
    /// [`SampleError::Kernel`] when the user may not watch the whole system.
    pub fn open() -> Result<Self, SampleError> {
        let mut this = Self { rings: Vec::new(), pending: Vec::new(), scratch: Vec::new() };
        proc::online_cpus().into_iter().try_for_each(|cpu| this.join(cpu))?;
        Ok(this)
    }

    /// Watches one CPU more.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn join(&mut self, cpu: u32) -> Result<(), SampleError> {
        let attr = Attr { kind: SOFTWARE, config: DUMMY, sideband: true, wakeup_bytes: WAKE_BYTES, ..Attr::default() };
        let event = PerfEvent::open(&attr, Watch::Cpu(cpu))?;
        let ring = Ring::map(&event, PAGES)?;
        self.rings.push((cpu, event, ring));
        Ok(())
    }

    /// Closes the ring of a CPU that went off line; what it held is handed out next.
    pub fn leave(&mut self, cpu: u32) {
        self.read();
        self.rings.retain(|(c, ..)| *c != cpu);
    }

    fn read(&mut self) {
        let pending = &mut self.pending;
        for (_, _, ring) in &mut self.rings {
            ring.drain(&mut self.scratch, |bytes| pending.extend(parse(bytes, SampleFields::default())));
        }
    }

    /// Records up to the time returned, in time order. Rings are read one after another, so a child
    /// forked on one CPU may have been seen to exec on another before its fork is read: only what is
    /// older than the start of the reading is complete.
    pub fn drain(&mut self) -> (Vec<Record>, u64) {
        let until = clock::monotonic_ns().saturating_sub(SETTLE_NS);
        self.read();
        self.pending.sort_by_key(|r| r.time);
        let ready = self.pending.partition_point(|r| r.time <= until);
        (self.pending.drain(..ready).collect(), until)
    }

    /// Sleeps until a ring fills or `other` becomes readable, the time is over, or a signal comes; returns whether something
    /// has.
    pub fn wait(&self, other: BorrowedFd<'_>, at_most: Duration) -> bool {
        wait(self.rings.iter().map(|(_, event, _)| event.as_fd()).chain([other]), at_most)
    }

    /// Waits until everything that happened before now is handed out by the next [`Self::drain`].
    pub fn settle() {
        std::thread::sleep(Duration::from_nanos(SETTLE_NS));
    }
}
