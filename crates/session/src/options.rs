//! What a user can ask of a recording, as plain values: the CLI fills them, `session` obeys.

use std::path::PathBuf;
use std::time::Duration;

/// Whom to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every process, the kernel and interrupts, on all CPUs.
    System,
    /// Running processes and what they fork.
    Pids(Vec<u32>),
    /// A command to launch, and what it forks.
    Command(Vec<String>),
}

/// How fast to sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Keep the collector's own share of CPU time below this (0 to 1); the rate follows.
    Budget(f64),
    /// Samples per second and CPU, whatever it costs (capped at 20 kHz in a VM without PMU).
    Hertz(u32),
    /// One sample every so many units of the event.
    Period(u64),
}

/// Call stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stacks {
    /// None.
    Off,
    /// Kernel stack and user frame pointers.
    FramePointers,
    /// Kernel stack, and the user's unwound with `.eh_frame` from this many bytes of stack.
    Dwarf(u32),
}

/// Branch directions: by interpreting sampled registers, or by the CPU's own records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// `Walks` where BPF works (`Memory` where the kernel is too old for them), else `Records` where the kernel offers them, else none; of the whole system as much as
    /// costs next to nothing: of fewer samples where code is dear to interpret. What is missing is noted.
    Auto,
    /// The CPU's branch records, through perf rings; refused where there are none.
    Records,
    /// Registers, and the memory operands of branches.
    Memory,
    /// The same, and walks by BPF: code is executed in thought from some samples on.
    Walks,
    /// Registers only.
    Registers,
    /// None.
    Off,
}

/// Which collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// BPF where allowed, else the perf ring; the output says which.
    Auto,
    /// In-kernel aggregation by BPF, or an error.
    Bpf,
    /// perf ring buffers, aggregated here.
    Ring,
}

/// Options of `whither record`.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Whom.
    pub scope: Scope,
    /// Event names as the user wrote them; empty for the best time source there is.
    pub events: Vec<String>,
    /// Events that share the remaining counters by turns.
    pub multiplexed: Vec<String>,
    /// A command to run while the system or processes are sampled: the recording ends with it. Empty with
    /// [`Scope::Command`].
    pub during: Vec<String>,
    /// How fast.
    pub pace: Pace,
    /// Call stacks.
    pub stacks: Stacks,
    /// One stack every so many samples.
    pub stack_every: u32,
    /// Branch directions.
    pub edges: Edges,
    /// Count executions in procedures whose whole names match one of these regular expressions. Not of the whole system.
    pub exact: Vec<String>,
    /// Stop after this long; `None`: until the command ends or Ctrl-C.
    pub duration: Option<Duration>,
    /// Recording directory to create.
    pub output: PathBuf,
    /// Replace an existing recording.
    pub overwrite: bool,
    /// Collector.
    pub backend: Backend,
    /// Length of a time slice.
    pub slice: Duration,
    /// Keep threads apart.
    pub threads: bool,
    /// Store code and lines of sampled functions, so that `annotate` works on another machine.
    pub store_code: bool,
    /// Leave kernel samples out.
    pub user_only: bool,
    /// whither's own command line, for the record.
    pub command_line: Vec<String>,
    /// Where what was measured of this machine's core is kept between recordings.
    pub cache_dir: Option<PathBuf>,
}

/// Options of `whither daemon`.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// What to sample (scope is always the system; `output`, `duration` and `overwrite` are unused).
    pub record: RecordOptions,
    /// Database directory.
    pub db: PathBuf,
    /// Drain the kernel's tables this often.
    pub drain: Duration,
    /// Write a segment this often.
    pub seal: Duration,
    /// Begin a new epoch this often.
    pub epoch: Duration,
    /// Drop epochs older than this.
    pub keep: Option<Duration>,
    /// Keep the database below this many bytes.
    pub max_disk: Option<u64>,
    /// Images whose samples are kept per process (regular expression on the path).
    pub per_process: Option<String>,
    /// Stop after this long (tests and demos).
    pub duration: Option<Duration>,
}

/// What happened while recording, for progress lines on stderr.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Sampling has begun: event names, rate per CPU in hertz, notes for the user.
    Started {
        /// Event names chosen.
        events: Vec<String>,
        /// Samples per second and CPU.
        hertz: f64,
        /// `bpf` or `perf-ring`.
        backend: String,
        /// Plain sentences.
        notes: Vec<String>,
    },
    /// So many samples so far, after so long.
    Tick {
        /// Samples.
        samples: u64,
        /// Since the start.
        elapsed: Duration,
    },
    /// The governor changed the rate.
    Rate {
        /// New rate per CPU.
        hertz: f64,
    },
    /// A segment was sealed.
    Sealed {
        /// Rows in it.
        rows: u64,
        /// Its bytes on disk.
        bytes: u64,
    },
    /// Something the user should know; sampling goes on.
    Warning(String),
    /// Sampling has ended; symbols are being stored.
    Finishing,
}

/// How a recording ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Where it is.
    pub path: PathBuf,
    /// Samples in it.
    pub samples: u64,
    /// Samples that could not be stored.
    pub unwritten: u64,
    /// Distinct rows.
    pub rows: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Status of the launched target as a shell tells it.
    pub target_status: Option<i32>,
}
