//! Which processes have devices in their address space. A device's register may change when it is read (an interrupt
//! is acknowledged, a byte is taken), so of such processes the kernel side reads no memory: no recipes, no walks. Constraint: devices
//! may be mapped at any time, so processes are looked at again and again, and few at a time, as that costs.

use crate::book::Book;
use crate::lives::LifeNo;
use rustc_hash::FxHashMap;
use whither_kernel::proc;

/// A process is looked at again after so long.
const AGAIN_NS: u64 = 1_000_000_000;
/// Processes looked at again at a time.
const AT_A_TIME: usize = 2;

/// What is known of the processes that memory was to be read of.
pub(crate) struct Devices {
    known: FxHashMap<LifeNo, Known>,
    look: fn(u32) -> bool,
}

impl Default for Devices {
    fn default() -> Self {
        Self { known: FxHashMap::default(), look: proc::maps_device }
    }
}

#[derive(Clone, Copy)]
struct Known {
    pid: u32,
    looked: u64,
    has: bool,
}

impl Devices {
    /// With something else to look at than the kernel.
    #[cfg(test)]
    pub(crate) fn told_by(look: fn(u32) -> bool) -> Self {
        Self { look, ..Self::default() }
    }

    /// Whether memory of a process must not be read; it is watched from now on.
    pub(crate) fn bar(&mut self, life: LifeNo, pid: u32, now: u64) -> bool {
        self.known.entry(life).or_insert_with(|| Known { pid, looked: now, has: (self.look)(pid) }).has
    }

    /// Processes that have got a device since they were looked at last, of those whose turn it is.
    pub(crate) fn look_again(&mut self, now: u64) -> Vec<LifeNo> {
        let due = |k: &Known| !k.has && now.saturating_sub(k.looked) >= AGAIN_NS;
        let mut turns: Vec<(u64, LifeNo)> =
            self.known.iter().filter(|(_, k)| due(k)).map(|(life, k)| (k.looked, *life)).collect();
        turns.sort_unstable_by_key(|turn| turn.0);
        let mut barred = Vec::new();
        for (_, life) in turns.into_iter().take(AT_A_TIME) {
            let Some(known) = self.known.get_mut(&life) else { continue };
            (known.looked, known.has) = (now, (self.look)(known.pid));
            if known.has {
                barred.push(life);
            }
        }
        barred
    }

    /// Forgets processes that the book has forgotten.
    pub(crate) fn forget(&mut self, book: &Book) {
        self.known.retain(|life, _| book.knows(*life));
    }
}
