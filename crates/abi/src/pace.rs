//! Words of the causal profiler's back end without BPF, mirrored from `include/whither_pace.h`: what the agent's ticks
//! keep in its segment and the `probe` crate reads and writes. A test compares every size and offset with the C
//! compiler's. Times are nanoseconds of the TSC, by the factor in the segment's header.

use crate::agent::AT_PACE;
use crate::causal::{FRAMES, POINTS, Rest, Visits};

/// `WH_PACE_SLOTS`.
pub const SLOTS: usize = 4096;
/// `WH_PACE_MARKS`.
pub const MARKS: usize = 8192;
/// `WH_PACE_SCOPES`.
pub const SCOPES: usize = 16384;
/// `WH_PACE_RECORDS`.
pub const RECORDS: usize = 8192;
/// `WH_PACE_DONE`.
pub const DONE: u64 = 0;
/// `WH_PACE_TAKEN`: the program has a handler for the signal.
pub const TAKEN: u64 = 1;

/// `WH_AT_PACE_MARKS`: rows of three words, first address, first address behind it, bits.
pub const AT_MARKS: u64 = AT_PACE + 4096;
/// `WH_AT_PACE_SCOPES`: the same, the third word telling whether it is in scope.
pub const AT_SCOPES: u64 = AT_MARKS + MARKS as u64 * 24;
/// `WH_AT_PACE_RECORDS`.
pub const AT_RECORDS: u64 = AT_SCOPES + SCOPES as u64 * 24;
/// `WH_AT_PACE_SLOTS`.
pub const AT_SLOTS: u64 = AT_RECORDS + RECORDS as u64 * 168 + 1024 * 64 + 16384 * 8 + SLOTS as u64 * 8;

/// What the controller says, and what all threads share; `struct wh_pace_ctl`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Ctl {
    pub state: u64,
    pub beat: u64,
    pub silence: u64,
    pub epoch: u64,
    pub begin: u64,
    pub percent: u64,
    pub unit: u64,
    pub callers: u64,
    pub sampled: u64,
    pub counted: u64,
    pub n_marks: u64,
    pub n_scopes: u64,
    pub layout: u64,
    pub signal: u64,
    pub period: u64,
    pub spare: u64,
    pub g: i64,
    pub spare2: [u64; 7],
    pub n_slots: u64,
    pub next_record: u64,
    pub births: u64,
    pub born_d: i64,
    pub born_epoch: u64,
    pub absolute_points: u64,
    pub lost: u64,
    pub spare3: u64,
}

/// A thread, `struct wh_pace_slot`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    pub tid: u32,
    pub sampled: u32,
    pub d: i64,
    pub since: u64,
    pub clock_epoch: u32,
    pub clock_state: u32,
    pub busy_sp: u64,
    pub cpu: u64,
    pub looked: u64,
    pub blocks: u64,
    pub granted_d: i64,
    pub granted_t: u64,
    pub stack_low: u64,
    pub stack_top: u64,
    pub absolute: u32,
    pub absolute_epoch: u32,
    pub samples: u64,
    pub sample_ns: u64,
    pub hit_ns: u64,
    pub hit_waits: u64,
    pub waits: u64,
    pub inserted: u64,
    pub handler: u64,
    pub granted: u64,
    pub alone: u64,
    pub absolutes: u64,
    pub handed: u64,
    pub queued: u64,
    pub max_debt: u64,
    pub owing: u64,
    pub hits: u64,
    pub wait_blocks: u64,
    pub takes_signals: u64,
    pub rest_since: u64,
    pub rest_cpu: u64,
    pub rest_wait: u64,
    pub rest: Rest,
    pub visits: [Visits; POINTS],
}

/// A sample, `struct wh_pace_record`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub seq: u64,
    pub t: u64,
    pub ns: u64,
    pub site: u64,
    pub tid: u32,
    pub n: u32,
    pub frames: [u64; FRAMES],
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_are_the_c_compilers() {
        let (mut rows, mut c) = (String::new(), String::new());
        macro_rules! row {
            ($rust:ident = $c:literal: $($field:ident $name:literal),*) => {
                rows += &format!("{}", size_of::<$rust>());
                c += concat!("printf(\"%zu\", sizeof(struct ", $c, "));");
                $(
                    rows += &format!(" {}", offset_of!($rust, $field));
                    c += concat!("printf(\" %zu\", offsetof(struct ", $c, ", ", $name, "));");
                )*
                rows += "\n";
                c += "puts(\"\");";
            };
        }
        row!(Ctl = "wh_pace_ctl": state "state", beat "beat", silence "silence", epoch "epoch", begin "begin",
            percent "percent", unit "unit", callers "callers", sampled "sampled", counted "counted", n_marks "n_marks",
            n_scopes "n_scopes", layout "layout", signal "signal", period "period", g "g", n_slots "n_slots",
            next_record "next_record", births "births", born_d "born_d", absolute_points "absolute_points", lost "lost");
        row!(Slot = "wh_pace_slot": tid "tid", sampled "sampled", d "clock.d", since "clock.since", cpu "cpu",
            clock_epoch "clock.epoch", clock_state "clock.state", busy_sp "busy_sp", looked "looked", blocks "blocks",
            granted_d "granted_d", stack_top "stack_top", absolute "absolute", samples "samples", hit_ns "hit_ns",
            hit_waits "hit_waits", inserted "inserted", handler "handler", granted "granted", alone "alone",
            absolutes "absolutes", queued "queued", max_debt "max_debt", owing "owing", rest "rest", visits "visits");
        row!(Record = "wh_pace_record": seq "seq", t "t", ns "ns", site "site", tid "tid", n "n", frames "frames");
        rows += &format!("{AT_PACE} {AT_MARKS} {AT_SCOPES} {AT_RECORDS} {AT_SLOTS} {DONE} {TAKEN}\n");
        let program = format!(
            r#"#include <stdio.h>
            #include <stddef.h>
            #include "whither_pace.h"
            int main(void) {{ {c}
                printf("%llu %llu %llu %llu %llu %d %d\n", WH_AT_PACE, WH_AT_PACE_MARKS, WH_AT_PACE_SCOPES,
                       WH_AT_PACE_RECORDS, WH_AT_PACE_SLOTS, WH_PACE_DONE, WH_PACE_TAKEN);
            }}"#
        );
        assert_eq!(crate::tests::run_c("pace", &program), rows);
    }
}
