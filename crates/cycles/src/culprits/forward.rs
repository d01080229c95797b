//! Loads that cannot take what was just stored: the store has not reached the cache, and what it holds is not all that the load wants. The
//! load waits until it has.

use super::data::{IN_FLIGHT, NEAR};
use super::places::{fixed_place, span};
use super::scene::{Certainty, Lay, RARE};
use super::{Likelihood, Suspect};
use crate::results::analysis::Cause;
use std::collections::VecDeque;
use whither_image::{Effects, MemRef, RegSet};

/// What passing on what was just stored takes longer than at best, which is nothing where registers stand in for memory (Intel since
/// Golden Cove, AMD since Zen 2: only for some addresses and distances).
const PASSED_ON: f64 = 6.0;
/// Worst case against the ordinary one that is measured.
const WORST: f64 = 1.5;

/// F: ruled out unless a store shortly before may have been to bytes that this load takes: where its registers say so, or do not say that it
/// was not. Bound: the penalty where it stored too little, else what passing it on takes.
pub(super) fn forwarding(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let load = lay.scene.insns[i].load?;
    let Stored { share, meets, all } = stored_before(lay, i, load)?;
    let failed = share * lay.scene.core.penalty.forward_fail * WORST;
    let (bound, likelihood) = match (meets, all) {
        (Meets::Surely, false) => (failed, Likelihood::Plain),
        // A sum or counter in memory. What passing on takes is in the best case: a bound alone asks for no more.
        (Meets::Surely, true) if fixed_place(lay, i, &load) => match lay.scene.certainty {
            Certainty::Known => (PASSED_ON, Likelihood::Plain),
            Certainty::AtLeast => (PASSED_ON, Likelihood::Faint),
        },
        (Meets::Surely, true) => (PASSED_ON, Likelihood::Late),
        (Meets::Maybe, false) => (failed, Likelihood::Usual),
        (Meets::Maybe, true) => (PASSED_ON, Likelihood::Late),
        (Meets::Hardly, _) => (failed, Likelihood::Faint),
    };
    Some(Suspect { cause: Cause::Forwarding, bound, at: i, likelihood })
}

/// Whether a store was to bytes of a load; the likelier the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meets {
    /// The same registers say so.
    Surely,
    /// Both count from one register, and the distance is not known: elements of one array.
    Maybe,
    /// They count from different ones.
    Hardly,
}

/// A store before a load.
#[derive(Clone, Copy, Debug)]
struct Stored {
    /// How likely the way from it is.
    share: f64,
    meets: Meets,
    /// It holds all that the load wants, if it holds any.
    all: bool,
}

/// A point on a way back from a load.
#[derive(Clone, Copy)]
struct Back {
    at: usize,
    /// What the load's place was called there.
    place: Option<MemRef>,
    /// The register that it counts from is the same.
    same_base: bool,
    share: f64,
    steps: usize,
}

/// The newest store that surely was to bytes of a load, on any way here that is not rare; else the likeliest of those that may have been. A
/// register stepped by a constant in between makes the place another by so much.
fn stored_before(lay: &Lay<'_>, i: usize, load: MemRef) -> Option<Stored> {
    let mut todo = VecDeque::from([Back { at: i, place: Some(load), same_base: true, share: 1.0, steps: 0 }]);
    let mut met = Vec::new();
    let mut best: Option<Stored> = None;
    while let Some(from) = todo.pop_front().filter(|_| met.len() < IN_FLIGHT / 2) {
        let ways = lay.ahead(from.at).into_iter().filter(|w| w.1 >= RARE);
        for (at, share) in ways.filter_map(|(j, s)| Some((j?, s * from.share))) {
            if met.contains(&at) {
                continue;
            }
            met.push(at);
            let here = Back { at, share, steps: from.steps + 1, ..from };
            let found = stored_at(lay, i, &load, &here);
            if found.is_some_and(|f| f.meets == Meets::Surely) {
                // One behind it may have overwritten a part.
                return best.filter(|b| b.meets == Meets::Maybe && !b.all).or(found);
            }
            let order = |s: &Stored| (s.meets, s.all);
            best = [best, found].into_iter().flatten().reduce(|a, b| if order(&b) < order(&a) { b } else { a });
            todo.extend(before(&lay.scene.insns[at], here, &load));
        }
    }
    best
}

/// Whether what is stored there may be what load `i` takes.
fn stored_at(lay: &Lay<'_>, i: usize, load: &MemRef, here: &Back) -> Option<Stored> {
    let insn = &lay.scene.insns[here.at];
    let store = insn.store.filter(|s| s.width > 0 && load.width > 0 && !s.vector && !load.vector)?;
    let stored = |meets, all| Some(Stored { share: here.share, meets, all });
    if let Some(place) = here.place.filter(|place| store.same_base(place)) {
        return if overlaps(&store, &place) { stored(Meets::Surely, covers(&store, &place)) } else { None };
    }
    let narrow = store.width < load.width;
    if here.same_base && load.base.is_some() && store.base == load.base && store.segment == load.segment {
        let apart = |(of_store, of_load): (i64, i64)| {
            store.disp.saturating_add(of_store) <= load.disp || load.disp.saturating_add(of_load) <= store.disp
        };
        let proven = span(lay, here.at, &store).zip(span(lay, i, load)).is_some_and(apart);
        // Elements of one size hold all of each other or nothing.
        return if proven { None } else { stored(Meets::Maybe, !narrow) };
    }
    // What else is stored from afar mostly is elsewhere: only what stays where it is meets again and again.
    let pushed = store.stack && moves_stack(insn);
    let fixed = fixed_place(lay, i, load) && !load.rip_relative && !store.rip_relative;
    if narrow && !pushed && fixed && here.steps <= NEAR { stored(Meets::Hardly, false) } else { None }
}

/// The same point before an instruction; `None` where nothing is known of the place any more.
fn before(insn: &Effects, here: Back, load: &MemRef) -> Option<Back> {
    let base = load.base.map_or(RegSet::NONE, |b| RegSet::gpr(u32::from(b)));
    let stepped = insn.adds.is_some_and(|(register, _)| Some(register) == load.base);
    let kept = !insn.writes.meets(base) || stepped;
    let same_base = here.same_base && kept && !(load.stack && moves_stack(insn));
    let place = here.place.and_then(|place| made_before(insn, place));
    (place.is_some() || same_base).then_some(Back { place, same_base, ..here })
}

/// A place as it was called before an instruction; `None` where that is not known.
fn made_before(insn: &Effects, place: MemRef) -> Option<MemRef> {
    if place.stack && moves_stack(insn) {
        return None;
    }
    if !insn.writes.meets(place.registers()) {
        return Some(place);
    }
    let (register, by) = insn.adds.filter(|_| place.index != place.base)?;
    let scale = if place.base == Some(register) { 1 } else { i64::from(place.scale) };
    Some(MemRef { disp: place.disp.checked_add(by.checked_mul(scale)?)?, ..place })
}

/// Pushes, pops, calls and returns.
fn moves_stack(insn: &Effects) -> bool {
    [insn.load, insn.store].iter().flatten().any(|m| m.stack) && !insn.reads.meets(RegSet::RSP)
}

fn end(m: &MemRef) -> i64 {
    m.disp.saturating_add(i64::from(m.width))
}

fn covers(store: &MemRef, load: &MemRef) -> bool {
    store.disp <= load.disp && end(load) <= end(store)
}

fn overlaps(store: &MemRef, load: &MemRef) -> bool {
    store.disp < end(load) && load.disp < end(store)
}
