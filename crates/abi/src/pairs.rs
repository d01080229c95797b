//! Two moments of one thread, as the kernel side's second event finds them. Mirrors `struct wh_pair`. Constraint: register
//! values are the target's secrets; nothing here prints or keeps them.

use crate::Words;
use crate::regs::GPRS;

/// [`Pair::kind`] of such a record.
pub const KIND_PAIR: u32 = 5;

/// `struct wh_pair`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Pair {
    /// [`KIND_PAIR`].
    pub kind: u32,
    /// Thread-group id.
    pub tgid: u32,
    /// When the second moment was, `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// From when the first one's handler was left, ns.
    pub length_ns: u64,
    /// What that handler had taken, ns.
    pub handler_ns: u64,
    /// Program counters; the second one is 0 in the kernel.
    pub pc: [u64; 2],
    /// General registers of the first, numbered as instructions number them.
    pub first: [u64; GPRS],
    /// Of the second.
    pub second: [u64; GPRS],
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("tgid", &self.tgid).field("time", &self.time).finish_non_exhaustive()
    }
}

impl Pair {
    /// Bytes of a record.
    pub const SIZE: usize = 304;

    /// Reads a record; `None` when it is short or of another kind.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes.get(..Self::SIZE)?);
        if w.u32(0)? != KIND_PAIR {
            return None;
        }
        let mut pair = Self {
            kind: KIND_PAIR,
            tgid: w.u32(4)?,
            time: w.u64(8)?,
            length_ns: w.u64(16)?,
            handler_ns: w.u64(24)?,
            pc: [w.u64(32)?, w.u64(40)?],
            ..Self::default()
        };
        for (i, to) in pair.first.iter_mut().chain(&mut pair.second).enumerate() {
            *to = w.u64(48 + 8 * i)?;
        }
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::run_c;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layout_is_the_header_s() {
        let row = format!(
            "{} {} {} {} {} {} {} {KIND_PAIR}\n",
            size_of::<Pair>(),
            offset_of!(Pair, time),
            offset_of!(Pair, length_ns),
            offset_of!(Pair, handler_ns),
            offset_of!(Pair, pc),
            offset_of!(Pair, first),
            offset_of!(Pair, second),
        );
        let program = r#"
            #include <stdio.h>
            #include <stddef.h>
            #include "whither_abi.h"
            #define O(f) offsetof(struct wh_pair, f)
            int main(void) {
                printf("%zu %zu %zu %zu %zu %zu %zu %d\n", sizeof(struct wh_pair), O(time), O(length_ns), O(handler_ns), O(pc),
                       O(first), O(second), WH_PAIR);
            }"#;
        assert_eq!(run_c("pair", program), row);
        assert_eq!(Pair::SIZE, size_of::<Pair>());
    }

    #[test]
    fn records_read_back_or_are_refused() {
        let mut bytes = vec![0_u8; Pair::SIZE];
        (bytes[0], bytes[4], bytes[32], bytes[40], bytes[48], bytes[176]) = (5, 77, 1, 2, 113, 114);
        let pair = Pair::read(&bytes).expect("well formed");
        assert_eq!((pair.tgid, pair.pc, pair.first[0], pair.second[0]), (77, [1, 2], 113, 114));
        assert!((0..bytes.len()).all(|n| Pair::read(&bytes[..n]).is_none()));
        bytes[0] = 3;
        assert!(Pair::read(&bytes).is_none(), "registers");
        assert!(!format!("{pair:?}").contains("11"), "registers are secrets: {pair:?}");
    }
}
