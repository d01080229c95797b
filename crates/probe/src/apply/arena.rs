//! Memory for stubs: mappings within a jump's reach of the text they serve, made in the target ahead of the stop, each
//! twice as large as those before so that few are needed. Constraint: every process that shares the text needs them at the same address.

use crate::api::Refusal;
use crate::error::ProbeError;
use crate::gate;
use crate::stub::{ALIGN, LONGEST};
use crate::target::Caller;
use crate::target::maps::{self, Map};
use std::ops::Range;

/// Bytes of the smallest arena; another is never mapped next to it.
pub(crate) const LEAST: u64 = 64 << 10;
/// Those of the largest.
const MOST: u64 = 4 << 20;
/// A jump reaches 2 GiB; what the copied instructions refer to may lie at the other end of their module.
const REACH: u64 = (2 << 30) - (1 << 20);
/// A stub with a gate is as long as so many may be.
pub(crate) const GATED: usize = 1 + gate::BYTES.next_multiple_of(ALIGN as usize).div_ceil(LONGEST);
/// Places that are tried beyond the first.
const TRIES: u32 = 8;

/// All stub memory of a process tree.
#[derive(Debug, Default)]
pub(crate) struct Arenas {
    list: Vec<Arena>,
}

#[derive(Debug)]
struct Arena {
    range: Range<u64>,
    next: u64,
    /// Where the stub taken last stands.
    last: u64,
}

impl Arenas {
    /// Places for `count` stubs of code in `around`, mapping what is missing by `map`, which is given
    /// the address.
    pub(crate) fn reserve(
        &mut self,
        around: &Range<u64>,
        count: usize,
        maps: &mut Vec<Map>,
        map: &mut dyn FnMut(u64, u64) -> Result<(), ProbeError>,
    ) -> Result<(), Refusal> {
        let wanted = count as u64 * slot();
        let mut have: u64 = self.within(around).map(|a| a.range.end - a.next).sum();
        let mut mapped: u64 = self.within(around).map(|a| a.range.end - a.range.start).sum();
        // Another thread of the target may map something just there, or it may not have so much more.
        let mut tries = 0;
        while have < wanted {
            let missing = (wanted - have).max(mapped).next_multiple_of(LEAST).min(MOST);
            let bytes = if tries == 0 { missing } else { LEAST };
            let free = |bytes| Some((maps::free_near(maps, around.clone(), bytes, REACH)?, bytes));
            let (at, bytes) = free(bytes).or_else(|| free(LEAST)).ok_or(Refusal::NoRoom)?;
            let place = maps.partition_point(|m| m.start < at);
            maps.insert(place, taken(at..at + bytes));
            match map(at, bytes) {
                Ok(()) => {
                    self.list.push(Arena { range: at..at + bytes, next: at, last: 0 });
                    have += bytes;
                    mapped += bytes;
                }
                Err(_) if tries < TRIES => tries += 1,
                Err(_) => return Err(Refusal::NoRoom),
            }
        }
        Ok(())
    }

    fn within(&self, around: &Range<u64>) -> impl Iterator<Item = &Arena> {
        self.list.iter().filter(move |a| reaches(&a.range, around))
    }

    /// A place for one stub that is as long as `stubs` may be.
    pub(crate) fn take(&mut self, around: &Range<u64>, stubs: usize) -> Option<u64> {
        let room = stubs as u64 * slot();
        let arena = self.list.iter_mut().find(|a| reaches(&a.range, around) && a.next + room <= a.range.end)?;
        let at = arena.next;
        arena.last = at;
        arena.next += room;
        Some(at)
    }

    /// Gives back the room of the stub taken last, when it turned out shorter.
    pub(crate) fn shrink(&mut self, at: u64, bytes: u64) {
        let end = (at + bytes).next_multiple_of(ALIGN);
        if let Some(arena) = self.list.iter_mut().find(|a| a.last == at && end <= a.next) {
            arena.next = end;
        }
    }

    /// A mapping that another controller made; nothing more is put into it.
    pub(crate) fn adopt(&mut self, range: Range<u64>) {
        if !self.list.iter().any(|a| a.range == range) {
            self.list.push(Arena { next: range.end, range, last: 0 });
        }
    }

    /// Addresses of all.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        self.list.iter().map(|a| a.range.clone()).collect()
    }
}

/// How a place that was chosen is kept in mind.
fn taken(range: Range<u64>) -> Map {
    Map {
        start: range.start,
        end: range.end,
        read: true,
        write: false,
        execute: true,
        shared: false,
        offset: 0,
        device: String::new(),
        inode: 0,
        path: String::new(),
    }
}

/// Whether an arena may have so many bytes.
pub(crate) fn is_size(bytes: u64) -> bool {
    bytes.is_multiple_of(LEAST) && (LEAST..=MOST).contains(&bytes)
}

fn slot() -> u64 {
    (LONGEST as u64).next_multiple_of(ALIGN)
}

fn reaches(arena: &Range<u64>, around: &Range<u64>) -> bool {
    let low = arena.start.min(around.start);
    let high = arena.end.max(around.end);
    high - low < REACH
}

/// Maps an arena in a process.
pub(crate) fn map_in(caller: &mut Caller, at: u64, bytes: u64) -> Result<(), ProbeError> {
    caller.map_anonymous(Some(at), bytes, libc::PROT_READ | libc::PROT_EXEC).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_taken_meanwhile_is_passed_over() {
        let around = 0x1000_0000..0x1001_0000;
        let refuse = |_: u64| ProbeError::Agent { why: "taken".into() };
        let mut asked = Vec::new();
        let mut arenas = Arenas::default();
        let mut map = |at: u64, _: u64| {
            asked.push(at);
            if asked.len() < 3 { Err(refuse(at)) } else { Ok(()) }
        };
        arenas.reserve(&around, 1, &mut vec![taken(around.clone())], &mut map).expect("the third place");
        assert_eq!(asked.len(), 3);
        assert!(asked[0] != asked[1] && asked[1] != asked[2], "{asked:x?}");
        assert_eq!(arenas.ranges(), std::slice::from_ref(&(asked[2]..asked[2] + LEAST)));
        let mut tries = 0;
        let mut never = |at: u64, _: u64| {
            tries += 1;
            Err(refuse(at))
        };
        let refused = Arenas::default().reserve(&around, 1, &mut Vec::new(), &mut never);
        assert_eq!((refused, tries), (Err(Refusal::NoRoom), TRIES + 1));
    }

    #[test]
    fn a_thousand_stubs_take_one_mapping_and_more_come_in_larger_ones() {
        let around = 0x1000_0000..0x1001_0000;
        let (mut arenas, mut maps, mut sizes) = (Arenas::default(), vec![taken(around.clone())], Vec::new());
        for count in [1000, 1, 1000, 1000, 1000] {
            let mut map = |_, bytes| {
                sizes.push(bytes);
                Ok(())
            };
            arenas.reserve(&around, count, &mut maps, &mut map).expect("room");
            assert!((0..count).all(|_| arenas.take(&around, 1).is_some()), "was reserved");
        }
        assert!(sizes.iter().all(|&bytes| is_size(bytes)) && sizes[0] >= 1000 * slot(), "{sizes:?}");
        assert!(sizes.len() <= 4 && sizes.is_sorted(), "{sizes:?}");
        assert!(maps.windows(2).all(|w| w[0].end <= w[1].start));
    }

    #[test]
    fn who_may_not_have_much_gets_little() {
        let around = 0x1000_0000..0x1001_0000;
        let mut sizes = Vec::new();
        let mut little = |at: u64, bytes: u64| {
            sizes.push(bytes);
            if bytes > LEAST { Err(ProbeError::Agent { why: format!("{at:#x}") }) } else { Ok(()) }
        };
        Arenas::default().reserve(&around, 1000, &mut vec![taken(around.clone())], &mut little).expect("piecewise");
        assert!(sizes[0] > LEAST && sizes[1..].iter().all(|&bytes| bytes == LEAST), "{sizes:?}");
    }
}
