//! What could be speeded up: targets by the samples that hit them, with the code that belongs to each. A
//! target is born with its first sample; its code grows as more copies of it are met.

use super::code::{Code, Known, Place, Run, Word};
use super::options::UnitChoice;
use super::program::Program;
use super::words::{NamePattern, TargetSpec};
use rustc_hash::FxHashMap;
use whither_sample::causal::{Armed, CausalSample, CodeRange, SampleWhat, Unit as ArmedUnit, WaitClass};
use whither_store::causal::{Target, TargetSamples, Unit, Wait};

/// What makes a target one and the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Line(Word, u32),
    Function(Word),
    Inclusive(Word),
    /// Function, caller, and whether it is inlined into that caller.
    Path(Word, Word, bool),
    /// Class and site.
    Wait(WaitClass, Word, Word, u32),
}

/// All targets, and what was sampled in them.
#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) list: Vec<Target>,
    keys: Vec<Key>,
    numbers: FxHashMap<Key, u32>,
    parents: Vec<Option<u32>>,
    counts: FxHashMap<(Option<u32>, u32), (u64, u64)>,
    plain_ns: FxHashMap<u32, u64>,
    waits: FxHashMap<Site, Waited>,
    named: Named,
    /// Sites that the kernel took for in scope and that are not.
    pub(super) misplaced: u64,
}

/// Longer waits are mistakes of a clock, or nothing that matters.
const LONGEST_WAIT: u64 = 3_600_000_000_000;

/// A place of a wait.
type Site = (Word, Word, u32);

#[derive(Debug, Default)]
struct Waited {
    ns: u64,
    woken: FxHashMap<Site, u64>,
}

/// Functions that the user named: code that is inlined into one is its code, as `whither prof` counts it, unless what is
/// inlined is named too.
#[derive(Debug, Default)]
struct Named {
    functions: Vec<NamePattern>,
    callers: Vec<NamePattern>,
}

impl Named {
    fn new(only: &[TargetSpec]) -> Self {
        let mut named = Self::default();
        for spec in only {
            if let TargetSpec::Function(function, callers) = spec {
                named.functions.push(function.clone());
                named.callers.extend(callers.iter().cloned());
            }
        }
        named
    }

    /// Which place of an inline chain the code counts for: the innermost one that is named, else the innermost one.
    fn owner(&self, places: &[Place], code: &Code) -> usize {
        innermost(places, &self.functions, code)
    }

    fn caller(&self, places: &[Place], code: &Code) -> Option<Place> {
        places.get(innermost(places, &self.callers, code)).copied()
    }
}

fn innermost(places: &[Place], names: &[NamePattern], code: &Code) -> usize {
    // Most code is asked for when nothing is named, or has nothing inlined.
    if names.is_empty() || places.len() < 2 {
        return 0;
    }
    let is_named = |p: &Place| names.iter().any(|n| n.matches(code.text(p.function)));
    places.iter().position(is_named).unwrap_or(0)
}

/// What may become a target.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Kinds of targets that a sample is counted for.
    units: Vec<UnitChoice>,
    /// Only these; empty: all.
    only: Vec<TargetSpec>,
    /// [`WaitClass::bit`]s; 0: no waits.
    waits: u32,
}

impl Wanted {
    /// `unit`: what is wanted where nothing is named; else each kind that the user's words name is counted once.
    pub(super) fn new(unit: UnitChoice, only: Vec<TargetSpec>, waits: u32) -> Self {
        let mut units = if only.is_empty() { vec![unit] } else { Vec::new() };
        for named in &only {
            let unit = match named {
                TargetSpec::Line(_) => UnitChoice::Line,
                TargetSpec::Function(_, callers) if !callers.is_empty() => UnitChoice::Path,
                TargetSpec::Function(..) if unit == UnitChoice::Inclusive => UnitChoice::Inclusive,
                TargetSpec::Function(..) => UnitChoice::Function,
            };
            if !units.contains(&unit) {
                units.push(unit);
            }
        }
        Self { units, only, waits }
    }
}

/// A frame in scope: its code file and what is inlined there, innermost first.
struct Frame {
    pid: u32,
    file: usize,
    at: u64,
    places: Vec<Place>,
}

impl Targets {
    /// `only`: what the user named.
    pub(super) fn new(only: &[TargetSpec]) -> Self {
        Self { named: Named::new(only), ..Self::default() }
    }

    /// Targets that a sample hits, born if need be; empty when nothing in scope is.
    pub(super) fn hit(
        &mut self,
        sample: &CausalSample,
        program: &Program,
        code: &mut Code,
        wanted: &Wanted,
    ) -> Vec<u32> {
        let frames = frames(sample, program, code);
        let Some(first) = frames.first() else { return Vec::new() };
        if first.at != sample.site {
            self.misplaced += 1;
        }
        match sample.what {
            SampleWhat::Run => self.code_hit(&frames, program, code, wanted),
            SampleWhat::Blocked { class, ns, waker } => {
                let site = site_of(&first.places);
                match waker {
                    // Until lines are known, the C library in a static program looks like the program.
                    Some(_) if !settled(first, program, code) => Vec::new(),
                    Some((_, at)) => {
                        let by = waker_site(sample.pid, at, program, code);
                        let waited = self.waits.entry(site).or_default();
                        waited.ns = waited.ns.saturating_add(ns.min(LONGEST_WAIT));
                        *waited.woken.entry(by).or_default() += 1;
                        Vec::new()
                    }
                    None if wanted.waits & class.bit() != 0 => self.wait_hit(class, first, program, code, wanted),
                    None => Vec::new(),
                }
            }
        }
    }

    fn code_hit(&mut self, frames: &[Frame], program: &Program, code: &Code, wanted: &Wanted) -> Vec<u32> {
        let mut hit = Vec::new();
        let Some((first, place)) = frames.first().and_then(|f| Some((f, *f.places.first()?))) else { return hit };
        let of = (first.file, program);
        let line = (place.line > 0).then_some(Key::Line(place.file, place.line));
        let owner = self.named.owner(&first.places, code);
        let owned = first.places.get(owner).copied().unwrap_or(place);
        let function = Key::Function(owned.function);
        for unit in &wanted.units {
            match unit {
                UnitChoice::Line => {
                    hit.extend(line.clone().map(|key| self.number(key, place, of, code, None)));
                }
                UnitChoice::Inclusive => {
                    for frame in frames {
                        for place in &frame.places {
                            let at = (frame.file, program);
                            hit.push(self.number(Key::Inclusive(place.function), *place, at, code, None));
                        }
                    }
                }
                UnitChoice::Function => hit.push(self.number(function.clone(), owned, of, code, None)),
                UnitChoice::Path => hit.extend(self.path_hit(frames, owner, of, code, None)),
                UnitChoice::Auto => {
                    let parent = self.number(function.clone(), owned, of, code, None);
                    hit.push(parent);
                    hit.extend(line.clone().map(|key| self.number(key, place, of, code, Some(parent))));
                }
            }
        }
        hit.sort_unstable();
        hit.dedup();
        hit
    }

    /// Whether experiments are to be made with a target. Samples are counted for all of them: where only one is
    /// looked at, the shares of others must not look like nothing.
    pub(super) fn is_wanted(&self, id: u32, wanted: &Wanted) -> bool {
        wanted.only.is_empty() || wanted.only.iter().any(|only| self.is_meant(id, only))
    }

    fn path_hit(
        &mut self,
        frames: &[Frame],
        owner: usize,
        of: (usize, &Program),
        code: &Code,
        parent: Option<u32>,
    ) -> Option<u32> {
        let place = frames.first()?.places.get(owner).copied()?;
        let inlined = frames.first()?.places.get(owner + 1).map(|p| p.function).filter(|f| *f != place.function);
        let called = || self.named.caller(&frames.get(1)?.places, code).map(|p| p.function);
        let (caller, is_inlined) = inlined.map(|c| (c, true)).or_else(|| Some((called()?, false)))?;
        Some(self.number(Key::Path(place.function, caller, is_inlined), place, of, code, parent))
    }

    fn wait_hit(
        &mut self,
        class: WaitClass,
        first: &Frame,
        program: &Program,
        code: &Code,
        wanted: &Wanted,
    ) -> Vec<u32> {
        let Some(place) = first.places.first().copied() else { return Vec::new() };
        // Until the line is known, one site would be two targets.
        if !settled(first, program, code) {
            return Vec::new();
        }
        let key = Key::Wait(class, place.function, place.file, place.line);
        let id = self.number(key, place, (first.file, program), code, None);
        if self.is_wanted(id, wanted) { vec![id] } else { Vec::new() }
    }

    fn number(&mut self, key: Key, place: Place, of: (usize, &Program), code: &Code, parent: Option<u32>) -> u32 {
        if let Some(known) = self.numbers.get(&key) {
            return *known;
        }
        let file = of.1.files.get(of.0);
        let mut target = Target {
            name: code.text(place.function).to_owned(),
            file: code.text(place.file).to_owned(),
            line: place.line,
            module: file.map(|f| f.seen_as.clone()).unwrap_or_default(),
            image: file.map(|f| f.image.id),
            ..blank(Unit::Function)
        };
        match &key {
            Key::Line(..) => target.unit = Unit::Line,
            Key::Function(_) => {}
            Key::Inclusive(_) => target.unit = Unit::Inclusive,
            Key::Path(_, caller, _) => {
                target.unit = Unit::Path;
                target.path = vec![code.text(*caller).to_owned()];
            }
            Key::Wait(class, ..) => {
                target.unit = Unit::OffCpu;
                target.aliases = vec![std::mem::replace(&mut target.name, class_name(*class).to_owned())];
            }
        }
        self.push(key, parent, target)
    }

    fn push(&mut self, key: Key, parent: Option<u32>, target: Target) -> u32 {
        let number = self.list.len() as u32;
        self.numbers.insert(key.clone(), number);
        self.keys.push(key);
        self.parents.push(parent);
        self.list.push(target);
        number
    }

    /// The function that a line refines.
    pub(super) fn parent(&self, target: u32) -> Option<u32> {
        self.parents.get(target as usize).copied().flatten()
    }

    /// Whether code or a wait was met that the user's words mean.
    pub(super) fn has(&self, only: &TargetSpec) -> bool {
        (0..self.list.len() as u32).any(|id| self.is_meant(id, only))
    }

    fn is_meant(&self, id: u32, only: &TargetSpec) -> bool {
        let Some(target) = self.list.get(id as usize).filter(|t| is_of_kind(t.unit, only)) else { return false };
        // A wait has two names: that of its kind, under which it is listed, and that of the function it is in.
        let place = target.aliases.first().filter(|_| target.unit == Unit::OffCpu);
        match only {
            TargetSpec::Line(l) => target.line == l.line && whither_image::statements::ends_in(&target.file, &l.file),
            TargetSpec::Function(function, callers) => {
                (function.matches(&target.name) || place.is_some_and(|n| function.matches(n)))
                    && callers.iter().zip(&target.path).all(|(wanted, is)| wanted.matches(is))
            }
        }
    }

    /// Counts a sample for a target, or for none.
    pub(super) fn count(&mut self, target: Option<u32>, stratum: u32, plain: bool, weight: u64) {
        let (p, all) = self.counts.entry((target, stratum)).or_default();
        *all = all.saturating_add(weight);
        *p = p.saturating_add(if plain { weight } else { 0 });
    }

    /// Time without speed-up in a stratum.
    pub(super) fn plain_time(&mut self, stratum: u32, ns: u64) {
        let sum = self.plain_ns.entry(stratum).or_default();
        *sum = sum.saturating_add(ns);
    }

    /// What the kernel side is told to make faster: in all processes, or in one.
    pub(super) fn armed(&self, target: u32, whom: Option<u32>, code: &Code, program: &Program) -> Armed {
        let Some(key) = self.keys.get(target as usize) else { return Armed::Nothing };
        let placed = |stated: &[(usize, u64, u64)]| everywhere(stated, whom, program);
        let ranges = |name: Word, wanted: &dyn Fn(&Run) -> bool| placed(&stated(code.with_function(name), wanted));
        let own_code = || placed(&self.code_of(target, code));
        let function = |name: Word| move |r: &Run| self.owned(r, code).is_some_and(|(p, _)| p.function == name);
        let called = |name: Word| move |r: &Run| self.named.caller(&r.places, code).is_some_and(|p| p.function == name);
        let made = |unit, ranges, callers| Armed::Code { unit, ranges, callers };
        match key {
            Key::Line(..) => made(ArmedUnit::Line, own_code(), Vec::new()),
            Key::Function(name) => made(ArmedUnit::Function, ranges(*name, &function(*name)), Vec::new()),
            Key::Inclusive(_) => made(ArmedUnit::Inclusive, own_code(), Vec::new()),
            Key::Path(_, _, true) => made(ArmedUnit::Function, own_code(), Vec::new()),
            Key::Path(name, caller, false) => {
                // Code that is inlined into a caller is another target.
                let own = |r: &Run| {
                    self.owned(r, code)
                        .is_some_and(|(p, caller)| p.function == *name && caller.is_none_or(|c| c.function == *name))
                };
                made(ArmedUnit::Function, ranges(*name, &own), vec![ranges(*caller, &called(*caller))])
            }
            Key::Wait(class, ..) => Armed::OffCpu { classes: class.bit(), sites: own_code() },
        }
    }

    /// The place that code counts for, and what it is inlined into.
    fn owned(&self, run: &Run, code: &Code) -> Option<(Place, Option<Place>)> {
        let owner = self.named.owner(&run.places, code);
        Some((*run.places.get(owner)?, run.places.get(owner + 1).copied()))
    }

    /// Stated addresses of a target's code by file.
    fn code_of(&self, target: u32, code: &Code) -> Vec<(usize, u64, u64)> {
        let Some(key) = self.keys.get(target as usize) else { return Vec::new() };
        let first = |r: &Run| r.places.first().copied();
        match *key {
            Key::Line(file, line) => {
                stated(code.with_source(file), &|r| first(r).is_some_and(|p| p.file == file && p.line == line))
            }
            Key::Function(name) => {
                stated(code.with_function(name), &|r| self.owned(r, code).is_some_and(|(p, _)| p.function == name))
            }
            Key::Inclusive(name) => stated(code.with_function(name), &|r| r.places.iter().any(|p| p.function == name)),
            Key::Path(name, caller, inlined) => stated(code.with_function(name), &|r| {
                self.owned(r, code).is_some_and(|(p, around)| {
                    p.function == name && (!inlined || around.is_some_and(|c| c.function == caller))
                })
            }),
            Key::Wait(_, function, file, line) => stated(code.with_function(function), &|r| {
                first(r).is_some_and(|p| p.function == function && p.file == file && p.line == line)
            }),
        }
    }

    /// Fills in what is told of each target at the end: its code, and where functions begin.
    pub(super) fn finished(&mut self, code: &Code, program: &Program) -> Vec<Target> {
        let mut names = FileNames::default();
        for id in 0..self.list.len() as u32 {
            let ranges = self.code_of(id, code);
            let begins = self.begins(id, code);
            let same_code = self.same_code(id, code, program, &mut names);
            let Some(target) = self.list.get_mut(id as usize) else { continue };
            target.aliases.extend(same_code);
            let main = ranges.first().map(|r| r.0);
            target.ranges = ranges.iter().filter(|r| Some(r.0) == main).map(|r| (r.1, r.2)).collect();
            if let Some((file, line)) = begins {
                (target.file, target.line) = (file, line);
            }
        }
        self.list.clone()
    }

    /// Other names of a function's code: compilers and linkers make one of functions that are equal, and any of them may be meant.
    fn same_code(&self, id: u32, code: &Code, program: &Program, names: &mut FileNames) -> Vec<String> {
        let Some(Key::Function(name) | Key::Inclusive(name) | Key::Path(name, ..)) = self.keys.get(id as usize) else {
            return Vec::new();
        };
        let met = code.with_function(*name).find(|(_, known)| known.name == *name);
        let Some((file, start)) = met.map(|(file, known)| (file, known.range.start)) else { return Vec::new() };
        let all = names.entry(file).or_insert_with(|| code.names_of(&program.files[file]));
        let mut others = all.get(&start).cloned().unwrap_or_default();
        others.retain(|other| other != code.text(*name));
        others
    }

    /// File and first line of a function.
    fn begins(&self, id: u32, code: &Code) -> Option<(String, u32)> {
        let name = match self.keys.get(id as usize)? {
            Key::Function(name) | Key::Inclusive(name) | Key::Path(name, ..) => *name,
            _ => return None,
        };
        let own = code.with_function(name).find(|(_, k)| k.name == name).and_then(|(_, k)| k.begins);
        // Of a function that is only inlined, the first line that was met.
        let inlined = || {
            let all = code.with_function(name).flat_map(|(_, k)| &k.runs).flat_map(|r| &r.places);
            all.filter(|p| p.function == name && p.line > 0).min_by_key(|p| p.line).copied()
        };
        let place = own.or_else(inlined)?;
        Some((code.text(place.file).to_owned(), place.line))
    }

    /// Samples by target and stratum.
    pub(super) fn samples(&self) -> Vec<TargetSamples> {
        let row = |(&(target, stratum), &(plain, all)): (&(Option<u32>, u32), &(u64, u64))| TargetSamples {
            target,
            stratum,
            plain,
            plain_ns: self.plain_ns.get(&stratum).copied().unwrap_or(0),
            all,
        };
        let mut rows: Vec<TargetSamples> = self.counts.iter().map(row).collect();
        rows.sort_by_key(|r| (r.stratum, r.target));
        rows
    }

    /// Waits for other threads of the program, longest first.
    pub(super) fn waits(&self, code: &Code) -> Vec<Wait> {
        let place = |site: &Site| Target {
            name: code.text(site.0).to_owned(),
            file: code.text(site.1).to_owned(),
            line: site.2,
            ..blank(Unit::Line)
        };
        let mut waits: Vec<Wait> = self
            .waits
            .iter()
            .map(|(site, waited)| {
                let mut woken_by: Vec<(Target, u64)> = waited.woken.iter().map(|(s, n)| (place(s), *n)).collect();
                woken_by.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.name.cmp(&b.0.name)));
                Wait { site: place(site), blocked_ns: waited.ns, woken_by }
            })
            .collect();
        waits.sort_by(|a, b| b.blocked_ns.cmp(&a.blocked_ns).then_with(|| a.site.name.cmp(&b.site.name)));
        waits
    }
}

fn blank(unit: Unit) -> Target {
    Target {
        unit,
        name: String::new(),
        file: String::new(),
        line: 0,
        path: Vec::new(),
        aliases: Vec::new(),
        module: String::new(),
        image: None,
        ranges: Vec::new(),
    }
}

/// Frames in scope, from the one the kernel side found on.
fn frames(sample: &CausalSample, program: &Program, code: &mut Code) -> Vec<Frame> {
    if sample.site == 0 {
        return Vec::new();
    }
    let first = sample.frames.first() == Some(&sample.site);
    let known = sample.frames.iter().position(|f| f.wrapping_sub(1) == sample.site);
    let rest = if first { 1 } else { known.map_or(sample.frames.len(), |i| i + 1) };
    let addresses = std::iter::once(sample.site)
        .chain(sample.frames.get(rest..).unwrap_or_default().iter().map(|f| f.wrapping_sub(1)));
    let mut found = Vec::new();
    for at in addresses {
        let Some((file, stated)) = program.place(sample.pid, at) else { continue };
        let Some(of) = program.files.get(file) else { continue };
        let main = program.modules_of(sample.pid).iter().any(|m| m.file == file && m.main);
        if !code.scope().has_module(&of.seen_as, main) {
            continue;
        }
        let places = code.places(file, of, stated).unwrap_or_default();
        if !places.is_empty() {
            found.push(Frame { pid: sample.pid, file, at, places });
        }
    }
    found
}

/// Whether the source of a frame is known for good.
fn settled(frame: &Frame, program: &Program, code: &Code) -> bool {
    program.place(frame.pid, frame.at).is_some_and(|(file, at)| code.is_settled(file, at))
}

fn site_of(places: &[Place]) -> Site {
    places.first().map_or((0, 0, 0), |p| (p.function, p.file, p.line))
}

/// Where the thread was that ended a wait; it may be of another process of the group.
fn waker_site(pid: u32, at: u64, program: &Program, code: &mut Code) -> Site {
    let found =
        program.place(pid, at).or_else(|| program.pids().into_iter().find_map(|other| program.place(other, at)));
    let Some((file, stated)) = found else { return (0, 0, 0) };
    let Some(of) = program.files.get(file) else { return (0, 0, 0) };
    site_of(&code.places(file, of, stated).unwrap_or_default())
}

/// Stated addresses of the pieces of code that are wanted in some functions, in order, neighbours joined.
fn stated<'a>(
    functions: impl Iterator<Item = (usize, &'a Known)>,
    wanted: &dyn Fn(&Run) -> bool,
) -> Vec<(usize, u64, u64)> {
    let mut found: Vec<(usize, u64, u64)> = Vec::new();
    for (file, known) in functions {
        for run in known.runs.iter().filter(|r| wanted(r)) {
            match found.last_mut() {
                Some(last) if last.0 == file && last.2 == run.range.start => last.2 = run.range.end,
                _ => found.push((file, run.range.start, run.range.end)),
            }
        }
    }
    found
}

/// Where that is in all processes, or in one.
fn everywhere(stated: &[(usize, u64, u64)], whom: Option<u32>, program: &Program) -> Vec<CodeRange> {
    let mut ranges = Vec::new();
    for (file, start, end) in stated {
        match whom {
            Some(pid) => program.within(pid, *file, *start, *end, &mut ranges),
            None => program.everywhere(*file, *start, *end, &mut ranges),
        }
    }
    ranges.sort_unstable();
    ranges
}

/// What users call a class of waits.
pub(super) fn class_name(class: WaitClass) -> &'static str {
    match class {
        WaitClass::Sleep => "sleep",
        WaitClass::Io => "io",
        WaitClass::Net => "net",
        WaitClass::Lock => "lock",
        WaitClass::Other => "other",
    }
}

/// Per file, names of functions by where they begin.
type FileNames = FxHashMap<usize, FxHashMap<u64, Vec<String>>>;

/// Whether the user's words can mean such a target: the lines of a function that is named are not it.
fn is_of_kind(unit: Unit, only: &TargetSpec) -> bool {
    match (unit, only) {
        (Unit::OffCpu, _) => true,
        (Unit::Line, TargetSpec::Line(_)) => true,
        (Unit::Path, TargetSpec::Function(_, callers)) => !callers.is_empty(),
        (Unit::Function | Unit::Inclusive, TargetSpec::Function(_, callers)) => callers.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::target;
    use super::*;

    #[test]
    fn each_kind_of_target_that_is_named_is_counted_once() {
        let units =
            |unit, names: &[&str]| Wanted::new(unit, names.iter().map(|n| target(n).expect(n)).collect(), 0).units;
        assert_eq!(units(UnitChoice::Auto, &[]), [UnitChoice::Auto]);
        assert_eq!(units(UnitChoice::Auto, &["f", "g"]), [UnitChoice::Function]);
        assert_eq!(
            units(UnitChoice::Auto, &["f", "a.c:7", "g < f", "b.c:9"]),
            [UnitChoice::Function, UnitChoice::Line, UnitChoice::Path]
        );
        assert_eq!(units(UnitChoice::Inclusive, &["f", "a.c:7"]), [UnitChoice::Inclusive, UnitChoice::Line]);
    }

    #[test]
    fn a_name_means_targets_of_its_kind_alone() {
        let (f, below, line) = (target("f").unwrap(), target("f < g").unwrap(), target("a.c:7").unwrap());
        let meant = |unit| [&f, &below, &line].map(|only| is_of_kind(unit, only));
        assert_eq!(meant(Unit::Function), [true, false, false]);
        assert_eq!(meant(Unit::Inclusive), [true, false, false]);
        assert_eq!(meant(Unit::Path), [false, true, false]);
        assert_eq!(meant(Unit::Line), [false, false, true]);
        assert_eq!(meant(Unit::OffCpu), [true, true, true]);
    }
}
