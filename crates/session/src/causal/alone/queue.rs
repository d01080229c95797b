//! Time that threads of a process have waited for a core, as the scheduler's statistics tell: behind one another, or
//! behind others. Constraint: nobody tells behind whom, so it is the program's own doing where it has more threads at
//! work than there are cores; and each wake-up takes its time to be served, which is nobody's doing.

use rustc_hash::FxHashMap;
use whither_kernel::proc;

/// A wake-up is served in this time on an idle core.
const SERVED_NS: u64 = 60_000;

/// Run time, waiting time and turns of each thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues(FxHashMap<u32, [u64; 3]>);

/// What passed between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waited {
    pub(super) own_ns: u64,
    pub(super) foreign_ns: u64,
}

impl Queues {
    pub(super) fn read(pid: u32) -> Self {
        let of = |tid: u32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
            Some((tid, parse(&text)?))
        };
        Self(proc::threads(pid).into_iter().filter_map(of).collect())
    }

    /// Since `before`; `crowded`: there are more threads at work than cores. Threads that came or went meanwhile are left out.
    pub(super) fn since(&self, before: &Self, crowded: bool) -> Waited {
        let of = |(tid, now): (&u32, &[u64; 3])| {
            let then = before.0.get(tid)?;
            let [wait, turns] = [1, 2].map(|i| now[i].saturating_sub(then[i]));
            Some(wait.saturating_sub(turns.saturating_mul(SERVED_NS)))
        };
        let waited = self.0.iter().filter_map(of).fold(0, u64::saturating_add);
        if crowded { Waited { own_ns: waited, foreign_ns: 0 } } else { Waited { own_ns: 0, foreign_ns: waited } }
    }
}

fn parse(text: &str) -> Option<[u64; 3]> {
    let mut words = text.split_whitespace().map(str::parse);
    Some([words.next()?.ok()?, words.next()?.ok()?, words.next()?.ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(rows: &[(u32, [u64; 3])]) -> Queues {
        Queues(rows.iter().copied().collect())
    }

    #[test]
    fn serving_wake_ups_is_no_waiting() {
        let before = queues(&[(1, [0, 0, 0]), (2, [0, 0, 0])]);
        let now = queues(&[(1, [50_000_000, 5_000_000, 50]), (2, [50_000_000, 9_000_000, 0]), (3, [0, 7, 0])]);
        assert_eq!(now.since(&before, false), Waited { own_ns: 0, foreign_ns: 11_000_000 });
        assert_eq!(now.since(&before, true), Waited { own_ns: 11_000_000, foreign_ns: 0 });
    }

    #[test]
    fn what_the_kernel_writes() {
        assert_eq!(parse("123 45 6\n"), Some([123, 45, 6]));
        assert_eq!(parse("123 x"), None);
        assert!(
            !Queues::read(std::process::id()).0.is_empty() || !std::path::Path::new("/proc/self/schedstat").exists()
        );
    }
}
