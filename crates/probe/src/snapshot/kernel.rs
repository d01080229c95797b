//! From the tables of the uprobe back end to rows of a snapshot. Lives here: return addresses to frames,
//! numbers that stay the same over snapshots, what was there before a reset. Not here: breakpoints.
//!
//! A path here is found by walking the stack at every call, so it has all its frames, those of callers
//! that are probed too: which call a call happened in follows from them. Constraint: tables are read while
//! calls go on, and their rows may be of processes and threads that are gone.

use crate::uprobe::UprobeTables;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use whither_abi::agent as abi;
use whither_abi::uprobe::{Call, CallKey, Counts, Frames, PathKey};
use whither_kernel::proc;
use whither_store::calls::{
    CallFrame, CallLost, CallPath, CallSnapshot, CallThread, FrameKind, InProgress, PathTotals,
};

/// Numbers of these paths begin behind all that other tables give.
const FIRST: u32 = 1 << 30;
const NONE: u32 = u32::MAX;
const TOO_DEEP: &str =
    "uprobes see 64 frames of a call: recursion deeper than that is counted without time in an outer level (marked …)";

/// A point that the kernel counts.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// Its row in the snapshot.
    pub(crate) row: u32,
    /// `enum wh_do` words.
    pub(crate) flags: u32,
    /// Its function's code in the process.
    pub(crate) code: Range<u64>,
}

/// Module and stated address.
type Place = (u32, u64);

/// What is known of a path.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: u32,
    frame: u32,
    same: u16,
    /// Point of the innermost caller that is counted here, and that call's frame.
    caller: Option<(u32, u32)>,
    /// It has more frames than are kept: calls further out are not known.
    deep: bool,
}

/// Reads the tables again and again.
#[derive(Debug, Default)]
pub(crate) struct KernelReader {
    frames: Vec<CallFrame>,
    index: FxHashMap<CallFrame, u32>,
    known: FxHashMap<(u32, u64), Known>,
    /// Of paths that are known to their end, by point and place of the call: the one with most levels of recursion.
    /// Without place: of all of the point.
    deepest: FxHashMap<(u32, Option<Place>), Known>,
    /// Where calls of paths are counted that are too deep, and nested in calls of the same function.
    folds: FxHashMap<u32, Known>,
    base: FxHashMap<PathKey, Counts>,
    base_lost: [u64; 4],
    base_cost: (u64, u64),
    split: bool,
}

impl KernelReader {
    /// Whether numbers of every process are wanted too.
    pub(crate) fn splitting(split: bool) -> Self {
        Self { split, ..Self::default() }
    }

    /// Numbers count from here.
    pub(crate) fn reset(&mut self, tables: &UprobeTables) {
        self.base = tables.counts.iter().copied().collect();
        self.base_lost = lost(tables);
        self.base_cost = (tables.traps, tables.spent_ns);
    }

    /// Adds what the tables say to a snapshot.
    pub(crate) fn add(
        &mut self,
        tables: &UprobeTables,
        points: &FxHashMap<u32, Counted>,
        place: &dyn Fn(u64) -> (u32, u64),
        into: &mut CallSnapshot,
    ) {
        self.absorb(tables, points, place);
        let mut rows: BTreeMap<u32, CallPath> = BTreeMap::new();
        let open: Vec<&(CallKey, Call)> = in_progress(tables);
        for (key, counts) in &tables.counts {
            let (Some(point), Some(known)) = (points.get(&key.point), self.known.get(&(key.point, key.path))) else {
                continue;
            };
            let since = since(counts, self.base.get(key));
            let is_open = || open.iter().any(|(k, c)| k.tgid == key.tgid && (c.point, c.path) == (key.point, key.path));
            if since.calls == 0 && since.done == 0 && !is_open() {
                continue;
            }
            let folded = known.is_nested() && point.flags & abi::DO_EXIT != 0;
            let totals = if folded { untimed(&since) } else { totals(&since, point.flags) };
            let known = self.counted_in(known);
            let row = rows.entry(known.id).or_insert_with(|| path(*known, point));
            row.folded |= folded;
            join(&mut row.totals, &totals);
            if self.split {
                row.threads.push((key.tgid, totals));
                name_thread(&mut into.threads, key.tgid);
            }
        }
        self.find_parents(&mut rows, points);
        if rows.values().any(|row| row.folded) {
            into.notes.push(TOO_DEEP.into());
        }
        let ids: Vec<u32> = rows.keys().copied().collect();
        let shift = into.frames.len() as u32;
        let moved = |frame: u32| if frame == NONE { NONE } else { frame + shift };
        into.frames.extend(self.frames.iter().map(|f| CallFrame { caller: moved(f.caller), ..*f }));
        into.paths.extend(rows.into_values().map(|p| CallPath { frame: moved(p.frame), ..p }));
        let now = whither_kernel::clock::monotonic_ns();
        into.in_progress.extend(open.iter().filter_map(|(key, call)| {
            let known = self.known.get(&(call.point, call.path))?;
            let id = self.counted_in(known).id;
            // A nested one lies in another that is in progress.
            let elapsed_ns = if known.is_nested() { 0 } else { now.saturating_sub(call.t0) };
            ids.contains(&id).then_some(InProgress { tid: call.tid, pid: key.tgid, path: id, elapsed_ns, cpu_ns: None })
        }));
        self.add_lost(tables, &mut into.lost);
    }

    /// Nanoseconds that breakpoints have cost since the last reset, when a trap costs so many.
    pub(crate) fn cost(&self, tables: &UprobeTables, trap_ns: u64) -> u64 {
        let (traps, spent) = self.base_cost;
        let in_traps = tables.traps.saturating_sub(traps).saturating_mul(trap_ns);
        in_traps.saturating_add(tables.spent_ns.saturating_sub(spent))
    }

    /// What one breakpoint's hit has cost on average since the last reset, picoseconds.
    pub(crate) fn hit_ps(&self, tables: &UprobeTables, trap_ns: u64) -> u64 {
        let hits = tables.traps.saturating_sub(self.base_cost.0);
        self.cost(tables, trap_ns).saturating_mul(1000).checked_div(hits).unwrap_or(0)
    }

    /// The path that calls of a path are counted in: another one where they are nested and the path is cut.
    fn counted_in<'a>(&'a self, known: &'a Known) -> &'a Known {
        self.folds.get(&known.id).unwrap_or(known)
    }

    /// The calls in which paths happened, among those that are there.
    fn find_parents(&self, rows: &mut BTreeMap<u32, CallPath>, points: &FxHashMap<u32, Counted>) {
        let by_frame: FxHashMap<(u32, u32), u32> =
            self.known.iter().map(|((point, _), known)| ((*point, known.frame), known.id)).collect();
        let parents: Vec<(u32, u32)> = self
            .known
            .values()
            .filter_map(|known| {
                let (point, frame) = known.caller?;
                // The caller of a path that is cut has one more frame, which is not known.
                let likely = || Some(self.deepest_of(point, frame)?.id).filter(|_| known.deep);
                let parent = by_frame.get(&(point, frame)).copied().or_else(likely)?;
                (points.contains_key(&point) && rows.contains_key(&parent)).then_some((known.id, parent))
            })
            .collect();
        for (id, parent) in parents {
            if let Some(row) = rows.get_mut(&id).filter(|row| row.id != parent) {
                row.parent = Some(parent);
            }
        }
    }

    fn add_lost(&self, tables: &UprobeTables, into: &mut CallLost) {
        let now = lost(tables);
        let since = |i: usize| now[i].saturating_sub(self.base_lost[i]);
        into.table += since(0);
        into.exit += since(1);
        into.jumped += since(2);
        into.paths += since(3);
    }

    /// Works out frames of paths not seen yet, before their modules change.
    pub(crate) fn absorb(
        &mut self,
        tables: &UprobeTables,
        points: &FxHashMap<u32, Counted>,
        place: &dyn Fn(u64) -> (u32, u64),
    ) {
        let mut nested = Vec::new();
        for (key, _) in &tables.counts {
            if self.known.contains_key(&(key.point, key.path)) {
                continue;
            }
            let id = FIRST + self.known.len() as u32;
            let keeps_paths = points.get(&key.point).is_some_and(|p| p.flags & abi::DO_PATH != 0);
            let known = match tables.frames.get(&key.path) {
                Some(frames) => self.frames_of(id, key.point, frames, points, place),
                None if !keeps_paths => Known { id, frame: NONE, same: 0, caller: None, deep: false },
                // It found no room.
                None => {
                    let frame = self.frame(FrameKind::Other, NONE, (NONE, 0));
                    Known { id, frame, same: 0, caller: None, deep: false }
                }
            };
            self.known.insert((key.point, key.path), known);
            if known.is_nested() {
                nested.push((key.point, known));
            } else if !known.deep {
                self.rank(key.point, known);
            }
        }
        // When those are known that they lie in.
        for (point, known) in nested {
            let fold = self.deepest_of(point, known.frame).copied();
            self.folds.extend(fold.map(|fold| (known.id, fold)));
        }
    }

    /// Keeps the deepest of the paths that are known to their end.
    fn rank(&mut self, point: u32, known: Known) {
        for place in [self.place_of(known.frame), None] {
            let deepest = self.deepest.entry((point, place)).or_insert(known);
            if deepest.same < known.same {
                *deepest = known;
            }
        }
    }

    /// The deepest known path of a point that is called from the same place, if there is one, else from anywhere.
    fn deepest_of(&self, point: u32, frame: u32) -> Option<&Known> {
        let from = |place| self.deepest.get(&(point, place));
        from(self.place_of(frame)).or_else(|| from(None))
    }

    fn place_of(&self, frame: u32) -> Option<Place> {
        self.frames.get(frame as usize).map(|f| (f.module, f.offset))
    }

    fn frames_of(
        &mut self,
        id: u32,
        point: u32,
        frames: &Frames,
        points: &FxHashMap<u32, Counted>,
        place: &dyn Fn(u64) -> (u32, u64),
    ) -> Known {
        let cut = frames.flags & abi::ROOT_TRUNCATED != 0;
        let deep = cut && frames.n as usize >= frames.ra.len();
        let mut known = Known { id, frame: NONE, same: 0, caller: None, deep };
        if cut {
            known.frame = self.frame(FrameKind::Truncated, NONE, (NONE, 0));
        }
        // From the outermost inwards: what is known before a frame is the path of the call it lies in.
        for &ra in frames.ra.iter().take(frames.n as usize).rev() {
            let inside = points.iter().find(|(_, p)| p.code.contains(&ra.wrapping_sub(1)));
            if let Some((&caller, _)) = inside {
                known.caller = Some((caller, known.frame));
                known.same = known.same.saturating_add(u16::from(caller == point));
            }
            known.frame = self.frame(FrameKind::Caller, known.frame, place(ra));
        }
        known
    }

    fn frame(&mut self, kind: FrameKind, caller: u32, (module, offset): (u32, u64)) -> u32 {
        let frame = CallFrame { kind, module, offset, caller, by_frame_pointer: false };
        *self.index.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            (self.frames.len() - 1) as u32
        })
    }
}

impl Known {
    /// Calls of the function around it are known, not which of them: another one has its time.
    fn is_nested(&self) -> bool {
        self.deep && self.same > 0
    }
}

fn path(known: Known, point: &Counted) -> CallPath {
    CallPath {
        id: known.id,
        point: point.row,
        frame: known.frame,
        parent: None,
        same: known.same,
        folded: false,
        totals: PathTotals::default(),
        threads: Vec::new(),
    }
}

/// Calls that have not returned. One whose thread is gone, or that has an outer frame entered later than
/// itself, was left by a jump.
fn in_progress(tables: &UprobeTables) -> Vec<&(CallKey, Call)> {
    let mut all: Vec<&(CallKey, Call)> = tables.in_progress.iter().collect();
    all.sort_unstable_by_key(|(_, call)| (call.tid, std::cmp::Reverse(call.t0)));
    let mut outermost = (0, 0);
    all.retain(|(key, call)| {
        if outermost.0 != call.tid {
            outermost = (call.tid, 0);
        }
        let jumped = key.slot < outermost.1;
        outermost.1 = outermost.1.max(key.slot);
        !jumped && Path::new(&format!("/proc/{}/task/{}", key.tgid, call.tid)).exists()
    });
    all
}

fn lost(tables: &UprobeTables) -> [u64; 4] {
    [tables.lost_table, tables.lost_exit, tables.lost_jumped, tables.lost_paths]
}

/// What was counted since `base`. Shortest and longest cannot be taken apart.
fn since(now: &Counts, base: Option<&Counts>) -> Counts {
    let Some(base) = base else { return *now };
    let none = now.done == base.done;
    Counts {
        calls: now.calls.wrapping_sub(base.calls),
        done: now.done.wrapping_sub(base.done),
        wall: now.wall.wrapping_sub(base.wall),
        cpu: now.cpu.wrapping_sub(base.cpu),
        min: if none { 0 } else { now.min },
        max: if none { 0 } else { now.max },
        value: std::array::from_fn(|i| now.value[i].wrapping_sub(base.value[i])),
        hist: std::array::from_fn(|i| now.hist[i].wrapping_sub(base.hist[i])),
    }
}

fn totals(counts: &Counts, flags: u32) -> PathTotals {
    let timed = flags & abi::DO_EXIT != 0;
    // As the agent does, which reads one clock with the other.
    let wall = flags & (abi::DO_WALL | abi::DO_CPU) != 0;
    PathTotals {
        calls: counts.calls,
        done: if timed { counts.done } else { counts.calls },
        wall_ns: if wall { counts.wall } else { 0 },
        cpu_ns: if flags & abi::DO_CPU != 0 { counts.cpu } else { 0 },
        min_ns: if wall { counts.min } else { 0 },
        max_ns: if wall { counts.max } else { 0 },
        values: counts.value.map(u64::cast_signed),
        usage: None,
        hist: (flags & abi::DO_HIST != 0).then(|| counts.hist.to_vec()),
    }
}

/// Calls whose time is that of others, too.
fn untimed(counts: &Counts) -> PathTotals {
    PathTotals { calls: counts.calls, values: counts.value.map(u64::cast_signed), ..PathTotals::default() }
}

fn join(sum: &mut PathTotals, one: &PathTotals) {
    sum.calls += one.calls;
    sum.done += one.done;
    sum.wall_ns += one.wall_ns;
    sum.cpu_ns += one.cpu_ns;
    sum.max_ns = sum.max_ns.max(one.max_ns);
    if one.min_ns != 0 && (sum.min_ns == 0 || one.min_ns < sum.min_ns) {
        sum.min_ns = one.min_ns;
    }
    for (sum, one) in sum.values.iter_mut().zip(one.values) {
        *sum = sum.saturating_add(one);
    }
    if let Some(one) = &one.hist {
        let hist = sum.hist.get_or_insert_with(|| vec![0; one.len()]);
        hist.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
    }
}

/// The kernel's side counts by process, not by thread.
fn name_thread(threads: &mut Vec<CallThread>, pid: u32) {
    if !threads.iter().any(|t| t.tid == pid) {
        threads.push(CallThread { tid: pid, pid, name: format!("{}, all threads", proc::comm(pid)), lived_ns: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_abi::uprobe::UP_FRAMES;

    fn frames(list: &[u64], flags: u32) -> Frames {
        let mut ra = [0; UP_FRAMES];
        ra[..list.len()].copy_from_slice(list);
        Frames { n: list.len() as u32, flags, ra }
    }

    fn counts(calls: u64) -> Counts {
        let mut hist = [0; 64];
        hist[3] = calls;
        Counts { calls, done: calls, wall: 10 * calls, cpu: 5 * calls, min: 10, max: 10, value: [calls, 0], hist }
    }

    /// Point 9 at 0x100, called by point 8 at 0x200, by itself, and from code of nobody.
    fn tables(calls: u64) -> UprobeTables {
        let key = |path, point| PathKey { path, point, tgid: 77 };
        let all = abi::ROOT_END;
        UprobeTables {
            counts: vec![
                (key(1, 9), counts(calls)),
                (key(2, 9), counts(1)),
                (key(3, 8), counts(1)),
                (key(0, 9), counts(2)),
            ],
            frames: [
                (1, frames(&[0x210, 0x310], all)),
                (2, frames(&[0x110, 0x210, 0x310], all)),
                (3, frames(&[0x310], all)),
            ]
            .into_iter()
            .collect(),
            lost_exit: calls,
            ..UprobeTables::default()
        }
    }

    fn points() -> FxHashMap<u32, Counted> {
        let flags = abi::DO_PATH | abi::DO_EXIT | abi::DO_WALL | abi::DO_HIST;
        let point = |row, start: u64| Counted { row, flags, code: start..start + 0x100 };
        [(9, point(0, 0x100)), (8, point(1, 0x200))].into_iter().collect()
    }

    fn read(reader: &mut KernelReader, tables: &UprobeTables) -> CallSnapshot {
        let mut snapshot = CallSnapshot::default();
        snapshot.frames.push(CallFrame {
            kind: FrameKind::Other,
            module: 1,
            offset: 1,
            caller: NONE,
            by_frame_pointer: false,
        });
        reader.add(tables, &points(), &|ra| (0, ra), &mut snapshot);
        snapshot
    }

    #[test]
    fn rows_with_frames_parents_and_stable_numbers() {
        let mut reader = KernelReader::splitting(true);
        let first = read(&mut reader, &tables(5));
        assert_eq!(first.paths.len(), 4);
        let by_calls = |n: u64| first.paths.iter().find(|p| p.totals.calls == n && p.point == 0).unwrap();
        let (plain, inner) = (by_calls(5), by_calls(1));
        let outer = first.paths.iter().find(|p| p.point == 1).unwrap();
        assert_eq!((plain.parent, plain.same), (Some(outer.id), 0));
        assert_eq!((inner.parent, inner.same), (Some(plain.id), 1));
        assert_eq!((outer.parent, plain.totals.wall_ns, plain.totals.cpu_ns), (None, 50, 0));
        assert_eq!(plain.totals.hist.as_ref().map(|h| h[3]), Some(5));
        let frame = first.frames[plain.frame as usize];
        assert_eq!((frame.offset, first.frames[frame.caller as usize].offset), (0x210, 0x310));
        assert_eq!(first.frames[by_calls(2).frame as usize].kind, FrameKind::Other);
        assert_eq!((plain.threads.len(), first.threads.len(), first.lost.exit), (1, 1, 5));
        let ids = |s: &CallSnapshot| s.paths.iter().map(|p| p.id).collect::<Vec<_>>();
        assert_eq!(ids(&first), ids(&read(&mut reader, &tables(6))));
    }

    /// Point 9 calls itself, through other code of nobody, deeper than frames are kept.
    #[test]
    fn recursion_beyond_the_frames_kept_is_counted_and_not_timed_again() {
        let key = |path, point| PathKey { path, point, tgid: 77 };
        let (all, cut) = (abi::ROOT_END, abi::ROOT_TRUNCATED);
        let level = |n: usize| [vec![0x110; n], vec![0x310]].concat();
        let deepest: Vec<u64> = std::iter::once(0x110).chain(std::iter::repeat_n(0x210, 63)).collect();
        // In the order of a hash table.
        let mut tables = UprobeTables { counts: vec![(key(100, 9), counts(136))], ..UprobeTables::default() };
        for n in [0, 1, 63] {
            tables.counts.push((key(n as u64 + 1, 9), counts(1)));
            tables.frames.insert(n as u64 + 1, frames(&level(n), all));
        }
        // Called by 9 and by 8 around 64 times, and 8 so.
        tables.counts.extend([(key(101, 9), counts(50)), (key(102, 8), counts(7))]);
        tables.frames.extend([
            (100, frames(&[0x110; 64], cut)),
            (101, frames(&deepest, cut)),
            (102, frames(&[0x110; 64], cut)),
        ]);
        let snapshot = read(&mut KernelReader::splitting(true), &tables);
        let of = |point: u32| snapshot.paths.iter().filter(move |p| p.point == point);
        let folded: Vec<&CallPath> = of(0).filter(|p| p.folded).collect();
        assert_eq!(folded.len(), 1, "{:#?}", snapshot.paths);
        let deepest = folded[0];
        assert_eq!((deepest.same, deepest.totals.calls, deepest.totals.done), (63, 1 + 136 + 50, 1));
        assert_eq!(of(0).map(|p| p.totals.wall_ns).sum::<u64>(), 3 * 10, "only of calls known to their end");
        // Another function's is no outermost call either: it is in a known one.
        let other: Vec<&CallPath> = of(1).collect();
        assert_eq!((other.len(), other[0].parent, other[0].totals.wall_ns), (1, Some(deepest.id), 70));
        assert_eq!(snapshot.notes, [TOO_DEEP]);
        let threads: u64 = deepest.threads.iter().map(|(_, t)| t.calls).sum();
        assert_eq!(threads, 187);
    }

    #[test]
    fn a_reset_leaves_what_comes_after_it() {
        let mut reader = KernelReader::default();
        reader.reset(&tables(5));
        let after = read(&mut reader, &tables(7));
        assert_eq!((after.paths.len(), after.lost.exit), (1, 2));
        let totals = &after.paths[0].totals;
        assert_eq!((totals.calls, totals.done, totals.wall_ns, totals.values[0]), (2, 2, 20, 2));
    }

    #[test]
    fn calls_that_were_left_by_a_jump_are_not_in_progress() {
        let (pid, call) = (std::process::id(), |slot, t0, tid| {
            let tgid = std::process::id();
            (CallKey { slot, tgid, spare: 0 }, Call { t0, tid, ..Call::default() })
        });
        let tables = UprobeTables {
            // The inner call at 0x80 was left before the outer frame at 0x90 was made again.
            in_progress: vec![call(0x100, 1, pid), call(0x80, 2, pid), call(0x90, 3, pid), call(0x10, 9, u32::MAX)],
            ..UprobeTables::default()
        };
        let slots: Vec<u64> = in_progress(&tables).iter().map(|(key, _)| key.slot).collect();
        assert_eq!(slots, [0x90, 0x100]);
    }
}
