//! Which processes have devices in their address space. A device's register may change when it is read (an interrupt
//! is acknowledged, a byte is taken), so of such processes the kernel side reads no memory: no recipes, no walks. Constraint: devices
//! may be mapped at any time, so processes are looked at again and again, and few at a time, as that costs. The list of
//! mappings of one takes half a millisecond to read; whether the address space has changed its size is told in 10 us.

use crate::book::Book;
use crate::lives::LifeNo;
use rustc_hash::FxHashMap;
use whither_kernel::proc;

/// A process is looked at again after so long.
const AGAIN_NS: u64 = 1_000_000_000;
/// A process whose address space keeps its size is looked at in full after so long.
const IN_FULL_NS: u64 = 16_000_000_000;
/// Processes looked at again at a time, and of those in full.
const AT_A_TIME: usize = 16;
const IN_FULL_AT_A_TIME: usize = 2;

/// What is known of the processes that memory was to be read of.
pub(crate) struct Devices {
    known: FxHashMap<LifeNo, Known>,
    /// Whether a process maps a device, and how many pages it maps.
    look: fn(u32) -> bool,
    pages: fn(u32) -> u64,
}

impl Default for Devices {
    fn default() -> Self {
        Self { known: FxHashMap::default(), look: proc::maps_device, pages: proc::mapped_pages }
    }
}

#[derive(Clone, Copy)]
struct Known {
    pid: u32,
    looked: u64,
    /// When all mappings were looked at, and how many pages there were just before.
    in_full: u64,
    pages: u64,
    has: bool,
}

impl Known {
    fn look(pid: u32, now: u64, pages: u64, look: fn(u32) -> bool) -> Self {
        Self { pid, looked: now, in_full: now, pages, has: look(pid) }
    }
}

impl Devices {
    /// With something else to look at than the kernel.
    #[cfg(test)]
    pub(crate) fn told_by(look: fn(u32) -> bool, pages: fn(u32) -> u64) -> Self {
        Self { look, pages, ..Self::default() }
    }

    /// Whether memory of a process must not be read; it is watched from now on.
    pub(crate) fn bar(&mut self, life: LifeNo, pid: u32, now: u64) -> bool {
        let (look, pages) = (self.look, self.pages);
        self.known.entry(life).or_insert_with(|| Known::look(pid, now, pages(pid), look)).has
    }

    /// Processes that have got a device since they were looked at last, of those whose turn it is.
    pub(crate) fn look_again(&mut self, now: u64) -> Vec<LifeNo> {
        let due = |k: &Known| !k.has && now.saturating_sub(k.looked) >= AGAIN_NS;
        let mut turns: Vec<(u64, LifeNo)> =
            self.known.iter().filter(|(_, k)| due(k)).map(|(life, k)| (k.looked, *life)).collect();
        turns.sort_unstable_by_key(|turn| turn.0);
        let (mut barred, mut in_full) = (Vec::new(), 0);
        for (_, life) in turns.into_iter().take(AT_A_TIME) {
            let Some(known) = self.known.get_mut(&life) else { continue };
            let pages = (self.pages)(known.pid);
            if pages == known.pages && now.saturating_sub(known.in_full) < IN_FULL_NS {
                known.looked = now;
                continue;
            }
            if in_full == IN_FULL_AT_A_TIME {
                break;
            }
            in_full += 1;
            *known = Known::look(known.pid, now, pages, self.look);
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
