//! The address space of a process, as /proc/PID/maps tells it, and free places in it.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use whither_kernel::proc;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// Shared with other processes (and with the file).
    pub shared: bool,
    /// File offset of the first byte.
    pub offset: u64,
    /// Device as printed, `08:01`.
    pub device: String,
    /// Inode, 0 without a file.
    pub inode: u64,
    /// Path as printed; may end in ` (deleted)`.
    pub path: String,
}

impl Map {
    /// Whether an address lies in it.
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// File name without directories and ` (deleted)`.
    #[must_use]
    pub fn file_name(&self) -> &str {
        let clean = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        clean.rsplit('/').next().unwrap_or(clean)
    }
}

/// All mappings of a process, ascending; empty when it is gone.
#[must_use]
pub fn read(pid: u32) -> Vec<Map> {
    let mut text = proc::read_bytes(format!("/proc/{pid}/maps")).unwrap_or_default();
    if text.is_empty() {
        text = proc::read_bytes(format!("/proc/{}/maps", proc::with_memory(pid))).unwrap_or_default();
    }
    String::from_utf8_lossy(&text).lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Map> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let right = |at: usize, letter: u8| rights.get(at) == Some(&letter);
    Some(Map {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        read: right(0, b'r'),
        write: right(1, b'w'),
        execute: right(2, b'x'),
        shared: right(3, b's'),
        offset: u64::from_str_radix(words.next()?, 16).ok()?,
        device: words.next()?.to_string(),
        inode: words.next()?.parse().ok()?,
        path: words.next().unwrap_or("").trim_start().to_string(),
    })
}

/// Whether what a process maps counts against the machine's limit before it is touched (`vm.overcommit_memory` 2).
#[must_use]
pub fn untouched_counts() -> bool {
    proc::read_bytes("/proc/sys/vm/overcommit_memory").is_ok_and(|text| text.first() == Some(&b'2'))
}

/// First address behind the stack that a process began with, which lasts as long as it does; 0 where none is told.
#[must_use]
pub fn end_of_stack(pid: u32) -> u64 {
    read(pid).iter().find(|m| m.path == "[stack]").map_or(0, |m| m.end)
}

/// A page-aligned free range of `bytes` whose every byte is within `reach` of all of `around`, the
/// nearest one found; `None` when there is none.
#[must_use]
pub fn free_near(maps: &[Map], around: Range<u64>, bytes: u64, reach: u64) -> Option<u64> {
    /// mmap_min_addr of common systems, and room for null pointers with offsets.
    const LOWEST: u64 = 0x10_0000;
    /// End of user addresses with four page-table levels, less a guard page.
    const HIGHEST: u64 = 0x7fff_ffff_f000;
    let bytes = bytes.checked_next_multiple_of(4096)?;
    let low = around.end.saturating_sub(reach).max(LOWEST);
    let high = around.start.saturating_add(reach).min(HIGHEST);
    let mut best: Option<u64> = None;
    let mut gap_start = LOWEST;
    let ends = maps.iter().map(|m| (m.start, m.end)).chain([(HIGHEST, HIGHEST)]);
    for (start, end) in ends {
        // A page stays free on both sides: stacks grow, and a neighbour's overrun shall fault.
        let from = gap_start.saturating_add(4096).max(low.next_multiple_of(4096));
        let to = start.saturating_sub(4096).min(high);
        if to > from && to - from >= bytes {
            for at in [from, (to - bytes) & !4095] {
                if best.is_none_or(|b| b.abs_diff(around.start) > at.abs_diff(around.start)) {
                    best = Some(at);
                }
            }
        }
        gap_start = gap_start.max(end);
    }
    best
}

/// A page-aligned free range of `bytes` far from everything: in the largest gap, where in it is chance, so that
/// nobody else comes to map something just there.
#[must_use]
pub fn free_far(maps: &[Map], bytes: u64) -> Option<u64> {
    const PAGE: u64 = 4096;
    let gaps = maps.windows(2).map(|pair| (pair[0].end, pair[1].start)).filter(|(_, end)| *end < 1 << 47);
    let (start, end) = gaps.max_by_key(|(start, end)| end.saturating_sub(*start))?;
    let quarter = end.saturating_sub(start) / 4;
    if quarter < bytes.saturating_mul(4) {
        return None;
    }
    let chance = BuildHasher::hash_one(&RandomState::new(), start);
    Some((start + quarter + chance % (2 * quarter)) & !(PAGE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let m = parse("7f00-8000 r-xs 00001000 08:01 42      /a b/libx.so (deleted)").expect("parses");
        assert_eq!((m.start, m.end, m.offset, m.inode), (0x7f00, 0x8000, 0x1000, 42));
        assert!(m.read && !m.write && m.execute && m.shared);
        assert_eq!(m.file_name(), "libx.so");
        assert!(parse("garbage").is_none());
        assert!(read(std::process::id()).iter().any(|m| m.path == "[stack]"));
    }

    #[test]
    fn free_places_are_free_and_near() {
        let map = |start, end| Map { start, end, ..parse("0-1 r--p 0 0:0 0").expect("parses") };
        let maps = [map(0x4000_0000, 0x4010_0000), map(0x4020_0000, 0x7000_0000_0000)];
        let reach = 0x4000_0000;
        let at = free_near(&maps, 0x4000_0000..0x4010_0000, 0x10_000, reach).expect("room");
        assert!((0x4010_1000..=0x401e_f000).contains(&at) || at < 0x4000_0000, "{at:#x}");
        assert!(free_near(&maps, 0x5000_0000_0000..0x5000_0000_1000, 0x1000, reach).is_none());
        let low = free_near(&maps, 0x4010_0000..0x4010_0000, 0x20_0000, reach).expect("below");
        assert!(low + 0x20_0000 < 0x4000_0000);
    }

    #[test]
    fn far_places_are_free_and_differ() {
        let map = |start, end| Map { start, end, ..parse("0-1 r--p 0 0:0 0").expect("parses") };
        let maps = [map(0x40_0000, 0x50_0000), map(0x5000_0000_0000, 0x5000_0010_0000), map(0x7ff0_0000_0000, 1 << 47)];
        let all: Vec<u64> = (0..8).filter_map(|_| free_far(&maps, 0x8_1000)).collect();
        assert!(all.len() == 8 && all.iter().all(|at| (0x1000_0000_0000..0x4000_0000_0000).contains(at)), "{all:x?}");
        assert!(all.iter().any(|at| *at != all[0]), "{all:x?}");
        assert_eq!(free_far(&[map(0x1000, 0x2000), map(0x9_0000, 1 << 47)], 0x8_1000), None);
        assert_eq!(free_far(&[], 0x1000), None);
    }
}
