//! Samples and stacks as one list of stacks whose sums are exactly those of the samples.
//!
//! The store keeps stacks in a second table: of the same samples, or of every n-th one.
//!
//! *A stack per sample.* A leaf is one (event, process, thread, image, offset). The stacks of a leaf are
//! taken as they are, and samples without one become a row without callers; should they weigh more than
//! the samples, they are scaled down. So call paths come from the stacks, and all figures from the
//! samples. Time slices are paired in their order, not by number: samples get theirs when the kernel's
//! table is emptied, stacks when they are taken.
//!
//! *Every n-th.* Most leaves have no stack, and those that do weigh n times too much, so the stacks of
//! a process are scaled to the weight of the process: sums per event and process are exact, those of
//! a position are what the stacks tell.

use rustc_hash::FxHashMap;
use whither_cycles::flame::CUT_SHORT;
use whither_store::model::{EventIx, Frame, ImageIx, ImageOffset, ProcessIx, Profile, StackEnd, StackIx, StackSample};

/// Callers of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Callers {
    /// The recording has no stacks of this event at all.
    NotRecorded,
    /// No stack was taken for these samples, though others of the event have one.
    Missing,
    /// This stack, whose first frame is the leaf.
    Stack(StackIx),
}

/// Samples of one leaf with one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) event: EventIx,
    pub(super) process: ProcessIx,
    pub(super) tid: u32,
    pub(super) slice: u32,
    pub(super) leaf: Frame,
    pub(super) callers: Callers,
    pub(super) samples: u64,
    pub(super) weight: u64,
}

impl Row {
    /// All frames, innermost first.
    pub(super) fn frames<'a>(&'a self, profile: &'a Profile) -> &'a [Frame] {
        match self.callers {
            Callers::Stack(ix) => &profile.stacks[ix.0 as usize].frames,
            _ => std::slice::from_ref(&self.leaf),
        }
    }

    /// Frame to put outside the outermost one, when callers are missing.
    pub(super) fn mark(&self, profile: &Profile) -> Option<&'static str> {
        match self.callers {
            Callers::NotRecorded => None,
            Callers::Missing => Some("[no stack]"),
            Callers::Stack(ix) => (profile.stacks[ix.0 as usize].end == StackEnd::Truncated).then_some(CUT_SHORT),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Leaf {
    event: EventIx,
    process: ProcessIx,
    tid: u32,
    image: ImageIx,
    offset: ImageOffset,
}

/// Figures of one leaf in one slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct InSlice {
    slice: u32,
    samples: u64,
    weight: u64,
}

#[derive(Clone, Default)]
struct Sums {
    slices: Vec<InSlice>,
    /// Slice, stack, weight.
    stacks: Vec<(u32, StackIx, u64)>,
}

/// The rows of a profile, by event, process, thread, time, position.
pub(super) fn rows(profile: &Profile) -> Vec<Row> {
    let mut leaves: FxHashMap<Leaf, Sums> = FxHashMap::default();
    for s in &profile.samples {
        let leaf = Leaf { event: s.event, process: s.process, tid: s.tid, image: s.image, offset: s.offset };
        let here = InSlice { slice: s.slice, samples: u64::from(s.count), weight: s.weight() };
        leaves.entry(leaf).or_default().slices.push(here);
    }
    let taken: Vec<Taken> = (0..profile.events.len()).map(|e| taken(profile, e)).collect();
    let mut out = scaled_stacks(profile, &taken, &mut leaves);
    add_stacks(profile, &taken, &mut leaves);
    for (leaf, sums) in leaves {
        let rest =
            if taken[usize::from(leaf.event.0)] == Taken::Never { Callers::NotRecorded } else { Callers::Missing };
        divide(leaf, sums, rest, &mut out);
    }
    out.sort_unstable_by_key(|r| (r.event, r.process, r.tid, r.slice, r.leaf, r.callers));
    out
}

/// How often stacks of an event were taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Never,
    PerSample,
    /// A stack stands for several samples.
    Thinned,
}

fn taken(profile: &Profile, event: usize) -> Taken {
    let of_event = |e: EventIx| usize::from(e.0) == event;
    let add = |(n, w): (u64, u64), count: u32, period: u64| {
        (n.saturating_add(count.into()), w.saturating_add(u64::from(count).saturating_mul(period)))
    };
    let stacks = profile.stack_samples.iter().filter(|s| of_event(s.event) && known(profile, s).is_some());
    let (stacks, stack_weight) = stacks.fold((0, 0), |sum, s| add(sum, s.count, s.period));
    let samples = profile.samples.iter().filter(|s| of_event(s.event));
    let (samples, weight) = samples.fold((0, 0), |sum, s| add(sum, s.count, s.period));
    if stacks == 0 {
        return Taken::Never;
    }
    // Mean periods, compared crosswise: periods vary by a few percent around their mean.
    let per_stack = u128::from(stack_weight) * u128::from(samples) * 2;
    if per_stack > u128::from(weight) * u128::from(stacks) * 3 { Taken::Thinned } else { Taken::PerSample }
}

/// First frame of a row of the stack table, if the row is sound.
fn known(profile: &Profile, s: &StackSample) -> Option<Frame> {
    profile.stacks.get(s.stack.0 as usize)?.frames.first().copied()
}

/// Rows of thinned events, for processes with stacks; their leaves are used up.
fn scaled_stacks(profile: &Profile, taken: &[Taken], leaves: &mut FxHashMap<Leaf, Sums>) -> Vec<Row> {
    let mut by_process: FxHashMap<(EventIx, ProcessIx), Vec<&StackSample>> = FxHashMap::default();
    for s in &profile.stack_samples {
        if taken[usize::from(s.event.0)] == Taken::Thinned && s.count > 0 && s.period > 0 && known(profile, s).is_some()
        {
            by_process.entry((s.event, s.process)).or_default().push(s);
        }
    }
    let mut totals: FxHashMap<(EventIx, ProcessIx), (u64, u64)> = FxHashMap::default();
    leaves.retain(|leaf, sums| {
        let key = (leaf.event, leaf.process);
        let used = by_process.contains_key(&key);
        if used {
            let total = totals.entry(key).or_default();
            for s in &sums.slices {
                *total = (total.0.saturating_add(s.samples), total.1.saturating_add(s.weight));
            }
        }
        !used
    });
    let mut out = Vec::new();
    for (key, (samples, weight)) in totals {
        let stacks = &by_process[&key];
        let parts: Vec<u64> = stacks.iter().map(|s| u64::from(s.count).saturating_mul(s.period)).collect();
        let figures = apportion(samples, &parts).into_iter().zip(apportion(weight, &parts));
        for (s, (samples, weight)) in stacks.iter().zip(figures).filter(|(_, f)| *f != (0, 0)) {
            let leaf = known(profile, s).expect("checked when it was collected");
            let (callers, tid, slice) = (Callers::Stack(s.stack), s.tid, s.slice);
            out.push(Row { event: s.event, process: s.process, tid, slice, leaf, callers, samples, weight });
        }
    }
    out
}

/// Notes each stack at its leaf. A stack whose leaf has no samples (its segment was lost) has no
/// weight to give and is left out.
fn add_stacks(profile: &Profile, taken: &[Taken], leaves: &mut FxHashMap<Leaf, Sums>) {
    for s in profile.stack_samples.iter().filter(|s| taken[usize::from(s.event.0)] == Taken::PerSample) {
        let Some(Frame { image, offset }) = known(profile, s) else { continue };
        let leaf = Leaf { event: s.event, process: s.process, tid: s.tid, image, offset };
        if let Some(sums) = leaves.get_mut(&leaf) {
            sums.stacks.push((s.slice, s.stack, u64::from(s.count).saturating_mul(s.period)));
        }
    }
}

/// Gives each slice its samples back, divided among the stacks in the order of time.
fn divide(leaf: Leaf, mut sums: Sums, rest: Callers, out: &mut Vec<Row>) {
    sums.slices.sort_unstable();
    sums.stacks.sort_unstable();
    let mut queue = Queue::new(&sums);
    let Leaf { event, process, tid, image, offset } = leaf;
    for in_slice in sums.slices.chunk_by(|a, b| a.slice == b.slice) {
        let samples = in_slice.iter().fold(0_u64, |n, s| n.saturating_add(s.samples));
        let weight = in_slice.iter().fold(0_u64, |n, s| n.saturating_add(s.weight));
        let mut parts = queue.take(weight);
        let taken: u64 = parts.iter().map(|p| p.1).sum();
        parts.push((rest, weight - taken));
        let counts = apportion(samples, &parts.iter().map(|p| p.1).collect::<Vec<_>>());
        for ((callers, weight), samples) in parts.into_iter().zip(counts).filter(|(p, n)| (p.1, *n) != (0, 0)) {
            let leaf = Frame { image, offset };
            out.push(Row { event, process, tid, slice: in_slice[0].slice, leaf, callers, samples, weight });
        }
    }
}

/// The stacks of a leaf, handed out by weight; never more than its samples weigh.
struct Queue {
    stacks: Vec<(StackIx, u64)>,
    next: usize,
}

impl Queue {
    fn new(sums: &Sums) -> Self {
        let weights: Vec<u64> = sums.stacks.iter().map(|s| s.2).collect();
        let total = sums.slices.iter().fold(0_u64, |n, s| n.saturating_add(s.weight));
        let fits = weights.iter().try_fold(0_u64, |n, w| n.checked_add(*w)).is_some_and(|n| n <= total);
        let weights = if fits { weights } else { apportion(total, &weights) };
        Self { stacks: sums.stacks.iter().map(|s| s.1).zip(weights).collect(), next: 0 }
    }

    /// The next stacks up to a weight, the last one in part.
    fn take(&mut self, weight: u64) -> Vec<(Callers, u64)> {
        let (mut taken, mut left) = (Vec::new(), weight);
        while let Some((stack, has)) = self.stacks.get_mut(self.next).filter(|_| left > 0) {
            let part = left.min(*has);
            taken.push((Callers::Stack(*stack), part));
            *has -= part;
            left -= part;
            if *has == 0 {
                self.next += 1;
            }
        }
        taken
    }
}

/// Splits `total` in proportion to `parts`; the sum is exact. Everything goes to the last part
/// when all are 0.
fn apportion(total: u64, parts: &[u64]) -> Vec<u64> {
    // Products must fit 128 bits: parts that sum to more than 64 bits lose their lowest bits.
    let full: u128 = parts.iter().map(|&p| u128::from(p)).sum();
    let shift = 64_u32.saturating_sub(full.leading_zeros());
    let parts = || parts.iter().map(|&p| u128::from(p >> shift));
    let sum: u128 = parts().sum();
    let mut out = vec![0; parts().count()];
    if sum == 0 {
        if let Some(last) = out.last_mut() {
            *last = total;
        }
        return out;
    }
    // Differences of the rounded running sum: exact in total, each part off by less than one.
    let (mut before, mut given) = (0_u128, 0_u64);
    for (o, p) in out.iter_mut().zip(parts()) {
        before += p;
        let upto = u64::try_from((u128::from(total) * before + sum / 2) / sum).unwrap_or(total);
        *o = upto - given;
        given = upto;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_that_fit_are_kept() {
        assert_eq!(apportion(100, &[30, 20, 50]), [30, 20, 50]);
        assert_eq!(apportion(10, &[0, 0]), [0, 10]);
        assert_eq!(apportion(7, &[u64::MAX, u64::MAX]), [4, 3]);
        assert_eq!(apportion(u64::MAX, &[u64::MAX]), [u64::MAX]);
    }

    proptest! {
        #[test]
        fn apportioning_is_exact(total: u64, parts in prop::collection::vec(any::<u64>(), 1..9)) {
            let split = apportion(total, &parts);
            prop_assert_eq!(split.iter().map(|&x| u128::from(x)).sum::<u128>(), u128::from(total));
        }
    }
}
