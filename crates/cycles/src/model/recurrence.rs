//! Chains of operands through loops of several blocks. A register that every block of a loop hands on from its own value makes each round
//! wait for the round before, whichever way it goes: the loop takes no less than what the blocks that ran add to that chain. As bounds
//! must never be above the truth, latencies are those that no core goes below. Left out are chains through memory and addresses (registers
//! may stand in for memory), flags and parts of registers (which some cores rename by themselves) and vectors (whose old lanes may look
//! like an operand); and a call ends all of them.

use super::CoreModel;
use std::ops::Range;
use whither_image::{Effects, OpClass, RegSet};

/// Larger loops are not looked at, in instructions.
const LARGEST: usize = 2048;
/// Instructions per slot of the reorder buffer at most: fused pairs are two.
const IN_A_SLOT: f64 = 2.0;

/// Blocks of a loop, with how often they ran.
#[derive(Clone, Copy, Debug)]
pub struct Rounds<'a> {
    /// Number and executions of each.
    pub blocks: &'a [(usize, f64)],
    /// Times that it was entered.
    pub entries: f64,
}

/// Cycles that the longest chain through all of a loop's rounds took at least. Where it begins anew, as much of it may have been done before
/// as can be executed ahead.
#[must_use]
pub fn chain_of_rounds(core: &dyn CoreModel, insns: &[Effects], blocks: &[Range<usize>], rounds: &Rounds<'_>) -> f64 {
    let all = || rounds.blocks.iter().map(|(b, n)| (&insns[blocks[*b].clone()], *n));
    if all().map(|(code, _)| code.len()).sum::<usize>() > LARGEST {
        return 0.0;
    }
    let written = all().flat_map(|(code, _)| code).fold(RegSet::NONE, |set, i| set.with(i.writes));
    let chain = |register| {
        let (mut cycles, mut begun, mut densest) = (0.0, rounds.entries, 0.0_f64);
        for (code, n) in all() {
            match handed_on(core, code, register) {
                Some(own) => {
                    cycles += n * own;
                    densest = densest.max(own / code.len().max(1) as f64);
                }
                None => begun += n,
            }
        }
        cycles - begun * core.window() * IN_A_SLOT * densest
    };
    RegSet(written.0 & RegSet::GENERAL.0).numbers().map(chain).fold(0.0, f64::max)
}

/// Cycles from a register at the begin of straight code to the same one at its end; `None` where its value is not handed on.
fn handed_on(core: &dyn CoreModel, code: &[Effects], register: usize) -> Option<f64> {
    let mut at: [Option<u32>; 64] = [None; 64];
    at[register & 63] = Some(0);
    for insn in code {
        if insn.class.serialises() || matches!(insn.class, OpClass::Call | OpClass::SystemCall) {
            return None;
        }
        let addresses = insn.load.map_or(RegSet::NONE, |place| place.registers());
        let operands = insn.reads.without(insn.address_reads).without(addresses);
        let ready = operands.numbers().filter_map(|r| at[r]).max().filter(|_| insn.bits >= 32);
        let result = ready.map(|t| t + u32::from(core.least_latency(insn)));
        insn.writes.numbers().for_each(|r| at[r] = result);
    }
    at[register & 63].map(f64::from)
}
