//! How much longer than the shortest windows are. Few visits make them longer, as in the paper (P15), and plenty of visits
//! in several windows in a row shorter again: a program begins with a phase that makes few, or makes a pause. What a
//! window's length is comes from windows before it and never from itself, whatever its target and amount are.

use crate::options::PolicyOptions;
use whither_store::causal::Window;

/// A good window has so many visits.
pub(super) const VISITS: f64 = 10.0;
/// Windows in a row that must have held plenty at first.
const PATIENCE: u32 = 2;
/// It is doubled so often at most: there are no runs of so many windows.
const MOST_PATIENCE: u32 = 1 << 16;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Length {
    /// Windows are so many times as long as the shortest, a power of two.
    times: u64,
    /// Pauses of the program want no less.
    least: u64,
    /// The point was visited in a window: before that nothing is known of how often it is, and windows that wait for its
    /// first visit say nothing of those to come.
    visited: bool,
    /// Windows in a row that held plenty, and the fewest visits per nanosecond in one of them.
    plenty: u32,
    slowest: f64,
    /// So many are wanted. A program that has phases all the time doubles it each time, until windows stay as long as
    /// its phases demand.
    patience: u32,
    /// They were made shorter, and not longer since.
    shortened: bool,
}

impl Length {
    /// The shortest.
    pub(super) fn new() -> Self {
        Self {
            times: 1,
            least: 1,
            visited: false,
            plenty: 0,
            slowest: f64::INFINITY,
            patience: PATIENCE,
            shortened: false,
        }
    }

    /// In shortest windows.
    pub(super) fn times(&self) -> u64 {
        self.times
    }

    /// Takes note of a window, whether it counts or not; whether later ones are shorter.
    pub(super) fn learn(&mut self, window: &Window, options: &PolicyOptions) -> bool {
        let visits = window.visits.iter().find(|v| v.point == 0).map_or(0, |v| v.visits);
        self.visited |= visits > 0;
        if window.wall_ns < options.min_window_ns {
            return false;
        }
        let enough = self.enough(visits, window.wall_ns, options);
        if visits < options.min_visits {
            self.lengthen(options);
        } else if enough >= self.times {
            self.forget();
        } else {
            self.plenty += 1;
            self.slowest = self.slowest.min(visits as f64 / window.wall_ns as f64);
            return self.shorten(options);
        }
        false
    }

    /// At least so long from now on; whether that is longer.
    pub(super) fn demand(&mut self, times: u64) -> bool {
        let longer = times > self.times;
        self.least = self.least.max(times);
        if longer {
            self.times = times;
            self.forget();
        }
        longer
    }

    fn lengthen(&mut self, options: &PolicyOptions) {
        self.forget();
        let longest = options.max_window_ns / options.min_window_ns.max(1);
        if !self.visited || self.times >= longest {
            return;
        }
        self.times *= 2;
        if std::mem::take(&mut self.shortened) {
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        }
    }

    fn shorten(&mut self, options: &PolicyOptions) -> bool {
        if self.plenty < self.patience {
            return false;
        }
        self.times = times_for(self.slowest, options).clamp(self.least, self.times);
        self.shortened = true;
        self.forget();
        true
    }

    fn forget(&mut self) {
        (self.plenty, self.slowest) = (0, f64::INFINITY);
    }

    /// How long windows with visits as frequent as in this one must be.
    fn enough(&self, visits: u64, wall_ns: u64, options: &PolicyOptions) -> u64 {
        times_for(visits as f64 / wall_ns.max(1) as f64, options).max(self.least)
    }
}

/// How many times as long as the shortest a window must be for plenty of visits, with so many per nanosecond. As a window may
/// last twice as long for want of visits, they must become four times as rare until it is too short: a steady program has
/// windows of one length.
fn times_for(rate: f64, options: &PolicyOptions) -> u64 {
    let wanted = VISITS.max(2.0 * options.min_visits as f64);
    let shortest = options.min_window_ns.max(1) as f64;
    ((wanted / rate / shortest).ceil().clamp(1.0, 1e9) as u64).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::causal::PointVisits;

    const SHORTEST: u64 = 100_000_000;

    /// A program and its windows.
    struct Runs {
        length: Length,
        options: PolicyOptions,
    }

    impl Runs {
        fn new() -> Self {
            Self { length: Length::new(), options: PolicyOptions::default() }
        }

        /// So many windows with so many visits per second; how long they were.
        fn pass(&mut self, windows: usize, per_second: f64) -> Vec<u64> {
            let one = |_| {
                let times = self.length.times();
                let least = times * SHORTEST;
                // It lasts up to twice as long for want of visits.
                let visits = |ns: u64| (per_second * ns as f64 / 1e9) as u64;
                let wall_ns = if visits(least) < self.options.min_visits { 2 * least } else { least };
                let visits = vec![PointVisits { visits: visits(wall_ns), ..PointVisits::default() }];
                self.length.learn(&Window { wall_ns, visits, ..Window::default() }, &self.options);
                times
            };
            (0..windows).map(one).collect()
        }
    }

    #[test]
    fn windows_before_the_first_visits_are_no_reason_for_long_ones() {
        let mut runs = Runs::new();
        assert_eq!(runs.pass(20, 0.0), [1; 20]);
        assert_eq!(runs.pass(20, 465.0), [1; 20]);
        // A pause later may come again.
        assert_eq!(runs.pass(4, 0.0), [1, 2, 4, 8]);
    }

    #[test]
    fn windows_get_shorter_again_when_visits_come_often() {
        let mut runs = Runs::new();
        assert_eq!(runs.pass(4, 8.0), [1, 2, 4, 4]);
        assert_eq!(runs.pass(5, 465.0), [4, 4, 1, 1, 1]);
        // As long as they must be, no longer and no shorter.
        let mut runs = Runs::new();
        runs.pass(1, 5.0);
        runs.pass(8, 1.0);
        assert_eq!(runs.pass(6, 30.0).last(), Some(&4), "12 visits");
        assert_eq!(runs.pass(40, 30.0), [4; 40]);
        assert_eq!(runs.pass(40, 8.0), [4; 40], "it is long enough for 5");
    }

    #[test]
    fn phases_that_come_again_and_again_keep_windows_long() {
        let mut runs = Runs::new();
        runs.pass(3, 465.0);
        let mut changes = 0;
        let mut last = runs.length.times();
        for _ in 0..200 {
            for times in runs.pass(2, 0.0).into_iter().chain(runs.pass(9, 465.0)) {
                changes += usize::from(times != last);
                last = times;
            }
        }
        assert!(changes < 30, "{changes}");
        assert!(runs.length.times() > 8, "{}", runs.length.times());
    }

    #[test]
    fn what_pauses_demand_stays() {
        let mut runs = Runs::new();
        assert!(runs.length.demand(8) && !runs.length.demand(4));
        assert_eq!(runs.pass(20, 1000.0), [8; 20]);
    }
}
