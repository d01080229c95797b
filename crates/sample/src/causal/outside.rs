//! What the kernel counts by itself and a window is judged by: time the hypervisor took, major faults.

use std::fs;
use whither_kernel::{clock, proc};

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
    best(MOST_TRIES, || largest_holes(tick_ns)).min(tick_ns / 4)
}

/// A try takes as long as thirty ticks: nothing is measured meanwhile.
const MOST_TRIES: u32 = 5;
/// Tries that had the core throughout, of which no more are needed.
const ENOUGH: u32 = 2;

/// The largest value of some tries, and whether each was left alone.
fn best(tries: u32, mut once: impl FnMut() -> (u64, bool)) -> u64 {
    let (mut best, mut alone) = (0, 0);
    for _ in 0..tries {
        let (value, was_alone) = once();
        best = best.max(value);
        alone += u32::from(was_alone);
        if alone == ENOUGH {
            break;
        }
    }
    best
}

/// With whether this thread had the core for nearly all of that time.
fn largest_holes(tick_ns: u64) -> (u64, bool) {
    const TICKS: usize = 30;
    let mut holes = Vec::with_capacity(1 << 16);
    let (begin, cpu) = (super::now(), clock::own_cpu_ns());
    let (mut last, end) = (begin, begin + TICKS as u64 * tick_ns);
    while last < end && holes.len() < holes.capacity() {
        let at = super::now();
        if at - last > SHORTEST_HOLE_NS {
            holes.push(at - last);
        }
        last = at;
    }
    let alone = (clock::own_cpu_ns() - cpu) >= (last - begin) / 20 * 19;
    holes.sort_unstable_by(|a, b| b.cmp(a));
    holes.truncate(TICKS);
    (holes.get(holes.len() / 2).copied().unwrap_or(0), alone)
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
    fn tries_end_when_two_were_left_alone() {
        let tries = |seen: &[(u64, bool)]| {
            let mut left = seen.iter().copied();
            (best(5, || left.next().unwrap()), left.len())
        };
        let (alone, not) = (true, false);
        assert_eq!(tries(&[(7, alone), (6, alone), (9, alone)]), (7, 1));
        assert_eq!(tries(&[(1, not), (7, alone), (1, not), (6, alone), (1, not)]), (7, 1));
        assert_eq!(tries(&[(1, not), (2, not), (7, alone), (1, not), (3, not)]), (7, 0));
    }

    #[test]
    fn we_live() {
        assert!(lives(std::process::id()));
    }
}
