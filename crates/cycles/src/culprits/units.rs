//! Causes that an instruction brings along by what it is: it orders memory, keeps a slow unit busy, or is done in
//! microcode; and those from outside: the kernel and the hypervisor.

use super::data::{PAGE, new_unit, says_where_to_jump};
use super::places::fixed_place;
use super::scene::{Certainty, LONG_RUNNING, Lay};
use super::{LEAST_SAMPLES, Likelihood, Suspect};
use crate::model::Core;
use crate::results::analysis::{Cause, Culprit, InsnAnalysis};
use whither_image::{Effects, OpClass};

/// What orders everything lets what follows it begin late: so many instructions.
const REACH: usize = 4;
/// Slow cases of dividers against the ordinary one: wide operands, or another thread on the core that divides too.
const SLOW_CASE: f64 = 5.0;
/// Below this share of the time faults and steal explain nothing.
const NOTICEABLE: f64 = 0.01;

/// Y: ruled out unless it orders memory or serialises itself, or something just before it does. No bound but the
/// stall: another core may hold the line for as long as it likes.
pub(super) fn synchronisation(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let orders = |class: OpClass| {
        class.is_fence() || class.serialises() || matches!(class, OpClass::Lock | OpClass::Pause | OpClass::SystemCall)
    };
    let insns = lay.scene.insns;
    if orders(insns[i].class) {
        return Some(Suspect {
            cause: Cause::Synchronisation,
            bound: f64::INFINITY,
            at: i,
            likelihood: Likelihood::Plain,
        });
    }
    // A locked operation holds back only what is directly behind it, or behind the branch that asks whether it succeeded; the
    // others empty the pipeline.
    let before = lay.history(i, REACH);
    let directly = |n: usize| before[..n].iter().all(|j| insns[*j].conditional);
    let near = before
        .iter()
        .enumerate()
        .find(|(n, j)| orders(insns[**j].class) && (insns[**j].class != OpClass::Lock || directly(*n)));
    near.map(|(_, &at)| Suspect {
        cause: Cause::Synchronisation,
        bound: f64::INFINITY,
        at,
        likelihood: Likelihood::Usual,
    })
}

/// What an instruction's own divider or lock takes when nothing goes wrong. Of the best case, and not for nothing: it is what the
/// instruction costs.
#[must_use]
pub fn own_work(core: &Core, insn: &Effects) -> Option<(Cause, f64)> {
    let l = &core.latency;
    let (cause, cycles) = match insn.class {
        OpClass::Div if insn.bits >= 64 => (Cause::Unit, l.div64),
        OpClass::Div => (Cause::Unit, l.div32),
        OpClass::FpDiv => (Cause::Unit, l.fp_div),
        OpClass::FpDivSingle => (Cause::Unit, l.fp_div_single),
        OpClass::Sqrt => (Cause::Unit, l.sqrt),
        OpClass::SqrtSingle => (Cause::Unit, l.sqrt_single),
        OpClass::Lock => (Cause::Synchronisation, l.lock),
        _ => return None,
    };
    Some((cause, f64::from(cycles)))
}

/// A divider or a lock takes its time at best too. That is its cause's doing, not that of the operand or port for which the instruction
/// `i` seems to wait.
pub fn charge_own_work(insn: &mut InsnAnalysis, i: usize, work: Option<(Cause, f64)>, certainty: Certainty) {
    let Some((cause, cycles)) = work.filter(|_| insn.cycles.is_some()) else { return };
    let at_best = cycles.min(insn.best_cycles);
    // Where executions are bounded the best case may not have been waited for: much of it passes beside something else.
    let busy = if certainty == Certainty::Known { at_best } else { at_best.min(insn.cycles.unwrap_or(0.0)) };
    if busy <= 0.0 {
        return;
    }
    insn.busy_cycles = busy;
    let beyond =
        |s: Culprit| Culprit { min_cycles: (s.min_cycles - busy).max(0.0), max_cycles: s.max_cycles - busy, ..s };
    insn.static_stall = insn.static_stall.take().map(beyond).filter(|s| s.max_cycles > 0.0);
    // Bounded executions: suspects can have taken all the time of the instruction as it is, and the unit no less than its own.
    let with_work = |max: f64| if certainty == Certainty::Known { max + busy } else { max.max(busy) };
    let sure = if certainty == Certainty::Known { busy } else { 0.0 };
    // That a few cycles more may be chance makes no chance of what the unit itself takes.
    if insn.unjudged && (certainty == Certainty::AtLeast || insn.samples < LEAST_SAMPLES) {
        match insn.in_sums.iter_mut().find(|(c, _)| *c == cause) {
            Some((_, max)) => *max = with_work(*max),
            None => insn.in_sums.push((cause, with_work(0.0))),
        }
        return;
    }
    let judged = insn.culprits.iter().position(|c| c.cause == cause).map(|at| insn.culprits.remove(at));
    let mut own = judged.unwrap_or(Culprit { cause, min_cycles: 0.0, max_cycles: 0.0, at: Some(i) });
    (own.min_cycles, own.max_cycles) = (own.min_cycles + sure, with_work(own.max_cycles));
    insn.culprits.insert(0, own);
}

/// Cycles that the slowest multipliers stay busy: one multiplication of 64 bits every other cycle (AMD Zen and before, Intel Silvermont).
/// One per cycle is the model's, and so what waits for that is a static stall.
const MULTIPLIES_EVERY: f64 = 2.0;
/// A loop is held up by its multiplier when it takes what that needs, to within this.
const HELD_UP: f64 = 0.25;
/// Without a loop: multiplications this close are together.
const TOGETHER: usize = 8;

/// Whether a multiplication may find the multiplier busy by others: there are others, and the loop they are in takes what a slow one needs
/// for all of them. What takes longer leaves it idle in between, what takes less is not slow.
fn multiplies_in_a_crowd(lay: &Lay<'_>, i: usize) -> bool {
    let around = || lay.history(i, TOGETHER).into_iter().chain(lay.future(i, TOGETHER));
    if !around().any(|j| j != i && lay.scene.insns[j].class == OpClass::Imul) {
        return false;
    }
    let Some(l) = lay.loop_of(i).filter(|l| l.trips >= LONG_RUNNING) else { return true };
    let needs = MULTIPLIES_EVERY * l.multiplies;
    l.cycles <= needs * (1.0 + HELD_UP)
        && (lay.scene.certainty == Certainty::AtLeast || l.cycles >= needs * (1.0 - HELD_UP))
}

/// U: ruled out unless it divides, takes a root, or multiplies together with others on a multiplier that may be slow. Bound: the slow case.
pub(super) fn unit(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let l = &lay.scene.core.latency;
    let insn = &lay.scene.insns[i];
    let (latency, likelihood) = match insn.class {
        OpClass::Div if insn.bits >= 64 => (l.div64.max(18), Likelihood::Plain),
        OpClass::Div => (l.div32, Likelihood::Plain),
        OpClass::FpDiv => (l.fp_div, Likelihood::Plain),
        OpClass::FpDivSingle => (l.fp_div_single, Likelihood::Plain),
        OpClass::Sqrt => (l.sqrt, Likelihood::Plain),
        OpClass::SqrtSingle => (l.sqrt_single, Likelihood::Plain),
        OpClass::Imul if multiplies_in_a_crowd(lay, i) => (l.imul, Likelihood::Faint),
        _ => return None,
    };
    let worst = if insn.class == OpClass::Imul { 1.0 } else { SLOW_CASE };
    let lanes = if insn.class.is_fp_division() { f64::from(insn.bits.max(64)) / 64.0 } else { 1.0 };
    Some(Suspect { cause: Cause::Unit, bound: worst * lanes.max(1.0) * f64::from(latency), at: i, likelihood })
}

/// Most cycles of a `loop` where it is microcode.
const LOOP: f64 = 12.0;

/// M: ruled out unless it is microcode (string operations, gathers, x87, `loop`) or computes with floating point, whose
/// tiniest numbers need help. Bound: the stall, or one assist.
pub(super) fn assist(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let insn = &lay.scene.insns[i];
    let (bound, likelihood) = match insn.class {
        OpClass::Rep => (f64::INFINITY, Likelihood::Plain),
        OpClass::X87 | OpClass::Gather => (f64::INFINITY, Likelihood::Usual),
        OpClass::Loop => (LOOP, Likelihood::Plain),
        _ if insn.is_floating() => (lay.scene.core.penalty.assist, Likelihood::Faint),
        _ => return None,
    };
    Some(Suspect { cause: Cause::Assist, bound, at: i, likelihood })
}

/// Most cycles of the way into the page fault handler and back, under a hypervisor and with mitigations,
const FAULT: f64 = 4000.0;
/// and fewest that a fault spends in those of the handler's functions that it is known by.
const LEAST_HANDLED: f64 = 500.0;
/// Share of time that the kernel spends on page faults from which on they are likely.
const MANY_FAULTS: f64 = 0.1;

/// G: ruled out unless it goes to memory and the kernel spent noticeable time on page faults; and where the page is at hand: the stack,
/// a fixed place, what was accessed just before, an entry of a table of jumps. Bound: one way in and back; and as many of them as the
/// handler's time allows, were they all here.
pub(super) fn page_fault(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let (insn, share) = (&lay.scene.insns[i], lay.scene.fault_share);
    if !share.is_finite() || share < NOTICEABLE {
        return None;
    }
    let place = insn.load.or(insn.store).filter(|m| !m.stack && !fixed_place(lay, i, m))?;
    if insn.load.is_some() && says_where_to_jump(lay, i, &place) {
        return None;
    }
    let chance = new_unit(lay, i, &place, PAGE)?;
    let all = lay.scene.all_samples;
    let bound = (chance * FAULT).min(lay.cycles_of(i, most_on_the_way(share, all, all), all));
    let likelihood = if share >= MANY_FAULTS { Likelihood::Plain } else { Likelihood::Late };
    Some(Suspect { cause: Cause::PageFault, bound, at: i, likelihood })
}

/// What serialises takes hundreds of cycles by itself; what takes more than this mostly waits for a hypervisor, which does it instead
/// (`cpuid`, reads of some machine registers: Intel SDM 3C 26.1.2).
const DONE_FOR_IT: f64 = 600.0;

/// K: ruled out when the hypervisor took no noticeable time (steal), but where an instruction takes so long that the hypervisor must have
/// done it. Bound: its share of the procedure's time, all of it at this instruction. System calls are samples of the kernel and stand
/// there.
pub(super) fn kernel(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let cycles = lay.scene.cycles.get(i).copied().unwrap_or(0.0);
    if lay.scene.insns[i].class.serialises() && cycles > DONE_FOR_IT {
        return Some(Suspect { cause: Cause::Kernel, bound: f64::INFINITY, at: i, likelihood: Likelihood::Plain });
    }
    let share = lay.scene.kernel_share;
    if !share.is_finite() || share < NOTICEABLE {
        return None;
    }
    let own = lay.block_of(i).and_then(|b| lay.scene.executions.get(b)).copied().unwrap_or(0.0);
    let likelihood = if share >= 0.2 { Likelihood::Usual } else { Likelihood::Faint };
    (own > 0.0).then(|| Suspect { cause: Cause::Kernel, bound: share * lay.time / own, at: i, likelihood })
}

/// Share of the time of `own` samples that page faults can have taken on the way to their handler and back, were they all of them there.
/// `share`: that the handler took, of so many samples in all.
pub(super) fn most_on_the_way(share: f64, all: f64, own: f64) -> f64 {
    let handled = share + 2.0 * (share / all.max(1.0)).sqrt();
    handled * FAULT / LEAST_HANDLED * all / own.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn division(stalls: f64, culprits: Vec<Culprit>) -> InsnAnalysis {
        InsnAnalysis {
            samples: 900.0,
            best_cycles: 13.0,
            cycles: Some(13.0 + stalls),
            stall_cycles: Some(stalls),
            static_stall: Some(Culprit { cause: Cause::Operand, min_cycles: 13.0, max_cycles: 13.0, at: Some(0) }),
            culprits,
            ..InsnAnalysis::default()
        }
    }

    fn unit(max_cycles: f64) -> Culprit {
        Culprit { cause: Cause::Unit, min_cycles: 0.0, max_cycles, at: Some(0) }
    }

    #[test]
    fn a_dividers_time_is_no_operands() {
        let work = Some((Cause::Unit, 13.0));
        let told = |mut insn: InsnAnalysis, certainty| {
            charge_own_work(&mut insn, 0, work, certainty);
            assert_eq!((insn.static_stall, insn.busy_cycles), (None, 13.0));
            insn.culprits.iter().map(|c| (c.cause, c.min_cycles, c.max_cycles)).collect::<Vec<_>>()
        };
        assert_eq!(told(division(0.0, vec![]), Certainty::Known), [(Cause::Unit, 13.0, 13.0)]);
        assert_eq!(told(division(0.8, vec![unit(0.8)]), Certainty::Known), [(Cause::Unit, 13.0, 13.8)]);
        // Bounded: it may have run far less often, and waited for something else.
        assert_eq!(told(division(0.8, vec![unit(13.8)]), Certainty::AtLeast), [(Cause::Unit, 0.0, 13.8)]);
        assert_eq!(told(division(0.0, vec![]), Certainty::AtLeast), [(Cause::Unit, 0.0, 13.0)]);
    }

    /// A root of 21 cycles that takes 22.3: whether the 1.3 are more than chance is not known, that it is a root is.
    #[test]
    fn what_a_unit_takes_by_itself_is_no_chance() {
        let told = |samples: f64, certainty| {
            let mut insn =
                InsnAnalysis { samples, unjudged: true, in_sums: vec![(Cause::Unit, 1.3)], ..division(1.3, vec![]) };
            charge_own_work(&mut insn, 0, Some((Cause::Unit, 13.0)), certainty);
            (insn.culprits.iter().map(|c| (c.min_cycles, c.max_cycles)).collect::<Vec<_>>(), insn.in_sums)
        };
        assert_eq!(told(939.0, Certainty::Known), (vec![(13.0, 13.0)], vec![(Cause::Unit, 1.3)]));
        assert_eq!(told(3.0, Certainty::Known), (vec![], vec![(Cause::Unit, 14.3)]));
        // What the summary counts as the unit's time has a row.
        assert_eq!(told(3.0, Certainty::AtLeast), (vec![], vec![(Cause::Unit, 13.0)]));
        // What stands there is less than it takes by itself: no more is told.
        let mut insn = division(-9.7, vec![unit(3.3)]);
        charge_own_work(&mut insn, 0, Some((Cause::Unit, 13.0)), Certainty::AtLeast);
        assert!((insn.culprits[0].max_cycles - 3.3).abs() < 1e-9 && (insn.busy_cycles - 3.3).abs() < 1e-9, "{insn:?}");
    }

    #[test]
    fn what_an_operand_takes_besides_stays_the_operands() {
        let mut insn = division(0.0, vec![]);
        insn.best_cycles = 20.0;
        insn.static_stall.iter_mut().for_each(|s| (s.min_cycles, s.max_cycles) = (20.0, 20.0));
        charge_own_work(&mut insn, 0, Some((Cause::Unit, 13.0)), Certainty::Known);
        assert_eq!(insn.static_stall.map(|s| (s.cause, s.max_cycles)), Some((Cause::Operand, 7.0)));
    }
}
