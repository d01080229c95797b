//! The probe's view of the running kernel: files, and perf events opened for a few milliseconds.

use super::{Outcome, System, Try};
use crate::KernelError;
use crate::perf::{Attr, PerfEvent, Watch};
use perf_event_open_sys::bindings as b;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Loads the smallest BPF program; given from above, because libbpf lives in another crate.
pub type TryBpf<'a> = dyn Fn() -> Result<(), String> + 'a;

/// The running kernel.
pub struct Linux<'a> {
    try_bpf: &'a TryBpf<'a>,
}

impl<'a> Linux<'a> {
    /// With a way to try BPF.
    #[must_use]
    pub fn new(try_bpf: &'a TryBpf<'a>) -> Self {
        Self { try_bpf }
    }
}

impl System for Linux<'_> {
    fn read(&self, path: &str) -> io::Result<String> {
        // /proc/cpuinfo of a big machine is the largest file asked for; lossy, since comm may be bytes.
        std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn exists(&self, path: &str) -> bool {
        Path::new(path).exists()
    }

    fn try_event(&self, which: Try) -> Outcome {
        match PerfEvent::open(&attr(which), watch(which)) {
            Ok(event) => counts(&event),
            Err(error) => Outcome::Refused(errno(&error)),
        }
    }

    fn breakpoint_cost(&self) -> Result<Duration, i32> {
        crate::breakpoint::cost().map_err(|e| errno(&e))
    }

    fn try_bpf(&self) -> Result<(), String> {
        (self.try_bpf)()
    }
}

fn attr(which: Try) -> Attr {
    let timer = Attr { kind: b::PERF_TYPE_SOFTWARE, config: b::PERF_COUNT_SW_CPU_CLOCK.into(), ..Attr::default() };
    let cycles = Attr {
        kind: b::PERF_TYPE_HARDWARE,
        config: b::PERF_COUNT_HW_CPU_CYCLES.into(),
        exclude_kernel: true,
        ..Attr::default()
    };
    match which {
        Try::Cycles => cycles,
        // Precision is only granted to sampling events; the period is beyond the trial's length.
        Try::PreciseCycles => Attr { precise: 2, period: 1 << 40, ..cycles },
        Try::OwnProcess => Attr { exclude_kernel: true, ..timer },
        Try::Kernel | Try::WholeSystem => timer,
    }
}

fn watch(which: Try) -> Watch {
    match which {
        Try::WholeSystem => Watch::Cpu(first_cpu()),
        // Thread 0 is the caller.
        _ => Watch::Thread(0),
    }
}

/// CPU 0 may be off line or outside the container's set.
fn first_cpu() -> u32 {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let digits: String = online.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// Long enough for a counter to move, short enough not to be noticed.
const TRIAL: Duration = Duration::from_millis(2);

fn counts(event: &PerfEvent) -> Outcome {
    let end = Instant::now() + TRIAL;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
    match event.count() {
        Ok(0) => Outcome::CountsNothing,
        Ok(_) => Outcome::Counts,
        Err(error) => Outcome::Refused(errno(&error)),
    }
}

fn errno(error: &KernelError) -> i32 {
    error.errno().unwrap_or(libc::EIO)
}
