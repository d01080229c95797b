//! Obeys verbs on an engine: adds, takes back, switches, counts, begins epochs. Holds what outlives one
//! verb: the actions of new probes, the epochs that ended, what was refused.

use super::instrument::Instrument;
use super::options::CallsBackend;
use super::pattern;
use super::remarks::Remarks;
use super::steps;
use super::wire::{AddedPoint, Found, Place, PointLine, Reply, Verb};
use crate::SessionError;
use rustc_hash::FxHashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use whither_kernel::proc;
use whither_probe::select::{Pattern, callee, parse};
use whither_probe::{Added, Candidate, Order, Pause, PointAction, PointId, PointSpec, Refusal, Select};
use whither_store::call_steps::CallStep;
use whither_store::calls::{
    CallEpoch, CallModule, CallPoint, CallSnapshot, Gap, LatePoint, Moment, PatchKind, PointState, Spent,
};

/// Where verbs are obeyed.
pub(super) struct Desk {
    pub(super) engine: Box<dyn Instrument>,
    actions: Vec<PointAction>,
    backend: CallsBackend,
    /// When the session began.
    pub(super) began: Instant,
    /// What was changed since.
    pub(super) steps: Vec<CallStep>,
    /// Epochs that ended.
    epochs: Vec<CallEpoch>,
    /// Functions that matched and were never given to the engine, with the reasons.
    refused: Vec<(Candidate, String)>,
    /// The same of libraries loaded and programs executed later: name and reason.
    refused_later: Vec<(String, String)>,
    /// Probes added since the epoch began.
    late: Vec<LatePoint>,
    /// When probes were away again.
    gaps: Vec<Gap>,
    /// By point: first bytes of functions seen called through pointers.
    seen: FxHashMap<u32, Vec<u64>>,
    /// What snapshots say besides what the engine knows.
    remarks: Remarks,
    /// A verb asked for the end of the session.
    stopped: bool,
}

impl Desk {
    pub(super) fn new(engine: Box<dyn Instrument>, actions: Vec<PointAction>, backend: CallsBackend) -> Self {
        Self {
            engine,
            actions,
            backend,
            began: Instant::now(),
            steps: Vec::new(),
            epochs: Vec::new(),
            refused: Vec::new(),
            refused_later: Vec::new(),
            late: Vec::new(),
            gaps: Vec::new(),
            seen: FxHashMap::default(),
            remarks: Remarks::default(),
            stopped: false,
        }
    }

    /// With what is known of the session.
    pub(super) fn remarking(self, remarks: Remarks) -> Self {
        Self { remarks, ..self }
    }

    /// Whether a verb asked for the end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Does what it is told. Errors become sentences: an asker's slip must not end the session.
    pub(super) fn obey(&mut self, verb: &Verb) -> Reply {
        let after = self.began.elapsed();
        let reply = self.try_obey(verb).unwrap_or_else(|e| Reply::No { why: e.to_string() });
        if steps::is_change(verb, &reply) {
            self.keep_step(after, verb, &reply);
        }
        reply
    }

    fn keep_step(&mut self, after: Duration, verb: &Verb, reply: &Reply) {
        let snapshot = self.engine.snapshot();
        let epoch = self.epochs.last().map_or("", |epoch| epoch.name.as_str());
        let change = match verb {
            // Who is called through pointers is seen by chance: what was found is what is kept.
            Verb::Callees { point } if self.seen.contains_key(point) => {
                steps::change(&Verb::AddCallees { point: *point, chosen: Vec::new() }, reply, &snapshot, epoch)
            }
            verb => steps::change(verb, reply, &snapshot, epoch),
        };
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.steps.extend(change.map(|change| CallStep { after_ns, change }));
    }

    fn try_obey(&mut self, verb: &Verb) -> Result<Reply, SessionError> {
        Ok(match verb {
            Verb::Add { patterns, exclude } => self.add_patterns(patterns, exclude)?,
            Verb::Remove { patterns } => self.remove(patterns)?,
            Verb::Switch { patterns, on } => self.switch(patterns, *on)?,
            Verb::Which { patterns } => match self.chosen(patterns)? {
                points if points.is_empty() => Reply::Nothing { near: self.probed_names() },
                points => Reply::Meant { points },
            },
            Verb::List => Reply::Points { points: self.points() },
            Verb::Show => Reply::Counted { snapshot: Box::new(self.snapshot()) },
            Verb::Reset { label } => self.reset(label),
            Verb::Callees { point } => {
                let found = self.callees(*point)?;
                self.reply_added(found)?
            }
            Verb::LookCallees { point } => {
                let found = self.callees(*point)?;
                Reply::Found { callees: found.iter().map(|c| self.found(c)).collect(), notes: Vec::new() }
            }
            Verb::AddCallees { point, chosen } => {
                let mut found = self.callees(*point)?;
                found.retain(|c| chosen.contains(&self.place(c)));
                self.reply_added(found)?
            }
            Verb::Callers { point } => {
                let found = self.engine.callers(PointId(*point))?;
                self.reply_added(found)?
            }
            Verb::Stop => {
                self.stopped = true;
                Reply::Done { text: format!("leaving process {}", self.engine.pid()) }
            }
        })
    }

    /// What a point's function calls: directly, and through pointers as far as it was seen.
    pub(super) fn callees(&mut self, point: u32) -> Result<Vec<Candidate>, SessionError> {
        let mut found = self.engine.callees(PointId(point))?;
        let seen = self.seen.get(&point).cloned().unwrap_or_default();
        for candidate in self.engine.functions_at(&seen).into_iter().flatten() {
            if found.iter().all(|f| f.address != candidate.address) {
                found.push(candidate);
            }
        }
        Ok(found)
    }

    /// Functions at these addresses were seen called by a point's function through pointers.
    pub(super) fn saw(&mut self, point: u32, callees: impl IntoIterator<Item = u64>) {
        let known = self.seen.entry(point).or_default();
        callees.into_iter().for_each(|at| {
            if !known.contains(&at) {
                known.push(at)
            }
        });
    }

    /// Resolves and adds; an empty answer of `resolve` adds nothing.
    pub(super) fn add(&mut self, orders: &[Order]) -> Result<Batch, SessionError> {
        let found = self.engine.resolve(orders)?;
        self.add_candidates(found)
    }

    fn add_candidates(&mut self, found: Vec<Candidate>) -> Result<Batch, SessionError> {
        let mut batch = Batch { matched: found.len(), ..Batch::default() };
        let mut specs = Vec::new();
        for candidate in found {
            match judge(&candidate, self.backend) {
                Ok(()) => {
                    if candidate.patch == Ok(PatchKind::Uprobe) && self.backend == CallsBackend::Auto {
                        batch.by_kernel.push(name_of(&candidate));
                    }
                    specs.push(PointSpec { candidate, actions: self.actions.clone() });
                }
                Err(Refused::Already(id)) => batch.already.push(id.0),
                Err(Refused::Because(why)) => {
                    batch.refused.push((name_of(&candidate), why.clone()));
                    self.refuse(candidate, why);
                }
            }
        }
        let names: Vec<String> = specs.iter().map(|s| name_of(&s.candidate)).collect();
        let Added { ids, refused, pause } =
            if specs.is_empty() { Added::default() } else { self.engine.add(&specs)? };
        // Ids come in the order asked for, without the refused ones.
        let mut kept = names.iter().filter(|name| !refused.iter().any(|(refused, _)| refused == *name));
        let name_of_id = |id: &PointId| AddedPoint { id: id.0, name: kept.next().cloned().unwrap_or_default() };
        batch.added = ids.iter().map(name_of_id).collect();
        for (name, why) in refused {
            // Only now, when it was tried.
            match specs.iter().find(|s| name_of(&s.candidate) == name) {
                Some(spec) => self.refuse(spec.candidate.clone(), why.to_string()),
                None => self.refuse_later(&name, &why.to_string()),
            }
            batch.refused.push((name, why.to_string()));
        }
        batch.pause = pause;
        Ok(batch)
    }

    fn refuse(&mut self, candidate: Candidate, why: String) {
        let known = self.refused.iter().any(|(c, _)| (c.module, c.offset) == (candidate.module, candidate.offset));
        if !known {
            self.refused.push((candidate, why));
        }
    }

    /// Keeps what was refused where nobody asked: the engine tells no more than name and reason.
    pub(super) fn refuse_later(&mut self, name: &str, why: &str) {
        let one = (name.to_owned(), why.to_owned());
        if !self.refused_later.contains(&one) {
            self.refused_later.push(one);
        }
    }

    /// Everything counted, and every function that is not measured.
    pub(super) fn snapshot(&mut self) -> CallSnapshot {
        let mut snapshot = self.engine.snapshot();
        for (candidate, why) in &self.refused {
            let path = self.engine.module(candidate.module);
            let module = module_index(&mut snapshot, path);
            let (offset, size) = (candidate.offset, candidate.size);
            snapshot.points.push(CallPoint { module, offset, size, ..refused_point(name_of(candidate), why) });
        }
        snapshot.points.extend(self.refused_later.iter().map(|(name, why)| refused_point(name.clone(), why)));
        snapshot.late.clone_from(&self.late);
        snapshot.gaps.clone_from(&self.gaps);
        snapshot.notes.extend(self.remarks.on(&snapshot, proc::is_stopped));
        snapshot
    }

    pub(super) fn place(&self, candidate: &Candidate) -> Place {
        Place { module: self.engine.module(candidate.module), offset: candidate.offset }
    }

    fn found(&self, candidate: &Candidate) -> Found {
        let refused = match judge(candidate, self.backend) {
            Ok(()) | Err(Refused::Already(_)) => None,
            Err(Refused::Because(why)) => Some(why),
        };
        Found { place: self.place(candidate), name: name_of(candidate), refused }
    }

    fn reply_added(&mut self, found: Vec<Candidate>) -> Result<Reply, SessionError> {
        let batch = self.add_candidates(found)?;
        self.come_late(&batch);
        Ok(reply(batch))
    }

    fn add_patterns(&mut self, patterns: &[String], exclude: &[String]) -> Result<Reply, SessionError> {
        let include = patterns.iter().map(|p| pattern::including(p));
        let exclude = exclude.iter().map(|p| pattern::excluding(p));
        let orders: Vec<Order> = include.chain(exclude).collect::<Result<_, _>>()?;
        let found = self.engine.resolve(&orders)?;
        let matched = !found.is_empty();
        let before = self.numbers();
        let mut batch = self.add_candidates(found)?;
        let elsewhere = self.engine.extend(&orders, &self.actions)?;
        if !matched && elsewhere == Added::default() {
            return Ok(Reply::Nothing { near: near(self.engine.as_mut(), patterns) });
        }
        if elsewhere == Added::default() {
            batch.refused.extend(self.unmatched(patterns)?);
        }
        self.join(&mut batch, elsewhere, &before);
        self.come_late(&batch);
        Ok(reply(batch))
    }

    /// Notes when probes were added: what they count is of the time since.
    fn come_late(&mut self, batch: &Batch) {
        if batch.added.is_empty() {
            return;
        }
        let Moment { after_ns, spent } = self.now();
        let late = batch.added.iter().map(|point| LatePoint { id: point.id, after_ns, spent: Some(spent) });
        self.late.extend(late);
    }

    fn now(&mut self) -> Moment {
        let whole = self.engine.snapshot().whole;
        let spent = Spent { cpu_ns: whole.cpu_ns, thread_ns: whole.thread_ns };
        Moment { after_ns: whole.wall_ns, spent }
    }

    /// Notes that probes count from here, or no longer.
    fn note_gaps(&mut self, points: &[AddedPoint], counts: bool) {
        let now = self.now();
        for id in points.iter().map(|p| p.id) {
            let open = self.gaps.iter_mut().find(|gap| gap.id == id && gap.until.is_none());
            match (open, counts) {
                (Some(gap), true) => gap.until = Some(now),
                (None, false) => self.gaps.push(Gap { id, from: now, until: None }),
                _ => {}
            }
        }
    }

    /// Those of several patterns that no function matches, with words to say so.
    pub(super) fn unmatched(&mut self, patterns: &[String]) -> Result<Vec<(String, String)>, SessionError> {
        let mut out = Vec::new();
        for pattern in patterns.iter().filter(|_| patterns.len() > 1) {
            if self.engine.resolve(&[pattern::including(pattern)?])?.is_empty() {
                let near = near(self.engine.as_mut(), std::slice::from_ref(pattern));
                let near = if near.is_empty() { String::new() } else { format!(" (it has {})", near.join(", ")) };
                out.push((pattern.clone(), format!("no function of the program matches it{near}")));
            }
        }
        Ok(out)
    }

    /// Numbers of the probes in place.
    fn numbers(&mut self) -> Vec<u32> {
        let points = self.engine.snapshot().points.into_iter();
        points.filter(|p| p.state == PointState::On).map(|p| p.id).collect()
    }

    /// What other programs of the tree were given besides. Their points get numbers when they are listed.
    fn join(&mut self, batch: &mut Batch, elsewhere: Added, before: &[u32]) {
        batch.pause = batch.pause.max(elsewhere.pause);
        for (name, why) in elsewhere.refused {
            let one = (name, why.to_string());
            self.refuse_later(&one.0, &one.1);
            if !batch.refused.contains(&one) {
                batch.refused.push(one);
            }
        }
        if elsewhere.ids.is_empty() {
            return;
        }
        let known: Vec<u32> = batch.added.iter().map(|p| p.id).chain(before.iter().copied()).collect();
        let fresh = self.engine.snapshot().points.into_iter();
        let fresh = fresh.filter(|p| p.state == PointState::On && !known.contains(&p.id));
        batch.added.extend(fresh.map(|p| AddedPoint { id: p.id, name: p.names.first().cloned().unwrap_or_default() }));
    }

    fn remove(&mut self, patterns: &[String]) -> Result<Reply, SessionError> {
        let points = self.chosen(patterns)?;
        if points.is_empty() {
            return Ok(Reply::Nothing { near: self.probed_names() });
        }
        let removed = self.engine.remove(&ids(&points))?;
        let (pause_ns, held_ns) = nanoseconds(removed.pause);
        let points: Vec<AddedPoint> = points.into_iter().filter(|p| removed.ids.contains(&PointId(p.id))).collect();
        self.note_gaps(&points, false);
        Ok(Reply::Removed { removed: points, pause_ns, held_ns })
    }

    fn switch(&mut self, patterns: &[String], on: bool) -> Result<Reply, SessionError> {
        let points = self.chosen(patterns)?;
        if points.is_empty() {
            return Ok(Reply::Nothing { near: self.probed_names() });
        }
        self.engine.enable(&ids(&points), on);
        self.note_gaps(&points, on);
        Ok(Reply::Switched { points })
    }

    /// Probes in place whose number, name or address is meant.
    fn chosen(&mut self, patterns: &[String]) -> Result<Vec<AddedPoint>, SessionError> {
        let wanted: Vec<Wanted> = patterns.iter().map(|p| wanted(p)).collect::<Result<_, _>>()?;
        let snapshot = self.snapshot();
        let here = snapshot.points.iter().filter(|p| in_place(p));
        let meant = here.filter(|p| wanted.iter().any(|w| w.means(p, module_of(&snapshot, p))));
        Ok(meant.map(|p| AddedPoint { id: p.id, name: p.names.first().cloned().unwrap_or_default() }).collect())
    }

    pub(super) fn probed_names(&mut self) -> Vec<String> {
        let snapshot = self.snapshot();
        let here = snapshot.points.iter().filter(|p| in_place(p));
        here.filter_map(|p| p.names.first()).take(NEAR).cloned().collect()
    }

    fn points(&mut self) -> Vec<PointLine> {
        let snapshot = self.snapshot();
        let mut hits = vec![0_u64; snapshot.points.len()];
        for path in &snapshot.paths {
            if let Some(hits) = hits.get_mut(path.point as usize) {
                *hits = hits.saturating_add(path.totals.calls);
            }
        }
        let whole_ps = u128::from(snapshot.own_cost.whole_ps);
        let line = |(point, hits): (&CallPoint, u64)| PointLine {
            id: point.id,
            names: point.names.clone(),
            module: module_of(&snapshot, point).to_owned(),
            offset: point.offset,
            patch: point.patch,
            state: point.state,
            hits,
            cost_ns: u64::try_from(u128::from(hits) * whole_ps / 1000).unwrap_or(u64::MAX),
            remark: point.refused.clone().or_else(|| point.entry_only.clone()),
        };
        snapshot.points.iter().zip(hits).map(line).collect()
    }

    fn reset(&mut self, label: &str) -> Reply {
        let snapshot = self.snapshot();
        self.engine.reset();
        self.late.clear();
        self.gaps.retain_mut(|gap| {
            gap.from = Moment::default();
            gap.until.is_none()
        });
        let name = self.end_epoch(label, snapshot);
        Reply::Done { text: format!("numbers count from here; the epoch `{name}` stays in the recording") }
    }

    fn end_epoch(&mut self, label: &str, snapshot: CallSnapshot) -> String {
        let name = match label.trim() {
            "" => (self.epochs.len() + 1).to_string(),
            label => label.to_owned(),
        };
        self.epochs.push(CallEpoch { name: name.clone(), snapshot });
        name
    }

    /// All epochs, the present one ended.
    pub(super) fn finish(mut self, last: CallSnapshot) -> (Box<dyn Instrument>, Vec<CallEpoch>) {
        self.end_epoch("", last);
        (self.engine, self.epochs)
    }
}

/// Whether its bytes are replaced now.
pub(super) fn in_place(point: &CallPoint) -> bool {
    matches!(point.state, PointState::On | PointState::Off)
}

/// A function that is not measured, of no known module.
fn refused_point(name: String, why: &str) -> CallPoint {
    CallPoint {
        id: 0,
        names: vec![name],
        module: u32::MAX,
        offset: 0,
        size: 0,
        patch: None,
        state: PointState::Refused,
        entry_only: None,
        refused: Some(why.to_owned()),
        values: Vec::new(),
    }
}

fn reply(Batch { added, already, refused, pause, .. }: Batch) -> Reply {
    let (pause_ns, held_ns) = nanoseconds(pause);
    Reply::Added { added, already, refused, pause_ns, held_ns, notes: Vec::new() }
}

fn nanoseconds(pause: Pause) -> (u64, u64) {
    let of = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    (of(pause.still), of(pause.held))
}

/// What became of adding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// Functions that matched.
    pub(super) matched: usize,
    pub(super) added: Vec<AddedPoint>,
    pub(super) already: Vec<u32>,
    pub(super) refused: Vec<(String, String)>,
    /// Those that breakpoints of the kernel have to serve, though nobody asked for these.
    pub(super) by_kernel: Vec<String>,
    pub(super) pause: Pause,
}

/// How many near names a message shows.
const NEAR: usize = 8;

/// Names like the patterns that matched nothing.
pub(super) fn near(engine: &mut dyn Instrument, patterns: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for pattern in patterns {
        for name in engine.suggest(pattern) {
            if names.len() < NEAR && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

enum Refused {
    Already(PointId),
    Because(String),
}

fn judge(candidate: &Candidate, backend: CallsBackend) -> Result<(), Refused> {
    match &candidate.patch {
        Err(Refusal::Already(id)) => Err(Refused::Already(*id)),
        Err(why) => Err(Refused::Because(why.to_string())),
        Ok(PatchKind::Uprobe) if backend == CallsBackend::Patch => {
            Err(Refused::Because("only a uprobe could serve it, and --backend patch wants none".into()))
        }
        Ok(_) => Ok(()),
    }
}

/// A candidate's preferred name.
pub(super) fn name_of(candidate: &Candidate) -> String {
    candidate.names.first().cloned().unwrap_or_else(|| format!("{:#x}", candidate.address))
}

fn ids(points: &[AddedPoint]) -> Vec<PointId> {
    points.iter().map(|p| PointId(p.id)).collect()
}

/// Where a module stands in a snapshot; it is added when no point or frame needed it.
fn module_index(snapshot: &mut CallSnapshot, path: String) -> u32 {
    let known = snapshot.modules.iter().position(|m| m.path == path);
    let at = known.unwrap_or_else(|| {
        snapshot.modules.push(CallModule { path, id: None, bias: 0, start: 0, end: 0 });
        snapshot.modules.len() - 1
    });
    u32::try_from(at).unwrap_or(u32::MAX)
}

pub(super) fn module_of<'a>(snapshot: &'a CallSnapshot, point: &CallPoint) -> &'a str {
    snapshot.modules.get(point.module as usize).map_or("", |m| m.path.as_str())
}

/// A pattern over probes in place.
enum Wanted {
    Name {
        function: Pattern,
        module: Option<Pattern>,
    },
    Address {
        module: Option<String>,
        offset: u64,
    },
    /// Measured for these callers alone.
    CalledFrom {
        callee: Box<Wanted>,
        callers: String,
    },
    Id(u32),
}

fn wanted(text: &str) -> Result<Wanted, SessionError> {
    meant(parse(text)?, text)
}

fn meant(select: Select, text: &str) -> Result<Wanted, SessionError> {
    Ok(match select {
        Select::CalledFrom { callee, callers } => {
            Wanted::CalledFrom { callee: Box::new(meant(*callee, text)?), callers: format!("@{callers}") }
        }
        Select::Name { function, module } => {
            let module = module.as_deref().map(Pattern::new).transpose()?;
            Wanted::Name { function: Pattern::new(&function)?, module }
        }
        Select::Address { module, offset } => Wanted::Address { module, offset },
        Select::Point(id) => Wanted::Id(id.0),
        Select::Line { .. } => return Err(SessionError::NotInPlace(text.into())),
    })
}

impl Wanted {
    fn means(&self, point: &CallPoint, path: &str) -> bool {
        match self {
            Self::Id(id) => point.id == *id,
            Self::Name { function, module } => {
                point.names.iter().any(|n| function.matches(callee(n)))
                    && module.as_ref().is_none_or(|m| m.matches(path) || m.matches(file_name(path)))
            }
            Self::CalledFrom { callee, callers } => {
                callee.means(point, path) && point.names.iter().any(|n| n.ends_with(callers.as_str()))
            }
            Self::Address { module, offset } => {
                point.offset == *offset && module.as_ref().is_none_or(|m| m == path || m == file_name(path))
            }
        }
    }
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|n| n.to_str()).unwrap_or(path)
}
