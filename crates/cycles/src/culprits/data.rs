//! Causes that data brings: loads that miss, translations that are walked for, stores that wait for room. A missing load is waited for at the load itself; a full store buffer empties the
//! pipeline, so that its stall stands just before a store, or at it.

use super::places::{at_hand, drained, fixed_place, span};
use super::scene::{LONG_RUNNING, Lay, LoopFacts};
use super::{Likelihood, Suspect};
use crate::analysis::Threads;
use crate::results::analysis::Cause;
use whither_image::{Effects, MemRef, OpClass, RegSet};

const LINE: i64 = 64;
pub(super) const PAGE: i64 = 4096;
/// Accesses further back than this are not "just before".
pub(super) const NEAR: usize = 32;
/// Instructions back to which stores may still wait in the store buffer.
pub(super) const IN_FLIGHT: usize = 200;
/// Stores that fill a store buffer when they come without a loop.
const BURST: usize = 32;
/// How far from a site a store may stand that had no room: those that enter together, before or behind it.
const ENTER_TOGETHER: usize = 4;
/// Between an entry of a table of jumps and the jump there are fewer instructions.
const TO_JUMP: usize = 3;
/// Cycles after which a store may have left the store buffer.
const LEAVES_AFTER: f64 = 10.0;
/// Worst case of a load against one from idle memory.
const QUEUED: f64 = 2.0;

/// D: ruled out without a load. That its line was accessed just before rules out that the cache had to be filled from afar, or leaves no more
/// chance than the way to the next line; it does not rule out that another core has written to the line since and taken it away: that depends
/// on who else runs ([`taken_away`]). Bound: memory under load.
pub(super) fn data_cache(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let surely_hits = |m: &MemRef| m.stack && fixed_place(lay, i, m);
    let load = loads(lay, i).filter(|m| !surely_hits(m))?;
    let filled = new_unit(lay, i, &load, LINE).or_else(|| is_only_read(lay, i, &load).then_some(1.0));
    let filled = filled.map(|chance| (chance, fill_likelihood(lay, i, &load)));
    let taken = taken_away(lay, i, &load).map(|likelihood| (1.0, likelihood));
    let chance = [filled, taken].into_iter().flatten().map(|s| s.0).reduce(f64::max)?;
    let likelihood = [filled, taken].into_iter().flatten().map(|s| s.1).min()?;
    let gathered = if lay.scene.insns[i].class == OpClass::Gather { 4.0 } else { 1.0 };
    let bound = chance * gathered * QUEUED * lay.scene.core.penalty.dram;
    Some(Suspect { cause: Cause::DCache, bound, at: i, likelihood })
}

/// How likely it is that a line comes from afar.
fn fill_likelihood(lay: &Lay<'_>, i: usize, load: &MemRef) -> Likelihood {
    let known = fixed_place(lay, i, load) || (load.stack && load.index.is_none()) || says_where_to_jump(lay, i, load);
    match known {
        _ if at_hand(lay, i, load) => Likelihood::Remote,
        true => Likelihood::Faint,
        false => Likelihood::Usual,
    }
}

/// How likely it is that another core has taken the line of a load that was accessed here just before. Nobody does where one thread runs, or
/// one core; none takes lines of the stack; and what was stored so lately that it has not left the store buffer is had from there. Where
/// several threads were seen to run at once, and this one writes close by, others are likely to write there too.
fn taken_away(lay: &Lay<'_>, i: usize, load: &MemRef) -> Option<Likelihood> {
    if load.stack || load.segment || lay.scene.threads == Threads::One || is_still_stored(lay, i, load) {
        return None;
    }
    let in_loop = lay.loop_of(i).filter(|l| l.trips >= LONG_RUNNING);
    match (lay.scene.threads, in_loop) {
        (Threads::Parallel, Some(l)) if writes_near(lay, l, load) => Some(Likelihood::Usual),
        (Threads::Parallel, _) => Some(Likelihood::Faint),
        // In straight code there is hardly time for it.
        (_, Some(_)) => Some(Likelihood::Remote),
        (_, None) => None,
    }
}

/// Whether the bytes of a load were stored so shortly before that they come from the store: fewer cycles ago than the store needs to leave.
fn is_still_stored(lay: &Lay<'_>, i: usize, load: &MemRef) -> bool {
    let mut cycles = 0.0;
    for (j, insn, changed) in unchanged(lay, i, NEAR, load) {
        if changed || cycles > LEAVES_AFTER {
            return false;
        }
        if j != i && insn.store.is_some_and(|s| s.same_base(load) && beyond(&s, load) == 0) {
            return true;
        }
        cycles += lay.cycles(j);
    }
    false
}

/// Whether a loop stores within a line's length of a place.
fn writes_near(lay: &Lay<'_>, l: &LoopFacts, place: &MemRef) -> bool {
    let near = |s: &MemRef| s.same_base(place) && s.disp.abs_diff(place.disp) < LINE as u64;
    lay.insns_of(l).any(|j| lay.scene.insns[j].store.as_ref().is_some_and(near))
}

/// DTLB: as the data cache with pages; the stack's page is at hand. Stores are suspects too: they leave their data
/// behind, but not before their address is translated. Bound: a walk whose tables come from memory.
pub(super) fn data_tlb(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let insn = &lay.scene.insns[i];
    let store = insn.store.filter(|_| writes_memory(insn));
    let place = loads(lay, i).or(store).filter(|m| !m.stack)?;
    let chance = new_unit(lay, i, &place, PAGE)?;
    if span(lay, i, &place).is_some() {
        return None;
    }
    let p = &lay.scene.core.penalty;
    let bound = chance * QUEUED * (p.dtlb_walk + p.dram);
    let likely = insn.load.is_some() && !says_where_to_jump(lay, i, &place);
    let likelihood = if likely { Likelihood::Usual } else { Likelihood::Faint };
    Some(Suspect { cause: Cause::Dtlb, bound, at: i, likelihood })
}

/// Whether a load takes an entry of a table of jumps: such tables are small, and read whenever there is a jump.
pub(super) fn says_where_to_jump(lay: &Lay<'_>, i: usize, load: &MemRef) -> bool {
    let insns = lay.scene.insns;
    let jumps = |j: usize| insns[j].class == OpClass::IndirectBranch;
    if load.index.is_none() || jumps(i) {
        return load.index.is_some();
    }
    let mut made = insns[i].writes;
    let near = (i + 1..=i + TO_JUMP).take_while(|j| *j < insns.len() && lay.block_of(*j) == lay.block_of(i));
    for j in near {
        if !insns[j].reads.meets(made) {
            continue;
        }
        if jumps(j) {
            return true;
        }
        made = made.with(insns[j].writes);
    }
    false
}

/// What an instruction waits for from memory. What stack engine and return predictor know is not waited for.
fn loads(lay: &Lay<'_>, i: usize) -> Option<MemRef> {
    let insn = &lay.scene.insns[i];
    insn.load.filter(|_| !matches!(insn.class, OpClass::Return | OpClass::Nop))
}

/// How likely at most a place lies in another unit than anything accessed just before; `None` when the same bytes were.
pub(super) fn new_unit(lay: &Lay<'_>, i: usize, place: &MemRef, unit: i64) -> Option<f64> {
    let mut chance: f64 = 1.0;
    for (j, insn, changed) in unchanged(lay, i, NEAR, place) {
        if changed {
            break;
        }
        // Itself a round ago proves nothing: another core may have taken the line since, as in loops that wait. None takes those of the
        // stack.
        if j == i && !place.stack {
            continue;
        }
        for earlier in [insn.load, insn.store].iter().flatten().filter(|m| m.same_base(place)) {
            let reach = beyond(earlier, place);
            if reach == 0 {
                return None;
            }
            chance = chance.min(reach as f64 / unit as f64);
        }
    }
    Some(chance)
}

/// Whether a long loop has nothing but loads of a place that it reads in every round, so that each asks the cache anew: what was stored
/// here just before comes from the store.
fn is_only_read(lay: &Lay<'_>, i: usize, place: &MemRef) -> bool {
    let stored = |(_, insn, _): (usize, &Effects, bool)| {
        insn.store.is_some_and(|s| s.same_base(place) && beyond(&s, place) < i64::from(place.width.max(1)))
    };
    !place.stack && fixed_place(lay, i, place) && !unchanged(lay, i, NEAR, place).any(stored)
}

/// Bytes of `place` and between that an access to `earlier` does not cover.
fn beyond(earlier: &MemRef, place: &MemRef) -> i64 {
    let end = |m: &MemRef| m.disp.saturating_add(i64::from(m.width.max(1)));
    let above = end(place).saturating_sub(end(earlier)).max(0);
    let below = earlier.disp.saturating_sub(place.disp).max(0);
    above.saturating_add(below)
}

/// Instructions before `i`, nearest first, each with its number and whether it changes what
/// `place` is made from; then its own places in memory are others.
fn unchanged<'l>(
    lay: &'l Lay<'_>,
    i: usize,
    most: usize,
    place: &MemRef,
) -> impl Iterator<Item = (usize, &'l Effects, bool)> + use<'l> {
    let registers = place.registers();
    let stack = place.stack;
    lay.history(i, most).into_iter().map(move |j| {
        let insn = &lay.scene.insns[j];
        let moves_stack =
            stack && [insn.load, insn.store].iter().flatten().any(|m| m.stack) && !insn.reads.meets(RegSet::RSP);
        (j, insn, insn.writes.meets(registers) || moves_stack)
    })
}

/// W: ruled out when no store enters the pipeline near here, or when stores are so few that the slowest memory drains them. Those of a
/// repeated instruction are not few. Where they are few for the first cache, and stay with a few places, only another core can have
/// taken these. Nothing bounds it but the stall.
pub(super) fn store_buffer(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let stores = |j: &usize| lay.scene.insns[*j].store.is_some_and(|_| writes_memory(&lay.scene.insns[*j]));
    let around = lay.future(i, ENTER_TOGETHER).into_iter().chain(lay.history(i, ENTER_TOGETHER));
    let at = std::iter::once(i).chain(around).find(stores)?;
    let repeats = lay.scene.insns[at].class == OpClass::Rep;
    let streams = repeats || lay.scene.insns[at].store.is_some_and(|s| s.non_temporal);
    let dense = match lay.loop_of(i).filter(|l| l.trips >= LONG_RUNNING) {
        Some(l) => l.stores > 0.0 && l.cycles / l.stores <= lay.scene.core.penalty.dram,
        None => lay.history(i, IN_FLIGHT).iter().filter(|j| stores(j)).count() >= BURST,
    };
    if !dense && !streams {
        return None;
    }
    let fresh = lay.scene.insns[at].store.is_some_and(|s| !s.stack && !fixed_place(lay, at, &s));
    let stays = lay.loop_of(i).is_some_and(|l| l.trips >= LONG_RUNNING && drained(lay, l));
    let likelihood = match (streams, fresh) {
        _ if stays && lay.scene.threads == Threads::Parallel => Likelihood::Faint,
        _ if stays => Likelihood::Remote,
        // What stands beside a repeated instruction may wait for it, and for anything else.
        (true, _) if repeats && at != i => Likelihood::Late,
        (true, _) => Likelihood::Plain,
        (false, true) => Likelihood::Usual,
        (false, false) => Likelihood::Faint,
    };
    Some(Suspect { cause: Cause::StoreBuffer, bound: f64::INFINITY, at, likelihood })
}

fn writes_memory(insn: &Effects) -> bool {
    !matches!(insn.class, OpClass::Lock | OpClass::Call)
}
