//! Fetching past taken branches. Where all goes well it is one of them per cycle, which the model knows; where targets are looked up in
//! larger and slower tables, or only found when the branch is decoded, what is behind them comes later. Fetch runs ahead of what is
//! executed, so this shows where hardly anything else takes time.

use super::scene::{LONG_RUNNING, Lay, RARE};
use super::{Likelihood, Suspect};
use crate::results::analysis::Cause;
use whither_image::OpClass;

/// Branches whose targets every core's nearest table holds: 64 of the smallest of the last ten years are left by the ways of such tables.
const NEAREST: usize = 64;
/// And its next one (4,096 on Intel Skylake and AMD Zen), half of which ways may leave.
const NEXT: usize = 2048;
/// Cycles from one taken branch to the next at most where the nearest table has it,
const NEAR: f64 = 2.0;
/// and where the next one does.
const FAR: f64 = 6.0;
/// How far behind a taken branch what it leads to still comes late, in instructions.
const REACH: usize = 16;
/// Rounds of fewer instructions are fetched ahead of what is executed, several at a time.
const AHEAD: f64 = 200.0;
/// What takes longer than fetching by so much leaves it idle.
const HELD_UP: f64 = 1.25;

/// B: ruled out where no branch was taken just before, and in short loops that take longer than getting past all of their taken branches
/// can. Bound: by how many such branches there are, what the slowest table takes that may have to be asked.
pub(super) fn taken_branches(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let (at, share) = taken_near(lay, i)?;
    let resteer = lay.scene.core.penalty.mispredict;
    let (cost, likelihood) = match lay.loop_of(i) {
        // Of what is called, or calls, more than these branches run in between.
        None => (FAR, Likelihood::Faint),
        Some(l) if l.calls && l.places <= NEXT => (FAR, Likelihood::Faint),
        Some(l) if l.places > NEXT => (resteer.max(FAR), Likelihood::Usual),
        Some(l) if l.places > NEAREST => (FAR, Likelihood::Usual),
        Some(_) => (NEAR, Likelihood::Faint),
    };
    let idle = lay.loop_of(i).is_some_and(|l| {
        !l.calls && l.trips >= LONG_RUNNING && l.insns <= AHEAD && l.cycles > HELD_UP * cost * l.jumps
    });
    (!idle).then_some(Suspect { cause: Cause::FrontEnd, bound: share * cost, at, likelihood })
}

/// The taken branch that what is at hand at an instruction, or next, came by, with the share of executions that come so.
fn taken_near(lay: &Lay<'_>, i: usize) -> Option<(usize, f64)> {
    let away = leads_away(lay, i);
    if away >= RARE {
        return Some((i, away));
    }
    let fused = i + 1 < lay.scene.insns.len() && lay.scene.insns[i].fuses_with(&lay.scene.insns[i + 1]);
    if fused && leads_away(lay, i + 1) >= RARE {
        return Some((i + 1, leads_away(lay, i + 1)));
    }
    let mut to = i;
    for from in lay.history(i, REACH) {
        let called = lay.scene.insns[from].class == OpClass::Call;
        if called || lay.scene.insns[to].address != lay.scene.insns[from].end() {
            return Some((from, 1.0));
        }
        to = from;
    }
    None
}

/// Share of an instruction's executions behind which something else than the next one is executed.
fn leads_away(lay: &Lay<'_>, i: usize) -> f64 {
    let insn = &lay.scene.insns[i];
    if matches!(insn.class, OpClass::Call | OpClass::Return) {
        return 1.0;
    }
    let elsewhere = |to: &Option<usize>| to.is_none_or(|to| lay.scene.insns[to].address != insn.end());
    lay.behind(i).iter().filter(|(to, _)| elsewhere(to)).map(|(_, share)| share).sum()
}
