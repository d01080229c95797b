//! The first instructions of a function, made to run at another address: what a jump over them displaces.
//! Bytes stay as they are but for what counts from the instruction pointer. Which bytes may be displaced
//! at all is decided in `window`. Constraint: a return address must never point into the copy, where no
//! unwinder finds rules, so a call pushes the address behind the *original* call and jumps.

use crate::ids::Svma;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Why instructions cannot be moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelocateError {
    /// The bytes are no instructions, or end inside of one.
    #[error("bytes at {at:#x} are no instruction")]
    Undecodable {
        /// Stated address.
        at: u64,
    },
    /// A call would return into the displaced bytes.
    #[error("the call at {at:#x} returns into the displaced bytes")]
    CallInside {
        /// Stated address.
        at: u64,
    },
    /// An instruction that does not work elsewhere.
    #[error("{what} at {at:#x} does not work at another address")]
    Immovable {
        /// Which.
        what: &'static str,
        /// Stated address.
        at: u64,
    },
    /// Something it refers to is out of reach from the new place.
    #[error("{target:#x} cannot be reached from {from:#x}, more than 2 GB away")]
    OutOfReach {
        /// New place.
        from: u64,
        /// What it refers to.
        target: u64,
    },
}

/// Instructions for another place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relocated {
    /// To stand at the new address.
    pub bytes: Vec<u8>,
    /// Offset of each instruction in the window and in `bytes`, both rising.
    pub map: Vec<(u8, u16)>,
}

/// Most bytes that a window of [`LONGEST_WINDOW`] bytes becomes: each instruction at most `GROWTH`
/// longer, the jump back, and the pushed address.
pub const LONGEST_COPY: usize = LONGEST_WINDOW + LONGEST_WINDOW / 2 * GROWTH + 5 + 8;
/// More bytes are never displaced: the points of the shared segment keep that many.
pub const LONGEST_WINDOW: usize = 16;
const GROWTH: usize = 7;

/// The instructions in `window`, which stands at `from`, as they must be at `to`, followed by a jump
/// behind the window where control falls out of it. Instructions behind one that never goes on (filler)
/// are left out. Addresses are those of the running process.
///
/// # Errors
/// [`RelocateError`] when one of them cannot be moved.
pub fn relocate(window: &[u8], from: Svma, to: Svma) -> Result<Relocated, RelocateError> {
    let length = window.len() as u64;
    let mut copy = Copy { from: from.0, length, to: to.0, out: Relocated::default(), pushes: None };
    let end = from.0.wrapping_add(length);
    let mut decoder = Decoder::with_ip(64, window, from.0, DecoderOptions::NONE);
    let mut falls = true;
    while falls && decoder.can_decode() {
        let at = decoder.position();
        let insn = decoder.decode();
        let bytes = window.get(at..at + insn.len()).filter(|_| !insn.is_invalid());
        let bytes = bytes.ok_or(RelocateError::Undecodable { at: insn.ip() })?;
        falls = copy.push(&decoder, &insn, bytes, insn.next_ip() == end)?;
    }
    if falls {
        copy.jump(end)?;
    }
    copy.finish()
}

struct Copy {
    from: u64,
    length: u64,
    to: u64,
    out: Relocated,
    /// Offset of the displacement that shall lead to the return address, and that address.
    pushes: Option<(usize, u64)>,
}

impl Copy {
    /// Adds one instruction; says whether control goes on behind it.
    fn push(
        &mut self,
        decoder: &Decoder<'_>,
        insn: &Instruction,
        bytes: &[u8],
        last: bool,
    ) -> Result<bool, RelocateError> {
        let at = insn.ip();
        let immovable = |what| Err(RelocateError::Immovable { what, at });
        let offsets = (u8::try_from(at.wrapping_sub(self.from)), u16::try_from(self.out.bytes.len()));
        let (Ok(old), Ok(new)) = offsets else { return immovable("an instruction so far in") };
        self.out.map.push((old, new));
        if matches!(
            insn.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::FarBranch16 | OpKind::FarBranch32
        ) {
            return immovable("a branch with a 16-bit target");
        }
        match insn.flow_control() {
            // A thread blocked in it stands behind it and is set back to it when the kernel restarts the
            // call: into the jump that has replaced it meanwhile.
            FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int => immovable("a system call"),
            FlowControl::Call if !insn.is_call_near() => immovable("a system call"),
            // A program that traps on purpose goes on in a handler, which is told the address and may change it.
            FlowControl::Interrupt | FlowControl::Exception => immovable("a trap"),
            FlowControl::Next if insn.mnemonic() == Mnemonic::Hlt => immovable("a trap"),
            FlowControl::Next => self.plain(decoder, insn, bytes).map(|()| true),
            FlowControl::Return | FlowControl::IndirectBranch => self.plain(decoder, insn, bytes).map(|()| false),
            FlowControl::UnconditionalBranch => self.jump(insn.near_branch_target()).map(|()| false),
            FlowControl::ConditionalBranch => self.branch(insn, bytes).map(|()| true),
            FlowControl::Call | FlowControl::IndirectCall if !last => Err(RelocateError::CallInside { at }),
            FlowControl::Call => {
                self.push_return(insn.next_ip());
                self.jump(insn.near_branch_target()).map(|()| false)
            }
            FlowControl::IndirectCall => self.indirect_call(decoder, insn, bytes).map(|()| false),
            FlowControl::XbeginXabortXend if insn.mnemonic() == Mnemonic::Xbegin => {
                immovable("the start of a transaction")
            }
            FlowControl::XbeginXabortXend => self.plain(decoder, insn, bytes).map(|()| true),
        }
    }

    /// Bytes as they are, a displacement from the instruction pointer corrected.
    fn plain(&mut self, decoder: &Decoder<'_>, insn: &Instruction, bytes: &[u8]) -> Result<(), RelocateError> {
        let start = self.out.bytes.len();
        self.out.bytes.extend_from_slice(bytes);
        if !insn.is_ip_rel_memory_operand() {
            return Ok(());
        }
        let at = decoder.get_constant_offsets(insn).displacement_offset();
        if insn.memory_base() == Register::EIP || at == 0 {
            return Err(RelocateError::Immovable {
                what: "an address relative to a 32-bit instruction pointer",
                at: insn.ip(),
            });
        }
        let next = self.here();
        let displacement = self.reach(next, insn.ip_rel_memory_address())?;
        self.put(start + at, displacement);
        Ok(())
    }

    fn jump(&mut self, target: u64) -> Result<(), RelocateError> {
        self.out.bytes.push(0xe9);
        self.relative(target)
    }

    fn branch(&mut self, insn: &Instruction, bytes: &[u8]) -> Result<(), RelocateError> {
        if insn.is_jcc_short_or_near() {
            // The condition is the low half of the opcode in both forms; the opcode stands in front of
            // the displacement.
            let back = if insn.is_jcc_short() { 2 } else { 5 };
            let opcode = bytes.len().checked_sub(back).and_then(|at| bytes.get(at)).copied().unwrap_or_default();
            self.out.bytes.extend([0x0f, 0x80 | (opcode & 0xf)]);
            return self.relative(insn.near_branch_target());
        }
        // loop, jrcxz: only a short form exists. It jumps over a jump that goes on to a jump that does it.
        let Some((_, head)) = bytes.split_last() else { return Ok(()) };
        self.out.bytes.extend_from_slice(head);
        self.out.bytes.extend([2, 0xeb, 5]);
        self.jump(insn.near_branch_target())
    }

    /// `push *address(%rip)`: changes no register and no flag, and the stack in one step.
    fn push_return(&mut self, address: u64) {
        self.out.bytes.extend([0xff, 0x35]);
        self.pushes = Some((self.out.bytes.len(), address));
        self.out.bytes.extend([0; 4]);
    }

    fn indirect_call(&mut self, decoder: &Decoder<'_>, insn: &Instruction, bytes: &[u8]) -> Result<(), RelocateError> {
        let stack = [insn.op0_register(), insn.memory_base(), insn.memory_index()].contains(&Register::RSP);
        if stack || !matches!(insn.code(), Code::Call_rm64) {
            return Err(RelocateError::Immovable {
                what: "a call through the stack or to another segment",
                at: insn.ip(),
            });
        }
        self.push_return(insn.next_ip());
        let start = self.out.bytes.len();
        self.plain(decoder, insn, bytes)?;
        // `ff /2` is a call, `ff /4` the jump with the same operand.
        let opcode = bytes.iter().position(|&b| b == 0xff).unwrap_or_default();
        if let Some(operand) = self.out.bytes.get_mut(start + opcode + 1) {
            *operand = (*operand & 0b1100_0111) | (4 << 3);
        }
        Ok(())
    }

    /// Four bytes that lead from behind themselves to `target`. One in the window itself that has been
    /// copied already, as of a loop over the first instructions, becomes its copy.
    fn relative(&mut self, target: u64) -> Result<(), RelocateError> {
        let at = self.out.bytes.len();
        let inside = target.wrapping_sub(self.from);
        let copied = self.out.map.iter().find(|(old, _)| u64::from(*old) == inside);
        if copied.is_none() && inside < self.length {
            return Err(RelocateError::Immovable { what: "a branch into the displaced bytes", at: self.from });
        }
        let target = copied.map_or(target, |(_, new)| self.to.wrapping_add(u64::from(*new)));
        self.out.bytes.extend([0; 4]);
        let next = self.here();
        let displacement = self.reach(next, target)?;
        self.put(at, displacement);
        Ok(())
    }

    /// Address behind what is written so far.
    fn here(&self) -> u64 {
        self.to.wrapping_add(self.out.bytes.len() as u64)
    }

    fn reach(&self, from: u64, target: u64) -> Result<i32, RelocateError> {
        let distance = target.wrapping_sub(from).cast_signed();
        i32::try_from(distance).map_err(|_| RelocateError::OutOfReach { from, target })
    }

    fn put(&mut self, at: usize, value: i32) {
        if let Some(place) = self.out.bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Puts the pushed return address behind the code.
    fn finish(mut self) -> Result<Relocated, RelocateError> {
        if let Some((at, address)) = self.pushes {
            let distance = self.out.bytes.len() - (at + 4);
            self.put(at, i32::try_from(distance).unwrap_or_default());
            self.out.bytes.extend(address.to_le_bytes());
        }
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FROM: Svma = Svma(0x40_1000);
    const TO: Svma = Svma(0x1000_0000);

    fn copy(window: &[u8]) -> Relocated {
        relocate(window, FROM, TO).unwrap()
    }

    fn decoded(bytes: &[u8], at: u64) -> Vec<Instruction> {
        Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn a_plain_prologue_is_followed_by_the_jump_back() {
        // push rbp; mov rbp,rsp; push r15
        let window = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57];
        let moved = copy(&window);
        assert_eq!(moved.bytes[..6], window);
        assert_eq!(moved.map, [(0, 0), (1, 1), (4, 4)]);
        let back = decoded(&moved.bytes, TO.0).pop().unwrap();
        assert_eq!((back.mnemonic(), back.near_branch_target()), (Mnemonic::Jmp, FROM.0 + 6));
    }

    #[test]
    fn what_counts_from_the_instruction_pointer_still_leads_to_the_same_place() {
        // cmpb $1,0x2000(%rip): the displacement is not the last field
        let moved = copy(&[0x80, 0x3d, 0, 0x20, 0, 0, 1]);
        assert_eq!(decoded(&moved.bytes, TO.0)[0].ip_rel_memory_address(), FROM.0 + 7 + 0x2000);
        // test edi,edi; je +0x10; ret
        let moved = copy(&[0x85, 0xff, 0x74, 0x10, 0xc3]);
        let insns = decoded(&moved.bytes, TO.0);
        assert_eq!((insns[1].mnemonic(), insns[1].near_branch_target()), (Mnemonic::Je, FROM.0 + 4 + 0x10));
        assert_eq!((insns.len(), moved.bytes.len()), (3, 9), "nothing behind the return");
        // jrcxz +0x10; jmp +0
        let moved = copy(&[0xe3, 0x10, 0xe9, 0, 0, 0, 0]);
        let insns = decoded(&moved.bytes, TO.0);
        assert_eq!(insns[0].near_branch_target(), insns[2].ip());
        assert_eq!(insns[1].near_branch_target(), insns[3].ip());
        assert_eq!(insns[2].near_branch_target(), FROM.0 + 2 + 0x10);
        assert_eq!(insns[3].near_branch_target(), FROM.0 + 7);
    }

    #[test]
    fn a_loop_over_the_first_instructions_stays_in_the_copy() {
        // dec edi; jne -4; ret
        let insns = decoded(&copy(&[0xff, 0xcf, 0x75, 0xfc, 0xc3]).bytes, TO.0);
        assert_eq!(insns[1].near_branch_target(), TO.0);
    }

    #[test]
    fn a_closing_call_pushes_the_original_return_address() {
        let moved = copy(&[0xe8, 0, 1, 0, 0]);
        let insns = decoded(&moved.bytes[..11], TO.0);
        assert_eq!(insns[0].mnemonic(), Mnemonic::Push);
        let literal = (insns[0].ip_rel_memory_address() - TO.0) as usize;
        assert_eq!(moved.bytes[literal..], (FROM.0 + 5).to_le_bytes());
        assert_eq!((insns[1].mnemonic(), insns[1].near_branch_target()), (Mnemonic::Jmp, FROM.0 + 5 + 0x100));
        // sub rsp,8 ; call *0x2000(%rip) ; call *%rax
        let moved = copy(&[0x48, 0x83, 0xec, 8, 0xff, 0x15, 0, 0x20, 0, 0]);
        let insns = decoded(&moved.bytes, TO.0);
        assert_eq!((insns[2].mnemonic(), insns[2].ip_rel_memory_address()), (Mnemonic::Jmp, FROM.0 + 10 + 0x2000));
        let insns = decoded(&copy(&[0x0f, 0x1f, 0, 0x41, 0xff, 0xd3]).bytes, TO.0);
        assert_eq!((insns[2].mnemonic(), insns[2].op0_register()), (Mnemonic::Jmp, Register::R11));
    }

    #[test]
    fn refusals() {
        let refused = |window: &[u8]| relocate(window, FROM, TO).unwrap_err();
        assert_eq!(refused(&[0xff, 0xd0, 0x90, 0x90, 0x90]), RelocateError::CallInside { at: FROM.0 });
        assert_eq!(refused(&[0x90, 0x06, 0x90, 0x90, 0x90]), RelocateError::Undecodable { at: FROM.0 + 1 });
        assert_eq!(refused(&[0x48, 0x8b]), RelocateError::Undecodable { at: FROM.0 });
        assert!(matches!(refused(&[0xff, 0x54, 0x24, 8, 0x90][..4]), RelocateError::Immovable { .. }));
        let far = relocate(&[0x48, 0x8b, 0x05, 0, 0, 0, 0], FROM, Svma(0x7f00_0000_0000));
        // jmp +1 over a nop
        // mov %rcx,%r10; syscall: the kernel restarts it two bytes before where the thread stands.
        assert!(matches!(refused(&[0x49, 0x89, 0xca, 0x0f, 0x05]), RelocateError::Immovable { .. }));
        assert!(matches!(refused(&[0xeb, 1, 0x90, 0x90, 0xc3]), RelocateError::Immovable { .. }));
        assert!(matches!(far, Err(RelocateError::OutOfReach { .. })));
    }

    proptest! {
        /// Instruction by instruction the copy does what the window does: same operation and operands,
        /// same absolute targets.
        #[test]
        fn the_copy_means_the_same(window in proptest::collection::vec(any::<u8>(), 5..=LONGEST_WINDOW)) {
            let Ok(moved) = relocate(&window, FROM, TO) else { return Ok(()) };
            prop_assert!(moved.bytes.len() <= LONGEST_COPY);
            let originals = decoded(&window, FROM.0);
            for (i, (old, new)) in moved.map.iter().enumerate() {
                let original = &originals[i];
                prop_assert_eq!(original.ip(), FROM.0 + u64::from(*old));
                let copied = &decoded(&moved.bytes[usize::from(*new)..], TO.0 + u64::from(*new))[0];
                if original.is_call_near() || original.is_call_near_indirect() {
                    prop_assert_eq!(copied.mnemonic(), Mnemonic::Push);
                } else if original.is_ip_rel_memory_operand() {
                    prop_assert_eq!(copied.ip_rel_memory_address(), original.ip_rel_memory_address());
                    prop_assert_eq!(copied.code(), original.code());
                } else if original.is_jcc_short_or_near() {
                    prop_assert_eq!(copied.condition_code(), original.condition_code());
                    let inside = moved.map[..=i].iter().find(|(o, _)| FROM.0 + u64::from(*o) == original.near_branch_target());
                    let target = inside.map_or(original.near_branch_target(), |(_, n)| TO.0 + u64::from(*n));
                    prop_assert_eq!(copied.near_branch_target(), target);
                } else if original.near_branch_target() == 0 {
                    prop_assert_eq!(copied, original);
                }
            }
        }
    }
}
