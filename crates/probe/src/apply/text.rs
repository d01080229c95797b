//! Many small pieces of text compared and written in few system calls, as every one of them is time in
//! which the target stands still. Lives here: runs of neighbouring pieces. Constraint: what lies between
//! the pieces of a run is written with them as it was read a moment before, so nothing of the target may
//! run meanwhile.

use crate::target::Memory;
use std::ops::Range;

/// Pieces not further apart go together: no page is written that none of them is on.
const APART: u64 = 4096;
/// Longest run.
const LONGEST: u64 = 1 << 20;

/// Bytes and where they stand or shall stand.
pub(crate) type Piece<'a> = (u64, &'a [u8]);

/// For each piece whether it stands there.
pub(crate) fn stand(memory: &Memory, pieces: &[Piece<'_>]) -> Vec<bool> {
    let mut found = vec![false; pieces.len()];
    for run in runs(pieces) {
        let read = run.read(memory);
        for &index in &run.members {
            let (at, bytes) = pieces[index];
            found[index] = match &read {
                Some(all) => all.get(run.place(at, bytes.len())).is_some_and(|there| there == bytes),
                None => stands(memory, at, bytes),
            };
        }
    }
    found
}

/// Writes the pieces, and says for each whether it could be done.
pub(crate) fn write(memory: &Memory, pieces: &[Piece<'_>]) -> Vec<bool> {
    let mut done = vec![false; pieces.len()];
    for run in runs(pieces) {
        let whole = run.members.len() > 1 && run.write(memory, pieces);
        for &index in &run.members {
            // One by one where the run as a whole cannot be written: some of them may.
            done[index] = whole || memory.write(pieces[index].0, pieces[index].1).is_ok();
        }
    }
    done
}

fn stands(memory: &Memory, at: u64, bytes: &[u8]) -> bool {
    let mut there = vec![0; bytes.len()];
    memory.read(at, &mut there).is_ok() && there == bytes
}

/// Neighbours.
struct Run {
    at: u64,
    end: u64,
    /// Which pieces, by address.
    members: Vec<usize>,
}

impl Run {
    fn read(&self, memory: &Memory) -> Option<Vec<u8>> {
        let mut all = vec![0; (self.end - self.at) as usize];
        memory.read(self.at, &mut all).ok().map(|()| all)
    }

    fn place(&self, at: u64, length: usize) -> Range<usize> {
        let from = (at - self.at) as usize;
        from..from + length
    }

    fn write(&self, memory: &Memory, pieces: &[Piece<'_>]) -> bool {
        let Some(mut all) = self.read(memory) else { return false };
        for &index in &self.members {
            let (at, bytes) = pieces[index];
            if let Some(place) = all.get_mut(self.place(at, bytes.len())) {
                place.copy_from_slice(bytes);
            }
        }
        memory.write(self.at, &all).is_ok()
    }
}

fn runs(pieces: &[Piece<'_>]) -> Vec<Run> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|&i| pieces[i].0);
    let mut runs: Vec<Run> = Vec::new();
    for index in order {
        let (at, bytes) = pieces[index];
        let end = at.saturating_add(bytes.len() as u64);
        match runs.last_mut() {
            Some(run) if at < run.end.saturating_add(APART) && end - run.at <= LONGEST => {
                run.end = run.end.max(end);
                run.members.push(index);
            }
            _ => runs.push(Run { at, end, members: vec![index] }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_go_together_and_strangers_do_not() {
        let pieces: [Piece<'_>; 5] =
            [(0x9000, &[1; 5]), (0x1000, &[2; 5]), (0x1ff0, &[3; 5]), (0x1005, &[]), (0x2ff0, &[4; 5])];
        let members: Vec<_> = runs(&pieces).into_iter().map(|r| (r.at, r.end, r.members)).collect();
        assert_eq!(members, [(0x1000, 0x2ff5, vec![1, 3, 2, 4]), (0x9000, 0x9005, vec![0])]);
    }

    #[test]
    fn pieces_are_written_and_what_lies_between_stays() {
        let memory = Memory::open(std::process::id()).unwrap();
        let mut page = vec![7_u8; 10_000];
        let at = page.as_mut_ptr() as u64;
        let pieces: [Piece<'_>; 4] = [(at + 9000, &[1, 2]), (at + 10, &[3]), (at + 12, &[4, 5]), (8, &[6])];
        assert_eq!(stand(&memory, &pieces), [false; 4]);
        assert_eq!(write(&memory, &pieces), [true, true, true, false]);
        assert_eq!(stand(&memory, &pieces), [true, true, true, false]);
        assert_eq!(stand(&memory, &[(at + 8, &[7, 7, 3, 7, 4, 5, 7]), (at + 8999, &[7, 1, 2, 7])]), [true, true]);
    }
}
