//! Branch evidence from sampled registers: the code from a sampled place on is interpreted with the registers, up to
//! branches that they decide. Registers are the target's secrets: they are used up here at once, and only rows
//! (place, branch, direction) leave. Where a branch depends on memory, a recipe is put into the kernel, so that later
//! samples at that place of that process bring the loaded values along. Constraint: this is most of what the collector
//! spends, so each instruction is decoded once, and recipes are worked out only where samples come again.

mod code;
mod devices;
mod laps;
mod numbers;
mod pace;
mod places;
mod spaces;
mod thrift;
mod walks;

use crate::aggregate::EdgeKey;
use crate::book::{Book, CodeAt, Who};
use crate::lives::{ImageNo, LifeNo};
use crate::plan::Spend;
use code::{CodeFile, CodeFiles};
use devices::Devices;
use laps::Laps;
use places::{At, Places};
use rustc_hash::FxHashMap;
use std::fmt;
use std::rc::Rc;
use thrift::Thrift;
use walks::Walked;
use whither_abi::Task;
use whither_abi::pairs::Pair;
use whither_abi::path::Path;
use whither_abi::regs::{Place, Recipe, Regs, STEPS, Step};
use whither_image::interp::{Decision, MOST_LOADS, RecipeStep, Registers, Sampled, Slice, Source, WalkEnd, Walks};
use whither_image::{ImageOffset, Svma, load_bias, to_offset, to_svma};
use whither_kernel::clock;
use whither_store::model::{EdgeSource, Segment, Way};

/// Branches that one sample is asked about, each once: further ones say little new.
const MOST_DECISIONS: usize = 6;
/// Most recipes in the kernel at a time; the map has some room more.
const MOST_RECIPES: usize = 6144;
/// Entries of the kernel's map.
pub(crate) const RECIPE_ROOM: u32 = 8192;
/// A place gets a recipe when so many of its samples were blocked: most places are met once.
const WORTH_A_RECIPE: u32 = 2;
/// Decoded code of more bytes than this is thrown away and decoded anew where it is still in use.
const MOST_CODE: usize = 12 << 20;

pub use pace::ENOUGH as ENOUGH_WALKS;
pub(crate) use spaces::{SPACE_ROOM, number_of as image_number};
pub(crate) use thrift::FIRST_EVERY;
pub(crate) use walks::{EVERY, LATE, OP_ROOM, SETTLES, TELLS, WalkOrders};

/// Registers of one sample.
pub(crate) struct RegsIn {
    pub(crate) who: Who,
    pub(crate) pc: u64,
    pub(crate) registers: Registers,
    /// The recipe followed, 0 for none.
    pub(crate) recipe: u32,
    /// Values of its steps.
    pub(crate) steps: [Option<u64>; STEPS],
}

impl RegsIn {
    /// From a record of the kernel side.
    pub(crate) fn of(r: &Regs) -> Self {
        Self {
            who: Who::At { pid: r.tgid, tid: r.tgid, time: r.time },
            pc: r.pc,
            registers: Registers { gpr: r.gpr, flags: r.flags },
            recipe: r.recipe,
            steps: r.found(),
        }
    }
}

/// A change of the kernel's recipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Put(Place, Recipe),
    Remove(Place),
}

/// A recipe in the kernel. Its id names it in this process alone: the kernel side tells by the id that a place in its
/// map was given away while it read, and the same code lies elsewhere in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Installed {
    life: LifeNo,
    at: At,
    id: u32,
}

/// The interpreter of one collection.
pub(crate) struct Edges {
    files: CodeFiles,
    code: FxHashMap<ImageNo, Walks>,
    places: Places,
    /// Whether loads can be asked for.
    memory: bool,
    installed: FxHashMap<Place, Installed>,
    /// Of recipes: never used twice, never 0.
    last_id: u32,
    orders: Vec<Order>,
    thrift: Thrift,
    walked: Walked,
    laps: Laps,
    /// Walks so far, and the time they took.
    walks: u64,
    walks_ns: u64,
    devices: Devices,
    /// Of one sample; kept for its room.
    decisions: Vec<Decision>,
}

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edges").field("installed", &self.installed.len()).finish_non_exhaustive()
    }
}

impl Edges {
    pub(crate) fn new(memory: bool, spend: Spend) -> Self {
        Self {
            files: CodeFiles::default(),
            code: FxHashMap::default(),
            places: Places::default(),
            memory,
            installed: FxHashMap::default(),
            last_id: 0,
            orders: Vec::new(),
            thrift: Thrift::new(spend),
            walked: Walked::default(),
            laps: Laps::default(),
            walks: 0,
            walks_ns: 0,
            devices: Devices::default(),
            decisions: Vec::new(),
        }
    }

    /// Interprets samples into rows; returns how thinly registers are to be taken from now on, when that changes.
    pub(crate) fn take_all(&mut self, book: &mut Book, samples: impl Iterator<Item = RegsIn>) -> Option<u32> {
        let before = clock::own_cpu_ns();
        samples.for_each(|r| self.take(book, &r));
        self.thrift.spent(clock::monotonic_ns(), clock::own_cpu_ns().saturating_sub(before))
    }

    /// Counts what walks tell; returns what is to change in the kernel.
    pub(crate) fn take_walks(&mut self, book: &mut Book, paths: impl Iterator<Item = Path>) -> WalkOrders {
        let now = clock::monotonic_ns();
        for path in paths {
            self.walks += 1;
            self.walks_ns += u64::from(path.took);
            let devices = &mut self.devices;
            self.walked.take(book, &mut self.files, &path, |life| devices.bar(life, path.tgid, now));
        }
        self.walked.orders()
    }

    /// Counts the rounds of loops that pairs of moments tell.
    pub(crate) fn take_pairs(&mut self, book: &mut Book, pairs: impl Iterator<Item = Pair>) {
        self.laps.take_all(book, &mut self.files, pairs);
    }

    /// Processes have begun to execute programs.
    pub(crate) fn begun<'t>(&mut self, book: &Book, tasks: impl Iterator<Item = &'t Task>) {
        let now = clock::monotonic_ns();
        for task in tasks {
            let devices = &mut self.devices;
            self.walked.begun(book, task, |life| devices.bar(life, task.tgid, now));
        }
    }

    /// Walks so far, and the time they took, ns.
    pub(crate) fn walks(&self) -> (u64, u64) {
        (self.walks, self.walks_ns)
    }

    /// No more walks than so many a second, of all CPUs.
    pub(crate) fn limit_walks(&mut self, walks: f64) {
        self.walked.limit(walks);
    }

    /// Whether code is still being learnt that walks want, so that they are better read soon.
    pub(crate) fn is_learning(&self) -> bool {
        self.walked.is_learning()
    }

    /// Gives up what walks know: there was no room for more.
    pub(crate) fn begin_walks_anew(&mut self) {
        self.walked.begin_anew();
    }

    /// Interprets one sample into rows. Where it is not certain which code ran, and for code that is in no file,
    /// there is none.
    pub(crate) fn take(&mut self, book: &mut Book, r: &RegsIn) {
        let Some(at) = book.code_at(r.who, r.pc) else { return };
        let (image, offset) = (at.mapped.image, ImageOffset(at.mapped.offset_of(r.pc)));
        let mut decisions = std::mem::take(&mut self.decisions);
        decisions.clear();
        self.interpret(book, r, &at, offset, &mut decisions);
        let mut told = false;
        for decision in &decisions {
            if let Some((branch, way)) = row(book, r.who, &at, decision) {
                book.edge(EdgeKey { image, pc: offset, branch, way, source: EdgeSource::Registers });
                told = true;
            }
        }
        if !told {
            let (way, source) = (Way::Undecided, EdgeSource::Registers);
            book.edge(EdgeKey { image, pc: offset, branch: offset, way, source });
        }
        self.decisions = decisions;
    }

    fn interpret(&mut self, book: &Book, r: &RegsIn, at: &CodeAt, offset: ImageOffset, out: &mut Vec<Decision>) {
        let image = at.mapped.image;
        let segments = &book.image(image).segments;
        let Some(bias) = load_bias(segments, at.mapped.start, at.mapped.offset) else { return };
        let (Some(svma), Some(file)) = (to_svma(segments, offset), self.files.get(book, at)) else { return };
        let place = Place { pc: r.pc, tgid: at.pid, spare: 0 };
        // A recipe put there for other code, before this was mapped, read other things.
        let own = |i: &&Installed| i.id == r.recipe && i.life == at.life && i.at == (image, offset.0);
        let followed = self.installed.get(&place).filter(own).and_then(|i| self.places.get(i.at).recipe.clone());
        let recipe: &[RecipeStep] = followed.as_deref().unwrap_or_default();
        let loads = loads_of(recipe, &r.steps);
        let sampled = Sampled { registers: &r.registers, recipe, loads: &loads, bias };
        let end = self.code.entry(image).or_default().decide(file, svma, &sampled, MOST_DECISIONS, out);
        if self.memory && out.is_empty() && end == WalkEnd::Blocked && followed.is_none() {
            let known = self.places.get((image, offset.0));
            known.met += 1;
            if known.met < WORTH_A_RECIPE {
                return;
            }
            let steps = Rc::clone(known.recipe.get_or_insert_with(|| steps_at(file, svma)));
            if let Some(recipe) = recipe_of(&steps, bias)
                && !self.devices.bar(at.life, at.pid, clock::monotonic_ns())
            {
                self.install(place, recipe, at.life, (image, offset.0));
            }
        }
    }

    fn install(&mut self, place: Place, recipe: Recipe, life: LifeNo, at: At) {
        if self.installed.get(&place).is_some_and(|i| (i.life, i.at) == (life, at)) {
            return;
        }
        self.last_id = self.last_id.wrapping_add(1).max(1);
        let recipe = Recipe { id: self.last_id, ..recipe };
        if self.installed.len() >= MOST_RECIPES {
            // Those in use come back with their next sample.
            self.orders.extend(self.installed.drain().map(|(place, _)| Order::Remove(place)));
        }
        self.installed.insert(place, Installed { life, at, id: recipe.id });
        self.orders.push(Order::Put(place, recipe));
    }

    /// What is to change in the kernel.
    pub(crate) fn orders(&mut self) -> Vec<Order> {
        self.orders_at(clock::monotonic_ns())
    }

    fn orders_at(&mut self, now: u64) -> Vec<Order> {
        for life in self.devices.look_again(now) {
            let gone = self.installed.extract_if(|_, i| i.life == life);
            self.orders.extend(gone.map(|(place, _)| Order::Remove(place)));
            self.walked.begin_anew();
        }
        std::mem::take(&mut self.orders)
    }

    /// Forgets recipes of lives that the book has forgotten, files that are out of use, and code when it is too much.
    pub(crate) fn forget(&mut self, book: &Book) {
        if self.code.values().map(Walks::bytes).sum::<usize>() > MOST_CODE {
            self.code.clear();
        }
        let gone = self.installed.extract_if(|_, i| !book.knows(i.life));
        self.orders.extend(gone.map(|(place, _)| Order::Remove(place)));
        self.files.forget();
        self.walked.forget(book);
        self.devices.forget(book);
    }
}

/// A decision as a row; `None` for a target in another image, which rows cannot tell.
fn row(book: &Book, who: Who, at: &CodeAt, decision: &Decision) -> Option<(ImageOffset, Way)> {
    let segments: &[Segment] = &book.image(at.mapped.image).segments;
    match *decision {
        Decision::Branch { at, taken } => Some((to_offset(segments, at)?, if taken { Way::Taken } else { Way::Fall })),
        Decision::Target { at: jump, to } => {
            let target = book.code_at(who, to).filter(|t| t.mapped.image == at.mapped.image)?;
            Some((to_offset(segments, jump)?, Way::To(ImageOffset(target.mapped.offset_of(to)))))
        }
    }
}

/// What must be loaded at a place for its first branch, and how to find it.
fn steps_at(file: &CodeFile, at: Svma) -> Rc<[RecipeStep]> {
    Rc::from(Slice::new(file, at).recipe())
}

/// The values of those steps that load, in their order.
fn loads_of(recipe: &[RecipeStep], values: &[Option<u64>]) -> [Option<u64>; MOST_LOADS] {
    let mut loads = [None; MOST_LOADS];
    let found = recipe.iter().zip(values).filter(|(step, _)| step.load.is_some());
    loads.iter_mut().zip(found).for_each(|(to, (_, value))| *to = *value);
    loads
}

/// The steps of a place as the kernel side follows them, for where it is in one process; without an id.
fn recipe_of(steps: &[RecipeStep], bias: u64) -> Option<Recipe> {
    let mut recipe = Recipe::default();
    for (step, to) in steps.iter().zip(&mut recipe.step) {
        let width = step.load.unwrap_or(0);
        if !matches!(width, 0 | 1 | 2 | 4 | 8) {
            break;
        }
        let (up, down) = step.field.shifts();
        *to = Step {
            disp: step.disp.cast_unsigned().wrapping_add(if step.image_relative { bias } else { 0 }),
            scale: step.terms.map(|term| term.map_or(0, |t| t.scale)),
            source: step.terms.map(|term| term.map_or(0, |t| number(t.source))),
            up,
            down,
            signed: step.field.signed.into(),
            width,
            used: 1,
            spare: 0,
        };
    }
    (recipe.step[0].used > 0).then_some(recipe)
}

fn number(source: Source) -> u8 {
    match source {
        Source::Gpr(n) => n,
        Source::Step(n) => n.saturating_add(16),
    }
}

#[cfg(test)]
mod tests;
