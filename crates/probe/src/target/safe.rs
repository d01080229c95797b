//! Where a thread may be borrowed for a call: not in the loader, not in an allocator (the call would
//! need the lock it may hold), not in a restartable sequence (the kernel forgets it), not in ranges the
//! caller names. Symbols of the C library decide, not guesses by stack contents.

use super::home;
use super::leave::is_restorer;
use super::library::{Library, libraries};
use super::maps::{self, Map};
use super::stop::thread_state;
use crate::ProbeError;
use std::ops::Range;
use std::time::{Duration, Instant};
use whither_kernel::memory::Memory;
use whither_kernel::ptrace::{Regs, Tracee};

/// Bytes in front of `malloc` in which the C library keeps the allocator's inner functions.
const BEFORE_MALLOC: u64 = 0x3000;
/// Bytes around an allocator of which only `malloc` itself is known.
const AROUND_MALLOC: u64 = 0x1_0000;

/// Ranges of code in which no call may begin.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Never.
    never: Vec<Range<u64>>,
    /// Not while running there; a thread blocked in a system call may be taken.
    awake: Vec<Range<u64>>,
    /// The C library, whose leaf functions (memcpy) the allocator calls with its lock held.
    library: Vec<Range<u64>>,
    /// The loader, which may have called the C library with its lock held.
    loader: Vec<Range<u64>>,
    /// The allocator.
    allocator: Vec<Range<u64>>,
    /// What may be a stack, ascending.
    stacks: Vec<Range<u64>>,
}

impl Places {
    /// Finds them in a process.
    pub(super) fn of(pid: u32, avoid: &[Range<u64>]) -> Result<Self, ProbeError> {
        let maps = maps::read(pid);
        if maps.is_empty() {
            return Err(ProbeError::Ended { pid, what: "its mappings were being read" });
        }
        let stacks = maps.iter().filter(|m| m.read && m.write).map(|m| m.start..m.end).collect();
        let mut places = Self { never: avoid.to_vec(), stacks, ..Self::default() };
        for map in maps.iter().filter(|m| m.execute) {
            match kind(map.file_name()) {
                Kind::Loader => {
                    places.never.push(map.start..map.end);
                    places.loader.push(map.start..map.end);
                }
                Kind::Allocator | Kind::Agent => places.never.push(map.start..map.end),
                Kind::Musl => places.awake.push(map.start..map.end),
                Kind::Library => places.library.push(map.start..map.end),
                Kind::Other => {}
            }
        }
        for library in libraries(pid, &maps) {
            places.add_allocator(&library);
        }
        Ok(places)
    }

    /// Whether a call may begin on a thread at `ip`. A thread whose stack only looks as if the allocator or
    /// the loader had called the C library is believed when we are not patient.
    fn allow(&self, memory: &Memory, ip: u64, sp: u64, blocked: bool, patient: bool) -> bool {
        let within = |ranges: &[Range<u64>], at: u64| ranges.iter().any(|r| r.contains(&at));
        if within(&self.never, ip) || within(&self.allocator, ip) || (within(&self.awake, ip) && !blocked) {
            return false;
        }
        if within(&self.library, ip) && patient {
            let mut top = [0_u8; 32];
            let got = memory.read_some(sp, &mut top);
            return !words(&top[..got]).any(|word| within(&self.allocator, word) || within(&self.loader, word));
        }
        true
    }

    /// End of the memory in which a stack pointer lies; a stack may have grown meanwhile.
    fn end_of_stack(&self, sp: u64) -> Option<u64> {
        self.stacks.iter().map(|r| r.end).find(|&end| end > sp)
    }

    fn add_allocator(&mut self, library: &Library) {
        let Some((malloc, _)) = library.symbol("malloc") else { return };
        let is_libc = kind(library.file_name()) == Kind::Library;
        let (before, after) = if is_libc { (BEFORE_MALLOC, BEFORE_MALLOC) } else { (AROUND_MALLOC, AROUND_MALLOC) };
        let last = ["malloc_info", "mallopt", "free", "realloc"]
            .iter()
            .filter_map(|name| library.symbol(name))
            .map(|(at, size)| at + size.max(1))
            .filter(|&end| end > malloc && end - malloc < 0x2_0000)
            .max();
        self.allocator.push(malloc.saturating_sub(before)..last.unwrap_or(malloc + after));
        for name in ["fork", "_Fork", "sbrk", "brk", "mmap", "munmap", "mremap", "madvise", "mprotect"] {
            if let (true, Some((at, size))) = (is_libc, library.symbol(name)) {
                self.never.push(at..at + size.max(32));
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Loader,
    Musl,
    Library,
    Allocator,
    Agent,
    Other,
}

fn kind(name: &str) -> Kind {
    let starts = |all: &[&str]| all.iter().any(|s| name.starts_with(s));
    if starts(&["ld-musl", "libc.musl"]) {
        Kind::Musl
    } else if starts(&["ld-linux", "ld-2.", "ld.so", "ld64.so"]) {
        Kind::Loader
    } else if starts(&["libc.so.6", "libc-2."]) {
        Kind::Library
    } else if ["jemalloc", "tcmalloc", "mimalloc", "snmalloc", "rpmalloc"].iter().any(|a| name.contains(a)) {
        Kind::Allocator
    } else if starts(&["memfd:whither-agent"]) {
        // Its start, on the call of a controller that has died.
        Kind::Agent
    } else {
        Kind::Other
    }
}

/// How long none has been found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Turns that threads were given to get somewhere else.
    pub(super) rounds: u32,
    /// Since the first look.
    pub(super) time: Duration,
}

impl Search {
    /// Whether a thread whose stack only looks like the allocator's is still passed by. One that runs needs many
    /// turns to prove it, whatever time they take; one that sleeps in a system call has been asleep all the time,
    /// and no allocation sleeps that long.
    fn is_patient(self, blocked: bool) -> bool {
        const STALE: u32 = 200;
        const ASLEEP: Duration = Duration::from_millis(150);
        self.rounds < STALE && !(blocked && self.time > ASLEEP)
    }
}

/// Whether a call may begin on a thread that stands still with these registers.
pub(super) fn is_safe(tracee: &Tracee, regs: &Regs, memory: &Memory, places: &Places, search: Search) -> bool {
    if in_sequence(tracee, memory, regs.rip) || home::is_on_its_way(memory, regs.rip, regs.rsp) {
        return false;
    }
    let blocked = regs.orig_rax as i64 >= 0 && (-516..=-512).contains(&(regs.rax as i64));
    let patient = search.is_patient(blocked);
    if !places.allow(memory, regs.rip, regs.rsp, blocked, patient) {
        return false;
    }
    // In a handler, what it has interrupted counts as well: the handler's first instruction is where threads
    // that get many signals stop most.
    let mask = tracee.mask().unwrap_or(0);
    interrupted(memory, places, regs.rsp).iter().all(|frame| {
        // While a handler runs, its signal at least is held back: other frames may be old ones.
        let runs = frame.mask & !mask == 0 && frame.mask != mask;
        let stale = !patient && !runs;
        stale || places.allow(memory, frame.ip, frame.sp, frame.blocked(memory), patient)
    })
}

/// What a signal has interrupted.
#[derive(Clone, Copy, Debug)]
struct Interrupted {
    ip: u64,
    sp: u64,
    rax: u64,
    mask: u64,
}

impl Interrupted {
    /// Whether that was a blocked system call: about to be made again, or ended by the signal.
    fn blocked(&self, memory: &Memory) -> bool {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let is_syscall = |at: u64| {
            let mut bytes = [0; 2];
            memory.read(at, &mut bytes).is_ok() && bytes == SYSCALL
        };
        let ended = self.rax as i64 == -i64::from(libc::EINTR);
        is_syscall(self.ip) || (ended && is_syscall(self.ip.wrapping_sub(2)))
    }
}

/// Signal frames on a thread's stack, and on the stack it ran on when it was interrupted.
fn interrupted(memory: &Memory, places: &Places, sp: u64) -> Vec<Interrupted> {
    /// A handler on a stack of its own, that of a coroutine, the thread's.
    const STACKS: usize = 4;
    /// Bytes searched of each.
    const SEARCHED: u64 = 256 << 10;
    let mut found: Vec<Interrupted> = Vec::new();
    let mut next = Some(sp & !7);
    for _ in 0..STACKS {
        let Some(sp) = next.take() else { break };
        let Some(end) = places.end_of_stack(sp) else { break };
        let mut bytes = vec![0; (end - sp).min(SEARCHED) as usize];
        let got = memory.read_some(sp, &mut bytes);
        let stack: Vec<u64> = words(&bytes[..got]).collect();
        for at in 0..stack.len() {
            let Some(frame) = stack.get(at..).and_then(|slice| frame_at(memory, slice)) else { continue };
            if !(sp..end).contains(&frame.sp) {
                next = Some(frame.sp & !7);
            }
            found.push(frame);
        }
    }
    found
}

/// The signal frame that begins with these words, if one does.
fn frame_at(memory: &Memory, words: &[u64]) -> Option<Interrupted> {
    /// All flags that `uc_flags` may have.
    const FLAGS: u64 = 7;
    const USER_CODE: u64 = 0x33;
    let word = |at: usize| words.get(at).copied();
    // uc_link is not used by the kernel.
    if word(1)? > FLAGS || word(2)? != 0 || word(24)? & 0xffff != USER_CODE {
        return None;
    }
    let frame = Interrupted { rax: word(19)?, sp: word(21)?, ip: word(22)?, mask: word(38)? };
    is_restorer(memory, word(0)?).then_some(frame)
}

/// Processor time that a thread has had, in nanoseconds.
pub(crate) fn runtime(pid: u32, tid: u32) -> Option<u64> {
    let text = whither_kernel::proc::read_text(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Lets a thread that stood in a bad place get somewhere else: on a busy machine it has not run at all after
/// a millisecond, and asked to stop again it would stop in the same place.
pub(super) fn wait_for_turn(pid: u32, last: Option<(u32, u64)>) {
    /// What letting it go and stopping it again takes, with room.
    const STEPS: u64 = 200_000;
    const LONGEST: Duration = Duration::from_millis(100);
    let began = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let Some((tid, before)) = last else { return };
        let had_it = runtime(pid, tid).is_none_or(|now| now > before + STEPS);
        if had_it || thread_state(pid, tid) != 'R' || began.elapsed() > LONGEST {
            return;
        }
    }
}

/// Little-endian 64-bit words of some bytes.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|c| c.iter().rev().fold(0, |word, &b| (word << 8) | u64::from(b)))
}

/// Whether a thread stands in a restartable sequence.
fn in_sequence(tracee: &Tracee, memory: &Memory, ip: u64) -> bool {
    let area = tracee.rseq().map_or(0, |a| a.address);
    if area == 0 {
        return false;
    }
    // struct rseq: cpu_id_start u32, cpu_id u32, rseq_cs u64.
    let sequence = memory.word(area.wrapping_add(8)).unwrap_or(0);
    if sequence == 0 {
        return false;
    }
    // struct rseq_cs: version u32, flags u32, start_ip u64, post_commit_offset u64, abort_ip u64.
    let start = memory.word(sequence.wrapping_add(8)).unwrap_or(0);
    let length = memory.word(sequence.wrapping_add(16)).unwrap_or(0);
    ip.wrapping_sub(start) < length
}

/// Address of a `syscall` instruction: in the vdso, else anywhere in mapped code.
pub(super) fn syscall_instruction(pid: u32, memory: &Memory) -> Option<u64> {
    let maps = maps::read(pid);
    let (vdso, others): (Vec<&Map>, Vec<&Map>) =
        maps.iter().filter(|m| m.execute && m.read).partition(|m| m.path == "[vdso]");
    vdso.into_iter().chain(others).filter(|m| m.path != "[vsyscall]").find_map(|map| find_syscall(map, memory))
}

fn find_syscall(map: &Map, memory: &Memory) -> Option<u64> {
    const STEP: u64 = 1 << 20;
    let mut at = map.start;
    while at < map.end {
        let mut bytes = vec![0_u8; STEP.min(map.end - at) as usize];
        let got = memory.read_some(at, &mut bytes);
        if let Some(found) = bytes[..got].windows(2).position(|w| w == [0x0f, 0x05]) {
            return Some(at + found as u64);
        }
        at += STEP;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_are_believed_by_time_and_runners_by_turns() {
        let search = |rounds, ms| Search { rounds, time: Duration::from_millis(ms) };
        assert!(search(0, 0).is_patient(true) && search(0, 0).is_patient(false));
        // On a slow machine 500 ms hold few rounds.
        assert!(!search(60, 200).is_patient(true));
        assert!(search(60, 9_000).is_patient(false));
        assert!(!search(200, 300).is_patient(false));
    }
}
