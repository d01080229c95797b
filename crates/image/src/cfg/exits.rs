//! Where each instruction of a function hands control on to, before there are blocks. One flat list: an interpreter
//! dispatches by hundreds of ways from a hundred places.

use super::{Cfg, EdgeKind, Surroundings};
use crate::disasm::Flow;
use crate::ids::Svma;

/// A place and why control goes there.
pub(super) type Exit = (Svma, EdgeKind);

/// Of all instructions.
pub(super) struct Exits {
    all: Vec<Exit>,
    /// Where those of instruction `i` begin in `all`; one more than there are instructions.
    starts: Vec<usize>,
    /// All places, sorted, each once.
    places: Vec<Svma>,
}

impl Exits {
    pub(super) fn of(cfg: &Cfg, around: &dyn Surroundings) -> Self {
        let mut all = Vec::with_capacity(2 * cfg.insns.len());
        let mut starts = vec![0];
        for i in 0..cfg.insns.len() {
            add(&mut all, cfg, i, around);
            starts.push(all.len());
        }
        let mut places: Vec<Svma> = all.iter().map(|e| e.0).collect();
        places.sort_unstable();
        places.dedup();
        Self { all, starts, places }
    }

    /// Those of an instruction, by its index.
    pub(super) fn from(&self, i: usize) -> &[Exit] {
        &self.all[self.starts[i]..self.starts[i + 1]]
    }

    /// All places, sorted, each once.
    pub(super) fn places(&self) -> &[Svma] {
        &self.places
    }

    /// The number of a place among them.
    pub(super) fn place(&self, at: Svma) -> Option<usize> {
        self.places.binary_search(&at).ok()
    }

    /// Places that jumps, branches and tables lead to, sorted, each once.
    pub(super) fn jumped_to(&self) -> Vec<Svma> {
        let jump = |e: &&Exit| matches!(e.1, EdgeKind::Taken | EdgeKind::Table);
        let mut to: Vec<Svma> = self.all.iter().filter(jump).map(|e| e.0).collect();
        to.sort_unstable();
        to.dedup();
        to
    }
}

/// Adds those of one instruction; `Leave` with the instruction's own address for a return.
fn add(all: &mut Vec<Exit>, cfg: &Cfg, i: usize, around: &dyn Surroundings) {
    let insn = &cfg.insns[i];
    let next = (insn.end(), EdgeKind::Fall);
    let out = |to: Svma| (to, if cfg.holds(to) { EdgeKind::Taken } else { EdgeKind::Leave });
    match insn.flow {
        Flow::Next | Flow::IndirectCall => all.push(next),
        Flow::Call(to) if !cfg.holds(to) && !around.returns(to) => {}
        Flow::Call(_) => all.push(next),
        Flow::Jump(to) => all.push(out(to)),
        Flow::Branch(to) => all.extend([next, out(to)]),
        Flow::Return => all.push((insn.address, EdgeKind::Leave)),
        Flow::IndirectJump if cfg.leaves_by_pointer(insn) => all.push((insn.address, EdgeKind::Leave)),
        Flow::IndirectJump => {
            let tables = cfg.tables.iter().filter(|t| t.jump == insn.address);
            all.extend(tables.flat_map(|t| &t.targets).map(|&t| (t, EdgeKind::Table)));
        }
        Flow::Trap | Flow::Invalid => {}
    }
}
