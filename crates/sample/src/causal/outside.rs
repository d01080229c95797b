//! What the kernel counts by itself and a window is judged by: time the hypervisor took, major faults.

use std::fs;
use whither_kernel::proc;

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Time that the hypervisor took from this machine's CPUs.
    pub steal_ns: u64,
    /// Major page faults of the processes.
    pub major_faults: u64,
}

impl Outside {
    /// Steal of all CPUs, major faults of these processes.
    #[must_use]
    pub fn read(pids: &[u32]) -> Self {
        Self {
            steal_ns: proc::cpu_times().iter().map(|(_, t)| t.steal_ns).sum(),
            major_faults: pids.iter().filter_map(|pid| stat(*pid)).map(|s| s.1).sum(),
        }
    }

    /// What was added since `before`; a process that ended takes its faults with it.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            steal_ns: self.steal_ns.saturating_sub(before.steal_ns),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
        }
    }
}

/// What a tick takes from the thread it meets: holes in the time of a thread that does nothing but look at
/// the clock. The largest ones, as many as there were ticks, are the ticks'; the one in the middle tells.
#[must_use]
pub fn tick_cost(tick_ns: u64) -> u64 {
    // While others have the core no tick is met, and lesser holes are taken for ticks: the best of several tries.
    (0..5).map(|_| largest_holes(tick_ns)).max().unwrap_or(0).min(tick_ns / 4)
}

fn largest_holes(tick_ns: u64) -> u64 {
    const TICKS: usize = 30;
    let mut holes = Vec::with_capacity(1 << 16);
    let mut last = super::now();
    let end = last + TICKS as u64 * tick_ns;
    while last < end && holes.len() < holes.capacity() {
        let at = super::now();
        if at - last > SHORTEST_HOLE_NS {
            holes.push(at - last);
        }
        last = at;
    }
    holes.sort_unstable_by(|a, b| b.cmp(a));
    holes.truncate(TICKS);
    holes.get(holes.len() / 2).copied().unwrap_or(0)
}

/// Looking at the clock takes a tenth of this.
const SHORTEST_HOLE_NS: u64 = 500;

/// Whether a process is there and not just waiting for its parent to notice that it ended.
#[must_use]
pub fn lives(pid: u32) -> bool {
    proc::runs(pid)
}

fn stat(pid: u32) -> Option<(char, u64)> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// State and major faults. The name in brackets may hold anything, brackets included.
fn parse(stat: &str) -> Option<(char, u64)> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    // ppid pgrp session tty tpgid flags minflt cminflt majflt
    Some((state, words.nth(8)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_brackets() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 1205 0 17 0 3 2 0 0 20 0 1 0 5 0 0";
        assert_eq!(parse(stat), Some(('S', 17)));
        assert_eq!(parse("77 (x"), None);
    }

    #[test]
    fn we_live() {
        assert!(lives(std::process::id()));
    }
}
