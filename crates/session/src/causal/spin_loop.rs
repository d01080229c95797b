//! Whether code waits in a loop for what other threads write, told from its instructions. A loop that stores nothing, calls
//! nothing and takes nothing with it from one round into the next does the same in every round: only another
//! thread's store can end it. A search, a count or a checksum takes an address, a number or a sum with it.

use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use whither_image::{Effects, EffectsReader, Flow, Insn, OpClass, RegSet, Svma, decode};

/// Instructions of a loop that spins at the most; more of them do some work.
const LONGEST: usize = 24;
/// Instructions that are looked at from a place.
const WIDEST: usize = 64;
/// Bytes of the longest instruction.
const INSN: usize = 15;

/// Whether the instruction at a place is part of such a loop: the shortest one through it counts, others are around that.
/// `code` begins at `start`; what is not in it ends a path.
pub(super) fn waits(code: &[u8], start: Svma, at: Svma) -> bool {
    let round = Around::of(code, start, at).shortest_round();
    round.len() <= LONGEST && round.iter().any(|e| e.load.is_some()) && forgets(&round)
}

/// Instructions that control may reach from the first one, as far as they only look.
struct Around {
    effects: Vec<Effects>,
    /// By instruction, those that may come after it.
    next: Vec<Vec<usize>>,
}

impl Around {
    fn of(code: &[u8], start: Svma, at: Svma) -> Self {
        let mut found: Vec<Insn> = Vec::new();
        let mut effects = Vec::new();
        let mut asked = vec![at];
        let mut seen = FxHashSet::default();
        let mut reader = EffectsReader::new();
        while let Some(address) = asked.pop() {
            if found.len() == WIDEST || !seen.insert(address.0) {
                continue;
            }
            let Some(insn) = one(code, start, address) else { continue };
            let does = reader.of(&insn);
            if only_looks(&does) {
                asked.extend(after(&insn));
                found.push(insn);
                effects.push(does);
            }
        }
        let index = |at: Svma| found.iter().position(|i| i.address == at);
        let next = found.iter().map(|insn| after(insn).into_iter().filter_map(index).collect()).collect();
        Self { effects, next }
    }

    /// The shortest way from the first instruction to itself; nothing when it is in no loop.
    fn shortest_round(&self) -> Vec<Effects> {
        let mut before: Vec<Option<usize>> = vec![None; self.next.len()];
        let mut open = VecDeque::from_iter(self.effects.first().map(|_| 0));
        while let Some(i) = open.pop_front() {
            for to in self.next[i].iter().copied() {
                if to == 0 {
                    let mut round: Vec<usize> = std::iter::successors(Some(i), |i| before[*i]).collect();
                    round.reverse();
                    return round.into_iter().map(|i| self.effects[i]).collect();
                }
                if before[to].is_none() {
                    before[to] = Some(i);
                    open.push_back(to);
                }
            }
        }
        Vec::new()
    }
}

/// Whether it stores nothing, goes nowhere else, and does not ask for the time.
fn only_looks(does: &Effects) -> bool {
    use OpClass::{Call, IndirectBranch, Lock, Other, Rep, Return, SystemCall};
    let more = does.class.serialises()
        || matches!(does.class, Call | IndirectBranch | Lock | Other | Rep | Return | SystemCall);
    does.store.is_none() && !more
}

/// Whether there is a place in the round where nothing is needed any more that the round has made.
fn forgets(round: &[Effects]) -> bool {
    let made = round.iter().fold(RegSet::NONE, |all, e| all.with(e.writes));
    (0..round.len()).any(|from| {
        let (before, after) = round.split_at(from);
        let needed = before.iter().rev().chain(after.iter().rev());
        // Backwards from here to here: before, then what was after it.
        let held = needed.fold(RegSet::NONE, |held, e| e.reads.with(held.without(e.writes)));
        !held.meets(made)
    })
}

fn one(code: &[u8], start: Svma, at: Svma) -> Option<Insn> {
    let from = usize::try_from(at.0.checked_sub(start.0)?).ok()?;
    let bytes = code.get(from..code.len().min(from.checked_add(INSN)?))?;
    decode(bytes, at).into_iter().next().filter(|insn| insn.flow != Flow::Invalid)
}

/// Where control goes without leaving the function.
fn after(insn: &Insn) -> Vec<Svma> {
    match insn.flow {
        Flow::Next => vec![insn.end()],
        Flow::Jump(to) => vec![to],
        Flow::Branch(to) => vec![to, insn.end()],
        Flow::Call(_) | Flow::IndirectCall | Flow::IndirectJump | Flow::Return | Flow::Trap | Flow::Invalid => {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each of these places is in a loop that waits.
    fn at(code: &[u8], places: &[u64]) -> Vec<bool> {
        places.iter().map(|at| waits(code, Svma(0x1000), Svma(0x1000 + at))).collect()
    }

    #[test]
    fn a_loop_that_only_looks_waits_for_others() {
        // mov (%r8),%ecx; test %ecx,%ecx; je back; ret
        assert_eq!(at(&[0x41, 0x8b, 0x08, 0x85, 0xc9, 0x74, 0xf9, 0xc3], &[0, 3, 5, 7]), [true, true, true, false]);
        // mov -8(%rbp),%rax; mov (%rax),%eax; test %eax,%eax; je back: not optimised, the address is read anew in each round.
        let plain = [0x48, 0x8b, 0x45, 0xf8, 0x8b, 0x00, 0x85, 0xc0, 0x74, 0xf6];
        assert_eq!(at(&plain, &[0, 4, 6, 8]), [true; 4]);
        // mov h(%rip),%rdx; mov t(%rip),%rax; cmp %rax,%rdx; je +2; ret; nop; pause; jmp back: both heads of a ring.
        let ring = [
            0x48, 0x8b, 0x15, 0, 0, 0, 0, 0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x48, 0x39, 0xc2, 0x74, 0x02, 0xc3, 0x90, 0xf3,
            0x90, 0xeb, 0xe7,
        ];
        assert_eq!(at(&ring, &[0, 7, 14, 17, 21, 23]), [true; 6]);
        // The same within a loop that works: mov (%r8),%ecx; test %ecx,%ecx; je back; movl $0,(%r8); add $64,%r8; jmp to the first.
        let around = [
            0x41, 0x8b, 0x08, 0x85, 0xc9, 0x74, 0xf9, 0x41, 0xc7, 0x00, 0, 0, 0, 0, 0x49, 0x83, 0xc0, 0x40, 0xeb, 0xec,
        ];
        assert_eq!(at(&around, &[0, 3, 5, 7, 14, 18]), [true, true, true, false, false, false]);
        // cmpl $0,(%rdi); jne back.
        assert_eq!(at(&[0x83, 0x3f, 0x00, 0x75, 0xfb], &[0, 3]), [true; 2]);
    }

    #[test]
    fn a_loop_that_gets_on_does_not() {
        // add $1,%rdi; cmpb $0,(%rdi); jne back: a search, with an address that changes.
        assert_eq!(at(&[0x48, 0x83, 0xc7, 0x01, 0x80, 0x3f, 0x00, 0x75, 0xf7], &[0, 4, 7]), [false; 3]);
        // mov 8(%rdi),%rdi; test %rdi,%rdi; jne back: along a list.
        assert_eq!(at(&[0x48, 0x8b, 0x7f, 0x08, 0x48, 0x85, 0xff, 0x75, 0xf7], &[0, 4, 7]), [false; 3]);
        // inc %rax; cmp (%rdi),%rax; jne back: a count up to what stands in memory.
        assert_eq!(at(&[0x48, 0xff, 0xc0, 0x48, 0x3b, 0x07, 0x75, 0xf8], &[0, 3, 6]), [false; 3]);
        // imul %rax,%rax; dec %rcx; jne back: no memory.
        assert_eq!(at(&[0x48, 0x0f, 0xaf, 0xc0, 0x48, 0xff, 0xc9, 0x75, 0xf7], &[0, 4, 7]), [false; 3]);
        // mov (%rdi),%eax; mov %eax,(%rsi); jmp back: it stores. call; mov (%rdi),%eax; test; je back: others may store.
        assert_eq!(at(&[0x8b, 0x07, 0x89, 0x06, 0xeb, 0xfa], &[0, 2, 4]), [false; 3]);
        assert_eq!(at(&[0xe8, 0, 0, 0, 0, 0x8b, 0x07, 0x85, 0xc0, 0x74, 0xf5], &[0, 5, 7, 9]), [false; 4]);
        // rdtsc; cmp %eax,(%rdi); ja back: it waits for the time.
        assert_eq!(at(&[0x0f, 0x31, 0x39, 0x07, 0x77, 0xfa], &[0, 2, 4]), [false; 3]);
        // A flag with a budget: dec %ecx; je out; mov (%rdi),%eax; test %eax,%eax; je back ends by itself.
        assert_eq!(at(&[0xff, 0xc9, 0x74, 0x06, 0x8b, 0x07, 0x85, 0xc0, 0x74, 0xf6], &[0, 4, 8]), [false; 3]);
    }

    #[test]
    fn any_bytes_are_answered() {
        let mut x = 1_u64;
        let mut noise = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 56) as u8
        };
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..96).map(|_| noise()).collect();
            at(&bytes, &[0, 40, 95, 96, 4000]);
        }
        assert!(!waits(&[0xeb, 0xfe], Svma(0x1000), Svma(0x10)));
    }
}
