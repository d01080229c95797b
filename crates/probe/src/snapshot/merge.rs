//! Snapshots of several programs as one: programs that a process tree executes have tables of their own.
//! Lives here: equal modules, points, frames and paths become one row, with the same number in every
//! snapshot of a session; what ended programs have counted stays. Constraint: rows of the first program
//! keep the numbers they have without the others.

use rustc_hash::FxHashMap;
use whither_abi::agent as abi;
use whither_image::ImageId;
use whither_store::calls::{
    CallFrame, CallLost, CallModule, CallPath, CallPoint, CallProcess, CallSnapshot, PathTotals, PointState, Usage,
    Whole,
};

/// Numbers of points of programs executed later begin behind those that one table can have.
pub(crate) const LATER: u32 = abi::MAX_POINTS;

/// What makes a path the same path.
type PathKey = (u32, u32, Option<u32>, u16);

/// Rows met so far.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    modules: Vec<CallModule>,
    module_at: FxHashMap<(String, Option<ImageId>), u32>,
    points: Vec<CallPoint>,
    point_at: FxHashMap<(u32, u64, Vec<String>), u32>,
    later_points: u32,
    frames: Vec<CallFrame>,
    frame_at: FxHashMap<CallFrame, u32>,
    path_at: FxHashMap<PathKey, u32>,
    later_paths: u32,
    /// Of programs that have ended, since the last reset.
    ended: Joined,
}

/// What adds up.
#[derive(Clone, Debug, Default)]
struct Joined {
    paths: Vec<CallPath>,
    path_at: FxHashMap<u32, usize>,
    rest: CallSnapshot,
}

/// Where a snapshot's rows went.
struct Moved {
    points: Vec<u32>,
    frames: Vec<u32>,
}

impl Merge {
    /// Numbers count from here.
    pub(crate) fn reset(&mut self) {
        let rest =
            CallSnapshot { processes: std::mem::take(&mut self.ended.rest.processes), ..CallSnapshot::default() };
        self.ended = Joined { rest, ..Joined::default() };
    }

    /// Path of the module of a point, and its stated address there.
    pub(crate) fn place(&self, id: u32) -> Option<(String, u64)> {
        let point = self.points.iter().find(|p| p.id == id)?;
        Some((self.modules.get(point.module as usize)?.path.clone(), point.offset))
    }

    /// Keeps what a program has counted that has ended.
    pub(crate) fn keep(&mut self, snapshot: CallSnapshot) {
        let mut ended = std::mem::take(&mut self.ended);
        self.add(&mut ended, snapshot, false);
        self.ended = ended;
    }

    /// The first program's snapshot, and those of others, as one.
    pub(crate) fn join(&mut self, first: CallSnapshot, others: Vec<CallSnapshot>) -> CallSnapshot {
        for point in &mut self.points {
            // Who is still there says so.
            if point.state != PointState::Refused {
                point.state = PointState::Removed;
            }
        }
        let mut all = Joined::default();
        let (at_ns, wall_ns) = (first.at_ns, first.whole.wall_ns);
        self.add(&mut all, first, true);
        for other in others {
            self.add(&mut all, other, false);
        }
        for path in &self.ended.paths {
            all.enter(path.clone());
        }
        all.rest.join(self.ended.rest.clone());
        CallSnapshot {
            at_ns,
            whole: Whole { wall_ns, ..all.rest.whole },
            modules: self.modules.clone(),
            points: self.points.clone(),
            frames: self.frames.clone(),
            paths: all.paths,
            ..all.rest
        }
    }

    fn add(&mut self, into: &mut Joined, mut snapshot: CallSnapshot, first: bool) {
        let modules: Vec<u32> = snapshot.modules.drain(..).map(|m| self.module(m)).collect();
        let place = |module: u32| modules.get(module as usize).copied().unwrap_or(u32::MAX);
        let points = snapshot.points.drain(..).map(|mut point| {
            point.module = place(point.module);
            self.point(point, first)
        });
        let points = points.collect();
        let mut moved = Moved { points, frames: Vec::with_capacity(snapshot.frames.len()) };
        // A frame's caller stands before it.
        for mut frame in snapshot.frames.drain(..) {
            frame.module = place(frame.module);
            frame.caller = moved.frames.get(frame.caller as usize).copied().unwrap_or(u32::MAX);
            moved.frames.push(self.frame(frame));
        }
        let numbers = self.paths(into, std::mem::take(&mut snapshot.paths), &moved, first);
        snapshot.in_progress.retain_mut(|call| {
            let number = numbers.get(&call.path).copied();
            call.path = number.unwrap_or(0);
            number.is_some()
        });
        into.rest.join(snapshot);
    }

    fn module(&mut self, module: CallModule) -> u32 {
        let modules = &mut self.modules;
        *self.module_at.entry((module.path.clone(), module.id)).or_insert_with(|| {
            modules.push(module);
            (modules.len() - 1) as u32
        })
    }

    fn point(&mut self, mut point: CallPoint, first: bool) -> u32 {
        let key = (point.module, point.offset, point.names.clone());
        if let Some(&row) = self.point_at.get(&key) {
            if let Some(known) = self.points.get_mut(row as usize)
                && (known.state == PointState::Removed || point.state == PointState::On)
            {
                known.state = point.state;
            }
            return row;
        }
        if !first && point.id != 0 {
            self.later_points += 1;
            point.id = LATER + self.later_points;
        }
        let row = self.points.len() as u32;
        self.points.push(point);
        self.point_at.insert(key, row);
        row
    }

    fn frame(&mut self, frame: CallFrame) -> u32 {
        let frames = &mut self.frames;
        *self.frame_at.entry(frame).or_insert_with(|| {
            frames.push(frame);
            (frames.len() - 1) as u32
        })
    }

    /// Enters paths, parents before children, and tells their numbers.
    fn paths(&mut self, into: &mut Joined, paths: Vec<CallPath>, moved: &Moved, first: bool) -> FxHashMap<u32, u32> {
        let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
        let present: FxHashMap<u32, ()> = paths.iter().map(|p| (p.id, ())).collect();
        let mut waiting = paths;
        loop {
            let before = waiting.len();
            let mut later = Vec::new();
            for mut path in waiting {
                let parent = path.parent.filter(|p| present.contains_key(p));
                let known = parent.map(|p| numbers.get(&p).copied());
                if known == Some(None) {
                    later.push(path);
                    continue;
                }
                let old = path.id;
                path.parent = known.flatten();
                path.point = moved.points.get(path.point as usize).copied().unwrap_or(0);
                path.frame = moved.frames.get(path.frame as usize).copied().unwrap_or(u32::MAX);
                path.id = self.path((path.point, path.frame, path.parent, path.same), first.then_some(old));
                numbers.insert(old, path.id);
                into.enter(path);
            }
            // A parent that is its own child is a fault of tables, and ends here.
            if later.is_empty() || later.len() == before {
                return numbers;
            }
            waiting = later;
        }
    }

    fn path(&mut self, key: PathKey, wanted: Option<u32>) -> u32 {
        let later = &mut self.later_paths;
        *self.path_at.entry(key).or_insert_with(|| {
            wanted.unwrap_or_else(|| {
                *later += 1;
                abi::MAX_PATHS + *later
            })
        })
    }
}

impl Joined {
    fn enter(&mut self, path: CallPath) {
        match self.path_at.get(&path.id).and_then(|&at| self.paths.get_mut(at)) {
            Some(known) => {
                add(&mut known.totals, &path.totals);
                known.threads.extend(path.threads);
                known.folded |= path.folded;
            }
            None => {
                self.path_at.insert(path.id, self.paths.len());
                self.paths.push(path);
            }
        }
    }
}

/// The parts of snapshots that need no numbers changed.
trait Join {
    fn join(&mut self, other: CallSnapshot);
}

impl Join for CallSnapshot {
    fn join(&mut self, other: CallSnapshot) {
        self.whole.cpu_ns += other.whole.cpu_ns;
        self.whole.thread_ns += other.whole.thread_ns;
        self.whole.threads += other.whole.threads;
        self.whole.threads_ended = self.whole.threads_ended.saturating_add(other.whole.threads_ended);
        self.whole.thread_unsure_ns += other.whole.thread_unsure_ns;
        self.whole.ran_ns += other.whole.ran_ns;
        self.whole.queued_ns += other.whole.queued_ns;
        join_processes(&mut self.processes, other.processes);
        self.threads.extend(other.threads);
        self.in_progress.extend(other.in_progress);
        lost(&mut self.lost, &other.lost);
        let (mine, its) = (self.own_cost.kernel_ns, other.own_cost.kernel_ns);
        let apart_ns = self.own_cost.apart_ns.saturating_add(other.own_cost.apart_ns);
        let hit_ps = self.own_cost.hit_ps.max(other.own_cost.hit_ps);
        if self.own_cost.whole_ps == 0 {
            self.own_cost = other.own_cost;
        }
        self.own_cost.kernel_ns = mine.zip(its).map(|(a, b)| a.saturating_add(b));
        (self.own_cost.apart_ns, self.own_cost.hit_ps) = (apart_ns, hit_ps);
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

/// In the order in which programs were executed.
fn join_processes(all: &mut Vec<CallProcess>, others: Vec<CallProcess>) {
    for process in others {
        match all.iter_mut().find(|p| p.pid == process.pid && p.exe == process.exe) {
            Some(known) => known.status = known.status.or(process.status),
            None => all.push(process),
        }
    }
    all.sort_by_key(|p| p.since_ns);
}

fn add(sum: &mut PathTotals, other: &PathTotals) {
    sum.calls += other.calls;
    sum.done += other.done;
    sum.wall_ns += other.wall_ns;
    sum.cpu_ns += other.cpu_ns;
    sum.max_ns = sum.max_ns.max(other.max_ns);
    if other.min_ns != 0 && (sum.min_ns == 0 || other.min_ns < sum.min_ns) {
        sum.min_ns = other.min_ns;
    }
    for (sum, one) in sum.values.iter_mut().zip(other.values) {
        *sum = sum.saturating_add(one);
    }
    if let Some(other) = other.usage {
        let usage = sum.usage.get_or_insert(Usage::default());
        usage.switches += other.switches;
        usage.faults_minor += other.faults_minor;
        usage.faults_major += other.faults_major;
    }
    if let Some(other) = &other.hist {
        let hist = sum.hist.get_or_insert_with(Vec::new);
        hist.resize(hist.len().max(other.len()), 0);
        for (sum, one) in hist.iter_mut().zip(other) {
            *sum += one;
        }
    }
}

fn lost(sum: &mut CallLost, other: &CallLost) {
    sum.busy += other.busy;
    sum.depth += other.depth;
    sum.table += other.table;
    sum.early = sum.early.saturating_add(other.early);
    sum.locked = sum.locked.saturating_add(other.locked);
    sum.shared = sum.shared.saturating_add(other.shared);
    sum.edge = sum.edge.saturating_add(other.edge);
    sum.shadow += other.shadow;
    sum.foreign = sum.foreign.saturating_add(other.foreign);
    sum.jumped += other.jumped;
    sum.exit += other.exit;
    sum.ring += other.ring;
    sum.paths += other.paths;
    sum.cpu = sum.cpu.saturating_add(other.cpu);
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_store::calls::{FrameKind, InProgress};

    /// A program with a point at `offset` and two paths to it, one inside of the other.
    fn program(pid: u32, path: &str, offset: u64, calls: u64) -> CallSnapshot {
        let module = CallModule { path: path.into(), id: None, bias: u64::from(pid), start: 0, end: 9 };
        let point = CallPoint {
            id: 1,
            names: vec!["f".into()],
            module: 0,
            offset,
            size: 4,
            patch: None,
            state: PointState::On,
            entry_only: None,
            refused: None,
            values: Vec::new(),
        };
        let frame =
            |caller| CallFrame { kind: FrameKind::Caller, module: 0, offset: 7, caller, by_frame_pointer: false };
        let totals = PathTotals { calls, done: calls, min_ns: calls, max_ns: calls, ..PathTotals::default() };
        let row = |id, frame, parent, same| CallPath {
            id,
            point: 0,
            frame,
            parent,
            same,
            folded: false,
            totals: totals.clone(),
            threads: Vec::new(),
        };
        CallSnapshot {
            whole: Whole { wall_ns: 5, cpu_ns: calls, thread_ns: 1, threads: 1, ..Whole::default() },
            processes: vec![CallProcess { pid, exe: path.into(), ..CallProcess::default() }],
            modules: vec![module],
            points: vec![point],
            frames: vec![frame(u32::MAX), frame(0)],
            // The inner one first: numbers do not say who is whose parent.
            paths: vec![row(3, 1, Some(4), 1), row(4, 0, None, 0)],
            in_progress: vec![InProgress { tid: pid, pid, path: 3, elapsed_ns: 1, ..InProgress::default() }],
            lost: CallLost { busy: 1, ..CallLost::default() },
            ..CallSnapshot::default()
        }
    }

    fn calls(snapshot: &CallSnapshot) -> u64 {
        snapshot.paths.iter().map(|p| p.totals.calls).sum()
    }

    #[test]
    fn equal_rows_become_one_and_the_first_keeps_its_numbers() {
        let mut merge = Merge::default();
        let all = merge.join(program(1, "/a", 16, 10), vec![program(2, "/a", 16, 5), program(3, "/b", 16, 1)]);
        assert_eq!((all.modules.len(), all.points.len(), all.paths.len()), (2, 2, 4));
        assert_eq!(calls(&all), 2 * (10 + 5 + 1));
        let of_a: Vec<_> = all.paths.iter().filter(|p| p.point == 0).map(|p| (p.id, p.parent)).collect();
        assert_eq!(of_a, [(4, None), (3, Some(4))]);
        assert_eq!((all.points[0].id, all.points[1].id), (1, LATER + 1));
        assert_eq!((all.whole.cpu_ns, all.whole.wall_ns, all.whole.threads), (16, 5, 3));
        assert_eq!((all.processes.len(), all.in_progress.len(), all.lost.busy), (3, 3, 3));
        let least = all.paths.iter().find(|p| p.id == 3).map(|p| (p.totals.min_ns, p.totals.max_ns));
        assert_eq!(least, Some((5, 10)));
        assert!(all.in_progress.iter().all(|c| all.paths.iter().any(|p| p.id == c.path)));
    }

    #[test]
    fn what_has_ended_stays_until_the_reset_with_the_same_numbers() {
        let mut merge = Merge::default();
        let before = merge.join(program(1, "/a", 16, 10), vec![program(3, "/b", 8, 1)]);
        merge.keep(program(3, "/b", 8, 2));
        let after = merge.join(program(1, "/a", 16, 11), Vec::new());
        let numbers = |s: &CallSnapshot| {
            let mut all: Vec<_> = s.paths.iter().map(|p| (p.id, p.point, p.frame)).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(numbers(&before), numbers(&after));
        assert_eq!(calls(&after), 2 * (11 + 2));
        assert_eq!(after.points[1].state, PointState::Removed);
        merge.reset();
        let fresh = merge.join(program(1, "/a", 16, 1), Vec::new());
        assert_eq!((calls(&fresh), fresh.processes.len()), (2, 2));
    }

    #[test]
    fn rubbish_ends() {
        let mut one = program(1, "/a", 1, 1);
        one.paths[1].parent = Some(3);
        one.paths[0].point = 99;
        one.frames[1].caller = 77;
        assert!(Merge::default().join(one, Vec::new()).paths.is_empty());
    }
}
