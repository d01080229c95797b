//! Words of the uprobe back end, mirrored from `include/whither_uprobe.h`: what `bpf/calls.bpf.c` counts
//! and the `probe` crate reads. A test compares every size and offset with the C compiler's.

/// `WH_UP_FRAMES`.
pub const UP_FRAMES: usize = 64;
/// `WH_UP_RANGES`.
pub const UP_RANGES: usize = 4096;
/// `WH_UP_RULES`.
pub const UP_RULES: usize = 16384;
/// `WH_UP_ON`.
pub const UP_ON: u32 = 0x10000;
/// `WH_UP_VALUE_SHIFT`.
pub const UP_VALUE_SHIFT: u32 = 20;
/// `WH_UP_VALUE_BITS`.
pub const UP_VALUE_BITS: u32 = 6;
/// `WH_UP_RET`.
pub const UP_RET: u32 = 7;

/// The cookie of a breakpoint: its point, and from bit 32 the turn that it was set in.
#[must_use]
pub const fn cookie(point: u32, turn: u32) -> u64 {
    point as u64 | (turn as u64) << 32
}

/// Key of a path's counters, `struct wh_up_path_key`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathKey {
    /// Hash of its frames, 0 = path not kept.
    pub path: u64,
    /// Index of the point.
    pub point: u32,
    /// Process.
    pub tgid: u32,
}

/// Counters, `struct wh_up_counts`. Times in ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Entries.
    pub calls: u64,
    /// Calls that returned.
    pub done: u64,
    /// Wall time of those.
    pub wall: u64,
    /// Wall time minus time off the CPU.
    pub cpu: u64,
    /// Shortest, 0 = none yet.
    pub min: u64,
    /// Longest.
    pub max: u64,
    /// Sums of two integers.
    pub value: [u64; 2],
    /// By log2 of ns.
    pub hist: [u64; 64],
}

/// Frames of a path, innermost first, `struct wh_up_frames`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Frames in use.
    pub n: u32,
    /// [`crate::agent::ROOT_END`] or [`crate::agent::ROOT_TRUNCATED`].
    pub flags: u32,
    /// Return addresses.
    pub ra: [u64; UP_FRAMES],
}

/// Key of a call in progress, `struct wh_up_call_key`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// Address of its return slot.
    pub slot: u64,
    /// Process.
    pub tgid: u32,
    /// Padding.
    pub spare: u32,
}

/// A call in progress, `struct wh_up_call`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// `CLOCK_MONOTONIC` ns at entry.
    pub t0: u64,
    /// Off-CPU ns of its thread at entry.
    pub off0: u64,
    /// Hash of its path.
    pub path: u64,
    /// Index of the point.
    pub point: u32,
    /// Thread.
    pub tid: u32,
}

/// What a thread met last, `struct wh_up_met`: of entries, of exits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Address of the breakpoint.
    pub ip: [u64; 2],
    /// The newest turn there.
    pub turn: [u32; 2],
}

/// Little-endian words of a map's value.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }
    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

impl PathKey {
    /// Reads a key; `None` when it is short.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        Some(Self { path: w.u64(0)?, point: w.u32(8)?, tgid: w.u32(12)? })
    }
}

impl Counts {
    /// Reads counters; `None` when they are short.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        let mut hist = [0; 64];
        for (i, h) in hist.iter_mut().enumerate() {
            *h = w.u64(64 + 8 * i)?;
        }
        Some(Self {
            calls: w.u64(0)?,
            done: w.u64(8)?,
            wall: w.u64(16)?,
            cpu: w.u64(24)?,
            min: w.u64(32)?,
            max: w.u64(40)?,
            value: [w.u64(48)?, w.u64(56)?],
            hist,
        })
    }
}

impl Frames {
    /// Reads frames; `None` when they are short or claim more than fit.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        let (n, flags) = (w.u32(0)?, w.u32(4)?);
        let mut ra = [0; UP_FRAMES];
        for (i, r) in ra.iter_mut().enumerate() {
            *r = w.u64(8 + 8 * i)?;
        }
        (n as usize <= UP_FRAMES).then_some(Self { n, flags, ra })
    }
}

impl CallKey {
    /// Reads a key; `None` when it is short.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        Some(Self { slot: w.u64(0)?, tgid: w.u32(8)?, spare: w.u32(12)? })
    }
}

impl Call {
    /// Reads a call; `None` when it is short.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        Some(Self { t0: w.u64(0)?, off0: w.u64(8)?, path: w.u64(16)?, point: w.u32(24)?, tid: w.u32(28)? })
    }
}

impl Met {
    /// Reads what a thread met; `None` when it is short.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        Some(Self { ip: [w.u64(0)?, w.u64(8)?], turn: [w.u32(16)?, w.u32(20)?] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_are_the_c_compilers() {
        let mut rows = String::new();
        macro_rules! row {
            ($c:literal, $rust:ident: $($field:ident),*) => {
                rows += &format!("{} {}", $c, size_of::<$rust>());
                $( rows += &format!(" {}", offset_of!($rust, $field)); )*
                rows += "\n";
            };
        }
        row!("wh_up_path_key", PathKey: path, point, tgid);
        row!("wh_up_counts", Counts: calls, done, wall, cpu, min, max, value, hist);
        row!("wh_up_frames", Frames: n, flags, ra);
        row!("wh_up_call_key", CallKey: slot, tgid);
        row!("wh_up_call", Call: t0, off0, path, point, tid);
        row!("wh_up_met", Met: ip, turn);
        rows += &format!("{UP_FRAMES} {UP_RANGES} {UP_RULES} {UP_ON} {UP_VALUE_SHIFT} {UP_VALUE_BITS} {UP_RET}\n");
        let program = r#"
            #include <stdio.h>
            #include <stddef.h>
            #include "whither_uprobe.h"
            #define O(s, f) printf(" %zu", offsetof(struct s, f));
            #define S(s) printf(#s " %zu", sizeof(struct s));
            int main(void) {
                S(wh_up_path_key) O(wh_up_path_key, path) O(wh_up_path_key, point) O(wh_up_path_key, tgid) puts("");
                S(wh_up_counts) O(wh_up_counts, calls) O(wh_up_counts, done) O(wh_up_counts, wall)
                O(wh_up_counts, cpu) O(wh_up_counts, min) O(wh_up_counts, max) O(wh_up_counts, value)
                O(wh_up_counts, hist) puts("");
                S(wh_up_frames) O(wh_up_frames, n) O(wh_up_frames, flags) O(wh_up_frames, ra) puts("");
                S(wh_up_call_key) O(wh_up_call_key, slot) O(wh_up_call_key, tgid) puts("");
                S(wh_up_call) O(wh_up_call, t0) O(wh_up_call, off0) O(wh_up_call, path) O(wh_up_call, point)
                O(wh_up_call, tid) puts("");
                S(wh_up_met) O(wh_up_met, ip) O(wh_up_met, turn) puts("");
                printf("%u %u %u %u %u %u %u\n", WH_UP_FRAMES, WH_UP_RANGES, WH_UP_RULES, WH_UP_ON, WH_UP_VALUE_SHIFT,
                    WH_UP_VALUE_BITS, WH_UP_RET);
            }"#;
        assert_eq!(crate::tests::run_c("uprobe", program), rows);
    }
}
