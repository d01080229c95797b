//! The way out: true return addresses back on every stack, no thread inside of the agent or a stub, and
//! everything mapped unmapped again. What cannot be taken away is said.

use super::inject::{Placed, Way, handle_of, remains, retire, take_out};
use super::maps;
use super::remote::Caller;
use super::safe::words;
use super::stop::Stopped;
use crate::ProbeError;
use std::ops::Range;
use std::time::{Duration, Instant};
use whither_kernel::memory::Memory;

/// Bytes of a thread's stack that are searched for signal frames.
const SEARCHED: u64 = 256 << 10;
/// `mov $15,%rax; syscall`: where signal handlers return to.
const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// From the handler's return slot to the saved instruction pointer of its signal frame.
const SAVED_IP: usize = 176;

/// Where true return addresses are kept.
#[derive(Clone, Copy, Debug)]
pub struct Shadows<'a> {
    /// The return address that stands in slots of calls in progress.
    pub exit: u64,
    /// Distance from a slot to its shadow.
    pub distance: i64,
    /// Starts of the stack blocks that have a shadow.
    pub blocks: &'a [u64],
    /// Bytes of a block.
    pub block_bytes: u64,
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
        if !words(&stack).any(|w| w == shadows.exit) {
            continue;
        }
        let from = block.wrapping_add_signed(shadows.distance);
        let got = memory.read_some(from, &mut shadow);
        shadow[got..].fill(0);
        let unread = words(&stack).enumerate().skip(got / 8).filter(|(_, w)| *w == shadows.exit);
        done.unknown.extend(unread.map(|(n, _)| block + 8 * n as u64));
        for (n, (held, kept)) in words(&stack).zip(words(&shadow)).enumerate() {
            let slot = block + 8 * n as u64;
            // A slot in use has its shadow before the exit address is in it: without one it is a dead word.
            if held == shadows.exit && kept != 0 {
                memory.set_word(slot, kept)?;
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
    let within = |at: u64| ranges.iter().any(|r| r.contains(&at));
    let all = maps::read(stopped.pid());
    let mut restorers = None;
    let mut found = Vec::new();
    for (tid, ip, sp) in stopped.places() {
        if within(ip) {
            found.push(tid);
            continue;
        }
        let Some(stack) = all.iter().find(|m| m.holds(sp)) else { continue };
        let mut bytes = vec![0_u8; (stack.end - sp).min(SEARCHED) as usize & !7];
        let got = stopped.memory().read_some(sp, &mut bytes);
        let stack: Vec<u64> = words(&bytes[..got]).collect();
        let interrupted = |at: usize| stack.get(at + SAVED_IP / 8).is_some_and(|&ip| within(ip));
        let suspects: Vec<usize> = (0..stack.len()).filter(|&at| interrupted(at)).collect();
        if suspects.is_empty() {
            continue;
        }
        let restorers: &Vec<u64> = restorers.get_or_insert_with(|| find_restorers(stopped.memory(), &all));
        if suspects.iter().any(|&at| restorers.contains(&stack[at])) {
            found.push(tid);
        }
    }
    found
}

fn find_restorers(memory: &Memory, all: &[maps::Map]) -> Vec<u64> {
    const LARGEST: u64 = 8 << 20;
    let mut found = Vec::new();
    for map in all.iter().filter(|m| m.execute && m.read && m.end - m.start <= LARGEST) {
        let mut bytes = vec![0_u8; (map.end - map.start) as usize];
        let got = memory.read_some(map.start, &mut bytes);
        let hits = bytes[..got].windows(RESTORER.len()).enumerate().filter(|(_, w)| *w == RESTORER);
        found.extend(hits.map(|(at, _)| map.start + at as u64));
    }
    found
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
        let _ = stopped.release();
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Takes everything out: the image (by the loader if it came so), the segment, and `others` (stubs,
/// shadow blocks). No thread may be able to get there any more. Returns what is left, with reasons.
pub fn remove(caller: &mut Caller, placed: &Placed, others: &[Range<u64>]) -> Vec<String> {
    let mut left = Vec::new();
    // From here on the agent is no one's: should we die, nobody may start it again.
    retire(caller.memory(), placed);
    for range in merged(others) {
        if let Err(e) = caller.unmap(range.start, range.end - range.start) {
            left.push(format!("memory at {:#x}-{:#x}: {e}", range.start, range.end));
        }
    }
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

/// Ranges that touch, joined: fewer system calls.
fn merged(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut all = ranges.to_vec();
    all.sort_unstable_by_key(|r| r.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in all.into_iter().filter(|r| r.start < r.end) {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_ranges_are_joined() {
        assert_eq!(merged(&[5..7, 0..3, 3..5, 9..9, 10..12]), [0..7, 10..12]);
    }
}
