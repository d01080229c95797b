//! From records of the ring to samples and changes.

use super::{CausalSample, Change, SampleWhat, WaitClass};
use whither_abi::causal::{RECORD_BLOCKED, RECORD_EXECED, RECORD_FORKED, RECORD_RUN, Record};

/// What the ring held and nobody has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Got {
    /// What a weight of 1 stands for.
    pub tick_ns: u64,
    pub samples: Vec<CausalSample>,
    pub changes: Vec<Change>,
}

impl Got {
    /// Takes in a record; broken ones are left out.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let Some(record) = Record::read(bytes) else { return };
        match record.kind {
            RECORD_RUN | RECORD_BLOCKED => self.samples.extend(sample(&record, self.tick_ns.max(1))),
            RECORD_FORKED => self.changes.push(Change::Forked { pid: record.tgid, parent: record.tid }),
            RECORD_EXECED => self.changes.push(Change::Execed { pid: record.tgid }),
            _ => {}
        }
    }
}

/// `None` when it stands for less than half a tick: the thread was paying all the time.
fn sample(record: &Record, tick_ns: u64) -> Option<CausalSample> {
    let blocked = record.kind == RECORD_BLOCKED;
    let ns = if blocked { record.ns.saturating_mul(record.times.into()) } else { record.ns };
    let weight = u32::try_from(ns.saturating_add(tick_ns / 2) / tick_ns).unwrap_or(u32::MAX);
    let what = if blocked {
        let waker = (record.waker != 0).then_some((record.waker, record.waker_site));
        SampleWhat::Blocked { class: class(record.kernel), ns: record.ns, waker }
    } else {
        SampleWhat::Run
    };
    (weight > 0).then(|| CausalSample {
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
        let weight = |r: Record| sample(&r, 250).map(|s| s.weight);
        assert_eq!(weight(record(RECORD_RUN, 990, 1)), Some(4));
        assert_eq!(weight(record(RECORD_RUN, 20, 1)), None);
        assert_eq!(weight(record(RECORD_BLOCKED, 1000, 8)), Some(32));
    }

    #[test]
    fn a_wait_knows_who_ended_it() {
        let mut r = Record { kernel: 3, waker: 9, waker_site: 77, ..record(RECORD_BLOCKED, 1000, 1) };
        let what = sample(&r, 250).map(|s| (s.what, s.frames.len(), s.kernel));
        let expected = SampleWhat::Blocked { class: WaitClass::Lock, ns: 1000, waker: Some((9, 77)) };
        assert_eq!(what, Some((expected, 2, false)));
        r.waker = 0;
        assert!(matches!(sample(&r, 250).map(|s| s.what), Some(SampleWhat::Blocked { waker: None, .. })));
    }
}
