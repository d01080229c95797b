//! Cycles from operands to result, by kind of work. What recordings measure of their core replaces what stands here. What was not measured has the
//! least that cores of its vendor take of the last ten years (Intel since Skylake, AMD since Zen), and where the vendor is not known either the
//! least of both: executions are bounded by it. Sources: measured (`workloads/cycles/latencies`) on Golden Cove; tables of instructions
//! that compilers and vendors publish for the others.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whither_image::{Effects, OpClass};

/// Who made a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Intel,
    Amd,
    Unknown,
}

impl Vendor {
    /// By how a recording names its CPU.
    pub(super) fn of(cpu: &str) -> Self {
        match () {
            () if cpu.starts_with("AMD") => Self::Amd,
            () if cpu.starts_with("Intel") => Self::Intel,
            () => Self::Unknown,
        }
    }
}

/// Figures by name, with their values on Intel and AMD.
macro_rules! latencies {
    ($($name:ident: $intel:literal, $amd:literal;)*) => {
        /// Cycles from operands to result, and how long units stay busy.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[allow(missing_docs)]
        pub struct Latencies {
            $(pub $name: u16,)*
        }

        impl Latencies {
            /// The least of a vendor's cores.
            pub(super) fn of(vendor: Vendor) -> Self {
                let choose = |intel: u16, amd: u16| match vendor {
                    Vendor::Intel => intel,
                    Vendor::Amd => amd,
                    Vendor::Unknown => intel.min(amd),
                };
                Self { $($name: choose($intel, $amd),)* }
            }

            fn place(&mut self, name: &str) -> Option<&mut u16> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }
    };
}

latencies! {
    alu: 1, 1;
    add_immediate: 1, 1;
    two_flags: 2, 1;
    exchange: 1, 0;
    compare_exchange: 5, 3;
    shift: 1, 1;
    shift_double: 3, 2;
    rotate_carry: 2, 1;
    lea_slow: 1, 1;
    lea_scaled: 1, 1;
    imul: 3, 3;
    mul_high: 4, 3;
    bits: 3, 1;
    lowest: 1, 1;
    bit_field: 2, 1;
    deposit: 3, 3;
    crc: 3, 3;
    div32: 9, 9;
    div64: 9, 9;
    div_every: 4, 4;
    fp_add: 2, 2;
    fp_compare: 3, 1;
    fp_mul: 3, 3;
    fma: 4, 4;
    fp_div: 13, 13;
    fp_div_every: 4, 4;
    fp_div_single: 11, 10;
    sqrt: 18, 18;
    sqrt_every: 6, 6;
    sqrt_single: 12, 14;
    convert: 4, 3;
    convert_width: 5, 3;
    convert_from_int: 5, 4;
    convert_to_int: 5, 4;
    round: 8, 3;
    reciprocal: 4, 4;
    horizontal: 5, 4;
    dot: 12, 11;
    dot_double: 8, 7;
    vec_alu: 1, 1;
    vec_mul: 5, 3;
    vec_mul_wide: 10, 3;
    vec_sums: 3, 3;
    vec_compare64: 3, 1;
    vec_horizontal: 2, 2;
    vec_string: 9, 5;
    vec_flags: 2, 2;
    vec_test: 3, 2;
    mask_compare: 3, 2;
    mask_shift: 4, 1;
    vec_shuffle: 1, 1;
    pack: 1, 1;
    blend_by: 2, 1;
    cross: 3, 2;
    halves: 3, 1;
    transfer: 1, 1;
    lane: 3, 2;
    load: 4, 4;
    vec_load: 6, 6;
    forward: 4, 4;
    x87: 1, 1;
    gather: 8, 8;
    aes: 3, 4;
    aes_key: 6, 4;
    carry_less: 3, 4;
    sha_rounds: 4, 4;
    crypto: 1, 1;
    lock: 18, 18;
    load_fence: 4, 4;
    fence: 20, 7;
    store_fence: 3, 3;
    pause: 4, 3;
    rep: 3, 3;
    serialising: 4, 4;
    cpuid: 60, 40;
    read_clock: 15, 15;
    pop_flags: 10, 8;
    system_call: 4, 4;
    other: 0, 0;
}

impl Default for Latencies {
    fn default() -> Self {
        Self::of(Vendor::Unknown)
    }
}

/// Measured figures are whole but for what disturbs measuring, which only adds: what is so little above a whole number is that.
const DISTURBED: f64 = 0.7;

/// The most that a measured figure can be at best, in whole cycles: 12.98 of several loops are 13, and 0.51 is not 1.
pub(super) fn whole(measured: Option<f64>) -> Option<u16> {
    let m = measured.filter(|m| m.is_finite() && (0.0..60_000.0).contains(m))?;
    Some((m + 1.0 - DISTURBED).floor() as u16)
}

impl Latencies {
    /// With what was measured by name; other names are those of another version.
    pub(super) fn measured(&mut self, figures: &BTreeMap<String, f64>) {
        for (name, value) in figures {
            if let (Some(place), Some(cycles)) = (self.place(name), whole(Some(*value))) {
                *place = cycles;
            }
        }
    }

    /// Of one instruction, behind its load if it has one.
    pub(super) fn of_work(&self, insn: &Effects) -> u16 {
        match insn.class {
            OpClass::Nop | OpClass::Move | OpClass::ZeroIdiom | OpClass::Load | OpClass::Store => 0,
            OpClass::Div if insn.bits < 64 => self.div32,
            OpClass::Branch | OpClass::Loop | OpClass::IndirectBranch | OpClass::Call | OpClass::Return => 1,
            class => self.by_class(class),
        }
    }

    fn by_class(&self, class: OpClass) -> u16 {
        match class {
            OpClass::AluImmediate => self.add_immediate,
            OpClass::TwoFlags => self.two_flags,
            OpClass::Exchange => self.exchange,
            OpClass::CompareExchange => self.compare_exchange,
            OpClass::Shift => self.shift,
            OpClass::ShiftDouble => self.shift_double,
            OpClass::RotateCarry => self.rotate_carry,
            OpClass::LeaSlow => self.lea_slow,
            OpClass::LeaScaled => self.lea_scaled,
            OpClass::Imul => self.imul,
            OpClass::Bits => self.bits,
            OpClass::Lowest => self.lowest,
            OpClass::BitField => self.bit_field,
            OpClass::Deposit => self.deposit,
            OpClass::Crc => self.crc,
            OpClass::Div => self.div64,
            OpClass::FpAdd => self.fp_add,
            OpClass::FpCompare => self.fp_compare,
            OpClass::Convert => self.convert,
            OpClass::ConvertWidth => self.convert_width,
            OpClass::ConvertFromInt => self.convert_from_int,
            OpClass::ConvertToInt => self.convert_to_int,
            OpClass::Round => self.round,
            OpClass::Reciprocal => self.reciprocal,
            OpClass::Horizontal => self.horizontal,
            OpClass::Dot => self.dot,
            OpClass::DotDouble => self.dot_double,
            OpClass::FpMul => self.fp_mul,
            OpClass::Fma => self.fma,
            OpClass::FpDiv => self.fp_div,
            OpClass::FpDivSingle => self.fp_div_single,
            OpClass::Sqrt => self.sqrt,
            OpClass::SqrtSingle => self.sqrt_single,
            _ => self.by_other_class(class),
        }
    }

    fn by_other_class(&self, class: OpClass) -> u16 {
        match class {
            OpClass::VecAlu => self.vec_alu,
            OpClass::VecMul => self.vec_mul,
            OpClass::VecMulWide => self.vec_mul_wide,
            OpClass::VecSums => self.vec_sums,
            OpClass::VecCompare64 => self.vec_compare64,
            OpClass::VecHorizontal => self.vec_horizontal,
            OpClass::VecString => self.vec_string,
            OpClass::VecFlags => self.vec_flags,
            OpClass::VecTest => self.vec_test,
            OpClass::MaskCompare => self.mask_compare,
            OpClass::MaskShift => self.mask_shift,
            OpClass::VecShuffle => self.vec_shuffle,
            OpClass::Pack => self.pack,
            OpClass::BlendBy => self.blend_by,
            OpClass::Cross => self.cross,
            OpClass::Halves => self.halves,
            OpClass::Transfer => self.transfer,
            OpClass::Lane => self.lane,
            OpClass::Lock => self.lock,
            OpClass::Fence => self.fence,
            OpClass::LoadFence => self.load_fence,
            OpClass::StoreFence => self.store_fence,
            OpClass::Pause => self.pause,
            OpClass::SystemCall => self.system_call,
            OpClass::Serialising => self.serialising,
            OpClass::Cpuid => self.cpuid,
            OpClass::ReadClock => self.read_clock,
            OpClass::PopFlags => self.pop_flags,
            OpClass::Rep => self.rep,
            OpClass::X87 => self.x87,
            OpClass::Gather => self.gather,
            OpClass::Aes => self.aes,
            OpClass::AesKey => self.aes_key,
            OpClass::CarryLess => self.carry_less,
            OpClass::ShaRounds => self.sha_rounds,
            OpClass::Crypto => self.crypto,
            OpClass::Other => self.other,
            _ => self.alu,
        }
    }
}
