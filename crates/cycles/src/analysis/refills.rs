//! How much of the time the instruction cache and its translations can have taken at one line or page of code, from nothing but
//! where samples are: no cache forgets a line before as many others were executed as it holds.
//!
//! The lines are sorted by their time. Those before any cut and the line asked about fit the cache as long as fewer than
//! `room - cut` of the others are executed in between; so each time the line comes anew, that many of the others were executed, and
//! the time of all others, those never sampled included, says how often that was at most. A line that is used less often is found
//! no nearer than one that is used more often, so it takes its time too. The best cut counts.
//!
//! What else makes code come anew has a bound of its own: switches of threads, interrupts, the hypervisor. Passed over is what
//! data pushes out of a cache that code shares (as in the paper, P46), and a stranger on the core's other thread.

use super::machine::functions_named;
use crate::model::Penalties;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use whither_store::model::{EventIx, Image, ImageIx, ImageKind, ProcessIx, Profile, Sample};
use whither_store::symbols::Symbols;

/// Most of the time that waiting for one line or page of an image's code can have taken, as shares of all samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refills {
    /// Samples of the processes that execute the image.
    pub samples: f64,
    /// For a line of 64 bytes.
    pub line: f64,
    /// For a page of 4 KiB.
    pub page: f64,
}

/// A kind of unit that code is fetched in.
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// Logarithm of its bytes.
    bits: u32,
    /// Units that surely stay: half of what the smallest cache in use holds (32 KiB, 64 pages), as its sets fill unevenly and the
    /// core's other thread has its part.
    room: usize,
}

const LINE: Unit = Unit { bits: 6, room: 256 };
const PAGE: Unit = Unit { bits: 12, room: 32 };

/// What waiting for a unit costs against what the other units that pushed it out took each. They come from no nearer, but not all
/// of their time is seen: straight code is fetched ahead, 32 bytes in a cycle, against 16 cycles for the second cache.
const UNEVEN: f64 = 8.0;
/// Cycles at least that a switch spends in the scheduler's own functions.
const LEAST_SWITCH: f64 = 300.0;
/// Cycles at least that the kernel runs each time it is entered. Where the functions of switches are not known, each entry may be a switch.
const LEAST_ENTRY: f64 = 100.0;
/// Refills after interrupts, those of the sampling included: ten thousand a second, from behind the second cache.
const INTERRUPTS: f64 = 2.5e-4;
/// Functions that switches of threads pass time in. With interrupts off their samples stand in the last one.
const OF_SWITCHES: [&str; 7] = [
    "__schedule",
    "schedule",
    "finish_task_switch",
    "finish_task_switch.isra.0",
    "context_switch",
    "__switch_to",
    "__switch_to_asm",
];

/// The refills of each of these images, as far as samples tell. Nothing is said of the kernel's code: where interrupts are off its
/// samples stand elsewhere. Nor without samples of the kernel: it may have run unseen.
pub(super) fn refills(
    profile: &Profile,
    symbols: &dyn Symbols,
    penalty: &Penalties,
    steal: f64,
    images: impl IntoIterator<Item = ImageIx>,
) -> FxHashMap<ImageIx, Refills> {
    let sampled = Sampled::of(profile, symbols);
    let of = |image| Some((image, sampled.of_image(profile, image)?.refills(penalty, steal)));
    images.into_iter().collect::<FxHashSet<_>>().into_iter().filter_map(of).collect()
}

/// Samples of the main event by process.
struct Sampled<'a> {
    by_process: FxHashMap<ProcessIx, Vec<&'a Sample>>,
    /// The scheduler's functions, where any is known.
    switches: FxHashMap<ImageIx, Vec<Range<u64>>>,
}

impl<'a> Sampled<'a> {
    fn of(profile: &'a Profile, symbols: &dyn Symbols) -> Self {
        let mut by_process: FxHashMap<ProcessIx, Vec<&Sample>> = FxHashMap::default();
        for s in profile.samples.iter().filter(|s| s.event == EventIx(0)) {
            by_process.entry(s.process).or_default().push(s);
        }
        let mut switches = functions_named(profile, symbols, &OF_SWITCHES);
        switches.retain(|_, ranges| !ranges.is_empty());
        Self { by_process, switches }
    }

    /// Counts of all processes that execute an image.
    fn of_image(&self, profile: &Profile, image: ImageIx) -> Option<Counts> {
        if is_kernel(profile.image(image)) {
            return None;
        }
        let mut counts = Counts { switches: (!self.switches.is_empty()).then_some(0), ..Counts::default() };
        for rows in self.by_process.values().filter(|rows| rows.iter().any(|s| s.image == image)) {
            rows.iter().for_each(|s| self.count(profile, s, &mut counts));
        }
        (counts.kernel > 0).then_some(counts)
    }

    fn count(&self, profile: &Profile, s: &Sample, counts: &mut Counts) {
        let n = u64::from(s.count);
        counts.all += n;
        if !is_kernel(profile.image(s.image)) {
            *counts.lines.entry((s.image, s.offset.0 >> LINE.bits)).or_default() += n;
            *counts.pages.entry((s.image, s.offset.0 >> PAGE.bits)).or_default() += n;
            return;
        }
        counts.kernel += n;
        let switches = self.switches.get(&s.image).is_some_and(|all| all.iter().any(|r| r.contains(&s.offset.0)));
        if let Some(sum) = counts.switches.as_mut().filter(|_| switches) {
            *sum += n;
        }
    }
}

fn is_kernel(image: &Image) -> bool {
    matches!(image.kind, ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf)
}

/// What was sampled of some processes.
#[derive(Clone, Debug, Default)]
struct Counts {
    all: u64,
    /// Of these, in the kernel, whose code is never counted among what stays: it is executed unseen where interrupts are off.
    kernel: u64,
    /// In functions that switch threads; `None` where these are not known.
    switches: Option<u64>,
    lines: FxHashMap<(ImageIx, u64), u64>,
    pages: FxHashMap<(ImageIx, u64), u64>,
}

impl Counts {
    fn refills(&self, penalty: &Penalties, steal: f64) -> Refills {
        let all = self.all as f64;
        let kernel = at_most(self.kernel) / all;
        let switches = match self.switches {
            Some(n) => at_most(n) / all * penalty.dram / LEAST_SWITCH,
            None => kernel * penalty.dram / LEAST_ENTRY,
        };
        let others = kernel + steal;
        let line = pushed_out(&self.lines, self.all, others, LINE) + switches + INTERRUPTS;
        // Some kernels forget all translations of code at each entry; the tables are at hand.
        let entries = kernel * penalty.dtlb_walk / LEAST_ENTRY;
        let page = pushed_out(&self.pages, self.all, others, PAGE) + switches + entries + INTERRUPTS;
        Refills { samples: all, line: line.min(1.0), page: page.min(1.0) }
    }
}

/// Share of the time that one unit can have been waited for as others pushed it out. `others`: share of the time of code that is not
/// among `units`.
fn pushed_out(units: &FxHashMap<(ImageIx, u64), u64>, all: u64, others: f64, unit: Unit) -> f64 {
    let mut counts: Vec<u64> = units.values().copied().collect();
    counts.sort_unstable_by_key(|n| std::cmp::Reverse(*n));
    let all = all as f64;
    let mut rest = counts.iter().sum::<u64>() as f64 / all + unseen(&counts) / all + others;
    let mut best = f64::INFINITY;
    for cut in 0..unit.room {
        best = best.min(UNEVEN * rest / (unit.room - cut) as f64);
        let Some(n) = counts.get(cut) else { break };
        rest -= *n as f64 / all;
    }
    best.min(1.0)
}

/// Samples at most that units which were never sampled can have been worth (Good and Turing): about as many as there are units that were
/// sampled once.
fn unseen(counts: &[u64]) -> f64 {
    let met = |times: u64| counts.iter().filter(|n| **n == times).count() as f64;
    let (once, twice) = (met(1), met(2));
    once + 2.0 * (once + 2.0 * twice).sqrt() + 3.0
}

/// Most of a count's mean, nearly surely.
fn at_most(count: u64) -> f64 {
    let n = count as f64;
    n + 2.0 * n.sqrt() + 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many lines of so many samples each, one after the other, and a few samples of the kernel.
    fn even(lines: u64, each: u64) -> Counts {
        let of = |bits: u32| {
            let mut units: FxHashMap<(ImageIx, u64), u64> = FxHashMap::default();
            (0..lines).for_each(|l| *units.entry((ImageIx(0), (l << LINE.bits) >> bits)).or_default() += each);
            units
        };
        let kernel = 5;
        Counts { all: lines * each + kernel, kernel, switches: Some(0), lines: of(LINE.bits), pages: of(PAGE.bits) }
    }

    fn refills(counts: &Counts) -> Refills {
        counts.refills(&Penalties::default(), 0.0)
    }

    #[test]
    fn code_that_fits_the_cache_is_not_pushed_out_of_it() {
        let small = refills(&even(100, 100));
        assert!(small.line < 0.1 / 100.0, "less than a tenth of a line's time: {small:?}");
        let large = refills(&even(5000, 10));
        assert!(large.line > 10.0 / 5000.0, "more than all of a line's time: {large:?}");
        assert!(large.page > 0.01, "80 pages: {large:?}");
        assert!(small.page < 0.003, "two pages: {small:?}");
    }

    #[test]
    fn few_samples_acquit_nobody() {
        // Ten samples of ten lines: what was never sampled may be most of the code.
        let few = refills(&even(10, 1));
        assert!(few.line > 0.03, "{few:?}");
    }

    #[test]
    fn rare_code_outside_does_little() {
        let mut counts = even(100, 100);
        let rare = (0..50_u64).map(|l| ((ImageIx(1), l), 2));
        counts.lines.extend(rare);
        counts.all += 100;
        let line = refills(&counts).line;
        assert!(line < 0.2 / 100.0, "{line}");
        counts.lines.extend((0..3000_u64).map(|l| ((ImageIx(2), l), 3)));
        counts.all += 9000;
        let line = refills(&counts).line;
        assert!(line > 0.01, "half of the time is elsewhere: {line}");
    }

    #[test]
    fn switches_and_the_kernel_push_code_out() {
        let quiet = even(100, 100);
        let line = refills(&quiet).line;
        assert!(refills(&Counts { switches: Some(500), ..quiet.clone() }).line > line + 0.05);
        assert!(refills(&Counts { switches: None, ..quiet.clone() }).line > line + 0.004, "any of the kernel's time");
        assert!(quiet.refills(&Penalties::default(), 0.2).line > line + 0.005, "the hypervisor ran something else");
    }
}
