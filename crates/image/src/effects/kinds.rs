//! Kinds of work, as fine as processors tell them apart by how long results take: what one of the common cores of the last ten years
//! does a cycle or more slower than the rest of its kind has a kind of its own. How long that is belongs to the processor model.

/// Kind of work beside loading and storing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpClass {
    /// Nothing; prefetches too, which nobody waits for.
    Nop,
    /// A copy between registers of one kind that renaming can do.
    Move,
    /// The register becomes zero whatever it held.
    ZeroIdiom,
    /// Integer arithmetic, logic, comparison, conditional move.
    Alu,
    /// Adding or subtracting a small constant, which some cores do while renaming.
    AluImmediate,
    /// Conditional on carry and another flag at once.
    TwoFlags,
    /// Exchange of registers; addition that gives the old value.
    Exchange,
    /// Comparison and exchange without a lock.
    CompareExchange,
    /// Shift or rotation.
    Shift,
    /// Shift of two registers.
    ShiftDouble,
    /// Rotation through carry.
    RotateCarry,
    /// Address arithmetic of two parts.
    Lea,
    /// Address arithmetic of three parts.
    LeaSlow,
    /// Address arithmetic with a scaled index.
    LeaScaled,
    /// Integer multiplication.
    Imul,
    /// Bit counting, searching.
    Bits,
    /// The lowest set bit taken, cleared or masked.
    Lowest,
    /// A field of bits taken out; bytes of 64 bits in reverse.
    BitField,
    /// Bits scattered or gathered by a mask.
    Deposit,
    /// Cyclic redundancy check.
    Crc,
    /// Integer division.
    Div,
    /// Floating-point addition.
    FpAdd,
    /// Floating-point comparison into a vector, minimum, maximum.
    FpCompare,
    /// Conversion between numbers of one width; exponents and the like.
    Convert,
    /// Conversion between numbers of different widths.
    ConvertWidth,
    /// Conversion from a general register.
    ConvertFromInt,
    /// Conversion into a general register.
    ConvertToInt,
    /// Rounding to a whole number.
    Round,
    /// Estimates of reciprocals.
    Reciprocal,
    /// Sums of neighbours, floating point.
    Horizontal,
    /// Dot product of singles.
    Dot,
    /// Dot product of doubles.
    DotDouble,
    /// Floating-point multiplication.
    FpMul,
    /// Multiplication and addition in one.
    Fma,
    /// Floating-point division of doubles.
    FpDiv,
    /// Of singles.
    FpDivSingle,
    /// Square root of doubles.
    Sqrt,
    /// Of singles.
    SqrtSingle,
    /// Integer arithmetic and logic on vectors.
    VecAlu,
    /// Integer multiplication on vectors.
    VecMul,
    /// Such of 32 bits or more, all bits of an element.
    VecMulWide,
    /// Sums of absolute differences; multiplications of 52 bits.
    VecSums,
    /// Ordered comparison of 64 bits.
    VecCompare64,
    /// Sums of neighbours, integers.
    VecHorizontal,
    /// Comparison of strings in vectors.
    VecString,
    /// Comparison of floating-point numbers into flags.
    VecFlags,
    /// Test of integers in vectors into flags.
    VecTest,
    /// Comparison into a mask.
    MaskCompare,
    /// Addition and shift of masks.
    MaskShift,
    /// Moves between lanes.
    VecShuffle,
    /// Moves that make elements narrower.
    Pack,
    /// Choice by a vector, of three operands.
    BlendBy,
    /// Between the halves of a vector, by any pattern.
    Cross,
    /// Halves taken out or put in, one element into all, elements made wider across halves.
    Halves,
    /// Between general and vector registers.
    Transfer,
    /// The same of a single element.
    Lane,
    /// A load and nothing else.
    Load,
    /// A store and nothing else.
    Store,
    /// Direct jump or conditional branch.
    Branch,
    /// `loop` and its kin: microcode on many cores.
    Loop,
    /// Jump to where a register or memory says.
    IndirectBranch,
    /// Call, direct or not.
    Call,
    /// Return.
    Return,
    /// Locked operation on memory.
    Lock,
    /// Fence of loads and stores.
    Fence,
    /// Fence of loads.
    LoadFence,
    /// Fence of stores.
    StoreFence,
    /// Spin-loop hint.
    Pause,
    /// System call or interrupt.
    SystemCall,
    /// Serialising, or microcode that takes hundreds of cycles.
    Serialising,
    /// Identification of the processor, which hypervisors do instead of it.
    Cpuid,
    /// Time-stamp counter and other counters.
    ReadClock,
    /// All flags from the stack.
    PopFlags,
    /// Repeated string operation.
    Rep,
    /// x87 arithmetic.
    X87,
    /// Gather or scatter.
    Gather,
    /// A round of AES.
    Aes,
    /// Keys of AES.
    AesKey,
    /// Carry-less multiplication.
    CarryLess,
    /// Rounds of SHA.
    ShaRounds,
    /// The rest of SHA, arithmetic in finite fields.
    Crypto,
    /// Anything else; mostly several micro-operations.
    #[default]
    Other,
}

impl OpClass {
    /// Whether it may compute with numbers so small that microcode must help.
    #[must_use]
    pub const fn is_floating(self) -> bool {
        matches!(
            self,
            Self::FpAdd
                | Self::FpCompare
                | Self::ConvertWidth
                | Self::Round
                | Self::Reciprocal
                | Self::Horizontal
                | Self::Dot
                | Self::DotDouble
                | Self::FpMul
                | Self::Fma
                | Self::FpDiv
                | Self::FpDivSingle
                | Self::Sqrt
                | Self::SqrtSingle
        )
    }

    /// Whether it is a floating-point division or a root.
    #[must_use]
    pub const fn is_fp_division(self) -> bool {
        matches!(self, Self::FpDiv | Self::FpDivSingle | Self::Sqrt | Self::SqrtSingle)
    }

    /// Whether it computes with general registers alone.
    #[must_use]
    pub const fn is_of_general_registers(self) -> bool {
        matches!(
            self,
            Self::Alu
                | Self::AluImmediate
                | Self::TwoFlags
                | Self::Exchange
                | Self::CompareExchange
                | Self::Lea
                | Self::Lowest
                | Self::BitField
                | Self::Other
        )
    }

    /// Whether what a name of this family means depends on operands, which may be masks, loads or general registers.
    pub(super) const fn is_of_vectors(self) -> bool {
        matches!(
            self,
            Self::VecAlu | Self::FpCompare | Self::VecCompare64 | Self::Halves | Self::Lane | Self::ConvertFromInt
        )
    }

    /// Whether it keeps memory accesses in order.
    #[must_use]
    pub const fn is_fence(self) -> bool {
        matches!(self, Self::Fence | Self::LoadFence | Self::StoreFence)
    }

    /// Whether it serialises, or may.
    #[must_use]
    pub const fn serialises(self) -> bool {
        matches!(self, Self::Serialising | Self::Cpuid | Self::ReadClock | Self::PopFlags)
    }
}
