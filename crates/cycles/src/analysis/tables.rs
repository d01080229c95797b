//! The samples and the branch evidence of a selection, sorted by place, so that one procedure after the other can
//! be analysed without reading everything again.

use super::retired::counts_instructions;
use crate::selection::{Filter, Selection, rows_of};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use whither_image::ImageOffset;
use whither_store::model::{EdgeSample, ExactCount, ImageIx, LapCount, ProcessIx, Sample};

/// Samples of the main event at one place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) at: ImageOffset,
    pub(crate) samples: f64,
    /// Nanoseconds or occurrences of the event.
    pub(crate) weight: f64,
}

/// See the module.
pub(crate) struct Tables<'a> {
    places: FxHashMap<ImageIx, Vec<Place>>,
    /// Samples of executed instructions.
    retired: FxHashMap<ImageIx, Vec<Place>>,
    edges: &'a [EdgeSample],
    exact: &'a [ExactCount],
    laps: &'a [LapCount],
    /// Amount of the main event in processes that have samples in an image, of images with counts.
    run: FxHashMap<ImageIx, f64>,
    /// The selection leaves out processes or times, which branch evidence does not tell apart.
    filtered: bool,
    /// Samples of the main event.
    pub(crate) samples: f64,
}

impl<'a> Tables<'a> {
    /// `filter`: the one that made the selection.
    pub(crate) fn of(selection: &Selection<'a>, filter: &Filter) -> Self {
        let profile = selection.profile;
        let main = selection.rows.iter().map(|&row| selection.sample(row));
        let places = by_place(main.filter(|s| selection.column(s.event) == Some(0)));
        let instructions: Vec<bool> = profile.events.iter().map(counts_instructions).collect();
        let retired = match instructions.contains(&true) {
            true => rows_of(profile, filter, |e| instructions[e.0 as usize]),
            false => Vec::new(),
        };
        Self {
            samples: places.values().flatten().map(|p| p.samples).sum(),
            places,
            retired: by_place(retired.into_iter().map(|row| selection.sample(row))),
            edges: &profile.edges,
            exact: &profile.exact,
            laps: &profile.laps,
            run: run_of_images(selection),
            filtered: narrows(filter),
        }
    }

    /// Executions that breakpoints counted, in all images.
    pub(crate) fn exact(&self) -> &'a [ExactCount] {
        self.exact
    }

    /// Amount of the main event in the processes that have samples in an image: the time that counts stand for.
    /// `None` where the samples are of less than what was counted.
    pub(crate) fn run(&self, image: ImageIx) -> Option<f64> {
        self.run.get(&image).copied().filter(|_| !self.filtered)
    }

    /// Whether branches were seen, or executions counted, in more than the samples are of.
    pub(crate) fn foreign_branches(&self) -> bool {
        self.filtered && !(self.edges.is_empty() && self.exact.is_empty() && self.laps.is_empty())
    }

    /// Samples in a range of an image, by place; a place may stand there more than once.
    pub(crate) fn samples_in(&self, image: ImageIx, range: &Range<ImageOffset>) -> &[Place] {
        within(self.places.get(&image), range)
    }

    /// Samples of executed instructions in a range of an image; their weight is the number of instructions.
    pub(crate) fn retired_in(&self, image: ImageIx, range: &Range<ImageOffset>) -> &[Place] {
        within(self.retired.get(&image), range)
    }

    /// Branch evidence sampled in a range of an image, or by records of runs that began there.
    pub(crate) fn edges_in(&self, image: ImageIx, range: &Range<ImageOffset>) -> &'a [EdgeSample] {
        let at = |to: ImageOffset| self.edges.partition_point(|e| (e.image, e.pc) < (image, to));
        &self.edges[at(range.start)..at(range.end)]
    }

    /// Pairs of moments in a range of an image.
    pub(crate) fn laps_in(&self, image: ImageIx, range: &Range<ImageOffset>) -> &'a [LapCount] {
        let at = |to: ImageOffset| self.laps.partition_point(|l| (l.image, l.offset) < (image, to));
        &self.laps[at(range.start)..at(range.end)]
    }
}

/// Whether a filter leaves out processes or times.
fn narrows(filter: &Filter) -> bool {
    let Filter { images: _, procs: _, processes, threads, cgroups, side: _, seconds } = filter;
    !(processes.is_empty() && threads.is_empty() && cgroups.is_empty()) || seconds.is_some()
}

fn by_place<'s>(samples: impl Iterator<Item = &'s Sample>) -> FxHashMap<ImageIx, Vec<Place>> {
    let mut places: FxHashMap<ImageIx, Vec<Place>> = FxHashMap::default();
    for s in samples {
        let place = Place { at: s.offset, samples: f64::from(s.count), weight: s.weight() as f64 };
        places.entry(s.image).or_default().push(place);
    }
    places.values_mut().for_each(|p| p.sort_unstable_by_key(|p| p.at));
    places
}

fn within<'p>(places: Option<&'p Vec<Place>>, range: &Range<ImageOffset>) -> &'p [Place] {
    let all = places.map_or(&[][..], Vec::as_slice);
    &all[all.partition_point(|p| p.at < range.start)..all.partition_point(|p| p.at < range.end)]
}

fn run_of_images(selection: &Selection<'_>) -> FxHashMap<ImageIx, f64> {
    let profile = selection.profile;
    let counted = profile.exact.iter().map(|e| e.image).chain(profile.laps.iter().map(|l| l.image));
    let mut processes: FxHashMap<ImageIx, FxHashSet<ProcessIx>> =
        counted.map(|image| (image, FxHashSet::default())).collect();
    if processes.is_empty() {
        return FxHashMap::default();
    }
    let main = || profile.samples.iter().filter(|s| selection.column(s.event) == Some(0));
    for s in main() {
        if let Some(processes) = processes.get_mut(&s.image) {
            processes.insert(s.process);
        }
    }
    let mut of_process: FxHashMap<ProcessIx, f64> = FxHashMap::default();
    main().for_each(|s| *of_process.entry(s.process).or_default() += s.weight() as f64);
    let sum = |processes: FxHashSet<ProcessIx>| processes.iter().filter_map(|p| of_process.get(p)).sum();
    processes.into_iter().map(|(image, processes)| (image, sum(processes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use crate::selection::{Side, ThreadIs};
    use whither_store::model::{EdgeSource, Way};

    #[test]
    fn branches_are_those_of_all_processes_and_times() {
        let at = ImageOffset(8);
        let (way, source) = (Way::Fall, EdgeSource::Registers);
        let edge = EdgeSample { image: ImageIx(0), pc: at, branch: at, way, source, count: 1 };
        let foreign = |edges: &[EdgeSample], filter: &Filter| {
            let (places, retired, run) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
            let filtered = narrows(filter);
            Tables { places, retired, edges, exact: &[], laps: &[], run, filtered, samples: 0.0 }.foreign_branches()
        };
        let pattern = || vec![Pattern::parse("a").unwrap()];
        let harmless = Filter { images: pattern(), procs: pattern(), side: Side::User, ..Filter::default() };
        assert!(!foreign(std::slice::from_ref(&edge), &harmless));
        let narrower = [
            Filter { threads: vec![ThreadIs::Tid(7)], ..Filter::default() },
            Filter { cgroups: pattern(), ..Filter::default() },
            Filter { seconds: Some(3..9), ..Filter::default() },
        ];
        assert!(narrower.iter().all(|f| foreign(std::slice::from_ref(&edge), f)));
        assert!(!foreign(&[], &narrower[0]), "there is no branch evidence to be wrong");
    }
}
