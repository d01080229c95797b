//! What windows showed, added up until it is stored. Pure.

use super::plan::{Place, Set};
use rustc_hash::FxHashMap;
use whither_kernel::breakpoint::Window;
use whither_store::model::ExactCount;

/// A window that hits took more than one part in so many of is too dense to tell executions by time.
const CROWDED: u64 = 3;
/// The round under way when a window ends counts as one in so many: rounds that are all alike are half over on average,
/// and of those that may end at any time nothing is.
const UNDER_WAY: u64 = 4;
/// However slow hits make it, a thread makes some progress: one part in so many of a window.
const PROGRESS: f64 = 0.02;

/// Counts of all sets since the beginning, and those that were not yet taken to be stored.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sets: FxHashMap<Set, Counts>,
    windows: u64,
}

/// Counts of one set; image and set number of its rows are not filled in.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) rows: Vec<ExactCount>,
    untaken: Vec<ExactCount>,
}

impl Tally {
    /// Adds a window of one thread; what its hits took, in nanoseconds, comes back.
    pub(super) fn add(&mut self, set: &Set, window: &Window, cost_ns: u64) -> u64 {
        let hits_ns = (window.taken * cost_ns).min(window.enabled_ns);
        // A thread that did not run says nothing.
        if window.enabled_ns == 0 {
            return 0;
        }
        self.windows += 1;
        let mut whole = whole(&window.order, window.hits.len());
        if whole[0] > 0 && self.windows.is_multiple_of(UNDER_WAY) {
            whole[0] += 1;
        }
        let crowded = window.is_spent || hits_ns * CROWDED > window.enabled_ns;
        let counts = self.sets.entry(set.clone()).or_default();
        counts.rows.resize(set.0.len(), ExactCount::default());
        counts.untaken.resize(set.0.len(), ExactCount::default());
        for (i, (hits, whole)) in window.hits.iter().zip(whole).enumerate() {
            let row = ExactCount {
                leads: i == 0,
                hits: *hits,
                whole,
                crowded: if crowded { *hits } else { 0 },
                squares: hits * hits,
                windows: 1,
                enabled_ns: window.enabled_ns,
                hits_ns,
                ..ExactCount::default()
            };
            for rows in [&mut counts.rows, &mut counts.untaken] {
                rows[i].add(&row);
                rows[i].leads = row.leads;
            }
        }
        hits_ns
    }

    pub(super) fn of(&self, set: &Set) -> Option<&[ExactCount]> {
        self.sets.get(set).map(|c| c.rows.as_slice())
    }

    /// Executions per nanosecond of each place that was hit, roughly: the most that any of its sets saw.
    pub(super) fn rates(&self) -> FxHashMap<Place, f64> {
        let mut out: FxHashMap<Place, f64> = FxHashMap::default();
        for (set, counts) in &self.sets {
            for (place, row) in set.0.iter().zip(&counts.rows).filter(|r| r.1.hits > 0) {
                let enabled = row.enabled_ns as f64;
                let rate = row.hits as f64 / (enabled - row.hits_ns as f64).max(PROGRESS * enabled);
                let most = out.entry(*place).or_default();
                *most = most.max(rate);
            }
        }
        out
    }

    /// Counts since they were last taken.
    pub(super) fn take(&mut self) -> Vec<(Set, Vec<ExactCount>)> {
        let new = |c: &&mut Counts| c.untaken.iter().any(|r| r.windows > 0);
        let mut out: Vec<(Set, Vec<ExactCount>)> = Vec::new();
        for (set, counts) in &mut self.sets {
            if new(&counts) {
                out.push((set.clone(), std::mem::take(&mut counts.untaken)));
            }
        }
        out
    }
}

/// Executions of each of `members` after the first of the one that leads.
fn whole(order: &[u8], members: usize) -> Vec<u64> {
    let mut out = vec![0; members];
    let first = order.iter().position(|m| *m == 0).map_or(order.len(), |first| first + 1);
    order[first..].iter().for_each(|m| out[usize::from(*m)] += 1);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_image::ImageOffset;
    use whither_sample::lives::ImageNo;

    fn set(members: u64) -> Set {
        Set((0..members).map(|i| Place { image: ImageNo(0), offset: ImageOffset(i) }).collect())
    }

    #[test]
    fn rounds_begin_with_the_first_hit_of_the_leader() {
        assert_eq!(whole(&[1, 0, 1, 2, 0, 0, 2], 3), [2, 1, 2]);
        assert_eq!(whole(&[1, 2, 1], 3), [0, 0, 0]);
        assert_eq!(whole(&[1, 0, 1], 3), [0, 1, 0]);
        assert_eq!(whole(&[], 2), [0, 0]);
    }

    /// Loops of ten turns entered anew, and loops that end by chance after ten turns: both are ten turns in the end.
    #[test]
    fn rounds_of_any_kind_have_the_length_they_have() {
        let mut seed = 1_u64;
        let mut ends = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33).is_multiple_of(10)
        };
        for by_chance in [false, true] {
            let mut tally = Tally::default();
            for _ in 0..4000 {
                // From the outside into the loop: 0 enters, 1 turns. Ninety turns fill a window.
                let (mut order, mut turns, mut here) = (vec![0], 0, 0);
                while turns < 90 {
                    order.push(1);
                    (turns, here) = (turns + 1, here + 1);
                    if if by_chance { ends() } else { here == 10 } {
                        order.push(0);
                        here = 0;
                    }
                }
                let hits = [0, 1].map(|m| order.iter().filter(|o| **o == m).count() as u64).to_vec();
                let taken = order.len() as u64;
                tally.add(&set(2), &Window { hits, taken, order, enabled_ns: 1_000_000, is_spent: true }, 10_000);
            }
            let rows = tally.of(&set(2)).unwrap();
            let turns = rows[1].whole as f64 / rows[0].whole as f64;
            assert!((turns / 10.0 - 1.0).abs() < 0.05, "{by_chance} {turns}");
        }
    }

    #[test]
    fn windows_add_up_and_are_taken_once() {
        let mut tally = Tally::default();
        let window = |hits: [u64; 2], enabled_ns| Window {
            hits: hits.to_vec(),
            taken: hits.iter().sum(),
            enabled_ns,
            ..Window::default()
        };
        let set = set(2);
        assert_eq!(tally.add(&set, &window([3, 1], 1_000_000), 10_000), 40_000);
        assert_eq!(tally.add(&set, &window([50, 0], 1_000_000), 10_000), 500_000);
        assert_eq!(tally.add(&set, &window([0, 0], 0), 10_000), 0);
        let taken = tally.take();
        let row = taken[0].1[0];
        assert_eq!((row.hits, row.crowded, row.squares, row.windows), (53, 50, 2509, 2));
        assert_eq!((row.enabled_ns, row.hits_ns, row.leads), (2_000_000, 540_000, true));
        assert!(!taken[0].1[1].leads);
        assert!(tally.take().is_empty());
        tally.add(&set, &window([1, 1], 1_000), 10_000);
        let again = tally.take();
        assert_eq!((again[0].1[0].hits, again[0].1[0].hits_ns), (1, 1_000), "hits take no more than there was");
        assert_eq!(tally.of(&set).unwrap()[0].hits, 54);
        assert_eq!(tally.rates().len(), 2);
    }
}
