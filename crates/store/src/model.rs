//! The values a store holds, as every other crate sees them: events, images, processes, samples,
//! stacks, rates, losses. On-disk encoding lives in `tables`, never here.
//!
//! Identities are content-addressed (a build-id, a hash of pid + start time + exec count), so that
//! segments of any hosts merge by plain union. Inside one [`Profile`] rows refer to images,
//! processes and events by index.

pub use crate::laps::{Course, LapCount};
use serde::{Deserialize, Serialize};
pub use whither_image::{IdKind, ImageId, ImageKind, ImageOffset, Segment};

/// What the unit of an event's period is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventUnit {
    /// Nanoseconds of CPU time.
    Nanoseconds,
    /// Occurrences of the event (cycles, cache misses, ...).
    Count,
}

/// How precisely a sample's address names the instruction that was waited for (paper P17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// The address is the instruction the event belongs to.
    Exact,
    /// The address is the instruction executed `n` after the one waited for (1 on the CPUs measured).
    Skid(u8),
    /// The address is off by an unknown, varying distance.
    Unknown,
}

/// An event that was sampled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// Name as the user gave it or `perf list` would (`cycles`, `cpu-clock`, `page-faults`).
    pub name: String,
    /// Unit of the period.
    pub unit: EventUnit,
    /// What the sampled address means.
    pub precision: Precision,
}

/// Index into [`Profile::events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventIx(pub u16);
/// Index into [`Profile::images`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageIx(pub u32);
/// Index into [`Profile::processes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessIx(pub u32);
/// Index into [`Profile::stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackIx(pub u32);

/// An image samples fell into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Identity.
    pub id: ImageId,
    /// What the identity was made from.
    pub id_kind: IdKind,
    /// What offsets count from.
    pub kind: ImageKind,
    /// Path as the process saw it (a label, never an identity), `[kernel]`, `[vdso]`,
    /// `[unknown: REASON]`, or the module's name in brackets.
    pub path: String,
    /// Executable segments, empty when not known or not an ELF file.
    pub segments: Vec<Segment>,
    /// Bytes of the file, 0 when not known.
    pub size: u64,
}

impl Image {
    /// Last component of the path (or the whole bracketed label): what listings print when short.
    #[must_use]
    pub fn short_name(&self) -> &str {
        if self.path.starts_with('[') { &self.path } else { self.path.rsplit('/').next().unwrap_or(&self.path) }
    }
}

/// A program in execution: one pid between two execs. In a daemon's database, lives of the same
/// command and cgroup are folded into one row with `pid` 0 unless asked otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Content-addressed key, see [`process_key`].
    pub key: u64,
    /// Process id (host view); 0 for a folded row, and for the kernel's own threads' idle work.
    pub pid: u32,
    /// Boot-time nanoseconds at which the process started; 0 for a folded row.
    pub start_ns: u64,
    /// Command name (`comm`).
    pub comm: String,
    /// Path of the executable, empty for kernel threads or when not known.
    pub exe: String,
    /// Cgroup path (`/system.slice/ssh.service`), empty when not known.
    pub cgroup: String,
}

/// What a thread calls itself (`prctl(PR_SET_NAME)`), where that is not the command's name and threads are kept apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadName {
    /// Process, never a folded one.
    pub process: ProcessIx,
    /// Thread id.
    pub tid: u32,
    /// Its latest name.
    pub name: String,
}

/// Key of a process row: FNV-1a of its parts, equal on every merge.
#[must_use]
pub fn process_key(host: &str, pid: u32, start_ns: u64, exec_seq: u32, comm: &str, cgroup: &str) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |bytes: &[u8]| {
        for &b in bytes.iter().chain(&[0xff]) {
            h = (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    eat(host.as_bytes());
    eat(&pid.to_le_bytes());
    eat(&start_ns.to_le_bytes());
    eat(&exec_seq.to_le_bytes());
    eat(comm.as_bytes());
    eat(cgroup.as_bytes());
    h
}

/// One aggregated row of samples. Rows of a profile are unique by everything but `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sample {
    /// Image the address is in.
    pub image: ImageIx,
    /// Event sampled.
    pub event: EventIx,
    /// Process, possibly folded.
    pub process: ProcessIx,
    /// Thread id, 0 when threads are not kept apart.
    pub tid: u32,
    /// Start of the time slice, in seconds since the Unix epoch (slices have the length that
    /// [`EpochMeta::slice_s`] tells).
    pub slice: u32,
    /// Position in the image.
    pub offset: ImageOffset,
    /// Mean distance between two samples in the event's unit (nanoseconds, cycles, ...).
    pub period: u64,
    /// Samples.
    pub count: u32,
}

impl Sample {
    /// Estimated amount of the event: `count` x `period`.
    #[must_use]
    pub fn weight(&self) -> u64 {
        u64::from(self.count).saturating_mul(self.period)
    }
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Image of the frame.
    pub image: ImageIx,
    /// For the first frame the sampled position; for callers the *return address minus one*, so
    /// that it lies inside the call instruction.
    pub offset: ImageOffset,
}

/// How a stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackEnd {
    /// Reached the bottom of the stack.
    Complete,
    /// Cut: depth limit, unreadable memory, missing unwind rules.
    Truncated,
}

/// A distinct stack, innermost frame first (kernel frames before user frames).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Frames.
    pub frames: Vec<Frame>,
    /// How it ended.
    pub end: StackEnd,
}

/// Samples that carried a stack, aggregated. A *second* table: these samples are in `samples` too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackSample {
    /// The stack.
    pub stack: StackIx,
    /// Event sampled.
    pub event: EventIx,
    /// Process, possibly folded.
    pub process: ProcessIx,
    /// Thread id, 0 when threads are not kept apart.
    pub tid: u32,
    /// Time slice as in [`Sample`].
    pub slice: u32,
    /// As in [`Sample`], multiplied by the thinning (one stack every n samples).
    pub period: u64,
    /// Samples.
    pub count: u32,
}

/// Where control went at a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// A conditional branch fell through.
    Fall,
    /// A conditional branch was taken; in a branch record: to another image, or to nobody knows where.
    Taken,
    /// An indirect jump or call, or in a branch record whatever was taken, went to this place of the same image.
    To(ImageOffset),
    /// A register sample at `pc` that decided nothing; `branch` is `pc`.
    Undecided,
}

/// What a row of branch evidence was seen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeSource {
    /// The CPU's records of the branches it took last, asked for once every so many *taken branches*: whatever is
    /// executed is equally likely to be seen, so that rows are counts of executions but for a factor.
    EvenRecords,
    /// The same, asked for with samples of time or of another event, near whose places more is seen. Weighed for that
    /// before they were counted, as far as the records themselves tell how.
    Records,
    /// Interpretation of sampled registers.
    Registers,
    /// Runs, as of records, of code that was executed in thought from sampled registers on, when it had left the sampled
    /// place behind.
    Walks,
}

/// Branch evidence, aggregated.
///
/// By registers: samples that carried them are a random part of those in `samples`; one of them gives a row for every
/// branch it decided, all with the sampled position, or one undecided row.
///
/// By records: control ran straight from `pc`, where a taken branch had led, to `branch`, and left from there; every
/// conditional branch in between fell through. What is in between only the code tells, so whoever has it also has to
/// check that such a run can have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeSample {
    /// Image of all the places.
    pub image: ImageIx,
    /// Position that was sampled. Kept, because positions that wait for the branch's own inputs are biased. Of
    /// records: where the run began.
    pub pc: ImageOffset,
    /// The branch; of records: where the run ended, which is no branch when an interrupt or a fault ended it.
    pub branch: ImageOffset,
    /// Where it went.
    pub way: Way,
    /// What it was seen by.
    pub source: EdgeSource,
    /// How often this was seen.
    pub count: u32,
}

/// How often one instruction ran while breakpoints stood on a set of up to four, summed over windows at random times. All
/// of a set share their windows, so their counts compare; time tells how much of the run they cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExactCount {
    /// Image of the instruction.
    pub image: ImageIx,
    /// The instruction.
    pub offset: ImageOffset,
    /// Which set: a hash of its members, so that equal sets of other recordings add up.
    pub set: u64,
    /// The set's member that rounds are counted by.
    pub leads: bool,
    /// Executions in all windows.
    pub hits: u64,
    /// Of those, executions after the leading member's first in the window (for the leading one itself with one more in
    /// some windows, for rounds under way at their end): these compare within a set. Windows begin where a program stands
    /// long, and what happens there counts too much in the hits.
    pub whole: u64,
    /// Executions in windows that hits took more than a third of: too dense to tell executions by time.
    pub crowded: u64,
    /// Sum over windows of the square of the executions, which tells how evenly they come.
    pub squares: u64,
    /// Windows in which a thread ran.
    pub windows: u64,
    /// Time that threads ran in these windows, nanoseconds; what hits took included.
    pub enabled_ns: u64,
    /// Of that, what the hits of the set took, by the cost of one as measured.
    pub hits_ns: u64,
}

impl ExactCount {
    /// What rows with equal keys are the parts of.
    #[must_use]
    pub fn key(&self) -> (ImageIx, ImageOffset, u64, bool) {
        (self.image, self.offset, self.set, self.leads)
    }

    /// Adds windows of the same place and set.
    pub fn add(&mut self, other: &Self) {
        let sum = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        sum(&mut self.hits, other.hits);
        sum(&mut self.whole, other.whole);
        sum(&mut self.crowded, other.crowded);
        sum(&mut self.squares, other.squares);
        sum(&mut self.windows, other.windows);
        sum(&mut self.enabled_ns, other.enabled_ns);
        sum(&mut self.hits_ns, other.hits_ns);
    }
}

/// Accounting of one CPU over one interval (paper P29, P32; design note 4.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Start of the interval, nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// Length, nanoseconds.
    pub length_ns: u64,
    /// CPU number.
    pub cpu: u32,
    /// Event name.
    pub event: String,
    /// Nominal period in the event's unit.
    pub period: u64,
    /// Samples the handler saw, idle included.
    pub delivered: u64,
    /// Of these, samples taken in the idle task (not in `samples`).
    pub idle: u64,
    /// Samples lost inside whither (table and ring full), by its own count.
    pub dropped: u64,
    /// Samples that should have come but did not (timer late, throttled), estimated.
    pub skipped: u64,
    /// Nanoseconds the hypervisor took the CPU away.
    pub steal_ns: u64,
}

/// Losses and costs of a whole recording, summed; shown in every report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// Samples dropped inside whither.
    pub dropped: u64,
    /// Samples estimated as skipped by the kernel.
    pub skipped: u64,
    /// Side-band records (mmap, exec, fork) the kernel reported lost.
    pub sideband_lost: u64,
    /// Samples whose process had several mappings at that address within the interval.
    pub ambiguous: u64,
    /// Stacks dropped because the ring was full.
    pub stacks_dropped: u64,
    /// Stacks that ended early.
    pub stacks_truncated: u64,
    /// Of these, stacks that go on behind what was copied of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stacks_beyond: u64,
    /// Bytes or segments that could not be written (disk full), as counted samples lost.
    pub unwritten: u64,
    /// Runs between two branch records of the CPU that cannot have happened, left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub impossible_runs: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Losses {
    /// Adds another account to this one.
    pub fn add(&mut self, other: &Self) {
        self.dropped += other.dropped;
        self.skipped += other.skipped;
        self.sideband_lost += other.sideband_lost;
        self.ambiguous += other.ambiguous;
        self.stacks_dropped += other.stacks_dropped;
        self.stacks_truncated += other.stacks_truncated;
        self.stacks_beyond += other.stacks_beyond;
        self.unwritten += other.unwritten;
        self.impossible_runs += other.impossible_runs;
    }
}

/// What the collector cost, measured while it ran (paper P19, P32).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Time one sample steals from what runs, interrupt included, nanoseconds.
    pub interrupt_ns: f64,
    /// Of that, our handler, nanoseconds.
    pub handler_ns: f64,
    /// CPU time of whither's own process, nanoseconds.
    pub user_ns: u64,
    /// Share of the time of what was recorded that sampling took, with what the collector's own process took of all CPUs' time, 0 to 1.
    pub share: f64,
    /// How much longer what was recorded took for it; `None` in recordings that did not measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slower: Option<Slower>,
    /// Budget asked for, 0 to 1; `None` when the rate was fixed by the user.
    pub budget: Option<f64>,
}

/// By how much sampling and counting made a program slower, as a part of the time it takes without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slower {
    /// By what was seen to be taken.
    pub least: f64,
    /// With what measurements do not see, and as if whither's own process had a CPU that the program wanted.
    pub most: f64,
}

/// What an epoch or recording says of itself (`epoch.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochMeta {
    /// Format version; an unknown one is refused.
    pub version: u32,
    /// Version of the tool that wrote it.
    pub tool: String,
    /// Host name.
    pub host: String,
    /// Boot id of the kernel.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel: String,
    /// CPU model as /proc/cpuinfo names it.
    pub cpu: String,
    /// CPUs on line.
    pub cpus: u32,
    /// Start, nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// End, nanoseconds since the Unix epoch; 0 while open.
    pub end_ns: u64,
    /// CLOCK_BOOTTIME at `start_ns`.
    pub start_boottime_ns: u64,
    /// Command line of whither.
    pub command: Vec<String>,
    /// Target's command line when one was launched.
    pub target: Vec<String>,
    /// Exit status of the launched target as a shell tells it (128+n for a signal).
    pub target_status: Option<i32>,
    /// Label the user gave.
    pub label: String,
    /// What was sampled: `whole system`, `pid 123`, `command`.
    pub scope: String,
    /// Back end: `bpf`, `perf-ring`, `import`.
    pub backend: String,
    /// Plain sentences for the user: which event was chosen and why, what could not be had.
    pub notes: Vec<String>,
    /// Length of a time slice, seconds.
    pub slice_s: u32,
    /// Whether threads are kept apart.
    pub threads: bool,
    /// Whether lives are folded by command and cgroup.
    pub folded: bool,
    /// Cost of the collector, latest figures.
    pub cost: OwnCost,
    /// Losses, summed over the epoch.
    pub losses: Losses,
    /// What was measured of the processor; `None` in recordings that did not measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<crate::CoreFacts>,
}

/// Everything read from one or several recordings or epochs, merged.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// One per recording or epoch read.
    pub epochs: Vec<EpochMeta>,
    /// Events, columns of a listing.
    pub events: Vec<Event>,
    /// Images.
    pub images: Vec<Image>,
    /// Processes.
    pub processes: Vec<Process>,
    /// Sample rows, sorted.
    pub samples: Vec<Sample>,
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Stack rows.
    pub stack_samples: Vec<StackSample>,
    /// Branch evidence, sorted. Not bound to an event; its time is that of its segment.
    pub edges: Vec<EdgeSample>,
    /// Exact counts, sorted. Their time is that of their segment.
    pub exact: Vec<ExactCount>,
    /// Pairs of moments, sorted. Their time is that of their segment.
    pub laps: Vec<LapCount>,
    /// Names of threads, sorted by process and thread.
    pub threads: Vec<ThreadName>,
    /// Accounting rows.
    pub rates: Vec<Rate>,
}

impl Profile {
    /// The image at an index.
    #[must_use]
    pub fn image(&self, ix: ImageIx) -> &Image {
        &self.images[ix.0 as usize]
    }

    /// The process at an index.
    #[must_use]
    pub fn process(&self, ix: ProcessIx) -> &Process {
        &self.processes[ix.0 as usize]
    }

    /// What a thread calls itself, where that is known and not the command's name.
    #[must_use]
    pub fn thread_name(&self, process: ProcessIx, tid: u32) -> Option<&str> {
        let at = self.threads.binary_search_by_key(&(process, tid), |t| (t.process, t.tid)).ok()?;
        Some(&self.threads[at].name)
    }

    /// The event at an index.
    #[must_use]
    pub fn event(&self, ix: EventIx) -> &Event {
        &self.events[ix.0 as usize]
    }

    /// Losses of all epochs, summed.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let mut sum = Losses::default();
        for e in &self.epochs {
            sum.add(&e.losses);
        }
        sum
    }
}
