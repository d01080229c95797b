//! x86-64 machine code as instructions: where each begins, where control goes after it, and its text
//! in either assembler syntax. What belongs together as a block is told by `blocks`.

use crate::ids::Svma;
use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, FlowControl, Formatter, GasFormatter, Instruction, IntelFormatter,
    Mnemonic, OpKind, Register,
};

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// To the next instruction (system calls included: they come back).
    Next,
    /// To this address.
    Jump(Svma),
    /// To this address or to the next instruction.
    Branch(Svma),
    /// Into the function at this address, then to the next instruction.
    Call(Svma),
    /// To an address that memory or a register holds.
    IndirectJump,
    /// Into a function that memory or a register names, then to the next instruction.
    IndirectCall,
    /// Back to the caller, or out of the kernel.
    Return,
    /// Nowhere: it always faults (`ud2`, `int3`, `hlt`).
    Trap,
    /// These bytes are no instruction; decoding goes on one byte later.
    Invalid,
}

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub struct Insn {
    /// Address of its first byte.
    pub address: Svma,
    /// Bytes, 1 to 15.
    pub len: u8,
    /// Where control goes after it.
    pub flow: Flow,
    pub(crate) raw: Instruction,
}

impl Insn {
    /// Address of the byte behind it.
    #[must_use]
    pub fn end(&self) -> Svma {
        Svma(self.address.0.wrapping_add(u64::from(self.len)))
    }

    /// Whether it may be padding: it does nothing, or stops the program.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.flow == Flow::Trap || self.raw.mnemonic() == Mnemonic::Nop
    }

    /// Whether it has an operand in memory whose address must be translated before it can end. Pushes, pops,
    /// calls and returns are left out: their page is the stack's, which is as good as always at hand.
    #[must_use]
    pub fn touches_memory(&self) -> bool {
        let addresses_only = matches!(self.raw.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
            || matches!(self.raw.code(), Code::INVALID)
            || matches!(self.flow, Flow::IndirectCall | Flow::IndirectJump);
        !addresses_only
            && self.raw.op_kinds().any(|kind| {
                !matches!(
                    kind,
                    OpKind::Register
                        | OpKind::NearBranch16
                        | OpKind::NearBranch32
                        | OpKind::NearBranch64
                        | OpKind::FarBranch16
                        | OpKind::FarBranch32
                        | OpKind::Immediate8
                        | OpKind::Immediate8_2nd
                        | OpKind::Immediate16
                        | OpKind::Immediate32
                        | OpKind::Immediate64
                        | OpKind::Immediate8to16
                        | OpKind::Immediate8to32
                        | OpKind::Immediate8to64
                        | OpKind::Immediate32to64
                )
            })
    }

    /// Whether no uprobe may stand on it. The kernel refuses a LOCK prefix, or one of the old segments
    /// (arch/x86/kernel/uprobes.c, `is_prefix_bad`); in files that are mapped later it says nothing of it, and the probe is never
    /// hit. Instructions with a VEX, EVEX or XOP prefix it takes, but for what the byte of their operation means without the prefix:
    /// `vpcmpeqd` (76) is executed as a branch, `vcmpps` (c2) is stepped over as a return. And what is a breakpoint already is none of ours.
    #[must_use]
    pub fn takes_no_uprobe(&self) -> bool {
        let old = [Register::ES, Register::CS, Register::SS, Register::DS];
        self.flow == Flow::Invalid
            || self.raw.has_lock_prefix()
            || old.contains(&self.raw.segment_prefix())
            || self.raw.code().encoding() != EncodingKind::Legacy
            || self.raw.mnemonic() == Mnemonic::Int3
    }

    /// Whether it is a string instruction that repeats itself: it can be interrupted between its rounds, and goes on afterwards.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        self.raw.is_string_instruction() && (self.raw.has_rep_prefix() || self.raw.has_repne_prefix())
    }

    /// Whether it makes the upper half of a dividend that the division directly behind it divides by a register: `xor %edx,%edx; div`,
    /// `cltd; idiv`, `cqto; idiv`, of the same width. Cores fuse these (measured, AMD family 25 model 17, which fuses no other forms:
    /// not `mov $0` or `sub`, no other width, no divisor in memory); none waits in the first of them, which needs no unit or one cycle.
    #[must_use]
    pub fn widens_for(&self, division: &Self) -> bool {
        let by_register = division.raw.op0_kind() == OpKind::Register;
        let bits = division.raw.op0_register().size() * 8;
        let zeroes = self.raw.mnemonic() == Mnemonic::Xor
            && self.raw.op1_kind() == OpKind::Register
            && self.raw.op0_register() == self.raw.op1_register()
            && match bits {
                32 => self.raw.op0_register() == Register::EDX,
                64 => self.raw.op0_register() == Register::RDX,
                _ => false,
            };
        let fits = match (division.raw.mnemonic(), self.raw.mnemonic()) {
            (Mnemonic::Div, _) => zeroes,
            (Mnemonic::Idiv, Mnemonic::Cdq) => bits == 32,
            (Mnemonic::Idiv, Mnemonic::Cqo) => bits == 64,
            _ => false,
        };
        fits && by_register && self.end() == division.address
    }

    /// Whether it ends within a cycle or so of its operands being there: moves, additions, comparisons and the
    /// like between registers.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        use Mnemonic::{
            Add, And, Bt, Cdq, Cdqe, Cmp, Cqo, Cwde, Dec, Endbr64, Inc, Lea, Mov, Movsx, Movsxd, Movzx, Neg, Nop, Not,
            Or, Sar, Shl, Shr, Sub, Test, Xor,
        };
        let simple = matches!(
            self.raw.mnemonic(),
            Add | And
                | Bt
                | Cdq
                | Cdqe
                | Cmp
                | Cqo
                | Cwde
                | Dec
                | Endbr64
                | Inc
                | Lea
                | Mov
                | Movsx
                | Movsxd
                | Movzx
                | Neg
                | Nop
                | Not
                | Or
                | Sar
                | Shl
                | Shr
                | Sub
                | Test
                | Xor
        );
        simple && !self.touches_memory()
    }
}

/// Assembler dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Syntax {
    /// As `objdump` and gcc print it: `mov %rsi,%rax`.
    #[default]
    Att,
    /// As Intel's manuals print it: `mov rax,rsi`.
    Intel,
}

/// Decodes straight through `code`, whose first byte stands at `at` and begins an instruction.
/// Bytes that are no instruction, also a last one that is cut, become [`Flow::Invalid`] of one byte.
#[must_use]
pub fn decode(code: &[u8], at: Svma) -> Vec<Insn> {
    let mut decoder = Decoder::with_ip(64, code, at.0, DecoderOptions::NONE);
    let mut out = Vec::with_capacity(code.len() / 4);
    let mut raw = Instruction::default();
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut raw);
        let address = Svma(at.0.wrapping_add(start as u64));
        if raw.is_invalid() {
            out.push(Insn { address, len: 1, flow: Flow::Invalid, raw: Instruction::default() });
            let resume = start + 1;
            if decoder.set_position(resume).is_err() {
                break;
            }
            decoder.set_ip(at.0.wrapping_add(resume as u64));
        } else {
            out.push(Insn { address, len: raw.len() as u8, flow: flow(&raw), raw });
        }
    }
    out
}

/// The instruction that `code` begins with.
#[must_use]
pub fn decode_first(code: &[u8], at: Svma) -> Option<Insn> {
    let raw = Decoder::with_ip(64, code, at.0, DecoderOptions::NONE).decode();
    (!raw.is_invalid()).then(|| Insn { address: at, len: raw.len() as u8, flow: flow(&raw), raw })
}

fn flow(raw: &Instruction) -> Flow {
    let target = Svma(raw.near_branch_target());
    match raw.flow_control() {
        FlowControl::Next if raw.mnemonic() == Mnemonic::Hlt => Flow::Trap,
        FlowControl::Next | FlowControl::XbeginXabortXend if raw.mnemonic() != Mnemonic::Xbegin => Flow::Next,
        FlowControl::Interrupt if matches!(raw.mnemonic(), Mnemonic::Int3 | Mnemonic::Int1) => Flow::Trap,
        FlowControl::Next | FlowControl::Interrupt => Flow::Next,
        FlowControl::UnconditionalBranch if raw.is_jmp_far() => Flow::IndirectJump,
        FlowControl::UnconditionalBranch => Flow::Jump(target),
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => Flow::Branch(target),
        FlowControl::Call if raw.is_call_near() => Flow::Call(target),
        // The system call instructions count as calls in the decoder's book.
        FlowControl::Call
            if matches!(
                raw.mnemonic(),
                Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Vmcall | Mnemonic::Vmmcall
            ) =>
        {
            Flow::Next
        }
        FlowControl::Call | FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::IndirectBranch => Flow::IndirectJump,
        FlowControl::Return => Flow::Return,
        FlowControl::Exception => Flow::Trap,
    }
}

/// Writes instructions as text.
pub struct Printer {
    formatter: Box<dyn Formatter>,
}

impl Printer {
    /// For one syntax: lower case, addresses as `0x…`.
    #[must_use]
    pub fn new(syntax: Syntax) -> Self {
        let mut formatter: Box<dyn Formatter> = match syntax {
            Syntax::Att => Box::new(GasFormatter::new()),
            Syntax::Intel => Box::new(IntelFormatter::new()),
        };
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_branch_leading_zeros(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_rip_relative_addresses(true);
        options.set_show_branch_size(false);
        options.set_space_after_operand_separator(false);
        Self { formatter }
    }

    /// The text of an instruction; the address that a direct branch goes to, or that is addressed
    /// relative to the program counter, is followed by what `name` says of it: `call 0x1040 <puts@plt>`.
    pub fn text(&mut self, insn: &Insn, name: &dyn Fn(Svma) -> Option<String>) -> String {
        if insn.flow == Flow::Invalid {
            return "(bad)".to_owned();
        }
        let mut text = String::new();
        self.formatter.format(&insn.raw, &mut text);
        match insn.flow {
            Flow::Jump(target) | Flow::Branch(target) | Flow::Call(target) => {
                if let Some(name) = name(target) {
                    text.push_str(&format!(" <{name}>"));
                }
            }
            _ if insn.raw.is_ip_rel_memory_operand() => {
                let target = Svma(insn.raw.ip_rel_memory_address());
                text.push_str(&format!(" # {:#x}", target.0));
                if let Some(name) = name(target) {
                    text.push_str(&format!(" <{name}>"));
                }
            }
            _ => {}
        }
        text
    }
}

/// Decodes a range and prints each instruction.
#[must_use]
pub fn disassemble(
    code: &[u8],
    at: Svma,
    syntax: Syntax,
    name: &dyn Fn(Svma) -> Option<String>,
) -> Vec<(Insn, String)> {
    let mut printer = Printer::new(syntax);
    decode(code, at).into_iter().map(|insn| (insn, printer.text(&insn, name))).collect()
}

/// Whether the kernel does itself what an instruction does that begins with these bytes (two of them) when a uprobe stands on it, which
/// costs one trap; others it copies and steps over, which costs a second one (arch/x86/kernel/uprobes.c: `push_setup_xol_ops`,
/// `branch_setup_xol_ops`).
#[must_use]
pub fn is_emulated_by_uprobes(start: &[u8]) -> bool {
    matches!(
        start,
        [0x50..=0x57 | 0x90 | 0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..]
            | [0x41, 0x50..=0x57, ..]
            | [0x0f, 0x1f | 0x80..=0x8f, ..]
            | [0x66, 0x90, ..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(code: &[u8]) -> Vec<(u64, u8, Flow)> {
        decode(code, Svma(0x1000)).iter().map(|i| (i.address.0, i.len, i.flow)).collect()
    }

    #[test]
    fn operands_in_memory_and_quick_instructions() {
        let one = |code: &[u8]| decode(code, Svma(0x1000))[0];
        let is = |code: &[u8]| (one(code).touches_memory(), one(code).is_quick());
        assert_eq!(is(&[0x48, 0x8b, 0x00]), (true, false), "mov (%rax),%rax");
        assert_eq!(is(&[0x48, 0x01, 0x08]), (true, false), "add %rcx,(%rax)");
        assert_eq!(is(&[0x48, 0xa5]), (true, false), "movsq");
        assert_eq!(is(&[0x48, 0x8d, 0x04, 0x08]), (false, true), "lea (%rax,%rcx),%rax");
        assert_eq!(is(&[0x0f, 0x1f, 0x00]), (false, true), "nopl (%rax)");
        assert_eq!(is(&[0x48, 0x01, 0xc8]), (false, true), "add %rcx,%rax");
        assert_eq!(is(&[0x48, 0xf7, 0xf7]), (false, false), "div %rdi");
        assert_eq!(is(&[0xff, 0x10]), (false, false), "call *(%rax)");
        assert_eq!(is(&[0x06]), (false, false), "no instruction");
    }

    #[test]
    fn dividends_are_made_directly_before_their_division() {
        let pair = |code: &[u8]| {
            let insns = decode(code, Svma(0x1000));
            insns[0].widens_for(&insns[1])
        };
        assert!(pair(&[0x31, 0xd2, 0xf7, 0xf1]), "xor %edx,%edx; div %ecx");
        assert!(pair(&[0x48, 0x31, 0xd2, 0x48, 0xf7, 0xf1]), "xor %rdx,%rdx; div %rcx");
        assert!(
            pair(&[0x99, 0xf7, 0xf9]) && pair(&[0x48, 0x99, 0x48, 0xf7, 0xf9]),
            "cltd; idiv %ecx and cqto; idiv %rcx"
        );
        assert!(!pair(&[0x31, 0xd2, 0x48, 0xf7, 0xf1]), "xor %edx,%edx; div %rcx");
        assert!(!pair(&[0x29, 0xd2, 0xf7, 0xf1]), "sub %edx,%edx; div %ecx");
        assert!(!pair(&[0x31, 0xd2, 0xf7, 0xf9]), "xor %edx,%edx; idiv %ecx");
        assert!(!pair(&[0x31, 0xc0, 0xf7, 0xf1]), "xor %eax,%eax; div %ecx");
        assert!(!pair(&[0x31, 0xca, 0xf7, 0xf1]), "xor %ecx,%edx; div %ecx");
        assert!(!pair(&[0x31, 0xd2, 0xf7, 0x31]), "xor %edx,%edx; divl (%rcx)");
    }

    #[test]
    fn prefixes_that_no_uprobe_may_stand_on() {
        let refused = |code: &[u8]| decode(code, Svma(0x1000))[0].takes_no_uprobe();
        assert!(refused(&[0xf0, 0x48, 0xff, 0x00]), "lock incq (%rax)");
        assert!(refused(&[0x3e, 0xff, 0xe0]), "notrack jmp *%rax");
        assert!(refused(&[0x2e, 0x0f, 0x1f, 0x00]), "cs nopl (%rax)");
        assert!(refused(&[0x62, 0xe2, 0x7d, 0x28, 0x7a, 0xc6]), "vpbroadcastb %esi,%ymm16");
        assert!(refused(&[0xc5, 0xf9, 0x76, 0xc1]), "vpcmpeqd %xmm1,%xmm0,%xmm0");
        assert!(refused(&[0xc5, 0xf8, 0xc2, 0xc1, 0x00]), "vcmpeqps %xmm1,%xmm0,%xmm0");
        assert!(!refused(&[0x66, 0x0f, 0x76, 0xc1]), "pcmpeqd %xmm1,%xmm0");
        assert!(!refused(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0]), "mov %fs:0,%rax");
        assert!(!refused(&[0x48, 0xff, 0x00]), "incq (%rax)");
    }

    #[test]
    fn control_flow_of_each_kind() {
        let check = |code: &[u8], flow| assert_eq!(flows(code), [(0x1000, code.len() as u8, flow)], "{code:02x?}");
        check(&[0x90], Flow::Next);
        check(&[0x0f, 0x05], Flow::Next); // syscall
        check(&[0xcd, 0x80], Flow::Next); // int $0x80
        check(&[0xeb, 0x10], Flow::Jump(Svma(0x1012)));
        check(&[0x75, 0xfe], Flow::Branch(Svma(0x1000)));
        check(&[0xe3, 0x02], Flow::Branch(Svma(0x1004))); // jrcxz
        check(&[0xe2, 0x02], Flow::Branch(Svma(0x1004))); // loop
        check(&[0xe8, 0, 0, 0, 0], Flow::Call(Svma(0x1005)));
        check(&[0xff, 0xe0], Flow::IndirectJump);
        check(&[0xff, 0xd0], Flow::IndirectCall);
        check(&[0xc3], Flow::Return);
        check(&[0xf3, 0xc3], Flow::Return);
        check(&[0x48, 0xcf], Flow::Return); // iretq
        check(&[0x48, 0x0f, 0x07], Flow::Return); // sysretq
        check(&[0x0f, 0x0b], Flow::Trap);
        check(&[0xcc], Flow::Trap);
        check(&[0xf4], Flow::Trap);
        check(&[0xc7, 0xf8, 4, 0, 0, 0], Flow::Branch(Svma(0x100a))); // xbegin
    }

    #[test]
    fn bytes_that_are_no_instruction_cost_one_byte_each() {
        assert_eq!(
            flows(&[0x06, 0x90, 0x48]),
            [(0x1000, 1, Flow::Invalid), (0x1001, 1, Flow::Next), (0x1002, 1, Flow::Invalid)]
        );
    }

    #[test]
    fn text_in_both_syntaxes_with_names() {
        let name = |at: Svma| (at == Svma(0x1005)).then(|| "puts@plt".to_owned());
        let text = |code: &[u8], syntax| disassemble(code, Svma(0x1000), syntax, &name)[0].1.clone();
        assert_eq!(text(&[0xe8, 0, 0, 0, 0], Syntax::Att), "call 0x1005 <puts@plt>");
        assert_eq!(text(&[0x48, 0x8b, 0x0c, 0xc6], Syntax::Att), "mov (%rsi,%rax,8),%rcx");
        assert_eq!(text(&[0x48, 0x8b, 0x0c, 0xc6], Syntax::Intel), "mov rcx,[rsi+rax*8]");
        assert_eq!(
            text(&[0x48, 0x8b, 0x05, 0xfe, 0xff, 0xff, 0xff], Syntax::Att),
            "mov -0x2(%rip),%rax # 0x1005 <puts@plt>"
        );
    }
}
