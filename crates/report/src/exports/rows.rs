//! Samples and stacks as one list of stacks whose sums are exactly those of the samples.
//!
//! The store keeps stacks in a second table: the same samples, or every n-th of them. A leaf is one
//! (event, process, thread, slice, image, offset). Where the stacks of a leaf weigh no more than
//! its samples, they are taken as they are and the remainder becomes a row without callers; where
//! thinning makes them weigh more, they are scaled down to the leaf's weight. So call paths come from
//! the stacks, and totals from the samples.

use rustc_hash::FxHashMap;
use whither_cycles::flame::CUT_SHORT;
use whither_store::model::{EventIx, Frame, ImageIx, ImageOffset, ProcessIx, Profile, StackEnd, StackIx};

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

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Leaf {
    event: EventIx,
    process: ProcessIx,
    tid: u32,
    slice: u32,
    image: ImageIx,
    offset: ImageOffset,
}

#[derive(Clone, Default)]
struct Sums {
    samples: u64,
    weight: u64,
    stacks: Vec<(StackIx, u64)>,
}

/// The rows of a profile, by event, process, thread, time, position.
pub(super) fn rows(profile: &Profile) -> Vec<Row> {
    let mut leaves: FxHashMap<Leaf, Sums> = FxHashMap::default();
    for s in &profile.samples {
        let leaf =
            Leaf { event: s.event, process: s.process, tid: s.tid, slice: s.slice, image: s.image, offset: s.offset };
        let sums = leaves.entry(leaf).or_default();
        sums.samples = sums.samples.saturating_add(u64::from(s.count));
        sums.weight = sums.weight.saturating_add(s.weight());
    }
    let with_stacks = add_stacks(profile, &mut leaves);
    let mut sorted: Vec<(Leaf, Sums)> = leaves.into_iter().collect();
    sorted.sort_unstable_by_key(|(leaf, _)| *leaf);
    let mut out = Vec::with_capacity(sorted.len());
    for (leaf, sums) in sorted {
        let rest = if with_stacks[usize::from(leaf.event.0)] { Callers::Missing } else { Callers::NotRecorded };
        divide(leaf, sums, rest, &mut out);
    }
    out
}

/// Notes each stack at its leaf; returns which events have stacks at all. A stack whose leaf has no
/// samples (its segment was lost) has no weight to give and is left out.
fn add_stacks(profile: &Profile, leaves: &mut FxHashMap<Leaf, Sums>) -> Vec<bool> {
    let mut with = vec![false; profile.events.len()];
    for s in &profile.stack_samples {
        let Some(first) = profile.stacks.get(s.stack.0 as usize).and_then(|st| st.frames.first()) else { continue };
        let leaf = Leaf {
            event: s.event,
            process: s.process,
            tid: s.tid,
            slice: s.slice,
            image: first.image,
            offset: first.offset,
        };
        if let Some(sums) = leaves.get_mut(&leaf) {
            sums.stacks.push((s.stack, u64::from(s.count).saturating_mul(s.period)));
            with[usize::from(s.event.0)] = true;
        }
    }
    with
}

fn divide(leaf: Leaf, mut sums: Sums, rest: Callers, out: &mut Vec<Row>) {
    sums.stacks.sort_unstable();
    sums.stacks.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(later.1);
        }
        same
    });
    let taken: Vec<u64> = sums.stacks.iter().map(|s| s.1).collect();
    let covered = taken.iter().fold(0_u64, |a, b| a.saturating_add(*b));
    let left = sums.weight.saturating_sub(covered);
    let parts: Vec<u64> = taken.into_iter().chain([left]).collect();
    let weights = apportion(sums.weight, &parts);
    let counts = apportion(sums.samples, &parts);
    let callers = sums.stacks.iter().map(|s| Callers::Stack(s.0)).chain([rest]);
    let figures = weights.into_iter().zip(counts);
    for (callers, (weight, samples)) in callers.zip(figures).filter(|(_, f)| *f != (0, 0)) {
        let Leaf { event, process, tid, slice, image, offset } = leaf;
        out.push(Row { event, process, tid, slice, leaf: Frame { image, offset }, callers, samples, weight });
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
