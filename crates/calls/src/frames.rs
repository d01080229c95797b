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
        let mut chains: Vec<Vec<u32>> = vec![Vec::new(); snapshot.paths.len()];
        // Callers before callees: a nested path needs its parent's chain.
        for &path in order {
            let own = walk(snapshot, snapshot.paths[path].frame, &numbers);
            let outer = parents[path].map_or(&[][..], |p| &chains[p]);
            chains[path] = joined(own, outer);
        }
        let mut tails = Tails { snapshot, names, numbers: FxHashMap::default() };
        for (chain, path) in chains.iter_mut().zip(&snapshot.paths) {
            if let Some(point) = snapshot.points.get(path.point as usize) {
                tails.add(&mut frames, chain, point);
            }
            chain.reverse();
        }
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

impl Tails<'_> {
    /// Where a frame calls another function than the one that the next frame is in, that one ended in a jump: it has no frame, and is told
    /// as a row of its own. `chain`: innermost first, with calls to `point`.
    fn add(&mut self, frames: &mut Frames, chain: &mut Vec<u32>, point: &CallPoint) {
        let own = std::mem::take(chain);
        for (i, &frame) in own.iter().enumerate() {
            let inner = i.checked_sub(1).map(|i| own[i] as usize);
            if let Some((module, target, name)) = self.jumped(frames, frame as usize, inner, point) {
                chain.push(*self.numbers.entry((module, target)).or_insert_with(|| {
                    let within = frames.rows[frame as usize].module.clone();
                    frames.push_tail(
                        (module, target),
                        FrameRow { module: within, ..label(FrameKind::Tail, target, name) },
                    )
                }));
            }
            chain.push(frame);
        }
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
        let named = |name: &str| name == function || name.strip_suffix(".cold").is_some_and(|n| n == function);
        let runs = match inner {
            Some(inner) if named(&frames.rows[inner].name) => return None,
            Some(inner) => frames.functions[inner].clone(),
            None if (point.module, point.offset) == (module, *target) || point.names.iter().any(|n| named(n)) => {
                return None;
            }
            None => self.function_of(point),
        };
        let is_known = matches!(runs, Function::At(..));
        (is_known && runs != called).then(|| (module, *target, format!("{function} [tail]")))
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

/// A chain with the callers of the probed call around it, unless it holds them already: then it is longer,
/// for the call itself has a return address.
fn joined(mut own: Vec<u32>, outer: &[u32]) -> Vec<u32> {
    if own.len() <= outer.len() || !own.ends_with(outer) {
        own.extend_from_slice(outer);
    }
    own
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
