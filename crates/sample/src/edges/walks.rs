//! Walks: code is prepared for the kernel side, which executes it in thought from some samples on, and what it tells
//! becomes runs, as of branch records. Lives here: which code is prepared, under which numbers, and how a record is read.
//! Not here: what instructions mean (`whither_image::interp`), how the kernel side walks (`bpf/paths.h`).
//! Constraint: code is prepared only where walks wanted to go, and numbers are given once until all are given anew, so that
//! a walk under way never meets another instruction under a number it holds.

use super::code::CodeFiles;
use super::numbers::Numbers;
use super::pace::Pace;
use crate::book::{Book, CodeAt, Who};
use crate::branches;
use crate::lives::{ImageNo, LifeNo};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::num::NonZeroU64;
use whither_abi::Task;
use whither_abi::path::{End, NO_OP, Op, Path, Start};
use whither_image::interp::Preparer;
use whither_image::{Svma, load_bias};
use whither_kernel::records::BranchEntry;
use whither_store::model::EdgeSource;

/// Instructions that the kernel side has room for; walks may begin at each of them. A compiler executes 600,000, and its walks had to
/// begin anew every few seconds with an eighth of this. With where they stand it takes 74 MB of the kernel's memory.
pub(crate) const OP_ROOM: u32 = 1 << 20;
/// The life that code at a fixed address belongs to, as `WH_PATH_FIXED`.
const FIXED: u32 = u32::MAX;
/// Instructions of a walk that are told. Executions of one walk are near each other, but in programs of much code less so than long
/// walks show more: of a compiler 69 % was within 15 % where 300 instructions had 48 %.
pub(crate) const TELLS: u32 = 1000;
/// So many before them tell nothing, and by chance up to [`LATE`] more.
pub(crate) const SETTLES: u32 = 48;
pub(crate) const LATE: u32 = 300;
/// A walk from one in so many samples, at first and at most, unless a budget buys fewer.
pub(crate) const EVERY: u32 = 5;
/// Instructions prepared at a time, those nearest in number of branches: a program that spends its time everywhere executes a part only
/// of what can be reached, and what is prepared in vain takes room. With a quarter of it a compiler's walks wait too often for the next
/// ones, with four times as much half of the time is spent on code that never runs.
const MOST_AT_ONCE: usize = 512;

/// A change of what the kernel side knows, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkOrders {
    /// Everything known before is void; numbers are of this preparation from now on.
    pub(crate) anew: Option<u32>,
    pub(crate) ops: Vec<(u32, Op)>,
    pub(crate) starts: Vec<(Start, u32)>,
    /// A walk from one in so many samples from now on.
    pub(crate) every: Option<u32>,
}

/// What has been prepared.
#[derive(Default)]
pub(crate) struct Walked {
    preparer: Preparer,
    /// By number; 0 is nobody's.
    ops: Vec<Made>,
    /// What is mapped, and what its offsets are less than addresses.
    stretches: Vec<(ImageNo, u64)>,
    numbers: Numbers<Space>,
    /// Instructions that are not prepared, and those that lead there: number, and whether it is their target.
    awaited: FxHashMap<(Space, u64), Vec<(u32, bool)>>,
    /// Lives that share code at fixed addresses with others.
    joined: FxHashSet<Start>,
    /// A place in each executable at a fixed address whose code is prepared.
    fixed: Vec<(ImageNo, u64)>,
    /// Which preparation this is.
    code: u32,
    orders: WalkOrders,
    pace: Pace,
    pub(super) room: Room,
}

/// Starts that the kernel side has room for.
#[derive(Clone, Copy)]
pub(super) struct Room(pub(super) usize);

impl Default for Room {
    fn default() -> Self {
        Self(OP_ROOM as usize)
    }
}

/// Whose code it is, and so for whom it is prepared. Position-dependent executables lie at the same place in every process, so what one
/// has walked through the next one knows from its first sample on: compilers are started a thousand times a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Space {
    Life(LifeNo),
    Fixed(ImageNo),
}

impl Space {
    fn of(life: LifeNo, image: ImageNo, bias: u64) -> Self {
        if bias == 0 { Self::Fixed(image) } else { Self::Life(life) }
    }

    /// Where walks begin, for the kernel side.
    fn start(self, pc: u64, process: &Process) -> Start {
        match self {
            Self::Life(_) => Start { pc, tgid: process.tgid, tag: process.tag },
            Self::Fixed(image) => Start { pc, tgid: number_of(image), tag: FIXED },
        }
    }
}

/// An image's number for the kernel side, where 0 is none.
fn number_of(image: ImageNo) -> u32 {
    image.0.wrapping_add(1)
}

/// Who walks.
struct Process {
    who: Who,
    life: LifeNo,
    tgid: u32,
    tag: u32,
}

#[derive(Clone, Copy, Debug)]
struct Made {
    at: u64,
    /// What was mapped there: index of a stretch.
    stretch: u32,
    op: Op,
    /// Runtime addresses of what may follow.
    next: Option<NonZeroU64>,
    target: Option<NonZeroU64>,
}

impl Walked {
    /// Counts what a walk tells, and has code prepared where it wanted to go on.
    /// `barred`: nothing may be read of a process.
    pub(crate) fn take(
        &mut self,
        book: &mut Book,
        files: &mut CodeFiles,
        path: &Path,
        mut barred: impl FnMut(LifeNo) -> bool,
    ) {
        let who = Who::At { pid: path.tgid, tid: path.tgid, time: path.time };
        if let Some(every) = self.pace.walked(path.time, path.end == End::NewCode) {
            self.orders.every = Some(every);
        }
        if path.code != self.code {
            return;
        }
        let Some(at) = book.code_at(who, path.pc) else { return };
        let life = at.life;
        if !self.stands(book, who, at, path) {
            return self.begin_anew();
        }
        self.tell(book, who, path);
        if path.end != End::NewCode || barred(life) {
            return;
        }
        if self.ops.len() + MOST_AT_ONCE >= self.room.0 {
            return self.begin_anew();
        }
        let process = Process { who, life, tgid: path.tgid, tag: path.tag };
        if path.wanted == 0 {
            self.go_on(book, files, &process, path);
        } else {
            self.prepare(book, files, &process, path.wanted);
        }
    }

    /// Whether what a walk went through is still mapped there: libraries come and go.
    fn stands(&self, book: &Book, who: Who, at: CodeAt, path: &Path) -> bool {
        let mut last = at;
        let start = space_at(book, &at).and_then(|space| self.numbers.get(space, path.pc));
        let all = start.into_iter().chain(path.hops.iter().flat_map(|hop| [hop.0, hop.1]));
        all.filter_map(|number| self.ops.get(number as usize)).all(|made| {
            if !(last.mapped.start..last.mapped.end).contains(&made.at) {
                let Some(found) = book.code_at(who, made.at) else { return false };
                last = found;
            }
            self.stretches.get(made.stretch as usize) == Some(&stretch_of(&last))
        })
    }

    /// The runs between transfers of control.
    fn tell(&self, book: &mut Book, who: Who, path: &Path) {
        let address = |number: u32| self.ops.get(number as usize).map_or(0, |m| m.at);
        let hop = |&(from, to): &(u32, u32)| BranchEntry { from: address(from), to: address(to), flags: 0 };
        // The last one first, as records come.
        let stack: Vec<BranchEntry> = path.hops.iter().rev().map(hop).collect();
        branches::take(book, who, &stack, EdgeSource::Walks);
    }

    /// What was not known when a walk came there.
    fn go_on(&mut self, book: &Book, files: &mut CodeFiles, process: &Process, path: &Path) {
        let last = path.last;
        let Some(made) = self.ops.get(last as usize).copied() else { return };
        let known = if path.at_target { made.op.taken } else { made.op.next };
        let wanted = if path.at_target { made.target } else { made.next };
        let Some(wanted) = wanted.filter(|_| known == NO_OP) else { return };
        let Some(number) = self.prepare(book, files, process, wanted.get()) else { return };
        let op = &mut self.ops[last as usize].op;
        *(if path.at_target { &mut op.taken } else { &mut op.next }) = number;
        self.orders.ops.push((last, *op));
    }

    /// Gives up all that is prepared.
    pub(crate) fn begin_anew(&mut self) {
        if self.ops.is_empty() && self.orders == WalkOrders::default() {
            // Perhaps nobody wants walks at all.
            return;
        }
        let code = self.code.wrapping_add(1);
        let orders = WalkOrders { anew: Some(code), every: self.orders.every, ..WalkOrders::default() };
        *self = Self { code, orders, pace: self.pace, room: self.room, ..Self::default() };
    }

    /// Some address that prepared code leads to, which is not prepared itself.
    #[cfg(test)]
    pub(super) fn some_awaited(&self) -> Option<(u64, u32)> {
        let (at, from) = self.awaited.iter().min_by_key(|(at, _)| at.1)?;
        Some((at.1, from.first()?.0))
    }

    /// The number of the instruction at a runtime address, prepared with what can be reached from it without
    /// knowing anything.
    fn prepare(&mut self, book: &Book, files: &mut CodeFiles, process: &Process, at: u64) -> Option<u32> {
        let &Process { who, life, .. } = process;
        if let Some(number) = self.numbers.get(Space::Life(life), at) {
            return Some(number);
        }
        let code = book.code_at(who, at).filter(|c| c.life == life)?;
        let mapped = code.mapped;
        let bias = load_bias(&book.image(mapped.image).segments, mapped.start, mapped.offset)?;
        let space = Space::of(life, mapped.image, bias);
        if let Space::Fixed(image) = space {
            if !self.fixed.iter().any(|f| f.0 == image) {
                self.fixed.push((image, at));
            }
            self.join(process, image);
            if let Some(number) = self.numbers.get(space, at) {
                return Some(number);
            }
        }
        let file = files.get(book, &code)?;
        if self.ops.is_empty() {
            self.ops.push(Made { at: 0, stretch: u32::MAX, op: Op::default(), next: None, target: None });
        }
        let stretch = self.stretch(&code);
        let first = self.ops.len();
        let mut todo = VecDeque::from([at]);
        while let Some(at) = todo.pop_front().filter(|_| self.ops.len() - first < MOST_AT_ONCE) {
            let inside = (mapped.start..mapped.end).contains(&at);
            if !inside || self.numbers.get(space, at).is_some() {
                continue;
            }
            let Some(found) = self.preparer.at(file, Svma(at.wrapping_sub(bias)), bias) else { continue };
            let runtime = |stated: Option<Svma>| stated.and_then(|s| NonZeroU64::new(s.0.wrapping_add(bias)));
            let made = Made { at, stretch, op: found.op, next: runtime(found.next), target: runtime(found.target) };
            let (number, start) = (self.ops.len() as u32, space.start(at, process));
            self.numbers.insert(space, at, number);
            self.orders.starts.push((start, number));
            self.ops.push(made);
            let back = runtime(found.returns_to);
            match (made.next, made.target, back) {
                // What is not left in between is as near as its beginning.
                (Some(next), None, None) => todo.push_front(next.get()),
                (next, target, back) => todo.extend([next, target, back].into_iter().flatten().map(NonZeroU64::get)),
            }
        }
        self.link(space, first);
        self.numbers.get(space, at)
    }

    /// A process has begun to execute a program: what others of it know it is to know from its first sample on.
    pub(crate) fn begun(&mut self, book: &Book, task: &Task, mut barred: impl FnMut(LifeNo) -> bool) {
        let who = Who::At { pid: task.tgid, tid: task.tid, time: task.time };
        for (image, at) in self.fixed.clone() {
            let Some(found) = book.code_at(who, at).filter(|found| found.mapped.image == image) else { continue };
            if !barred(found.life) {
                let process = Process { who, life: found.life, tgid: task.tgid, tag: task.tag };
                self.join(&process, image);
            }
        }
    }

    /// No more walks than so many a second, of all CPUs.
    pub(crate) fn limit(&mut self, walks: f64) {
        self.pace.limit(walks);
    }

    /// Whether most walks end in code that is not prepared.
    pub(crate) fn is_learning(&self) -> bool {
        self.pace.is_learning()
    }

    fn stretch(&mut self, code: &CodeAt) -> u32 {
        let of = stretch_of(code);
        let known = self.stretches.iter().rposition(|known| *known == of);
        known.unwrap_or_else(|| {
            self.stretches.push(of);
            self.stretches.len() - 1
        }) as u32
    }

    /// Has a process go on in what others of the same executable know.
    fn join(&mut self, process: &Process, image: ImageNo) {
        let start = Start { pc: 0, tgid: process.tgid, tag: process.tag };
        if self.joined.insert(start) {
            self.orders.starts.push((start, number_of(image)));
        }
    }

    /// Leads new instructions to their successors, as far as these are prepared, and others to them.
    fn link(&mut self, space: Space, first: usize) {
        for number in first..self.ops.len() {
            let Made { at, next, target, .. } = self.ops[number];
            for (to, is_target) in [(next, false), (target, true)] {
                let Some(to) = to.map(NonZeroU64::get) else { continue };
                match self.numbers.get(space, to) {
                    Some(found) => self.lead(number as u32, is_target, found),
                    None => self.awaited.entry((space, to)).or_default().push((number as u32, is_target)),
                }
            }
            for (from, is_target) in self.awaited.remove(&(space, at)).into_iter().flatten() {
                self.lead(from, is_target, number as u32);
                if (from as usize) < first {
                    self.orders.ops.push((from, self.ops[from as usize].op));
                }
            }
        }
        let new = self.ops.iter().enumerate().skip(first);
        self.orders.ops.extend(new.map(|(number, made)| (number as u32, made.op)));
    }

    fn lead(&mut self, from: u32, is_target: bool, to: u32) {
        let op = &mut self.ops[from as usize].op;
        *(if is_target { &mut op.taken } else { &mut op.next }) = to;
    }

    /// What is to change in the kernel.
    pub(crate) fn orders(&mut self) -> WalkOrders {
        std::mem::take(&mut self.orders)
    }
}

fn stretch_of(code: &CodeAt) -> (ImageNo, u64) {
    (code.mapped.image, code.mapped.start.wrapping_sub(code.mapped.offset))
}

/// Whose the code at a place is.
fn space_at(book: &Book, at: &CodeAt) -> Option<Space> {
    let bias = load_bias(&book.image(at.mapped.image).segments, at.mapped.start, at.mapped.offset)?;
    Some(Space::of(at.life, at.mapped.image, bias))
}
