//! Memory for stubs: mappings of 64 KiB within a jump's reach of the text they serve, made in the target
//! ahead of the stop. Constraint: every process that shares the text needs them at the same address.

use crate::api::Refusal;
use crate::error::ProbeError;
use crate::gate;
use crate::stub::{ALIGN, LONGEST};
use crate::target::Caller;
use crate::target::maps::{self, Map};
use std::ops::Range;

/// Bytes of an arena; another is never mapped next to it.
pub(crate) const BYTES: u64 = 64 << 10;
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
        // Another thread of the target may map something just there.
        let mut tries = 0;
        while have < wanted {
            let at = maps::free_near(maps, around.clone(), BYTES, REACH).ok_or(Refusal::NoRoom)?;
            let place = maps.partition_point(|m| m.start < at);
            maps.insert(place, taken(at));
            match map(at, BYTES) {
                Ok(()) => {
                    self.list.push(Arena { range: at..at + BYTES, next: at, last: 0 });
                    have += BYTES;
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
fn taken(at: u64) -> Map {
    Map {
        start: at,
        end: at + BYTES,
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
        arenas.reserve(&around, 1, &mut vec![taken(around.start)], &mut map).expect("the third place");
        assert_eq!(asked.len(), 3);
        assert!(asked[0] != asked[1] && asked[1] != asked[2], "{asked:x?}");
        assert_eq!(arenas.ranges(), std::slice::from_ref(&(asked[2]..asked[2] + BYTES)));
        let mut tries = 0;
        let mut never = |at: u64, _: u64| {
            tries += 1;
            Err(refuse(at))
        };
        let refused = Arenas::default().reserve(&around, 1, &mut Vec::new(), &mut never);
        assert_eq!((refused, tries), (Err(Refusal::NoRoom), TRIES + 1));
    }
}
