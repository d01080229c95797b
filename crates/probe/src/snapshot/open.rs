//! Calls in progress: since when, and what CPU time they have had. Constraint: the target runs on, and its agent may set a new
//! anchor for a thread's CPU time while records that refer to the old one are read.

use crate::engine::clock::{self, Clock};
use crate::segment::Segment;
use crate::target;
use whither_abi::agent as abi;
use whither_abi::agent::Active;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) tid: u32,
    pub(crate) pid: u32,
    pub(crate) call: Active,
    /// Ticks since its entry; 0 if it is not timed.
    pub(crate) wall: u64,
    /// Nanoseconds of CPU time since then, as far as the kernel had added them up: it does so at each timer tick at the latest.
    pub(crate) cpu: Option<u64>,
}

/// An anchor set so shortly behind an entry tells of the time before it, ticks (`SHORTLY` of the agent).
const SHORTLY: u64 = 1 << 14;

/// Those of a thread, by the index of its block.
pub(crate) fn of_thread(segment: &Segment, index: u32) -> Vec<Open> {
    let thread = segment.thread(index);
    if thread.state != abi::THREAD_LIVE || thread.n_active == 0 {
        return Vec::new();
    }
    let anchor = segment.anchor(index);
    let calls = segment.active(index);
    let anchor = anchor.filter(|_| segment.anchor(index) == anchor);
    let wants_cpu = calls.iter().any(|call| call.cpu0 != 0);
    let runtime = if wants_cpu { target::runtime(thread.pid, thread.tid) } else { None };
    let now = clock::now();
    let open = |call: Active| {
        let wall = if call.t0 == 0 { 0 } else { now.saturating_sub(call.t0) };
        let cpu = runtime.zip(at_entry(&call, anchor)).map(|(now, then)| now.saturating_sub(then));
        let most = Clock::get().ns(wall);
        Open { tid: thread.tid, pid: thread.pid, call, wall, cpu: cpu.map(|ns| ns.min(most)) }
    };
    calls.into_iter().map(open).collect()
}

/// CPU time of a thread when a call was entered, nanoseconds; an even word says that the thread has not been scheduled since its
/// anchor, so that CPU time ran with the clock.
fn at_entry(call: &Active, anchor: Option<(u64, u64)>) -> Option<u64> {
    if call.cpu0 & 1 != 0 || call.cpu0 == 0 {
        return Some(call.cpu0).filter(|cpu| *cpu != 0);
    }
    let (cpu, ticks) = anchor?;
    match call.t0.checked_sub(ticks) {
        Some(since) => Some(cpu.saturating_add(Clock::get().ns(since))),
        None if ticks - call.t0 < SHORTLY => Some(cpu.saturating_sub(Clock::get().ns(ticks - call.t0))),
        None => Some(cpu),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_at_entry_is_the_word_itself_or_runs_with_the_clock_from_the_anchor() {
        let call = |t0, cpu0| Active { t0, cpu0, ..Active::default() };
        let anchor = Some((5_000_000, 1 << 40));
        assert_eq!(at_entry(&call(1 << 41, 0), anchor), None, "not asked for");
        assert_eq!(at_entry(&call(1 << 41, 7), anchor), Some(7));
        assert_eq!(at_entry(&call(1 << 41, 8), None), None, "the anchor has gone");
        let ticks = 1_u64 << 30;
        assert_eq!(at_entry(&call((1 << 40) + ticks, 8), anchor), Some(5_000_000 + Clock::get().ns(ticks)));
        assert_eq!(at_entry(&call((1 << 40) - 1000, 8), anchor), Some(5_000_000 - Clock::get().ns(1000)));
        assert_eq!(at_entry(&call((1 << 40) - (1 << 20), 8), anchor), Some(5_000_000), "as the agent has it");
    }
}
