//! Rows in the making: counts by (image, event, process, thread, slice, offset) and by stack, until a
//! segment is cut. Only arithmetic lives here; who and what a sample belongs to is decided in `book`.

use crate::lives::ImageNo;
use rustc_hash::FxHashMap;
use whither_store::model::{
    Event, EventIx, Frame, Image, ImageIx, ImageOffset, Process, ProcessIx, Profile, Rate, Sample, Stack, StackEnd,
    StackIx, StackSample,
};

/// Number of a process row, handed out by [`Aggregate::process`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessNo(pub u32);

/// Key of a sample row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// The rows since the last cut.
#[derive(Debug, Default)]
pub struct Aggregate {
    samples: FxHashMap<Key, u32>,
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
        let slot = self.samples.entry(key).or_insert(0);
        *slot = slot.saturating_add(count);
        self.total += u64::from(count);
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

    /// Distinct rows waiting to be cut.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.samples.len() + self.stacks.len()
    }

    /// Samples waiting to be cut.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Takes all rows out as a profile whose lists hold just what the rows use, and starts anew.
    pub fn cut<'a>(&mut self, events: &[Event], image: impl Fn(ImageNo) -> &'a Image) -> Profile {
        let profile = self.snapshot(events, image);
        *self = Self::default();
        profile
    }

    /// The rows so far as a profile; they stay.
    pub fn snapshot<'a>(&self, events: &[Event], image: impl Fn(ImageNo) -> &'a Image) -> Profile {
        let mut images = Renumber::default();
        let mut stacks: Vec<_> = self.stack_numbers.iter().collect();
        stacks.sort_unstable_by_key(|(_, no)| **no);
        let mut profile = Profile { events: events.to_vec(), processes: self.processes.clone(), ..Profile::default() };
        profile.rates.clone_from(&self.rates);
        profile.samples = self.samples.iter().map(|(k, n)| sample(k, *n, images.of(k.image))).collect();
        profile.samples.sort_unstable();
        profile.stacks = stacks
            .into_iter()
            .map(|((frames, end), _)| Stack {
                frames: frames.iter().map(|&(i, o)| Frame { image: images.of(i), offset: ImageOffset(o) }).collect(),
                end: *end,
            })
            .collect();
        profile.stack_samples = self.stacks.iter().map(|(k, n)| stack_sample(k, *n)).collect();
        profile.stack_samples.sort_unstable();
        profile.images = images.order.iter().map(|no| image(*no).clone()).collect();
        profile
    }
}

fn sample(k: &Key, count: u32, image: ImageIx) -> Sample {
    Sample {
        image,
        event: EventIx(k.event),
        process: ProcessIx(k.process.0),
        tid: k.tid,
        slice: k.slice,
        offset: ImageOffset(k.offset),
        period: k.period,
        count,
    }
}

fn stack_sample(k: &StackKey, count: u32) -> StackSample {
    StackSample {
        stack: StackIx(k.stack),
        event: EventIx(k.event),
        process: ProcessIx(k.process.0),
        tid: k.tid,
        slice: k.slice,
        period: k.period,
        count,
    }
}

#[derive(Default)]
struct Renumber {
    map: FxHashMap<ImageNo, ImageIx>,
    order: Vec<ImageNo>,
}

impl Renumber {
    fn of(&mut self, no: ImageNo) -> ImageIx {
        let next = ImageIx(self.order.len() as u32);
        let ix = *self.map.entry(no).or_insert(next);
        if ix == next {
            self.order.push(no);
        }
        ix
    }
}
