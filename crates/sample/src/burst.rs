//! Stacks of one process for a moment, to be looked at and thrown away: where its threads run, by samples of CPU time, and
//! where they wait, by looking at those that wait in the kernel. The process is neither stopped nor changed, and no
//! byte of its stacks is kept.

use crate::perf_ring::RingCollector;
use crate::plan::{Chosen, Coverage, EdgeMode, StackMode};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use whither_image::Bytes;
use whither_image::unwind::{ElfUnwindInfo, StackEnd, UnwindCache, Unwinder, UserRegs, UserStack};
use whither_kernel::events;
use whither_kernel::memory::Memory;
use whither_kernel::proc;
use whither_kernel::waiting::{Waiting, waiting_at};
use whither_store::model::Precision;

/// CPU time between two samples: what holds one percent of a thread's time is met five times in a second.
const PERIOD_NS: u64 = 2_000_000;
/// Copied of a stack with each sample: of a thread that runs all the time 16 MB in a second.
const STACK_BYTES: u32 = 32 << 10;
/// Most frames followed.
const DEPTH: usize = 512;
/// Between two readings of the rings. Without rights they hold some fifteen stacks.
const READING: Duration = Duration::from_millis(15);
/// Between two looks at threads that wait.
const LOOKING: Duration = Duration::from_millis(100);
/// Threads looked at each time, others the next time: some 20 us each.
const LOOKED_AT: usize = 100;

/// Code of a process, by whose rules stacks are walked.
#[derive(Clone, Debug)]
pub struct Code {
    /// Where it is.
    pub range: Range<u64>,
    /// What is added to a stated address to get the one in the process.
    pub bias: u64,
    /// The file it comes from; without one stacks are followed up to there.
    pub file: Option<Bytes>,
}

/// Stacks seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Addresses in the process from the innermost outwards: where the thread was, then return addresses.
    pub walks: Vec<Vec<u64>>,
    /// Stacks that could not be followed to their end: deeper than what was copied, or nothing tells how to go on.
    pub cut: usize,
    /// Why running threads were not seen.
    pub refused: Option<String>,
    /// How long was looked.
    pub time: Duration,
}

/// Looks for so long, or until told to stop.
#[must_use]
pub fn stacks(pid: u32, code: &[Code], time: Duration, stop: &AtomicBool) -> Stacks {
    let began = Instant::now();
    let mut look = Look::new(pid, code);
    let mut ring = match running(pid) {
        Ok(ring) => Some(ring),
        Err(why) => {
            look.seen.refused = Some(why);
            None
        }
    };
    let (mut looked, mut turn) = (None::<Instant>, 0);
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() >= LOOKING) {
            looked = Some(Instant::now());
            turn = look.waiting(turn);
        }
        match &mut ring {
            Some(ring) => {
                ring.wait(READING);
                look.running(ring);
            }
            None => std::thread::sleep(READING),
        }
    }
    if let Some(ring) = &mut ring {
        ring.disable();
        look.running(ring);
    }
    look.seen.time = began.elapsed();
    look.seen
}

/// Samples of a process's threads, switched on; of user code alone where no more is allowed.
fn running(pid: u32) -> Result<RingCollector, String> {
    let mut why = String::new();
    for name in ["cpu-clock", "cpu-clock:u"] {
        let opened = events::parse(name).map_err(Into::into).and_then(|spec| {
            let chosen = Chosen { spec, period: PERIOD_NS, precision: Precision::Skid(1), turns: 1, units_per_ns: 1.0 };
            let stacks = StackMode::Dwarf { bytes: STACK_BYTES, every: 1 };
            let ring = RingCollector::open(&[chosen], &Coverage::Processes(vec![pid]), stacks, EdgeMode::Off, None)?;
            ring.enable().map(|()| ring)
        });
        match opened {
            Ok(ring) => return Ok(ring),
            Err(e) => why = e.to_string(),
        }
    }
    Err(why)
}

struct Look {
    pid: u32,
    /// Where stacks are followed no further.
    ends: Vec<Range<u64>>,
    memory: Option<Memory>,
    unwinder: Unwinder,
    cache: UnwindCache,
    stack: Vec<u8>,
    seen: Stacks,
}

impl Look {
    fn new(pid: u32, code: &[Code]) -> Self {
        let mut unwinder = Unwinder::new();
        for code in code {
            let rules = code.file.as_ref().and_then(|file| ElfUnwindInfo::from_elf(file).ok());
            unwinder.add_module(code.range.clone(), code.bias, &rules.unwrap_or_default());
        }
        Self {
            pid,
            ends: code.iter().filter(|c| c.file.is_none()).map(|c| c.range.clone()).collect(),
            memory: Memory::open(pid).ok(),
            unwinder,
            cache: UnwindCache::default(),
            stack: vec![0; STACK_BYTES as usize],
            seen: Stacks::default(),
        }
    }

    /// Takes in what was sampled.
    fn running(&mut self, ring: &mut RingCollector) {
        let Self { pid, ends, unwinder, cache, seen, .. } = self;
        ring.samples(|process, sample| {
            // Children that were born meanwhile have other code.
            if let (Some([bp, sp, ip]), true) = (sample.regs, process == *pid) {
                seen.take(unwinder.unwind(cache, UserRegs { ip, sp, bp }, &sample.stack, DEPTH), ends);
            }
        });
    }

    /// Looks at some of the threads, from the one whose turn it is; returns whose turn is next.
    fn waiting(&mut self, turn: usize) -> usize {
        let Some(memory) = self.memory.take() else { return 0 };
        let threads = proc::threads(self.pid);
        for &tid in threads.iter().cycle().skip(turn).take(threads.len().min(LOOKED_AT)) {
            let Some(place) = waiting_at(self.pid, tid) else { continue };
            let held = memory.read_some(place.sp, &mut self.stack);
            // It has not run meanwhile, or waits again for the same, with the same frames around it.
            if waiting_at(self.pid, tid).as_ref() == Some(&place) {
                let walk = self.without_frame_pointer(&place, held);
                self.seen.take(walk, &self.ends);
            }
        }
        self.memory = Some(memory);
        (turn + LOOKED_AT).checked_rem(threads.len()).unwrap_or(0)
    }

    /// The stack of a thread whose frame pointer nobody tells. Where a function needs it, it points to what was kept in front
    /// of some return address: the innermost such place from which the stack can be followed to its end. Not found where the
    /// caller of that function keeps no frame pointer itself: what was kept is then any value.
    fn without_frame_pointer(&mut self, place: &Waiting, held: usize) -> UserStack {
        let stack = &self.stack[..held];
        let mut walk = |bp: u64| {
            let regs = UserRegs { ip: place.ip, sp: place.sp, bp };
            self.unwinder.unwind(&mut self.cache, regs, stack, DEPTH)
        };
        let first = walk(NOWHERE);
        if is_whole(&first, &self.ends) {
            return first;
        }
        let places = frames_kept(place.sp, stack).take(GUESSES);
        places.map(walk).find(|found| is_whole(found, &self.ends)).unwrap_or(first)
    }
}

/// Places tried for a frame pointer: each takes as long as following a stack.
const GUESSES: usize = 32;

/// No frame is there; 0 would mean that there are no further ones.
const NOWHERE: u64 = 8;

/// Where a stack may hold a caller's frame pointer, the innermost first: it lies further out on the same stack.
fn frames_kept(sp: u64, stack: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let end = sp.saturating_add(stack.len() as u64);
    let words = stack.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    words.zip((sp..).step_by(8)).filter(move |&(kept, at)| kept > at && kept < end && kept % 8 == 0).map(|(_, at)| at)
}

/// Whether a stack was followed to its end, or to where we do not go on.
fn is_whole(walk: &UserStack, ends: &[Range<u64>]) -> bool {
    walk.end == StackEnd::Root || walk.addresses.iter().any(|at| ends.iter().any(|end| end.contains(at)))
}

impl Stacks {
    fn take(&mut self, mut walk: UserStack, ends: &[Range<u64>]) {
        match walk.addresses.iter().position(|at| ends.iter().any(|end| end.contains(at))) {
            // What follows was guessed.
            Some(last) => walk.addresses.truncate(last + 1),
            None => self.cut += usize::from(walk.end != StackEnd::Root),
        }
        self.walks.push(walk.addresses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_end_where_nothing_tells_how_to_go_on() {
        let mut seen = Stacks::default();
        let walk = |addresses: &[u64], end| UserStack { addresses: addresses.to_vec(), end };
        let ours = std::slice::from_ref(&(0x100..0x200));
        seen.take(walk(&[1, 2, 0x150, 3], StackEnd::BeyondCopy), ours);
        seen.take(walk(&[1, 2, 3], StackEnd::BeyondCopy), ours);
        assert_eq!((seen.walks, seen.cut), (vec![vec![1, 2, 0x150], vec![1, 2, 3]], 1));
    }

    /// A frame pointer points to that of the caller, which lies further out.
    #[test]
    fn places_for_a_frame_pointer_are_found() {
        let words = [7, 0x1020, 0x55, 0x1003, 0x1030, 0x9000, 0x1000];
        let stack: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        assert_eq!(frames_kept(0x1000, &stack).collect::<Vec<_>>(), [0x1008, 0x1020]);
    }

    /// Whatever rights there are: a thread of our own that waits is seen, with the way from where it began.
    #[test]
    fn threads_that_wait_are_seen() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waiter = std::thread::spawn(move || ended.recv());
        let pid = std::process::id();
        let code: Vec<Code> = proc::executable_mappings(pid)
            .into_iter()
            .filter_map(|m| {
                let file = Bytes::from(std::fs::read(&m.path).ok()?);
                let segments = whither_image::ElfSummary::parse(&file).ok()?.segments;
                let bias = whither_image::unwind::load_bias(&segments, m.start, m.offset)?;
                Some(Code { range: m.start..m.end, bias, file: Some(file) })
            })
            .collect();
        let seen = stacks(pid, &code, Duration::from_millis(300), &AtomicBool::new(false));
        assert!(seen.time >= Duration::from_millis(300));
        assert!(seen.walks.iter().any(|walk| walk.len() > 3), "{:?}", seen.walks);
        drop(end);
        let _ = waiter.join();
        assert!(stacks(pid, &code, Duration::from_secs(9), &AtomicBool::new(true)).time < Duration::from_secs(5));
    }
}
