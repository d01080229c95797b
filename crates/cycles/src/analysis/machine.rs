//! The machine that samples were taken on: its core as measured, what the hypervisor took, what page faults cost, how much the
//! caches of instructions can have taken.

use super::AnalyseQuery;
use super::refills::{Refills, refills};
use super::threads::{Threads, threads};
use crate::find::Procedure;
use crate::model::Core;
use crate::provenance::stolen_by_sampling;
use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_store::model::{Event, EventIx, EventUnit, ImageIx, ImageKind, Profile, Rate, Sample};
use whither_store::symbols::Symbols;

/// The processor the samples were taken on, as far as known.
pub(crate) struct Machine {
    pub(crate) core: Core,
    /// Cycles per second of the core.
    pub(crate) clock_hz: Option<f64>,
    /// Time in which what ran stood still for sampling, as a share of its time.
    pub(crate) stolen: f64,
    /// Time that the hypervisor took, as a share of the time of what ran.
    pub(super) steal: f64,
    /// Time that the kernel spent on page faults, as a share of all time.
    pub(super) faults: f64,
    /// Samples of the main event, all of them.
    pub(super) samples: f64,
    /// What is known of the caches of instructions, by image.
    refills: FxHashMap<ImageIx, Refills>,
    /// And of the threads that run them.
    threads: FxHashMap<ImageIx, Threads>,
}

impl Machine {
    /// What the recording measured of its core; recordings of several kinds of core have none in common.
    pub(crate) fn of(profile: &Profile, symbols: &dyn Symbols, query: &AnalyseQuery) -> Self {
        let mut facts = profile.epochs.iter().filter_map(|e| e.core.as_ref());
        let first = facts.next().filter(|f| facts.all(|o| o.cpu == f.cpu));
        let core = query.core.clone().or_else(|| first.map(Core::from_facts)).unwrap_or_default();
        Self {
            core,
            clock_hz: first.and_then(|f| f.clock_hz),
            stolen: stolen_by_sampling(&profile.epochs),
            steal: steal(profile),
            faults: faults(profile, symbols),
            samples: samples(profile) as f64,
            refills: FxHashMap::default(),
            threads: FxHashMap::default(),
        }
    }

    /// With what samples tell of the caches of instructions where these procedures run, and of threads.
    pub(super) fn with_images(mut self, profile: &Profile, symbols: &dyn Symbols, wanted: &[Procedure]) -> Self {
        let images = wanted.iter().map(|p| p.image);
        self.threads = threads(profile, self.clock_hz, &images.clone().collect());
        self.refills = refills(profile, symbols, &self.core.penalty, self.steal, images);
        self
    }

    pub(super) fn refills(&self, image: ImageIx) -> Option<Refills> {
        self.refills.get(&image).copied()
    }

    pub(super) fn threads(&self, image: ImageIx) -> Threads {
        self.threads.get(&image).copied().unwrap_or_default()
    }
}

/// Time that an amount of an event is.
pub(super) fn time_ns(event: &Event, amount: f64, clock_hz: Option<f64>) -> Option<f64> {
    match event.unit {
        EventUnit::Nanoseconds => Some(amount),
        EventUnit::Count => Some(amount / clock_hz? * 1e9),
    }
}

/// Functions of the kernel that page faults pass time in, and little else does.
const OF_FAULTS: [&str; 12] = [
    "asm_exc_page_fault",
    "exc_page_fault",
    "do_user_addr_fault",
    "handle_mm_fault",
    "__handle_mm_fault",
    "do_anonymous_page",
    "do_fault",
    "do_wp_page",
    "do_swap_page",
    "do_pte_missing",
    "filemap_map_pages",
    "lock_vma_under_rcu",
];

/// Samples of functions that only page faults run, over all samples, of the first event.
fn faults(profile: &Profile, symbols: &dyn Symbols) -> f64 {
    let functions = functions_named(profile, symbols, &OF_FAULTS);
    let of_faults = |s: &&Sample| {
        let own = functions.get(&s.image).filter(|_| s.event == EventIx(0));
        own.is_some_and(|ranges| ranges.iter().any(|r| r.contains(&s.offset.0)))
    };
    let count: u64 = profile.samples.iter().filter(of_faults).map(|s| u64::from(s.count)).sum();
    count as f64 / samples(profile).max(1) as f64
}

fn samples(profile: &Profile) -> u64 {
    profile.samples.iter().filter(|s| s.event == EventIx(0)).map(|s| u64::from(s.count)).sum()
}

/// Where functions of these names lie in each kernel.
pub(super) fn functions_named(
    profile: &Profile,
    symbols: &dyn Symbols,
    names: &[&str],
) -> FxHashMap<ImageIx, Vec<Range<u64>>> {
    let kernels = (0..).map(ImageIx).zip(&profile.images).filter(|(_, i)| i.kind == ImageKind::Kernel);
    kernels
        .map(|(ix, image)| {
            let table = symbols.functions(image);
            let own = table.functions().iter().filter(|f| names.contains(&&*f.name));
            (ix, own.map(|f| f.start.0..f.start.0.saturating_add(f.size)).collect())
        })
        .collect()
}

/// Steal over busy time, whole machine.
fn steal(profile: &Profile) -> f64 {
    let busy = |r: &Rate| r.length_ns as f64 * r.delivered.saturating_sub(r.idle) as f64 / r.delivered.max(1) as f64;
    let sum = |of: &dyn Fn(&Rate) -> f64| profile.rates.iter().map(of).sum::<f64>();
    let (taken, busy) = (sum(&|r| r.steal_ns as f64), sum(&busy));
    if busy > 0.0 { (taken / busy).min(1.0) } else { 0.0 }
}
