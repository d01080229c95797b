//! Programs with a known answer for tests: a tree of calls, and the snapshot that an engine would have
//! taken of it with some functions probed, own cost included.

use crate::names::Names;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use whither_store::calls::*;

/// Bytes of a function; function `n` lies at `n * SIZE`.
pub(crate) const SIZE: u64 = 0x1000;

/// Return address in `_start`, the outermost caller.
pub(crate) const START: u64 = 100 * SIZE + 0x21;

/// `times` equal calls of a function from one site of its caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) function: u32,
    /// Offset of the return address in the caller.
    pub(crate) site: u64,
    /// Own time of one call.
    pub(crate) wall: u64,
    pub(crate) cpu: u64,
    pub(crate) times: u64,
    pub(crate) callees: Vec<Call>,
}

/// A call without callees.
pub(crate) fn leaf(function: u32, site: u64, wall: u64, times: u64) -> Call {
    Call { function, site, wall, cpu: wall, times, callees: Vec::new() }
}

/// A call with callees.
pub(crate) fn call(function: u32, site: u64, wall: u64, times: u64, callees: Vec<Call>) -> Call {
    Call { callees, ..leaf(function, site, wall, times) }
}

impl Call {
    /// Time of one call as it is without probes.
    pub(crate) fn inclusive(&self) -> u64 {
        self.wall + self.callees.iter().map(|c| c.times * c.inclusive()).sum::<u64>()
    }

    /// Time of one call as measured: each probed callee costs its callers `cost`.
    fn measured(&self, probed: &BTreeSet<u32>, cost: u64, own: fn(&Call) -> u64) -> u64 {
        let callee =
            |c: &Call| c.times * (c.measured(probed, cost, own) + if probed.contains(&c.function) { cost } else { 0 });
        own(self) + self.callees.iter().map(callee).sum::<u64>()
    }
}

/// How a snapshot is taken.
#[derive(Clone, Debug)]
pub(crate) struct Take {
    pub(crate) probed: BTreeSet<u32>,
    /// Nanoseconds that a probed call costs its caller.
    pub(crate) cost: u64,
    /// Frames of nested calls end at the call around them.
    pub(crate) join: bool,
    /// All runs of `main`.
    pub(crate) runs: u64,
}

impl Take {
    pub(crate) fn of(probed: impl IntoIterator<Item = u32>) -> Self {
        Self { probed: probed.into_iter().collect(), cost: 0, join: true, runs: 1 }
    }

    /// What the engine would report. Points are numbered by function, all of `probed`, in order.
    pub(crate) fn snapshot(&self, main: &Call) -> CallSnapshot {
        let mut engine = Engine::new(self);
        engine.enter(main, None, &[(START, false)], self.runs);
        let wall = self.runs * main.inclusive();
        let modules = vec![CallModule { path: "/bin/app".into(), id: None, bias: 0, start: 0, end: 1 << 40 }];
        let whole = Whole { wall_ns: wall, cpu_ns: wall, thread_ns: wall, threads: 1, ..Whole::default() };
        CallSnapshot {
            at_ns: wall,
            whole,
            processes: vec![CallProcess {
                pid: 7,
                exe: "/bin/app".into(),
                command: "app".into(),
                status: None,
                since_ns: 0,
            }],
            modules,
            points: engine.points,
            frames: engine.frames,
            paths: engine.paths,
            own_cost: OwnCost { inside_ps: 0, whole_ps: self.cost * 1000, step_ps: 0, ..OwnCost::default() },
            ..CallSnapshot::default()
        }
    }
}

struct Engine<'a> {
    take: &'a Take,
    points: Vec<CallPoint>,
    frames: Vec<CallFrame>,
    paths: Vec<CallPath>,
    known_frames: FxHashMap<(u64, u32), u32>,
    known_paths: FxHashMap<(u32, u32, Option<u32>), usize>,
}

/// The probed call around: its path, and the points of all around it.
#[derive(Clone)]
struct Around {
    path: u32,
    points: Vec<u32>,
}

impl<'a> Engine<'a> {
    fn new(take: &'a Take) -> Self {
        let point = |(i, &f): (usize, &u32)| CallPoint {
            id: i as u32 + 1,
            names: vec![name(f)],
            module: 0,
            offset: u64::from(f) * SIZE,
            size: SIZE,
            patch: Some(PatchKind::Jump),
            state: PointState::On,
            entry_only: None,
            refused: None,
            values: Vec::new(),
        };
        Self {
            take,
            points: take.probed.iter().enumerate().map(point).collect(),
            frames: Vec::new(),
            paths: Vec::new(),
            known_frames: FxHashMap::default(),
            known_paths: FxHashMap::default(),
        }
    }

    /// `callers`: return addresses, outermost first.
    fn enter(&mut self, c: &Call, around: Option<&Around>, callers: &[(u64, bool)], times: u64) {
        let point = self.take.probed.iter().position(|f| *f == c.function).map(|p| p as u32);
        let mut inner = around.cloned();
        if let Some(point) = point {
            let path = self.path(point, around, callers);
            let totals = &mut self.paths[path].totals;
            let (wall, cpu) = (
                c.measured(&self.take.probed, self.take.cost, |c| c.wall),
                c.measured(&self.take.probed, self.take.cost, |c| c.cpu),
            );
            totals.calls += times;
            totals.done += times;
            totals.wall_ns += times * wall;
            totals.cpu_ns += times * cpu;
            totals.min_ns = if totals.min_ns == 0 { wall } else { totals.min_ns.min(wall) };
            totals.max_ns = totals.max_ns.max(wall);
            let bin = wall.max(1).ilog2() as usize;
            totals.hist.get_or_insert_with(|| vec![0; 64])[bin] += times;
            let mut points = around.map(|a| a.points.clone()).unwrap_or_default();
            points.push(point);
            inner = Some(Around { path: self.paths[path].id, points });
        }
        for callee in &c.callees {
            let mut callers = callers.to_vec();
            // The flag marks frames inside the innermost probed call.
            if point.is_some() {
                callers.iter_mut().for_each(|c| c.1 = false);
            }
            callers.push((u64::from(c.function) * SIZE + callee.site, true));
            self.enter(callee, inner.as_ref(), &callers, times * callee.times);
        }
    }

    fn path(&mut self, point: u32, around: Option<&Around>, callers: &[(u64, bool)]) -> usize {
        let cut = self.take.join && around.is_some();
        let mut frame = u32::MAX;
        for (address, inside) in callers {
            if *inside || !cut {
                frame = self.frame(*address, frame);
            }
        }
        let parent = around.map(|a| a.path);
        let next = self.paths.len();
        let index = *self.known_paths.entry((point, frame, parent)).or_insert(next);
        if index == next {
            let same = around.map_or(0, |a| a.points.iter().filter(|p| **p == point).count()) as u16;
            let id = next as u32 + 100;
            let totals = PathTotals::default();
            self.paths.push(CallPath { id, point, frame, parent, same, folded: false, totals, threads: Vec::new() });
        }
        index
    }

    fn frame(&mut self, address: u64, caller: u32) -> u32 {
        let next = self.frames.len() as u32;
        let index = *self.known_frames.entry((address, caller)).or_insert(next);
        if index == next {
            let kind = FrameKind::Caller;
            self.frames.push(CallFrame { kind, module: 0, offset: address, caller, by_frame_pointer: false });
        }
        index
    }
}

/// `main`, `f1`, `f2`, ...
pub(crate) fn name(function: u32) -> String {
    match function {
        0 => "main".into(),
        100 => "_start".into(),
        n => format!("f{n}"),
    }
}

/// Names of the functions of such programs.
pub(crate) struct Named;

impl Names for Named {
    fn place(&self, _: &CallModule, address: u64) -> CallPlace {
        let function = address / SIZE;
        let file = format!("/src/{function}.c");
        let line = (address % SIZE) as u32;
        let function = name(function as u32);
        let position = CallPosition { function: function.clone(), file, line };
        CallPlace { function, start: Some(address / SIZE * SIZE), positions: vec![position], site: CallSite::Unknown }
    }
}
