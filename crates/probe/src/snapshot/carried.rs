//! Calls that were in progress when numbers began anew: their time before that moment was added to no counter yet, and is taken
//! off once they have ended. Constraint: the target runs on; whether a call has ended is asked around the reading of counters.

use super::{Sum, Sums, open};
use crate::segment::Segment;
use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_abi::agent as abi;
use whither_abi::agent::Active;

/// All that were in progress at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried(Vec<One>);

#[derive(Clone, Copy, Debug)]
struct One {
    thread: u32,
    call: Active,
    /// Ticks that it had lasted.
    wall: u64,
    /// Nanoseconds of CPU time, as far as the kernel had added them up.
    cpu: u64,
}

impl One {
    fn is(&self, call: &Active) -> bool {
        (call.slot, call.t0, call.path) == (self.call.slot, self.call.t0, self.call.path)
    }
}

/// What has to be taken off the sums of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Off {
    wall: u64,
    cpu: u64,
    longest: u64,
}

/// Readings until none of these calls ended during one.
const TRIES: usize = 3;

impl Carried {
    /// Those of now.
    pub(crate) fn now(segment: &Segment) -> Self {
        let of_thread = |index: u32| {
            let open = open::of_thread(segment, index).into_iter();
            open.filter(|open| open.call.t0 != 0 && open.call.path & abi::FOLDED == 0).map(move |open| One {
                thread: index,
                wall: open.wall,
                cpu: open.cpu.unwrap_or(0),
                call: open.call,
            })
        };
        Self((0..segment.n_threads()).flat_map(of_thread).collect())
    }

    /// CPU time that a call had before, nanoseconds; 0 of those begun later.
    pub(crate) fn cpu_of(&self, thread: u32, call: &Active) -> u64 {
        self.0.iter().find(|one| one.thread == thread && one.is(call)).map_or(0, |one| one.cpu)
    }

    /// Those that have ended by now are no business of the numbers that begin now.
    pub(crate) fn forget_ended(&mut self, segment: &Segment) {
        let ended: Vec<(u32, u64)> = ended(&self.0, segment).iter().map(|one| (one.thread, one.call.t0)).collect();
        self.0.retain(|one| !ended.contains(&(one.thread, one.call.t0)));
    }

    /// Sums read by `read`, those of some threads, less what calls that have ended meanwhile lasted before.
    pub(crate) fn without(&self, segment: &Segment, threads: Range<u32>, read: impl Fn() -> Sums) -> Sums {
        let mine: Vec<One> = self.0.iter().filter(|one| threads.contains(&one.thread)).copied().collect();
        if mine.is_empty() {
            return read();
        }
        let mut last = None;
        for _ in 0..TRIES {
            let before = ended(&mine, segment);
            let sums = read();
            let settled = ended(&mine, segment).len() == before.len();
            last = Some((sums, before));
            if settled {
                break;
            }
        }
        let (mut sums, ended) = last.unwrap_or_default();
        let mut off: FxHashMap<u32, Off> = FxHashMap::default();
        for one in ended {
            let all = off.entry(one.call.path).or_default();
            all.wall = all.wall.saturating_add(one.wall);
            all.cpu = all.cpu.saturating_add(one.cpu);
            all.longest = all.longest.max(one.wall);
        }
        off.into_iter().for_each(|(path, off)| sums.change(path, |sum| off.take_from(sum)));
        sums
    }
}

impl Off {
    fn take_from(self, sum: &mut Sum) {
        // Shortest and longest were begun anew with the numbers: a call that was jumped out of added nothing.
        if sum.max >= self.longest {
            sum.wall = sum.wall.saturating_sub(self.wall);
            sum.cpu = sum.cpu.saturating_sub(self.cpu);
        }
    }
}

/// Which of them are not in progress any more.
fn ended(calls: &[One], segment: &Segment) -> Vec<One> {
    let mut now: FxHashMap<u32, Vec<Active>> = FxHashMap::default();
    let mut is_open = |one: &One| {
        let open = now.entry(one.thread).or_insert_with(|| segment.active(one.thread));
        open.iter().any(|call| one.is(call))
    };
    calls.iter().filter(|one| !is_open(one)).copied().collect()
}
