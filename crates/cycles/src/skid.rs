//! Skid correction: a sample taken at an instruction belongs to the one executed before it, which
//! held the head of the reorder buffer when the interrupt was recognised (design note 4.8).
//!
//! Within a block that is the instruction above. At a block head it is split over the last
//! instructions of the predecessors. No sample leaves the function, so procedure totals do not
//! change: at the entry, and behind a call (where the callee's return was executed last), it stays.
//!
//! One kind of wait is given up for the interrupt and begun anew: the translation of an address. Such
//! samples stand at the waiting instruction itself. Measured under a hypervisor with small pages: 0.4 % of
//! a missing load's samples at 13 ns per load, 3.5 % at 1 us, 37 % at 2.2 us; of a division's, none.
//!
//! A division fused with the instruction that makes its dividend (`xor %edx,%edx; div`, `cltd; idiv`) is taken apart again for an
//! interrupt: the first part ends, the division is given up. Such samples stand at the division itself, and none behind it. Measured (AMD
//! family 25 model 17): 86 to 91 % of a loop's samples for the four pairs that fuse, none for six that do not.
//!
//! Repeated string instructions are interrupted between their rounds, and stand there themselves. Short ones are not.

use whither_image::{Before, Block, Blocks, Flow, Insn, Printer, Svma, Syntax};

/// Splits are in parts of this many, a power of two, so that sums of split samples are exact in
/// floating point.
const PARTS: u32 = 1 << 10;

/// For each instruction, where its samples go: (instruction, parts of `PARTS`), summing to all.
#[derive(Clone, Debug)]
pub struct Moves {
    to: Vec<Vec<(usize, u32)>>,
}

impl Moves {
    /// Plans the moves of one function. `evidence`: raw weight per instruction, which tells how
    /// often each predecessor ran where nothing better does.
    #[must_use]
    pub fn plan(insns: &[Insn], blocks: &Blocks, evidence: &[f64]) -> Self {
        Self::by_ways(insns, blocks, evidence, &|_, _| 0.0)
    }

    /// The same where ways between blocks were seen. `gone`: how often control was seen to go from the one block to the other.
    #[must_use]
    pub fn by_ways(insns: &[Insn], blocks: &Blocks, evidence: &[f64], gone: &dyn Fn(usize, usize) -> f64) -> Self {
        let plan = Plan::new(insns, blocks, evidence, gone);
        let to = (0..insns.len()).map(|i| plan.of(i)).collect();
        Self { to }
    }

    /// Instructions they are for.
    #[must_use]
    pub fn insns(&self) -> usize {
        self.to.len()
    }

    /// Moves figures; their sum stays the same.
    #[must_use]
    pub fn apply(&self, raw: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; raw.len()];
        for (amount, targets) in raw.iter().zip(&self.to) {
            for &(target, parts) in targets {
                out[target] += amount * f64::from(parts) / f64::from(PARTS);
            }
        }
        out
    }
}

/// What moves are planned by; sums of blocks are made once, for generated code has blocks of many thousand instructions.
struct Plan<'a> {
    insns: &'a [Insn],
    blocks: &'a Blocks,
    evidence: &'a [f64],
    gone: &'a dyn Fn(usize, usize) -> f64,
    leads: Vec<bool>,
    /// Per block, its evidence, and what it costs without any: instructions, a call for several.
    sums: Vec<f64>,
    costs: Vec<usize>,
    /// Per instruction, whether its block does nothing up to it.
    idle: Vec<bool>,
}

impl<'a> Plan<'a> {
    fn new(insns: &'a [Insn], blocks: &'a Blocks, evidence: &'a [f64], gone: &'a dyn Fn(usize, usize) -> f64) -> Self {
        let calls = |i: &&Insn| matches!(i.flow, Flow::Call(_) | Flow::IndirectCall);
        let cost = |b: &Block| b.insns.len() + CALL * insns[b.insns.clone()].iter().filter(calls).count();
        let mut idle = vec![false; insns.len()];
        for i in 0..insns.len() {
            let first = blocks.block_of(i).is_some_and(|b| blocks.blocks[b].insns.start == i);
            idle[i] = insns[i].is_idle() && (first || i > 0 && idle[i - 1]);
        }
        Self {
            leads: leads_of_pairs(insns, blocks),
            sums: blocks.blocks.iter().map(|b| evidence[b.insns.clone()].iter().sum()).collect(),
            costs: blocks.blocks.iter().map(cost).collect(),
            idle,
            insns,
            blocks,
            evidence,
            gone,
        }
    }

    fn of(&self, i: usize) -> Vec<(usize, u32)> {
        let mut before = if i == 0 { Vec::new() } else { self.blocks.before(i) };
        before.retain(|b| !matches!(b, Before::Insn(j) if self.is_padding(*j) || self.is_unreached(*j)));
        if before.is_empty()
            || self.insns[i].flow == Flow::Invalid
            || self.waits_for_its_page(i, &before)
            || is_in_its_rounds(i, &before, self.insns, self.evidence)
            || is_fused_division(i, &before, self.insns)
        {
            return vec![(i, PARTS)];
        }
        let parts = split(&self.likelihood(i, &before));
        let target = |b: &Before| match b {
            // A fused pair retires as one: its time is shown on the comparison, whose address it has.
            Before::Insn(j) if *j > 0 && self.leads[*j - 1] => *j - 1,
            Before::Insn(j) => *j,
            Before::ReturnFrom(_) | Before::Caller => i,
        };
        let mut out: Vec<(usize, u32)> = Vec::new();
        for (b, parts) in before.iter().zip(parts).filter(|(_, parts)| *parts > 0) {
            let target = target(b);
            match out.iter_mut().find(|(t, _)| *t == target) {
                Some((_, sum)) => *sum += parts,
                None => out.push((target, parts)),
            }
        }
        out
    }

    /// How often each of what may have been executed before an instruction was.
    fn likelihood(&self, i: usize, before: &[Before]) -> Vec<f64> {
        if before.len() < 2 {
            return vec![1.0; before.len()];
        }
        if let Some(seen) = self.seen(i, before) {
            return seen;
        }
        let ran: Vec<f64> = before.iter().map(|b| self.ran(*b)).collect();
        let none = ran.iter().all(|l| *l <= 0.0);
        if none { before.iter().map(|b| self.unseen(*b)).collect() } else { ran }
    }

    /// How often control was seen to come from each, if it was seen often enough. Callers are not seen.
    fn seen(&self, i: usize, before: &[Before]) -> Option<Vec<f64>> {
        let block = self.blocks.block_of(i)?;
        let from = |b: &Before| self.block(*b).map(|from| (self.gone)(from, block));
        let seen: Vec<f64> = before.iter().map(from).collect::<Option<_>>()?;
        (seen.iter().sum::<f64>() >= OFTEN_SEEN).then_some(seen)
    }

    /// Whether an instruction is padding in front of code that nothing known leads to: what ran before that code is not known.
    fn is_padding(&self, i: usize) -> bool {
        let start = || self.blocks.block_of(i).map(|b| self.blocks.blocks[b].insns.start);
        self.idle[i] && start().is_some_and(|start| self.blocks.before(start).is_empty())
    }

    /// Whether an instruction is in a block that nothing known leads to and no sample stands in: as likely as not bytes behind an indirect
    /// jump that are no code.
    fn is_unreached(&self, i: usize) -> bool {
        let Some(block) = self.blocks.block_of(i) else { return false };
        self.sums[block] <= 0.0 && self.blocks.before(self.blocks.blocks[block].insns.start).is_empty()
    }

    /// Whether samples at an instruction are its own: it goes to memory, it is what its block waits for, and
    /// nothing before it can have waited instead. A branch forward may have been mispredicted, which shows where it
    /// goes; one back to a loop's head is foreseen.
    fn waits_for_its_page(&self, i: usize, before: &[Before]) -> bool {
        let Some(block) = self.blocks.block_of(i) else { return false };
        if !self.insns[i].touches_memory() || i + 1 >= self.blocks.blocks[block].insns.end {
            return false;
        }
        let (own, next) = (self.evidence[i], self.evidence[i + 1]);
        let awaited = own + next >= self.sums[block] / 2.0 && next >= own / 4.0;
        awaited
            && before.iter().all(|b| match b {
                Before::Insn(j) => self.insns[*j].is_quick() || (*j >= i && jumps(&self.insns[*j])),
                Before::ReturnFrom(_) | Before::Caller => false,
            })
    }

    /// How often the block that ends with a predecessor ran: its mean evidence per instruction, since a
    /// jump itself, fused or cheap, rarely has any of its own.
    fn ran(&self, before: Before) -> f64 {
        self.block(before).map_or(0.0, |b| self.sums[b] / self.blocks.blocks[b].insns.len() as f64)
    }

    /// How likely it is that a predecessor ran although nothing of it was sampled: what is long, or calls, would have been.
    fn unseen(&self, before: Before) -> f64 {
        self.block(before).map_or(1.0, |b| (SHORT as f64 / self.costs[b].max(SHORT) as f64).powi(2))
    }

    fn block(&self, before: Before) -> Option<usize> {
        let (Before::Insn(j) | Before::ReturnFrom(j)) = before else { return None };
        self.blocks.block_of(j)
    }
}

/// Ways into a block that must have been seen before they tell where its samples come from.
const OFTEN_SEEN: f64 = 10.0;
/// Blocks up to this long may run often and be sampled nowhere; a call counts for so many instructions.
const SHORT: usize = 8;
const CALL: usize = 32;

/// Samples at a repeated instruction over those behind it, from where on it is long: what a short one takes stands behind it.
/// The lesser where nothing slow is in front of it.
const IN_ITS_ROUNDS: f64 = 10.0;
const IN_ITS_ROUNDS_AT_ONCE: f64 = 3.0;

/// Whether samples at a repeated instruction are its own.
fn is_in_its_rounds(i: usize, before: &[Before], insns: &[Insn], evidence: &[f64]) -> bool {
    if !insns[i].is_repeated() {
        return false;
    }
    let quick = |b: &Before| matches!(b, Before::Insn(j) if insns[*j].is_quick());
    let times = if before.iter().all(quick) { IN_ITS_ROUNDS_AT_ONCE } else { IN_ITS_ROUNDS };
    evidence[i] > times * evidence.get(i + 1).copied().unwrap_or(0.0)
}

/// Whether samples at a division are its own: what makes its dividend stands before it, and goes through the pipeline with it. By
/// itself that never waits, so nobody else's samples stand there either on cores that do not fuse the two.
fn is_fused_division(i: usize, before: &[Before], insns: &[Insn]) -> bool {
    matches!(before, [Before::Insn(j)] if *j + 1 == i && insns[*j].widens_for(&insns[i]))
}

fn jumps(insn: &Insn) -> bool {
    matches!(insn.flow, Flow::Jump(_) | Flow::Branch(_))
}

/// Integer parts of [`PARTS`] in proportion, evenly without any evidence; what rounding leaves goes
/// to the largest.
fn split(likelihood: &[f64]) -> Vec<u32> {
    let sum: f64 = likelihood.iter().sum();
    let n = likelihood.len() as f64;
    let share = |l: &f64| if sum > 0.0 { l / sum } else { 1.0 / n };
    let mut parts: Vec<u32> = likelihood.iter().map(|l| (share(l) * f64::from(PARTS)).floor() as u32).collect();
    let left = PARTS - parts.iter().sum::<u32>().min(PARTS);
    let largest = (0..parts.len()).max_by(|&a, &b| likelihood[a].total_cmp(&likelihood[b]).then(b.cmp(&a)));
    if let Some(i) = largest {
        parts[i] += left;
    }
    parts
}

/// Which instructions are the first of a fused pair: `cmp` or `test` directly before a conditional
/// jump that nothing else jumps to.
#[must_use]
pub fn leads_of_pairs(insns: &[Insn], blocks: &Blocks) -> Vec<bool> {
    let mut printer = Printer::new(Syntax::Intel);
    let mut leads = vec![false; insns.len()];
    for i in 1..insns.len() {
        let fusible = matches!(insns[i].flow, Flow::Branch(_)) && blocks.block_of(i) == blocks.block_of(i - 1);
        leads[i - 1] = fusible && compares(&insns[i - 1], &mut printer);
    }
    leads
}

fn compares(insn: &Insn, printer: &mut Printer) -> bool {
    let text = printer.text(insn, &|_: Svma| None);
    matches!(text.split(' ').next(), Some("cmp" | "test"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_image::decode;

    fn moved(code: &[u8], raw: &[f64]) -> Vec<f64> {
        let insns = decode(code, Svma(0x1000));
        assert_eq!(insns.len(), raw.len(), "one figure per instruction");
        let blocks = Blocks::new(&insns);
        Moves::plan(&insns, &blocks, raw).apply(raw)
    }

    #[test]
    fn within_a_block_the_instruction_above_gets_it() {
        // mov (%rax),%rax; dec %ecx; ret
        assert_eq!(moved(&[0x48, 0x8b, 0x00, 0xff, 0xc9, 0xc3], &[3.0, 900.0, 5.0]), [903.0, 5.0, 0.0]);
    }

    #[test]
    fn at_a_loop_head_the_latch_gets_nearly_all() {
        // 0: xor %ecx,%ecx   1: div %rax   2: inc %ecx   3: jne 1   4: ret
        let code = [0x31, 0xc9, 0x48, 0xf7, 0xf0, 0xff, 0xc1, 0x75, 0xf9, 0xc3];
        let out = moved(&code, &[0.0, 10.0, 900.0, 20.0, 0.0]);
        assert_eq!(out, [0.0, 900.0, 20.0, 10.0, 0.0]);
    }

    #[test]
    fn a_load_that_its_loop_waits_for_keeps_what_stands_at_it() {
        // 0: xor %ecx,%ecx   1: mov (%rax),%rax   2: inc %ecx   3: jne 1   4: ret
        let code = [0x31, 0xc9, 0x48, 0x8b, 0x00, 0xff, 0xc1, 0x75, 0xf9, 0xc3];
        assert_eq!(moved(&code, &[0.0, 300.0, 600.0, 20.0, 0.0]), [0.0, 900.0, 20.0, 0.0, 0.0]);
        // A load that is not what the loop waits for: something before it did.
        assert_eq!(moved(&code, &[0.0, 300.0, 0.0, 20.0, 0.0]), [0.0, 0.0, 20.0, 300.0, 0.0]);
    }

    #[test]
    fn a_load_behind_something_slow_or_a_branch_forward_keeps_nothing() {
        // 0: div %rcx   1: mov (%rax),%rax   2: inc %ecx   3: ret
        let code = [0x48, 0xf7, 0xf1, 0x48, 0x8b, 0x00, 0xff, 0xc1, 0xc3];
        assert_eq!(moved(&code, &[0.0, 300.0, 600.0, 0.0]), [300.0, 600.0, 0.0, 0.0]);
        // 0: test %eax,%eax   1: jne 3   2: nop   3: mov (%rax),%rax   4: inc %ecx   5: ret
        let code = [0x85, 0xc0, 0x75, 0x01, 0x90, 0x48, 0x8b, 0x00, 0xff, 0xc1, 0xc3];
        let out = moved(&code, &[0.0, 0.0, 0.0, 300.0, 600.0, 0.0]);
        assert_eq!((out[3], out[0] + out[2]), (600.0, 300.0));
    }

    #[test]
    fn a_division_that_is_fused_with_its_dividend_keeps_what_stands_at_it() {
        // 0: mov %edx,%ecx   1: xor %edx,%edx   2: div %ecx   3: test %edx,%edx   4: jne 0   5: ret
        let code = [0x89, 0xd1, 0x31, 0xd2, 0xf7, 0xf1, 0x85, 0xd2, 0x75, 0xf6, 0xc3];
        assert_eq!(moved(&code, &[0.0, 20.0, 900.0, 0.0, 0.0, 0.0]), [20.0, 0.0, 900.0, 0.0, 0.0, 0.0]);
        // 0: mov (%rdi),%eax   1: cltd   2: idiv %ecx   3: ret: the load is waited for before.
        let code = [0x8b, 0x07, 0x99, 0xf7, 0xf9, 0xc3];
        assert_eq!(moved(&code, &[0.0, 70.0, 900.0, 30.0]), [70.0, 0.0, 930.0, 0.0]);
        // 0: xor %edx,%edx   1: div %rcx   2: ret: of unlike widths, not fused.
        assert_eq!(moved(&[0x31, 0xd2, 0x48, 0xf7, 0xf1, 0xc3], &[0.0, 30.0, 900.0]), [30.0, 900.0, 0.0]);
        // 0: jne 2   1: xor %edx,%edx   2: div %ecx   3: ret: another way leads to the division.
        let out = moved(&[0x75, 0x02, 0x31, 0xd2, 0xf7, 0xf1, 0xc3], &[0.0, 0.0, 90.0, 900.0]);
        assert_eq!(out[2], 900.0);
    }

    #[test]
    fn bytes_behind_an_indirect_jump_get_no_samples() {
        // 0: jmp *%rdx   1: incl (%rsi), which may be data   2: dec %ecx   3: jne 2   4: ret; block 2 begins at the loop.
        let code = [0xff, 0xe2, 0xff, 0x06, 0xff, 0xc9, 0x75, 0xfc, 0xc3];
        let out = moved(&code, &[0.0, 0.0, 167.0, 0.0, 0.0]);
        assert_eq!(out[1], 0.0, "{out:?}");
        // Where samples stand in them they run.
        let out = moved(&code, &[0.0, 90.0, 167.0, 0.0, 0.0]);
        assert!(out[1] > 0.0, "{out:?}");
    }

    #[test]
    fn a_long_copy_keeps_what_stands_at_it() {
        // 0: mov %rdx,%rcx   1: rep movsb   2: inc %eax   3: ret
        let code = [0x48, 0x89, 0xd1, 0xf3, 0xa4, 0xff, 0xc0, 0xc3];
        assert_eq!(moved(&code, &[0.0, 980.0, 15.0, 0.0]), [0.0, 995.0, 0.0, 0.0]);
        // 0: div %rcx   1: rep movsb   2: inc %eax   3: ret: the division is slow, the copy not.
        let code = [0x48, 0xf7, 0xf1, 0xf3, 0xa4, 0xff, 0xc0, 0xc3];
        assert_eq!(moved(&code, &[0.0, 300.0, 60.0, 0.0]), [300.0, 60.0, 0.0, 0.0]);
    }

    #[test]
    fn without_evidence_the_split_is_even() {
        // 0: je 3   1: nop   2: jmp 4   3: nop   4: ret
        let code = [0x74, 0x03, 0x90, 0xeb, 0x01, 0x90, 0xc3];
        assert_eq!(moved(&code, &[0.0, 0.0, 0.0, 0.0, 8.0]), [0.0, 0.0, 4.0, 4.0, 0.0]);
    }

    #[test]
    fn a_predecessor_that_calls_would_have_been_seen() {
        // 0: je 4   1: sqrtsd %xmm0,%xmm0   2: addsd %xmm0,%xmm2   3: ret   4: call +0   5: jmp 2
        let code = [0x74, 9, 0xf2, 0x0f, 0x51, 0xc0, 0xf2, 0x0f, 0x58, 0xd0, 0xc3, 0xe8, 0, 0, 0, 0, 0xeb, 0xf4];
        let out = moved(&code, &[0.0, 0.0, 1000.0, 0.0, 0.0, 0.0]);
        assert!(out[1] > 940.0, "{out:?}");
    }

    #[test]
    fn evidence_weighs_predecessors() {
        let code = [0x74, 0x03, 0x90, 0xeb, 0x01, 0x90, 0xc3];
        let out = moved(&code, &[0.0, 1.0, 1.0, 3.0, 8.0]);
        // Means per instruction 1 and 3: of the last eight, two and six; the samples at 1 and 3 go
        // to the branch above, that at 2 to 1.
        assert_eq!(out, [4.0, 1.0, 2.0, 6.0, 0.0]);
    }

    #[test]
    fn ways_that_were_seen_weigh_more_than_samples() {
        // 0: je 3   1: nop   2: jmp 4   3: nop   4: ret; blocks 0, 1 (1 and 2), 2 (3), 3 (4)
        let code = [0x74, 0x03, 0x90, 0xeb, 0x01, 0x90, 0xc3];
        let raw = [0.0, 8.0, 0.0, 0.0, 8.0];
        let insns = decode(&code, Svma(0x1000));
        let blocks = Blocks::new(&insns);
        let moved = |seen: f64| {
            let gone = move |from: usize, to: usize| if (from, to) == (2, 3) { seen } else { 0.0 };
            Moves::by_ways(&insns, &blocks, &raw, &gone).apply(&raw)
        };
        assert_eq!(moved(100.0), [8.0, 0.0, 0.0, 8.0, 0.0], "all come from where nothing was sampled");
        assert_eq!(moved(3.0), [8.0, 0.0, 8.0, 0.0, 0.0], "seen too seldom");
    }

    #[test]
    fn samples_stay_at_the_entry_and_behind_calls() {
        // call +0; nop; ret
        let out = moved(&[0xe8, 0, 0, 0, 0, 0x90, 0xc3], &[7.0, 5.0, 3.0]);
        assert_eq!(out, [7.0, 8.0, 0.0]);
    }

    #[test]
    fn a_fused_pair_is_one_and_shown_on_the_comparison() {
        // 0: mov (%rax),%rax   1: cmp %rax,%rbx   2: jne 4   3: nop   4: ret
        let code = [0x48, 0x8b, 0x00, 0x48, 0x39, 0xc3, 0x75, 0x01, 0x90, 0xc3];
        let out = moved(&code, &[0.0, 100.0, 2.0, 50.0, 0.0]);
        assert_eq!(out, [100.0, 52.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn behind_an_indirect_jump_samples_stay() {
        // 0: jmp *%rax   1: inc %ecx   2: ret
        assert_eq!(moved(&[0xff, 0xe0, 0xff, 0xc1, 0xc3], &[0.0, 6.0, 1.0]), [0.0, 7.0, 0.0]);
        // 0: jmp *%rax   1: nop (padding)   2: inc %ecx   3: ret
        assert_eq!(moved(&[0xff, 0xe0, 0x90, 0xff, 0xc1, 0xc3], &[0.0, 0.0, 6.0, 1.0]), [0.0, 0.0, 7.0, 0.0]);
    }
}
