//! From how many samples walks begin. At the rates that a budget allows there are few samples, and executions are known by walks rather than by
//! samples: then more of them walk. And while most walks end in code that is not prepared yet, which takes them no time and tells nothing,
//! as many as may be walk, so that a program of much code is known soon. A walk takes ten times what its sample does: how many of them
//! a budget buys is said from outside. Pure arithmetic; who is told is not here.

use super::EVERY;

/// Walks per second, of all CPUs, that are worth their time.
pub const ENOUGH: f64 = 250.0;
/// And while most of them find new code.
const ENOUGH_IN_NEW_CODE: f64 = 1000.0;
/// Where fewer are allowed than are worth their time: a walk from one in so many samples at least.
const MOST_EVERY: f64 = 256.0;
/// More than this part of them in new code is most.
const NEW: f64 = 0.3;
/// It is looked at this often, once so many walks have come.
const LOOK_NS: u64 = 200_000_000;
const LEAST: u32 = 16;

/// Walks since it was looked at last.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    since: Option<u64>,
    walks: u32,
    new: u32,
    every: u32,
    learning: bool,
    /// Walks a second that may be made.
    most: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { since: None, walks: 0, new: 0, every: EVERY, learning: true, most: f64::INFINITY }
    }
}

impl Pace {
    /// Whether most walks ended in new code when it was looked at last.
    pub(super) fn is_learning(&self) -> bool {
        self.learning
    }

    /// No more walks than so many a second, of all CPUs.
    pub(super) fn limit(&mut self, walks: f64) {
        self.most = walks.max(0.0);
    }

    /// A walk began at `time`, and ended in new code or did not; one from how many samples is to walk, when that changes.
    pub(super) fn walked(&mut self, time: u64, new: bool) -> Option<u32> {
        let since = *self.since.get_or_insert(time);
        self.walks += 1;
        self.new += u32::from(new);
        let length = time.saturating_sub(since);
        if length < LOOK_NS || self.walks < LEAST {
            return None;
        }
        let samples = f64::from(self.walks * self.every) / (length as f64 / 1e9);
        let is_new = f64::from(self.new) > NEW * f64::from(self.walks);
        self.learning = is_new;
        let enough = if is_new { ENOUGH_IN_NEW_CODE } else { ENOUGH };
        let worth = (samples / enough).round().clamp(1.0, EVERY.into());
        // Those that end in new code take hardly any time.
        let most = self.most * enough / ENOUGH;
        let every = worth.max((samples / most).round()).min(MOST_EVERY) as u32;
        (self.since, self.walks, self.new) = (Some(time), 0, 0);
        (std::mem::replace(&mut self.every, every) != every).then_some(every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks of two seconds in a program that is sampled at a rate; what was told last.
    fn told(pace: &mut Pace, rate: u64, new: bool) -> u32 {
        let mut time = pace.since.unwrap_or(0);
        let end = time + 2_000_000_000;
        while time < end {
            time += 1_000_000_000 / rate * u64::from(pace.every);
            pace.walked(time, new);
        }
        pace.every
    }

    #[test]
    fn few_samples_walk_more_often_and_most_in_new_code() {
        let mut pace = Pace::default();
        assert_eq!(told(&mut pace, 10_000, true), EVERY, "as many as ever");
        assert_eq!(told(&mut pace, 10_000, false), EVERY);
        assert_eq!(told(&mut pace, 1_000, true), 1);
        assert_eq!(told(&mut pace, 1_000, false), 4);
        assert_eq!(told(&mut pace, 300, false), 1);
        assert_eq!(told(&mut pace, 4_000, false), EVERY);
    }

    #[test]
    fn no_more_walk_than_the_budget_buys() {
        let mut pace = Pace::default();
        pace.limit(50.0);
        assert_eq!(told(&mut pace, 4_000, false), 80);
        assert_eq!(told(&mut pace, 4_000, true), 20, "and in new code as much more as ever");
        pace.limit(0.0);
        assert_eq!(told(&mut pace, 4_000, false), MOST_EVERY as u32);
        pace.limit(1e9);
        assert_eq!(told(&mut pace, 4_000, false), EVERY);
    }

    #[test]
    fn what_ends_in_new_code_is_learning() {
        let mut pace = Pace::default();
        assert!(pace.is_learning(), "nothing is known at first");
        told(&mut pace, 1_000, false);
        assert!(!pace.is_learning());
        told(&mut pace, 1_000, true);
        assert!(pace.is_learning());
    }

    #[test]
    fn it_is_told_once() {
        let mut pace = Pace::default();
        let told: Vec<u32> = (0..2000).filter_map(|n| pace.walked(n * 5_000_000, false)).collect();
        assert_eq!(told, [4, 3, 2], "1000 samples a second, and then as few as walks");
    }
}
