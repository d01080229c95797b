//! The agent in its place: put in, its tables prepared, its cost measured, its heartbeat kept. One per
//! process tree: forked children inherit it.

use super::cost::Cost;
use super::{ours, wait};
use crate::agent::{EXIT_BYTES, EXITS, IMAGE, SHADOW, Symbol};
use crate::api::{Counter, Options};
use crate::apply::arena::{self, Arenas};
use crate::apply::{Patch, Write, write_stubs};
use crate::engine::clock::{self, Clock};
use crate::error::ProbeError;
use crate::modules::Rows;
use crate::segment::{Segment, field};
use crate::snapshot::Reader;
use crate::stub::{jump, stub};
use crate::target::{Caller, Load, Memory, Placed, inject, maps};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use whither_abi::agent as abi;
use whither_abi::agent::Point;
use whither_kernel::clock::monotonic_ns;

/// An agent and its tables.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) placed: Placed,
    pub(crate) segment: Arc<Segment>,
    next_extra: u32,
    /// What a probed call costs is not known yet.
    pub(crate) unmeasured: bool,
    /// How often that was tried later, and when last.
    tries: u32,
    tried: Option<Instant>,
    heart: Option<Heart>,
}

impl Seat {
    /// Puts the agent into the process of a borrowed thread.
    pub(crate) fn take(caller: &mut Caller, options: &Options) -> Result<Self, ProbeError> {
        if let Some(missing) = Symbol::missing() {
            let why = format!("the one built in lacks the symbol {missing}: build whither anew");
            return Err(ProbeError::Agent { why });
        }
        super::leaving::finish(caller);
        let mut segment = None;
        let load = Load {
            agent: IMAGE,
            start: Symbol::Start.offset(),
            segment_bytes: abi::SEGMENT_BYTES,
            shadow: SHADOW,
            abi: abi::AGENT_ABI,
            by_hand: false,
        };
        let stack_end = maps::end_of_stack(caller.pid());
        let placed = inject(caller, &load, &mut |file| {
            let mapped = Segment::map(file)?;
            prepare(&mapped, options);
            mapped.set_header(field::STACK_END, stack_end);
            segment = Some(mapped);
            Ok(())
        })?;
        let Some(segment) = segment else {
            return Err(ProbeError::Agent { why: "it was placed without its segment".into() });
        };
        Ok(Self::on(placed, segment))
    }

    /// An agent found in a process.
    pub(crate) fn found(placed: Placed, options: &Options) -> Result<Self, ProbeError> {
        let segment = Segment::map(&placed.file)?;
        if segment.header(field::MAGIC) != abi::AGENT_MAGIC || segment.header32(field::ABI) != abi::AGENT_ABI {
            let theirs = segment.header32(field::ABI);
            return Err(ProbeError::OtherLayout { pid: placed.pid, theirs, ours: abi::AGENT_ABI });
        }
        ours::is_same_agent(&Memory::open(placed.pid)?, placed.image.start)?;
        settings(&segment, options);
        // Lists of points that were set before stay.
        let ends =
            (1..segment.n_points()).map(|i| segment.point(i)).map(|p| p.extras.saturating_add(u32::from(p.n_extras)));
        let next_extra = ends.max().unwrap_or(1).max(1);
        Ok(Self { next_extra, ..Self::on(placed, segment) })
    }

    fn on(placed: Placed, segment: Segment) -> Self {
        let segment = Arc::new(segment);
        let heart = Some(Heart::start(Arc::clone(&segment), placed.pid));
        Self { placed, segment, next_extra: 1, unmeasured: false, tries: 0, tried: None, heart }
    }

    /// Address of a symbol in the target.
    pub(crate) fn symbol(&self, symbol: Symbol) -> u64 {
        self.placed.image.start + symbol.offset()
    }

    /// Where return addresses lead to in slots of calls whose exit is seen.
    pub(crate) fn exits(&self) -> Range<u64> {
        let start = self.symbol(Symbol::Exits);
        start..start.saturating_add(EXITS as u64 * EXIT_BYTES)
    }

    /// Where stubs of a point jump.
    pub(crate) fn common(&self, flags: u32) -> u64 {
        self.symbol(match flags {
            _ if flags & abi::DO_SITE != 0 => Symbol::EntrySite,
            _ if flags & abi::DO_UNWIND != 0 => Symbol::EntryUnwind,
            _ if flags & abi::DO_EXIT != 0 => Symbol::EntryExit,
            _ => Symbol::EntryOnly,
        })
    }

    /// Index for a new point, its root made; `None` when a table is full.
    pub(crate) fn allocate_point(&self) -> Option<(u32, u32)> {
        let index = self.segment.n_points();
        if index >= abi::MAX_POINTS - 1 {
            return None;
        }
        let root = self.segment.allocate_root(index)?;
        self.segment.set_header32(field::N_POINTS, index + 1);
        Some((index, root))
    }

    /// Notes where an arena is about to be mapped, for a controller that takes over.
    pub(crate) fn note_arena(&self, at: u64, bytes: u64) -> Result<(), ProbeError> {
        let index = self.segment.n_points();
        if index >= abi::MAX_POINTS - 1 {
            return Err(ProbeError::Agent { why: "its table of points is full".into() });
        }
        self.segment.set_point(index, &ours::arena_note(at, bytes));
        self.segment.set_header32(field::N_POINTS, index + 1);
        Ok(())
    }

    /// Writes a list of words to be taken; its first index, 0 for none or no room.
    pub(crate) fn put_extras(&mut self, extras: &[abi::Extra]) -> u32 {
        let first = self.next_extra;
        if extras.is_empty() || first as usize + extras.len() > abi::MAX_EXTRAS as usize {
            return 0;
        }
        for (i, extra) in extras.iter().enumerate() {
            self.segment.set_extra(first + i as u32, extra);
        }
        self.next_extra += extras.len() as u32;
        first
    }

    /// Place of a counter in the agent's list; one behind its end when it is full: never read then.
    pub(crate) fn counter(&self, counter: Counter) -> u8 {
        let wanted = abi::Event { kind: counter.kind, flags: abi::EVENT_SET, config: counter.config };
        let fits = |place: &usize| {
            let there = self.segment.event(*place);
            there == wanted || there.flags & abi::EVENT_SET == 0
        };
        let place = (0..abi::EVENTS).find(fits).unwrap_or(abi::EVENTS);
        if place < abi::EVENTS {
            self.segment.set_event(place, &wanted);
        }
        place as u8
    }

    /// As [`Self::calibrate`]; calls of the borrowed thread that could not be recorded meanwhile are none that the program has lost.
    pub(super) fn calibrate_apart(
        &mut self,
        caller: &mut Caller,
        arenas: &mut Arenas,
        reader: &mut Reader,
    ) -> Result<(), ProbeError> {
        let before = self.lost_of(caller.tid());
        let calibrated = self.calibrate(caller, arenas);
        let after = self.lost_of(caller.tid());
        reader.forget(&std::array::from_fn(|cause| after[cause].wrapping_sub(before[cause])));
        calibrated
    }

    /// What a thread has lost, but for time, which the agent takes care of itself.
    fn lost_of(&self, tid: u32) -> [u64; abi::LOST_CAUSES] {
        let threads = (0..self.segment.n_threads()).map(|index| self.segment.thread(index));
        let mut all = [0_u64; abi::LOST_CAUSES];
        for thread in threads.filter(|thread| thread.tid == tid) {
            all.iter_mut().zip(thread.lost).for_each(|(all, lost)| *all = all.wrapping_add(lost));
        }
        all[abi::LOST_APART] = 0;
        all
    }

    /// Measures what a probed call costs; at the entry point of a program without a loader nothing can be
    /// recorded, for want of a thread pointer: it must be done later.
    fn calibrate(&mut self, caller: &mut Caller, arenas: &mut Arenas) -> Result<(), ProbeError> {
        self.set_cost(Cost::default());
        let measured = self.measure(caller, arenas);
        self.unmeasured = !matches!(measured, Ok(true));
        measured.map(drop)
    }

    /// Whether to try once more what could not be measured. A thread is held up some milliseconds by it, and one that shares its thread
    /// pointer with a child, or may make no system calls any more, records nothing: so ever more seldom, and not for ever.
    pub(super) fn is_to_be_tried(&mut self) -> bool {
        const MOST: u32 = 6;
        const PAUSE: Duration = Duration::from_millis(20);
        let rested = self.tried.is_none_or(|at| at.elapsed() >= PAUSE * (1 << self.tries));
        if !self.unmeasured || self.tries >= MOST || !rested || self.segment.n_threads() == 0 {
            return false;
        }
        (self.tries, self.tried) = (self.tries + 1, Some(Instant::now()));
        true
    }

    /// Measures on a function of the agent's own, of known length; false if nothing could be recorded.
    fn measure(&self, caller: &mut Caller, arenas: &mut Arenas) -> Result<bool, ProbeError> {
        let before = self.know_ourselves();
        let measured = self.measure_known(caller, arenas);
        self.segment.set_header32(field::N_MODULES, before);
        measured
    }

    /// Makes the agent's own code a module for a while: without rules the walk of each call that is measured would be tried
    /// anew, which costs twice what calls of the program cost. How many modules there were.
    fn know_ourselves(&self) -> u32 {
        let before = self.segment.header32(field::N_MODULES);
        let rows = Rows::of_agent();
        // The last rows are in nobody's way: the table is never that full.
        let first = abi::MAX_ROWS - rows.len() as u32;
        let moved = rows.moved(0);
        if before < abi::MAX_MODULES && self.segment.set_rows(first, &moved) {
            let ours = &self.placed.image;
            let module = abi::Module {
                start: ours.start,
                end: ours.end,
                base: ours.start.wrapping_add(rows.base),
                first_row: first,
                n_rows: rows.len() as u32,
                state: 1,
                ..abi::Module::default()
            };
            self.segment.set_module(before, &module);
            self.segment.set_header32(field::N_MODULES, before + 1);
        }
        before
    }

    fn measure_known(&self, caller: &mut Caller, arenas: &mut Arenas) -> Result<bool, ProbeError> {
        let mut plain = u64::MAX;
        for _ in 0..VISITS {
            plain = plain.min(self.own_calls(caller)?);
        }
        let timed = abi::DO_EXIT | abi::DO_PATH | abi::DO_WALL;
        let (whole, seen) = self.own_calls_probed(caller, arenas, timed)?;
        if seen == 0 {
            return Ok(false);
        }
        let (count, _) = self.own_calls_probed(caller, arenas, abi::DO_PATH)?;
        let per_call = |ticks: u64| ticks.saturating_sub(plain) / 64;
        self.segment.set_header(field::COST_WHOLE, per_call(whole));
        self.segment.set_header(field::COST_COUNT, per_call(count));
        let alone = (plain + 32) / 64;
        let inside = seen.saturating_sub(alone);
        self.segment.set_header(field::COST_EARLY, alone.saturating_sub(seen));
        self.segment.set_header(field::COST_INSIDE, inside.min(per_call(whole)));
        let most = self.measure_most(caller, arenas)?;
        most.into_iter().zip(field::MOST).for_each(|(ticks, field)| self.segment.set_header(field, ticks));
        Ok(true)
    }

    /// Fewest ticks of 64 calls of that function.
    fn own_calls(&self, caller: &mut Caller) -> Result<u64, ProbeError> {
        /// Of 64 calls each.
        const ROUNDS: u64 = 16;
        caller.call("the agent's calibration", self.symbol(Symbol::Calibrate), &[ROUNDS])
    }

    /// Measures with a probe on it: ticks of 64 calls, and what one call lasts by its counters.
    fn own_calls_probed(&self, caller: &mut Caller, arenas: &mut Arenas, flags: u32) -> Result<(u64, u64), ProbeError> {
        let (fewest, visits) =
            self.with_own_probed(caller, arenas, (Symbol::Empty, flags), |caller, index| self.visits(caller, index))?;
        Ok((fewest, ticks_of_one(&visits)))
    }

    /// Does something with a probe on a function of the agent's own, which is told the probe's index.
    pub(super) fn with_own_probed<T>(
        &self,
        caller: &mut Caller,
        arenas: &mut Arenas,
        (symbol, flags): (Symbol, u32),
        measure: impl FnOnce(&mut Caller, u32) -> Result<T, ProbeError>,
    ) -> Result<T, ProbeError> {
        let full = || ProbeError::Agent { why: "its tables have no room for calibration".into() };
        let (index, root) = self.allocate_point().ok_or_else(full)?;
        let address = self.symbol(symbol);
        let patch = self.own_patch(caller, arenas, index, (address, flags))?;
        let mut point = Point {
            address,
            relocated: patch.stub.relocated,
            state: abi::POINT_ON,
            flags,
            root,
            patch: 1,
            window: 5,
            skip: 4,
            stub: patch.stub_at,
            ..Point::default()
        };
        self.segment.set_point(index, &point);
        write_stubs(caller.memory(), &[&patch])?;
        // Nobody but us calls this function.
        caller.memory().write(patch.writes[0].at, &patch.writes[0].new)?;
        let measured = measure(caller, index);
        caller.memory().write(patch.writes[0].at, &patch.writes[0].old)?;
        point.state = abi::POINT_GONE;
        self.segment.set_point(index, &point);
        measured
    }

    /// Fewest ticks of 64 calls of the agent's own function, whose probe is `index`; per visit, the ticks and the calls
    /// that the probe has counted.
    fn visits(&self, caller: &mut Caller, index: u32) -> Result<(u64, Vec<(u64, u64)>), ProbeError> {
        let mut fewest = u64::MAX;
        let mut visits = Vec::new();
        let mut before = (0, 0);
        for _ in 0..VISITS {
            fewest = fewest.min(self.own_calls(caller)?);
            let sums = crate::snapshot::Sums::read(&self.segment);
            let paths = (1..self.segment.n_paths()).filter(|&id| u32::from(self.segment.path(id).point) == index);
            let paths: Vec<_> = paths.map(|id| sums.get(id)).collect();
            let now = paths.iter().fold((0, 0), |all, sum| (all.0 + sum.wall, all.1 + sum.done()));
            visits.push((now.0.saturating_sub(before.0), now.1.saturating_sub(before.1)));
            // A call that cannot be recorded takes its thread a system call or two to find that out; they all would.
            if paths.iter().all(|sum| sum.calls == 0) {
                break;
            }
            before = now;
        }
        Ok((fewest, visits))
    }

    fn own_patch(
        &self,
        caller: &mut Caller,
        arenas: &mut Arenas,
        index: u32,
        (address, flags): (u64, u32),
    ) -> Result<Patch, ProbeError> {
        let from = address + 4;
        let refuse = |what: String| ProbeError::Agent { why: format!("its own function cannot be probed: {what}") };
        let mut maps = maps::read(caller.pid());
        arenas
            .reserve(&self.placed.image, 1, &mut maps, &mut |at, bytes| {
                self.note_arena(at, bytes)?;
                arena::map_in(caller, at, bytes)
            })
            .map_err(|e| refuse(e.to_string()))?;
        let at = arenas.take(&self.placed.image, 1).ok_or_else(|| refuse("no room".into()))?;
        let mut window = [0; 5];
        caller.memory().read(from, &mut window)?;
        let stub = stub(index, self.common(flags), from, &window, at).map_err(|e| refuse(e.to_string()))?;
        arenas.shrink(at, stub.bytes.len() as u64);
        let new = jump(from, at).ok_or_else(|| refuse("out of reach".into()))?;
        let writes = vec![Write { at: from, old: window.to_vec(), new: new.to_vec() }];
        Ok(Patch { writes, window: from..from + 5, stub, stub_at: at, gate: None })
    }

    /// When the process ended that the agent was put into, once it has.
    pub(crate) fn end(&self) -> Option<u64> {
        let at = self.heart.as_ref()?.end.load(Ordering::Acquire);
        (at != 0).then_some(at)
    }

    /// Stops the heartbeat.
    pub(crate) fn stop_heart(&mut self) {
        self.heart = None;
    }
}

/// How often the agent's own function is visited. An interruption spoils one visit.
const VISITS: usize = 16;

/// Ticks that a call seems to last: the least of the means of visits, each (ticks, calls). No single call tells,
/// as counters that advance by steps show a short one as nothing or as a whole step.
fn ticks_of_one(visits: &[(u64, u64)]) -> u64 {
    let means = visits.iter().filter(|(_, calls)| *calls != 0).map(|(ticks, calls)| (ticks + calls / 2) / calls);
    means.min().unwrap_or(0)
}

fn prepare(segment: &Segment, options: &Options) {
    segment.prepare();
    let clock = Clock::get();
    segment.set_header(field::TSC_MULT, clock.mult());
    segment.set_header32(field::TSC_SHIFT, clock::SHIFT);
    settings(segment, options);
    segment.set_header32(field::ENABLED, 1);
}

fn settings(segment: &Segment, options: &Options) {
    segment.set_header32(field::CONTROLLER, std::process::id());
    segment.set_header(field::HEARTBEAT, clock::now());
    segment.set_header(field::PATIENCE, Clock::get().ticks(options.patience));
    segment.set_header32(field::RECURSION, options.recursion);
    segment.set_header32(field::DEPTH, options.depth);
    segment.set_header32(field::APART, u32::from(options.threads));
    segment.set_header32(field::NO_FORKS, u32::from(!options.follow));
    let wait = u32::try_from(options.load_wait.as_micros()).unwrap_or(u32::MAX);
    segment.set_header32(field::LOAD_WAIT, wait);
}

/// A thread that tells the agent that its controller lives, and the controller that its target has ended.
#[derive(Debug)]
struct Heart {
    /// Closed to stop it.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    /// Time of the target's end, 0 before.
    end: Arc<AtomicU64>,
}

impl Heart {
    const BEAT: Duration = Duration::from_millis(250);
    /// The controller may just be on its way to sleep: it is woken so often, a millisecond apart.
    const CALLS: u32 = 100;

    fn start(segment: Arc<Segment>, pid: u32) -> Self {
        let end = Arc::new(AtomicU64::new(0));
        let Ok((stop, stopped)) = UnixStream::pair() else { return Self { stop: None, thread: None, end } };
        let told = Arc::clone(&end);
        let beat = move || Self::beat(&segment, pid, &stopped, &told);
        let thread = std::thread::Builder::new().name("heartbeat".into()).spawn(beat).ok();
        Self { stop: Some(stop), thread, end }
    }

    fn beat(segment: &Segment, pid: u32, stopped: &UnixStream, end: &AtomicU64) {
        let mut target = wait::process(pid);
        loop {
            let ready =
                wait::readable(&[Some(stopped.as_raw_fd()), target.as_ref().map(AsRawFd::as_raw_fd)], Self::BEAT);
            segment.set_header(field::HEARTBEAT, clock::now());
            if ready[0] {
                return;
            }
            if ready[1] {
                end.store(monotonic_ns(), Ordering::Release);
                target = None;
                for _ in 0..Self::CALLS {
                    segment.wake(field::LOADS);
                    if wait::readable(&[Some(stopped.as_raw_fd()), None], Duration::from_millis(1))[0] {
                        return;
                    }
                }
            }
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It only writes words; a panic there would have been ours.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ticks_of_one;

    /// Calls of `long` ticks, begun evenly over the steps of a counter that advances by `step`: what it shows.
    fn visit(long: u64, step: u64, calls: u64) -> (u64, u64) {
        let shown = |n: u64| (n * 7 % step + long) / step * step;
        ((0..calls).map(|n| shown(n).max(1)).sum(), calls)
    }

    #[test]
    fn what_a_call_lasts_is_told_by_means() {
        for (long, step) in [(17, 26), (40, 26), (9, 26), (30, 1), (18, 10)] {
            let undisturbed = visit(long, step, 1024);
            let disturbed = (undisturbed.0 + 90_000, 1024);
            let got = ticks_of_one(&[disturbed, undisturbed, (0, 0), disturbed]);
            assert!(got.abs_diff(long) <= 1, "{got} of {long} ticks by steps of {step}");
        }
        assert_eq!(ticks_of_one(&[(0, 0)]), 0, "nothing was timed");
        assert_eq!(ticks_of_one(&[]), 0);
    }
}
