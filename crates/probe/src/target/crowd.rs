//! Processes with more threads that want to run than there are processors. A thread borrowed from such a one gets its turn
//! only after the others, for each of the calls it is to make: adding 1,000 functions to 64 spinning threads on two processors held
//! one of them for 12 to 24 ms. So the others stand still meanwhile, for a fraction of a millisecond.

use super::remote::Caller;
use super::stop::{Stopped, thread_state};
use crate::api::Pause;
use std::thread::available_parallelism;
use whither_kernel::proc;

/// Threads that stand still so that borrowed ones have the processors to themselves.
#[derive(Debug, Default)]
pub(crate) struct Crowd(Vec<Stopped>);

impl Crowd {
    /// Stops the other threads of borrowed ones in these processes, where they stop soon. To be called when the borrowed
    /// ones stand; they are to be let go before these.
    pub(crate) fn stop(&mut self, callers: &[Caller], crowded: &[u32]) {
        for caller in callers.iter().filter(|c| crowded.contains(&c.pid())) {
            // Without it the calls only take longer.
            if let Ok(Some(mut others)) = Stopped::beside_once(caller.pid(), caller.tid()) {
                others.step_back();
                self.0.push(others);
            }
        }
    }

    /// Lets them go, and says how long they were held.
    #[must_use]
    pub(crate) fn release(self) -> Pause {
        self.0.into_iter().map(Stopped::release).fold(Pause::default(), Pause::max)
    }
}

/// Whether more threads of a process want to run than there are processors for all.
pub(crate) fn is_crowded(pid: u32) -> bool {
    let processors = available_parallelism().map_or(1, usize::from);
    let threads = proc::threads(pid);
    threads.len() > processors
        && threads.into_iter().filter(|&tid| thread_state(pid, tid) == 'R').nth(processors).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_sleeper_is_no_crowd_and_many_spinners_are() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        assert!(!is_crowded(sleeper.id()));
        sleeper.kill().and_then(|()| sleeper.wait()).expect("ends");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..available_parallelism().map_or(1, usize::from) + 2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // This thread runs too, and whoever was just made is known to the kernel as able to run.
            let found = (0..1000).any(|_| is_crowded(std::process::id()));
            stop.store(true, Ordering::Relaxed);
            assert!(found);
        });
    }
}
