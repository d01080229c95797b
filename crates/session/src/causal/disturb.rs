//! Who else uses the machine: CPU time of other processes, so that a run spoilt by them can name them.

use rustc_hash::FxHashMap;
use std::time::Duration;
use whither_kernel::proc;

/// CPU time of others since it was made.
#[derive(Debug, Default)]
pub(super) struct Disturbers {
    /// CPU ticks of processes at the last look.
    last: FxHashMap<u32, u64>,
    /// What each has used since the first look, by name.
    used: FxHashMap<String, u64>,
    begun: bool,
}

/// USER_HZ is 100 on every Linux.
const TICK: Duration = Duration::from_millis(10);

impl Disturbers {
    /// Looks at all processes but those of the group and whither.
    pub(super) fn look(&mut self, group: &[u32]) {
        let me = std::process::id();
        let mut now = FxHashMap::default();
        for pid in proc::pids().into_iter().filter(|p| *p != me && !group.contains(p)) {
            let Some((name, ticks)) = cpu_ticks(pid) else { continue };
            // A process that was not there before has used all of it meanwhile.
            let before = self.last.get(&pid).copied().unwrap_or(if self.begun { 0 } else { ticks });
            let used = ticks.saturating_sub(before);
            if used > 0 {
                *self.used.entry(name).or_default() += used;
            }
            now.insert(pid, ticks);
        }
        self.last = now;
        self.begun = true;
    }

    /// The program that used most of what others used, if one did, and steadily enough to be more than a moment's work.
    pub(super) fn foremost(&self) -> Option<&str> {
        const STEADY: u64 = 100;
        let all: u64 = self.used.values().sum();
        let (name, most) = self.used.iter().max_by_key(|(_, used)| **used)?;
        (*most >= STEADY && *most * 10 >= all * 7).then_some(name.as_str())
    }

    /// The programs that used the most, with their CPU time.
    pub(super) fn worst(&self) -> Vec<(String, Duration)> {
        let mut all: Vec<(&String, &u64)> = self.used.iter().collect();
        all.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        let time = |ticks: u64| TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
        all.into_iter().take(3).map(|(name, ticks)| (name.clone(), time(*ticks))).collect()
    }
}

/// Name, and user plus system time of a process.
fn cpu_ticks(pid: u32) -> Option<(String, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(&text)
}

fn parse(stat: &str) -> Option<(String, u64)> {
    let (head, tail) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1;
    let words: Vec<&str> = tail.split_whitespace().collect();
    let ticks = |i: usize| words.get(i)?.parse::<u64>().ok();
    Some((name.to_owned(), ticks(11)?.saturating_add(ticks(12)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_process() {
        let stat = "77 (a) b) R 1 77 77 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 5";
        assert_eq!(parse(stat), Some(("a) b".to_owned(), 42)));
        assert_eq!(parse("77 (a"), None);
    }

    #[test]
    fn one_that_took_most_of_it_is_the_foremost() {
        let used = |all: &[(&str, u64)]| {
            let used = all.iter().map(|(name, ticks)| ((*name).to_owned(), *ticks)).collect();
            Disturbers { used, ..Disturbers::default() }.foremost().map(str::to_owned)
        };
        assert_eq!(used(&[("redis-benchmark", 800), ("python3", 20)]).as_deref(), Some("redis-benchmark"));
        assert_eq!(used(&[("rustc", 450), ("chromium", 300)]), None);
        assert_eq!((used(&[("cron", 5)]), used(&[])), (None, None));
    }

    #[test]
    fn the_first_look_blames_nobody() {
        let mut others = Disturbers::default();
        others.look(&[]);
        assert!(others.worst().is_empty());
    }
}
