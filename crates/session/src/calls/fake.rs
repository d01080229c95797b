//! An engine without a process: known functions, a script of what happens, and a record of what was done.

use super::burst::Burst;
use super::instrument::{Fate, Instrument};
use crate::SessionError;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use whither_probe::resolve::Nothing;
use whither_probe::{
    Added, Candidate, CostClass, Detached, Happening, Order, Pause, PointAction, PointId, PointSpec, PointedCalls,
    Refusal, Removed, Select,
};
use whither_sample::burst::Stacks;
use whither_store::calls::{
    CallModule, CallPath, CallPoint, CallProcess, CallSnapshot, PatchKind, PathTotals, PointState, Whole,
};

/// What a session did to the target, in order.
pub(super) type Done = Rc<RefCell<Vec<String>>>;

/// Functions `main` > `solve` > `exchange`, all of /bin/app unless said otherwise, at 0x100, 0x200, ...
pub(super) struct Fake {
    pub(super) script: VecDeque<Vec<Happening>>,
    pub(super) done: Done,
    /// How the command ended.
    pub(super) fate: Fate,
    /// It cannot be left.
    pub(super) stuck: bool,
    /// `exchange` calls through a pointer, at 0x55_0310.
    pub(super) pointed: bool,
    /// Its executable.
    pub(super) exe: &'static str,
    /// Its functions, callers first.
    pub(super) names: Vec<&'static str>,
    points: Vec<CallPoint>,
    calls: u64,
}

impl Fake {
    pub(super) fn new(script: Vec<Vec<Happening>>) -> (Box<Self>, Done) {
        let done = Done::default();
        let fake = Self {
            script: script.into(),
            done: done.clone(),
            fate: Fate::Ended(7),
            stuck: false,
            pointed: false,
            exe: "/bin/app",
            names: vec!["main", "solve", "exchange", "tiny"],
            points: Vec::new(),
            calls: 0,
        };
        (Box::new(fake), done)
    }

    fn note(&self, what: impl Into<String>) {
        self.done.borrow_mut().push(what.into());
    }

    /// Which function a probe is on.
    fn place(&self, id: PointId) -> Option<usize> {
        let point = self.points.iter().find(|p| PointId(p.id) == id)?;
        Some(point.offset as usize / 0x100 - 1)
    }

    fn candidate(&self, at: usize) -> Candidate {
        let offset = 0x100 * (at as u64 + 1);
        let here = self.points.iter().find(|p| p.offset == offset && p.state != PointState::Removed);
        let patch = match (self.names[at], here) {
            (_, Some(point)) => Err(Refusal::Already(PointId(point.id))),
            ("tiny", _) => Err(Refusal::TooShort { bytes: 3 }),
            ("exchange", _) => Ok(PatchKind::Uprobe),
            _ => Ok(PatchKind::Jump),
        };
        Candidate {
            address: 0x55_0000 + offset,
            module: 0,
            offset,
            size: 64,
            names: vec![self.names[at].into()],
            patch,
            cost: CostClass::Nanoseconds,
            entry_only: None,
            callers: Vec::new(),
        }
    }
}

impl Instrument for Fake {
    fn pid(&self) -> u32 {
        42
    }

    fn module(&self, _: usize) -> String {
        self.exe.into()
    }

    fn resume(&mut self) -> Result<(), SessionError> {
        self.note("resume");
        Ok(())
    }

    fn resolve(&mut self, orders: &[Order]) -> Result<Vec<Candidate>, SessionError> {
        let wanted = |at: usize, name: &str| {
            orders.iter().any(|order| match order {
                Order::Include(Select::Point(id)) => self.place(*id) == Some(at),
                Order::Include(Select::Name { function, .. }) => {
                    whither_probe::select::Pattern::new(function).unwrap().matches(name)
                }
                _ => false,
            })
        };
        Ok((0..self.names.len()).filter(|&i| wanted(i, self.names[i])).map(|i| self.candidate(i)).collect())
    }

    fn suggest(&mut self, pattern: &str) -> Vec<String> {
        self.names.iter().filter(|n| n.starts_with(&pattern[..1])).map(|n| (*n).to_owned()).collect()
    }

    fn why_nothing(&mut self, orders: &[Order]) -> Nothing {
        let at_an_address = |order: &Order| matches!(order, Order::Include(Select::Address { .. }));
        match orders.iter().all(at_an_address) {
            true => Nothing { why: vec!["0x10 is in no function of app".into()], for_good: true },
            false => Nothing::default(),
        }
    }

    fn add(&mut self, specs: &[PointSpec]) -> Result<Added, SessionError> {
        let mut ids = Vec::new();
        for spec in specs {
            let id = self.points.len() as u32 + 1;
            self.note(format!("add {} {:?}", spec.candidate.names[0], spec.actions));
            self.points.push(CallPoint {
                id,
                names: spec.candidate.names.clone(),
                module: 0,
                offset: spec.candidate.offset,
                size: 64,
                patch: Some(PatchKind::Jump),
                state: PointState::On,
                entry_only: None,
                refused: None,
                values: Vec::new(),
            });
            ids.push(PointId(id));
        }
        Ok(Added { ids, refused: Vec::new(), pause: pause(300) })
    }

    fn extend(&mut self, _: &[Order], _: &[PointAction]) -> Result<Added, SessionError> {
        // It is alone.
        Ok(Added::default())
    }

    fn remove(&mut self, ids: &[PointId]) -> Result<Removed, SessionError> {
        for point in self.points.iter_mut().filter(|p| ids.contains(&PointId(p.id))) {
            point.state = PointState::Removed;
        }
        self.note(format!("remove {ids:?}"));
        Ok(Removed { ids: ids.to_vec(), pause: pause(200) })
    }

    fn enable(&mut self, ids: &[PointId], on: bool) {
        for point in self.points.iter_mut().filter(|p| ids.contains(&PointId(p.id))) {
            point.state = if on { PointState::On } else { PointState::Off };
        }
    }

    fn keep(&mut self, orders: Vec<Order>, _: Vec<PointAction>) {
        self.note(format!("keep {}", orders.len()));
    }

    fn poll(&mut self, _: Duration) -> Result<Vec<Happening>, SessionError> {
        self.calls += 10;
        Ok(self.script.pop_front().unwrap_or_default())
    }

    fn snapshot(&mut self) -> CallSnapshot {
        let path = |(i, _): (usize, &CallPoint)| CallPath {
            id: i as u32,
            point: i as u32,
            frame: u32::MAX,
            parent: None,
            same: 0,
            folded: false,
            totals: PathTotals { calls: self.calls, done: self.calls, ..PathTotals::default() },
            threads: Vec::new(),
        };
        CallSnapshot {
            processes: vec![CallProcess { pid: 42, exe: self.exe.into(), ..CallProcess::default() }],
            modules: vec![CallModule { path: self.exe.into(), id: None, bias: 0, start: 0, end: 0x1000 }],
            paths: self.points.iter().enumerate().map(path).collect(),
            points: self.points.clone(),
            whole: Whole { wall_ns: self.calls * 1000, ..Whole::default() },
            ..CallSnapshot::default()
        }
    }

    fn reset(&mut self) {
        self.calls = 0;
    }

    fn callees(&mut self, id: PointId) -> Result<Vec<Candidate>, SessionError> {
        let behind = self.place(id).map_or(id.0 as usize, |at| at + 1);
        Ok((behind..self.names.len()).map(|i| self.candidate(i)).collect())
    }

    fn callers(&mut self, id: PointId) -> Result<Vec<Candidate>, SessionError> {
        Ok(vec![self.candidate(self.place(id).map_or(0, |at| at.saturating_sub(1)))])
    }

    fn pointed_calls(&mut self, id: PointId) -> Result<PointedCalls, SessionError> {
        let point = self.points.iter().find(|p| p.id == id.0).ok_or(SessionError::NoSuchProcess(42))?;
        let calls =
            PointedCalls { name: point.names[0].clone(), address: 0x55_0000 + point.offset, ..PointedCalls::default() };
        let returns = if self.pointed && point.names[0] == "exchange" { vec![0x55_0310] } else { Vec::new() };
        Ok(PointedCalls { returns, ..calls })
    }

    fn functions_at(&mut self, addresses: &[u64]) -> Vec<Option<Candidate>> {
        let place =
            |at: u64| usize::try_from(at.checked_sub(0x55_0100)? / 0x100).ok().filter(|&i| i < self.names.len());
        addresses.iter().map(|&at| Some(self.candidate(place(at)?))).collect()
    }

    /// `main`, of all, is what `exchange` calls.
    fn look_at_stacks(&mut self, _: Duration) -> Burst {
        self.note("look");
        Burst::begin(|_| Stacks { walks: vec![vec![0x55_0120, 0x55_0310, 0x55_0220]], ..Stacks::default() })
    }

    fn fate(&mut self) -> Fate {
        self.fate
    }

    fn detach(&mut self) -> Result<Detached, SessionError> {
        self.note("detach");
        if self.stuck {
            return Err(SessionError::NoSuchProcess(42));
        }
        Ok(Detached { restored: self.points.len(), ..Detached::default() })
    }

    fn abandon(&mut self) {
        self.note("abandon");
    }
}

/// Of so many microseconds; one thread was held for twice as long.
fn pause(us: u64) -> Pause {
    Pause { still: Duration::from_micros(us), held: Duration::from_micros(2 * us) }
}
