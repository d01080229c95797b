//! Keeps what interpreting costs below its share of a CPU, by having registers taken of fewer samples. Thinning is
//! random at any degree, so that it changes how much is known, not what. Pure arithmetic; who is told is not here.

use crate::plan::Spend;

/// Registers of one sample in so many, at first and at most.
pub(crate) const FIRST_EVERY: u32 = 8;
const MOST_EVERY: u32 = 512;
/// It is looked at this often: the code of a program that has just begun is dear, and soon known.
const LOOK_NS: u64 = 1_000_000_000;

pub(crate) struct Thrift {
    spend: Spend,
    every: u32,
    since: Option<u64>,
    spent_ns: u64,
}

impl Thrift {
    pub(crate) fn new(spend: Spend) -> Self {
        Self { spend, every: FIRST_EVERY, since: None, spent_ns: 0 }
    }

    /// So much was spent up to now; the new degree of thinning, when it changes.
    pub(crate) fn spent(&mut self, now: u64, ns: u64) -> Option<u32> {
        let Spend::Share(millionths) = self.spend else { return None };
        let allowed = f64::from(millionths) / 1e6;
        let since = *self.since.get_or_insert(now);
        self.spent_ns += ns;
        let length = now.saturating_sub(since);
        if length < LOOK_NS {
            return None;
        }
        let share = self.spent_ns as f64 / length as f64;
        (self.since, self.spent_ns) = (Some(now), 0);
        let every = if share > allowed {
            // At once as thin as it takes.
            (self.every as f64 * share / allowed).ceil().min(MOST_EVERY.into()) as u32
        } else if share < allowed / 2.0 {
            (self.every / 2).max(FIRST_EVERY)
        } else {
            self.every
        };
        (std::mem::replace(&mut self.every, every) != every).then_some(every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dear_code_is_sampled_less_and_cheap_code_as_at_first() {
        let mut thrift = Thrift::new(Spend::Share(300));
        assert_eq!(thrift.spent(0, 0), None);
        assert_eq!(thrift.spent(LOOK_NS / 2, 600_000), None, "too early to tell");
        // 1.2 ms of a second are four times too much.
        assert_eq!(thrift.spent(LOOK_NS, 600_000), Some(4 * FIRST_EVERY));
        assert_eq!(thrift.spent(2 * LOOK_NS, 250_000), None, "just right");
        assert_eq!(thrift.spent(3 * LOOK_NS, 100_000), Some(2 * FIRST_EVERY));
        assert_eq!(thrift.spent(4 * LOOK_NS, 0), Some(FIRST_EVERY));
        assert_eq!(thrift.spent(5 * LOOK_NS, 0), None, "never more than at first");
        assert_eq!(thrift.spent(6 * LOOK_NS, u64::MAX / 2), Some(MOST_EVERY));
    }

    #[test]
    fn who_wants_everything_gets_it() {
        let mut thrift = Thrift::new(Spend::Freely);
        assert_eq!((0..9).find_map(|n| thrift.spent(n * LOOK_NS, LOOK_NS)), None);
    }
}
