//! The shared segment as the controller sees it: a mapped memfd of atomic words, typed copies in and
//! out, allocation of what the controller owns. Lives here: every access to the mapping. Not here: what
//! the numbers mean (`snapshot`) and who decides (`engine`). Constraint: the target can scribble over
//! all of it, so nothing read from it is trusted: an index outside its table reads as zero, never
//! panics, and no reference to plain memory is ever made of it.

use crate::error::ProbeError;
use std::fs::File;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;
use whither_abi::agent as abi;
use whither_abi::agent::{Active, Block, Extra, Header, Module, More, Point, Row, Rule, Site, Thread};
use whither_abi::pace;
use whither_kernel::KernelError;

/// The mapped tables.
#[derive(Debug)]
pub(crate) struct Segment {
    base: NonNull<u64>,
    bytes: usize,
}

// SAFETY: every access goes through atomics; the mapping is not bound to a thread.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// A struct of the segment: plain integers without padding, whole 8-byte words.
///
/// # Safety
/// Every bit pattern must be a value, and the size a multiple of eight.
pub(crate) unsafe trait Plain: Copy {}
macro_rules! plain {
    ($($name:ty),*) => { $(
        const _: () = assert!(size_of::<$name>().is_multiple_of(8));
        // SAFETY: repr(C) of integers alone.
        unsafe impl Plain for $name {}
    )* };
}
plain!(Point, Extra, Module, Row, Rule, Site, Block, More, Active, abi::Event, pace::Slot, pace::Record);

/// A word of the header, by its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field(u64);

/// Header words that the controller uses.
pub(crate) mod field {
    use super::{Field, Header, offset_of};
    macro_rules! fields {
        ($($constant:ident $name:ident),* $(,)?) => { $(
            pub(crate) const $constant: Field = Field(offset_of!(Header, $name) as u64);
        )* };
    }
    fields!(
        MAGIC magic, ABI abi, ENABLED enabled, BYTES bytes, TSC_MULT tsc_mult, TSC_SHIFT tsc_shift,
        CONTROLLER controller, HEARTBEAT heartbeat, PATIENCE patience, N_POINTS n_points, N_MODULES n_modules,
        N_RULES n_rules, RECURSION recursion, DEPTH depth, LOADS loads, LOADS_SEEN loads_seen,
        LOAD_WAIT load_wait_us, NEXT_FRAME next_frame, NEXT_SITE next_site, NEXT_PATH next_path, NEXT_THREAD next_thread,
        NEXT_PAGE next_page, GENERATION generation, LOST lost,
        COST_INSIDE cost_inside, COST_WHOLE cost_whole, COST_COUNT cost_count,
        COST_EARLY cost_early, LOADS_LATE loads_late, APART apart, NO_FORKS no_forks, STACKS_COPIED stacks_copied, AHEAD ahead, STACK_END stack_end,
        EVENT event,
    );
    /// What calls cost where nothing overlaps with them.
    pub(crate) const MOST: [Field; 6] = {
        let first = offset_of!(Header, most) as u64;
        [Field(first), Field(first + 8), Field(first + 16), Field(first + 24), Field(first + 32), Field(first + 40)]
    };
}

/// What of a thread block is read besides counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadHead {
    pub(crate) state: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Threads that have used the block.
    pub(crate) lives: u32,
    pub(crate) started: u64,
    pub(crate) n_active: u32,
    pub(crate) lost: [u64; abi::LOST_OF_THREAD],
    pub(crate) cpu_mode: u32,
}

/// A call path, as its three tables tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// Its innermost caller, or a root.
    pub(crate) frame: u32,
    /// Of the same head, 0 = none.
    pub(crate) next: u32,
    pub(crate) point: u16,
    /// Ancestors with the same point: 0 = outermost activation.
    pub(crate) same: u16,
}

/// A frame of call paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) site: u32,
    pub(crate) by_frame_pointer: bool,
    /// The frame outside of it, or a root.
    pub(crate) outside: u32,
}

/// A copied block, and whether it was copied between two writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// In one piece.
    Whole(Block),
    /// Its writer stands in the middle of an update (preempted or killed there).
    Torn(Block),
}

impl Segment {
    /// Maps the segment's file.
    ///
    /// # Errors
    /// [`ProbeError`] when it is too small or cannot be mapped.
    pub(crate) fn map(file: &File) -> Result<Self, ProbeError> {
        // The target must not shrink what we read; a kernel or a file that cannot be sealed is no reason
        // to refuse, the agent never shrinks it.
        // SAFETY: fcntl(2) with plain numbers on a descriptor we hold.
        let _ = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
        let length = file.metadata().map(|m| m.len()).unwrap_or(0);
        if length < abi::SEGMENT_BYTES {
            let why = format!("its shared segment has {length} bytes, {} are needed", abi::SEGMENT_BYTES);
            return Err(ProbeError::Agent { why });
        }
        Self::map_shared(file.as_raw_fd(), abi::SEGMENT_BYTES as usize)
    }

    fn map_shared(fd: i32, bytes: usize) -> Result<Self, ProbeError> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choosing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, fd, 0) };
        match NonNull::new(base.cast::<u64>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { base, bytes }),
            _ => {
                let source = std::io::Error::last_os_error();
                Err(KernelError::Call { what: "mapping the agent's segment", source }.into())
            }
        }
    }

    /// A segment of this process alone.
    #[cfg(test)]
    pub(crate) fn private() -> Self {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(abi::SEGMENT_BYTES).expect("sparse");
        let made = Self::map(&file).expect("maps");
        made.prepare();
        made
    }

    /// Writes the fixed words of a fresh header. Nothing is enabled yet.
    pub(crate) fn prepare(&self) {
        self.set_header(field::BYTES, abi::SEGMENT_BYTES);
        self.set_header32(field::N_POINTS, 1);
        self.set_header32(field::N_RULES, 1);
        self.set_header32(field::NEXT_FRAME, abi::FIRST_FRAME);
        self.set_header32(field::NEXT_SITE, 1);
        self.set_header32(field::NEXT_PATH, 1);
        self.set_header32(field::NEXT_PAGE, 1);
        self.set_header32(field::ABI, abi::AGENT_ABI);
        self.set_header(field::MAGIC, abi::AGENT_MAGIC);
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds this many words, is page-aligned, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes / 8) }
    }

    fn halves(&self) -> &[AtomicU32] {
        // SAFETY: as for `words`; the other side's accesses are machine words of a mapping, not Rust's.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes / 4) }
    }

    pub(crate) fn word(&self, at: u64) -> u64 {
        self.words().get((at / 8) as usize).map_or(0, |w| w.load(Ordering::Acquire))
    }

    pub(crate) fn set_word(&self, at: u64, value: u64) {
        if let Some(word) = self.words().get((at / 8) as usize) {
            word.store(value, Ordering::Release);
        }
    }

    fn half(&self, at: u64) -> u32 {
        self.halves().get((at / 4) as usize).map_or(0, |w| w.load(Ordering::Acquire))
    }

    fn set_half(&self, at: u64, value: u32) {
        if let Some(half) = self.halves().get((at / 4) as usize) {
            half.store(value, Ordering::Release);
        }
    }

    fn quarter(&self, at: u64) -> u32 {
        self.half(at & !3) >> ((at & 2) * 8) & 0xffff
    }

    /// The agent may write the other one of the pair at the same time.
    fn set_quarter(&self, at: u64, value: u16) {
        let shift = (at & 2) * 8;
        if let Some(half) = self.halves().get((at / 4) as usize) {
            let put = |old: u32| Some(old & !(0xffff << shift) | u32::from(value) << shift);
            let _ = half.fetch_update(Ordering::AcqRel, Ordering::Acquire, put);
        }
    }

    /// 64-bit word of the header.
    pub(crate) fn header(&self, field: Field) -> u64 {
        self.word(field.0)
    }

    /// Sets it.
    pub(crate) fn set_header(&self, field: Field, value: u64) {
        self.set_word(field.0, value);
    }

    /// 32-bit word of the header.
    pub(crate) fn header32(&self, field: Field) -> u32 {
        self.half(field.0)
    }

    /// Sets it.
    pub(crate) fn set_header32(&self, field: Field, value: u32) {
        self.set_half(field.0, value);
    }

    /// A counter that points name.
    pub(crate) fn event(&self, place: usize) -> abi::Event {
        self.load(field::EVENT.0 + place as u64 * size_of::<abi::Event>() as u64)
    }

    /// Sets it.
    pub(crate) fn set_event(&self, place: usize, event: &abi::Event) {
        self.store(field::EVENT.0 + place as u64 * size_of::<abi::Event>() as u64, event);
    }

    /// Causes of loss counted for threads without a block.
    pub(crate) fn lost(&self) -> [u64; abi::LOST_CAUSES] {
        std::array::from_fn(|i| self.word(field::LOST.0 + i as u64 * 8))
    }

    /// Forgets losses counted so far; only while nothing is probed.
    pub(crate) fn forget_lost(&self) {
        for cause in 0..abi::LOST_CAUSES as u64 {
            self.set_word(field::LOST.0 + cause * 8, 0);
        }
    }

    /// Wakes threads that wait for a word of the header (`loads_seen`).
    pub(crate) fn wake(&self, field: Field) {
        let Some(half) = self.halves().get((field.0 / 4) as usize) else { return };
        // SAFETY: futex(2) only takes the word's address; a shared one, since the waiter is another process.
        unsafe { libc::syscall(libc::SYS_futex, half.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Sleeps while a word of the header has this value, at most so long.
    pub(crate) fn wait(&self, field: Field, value: u32, limit: Duration) {
        let Some(half) = self.halves().get((field.0 / 4) as usize) else { return };
        let limit = libc::timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // SAFETY: futex(2) compares the word at this address, and reads the timespec.
        unsafe { libc::syscall(libc::SYS_futex, half.as_ptr(), libc::FUTEX_WAIT, value, &raw const limit) };
    }

    /// Copies a struct out; zeros when it is outside the segment.
    pub(crate) fn load<T: Plain>(&self, at: u64) -> T {
        let mut copy = MaybeUninit::<T>::zeroed();
        let first = (at / 8) as usize;
        if let Some(words) = self.words().get(first..first.saturating_add(size_of::<T>() / 8)) {
            for (i, word) in words.iter().enumerate() {
                // SAFETY: `i` is below the number of words in a T.
                let place = unsafe { copy.as_mut_ptr().cast::<u64>().add(i) };
                // SAFETY: inside `copy`, which is ours; alignment is not taken for granted.
                unsafe { place.write_unaligned(word.load(Ordering::Relaxed)) };
            }
        }
        // SAFETY: every bit pattern is a value of a Plain type, and all bytes are initialised.
        unsafe { copy.assume_init() }
    }

    fn store<T: Plain>(&self, at: u64, value: &T) {
        let first = (at / 8) as usize;
        let Some(words) = self.words().get(first..first.saturating_add(size_of::<T>() / 8)) else { return };
        for (i, word) in words.iter().enumerate() {
            // SAFETY: `i` is below the number of words in a T.
            let place = unsafe { std::ptr::from_ref(value).cast::<u64>().add(i) };
            // SAFETY: inside `value`; Plain types have no padding, so every byte is initialised.
            word.store(unsafe { place.read_unaligned() }, Ordering::Relaxed);
        }
        fence(Ordering::Release);
    }

    // ---- points, extras, modules, rows, rules: the controller's own --------------------------------

    /// Number of points in use, index 0 included.
    pub(crate) fn n_points(&self) -> u32 {
        self.header32(field::N_POINTS).clamp(1, abi::MAX_POINTS)
    }

    /// Calls that were let pass where not even a register could be saved, of all points.
    pub(crate) fn passed(&self) -> u64 {
        let of = |index: u32| self.word(abi::AT_PASSED + u64::from(index) * 64);
        (1..self.n_points()).map(of).fold(0, u64::wrapping_add)
    }

    /// A point.
    pub(crate) fn point(&self, index: u32) -> Point {
        if index < abi::MAX_POINTS { self.load(abi::AT_POINTS + u64::from(index) * 64) } else { self.load(u64::MAX) }
    }

    /// Writes a point; its state goes last, so that an entry never meets half of it.
    pub(crate) fn set_point(&self, index: u32, point: &Point) {
        if index == 0 || index >= abi::MAX_POINTS {
            return;
        }
        let at = abi::AT_POINTS + u64::from(index) * 64;
        self.store(at, &Point { state: abi::POINT_FREE, ..*point });
        self.set_half(at + offset_of!(Point, state) as u64, point.state);
    }

    /// Sets the state alone.
    pub(crate) fn set_point_state(&self, index: u32, state: u32) {
        if index != 0 && index < abi::MAX_POINTS {
            self.set_half(abi::AT_POINTS + u64::from(index) * 64 + offset_of!(Point, state) as u64, state);
        }
    }

    /// Writes an extra.
    pub(crate) fn set_extra(&self, index: u32, extra: &Extra) {
        if index != 0 && index < abi::MAX_EXTRAS {
            self.store(abi::AT_EXTRAS + u64::from(index) * 16, extra);
        }
    }

    /// A module of the agent's table.
    pub(crate) fn module(&self, index: u32) -> Module {
        if index < abi::MAX_MODULES { self.load(abi::AT_MODULES + u64::from(index) * 64) } else { self.load(u64::MAX) }
    }

    /// Writes a module; its state goes last.
    pub(crate) fn set_module(&self, index: u32, module: &Module) {
        if index >= abi::MAX_MODULES {
            return;
        }
        let at = abi::AT_MODULES + u64::from(index) * 64;
        self.store(at, &Module { state: 0, ..*module });
        self.set_half(at + offset_of!(Module, state) as u64, module.state);
    }

    /// Writes unwind rows from `first` on; false when they do not fit.
    pub(crate) fn set_rows(&self, first: u32, rows: &[Row]) -> bool {
        if u64::from(first) + rows.len() as u64 > u64::from(abi::MAX_ROWS) {
            return false;
        }
        let from = ((abi::AT_ROWS + u64::from(first) * 8) / 8) as usize;
        let Some(words) = self.words().get(from..from + rows.len()) else { return false };
        for (word, row) in words.iter().zip(rows) {
            word.store(u64::from(row.rule) << 32 | u64::from(row.offset), Ordering::Relaxed);
        }
        fence(Ordering::Release);
        true
    }

    /// Writes a rare rule.
    pub(crate) fn set_rule(&self, index: u32, rule: &Rule) {
        if index != 0 && index < abi::MAX_RULES {
            self.store(abi::AT_RULES + u64::from(index) * 16, rule);
        }
    }

    // ---- sites, frames and paths: shared with the agent --------------------------------------------

    /// Takes the next index of a table that the agent allocates from too.
    fn allocate(&self, field: Field, limit: u32) -> Option<u32> {
        let counter = self.halves().get((field.0 / 4) as usize)?;
        let grown = |n: u32| (n >= 1 && n < limit).then(|| n + 1);
        counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, grown).ok()
    }

    /// Makes a point's own path; `None` when the table is full.
    pub(crate) fn allocate_root(&self, point: u32) -> Option<u32> {
        let path = self.allocate(field::NEXT_PATH, abi::MAX_PATHS)?;
        let point = u16::try_from(point).ok()?;
        self.set_path(path, &Path { frame: abi::ROOT_FULL, point, ..Path::default() });
        Some(path)
    }

    /// Its frame goes last: it makes the path one.
    fn set_path(&self, index: u32, path: &Path) {
        let link = path.next & abi::LINK_NEXT | u32::from(path.same) << abi::LINK_SAME_SHIFT;
        self.set_half(abi::AT_PATH_LINKS + u64::from(index) * 4, link);
        self.set_quarter(abi::AT_PATH_POINTS + u64::from(index) * 2, path.point);
        self.set_half(abi::AT_PATH_FRAMES + u64::from(index) * 4, path.frame);
    }

    /// Number of sites in use, index 0 included.
    pub(crate) fn n_sites(&self) -> u32 {
        self.header32(field::NEXT_SITE).min(abi::MAX_SITES)
    }

    /// Number of paths in use, index 0 included.
    pub(crate) fn n_paths(&self) -> u32 {
        self.header32(field::NEXT_PATH).min(abi::MAX_PATHS)
    }

    /// A table of paths has no room any more.
    pub(crate) fn paths_full(&self) -> bool {
        // The agent gives up a run that does not fit, and the longest has this many units.
        let longest = abi::RUN_HEAD + 2 * abi::MOST_DEPTH;
        let frames = self.header32(field::NEXT_FRAME) >= abi::MAX_FRAMES - longest;
        frames || self.n_paths() >= abi::MAX_PATHS || self.n_sites() >= abi::MAX_SITES
    }

    /// A site; zeros outside the table.
    pub(crate) fn site(&self, index: u32) -> Site {
        if index < abi::MAX_SITES { self.load(abi::AT_SITES + u64::from(index) * 16) } else { Site::default() }
    }

    /// Gives a site another return address, one that no code has: what it stood for is unmapped.
    pub(crate) fn poison(&self, index: u32, ra: u64) {
        if index != 0 && index < abi::MAX_SITES {
            self.set_word(abi::AT_SITES + u64::from(index) * 16, ra);
        }
    }

    /// Has the agent look up the rule of a site anew.
    pub(crate) fn forget_rule(&self, index: u32) {
        if index != 0 && index < abi::MAX_SITES {
            let at = abi::AT_SITES + u64::from(index) * 16;
            self.set_half(at + offset_of!(Site, rule) as u64, abi::RULE_LATER);
        }
    }

    fn unit(&self, index: u32) -> u32 {
        self.quarter(abi::AT_FRAMES + u64::from(index) * 2)
    }

    /// A frame; `None` when the index is none.
    pub(crate) fn frame(&self, index: u32) -> Option<Frame> {
        if !(abi::FIRST_FRAME..abi::MAX_FRAMES).contains(&index) {
            return None;
        }
        let unit = self.unit(index);
        let begin = if unit & abi::FRAME_WIDE == 0 { index } else { index - 1 };
        let high = if begin == index { 0 } else { self.unit(begin) & !abi::FRAME_MORE };
        let outside = match unit & abi::FRAME_FIRST {
            0 => begin - 1,
            _ => self.unit(begin - 2) | self.unit(begin - 1) << 16,
        };
        let site = unit & abi::FRAME_SITE | high << abi::FRAME_LOW;
        Some(Frame { site, by_frame_pointer: unit & abi::FRAME_FP != 0, outside })
    }

    /// A path; zeros outside the table.
    pub(crate) fn path(&self, index: u32) -> Path {
        if index >= abi::MAX_PATHS {
            return Path::default();
        }
        let frame = self.half(abi::AT_PATH_FRAMES + u64::from(index) * 4);
        let link = self.half(abi::AT_PATH_LINKS + u64::from(index) * 4);
        Path {
            frame,
            next: link & abi::LINK_NEXT,
            point: self.quarter(abi::AT_PATH_POINTS + u64::from(index) * 2) as u16,
            same: (link >> abi::LINK_SAME_SHIFT) as u16,
        }
    }

    // ---- threads -----------------------------------------------------------------------------------

    /// Number of thread blocks ever used.
    pub(crate) fn n_threads(&self) -> u32 {
        self.header32(field::NEXT_THREAD).min(abi::MAX_THREADS)
    }

    fn thread_at(index: u32) -> u64 {
        abi::AT_THREADS + u64::from(index.min(abi::MAX_THREADS - 1)) * u64::from(abi::THREAD_STRIDE)
    }

    /// First words of a thread block.
    pub(crate) fn thread(&self, index: u32) -> ThreadHead {
        let at = Self::thread_at(index);
        let half = |offset: usize| self.half(at + offset as u64);
        let lost = at + offset_of!(Thread, lost) as u64;
        ThreadHead {
            state: half(offset_of!(Thread, state)),
            pid: half(offset_of!(Thread, pid)),
            tid: half(offset_of!(Thread, tid)),
            lives: half(offset_of!(Thread, lives)),
            started: self.word(at + offset_of!(Thread, started) as u64),
            n_active: half(offset_of!(Thread, n_active)),
            lost: std::array::from_fn(|i| self.word(lost + i as u64 * 8)),
            cpu_mode: half(offset_of!(Thread, cpu_mode)),
        }
    }

    /// CPU time of a thread, nanoseconds, and the TSC it was read at: what its records with an even `cpu0` refer to.
    pub(crate) fn anchor(&self, index: u32) -> Option<(u64, u64)> {
        let word = |offset: usize| self.word(Self::thread_at(index) + offset as u64);
        let anchor = (word(offset_of!(Thread, anchor_cpu)), word(offset_of!(Thread, anchor_tsc)));
        Some(anchor).filter(|(_, ticks)| *ticks != 0)
    }

    /// Marks the block of a thread that has ended, unless another one has taken it meanwhile.
    pub(crate) fn bury(&self, index: u32, tid: u32) {
        let at = Self::thread_at(index);
        if self.half(at + offset_of!(Thread, tid) as u64) != tid {
            return;
        }
        if let Some(state) = self.halves().get(((at + offset_of!(Thread, state) as u64) / 4) as usize) {
            let (live, dead) = (abi::THREAD_LIVE, abi::THREAD_DEAD);
            let _ = state.compare_exchange(live, dead, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Pages of a thread's counters: (first path, page), for paths below `paths`.
    pub(crate) fn pages(&self, thread: u32, paths: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let first = ((Self::thread_at(thread) + offset_of!(Thread, directory) as u64) / 4) as usize;
        let count = paths.div_ceil(64).min(abi::DIRECTORY) as usize;
        let entries = self.halves().get(first..first + count).unwrap_or(&[]);
        entries.iter().enumerate().filter_map(|(i, entry)| {
            let page = entry.load(Ordering::Acquire);
            (page != 0 && page < abi::MAX_PAGES).then_some((i as u32 * 64, page))
        })
    }

    /// Shortest and longest calls count from here. The agent replaces them only by longer and shorter ones,
    /// which makes plain stores of ours safe: at most the call that ends in that moment is among the old.
    pub(crate) fn restart_extremes(&self) {
        for thread in 0..self.n_threads() {
            for (_, page) in self.pages(thread, abi::MAX_PATHS) {
                let first = abi::AT_PAGES + u64::from(page) * 4096;
                for at in (first..first + 4096).step_by(size_of::<Block>()) {
                    for extreme in [offset_of!(Block, min), offset_of!(Block, max)] {
                        if self.word(at + extreme as u64) != 0 {
                            self.set_word(at + extreme as u64, 0);
                        }
                    }
                }
            }
        }
    }

    /// Copies a counter block of a page, by the protocol of its `seq`; `None` when it was never used.
    pub(crate) fn block(&self, page: u32, slot: u32) -> Option<Copied> {
        /// Updates last a few nanoseconds; a writer that takes longer does not run.
        const TRIES: u32 = 64;
        let at = abi::AT_PAGES + u64::from(page.min(abi::MAX_PAGES - 1)) * 4096 + u64::from(slot % 64) * 64;
        let words = self.words().get((at / 8) as usize..(at / 8) as usize + 8)?;
        let mut copy = Self::copy_block(words);
        for _ in 0..TRIES {
            if copy.seq & 1 == 0 {
                fence(Ordering::Acquire);
                if words[0].load(Ordering::Relaxed) as u32 == copy.seq {
                    return (copy.calls != 0 || copy.seq != 0).then_some(Copied::Whole(copy));
                }
            }
            std::hint::spin_loop();
            copy = Self::copy_block(words);
        }
        Some(Copied::Torn(copy))
    }

    /// `words` are the eight of a block: sequence first.
    fn copy_block(words: &[AtomicU64]) -> Block {
        let head = words[0].load(Ordering::Acquire);
        let word = |i: usize| words[i].load(Ordering::Relaxed);
        Block {
            seq: head as u32,
            extra: (head >> 32) as u32,
            calls: word(1),
            wall: word(2),
            cpu: word(3),
            min: word(4),
            max: word(5),
            value: [word(6), word(7)],
        }
    }

    /// What stands behind a block.
    pub(crate) fn more(&self, extra: u32) -> Option<More> {
        let at = abi::AT_PAGES.checked_add(u64::from(extra) * 64)?;
        (extra != 0 && at + size_of::<More>() as u64 <= abi::AT_THREADS).then(|| self.load(at))
    }

    /// Calls in progress of a thread, outermost first; what changed while it was read is left out.
    pub(crate) fn active(&self, thread: u32) -> Vec<Active> {
        let at = Self::thread_at(thread);
        let seq = at + offset_of!(Thread, seq_active) as u64;
        for _ in 0..64 {
            let before = self.half(seq);
            let count = self.half(at + offset_of!(Thread, n_active) as u64).min(abi::ACTIVE);
            let first = at + offset_of!(Thread, active) as u64;
            let size = size_of::<Active>() as u64;
            let copy: Vec<Active> = (0..u64::from(count)).map(|i| self.load(first + i * size)).collect();
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.half(seq) == before {
                // Between the calls of one stack and those of another there may be holes, which have no path.
                return copy.into_iter().filter(|call| call.path & !abi::FOLDED != 0).collect();
            }
            std::hint::spin_loop();
        }
        Vec::new()
    }
}

/// What the agent writes, for tests.
#[cfg(test)]
impl Segment {
    pub(crate) fn scribble(&self, at: u64, value: u64) {
        self.set_word(at, value);
    }

    /// A run of frames, outermost first, by return addresses; answers its innermost.
    pub(crate) fn put_run(&self, outside: u32, addresses: &[u64]) -> u32 {
        let mut at = self.header32(field::NEXT_FRAME) + abi::RUN_HEAD;
        self.put_outside(at, outside);
        for (i, &ra) in addresses.iter().enumerate() {
            let site = self.header32(field::NEXT_SITE);
            self.store(abi::AT_SITES + u64::from(site) * 16, &Site { ra, ..Site::default() });
            self.set_header32(field::NEXT_SITE, site + 1);
            let first = if i == 0 { abi::FRAME_FIRST } else { 0 };
            let last = if i + 1 == addresses.len() { abi::FRAME_LAST } else { 0 };
            let mut bits = first | last;
            if site > abi::FRAME_SITE {
                self.put_unit(at, abi::FRAME_MORE | site >> abi::FRAME_LOW);
                bits |= abi::FRAME_WIDE;
                at += 1;
            }
            self.put_unit(at, site & abi::FRAME_SITE | bits);
            at += 1;
        }
        self.set_header32(field::NEXT_FRAME, at);
        at - 1
    }

    /// What stands outside of the run whose first unit is at `begin`.
    pub(crate) fn put_outside(&self, begin: u32, outside: u32) {
        self.put_unit(begin - 2, outside & 0xffff);
        self.put_unit(begin - 1, outside >> 16);
    }

    pub(crate) fn put_unit(&self, index: u32, unit: u32) {
        self.set_quarter(abi::AT_FRAMES + u64::from(index) * 2, unit as u16);
    }

    /// A living thread with these calls in progress.
    pub(crate) fn put_active(&self, thread: u32, calls: &[Active]) {
        let at = Self::thread_at(thread);
        self.set_half(at + offset_of!(Thread, state) as u64, abi::THREAD_LIVE);
        self.set_half(at + offset_of!(Thread, n_active) as u64, calls.len() as u32);
        for (i, call) in calls.iter().enumerate() {
            self.store(at + offset_of!(Thread, active) as u64 + (i * size_of::<Active>()) as u64, call);
        }
    }

    pub(crate) fn put_path(&self, index: u32, path: &Path) {
        self.set_path(index, path);
    }

    pub(crate) fn put_lost(&self, cause: usize, calls: u64) {
        self.set_word(field::LOST.0 + cause as u64 * 8, calls);
    }

    pub(crate) fn put_block(&self, thread: u32, page: u32, path: u32, block: &Block) {
        let directory = Self::thread_at(thread) + offset_of!(Thread, directory) as u64;
        self.set_half(directory + u64::from(path / 64) * 4, page);
        self.store(abi::AT_PAGES + u64::from(page) * 4096 + u64::from(path % 64) * 64, block);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map_shared`; borrows of it end with `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests;
