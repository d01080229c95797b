//! The callers of every path, complete and named: a nested path continues with the path of the probed
//! call around it, functions that ended in jumps are put where they were, frames are named once, and each path becomes a chain of frame
//! numbers.

use crate::chains::{Chains, NOTHING};
use crate::names::{Names, is_startup};
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
    /// Of indexes into `rows`.
    pub(crate) chains: Chains,
    /// Per path: its chain.
    pub(crate) ends: Vec<u32>,
    /// Per chain: what is to be said of all paths that go on from it.
    told: Vec<Told>,
    /// What stands before the return address of each row.
    sites: Vec<CallSite>,
}

impl Frames {
    pub(crate) fn new(snapshot: &CallSnapshot, parents: &[Option<usize>], order: &[usize], names: &dyn Names) -> Self {
        let mut frames = Self {
            rows: Vec::new(),
            functions: Vec::new(),
            chains: Chains::default(),
            ends: vec![NOTHING; snapshot.paths.len()],
            told: Vec::new(),
            sites: Vec::new(),
        };
        let mut known = FxHashMap::default();
        let numbers: Vec<u32> = snapshot.frames.iter().map(|f| frames.number(snapshot, f, names, &mut known)).collect();
        // As they lie on the stack; those of paths have the functions that are not on it, too.
        let mut bare = Bare::new(snapshot, &numbers);
        let mut on_stack = vec![NOTHING; snapshot.paths.len()];
        let mut tails = Tails::new(snapshot, names);
        // Callers before callees: a nested path needs its parent's chain.
        for &path in order {
            let (outer, around) = parents[path].map_or((NOTHING, NOTHING), |p| (on_stack[p], frames.ends[p]));
            let own = bare.chains.inside(bare.of(snapshot.paths[path].frame), outer);
            on_stack[path] = own.iter().rev().fold(outer, |chain, &frame| bare.chains.with(chain, frame));
            let told = tails.told(&mut frames, &own, path, parents[path]);
            let (around, told) =
                if own.is_empty() { tails.come_round(&frames, &told, around, path) } else { (around, told) };
            frames.ends[path] = told.iter().rev().fold(around, |chain, &frame| frames.chains.with(chain, frame));
        }
        frames.told = frames.inherited();
        frames
    }

    /// Innermost frame of a path.
    pub(crate) fn caller(&self, path: usize) -> Option<u32> {
        self.chains.last(self.ends[path])
    }

    /// How many outermost frames of a chain say nothing: what is before `main`, or the start of a thread.
    pub(crate) fn startup(&self, chain: u32) -> u32 {
        self.told[chain as usize].startup
    }

    /// Whether a frame of the chain stands for missing ones.
    pub(crate) fn is_truncated(&self, chain: u32) -> bool {
        self.told[chain as usize].truncated
    }

    /// Whether it stands for paths that were not kept apart.
    pub(crate) fn is_other(&self, chain: u32) -> bool {
        self.told[chain as usize].other
    }

    fn inherited(&self) -> Vec<Told> {
        let mut all: Vec<Told> = vec![Told::default()];
        for chain in self.chains.all().skip(1) {
            let told = self.chains.last(chain).map_or_else(Told::default, |frame| {
                let (row, depth) = (&self.rows[frame as usize], self.chains.depth(chain));
                all[self.chains.outer(chain) as usize].with(row, depth)
            });
            all.push(told);
        }
        all
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

/// What holds for a chain and all that go on from it.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Outermost frames that say nothing.
    startup: u32,
    /// `main` is among the others.
    main: bool,
    truncated: bool,
    other: bool,
}

impl Told {
    /// Of the chain that goes on with `row`, the frame number `depth` of it.
    fn with(self, row: &FrameRow, depth: u32) -> Self {
        let (outer, is_main) = (depth - 1, row.name == "main");
        let startup = match self.main {
            true => self.startup,
            false if is_main => outer,
            false if self.startup == outer && is_startup(&row.name) => depth,
            false => self.startup,
        };
        Self {
            startup,
            main: self.main || is_main,
            truncated: self.truncated || row.kind == FrameKind::Truncated,
            other: self.other || row.kind == FrameKind::Other,
        }
    }
}

/// Chains of the frames as they lie on the stack.
struct Bare {
    chains: Chains,
    /// Per frame of the snapshot: the chain that ends with it.
    of: Vec<u32>,
}

impl Bare {
    /// Frames form a forest; a loop, which no engine writes, is cut.
    fn new(snapshot: &CallSnapshot, numbers: &[u32]) -> Self {
        const NOT_YET: u32 = u32::MAX;
        let mut bare = Self { chains: Chains::default(), of: vec![NOT_YET; numbers.len()] };
        let mut inner = Vec::new();
        for first in 0..numbers.len() {
            let mut at = first;
            while bare.of.get(at) == Some(&NOT_YET) {
                // Whoever comes by here again has come round.
                bare.of[at] = NOTHING;
                inner.push(at);
                at = snapshot.frames[at].caller as usize;
            }
            while let Some(frame) = inner.pop() {
                let outer = bare.of(snapshot.frames[frame].caller);
                bare.of[frame] = bare.chains.with(outer, numbers[frame]);
            }
        }
        bare
    }

    fn of(&self, frame: u32) -> u32 {
        self.of.get(frame as usize).copied().unwrap_or(NOTHING)
    }
}

/// Puts functions that ended in jumps into chains.
struct Tails<'a> {
    snapshot: &'a CallSnapshot,
    /// Per point: its function.
    functions: Vec<Function>,
    /// Rows by module and first byte.
    numbers: FxHashMap<(u32, u64), u32>,
}

impl<'a> Tails<'a> {
    fn new(snapshot: &'a CallSnapshot, names: &dyn Names) -> Self {
        let functions = snapshot.points.iter().map(|point| function_of(snapshot, names, point)).collect();
        Self { snapshot, functions, numbers: FxHashMap::default() }
    }

    /// A path's frames up to the probed call around it, with the functions that ended in jumps: they have no frame, and are told as rows of
    /// their own. `own`: innermost first.
    fn told(&mut self, frames: &mut Frames, own: &[u32], path: usize, parent: Option<usize>) -> Vec<u32> {
        if self.point(path).is_none() {
            return own.to_vec();
        }
        let mut chain = Vec::with_capacity(own.len() + 1);
        for (i, &frame) in own.iter().enumerate() {
            let inner = i.checked_sub(1).map(|i| own[i] as usize);
            if let Some(place) = self.jumped(frames, frame as usize, inner, path) {
                chain.push(self.row(frames, place));
            }
            chain.push(frame);
        }
        if let Some(place) = parent.and_then(|around| self.left(frames, around, own.last().copied(), path)) {
            chain.push(self.row(frames, place));
        }
        chain
    }

    /// Functions that jump to one another in a circle stand in a chain once: what was jumped to again is where it was called first.
    /// The frames around and those inside, where `told` (innermost first) stands in `around`.
    fn come_round(&self, frames: &Frames, told: &[u32], around: u32, path: usize) -> (u32, Vec<u32>) {
        let Some(Function::At(module, start)) = self.function(path) else { return (around, told.to_vec()) };
        let is_tail = |f: &u32| matches!(frames.functions[*f as usize], Function::Tail(..));
        let is_own = |f: u32| frames.functions[f as usize] == Function::Tail(*module, *start);
        let run: Vec<u32> = told.iter().copied().chain(frames.chains.frames(around)).take_while(is_tail).collect();
        match run.iter().position(|&f| is_own(f)) {
            None => (around, told.to_vec()),
            Some(again) if again < told.len() => (around, told[again + 1..].to_vec()),
            Some(again) => {
                let passed = again + 1 - told.len();
                let kept = frames.chains.outwards(around).nth(passed).unwrap_or(NOTHING);
                (kept, Vec::new())
            }
        }
    }

    fn point(&self, path: usize) -> Option<&'a CallPoint> {
        self.snapshot.points.get(self.snapshot.paths[path].point as usize)
    }

    fn function(&self, path: usize) -> Option<&Function> {
        self.functions.get(self.snapshot.paths[path].point as usize)
    }

    fn row(&mut self, frames: &mut Frames, (module, start, name): (u32, u64, String)) -> u32 {
        let file = self.snapshot.modules.get(module as usize).map_or("", |m| m.path.as_str());
        let row = || FrameRow { module: file.to_owned(), ..label(FrameKind::Tail, start, name) };
        *self.numbers.entry((module, start)).or_insert_with(|| frames.push_tail((module, start), row()))
    }

    /// The function of the probed call `around`, where another one runs in its place: that of the outermost frame inside of it, else of the
    /// call itself. Its return address was found where that of the call around is, so it was jumped to, and its time lies within.
    fn left(&self, frames: &Frames, around: usize, outermost: Option<u32>, path: usize) -> Option<(u32, u64, String)> {
        let (runs, name) = match outermost.map(|f| f as usize) {
            Some(f) if frames.rows[f].by_frame_pointer || frames.sites[f] == CallSite::Signal => return None,
            Some(f) => (&frames.functions[f], Some(frames.rows[f].name.as_str())),
            None => (self.function(path)?, self.point(path)?.names.first().map(String::as_str)),
        };
        let (own, around) = (self.function(around)?, self.point(around)?);
        let &Function::At(module, start) = own else { return None };
        let is_known = matches!(runs, Function::At(..));
        if !is_known || runs == own || name.is_some_and(|name| around.names.iter().any(|n| is_named(n, name))) {
            return None;
        }
        Some((module, start, format!("{}{TAIL}", crate::analysis::point_name(self.snapshot, around))))
    }

    /// What `frame` calls, where that is not what runs there: the function of frame `inner`, else of the point. Module, first byte, name.
    fn jumped(&self, frames: &Frames, frame: usize, inner: Option<usize>, path: usize) -> Option<(u32, u64, String)> {
        let CallSite::Direct { target, function } = &frames.sites[frame] else { return None };
        let Function::At(module, _) = frames.functions[frame] else { return None };
        let called = Function::At(module, *target);
        // Frame pointers pass over functions that have none; what was interrupted had called nobody.
        if frames.rows[frame].by_frame_pointer || inner.is_some_and(|i| frames.sites[i] == CallSite::Signal) {
            return None;
        }
        let named = |name: &str| is_named(function, name);
        let point = self.point(path)?;
        let runs = match inner {
            Some(inner) if named(&frames.rows[inner].name) => return None,
            Some(inner) => &frames.functions[inner],
            None if (point.module, point.offset) == (module, *target) || point.names.iter().any(|n| named(n)) => {
                return None;
            }
            None => self.function(path)?,
        };
        let is_known = matches!(runs, Function::At(..));
        (is_known && *runs != called).then(|| (module, *target, format!("{function}{TAIL}")))
    }
}

/// Not all points are at the beginning of a function.
fn function_of(snapshot: &CallSnapshot, names: &dyn Names, point: &CallPoint) -> Function {
    let module = snapshot.modules.get(point.module as usize);
    let start = module.and_then(|m| names.place(m, point.offset).start);
    Function::At(point.module, start.unwrap_or(point.offset))
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
