//! The threads of a process, each with an event that counts its CPU time and sends it a signal at each tick. The events
//! are ours: when we are gone, so are they. Constraint: a thread that blocks the signal has no event, as it is never
//! interrupted, and a wait for signals might be given a tick. (In such a wait the kernel says that nothing is blocked.)

use rustc_hash::FxHashMap;
use whither_kernel::KernelError;
use whither_kernel::perf::{Attr, PerfEvent, Watch};
use whither_kernel::proc;
use whither_probe::target::blocks_signal;
use whither_sample::causal::outside::tick_cost;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;

/// A thread that was seen to block the signal is ticked when so many looks have seen otherwise.
const LOOKS: u32 = 40;

/// See the module.
pub(super) struct Ticks {
    pid: u32,
    signal: u32,
    period_ns: u64,
    events: FxHashMap<u32, PerfEvent>,
    /// Threads that blocked the signal, with looks still to come.
    blocking: FxHashMap<u32, u32>,
}

impl Ticks {
    pub(super) fn new(pid: u32, signal: u32, period_ns: u64) -> Self {
        Self { pid, signal, period_ns, events: FxHashMap::default(), blocking: FxHashMap::default() }
    }

    /// Looks after threads that came, ended, or block the signal; some are never to be ticked.
    ///
    /// # Errors
    /// The kernel refuses an event to a thread that lives.
    pub(super) fn look(&mut self, never: &[u32]) -> Result<(), KernelError> {
        let threads = proc::threads(self.pid);
        self.events.retain(|tid, _| threads.contains(tid));
        self.blocking.retain(|tid, _| threads.contains(tid));
        for tid in threads {
            if never.contains(&tid) || self.blocks(tid) {
                self.events.remove(&tid);
            } else if !self.events.contains_key(&tid) {
                match self.open(tid) {
                    Ok(event) => {
                        self.events.insert(tid, event);
                    }
                    Err(_) if !proc::exists(tid) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Whether a thread blocks the signal, or did of late.
    fn blocks(&mut self, tid: u32) -> bool {
        if blocks_signal(tid, self.signal) {
            self.blocking.insert(tid, LOOKS);
            return true;
        }
        let Some(left) = self.blocking.get_mut(&tid) else { return false };
        *left -= 1;
        if *left == 0 {
            self.blocking.remove(&tid);
        }
        true
    }

    fn open(&self, tid: u32) -> Result<PerfEvent, KernelError> {
        let attr = Attr { disabled: true, ..attr(self.period_ns) };
        let event = PerfEvent::open(&attr, Watch::Thread(tid))?;
        event.signal_to(tid, self.signal)?;
        event.enable()?;
        Ok(event)
    }

    /// Sets the CPU time between two ticks of all threads.
    pub(super) fn set_period(&mut self, ns: u64) {
        self.period_ns = ns;
        for event in self.events.values() {
            // Of a thread that has just ended.
            let _ = event.set_period(ns);
        }
    }

    /// No tick any more.
    pub(super) fn end(&mut self) {
        self.events.clear();
    }
}

fn attr(period: u64) -> Attr {
    Attr { kind: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_TASK_CLOCK, period, exclude_kernel: true, ..Attr::default() }
}

/// What a tick takes from the thread that it meets, but for the handler: measured on ourselves, by a signal that nobody
/// handles.
pub(super) fn cost(period_ns: u64) -> u64 {
    let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let event = PerfEvent::open(&attr(period_ns), Watch::Thread(tid));
    let cost = tick_cost(period_ns);
    drop(event);
    cost
}
