//! Code prepared for walks in the kernel, and what walks tell. Mirrors `include/whither_path.h`; what operations do is
//! in `include/whither_walk.h`. Constraint: a record names instructions by number, so it means nothing without the
//! preparation it was made with ([`Path::code`]).

use crate::Words;

/// First word of a record, `WH_PATH`.
pub const KIND_PATH: u32 = 4;
/// Most transfers of control in a record.
pub const HOPS: usize = 1024;
/// So many instructions from its beginning on are near it.
pub const NEAR: u32 = 400;
/// [`Op::next`], [`Op::taken`]: not known yet.
pub const NO_OP: u32 = 0;
/// [`Op::base`], [`Op::index`]: none.
pub const NO_GPR: u8 = 16;
/// [`Op::base`]: what a process has added to the addresses that the image states.
pub const OF_IMAGE: u8 = 17;
/// [`Op::dst`], [`Op::src`]: the memory operand. Below: a register, or bits 8 to 15 of one, shifted by 16.
pub const IN_MEMORY: u8 = 32;
/// [`Op::src`]: [`Op::imm`].
pub const IMMEDIATE: u8 = 33;
/// [`Op::dst`], [`Op::src`]: no operand.
pub const NOWHERE: u8 = 34;

/// [`Op::dst`], [`Op::src`], [`Op::with`]: the first vector register.
pub const VECTOR: u8 = 64;
/// The first mask register, k0.
pub const MASK: u8 = 96;
/// [`Op::mask`]: elements that are not chosen are 0.
pub const MASK_ZERO: u8 = 8;
/// [`Op::mask`]: bytes of a vector above the result stay.
pub const KEEP: u8 = 16;

/// [`Op::bits`].
pub mod bits {
    /// There is a memory operand.
    pub const ADDRESS: u8 = 1;
    /// It is read.
    pub const READS: u8 = 2;
    /// It is written.
    pub const WRITES: u8 = 4;
    /// Addresses have 32 bits.
    pub const SHORT: u8 = 8;
    /// Relative to thread-local data.
    pub const FS: u8 = 16;
    /// The address is never known.
    pub const STRANGE: u8 = 32;
    /// Only flags change.
    pub const KEEPS: u8 = 64;
    /// Flags are not known afterwards.
    pub const FLAGS: u8 = 128;
}

macro_rules! kinds {
    ($($name:ident = $c:literal),* $(,)?) => {
        /// What an instruction does, `enum wh_op_kind`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "named as the instructions are; the header says what is special")]
        pub enum Kind {
            #[default]
            $($name),*
        }
        #[cfg(test)]
        const KINDS: &[(Kind, &str)] = &[$((Kind::$name, $c)),*];
    };
}

kinds! {
    End = "END", Nop = "NOP", Jump = "JUMP", Branch = "BRANCH", BranchIfNone = "BRANCH_IF_NONE", JumpFar = "JUMP_FAR",
    Push = "PUSH", Pop = "POP", Leave = "LEAVE", Call = "CALL", CallFar = "CALL_FAR", Return = "RETURN",
    Forget = "FORGET", Lea = "LEA", Move = "MOVE", MoveSigned = "MOVE_SIGNED", Add = "ADD", Adc = "ADC", Sub = "SUB",
    Sbb = "SBB", Neg = "NEG", ZeroBorrow = "ZERO_BORROW", And = "AND", Or = "OR", Xor = "XOR", Zero = "ZERO",
    Inc = "INC", Dec = "DEC", Not = "NOT", Shl = "SHL", Shr = "SHR", Sar = "SAR", Rol = "ROL", Ror = "ROR",
    Multiply = "MULTIPLY", Mul = "MUL", Imul = "IMUL", Div = "DIV", Idiv = "IDIV", BitTest = "BIT_TEST",
    BitSet = "BIT_SET", BitReset = "BIT_RESET", BitFlip = "BIT_FLIP", Bsf = "BSF", Bsr = "BSR", Tzcnt = "TZCNT",
    Lzcnt = "LZCNT", Popcnt = "POPCNT", MoveIf = "MOVE_IF", SetIf = "SET_IF", Sign = "SIGN", Swap = "SWAP",
    AddSwap = "ADD_SWAP", SwapIfEqual = "SWAP_IF_EQUAL", AndNot = "AND_NOT", ZeroHigh = "ZERO_HIGH",
    ClearLowest = "CLEAR_LOWEST", IsolateLowest = "ISOLATE_LOWEST", MaskLowest = "MASK_LOWEST",
    SwapBytes = "SWAP_BYTES", ShiftQuietly = "SHIFT_QUIETLY", ShiftDouble = "SHIFT_DOUBLE", Carry = "CARRY",
    StringStore = "STRING_STORE", StringCopy = "STRING_COPY", StringCompare = "STRING_COMPARE",
    StringScan = "STRING_SCAN", VMove = "V_MOVE", VStore = "V_STORE", VInsert = "V_INSERT", VExtract = "V_EXTRACT",
    VBroadcast = "V_BROADCAST", VZero = "V_ZERO", VOnes = "V_ONES", VAnd = "V_AND", VAndNot = "V_AND_NOT",
    VOr = "V_OR", VXor = "V_XOR", VTernary = "V_TERNARY", VAdd = "V_ADD", VSub = "V_SUB", VCompare = "V_COMPARE",
    VPick = "V_PICK", VShift = "V_SHIFT", VTest = "V_TEST", VSigns = "V_SIGNS", VAll = "V_ALL",
    VFind = "V_FIND",    VPermute = "V_PERMUTE", VLookUp = "V_LOOK_UP", VUpperZero = "V_UPPER_ZERO", FCompare = "F_COMPARE",
    FFromInteger = "F_FROM_INTEGER", FToInteger = "F_TO_INTEGER", FAdd = "F_ADD", FSub = "F_SUB",
    FMultiply = "F_MULTIPLY", FDivide = "F_DIVIDE", KTest = "K_TEST", KJoin = "K_JOIN",
}

/// Directions of shifts, `enum wh_towards`.
pub mod towards {
    /// To the left.
    pub const LEFT: u8 = 0;
    /// To the right, zeros first.
    pub const RIGHT: u8 = 1;
    /// To the right, copies of the sign first.
    pub const RIGHT_SIGNED: u8 = 2;
    /// Rotated to the right.
    pub const ROUND_RIGHT: u8 = 3;
}

/// Relations of elements, `enum wh_relation`: those of EVEX comparisons.
pub mod relation {
    /// Equal.
    pub const EQUAL: u8 = 0;
    /// Less.
    pub const LESS: u8 = 1;
    /// More.
    pub const MORE: u8 = 6;
    /// Added to any: of signed numbers.
    pub const SIGNED: u8 = 8;
}

/// Where bytes of each block of 16 come from, `enum wh_order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the header says which instruction")]
pub enum Order {
    UnpackLow,
    UnpackHigh,
    Shuffle,
    ShuffleLow,
    ShuffleHigh,
    ShuffleTwo,
    Align,
    BytesLeft,
    BytesRight,
}

/// One instruction of an image, `struct wh_op`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// Of the address of the memory operand; all of it when it is absolute.
    pub disp: u64,
    /// Immediate operand.
    pub imm: u64,
    /// Number of the instruction behind it.
    pub next: u32,
    /// Number of the one at its target.
    pub taken: u32,
    /// Registers that are not known afterwards, a bit each.
    pub forgets: u16,
    /// What it does.
    pub kind: Kind,
    /// Bytes of the result.
    pub size: u8,
    /// Bytes of `src`, or read from memory.
    pub from: u8,
    /// Where the result goes, and the first input.
    pub dst: u8,
    /// The second input.
    pub src: u8,
    /// Base register of the address.
    pub base: u8,
    /// Index register.
    pub index: u8,
    /// The index is shifted by this.
    pub shift: u8,
    /// Condition, as in machine code.
    pub condition: u8,
    /// [`bits`].
    pub bits: u8,
    /// 1: a multiplication of `src` by `imm`.
    pub third: u8,
    /// One more input.
    pub with: u8,
    /// Bytes per element of a vector.
    pub lane: u8,
    /// Elements of the result that are written: k register, [`MASK_ZERO`], [`KEEP`].
    pub mask: u8,
}

impl Op {
    /// Bytes of it.
    pub const SIZE: usize = 40;

    /// As the kernel side reads it.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..8].copy_from_slice(&self.disp.to_le_bytes());
        out[8..16].copy_from_slice(&self.imm.to_le_bytes());
        out[16..20].copy_from_slice(&self.next.to_le_bytes());
        out[20..24].copy_from_slice(&self.taken.to_le_bytes());
        out[24..26].copy_from_slice(&self.forgets.to_le_bytes());
        let small = [
            self.kind as u8,
            self.size,
            self.from,
            self.dst,
            self.src,
            self.base,
            self.index,
            self.shift,
            self.condition,
            self.bits,
            self.third,
            self.with,
            self.lane,
            self.mask,
        ];
        out[26..].copy_from_slice(&small);
        out
    }
}

/// 256 bytes of an image's code, `struct wh_chunk`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// Stated address by 256.
    pub number: u64,
    /// The image's number, not 0.
    pub image: u32,
    /// 0.
    pub spare: u32,
}

impl Chunk {
    /// The bytes of the key.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.number.to_le_bytes());
        out[8..12].copy_from_slice(&self.image.to_le_bytes());
        out
    }
}

/// A process that may be walked in, `struct wh_life`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Life {
    /// Thread-group id.
    pub tgid: u32,
    /// Which life of it.
    pub tag: u32,
}

impl Life {
    /// The bytes of the key.
    #[must_use]
    pub fn bytes(&self) -> [u8; 8] {
        (u64::from(self.tgid) | u64::from(self.tag) << 32).to_le_bytes()
    }
}

/// What a process has mapped in one place, `struct wh_part`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// First address.
    pub start: u64,
    /// First address behind.
    pub end: u64,
    /// What is added to stated addresses.
    pub bias: u64,
    /// The image's number, not 0.
    pub image: u32,
    /// 0.
    pub spare: u32,
}

/// Most parts of a process that can be told.
pub const PARTS: usize = 63;
const PART_BYTES: usize = 32;

/// The bytes of a `struct wh_space` of parts in the order of their addresses; those behind [`PARTS`] are left out.
#[must_use]
pub fn space_bytes(parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::with_capacity((PARTS + 1) * PART_BYTES);
    let unused = Part { start: u64::MAX, ..Part::default() };
    for p in parts.iter().take(PARTS).chain(std::iter::repeat(&unused)).take(PARTS + 1) {
        [p.start, p.end, p.bias, u64::from(p.image)].iter().for_each(|word| out.extend(word.to_le_bytes()));
    }
    out
}

/// How a walk ended, `enum wh_path_end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As long as walks get.
    Length,
    /// It needs something that is not known.
    Unknown,
    /// Too many stores.
    Stores,
    /// At code that is not prepared.
    NewCode,
    /// Too many transfers of control.
    Hops,
}

/// One walk, `struct wh_path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Thread-group id.
    pub tgid: u32,
    /// Which life of it.
    pub tag: u32,
    /// Program counter of the sample.
    pub pc: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// Address of code that is not prepared, 0: none.
    pub wanted: u64,
    /// Which preparation the numbers are of.
    pub code: u32,
    /// The instruction it ended at.
    pub last: u32,
    /// With [`End::NewCode`] and nothing wanted: what is missing is the target of `last`, not what follows it.
    pub at_target: bool,
    /// How it ended.
    pub end: End,
    /// Instructions executed.
    pub steps: u32,
    /// Nanoseconds it took.
    pub took: u32,
    /// Transfers of control that are passed over: what happens next to where time is spent is not what happens on average.
    pub passed: usize,
    /// Those of its first [`NEAR`] instructions.
    pub near: usize,
    /// Transfers of control, by the numbers of the instructions.
    pub hops: Vec<(u32, u32)>,
}

impl Path {
    /// Bytes before the transfers.
    pub const HEAD: usize = 64;

    /// Reads a record; `None` when it is short or of another kind.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        if w.u32(0)? != KIND_PATH {
            return None;
        }
        let ends = w.u32(44)?;
        let end = match ends >> 16 {
            0 => End::Length,
            1 => End::Unknown,
            2 => End::Stores,
            3 => End::NewCode,
            4 => End::Hops,
            _ => return None,
        };
        let count = usize::try_from(w.u32(52)?).ok().filter(|n| *n <= HOPS)?;
        let hop = |i: usize| Some((w.u32(Self::HEAD + 8 * i)?, w.u32(Self::HEAD + 8 * i + 4)?));
        Some(Self {
            tgid: w.u32(4)?,
            pc: w.u64(8)?,
            time: w.u64(16)?,
            wanted: w.u64(24)?,
            tag: w.u32(32)?,
            code: w.u32(36)?,
            last: w.u32(40)?,
            at_target: ends & 0xffff != 0,
            end,
            steps: w.u32(48)?,
            took: w.u32(56)?,
            passed: (w.u32(60)? & 0xffff) as usize,
            near: (w.u32(60)? >> 16) as usize,
            hops: (0..count).map(hop).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::run_c;
    use std::fmt::Write;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_and_numbers_are_the_c_compilers() {
        let mut expect = String::new();
        let mut program =
            "#include <stdio.h>\n#include <stddef.h>\n#include \"whither_path.h\"\nint main(void){\n".to_owned();
        let mut row = |c: &str, rust: usize| {
            let _ = writeln!(expect, "{rust}");
            let _ = writeln!(program, "printf(\"%zu\\n\", (size_t)({c}));");
        };
        for (kind, name) in KINDS {
            row(&format!("WH_OP_{name}"), *kind as usize);
        }
        row("WH_OP_K_JOIN + 1", KINDS.len());
        row("sizeof(struct wh_op)", Op::SIZE);
        row("sizeof(struct wh_op)", size_of::<Op>());
        macro_rules! at {
            ($($field:ident),*) => { $( row(concat!("offsetof(struct wh_op, ", stringify!($field), ")"), offset_of!(Op, $field)); )* };
        }
        at!(
            disp, imm, next, taken, forgets, kind, size, from, dst, src, base, index, shift, condition, bits, third,
            with, lane, mask
        );
        for (name, bit) in [
            ("ADDRESS", bits::ADDRESS),
            ("READS", bits::READS),
            ("WRITES", bits::WRITES),
            ("SHORT", bits::SHORT),
            ("FS", bits::FS),
            ("STRANGE", bits::STRANGE),
            ("KEEPS", bits::KEEPS),
            ("FLAGS", bits::FLAGS),
        ] {
            row(&format!("WH_BIT_{name}"), bit.into());
        }
        for (name, order) in
            [("UNPACK_HIGH", Order::UnpackHigh), ("ALIGN", Order::Align), ("BYTES_RIGHT", Order::BytesRight)]
        {
            row(&format!("WH_{name}"), order as usize);
        }
        row("WH_RIGHT_SIGNED * 10 + WH_ROUND_RIGHT", (towards::RIGHT_SIGNED * 10 + towards::ROUND_RIGHT).into());
        row("WH_LESS * 100 + WH_MORE * 10 + WH_SIGNED", 168);
        row("WH_VECTOR * 1000 + WH_MASK", usize::from(VECTOR) * 1000 + usize::from(MASK));
        row("WH_MASK_ZERO * 100 + WH_KEEP", usize::from(MASK_ZERO) * 100 + usize::from(KEEP));
        row("WH_IN_MEMORY * 10000 + WH_IMMEDIATE * 100 + WH_NOWHERE", 323_334);
        row("WH_PATH * 10000 + WH_HOPS", KIND_PATH as usize * 10_000 + HOPS);
        row("WH_NEAR", NEAR as usize);
        row("offsetof(struct wh_path, hop)", Path::HEAD);
        row("sizeof(struct wh_chunk)", size_of::<Chunk>());
        row("sizeof(struct wh_life)", size_of::<Life>());
        row("sizeof(struct wh_part)", size_of::<Part>());
        row("offsetof(struct wh_part, bias) * 100 + offsetof(struct wh_part, image)", 1624);
        row("sizeof(struct wh_space)", space_bytes(&[]).len());
        row("WH_NO_GPR * 100 + WH_OF_IMAGE", usize::from(NO_GPR) * 100 + usize::from(OF_IMAGE));
        program += "}\n";
        assert_eq!(run_c("path", &program), expect);
    }

    #[test]
    fn a_record_is_read_as_c_writes_it() {
        let program = r#"
            #include <stdio.h>
            #include "whither_path.h"
            int main(void) {
                struct wh_path p = { WH_PATH, 7, 0x1122334455667788, 99, 0x4000, 5, 6, 12, 1, WH_END_NEW_CODE, 300, 2, 1234, 1, 2, {{1, 2}, {3, 4}} };
                for (unsigned i = 0; i < sizeof(p) - sizeof(p.hop) + 16; i++) printf("%d ", ((unsigned char *)&p)[i]);
            }"#;
        let bytes: Vec<u8> = run_c("walked", program).split_whitespace().map(|b| b.parse().expect("a byte")).collect();
        let expect = Path {
            tgid: 7,
            tag: 5,
            pc: 0x1122_3344_5566_7788,
            time: 99,
            wanted: 0x4000,
            code: 6,
            last: 12,
            at_target: true,
            end: End::NewCode,
            steps: 300,
            took: 1234,
            passed: 1,
            near: 2,
            hops: vec![(1, 2), (3, 4)],
        };
        assert_eq!(Path::read(&bytes), Some(expect));
        assert!((0..bytes.len()).all(|n| Path::read(&bytes[..n]).is_none()), "short ones are none");
        assert!(Path::read(&[9; 200]).is_none());
    }
}
