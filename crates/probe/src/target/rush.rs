//! First claim on a processor while threads of a target are held up. By a better `nice` alone a controller that has
//! let the first of 64 threads go waits for its next turn as long as they like: 3 to 30 ms were seen until the last
//! one was let go. Real-time scheduling, at its lowest priority, comes before all of them. Constraint: begun right
//! before the first thread is asked to stop and over when the last one was let go; whoever waits meanwhile sleeps.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// This thread comes first until it is dropped; without the right to that, nothing changes.
#[derive(Debug)]
pub(super) struct Rush {
    /// The policy to go back to.
    before: Option<libc::c_int>,
}

impl Rush {
    /// Begins.
    pub(super) fn begin() -> Self {
        // SAFETY: takes a plain number; 0 is the calling thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        // Whoever has something better keeps it.
        let plain = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
        Self { before: (plain && set(libc::SCHED_FIFO, 1)).then_some(policy) }
    }
}

impl Drop for Rush {
    fn drop(&mut self) {
        if let Some(policy) = self.before {
            // Giving up is always allowed; the nice value has been kept.
            set(policy, 0);
        }
    }
}

fn set(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: reads one structure of ours; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// Waits until some threads may have stopped; `fruitless` looks in a row found none that had. Asleep, as they need
/// processors and ours is one; when there are none left, awake: a virtual machine that has nothing to do loses its
/// processors for milliseconds.
pub(super) fn wait(outstanding: usize, fruitless: u32) {
    /// For a thread that has stopped to leave its processor.
    const ASIDE: Duration = Duration::from_micros(3);
    if outstanding > 0 {
        return std::thread::sleep(moment(outstanding, fruitless));
    }
    let began = Instant::now();
    while began.elapsed() < ASIDE {
        std::hint::spin_loop();
    }
}

/// How long some threads take to stop: each needs a processor for a moment. Twice as long after each look that found none
/// stopped: a thread that waits for the processor on which we look gets nowhere when we come back, as whoever comes first
/// does, before it has been switched to; 900 looks in 68 ms were seen, until an idle processor took the thread over.
fn moment(threads: usize, fruitless: u32) -> Duration {
    /// To be switched to, and to stop.
    const TURN: u64 = 4_000;
    /// So that our own looks take no more time than they have to.
    const SHORTEST: u64 = 10_000;
    const LONGEST: u64 = 500_000;
    /// Enough for any shortest one to become the longest.
    const DOUBLINGS: u32 = 6;
    static PROCESSORS: OnceLock<u64> = OnceLock::new();
    let processors = PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64));
    let first = (threads as u64 * TURN / processors).clamp(SHORTEST, LONGEST);
    Duration::from_nanos((first << fruitless.min(DOUBLINGS)).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_comes_back() {
        // SAFETY: takes a plain number.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let rush = Rush::begin();
        assert!(policy() == libc::SCHED_FIFO || policy() == before);
        let inner = Rush::begin();
        drop(inner);
        assert!(policy() == libc::SCHED_FIFO || policy() == before, "the inner one gives nothing back");
        drop(rush);
        assert_eq!(policy(), before);
    }

    #[test]
    fn many_threads_are_given_longer() {
        assert!(moment(0, 0) >= Duration::from_micros(10));
        assert!(moment(1, 0) <= moment(64, 0) && moment(64, 0) <= moment(100_000, 0));
        assert!(moment(1_000_000, 9) <= Duration::from_millis(1));
    }

    /// Until a thread on our own processor has surely been switched to and has stopped, looks that take some 50 us are few.
    #[test]
    fn looks_in_vain_become_rarer() {
        let waits: Vec<Duration> = (0..20).map(|fruitless| moment(1, fruitless)).collect();
        assert!(waits.windows(2).all(|w| w[1] == (w[0] * 2).min(Duration::from_micros(500))), "{waits:?}");
        assert_eq!(moment(1, u32::MAX), waits[19]);
    }
}
