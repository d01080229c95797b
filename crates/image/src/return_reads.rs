//! Whether a function looks at its own return address, or changes it: `__builtin_return_address(0)`, code
//! that finds its caller's module, thunks that redirect their return. Told from the unwind rules: the
//! return address lies one word below the frame address, so an access to just that word is one.

use crate::disasm::Insn;
use crate::unwind_rows::UnwindRows;
use iced_x86::{InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use whither_abi::agent::{RULE_RBP, RULE_RSP};

/// Whether some instruction reads or writes the function's return slot by an ordinary operand; `ret`, `call`
/// and the like use it by nature and do not count.
#[must_use]
pub fn touches_return_address(insns: &[Insn], rows: &UnwindRows) -> bool {
    let mut facts = InstructionInfoFactory::new();
    insns.iter().any(|insn| slot_of(insn, rows) && accesses(insn, &mut facts))
}

/// Whether its memory operand is the return slot, by the rule in force there.
fn slot_of(insn: &Insn, rows: &UnwindRows) -> bool {
    let raw = &insn.raw;
    if raw.memory_index() != Register::None || !(0..raw.op_count()).any(|i| raw.op_kind(i) == OpKind::Memory) {
        return false;
    }
    let kind = match raw.memory_base() {
        Register::RSP => RULE_RSP,
        Register::RBP => RULE_RBP,
        _ => return false,
    };
    let rule = rows.find(insn.address);
    let frame = u64::from(rule >> 3 & 0x3fff) * 8;
    rule & 7 == kind && raw.memory_displacement64() == frame.wrapping_sub(8)
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
        assert!(!touches(&[0x48, 0x8b, 0x04, 0x24], &[]), "nothing is known");
    }
}
