//! From records of the ring to samples and changes.

use super::{CausalSample, Change, SampleWhat, WaitClass};
use whither_abi::causal::{RECORD_BLOCKED, RECORD_EXECED, RECORD_FORKED, RECORD_RUN, Record};

/// What the ring held and nobody has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Got {
    /// What a weight of 1 stands for.
    pub tick_ns: u64,
    /// State of the draws.
    draws: u64,
    pub samples: Vec<CausalSample>,
    pub changes: Vec<Change>,
}

impl Got {
    /// Takes in a record; broken ones are left out.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let Some(record) = Record::read(bytes) else { return };
        match record.kind {
            RECORD_RUN | RECORD_BLOCKED => {
                let luck = self.luck();
                self.samples.extend(sample(&record, self.tick_ns.max(1), luck));
            }
            RECORD_FORKED => self.changes.push(Change::Forked { pid: record.tgid, parent: record.tid }),
            RECORD_EXECED => self.changes.push(Change::Execed { pid: record.tgid }),
            _ => {}
        }
    }

    /// A part of a tick, each as likely (splitmix64).
    fn luck(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.draws ^ (self.draws >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % self.tick_ns.max(1)
    }
}

/// `None` when it stands for nothing: a thread that runs was paying all the time. Waits are often shorter than a tick: each stands
/// for one with the part of it that it took, by `luck` of less than a tick, else short ones would all be nothing.
fn sample(record: &Record, tick_ns: u64, luck: u64) -> Option<CausalSample> {
    let blocked = record.kind == RECORD_BLOCKED;
    let (ns, more) =
        if blocked { (record.ns.saturating_mul(record.times.into()), luck) } else { (record.ns, tick_ns / 2) };
    let weight = u32::try_from(ns.saturating_add(more) / tick_ns).unwrap_or(u32::MAX);
    let what = if blocked {
        let waker = (record.waker != 0).then_some((record.waker, record.waker_site));
        SampleWhat::Blocked { class: class(record.kernel), ns: record.ns, waker }
    } else {
        SampleWhat::Run
    };
    // Who ended a wait is of interest, however short it was.
    let ended_by_one = blocked && record.waker != 0;
    (weight > 0 || ended_by_one).then(|| CausalSample {
        t_ns: record.t,
        pid: record.tgid,
        tid: record.tid,
        what,
        site: record.site,
        frames: record.frames.iter().take(record.n as usize).copied().collect(),
        kernel: !blocked && record.kernel != 0,
        weight,
    })
}

fn class(number: u32) -> WaitClass {
    match number {
        0 => WaitClass::Sleep,
        1 => WaitClass::Io,
        2 => WaitClass::Net,
        3 => WaitClass::Lock,
        _ => WaitClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, ns: u64, times: u32) -> Record {
        Record { kind, ns, times, n: 2, frames: [7; 16], ..Record::default() }
    }

    #[test]
    fn weights_are_ticks() {
        let weight = |r: Record| sample(&r, 250, 0).map(|s| s.weight);
        assert_eq!(weight(record(RECORD_RUN, 990, 1)), Some(4));
        assert_eq!(weight(record(RECORD_RUN, 20, 1)), None);
        assert_eq!(weight(record(RECORD_BLOCKED, 1000, 8)), Some(32));
    }

    /// Reads of 60 us with ticks of 1 ms were all nothing: a wait of a quarter of the time was told to be a fiftieth of it.
    #[test]
    fn waits_shorter_than_a_tick_stand_for_their_time_in_all() {
        let mut got = Got { tick_ns: 1_000_000, ..Got::default() };
        let (short, long) = (record(RECORD_BLOCKED, 60_000, 1), record(RECORD_BLOCKED, 440_000, 1));
        let mut sums = [0_u32; 2];
        for _ in 0..20_000 {
            for (sum, r) in sums.iter_mut().zip([short, long]) {
                let luck = got.luck();
                *sum += sample(&r, got.tick_ns, luck).map_or(0, |s| s.weight);
            }
        }
        assert!(sums[0].abs_diff(1_200) < 120 && sums[1].abs_diff(8_800) < 300, "{sums:?}");
    }

    #[test]
    fn a_wait_knows_who_ended_it() {
        let mut r = Record { kernel: 3, waker: 9, waker_site: 77, ..record(RECORD_BLOCKED, 1000, 1) };
        let what = sample(&r, 250, 0).map(|s| (s.what, s.frames.len(), s.kernel));
        let expected = SampleWhat::Blocked { class: WaitClass::Lock, ns: 1000, waker: Some((9, 77)) };
        assert_eq!(what, Some((expected, 2, false)));
        r.waker = 0;
        assert!(matches!(sample(&r, 250, 0).map(|s| s.what), Some(SampleWhat::Blocked { waker: None, .. })));
    }
}
