//! Words of the causal profiler's kernel side, mirrored from `include/whither_causal.h`: what
//! `bpf/causal.bpf.c` keeps and the `sample` crate reads and writes. A test compares every size and offset
//! with the C compiler's. Times are nanoseconds of `CLOCK_MONOTONIC`.

/// `WH_CZ_FRAMES`: most frames of a record.
pub const FRAMES: usize = 16;
/// `WH_CZ_POINTS`.
pub const POINTS: usize = 32;
/// `WH_CZ_LAYOUTS`.
pub const LAYOUTS: usize = 1024;
/// `WH_CZ_MODULES`.
pub const MODULES: usize = 16384;
/// `WH_CZ_MARKS`.
pub const MARKS: usize = 8192;
/// `WH_CZ_RULES`.
pub const RULES: usize = 16384;
/// `WH_CZ_CALLERS`.
pub const CALLERS: usize = 4;
/// `WH_CZ_SYSCALLS`.
pub const SYSCALLS: u32 = 512;

/// [`Ctl::state`]: nobody is credited, nobody pays.
pub const STATE_OFF: u64 = 0;
/// [`Ctl::state`]: a window is open.
pub const STATE_ON: u64 = 1;
/// [`Ctl::state`]: debts are paid, nothing is credited.
pub const STATE_DRAIN: u64 = 2;
/// Without a heartbeat for so long the kernel side does nothing, `WH_CZ_SILENCE_NS`.
pub const SILENCE_NS: u64 = 100_000_000;

/// [`Ctl::unit`].
pub const UNIT_NOTHING: u64 = 0;
/// [`Ctl::unit`]: the first frame in scope decides.
pub const UNIT_FIRST: u64 = 1;
/// [`Ctl::unit`]: any frame decides.
pub const UNIT_INCLUSIVE: u64 = 2;
/// [`Ctl::unit`]: waits.
pub const UNIT_OFF_CPU: u64 = 3;

/// [`Mark::bits`]: the target.
pub const MARK_TARGET: u64 = 1;
/// [`Mark::bits`]: its callers, shifted by their level.
pub const MARK_CALLER: u64 = 2;
/// [`Mark::bits`]: place of a wait.
pub const MARK_SITE: u64 = 32;
/// [`Mark::bits`]: points counted by ticks, shifted by their index.
pub const MARK_POINT: u64 = 256;

/// [`Thread::state`]: `WH_CLOCK_BLOCKED`.
pub const CLOCK_BLOCKED: u32 = 2;

/// [`Record::kind`]: a tick.
pub const RECORD_RUN: u32 = 1;
/// [`Record::kind`]: a wait that has ended.
pub const RECORD_BLOCKED: u32 = 2;
/// [`Record::kind`]: a new process.
pub const RECORD_FORKED: u32 = 3;
/// [`Record::kind`]: a process runs another program.
pub const RECORD_EXECED: u32 = 4;

/// What user space says, `struct wh_cz_ctl`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Ctl {
    pub state: u64,
    pub beat: u64,
    pub epoch: u64,
    pub begin: u64,
    pub percent: u64,
    pub cap: u64,
    pub record_every: u64,
    pub credit_every: u64,
    pub unit: u64,
    pub callers: u64,
    pub classes: u64,
    pub any_site: u64,
    pub sampled: u64,
    pub kernel_time: u64,
    pub follow: u64,
    pub margin: u64,
    pub g: i64,
    pub stopped: u64,
    pub absolute_points: u64,
    pub counted: u64,
    pub nap_signal: u64,
    pub sees_sockets: u64,
    pub spare2: [u64; 2],
}

/// One CPU, `struct wh_cz_cpu`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuState {
    pub tick: u64,
    pub worth: u64,
    pub in_timer: u32,
    pub in_device: u32,
    pub in_softirq: u32,
    pub out_tid: u32,
    pub out_d: i64,
    pub out_t: u64,
    pub out_epoch: u64,
    pub idle_since: u64,
    pub idle: u64,
    pub ticks: u64,
    pub credit: u64,
    pub record: u64,
    pub waits: u64,
    pub blocks: u64,
    pub blocks_at: u64,
    pub shift: u64,
    pub draw: u64,
    pub owing: u64,
    pub samples: u64,
    pub sample_ns: u64,
    pub hit_ns: u64,
    pub threads: u64,
    pub max_debt: u64,
    pub lost: u64,
    pub own_wait: u64,
    pub foreign_wait: u64,
    pub inserted: u64,
    pub handler: u64,
    pub absolute: u64,
    pub woken_in: u64,
    pub woken_out: u64,
    pub handed: u64,
    pub hit_waits: u64,
    pub slept: u64,
    pub unknown_ns: u64,
    pub others_ns: u64,
    pub others_at: u64,
    pub hasty: u64,
    pub arrival: u64,
    pub arrival_of_many: u64,
    pub asked: u64,
    pub asked_by_world: u64,
    pub asked_unknown: u64,
    pub unknown_debt: u64,
}

/// Visits of a point on a CPU in the counted part of the open window, `struct wh_cz_visits`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Visits {
    pub count: u64,
    pub first_t: u64,
    pub first_v: i64,
    pub last_t: u64,
    pub last_v: i64,
    pub sum_v: i64,
    pub ever: u64,
    pub counted: u64,
}

/// A watched thread, `struct wh_cz_thread`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Thread {
    pub d: i64,
    pub since: u64,
    pub epoch: u32,
    pub state: u32,
    pub tgid: u32,
    pub sampled: u32,
    pub start: u64,
    pub class: u32,
    pub absolute: u32,
    pub absolute_epoch: u32,
    pub looked: u32,
    pub early_d: i64,
    pub early_t: u64,
    pub site: u64,
    pub marks: u32,
    pub marks_epoch: u32,
    pub from: u64,
    pub spun: u64,
    pub run: u64,
    pub run_epoch: u32,
    pub n: u32,
    pub nap: u32,
    pub nap_epoch: u32,
    pub nap_from: u64,
    pub waits: u32,
    pub fresh: u32,
    pub deadline_at: u64,
    pub deadline_step: u64,
    pub deadline_left: i64,
    pub deadline_woke: u64,
    pub deadline_woke_d: i64,
    pub deadline_awake: i64,
    pub deadline_whole: i64,
    pub deadline_woke_epoch: u32,
    pub deadline_votes: u32,
    pub deadline_kept: u32,
    pub deadline_on_beat: u32,
    pub deadline_world: u32,
    pub deadline_always: u32,
    pub rest: Rest,
    pub wait: u32,
    pub handed: u32,
    pub told_d: i64,
    pub told_epoch: u64,
    pub frames: [u64; FRAMES],
}

impl Thread {
    /// The bytes of a slot of which only the process is known. The thread counts as blocked until it is seen
    /// running.
    #[must_use]
    pub fn fresh(tgid: u32, now: u64) -> [u8; size_of::<Self>()] {
        use std::mem::offset_of;
        let mut bytes = [0; size_of::<Self>()];
        let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
        put(offset_of!(Self, tgid), &tgid.to_le_bytes());
        put(offset_of!(Self, since), &now.to_le_bytes());
        put(offset_of!(Self, state), &CLOCK_BLOCKED.to_le_bytes());
        bytes
    }
}

/// Rounds that a timer ends, `struct wh_rest`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    pub woke: u64,
    pub from: i64,
    pub awake: i64,
    pub length: i64,
    pub whole: i64,
    pub together: i64,
    pub awakes: i64,
    pub lengths: i64,
    pub asked: i64,
    pub epoch: u32,
    pub pairs: u32,
    pub wait: u32,
    pub mixed: u32,
    pub always: u32,
    pub keeps: u32,
}

/// A watched process, `struct wh_cz_process`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub layout: u32,
    pub spare: u32,
    pub napper: u64,
    pub rest: Rest,
}

impl Process {
    /// Bytes of the table; its rounds are learnt anew.
    #[must_use]
    pub fn bytes(&self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        bytes[..4].copy_from_slice(&self.layout.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.napper.to_le_bytes());
        bytes
    }

    /// From bytes of the table; `None` when they are too few.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let layout = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let napper = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        Some(Self { layout, napper, ..Self::default() })
    }
}

/// Code of processes with equal mappings, `struct wh_cz_layout`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    pub first_module: u32,
    pub n_modules: u32,
    pub first_mark: u32,
    pub n_marks: u32,
}

/// Mapped code, `struct wh_cz_module`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Module {
    pub start: u64,
    pub end: u64,
    pub base: u64,
    pub first_row: u32,
    pub n_rows: u32,
    pub in_scope: u64,
}

impl Module {
    /// As words of the table.
    #[must_use]
    pub fn words(&self) -> [u64; 5] {
        let rows = u64::from(self.first_row) | u64::from(self.n_rows) << 32;
        [self.start, self.end, self.base, rows, self.in_scope]
    }
}

/// What lies in a range of code, `struct wh_cz_mark`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub start: u64,
    pub end: u64,
    pub bits: u64,
}

/// What the ring carries, `struct wh_cz_record`.
#[allow(missing_docs, reason = "told in the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub kind: u32,
    pub kernel: u32,
    pub tgid: u32,
    pub tid: u32,
    pub t: u64,
    pub ns: u64,
    pub site: u64,
    pub waker_site: u64,
    pub waker: u32,
    pub times: u32,
    pub n: u32,
    pub spare: u32,
    pub frames: [u64; FRAMES],
}

impl Record {
    /// Reads a record; `None` when it is short or claims more frames than fit.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let mut frames = [0; FRAMES];
        for (i, frame) in frames.iter_mut().enumerate() {
            *frame = u64_at(64 + 8 * i)?;
        }
        let n = u32_at(56)?;
        (n as usize <= FRAMES).then_some(Self {
            kind: u32_at(0)?,
            kernel: u32_at(4)?,
            tgid: u32_at(8)?,
            tid: u32_at(12)?,
            t: u64_at(16)?,
            ns: u64_at(24)?,
            site: u64_at(32)?,
            waker_site: u64_at(40)?,
            waker: u32_at(48)?,
            times: u32_at(52)?,
            n,
            spare: 0,
            frames,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Both sides' sizes and offsets from one list of fields.
    macro_rules! layouts {
        ($rows:ident, $c:ident; $($rust:ident = $name:literal: $($field:ident $(as $other:literal)?),*;)*) => {
            $(
                $rows += &format!("{} {}", $name, size_of::<$rust>());
                $c += &format!("printf(\"{} %zu\", sizeof(struct {}));", $name, $name);
                $(
                    $rows += &format!(" {}", offset_of!($rust, $field));
                    #[allow(unused_mut, unused_assignments)]
                    let mut field = stringify!($field);
                    $( field = $other; )?
                    $c += &format!("printf(\" %zu\", offsetof(struct {}, {field}));", $name);
                )*
                $rows += "\n";
                $c += "puts(\"\");";
            )*
        };
    }

    #[test]
    fn layouts_are_the_c_compilers() {
        let (mut rows, mut c) = (String::new(), String::new());
        layouts!(rows, c;
            Ctl = "wh_cz_ctl": state, beat, epoch, begin, percent, cap, record_every, credit_every, unit, callers,
                classes, any_site, sampled, kernel_time, follow, margin, g, stopped, absolute_points,
                counted, nap_signal, sees_sockets, spare2;
            CpuState = "wh_cz_cpu": tick, worth, in_timer, in_device, in_softirq, out_tid, out_d, out_t, out_epoch,
                idle_since, idle, ticks, credit, record, waits, blocks, blocks_at, shift, draw, owing, samples, sample_ns,
                hit_ns, threads, max_debt, lost, own_wait, foreign_wait, inserted, handler, absolute, woken_in,
                woken_out, handed, hit_waits, slept, unknown_ns, others_ns, others_at, hasty,
                arrival, arrival_of_many, asked, asked_by_world, asked_unknown, unknown_debt;
            Visits = "wh_cz_visits": count, first_t, first_v, last_t, last_v, sum_v, ever, counted;
            Thread = "wh_cz_thread": d as "clock.d", since as "clock.since", epoch as "clock.epoch",
                state as "clock.state", tgid, sampled, start, class as "class_", absolute, absolute_epoch, looked,
                early_d, early_t, site, marks, marks_epoch, from, spun, run, run_epoch, n, nap,
                nap_epoch, nap_from, waits, fresh, deadline_at as "deadline.at", deadline_step as "deadline.step",
                deadline_left as "deadline.left", deadline_woke as "deadline.woke", deadline_woke_d as "deadline.woke_d",
                deadline_awake as "deadline.awake", deadline_whole as "deadline.whole", deadline_woke_epoch as "deadline.woke_epoch",
                deadline_votes as "deadline.votes", deadline_kept as "deadline.kept", deadline_on_beat as "deadline.on_beat",
                deadline_world as "deadline.world", deadline_always as "deadline.always",
                rest, wait, handed, told_d, told_epoch, frames;
            Rest = "wh_rest": woke, from, awake, length, whole, together, awakes, lengths, asked, epoch, pairs, wait, mixed,
                always, keeps;
            Process = "wh_cz_process": layout, spare, napper, rest;
            Layout = "wh_cz_layout": first_module, n_modules, first_mark, n_marks;
            Module = "wh_cz_module": start, end, base, first_row, n_rows, in_scope;
            Mark = "wh_cz_mark": start, end, bits;
            Record = "wh_cz_record": kind, kernel, tgid, tid, t, ns, site, waker_site, waker, times, n, frames;
        );
        rows += &format!("{FRAMES} {POINTS} {LAYOUTS} {MODULES} {MARKS} {RULES} {CALLERS} {SYSCALLS}\n");
        rows += &format!("{STATE_OFF} {STATE_ON} {STATE_DRAIN} {UNIT_NOTHING} {UNIT_FIRST} {UNIT_INCLUSIVE} ");
        rows += &format!("{UNIT_OFF_CPU} {MARK_TARGET} {MARK_CALLER} {MARK_SITE} {MARK_POINT} {RECORD_RUN} ");
        rows += &format!("{RECORD_BLOCKED} {RECORD_FORKED} {RECORD_EXECED} {CLOCK_BLOCKED}\n");
        let program = format!(
            r#"#include <stdio.h>
            #include <stddef.h>
            #include "whither_causal.h"
            int main(void) {{ {c}
                printf("%u %u %u %u %u %u %u %u\n", WH_CZ_FRAMES, WH_CZ_POINTS, WH_CZ_LAYOUTS, WH_CZ_MODULES,
                       WH_CZ_MARKS, WH_CZ_RULES, WH_CZ_CALLERS, WH_CZ_SYSCALLS);
                printf("%d %d %d %d %d %d %d %llu %llu %llu %llu %d %d %d %d %d\n", WH_CZ_OFF, WH_CZ_ON, WH_CZ_DRAIN,
                       WH_CZ_NOTHING, WH_CZ_FIRST, WH_CZ_INCLUSIVE, WH_CZ_OFF_CPU, WH_CZ_TARGET, WH_CZ_CALLER,
                       WH_CZ_SITE, WH_CZ_POINT, WH_CZ_RUN, WH_CZ_BLOCKED, WH_CZ_FORKED, WH_CZ_EXECED, WH_CLOCK_BLOCKED);
            }}"#
        );
        assert_eq!(crate::tests::run_c("causal", &program), rows);
    }

    #[test]
    fn broken_records_are_refused() {
        let mut bytes = vec![0_u8; size_of::<Record>()];
        bytes[56] = 17;
        assert_eq!((Record::read(&bytes), Record::read(&bytes[..100])), (None, None));
        bytes[56] = 16;
        assert_eq!(Record::read(&bytes).map(|r| r.n), Some(16));
    }
}
