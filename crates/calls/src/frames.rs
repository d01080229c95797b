//! The callers of every path, complete and named: a nested path continues with the path of the probed
//! call around it, functions that ended in jumps are put where they were, frames are named once, and each path becomes a list of frame
//! numbers.

use crate::names::Names;
use crate::results::{FrameRow, InlinedRow};
use rustc_hash::FxHashMap;
use whither_store::calls::{CallFrame, CallModule, CallPlace, CallPoint, CallSite, CallSnapshot, FrameKind};

/// What names the same function in frames and points.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    /// By its first byte: module and stated address.
    At(u32, u64),
    /// By its name in a module (only the address is known otherwise).
    Nameless(u32, u64),
    /// One that left no frame, by its first byte.
    Tail(u32, u64),
    /// Not a function.
    Label(FrameKind),
}

/// Stands behind the name of a function that left no frame.
pub(crate) const TAIL: &str = " [tail]";

/// Frames of a snapshot.
pub(crate) struct Frames {
    /// Named, each once.
    pub(crate) rows: Vec<FrameRow>,
    /// Function of each row.
    pub(crate) functions: Vec<Function>,
    /// Per path: indexes into `rows`, outermost first.
    pub(crate) chains: Vec<Vec<u32>>,
    /// What stands before the return address of each row.
    sites: Vec<CallSite>,
}

impl Frames {
    pub(crate) fn new(snapshot: &CallSnapshot, parents: &[Option<usize>], order: &[usize], names: &dyn Names) -> Self {
        let mut frames = Self { rows: Vec::new(), functions: Vec::new(), chains: Vec::new(), sites: Vec::new() };
        let mut known = FxHashMap::default();
        let numbers: Vec<u32> = snapshot.frames.iter().map(|f| frames.number(snapshot, f, names, &mut known)).collect();
        // As they lie on the stack, and with the functions that are not on it.
        let mut bare: Vec<Vec<u32>> = vec![Vec::new(); snapshot.paths.len()];
        let mut chains = bare.clone();
        let mut tails = Tails { snapshot, names, numbers: FxHashMap::default() };
        // Callers before callees: a nested path needs its parent's chain.
        for &path in order {
            let outer = parents[path].map_or(&[][..], |p| &bare[p]);
            let mut own = inner_part(walk(snapshot, snapshot.paths[path].frame, &numbers), outer);
            let mut chain = tails.told(&mut frames, &own, path, parents[path]);
            chain.extend_from_slice(parents[path].map_or(&[][..], |p| &chains[p]));
            if own.is_empty() {
                tails.come_round(&frames, &mut chain, path);
            }
            own.extend_from_slice(outer);
            (bare[path], chains[path]) = (own, chain);
        }
        chains.iter_mut().for_each(|chain| chain.reverse());
        frames.chains = chains;
        frames
    }

    fn push_tail(&mut self, (module, start): (u32, u64), row: FrameRow) -> u32 {
        self.rows.push(row);
        self.functions.push(Function::Tail(module, start));
        self.sites.push(CallSite::Unknown);
        u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX)
    }

    fn number(
        &mut self,
        snapshot: &CallSnapshot,
        frame: &CallFrame,
        names: &dyn Names,
        known: &mut FxHashMap<(FrameKind, u32, u64), u32>,
    ) -> u32 {
        let key = (frame.kind, frame.module, frame.offset);
        let next = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        let number = *known.entry(key).or_insert(next);
        if number == next {
            let module = snapshot.modules.get(frame.module as usize);
            let (row, function, site) = named(frame, module, names);
            self.rows.push(row);
            self.functions.push(function);
            self.sites.push(site);
        }
        number
    }
}

/// Puts functions that ended in jumps into chains.
struct Tails<'a> {
    snapshot: &'a CallSnapshot,
    names: &'a dyn Names,
    /// Rows by module and first byte.
    numbers: FxHashMap<(u32, u64), u32>,
}

impl<'a> Tails<'a> {
    /// A path's frames up to the probed call around it, with the functions that ended in jumps: they have no frame, and are told as rows of
    /// their own. `own`: innermost first.
    fn told(&mut self, frames: &mut Frames, own: &[u32], path: usize, parent: Option<usize>) -> Vec<u32> {
        let Some(point) = self.point(path) else { return own.to_vec() };
        let mut chain = Vec::with_capacity(own.len() + 1);
        for (i, &frame) in own.iter().enumerate() {
            let inner = i.checked_sub(1).map(|i| own[i] as usize);
            if let Some(place) = self.jumped(frames, frame as usize, inner, point) {
                chain.push(self.row(frames, place));
            }
            chain.push(frame);
        }
        let around = parent.and_then(|p| self.point(p));
        if let Some(place) = around.and_then(|around| self.left(frames, around, own.last().copied(), point)) {
            chain.push(self.row(frames, place));
        }
        chain
    }

    /// Functions that jump to one another in a circle stand in a chain once: what was jumped to again is where it was called first.
    fn come_round(&self, frames: &Frames, chain: &mut Vec<u32>, path: usize) {
        let Some(Function::At(module, start)) = self.point(path).map(|point| self.function_of(point)) else { return };
        let tails = chain.iter().map(|&f| &frames.functions[f as usize]);
        let mut run = tails.take_while(|f| matches!(f, Function::Tail(..)));
        if let Some(again) = run.position(|f| *f == Function::Tail(module, start)) {
            chain.drain(..=again);
        }
    }

    fn point(&self, path: usize) -> Option<&'a CallPoint> {
        self.snapshot.points.get(self.snapshot.paths[path].point as usize)
    }

    fn row(&mut self, frames: &mut Frames, (module, start, name): (u32, u64, String)) -> u32 {
        let file = self.snapshot.modules.get(module as usize).map_or("", |m| m.path.as_str());
        let row = || FrameRow { module: file.to_owned(), ..label(FrameKind::Tail, start, name) };
        *self.numbers.entry((module, start)).or_insert_with(|| frames.push_tail((module, start), row()))
    }

    /// The function of the probed call `around`, where another one runs in its place: that of the outermost frame inside of it, else of the
    /// call itself. Its return address was found where that of the call around is, so it was jumped to, and its time lies within.
    fn left(
        &self,
        frames: &Frames,
        around: &CallPoint,
        outermost: Option<u32>,
        point: &CallPoint,
    ) -> Option<(u32, u64, String)> {
        let (runs, name) = match outermost.map(|f| f as usize) {
            Some(f) if frames.rows[f].by_frame_pointer || frames.sites[f] == CallSite::Signal => return None,
            Some(f) => (frames.functions[f].clone(), Some(frames.rows[f].name.as_str())),
            None => (self.function_of(point), point.names.first().map(String::as_str)),
        };
        let own = self.function_of(around);
        let Function::At(module, start) = own else { return None };
        let is_part = name.is_some_and(|name| around.names.iter().any(|n| is_named(n, name)));
        let is_known = matches!(runs, Function::At(..));
        let told = || format!("{}{TAIL}", crate::analysis::point_name(self.snapshot, around));
        (is_known && runs != own && !is_part).then(|| (module, start, told()))
    }

    /// What `frame` calls, where that is not what runs there: the function of frame `inner`, else of the point. Module, first byte, name.
    fn jumped(
        &self,
        frames: &Frames,
        frame: usize,
        inner: Option<usize>,
        point: &CallPoint,
    ) -> Option<(u32, u64, String)> {
        let CallSite::Direct { target, function } = &frames.sites[frame] else { return None };
        let Function::At(module, _) = frames.functions[frame] else { return None };
        let called = Function::At(module, *target);
        // Frame pointers pass over functions that have none; what was interrupted had called nobody.
        if frames.rows[frame].by_frame_pointer || inner.is_some_and(|i| frames.sites[i] == CallSite::Signal) {
            return None;
        }
        let named = |name: &str| is_named(function, name);
        let runs = match inner {
            Some(inner) if named(&frames.rows[inner].name) => return None,
            Some(inner) => frames.functions[inner].clone(),
            None if (point.module, point.offset) == (module, *target) || point.names.iter().any(|n| named(n)) => {
                return None;
            }
            None => self.function_of(point),
        };
        let is_known = matches!(runs, Function::At(..));
        (is_known && runs != called).then(|| (module, *target, format!("{function}{TAIL}")))
    }

    /// Not all points are at the beginning of a function.
    fn function_of(&self, point: &CallPoint) -> Function {
        let module = self.snapshot.modules.get(point.module as usize);
        let start = module.and_then(|m| self.names.place(m, point.offset).start);
        Function::At(point.module, start.unwrap_or(point.offset))
    }
}

/// Numbers of a chain, innermost first. Frames form a forest; a loop in foreign data ends.
fn walk(snapshot: &CallSnapshot, first: u32, numbers: &[u32]) -> Vec<u32> {
    let mut chain = Vec::new();
    let mut at = first;
    while let (Some(frame), Some(&number)) = (snapshot.frames.get(at as usize), numbers.get(at as usize)) {
        if chain.len() > snapshot.frames.len() {
            break;
        }
        chain.push(number);
        at = frame.caller;
    }
    chain
}

/// The part of a chain inside of the probed call around it, whose callers it may hold: then it is longer,
/// for the call itself has a return address.
fn inner_part(mut own: Vec<u32>, outer: &[u32]) -> Vec<u32> {
    if own.len() > outer.len() && own.ends_with(outer) {
        own.truncate(own.len() - outer.len());
    }
    own
}

/// Whether `name` is that of the function, or of a part of it.
fn is_named(function: &str, name: &str) -> bool {
    name == function || name.strip_suffix(".cold").is_some_and(|n| n == function)
}

/// A row that is no call.
fn label(kind: FrameKind, offset: u64, name: String) -> FrameRow {
    FrameRow {
        kind,
        module: String::new(),
        offset,
        name,
        within: None,
        file: String::new(),
        line: 0,
        inlined: Vec::new(),
        by_frame_pointer: false,
    }
}

fn named(frame: &CallFrame, module: Option<&CallModule>, names: &dyn Names) -> (FrameRow, Function, CallSite) {
    let mut row = label(frame.kind, frame.offset, String::new());
    row.module = module.map_or_else(String::new, |m| m.path.clone());
    row.by_frame_pointer = frame.by_frame_pointer;
    match frame.kind {
        FrameKind::Truncated => row.name = "[truncated]".into(),
        FrameKind::Other => row.name = "[other paths]".into(),
        FrameKind::Tail => row.name = "[tail]".into(),
        FrameKind::Caller => {
            let mut place = module.map(|m| names.place(m, frame.offset.saturating_sub(1))).unwrap_or_default();
            let site = std::mem::take(&mut place.site);
            let function = match place.start {
                Some(start) if !place.function.is_empty() => Function::At(frame.module, start),
                _ => Function::Nameless(frame.module, frame.offset),
            };
            fill(&mut row, place);
            return (row, function, site);
        }
    }
    (row, Function::Label(frame.kind), CallSite::Unknown)
}

fn fill(row: &mut FrameRow, place: CallPlace) {
    row.within = place.start.filter(|_| !place.function.is_empty()).and_then(|s| row.offset.checked_sub(s));
    row.name = if place.function.is_empty() { nameless(&row.module, row.offset) } else { place.function };
    if let Some(own) = place.positions.last() {
        (row.file, row.line) = (own.file.clone(), own.line);
    }
    let inlined = place.positions.into_iter().rev().skip(1);
    row.inlined = inlined.map(|p| InlinedRow { name: p.function, file: p.file, line: p.line }).collect();
}

/// `libfoo.so+0x12ab`, or the bare address.
pub(crate) fn nameless(module: &str, offset: u64) -> String {
    match module {
        "" => format!("{offset:#x}"),
        path => format!("{}+{offset:#x}", base(path)),
    }
}

/// Last component of a path.
pub(crate) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
