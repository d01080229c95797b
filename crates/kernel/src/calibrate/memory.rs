//! Load latencies of caches, memory and page walks, by following pointers in random order through areas of growing
//! size. A last cache of hundreds of megabytes is not left by size: for memory itself lines are flushed first.

use super::Figures;
use super::loops::ticks_now;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const LINE: usize = 64;
const PAGE: usize = 4096;
/// Area of the second cache's figure, unless that is known to be small.
const L2_AREA: usize = 512 << 10;
/// Largest area taken for the last cache's figure.
const MOST: usize = 24 << 20;
/// Pages for the walk: more than second-level buffers translate.
const PAGES: usize = 6000;
/// Passes; the least counts.
const PASSES: usize = 3;

pub(super) fn measure(figures: &mut Figures, unit: f64) {
    let second = cache_bytes(2).unwrap_or(1 << 20);
    let last = cache_bytes(3).unwrap_or(0);
    // Lines two apart, so that those fetched in pairs do not help.
    let spaced = |bytes: usize| bytes / (2 * LINE);
    let l2_area = L2_AREA.min(second / 2);
    let Some(area) = Area::new(MOST, Advice::LinuxHugepage) else {
        figures.notes.push("no memory to measure loads that miss the first cache with: left out".into());
        return;
    };
    let l2 = area.chase(spaced(l2_area), 2 * LINE) / unit;
    figures.put("l2", l2, 7.0..=60.0);
    let l3_area = (3 * second).min(MOST);
    if last > 2 * l3_area {
        figures.put("l3", area.chase(spaced(l3_area), 2 * LINE) / unit, 20.0..=4000.0);
    }
    // A last cache shared with strangers may leave so little that its figure is memory's under load.
    let dram = area.chase_flushed(1500, 64 * LINE) / unit;
    figures.put("dram", dram.max(figures.get("l3").unwrap_or(0.0)), 60.0..=4000.0);
    drop(area);
    let Some(pages) = Area::new(PAGES * PAGE, Advice::LinuxNoHugepage) else { return };
    // One line per page, each in another set of the caches. What stays above a hit is the walk.
    figures.put("dtlb_walk", pages.chase(PAGES, PAGE + LINE) / unit - l2, 2.0..=600.0);
}

/// Size of a cache of CPU 0.
fn cache_bytes(level: u32) -> Option<usize> {
    (0..8).find_map(|i| {
        let dir = format!("/sys/devices/system/cpu/cpu0/cache/index{i}");
        let read = |name: &str| std::fs::read_to_string(format!("{dir}/{name}")).ok();
        let is = read("level")?.trim().parse() == Ok(level) && read("type")?.trim() != "Instruction";
        let size = read("size").filter(|_| is)?;
        let digits = size.trim().trim_end_matches('K');
        digits.parse::<usize>().ok()?.checked_mul(1024)
    })
}

/// Memory of our own.
struct Area {
    start: *mut u8,
    bytes: usize,
}

impl Area {
    fn new(bytes: usize, advice: Advice) -> Option<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }.ok()?;
        let area = Self { start: start.cast(), bytes };
        // SAFETY: the range is the mapping just made; the advice does not change what it holds.
        let _ = unsafe { madvise(start, bytes, advice) };
        Some(area)
    }

    /// Slot `i` of `count` slots `stride` bytes apart; wraps at the end of the area.
    fn slot(&self, i: usize, stride: usize) -> *mut usize {
        let offset = ((i * stride) % (self.bytes - LINE)) & !(LINE - 1);
        // SAFETY: the offset lies inside the mapping.
        let slot = unsafe { self.start.add(offset) };
        slot.cast()
    }

    /// Links `count` slots into one random cycle and gives its first.
    fn link(&self, count: usize, stride: usize) -> *const usize {
        let mut order: Vec<u32> = (0..count as u32).collect();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for i in (1..count).rev() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            order.swap(i, (random % (i as u64 + 1)) as usize);
        }
        for (n, &i) in order.iter().enumerate() {
            let next = self.slot(order[(n + 1) % count] as usize, stride);
            // SAFETY: slots lie inside the mapping, which is writable and ours, at multiples of 64 bytes.
            unsafe { self.slot(i as usize, stride).write_volatile(next as usize) };
        }
        self.slot(order[0] as usize, stride)
    }

    /// Ticks per load of a chain whose lines were all used just before.
    fn chase(&self, count: usize, stride: usize) -> f64 {
        let first = self.link(count, stride);
        follow(first, count);
        let once = || {
            let start = ticks_now();
            follow(first, count);
            ticks_now().wrapping_sub(start)
        };
        (0..PASSES).map(|_| once()).min().unwrap_or(u64::MAX) as f64 / count as f64
    }

    /// Ticks per load of a chain none of whose lines is in any cache.
    fn chase_flushed(&self, count: usize, stride: usize) -> f64 {
        let first = self.link(count, stride);
        let once = || {
            for i in 0..count {
                flush(self.slot(i, stride));
            }
            let start = ticks_now();
            follow(first, count);
            ticks_now().wrapping_sub(start)
        };
        (0..PASSES).map(|_| once()).min().unwrap_or(u64::MAX) as f64 / count as f64
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slot of it is used after this.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

/// Follows a chain made by [`Area::link`].
fn follow(first: *const usize, count: usize) {
    let mut at = first;
    for _ in 0..count {
        // SAFETY: every slot of the chain holds the address of another slot of the same mapping.
        at = unsafe { at.read_volatile() } as *const usize;
    }
    std::hint::black_box(at);
}

fn flush(slot: *const usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction exists on every x86-64 CPU; the address is mapped.
    unsafe {
        core::arch::x86_64::_mm_clflush(slot.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slot;
}
