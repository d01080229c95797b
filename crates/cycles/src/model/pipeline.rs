//! One instruction after the other through the pipeline: when it enters, starts, ends and retires, and what it waited
//! for. Loads hit the first cache and branches are foreseen. A port is not booked for a time but carries a backlog, so
//! that a late instruction does not hold back an earlier one that comes behind it in the program.

use super::{CoreModel, MOST_PORTS, Order, Work};
use crate::results::analysis::Cause;
use whither_image::{Effects, MemRef, OpClass, RegSet};

/// The front end is never further ahead of retirement, in cycles: the reorder buffer is full by then.
const MOST_LEAD: i32 = 256;
/// Lead at the start of a stretch without known history: enough to hide a load.
const FIRST_LEAD: i32 = 8;
/// Cycles that fetching runs ahead of what enters, at most: what queues of decoded instructions hold.
const FETCHED_AHEAD: i32 = 8;
/// Stores whose bytes later loads may take.
const STORES_KEPT: usize = 8;
/// Nobody.
pub(super) const NOBODY: u32 = u32::MAX;

/// Cycle and how many slots of it are taken.
#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    cycle: i32,
    used: u32,
}

impl Slots {
    /// Takes a slot not before `from`.
    fn take(&mut self, from: i32, width: u32) -> i32 {
        if from > self.cycle {
            *self = Self { cycle: from, used: 0 };
        }
        if self.used >= width {
            *self = Self { cycle: self.cycle + 1, used: 0 };
        }
        self.used += 1;
        self.cycle
    }
}

/// A store that has not left the store buffer.
#[derive(Clone, Copy, Debug)]
struct Stored {
    place: MemRef,
    registers: RegSet,
    ready: i32,
    by: u32,
}

/// What an instruction waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Cycles between the retirement before and its own (issues, in order).
    pub(super) gap: i32,
    /// Why, when the gap is not 0.
    pub(super) cause: Cause,
    /// On whom.
    pub(super) on: u32,
}

/// The pipeline between two instructions.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    ready: [i32; 64],
    writer: [u32; 64],
    ports: [i32; MOST_PORTS],
    front: Slots,
    back: Slots,
    /// Taken branches that fetching went by.
    jumps: Slots,
    stores: [Option<Stored>; STORES_KEPT],
    next_store: usize,
    kept: RegSet,
}

/// When something is there, and who made it.
#[derive(Clone, Copy)]
struct When {
    at: i32,
    by: u32,
}

impl When {
    fn later(self, other: Self) -> Self {
        if other.at > self.at { other } else { self }
    }
}

impl Pipeline {
    pub(super) fn new(order: Order) -> Self {
        let lead = if order == Order::InOrder { 0 } else { FIRST_LEAD };
        Self {
            ready: [0; 64],
            writer: [NOBODY; 64],
            ports: [0; MOST_PORTS],
            front: Slots::default(),
            back: Slots { cycle: lead, used: 0 },
            jumps: Slots::default(),
            stores: [None; STORES_KEPT],
            next_store: 0,
            kept: RegSet::NONE,
        }
    }

    /// The same with times counted from the last retirement, so that they stay small.
    pub(super) fn rebased(&self) -> Self {
        let mut new = self.clone();
        let zero = self.back.cycle;
        let shift = |t: &mut i32| *t = (*t - zero).max(-4 * MOST_LEAD);
        new.ready.iter_mut().for_each(shift);
        new.ports.iter_mut().for_each(shift);
        new.stores.iter_mut().flatten().for_each(|s| shift(&mut s.ready));
        shift(&mut new.front.cycle);
        shift(&mut new.jumps.cycle);
        new.back.cycle = 0;
        new
    }

    /// A branch was taken. In order what follows comes in another cycle. Out of order fetching runs ahead, and what it brings enters
    /// as if there had been no branch, unless branches are taken faster than it goes by them. (Measured, AMD family 25 model 17, six
    /// slots: loops of 7 and 8 take 1.17 and 1.33 cycles, such of two jumps 2.)
    pub(super) fn redirect(&mut self, core: &dyn CoreModel) {
        if core.order() == Order::InOrder {
            self.front = Slots { cycle: self.front.cycle + 1, used: 0 };
            self.back = Slots { cycle: self.back.cycle, used: core.retire_width() };
        } else {
            let per_cycle = core.most_taken().round().max(1.0) as u32;
            let fetched = self.jumps.take(self.front.cycle - FETCHED_AHEAD, per_cycle);
            if fetched > self.front.cycle {
                self.front = Slots { cycle: fetched, used: 0 };
            }
        }
    }

    /// One instruction. `fused`: it goes through with the one before.
    pub(super) fn step(&mut self, core: &dyn CoreModel, insn: &Effects, work: &Work, fused: bool, me: u32) -> Step {
        match core.order() {
            Order::OutOfOrder => self.step_out_of_order(core, insn, work, fused, me),
            Order::InOrder => self.step_in_order(core, insn, work, me),
        }
    }

    fn step_out_of_order(&mut self, core: &dyn CoreModel, insn: &Effects, work: &Work, fused: bool, me: u32) -> Step {
        let entered =
            if fused { self.front.cycle } else { self.front.take(self.back.cycle - MOST_LEAD, core.dispatch_width()) };
        let mut first = entered + 1;
        if work.alone {
            first = first.max(self.back.cycle);
        }
        let operands = self.operands(core, insn, work, first);
        // A pair is one operation: it goes through one unit, with its first.
        let (ports, latency) = if fused { (0, 0) } else { (work.ports, work.latency) };
        let start = self.on_port(ports, work.busy, entered, operands.at.max(first));
        let waited_for_port = start > operands.at.max(first);
        let result = start + i32::from(latency);
        if insn.store.is_some() {
            self.on_port(core.store_ports(), 1, entered, start);
        }
        // A copy made by renaming is complete at once, its value is not.
        let copied = matches!(insn.class, OpClass::Move | OpClass::Nop | OpClass::ZeroIdiom);
        let complete = if copied { first } else { result };
        let stored = if insn.class == OpClass::Lock { result - i32::from(core.forward_latency()) } else { result };
        self.record(insn, if insn.class == OpClass::ZeroIdiom { first } else { result }, stored, me);
        insn.late.numbers().for_each(|r| self.ready[r] += i32::from(work.late));
        if work.alone {
            self.front = Slots { cycle: self.front.cycle.max(complete), used: 0 };
        }
        let before = self.back.cycle;
        let gap = self.retire(complete, core.retire_width(), fused) - before;
        if complete <= before {
            Step { gap, cause: Cause::Width, on: NOBODY }
        } else if waited_for_port {
            Step { gap, cause: Cause::Port, on: me }
        } else if operands.at > first && operands.by != NOBODY {
            Step { gap, cause: Cause::Operand, on: operands.by }
        } else if work.latency > 1 || insn.load.is_some() {
            Step { gap, cause: Cause::Operand, on: me }
        } else {
            Step { gap, cause: Cause::Width, on: NOBODY }
        }
    }

    fn retire(&mut self, complete: i32, width: u32, fused: bool) -> i32 {
        if fused && complete <= self.back.cycle {
            return self.back.cycle;
        }
        self.back.take(complete, width)
    }

    /// In order: an instruction starts when its operands and a port are there and nothing before it waits.
    fn step_in_order(&mut self, core: &dyn CoreModel, insn: &Effects, work: &Work, me: u32) -> Step {
        let before = self.back.cycle;
        let operands = insn.reads.numbers().fold(When { at: before, by: NOBODY }, |w, r| w.later(self.register(r)));
        let issue = Slots::take(&mut self.back.clone(), operands.at, core.retire_width());
        let ports = if insn.load.is_some() {
            core.load_ports()
        } else if insn.store.is_some() {
            core.store_ports()
        } else {
            work.ports
        };
        let free = (0..MOST_PORTS).filter(|p| ports & (1 << p) != 0).map(|p| self.ports[p]).min().unwrap_or(issue);
        let start = self.back.take(issue.max(free), core.retire_width());
        let lowest = (0..MOST_PORTS).find(|p| ports & (1 << p) != 0 && self.ports[*p] <= start);
        if let Some(p) = lowest {
            self.ports[p] = start + i32::from(work.busy.max(1));
        }
        let latency = if insn.load.is_some() { work.load_latency } else { work.latency };
        let result = start + i32::from(latency);
        self.record(insn, result, result, me);
        let gap = start - before;
        if operands.at > before {
            Step { gap, cause: Cause::Operand, on: operands.by }
        } else if start > issue {
            Step { gap, cause: Cause::Port, on: me }
        } else {
            Step { gap, cause: Cause::Width, on: NOBODY }
        }
    }

    fn register(&self, number: usize) -> When {
        When { at: self.ready[number & 63], by: self.writer[number & 63] }
    }

    /// When the last operand is there, the loaded one included.
    fn operands(&mut self, core: &dyn CoreModel, insn: &Effects, work: &Work, first: i32) -> When {
        let nothing = When { at: first, by: NOBODY };
        let kept = |r: usize| if insn.merges.0 >> r & 1 == 1 { i32::from(work.merge_late) } else { 0 };
        let when = |p: &Self, r: usize| When { at: p.register(r).at - kept(r), ..p.register(r) };
        let all = |p: &Self, set: RegSet| set.numbers().fold(nothing, |w, r| w.later(when(p, r)));
        let Some(load) = insn.load else { return all(self, insn.reads) };
        // What is data as well is needed for the address at times: then it is counted for both.
        let address = all(self, RegSet(load.registers().0 & insn.reads.0));
        let data = all(self, insn.reads.without(insn.address_reads));
        let start = self.on_port(core.load_ports(), 1, first - 1, address.at);
        let loaded = When { at: start + i32::from(work.load_latency), by: address.by };
        // What was measured of locked operations on one place has the way from one to the next in it.
        let forwarded = self.forwarded(&load).filter(|_| insn.class != OpClass::Lock);
        let loaded = match forwarded {
            Some(store) => When { at: store.ready + i32::from(core.forward_latency()), by: store.by }
                .later(When { at: address.at + 1, by: address.by }),
            None => loaded,
        };
        data.later(loaded)
    }

    /// The store that a load of exactly the same place takes its value from.
    fn forwarded(&self, load: &MemRef) -> Option<Stored> {
        let newest_first = (0..STORES_KEPT).rev().map(|k| (self.next_store + k) % STORES_KEPT);
        let mut same = newest_first.filter_map(|k| self.stores[k]).filter(|s| s.place.same_base(load));
        same.find(|s| s.place.disp == load.disp && s.place.width >= load.width)
    }

    fn on_port(&mut self, ports: u32, busy: u16, entered: i32, ready: i32) -> i32 {
        let mut best = None;
        let mut left = ports;
        while left != 0 {
            let port = left.trailing_zeros() as usize;
            left &= left - 1;
            if best.is_none_or(|b: usize| self.ports[port] < self.ports[b]) {
                best = Some(port);
            }
        }
        let Some(port) = best else { return ready };
        let slot = self.ports[port].max(entered);
        self.ports[port] = slot + i32::from(busy);
        ready.max(slot)
    }

    /// `stored`: when what it stores is there.
    fn record(&mut self, insn: &Effects, result: i32, stored: i32, me: u32) {
        for r in insn.writes.numbers() {
            self.ready[r] = result;
            self.writer[r] = me;
        }
        let moves_stack = matches!(insn.class, OpClass::Call | OpClass::Return)
            || [insn.load, insn.store].iter().flatten().any(|m| m.stack && !insn.reads.meets(RegSet::RSP));
        let lost = if moves_stack { insn.writes.with(RegSet::RSP) } else { insn.writes };
        if self.kept.meets(lost) {
            self.forget(lost);
        }
        if let Some(place) = insn.store {
            self.keep(Stored { place, registers: place.registers(), ready: stored, by: me });
        }
    }

    /// Addresses made from these registers mean other places now.
    fn forget(&mut self, lost: RegSet) {
        self.kept = RegSet::NONE;
        for slot in &mut self.stores {
            if slot.is_some_and(|s| s.registers.meets(lost)) {
                *slot = None;
            }
            self.kept = slot.map_or(self.kept, |s| self.kept.with(s.registers));
        }
    }

    fn keep(&mut self, store: Stored) {
        self.stores[self.next_store] = Some(store);
        self.next_store = (self.next_store + 1) % STORES_KEPT;
        self.kept = self.kept.with(store.registers);
    }
}
