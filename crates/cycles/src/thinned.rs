//! What each stack stands for. Where a stack is taken of one sample in so many, a process with few samples has by chance
//! more or fewer stacks than its part: its stacks share the weight that its samples have, so that a tree adds up to what
//! every other grouping says. Only arithmetic; the tree is built in `flame`.

use crate::selection::{Filter, Selection, rows_of};
use rustc_hash::FxHashMap;
use whither_store::model::{EventIx, ProcessIx, Profile, StackSample};

/// Stacks of an event, each with its weight, and the weight of processes of which no stack was taken.
pub(crate) struct Weighed<'a> {
    pub(crate) stacks: Vec<(&'a StackSample, u64)>,
    pub(crate) without: Vec<(ProcessIx, u64)>,
}

/// The stacks of an event that pass a filter; of images and procedures the filter says nothing here.
pub(crate) fn weighed<'a>(profile: &'a Profile, event: EventIx, filter: &Filter) -> Weighed<'a> {
    let about = Filter { images: Vec::new(), procs: Vec::new(), ..filter.clone() };
    let passes = Selection::stack_filter(profile, &about);
    let stacks = profile.stack_samples.iter().filter(|s| s.event == event && passes(s));
    let mut stacks: Vec<_> = stacks.map(|s| (s, u64::from(s.count).saturating_mul(s.period))).collect();
    let rows = rows_of(profile, &about, |e| e == event);
    let rows = || rows.iter().map(|&row| &profile.samples[row as usize]);
    let taken: u64 = stacks.iter().map(|(s, _)| u64::from(s.count)).sum();
    let samples: u64 = rows().map(|s| u64::from(s.count)).sum();
    // As many stacks as samples, but for some that were lost.
    if taken == 0 || taken.saturating_mul(3) > samples.saturating_mul(2) {
        return Weighed { stacks, without: Vec::new() };
    }
    let mut samples: FxHashMap<ProcessIx, u64> = FxHashMap::default();
    rows().for_each(|s| add(samples.entry(s.process).or_default(), s.weight()));
    let mut whole: FxHashMap<ProcessIx, u64> = FxHashMap::default();
    stacks.iter().for_each(|(s, weight)| add(whole.entry(s.process).or_default(), *weight));
    // Of each process the part given away so far: rounding leaves nothing over.
    let mut given: FxHashMap<ProcessIx, u64> = FxHashMap::default();
    for (s, weight) in &mut stacks {
        let (of, total) = (samples.get(&s.process).copied().unwrap_or(0), whole[&s.process]);
        let so_far = given.entry(s.process).or_default();
        let before = part(*so_far, of, total);
        add(so_far, *weight);
        *weight = part(*so_far, of, total) - before;
    }
    let mut without: Vec<_> = samples.into_iter().filter(|(process, _)| !whole.contains_key(process)).collect();
    without.sort_unstable();
    Weighed { stacks, without }
}

fn add(sum: &mut u64, weight: u64) {
    *sum = sum.saturating_add(weight);
}

/// `of` x `n` / `total`.
fn part(n: u64, of: u64, total: u64) -> u64 {
    let part = u128::from(of) * u128::from(n) / u128::from(total.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
