//! The samples and the branch evidence of a selection, sorted by place, so that one procedure after the other can
//! be analysed without reading everything again.

use crate::selection::{Filter, Selection};
use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_image::ImageOffset;
use whither_store::model::{EdgeSample, ImageIx};

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
    edges: &'a [EdgeSample],
    /// The selection leaves out processes or times, which branch evidence does not tell apart.
    filtered: bool,
    /// Samples of the main event.
    pub(crate) samples: f64,
}

impl<'a> Tables<'a> {
    pub(crate) fn of(selection: &Selection<'a>) -> Self {
        let mut places: FxHashMap<ImageIx, Vec<Place>> = FxHashMap::default();
        let mut samples = 0.0;
        for &row in &selection.rows {
            let s = selection.sample(row);
            if selection.column(s.event) == Some(0) {
                let place = Place { at: s.offset, samples: f64::from(s.count), weight: s.weight() as f64 };
                places.entry(s.image).or_default().push(place);
                samples += f64::from(s.count);
            }
        }
        places.values_mut().for_each(|p| p.sort_unstable_by_key(|p| p.at));
        Self { places, edges: &selection.profile.edges, filtered: false, samples }
    }

    /// With the filter that made the selection.
    pub(crate) fn filtered(mut self, filter: &Filter) -> Self {
        let Filter { images: _, procs: _, processes, threads, cgroups, side: _, seconds } = filter;
        self.filtered = !(processes.is_empty() && threads.is_empty() && cgroups.is_empty()) || seconds.is_some();
        self
    }

    /// Whether branches were seen in more than the samples are of.
    pub(crate) fn foreign_branches(&self) -> bool {
        self.filtered && !self.edges.is_empty()
    }

    /// Samples in a range of an image, by place; a place may stand there more than once.
    pub(crate) fn samples_in(&self, image: ImageIx, range: &Range<ImageOffset>) -> &[Place] {
        let all = self.places.get(&image).map_or(&[][..], Vec::as_slice);
        &all[all.partition_point(|p| p.at < range.start)..all.partition_point(|p| p.at < range.end)]
    }

    /// Branch evidence sampled in a range of an image.
    pub(crate) fn edges_in(&self, image: ImageIx, range: &Range<ImageOffset>) -> &'a [EdgeSample] {
        let at = |to: ImageOffset| self.edges.partition_point(|e| (e.image, e.pc) < (image, to));
        &self.edges[at(range.start)..at(range.end)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use crate::selection::Side;
    use whither_store::model::Way;

    #[test]
    fn branches_are_those_of_all_processes_and_times() {
        let at = ImageOffset(8);
        let edge = EdgeSample { image: ImageIx(0), pc: at, branch: at, way: Way::Fall, count: 1 };
        let foreign = |edges: &[EdgeSample], filter: &Filter| {
            Tables { places: FxHashMap::default(), edges, filtered: false, samples: 0.0 }
                .filtered(filter)
                .foreign_branches()
        };
        let pattern = || vec![Pattern::parse("a").unwrap()];
        let harmless = Filter { images: pattern(), procs: pattern(), side: Side::User, ..Filter::default() };
        assert!(!foreign(std::slice::from_ref(&edge), &harmless));
        let narrower = [
            Filter { threads: vec![7], ..Filter::default() },
            Filter { cgroups: pattern(), ..Filter::default() },
            Filter { seconds: Some(3..9), ..Filter::default() },
        ];
        assert!(narrower.iter().all(|f| foreign(std::slice::from_ref(&edge), f)));
        assert!(!foreign(&[], &narrower[0]), "there is no branch evidence to be wrong");
    }
}
