//! Which places a loop stays with. What a long loop accesses in every round lies in the first cache after the first one, unless the loop
//! itself goes through so much memory that it pushes it out, or another core takes it away.

use super::data::NEAR;
use super::scene::{LONG_RUNNING, Lay, LoopFacts};
use whither_image::{Effects, MemRef, OpClass, RegSet};

/// Bytes from the first to the last of the places that one instruction accesses in a loop, at most, to be sure that it stays with them.
const SMALL: i64 = 2048;
/// Instructions of a loop that access memory, at most, for the same: the first cache has so many ways or more everywhere, and what is
/// [`SMALL`] takes one line of a set.
const FEW_ACCESSES: usize = 8;
/// Stores that the first cache takes per cycle, with room for chance: at least one on every core.
const DRAINED: f64 = 0.5;

/// Whether a loop that runs long reads the same place in every round.
pub(super) fn fixed_place(lay: &Lay<'_>, i: usize, load: &MemRef) -> bool {
    let fixed = |l: &LoopFacts| !load.vector && l.trips >= LONG_RUNNING && !l.writes.meets(load.registers());
    lay.loop_of(i).is_some_and(fixed)
}

/// Bytes that a place of instruction `i` lies in, from its displacement on, throughout a loop that runs long; `None` where it may wander
/// further than [`SMALL`].
pub(super) fn span(lay: &Lay<'_>, i: usize, place: &MemRef) -> Option<i64> {
    let width = i64::from(place.width.max(1));
    if fixed_place(lay, i, place) {
        return Some(width);
    }
    let l = lay.loop_of(i).filter(|l| l.trips >= LONG_RUNNING && !place.vector)?;
    let index = place.index.filter(|index| place.base != Some(*index))?;
    let base = place.base.map_or(RegSet::NONE, |b| RegSet::gpr(u32::from(b)));
    if l.writes.meets(base) {
        return None;
    }
    let last =
        lay.history(i, NEAR).into_iter().find(|&j| lay.scene.insns[j].writes.meets(RegSet::gpr(u32::from(index))))?;
    let (_, most) = lay.scene.insns[last].holds_at_most.filter(|(register, _)| *register == index)?;
    let reach = i64::try_from(most).ok()?.checked_mul(i64::from(place.scale))?.checked_add(width)?;
    (reach <= SMALL).then_some(reach)
}

/// Whether a load hits the first cache but for other cores: it stays with a small place in a long loop that stays with few, and neither code of threads
/// nor a store to the very place suggests that another core writes it too.
pub(super) fn at_hand(lay: &Lay<'_>, i: usize, load: &MemRef) -> bool {
    let Some(l) = lay.loop_of(i).filter(|_| span(lay, i, load).is_some()) else { return false };
    let accesses: Vec<(usize, MemRef)> = accesses(lay, l).collect();
    let stays = |(j, place): &(usize, MemRef)| is_slot(place) || span(lay, *j, place).is_some();
    accesses.len() <= FEW_ACCESSES
        && accesses.iter().all(stays)
        && !speaks_to_threads(lay, l)
        && !is_updated(lay, l, load)
        && !(l.stores <= 0.0 && is_waited_for(lay, i))
}

/// Whether a loop's stores leave for the first cache as fast as they come.
pub(super) fn drained(lay: &Lay<'_>, l: &LoopFacts) -> bool {
    let stores = || lay.insns_of(l).filter_map(|j| Some((j, lay.scene.insns[j].store?)));
    let stays = |(j, place): (usize, MemRef)| {
        !place.non_temporal && !is_updated(lay, l, &place) && (is_slot(&place) || span(lay, j, &place).is_some())
    };
    l.stores <= DRAINED * l.cycles && stores().all(stays) && !speaks_to_threads(lay, l)
}

/// What a loop accesses.
fn accesses<'s>(lay: &'s Lay<'_>, l: &'s LoopFacts) -> impl Iterator<Item = (usize, MemRef)> + 's {
    let insns = lay.insns_of(l).filter(|&j| lay.scene.insns[j].class != OpClass::Nop);
    insns.flat_map(|j| {
        let insn = &lay.scene.insns[j];
        [insn.load, insn.store].into_iter().flatten().map(move |place| (j, place))
    })
}

/// A slot of the frame, or the top of the stack.
fn is_slot(place: &MemRef) -> bool {
    place.stack && place.index.is_none()
}

/// Whether a loop does what code does that other threads may meet: what it waits for then, their cores may have. Calls may, as may
/// repeated instructions go far.
fn speaks_to_threads(lay: &Lay<'_>, l: &LoopFacts) -> bool {
    let speaks = |insn: &Effects| {
        let ordered = insn.class.is_fence() || insn.class.serialises();
        ordered
            || matches!(
                insn.class,
                OpClass::Lock | OpClass::Pause | OpClass::SystemCall | OpClass::Call | OpClass::Rep | OpClass::Gather
            )
    };
    lay.insns_of(l).any(|j| speaks(&lay.scene.insns[j]))
}

/// Whether a loop both loads from a place and stores to it: a counter or sum in memory, which threads like to have side by side.
fn is_updated(lay: &Lay<'_>, l: &LoopFacts, place: &MemRef) -> bool {
    let same = |m: &MemRef| !m.stack && m.same_base(place) && m.disp == place.disp;
    let insns = || lay.insns_of(l).map(|j| &lay.scene.insns[j]);
    insns().any(|i| i.load.as_ref().is_some_and(same)) && insns().any(|i| i.store.as_ref().is_some_and(same))
}

/// Whether a branch asks for what an instruction brings: the loop may wait for somebody else to write it.
fn is_waited_for(lay: &Lay<'_>, i: usize) -> bool {
    let mut made = lay.scene.insns[i].writes;
    for j in lay.future(i, NEAR).into_iter().take_while(|&j| j != i) {
        let insn = &lay.scene.insns[j];
        if !insn.reads.meets(made) {
            made = made.without(insn.writes);
        } else if insn.conditional {
            return true;
        } else {
            made = made.with(insn.writes);
        }
    }
    false
}
