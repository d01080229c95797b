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
        // The load port widens.
        OpClass::Alu if widens(raw) && effects.load.is_some() => OpClass::Load,
        OpClass::BitField if raw.mnemonic() == Mnemonic::Bswap && raw.op0_register().size() < 8 => OpClass::Alu,
        OpClass::Lea => lea(raw),
        OpClass::VecShuffle | OpClass::VecAlu | OpClass::Halves if copies(raw, effects) => moved(raw, effects),
        _ if family.is_of_vectors() => vectors(raw, effects, family),
        _ => family,
    }
}

/// What names of the vector families mean with these operands.
fn vectors(raw: &Instruction, effects: &Effects, family: OpClass) -> OpClass {
    let (to, from) = (raw.op0_register(), raw.op1_register());
    match family {
        OpClass::VecAlu | OpClass::FpCompare | OpClass::VecCompare64 if to.is_k() && !from.is_k() => {
            OpClass::MaskCompare
        }
        OpClass::Halves if from.is_gpr() => OpClass::Transfer,
        // What is loaded or stays within 128 bits crosses nothing.
        OpClass::Halves if effects.load.is_some() || (to.size() <= 16 && from.size() <= 16) => OpClass::VecShuffle,
        OpClass::Lane if effects.load.is_some() => OpClass::VecShuffle,
        OpClass::ConvertFromInt if effects.load.is_some() => OpClass::Convert,
        _ => family,
    }
}

fn widens(raw: &Instruction) -> bool {
    matches!(raw.mnemonic(), Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd)
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
    match parts {
        2.. if raw.memory_index() != Register::None && raw.memory_index_scale() > 1 => OpClass::LeaScaled,
        3.. => OpClass::LeaSlow,
        _ => OpClass::Lea,
    }
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
        let bare = name.strip_prefix('v').unwrap_or(name);
        match name.as_bytes() {
            // What remains of names with an f are those of the x87 unit: the vector ones begin with a v.
            [b'f', ..] => OpClass::X87,
            [b'k', ..] => masks(name),
            _ if name != bare && (bare.starts_with("blendv") || bare.starts_with("pblendv")) => OpClass::BlendBy,
            _ => crypto(bare)
                .or_else(|| floating(bare))
                .or_else(|| conversions(bare))
                .or_else(|| integers(bare))
                .unwrap_or_else(|| moves_and_shuffles(bare)),
        }
    })
}

fn general(name: &str) -> Option<OpClass> {
    Some(match name {
        "nop" | "endbr64" | "endbr32" | "reservednop" => OpClass::Nop,
        "mov" | "movbe" => OpClass::Move,
        "push" | "pushq" | "pushw" => OpClass::Store,
        "pop" => OpClass::Load,
        "movzx" | "movsx" | "movsxd" => OpClass::Alu,
        "cmova" | "cmovbe" | "seta" | "setbe" => OpClass::TwoFlags,
        "add" | "sub" | "and" | "or" | "xor" | "cmp" | "test" | "inc" | "dec" | "neg" | "not" | "adc" | "sbb"
        | "adcx" | "adox" | "andn" | "bzhi" | "bt" | "bts" | "btr" | "btc" | "cbw" | "cwde" | "cdqe" | "cwd"
        | "cdq" | "cqo" | "lahf" | "sahf" | "clc" | "stc" | "cmc" => OpClass::Alu,
        "xchg" | "xadd" => OpClass::Exchange,
        "cmpxchg" => OpClass::CompareExchange,
        "shl" | "sal" | "shr" | "sar" | "rol" | "ror" | "shlx" | "shrx" | "sarx" | "rorx" => OpClass::Shift,
        "shld" | "shrd" => OpClass::ShiftDouble,
        "rcl" | "rcr" => OpClass::RotateCarry,
        "lea" => OpClass::Lea,
        "imul" | "mul" | "mulx" => OpClass::Imul,
        "div" | "idiv" => OpClass::Div,
        "popcnt" | "lzcnt" | "tzcnt" | "bsf" | "bsr" => OpClass::Bits,
        "blsi" | "blsr" | "blsmsk" => OpClass::Lowest,
        "bextr" | "bswap" => OpClass::BitField,
        "pdep" | "pext" => OpClass::Deposit,
        "crc32" => OpClass::Crc,
        _ if name.starts_with("cmov") || (name.starts_with("set") && !name.starts_with("setssbsy")) => OpClass::Alu,
        _ if name.starts_with("prefetch") || name == "cldemote" => OpClass::Nop,
        _ => return None,
    })
}

fn system(name: &str) -> Option<OpClass> {
    Some(match name {
        "mfence" => OpClass::Fence,
        "lfence" => OpClass::LoadFence,
        "sfence" => OpClass::StoreFence,
        "pause" | "tpause" | "umwait" => OpClass::Pause,
        "syscall" | "sysenter" | "int" | "int3" | "vmcall" | "vmmcall" => OpClass::SystemCall,
        "cpuid" => OpClass::Cpuid,
        "rdtsc" | "rdtscp" | "rdpmc" => OpClass::ReadClock,
        "popf" | "popfd" | "popfq" => OpClass::PopFlags,
        "serialize" | "rdmsr" | "wrmsr" | "rdrand" | "rdseed" | "xgetbv" | "xsetbv" | "invlpg" | "invd" | "wbinvd"
        | "wbnoinvd" | "invpcid" | "in" | "out" | "lgdt" | "lidt" | "lldt" | "ltr" | "swapgs" | "wrfsbase"
        | "wrgsbase" | "clts" | "lmsw" | "sti" | "cli" | "pushfq" | "iretq" | "hlt" | "monitor" | "mwait"
        | "clflush" | "clflushopt" | "clwb" => OpClass::Serialising,
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

fn masks(name: &str) -> OpClass {
    match name {
        _ if name.starts_with("kmov") => OpClass::Move,
        _ if ["kadd", "kshift", "kunpck"].iter().any(|p| name.starts_with(p)) => OpClass::MaskShift,
        _ => OpClass::VecAlu,
    }
}

/// From here on names without their leading `v`.
fn crypto(name: &str) -> Option<OpClass> {
    let any = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    Some(match () {
        () if any(&["aesimc", "aeskeygen"]) => OpClass::AesKey,
        () if any(&["aes"]) => OpClass::Aes,
        () if any(&["pclmul"]) => OpClass::CarryLess,
        () if any(&["sha1rnds", "sha256rnds"]) => OpClass::ShaRounds,
        () if any(&["sha1", "sha256", "sha512", "gf2p8", "sm3", "sm4"]) => OpClass::Crypto,
        () => return None,
    })
}

fn floating(name: &str) -> Option<OpClass> {
    let any = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    let double = name.ends_with('d');
    Some(match () {
        () if any(&["fmadd", "fmsub", "fnmadd", "fnmsub", "fmaddsub", "fmsubadd"]) => OpClass::Fma,
        () if any(&["gather", "scatter", "pgather", "pscatter"]) => OpClass::Gather,
        () if any(&["sqrt"]) => {
            if double {
                OpClass::Sqrt
            } else {
                OpClass::SqrtSingle
            }
        }
        () if any(&["divs", "divp"]) => {
            if double {
                OpClass::FpDiv
            } else {
                OpClass::FpDivSingle
            }
        }
        () if any(&["rsqrt", "rcp"]) => OpClass::Reciprocal,
        () if any(&["muls", "mulp"]) => OpClass::FpMul,
        () if any(&["dpps"]) => OpClass::Dot,
        () if any(&["dppd"]) => OpClass::DotDouble,
        () if any(&["haddp", "hsubp"]) => OpClass::Horizontal,
        () if any(&["round", "rndscale"]) => OpClass::Round,
        () if any(&["mins", "minp", "maxs", "maxp", "cmps", "cmpp"]) => OpClass::FpCompare,
        () if any(&["ucomi", "comi"]) => OpClass::VecFlags,
        () if any(&["adds", "addp", "subs", "subp"]) => OpClass::FpAdd,
        () => return None,
    })
}

fn conversions(name: &str) -> Option<OpClass> {
    let of = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    if of(&["getexp", "getmant", "scalef", "fixup", "range", "reduce"]) {
        return Some(OpClass::Convert);
    }
    let kinds = name.strip_prefix("cvtt").or_else(|| name.strip_prefix("cvt"))?;
    Some(match kinds {
        _ if kinds.starts_with("si2") || kinds.starts_with("usi2") => OpClass::ConvertFromInt,
        _ if kinds.ends_with("2si") || kinds.ends_with("2usi") => OpClass::ConvertToInt,
        "dq2ps" | "udq2ps" | "ps2dq" | "ps2udq" | "qq2pd" | "uqq2pd" | "pd2qq" | "pd2uqq" => OpClass::Convert,
        _ => OpClass::ConvertWidth,
    })
}

fn integers(name: &str) -> Option<OpClass> {
    let any = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    Some(match () {
        () if any(&["pmulld", "pmullq"]) => OpClass::VecMulWide,
        () if any(&["pmadd52", "psadbw", "mpsadbw", "dbpsadbw", "phminpos"]) => OpClass::VecSums,
        () if any(&["pmul", "pmadd", "pdpb", "pdpw"]) => OpClass::VecMul,
        () if any(&["pcmpgtq"]) => OpClass::VecCompare64,
        () if any(&["pcmpistr", "pcmpestr"]) => OpClass::VecString,
        () if any(&["phadd", "phsub"]) => OpClass::VecHorizontal,
        () if any(&["ptestm", "ptestnm"]) => OpClass::VecAlu,
        () if any(&["ptest", "testp"]) => OpClass::VecTest,
        () => return None,
    })
}

fn moves_and_shuffles(name: &str) -> OpClass {
    let any = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    match () {
        () if matches!(name, "movd" | "movq" | "movss" | "movsd" | "lddqu") || any(&MOVES) => OpClass::Move,
        () if any(&["pmovmsk", "movmsk"]) => OpClass::Transfer,
        () if any(&["pextr", "pinsr", "extractps"]) => OpClass::Lane,
        () if any(&["pack"]) => OpClass::Pack,
        () if any(&["permil", "pperm"]) => OpClass::VecShuffle,
        () if any(&["perm", "align", "shuff", "shufi", "pcompress", "compress", "expand", "pexpand"]) => OpClass::Cross,
        () if any(&["insertf", "inserti", "extractf", "extracti", "broadcast", "pbroadcast", "pmovzx", "pmovsx"]) => {
            OpClass::Halves
        }
        () if any(&SHUFFLES) => OpClass::VecShuffle,
        () if any(&["p", "and", "or", "xor", "ternlog"]) => OpClass::VecAlu,
        () if matches!(name, "zeroupper" | "zeroall") => OpClass::Nop,
        () => OpClass::Other,
    }
}

const MOVES: [&str; 11] =
    ["movap", "movup", "movdqa", "movdqu", "movnt", "maskmov", "pmaskmov", "movlps", "movlpd", "movhps", "movhpd"];

const SHUFFLES: [&str; 16] = [
    "pshuf", "punpck", "blend", "pblend", "insertps", "palign", "shuf", "unpck", "movddup", "movhlps", "movlhps",
    "movshdup", "movsldup", "pmov", "pslldq", "psrldq",
];
