//! Which kind of work an instruction is. There are some 1,900 mnemonics and a dozen families of names, so kinds are
//! told by name once, into a table, and by operands afterwards. A name that fits no family is `Other`: better said
//! than guessed.

use super::{Effects, OpClass};
use crate::disasm::{Flow, Insn};
use iced_x86::{Instruction, Mnemonic, OpKind};
use std::sync::OnceLock;

/// The kind of an instruction whose registers and places in memory are known.
pub(super) fn class(insn: &Insn, effects: &Effects) -> OpClass {
    let raw = &insn.raw;
    if let Some(class) = by_flow(insn) {
        return class;
    }
    let exchange = raw.mnemonic() == Mnemonic::Xchg && effects.store.is_some();
    if (raw.has_lock_prefix() || exchange) && effects.store.is_some() {
        return OpClass::Lock;
    }
    if raw.has_rep_prefix() || raw.has_repne_prefix() {
        return OpClass::Rep;
    }
    let family = table()[raw.mnemonic() as usize];
    match family {
        OpClass::Move => moved(raw, effects),
        OpClass::Alu if zeroes(raw) => OpClass::ZeroIdiom,
        OpClass::VecAlu if zeroes(raw) => OpClass::ZeroIdiom,
        OpClass::Alu if adds_constant(raw) => OpClass::AluImmediate,
        OpClass::Lea => lea(raw),
        OpClass::VecShuffle | OpClass::VecAlu if copies(raw, effects) => moved(raw, effects),
        _ => family,
    }
}

/// Whether its stores (or loads) go past the caches.
pub(super) fn is_non_temporal(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Maskmovdqu, Maskmovq, Movntdq, Movnti, Movntpd, Movntps, Movntq, Movntsd, Movntss, Vmaskmovdqu, Vmovntdq,
        Vmovntpd, Vmovntps,
    };
    matches!(
        mnemonic,
        Maskmovdqu
            | Maskmovq
            | Movntdq
            | Movnti
            | Movntpd
            | Movntps
            | Movntq
            | Movntsd
            | Movntss
            | Vmaskmovdqu
            | Vmovntdq
            | Vmovntpd
            | Vmovntps
    )
}

fn by_flow(insn: &Insn) -> Option<OpClass> {
    match insn.flow {
        Flow::Branch(_) if matches!(insn.raw.mnemonic(), Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne) => {
            Some(OpClass::Loop)
        }
        Flow::Jump(_) | Flow::Branch(_) => Some(OpClass::Branch),
        Flow::Call(_) | Flow::IndirectCall => Some(OpClass::Call),
        Flow::IndirectJump => Some(OpClass::IndirectBranch),
        Flow::Return if matches!(insn.raw.mnemonic(), Mnemonic::Ret | Mnemonic::Retf) => Some(OpClass::Return),
        Flow::Return | Flow::Trap => Some(OpClass::Serialising),
        Flow::Next | Flow::Invalid => None,
    }
}

/// A plain move is a load, a store, a copy, or goes between kinds of registers.
fn moved(raw: &Instruction, effects: &Effects) -> OpClass {
    if effects.store.is_some() {
        return OpClass::Store;
    }
    if effects.load.is_some() {
        return OpClass::Load;
    }
    if raw.op1_kind() != OpKind::Register {
        return OpClass::Alu;
    }
    let (to, from) = (raw.op0_register(), raw.op1_register());
    if [to, from].iter().any(|r| r.is_cr() || r.is_dr()) {
        return OpClass::Serialising;
    }
    if to.is_gpr() != from.is_gpr() {
        return OpClass::Transfer;
    }
    // Moving one lane of a vector keeps the others.
    let lane = matches!(raw.mnemonic(), Mnemonic::Movss | Mnemonic::Movsd | Mnemonic::Movq);
    match (to.is_vector_register(), raw.op_count()) {
        (true, 2) if !lane => OpClass::Move,
        (true, _) => OpClass::VecShuffle,
        (false, _) if to.is_gpr32() || to.is_gpr64() => OpClass::Move,
        _ => OpClass::Alu,
    }
}

/// Whether equal operands give the same result whatever they hold, but for carry; a unit is needed all the same.
pub(super) fn is_same_whatever(raw: &Instruction) -> bool {
    use Mnemonic::{Pcmpeqb, Pcmpeqd, Pcmpeqw, Sbb, Vpcmpeqb, Vpcmpeqd, Vpcmpeqw};
    let known = matches!(raw.mnemonic(), Pcmpeqb | Pcmpeqd | Pcmpeqw | Sbb | Vpcmpeqb | Vpcmpeqd | Vpcmpeqw);
    known && same_operands(raw)
}

/// Whether its last two operands are the same register, of 32 bits or more.
fn same_operands(raw: &Instruction) -> bool {
    let n = raw.op_count();
    let register = |i: u32| (raw.op_kind(i) == OpKind::Register).then(|| raw.op_register(i));
    n >= 2 && register(n - 1).is_some_and(|r| r.size() >= 4) && register(n - 1) == register(n - 2)
}

/// `xor %eax,%eax` and its kin: the result does not depend on the operand.
fn zeroes(raw: &Instruction) -> bool {
    use Mnemonic::{Pxor, Sub, Vpxor, Vpxord, Vpxorq, Vxorpd, Vxorps, Xor, Xorpd, Xorps};
    same_operands(raw)
        && matches!(raw.mnemonic(), Xor | Sub | Pxor | Xorps | Xorpd | Vpxor | Vpxord | Vpxorq | Vxorps | Vxorpd)
}

fn adds_constant(raw: &Instruction) -> bool {
    let register = raw.op0_kind() == OpKind::Register && raw.op0_register().size() >= 4;
    let constant = raw.op_count() == 2 && raw.try_immediate(1).is_ok();
    match raw.mnemonic() {
        Mnemonic::Inc | Mnemonic::Dec => register,
        Mnemonic::Add | Mnemonic::Sub => register && constant,
        _ => false,
    }
}

fn lea(raw: &Instruction) -> OpClass {
    use iced_x86::Register;
    let parts = usize::from(raw.memory_base() != Register::None)
        + usize::from(raw.memory_index() != Register::None)
        + usize::from(raw.memory_displ_size() != 0);
    if parts >= 3 { OpClass::LeaSlow } else { OpClass::Lea }
}

/// Widening loads, broadcasts from memory and the like: the load port does it all.
fn copies(raw: &Instruction, effects: &Effects) -> bool {
    let name = raw.mnemonic();
    effects.load.is_some()
        && matches!(
            name,
            Mnemonic::Movddup
                | Mnemonic::Vmovddup
                | Mnemonic::Vbroadcastss
                | Mnemonic::Vbroadcastsd
                | Mnemonic::Vbroadcastf128
                | Mnemonic::Vbroadcasti128
                | Mnemonic::Vpbroadcastd
                | Mnemonic::Vpbroadcastq
        )
}

fn table() -> &'static [OpClass] {
    static TABLE: OnceLock<Vec<OpClass>> = OnceLock::new();
    TABLE.get_or_init(|| Mnemonic::values().map(|m| by_name(&format!("{m:?}").to_ascii_lowercase())).collect())
}

/// The family of a name in lower case.
fn by_name(name: &str) -> OpClass {
    general(name).or_else(|| system(name)).unwrap_or_else(|| {
        // What remains of names with an f are those of the x87 unit: the vector ones begin with a v.
        if name.starts_with('f') { OpClass::X87 } else { vector(name.strip_prefix('v').unwrap_or(name)) }
    })
}

fn general(name: &str) -> Option<OpClass> {
    Some(match name {
        "nop" | "endbr64" | "endbr32" | "reservednop" => OpClass::Nop,
        "mov" | "movbe" => OpClass::Move,
        "push" | "pushq" | "pushw" => OpClass::Store,
        "pop" => OpClass::Load,
        "movzx" | "movsx" | "movsxd" => OpClass::Alu,
        "add" | "sub" | "and" | "or" | "xor" | "cmp" | "test" | "inc" | "dec" | "neg" | "not" | "adc" | "sbb"
        | "adcx" | "adox" | "andn" | "blsi" | "blsr" | "blsmsk" | "bextr" | "bzhi" | "bt" | "bts" | "btr" | "btc"
        | "cbw" | "cwde" | "cdqe" | "cwd" | "cdq" | "cqo" | "bswap" | "lahf" | "sahf" | "clc" | "stc" | "cmc"
        | "xadd" | "cmpxchg" => OpClass::Alu,
        // Done while renaming by some, three operations on others.
        "xchg" => OpClass::Other,
        "shl" | "sal" | "shr" | "sar" | "rol" | "ror" | "rcl" | "rcr" | "shld" | "shrd" | "shlx" | "shrx" | "sarx"
        | "rorx" => OpClass::Shift,
        "lea" => OpClass::Lea,
        "imul" | "mul" | "mulx" => OpClass::Imul,
        "div" | "idiv" => OpClass::Div,
        "popcnt" | "lzcnt" | "tzcnt" | "bsf" | "bsr" | "pdep" | "pext" | "crc32" => OpClass::Bits,
        _ if name.starts_with("cmov") || (name.starts_with("set") && !name.starts_with("setssbsy")) => OpClass::Alu,
        _ if name.starts_with("prefetch") || name == "cldemote" => OpClass::Nop,
        _ => return None,
    })
}

fn system(name: &str) -> Option<OpClass> {
    Some(match name {
        "mfence" | "lfence" | "sfence" => OpClass::Fence,
        "pause" | "tpause" | "umwait" => OpClass::Pause,
        "syscall" | "sysenter" | "int" | "int3" | "vmcall" | "vmmcall" => OpClass::SystemCall,
        "cpuid" | "serialize" | "rdtsc" | "rdtscp" | "rdmsr" | "wrmsr" | "rdpmc" | "rdrand" | "rdseed" | "xgetbv"
        | "xsetbv" | "invlpg" | "invd" | "wbinvd" | "wbnoinvd" | "invpcid" | "in" | "out" | "lgdt" | "lidt"
        | "lldt" | "ltr" | "swapgs" | "wrfsbase" | "wrgsbase" | "clts" | "lmsw" | "sti" | "cli" | "popf" | "popfq"
        | "pushfq" | "iretq" | "hlt" | "monitor" | "mwait" | "clflush" | "clflushopt" | "clwb" => OpClass::Serialising,
        _ if name.starts_with("xsave")
            || name.starts_with("xrstor")
            || name.starts_with("fxsave")
            || name.starts_with("fxrstor") =>
        {
            OpClass::Serialising
        }
        _ => return None,
    })
}

/// Names without their leading `v`.
fn vector(name: &str) -> OpClass {
    let any = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    if any(&["fmadd", "fmsub", "fnmadd", "fnmsub", "fmaddsub", "fmsubadd"]) {
        OpClass::Fma
    } else if any(&["gather", "scatter", "pgather", "pscatter"]) {
        OpClass::Gather
    } else if any(&["aes", "sha1", "sha256", "sha512", "pclmul", "gf2p8", "sm3", "sm4"]) {
        OpClass::Crypto
    } else if any(&["sqrt"]) {
        OpClass::Sqrt
    } else if any(&["divs", "divp"]) {
        OpClass::FpDiv
    } else if any(&["muls", "mulp", "rsqrt", "rcp", "pmul", "pmadd", "dpp", "pdpb", "pdpw", "psadbw", "mpsadbw"]) {
        OpClass::FpMul
    } else if any(&[
        "adds", "addp", "subs", "subp", "mins", "minp", "maxs", "maxp", "cmps", "cmpp", "cvt", "ucomi", "comi",
        "haddp", "hsubp", "round", "rndscale", "getexp", "getmant", "scalef", "fixup", "range", "reduce",
    ]) {
        OpClass::FpAdd
    } else {
        moves_and_shuffles(name)
    }
}

fn moves_and_shuffles(name: &str) -> OpClass {
    let any = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    if matches!(name, "movd" | "movq" | "movss" | "movsd" | "lddqu")
        || any(&[
            "movap", "movup", "movdqa", "movdqu", "movnt", "maskmov", "pmaskmov", "movlps", "movlpd", "movhps",
            "movhpd",
        ])
    {
        OpClass::Move
    } else if any(&["pmovmsk", "movmsk", "pextr", "pinsr", "extractps", "insertps"]) {
        OpClass::Transfer
    } else if any(&[
        "pshuf",
        "punpck",
        "pack",
        "perm",
        "pperm",
        "blend",
        "pblend",
        "insert",
        "extract",
        "palign",
        "align",
        "shuf",
        "unpck",
        "broadcast",
        "pbroadcast",
        "movddup",
        "movhlps",
        "movlhps",
        "movshdup",
        "movsldup",
        "pmovzx",
        "pmovsx",
        "pmov",
        "pcompress",
        "compress",
        "expand",
        "pexpand",
        "pslldq",
        "psrldq",
    ]) {
        OpClass::VecShuffle
    } else if any(&["p", "and", "or", "xor", "test", "k", "ternlog"]) {
        OpClass::VecAlu
    } else if matches!(name, "zeroupper" | "zeroall") {
        OpClass::Nop
    } else {
        OpClass::Other
    }
}
