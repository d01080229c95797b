//! From the shared tables to a `CallSnapshot`, while the target runs. Lives here: adding up the blocks
//! of all threads, ticks to nanoseconds, taking away what was counted before a reset.
//! Not here: shares, self times and names (the analysis). Constraints: the target is never paused and
//! may write rubbish, so every chain is walked with a bound; frames of a path are worked out once, when
//! it is first seen, so that they outlive a library that is unloaded.

mod carried;
mod frames;
mod kernel;
mod merge;
mod open;
mod sums;

use carried::Carried;
pub(crate) use frames::Frames;
pub(crate) use kernel::{Counted, KernelReader};
pub(crate) use merge::Merge;
pub(crate) use sums::{Extra, Sum, Sums};

use crate::engine::clock::{self, Clock};
use crate::segment::{Segment, field};
use rustc_hash::FxHashSet;
use whither_abi::agent as abi;
use whither_kernel::proc;
use whither_store::calls::{
    CallFrame, CallLost, CallPath, CallSnapshot, CallThread, InProgress, MostCost, MostOfKind, OwnCost, PathTotals,
    Usage,
};

/// What the tables said, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) threads: Vec<CallThread>,
    pub(crate) frames: Vec<CallFrame>,
    pub(crate) paths: Vec<CallPath>,
    pub(crate) in_progress: Vec<InProgress>,
    pub(crate) lost: CallLost,
    /// Times that a call's CPU time could not be taken: the program had forbidden itself system calls.
    pub(crate) no_cpu: u64,
    /// Times that a counter of the processor could not be read.
    pub(crate) no_event: u64,
    /// Calls on stacks that lie too low for shadows.
    pub(crate) low: u64,
    /// Calls by code of whose frames nothing is known.
    pub(crate) foreign: u64,
    /// The program keeps copies of stacks: these are of its calls since.
    pub(crate) copied: bool,
    /// Times that a stack argument lay where no memory is.
    pub(crate) no_value: u64,
    pub(crate) own_cost: OwnCost,
    /// Blocks whose writer stood in the middle of an update all the while: at most one call of each
    /// may be there in part.
    pub(crate) torn: usize,
}

impl Reading {
    /// What is missing from it, and why: sentences for the user.
    pub(crate) fn notes(&self) -> Vec<String> {
        let refused = self.lost.shadow.saturating_sub(self.low).saturating_sub(self.foreign);
        let all = [
            (
                self.no_cpu,
                "CPU time is not known of {} calls at least (the program has forbidden itself system calls, or a signal handler came amid the call)",
            ),
            (
                self.no_event,
                "counters of the processor could not be read at the end of {} calls (the kernel gives them to one user at a time, or not at all): their sums lack these calls",
            ),
            (
                self.no_value,
                "an argument on the stack could not be read in {} calls, as no memory is mapped there: its sum lacks them (has the function so many arguments?)",
            ),
            (
                self.low,
                "{} calls have no time because their stacks lie in a heap below 16 TiB (coroutines or signal stacks from malloc in a program linked without PIE), where return addresses find no place: link it with -pie, or take the stacks from mmap",
            ),
            (
                if self.copied { 0 } else { self.foreign },
                "{} calls were counted without times, and callers further out may be missing from their paths, for they came from code without unwind tables (compiled with -fno-asynchronous-unwind-tables, assembly, or generated at run time): systems that generate code look for callers by return address, so these were left alone; code compiled with -fasynchronous-unwind-tables has such tables",
            ),
            (
                if self.copied { self.foreign } else { 0 },
                "{} calls were counted without times, for the program keeps copies of stacks and puts them back (it has loaded a library that does, like greenlet, or a call returned that was not the one in progress)",
            ),
            (
                refused,
                "{} calls have no time because memory for their return addresses was refused (by a limit on address space, ulimit -v, or because the place for it is taken, as in programs built with -fsanitize=thread)",
            ),
            (self.torn as u64, "{} counters were read in the middle of an update (a call each)"),
        ];
        all.into_iter().filter(|(n, _)| *n > 0).map(|(n, text)| text.replace("{}", &n.to_string())).collect()
    }
}

/// Reads the tables again and again; remembers frames and what was there at the last reset.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    frames: Frames,
    base: Sums,
    /// The same by thread block, when numbers of threads are wanted.
    base_threads: Vec<Sums>,
    split: bool,
    base_lost: [u64; abi::LOST_CAUSES],
    /// Calls in progress at the last reset.
    carried: Carried,
}

/// What the reader has to know of the engine's points, by their index in the segment.
pub(crate) trait Points {
    /// Index of its row in the snapshot; `None` for points that are nobody's business.
    fn row(&self, point: u32) -> Option<u32>;
    /// `enum wh_do` words.
    fn flags(&self, point: u32) -> u32;
}

impl Reader {
    /// Whether numbers of every thread are wanted too.
    pub(crate) fn splitting(split: bool) -> Self {
        Self { split, ..Self::default() }
    }

    /// Works out frames of paths not seen yet, before their modules change.
    pub(crate) fn absorb(&mut self, segment: &Segment, place: &dyn Fn(u64) -> (u32, u64)) {
        self.frames.absorb(segment, place);
    }

    /// Numbers count from here.
    pub(crate) fn reset(&mut self, segment: &Segment) {
        // Before the counters: no call may count without being among them.
        segment.restart_extremes();
        // Before the sums as well: a call that ends in between has added all of its time to what is taken off.
        self.carried = Carried::now(segment);
        self.base = Sums::read(segment);
        self.carried.forget_ended(segment);
        if self.split {
            self.base_threads = (0..segment.n_threads()).map(|t| Sums::of_thread(segment, t)).collect();
        }
        self.base_lost = lost(segment);
    }

    /// Losses that are none of the program's.
    pub(crate) fn forget(&mut self, lost: &[u64; abi::LOST_CAUSES]) {
        self.base_lost.iter_mut().zip(lost).for_each(|(base, lost)| *base = base.wrapping_add(*lost));
    }

    /// Reads everything.
    pub(crate) fn read(
        &mut self,
        segment: &Segment,
        points: &dyn Points,
        place: &dyn Fn(u64) -> (u32, u64),
    ) -> Reading {
        // Counters first: a path that appears meanwhile has none yet.
        let sums = self.carried.without(segment, 0..segment.n_threads(), || Sums::read(segment));
        let in_progress = self.in_progress(segment, points);
        self.frames.absorb(segment, place);
        let open: FxHashSet<u32> = in_progress.iter().map(|call| call.path).collect();
        let scale = Scale { clock: Clock::get(), inside: segment.header(field::COST_INSIDE) };
        let recursion = segment.header32(field::RECURSION);
        let paths = (1..sums.len()).filter_map(|id| {
            let known = self.frames.path(id)?;
            let row = points.row(known.point)?;
            let flags = points.flags(known.point);
            let sum = sums.get(id).since(self.base.get(id));
            let extra = sums.extra(id).map(|e| e.since(self.base.extra(id)));
            if sum.calls == 0 && sum.done() == 0 && !open.contains(&id) {
                return None;
            }
            Some(CallPath {
                id,
                point: row,
                frame: if flags & abi::DO_PATH == 0 { u32::MAX } else { known.frame },
                parent: (known.parent != 0).then_some(known.parent),
                same: known.same,
                // Where nothing is kept apart each path is at the limit: only what was folded tells.
                folded: (recursion > 0 && u32::from(known.same) >= recursion)
                    || extra.as_ref().is_some_and(|e| e.folded > 0),
                totals: scale.totals(&sum, extra.as_ref(), flags),
                threads: Vec::new(),
            })
        });
        let mut paths: Vec<CallPath> = paths.collect();
        let threads = if self.split { self.by_thread(segment, points, &scale, &mut paths) } else { Vec::new() };
        let lost_now = lost(segment);
        let without = |cause: usize| lost_now[cause].wrapping_sub(self.base_lost[cause]);
        let (foreign, copied) = (without(abi::LOST_FOREIGN), segment.header32(field::STACKS_COPIED) != 0);
        Reading {
            threads,
            paths,
            frames: self.frames.frames().to_vec(),
            in_progress,
            lost: CallLost { foreign: if copied { 0 } else { foreign }, ..self.lost(segment) },
            no_cpu: without(abi::LOST_CLOCK),
            no_event: without(abi::LOST_EVENT),
            no_value: without(abi::LOST_VALUE),
            low: without(abi::LOST_LOW),
            foreign,
            copied,
            own_cost: OwnCost { apart_ns: scale.clock.ns(without(abi::LOST_APART)), ..own_cost(segment) },
            torn: sums.torn(),
        }
    }

    fn in_progress(&self, segment: &Segment, points: &dyn Points) -> Vec<InProgress> {
        let (clock, paths) = (Clock::get(), segment.n_paths());
        let of_thread = |index: u32| open::of_thread(segment, index).into_iter().map(move |open| (index, open));
        let row = |(index, open): (u32, open::Open)| {
            let path = open.call.path & !abi::FOLDED;
            (path != 0 && path < paths && points.row(open.call.point).is_some()).then(|| InProgress {
                tid: open.tid,
                pid: open.pid,
                path,
                elapsed_ns: clock.ns(open.wall),
                cpu_ns: open.cpu.map(|ns| ns.saturating_sub(self.carried.cpu_of(index, &open.call))),
            })
        };
        (0..segment.n_threads()).flat_map(of_thread).filter_map(row).collect()
    }

    /// Adds to each path what every thread had of it. A block that several threads used one after the
    /// other bears the last one's id, and its name says so.
    fn by_thread(
        &self,
        segment: &Segment,
        points: &dyn Points,
        scale: &Scale,
        paths: &mut [CallPath],
    ) -> Vec<CallThread> {
        let mut threads = Vec::new();
        for index in 0..segment.n_threads() {
            let thread = segment.thread(index);
            let sums = self.carried.without(segment, index..index + 1, || Sums::of_thread(segment, index));
            let base = self.base_threads.get(index as usize);
            let mut any = false;
            for path in paths.iter_mut() {
                let before = base.map(|b| b.get(path.id)).unwrap_or_default();
                let sum = sums.get(path.id).since(before);
                if sum.calls == 0 && sum.done() == 0 {
                    continue;
                }
                let flags = self.frames.path(path.id).map_or(0, |known| points.flags(known.point));
                let extra = sums.extra(path.id).map(|e| e.since(base.and_then(|b| b.extra(path.id))));
                path.threads.push((thread.tid, scale.totals(&sum, extra.as_ref(), flags)));
                any = true;
            }
            if any {
                let lived =
                    if thread.state == abi::THREAD_LIVE { clock::now().saturating_sub(thread.started) } else { 0 };
                threads.push(CallThread {
                    tid: thread.tid,
                    pid: thread.pid,
                    name: name_of(thread.tid, thread.lives),
                    lived_ns: scale.clock.ns(lived),
                });
            }
        }
        threads
    }

    fn lost(&self, segment: &Segment) -> CallLost {
        let now = lost(segment);
        let since = |cause: usize| now[cause].wrapping_sub(self.base_lost[cause]);
        CallLost {
            busy: since(abi::LOST_BUSY),
            depth: since(abi::LOST_DEPTH),
            table: [abi::LOST_TABLE, abi::LOST_EARLY, abi::LOST_LOCKED, abi::LOST_SHARED, abi::LOST_EDGE]
                .map(since)
                .into_iter()
                .fold(0, u64::wrapping_add),
            early: since(abi::LOST_EARLY),
            locked: since(abi::LOST_LOCKED),
            shared: since(abi::LOST_SHARED),
            edge: since(abi::LOST_EDGE),
            shadow: since(abi::LOST_SHADOW).wrapping_add(since(abi::LOST_LOW)).wrapping_add(since(abi::LOST_FOREIGN)),
            // Whether its callers have no unwind tables, or its stacks are copied, is told by the reading.
            foreign: 0,
            jumped: since(abi::LOST_JUMPED),
            exit: since(abi::LOST_EXIT),
            ring: since(abi::LOST_RING),
            // The agent gives up paths when a table is full; how many there would have been is not known.
            paths: u64::from(segment.paths_full()),
            cpu: since(abi::LOST_CLOCK),
        }
    }
}

/// Of calls that were entered before numbers began to count, the time since then counts.
pub(crate) fn clip(snapshot: &mut CallSnapshot) {
    for path in &mut snapshot.paths {
        let whole = snapshot.whole.wall_ns.max(1);
        path.totals.max_ns = path.totals.max_ns.min(whole);
        path.totals.min_ns = path.totals.min_ns.min(whole);
    }
    for call in &mut snapshot.in_progress {
        call.elapsed_ns = call.elapsed_ns.min(snapshot.whole.wall_ns);
        call.cpu_ns = call.cpu_ns.map(|ns| ns.min(call.elapsed_ns));
    }
}

fn name_of(tid: u32, lives: u32) -> String {
    let name = proc::comm(tid);
    match lives {
        0 | 1 => name,
        2 => format!("{name} and another before it"),
        n => format!("{name} and {} others before it", n - 1),
    }
}

fn lost(segment: &Segment) -> [u64; abi::LOST_CAUSES] {
    let mut all = segment.lost();
    for thread in 0..segment.n_threads() {
        for (sum, one) in all.iter_mut().zip(segment.thread(thread).lost) {
            *sum = sum.wrapping_add(one);
        }
    }
    all[abi::LOST_EDGE] = all[abi::LOST_EDGE].wrapping_add(segment.passed());
    all
}

/// Wide cores read their clock at the end of a call up to so much before its work is done, whatever calibration has met: it
/// finds 0 to 9 ns for the same function in turns. Calls of 20 to 150 ns of plain work were told up to 20 ns too short on a
/// Zen 5 and up to 40 on a Xeon.
const EARLY_PS: u64 = 45_000;

/// Counting alone is hidden behind the work of the function that it is measured on (2 ns remain of it), and less so in most programs: 7
/// to 26 ns, a third of what a timed call costs or so.
const COUNTED: u64 = 3;

fn own_cost(segment: &Segment) -> OwnCost {
    let clock = Clock::get();
    let most = field::MOST.map(|f| clock.ps(segment.header(f)));
    let of_kind =
        |most: &[u64]| MostOfKind { same_ps: most[0], deep_ps: most[1].max(most[0]), varied_ps: most[2].max(most[0]) };
    let whole_ps = clock.ps(segment.header(field::COST_WHOLE));
    OwnCost {
        inside_ps: clock.ps(segment.header(field::COST_INSIDE)),
        whole_ps,
        count_ps: clock.ps(segment.header(field::COST_COUNT)).max(whole_ps / COUNTED),
        count_least_ps: Some(clock.ps(segment.header(field::COST_COUNT))),
        step_ps: clock.ps(clock.step().max(segment.header(field::COST_EARLY))).max(EARLY_PS),
        most: (most[0] > 0).then(|| MostCost {
            timed: of_kind(&most[..3]),
            counted: of_kind(&most[3..]),
            frames: abi::CALIBRATE_DEEP,
        }),
        ..OwnCost::default()
    }
}

/// From ticks of the agent to nanoseconds of the function.
struct Scale {
    clock: Clock,
    /// Ticks of every measured interval that are the agent's.
    inside: u64,
}

impl Scale {
    fn totals(&self, sum: &Sum, extra: Option<&Extra>, flags: u32) -> PathTotals {
        // Read at different moments: never more folded calls than ended.
        let folded = extra.map_or(0, |e| e.folded);
        let done = if flags & abi::DO_EXIT == 0 { sum.calls } else { sum.done().saturating_sub(folded) };
        let own = done.saturating_mul(self.inside);
        // Not 0, which says that there was none.
        let one = |ticks: u64| if ticks == 0 { 0 } else { self.clock.ns(ticks.saturating_sub(self.inside)).max(1) };
        let usage =
            |e: &Extra| Usage { switches: e.switches, faults_minor: e.faults_minor, faults_major: e.faults_major };
        PathTotals {
            calls: sum.calls,
            done,
            wall_ns: self.clock.ns(sum.wall.saturating_sub(own)),
            cpu_ns: if flags & abi::DO_CPU == 0 { 0 } else { sum.cpu.saturating_sub(self.clock.ns(own)) },
            min_ns: one(sum.min),
            max_ns: one(sum.max),
            values: sum.value.map(u64::cast_signed),
            usage: (flags & abi::DO_USAGE != 0).then(|| extra.map(usage).unwrap_or_default()),
            hist: (flags & abi::DO_HIST != 0).then(|| extra.map_or([0; 64], |e| e.hist).to_vec()),
        }
    }
}

#[cfg(test)]
mod tests;
