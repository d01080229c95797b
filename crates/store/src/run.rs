//! The canonical form of a profile: events by name, images by id, processes by key, stacks by content
//! hash, rows sorted by those. Two canonical forms merge by a walk over sorted lists; this is what
//! segments hold. Nothing here touches a file.

use crate::merge::{into_run, merge_runs};
use crate::model::{
    EdgeSample, Event, EventIx, EventUnit, ExactCount, Frame, Image, ImageIx, LapCount, Precision, Process, ProcessIx,
    Profile, Rate, Sample, Stack, StackEnd, StackIx, StackSample, ThreadName,
};
use rayon::prelude::*;
use sha1_smol::Sha1;
use std::cmp::Reverse;

/// A distinct stack under its content hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HashedStack {
    pub(crate) hash: u64,
    pub(crate) stack: Stack,
}

/// An event, and its place among the columns the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankedEvent {
    pub(crate) event: Event,
    pub(crate) rank: u32,
}

/// A profile in canonical order. Every list is sorted and without duplicates.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Run {
    pub(crate) events: Vec<RankedEvent>,
    pub(crate) images: Vec<Image>,
    pub(crate) processes: Vec<Process>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) stacks: Vec<HashedStack>,
    pub(crate) stack_samples: Vec<StackSample>,
    pub(crate) edges: Vec<EdgeSample>,
    pub(crate) exact: Vec<ExactCount>,
    pub(crate) laps: Vec<LapCount>,
    pub(crate) threads: Vec<ThreadName>,
    pub(crate) rates: Vec<Rate>,
}

impl Run {
    /// Brings a profile into canonical order; images, processes and stacks that no row refers to
    /// are left out.
    pub(crate) fn from_profile(profile: Profile) -> Self {
        let events = profile.events.into_iter().zip(0..).map(|(event, rank)| RankedEvent { event, rank });
        Self {
            events: events.collect(),
            images: profile.images,
            processes: profile.processes,
            samples: profile.samples,
            stacks: profile.stacks.into_iter().map(|stack| HashedStack { hash: 0, stack }).collect(),
            stack_samples: profile.stack_samples,
            edges: profile.edges,
            exact: profile.exact,
            laps: profile.laps,
            threads: profile.threads,
            rates: profile.rates,
        }
        .pruned()
        .canonical()
    }

    /// Union of runs, counts added up.
    pub(crate) fn merge(mut runs: Vec<Self>) -> Self {
        if runs.len() < 2 {
            return runs.pop().unwrap_or_default();
        }
        let mut out = Self::default();
        let maps = out.unite(&mut runs);
        runs.par_iter_mut().zip(&maps).for_each(|(run, map)| run.renumber(map));
        let stacks: Vec<Vec<HashedStack>> = runs.iter_mut().map(|r| std::mem::take(&mut r.stacks)).collect();
        let (stacks, stack_maps) = union(stacks, |s| s.hash, |_, _| ());
        out.stacks = stacks;
        runs.iter_mut().zip(&stack_maps).for_each(|(run, map)| run.renumber_stacks(map));
        out.rates = sorted_rates(runs.iter_mut().flat_map(|r| std::mem::take(&mut r.rates)).collect());
        out.stack_samples = merge_runs(runs.iter_mut().map(|r| std::mem::take(&mut r.stack_samples)).collect());
        out.edges = merge_runs(runs.iter_mut().map(|r| std::mem::take(&mut r.edges)).collect());
        out.exact = counts(runs.iter_mut().flat_map(|r| std::mem::take(&mut r.exact)).collect());
        out.laps = laps(runs.iter_mut().flat_map(|r| std::mem::take(&mut r.laps)).collect());
        out.threads = latest_names(runs.iter_mut().flat_map(|r| std::mem::take(&mut r.threads)).collect());
        out.samples = merge_runs(runs.into_iter().map(|r| r.samples).collect());
        out
    }

    /// The profile as everyone else sees it: events in the order they were asked for.
    pub(crate) fn into_profile(self) -> Profile {
        let mut run = self.pruned();
        let mut order: Vec<usize> = (0..run.events.len()).collect();
        order.sort_by(|&a, &b| (run.events[a].rank, a).cmp(&(run.events[b].rank, b)));
        if !order.is_sorted() {
            run.reorder_events(&order);
        }
        Profile {
            epochs: Vec::new(),
            events: run.events.into_iter().map(|e| e.event).collect(),
            images: run.images,
            processes: run.processes,
            samples: run.samples,
            stacks: run.stacks.into_iter().map(|s| s.stack).collect(),
            stack_samples: run.stack_samples,
            edges: run.edges,
            exact: run.exact,
            laps: run.laps,
            threads: run.threads,
            rates: run.rates,
        }
    }

    /// Whether there is anything to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
            && self.stack_samples.is_empty()
            && self.edges.is_empty()
            && self.exact.is_empty()
            && self.laps.is_empty()
            && self.rates.is_empty()
    }

    /// Drops images, processes and stacks that nothing refers to; the order is kept.
    pub(crate) fn pruned(mut self) -> Self {
        let mut used = vec![false; self.stacks.len()];
        self.stack_samples.iter().for_each(|s| used[s.stack.0 as usize] = true);
        let map = keep_used(&mut self.stacks, &used);
        self.stack_samples.iter_mut().for_each(|s| s.stack = StackIx(map[s.stack.0 as usize]));

        let mut used = vec![false; self.images.len()];
        self.samples.iter().for_each(|s| used[s.image.0 as usize] = true);
        self.frames().for_each(|f| used[f.image.0 as usize] = true);
        self.edges.iter().for_each(|e| used[e.image.0 as usize] = true);
        self.exact.iter().for_each(|e| used[e.image.0 as usize] = true);
        self.laps.iter().for_each(|l| used[l.image.0 as usize] = true);
        let images = keep_used(&mut self.images, &used);

        let mut used = vec![false; self.processes.len()];
        self.samples.iter().for_each(|s| used[s.process.0 as usize] = true);
        self.stack_samples.iter().for_each(|s| used[s.process.0 as usize] = true);
        self.threads.retain(|t| used[t.process.0 as usize]);
        let processes = keep_used(&mut self.processes, &used);

        let events = (0..u16::MAX).take(self.events.len()).map(u32::from).collect();
        self.renumber(&Maps { events, images, processes });
        self
    }

    fn canonical(self) -> Self {
        let mut runs = vec![self];
        let mut out = Self::default();
        let maps = out.unite(&mut runs);
        let mut run = runs.swap_remove(0);
        run.renumber(&maps[0]);
        let hashed: Vec<HashedStack> = run
            .stacks
            .iter()
            .map(|s| HashedStack { hash: hash(&s.stack, &out.images), stack: s.stack.clone() })
            .collect();
        let (stacks, stack_maps) = union(vec![hashed], |s| s.hash, |_, _| ());
        run.renumber_stacks(&stack_maps[0]);
        out.stacks = stacks;
        out.samples = into_run(run.samples);
        out.stack_samples = into_run(run.stack_samples);
        out.edges = into_run(run.edges);
        out.exact = counts(run.exact);
        out.laps = laps(run.laps);
        out.threads = latest_names(run.threads);
        out.rates = sorted_rates(run.rates);
        out
    }

    /// Takes the events, images and processes of the runs; tells how each run's indexes change.
    fn unite(&mut self, runs: &mut [Self]) -> Vec<Maps> {
        let take = |runs: &mut [Self]| runs.iter_mut().map(|r| std::mem::take(&mut r.events)).collect();
        let (events, event_maps) = union(take(runs), |e: &RankedEvent| e.event.name.clone(), absorb_event);
        let images = runs.iter_mut().map(|r| std::mem::take(&mut r.images)).collect();
        let (images, image_maps) = union(images, |i: &Image| i.id, absorb_image);
        let processes = runs.iter_mut().map(|r| std::mem::take(&mut r.processes)).collect();
        let (processes, process_maps) = union(processes, |p: &Process| p.key, absorb_process);
        (self.events, self.images, self.processes) = (events, images, processes);
        event_maps
            .into_iter()
            .zip(image_maps)
            .zip(process_maps)
            .map(|((events, images), processes)| Maps { events, images, processes })
            .collect()
    }

    fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.stacks.iter().flat_map(|s| &s.stack.frames)
    }

    fn renumber(&mut self, map: &Maps) {
        if map.keeps_all() {
            return;
        }
        for s in &mut self.samples {
            s.image = ImageIx(map.images[s.image.0 as usize]);
            s.event = map.event(s.event);
            s.process = ProcessIx(map.processes[s.process.0 as usize]);
        }
        for s in &mut self.stack_samples {
            s.event = map.event(s.event);
            s.process = ProcessIx(map.processes[s.process.0 as usize]);
        }
        for t in &mut self.threads {
            t.process = ProcessIx(map.processes[t.process.0 as usize]);
        }
        for e in &mut self.edges {
            e.image = ImageIx(map.images[e.image.0 as usize]);
        }
        for e in &mut self.exact {
            e.image = ImageIx(map.images[e.image.0 as usize]);
        }
        for l in &mut self.laps {
            l.image = ImageIx(map.images[l.image.0 as usize]);
        }
        for frame in self.stacks.iter_mut().flat_map(|s| &mut s.stack.frames) {
            frame.image = ImageIx(map.images[frame.image.0 as usize]);
        }
    }

    fn renumber_stacks(&mut self, map: &[u32]) {
        self.stack_samples.iter_mut().for_each(|s| s.stack = StackIx(map[s.stack.0 as usize]));
    }

    fn reorder_events(&mut self, order: &[usize]) {
        let mut events = vec![0; order.len()];
        for (new, &old) in (0..).zip(order) {
            events[old] = new;
        }
        let identity = |n: usize| (0..u32::MAX).take(n).collect();
        let (images, processes) = (identity(self.images.len()), identity(self.processes.len()));
        self.renumber(&Maps { events, images, processes });
        self.events = order.iter().map(|&i| self.events[i].clone()).collect();
        self.samples.sort_unstable();
        self.stack_samples.sort_unstable();
    }
}

/// New index of each old one.
struct Maps {
    events: Vec<u32>,
    images: Vec<u32>,
    processes: Vec<u32>,
}

impl Maps {
    /// Whether every index stays what it is, as where a sampler hands over rows in order.
    fn keeps_all(&self) -> bool {
        [&self.events, &self.images, &self.processes]
            .iter()
            .all(|map| map.iter().zip(0..).all(|(&new, old)| new == old))
    }

    fn event(&self, old: EventIx) -> EventIx {
        EventIx(u16::try_from(self.events[old.0 as usize]).expect("event indexes come from u16 indexes"))
    }
}

/// Content hash of a stack: equal on every host and in every merge.
fn hash(stack: &Stack, images: &[Image]) -> u64 {
    let mut sha = Sha1::new();
    for frame in &stack.frames {
        sha.update(&images[frame.image.0 as usize].id.0);
        sha.update(&frame.offset.0.to_le_bytes());
    }
    // A stack without frames has no row that could tell how it ended.
    let cut = stack.frames.is_empty() || stack.end == StackEnd::Truncated;
    sha.update(&[u8::from(cut)]);
    let digest = sha.digest().bytes();
    u64::from_le_bytes(digest[..8].try_into().expect("a SHA-1 digest has 20 bytes"))
}

/// Sorted union by key, and for each part the new index of each item.
fn union<T, K: Ord>(parts: Vec<Vec<T>>, key: impl Fn(&T) -> K, absorb: impl Fn(&mut T, &T)) -> (Vec<T>, Vec<Vec<u32>>) {
    let mut maps: Vec<Vec<u32>> = parts.iter().map(|p| vec![0; p.len()]).collect();
    let all =
        parts.into_iter().enumerate().flat_map(|(p, items)| items.into_iter().enumerate().map(move |(i, t)| (p, i, t)));
    let mut all: Vec<(K, usize, usize, T)> = all.map(|(p, i, t)| (key(&t), p, i, t)).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out: Vec<T> = Vec::new();
    let mut last: Option<K> = None;
    for (k, p, i, item) in all {
        match out.last_mut().filter(|_| last.as_ref() == Some(&k)) {
            Some(kept) => absorb(kept, &item),
            None => out.push(item),
        }
        last = Some(k);
        maps[p][i] = u32::try_from(out.len() - 1).expect("indexes of a profile are 32 bits");
    }
    (out, maps)
}

fn keep_used<T>(items: &mut Vec<T>, used: &[bool]) -> Vec<u32> {
    let mut next = 0;
    let map = used.iter().map(|&u| {
        let at = next;
        next += u32::from(u);
        at
    });
    let map = map.collect();
    let mut flags = used.iter();
    items.retain(|_| flags.next() == Some(&true));
    map
}

/// Two descriptions of one event: what they do not agree on is not known.
fn absorb_event(kept: &mut RankedEvent, other: &RankedEvent) {
    kept.rank = kept.rank.min(other.rank);
    if kept.event.unit != other.event.unit {
        kept.event.unit = EventUnit::Count;
    }
    if kept.event.precision != other.event.precision {
        kept.event.precision = Precision::Unknown;
    }
}

/// Two descriptions of one image: every field is chosen by a total order, so that the result
/// does not depend on which came first.
fn absorb_image(kept: &mut Image, other: &Image) {
    // Code made at run time is without a name until a map of it turns up: the kind that knows more names it.
    let path = |i: &Image| (i.path.is_empty(), i.kind, i.path.len(), i.path.clone());
    if path(other) < path(kept) {
        kept.path.clone_from(&other.path);
    }
    let segments = |i: &Image| Reverse(i.segments.iter().map(|s| (s.offset, s.address, s.size)).collect::<Vec<_>>());
    if segments(other) < segments(kept) {
        kept.segments.clone_from(&other.segments);
    }
    kept.size = kept.size.max(other.size);
    kept.kind = kept.kind.min(other.kind);
    if (other.id_kind as u8) < (kept.id_kind as u8) {
        kept.id_kind = other.id_kind;
    }
}

fn absorb_process(kept: &mut Process, other: &Process) {
    let better = |a: &str, b: &str| !a.is_empty() && (b.is_empty() || a < b);
    if better(&other.exe, &kept.exe) {
        kept.exe.clone_from(&other.exe);
    }
    if better(&other.comm, &kept.comm) {
        kept.comm.clone_from(&other.comm);
    }
    if better(&other.cgroup, &kept.cgroup) {
        kept.cgroup.clone_from(&other.cgroup);
    }
    kept.pid = kept.pid.max(other.pid);
    kept.start_ns = kept.start_ns.max(other.start_ns);
}

fn counts(rows: Vec<ExactCount>) -> Vec<ExactCount> {
    summed(rows, |a, b| a.key() == b.key(), ExactCount::add)
}

fn laps(rows: Vec<LapCount>) -> Vec<LapCount> {
    summed(rows, |a, b| a.key() == b.key(), LapCount::add)
}

/// Sorted, rows of equal keys added up. A recording has hundreds of them.
fn summed<R: Ord>(mut rows: Vec<R>, equal: impl Fn(&R, &R) -> bool, add: impl Fn(&mut R, &R)) -> Vec<R> {
    rows.sort_unstable();
    rows.dedup_by(|later, kept| {
        let same = equal(later, kept);
        if same {
            add(kept, later);
        }
        same
    });
    rows
}

/// Sorted; of several names of one thread the last, as runs are merged in the order in which they were sampled.
fn latest_names(mut names: Vec<ThreadName>) -> Vec<ThreadName> {
    names.sort_by_key(|t| (t.process, t.tid));
    names.dedup_by(|later, kept| {
        let same = (later.process, later.tid) == (kept.process, kept.tid);
        if same {
            std::mem::swap(&mut later.name, &mut kept.name);
        }
        same
    });
    names
}

fn sorted_rates(mut rates: Vec<Rate>) -> Vec<Rate> {
    rates.sort_by(|a, b| rate_key(a).cmp(&rate_key(b)));
    rates
}

type RateKey<'a> = (u64, u32, &'a str, u64, u64, u64, u64, u64, u64, u64);

fn rate_key(r: &Rate) -> RateKey<'_> {
    (r.start_ns, r.cpu, &r.event, r.length_ns, r.period, r.delivered, r.idle, r.dropped, r.skipped, r.steal_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_image::{IdKind, ImageId, ImageKind};

    fn image(kind: ImageKind, path: &str) -> Image {
        let (id, path) = (ImageId([7; 20]), path.to_owned());
        Image { id, id_kind: IdKind::Synthetic, kind, path, segments: Vec::new(), size: 0 }
    }

    #[test]
    fn code_that_got_its_map_late_bears_its_name_everywhere() {
        let (before, after) = (image(ImageKind::Anon, "[anon]"), image(ImageKind::Jit, "[jit: java]"));
        for (first, second) in [(&before, &after), (&after, &before)] {
            let mut kept = first.clone();
            absorb_image(&mut kept, second);
            assert_eq!(kept, after);
        }
        let mut kept = image(ImageKind::Elf, "/usr/lib/libc.so.6");
        absorb_image(&mut kept, &image(ImageKind::Elf, "/lib/libc.so.6"));
        assert_eq!(kept.path, "/lib/libc.so.6", "of two paths of one file the shorter");
    }
}
