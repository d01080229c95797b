//! The callers of every path, complete and named: a nested path continues with the path of the probed
//! call around it, frames are named once, and each path becomes a list of frame numbers.

use crate::names::Names;
use crate::results::{FrameRow, InlinedRow};
use rustc_hash::FxHashMap;
use whither_store::calls::{CallFrame, CallModule, CallPlace, CallSnapshot, FrameKind};

/// What names the same function in frames and points.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    /// By its first byte: module and stated address.
    At(u32, u64),
    /// By its name in a module (only the address is known otherwise).
    Nameless(u32, u64),
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
}

impl Frames {
    pub(crate) fn new(snapshot: &CallSnapshot, parents: &[Option<usize>], order: &[usize], names: &dyn Names) -> Self {
        let mut frames = Self { rows: Vec::new(), functions: Vec::new(), chains: Vec::new() };
        let mut known = FxHashMap::default();
        let numbers: Vec<u32> = snapshot.frames.iter().map(|f| frames.number(snapshot, f, names, &mut known)).collect();
        let mut chains: Vec<Vec<u32>> = vec![Vec::new(); snapshot.paths.len()];
        // Callers before callees: a nested path needs its parent's chain.
        for &path in order {
            let own = walk(snapshot, snapshot.paths[path].frame, &numbers);
            let outer = parents[path].map_or(&[][..], |p| &chains[p]);
            chains[path] = joined(own, outer);
        }
        for chain in &mut chains {
            chain.reverse();
        }
        frames.chains = chains;
        frames
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
            let (row, function) = named(frame, module, names);
            self.rows.push(row);
            self.functions.push(function);
        }
        number
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

fn named(frame: &CallFrame, module: Option<&CallModule>, names: &dyn Names) -> (FrameRow, Function) {
    let mut row = FrameRow {
        kind: frame.kind,
        module: module.map_or_else(String::new, |m| m.path.clone()),
        offset: frame.offset,
        name: String::new(),
        within: None,
        file: String::new(),
        line: 0,
        inlined: Vec::new(),
        by_frame_pointer: frame.by_frame_pointer,
    };
    match frame.kind {
        FrameKind::Truncated => row.name = "[truncated]".into(),
        FrameKind::Other => row.name = "[other paths]".into(),
        FrameKind::Caller => {
            let place = module.map(|m| names.place(m, frame.offset.saturating_sub(1))).unwrap_or_default();
            let function = match place.start {
                Some(start) if !place.function.is_empty() => Function::At(frame.module, start),
                _ => Function::Nameless(frame.module, frame.offset),
            };
            fill(&mut row, place);
            return (row, function);
        }
    }
    (row, Function::Label(frame.kind))
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
