//! Deciding many samples of one image: its code is decoded once, where walks reach it, and shared by all places that
//! are sampled. Cheaper than a [`Slice`](super::Slice) per place, which knows recipes; what it decides is the same.
//! Constraint: a collector pays this for one sample in eight, so a step that is known costs no decoding and no hashing.

use super::lower::{Barrier, Op, Step, lower};
use super::machine::{Machine, Memory};
use super::slice::{LONGEST, MOST_BYTES, kept};
use super::value::{Value, holds};
use super::{Decision, RecipeStep, Registers};
use crate::ids::Svma;
use crate::jump_tables::Data;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use rustc_hash::FxHashMap;

/// Index of a step that was not looked for yet.
const NOT_YET: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Known {
    step: Step,
    at: Svma,
    /// Stated address of the next instruction.
    end: Svma,
    next: u32,
    taken: u32,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// At a branch whose input is not known: loads may help.
    Blocked,
    /// Elsewhere: after enough decisions, at a branch decided before, at a call or return, at something that is not
    /// interpreted.
    Other,
}

/// Decoded code of one image, as far as walks went.
pub struct Walks {
    steps: Vec<Known>,
    /// Index of the step at a stated address, or `NOT_YET` where nothing can be interpreted.
    index: FxHashMap<u64, u32>,
    infos: InstructionInfoFactory,
}

impl Default for Walks {
    fn default() -> Self {
        Self { steps: Vec::new(), index: FxHashMap::default(), infos: InstructionInfoFactory::new() }
    }
}

impl std::fmt::Debug for Walks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walks").field("steps", &self.steps.len()).finish_non_exhaustive()
    }
}

/// What a sample brings besides its place.
#[derive(Clone, Copy, Debug)]
pub struct Sampled<'a> {
    /// Registers.
    pub registers: &'a Registers,
    /// The steps that were asked for there.
    pub recipe: &'a [RecipeStep],
    /// What those of them read that load, in that order.
    pub loads: &'a [Option<u64>],
    /// What is added to stated addresses at run time.
    pub bias: u64,
}

impl Walks {
    /// Bytes that the decoded code takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.steps.capacity() * size_of::<Known>() + self.index.capacity() * 16
    }

    /// Interprets from a stated address on; appends at most `most` decisions in the order of execution, those behind
    /// the first only where other walks have been, and of each branch the first: a sample inside a loop would see every
    /// way out of it, but only the turns that were still to come. `code` is as for [`Slice::new`](super::Slice::new),
    /// always of the same image.
    pub fn decide(
        &mut self,
        code: &dyn Data,
        from: Svma,
        sampled: &Sampled<'_>,
        most: usize,
        decisions: &mut Vec<Decision>,
    ) -> WalkEnd {
        let kept = kept(sampled.recipe, sampled.registers, sampled.loads, sampled.bias);
        let mut machine = Machine {
            gpr: sampled.registers.gpr.map(Value::exact),
            flags: Value::exact(sampled.registers.flags),
            memory: Memory::new(&kept, code, sampled.bias),
            bias: sampled.bias,
        };
        let (before, enough) = (decisions.len(), decisions.len() + most);
        let Some(mut here) = self.find(code, from) else { return WalkEnd::Other };
        for _ in 0..LONGEST {
            let known = self.steps[here as usize];
            let decided = |d: &Decision| matches!(d, Decision::Branch { at, .. } if *at == known.at);
            if decisions[before..].iter().any(decided) {
                return WalkEnd::Other;
            }
            let (next, taken) = match known.step.op {
                Op::Jump(_) => (Svma(0), true),
                Op::Branch { condition, .. } => {
                    let Some(taken) = holds(condition, machine.flags) else { return WalkEnd::Blocked };
                    decisions.push(Decision::Branch { at: known.at, taken });
                    (known.end, taken)
                }
                Op::BranchIfNone { size, .. } => {
                    let Some(count) = machine.gpr[1].get(size) else { return WalkEnd::Blocked };
                    decisions.push(Decision::Branch { at: known.at, taken: count == 0 });
                    (known.end, count == 0)
                }
                Op::IndirectJump | Op::IndirectCall => {
                    let Some(to) = machine.read(known.step.dst, &known.step).get(8) else { return WalkEnd::Blocked };
                    decisions.push(Decision::Target { at: known.at, to });
                    return WalkEnd::Other;
                }
                _ => {
                    if machine.execute(&known.step).is_err() {
                        return WalkEnd::Other;
                    }
                    (known.end, false)
                }
            };
            if decisions.len() >= enough {
                return WalkEnd::Other;
            }
            // Behind the first decision only code that other walks have been through: more is not worth decoding.
            let new = decisions.len() == before;
            let Some(found) = self.follow(code, here, next, taken, new) else { return WalkEnd::Other };
            here = found;
        }
        WalkEnd::Other
    }

    /// The step behind another: its target, or the next instruction; one that is not `new` must be known.
    fn follow(&mut self, code: &dyn Data, from: u32, next: Svma, taken: bool, new: bool) -> Option<u32> {
        let step = &self.steps[from as usize];
        let linked = if taken { step.taken } else { step.next };
        if linked != NOT_YET {
            return Some(linked);
        }
        let to = match step.step.op {
            Op::Jump(to) | Op::Branch { to, .. } | Op::BranchIfNone { to, .. } if taken => Svma(to),
            _ => next,
        };
        let found = if new { self.find(code, to)? } else { *self.index.get(&to.0).filter(|n| **n != NOT_YET)? };
        let step = &mut self.steps[from as usize];
        *(if taken { &mut step.taken } else { &mut step.next }) = found;
        Some(found)
    }

    /// The step at an address, decoded when it is new.
    fn find(&mut self, code: &dyn Data, at: Svma) -> Option<u32> {
        if let Some(&known) = self.index.get(&at.0) {
            return (known != NOT_YET).then_some(known);
        }
        let new = u32::try_from(self.steps.len()).ok().filter(|n| *n != NOT_YET)?;
        // Bytes that are not at hand may be another time (a file that cannot be read now).
        let bytes = (1..=MOST_BYTES).rev().find_map(|len| code.bytes(at, len))?;
        let raw = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
        let step: Result<Step, Barrier> = lower(&raw, &mut self.infos);
        let Ok(step) = step else {
            self.index.insert(at.0, NOT_YET);
            return None;
        };
        self.steps.push(Known { step, at, end: Svma(raw.next_ip()), next: NOT_YET, taken: NOT_YET });
        self.index.insert(at.0, new);
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Slice;
    use super::*;
    use crate::{Bytes, ElfSummary, StatedBytes};
    use proptest::prelude::*;
    use std::sync::LazyLock;

    /// This test's own program: the addresses of its code, and its bytes.
    static PROGRAM: LazyLock<(std::ops::Range<u64>, StatedBytes)> = LazyLock::new(|| {
        let bytes = Bytes::from(std::fs::read(std::env::current_exe().expect("a running test")).expect("readable"));
        let code = ElfSummary::parse(&bytes).expect("ELF").segments[0];
        (code.address..code.address + code.size, StatedBytes::from_elf(&bytes).expect("ELF"))
    });

    /// Small numbers, as registers often hold: with them comparisons go either way.
    fn register() -> impl Strategy<Value = u64> {
        prop_oneof![0..4_u64, any::<u64>(), 0x7fff_0000..0x7fff_ffff_u64]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn what_a_slice_decides_a_walk_decides_too(
            at in any::<prop::sample::Index>(), gpr in prop::array::uniform16(register()), flags in 0..0x1000_u64,
            loads in prop::array::uniform4(prop::option::of(register()))
        ) {
            let (code, data) = &*PROGRAM;
            let at = Svma(code.start + at.index((code.end - code.start) as usize) as u64);
            let registers = Registers { gpr, flags };
            let slice = Slice::new(data, at);
            let expect = slice.decide_with(data, &registers, &loads, 0x1000);
            let sampled = Sampled { registers: &registers, recipe: slice.recipe(), loads: &loads, bias: 0x1000 };
            let mut walks = Walks::default();
            for _ in 0..2 {
                let mut found = Vec::new();
                walks.decide(data, at, &sampled, 64, &mut found);
                // A walk knows the addresses of stores, so it may see further; behind the first decision it
                // goes through known code only, so it may see less.
                let n = expect.len().min(found.len());
                prop_assert_eq!(&found[..n], &expect[..n]);
                prop_assert!(n >= expect.len().min(1));
            }
            let mut first = Vec::new();
            walks.decide(data, at, &sampled, 1, &mut first);
            prop_assert_eq!(first.first(), expect.first().or(first.first()));
            prop_assert!(first.len() <= 1);
        }
    }

    #[test]
    fn a_walk_decides_each_branch_once() {
        // 0: dec edi; jne 0 (at 2); test esi,esi; jne 0 (at 6); ret
        let bytes = [0xff, 0xcf, 0x75, 0xfc, 0x85, 0xf6, 0x75, 0xf8, 0xc3];
        let code = StatedBytes::from_pieces([(Svma(0x1000), &bytes[..])]);
        let mut walks = Walks::default();
        let mut walk = |at, rdi, rsi| {
            let mut registers = Registers::default();
            (registers.gpr[7], registers.gpr[6]) = (rdi, rsi);
            let sampled = Sampled { registers: &registers, recipe: &[], loads: &[], bias: 0 };
            let mut found = Vec::new();
            let end = walks.decide(&code, Svma(at), &sampled, 6, &mut found);
            assert_eq!(end, WalkEnd::Other);
            found
        };
        let branch = |at, taken| Decision::Branch { at: Svma(at), taken };
        // Code behind a decision must have been walked through before.
        walk(0x1004, 9, 0);
        assert_eq!(walk(0x1000, 4, 0), [branch(0x1002, true)], "not all turns that are left");
        assert_eq!(walk(0x1000, 1, 0), [branch(0x1002, false), branch(0x1006, false)]);
        assert_eq!(walk(0x1004, 9, 1), [branch(0x1006, true), branch(0x1002, true)], "round to where it began");
    }

    #[test]
    fn a_branch_on_memory_is_blocked_until_the_load_is_there() {
        // cmp dword [rdi+8], esi; jb +1; nop; ret
        let bytes = [0x39, 0x77, 0x08, 0x72, 0x01, 0x90, 0xc3];
        let code = StatedBytes::from_pieces([(Svma(0x1000), &bytes[..])]);
        let slice = Slice::new(&code, Svma(0x1000));
        let mut registers = Registers::default();
        (registers.gpr[7], registers.gpr[6]) = (0x5000, 7);
        let mut walks = Walks::default();
        let mut walk = |loads: &[Option<u64>]| {
            let sampled = Sampled { registers: &registers, recipe: slice.recipe(), loads, bias: 0 };
            let mut found = Vec::new();
            (walks.decide(&code, Svma(0x1000), &sampled, 4, &mut found), found)
        };
        assert_eq!(walk(&[]), (WalkEnd::Blocked, vec![]));
        let branch = |taken| vec![Decision::Branch { at: Svma(0x1003), taken }];
        assert_eq!(walk(&[Some(6)]), (WalkEnd::Other, branch(true)));
        assert_eq!(walk(&[Some(7)]), (WalkEnd::Other, branch(false)));
        assert!(walks.bytes() > 0);
    }
}
