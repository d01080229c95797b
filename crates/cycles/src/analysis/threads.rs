//! Whether several threads run an image's code at once, from nothing but how much time was sampled when: a process that spends more time in a slice
//! than the slice is long ran on two cores there. That is the evidence that another core may write what a load reads; what lies in one cache
//! line as seen by one thread proves nothing then.

use super::machine::time_ns;
use crate::selection::slice_length;
use rustc_hash::{FxHashMap, FxHashSet};
use whither_store::model::{EventIx, ImageIx, ImageKind, ProcessIx, Profile, Sample};

/// What is known of the threads that run some code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One in each process, or one core for all.
    One,
    /// There may be others at the same time.
    #[default]
    Unknown,
    /// Several ran at once.
    Parallel,
}

/// More than one core's time is spent from this many on: clocks and ends of slices are off by some percent.
const TWO_CORES: f64 = 1.2;
/// Fewer samples in a slice tell nothing.
const FEWEST: u64 = 50;

/// The threads that run each of these images.
pub(super) fn threads(
    profile: &Profile,
    clock_hz: Option<f64>,
    images: &FxHashSet<ImageIx>,
) -> FxHashMap<ImageIx, Threads> {
    if profile.epochs.iter().all(|e| e.cpus == 1) && !profile.epochs.is_empty() {
        return images.iter().map(|&image| (image, Threads::One)).collect();
    }
    let busy = Busy::of(profile, clock_hz);
    images.iter().map(|&image| (image, busy.of_image(profile, image))).collect()
}

/// Time and samples of each process in each slice, and its threads.
struct Busy<'a> {
    slices: FxHashMap<(ProcessIx, u32), (f64, u64)>,
    tids: FxHashMap<ProcessIx, FxHashSet<u32>>,
    by_image: FxHashMap<ImageIx, FxHashSet<ProcessIx>>,
    profile: &'a Profile,
}

impl<'a> Busy<'a> {
    fn of(profile: &'a Profile, clock_hz: Option<f64>) -> Self {
        let mut busy =
            Self { slices: FxHashMap::default(), tids: FxHashMap::default(), by_image: FxHashMap::default(), profile };
        for s in profile.samples.iter().filter(|s| s.event == EventIx(0)) {
            busy.add(s, clock_hz);
        }
        busy
    }

    fn add(&mut self, s: &Sample, clock_hz: Option<f64>) {
        let ns = time_ns(self.profile.event(s.event), s.weight() as f64, clock_hz).unwrap_or(0.0);
        let slice = self.slices.entry((s.process, s.slice)).or_default();
        *slice = (slice.0 + ns, slice.1 + u64::from(s.count));
        self.tids.entry(s.process).or_default().insert(s.tid);
        self.by_image.entry(s.image).or_default().insert(s.process);
    }

    fn of_image(&self, profile: &Profile, image: ImageIx) -> Threads {
        // Each core runs the kernel's code, on its own data mostly.
        if matches!(profile.image(image).kind, ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf) {
            return Threads::Unknown;
        }
        let Some(processes) = self.by_image.get(&image) else { return Threads::Unknown };
        let mut slices = self.slices.iter().filter(|((process, _), _)| processes.contains(process));
        if slices.any(|((_, slice), (ns, samples))| *samples >= FEWEST && *ns > TWO_CORES * self.length_ns(*slice)) {
            return Threads::Parallel;
        }
        let kept_apart = !profile.epochs.is_empty() && profile.epochs.iter().all(|e| e.threads);
        let one = |process: &ProcessIx| self.tids.get(process).is_some_and(|tids| tids.len() == 1);
        // Processes may share memory; one of one thread cannot with itself.
        if kept_apart && processes.len() == 1 && processes.iter().all(one) { Threads::One } else { Threads::Unknown }
    }

    /// How much of a slice was recorded.
    fn length_ns(&self, slice: u32) -> f64 {
        const NS: u64 = 1_000_000_000;
        let from = u64::from(slice) * NS;
        let to = from + u64::from(slice_length(self.profile)) * NS;
        let covered = |e: &whither_store::model::EpochMeta| e.end_ns.min(to).saturating_sub(e.start_ns.max(from));
        self.profile.epochs.iter().map(covered).max().unwrap_or(0).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whither_image::ImageOffset;
    use whither_store::model::{EpochMeta, Event, EventUnit, IdKind, Image, Precision};

    /// A process that spent so many milliseconds in each of three slices of a second, on so many CPUs; samples of a millisecond.
    fn profile(busy_ms: [u32; 3], cpus: u32, tids: &[u32]) -> Profile {
        let sample = |(i, (ms, tid)): (usize, (u32, u32))| Sample {
            image: ImageIx(0),
            event: EventIx(0),
            process: ProcessIx(0),
            tid,
            slice: 10 + i as u32,
            offset: ImageOffset(0x100 + u64::from(tid)),
            period: 1_000_000,
            count: ms,
        };
        let rows = busy_ms.into_iter().enumerate();
        let samples = rows.flat_map(|(i, ms)| tids.iter().map(move |tid| sample((i, (ms, *tid))))).collect();
        let epoch = EpochMeta {
            start_ns: 10_000_000_000,
            end_ns: 12_300_000_000,
            slice_s: 1,
            cpus,
            threads: tids.iter().all(|t| *t != 0),
            ..EpochMeta::default()
        };
        let image = Image {
            id: Default::default(),
            id_kind: IdKind::Synthetic,
            kind: ImageKind::Elf,
            path: "/a".into(),
            segments: vec![],
            size: 0,
        };
        let event = Event { name: "cpu-clock".into(), unit: EventUnit::Nanoseconds, precision: Precision::Skid(1) };
        Profile { epochs: vec![epoch], events: vec![event], images: vec![image], samples, ..Profile::default() }
    }

    fn told(busy_ms: [u32; 3], cpus: u32, tids: &[u32]) -> Threads {
        let images = [ImageIx(0)].into_iter().collect();
        threads(&profile(busy_ms, cpus, tids), None, &images)[&ImageIx(0)]
    }

    #[test]
    fn more_time_than_there_was_is_several_threads() {
        assert_eq!(told([900, 1000, 290], 4, &[0]), Threads::Unknown, "one core's time");
        assert_eq!(told([900, 1500, 290], 4, &[0]), Threads::Parallel);
        assert_eq!(told([100, 100, 590], 4, &[0]), Threads::Parallel, "the last slice was recorded in part");
        assert_eq!(told([1000, 1000, 290], 4, &[7]), Threads::One, "threads are kept apart, and there is one");
        assert_eq!(told([400, 400, 100], 4, &[7, 8]), Threads::Unknown, "in turn, as far as is known");
        assert_eq!(told([900, 1000, 290], 1, &[7, 8]), Threads::One, "one core");
    }
}
