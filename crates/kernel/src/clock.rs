//! The clocks a recording relates: wall time for people, boot time for the start of processes,
//! monotonic time for kernel records, CPU time of our own process.

use rustix::time::{ClockId, clock_gettime};

fn read(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Nanoseconds since the Unix epoch.
#[must_use]
pub fn wall_ns() -> u64 {
    read(ClockId::Realtime)
}

/// `CLOCK_BOOTTIME`, ns.
#[must_use]
pub fn boottime_ns() -> u64 {
    read(ClockId::Boottime)
}

/// `CLOCK_MONOTONIC`, ns: the clock of every kernel record here.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// CPU time whither itself has used, user and system, all threads, ns.
#[must_use]
pub fn own_cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}
