//! Results of the instruction-level analysis as plain values: how often each block, edge and instruction
//! ran, what an execution cost, which causes can explain it. Made by `analysis`, printed by `report`. Field
//! names are JSON names (`whither.cycles/1`).
//!
//! Frequencies are *executions*; when no absolute scale is known they are relative to the procedure's
//! entry, and [`Analysis::scale`] says so: then there is no CPI, only shares.

use super::{Annotation, Provenance};
use serde::Serialize;

/// How far an estimate can be trusted (paper section 6.1.5). Of the sample weight that is called high, nine tenths
/// should lie within 15 % of the exact count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// A guess.
    #[default]
    Low,
    /// Eight tenths within 15 %.
    Medium,
    /// Nine tenths within 15 %.
    High,
}

/// What frequencies rest on, worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Samples and best-case cycles only (level A of the design note).
    #[default]
    Samples,
    /// And directions of branches (level B).
    Branches,
    /// And code executed in thought from samples on.
    Walks,
    /// And the CPU's own records of branches.
    Records,
    /// And samples of executed instructions (level C).
    Instructions,
    /// And executions of some blocks, counted by breakpoints (level C).
    Counts,
}

/// What one execution in [`Estimate::value`] is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "source")]
pub enum Scale {
    /// Executions per entry of the procedure.
    #[default]
    Relative,
    /// Executions while recorded, bounded from best-case cycles: an upper estimate.
    Bounded,
    /// Executions while recorded, from what is named.
    Absolute(String),
    /// Executions while recorded, from counts of rare blocks.
    Counted,
    /// Executions while recorded, from samples of executed instructions.
    Sampled,
}

/// A figure with its 95 % interval. With [`Scale::Bounded`] interval and confidence are about proportions alone: of blocks and
/// edges against each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Best estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How far to trust it.
    pub confidence: Confidence,
}

/// Why an instruction waited, or may have (paper section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Instruction cache.
    ICache,
    /// Instruction TLB.
    Itlb,
    /// Front end: fetching past taken branches, near ones and those whose target is looked up further away.
    FrontEnd,
    /// Data cache.
    DCache,
    /// Data TLB.
    Dtlb,
    /// Mispredicted branch.
    Mispredict,
    /// Store buffer full.
    StoreBuffer,
    /// Synchronisation: locked operation, fence, pause, serialising instruction.
    Synchronisation,
    /// Divider, square root or multiplier busy.
    Unit,
    /// Store-to-load forwarding failed.
    Forwarding,
    /// Assist or microcode.
    Assist,
    /// Page fault: the way into the kernel's handler and back. What the handler does is samples of the kernel.
    PageFault,
    /// The hypervisor ran something else. System calls are samples of the kernel.
    Kernel,
    /// Static: width of the machine.
    Width,
    /// Static: waits for an operand.
    Operand,
    /// Static: execution port.
    Port,
}

impl Cause {
    /// All, in the order of summaries: dynamic ones first.
    pub const ALL: [Self; 16] = [
        Self::ICache,
        Self::Itlb,
        Self::FrontEnd,
        Self::DCache,
        Self::Dtlb,
        Self::StoreBuffer,
        Self::Synchronisation,
        Self::Mispredict,
        Self::Unit,
        Self::Forwarding,
        Self::Assist,
        Self::PageFault,
        Self::Kernel,
        Self::Width,
        Self::Operand,
        Self::Port,
    ];

    /// Whether it follows from the code alone.
    #[must_use]
    pub fn is_static(self) -> bool {
        matches!(self, Self::Width | Self::Operand | Self::Port)
    }

    /// The letter in listings (design note 4.14; static ones as in the paper's figure 2).
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::ICache => 'i',
            Self::Itlb => 't',
            Self::FrontEnd => 'b',
            Self::DCache => 'd',
            Self::Dtlb => 'D',
            Self::Mispredict => 'p',
            Self::StoreBuffer => 'w',
            Self::Synchronisation => 'y',
            Self::Unit => 'u',
            Self::Forwarding => 'f',
            Self::Assist => 'm',
            Self::PageFault => 'g',
            Self::Kernel => 'k',
            Self::Width => 's',
            Self::Operand => 'a',
            Self::Port => 'x',
        }
    }

    /// Name in summaries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ICache => "I-cache miss",
            Self::Itlb => "ITLB miss",
            Self::FrontEnd => "fetch past taken branches",
            Self::DCache => "D-cache miss",
            Self::Dtlb => "DTLB miss",
            Self::Mispredict => "branch mispredict",
            Self::StoreBuffer => "store buffer",
            Self::Synchronisation => "synchronisation",
            Self::Unit => "divider or multiplier busy",
            Self::Forwarding => "store forwarding",
            Self::Assist => "assist or microcode",
            Self::PageFault => "page fault",
            Self::Kernel => "hypervisor",
            Self::Width => "width",
            Self::Operand => "operand dependency",
            Self::Port => "execution port",
        }
    }
}

/// A cause that was not ruled out for one instruction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Culprit {
    /// Which.
    pub cause: Cause,
    /// Least cycles per execution it must be guilty of, as no other suspect can take them.
    pub min_cycles: f64,
    /// Most cycles per execution it can be guilty of.
    pub max_cycles: f64,
    /// The instruction at fault (the load, division, branch, store), index into [`Analysis::insns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<usize>,
}

/// What lies behind a cache that loads missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The last cache, or memory.
    BeyondL2,
    /// Memory, or another core's cache.
    Memory,
}

/// One instruction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InsnAnalysis {
    /// Stated address.
    pub address: u64,
    /// Index into [`Analysis::blocks`]; `None` for padding between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
    /// Skid-corrected samples of the main event, each weighed by its period against their mean.
    pub samples: f64,
    /// Cycles the head of the reorder buffer waits for it at best; 0 when it retires with the one before (M_i).
    pub best_cycles: f64,
    /// Cycles per execution; `None` without an absolute scale or clock.
    pub cycles: Option<f64>,
    /// Part of `best_cycles` in which the instruction's own divider or lock works. It is no static stall, and in the ranges of the cause.
    #[serde(skip_serializing_if = "is_zero")]
    pub busy_cycles: f64,
    /// Cycles beyond the best, per execution: D_i, without what near instructions of the block stay below theirs.
    /// Negative when the estimate of F is too low.
    pub stall_cycles: Option<f64>,
    /// Its static wait, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_stall: Option<Culprit>,
    /// Dynamic causes that remain, likeliest first.
    pub culprits: Vec<Culprit>,
    /// Where some of the loads came from that it waited for, if its stall is longer than anything nearer takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Most cycles of causes that are possible and too unlikely to be named, where nothing but the bound of its cycles asks for one.
    #[serde(skip_serializing_if = "is_zero")]
    pub unlikely: f64,
    /// Part of `stall_cycles` that no remaining cause can take. Where these are 0.25 or more and not `unjudged`, it makes up, with the most of
    /// `culprits` and `unlikely`, no less than them.
    pub unexplained: f64,
    /// Too few samples to name causes: that there are no culprits says nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unjudged: bool,
    /// Where `unjudged`: the most cycles of each cause that is not ruled out, for sums over many such instructions.
    #[serde(skip)]
    pub in_sums: Vec<(Cause, f64)>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

/// One basic block.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BlockAnalysis {
    /// Stated address of its first instruction.
    pub address: u64,
    /// First instruction and how many, as indices into [`Analysis::insns`].
    pub first: usize,
    /// Number of instructions.
    pub len: usize,
    /// Class of cycle equivalence: blocks and edges of one class run equally often.
    pub class: usize,
    /// Innermost loop's header, index of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loop_header: Option<usize>,
    /// Executions.
    pub frequency: Estimate,
    /// Skid-corrected samples of the main event, weighed as those of instructions.
    pub samples: f64,
    /// Share of the procedure's time, 0 to 1.
    pub share: f64,
    /// Cycles of one execution at best.
    pub best_cycles: f64,
    /// Cycles of one execution.
    pub cycles: Option<f64>,
    /// Cycles of one execution at best, of the block repeated, as `llvm-mca` has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mca_cycles: Option<f64>,
}

/// One edge. `from` is `blocks.len()` for the callers, `to` is `blocks.len() + 1` for wherever it leaves to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EdgeAnalysis {
    /// Block it leaves.
    pub from: usize,
    /// Block it enters.
    pub to: usize,
    /// `fall`, `taken`, `table`, `leave` or `enter`.
    pub kind: &'static str,
    /// Executions.
    pub frequency: Estimate,
    /// Share of the block's executions that go this way, 0 to 1.
    pub probability: f64,
    /// Decided branch samples and branch records behind it.
    pub evidence: u64,
}

/// A row of a summary: which part of all cycles a cause can be guilty of (paper figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CauseRange {
    /// Which.
    pub cause: Cause,
    /// Least share of the time, 0 to 1.
    pub min: f64,
    /// Most.
    pub max: f64,
}

/// Where the cycles of a procedure, an image or everything went (paper figure 4). Shares of time, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Where the figures come from.
    pub provenance: Provenance,
    /// What it is about: a procedure, an image, everything.
    pub about: String,
    /// Procedures that were analysed, and their share of the samples selected.
    pub analysed: (usize, f64),
    /// Procedures left out, with the reason, most samples first.
    pub left_out: Vec<(String, String)>,
    /// Best-case and actual cycles per instruction; `None` without an absolute scale.
    pub best_cpi: Option<f64>,
    /// See [`Self::best_cpi`].
    pub cpi: Option<f64>,
    /// Executions are upper bounds: CPI is at least, execution and static stalls at most what is told, dynamic stalls at
    /// least the low end of theirs.
    pub bounded: bool,
    /// One row per cause, dynamic ones first, in the order of [`Cause::ALL`].
    pub causes: Vec<CauseRange>,
    /// Stalls that no cause explains.
    pub unexplained_stall: f64,
    /// Time at instructions with too few samples for their causes to be named. What causes can have taken there is in their ranges.
    pub unjudged: f64,
    /// Most that causes too unlikely to be named can have taken; causes leave it out, the high end of `dynamic_range` does not.
    pub unlikely: f64,
    /// Instructions faster than the model allows; 0 when `bounded`, as that only says how loose the bound is.
    pub unexplained_gain: f64,
    /// All dynamic stalls; their low end when `bounded`.
    pub dynamic: f64,
    /// All static stalls; their high end when `bounded`.
    pub static_stall: f64,
    /// Executing; its high end when `bounded`.
    pub execution: f64,
    /// Least and most of [`Self::dynamic`]; equal unless `bounded`.
    pub dynamic_range: (f64, f64),
    /// Least and most of [`Self::static_stall`]; equal unless `bounded`.
    pub static_range: (f64, f64),
    /// Least and most of [`Self::execution`]; equal unless `bounded`.
    pub execution_range: (f64, f64),
    /// What rounding and sampling leave: 1 minus everything above; 0 when `bounded`.
    pub sampling_error: f64,
    /// Samples tallied.
    pub samples: f64,
    /// Plain sentences.
    pub notes: Vec<String>,
}

/// Answer of `annotate` with frequencies: the annotated procedure and what is known of each instruction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Analysis {
    /// The listing; `insns` run parallel to [`Annotation::insns`] when `cold` parts are none.
    ///
    /// In JSON it stands beside the analysis, not inside of it.
    #[serde(skip)]
    pub annotation: Annotation,
    /// What the frequencies rest on.
    pub evidence: Evidence,
    /// What one execution is.
    pub scale: Scale,
    /// With [`Scale::Bounded`], where the bound is loose: executions at which the blocks, one after the other, take their best cases, over those
    /// told, less than 1. More is possible only as far as blocks pass beside others, as they do around calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_best: Option<f64>,
    /// Core clock, cycles per second.
    pub clock_hz: Option<f64>,
    /// Which processor model gave best cases.
    pub model: String,
    /// Who gave [`BlockAnalysis::mca_cycles`], if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mca: Option<String>,
    /// Decided branch samples inside the procedure, and all register samples in it.
    pub decided: (u64, u64),
    /// Runs between two taken branches inside the procedure that branch records of the CPU show.
    pub recorded: u64,
    /// Samples of executed instructions.
    pub retired: u64,
    /// Blocks that were counted by breakpoints.
    pub counted: usize,
    /// Blocks whose executions pairs of moments tell: how far registers got that loops step.
    pub lapped: usize,
    /// Branches of which sampled registers tell how often they leave a loop: by how many rounds were to go to the bound they compare with.
    pub remaining: usize,
    /// Why the control-flow graph is incomplete; empty when it is complete.
    pub missing: Vec<String>,
    /// Blocks in order of addresses.
    pub blocks: Vec<BlockAnalysis>,
    /// Edges.
    pub edges: Vec<EdgeAnalysis>,
    /// Instructions in order of addresses, cold parts included.
    pub insns: Vec<InsnAnalysis>,
    /// Best-case cycles per instruction, weighted by executions.
    pub best_cpi: Option<f64>,
    /// Actual cycles per instruction.
    pub cpi: Option<f64>,
    /// Causes over the whole procedure.
    pub summary: Summary,
    /// Plain sentences: too few samples, no branch evidence, image changed...
    pub notes: Vec<String>,
}
