//! Causes of an empty pipeline: the next instruction was not there. Their stalls stand at the instruction executed
//! before (the skid correction takes one step back), or at the instruction itself where nothing before it is known.

use super::scene::{LONG_RUNNING, Lay, RARE};
use super::{Likelihood, NEGLIGIBLE, Suspect};
use crate::analysis::Refills;
use crate::model::CoreModel;
use crate::results::analysis::Cause;
use whither_image::{Effects, OpClass};

const LINE: u64 = 64;
/// What fetch hands on at a time at least. Of a line that comes from afar each piece may be late, not only the first.
const PIECE: u64 = 16;
const PAGE: u64 = 4096;
/// Code of loops that surely stays in the first instruction cache, which is 32 KiB or more everywhere: what is executed in one
/// piece takes as much of each of its sets.
const SMALL_LOOP: u64 = 24 << 10;
/// Samples that must have decided a branch before it is called foreseeable,
const ENOUGH_DECIDED: f64 = 300.0;
/// and less than this of what arrives must have come by its rarer way.
const FORESEEN: f64 = 0.01;
/// With fewer it is not known which way it goes.
const FEW_DECIDED: f64 = 30.0;
/// New lines (or pages) that the stall of one instruction can be waiting for: where it goes, and where it came from.
const NEW_AT_SITE: f64 = 2.0;
/// Instructions of a block at which it shows that getting it took long.
const HEAD: usize = 4;
/// How far behind a wrongly guessed branch work still runs late, in instructions.
const REACH: usize = 16;

/// I: ruled out when all that runs next lies in lines already fetched for this instruction or those just before it,
/// and in small loops that run long. Bound: a fill from memory, once per entry of the loop; and what the code that runs in between
/// can push out ([`Refills`]). Lines come in pieces, so that the later ones may be late as well: then no more than the second
/// cache is guilty, and nobody where the line itself came at once.
pub(super) fn instruction_cache(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let (share, likelihood) = per_round(lay, i);
    let p = &lay.scene.core.penalty;
    let most = pushed_out(lay, i, |refills| refills.line);
    let suspect =
        |at, bound: f64, likelihood| Suspect { cause: Cause::ICache, bound: (share * bound).min(most), at, likelihood };
    if let Some(at) = fetched_anew(lay, i, LINE) {
        return Some(suspect(at, p.dram, likelihood));
    }
    if begins(lay, i, LINE) {
        return Some(suspect(i, p.dram, Likelihood::Faint));
    }
    let at = fetched_anew(lay, i, PIECE).or_else(|| begins(lay, i, PIECE).then_some(i))?;
    Some(suspect(at, p.l2.min(wait_for_line(lay, i)), Likelihood::Faint))
}

/// Most cycles of an execution that the line of an instruction was waited for before its turn came: what stands at the instructions of
/// the same line just before it, and at the one before these. Not known where few samples are scattered over many instructions.
fn wait_for_line(lay: &Lay<'_>, i: usize) -> f64 {
    if lay.is_scattered(i) {
        return f64::INFINITY;
    }
    let insns = lay.scene.insns;
    let line = units(&insns[i], LINE).0;
    let mut sum = 0.0;
    for j in lay.history(i, LINE as usize) {
        sum += lay.cycles(j);
        if units(&insns[j], LINE).0 != line || j >= i {
            break;
        }
    }
    sum
}

/// Whether a unit of memory was begun by this instruction itself: it waits for the rest where it lies across the border,
/// and may have left before all of the unit was there.
fn begins(lay: &Lay<'_>, i: usize, unit: u64) -> bool {
    lay.ahead(i).iter().any(|w| w.1 >= RARE && w.0.is_none_or(|j| fetched_anew(lay, j, unit) == Some(i)))
}

/// T: the same for pages. Bound: a walk whose tables come from memory.
pub(super) fn instruction_tlb(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let at = fetched_anew(lay, i, PAGE)?;
    let (share, _) = per_round(lay, i);
    let p = &lay.scene.core.penalty;
    let bound = (share * (p.dtlb_walk + p.dram)).min(pushed_out(lay, i, |refills| refills.page));
    Some(Suspect { cause: Cause::Itlb, bound, at, likelihood: Likelihood::Faint })
}

/// Most cycles of an execution that what runs in between can have cost by pushing out what is fetched here.
fn pushed_out(lay: &Lay<'_>, i: usize, share: fn(&Refills) -> f64) -> f64 {
    let refills = lay.scene.refills.as_ref();
    refills.map_or(f64::INFINITY, |r| lay.cycles_of(i, NEW_AT_SITE * share(r), r.samples))
}

/// Share of the executions at which code can be new to the cache.
fn per_round(lay: &Lay<'_>, i: usize) -> (f64, Likelihood) {
    match lay.loop_of(i) {
        Some(l) if !l.calls && l.bytes <= SMALL_LOOP && l.trips >= LONG_RUNNING => (1.0 / l.trips, Likelihood::Faint),
        Some(l) if !l.calls && l.bytes <= SMALL_LOOP => (1.0, Likelihood::Faint),
        _ => (1.0, Likelihood::Usual),
    }
}

/// The instruction behind `i` (or `i` itself, where what ran before is unknown) that lies in a unit of memory which
/// the instructions just before it do not lie in.
fn fetched_anew(lay: &Lay<'_>, i: usize, unit: u64) -> Option<usize> {
    let insns = lay.scene.insns;
    let known = |j: usize, from: &Effects| {
        let (first, last) = units(&insns[j], unit);
        let (low, high) = units(from, unit);
        (low..=high).contains(&first) && (low..=high).contains(&last)
    };
    if lay.begins_after_others(i) {
        // Behind a call the line of the call was there just before it; at the entry nothing is known.
        let calls: Vec<(Option<usize>, f64)> = lay.ahead(i).into_iter().filter(|w| w.1 >= RARE).collect();
        if calls.is_empty() || calls.iter().any(|w| w.0.is_none_or(|j| !known(i, &insns[j]))) {
            return Some(i);
        }
    }
    // Leads out of the procedure: the place it goes to is fetched there, and its stall stands there. A jump by table has many rare ways.
    let new =
        lay.behind(i).into_iter().filter_map(|(to, share)| to.filter(|&j| !known(j, &insns[i])).map(|j| (j, share)));
    let new: Vec<(usize, f64)> = new.collect();
    let often = new.iter().map(|w| w.1).sum::<f64>() >= RARE;
    new.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|w| w.0).filter(|_| often)
}

fn units(insn: &Effects, unit: u64) -> (u64, u64) {
    let last = insn.address.saturating_add(u64::from(insn.len.max(1)) - 1);
    (insn.address / unit, last / unit)
}

/// P: ruled out when no branch that must be guessed ends just before what runs next; bounded by how seldom a branch
/// goes its rarer way, per arrival there: what is seldom gone to may be guessed wrongly each time. Ruled out when the rarer way is less
/// than 1 % of what arrives, with 300 decided samples, and wrong guesses as often as that are nothing to what stands here: in
/// short loops they are not.
pub(super) fn mispredict(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let own = guessed_here(lay, i).and_then(|b| guilty(lay, i, b, Site::Here));
    // A branch that closes its loop hides what an unforeseen one just before it did.
    match (own, guessed_before(lay, i)) {
        (Some(own), Some(before)) if before.likelihood < own.likelihood => Some(before),
        (Some(own), _) => Some(own),
        (None, before) => before,
    }
}

/// The branch at `i`, or the one that it goes through the pipeline with.
fn guessed_here(lay: &Lay<'_>, i: usize) -> Option<usize> {
    let insns = lay.scene.insns;
    if insns[i].is_guessed() {
        return Some(i);
    }
    insns.get(i + 1).filter(|next| insns[i].fuses_with(next)).map(|_| i + 1)
}

/// A branch shortly before: what follows it starts late, with nothing done ahead, and each wait that is hidden
/// otherwise shows. At the entry and behind calls it is a call or return elsewhere.
fn guessed_before(lay: &Lay<'_>, i: usize) -> Option<Suspect> {
    let insns = lay.scene.insns;
    let work = lay.scene.core.work(&insns[i]);
    let exposed = f64::from(work.latency) + if insns[i].load.is_some() { f64::from(work.load_latency) } else { 0.0 };
    if lay.begins_after_others(i) {
        let bound = lay.scene.core.penalty.mispredict + exposed;
        return Some(Suspect { cause: Cause::Mispredict, bound, at: i, likelihood: Likelihood::Faint });
    }
    let path: Vec<usize> = [i].into_iter().chain(lay.history(i, REACH)).collect();
    let branches = path.windows(2).filter(|pair| insns[pair[1]].is_guessed());
    let suspects =
        branches.filter_map(|pair| guilty(lay, i, pair[1], Site::Behind { share: lay.share(pair[1], pair[0]) }));
    // The likeliest, then the worst; of equals the nearest.
    let mut worst = suspects.min_by(|a, b| a.likelihood.cmp(&b.likelihood).then(b.bound.total_cmp(&a.bound)))?;
    let penalty = lay.scene.core.penalty.mispredict;
    worst.bound *= (penalty + exposed) / penalty.max(1.0);
    if is_known_to_miss(lay, worst.at) && lay.time_of(i) <= refill(lay, worst.at, i) {
        worst.likelihood = Likelihood::Usual;
    }
    Some(worst)
}

/// Whether a branch is not only possibly guessed wrongly: it was seen to go either way, or its ways are many.
fn is_known_to_miss(lay: &Lay<'_>, branch: usize) -> bool {
    match lay.scene.insns[branch].conditional {
        true => {
            wrong_rate(lay, branch, branch, Site::Here).is_some_and(|(_, likelihood)| likelihood == Likelihood::Plain)
        }
        false => {
            let one_target = |seen: super::BranchSeen| seen.decided >= FEW_DECIDED && seen.rarer <= 0.0;
            lay.scene.insns[branch].class == OpClass::IndirectBranch
                && !(lay.scene.branch)(branch).is_some_and(one_target)
        }
    }
}

/// Time that shows a wrong guess of a branch itself, in the procedure's unit: at the branch and where it leads. What the guess only
/// exposes further on, like a load that hits, takes less than getting the right instructions; what takes longer is a miss of its own.
fn refill(lay: &Lay<'_>, branch: usize, site: usize) -> f64 {
    let insns = lay.scene.insns;
    let pair = (branch > 0 && insns[branch - 1].fuses_with(&insns[branch])).then(|| branch - 1);
    let first = lay.behind(branch).into_iter().filter(|w| w.1 > 0.0).filter_map(|w| w.0);
    let heads = first.flat_map(|at| (at..at + HEAD).take_while(move |j| lay.block_of(*j) == lay.block_of(at)));
    let mut all: Vec<usize> = heads.chain([branch]).chain(pair).filter(|j| *j != site && *j < insns.len()).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|j| lay.time_of(j)).sum()
}

/// Where a stall stands that a branch is suspected of.
#[derive(Clone, Copy, Debug)]
enum Site {
    /// At the branch itself.
    Here,
    /// On the way that so large a part of the branch's executions goes.
    Behind { share: f64 },
}

impl Site {
    /// What happens at so large a part of a branch's executions happens at most so often per arrival: all of it may lead here.
    fn per_arrival(self, part: f64) -> f64 {
        match self {
            Self::Behind { share } if part < share => part / share,
            Self::Behind { .. } => 1.0,
            Self::Here => part.min(1.0),
        }
    }
}

fn guilty(lay: &Lay<'_>, i: usize, branch: usize, site: Site) -> Option<Suspect> {
    let insn = &lay.scene.insns[branch];
    let (rate, likelihood) = if insn.class == OpClass::Return {
        // Foreseen from the calls, unless these are very deep.
        (1.0, Likelihood::Faint)
    } else {
        wrong_rate(lay, i, branch, site)?
    };
    let likelihood = match (site, likelihood) {
        (Site::Here, l) => l,
        (Site::Behind { .. }, l) => l.max(Likelihood::Late),
    };
    Some(Suspect { cause: Cause::Mispredict, bound: rate * lay.scene.core.penalty.mispredict, at: branch, likelihood })
}

/// Most arrivals at a site for which a branch can have been guessed wrongly; of an indirect one all targets but the likeliest are its rarer
/// way. A predictor that only counts is wrong
/// as often as the rarer way is gone; a clever one that is misled may be half as much worse.
fn wrong_rate(lay: &Lay<'_>, i: usize, branch: usize, site: Site) -> Option<(f64, Likelihood)> {
    // A branch back to where its loop begins is foreseen, unless it is known not to be.
    let usual = if lay.scene.insns[branch].conditional && closes_loop(lay, branch) {
        Likelihood::Faint
    } else {
        Likelihood::Usual
    };
    let Some(seen) = (lay.scene.branch)(branch) else { return Some((1.0, usual)) };
    let rarer = seen.taken.min(1.0 - seen.taken).max(0.0);
    let wrong = site.per_arrival(rarer);
    let matters = wrong * lay.scene.core.penalty.mispredict >= NEGLIGIBLE * lay.cycles(i);
    if wrong < FORESEEN && seen.decided >= ENOUGH_DECIDED && !(matters && seen.rarer > 0.0) {
        return None;
    }
    // With few samples the rarer way may be less rare than it looks.
    let unsure =
        if seen.decided > 0.0 { (rarer * (1.0 - rarer) / seen.decided).sqrt() + 1.0 / seen.decided } else { 0.5 };
    let likelihood = match seen.decided >= FEW_DECIDED {
        enough if seen.decided > 0.0 && seen.rarer <= 0.0 => match enough || usual == Likelihood::Faint {
            true => Likelihood::Unseen,
            false => Likelihood::Doubtful,
        },
        true if rarer >= 0.05 => Likelihood::Plain,
        _ => usual,
    };
    Some((site.per_arrival(1.5 * (rarer + 2.0 * unsure)), likelihood))
}

/// Whether a branch leads back to its own block or an earlier one on its likeliest way.
fn closes_loop(lay: &Lay<'_>, branch: usize) -> bool {
    let likeliest = lay.behind(branch).into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    likeliest.and_then(|w| w.0).is_some_and(|to| to <= branch)
}
