//! The way out: true return addresses back on every stack, no thread inside of the agent or a stub, and
//! everything mapped unmapped again. What cannot be taken away is said.

use super::inject::{Placed, Way, handle_of, remains, retire, take_out};
use super::maps;
use super::remote::Caller;
use super::safe::{self, words};
use super::stop::Stopped;
use crate::ProbeError;
use crate::api::Pause;
use std::ops::Range;
use std::time::{Duration, Instant};
use whither_kernel::memory::Memory;

/// Bytes of stack that are searched for signal frames, of all threads of a process together.
const SEARCHED: u64 = 64 << 20;
/// Of one thread, at least and at most. A handler that itself uses more is not seen through.
const OF_ONE: (u64, u64) = (256 << 10, 8 << 20);
/// `rt_sigreturn` as C libraries write it, where signal handlers return to: `mov $15,%rax`, `mov $15,%eax`,
/// `push $15; pop %rax`, each with `syscall`.
const RESTORERS: [&[u8]; 3] = [
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0x6a, 0x0f, 0x58, 0x0f, 0x05],
];
/// What may stand before it.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// From the handler's return slot to the saved instruction pointer of its signal frame.
const SAVED_IP: usize = 176;

/// Where true return addresses are kept.
#[derive(Clone, Debug)]
pub struct Shadows<'a> {
    /// Where the return addresses lead to that stand in slots of calls in progress.
    pub exits: Range<u64>,
    /// Bytes of a place there.
    pub exit_bytes: u64,
    /// By place: the true return address; 0: it is in the shadow alone.
    pub returns: &'a [u64],
    /// Distance from a slot to its shadow.
    pub distance: i64,
    /// Starts of the stack blocks that have a shadow.
    pub blocks: &'a [u64],
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl Shadows<'_> {
    /// Where a call goes on that returns by the place that a word of [`Self::exits`] leads to; 0: its shadow tells.
    fn returns_of(&self, word: u64) -> u64 {
        let place = word.wrapping_sub(self.exits.start) / self.exit_bytes.max(1);
        self.returns.get(place as usize).copied().unwrap_or(0)
    }
}

/// What [`restore_returns`] has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Return addresses put back.
    pub returns: usize,
    /// Slots whose shadow cannot be read: the agent must stay.
    pub unknown: Vec<u64>,
}

/// Puts the true return address into every slot that holds the agent's exit address. Complete: it does
/// not depend on what the agent remembers of calls in progress.
///
/// # Errors
/// When the target's memory cannot be written.
pub fn restore_returns(stopped: &Stopped, shadows: &Shadows<'_>) -> Result<Restored, ProbeError> {
    let memory = stopped.memory();
    let size = shadows.block_bytes as usize;
    let (mut stack, mut shadow) = (vec![0_u8; size], vec![0_u8; size]);
    let mut done = Restored::default();
    for &block in shadows.blocks {
        // Parts of a block may not be mapped (any more): page by page.
        for at in (0..size).step_by(4096) {
            let end = (at + 4096).min(size);
            let got = memory.read_some(block + at as u64, &mut stack[at..end]);
            stack[at + got..end].fill(0);
        }
        if !words(&stack).any(|w| shadows.exits.contains(&w)) {
            continue;
        }
        let from = block.wrapping_add_signed(shadows.distance);
        let got = memory.read_some(from, &mut shadow);
        shadow[got..].fill(0);
        let unread = words(&stack).enumerate().skip(got / 8);
        let unread = unread.filter(|(_, w)| shadows.exits.contains(w) && shadows.returns_of(*w) == 0);
        done.unknown.extend(unread.map(|(n, _)| block + 8 * n as u64));
        for (n, (held, kept)) in words(&stack).zip(words(&shadow)).enumerate() {
            let slot = block + 8 * n as u64;
            if !shadows.exits.contains(&held) {
                continue;
            }
            // A slot in use has its shadow before the exit's address is in it: without one it is a dead word.
            let back = Some(shadows.returns_of(held)).filter(|ra| *ra != 0).unwrap_or(kept);
            if back != 0 {
                memory.set_word(slot, back)?;
                done.returns += 1;
            }
        }
    }
    Ok(done)
}

/// Threads that are inside of some ranges of code: at work there, or interrupted there by a signal whose
/// handler runs.
#[must_use]
pub fn inside(stopped: &Stopped, ranges: &[Range<u64>]) -> Vec<u32> {
    let code = Code::of(ranges);
    let places = stopped.places();
    let limit = (SEARCHED / places.len().max(1) as u64).clamp(OF_ONE.0, OF_ONE.1);
    let mut search = Search { memory: stopped.memory(), pid: stopped.pid(), code, bytes: Vec::new(), maps: Vec::new() };
    let mut found = Vec::new();
    for ((tid, ip, sp), local) in places.into_iter().zip(stopped.local_storage()) {
        // No stack runs across what its thread keeps above it: behind that, a megabyte of libraries may be mapped.
        let end = Some(sp.saturating_add(limit)).filter(|end| !(sp..*end).contains(&local)).unwrap_or(local);
        if search.code.holds(ip) || search.is_interrupted(sp, end) {
            found.push(tid);
        }
    }
    found
}

/// Ranges of addresses in which one of a million words is looked up quickly: it happens while a target stands still.
struct Code {
    /// Ascending, none touching another.
    ranges: Vec<Range<u64>>,
    whole: Range<u64>,
}

impl Code {
    fn of(ranges: &[Range<u64>]) -> Self {
        let mut all: Vec<Range<u64>> = ranges.iter().filter(|r| r.start < r.end).cloned().collect();
        all.sort_unstable_by_key(|r| r.start);
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(all.len());
        for range in all {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        let whole = ranges.first().map_or(0, |r| r.start)..ranges.last().map_or(0, |r| r.end);
        Self { ranges, whole }
    }

    fn holds(&self, at: u64) -> bool {
        self.whole.contains(&at) && {
            let next = self.ranges.partition_point(|r| r.start <= at);
            next.checked_sub(1).and_then(|place| self.ranges.get(place)).is_some_and(|r| at < r.end)
        }
    }
}

/// Stacks searched for signal frames that lead back into some code.
struct Search<'a> {
    memory: &'a Memory,
    pid: u32,
    code: Code,
    bytes: Vec<u8>,
    /// Read only when they are needed, as it takes half a millisecond.
    maps: Vec<maps::Map>,
}

impl Search<'_> {
    /// Whether a signal frame on a piece of stack leads back into the code. Words that only look like its saved
    /// instruction pointer are told from one by the code that the handler returns to: it is looked at where the
    /// frame says it is, so that the size of the program does not matter.
    fn is_interrupted(&mut self, start: u64, end: u64) -> bool {
        /// What most stacks have in use, and what is read at a time where there is more.
        const PIECES: (u64, u64) = (16 << 10, 256 << 10);
        let (mut at, mut piece) = (start, PIECES.0);
        while at < end {
            let wanted = ((end - at).min(piece) & !7) as usize;
            if wanted == 0 {
                return false;
            }
            self.bytes.resize(wanted, 0);
            let got = self.read(at);
            if self.has_frame(got) {
                return true;
            }
            if got < wanted {
                return false;
            }
            // So that no frame is cut.
            at += wanted as u64 - if (wanted as u64) < piece { 0 } else { SAVED_IP as u64 };
            piece = PIECES.1;
        }
        false
    }

    fn has_frame(&self, got: usize) -> bool {
        let word = |at: usize| {
            let bytes = self.bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        let frames = (SAVED_IP..got & !7).step_by(8).filter(|&at| self.code.holds(word(at)));
        frames.map(|at| word(at - SAVED_IP)).any(|back| is_restorer(self.memory, back))
    }

    /// Reads what is there from an address on; how many bytes.
    fn read(&mut self, at: u64) -> usize {
        let got = self.memory.read_allowed(at, &mut self.bytes);
        if got > 0 {
            return got;
        }
        // A kernel without the means, or no stack.
        if self.maps.is_empty() {
            self.maps = maps::read(self.pid);
        }
        let Some(map) = self.maps.iter().find(|m| m.holds(at)) else { return 0 };
        let most = (map.end - at).min(self.bytes.len() as u64) as usize;
        self.bytes.get_mut(..most).map_or(0, |bytes| self.memory.read_some(at, bytes))
    }
}

/// Whether a signal handler returns to this address.
pub(super) fn is_restorer(memory: &Memory, at: u64) -> bool {
    let mut bytes = [0_u8; 13];
    let got = memory.read_some(at, &mut bytes);
    let code = bytes[..got].strip_prefix(&ENDBR64).unwrap_or(&bytes[..got]);
    RESTORERS.iter().any(|form| code.starts_with(form))
}

/// Stops a process at a moment when no thread is inside of some ranges, or after `limit` at any moment;
/// with the threads that still are.
///
/// # Errors
/// As [`Stopped::stop`].
pub fn stop_outside(pid: u32, ranges: &[Range<u64>], limit: Duration) -> Result<(Stopped, Vec<u32>), ProbeError> {
    let began = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        let stopped = Stopped::stop(pid)?;
        let caught = inside(&stopped, ranges);
        if caught.is_empty() || began.elapsed() > limit {
            return Ok((stopped, caught));
        }
        let _ = let_move(stopped, &caught, limit.saturating_sub(began.elapsed()));
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Lets everything run, until these threads have had a turn each: on a busy machine a thread stopped again and again
/// would otherwise stand where it stood. No longer than `limit`, or some time more.
pub(crate) fn let_move(stopped: Stopped, tids: &[u32], limit: Duration) -> Pause {
    let pid = stopped.pid();
    let before: Vec<(u32, u64)> = tids.iter().filter_map(|&tid| Some((tid, safe::runtime(pid, tid)?))).collect();
    let pause = stopped.release();
    let began = Instant::now();
    for turn in before {
        if began.elapsed() < limit {
            safe::wait_for_turn(pid, Some(turn));
        }
    }
    pause
}

/// Memory that was mapped for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Where.
    pub range: Range<u64>,
    /// The word of the agent's table that tells of it. Cleared first: should we be killed, nobody may take what
    /// is mapped there next for ours.
    pub entry: Option<u64>,
}

/// Takes everything out: the image (by the loader if it came so), the segment, and `others` (stubs,
/// shadow blocks). No thread may be able to get there any more. Returns what is left, with reasons.
pub fn remove(caller: &mut Caller, placed: &Placed, others: &[Owned]) -> Vec<String> {
    // From here on the agent is no one's: should we die, nobody may start it again.
    retire(caller.memory(), placed);
    let mut left = unmap(caller, others);
    let way = match placed.way {
        Way::Loader { handle: 0 } => handle_of(caller, &placed.image).map(|handle| Way::Loader { handle }),
        way => Some(way),
    };
    match way {
        Some(way) => take_out(caller, way, &placed.image),
        None => left.push("the agent's image: its loader's handle cannot be found".to_string()),
    }
    if let Err(e) = caller.unmap(placed.segment, placed.segment_bytes) {
        left.push(format!("the segment: {e}"));
    }
    left.extend(remains(placed.pid));
    left
}

/// Unmaps memory of a retired agent; what could not be.
pub fn unmap(caller: &mut Caller, all: &[Owned]) -> Vec<String> {
    let mut left = Vec::new();
    for (range, entries) in merged(all) {
        for entry in entries {
            // The process is gone otherwise.
            let _ = caller.memory().set_word(entry, 0);
        }
        if let Err(e) = caller.unmap(range.start, range.end - range.start) {
            left.push(format!("memory at {:#x}-{:#x}: {e}", range.start, range.end));
        }
    }
    left
}

/// Ranges that touch, joined: fewer system calls.
fn merged(all: &[Owned]) -> Vec<(Range<u64>, Vec<u64>)> {
    let mut all: Vec<&Owned> = all.iter().filter(|o| o.range.start < o.range.end).collect();
    all.sort_unstable_by_key(|o| o.range.start);
    let mut merged: Vec<(Range<u64>, Vec<u64>)> = Vec::new();
    for Owned { range, entry } in all {
        match merged.last_mut() {
            Some((last, entries)) if range.start <= last.end => {
                last.end = last.end.max(range.end);
                entries.extend(*entry);
            }
            _ => merged.push((range.clone(), entry.iter().copied().collect())),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restorers_are_known_in_all_their_forms() {
        let ours = Memory::open(std::process::id()).expect("our own memory");
        let is = |code: &[u8]| is_restorer(&ours, code.as_ptr() as u64);
        for form in RESTORERS {
            assert!(is(&[form, &[0x90; 8]].concat()));
            assert!(is(&[&ENDBR64, form, &[0x90; 8]].concat()));
        }
        assert!(!is(&[0x90; 16]));
        assert!(!is_restorer(&ours, 8), "nothing is mapped there");
    }

    #[test]
    fn frames_are_found_wherever_they_lie_on_a_stack() {
        let ours = Memory::open(std::process::id()).expect("our own memory");
        let restorer = [RESTORERS[0], &[0x90; 8]].concat();
        let mut stack = vec![0x10_u64; 100_000];
        let from = stack.as_ptr() as u64;
        let range = from..from + 800_000;
        let code = Code::of(std::slice::from_ref(&(0x1234..0x1235)));
        let mut search = Search { memory: &ours, pid: std::process::id(), code, bytes: Vec::new(), maps: Vec::new() };
        // On both sides of the ends of pieces, and of the reach of none.
        for at in [0, 2024, 2025, 2026, 2047, 2048, 2049, 34_745, 34_746, 34_767, 34_768, 70_000, 99_000] {
            stack[at + SAVED_IP / 8] = 0x1234;
            stack[at] = 0x10;
            assert!(!search.is_interrupted(from, range.end), "no handler returns to {at}");
            stack[at] = restorer.as_ptr() as u64;
            assert!(search.is_interrupted(from, range.end), "{at}");
            assert!(!search.is_interrupted(from, from + 8 * at as u64), "{at}");
            stack[at + SAVED_IP / 8] = 0;
        }
    }

    #[test]
    fn code_is_found_in_any_of_its_ranges() {
        let code = Code::of(&[50..60, 10..20, 15..30, 30..31, 70..70]);
        assert_eq!(code.ranges, [10..31, 50..60]);
        let inside: Vec<u64> = (0..100).filter(|&at| code.holds(at)).collect();
        assert_eq!(inside, (10..31).chain(50..60).collect::<Vec<u64>>());
        assert!(!Code::of(&[]).holds(0));
    }

    #[test]
    fn touching_ranges_are_joined() {
        let owned = |range: Range<u64>| Owned { entry: (range.start == 3).then_some(8), range };
        let all = [5..7, 0..3, 3..5, 9..9, 10..12].map(owned);
        assert_eq!(merged(&all), [(0..7, vec![8]), (10..12, vec![])]);
    }
}
