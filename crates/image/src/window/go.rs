//! Functions compiled from Go begin by asking whether their stack suffices; where it does not, it is moved and the function
//! entered once more, from its first byte. What stands at the entry is then executed twice for one call. Found here is the
//! place behind the question, where the stack is still as at the entry and which each call passes once. Constraint: code of
//! which any of this is in doubt is left as it is.

use crate::disasm::{Flow, Insn};
use iced_x86::{InstructionInfoFactory, OpAccess, Register};

/// So many instructions the longest question has: `mov %rsp,%r12; sub $size,%r12; jb; cmp 16(%r14),%r12; jbe`.
const LONGEST: usize = 7;

/// So many bytes it has at most.
pub(super) const LONGEST_CHECK: u64 = 48;

/// Bytes of the question at the entry of a function with this body; 0: it has none.
pub(super) fn stack_check(body: &[Insn]) -> u8 {
    let Some(entry) = body.first().map(|i| i.address) else { return 0 };
    let first: Vec<&Insn> = body.iter().take(LONGEST).take_while(|i| leaves_the_stack(i)).collect();
    let last = first.iter().rfind(|i| matches!(i.flow, Flow::Branch(target) if grows(body, target.0, entry.0)));
    let behind = last.map_or(entry, |i| i.end());
    let again = |i: &Insn| matches!(i.flow, Flow::Jump(t) | Flow::Branch(t) if t == behind);
    let bytes = behind.0 - entry.0;
    if bytes <= LONGEST_CHECK && !body.iter().any(again) { bytes as u8 } else { 0 }
}

/// Whether a place calls once and goes back to the entry, saving and restoring registers around it.
fn grows(body: &[Insn], at: u64, entry: u64) -> bool {
    /// Arguments in nine general registers and fifteen of vectors are saved and restored.
    const LONGEST_DETOUR: usize = 64;
    let Ok(here) = body.binary_search_by_key(&at, |i| i.address.0) else { return false };
    let mut calls = 0;
    for insn in &body[here..body.len().min(here + LONGEST_DETOUR)] {
        match insn.flow {
            Flow::Next => {}
            Flow::Call(_) => calls += 1,
            Flow::Jump(target) => return calls == 1 && target.0 == entry,
            _ => return false,
        }
    }
    false
}

/// Whether neither memory nor the stack pointer is changed.
fn leaves_the_stack(insn: &Insn) -> bool {
    let writes =
        |access| !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&insn.raw);
    let moves = |r: &iced_x86::UsedRegister| {
        writes(r.access()) && matches!(r.register().full_register(), Register::RSP | Register::RBP)
    };
    matches!(insn.flow, Flow::Next | Flow::Branch(_))
        && !info.used_registers().iter().any(moves)
        && !info.used_memory().iter().any(|m| writes(m.access()))
}
