//! Where a thread may be borrowed for a call: not in the loader, not in an allocator (the call would
//! need the lock it may hold), not in a restartable sequence (the kernel forgets it), not in ranges the
//! caller names. Symbols of the C library decide, not guesses by stack contents.

use super::library::{Library, libraries};
use super::maps::{self, Map};
use crate::ProbeError;
use std::ops::Range;
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
    /// The allocator.
    allocator: Vec<Range<u64>>,
}

impl Places {
    /// Finds them in a process.
    pub(super) fn of(pid: u32, avoid: &[Range<u64>]) -> Result<Self, ProbeError> {
        let maps = maps::read(pid);
        if maps.is_empty() {
            return Err(ProbeError::Ended { pid, what: "its mappings were being read" });
        }
        let mut places = Self { never: avoid.to_vec(), ..Self::default() };
        for map in maps.iter().filter(|m| m.execute) {
            match kind(map.file_name()) {
                Kind::Loader | Kind::Allocator => places.never.push(map.start..map.end),
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
        for name in ["sbrk", "brk", "mmap", "munmap", "mremap", "madvise", "mprotect"] {
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
    } else {
        Kind::Other
    }
}

/// Whether a call may begin on a thread that stands still with these registers. After many `rounds` of
/// finding none, a thread whose stack only looks like the allocator's is taken.
pub(super) fn is_safe(tracee: &Tracee, regs: &Regs, memory: &Memory, places: &Places, rounds: u32) -> bool {
    /// Rounds of a millisecond; no allocation takes that long.
    const STALE: u32 = 200;
    let within = |ranges: &[Range<u64>], at: u64| ranges.iter().any(|r| r.contains(&at));
    let ip = regs.rip;
    if within(&places.never, ip) || within(&places.allocator, ip) || in_sequence(tracee, memory, ip) {
        return false;
    }
    let blocked = regs.orig_rax as i64 >= 0 && (-516..=-512).contains(&(regs.rax as i64));
    if within(&places.awake, ip) && !blocked {
        return false;
    }
    if within(&places.library, ip) && rounds < STALE {
        let mut top = [0_u8; 32];
        let got = memory.read_some(regs.rsp, &mut top);
        return !words(&top[..got]).any(|word| within(&places.allocator, word));
    }
    true
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
