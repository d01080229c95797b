//! Call-path profiles as values: what the instrumentation engine counted, at one moment, and what a
//! recording of it holds. Plain numbers and addresses made module-relative; shares, self times and
//! percentiles are worked out by the `calls` analysis, names by whoever has the symbols.
//!
//! All times are nanoseconds. Counters only grow, so the difference of two snapshots of one session
//! is what happened between them.

use crate::call_steps::CallScript;
use serde::{Deserialize, Serialize};
use whither_image::ImageId;

/// Everything a session knew at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallSnapshot {
    /// `CLOCK_MONOTONIC` at which it was taken.
    pub at_ns: u64,
    /// What was watched, and for how long.
    pub whole: Whole,
    /// Processes of the tree that were instrumented, ended ones included.
    pub processes: Vec<CallProcess>,
    /// Threads that had calls, ended ones included; empty unless [`CallPath::threads`] is wanted.
    #[serde(default)]
    pub threads: Vec<CallThread>,
    /// Modules that frames and points refer to.
    pub modules: Vec<CallModule>,
    /// Probe points, removed ones included; [`CallPath::point`] is an index into this.
    pub points: Vec<CallPoint>,
    /// Probes that came while numbers were counted already.
    #[serde(default)]
    pub late: Vec<LatePoint>,
    /// When probes were away again: taken back, or switched off.
    #[serde(default)]
    pub gaps: Vec<Gap>,
    /// Frames as a forest: [`CallPath::frame`] is an index into this.
    pub frames: Vec<CallFrame>,
    /// One row per distinct call path of a point.
    pub paths: Vec<CallPath>,
    /// Calls that had been entered and not left.
    pub in_progress: Vec<InProgress>,
    /// What is missing from the counts.
    pub lost: CallLost,
    /// What measuring itself cost; already subtracted from nothing.
    pub own_cost: OwnCost,
    /// Sentences the user must see: fallbacks taken, exits given up, rights missing.
    pub notes: Vec<String>,
}

/// A probe that was added behind the begin of the session, or the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatePoint {
    /// [`CallPoint::id`].
    pub id: u32,
    /// How long numbers had been counted before.
    pub after_ns: u64,
    /// What the processes had spent by then; absent in recordings that did not note it.
    #[serde(default)]
    pub spent: Option<Spent>,
}

/// A time in which a probe counted nothing: from its removal on, or while it was switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// [`CallPoint::id`].
    pub id: u32,
    /// Its begin.
    pub from: Moment,
    /// Its end; absent while it lasts.
    pub until: Option<Moment>,
}

/// A moment of a session, or since its last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// How long numbers had been counted.
    pub after_ns: u64,
    /// What the processes had spent.
    pub spent: Spent,
}

/// What watched processes had spent from the begin of the session, or the last reset, to some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// CPU time of all, as in [`Whole::cpu_ns`].
    pub cpu_ns: u64,
    /// Sum of thread lifetimes, as in [`Whole::thread_ns`].
    pub thread_ns: u64,
}

/// Totals of the watched processes over the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// From the session's begin (or last reset) to the snapshot.
    pub wall_ns: u64,
    /// CPU time of all watched processes in that time.
    pub cpu_ns: u64,
    /// Sum of thread lifetimes in that time.
    pub thread_ns: u64,
    /// Threads alive at the snapshot.
    pub threads: u32,
    /// Threads that had ended by then, as far as they were seen.
    #[serde(default)]
    pub threads_ended: u32,
    /// How far `thread_ns` may be off: threads came and went that only looks at /proc have seen.
    #[serde(default)]
    pub thread_unsure_ns: u64,
    /// CPU time of those threads whose waiting for CPUs was seen.
    #[serde(default)]
    pub ran_ns: u64,
    /// How long these could have run and had no CPU.
    #[serde(default)]
    pub queued_ns: u64,
}

/// A process that was instrumented.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallProcess {
    /// Process id.
    pub pid: u32,
    /// Path of the executable.
    pub exe: String,
    /// Command line, words separated by spaces.
    pub command: String,
    /// Exit status as waitpid gives it, when it ended under our eyes.
    pub status: Option<i32>,
    /// Monotonic clock, ns, when it began to execute this program, or was met doing so; 0 in recordings that are older than this.
    #[serde(default)]
    pub since_ns: u64,
}

/// A thread that called probed functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallThread {
    /// Thread id, as in [`CallPath::threads`].
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name (`comm`), empty when not known.
    pub name: String,
    /// How much of [`Whole::wall_ns`] it lived, 0 when not known.
    pub lived_ns: u64,
}

/// A file mapped executable in the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallModule {
    /// Path as the target saw it.
    pub path: String,
    /// Identity, when the file could be read.
    pub id: Option<ImageId>,
    /// Stated address = address in the target - bias.
    pub bias: u64,
    /// Addresses `[start, end)` of its code in the target.
    pub start: u64,
    /// See `start`.
    pub end: u64,
}

/// How a function was made to report its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchKind {
    /// Five-byte jump over the first whole instructions.
    Jump,
    /// The same, with bytes of padding behind a short function.
    PaddedJump,
    /// Two-byte jump to filler near by that holds the long one.
    ShortJump,
    /// `int3` and a signal handler inside the process: microseconds, not nanoseconds.
    Trap,
    /// Kernel uprobes feeding the same tables: microseconds.
    Uprobe,
}

/// Where a probe point stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointState {
    /// Counting.
    On,
    /// Patched, passing through.
    Off,
    /// Original bytes restored; its numbers stay.
    Removed,
    /// Never patched; the reason stands beside.
    Refused,
}

/// A function chosen by the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPoint {
    /// Number the user sees (`#12`).
    pub id: u32,
    /// Demangled names of the address, the preferred first; `module+0xoffset` when it has none.
    pub names: Vec<String>,
    /// Index into [`CallSnapshot::modules`].
    pub module: u32,
    /// Stated address in the module.
    pub offset: u64,
    /// Bytes of the function, 0 when not known.
    pub size: u64,
    /// How it is instrumented; `None` when refused.
    pub patch: Option<PatchKind>,
    /// State.
    pub state: PointState,
    /// Entry only: no times, with the reason (`returns twice`, `reads its return address`, ...).
    pub entry_only: Option<String>,
    /// Why it was refused.
    pub refused: Option<String>,
    /// Names of the integer values summed per path, at most two ([`PathTotals::values`]).
    pub values: Vec<String>,
}

/// What ends a chain of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameKind {
    /// A return address.
    Caller,
    /// Callers are missing from here on: shown as `[truncated]`.
    Truncated,
    /// Paths of this point that were not kept apart: shown as `[other paths]`.
    Other,
    /// A function that left no frame, for it ended in a jump to the one that it called: shown as `NAME [tail]`. Of analyses; no recording
    /// has it.
    Tail,
}

/// One frame. The chain runs from the probed function's caller outwards. Where the path has a
/// [`CallPath::parent`], the chain may end at that call (the analysis continues with the parent's) or go
/// on to the outermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallFrame {
    /// What it is.
    pub kind: FrameKind,
    /// Index into [`CallSnapshot::modules`]; `u32::MAX` when no module holds the address.
    pub module: u32,
    /// Stated return address in the module (absolute without one); look names up at `offset - 1`.
    pub offset: u64,
    /// The next frame outwards, `u32::MAX` at the end.
    pub caller: u32,
    /// Found by frame pointers, not by unwind rules.
    pub by_frame_pointer: bool,
}

/// Counters of one call path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallPath {
    /// Number within the session, stable over snapshots.
    pub id: u32,
    /// Index into [`CallSnapshot::points`].
    pub point: u32,
    /// Innermost caller, `u32::MAX` when the path has no frame.
    pub frame: u32,
    /// The path (its `id`) of the active probed call this one happened in; `None` = none.
    pub parent: Option<u32>,
    /// Ancestors by `parent` with the same point: 0 = outermost activation, counted in function totals.
    pub same: u16,
    /// Deeper recursion was folded into this row.
    pub folded: bool,
    /// Sum over all threads.
    pub totals: PathTotals,
    /// The same by thread, only when asked for.
    pub threads: Vec<(u32, PathTotals)>,
}

/// Counters. `done` of `calls` have been left in order and carry times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathTotals {
    /// Entries.
    pub calls: u64,
    /// Completed calls that carry times, so without folded ones; equals `calls` where only entries are seen.
    pub done: u64,
    /// Wall time of completed calls, own cost inside the measured interval already subtracted.
    pub wall_ns: u64,
    /// Thread CPU time of completed calls.
    pub cpu_ns: u64,
    /// Shortest, 0 when none completed.
    pub min_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Sums of the integers of [`CallPoint::values`].
    pub values: [i64; 2],
    /// Context switches, minor and major page faults during completed calls, when asked for.
    pub usage: Option<Usage>,
    /// `[i]`: calls of `[2^i, 2^(i+1))` ns, when asked for.
    pub hist: Option<Vec<u64>>,
}

/// Kernel's account of a thread during calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Context switches, voluntary and not.
    pub switches: u64,
    /// Page faults without I/O.
    pub faults_minor: u64,
    /// Page faults with I/O.
    pub faults_major: u64,
}

/// A call that had not returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InProgress {
    /// Thread.
    pub tid: u32,
    /// Process.
    pub pid: u32,
    /// [`CallPath::id`].
    pub path: u32,
    /// Time since its entry.
    pub elapsed_ns: u64,
    /// CPU time since then, where it is known.
    #[serde(default)]
    pub cpu_ns: Option<u64>,
}

/// Calls whose record is incomplete, by cause. The calls themselves ran unharmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLost {
    /// Not counted: a signal handler called a probed function inside the agent.
    pub busy: u64,
    /// Not counted: too many calls in progress.
    pub depth: u64,
    /// Not counted: there was no place for them. Those of the next four are among them; the rest found the tables full.
    pub table: u64,
    /// Before the thread had its thread pointer: the C library of a static program was not ready.
    #[serde(default)]
    pub early: u64,
    /// By threads that called first after the program had forbidden itself system calls.
    #[serde(default)]
    pub locked: u64,
    /// By children that share their parent's memory (`vfork`, `clone(CLONE_VM)`).
    #[serde(default)]
    pub shared: u64,
    /// Not made by a call (code that begins a coroutine), or made where a stack was nearly full.
    #[serde(default)]
    pub edge: u64,
    /// Counted, not timed: no place for the return address, or it had to be left alone.
    pub shadow: u64,
    /// Those of them that came from code of whose frames nothing is known: it has no unwind tables.
    #[serde(default)]
    pub foreign: u64,
    /// Counted, not timed: left by longjmp, exception or thread exit.
    pub jumped: u64,
    /// Exit without its entry.
    pub exit: u64,
    /// Event records dropped.
    pub ring: u64,
    /// Distinct paths that found no room (their calls are under `[other paths]`).
    pub paths: u64,
    /// Times that the CPU time of a call could not be asked for; a call may be twice among them.
    #[serde(default)]
    pub cpu: u64,
}

/// What a probed call costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Part that lies inside the measured interval, picoseconds per call.
    pub inside_ps: u64,
    /// Whole cost to the caller, picoseconds per call.
    pub whole_ps: u64,
    /// Cost to the caller where only calls are counted, picoseconds per call. 0: not known (recordings of old), as if timed.
    #[serde(default)]
    pub count_ps: u64,
    /// The same where it hides best behind the program's work; absent in recordings that did not note it.
    #[serde(default)]
    pub count_least_ps: Option<u64>,
    /// How far off a single reading of the clock may be, picoseconds: some processors' counters advance by tens of ticks, others
    /// read them before the work of the call is done.
    #[serde(default)]
    pub step_ps: u64,
    /// Nanoseconds that the kernel's breakpoints (uprobes) have cost in all. `None`: not known.
    #[serde(default = "none_at_all")]
    pub kernel_ns: Option<u64>,
    /// What one hit of such a breakpoint has cost on average, picoseconds: an entry and an exit each are one. 0: not known.
    #[serde(default)]
    pub hit_ps: u64,
    /// Nanoseconds that went to calls by ever new paths (recursion), to changes between stacks (coroutines) and to calls left by
    /// jumps, besides the cost of each call; times of calls around are told without.
    #[serde(default)]
    pub apart_ns: u64,
    /// What a call costs where nothing overlaps with it. `None`: not known (recordings of old).
    #[serde(default)]
    pub most: Option<MostCost>,
}

/// The other end of what a call may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MostCost {
    /// Calls whose exits are seen.
    pub timed: MostOfKind,
    /// Calls that are counted only.
    pub counted: MostOfKind,
    /// So many frames more has a path that is called deep.
    pub frames: u32,
}

/// Of one kind of calls, picoseconds per call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MostOfKind {
    /// By the path of the call before it, of about ten frames.
    pub same_ps: u64,
    /// By a deep one.
    pub deep_ps: u64,
    /// By one of many paths in no order.
    pub varied_ps: u64,
}

impl Default for OwnCost {
    fn default() -> Self {
        Self {
            inside_ps: 0,
            whole_ps: 0,
            count_ps: 0,
            count_least_ps: None,
            step_ps: 0,
            kernel_ns: none_at_all(),
            hit_ps: 0,
            apart_ns: 0,
            most: None,
        }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "serde wants the field's type")]
fn none_at_all() -> Option<u64> {
    Some(0)
}

/// What an address is called: kept with a recording, so that it opens where the files are not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPlace {
    /// Demangled name of the function that holds it, empty when not known.
    pub function: String,
    /// Stated address of that function's first byte.
    pub start: Option<u64>,
    /// Source positions, innermost inlined function first, the function itself last; empty without line
    /// information.
    pub positions: Vec<CallPosition>,
    /// What the instruction that ends behind the address is.
    #[serde(default)]
    pub site: CallSite,
}

/// What stands before a return address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallSite {
    /// Not known, or a call by a register or through a slot.
    #[default]
    Unknown,
    /// A direct call.
    Direct {
        /// Stated address of the function it calls, in the same module.
        target: u64,
        /// Demangled name of that function.
        function: String,
    },
    /// The address is where handlers of signals return to: the frame outwards was interrupted and called nobody.
    Signal,
}

/// One level of an inline chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPosition {
    /// Demangled name, empty when not known.
    pub function: String,
    /// Source file, empty when not known.
    pub file: String,
    /// Line, 0 when not known.
    pub line: u32,
}

/// The place of one address of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallName {
    /// [`CallModule::path`].
    pub module: String,
    /// Stated address looked up: [`CallPoint::offset`], or [`CallFrame::offset`] - 1.
    pub address: u64,
    /// What stands there.
    pub place: CallPlace,
}

/// The numbers between two resets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallEpoch {
    /// What the user called it, else its number from 1.
    pub name: String,
    /// State at its end.
    pub snapshot: CallSnapshot,
}

/// What `whither calls -o` keeps: one or several epochs and the names of every address in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallRecording {
    /// Command line of the session, words separated by spaces.
    pub command: String,
    /// Name of the machine.
    pub host: String,
    /// Version of whither that wrote it.
    pub tool: String,
    /// Begin, nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// Metrics that were asked for by name, as they were written; none: the usual ones, or not known (recordings of old).
    #[serde(default)]
    pub metrics: Vec<String>,
    /// How the session began and was changed; absent in recordings of old.
    #[serde(default)]
    pub script: Option<CallScript>,
    /// In order of time.
    pub epochs: Vec<CallEpoch>,
    /// Names; the addresses are unique per module.
    pub names: Vec<CallName>,
}
