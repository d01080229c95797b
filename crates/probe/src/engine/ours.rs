//! What in a target is ours, by evidence: the agent's tables only propose, /proc/PID/maps and the bytes
//! themselves decide. Not here: taking it away (`leaving`). Constraint: the target can write rubbish into
//! every table of ours, and unmapping what is not ours would kill it.

use crate::agent::{EXITS, IMAGE, MAPS, SHADOW, SHADOW_BLOCK, SHADOW_SET, Symbol};
use crate::apply::arena;
use crate::error::ProbeError;
use crate::segment::Segment;
use crate::stub;
use crate::target::maps::Map;
use crate::target::{Memory, Owned};
use object::{Object, ObjectSegment, SegmentFlags};
use std::ops::Range;
use whither_abi::agent as abi;

/// End of user addresses with four page-table levels.
const HIGHEST: u64 = 0x7fff_ffff_f000;
const PAGE: u64 = 4096;

/// Starts of the stack blocks whose shadow is said to be mapped, by the agent whose image begins at `image`.
pub(super) fn shadow_blocks(memory: &Memory, image: u64) -> Vec<u64> {
    entries_of(memory, image, abi::SHADOW_READY).into_iter().map(|(block, _)| block).collect()
}

/// Starts of blocks or spans, by what the lowest bits of their words are, and where the words are.
fn entries_of(memory: &Memory, image: u64, state: u64) -> Vec<(u64, u64)> {
    let table = image + Symbol::ShadowSet.offset();
    let mut all: Vec<(u64, u64)> = words_of(memory, table, SHADOW_SET)
        .zip((table..).step_by(8))
        .filter(|(w, _)| *w % SHADOW_BLOCK == state && (SHADOW_BLOCK..HIGHEST).contains(w))
        .map(|(w, at)| (w - state, at))
        .filter(|(w, _)| w.checked_add_signed(SHADOW).is_some_and(|shadow| shadow >= SHADOW_BLOCK))
        .collect();
    all.sort_unstable();
    all.dedup_by_key(|(start, _)| *start);
    all
}

/// By place of [`Symbol::Exits`]: where calls go on that return by it.
pub(super) fn returns(memory: &Memory, image: u64) -> Vec<u64> {
    words_of(memory, image + Symbol::Returns.offset(), EXITS).collect()
}

fn words_of(memory: &Memory, at: u64, count: usize) -> impl Iterator<Item = u64> {
    let mut bytes = vec![0_u8; count * 8];
    let got = memory.read_some(at, &mut bytes);
    bytes.truncate(got & !7);
    (0..bytes.len() / 8).filter_map(move |i| Some(u64::from_le_bytes(bytes.get(8 * i..)?.first_chunk().copied()?)))
}

/// Shadows of stacks, as far as such memory is mapped there. Blocks lie within spans.
pub(super) fn shadows(memory: &Memory, image: u64, maps: &[Map]) -> Vec<Owned> {
    let spans = entries_of(memory, image, abi::SHADOW_SPAN);
    let blocks = entries_of(memory, image, abi::SHADOW_READY);
    owned(&spans, abi::SHADOW_SPAN_BYTES, maps).chain(owned(&blocks, SHADOW_BLOCK, maps)).collect()
}

fn owned<'a>(entries: &'a [(u64, u64)], bytes: u64, maps: &'a [Map]) -> impl Iterator<Item = Owned> + 'a {
    entries.iter().filter_map(move |&(start, entry)| {
        let range = shadow_of(start, bytes).filter(|range| covered(range, maps, &is_anonymous))?;
        Some(Owned { range, entry: Some(entry) })
    })
}

fn shadow_of(start: u64, bytes: u64) -> Option<Range<u64>> {
    let shadow = start.checked_add_signed(SHADOW)?;
    Some(shadow..shadow.checked_add(bytes)?)
}

/// What the agent has mapped for its threads in this process; nothing at all when its table names anything
/// that is not of this kind. Goes only together with the agent.
pub(super) fn private_memory(memory: &Memory, pid: u32, image: u64, maps: &[Map]) -> Result<Vec<Owned>, String> {
    let table = image + Symbol::Maps.offset();
    let words: Vec<u64> = words_of(memory, table, MAPS * 2).collect();
    private_ranges(&words, pid, maps)
        .map(|all| all.into_iter().map(|(n, range)| Owned { range, entry: Some(table + 16 * n as u64) }).collect())
}

/// Ranges of pairs of words {address, bytes | pid << 32}, with the pairs' numbers.
fn private_ranges(words: &[u64], pid: u32, maps: &[Map]) -> Result<Vec<(usize, Range<u64>)>, String> {
    const MOST: u64 = 1 << 30;
    let mut ranges = Vec::new();
    for (number, pair) in words.chunks_exact(2).enumerate() {
        let (address, bytes, of) = (pair[0], pair[1] & 0xffff_ffff, pair[1] >> 32);
        if address == 0 || (of != 0 && of != u64::from(pid)) {
            continue;
        }
        let sane = address.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE) && (1..=MOST).contains(&bytes);
        if !sane || address > HIGHEST - bytes {
            return Err(format!("its table names {bytes} bytes at {address:#x}, which cannot be"));
        }
        let range = address..address + bytes;
        if !maps.iter().any(|m| m.start < range.end && range.start < m.end) {
            // Gone already, with its thread's process or by the target's own hand.
            continue;
        }
        if !covered(&range, maps, &|m| is_anonymous(m) || is_counter_page(m)) {
            return Err(format!("its table names {bytes} bytes at {address:#x}, where something else is mapped"));
        }
        ranges.push((number, range));
    }
    Ok(ranges)
}

/// Stub arenas that a segment tells of, as far as they are there.
pub(super) fn arenas(segment: &Segment, memory: &Memory, maps: &[Map]) -> Vec<Range<u64>> {
    let told = (1..segment.n_points()).map(|index| segment.point(index)).filter(is_arena_note);
    told.filter_map(|note| arena_at(note.stub, note.relocated, memory, maps)).collect()
}

/// What tells another controller where an arena is, or is about to be: its address stands for a stub's, its bytes for those relocated.
pub(super) fn arena_note(at: u64, bytes: u64) -> abi::Point {
    abi::Point { state: abi::POINT_GONE, stub: at, relocated: bytes, ..abi::Point::default() }
}

/// Whether a point is such a note.
pub(super) fn is_arena_note(point: &abi::Point) -> bool {
    point.state == abi::POINT_GONE && point.address == 0
}

/// The arena at an address, by its mapping and its first bytes.
fn arena_at(at: u64, bytes: u64, memory: &Memory, maps: &[Map]) -> Option<Range<u64>> {
    if !arena::is_size(bytes) {
        return None;
    }
    let range = at..at.checked_add(bytes)?;
    let kind = |m: &Map| m.inode == 0 && m.path.is_empty() && !m.shared && m.execute && !m.write;
    let exactly = || maps.iter().any(|m| (m.start, m.end) == (range.start, range.end));
    let mut start = [0; stub::HEAD];
    memory.read(at, &mut start).ok()?;
    // A neighbour may have become one mapping with it; one that was never written to must be alone.
    let ours = stub::begins(&start) || (start.iter().all(|&b| b == 0) && exactly());
    (ours && at.is_multiple_of(PAGE) && covered(&range, maps, &kind)).then_some(range)
}

fn is_anonymous(map: &Map) -> bool {
    map.inode == 0 && map.path.is_empty() && !map.shared && map.write && !map.execute
}

fn is_counter_page(map: &Map) -> bool {
    map.path == "anon_inode:[perf_event]"
}

/// Whether all of a range is mapped, by mappings of a kind.
fn covered(range: &Range<u64>, maps: &[Map], kind: &dyn Fn(&Map) -> bool) -> bool {
    let mut at = range.start;
    let first = maps.partition_point(|m| m.end <= at);
    for map in &maps[first..] {
        if map.start > at || !kind(map) {
            return false;
        }
        at = map.end;
        if at >= range.end {
            return true;
        }
    }
    false
}

/// Whether the agent found at an address is this build's: symbol offsets of another mean nothing there.
pub(super) fn is_same_agent(memory: &Memory, start: u64) -> Result<(), ProbeError> {
    let other = |why: &str| ProbeError::Agent {
        why: format!("the agent found in the process {why}: use the whither that attached to it"),
    };
    // Its probe may stand there when a controller died while it measured.
    let probes = [Symbol::Empty, Symbol::Bare].map(|own| own.offset() + 4..own.offset() + 9);
    let code = code_of(IMAGE);
    if code.is_empty() {
        return Err(other("cannot be compared with the one built in"));
    }
    for (offset, bytes) in code {
        let mut there = vec![0; bytes.len()];
        memory.read(start.wrapping_add(offset), &mut there).map_err(|_| other("cannot be read"))?;
        let differs =
            |(i, (a, b)): (usize, (&u8, &u8))| a != b && !probes.iter().any(|p| p.contains(&(offset + i as u64)));
        if there.iter().zip(bytes).enumerate().any(differs) {
            return Err(other("is of another build"));
        }
    }
    Ok(())
}

/// Executable parts of an image: offset when mapped, bytes.
fn code_of(image: &[u8]) -> Vec<(u64, &[u8])> {
    let Ok(file) = object::File::parse(image) else { return Vec::new() };
    let executable =
        |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags & object::elf::PF_X == object::elf::PF_X);
    let segments = file.segments().filter(|s| executable(s.flags()));
    segments
        .filter_map(|s| {
            let (from, length) = s.file_range();
            let from = usize::try_from(from).ok()?;
            let bytes = image.get(from..from.checked_add(usize::try_from(length).ok()?)?)?;
            Some((s.address(), bytes))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, end: u64, path: &str) -> Map {
        let inode = u64::from(path.starts_with('/'));
        let path = path.to_string();
        Map {
            start,
            end,
            read: true,
            write: true,
            execute: false,
            shared: false,
            offset: 0,
            device: String::new(),
            inode,
            path,
        }
    }

    #[test]
    fn only_what_the_kernel_shows_as_ours_is_named() {
        let page = "anon_inode:[perf_event]";
        let all = [
            map(0x1000, 0x5000, ""),
            map(0x5000, 0x7000, page),
            map(0x8000, 0x9000, "/lib/x.so"),
            map(0x9000, 0xb000, "[heap]"),
        ];
        let ranges = |words: &[u64]| private_ranges(words, 7, &all);
        let both = vec![(0, 0x1000..0x5000), (2, 0x5000..0x7000)];
        assert_eq!(ranges(&[0x1000, 0x4000, 0, 5, 0x5000, 7 << 32 | 0x2000]), Ok(both));
        assert_eq!(ranges(&[0x5000, 8 << 32 | 0x2000]), Ok(vec![]), "another process's");
        assert_eq!(ranges(&[0x10_0000, 0x1000]), Ok(vec![]), "unmapped already");
        for bad in [
            [0x1000, 0x4001],
            [0x1001, 0x1000],
            [0x8000, 0x1000],
            [0x9000, 0x1000],
            [0x4000, 0x5000],
            [0x6000, 0x2000],
            [0x1000, 0],
            [0x1000, 0x8000_0000],
            [!0xfff, 0x1000],
            [0x0010_0102_464c_457f, 0],
        ] {
            let words = [0x1000, 0x4000, bad[0], bad[1]];
            assert!(ranges(&words).is_err(), "{bad:x?} was believed");
        }
    }

    #[test]
    fn shadows_are_where_such_memory_is() {
        let block = 0x7fff_0000_0000_u64;
        let at = block.wrapping_add_signed(SHADOW);
        let all = [map(at, at + SHADOW_BLOCK, ""), map(at + SHADOW_BLOCK, at + 2 * SHADOW_BLOCK, "/a/file")];
        let entries = [block, block + SHADOW_BLOCK, 0x10000, block + (1 << 30)].map(|start| (start, 0));
        let named: Vec<_> = owned(&entries, SHADOW_BLOCK, &all).map(|owned| owned.range).collect();
        assert_eq!(named, std::slice::from_ref(&(at..at + SHADOW_BLOCK)));
        assert_eq!(owned(&entries[..1], abi::SHADOW_SPAN_BYTES, &all).count(), 0, "a span of which a part is not ours");
    }

    #[test]
    fn another_build_of_the_agent_is_told_from_ours() {
        let code = code_of(IMAGE);
        let end = code.iter().map(|(at, bytes)| at + bytes.len() as u64).max().expect("has code");
        let mut copy = vec![0_u8; end as usize];
        for (at, bytes) in &code {
            copy[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
        }
        let memory = Memory::open(std::process::id()).expect("our own");
        let start = copy.as_ptr() as u64;
        is_same_agent(&memory, start).expect("the same bytes");
        copy[Symbol::Empty.offset() as usize + 5] ^= 0xff;
        copy[Symbol::Bare.offset() as usize + 5] ^= 0xff;
        is_same_agent(&memory, start).expect("probes on the functions that are measured");
        copy[Symbol::Stop.offset() as usize] ^= 0xff;
        let error = is_same_agent(&memory, copy.as_ptr() as u64).expect_err("another build");
        assert!(error.to_string().contains("another build"), "{error}");
    }

    #[test]
    fn memory_of_other_kinds_is_no_arena() {
        let memory = Memory::open(std::process::id()).expect("our own");
        let mut bytes = vec![0_u8; arena::LEAST as usize + PAGE as usize];
        let at = (bytes.as_ptr() as u64).next_multiple_of(PAGE);
        let first = (at - bytes.as_ptr() as u64) as usize;
        let own = |end| {
            let mut own = map(at, end, "");
            (own.write, own.execute) = (false, true);
            own
        };
        let (exact, grown) = ([own(at + arena::LEAST)], [own(at + arena::LEAST + PAGE)]);
        let range = at..at + arena::LEAST;
        assert_eq!(arena_at(at, arena::LEAST, &memory, &exact), Some(range.clone()), "not used yet");
        assert_eq!(arena_at(at, arena::LEAST, &memory, &grown), None, "no sign of ours");
        assert_eq!(arena_at(at, arena::LEAST, &memory, &[map(at, at + arena::LEAST, "")]), None, "data");
        assert_eq!(arena_at(at, arena::LEAST, &memory, &[]), None, "gone");
        assert_eq!(arena_at(at, arena::LEAST + 1, &memory, &grown), None, "no size of ours");
        let made = stub::stub(1, 2, at - 0x1000, &[0x90; 5], at).expect("is made");
        bytes[first..first + made.bytes.len()].copy_from_slice(&made.bytes);
        assert_eq!(arena_at(at, arena::LEAST, &memory, &grown), Some(range));
        bytes[first] = 0x90;
        assert_eq!(arena_at(at, arena::LEAST, &memory, &exact), None, "somebody else's code");
    }
}
