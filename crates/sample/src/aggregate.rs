//! Rows in the making: counts by (image, event, process, thread, slice, offset) and by stack, until a
//! segment is cut. Only arithmetic lives here; who and what a sample belongs to is decided in `book`.
//! Constraint: sampling itself must cost next to nothing, so sample rows are a list that is appended to and
//! summed now and then (`rows`); a look into a large hash table for each entry took half of the collector's time.

use crate::branches::{Begun, Place, Walk, Weighing};
use crate::lives::ImageNo;
use crate::rows::Rows;
use rustc_hash::{FxHashMap, FxHashSet};
use whither_store::model::{
    Course, EdgeSample, EdgeSource, Event, EventIx, Frame, Image, ImageId, ImageIx, ImageOffset, LapCount, Process,
    ProcessIx, Profile, Rate, Stack, StackEnd, StackIx, StackSample, Way,
};

/// Number of a process row, handed out by [`Aggregate::process`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessNo(pub u32);

/// Key of a sample row, in the order of the rows in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Image.
    pub image: ImageNo,
    /// Event.
    pub event: u16,
    /// Process.
    pub process: ProcessNo,
    /// Thread, 0 when not kept apart.
    pub tid: u32,
    /// Slice start, seconds since the Unix epoch.
    pub slice: u32,
    /// Position in the image.
    pub offset: u64,
    /// Period.
    pub period: u64,
}

/// Key of a stack row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackKey {
    /// Stack, by [`Aggregate::stack`].
    pub stack: u32,
    /// Event.
    pub event: u16,
    /// Process.
    pub process: ProcessNo,
    /// Thread, 0 when not kept apart.
    pub tid: u32,
    /// Slice start.
    pub slice: u32,
    /// Period, thinning included.
    pub period: u64,
}

/// Key of a row of branch evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeKey {
    /// Image.
    pub image: ImageNo,
    /// Position sampled.
    pub pc: ImageOffset,
    /// The branch.
    pub branch: ImageOffset,
    /// Where it went.
    pub way: Way,
    /// What it was seen by.
    pub source: EdgeSource,
}

/// Image, and [`LapCount::key`] within it.
type LapKey = (ImageNo, ImageOffset, u8, Course);

/// The rows since the last cut.
#[derive(Debug, Default)]
pub struct Aggregate {
    samples: Rows,
    /// Branches, sorted and distinct up to `distinct_edges`, then as they came.
    edges: Vec<(EdgeKey, u32)>,
    distinct_edges: usize,
    /// Branch records that came with samples of time.
    weighing: Weighing,
    /// Walks.
    begun: Begun,
    /// Pairs of moments, by place, length and course.
    laps: FxHashMap<LapKey, LapCount>,
    total: u64,
    stacks: FxHashMap<StackKey, u32>,
    stack_numbers: FxHashMap<(Vec<(ImageNo, u64)>, StackEnd), u32>,
    process_numbers: FxHashMap<u64, ProcessNo>,
    processes: Vec<Process>,
    /// Accounting rows.
    pub rates: Vec<Rate>,
}

impl Aggregate {
    /// Counts samples.
    pub fn add(&mut self, key: Key, count: u32) {
        self.samples.add(key, count);
        self.total += u64::from(count);
    }

    /// Counts the runs of a stack of branch records. `under_way`: where its last record led.
    pub(crate) fn add_runs(&mut self, under_way: Option<Place>, rows: &[EdgeKey]) {
        if rows.iter().all(|r| r.source != EdgeSource::Records) {
            return rows.iter().for_each(|row| self.add_edge(*row));
        }
        self.weighing.add(under_way, rows);
        if self.weighing.is_full() {
            self.weigh();
        }
    }

    /// Counts a walk.
    pub(crate) fn add_walk(&mut self, walk: &Walk<'_>) {
        self.begun.add(walk);
        if self.begun.is_full() {
            self.weigh();
        }
    }

    fn weigh(&mut self) {
        for (key, count) in self.weighing.count().into_iter().chain(self.begun.count()) {
            self.add_edges(key, count);
        }
    }

    /// Counts a branch.
    pub fn add_edge(&mut self, key: EdgeKey) {
        self.add_edges(key, 1);
    }

    fn add_edges(&mut self, key: EdgeKey, count: u32) {
        if self.edges.len() >= LONGEST_EDGES.max(2 * self.distinct_edges) {
            self.sum_up_edges();
        }
        self.edges.push((key, count));
    }

    /// Counts a pair of moments; the image that the row names is left alone.
    pub fn add_lap(&mut self, image: ImageNo, row: LapCount) {
        let (_, offset, span, course) = row.key();
        self.laps
            .entry((image, offset, span, course))
            .or_insert(LapCount { pairs: 0, laps: 0, ns: 0, handler_ns: 0, ..row })
            .add(&row);
    }

    /// Counts a stack.
    pub fn add_stack(&mut self, key: StackKey, count: u32) {
        let slot = self.stacks.entry(key).or_insert(0);
        *slot = slot.saturating_add(count);
    }

    /// Number of a stack, innermost frame first.
    pub fn stack(&mut self, frames: Vec<(ImageNo, u64)>, end: StackEnd) -> u32 {
        let next = self.stack_numbers.len() as u32;
        *self.stack_numbers.entry((frames, end)).or_insert(next)
    }

    /// Number of a process row.
    pub fn process(&mut self, key: u64, describe: impl FnOnce() -> Process) -> ProcessNo {
        if let Some(no) = self.process_numbers.get(&key) {
            return *no;
        }
        let no = ProcessNo(self.processes.len() as u32);
        self.processes.push(describe());
        self.process_numbers.insert(key, no);
        no
    }

    /// Rows waiting to be cut, at most.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.samples.len()
            + self.stacks.len()
            + self.edges.len()
            + self.laps.len()
            + self.weighing.rows()
            + self.begun.rows()
    }

    /// Whether more distinct rows than these wait. The list is summed for it only when that may shorten it by much.
    pub fn exceeds(&mut self, rows: usize) -> bool {
        if self.rows() <= rows {
            return false;
        }
        if self.samples.len() >= self.samples.distinct() + rows / 4 {
            self.samples.sum_up();
        }
        if self.edges.len() >= self.distinct_edges + rows / 4 {
            self.sum_up_edges();
        }
        self.samples.distinct() + self.stacks.len() + self.edges.len() + self.laps.len() > rows
    }

    fn sum_up_edges(&mut self) {
        sum_up(&mut self.edges);
        self.distinct_edges = self.edges.len();
    }

    /// Samples waiting to be cut.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Takes all rows out as a profile whose lists hold just what the rows use, and starts anew, but for what walks tell of the next ones.
    pub fn cut<'a>(&mut self, events: &[Event], image: impl Fn(ImageNo) -> &'a Image) -> Profile {
        let profile = self.snapshot(events, image);
        *self = Self { begun: std::mem::take(&mut self.begun), ..Self::default() };
        profile
    }

    /// The rows so far as a profile; they stay. Images, processes and rows are in the order that a segment has them in.
    pub fn snapshot<'a>(&mut self, events: &[Event], image: impl Fn(ImageNo) -> &'a Image) -> Profile {
        self.weigh();
        self.sum_up_edges();
        let mut stacks: Vec<_> = self.stack_numbers.iter().collect();
        stacks.sort_unstable_by_key(|(_, no)| **no);
        let in_stacks = stacks.iter().flat_map(|((frames, _), _)| frames.iter().map(|&(i, _)| i));
        let in_edges = self.edges.iter().map(|(k, _)| k.image);
        let in_laps = self.laps.keys().map(|k| k.0);
        let used = self.samples.images().chain(in_stacks).chain(in_edges).chain(in_laps);
        let images = Renumber::of(used, |no| image(no).id);
        let mut processes: Vec<ProcessNo> = (0..self.processes.len() as u32).map(ProcessNo).collect();
        processes.sort_by_key(|no| self.processes[no.0 as usize].key);
        let mut places = vec![ProcessIx(0); processes.len()];
        for (no, ix) in processes.iter().zip(0..) {
            places[no.0 as usize] = ProcessIx(ix);
        }
        let process = |no: ProcessNo| places[no.0 as usize];
        let mut profile = Profile { events: events.to_vec(), ..Profile::default() };
        profile.processes = processes.iter().map(|no| self.processes[no.0 as usize].clone()).collect();
        profile.rates.clone_from(&self.rates);
        profile.samples = self.samples.samples(|no| images.get(no), process);
        profile.stacks = stacks
            .into_iter()
            .map(|((frames, end), _)| Stack {
                frames: frames.iter().map(|&(i, o)| Frame { image: images.get(i), offset: ImageOffset(o) }).collect(),
                end: *end,
            })
            .collect();
        profile.stack_samples = self.stacks.iter().map(|(k, n)| stack_sample(k, *n, process(k.process))).collect();
        profile.stack_samples.sort_unstable();
        profile.edges = self.edges.iter().map(|(k, n)| edge(k, *n, images.get(k.image))).collect();
        profile.edges.sort_unstable();
        profile.laps = self.laps.iter().map(|(k, row)| LapCount { image: images.get(k.0), ..*row }).collect();
        profile.laps.sort_unstable();
        profile.images = images.order.iter().map(|no| image(*no).clone()).collect();
        profile
    }
}

/// A list of branches this long is summed, so that memory stays bounded: 3 MiB.
const LONGEST_EDGES: usize = 64 << 10;

/// Sorts, and adds up counts of equal keys.
fn sum_up<K: Ord + Copy>(list: &mut Vec<(K, u32)>) {
    list.sort_unstable_by_key(|(key, _)| *key);
    list.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(later.1);
        }
        same
    });
}

fn edge(k: &EdgeKey, count: u32, image: ImageIx) -> EdgeSample {
    EdgeSample { image, pc: k.pc, branch: k.branch, way: k.way, source: k.source, count }
}

fn stack_sample(k: &StackKey, count: u32, process: ProcessIx) -> StackSample {
    StackSample {
        stack: StackIx(k.stack),
        event: EventIx(k.event),
        process,
        tid: k.tid,
        slice: k.slice,
        period: k.period,
        count,
    }
}

/// The images in use, in the order of their ids, and the place of each.
struct Renumber {
    map: FxHashMap<ImageNo, ImageIx>,
    order: Vec<ImageNo>,
}

impl Renumber {
    fn of(used: impl Iterator<Item = ImageNo>, id: impl Fn(ImageNo) -> ImageId) -> Self {
        let used: FxHashSet<ImageNo> = used.collect();
        let mut order: Vec<ImageNo> = used.into_iter().collect();
        order.sort_unstable_by_key(|&no| (id(no), no));
        let map = order.iter().copied().zip((0..).map(ImageIx)).collect();
        Self { map, order }
    }

    fn get(&self, no: ImageNo) -> ImageIx {
        *self.map.get(&no).expect("every image of a row is numbered")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::LONGEST_LIST;
    use whither_store::model::{IdKind, ImageKind};

    fn key(image: u32, offset: u64) -> Key {
        Key { image: ImageNo(image), event: 0, process: ProcessNo(0), tid: 0, slice: 0, offset, period: 1 }
    }

    /// No rows, of one process.
    fn of_one_process() -> Aggregate {
        let mut rows = Aggregate::default();
        let text = String::new;
        rows.process(1, || Process { key: 1, pid: 7, start_ns: 0, comm: text(), exe: text(), cgroup: text() });
        rows
    }

    fn image() -> Image {
        Image {
            id: ImageId([1; 20]),
            id_kind: IdKind::Synthetic,
            kind: ImageKind::Elf,
            path: String::new(),
            segments: Vec::new(),
            size: 0,
        }
    }

    #[test]
    fn equal_keys_are_one_row_however_long_the_list_was() {
        let mut rows = of_one_process();
        let many = LONGEST_LIST as u64 + 1000;
        for i in 0..many {
            rows.add(key((i % 3) as u32, i % 500), 2);
        }
        assert!(rows.rows() <= LONGEST_LIST, "the list was not summed up");
        assert_eq!(rows.total(), 2 * many);
        let image = image();
        let profile = rows.snapshot(&[], |_| &image);
        assert_eq!(profile.samples.len(), 1500);
        assert_eq!(profile.samples.iter().map(|s| u64::from(s.count)).sum::<u64>(), 2 * many);
        assert!(profile.samples.is_sorted());
        assert_eq!(profile.images.len(), 3);
    }

    #[test]
    fn repeated_rows_do_not_count_against_the_limit() {
        let mut rows = Aggregate::default();
        for i in 0..2000 {
            rows.add(key(0, i % 100), 1);
        }
        assert!(!rows.exceeds(1000), "100 distinct rows");
        assert_eq!(rows.rows(), 100);
        for i in 0..1200 {
            rows.add(key(1, i), 1);
        }
        assert!(rows.exceeds(1000), "1,300 distinct rows");
    }

    #[test]
    fn branches_are_summed_and_bounded() {
        let mut rows = Aggregate::default();
        let source = EdgeSource::Registers;
        let edge =
            |pc: u64, way| EdgeKey { image: ImageNo(3), pc: ImageOffset(pc), branch: ImageOffset(9), way, source };
        let many = LONGEST_EDGES as u64 + 1000;
        for i in 0..many {
            rows.add_edge(edge(i % 100, if i % 4 == 0 { Way::Taken } else { Way::Fall }));
        }
        assert!(rows.rows() < LONGEST_EDGES, "the list was not summed up");
        assert!(!rows.exceeds(400), "100 distinct rows");
        let image = image();
        let profile = rows.cut(&[], |_| &image);
        assert_eq!((profile.edges.len(), profile.images.len()), (100, 1));
        assert!(profile.edges.is_sorted());
        let taken = profile.edges.iter().filter(|e| e.way == Way::Taken).map(|e| u64::from(e.count)).sum::<u64>();
        assert_eq!(taken, many.div_ceil(4));
        assert_eq!(rows.rows(), 0);
    }

    #[test]
    fn counts_stop_at_the_largest() {
        let mut rows = of_one_process();
        rows.add(key(0, 0), u32::MAX - 1);
        rows.add(key(0, 0), 5);
        let image = image();
        assert_eq!(rows.cut(&[], |_| &image).samples[0].count, u32::MAX);
        assert_eq!((rows.rows(), rows.total()), (0, 0));
    }
}
