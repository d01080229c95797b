//! Walks: code is prepared for the kernel side, which executes it in thought from some samples on, and what it tells
//! becomes runs, as of branch records. Lives here: which code is prepared, under which numbers, and how a record is read.
//! Not here: what instructions mean (`whither_image::interp`), how the kernel side walks (`bpf/paths.h`).
//! Constraint: code is prepared only where walks wanted to go, and numbers are given once until all are given anew, so that
//! a walk under way never meets another instruction under a number it holds.

use super::code::CodeFiles;
use super::pace::Pace;
use crate::book::{Book, CodeAt, Who};
use crate::branches;
use crate::lives::{ImageNo, LifeNo};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use whither_abi::path::{End, NO_OP, Op, Path, Start};
use whither_image::interp::Preparer;
use whither_image::{Svma, load_bias};
use whither_kernel::records::BranchEntry;
use whither_store::model::EdgeSource;

/// Instructions that the kernel side has room for; walks may begin at each of them. A compiler's walks meet some hundred
/// thousand, and had to begin anew every few seconds with a quarter of this; it takes 33 MB of the kernel's memory.
pub(crate) const OP_ROOM: u32 = 1 << 18;
/// The life that code at a fixed address belongs to, as `WH_PATH_FIXED`.
const FIXED: u32 = u32::MAX;
/// Instructions of a walk that are told.
pub(crate) const TELLS: u32 = 300;
/// So many before them tell nothing, and by chance up to [`TELLS`] more.
pub(crate) const SETTLES: u32 = 48;
/// A walk from one in so many samples, at first and at most.
pub(crate) const EVERY: u32 = 5;
/// Instructions prepared at a time, those nearest in number of branches: a program that spends its time everywhere executes a part only
/// of what can be reached, and what is prepared in vain takes room.
const MOST_AT_ONCE: usize = 128;

/// A change of what the kernel side knows, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkOrders {
    /// Everything known before is void, these starts among it; numbers are of this preparation from now on.
    pub(crate) anew: Option<(u32, Vec<Start>)>,
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
    numbers: FxHashMap<(Space, u64), u32>,
    starts: Vec<Start>,
    /// Lives that share code at fixed addresses with others.
    joined: FxHashSet<Start>,
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
    /// What was mapped there.
    place: (ImageNo, u64),
    op: Op,
    /// Runtime addresses of what may follow.
    next: Option<u64>,
    target: Option<u64>,
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
        // One more for the process itself.
        if self.starts.len() + MOST_AT_ONCE + 1 >= self.room.0 {
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
        let start = space_at(book, &at).and_then(|space| self.numbers.get(&(space, path.pc)).copied());
        let all = start.into_iter().chain(path.hops.iter().flat_map(|hop| [hop.0, hop.1]));
        all.filter_map(|number| self.ops.get(number as usize)).all(|made| {
            if !(last.mapped.start..last.mapped.end).contains(&made.at) {
                let Some(found) = book.code_at(who, made.at) else { return false };
                last = found;
            }
            (last.mapped.image, last.mapped.offset_of(made.at)) == made.place
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
        let Some(number) = self.prepare(book, files, process, wanted) else { return };
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
        let mut gone = std::mem::take(&mut self.starts);
        // An order that was not carried out yet still stands.
        gone.extend(self.orders.anew.take().into_iter().flat_map(|(_, gone)| gone));
        let orders = WalkOrders { anew: Some((code, gone)), every: self.orders.every, ..WalkOrders::default() };
        *self = Self { code, orders, pace: self.pace, room: self.room, ..Self::default() };
    }

    /// The number of the instruction at a runtime address, prepared with what can be reached from it without
    /// knowing anything.
    fn prepare(&mut self, book: &Book, files: &mut CodeFiles, process: &Process, at: u64) -> Option<u32> {
        let &Process { who, life, .. } = process;
        if let Some(number) = self.numbers.get(&(Space::Life(life), at)) {
            return Some(*number);
        }
        let code = book.code_at(who, at).filter(|c| c.life == life)?;
        let mapped = code.mapped;
        let bias = load_bias(&book.image(mapped.image).segments, mapped.start, mapped.offset)?;
        let space = Space::of(life, mapped.image, bias);
        if let Space::Fixed(image) = space {
            self.join(process, image);
            if let Some(number) = self.numbers.get(&(space, at)) {
                return Some(*number);
            }
        }
        let file = files.get(book, &code)?;
        if self.ops.is_empty() {
            self.ops.push(Made { at: 0, place: (mapped.image, 0), op: Op::default(), next: None, target: None });
        }
        let first = self.ops.len();
        let mut todo = VecDeque::from([at]);
        while let Some(at) = todo.pop_front().filter(|_| self.ops.len() - first < MOST_AT_ONCE) {
            let inside = (mapped.start..mapped.end).contains(&at);
            if !inside || self.numbers.contains_key(&(space, at)) {
                continue;
            }
            let Some(found) = self.preparer.at(file, Svma(at.wrapping_sub(bias)), bias) else { continue };
            let runtime = |stated: Option<Svma>| stated.map(|s| s.0.wrapping_add(bias));
            let place = (mapped.image, mapped.offset_of(at));
            let made = Made { at, place, op: found.op, next: runtime(found.next), target: runtime(found.target) };
            let (number, start) = (self.ops.len() as u32, space.start(at, process));
            self.numbers.insert((space, at), number);
            self.starts.push(start);
            self.orders.starts.push((start, number));
            self.ops.push(made);
            let back = runtime(found.returns_to);
            match (made.next, made.target, back) {
                // What is not left in between is as near as its beginning.
                (Some(next), None, None) => todo.push_front(next),
                (next, target, back) => todo.extend([next, target, back].into_iter().flatten()),
            }
        }
        self.link(space, first);
        self.numbers.get(&(space, at)).copied()
    }

    /// Has a process go on in what others of the same executable know.
    fn join(&mut self, process: &Process, image: ImageNo) {
        let start = Start { pc: 0, tgid: process.tgid, tag: process.tag };
        if self.joined.insert(start) {
            self.starts.push(start);
            self.orders.starts.push((start, number_of(image)));
        }
    }

    /// Leads new instructions to their successors, as far as these are prepared.
    fn link(&mut self, space: Space, first: usize) {
        for number in first..self.ops.len() {
            let Made { next, target, .. } = self.ops[number];
            let find = |at: Option<u64>| at.and_then(|at| self.numbers.get(&(space, at)).copied()).unwrap_or(NO_OP);
            let (next, taken) = (find(next), find(target));
            let op = &mut self.ops[number].op;
            (op.next, op.taken) = (next, taken);
            self.orders.ops.push((number as u32, *op));
        }
    }

    /// What is to change in the kernel.
    pub(crate) fn orders(&mut self) -> WalkOrders {
        std::mem::take(&mut self.orders)
    }
}

/// Whose the code at a place is.
fn space_at(book: &Book, at: &CodeAt) -> Option<Space> {
    let bias = load_bias(&book.image(at.mapped.image).segments, at.mapped.start, at.mapped.offset)?;
    Some(Space::of(at.life, at.mapped.image, bias))
}
