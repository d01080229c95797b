//! From patterns to functions: which addresses of which modules are meant, with all their names, and how
//! each can be patched. Nothing of the target is changed, and its memory is read only where the file
//! cannot know: the slots that the dynamic linker has filled. Points by number are `engine`'s.
//!
//! Every match is kept apart; names of one address are one candidate. Linkage stubs and the `.cold` parts
//! of functions are no functions.

mod callers;
mod describe;
mod image;
mod near;
mod readers;

pub use image::ModuleImage;

use crate::api::{Candidate, CostClass, Order, Select};
use crate::select::{Pattern, SelectError};
use callers::Callers;
use describe::describe;
use rustc_hash::FxHashMap;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use whither_image::{Callee, CodeName, NameKind, Plan, Signature, SlotTarget, Svma};

/// A module of a process, as far as functions are to be found in it.
pub trait ModuleView {
    /// Path of its file.
    fn path(&self) -> &str;
    /// What is added to a stated address to get the one in the process.
    fn bias(&self) -> u64;
    /// Where code of it is in the process, from the first mapping of it to the last. Less than the file has, of a piece that
    /// a program has mapped a second time (V8 has its built-in functions near its heap).
    fn mapped(&self) -> Range<u64>;
    /// Whether it is the program itself.
    fn is_main(&self) -> bool;
    /// What is known of its file; `None` when it is not mapped any more, or there is no file.
    fn image(&self) -> Option<&ModuleImage>;
}

/// Reads the eight bytes at an address of the target.
pub type ReadWord<'r> = &'r dyn Fn(u64) -> Option<u64>;

/// What the orders came to.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// By module and address.
    pub candidates: Vec<Candidate>,
    /// Sentences for the user: what was meant and could not be given.
    pub notes: Vec<String>,
    /// Lines (`FILE:LINE`) that code comes from here.
    pub lines: Vec<String>,
}

/// All functions that the orders choose: what one includes and none excludes.
///
/// # Errors
/// [`SelectError`] for a pattern that is no regular expression.
pub fn candidates<M: ModuleView>(modules: &[M], orders: &[Order], read: ReadWord<'_>) -> Result<Resolved, SelectError> {
    let mut finder = Finder { modules, read, notes: Vec::new(), lines: Vec::new() };
    let mut chosen: BTreeMap<Place, Callers> = BTreeMap::new();
    for order in orders {
        if let Order::Include(select) = order {
            finder.choose(select, &mut chosen)?;
        }
    }
    let (mut notes, lines) = (std::mem::take(&mut finder.notes), std::mem::take(&mut finder.lines));
    let included = chosen.len();
    for order in orders {
        if let Order::Exclude(select) = order
            && !chosen.is_empty()
        {
            for place in finder.find(select)? {
                chosen.remove(&place);
            }
        }
    }
    if included > 0 && chosen.is_empty() {
        notes.push(match included {
            1 => "-x leaves out the one function that matches".into(),
            many => format!("-x leaves out all {many} functions that match"),
        });
    }
    let described = |(place, callers)| Some((described(modules, place)?, callers));
    let (mut candidates, callers): (Vec<Candidate>, Vec<Callers>) = chosen.into_iter().filter_map(described).unzip();
    tell_apart(modules, &mut candidates);
    candidates.iter_mut().zip(callers).for_each(|(candidate, callers)| callers.restrict(modules, candidate));
    Ok(Resolved { candidates, notes, lines })
}

/// Where functions have one name, what tells them apart is preferred: parameters, or which part of a coroutine it is.
fn tell_apart<M: ModuleView>(modules: &[M], candidates: &mut [Candidate]) {
    let mut namesakes: FxHashMap<String, Vec<usize>> = FxHashMap::default();
    for (i, candidate) in candidates.iter().enumerate() {
        namesakes.entry(candidate.names.first().cloned().unwrap_or_default()).or_default().push(i);
    }
    for (_, alike) in namesakes.into_iter().filter(|(_, alike)| alike.len() > 1) {
        for i in alike {
            let full = image(modules, candidates[i].module).and_then(|m| m.full_name_at(Svma(candidates[i].offset)));
            if let Some(full) = full.filter(|full| !candidates[i].names.contains(full)) {
                candidates[i].names.insert(0, full);
            }
        }
    }
}

/// Why patterns choose nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nothing {
    /// What is known of it, besides that no name is like that.
    pub why: Vec<String>,
    /// No library loaded later can change it.
    pub for_good: bool,
}

/// Why orders that choose nothing do so.
///
/// # Errors
/// As [`candidates`].
pub fn nothing<M: ModuleView>(modules: &[M], orders: &[Order], read: ReadWord<'_>) -> Result<Nothing, SelectError> {
    let mut for_good = !orders.is_empty();
    for order in orders {
        for_good &= match order {
            Order::Include(Select::Address { module: Some(module), .. }) => {
                let module = Pattern::new(module)?;
                modules.iter().any(|m| is_meant(&module, m.path()))
            }
            Order::Include(_) => false,
            Order::Exclude(_) => true,
        };
    }
    Ok(Nothing { why: candidates(modules, orders, read)?.notes, for_good })
}

/// The function that holds an address of the process.
pub fn candidate_at<M: ModuleView>(modules: &[M], address: u64) -> Option<Candidate> {
    let (module, at) = holding(modules, address)?;
    let start = image(modules, module)?.code()?.function_of(at)?;
    described(modules, (module, start))
}

/// Where the function begins that holds an address of the process.
pub fn function_at<M: ModuleView>(modules: &[M], address: u64) -> Option<u64> {
    let (module, at) = holding(modules, address)?;
    let start = image(modules, module)?.code()?.function_of(at)?;
    Some(start.0.wrapping_add(modules.get(module)?.bias()))
}

/// The functions that the one at an address of the process calls directly, or through a pointer at a fixed place.
pub fn callees<M: ModuleView>(modules: &[M], address: u64, read: ReadWord<'_>) -> Vec<Candidate> {
    callees_of(modules, address, read, true)
}

/// The same without those through pointers that others than the linker fill.
pub fn linked_callees<M: ModuleView>(modules: &[M], address: u64, read: ReadWord<'_>) -> Vec<Candidate> {
    callees_of(modules, address, read, false)
}

fn callees_of<M: ModuleView>(modules: &[M], address: u64, read: ReadWord<'_>, pointers: bool) -> Vec<Candidate> {
    let Some((module, at)) = holding(modules, address) else { return Vec::new() };
    let Some(found) = image(modules, module).and_then(|image| {
        let (code, linkage) = (image.code()?, image.linkage()?);
        let mut found = whither_image::callees(code, linkage, at);
        found.retain(|c| pointers || !matches!(c, Callee::Slot(slot) if linkage.target(*slot).is_none()));
        Some(found)
    }) else {
        return Vec::new();
    };
    let finder = Finder { modules, read, notes: Vec::new(), lines: Vec::new() };
    let places: BTreeSet<Place> = found
        .into_iter()
        .filter_map(|callee| match callee {
            Callee::Here(target) => Some((module, target)),
            Callee::Slot(slot) => finder.behind_slot(module, slot),
        })
        .collect();
    places.into_iter().filter(|place| *place != (module, at)).filter_map(|place| described(modules, place)).collect()
}

/// Where the calls through pointers of the function at an address of the process return to, and how many tail jumps through
/// pointers it has.
pub fn pointer_calls<M: ModuleView>(modules: &[M], address: u64) -> (Vec<u64>, usize) {
    let found = holding(modules, address).and_then(|(index, at)| {
        let (module, image) = (modules.get(index)?, image(modules, index)?);
        Some((module.bias(), whither_image::pointer_calls(image.code()?, image.linkage()?, at)))
    });
    let Some((bias, found)) = found else { return (Vec::new(), 0) };
    (found.returns.iter().map(|at| at.0.wrapping_add(bias)).collect(), found.jumps.len())
}

/// Names near a pattern that matched nothing, nearest first.
pub fn suggest<M: ModuleView>(modules: &[M], pattern: &str) -> Vec<String> {
    near::suggest(modules, pattern)
}

/// How to patch a candidate, in full.
pub fn plan<M: ModuleView>(module: &M, candidate: &Candidate) -> Option<Plan> {
    describe::told(module.image()?, Svma(candidate.offset))?.plan.clone()
}

/// What functions are declared to take; `None` where nothing tells, or the compiler's copy takes something else.
pub(crate) fn signatures<M: ModuleView>(modules: &[M], functions: &[&Candidate]) -> Vec<Option<Signature>> {
    let mut told = vec![None; functions.len()];
    for (index, module) in modules.iter().enumerate() {
        let here: Vec<usize> = (0..functions.len()).filter(|&i| functions[i].module == index).collect();
        let Some(image) = module.image().filter(|_| !here.is_empty()) else { continue };
        let addresses: Vec<Svma> = here.iter().map(|&i| Svma(functions[i].offset)).collect();
        for (i, signature) in here.into_iter().zip(image.signatures(&addresses)) {
            told[i] = signature;
        }
    }
    told
}

/// What a kernel breakpoint costs at a candidate's first instruction.
pub(crate) fn trap_cost<M: ModuleView>(module: &M, candidate: &Candidate) -> CostClass {
    let code = module.image().and_then(ModuleImage::code);
    code.map_or(CostClass::TenMicroseconds, |code| describe::trap_cost(code, Svma(candidate.offset)))
}

/// Index of a module and a stated address in it.
type Place = (usize, Svma);

fn image<M: ModuleView>(modules: &[M], module: usize) -> Option<&ModuleImage> {
    modules.get(module)?.image()
}

fn described<M: ModuleView>(modules: &[M], (index, at): Place) -> Option<Candidate> {
    let module = modules.get(index)?;
    if !has_mapped(module, at) && modules.iter().any(|m| m.path() == module.path() && has_mapped(m, at)) {
        return None;
    }
    let mut found = describe(module, index, module.image()?, at)?;
    if modules.iter().any(|m| copies_stacks(m.path())) {
        found.entry_only.get_or_insert_with(|| COPIES_STACKS.to_owned());
    }
    if let Some(why) = readers::why_not_timed(modules, module) {
        found.entry_only.get_or_insert_with(|| why.to_owned());
    }
    Some(found)
}

/// One place on a stack then holds several calls in turns, and what a copy holds cannot be put right when probes go.
const COPIES_STACKS: &str = "a library that keeps copies of stacks, with return addresses in them, is loaded (greenlet, PyPy, Ruby's continuations)";

/// Whether a library is one that keeps copies of stacks and puts them back.
pub(crate) fn copies_stacks(path: &str) -> bool {
    let name = file_name(path);
    ["_greenlet", "libpypy", "continuation.so"].iter().any(|known| name.starts_with(known))
}

fn has_mapped<M: ModuleView>(module: &M, at: Svma) -> bool {
    module.mapped().contains(&at.0.wrapping_add(module.bias()))
}

/// The module whose code holds an address of the process, and the stated address.
fn holding<M: ModuleView>(modules: &[M], address: u64) -> Option<Place> {
    modules.iter().enumerate().find_map(|(i, module)| {
        let at = Svma(address.wrapping_sub(module.bias()));
        let here = module.mapped().contains(&address);
        (here && module.image()?.is_code(at)).then_some((i, at))
    })
}

/// `libc.so.6` of `/lib/x86_64-linux-gnu/libc.so.6`.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What is said of a module that is not there, behind its name.
const ABSENT: &str = ": no module of that name was loaded when ";

/// Whether a note says that a module is not there which one of these is: programs of a tree do not have the same ones.
pub(crate) fn is_refuted<'a>(note: &str, mut paths: impl Iterator<Item = &'a str>) -> bool {
    let Some((module, _)) = note.split_once(ABSENT) else { return false };
    let module = module.rsplit_once("+0x").map_or(module, |(module, _)| module);
    Pattern::new(module).is_ok_and(|pattern| paths.any(|path| is_meant(&pattern, path)))
}

/// Whether a note says that no code comes from a line which code of another program does come from.
pub(crate) fn is_of_line(note: &str, line: &str) -> bool {
    note.ends_with(&no_code(line)) || note.contains(&not_found(line))
}

fn no_code(line: &str) -> String {
    format!("no code comes from {line}")
}

fn not_found(line: &str) -> String {
    format!("so that {line} cannot be found in it")
}

/// Whether a pattern means a module: its file name, its path, or the name up to `.so`, with that or without.
fn is_meant(pattern: &Pattern, path: &str) -> bool {
    let name = file_name(path);
    let stem = name.split(".so").next().unwrap_or(name);
    let unversioned = name.get(..stem.len() + ".so".len()).unwrap_or(name);
    [name, path, stem, unversioned].iter().any(|form| pattern.matches(form))
}

struct Finder<'m, M> {
    modules: &'m [M],
    read: ReadWord<'m>,
    notes: Vec<String>,
    lines: Vec<String>,
}

impl<M: ModuleView> Finder<'_, M> {
    /// What an order includes, whoever calls it or some callers only.
    fn choose(&mut self, select: &Select, chosen: &mut BTreeMap<Place, Callers>) -> Result<(), SelectError> {
        let (callers, callee) = Callers::of(self.modules, select)?;
        if let (true, Select::CalledFrom { callers, .. }) = (callers.is_nobody(), select) {
            self.notes.push(format!("{callers}{ABSENT}calls from it were looked for"));
            return Ok(());
        }
        for place in self.find(callee)? {
            match chosen.entry(place) {
                Entry::Occupied(mut known) => known.get_mut().join(callers.clone()),
                Entry::Vacant(new) => drop(new.insert(callers.clone())),
            }
        }
        Ok(())
    }

    fn find(&mut self, select: &Select) -> Result<Vec<Place>, SelectError> {
        match select {
            Select::Name { function, module } => {
                let function = Pattern::new(function)?;
                let module = module.as_deref().map(Pattern::new).transpose()?;
                Ok(self.by_name(&function, module.as_ref()))
            }
            Select::Address { module, offset } => {
                let module = module.as_deref().map(Pattern::new).transpose()?;
                Ok(self.by_address(module.as_ref(), Svma(*offset)))
            }
            Select::Line { file, line } => Ok(self.by_line(file, *line)),
            Select::CalledFrom { callee, .. } => self.find(callee),
            Select::Point(_) => Ok(Vec::new()),
        }
    }

    /// Modules that are meant, those without a file left out.
    fn meant(&self, pattern: Option<&Pattern>) -> Vec<(usize, &ModuleImage)> {
        let all = self.modules.iter().enumerate();
        let meant = all.filter(|(_, m)| pattern.is_none_or(|p| is_meant(p, m.path())));
        meant.filter_map(|(i, m)| Some((i, m.image()?))).collect()
    }

    fn by_name(&mut self, pattern: &Pattern, module: Option<&Pattern>) -> Vec<Place> {
        let mut found = Vec::new();
        let mut notes = Vec::new();
        for (index, image) in self.meant(module) {
            for name in image.named(pattern).iter().filter_map(|&at| image.names().get(at)) {
                if name.kind == NameKind::Resolver {
                    match self.chosen_by(index, name) {
                        chosen if chosen.is_empty() => notes.push(unresolved(name)),
                        chosen => found.extend(chosen),
                    }
                } else {
                    found.push((index, name.address));
                }
            }
            found.extend(self.nameless(index, image, pattern).into_iter().map(|at| (index, at)));
        }
        notes.sort();
        notes.dedup();
        self.notes.extend(notes);
        if let Some(module) = module
            && !self.modules.iter().any(|m| is_meant(module, m.path()))
        {
            let module = module.text();
            self.notes.push(self.absent(module));
        }
        found
    }

    /// That nothing of that name is there. A program started by a symbolic link has another name than its process.
    fn absent(&self, module: &str) -> String {
        let main = self.modules.iter().find(|m| m.is_main()).map(|m| file_name(m.path()));
        let main = main.map_or_else(String::new, |name| format!("; the program itself is {name}"));
        format!("{module}{ABSENT}it was looked for{main}")
    }

    /// Functions without a name, as `module+0x1a2b`.
    fn nameless(&self, index: usize, image: &ModuleImage, pattern: &Pattern) -> Vec<Svma> {
        // A pattern of letters matches no such name.
        let Some(path) = self.modules.get(index).map(M::path).filter(|_| pattern.needle().is_none()) else {
            return Vec::new();
        };
        let matches = |at: &Svma| pattern.matches(&image::nameless(path, *at));
        image.nameless_starts().into_iter().filter(matches).collect()
    }

    /// What the resolver of an `IFUNC` symbol has chosen: the slots that were filled with it tell.
    fn chosen_by(&self, module: usize, name: &CodeName) -> Vec<Place> {
        let resolver = SlotTarget::Resolver(name.address);
        let symbol = SlotTarget::Name(name.name.to_string());
        let mut found: Vec<Place> = Vec::new();
        for (index, other) in self.meant(None) {
            let Some(linkage) = other.linkage() else { continue };
            let slots = linkage.slots(|t| *t == symbol || index == module && *t == resolver);
            let places = slots.into_iter().filter_map(|slot| self.in_slot(index, slot));
            // A program may define the symbol itself: that is another function, found by its own name.
            found.extend(places.filter(|(found_in, _)| *found_in == module));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The function whose address a slot holds now; `None` while it leads to the linker's own code.
    fn in_slot(&self, module: usize, slot: Svma) -> Option<Place> {
        let bias = self.modules.get(module)?.bias();
        let (index, at) = holding(self.modules, (self.read)(slot.0.wrapping_add(bias))?)?;
        let code = image(self.modules, index)?.code()?;
        code.is_code(at).then_some((index, at))
    }

    /// The function behind a slot, by name when it was not filled yet.
    fn behind_slot(&self, module: usize, slot: Svma) -> Option<Place> {
        if let Some(place) = self.in_slot(module, slot) {
            return Some(place);
        }
        let SlotTarget::Name(wanted) = image(self.modules, module)?.linkage()?.target(slot)? else { return None };
        self.meant(None).into_iter().find_map(|(index, image)| {
            let name = image.names().iter().find(|n| *n.name == **wanted && n.kind != NameKind::Mark)?;
            match name.kind {
                NameKind::Resolver => self.chosen_by(index, name).into_iter().next(),
                _ => Some((index, name.address)),
            }
        })
    }

    fn by_address(&mut self, pattern: Option<&Pattern>, at: Svma) -> Vec<Place> {
        let meant: Vec<(usize, &ModuleImage)> = match pattern {
            Some(pattern) => self.meant(Some(pattern)),
            None => {
                self.meant(None).into_iter().filter(|(i, _)| self.modules.get(*i).is_some_and(M::is_main)).collect()
            }
        };
        let start = |image: &ModuleImage| {
            let code = image.code()?;
            let named = image.names().iter().any(|n| n.address == at && image.is_function(n));
            if named { Some(at) } else { image.entered_at(code.function_of(at)?) }
        };
        let found: Vec<Place> = meant.into_iter().filter_map(|(i, image)| Some((i, start(image)?))).collect();
        if found.is_empty() {
            let module = pattern.map_or("the program", Pattern::text);
            let there = pattern.is_none_or(|p| self.modules.iter().any(|m| is_meant(p, m.path())));
            self.notes.push(if there {
                format!("{:#x} is in no function of {module}", at.0)
            } else {
                self.absent(&format!("{module}+{:#x}", at.0))
            });
        }
        found
    }

    fn by_line(&mut self, file: &str, line: u32) -> Vec<Place> {
        let mut found = Vec::new();
        for (index, image) in self.meant(None) {
            let Some(lines) = image.lines() else { continue };
            found.extend(image.functions_of_line(lines, file, line).into_iter().map(|at| (index, at)));
        }
        match found.is_empty() {
            true => self.notes.push(self.why_no_line(file, line)),
            false => self.lines.push(format!("{file}:{line}")),
        }
        found
    }

    /// Libraries have line tables often enough where the program has none: then it is the program's that are missed.
    fn why_no_line(&self, file: &str, line: u32) -> String {
        let is_known = |image: &ModuleImage| image.lines().is_some_and(|lines| !lines.lines_of(file).is_empty());
        let all = self.meant(None);
        let is_main = |index: usize| self.modules.get(index).is_some_and(M::is_main);
        let bare = all.iter().find(|(index, image)| is_main(*index) && image.lines().is_none());
        match bare.and_then(|(index, _)| self.modules.get(*index)) {
            Some(program) if !all.iter().any(|(_, image)| is_known(image)) => format!(
                "{} has no debug information (line tables), {}; compile it with -g, install its debug symbols, or name the function",
                file_name(program.path()),
                not_found(&format!("{file}:{line}"))
            ),
            _ => no_code(&format!("{file}:{line}")),
        }
    }
}

fn unresolved(name: &CodeName) -> String {
    format!("{}: which code it stands for is chosen at its first use, and nothing has used it yet", name.name)
}

#[cfg(test)]
mod tests;
