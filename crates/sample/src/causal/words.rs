//! The mapped words of the kernel side: control, CPUs, visits. Offsets come from the mirrored structs.

use super::skel::CausalSkel;
use crate::SampleError;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use whither_abi::causal::{CpuState, Ctl, POINTS, Visits};
use whither_kernel::affinity::Reach;
use whither_kernel::shared::SharedWords;
use whither_store::causal::PointVisits;

const CTL_WORDS: usize = size_of::<Ctl>() / 8;
const CPU_WORDS: usize = size_of::<CpuState>() / 8;
const VISIT_WORDS: usize = size_of::<Visits>() / 8;

/// Index of a word of the control struct.
macro_rules! ctl {
    ($field:ident) => {
        std::mem::offset_of!(whither_abi::causal::Ctl, $field) / 8
    };
}
/// Index of a word of a CPU.
macro_rules! cpu {
    ($field:ident) => {
        std::mem::offset_of!(whither_abi::causal::CpuState, $field) / 8
    };
}
pub(super) use {cpu, ctl};

/// Sums over all CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub samples: u64,
    pub sample_ns: u64,
    pub hit_ns: u64,
    pub hit_waits: u64,
    pub threads: u64,
    pub lost: u64,
    pub own_wait: u64,
    pub foreign_wait: u64,
    pub inserted: u64,
    pub slept: u64,
    pub handler: u64,
    pub absolute: u64,
    pub unknown_ns: u64,
    pub others_ns: u64,
    /// Of threads of the group, by one another.
    pub woken_in: u64,
    pub asked: u64,
    pub asked_by_world: u64,
    pub asked_unknown: u64,
    pub unknown_debt: u64,
}

impl Sums {
    /// What was added since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let less = u64::saturating_sub;
        Self {
            samples: less(self.samples, before.samples),
            sample_ns: less(self.sample_ns, before.sample_ns),
            hit_ns: less(self.hit_ns, before.hit_ns),
            hit_waits: less(self.hit_waits, before.hit_waits),
            threads: less(self.threads, before.threads),
            lost: less(self.lost, before.lost),
            own_wait: less(self.own_wait, before.own_wait),
            foreign_wait: less(self.foreign_wait, before.foreign_wait),
            inserted: less(self.inserted, before.inserted),
            slept: less(self.slept, before.slept),
            handler: less(self.handler, before.handler),
            absolute: less(self.absolute, before.absolute),
            unknown_ns: less(self.unknown_ns, before.unknown_ns),
            others_ns: less(self.others_ns, before.others_ns),
            woken_in: less(self.woken_in, before.woken_in),
            asked: less(self.asked, before.asked),
            asked_by_world: less(self.asked_by_world, before.asked_by_world),
            asked_unknown: less(self.asked_unknown, before.asked_unknown),
            unknown_debt: less(self.unknown_debt, before.unknown_debt),
        }
    }
}

/// The words.
pub(super) struct Words {
    ctl: SharedWords,
    cpus: SharedWords,
    visits: SharedWords,
}

impl Words {
    pub(super) fn map(skel: &CausalSkel<'static>, cpus: usize) -> Result<Self, SampleError> {
        Ok(Self {
            ctl: SharedWords::map(skel.maps.ctl.as_fd(), CTL_WORDS)?,
            cpus: SharedWords::map(skel.maps.cpus.as_fd(), cpus * CPU_WORDS)?,
            visits: SharedWords::map(skel.maps.visits.as_fd(), cpus * POINTS * VISIT_WORDS)?,
        })
    }

    pub(super) fn set(&self, word: usize, value: u64) {
        self.ctl.words()[word].store(value, Release);
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        self.ctl.words()[word].load(Acquire)
    }

    /// The words of each CPU.
    pub(super) fn each_cpu(&self) -> impl Iterator<Item = &[AtomicU64]> {
        self.cpus.words().chunks_exact(CPU_WORDS)
    }

    /// `reach`: CPUs on which others can be in the program's way.
    pub(super) fn sums(&self, reach: &Reach) -> Sums {
        let sum = |word: usize| self.each_cpu().fold(0, |all: u64, c| all.wrapping_add(c[word].load(Relaxed)));
        Sums {
            samples: sum(cpu!(samples)),
            sample_ns: sum(cpu!(sample_ns)),
            hit_ns: sum(cpu!(hit_ns)),
            hit_waits: sum(cpu!(hit_waits)),
            threads: sum(cpu!(threads)),
            lost: sum(cpu!(lost)),
            own_wait: sum(cpu!(own_wait)),
            foreign_wait: sum(cpu!(foreign_wait)),
            inserted: sum(cpu!(inserted)),
            slept: sum(cpu!(slept)),
            handler: sum(cpu!(handler)),
            absolute: sum(cpu!(absolute)),
            unknown_ns: sum(cpu!(unknown_ns)),
            others_ns: self.others_ns(reach),
            woken_in: sum(cpu!(woken_in)),
            asked: sum(cpu!(asked)),
            asked_by_world: sum(cpu!(asked_by_world)),
            asked_unknown: sum(cpu!(asked_unknown)),
            unknown_debt: sum(cpu!(unknown_debt)),
        }
    }

    /// What others have had of cores, those that have one now included.
    fn others_ns(&self, reach: &Reach) -> u64 {
        let now = super::now();
        let of = |c: &[AtomicU64]| {
            let since = Some(c[cpu!(others_at)].load(Relaxed)).filter(|at| *at > 0);
            c[cpu!(others_ns)].load(Relaxed).wrapping_add(since.map_or(0, |at| now.saturating_sub(at)))
        };
        let reached = (0..).zip(self.each_cpu()).filter(|(cpu, _)| reach.has(*cpu));
        reached.fold(0, |all: u64, (_, words)| all.wrapping_add(of(words)))
    }

    /// Turns of threads that the world had woken, over before a tick could let them pay.
    pub(super) fn hasty(&self) -> u64 {
        self.each_cpu().map(|c| c[cpu!(hasty)].load(Relaxed)).sum()
    }

    pub(super) fn largest(&self, word: usize) -> u64 {
        self.each_cpu().map(|c| c[word].load(Relaxed)).max().unwrap_or(0)
    }

    /// Forgets the visits so far.
    pub(super) fn count_from_now(&self) {
        self.set(ctl!(counted), self.get(ctl!(counted)).wrapping_add(1));
    }

    fn of_point(&self, point: u32) -> impl Iterator<Item = &[AtomicU64]> {
        let rows = self.visits.words().chunks_exact(VISIT_WORDS);
        rows.skip(point as usize % POINTS).step_by(POINTS)
    }

    /// Visits since the point was attached.
    pub(super) fn ever(&self, point: u32) -> u64 {
        self.of_point(point).map(|v| v[offset_of!(Visits, ever) / 8].load(Relaxed)).sum()
    }

    /// The rows of a point in which visits were counted since they were last forgotten.
    fn counted(&self, point: u32) -> impl Iterator<Item = &[AtomicU64]> {
        let counted = self.get(ctl!(counted));
        self.of_point(point).filter(move |v| v[offset_of!(Visits, counted) / 8].load(Acquire) == counted)
    }

    pub(super) fn count(&self, point: u32) -> u64 {
        self.counted(point).map(|v| v[offset_of!(Visits, count) / 8].load(Relaxed)).sum()
    }

    /// Visits of a point on all CPUs: the first one of the earliest, the last one of the latest.
    pub(super) fn visits(&self, point: u32) -> PointVisits {
        let mut all = PointVisits { point, ..PointVisits::default() };
        for v in self.counted(point) {
            let word = |at: usize| v[at / 8].load(Relaxed);
            let count = word(offset_of!(Visits, count));
            if count == 0 {
                continue;
            }
            let (first, last) = (word(offset_of!(Visits, first_t)), word(offset_of!(Visits, last_t)));
            if all.visits == 0 || first < all.first_ns {
                all.first_ns = first;
                all.first_virtual_ns = word(offset_of!(Visits, first_v)).cast_signed();
            }
            if all.visits == 0 || last > all.last_ns {
                all.last_ns = last;
                all.last_virtual_ns = word(offset_of!(Visits, last_v)).cast_signed();
            }
            all.visits += count;
            let sum = word(offset_of!(Visits, sum_v)).cast_signed();
            all.sum_virtual_ns = all.sum_virtual_ns.wrapping_add(sum);
        }
        all
    }
}
