//! Sample rows in the making: a list that is appended to and summed now and then. Rows share most of what tells them
//! apart, so that is kept once (a group) and a row is 16 bytes; sorting whole keys of 40 took a quarter of what sealing
//! took. Who and what a sample belongs to is decided in `book`.

use crate::aggregate::{Key, ProcessNo};
use crate::lives::ImageNo;
use rustc_hash::FxHashMap;
use std::ops::Range;
use whither_store::model::{EventIx, ImageIx, ImageOffset, ProcessIx, Sample};

/// A list this long is summed, so that memory stays bounded: 4 MiB.
pub(crate) const LONGEST_LIST: usize = 256 << 10;

/// The rows since the last cut.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    groups: Vec<Group>,
    numbers: FxHashMap<Group, u32>,
    recent: Option<(Group, u32)>,
    /// Sorted and distinct up to `distinct`, then as they came.
    list: Vec<Row>,
    distinct: usize,
}

/// A [`Key`] without its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group {
    image: ImageNo,
    event: u16,
    process: ProcessNo,
    tid: u32,
    slice: u32,
    period: u64,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    offset: u64,
    group: u32,
    count: u32,
}

impl Rows {
    /// Counts samples.
    pub(crate) fn add(&mut self, key: Key, count: u32) {
        if self.list.len() >= LONGEST_LIST.max(2 * self.distinct) {
            self.sum_up();
        }
        if self.list.capacity() == 0 {
            // What is not written to takes no memory, and growing step by step copies.
            self.list.reserve(LONGEST_LIST);
        }
        let Key { image, event, process, tid, slice, offset, period } = key;
        let group = self.number(Group { image, event, process, tid, slice, period });
        self.list.push(Row { offset, group, count });
    }

    fn number(&mut self, group: Group) -> u32 {
        // Drained samples come sorted by process and position.
        if let Some((_, number)) = self.recent.filter(|(recent, _)| *recent == group) {
            return number;
        }
        let groups = &mut self.groups;
        let number = *self.numbers.entry(group).or_insert_with(|| {
            groups.push(group);
            groups.len() as u32 - 1
        });
        self.recent = Some((group, number));
        number
    }

    /// Rows, at most.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Rows that were distinct when they were last summed.
    pub(crate) fn distinct(&self) -> usize {
        self.distinct
    }

    /// Sorts, and adds up counts of equal rows.
    pub(crate) fn sum_up(&mut self) {
        // A sort that makes use of what is sorted already.
        self.list.sort_by_key(place);
        self.list.dedup_by(|later, kept| {
            let same = place(later) == place(kept);
            if same {
                kept.count = kept.count.saturating_add(later.count);
            }
            same
        });
        self.distinct = self.list.len();
    }

    /// Images of all rows, with repetitions.
    pub(crate) fn images(&self) -> impl Iterator<Item = ImageNo> {
        self.groups.iter().map(|g| g.image)
    }

    /// The rows in the order of a profile, summed; `image` and `process` tell the new numbers.
    pub(crate) fn samples(
        &mut self,
        image: impl Fn(ImageNo) -> ImageIx,
        process: impl Fn(ProcessNo) -> ProcessIx,
    ) -> Vec<Sample> {
        self.sum_up();
        let mut groups: Vec<(Sample, Range<usize>)> = Vec::new();
        let mut start = 0;
        for rows in self.list.chunk_by(|a, b| a.group == b.group) {
            let g = self.groups[rows[0].group as usize];
            let first = Sample {
                image: image(g.image),
                event: EventIx(g.event),
                process: process(g.process),
                tid: g.tid,
                slice: g.slice,
                offset: ImageOffset(0),
                period: g.period,
                count: 0,
            };
            groups.push((first, start..start + rows.len()));
            start += rows.len();
        }
        groups.sort_unstable_by_key(|(first, _)| *first);
        let mut samples = Vec::with_capacity(self.list.len());
        for same_but_period in groups.chunk_by(|(a, _), (b, _)| Sample { period: b.period, ..*a } == *b) {
            let begin = samples.len();
            for (first, range) in same_but_period {
                let sample = |r: &Row| Sample { offset: ImageOffset(r.offset), count: r.count, ..*first };
                samples.extend(self.list[range.clone()].iter().map(sample));
            }
            if same_but_period.len() > 1 {
                samples[begin..].sort_unstable();
            }
        }
        samples
    }
}

fn place(row: &Row) -> u128 {
    u128::from(row.group) << 64 | u128::from(row.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_order_of_a_profile_and_none_is_lost() {
        let key = |image: u32, process: u32, offset, period| Key {
            image: ImageNo(image),
            event: 0,
            process: ProcessNo(process),
            tid: 0,
            slice: 60,
            offset,
            period,
        };
        let mut rows = Rows::default();
        for n in 0..1000_u64 {
            // Images and processes get their numbers turned round; periods change midway.
            rows.add(key((n % 3) as u32, (n % 2) as u32, n * 7919 % 50, 1 + n / 500), 1);
        }
        let samples = rows.samples(|i| ImageIx(2 - i.0), |p| ProcessIx(1 - p.0));
        assert!(samples.is_sorted());
        assert_eq!(samples.iter().map(|s| s.count).sum::<u32>(), 1000);
        assert_eq!(samples.len(), 300, "what repeats after 150 samples, under two periods");
        let of = |image, offset, period| {
            let mut at = samples.iter().filter(|s| (s.image, s.offset.0, s.period) == (ImageIx(image), offset, period));
            (at.clone().map(|s| s.count).sum::<u32>(), at.next().map(|s| s.process))
        };
        let expected = |image: u64, offset: u64, period: u64| {
            (0..1000).filter(|n| 2 - n % 3 == image && n * 7919 % 50 == offset && 1 + n / 500 == period).count() as u32
        };
        for (image, offset, period) in [(0, 0, 1), (1, 7, 2), (2, 49, 1)] {
            assert_eq!(of(image as u32, offset, period).0, expected(image, offset, period));
        }
    }
}
