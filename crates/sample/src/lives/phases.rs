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

    /// When the phase ended that makes `tagged` of a life's own tag; `None`: there is no such phase.
    pub(super) fn end(&self, pid: u32, own: u16, tagged: u16) -> Option<u64> {
        let low = |number: u32| number & ((1 << TAG_BITS) - 1);
        let wanted = u32::from(own ^ tagged);
        let Some(all) = self.slots.get(&(pid % PHASES)) else { return (wanted == 0).then_some(STILL) };
        let at = all.iter().rposition(|&(number, _)| low(number) == wanted)?;
        Some(all.get(at + 1).map_or(STILL, |&(_, began)| began))
    }

    /// Forgets phases that ended before `time`.
    pub(super) fn forget(&mut self, time: u64) {
        for all in self.slots.values_mut() {
            let over = all.iter().skip(1).take_while(|&&(_, began)| began < time).count();
            all.drain(..over);
        }
    }
}
