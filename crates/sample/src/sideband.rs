//! The side-band: one event per CPU that samples nothing and reports every mapping, exec, fork and
//! exit. Opened before anything else, so that the books miss nothing.

use crate::SampleError;
use whither_kernel::perf::{Attr, PerfEvent, Watch};
use whither_kernel::proc;
use whither_kernel::records::{Record, SampleFields, parse};
use whither_kernel::ring::Ring;

/// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_DUMMY`.
const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;
/// Data pages of a ring: a build storm writes some 3,000 mappings of 150 bytes a second and CPU.
const PAGES: usize = 128;

/// Side-band rings of all CPUs.
#[derive(Debug)]
pub struct Sideband {
    rings: Vec<(PerfEvent, Ring)>,
    scratch: Vec<u8>,
}

impl Sideband {
    /// Opens the rings of all CPUs on line, reporting from now on.
    ///
    /// # Errors
    /// [`SampleError::Kernel`] when the user may not watch the whole system.
    pub fn open() -> Result<Self, SampleError> {
        let attr = Attr { kind: SOFTWARE, config: DUMMY, sideband: true, ..Attr::default() };
        let mut rings = Vec::new();
        for cpu in proc::online_cpus() {
            let event = PerfEvent::open(&attr, Watch::Cpu(cpu))?;
            let ring = Ring::map(&event, PAGES)?;
            rings.push((event, ring));
        }
        Ok(Self { rings, scratch: Vec::new() })
    }

    /// All records so far, in time order.
    pub fn drain(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        for (_, ring) in &mut self.rings {
            ring.drain(&mut self.scratch, |bytes| records.extend(parse(bytes, SampleFields::default())));
        }
        records.sort_by_key(|r| r.time);
        records
    }
}
