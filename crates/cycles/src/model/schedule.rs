//! Schedules a procedure: every block behind each of its likelier predecessors, in the state those leave the pipeline
//! in, until loops repeat themselves. Work is bounded: a few passes over the blocks, a few hundred instructions per
//! loop of one block.

use super::pipeline::{NOBODY, Pipeline, Step};
use super::{CoreModel, Work, bound};
use crate::results::analysis::Cause;
use std::ops::Range;
use whither_image::Effects;

/// Predecessors looked at per block, heaviest first.
const MOST_PREDECESSORS: usize = 4;
/// Instructions simulated for one loop of one block in one pass.
const LOOP_BUDGET: usize = 256;
/// Rounds of such a loop at most.
const MOST_ROUNDS: usize = 24;
/// Passes by how many blocks a procedure has at most, and over larger ones. A loop of several blocks goes round once in a pass, and
/// what fetching is ahead by at first hides for as many rounds what it cannot bring in time.
const PASSES: [(usize, usize); 2] = [(8, 24), (64, 6)];
const PASSES_OF_MANY: usize = 3;

/// A wait that follows from the code alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaticStall {
    /// Width, operand or port.
    pub cause: Cause,
    /// Cycles.
    pub cycles: f64,
    /// Whose result is waited for: index of an instruction.
    pub at: Option<usize>,
}

/// One instruction at best.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InsnSchedule {
    /// Cycles between the retirement before and its own; 0 in the shadow of another (M_i).
    pub best_cycles: f64,
    /// Why it waits even then.
    pub static_stall: Option<StaticStall>,
}

/// One block at best.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockSchedule {
    /// Cycles of one execution when all goes well.
    pub best_cycles: f64,
    /// Slots of the pipeline that it takes, fused pairs as one.
    pub slots: f64,
    /// Cycles that no execution goes below on average; never above the truth.
    pub c_min: f64,
}

/// A procedure at best.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Parallel to the instructions.
    pub insns: Vec<InsnSchedule>,
    /// Parallel to the blocks.
    pub blocks: Vec<BlockSchedule>,
}

/// Schedules `blocks` of `insns`. `preds` gives the blocks that may run before a block with how often they do;
/// numbers that are no block stand for the outside and are passed over.
#[must_use]
pub fn schedule(
    core: &dyn CoreModel,
    insns: &[Effects],
    blocks: &[Range<usize>],
    preds: &dyn Fn(usize) -> Vec<(usize, f64)>,
) -> Schedule {
    let code = Code::new(core, insns, blocks, preds);
    let mut run = Run::new(&code);
    let passes = PASSES.iter().find(|p| blocks.len() <= p.0).map_or(PASSES_OF_MANY, |p| p.1);
    for pass in 0..passes {
        let counted = pass + 1 >= passes.div_ceil(2);
        (0..blocks.len()).for_each(|b| run.block(b, counted));
    }
    run.finish()
}

/// What does not change while scheduling.
pub(super) struct Code<'a> {
    pub(super) core: &'a dyn CoreModel,
    pub(super) insns: &'a [Effects],
    pub(super) blocks: &'a [Range<usize>],
    works: Vec<Work>,
    pub(super) fused: Vec<bool>,
    /// Predecessors with their shares, heaviest first.
    preds: Vec<Vec<(usize, f64)>>,
}

impl<'a> Code<'a> {
    fn new(
        core: &'a dyn CoreModel,
        insns: &'a [Effects],
        blocks: &'a [Range<usize>],
        preds: &dyn Fn(usize) -> Vec<(usize, f64)>,
    ) -> Self {
        let mut fused = vec![false; insns.len()];
        for block in blocks {
            for i in block.clone().skip(1) {
                fused[i] = !fused[i - 1] && core.fuses(&insns[i - 1], &insns[i]);
            }
        }
        let preds = (0..blocks.len()).map(|b| heaviest(preds(b), blocks.len())).collect();
        Self { core, insns, blocks, works: insns.iter().map(|i| core.work(i)).collect(), fused, preds }
    }

    /// Whether control comes from `from` to `to` by a jump.
    fn jumps(&self, from: usize, to: usize) -> bool {
        let (from, to) = (&self.blocks[from], &self.blocks[to]);
        let Some(last) = from.clone().next_back() else { return false };
        let end = self.insns[last].address.wrapping_add(u64::from(self.insns[last].len));
        to.clone().next().is_some_and(|first| self.insns[first].address != end)
    }

    pub(super) fn loops(&self, block: usize) -> bool {
        self.preds[block].iter().any(|p| p.0 == block)
    }
}

/// The likelier predecessors, shares summing to 1.
fn heaviest(mut preds: Vec<(usize, f64)>, blocks: usize) -> Vec<(usize, f64)> {
    preds.retain(|p| p.0 < blocks && p.1.is_finite() && p.1 >= 0.0);
    preds.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    preds.truncate(MOST_PREDECESSORS);
    let sum: f64 = preds.iter().map(|p| p.1).sum();
    let even = 1.0 / preds.len().max(1) as f64;
    preds.iter_mut().for_each(|p| p.1 = if sum > 0.0 { p.1 / sum } else { even });
    preds
}

struct Run<'c, 'a> {
    code: &'c Code<'a>,
    /// State behind each block as its heaviest predecessor left it.
    behind: Vec<Option<Pipeline>>,
    gaps: Vec<f64>,
    /// Passes counted, per block.
    counted: Vec<f64>,
    stalls: Vec<Option<(Cause, u32)>>,
}

impl<'c, 'a> Run<'c, 'a> {
    fn new(code: &'c Code<'a>) -> Self {
        Self {
            code,
            behind: vec![None; code.blocks.len()],
            gaps: vec![0.0; code.insns.len()],
            counted: vec![0.0; code.blocks.len()],
            stalls: vec![None; code.insns.len()],
        }
    }

    /// One pass over one block.
    fn block(&mut self, block: usize, counted: bool) {
        let code = self.code;
        let known: Vec<(usize, f64)> =
            code.preds[block].iter().copied().filter(|p| self.behind[p.0].is_some()).collect();
        let share: f64 = known.iter().map(|p| p.1).sum();
        if known.is_empty() || share <= 0.0 {
            let mut pipeline = Pipeline::new(code.core.order());
            self.once(block, &mut pipeline, if counted { 1.0 } else { 0.0 });
            self.behind[block] = Some(pipeline.rebased());
        } else {
            let mut left = None;
            for &(pred, weight) in known.iter().rev() {
                let weight = if counted { weight / share } else { 0.0 };
                left = Some(self.behind_one(block, pred, weight));
            }
            self.behind[block] = left;
        }
        self.counted[block] += f64::from(u8::from(counted));
    }

    /// The block behind one predecessor; behind itself it goes round until that is steady.
    fn behind_one(&mut self, block: usize, pred: usize, weight: f64) -> Pipeline {
        let len = self.code.blocks[block].len().max(1);
        let rounds = if pred == block { (LOOP_BUDGET / len).clamp(2, MOST_ROUNDS) } else { 1 };
        let mut pipeline =
            self.behind[pred].as_ref().map_or_else(|| Pipeline::new(self.code.core.order()), Pipeline::rebased);
        for round in 0..rounds {
            if self.code.jumps(pred, block) {
                pipeline.redirect(self.code.core);
            }
            let steady = round >= rounds / 2;
            let share = weight / (rounds - rounds / 2) as f64;
            self.once(block, &mut pipeline, if steady { share } else { 0.0 });
        }
        pipeline.rebased()
    }

    fn once(&mut self, block: usize, pipeline: &mut Pipeline, weight: f64) {
        let code = self.code;
        for i in code.blocks[block].clone() {
            let step = pipeline.step(code.core, &code.insns[i], &code.works[i], code.fused[i], i as u32);
            self.gaps[i] += weight * f64::from(step.gap);
            if weight > 0.0 && step.gap > 0 {
                self.stalls[i] = stall(&step);
            }
        }
    }

    fn finish(self) -> Schedule {
        let code = self.code;
        let mut out = Schedule {
            insns: vec![InsnSchedule::default(); code.insns.len()],
            blocks: Vec::with_capacity(code.blocks.len()),
        };
        for (b, block) in code.blocks.iter().enumerate() {
            for i in block.clone() {
                // Sums of shares are rounded, so that whole cycles are whole.
                let best_cycles = (self.gaps[i] / self.counted[b].max(1.0) * 1e6).round() / 1e6;
                let static_stall = self.stalls[i].filter(|_| best_cycles > 0.0).map(|(cause, on)| StaticStall {
                    cause,
                    cycles: best_cycles,
                    at: (on != NOBODY).then_some(on as usize),
                });
                out.insns[i] = InsnSchedule { best_cycles, static_stall };
            }
            let best_cycles: f64 = out.insns[block.clone()].iter().map(|i| i.best_cycles).sum();
            let slots = block.clone().filter(|&i| !code.fused[i]).count() as f64;
            out.blocks.push(BlockSchedule { best_cycles, slots, c_min: bound::least_cycles(code, b) });
        }
        out
    }
}

/// A cycle that passes because the machine is only so wide is its ordinary pace, not a stall.
fn stall(step: &Step) -> Option<(Cause, u32)> {
    (step.cause != Cause::Width || step.gap > 1).then_some((step.cause, step.on))
}
