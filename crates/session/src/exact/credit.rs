//! How long is waited after a window of breakpoints for what it took. Were it always paid for at once, a window would follow the sooner
//! the less the one before it was hit: of a program that does now this and now that, for longer than windows are apart, the quiet stretches
//! would be watched more than the busy ones, and rates told too low (a sixth, where they varied by 40 %). So after each window what is
//! usual for its set is paid, whatever it showed, and the rest is owed, up to a limit for the target's sake. Pure.

/// Seconds of a target's time that may be owed to it, or be paid in advance.
const MOST: f64 = 0.015;

/// What is owed, in seconds of the target's time; below 0 where more was paid.
#[derive(Debug, Default)]
pub(super) struct Credit(f64);

impl Credit {
    /// What is to be paid after a window that took `lost`, where its like take `usual`, on average.
    pub(super) fn wait(&mut self, lost: f64, usual: f64) -> f64 {
        self.0 += lost - usual;
        let at_once = (self.0 - MOST).max(0.0);
        self.0 = (self.0 - at_once).max(-MOST);
        usual + at_once
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program is quiet and busy for half a second each, with 2 and 8 hits a window of 25 us: what windows saw per window, and what part
    /// of the time they took. `pay`: after a window that took so long, with the mean of all before.
    fn watched(mut pay: impl FnMut(f64, f64) -> f64) -> (f64, f64) {
        let (mut now, mut hits, mut windows, mut lost) = (0.0, 0.0, 0.0, 0.0);
        while now < 100.0 {
            let seen = if ((now / 0.5) as u64).is_multiple_of(2) { 2.0 } else { 8.0 };
            let took = seen * 25e-6;
            (hits, windows, lost) = (hits + seen, windows + 1.0, lost + took);
            now += 0.001 + pay(took, lost / windows) / 0.03;
        }
        (hits / windows, lost / now)
    }

    #[test]
    fn quiet_stretches_are_not_watched_more() {
        let (at_once, _) = watched(|took, _| took);
        assert!(at_once < 3.7, "5 are the truth: {at_once}");
        let mut credit = Credit::default();
        let (mean, part) = watched(|took, usual| credit.wait(took, usual));
        assert!((mean - 5.0).abs() < 0.25, "{mean}");
        assert!(part < 0.031, "{part}");
    }

    #[test]
    fn no_more_than_its_limit_is_owed() {
        // Quiet for long, so that hardly anything is usual, and then every window takes 2 ms.
        let mut credit = Credit::default();
        (0..1000).for_each(|_| {
            credit.wait(30e-6, 30e-6);
        });
        let paid: f64 = (0..50).map(|_| credit.wait(2e-3, 50e-6)).sum();
        assert!(paid > 50.0 * 2e-3 - MOST - 1e-9, "{paid}");
        // And as much is forgiven at most afterwards.
        let paid: f64 = (0..1000).map(|_| credit.wait(30e-6, 100e-6)).sum();
        assert!((paid - 1000.0 * 100e-6).abs() < 1e-9, "{paid}");
        assert!(credit.wait(2.0 * MOST - 1e-9, 0.0) < 1e-9, "what was paid in advance is there: {credit:?}");
    }
}
