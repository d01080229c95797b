//! Why instructions cost more than they must (DCPI section 6.3): every cause is guilty until its own rule proves it
//! innocent. Rules are small functions over the code around a stall, one per cause; each answers with the most cycles
//! the cause can have taken and the instruction at fault, or with nothing. What rules cannot know they do not rule out.
//!
//! A stall stands where the skid correction put it: at the instruction whose end was waited for, or, when the pipeline
//! was empty, at the one executed before the next could be fetched. So each site has two sets of suspects: its own
//! completion, and the fetch of whatever comes behind it.

mod data;
mod fetch;
mod forward;
mod jumps;
mod origin;
mod places;
mod scene;
mod summary;
mod units;

pub use origin::origin;
pub use scene::{BranchSeen, Certainty, Flow, Scene};
pub use summary::{cap_page_faults, summary};
pub use units::{charge_own_work, own_work};

use crate::results::analysis::{Cause, Culprit};
use scene::Lay;

/// What remains of the suspects of one instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Not ruled out, likeliest first.
    pub culprits: Vec<Culprit>,
    /// Most cycles that causes can have taken which are too far-fetched to be named: nothing asks for an explanation.
    pub unlikely: f64,
    /// Cycles of the stall that all of them together cannot have taken.
    pub unexplained: f64,
    /// There are too few samples to name any here.
    pub unjudged: bool,
    /// Then: the most that each cause not ruled out can have taken. Of one such instruction it says nothing; over thousands, as compilers
    /// have them, it adds up.
    pub in_sums: Vec<(Cause, f64)>,
}

/// How likely a cause is once it is possible. Order of listing only: guilt and bounds do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likelihood {
    /// The code shows it outright.
    Plain,
    /// Common at such a place.
    Usual,
    /// It happened before and may still show here.
    Late,
    /// Common at such a place, but of the little that was seen of this one it was nothing.
    Doubtful,
    /// Possible.
    Faint,
    /// Possible if another core writes to the line: nothing in the code says so.
    Remote,
    /// Possible, but it was looked for and never seen.
    Unseen,
}

/// A cause that its rule did not rule out.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Suspect {
    cause: Cause,
    /// Most cycles per execution.
    bound: f64,
    /// The instruction at fault.
    at: usize,
    likelihood: Likelihood,
}

/// One rule: a possible cause of the stall at an instruction.
type Rule = fn(&Lay<'_>, usize) -> Option<Suspect>;

/// All rules. Static causes are the model's business.
const RULES: [Rule; 13] = [
    fetch::instruction_cache,
    fetch::instruction_tlb,
    fetch::mispredict,
    jumps::taken_branches,
    data::data_cache,
    data::data_tlb,
    data::store_buffer,
    forward::forwarding,
    units::synchronisation,
    units::unit,
    units::assist,
    units::page_fault,
    units::kernel,
];

/// Stalls below this many cycles are not judged: samples do not tell them from nothing.
const LEAST_STALL: f64 = 0.25;
/// Instructions with fewer samples are not judged by themselves,
const LEAST_SAMPLES: f64 = 10.0;
/// nor those whose stall is not so many times what their samples scatter by,
const CHANCE: f64 = 2.0;
/// and blocks as a whole only when so many samples, and most of the block's, are scattered over such instructions. Straight
/// code that misses the instruction cache is like that.
const LEAST_SCATTERED: f64 = 100.0;
/// Where only the least cycles are known, instructions are judged that have this share of the procedure's time,
const LEAST_SHARE: f64 = 0.005;
/// or so many times their even share.
const OUTSTANDING: f64 = 4.0;
/// A suspect of less than this share of the stall is not named. What the hypervisor took was measured, and is.
const NEGLIGIBLE: f64 = 0.05;

/// Judges every instruction of a procedure.
#[must_use]
pub fn judge(scene: &Scene<'_>) -> Vec<Judged> {
    let lay = Lay::new(scene);
    (0..scene.insns.len()).map(|i| judge_one(&lay, i)).collect()
}

/// Part of what an instruction takes that clocks, models and neighbours on the machine may be off by.
const UNSURE: f64 = 0.15;

/// What no rule knows of (machine clears, bank conflicts, a stranger on the core's other thread) costs one emptied pipeline, or two: below so
/// many nothing far-fetched is proved by there being nobody else.
const FLUSHES: f64 = 2.0;

/// What there is to convict with.
#[derive(Clone, Copy, Debug)]
struct Proof {
    /// Cycles of the stall that are beyond doubt.
    sure: f64,
    /// They are more than models can have missed.
    beyond_models: bool,
}

impl Proof {
    /// Whether there being nobody else convicts. Where all suspects together cannot have taken what is sure, there is somebody whom no
    /// rule knows, who may have taken all of it: then nothing but the code itself does.
    fn convicts(self, likelihood: Likelihood, all: f64) -> bool {
        let complete = all >= self.sure;
        match likelihood {
            Likelihood::Plain => true,
            Likelihood::Usual | Likelihood::Late => complete,
            Likelihood::Faint | Likelihood::Remote => complete && self.beyond_models,
            // What was never seen to happen is no more than possible, whoever else there is.
            Likelihood::Doubtful | Likelihood::Unseen => false,
        }
    }
}

/// Least and most cycles of an instruction's stall.
#[derive(Clone, Copy, Debug)]
struct Stall {
    least: f64,
    most: f64,
}

impl Stall {
    /// What of the least is beyond doubt, of so many cycles at the instruction: too little of it condemns nobody.
    fn sure(self, cycles: f64) -> f64 {
        Some(self.least - UNSURE * cycles).filter(|sure| *sure >= LEAST_STALL).unwrap_or(0.0)
    }
}

fn judge_one(lay: &Lay<'_>, i: usize) -> Judged {
    let site = stall_of(lay, i);
    let (stall, to_explain) = match site {
        Site::Stalls(stall) => (stall, stall.least),
        // It may not be this one that stalls, so nobody is guilty of anything; but somebody must be able to be.
        Site::Scattered { most, to_explain } | Site::Few { most, to_explain } => {
            (Stall { least: 0.0, most }, to_explain)
        }
        Site::Quick => return Judged::default(),
    };
    let mut suspects: Vec<Suspect> = match lay.block_of(i) {
        Some(_) => RULES.iter().filter_map(|rule| rule(lay, i)).collect(),
        None => Vec::new(),
    };
    // What is as quick as it can be, as far as is known, needs no far-fetched explanation.
    let strained = to_explain >= LEAST_STALL;
    suspects.retain(|s| s.bound > 0.0);
    // Nor does anybody look for other cores where somebody here can have done all of it.
    let here: f64 = suspects.iter().filter(|s| s.likelihood < Likelihood::Remote).map(|s| s.bound).sum();
    let explained = here >= (1.0 - UNSURE) * stall.most;
    let (named, unnamed): (Vec<_>, Vec<_>) = suspects.into_iter().partition(|s| match s.likelihood {
        Likelihood::Remote => strained && !explained,
        Likelihood::Faint | Likelihood::Unseen => strained,
        _ => true,
    });
    let sum = |culprits: &[Culprit]| culprits.iter().map(|c| c.max_cycles).sum::<f64>();
    let counts = |c: &Culprit| c.max_cycles >= NEGLIGIBLE * stall.most || c.cause == Cause::Kernel;
    let sure = stall.sure(lay.cycles(i));
    let beyond_models = sure >= FLUSHES * lay.scene.core.penalty.mispredict;
    let all = share_out(stall, Proof { sure, beyond_models }, named);
    // Where they all fall short of what is told as the stall, that it may be less as well explains nothing.
    let told = if matches!(site, Site::Stalls(_)) { lay.told(i).max(to_explain) } else { to_explain };
    let unexplained = (told - sum(&all)).max(0.0);
    let (culprits, negligible): (Vec<_>, Vec<_>) = all.into_iter().partition(counts);
    let unlikely = unnamed.iter().map(|s| s.bound).sum::<f64>() + sum(&negligible);
    let judged = Judged { culprits, unlikely: unlikely.min(stall.most), unexplained, ..Judged::default() };
    if matches!(site, Site::Few { .. }) { judged.unnamed() } else { judged }
}

impl Judged {
    /// Without names.
    fn unnamed(self) -> Self {
        let in_sums = self.culprits.iter().map(|c| (c.cause, c.max_cycles)).collect();
        Self { culprits: Vec::new(), unjudged: true, in_sums, ..self }
    }
}

/// Whether there is something to judge at an instruction.
#[derive(Clone, Copy, Debug)]
enum Site {
    Stalls(Stall),
    /// It is one of many in a block whose time is scattered: no single one is known to stall, all together do.
    Scattered {
        most: f64,
        to_explain: f64,
    },
    /// It takes what it must.
    Quick,
    /// There are too few samples to tell whether it is this one that stalls.
    Few {
        most: f64,
        to_explain: f64,
    },
}

/// The stall to be judged, if it is worth it.
fn stall_of(lay: &Lay<'_>, i: usize) -> Site {
    let figure = |of: &[f64]| of.get(i).copied().filter(|x| x.is_finite()).unwrap_or(0.0).max(0.0);
    let least = figure(lay.scene.stalls);
    let most = match lay.scene.certainty {
        Certainty::Known => least,
        Certainty::AtLeast => figure(lay.scene.cycles),
    };
    let stall = Stall { least: least.min(most), most };
    if lay.scene.certainty == Certainty::Known && least < LEAST_STALL {
        return Site::Quick;
    }
    if figure(lay.scene.samples) < LEAST_SAMPLES || is_chance(lay, i, stall) {
        return match lay.is_scattered(i) {
            true if most > 0.0 => Site::Scattered { most, to_explain: stall.least },
            true => Site::Quick,
            false => Site::Few { most, to_explain: stall.least },
        };
    }
    let share = lay.share_of_time(i);
    let noticed = share >= LEAST_SHARE || share * lay.scene.insns.len() as f64 >= OUTSTANDING;
    if lay.scene.certainty == Certainty::Known || noticed {
        Site::Stalls(stall)
    } else {
        Site::Few { most, to_explain: stall.least }
    }
}

/// Whether a stall may be no more than the chance by which an instruction has a few samples too many: sums of such are known, no single one.
fn is_chance(lay: &Lay<'_>, i: usize, stall: Stall) -> bool {
    let figure = |of: &[f64]| of.get(i).copied().filter(|x| x.is_finite()).unwrap_or(0.0).max(0.0);
    let (samples, cycles) = (figure(lay.scene.samples), figure(lay.scene.cycles));
    let stalled = samples * (stall.most / cycles.max(f64::MIN_POSITIVE)).min(1.0);
    stalled < CHANCE * samples.sqrt()
}

/// max_k = min(D, bound_k); min_k = what is sure and the others together cannot have taken, where that convicts.
fn share_out(stall: Stall, proof: Proof, mut suspects: Vec<Suspect>) -> Vec<Culprit> {
    let most = |s: &Suspect| s.bound.min(stall.most);
    // One that can explain the stall comes before one that cannot; then the likelier.
    let key = |s: &Suspect| (s.bound < stall.most * 0.5, s.likelihood, rank(s.cause));
    suspects.sort_by_key(key);
    let sum: f64 = suspects.iter().map(most).sum();
    let culprit = |s: &Suspect| Culprit {
        cause: s.cause,
        min_cycles: if proof.convicts(s.likelihood, sum) {
            (proof.sure - (sum - most(s))).clamp(0.0, most(s))
        } else {
            0.0
        },
        max_cycles: most(s),
        at: Some(s.at),
    };
    suspects.iter().map(culprit).collect()
}

/// Among equals: what costs most when it happens first.
fn rank(cause: Cause) -> usize {
    const ORDER: [Cause; 13] = [
        Cause::PageFault,
        Cause::Synchronisation,
        Cause::Forwarding,
        Cause::Mispredict,
        Cause::DCache,
        Cause::Dtlb,
        Cause::Unit,
        Cause::StoreBuffer,
        Cause::ICache,
        Cause::Itlb,
        Cause::FrontEnd,
        Cause::Assist,
        Cause::Kernel,
    ];
    ORDER.iter().position(|c| *c == cause).unwrap_or(ORDER.len())
}

#[cfg(test)]
mod tests;
