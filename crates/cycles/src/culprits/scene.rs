//! What the rules look at: the code of one procedure with its flow, and questions about the way to and from an
//! instruction. Rare ways are passed over, as in the paper (P46): what happens once in twenty times explains no stall.

use super::{LEAST_SAMPLES, LEAST_SCATTERED};
use crate::analysis::{Refills, Threads};
use crate::model::Core;
use std::collections::VecDeque;
use std::ops::Range;
use whither_image::graph::Graph;
use whither_image::{Effects, OpClass, RegSet};

/// Ways with less of a block's flow are passed over.
pub(super) const RARE: f64 = 0.05;
/// Loops that go round so often keep their code and fixed places in the first cache.
pub(super) const LONG_RUNNING: f64 = 16.0;

/// A way between blocks that was gone so often. Numbers that are no block stand for the outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Block it leaves.
    pub from: usize,
    /// Block it enters.
    pub to: usize,
    /// Times, in any unit that all flows of the scene share.
    pub executions: f64,
}

/// What is known of a branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BranchSeen {
    /// Share of its executions that jump; of an indirect one, to its likeliest target.
    pub taken: f64,
    /// Samples that decided it.
    pub decided: f64,
    /// Of these, those of the way that was seen less often.
    pub rarer: f64,
}

/// What is known of cycles per execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Executions were counted.
    Known,
    /// Executions are an upper bound, so that each took this long or longer. Then all of an instruction's time may be a
    /// stall, and no cause can be ruled out by being too quick.
    AtLeast,
}

/// One procedure with its stalls.
pub struct Scene<'a> {
    /// Latencies and penalties.
    pub core: &'a Core,
    /// Instructions, by address.
    pub insns: &'a [Effects],
    /// Samples of each.
    pub samples: &'a [f64],
    /// Blocks, by address.
    pub blocks: &'a [Range<usize>],
    /// Ways between them.
    pub flows: &'a [Flow],
    /// Executions of each block, in the unit of the flows.
    pub executions: &'a [f64],
    /// Cycles per execution of each instruction.
    pub cycles: &'a [f64],
    /// Of these, what the model does not account for (D), and of that what executions being more than estimated cannot explain.
    pub stalls: &'a [f64],
    /// All that the model does not account for.
    pub told: &'a [f64],
    /// What is known of a branch that is guessed.
    pub branch: &'a dyn Fn(usize) -> Option<BranchSeen>,
    /// Whether the cycles are those of an execution, or what it took at least.
    pub certainty: Certainty,
    /// Time that the hypervisor took, as a share of the time of what ran.
    pub kernel_share: f64,
    /// Time that the kernel spent on page faults, as a share of all time.
    pub fault_share: f64,
    /// Samples that this is a share of.
    pub all_samples: f64,
    /// What samples tell of the caches of instructions.
    pub refills: Option<Refills>,
    /// And of the threads that run this code.
    pub threads: Threads,
}

/// The innermost loop of a block.
#[derive(Clone, Debug)]
pub(super) struct LoopFacts {
    /// Its blocks, by number.
    pub(super) nodes: Vec<usize>,
    /// Iterations per entry.
    pub(super) trips: f64,
    /// Bytes of code.
    pub(super) bytes: u64,
    /// Calls something, so that its code is not all there is.
    pub(super) calls: bool,
    /// Registers it changes.
    pub(super) writes: RegSet,
    /// Stores per iteration.
    pub(super) stores: f64,
    /// Multiplications per iteration.
    pub(super) multiplies: f64,
    /// Cycles per iteration.
    pub(super) cycles: f64,
    /// Instructions per iteration.
    pub(super) insns: f64,
    /// Taken branches per iteration.
    pub(super) jumps: f64,
    /// Different taken branches, however seldom they run.
    pub(super) places: usize,
}

/// The scene with what many rules ask.
pub(super) struct Lay<'a> {
    pub(super) scene: &'a Scene<'a>,
    blocks_of: Vec<Option<u32>>,
    /// Successors of each block with their shares; `None` is the outside.
    next: Vec<Vec<(Option<usize>, f64)>>,
    /// Predecessors likewise.
    before: Vec<Vec<(Option<usize>, f64)>>,
    loops: Vec<LoopFacts>,
    loop_of: Vec<Option<usize>>,
    /// Blocks with many samples, most of them at instructions that have too few to be judged alone.
    scattered: Vec<bool>,
    /// Cycles of the whole procedure, in the unit of the flows.
    pub(super) time: f64,
}

impl<'a> Lay<'a> {
    pub(super) fn new(scene: &'a Scene<'a>) -> Self {
        let n = scene.blocks.len();
        let mut blocks_of = vec![None; scene.insns.len()];
        for (b, range) in scene.blocks.iter().enumerate() {
            blocks_of[range.clone()].fill(Some(b as u32));
        }
        let (mut next, mut before) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        for f in scene.flows {
            let inside = |b: usize| (b < n).then_some(b);
            if f.from < n {
                next[f.from].push((inside(f.to), f.executions));
            }
            if f.to < n {
                before[f.to].push((inside(f.from), f.executions));
            }
        }
        next.iter_mut().chain(&mut before).for_each(shares);
        let time =
            |(range, n): (&Range<usize>, &f64)| n * scene.cycles.get(range.clone()).map_or(0.0, |c| c.iter().sum());
        let time = scene.blocks.iter().zip(scene.executions).map(time).sum();
        let scattered =
            scene.blocks.iter().map(|b| is_scattered(scene.samples.get(b.clone()).unwrap_or(&[]))).collect();
        let (loops, loop_of) = (Vec::new(), vec![None; n]);
        let mut lay = Self { scene, blocks_of, next, before, loops, loop_of, scattered, time };
        lay.find_loops();
        lay
    }

    pub(super) fn block_of(&self, insn: usize) -> Option<usize> {
        self.blocks_of.get(insn).copied().flatten().map(|b| b as usize)
    }

    /// Cycles of an execution of an instruction.
    pub(super) fn cycles(&self, insn: usize) -> f64 {
        self.scene.cycles.get(insn).copied().filter(|c| c.is_finite()).unwrap_or(0.0)
    }

    /// Cycles of an execution of an instruction that are told as its stall.
    pub(super) fn told(&self, insn: usize) -> f64 {
        self.scene.told.get(insn).copied().filter(|x| x.is_finite()).unwrap_or(0.0)
    }

    /// Cycles that stand at an instruction, in the unit of the flows.
    pub(super) fn time_of(&self, insn: usize) -> f64 {
        let executions = self.block_of(insn).and_then(|b| self.scene.executions.get(b)).copied().unwrap_or(0.0);
        executions * self.scene.cycles.get(insn).copied().unwrap_or(0.0)
    }

    /// Cycles of an execution of an instruction at most that something took which took this share of so many samples, all of it
    /// here. What is expected to be few samples may be more by chance.
    pub(super) fn cycles_of(&self, insn: usize, share: f64, samples: f64) -> f64 {
        let of = |all: &[f64]| all.get(insn).copied().unwrap_or(0.0);
        let expected = share * samples;
        let most = expected + 2.0 * expected.sqrt();
        let own = of(self.scene.samples);
        if own > most { of(self.scene.cycles) * most / own } else { f64::INFINITY }
    }

    /// Part of the procedure's time that stands at an instruction.
    pub(super) fn share_of_time(&self, insn: usize) -> f64 {
        if self.time > 0.0 { self.time_of(insn) / self.time } else { 0.0 }
    }

    /// Whether an instruction is in such a block.
    pub(super) fn is_scattered(&self, insn: usize) -> bool {
        self.block_of(insn).is_some_and(|b| self.scattered[b])
    }

    /// The innermost loop around an instruction.
    pub(super) fn loop_of(&self, insn: usize) -> Option<&LoopFacts> {
        self.loops.get(self.loop_of[self.block_of(insn)?]?)
    }

    /// Instructions executed directly behind this one, with shares; `None` is outside of the procedure.
    pub(super) fn behind(&self, insn: usize) -> Vec<(Option<usize>, f64)> {
        let Some(block) = self.block_of(insn) else { return Vec::new() };
        if insn + 1 < self.scene.blocks[block].end {
            return vec![(Some(insn + 1), 1.0)];
        }
        self.next[block].iter().map(|&(b, s)| (b.map(|b| self.scene.blocks[b].start), s)).collect()
    }

    /// Instructions executed directly before this one, with shares; `None` is the caller.
    pub(super) fn ahead(&self, insn: usize) -> Vec<(Option<usize>, f64)> {
        let Some(block) = self.block_of(insn) else { return Vec::new() };
        if insn > self.scene.blocks[block].start {
            return vec![(Some(insn - 1), 1.0)];
        }
        self.before[block].iter().map(|&(b, s)| (b.map(|b| self.scene.blocks[b].end - 1), s)).collect()
    }

    /// Share of an instruction's executions behind which this one is executed.
    pub(super) fn share(&self, from: usize, to: usize) -> f64 {
        self.behind(from).iter().filter(|w| w.0 == Some(to)).map(|w| w.1).sum()
    }

    /// Up to `most` instructions before this one on the likeliest way, nearest first; round loops too.
    pub(super) fn history(&self, insn: usize, most: usize) -> Vec<usize> {
        let mut out = Vec::with_capacity(most.min(64));
        let mut at = insn;
        while out.len() < most {
            let ways = self.ahead(at);
            let likeliest = ways.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let Some(&(Some(before), _)) = likeliest else { break };
            out.push(before);
            at = before;
        }
        out
    }

    /// Up to `most` instructions behind this one on the likeliest way, nearest first.
    pub(super) fn future(&self, insn: usize, most: usize) -> Vec<usize> {
        let mut out = Vec::with_capacity(most);
        let mut at = VecDeque::from([insn]);
        while let Some(i) = at.pop_front().filter(|_| out.len() < most) {
            let ways = self.behind(i);
            if let Some(&(Some(next), _)) = ways.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
                out.push(next);
                at.push_back(next);
            }
        }
        out
    }

    /// Whether the skid correction leaves samples at this instruction because what ran before it is elsewhere: at the
    /// entry and behind calls. Then its own fetch is part of its site.
    pub(super) fn begins_after_others(&self, insn: usize) -> bool {
        let ways = self.ahead(insn);
        ways.is_empty()
            || ways.iter().any(|w| match w.0 {
                None => w.1 >= RARE,
                Some(j) => w.1 >= RARE && self.scene.insns[j].class == OpClass::Call,
            })
    }

    /// Instructions of a loop.
    pub(super) fn insns_of<'s>(&'s self, body: &'s LoopFacts) -> impl Iterator<Item = usize> + 's {
        body.nodes.iter().flat_map(|&b| self.scene.blocks[b].clone())
    }

    fn find_loops(&mut self) {
        let n = self.scene.blocks.len();
        let inside = |b: usize| if b < n { b } else { n };
        let mut edges: Vec<(usize, usize)> =
            self.scene.flows.iter().map(|f| (inside(f.from), inside(f.to))).filter(|e| e.1 < n).collect();
        // What nothing known leads to is entered from outside.
        let mut entered = vec![false; n];
        edges.iter().filter(|e| e.0 != e.1).for_each(|e| entered[e.1] = true);
        edges.extend((0..n).filter(|&b| !entered[b]).map(|b| (n, b)));
        let loops = Graph { nodes: n + 1, edges }.loops(n);
        for body in loops.iter().filter(|l| l.header < n) {
            // Outer ones come first, so that inner ones overwrite them.
            body.nodes.iter().filter(|b| **b < n).for_each(|&b| self.loop_of[b] = Some(self.loops.len()));
            self.loops.push(self.facts(body.header, &body.nodes));
        }
    }

    fn facts(&self, header: usize, nodes: &[usize]) -> LoopFacts {
        let scene = self.scene;
        let of = |b: usize| scene.executions.get(b).copied().unwrap_or(0.0);
        let member = |b: usize| nodes.binary_search(&b).is_ok();
        let entries: f64 = scene.flows.iter().filter(|f| f.to == header && !member(f.from)).map(|f| f.executions).sum();
        let rounds = of(header).max(f64::MIN_POSITIVE);
        let insns = || {
            nodes
                .iter()
                .filter(|b| **b < scene.blocks.len())
                .flat_map(|&b| scene.blocks[b].clone().map(move |i| (b, i)))
        };
        let end = |b: usize| scene.insns[scene.blocks[b].end - 1].end();
        let begin = |b: usize| scene.insns[scene.blocks[b].start].address;
        let jumps =
            || scene.flows.iter().filter(|f| member(f.from) && member(f.to)).filter(|f| begin(f.to) != end(f.from));
        let per_round = |value: &dyn Fn(usize) -> f64| insns().map(|(b, i)| value(i) * of(b) / rounds).sum::<f64>();
        LoopFacts {
            nodes: nodes.iter().copied().filter(|b| *b < scene.blocks.len()).collect(),
            // An unknown way in is counted as one entry in as many rounds as make no difference.
            trips: if entries > 0.0 { of(header) / entries } else { f64::INFINITY },
            bytes: insns().map(|(_, i)| u64::from(scene.insns[i].len)).sum(),
            calls: insns().any(|(_, i)| leaves(&scene.insns[i])),
            writes: insns().fold(RegSet::NONE, |set, (_, i)| set.with(scene.insns[i].writes)),
            stores: per_round(&|i| f64::from(u8::from(scene.insns[i].store.is_some()))),
            multiplies: per_round(&|i| f64::from(u8::from(scene.insns[i].class == OpClass::Imul))),
            cycles: per_round(&|i| scene.cycles.get(i).copied().unwrap_or(0.0)),
            insns: per_round(&|_| 1.0),
            jumps: jumps().map(|f| f.executions).sum::<f64>() / rounds,
            places: jumps().filter(|f| f.executions > 0.0).count(),
        }
    }
}

fn is_scattered(samples: &[f64]) -> bool {
    let all: f64 = samples.iter().sum();
    let few: f64 = samples.iter().filter(|s| **s < LEAST_SAMPLES).sum();
    few >= LEAST_SCATTERED && few >= 0.5 * all
}

fn leaves(insn: &Effects) -> bool {
    matches!(insn.class, OpClass::Call | OpClass::SystemCall)
}

fn shares(ways: &mut Vec<(Option<usize>, f64)>) {
    ways.retain(|w| w.1.is_finite() && w.1 >= 0.0);
    let sum: f64 = ways.iter().map(|w| w.1).sum();
    let even = 1.0 / ways.len().max(1) as f64;
    ways.iter_mut().for_each(|w| w.1 = if sum > 0.0 { w.1 / sum } else { even });
}
