//! Values of which some bits are known, and the status flags as such a value. Everything here is exact: a bit
//! called known has the value the processor would compute; what is not worth following is unknown instead.

/// 64 bits; those outside `known` are 0 in `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    bits: u64,
    known: u64,
}

impl Value {
    pub(super) const UNKNOWN: Self = Self { bits: 0, known: 0 };

    pub(super) fn exact(bits: u64) -> Self {
        Self { bits, known: u64::MAX }
    }

    pub(super) fn of(bits: u64, known: u64) -> Self {
        Self { bits: bits & known, known }
    }

    /// The low `size` bytes, when all of their bits are known.
    pub(super) fn get(self, size: u8) -> Option<u64> {
        let mask = mask(size);
        (self.known & mask == mask).then_some(self.bits & mask)
    }

    /// Whether a bit is set, when it is known.
    pub(super) fn bit(self, n: u32) -> Option<bool> {
        (self.known >> n & 1 == 1).then_some(self.bits >> n & 1 == 1)
    }

    /// Bits known to be set.
    pub(super) fn ones(self) -> u64 {
        self.bits
    }

    /// The low `size` bytes, zero-extended.
    pub(super) fn low(self, size: u8) -> Self {
        Self { bits: self.bits & mask(size), known: self.known | !mask(size) }
    }

    /// The low `size` bytes, sign-extended.
    pub(super) fn sign_extended(self, size: u8) -> Self {
        let (low, high) = (mask(size), !mask(size));
        match self.bit(top(size)) {
            Some(true) => Self { bits: self.bits & low | high, known: self.known | high },
            Some(false) => self.low(size),
            None => Self { bits: self.bits & low, known: self.known & low },
        }
    }

    /// These bits where `mask` is 0, the other's where it is 1.
    pub(super) fn replaced(self, other: Self, mask: u64) -> Self {
        Self { bits: self.bits & !mask | other.bits & mask, known: self.known & !mask | other.known & mask }
    }

    /// What both agree on.
    pub(super) fn common(self, other: Self) -> Self {
        let known = self.known & other.known & !(self.bits ^ other.bits);
        Self::of(self.bits, known)
    }

    pub(super) fn shifted_left(self, by: u32) -> Self {
        match 1_u64.checked_shl(by) {
            Some(unit) => Self { bits: self.bits << by, known: self.known << by | (unit - 1) },
            None => Self::exact(0),
        }
    }

    pub(super) fn shifted_right(self, by: u32) -> Self {
        if by == 0 {
            return self;
        }
        match (self.bits.checked_shr(by), self.known.checked_shr(by)) {
            (Some(bits), Some(known)) => Self { bits, known: known | !(u64::MAX >> by) },
            _ => Self::exact(0),
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        let zeros = (self.known & !self.bits) | (other.known & !other.bits);
        let bits = self.bits & other.bits;
        Self { bits, known: bits | zeros }
    }

    pub(super) fn or(self, other: Self) -> Self {
        let bits = self.bits | other.bits;
        Self { bits, known: bits | (self.known & other.known) }
    }

    pub(super) fn xor(self, other: Self) -> Self {
        Self::of(self.bits ^ other.bits, self.known & other.known)
    }

    pub(super) fn inverted(self) -> Self {
        Self::of(!self.bits, self.known)
    }
}

/// Bits of an operand of `size` bytes.
pub(super) fn mask(size: u8) -> u64 {
    match size {
        1 => 0xff,
        2 => 0xffff,
        4 => 0xffff_ffff,
        _ => u64::MAX,
    }
}

/// Number of the highest bit of an operand of `size` bytes.
pub(super) fn top(size: u8) -> u32 {
    u32::from(size.clamp(1, 8)) * 8 - 1
}

pub(super) const CF: u64 = 1;
pub(super) const PF: u64 = 1 << 2;
pub(super) const AF: u64 = 1 << 4;
pub(super) const ZF: u64 = 1 << 6;
pub(super) const SF: u64 = 1 << 7;
pub(super) const OF: u64 = 1 << 11;
/// What arithmetic writes.
pub(super) const STATUS: u64 = CF | PF | AF | ZF | SF | OF;

/// Flags being set by one instruction: first nothing is known of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    bits: u64,
    known: u64,
}

impl Flags {
    pub(super) fn set(&mut self, flag: u64, value: bool) {
        self.known |= flag;
        self.bits = if value { self.bits | flag } else { self.bits & !flag };
    }

    pub(super) fn forget(&mut self, flag: u64) {
        self.known &= !flag;
        self.bits &= !flag;
    }

    pub(super) fn set_if_known(&mut self, flag: u64, value: Option<bool>) {
        if let Some(value) = value {
            self.set(flag, value);
        }
    }

    /// Zero, sign and parity of a result of `size` bytes, as far as its known bits tell.
    pub(super) fn result(&mut self, value: Value, size: u8) {
        let low = value.low(size);
        let zero = if low.ones() != 0 { Some(false) } else { low.get(8).map(|_| true) };
        self.set_if_known(ZF, zero);
        self.set_if_known(SF, low.bit(top(size)));
        self.set_if_known(PF, low.get(1).map(|b| b.count_ones().is_multiple_of(2)));
    }

    pub(super) fn value(self) -> Value {
        Value::of(self.bits, self.known)
    }
}

/// Whether a condition holds; conditions are numbered as in machine code (`jo` is 0, `jg` 15).
pub(super) fn holds(condition: u8, flags: Value) -> Option<bool> {
    let flag = |f: u64| flags.bit(f.trailing_zeros());
    let differ = || Some(flag(SF)? != flag(OF)?);
    let plain = match condition >> 1 {
        0 => flag(OF),
        1 => flag(CF),
        2 => flag(ZF),
        3 => either(flag(CF), flag(ZF)),
        4 => flag(SF),
        5 => flag(PF),
        6 => differ(),
        _ => either(flag(ZF), differ()),
    };
    plain.map(|p| p != (condition & 1 == 1))
}

fn either(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A value that knows some bits of `full`.
    fn partly(full: u64, known: u64) -> Value {
        Value::of(full, known)
    }

    fn agrees(value: Value, full: u64) -> bool {
        value.bits == full & value.known
    }

    proptest! {
        #[test]
        fn what_is_known_is_true(a: u64, b: u64, ka: u64, kb: u64, by in 0_u32..70, size in prop::sample::select(vec![1_u8, 2, 4, 8])) {
            let (x, y) = (partly(a, ka), partly(b, kb));
            prop_assert!(agrees(x.and(y), a & b));
            prop_assert!(agrees(x.or(y), a | b));
            prop_assert!(agrees(x.xor(y), a ^ b));
            prop_assert!(agrees(x.inverted(), !a));
            prop_assert!(agrees(x.low(size), a & mask(size)));
            prop_assert!(agrees(x.shifted_left(by), a.checked_shl(by).unwrap_or(0)));
            prop_assert!(agrees(x.shifted_right(by), a.checked_shr(by).unwrap_or(0)));
            let shift = 63 - top(size);
            prop_assert!(agrees(x.sign_extended(size), ((a << shift) as i64 >> shift) as u64));
            prop_assert!(agrees(x.common(y), a) && agrees(x.common(y), b));
            prop_assert!(agrees(x.replaced(y, 0xff00), a & !0xff00 | b & 0xff00));
        }

        #[test]
        fn conditions_agree_with_the_rules_of_the_manual(bits: u64, known: u64, condition in 0_u8..16) {
            let f = |flag: u64| bits & flag != 0;
            let rule = match condition >> 1 {
                0 => f(OF),
                1 => f(CF),
                2 => f(ZF),
                3 => f(CF) || f(ZF),
                4 => f(SF),
                5 => f(PF),
                6 => f(SF) != f(OF),
                _ => f(ZF) || f(SF) != f(OF),
            };
            let truth = rule != (condition & 1 == 1);
            prop_assert_eq!(holds(condition, Value::exact(bits)), Some(truth));
            prop_assert!(holds(condition, partly(bits, known)).is_none_or(|h| h == truth));
        }
    }
}
