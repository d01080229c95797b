//! The kernel-side back end of the causal profiler as values: what it is asked for and what it tells.
//! [`CausalBpf`] does it with `bpf/causal.bpf.c`: per-CPU ticks, virtual clocks by the rules of
//! `include/whither_debt.h`, delays by spinning in the thread's place. Not here: which target, which
//! amount, how long (the `causal` policy), names of code (the session).
//! Constraint: a window's facts are told as they were measured; nothing here judges them.

mod back_end;
mod code;
pub mod marks;
pub mod outside;
mod records;
mod skel;
mod trap;
pub mod visits;
mod words;

pub use back_end::CausalBpf;

use std::path::PathBuf;
use std::sync::Arc;
use whither_image::unwind_rows::UnwindRows;
use whither_store::causal::PointVisits;

/// How the back end works, fixed when it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CausalConfig {
    /// Time between two recorded samples of a CPU.
    pub period_ns: u64,
    /// Time between two ticks of a CPU while a window is open: each one credits and pays. Longer where a tick
    /// is found to cost more than a sixteenth of it, up to `period_ns`; [`Facts::unit_ns`] tells.
    pub tick_ns: u64,
    /// Longest delay inserted at once, with interrupts off. It ends before the next tick in any case.
    pub cap_ns: u64,
    /// Whether kernel mode counts for the code that called the kernel.
    pub kernel_time: bool,
    /// Whether children of watched processes are watched too.
    pub follow_forks: bool,
}

impl Default for CausalConfig {
    fn default() -> Self {
        Self { period_ns: 1_000_000, tick_ns: 250_000, cap_ns: 250_000, kernel_time: true, follow_forks: true }
    }
}

/// A range of a process's code: process, first address, first address behind it.
pub type CodeRange = (u32, u64, u64);

/// Mapped code of a process.
#[derive(Clone, Debug)]
pub struct CausalModule {
    /// First address of the mapped range.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Run-time address of [`UnwindRows::base`].
    pub base: u64,
    /// Whether its code can be a target.
    pub in_scope: bool,
    /// How to unwind in it.
    pub rows: Arc<UnwindRows>,
    /// Identity of the rows: equal keys are stored once.
    pub key: u64,
}

/// Which frame of a sample decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// The first frame in scope; the ranges are a line's.
    Line,
    /// The first frame in scope; the ranges are a function's.
    Function,
    /// Any frame.
    Inclusive,
}

/// What the next window speeds up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Armed {
    /// Nothing: a window without credit.
    #[default]
    Nothing,
    /// Code.
    Code {
        /// Which frame decides.
        unit: Unit,
        /// Where that frame has to be.
        ranges: Vec<CodeRange>,
        /// Where the next frames in scope have to be, the nearest caller first; empty: anywhere. At most
        /// [`MOST_CALLERS`].
        callers: Vec<Vec<CodeRange>>,
    },
    /// Waits that nobody of the group ends.
    OffCpu {
        /// [`WaitClass::bit`]s.
        classes: u32,
        /// Where the first frame in scope has to be; empty: anywhere.
        sites: Vec<CodeRange>,
    },
}

/// Most callers a path target may name.
pub const MOST_CALLERS: usize = 4;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitClass {
    /// A relative or absolute timer it has set.
    Sleep,
    /// A disk.
    Io,
    /// A socket, a pipe, or one of several descriptors.
    Net,
    /// A futex or another lock.
    Lock,
    /// Anything else: children, signals.
    Other,
}

impl WaitClass {
    /// Its bit in [`Armed::OffCpu`].
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// What one window measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Real time from [`CausalBpf::settled`] (without it, the begin) until crediting stopped. All that follows is
    /// about that time but for `threads`, `max_debt_ns`, `lost` and `stopped`.
    pub wall_ns: u64,
    /// Time in which debts were paid afterwards.
    pub drain_ns: u64,
    /// Delay that every thread owed or had paid at its end.
    pub delay_ns: u64,
    /// Ticks in the target.
    pub hits: u64,
    /// The group had one thread and nobody for it to wait for.
    pub alone: bool,
    /// Waits that other threads of the group ended in the run time that `hits` stand for: how often the target's threads
    /// took turns with others meanwhile.
    pub hit_waits: u64,
    /// Ticks in any thread of the group.
    pub samples: u64,
    /// By point, in order of [`CausalBpf::point`]; `under_way` holds the visits before the window, since the
    /// point was attached: whoever knows the pairs subtracts.
    pub visits: Vec<PointVisits>,
    /// Time that threads of the group waited for a core behind one another.
    pub own_wait_ns: u64,
    /// Time that they waited for a core behind others.
    pub foreign_wait_ns: u64,
    /// CPU time of programs that are not watched, on CPUs that the group may use; ours and the kernel's threads left out.
    pub others_ns: u64,
    /// Of `samples`, those in programs whose code was not known yet: nothing of it can be a hit.
    pub unknown: u64,
    /// Time the hypervisor took from this machine's CPUs.
    pub steal_ns: u64,
    /// Major page faults of the group.
    pub major_faults: u64,
    /// Threads of the group that a tick met.
    pub threads: u32,
    /// Largest debt a tick found.
    pub max_debt_ns: u64,
    /// Observations lost: full tables, updates that gave up.
    pub lost: u64,
    /// Whether a thread of the group was stopped or traced.
    pub stopped: bool,
    /// Whether all debts were paid at the end.
    pub drained: bool,
    /// Delays inserted, all threads, the drain included.
    pub inserted_ns: u64,
    /// What one hit or sample stands for.
    pub unit_ns: u64,
    /// Wake-ups at an absolute time: what they pace cannot be made faster.
    pub absolute_wakes: u64,
    /// Points visited by threads that had been woken so in this window, one bit each.
    pub absolute_points: u64,
    /// Who asked.
    pub asked: Asked,
}

/// Threads of the group that data from outside has woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// By data that the group had not asked for.
    pub times: u64,
    /// Of those, by programs of this machine that sleep to times that the world sets.
    pub by_world: u64,
    /// By data of which nobody knows which answer it waited for.
    pub unknown: u64,
    /// What those threads owed then, all together.
    pub unknown_debt_ns: u64,
}

/// A sample of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CausalSample {
    /// `CLOCK_MONOTONIC`.
    pub t_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Running or blocked.
    pub what: SampleWhat,
    /// Address in the first frame in scope: the program counter in the leaf, else one byte before the
    /// return address; 0 when no frame is in scope.
    pub site: u64,
    /// Frames, leaf first, up to [`whither_abi::causal::FRAMES`]; return addresses as they are.
    pub frames: Vec<u64>,
    /// Taken in kernel mode: `frames` begin at the call into the kernel.
    pub kernel: bool,
    /// Ticks it stands for: run time or blocked time divided by [`Facts::unit_ns`].
    pub weight: u32,
}

/// What a sampled thread was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleWhat {
    /// Running.
    Run,
    /// A wait that has just ended.
    Blocked {
        /// What it waited for.
        class: WaitClass,
        /// How long.
        ns: u64,
        /// Thread of the group that ended it, and where that thread was (as [`CausalSample::site`]).
        waker: Option<(u32, u64)>,
    },
}

/// Where visits of a progress point are seen. The two ends of a latency pair are two points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// An instruction of a file.
    Uprobe {
        /// A path under which it can be opened here.
        file: PathBuf,
        /// File offset of the instruction.
        offset: u64,
        /// One process; `None`: all that map the file (only those watched count).
        pid: Option<u32>,
    },
    /// The same for the end of a latency pair.
    UprobeEnd {
        /// A path under which it can be opened here.
        file: PathBuf,
        /// File offset of the instruction.
        offset: u64,
        /// One process; `None`: all that map the file (only those watched count).
        pid: Option<u32>,
    },
    /// A system call by number that returned no error.
    Syscall(u32),
    /// A kernel tracepoint hit by a watched thread.
    Tracepoint {
        /// Its group.
        group: String,
        /// Its name.
        name: String,
    },
    /// No visits but samples: ticks whose first frame in scope lies here.
    Sampled {
        /// Where.
        ranges: Vec<CodeRange>,
    },
}

/// What has been going on since the back end was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Time threads of the group waited for a core behind one another.
    pub own_wait_ns: u64,
    /// Time they waited for a core behind others.
    pub foreign_wait_ns: u64,
    /// Time the hypervisor took from this machine's CPUs.
    pub steal_ns: u64,
    /// Major page faults of the group.
    pub major_faults: u64,
    /// Time that ticks took from the group, interrupts included and delays excluded; with the other
    /// kernel-side programs when the kernel's statistics of BPF programs are on.
    pub handlers_ns: u64,
    /// Delays inserted.
    pub inserted_ns: u64,
    /// Those of them that were slept and left the core to others.
    pub slept_ns: u64,
    /// Run time of the group, delays excluded.
    pub run_ns: u64,
    /// What one hit or sample stands for.
    pub tick_ns: u64,
    /// Ticks are so far apart while a window is open.
    pub spacing_ns: u64,
    /// What a tick takes from the thread it meets, on average over the time: see [`CausalBpf::tick_cost`].
    pub tick_cost_ns: u64,
    /// What visits of progress points took from the group by their breakpoints, about.
    pub points_ns: u64,
}

/// How often ticks may come while a window is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// What one takes from the thread it meets, ns.
    pub cost_ns: u64,
    /// The shortest time between two of them.
    pub least_ns: u64,
    /// The longest one that leaves samples enough.
    pub most_ns: u64,
}

/// Something that happened to the watched processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A watched process has a child, watched too, with the same code.
    Forked {
        /// The child.
        pid: u32,
        /// Its parent.
        parent: u32,
    },
    /// A watched process runs another program: its code is unknown until [`CausalBpf::map`].
    Execed {
        /// The process.
        pid: u32,
    },
}

/// `CLOCK_MONOTONIC`.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}
