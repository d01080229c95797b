//! Walks: code is prepared for the kernel side, which executes it in thought from some samples on, and what it tells
//! becomes runs, as of branch records. Lives here: which code is prepared, under which numbers, and how a record is read.
//! Not here: what instructions mean (`whither_image::interp`), how the kernel side walks (`bpf/paths.h`), where processes have
//! what (`spaces`). Constraint: code is prepared only where walks wanted to go, and numbers are given once until all are given
//! anew, so that a walk under way never meets another instruction under a number it holds. They are of images: what one process
//! has walked through the next one knows from its first sample on, wherever it lies there. Programs are started a thousand
//! times a build.

use super::code::CodeFiles;
use super::numbers::Numbers;
use super::pace::Pace;
use super::spaces::{Spaces, bias_of};
use crate::book::{Book, Who};
use crate::branches::{self, Walked as Walk};
use crate::lives::{ImageNo, LifeNo};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use whither_abi::Task;
use whither_abi::path::{End, Life, NEAR, NO_OP, Op, Part, Path};
use whither_image::Svma;
use whither_image::interp::Preparer;
use whither_kernel::records::BranchEntry;

/// Instructions that the kernel side has room for; walks may begin at each of them. A compiler executes 600,000, and its walks had to
/// begin anew every few seconds with an eighth of this. With where they stand it takes 74 MB of the kernel's memory.
pub(crate) const OP_ROOM: u32 = 1 << 20;
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
    /// Where instructions stand: image, stated address, number.
    pub(crate) places: Vec<(ImageNo, u64, u32)>,
    /// What processes have mapped; none any more.
    pub(crate) spaces: Vec<(Life, Vec<Part>)>,
    /// A walk from one in so many samples from now on.
    pub(crate) every: Option<u32>,
}

/// What has been prepared.
#[derive(Default)]
pub(crate) struct Walked {
    preparer: Preparer,
    /// By number; 0 is nobody's.
    ops: Vec<Made>,
    numbers: Numbers<ImageNo>,
    /// Instructions that are not prepared, and those that lead there: number, and whether it is their target.
    awaited: FxHashMap<(ImageNo, u64), Vec<(u32, bool)>>,
    spaces: Spaces,
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

#[derive(Clone, Copy, Debug)]
struct Made {
    image: ImageNo,
    /// Stated address, as those of what may follow.
    at: u64,
    op: Op,
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
        let Some(life) = book.code_at(who, path.pc).map(|at| at.life) else { return };
        let key = Life { tgid: path.tgid, tag: path.tag };
        let Some(hops) = self.addresses(book, who, key, path) else {
            // Libraries come and go, and the kernel side does not know yet.
            if !barred(life) {
                self.spaces.tell(book, who, key);
            }
            return;
        };
        let walk = Walk {
            hops: &hops,
            passed: path.passed,
            near: path.near,
            near_insns: self.insns_near(path),
            whole: (path.end == End::Length).then_some(TELLS),
        };
        branches::take_walk(book, who, path.pc, &walk);
        if path.end != End::NewCode || barred(life) {
            return;
        }
        if self.ops.len() + MOST_AT_ONCE >= self.room.0 {
            return self.begin_anew();
        }
        if path.wanted == 0 {
            self.go_on(book, files, (who, key), path);
        } else {
            self.prepare(book, files, who, path.wanted);
            self.spaces.tell(book, who, key);
        }
    }

    /// The transfers of control of a walk, the last one first, as records come. `None` where it went through what is not mapped there.
    fn addresses(&self, book: &Book, who: Who, key: Life, path: &Path) -> Option<Vec<BranchEntry>> {
        let mut space = self.spaces.of(book, who, key);
        if !path.hops.is_empty() && !space.holds(path.pc) {
            return None;
        }
        let mut address = |number: u32| {
            let made = self.ops.get(number as usize)?;
            space.address(made.image, made.at)
        };
        let hop = |&(from, to): &(u32, u32)| Some(BranchEntry { from: address(from)?, to: address(to)?, flags: 0 });
        path.hops.iter().rev().map(hop).collect()
    }

    /// Instructions of the runs near the beginning of a walk.
    fn insns_near(&self, path: &Path) -> u32 {
        let next = |number: u32| self.ops.get(number as usize).map(|made| made.op.next);
        let of_run = |to: u32, from: u32| {
            let insns = std::iter::successors(Some(to), |at| next(*at)).take(NEAR as usize);
            1 + insns.take_while(|at| *at != from && *at != NO_OP).count() as u32
        };
        let near = &path.hops[..path.near.min(path.hops.len())];
        near.windows(2).map(|hops| of_run(hops[0].1, hops[1].0)).sum()
    }

    /// What was not known when a walk came there.
    fn go_on(&mut self, book: &Book, files: &mut CodeFiles, (who, key): (Who, Life), path: &Path) {
        let last = path.last;
        let Some(made) = self.ops.get(last as usize).copied() else { return };
        let known = if path.at_target { made.op.taken } else { made.op.next };
        let wanted = if path.at_target { made.target } else { made.next };
        let Some(wanted) = wanted.filter(|_| known == NO_OP) else { return };
        let Some(at) = self.spaces.of(book, who, key).address(made.image, wanted.get()) else { return };
        let Some(number) = self.prepare(book, files, who, at) else { return };
        // A branch may lead into another image where linkers have made one of two.
        if self.ops.get(number as usize).is_none_or(|to| to.image != made.image) {
            return;
        }
        let op = &mut self.ops[last as usize].op;
        *(if path.at_target { &mut op.taken } else { &mut op.next }) = number;
        self.orders.ops.push((last, *op));
    }

    /// Gives up all that is prepared.
    pub(crate) fn begin_anew(&mut self) {
        if self.ops.is_empty() && self.spaces.is_empty() && self.orders == WalkOrders::default() {
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
    fn prepare(&mut self, book: &Book, files: &mut CodeFiles, who: Who, at: u64) -> Option<u32> {
        let code = book.code_at(who, at)?;
        let mapped = code.mapped;
        let (image, bias) = (mapped.image, bias_of(book, &mapped)?);
        let at = at.wrapping_sub(bias);
        if let Some(number) = self.numbers.get(image, at) {
            return Some(number);
        }
        let file = files.get(book, &code)?;
        if self.ops.is_empty() {
            self.ops.push(Made { image, at: 0, op: Op::default(), next: None, target: None });
        }
        let first = self.ops.len();
        let mut todo = VecDeque::from([at]);
        while let Some(at) = todo.pop_front().filter(|_| self.ops.len() - first < MOST_AT_ONCE) {
            let inside = (mapped.start..mapped.end).contains(&at.wrapping_add(bias));
            if !inside || self.numbers.get(image, at).is_some() {
                continue;
            }
            let Some(found) = self.preparer.at(file, Svma(at)) else { continue };
            let stated = |at: Option<Svma>| at.and_then(|at| NonZeroU64::new(at.0));
            let made = Made { image, at, op: found.op, next: stated(found.next), target: stated(found.target) };
            let number = self.ops.len() as u32;
            self.numbers.insert(image, at, number);
            self.orders.places.push((image, at, number));
            self.ops.push(made);
            let back = stated(found.returns_to);
            match (made.next, made.target, back) {
                // What is not left in between is as near as its beginning.
                (Some(next), None, None) => todo.push_front(next.get()),
                (next, target, back) => todo.extend([next, target, back].into_iter().flatten().map(NonZeroU64::get)),
            }
        }
        self.link(image, first);
        self.numbers.get(image, at)
    }

    /// A process has begun to execute a program: what others of it know it is to know from its first sample on.
    pub(crate) fn begun(&mut self, book: &Book, task: &Task, mut barred: impl FnMut(LifeNo) -> bool) {
        let who = Who::At { pid: task.tgid, tid: task.tid, time: task.time };
        let Some((life, _)) = book.life_of(who).filter(|_| !self.ops.is_empty()) else { return };
        if !barred(life) {
            self.spaces.tell(book, who, Life { tgid: task.tgid, tag: task.tag });
        }
    }

    /// Forgets processes that the book has forgotten.
    pub(crate) fn forget(&mut self, book: &Book) {
        self.spaces.forget(book);
    }

    /// No more walks than so many a second, of all CPUs.
    pub(crate) fn limit(&mut self, walks: f64) {
        self.pace.limit(walks);
    }

    /// Whether most walks end in code that is not prepared.
    pub(crate) fn is_learning(&self) -> bool {
        self.pace.is_learning()
    }

    /// Leads new instructions to their successors, as far as these are prepared, and others to them.
    fn link(&mut self, image: ImageNo, first: usize) {
        for number in first..self.ops.len() {
            let Made { at, next, target, .. } = self.ops[number];
            for (to, is_target) in [(next, false), (target, true)] {
                let Some(to) = to.map(NonZeroU64::get) else { continue };
                match self.numbers.get(image, to) {
                    Some(found) => self.lead(number as u32, is_target, found),
                    None => self.awaited.entry((image, to)).or_default().push((number as u32, is_target)),
                }
            }
            for (from, is_target) in self.awaited.remove(&(image, at)).into_iter().flatten() {
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
        self.orders.spaces = self.spaces.orders();
        std::mem::take(&mut self.orders)
    }
}
