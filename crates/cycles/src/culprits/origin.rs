//! How far away missing loads had been, where the stall tells: no load waits longer for a cache than that takes. The other way round nothing
//! is told: what a core does meanwhile hides a part of any wait.

use crate::model::Core;
use crate::results::analysis::{Cause, Culprit, Origin};
use whither_image::{Effects, OpClass};

/// A cache under load takes longer than an idle one, which the penalties are of.
const BUSY: f64 = 1.3;

/// Where some of the loads must have come from that an instruction stalled for, `stall` cycles at least.
pub fn origin(core: &Core, effects: &[Effects], culprits: &[Culprit], stall: f64) -> Option<Origin> {
    let is_data = |c: &&Culprit| matches!(c.cause, Cause::DCache | Cause::Dtlb);
    let missed = culprits.iter().find(|c| c.cause == Cause::DCache)?;
    let load = effects.get(missed.at?)?;
    // Those that wait for several loads may do so one after the other.
    if matches!(load.class, OpClass::Gather | OpClass::Rep) {
        return None;
    }
    let others: f64 = culprits.iter().filter(|c| !is_data(c)).map(|c| c.max_cycles).sum();
    let walk = if culprits.iter().any(|c| c.cause == Cause::Dtlb) { core.penalty.dtlb_walk } else { 0.0 };
    let longer_than = |hit: f64| stall - others > BUSY * (hit + walk);
    match () {
        () if longer_than(core.penalty.l3) => Some(Origin::Memory),
        () if longer_than(core.penalty.l2) => Some(Origin::BeyondL2),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn culprit(cause: Cause, max_cycles: f64) -> Culprit {
        Culprit { cause, min_cycles: 0.0, max_cycles, at: Some(0) }
    }

    #[test]
    fn a_stall_longer_than_a_cache_takes_came_from_beyond_it() {
        let core = Core::default();
        let load = |class| [Effects { class, ..Effects::default() }];
        let from = |culprits: &[Culprit], stall| origin(&core, &load(OpClass::Load), culprits, stall);
        let d = culprit(Cause::DCache, 900.0);
        let alone = std::slice::from_ref(&d);
        assert_eq!(from(alone, 15.0), None, "the second cache does");
        assert_eq!(from(alone, 40.0), Some(Origin::BeyondL2));
        assert_eq!(from(alone, 200.0), Some(Origin::Memory));
        // A walk of page tables, or others, may have been a part of it.
        assert_eq!(from(&[d.clone(), culprit(Cause::Dtlb, 900.0)], 40.0), None);
        assert_eq!(from(&[d.clone(), culprit(Cause::Mispredict, 20.0)], 40.0), None);
        assert_eq!(from(&[culprit(Cause::Mispredict, 20.0)], 200.0), None);
        assert_eq!(origin(&core, &load(OpClass::Gather), alone, 200.0), None, "several loads");
    }
}
