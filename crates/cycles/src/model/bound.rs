//! Least cycles of a block, never above the truth: frequencies are bounded by it, and a bound that is too high calls
//! the truth impossible. So it counts slots, and chains of operands around loops of one block with latencies that no
//! core goes below; memory and units are left out.

use super::schedule::Code;

/// Chains are followed around a loop this many times.
const ROUNDS: usize = 3;
/// Longer blocks are bounded by their slots alone.
const LONGEST: usize = 512;
/// Not reached from where the chain begins.
const UNREACHED: i64 = i64::MIN / 2;

/// Least mean cycles of one execution.
pub(super) fn least_cycles(code: &Code<'_>, block: usize) -> f64 {
    let range = code.blocks[block].clone();
    let slots = range.clone().filter(|&i| !code.fused[i]).count() as f64 / code.core.most_slots();
    if code.loops(block) && range.len() <= LONGEST { slots.max(chain(code, block)) } else { slots }
}

/// The longest chain that leads from a register back to it, per round.
fn chain(code: &Code<'_>, block: usize) -> f64 {
    let insns = &code.insns[code.blocks[block].clone()];
    let written = insns.iter().fold(0, |set, i| set | i.writes.0);
    let read = insns.iter().fold(0, |set, i| set | i.reads.0);
    whither_image::RegSet(written & read).numbers().map(|r| chain_of(code, block, r)).fold(0.0, f64::max)
}

fn chain_of(code: &Code<'_>, block: usize, register: usize) -> f64 {
    let mut at = [UNREACHED; 64];
    at[register] = 0;
    let mut longest: f64 = 0.0;
    for round in 1..=ROUNDS {
        for insn in &code.insns[code.blocks[block].clone()] {
            let from = insn.reads.numbers().map(|r| at[r]).max().unwrap_or(UNREACHED);
            let result = if from == UNREACHED { UNREACHED } else { from + i64::from(code.core.least_latency(insn)) };
            insn.writes.numbers().for_each(|r| at[r] = result);
        }
        if at[register] != UNREACHED {
            longest = longest.max(at[register] as f64 / round as f64);
        }
    }
    longest
}
