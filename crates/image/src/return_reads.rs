//! Whether a function looks at its own return address, or changes it: `__builtin_return_address(0)`, code
//! that finds its caller's module, thunks that redirect their return, stubs that take it off the stack. Told from the unwind
//! rules: the return address lies one word below the frame address, so an access to just that word is one. Where a
//! function has no rules (hand-written code), from what its first instructions do to the stack pointer.

use crate::disasm::Insn;
use crate::unwind_rows::UnwindRows;
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use whither_abi::agent::{RULE_NONE, RULE_RBP, RULE_RSP};

/// Whether some instruction reads or writes the function's return slot by an ordinary operand, or pops it; `ret`, `call`
/// and the like use it by nature and do not count.
#[must_use]
pub fn touches_return_address(insns: &[Insn], rows: &UnwindRows) -> bool {
    let mut facts = InstructionInfoFactory::new();
    if insns.first().is_some_and(|first| rows.find(first.address) == RULE_NONE) {
        return touches_without_rules(insns, &mut facts);
    }
    insns.iter().any(|insn| {
        let rule = rows.find(insn.address);
        let frame = u64::from(rule >> 3 & 0x3fff) * 8;
        match rule & 7 {
            RULE_RSP => touches(insn, Register::RSP, frame.wrapping_sub(8), &mut facts),
            RULE_RBP => touches(insn, Register::RBP, frame.wrapping_sub(8), &mut facts),
            _ => false,
        }
    })
}

/// As far as the stack pointer is known for sure: up to the first branch, and while it moves by stated amounts.
fn touches_without_rules(insns: &[Insn], facts: &mut InstructionInfoFactory) -> bool {
    let mut depth = 0_u64;
    for insn in insns {
        if touches(insn, Register::RSP, depth, facts) {
            return true;
        }
        let Some(moved) = stack_step(insn, facts) else { return false };
        depth = depth.wrapping_add_signed(moved.wrapping_neg());
    }
    false
}

/// By how much an instruction moves the stack pointer, if the next one is reached and finds it there.
fn stack_step(insn: &Insn, facts: &mut InstructionInfoFactory) -> Option<i64> {
    let raw = &insn.raw;
    if raw.flow_control() != FlowControl::Next {
        return None;
    }
    let stated = || raw.immediate(1).cast_signed();
    let by_number = raw.op0_register() == Register::RSP && raw.op_count() == 2 && is_immediate(raw.op1_kind());
    match raw.mnemonic() {
        Mnemonic::Sub if by_number => return Some(stated().wrapping_neg()),
        Mnemonic::Add if by_number => return Some(stated()),
        _ => {}
    }
    let moved = i64::from(raw.stack_pointer_increment());
    let sets = facts.info(raw).used_registers().iter().any(|used| {
        used.register().full_register() == Register::RSP
            && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
    });
    (moved != 0 || !sets).then_some(moved)
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate8to64 | OpKind::Immediate32to64)
}

/// Whether an instruction accesses the word `distance` bytes above the register that return slots are found by.
fn touches(insn: &Insn, base: Register, distance: u64, facts: &mut InstructionInfoFactory) -> bool {
    let raw = &insn.raw;
    let pops = raw.mnemonic() == Mnemonic::Pop && base == Register::RSP && distance == 0;
    let names = raw.memory_base() == base
        && raw.memory_index() == Register::None
        && raw.memory_displacement64() == distance
        && (0..raw.op_count()).any(|i| raw.op_kind(i) == OpKind::Memory);
    pops || (names && accesses(insn, facts))
}

fn accesses(insn: &Insn, facts: &mut InstructionInfoFactory) -> bool {
    let raw = &insn.raw;
    let info = facts.info(raw);
    raw.mnemonic() != Mnemonic::Lea
        && (0..raw.op_count())
            .filter(|&i| raw.op_kind(i) == OpKind::Memory)
            .any(|i| !matches!(info.op_access(i), OpAccess::None | OpAccess::NoMemAccess))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disasm::decode;
    use crate::ids::Svma;
    use whither_abi::agent::Row;

    fn touches(code: &[u8], rows: &[(u32, u32)]) -> bool {
        let rows = rows.iter().map(|&(offset, rule)| Row { offset, rule }).collect();
        let rows = UnwindRows { base: Svma(0x1000), rows, ..UnwindRows::default() };
        touches_return_address(&decode(code, Svma(0x1000)), &rows)
    }

    const ENTRY: u32 = RULE_RSP | 1 << 3;
    const PUSHED: u32 = RULE_RSP | 2 << 3;
    const FRAMED: u32 = RULE_RBP | 2 << 3;

    #[test]
    fn loads_and_stores_of_the_slot_are_seen() {
        assert!(touches(&[0x48, 0x8b, 0x04, 0x24, 0xc3], &[(0, ENTRY)]), "mov (%rsp),%rax");
        // push %rbx; mov 8(%rsp),%rdi
        assert!(touches(&[0x53, 0x48, 0x8b, 0x7c, 0x24, 8], &[(0, ENTRY), (1, PUSHED)]));
        // push %rbp; mov %rsp,%rbp; mov 8(%rbp),%rax
        let framed = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x45, 8];
        assert!(touches(&framed, &[(0, ENTRY), (1, PUSHED), (4, FRAMED)]));
        assert!(touches(&[0x48, 0x89, 0x04, 0x24, 0xc3], &[(0, ENTRY)]), "mov %rax,(%rsp): a thunk");
    }

    #[test]
    fn other_words_addresses_and_plain_returns_are_not() {
        assert!(!touches(&[0xc3], &[(0, ENTRY)]));
        assert!(!touches(&[0x48, 0x8d, 0x04, 0x24], &[(0, ENTRY)]), "lea (%rsp),%rax");
        assert!(!touches(&[0x48, 0x8b, 0x44, 0x24, 8], &[(0, ENTRY)]), "the seventh argument");
        assert!(!touches(&[0x48, 0x8b, 0x44, 0x24, 0xf8], &[(0, ENTRY)]), "the red zone");
        assert!(!touches(&[0x48, 0x8b, 0x04, 0x24], &[(0, PUSHED)]), "what was pushed");
        // push %rbx; pop %rbx; pop of what was pushed before a jump back.
        assert!(!touches(&[0x53, 0x5b, 0xc3], &[(0, ENTRY), (1, PUSHED), (2, ENTRY)]));
    }
    #[test]
    fn taking_it_off_the_stack_is_seen() {
        // pop 0xd8(%r14); mov %rsp,%rdi: as a run-time system keeps it aside.
        assert!(touches(&[0x41, 0x8f, 0x86, 0xd8, 0, 0, 0, 0x48, 0x89, 0xe7], &[(0, ENTRY)]));
        assert!(touches(&[0x59, 0xff, 0xe1], &[(0, ENTRY)]), "pop %rcx; jmp *%rcx");
    }

    #[test]
    fn without_rules_the_first_instructions_tell() {
        assert!(touches(&[0x48, 0x8b, 0x04, 0x24, 0xc3], &[]), "mov (%rsp),%rax");
        assert!(touches(&[0x59, 0xff, 0xe1], &[]), "pop %rcx");
        // push %rbx; sub $16,%rsp; mov 24(%rsp),%rax
        assert!(touches(&[0x53, 0x48, 0x83, 0xec, 16, 0x48, 0x8b, 0x44, 0x24, 24], &[]));
        assert!(!touches(&[0x53, 0x48, 0x83, 0xec, 16, 0x48, 0x8b, 0x44, 0x24, 16], &[]), "the register pushed");
        assert!(!touches(&[0x53, 0x5b, 0xc3], &[]), "push %rbx; pop %rbx");
        // and $-16,%rsp; mov (%rsp),%rax: where that is nobody knows.
        assert!(!touches(&[0x48, 0x83, 0xe4, 0xf0, 0x48, 0x8b, 0x04, 0x24], &[]));
        assert!(!touches(&[0x74, 0, 0x48, 0x8b, 0x04, 0x24], &[]), "behind a branch");
    }
}
