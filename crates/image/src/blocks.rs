//! Basic blocks of one function by its direct jumps or from its control-flow graph, and for each instruction those that
//! may have been executed just before it. From direct jumps alone, jump tables are not resolved: [`Blocks::incomplete`] says that there
//! are indirect jumps whose targets are missing.

use crate::cfg::{Cfg, CfgBlock, EdgeKind};
use crate::disasm::{Flow, Insn};
use crate::ids::Svma;
use std::ops::Range;

/// What was executed just before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Before {
    /// The instruction of this index, falling through or jumping here.
    Insn(usize),
    /// The return of the function that the call of this index entered.
    ReturnFrom(usize),
    /// Something outside of the function: its callers, as this is the entry.
    Caller,
}

/// One basic block: instructions that are executed one after the other. Calls do not end a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Indices of its instructions; never empty.
    pub insns: Range<usize>,
    /// Blocks that may run before it, by fall-through or direct jump, in order.
    pub predecessors: Vec<usize>,
    /// Blocks that may run after it inside the function, in order.
    pub successors: Vec<usize>,
}

/// The blocks of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// In order of addresses, without holes.
    pub blocks: Vec<Block>,
    /// There is an indirect jump: edges are missing, and a block without predecessors may be one
    /// of its targets.
    pub incomplete: bool,
    is_call: Vec<bool>,
    /// Index of the instruction that callers enter at.
    entry: usize,
}

impl Blocks {
    /// Those of a control-flow graph: jump tables are known there, and several parts.
    #[must_use]
    pub fn from_cfg(cfg: &Cfg) -> Self {
        let empty = |b: &CfgBlock| Block { insns: b.insns.clone(), predecessors: Vec::new(), successors: Vec::new() };
        let mut blocks: Vec<Block> = cfg.blocks.iter().map(empty).collect();
        for e in &cfg.edges {
            if e.from < blocks.len() && e.to < blocks.len() {
                blocks[e.from].successors.push(e.to);
                blocks[e.to].predecessors.push(e.from);
            }
        }
        for block in &mut blocks {
            block.successors.sort_unstable();
            block.successors.dedup();
            block.predecessors.sort_unstable();
            block.predecessors.dedup();
        }
        let entered = cfg.edges.iter().find(|e| e.kind == EdgeKind::Enter).and_then(|e| blocks.get(e.to));
        let entry = entered.map_or(0, |b| b.insns.start);
        Self { blocks, incomplete: !cfg.missing.is_empty(), is_call: calls(&cfg.insns), entry }
    }

    /// Cuts the instructions of one function, decoded without holes from its entry, into blocks.
    #[must_use]
    pub fn new(insns: &[Insn]) -> Self {
        let leaders = leaders(insns);
        let ends = leaders.iter().skip(1).copied().chain([insns.len()]);
        let empty = |(start, end)| Block { insns: start..end, predecessors: Vec::new(), successors: Vec::new() };
        let mut blocks: Vec<Block> = leaders.iter().copied().zip(ends).map(empty).collect();
        for from in 0..blocks.len() {
            let last = blocks[from].insns.end - 1;
            for target in continuations(insns, last) {
                // Only leaders are continued at, so the search always hits.
                if let Ok(to) = leaders.binary_search(&target) {
                    blocks[from].successors.push(to);
                    blocks[to].predecessors.push(from);
                }
            }
        }
        for block in &mut blocks {
            block.successors.sort_unstable();
            block.successors.dedup();
            block.predecessors.dedup();
        }
        let incomplete = insns.iter().any(|i| i.flow == Flow::IndirectJump);
        Self { blocks, incomplete, is_call: calls(insns), entry: 0 }
    }

    /// The block that holds the instruction of index `insn`.
    #[must_use]
    pub fn block_of(&self, insn: usize) -> Option<usize> {
        let i = self.blocks.partition_point(|b| b.insns.start <= insn).checked_sub(1)?;
        self.blocks[i].insns.contains(&insn).then_some(i)
    }

    /// All that may have been executed just before the instruction of index `insn`; at the head of a
    /// block without known predecessors it is empty.
    #[must_use]
    pub fn before(&self, insn: usize) -> Vec<Before> {
        let Some(at) = self.block_of(insn) else {
            return Vec::new();
        };
        let block = &self.blocks[at];
        if insn > block.insns.start {
            return vec![self.executed(insn - 1)];
        }
        let caller = (insn == self.entry).then_some(Before::Caller);
        let lasts = block.predecessors.iter().map(|&p| self.executed(self.blocks[p].insns.end - 1));
        caller.into_iter().chain(lasts).collect()
    }

    fn executed(&self, insn: usize) -> Before {
        if self.is_call[insn] { Before::ReturnFrom(insn) } else { Before::Insn(insn) }
    }
}

fn calls(insns: &[Insn]) -> Vec<bool> {
    insns.iter().map(|i| matches!(i.flow, Flow::Call(_) | Flow::IndirectCall)).collect()
}

/// Indices of the instructions that begin a block, sorted.
fn leaders(insns: &[Insn]) -> Vec<usize> {
    let mut leaders: Vec<usize> = if insns.is_empty() { Vec::new() } else { vec![0] };
    for (i, insn) in insns.iter().enumerate() {
        if !matches!(insn.flow, Flow::Next | Flow::Call(_) | Flow::IndirectCall) {
            leaders.extend((i + 1 < insns.len()).then_some(i + 1));
        }
        if let Flow::Jump(target) | Flow::Branch(target) = insn.flow {
            leaders.extend(index_of(insns, target));
        }
    }
    leaders.sort_unstable();
    leaders.dedup();
    leaders
}

/// Instructions of the function that may run after the one of index `i`.
fn continuations(insns: &[Insn], i: usize) -> impl Iterator<Item = usize> {
    let target = match insns[i].flow {
        Flow::Jump(target) | Flow::Branch(target) => index_of(insns, target),
        _ => None,
    };
    let falls = matches!(insns[i].flow, Flow::Next | Flow::Branch(_) | Flow::Call(_) | Flow::IndirectCall);
    let next = (falls && i + 1 < insns.len()).then_some(i + 1);
    target.into_iter().chain(next)
}

/// The instruction that begins at an address; `None` outside of the function or inside of one.
fn index_of(insns: &[Insn], address: Svma) -> Option<usize> {
    insns.binary_search_by_key(&address, |i| i.address).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disasm::decode;

    fn blocks(code: &[u8]) -> Blocks {
        Blocks::new(&decode(code, Svma(0x1000)))
    }

    #[test]
    fn a_loop_with_a_call() {
        // 0: xor  1: call  2: dec  3: jne 1  4: ret
        let code = [0x31, 0xc0, 0xe8, 0, 0, 0, 0, 0xff, 0xc9, 0x75, 0xf7, 0xc3];
        let b = blocks(&code);
        let ranges: Vec<_> = b.blocks.iter().map(|b| b.insns.clone()).collect();
        assert_eq!(ranges, [0..1, 1..4, 4..5]);
        assert_eq!(b.blocks[1].predecessors, [0, 1]);
        assert_eq!(b.blocks[1].successors, [1, 2]);
        assert_eq!(b.before(0), [Before::Caller]);
        assert_eq!(b.before(1), [Before::Insn(0), Before::Insn(3)]);
        assert_eq!(b.before(2), [Before::ReturnFrom(1)]);
        assert_eq!(b.before(3), [Before::Insn(2)]);
        assert_eq!(b.before(4), [Before::Insn(3)]);
        assert_eq!(b.before(5), []);
        assert!(!b.incomplete);
    }

    #[test]
    fn code_behind_an_indirect_jump_has_no_known_predecessor() {
        let b = blocks(&[0xff, 0xe0, 0x90, 0xc3]);
        assert!(b.incomplete);
        assert_eq!(b.before(1), []);
        assert_eq!(b.before(2), [Before::Insn(1)]);
    }

    #[test]
    fn jumps_out_of_or_into_the_middle_of_instructions_make_no_edge() {
        let b = blocks(&[0x75, 0x01, 0xb8, 0x90, 0x90, 0x90, 0x90, 0xe9, 0, 0, 0, 0x10]);
        assert_eq!(b.blocks.len(), 2);
        assert_eq!(b.blocks[0].successors, [1]);
        assert!(b.blocks[1].successors.is_empty());
    }

    #[test]
    fn nothing() {
        let b = blocks(&[]);
        assert!(b.blocks.is_empty() && !b.incomplete);
        assert_eq!(b.before(0), []);
    }
}
