//! Phases of address spaces, as the kernel side numbers them: a phase ends when a process has unmapped code. Entries carry the
//! phase in their tag, so that what was sampled before is looked up in what was mapped before. Process ids share numbers: a
//! phase that ends for one process ends for all that share its number, which does no harm.

use rustc_hash::FxHashMap;
use whither_abi::{PHASES, TAG_BITS};

/// The end of what still goes on.
pub const STILL: u64 = u64::MAX;

/// Phases since the last drain.
#[derive(Debug, Default)]
pub(super) struct Phases {
    /// Number and begin of each, in order; none that began later than the first is missing.
    slots: FxHashMap<u32, Vec<(u32, u64)>>,
}

impl Phases {
    /// A phase of a process begins.
    pub(super) fn begun(&mut self, pid: u32, number: u32, time: u64) {
        let all = self.slots.entry(pid % PHASES).or_insert_with(|| vec![(0, 0)]);
        let place = all.partition_point(|&(n, _)| n <= number);
        all.insert(place, (number, time));
    }

    /// When the phases ended that make `tagged` of a life's own tag, the last first: several where more have begun since the
    /// last drain than a tag has numbers.
    pub(super) fn ends(&self, pid: u32, own: u16, tagged: u16) -> impl Iterator<Item = u64> {
        const NONE_YET: &[(u32, u64)] = &[(0, 0)];
        const NUMBERS: u32 = 1 << TAG_BITS;
        let all = self.slots.get(&(pid % PHASES)).map_or(NONE_YET, Vec::as_slice);
        let (first, last) = (all.first().map_or(0, |p| p.0), all.last().map_or(0, |p| p.0));
        let newest = last.checked_sub(last.wrapping_sub(u32::from(own ^ tagged)) % NUMBERS);
        let numbers = std::iter::successors(newest, |n| n.checked_sub(NUMBERS)).take_while(move |n| *n >= first);
        numbers.filter_map(|n| {
            let at = all.binary_search_by_key(&n, |p| p.0).ok()?;
            Some(all.get(at + 1).map_or(STILL, |&(_, began)| began))
        })
    }

    /// Forgets phases that ended before `time`.
    pub(super) fn forget(&mut self, time: u64) {
        for all in self.slots.values_mut() {
            let over = all.iter().skip(1).take_while(|&&(_, began)| began < time).count();
            all.drain(..over);
        }
    }
}
