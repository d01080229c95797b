//! On which CPUs threads may run. Here: all threads of some processes together. Where that cannot be told, or would take long, it is every CPU.

use crate::proc;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Threads that are asked; of more it takes milliseconds.
const MOST: usize = 256;

/// CPUs that some thread of a group may run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// `None`: any.
    only: Option<Vec<u32>>,
}

impl Reach {
    /// Of all threads of these processes.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let online = proc::online_cpus();
        let mut only: Vec<u32> = Vec::new();
        let threads = pids.iter().flat_map(|pid| proc::threads(*pid)).take(MOST + 1);
        for (asked, tid) in threads.enumerate() {
            // One that has ended meanwhile runs nowhere.
            let Some(set) = affinity(tid) else { continue };
            only.extend(online.iter().filter(|cpu| set.is_set(**cpu as usize)));
            only.sort_unstable();
            only.dedup();
            if only.len() >= online.len() || asked == MOST {
                return Self::default();
            }
        }
        // Of nobody nothing is known.
        Self { only: Some(only).filter(|only| !only.is_empty()) }
    }

    /// Whether it is one of them.
    #[must_use]
    pub fn has(&self, cpu: u32) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&cpu))
    }
}

fn affinity(tid: u32) -> Option<CpuSet> {
    sched_getaffinity(Some(Pid::from_raw(i32::try_from(tid).ok()?)?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_program_that_is_kept_on_one_cpu_is_nowhere_else() {
        let cpus = proc::online_cpus();
        let last = *cpus.last().expect("a CPU");
        let kept = Command::new("taskset").args(["-c", &last.to_string(), "sleep", "30"]).spawn();
        let Ok(mut kept) = kept else { return eprintln!("SKIP: no taskset here") };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while proc::comm(kept.id()) != "sleep" && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let reach = Reach::of(&[kept.id()]);
        let seen: Vec<u32> = cpus.iter().copied().filter(|cpu| reach.has(*cpu)).collect();
        let together = Reach::of(&[kept.id(), std::process::id()]);
        let _ = (kept.kill(), kept.wait());
        assert_eq!(seen, [last]);
        assert!(cpus.iter().all(|cpu| together.has(*cpu)), "this test may run anywhere: {together:?}");
        assert!(Reach::of(&[]).has(0) && Reach::of(&[u32::MAX / 2]).has(0), "nobody");
    }
}
