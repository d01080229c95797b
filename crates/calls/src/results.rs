//! What answers look like. The field names are the JSON schema `whither.calls/1`: fields are added, never
//! renamed. Times are nanoseconds, shares are 0 to 1.

use crate::facts::PathFacts;
use crate::metric::Sort;
use serde::Serialize;
use std::collections::BTreeMap;
use whither_store::calls::{CallLost, FrameKind, PatchKind, PointState, Usage};

/// Name and version of the document.
pub const SCHEMA: &str = "whither.calls/1";

/// Everything a snapshot says; paths complete, whatever a table shows of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallProfile {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Name of the epoch, when it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub epoch: String,
    /// The program.
    pub target: Target,
    /// What was watched.
    pub whole: WholeRow,
    /// Probed functions, refused ones apart.
    pub functions: Vec<FunctionRow>,
    /// Call paths, most time first; none where [`Self::facts`] stand for them.
    pub paths: Vec<PathRow>,
    /// What the paths are together, where the profile has none of them.
    #[serde(skip)]
    pub facts: Option<PathFacts>,
    /// Rows of threads or processes, where those were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listing: Option<Listing>,
    /// Frames that [`PathRow::frames`] points into.
    pub frames: Vec<FrameRow>,
    /// Calls that had not returned, the longest first.
    pub in_progress: Vec<ProgressRow>,
    /// Calls whose record is incomplete.
    pub lost: CallLost,
    /// Functions that matched and are not measured.
    pub refused: Vec<RefusedRow>,
    /// What measuring cost.
    pub own_cost: OwnCostRow,
    /// What stands out.
    pub marks: Vec<Mark>,
    /// What the user changed in this time, where a recording tells.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<whither_store::call_steps::CallStep>,
    /// Sentences the user must see.
    pub notes: Vec<String>,
}

impl CallProfile {
    /// What its paths are together.
    #[must_use]
    pub fn facts(&self) -> PathFacts {
        self.facts.clone().unwrap_or_else(|| PathFacts::of(&self.paths))
    }
}

/// The measured program.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Target {
    /// First process.
    pub pid: u32,
    /// Its executable.
    pub exe: String,
    /// Its command line.
    pub command: String,
    /// Modules with a known identity that hold a frame or a function.
    pub build_ids: Vec<BuildId>,
    /// All processes.
    pub processes: Vec<whither_store::calls::CallProcess>,
}

/// Identity of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BuildId {
    /// Path.
    pub module: String,
    /// Hexadecimal.
    pub build_id: String,
}

/// Totals that shares refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WholeRow {
    /// Length of the epoch or interval.
    pub wall_ns: u64,
    /// CPU time of the process tree: what `share_exec` is a part of.
    pub cpu_ns: u64,
    /// Sum of thread lifetimes: what `share_wall` is a part of.
    pub thread_ns: u64,
    /// Threads alive at the end.
    pub threads: u32,
    /// Threads that had ended by then, as far as they were seen.
    pub threads_ended: u32,
    /// How far `thread_ns` may be off: threads came and went that only looks at /proc have seen.
    pub thread_unsure_ns: u64,
    /// Processes instrumented, each once, whatever programs it executed one after the other.
    pub processes: u32,
    /// Calls counted.
    pub calls: u64,
}

/// Numbers of a path, function or group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Entries.
    pub calls: u64,
    /// Calls that carry times.
    pub done: u64,
    /// Calls that ended without a time, left by an exception or a jump: times are at least what is told.
    pub untimed: u64,
    /// There are such calls. How many is not known where calls of the same function inside of others are folded into these.
    pub lacking: bool,
    /// Calls within other calls of the same row, as of recursive functions: no part of times, as these hold them already, but of the average,
    /// the shortest and the longest.
    pub nested: u64,
    /// False where only entries are seen, or no time was asked for: then times mean nothing.
    pub timed: bool,
    /// False where no CPU time was measured: then it means nothing, nor does the time off the CPU.
    pub cpu_timed: bool,
    /// Wall time, calls in progress included, own cost of nested probes taken off.
    pub wall_ns: u64,
    /// Where that is not known: it is no more than this.
    pub wall_below_ns: Option<u64>,
    /// What measuring adds to the calls and to probed calls inside of them, or hides of them, may come to more than 2 % of the time
    /// and than 10 ns a call. Of calls no longer than that, times are of their order only.
    pub rough: bool,
    /// That much, of `wall_ns`.
    pub unsure_ns: u64,
    /// The same without probed callees.
    pub self_wall_ns: u64,
    /// CPU time, calls in progress included as far as theirs is known, own cost of nested probes taken off.
    pub cpu_ns: u64,
    /// Where that is not known: it is no more than this.
    pub cpu_below_ns: Option<u64>,
    /// As `rough`, of CPU time.
    pub cpu_rough: bool,
    /// As `unsure_ns`, of CPU time.
    pub cpu_unsure_ns: u64,
    /// The same without probed callees.
    pub self_cpu_ns: u64,
    /// Blocked or runnable: wall - CPU; of calls in progress where the CPU time of all is known.
    pub off_cpu_ns: u64,
    /// Wall time of a completed call.
    pub average_ns: Option<f64>,
    /// Shortest completed call, when known.
    pub min_ns: Option<u64>,
    /// Where it cannot be told (too short, with measured callees in it, or folded into a call of the same function): no longer than this.
    pub min_below_ns: Option<u64>,
    /// Longest.
    pub max_ns: Option<u64>,
    /// `[i]`: calls of `[2^i, 2^(i+1))` ns.
    pub hist: Option<Vec<u64>>,
    /// Median, as the bounds of its bin.
    pub p50: Option<Bounds>,
    /// 90th percentile.
    pub p90: Option<Bounds>,
    /// 99th percentile.
    pub p99: Option<Bounds>,
    /// CPU time as a part of the process tree's; NaN (JSON: null) where that is not known.
    pub share_exec: f64,
    /// Wall time as a part of all thread lifetimes; NaN (JSON: null) where those are not known.
    pub share_wall: f64,
    /// Own part of everything measured here: self wall time (calls, without times); adds up to 1.
    pub share_listed: f64,
    /// Summed integers by name.
    pub values: BTreeMap<String, ValueRow>,
    /// Context switches and page faults.
    pub usage: Option<Usage>,
    /// Calls in progress.
    pub running: Running,
}

impl Figures {
    /// Whether a call was entered, left or in progress.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.calls > 0 || self.done > 0 || self.running.calls > 0
    }
}

/// Calls that had not returned: their elapsed time is part of the wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Running {
    /// How many.
    pub calls: u64,
    /// Time since their entries, within the epoch or interval.
    pub elapsed_ns: u64,
    /// CPU time of it: at least so much, where that of some calls is not known.
    pub cpu_ns: u64,
    /// Calls whose CPU time is not known: the thread's clock was not read at their entry.
    pub cpu_unknown: u64,
}

impl Running {
    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let sum = u64::saturating_add;
        Self {
            calls: sum(self.calls, other.calls),
            elapsed_ns: sum(self.elapsed_ns, other.elapsed_ns),
            cpu_ns: sum(self.cpu_ns, other.cpu_ns),
            cpu_unknown: sum(self.cpu_unknown, other.cpu_unknown),
        }
    }
}

/// A value known to lie in `[low_ns, high_ns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// At least.
    pub low_ns: u64,
    /// At most.
    pub high_ns: u64,
}

/// A summed integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ValueRow {
    /// Sum over all calls.
    pub sum: i64,
    /// Per call.
    pub average: f64,
}

/// A probed function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionRow {
    /// Number the user sees (`#12`).
    pub id: u32,
    /// Names of the address, the preferred first.
    pub names: Vec<String>,
    /// Path of the file.
    pub module: String,
    /// Stated address.
    pub offset: u64,
    /// Bytes, 0 when not known.
    pub size: u64,
    /// How it is instrumented.
    pub patch: Option<PatchKind>,
    /// `ns` or `us`: what a call costs.
    pub cost_class: &'static str,
    /// State.
    pub state: PointState,
    /// Why only entries count.
    pub entry_only: Option<String>,
    /// Source file of its entry.
    pub file: String,
    /// Line, 0 when not known.
    pub line: u32,
    /// How long numbers had been counted before its probe was added: they are of the time since. Absent: from the begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ns: Option<u64>,
    /// For how long it was probed, where its probe was taken back or switched off meanwhile: numbers and shares are of that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probed_ns: Option<u64>,
    /// Distinct paths to it.
    pub paths: u32,
    /// Times of outermost activations, so that recursion counts once; calls of all.
    pub totals: Figures,
}

/// A call path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathRow {
    /// Number within the session.
    pub id: u32,
    /// [`FunctionRow::id`].
    pub func: u32,
    /// Indexes into [`CallProfile::frames`], outermost first, without the function itself.
    pub frames: Vec<u32>,
    /// Path of the probed call around it.
    pub parent: Option<u32>,
    /// Recursion level: probed calls of the same function around it.
    pub level: u16,
    /// Deeper recursion was added to this row.
    pub folded: bool,
    /// Callers are missing.
    pub truncated: bool,
    /// Paths that were not kept apart.
    pub other: bool,
    /// Numbers.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A caller: one return address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrameRow {
    /// A caller, or what stands for missing ones.
    pub kind: FrameKind,
    /// Path of the file, empty when no file holds the address.
    pub module: String,
    /// Stated return address.
    pub offset: u64,
    /// Function, `module+0xoffset` without a name.
    pub name: String,
    /// Return address within the function.
    pub within: Option<u64>,
    /// Source file of the call, in the function itself.
    pub file: String,
    /// Line, 0 when not known.
    pub line: u32,
    /// Functions inlined there, outermost first; the call stands in the last one.
    pub inlined: Vec<InlinedRow>,
    /// Found by frame pointers, not by unwind rules.
    pub by_frame_pointer: bool,
}

/// A function inlined into its caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InlinedRow {
    /// Name.
    pub name: String,
    /// Source file of the call inside it.
    pub file: String,
    /// Line.
    pub line: u32,
}

/// A call that had not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProgressRow {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// [`PathRow::id`].
    pub path: u32,
    /// Time since its entry.
    pub elapsed_ns: u64,
}

/// A function that is not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedRow {
    /// Name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What measuring cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OwnCostRow {
    /// Of one timed call, to its caller.
    pub ns_per_call: f64,
    /// Part of that inside the measured interval, already subtracted.
    pub inside_ns_per_call: f64,
    /// Of all calls, at least.
    pub ns: u64,
    /// At most: where nothing hides any part of a probe. `None`: not known.
    pub most_ns: Option<u64>,
    /// Part of that which uprobes cost.
    pub kernel_ns: u64,
    /// Part of that which ever new paths (recursion), changes between stacks (coroutines) and calls left by jumps cost. The agent
    /// has taken it off the times of calls around.
    pub apart_ns: u64,
    /// Some calls cost more than is known: it is more than this.
    pub open: bool,
    /// Known within a factor of two or three only: most of it is counting, which hides behind the program's work, or uprobes.
    pub rough: bool,
    /// `ns` as a part of the CPU time of the process tree; NaN (JSON: null) where that is not known.
    pub share: f64,
    /// The same of `most_ns`.
    pub share_most: f64,
}

/// Something worth a look.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Mark {
    /// A call site whose calls last much longer than those from its siblings.
    SlowSite {
        /// [`FunctionRow::id`].
        func: u32,
        /// The call site as shown in paths.
        site: String,
        /// Its average.
        average_ns: f64,
        /// Median of the averages of the other sites.
        others_ns: f64,
        /// Part of the function's time.
        share: f64,
        /// Paths through it.
        paths: Vec<u32>,
    },
    /// A function that is nearly always called by one and the same function.
    OneCaller {
        /// [`FunctionRow::id`].
        func: u32,
        /// The caller.
        caller: String,
        /// Part of the calls.
        share: f64,
        /// Its calls.
        calls: u64,
    },
}

/// How rows are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Every call path.
    #[default]
    Path,
    /// The instruction that calls.
    Callsite,
    /// The function that calls.
    Caller,
    /// The probed function.
    Function,
    /// The thread.
    Thread,
    /// The process.
    Process,
}

impl Group {
    /// All, by the word the user writes.
    pub const ALL: [(&'static str, Self); 6] = [
        ("path", Self::Path),
        ("callsite", Self::Callsite),
        ("caller", Self::Caller),
        ("function", Self::Function),
        ("thread", Self::Thread),
        ("process", Self::Process),
    ];
}

impl std::str::FromStr for Group {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        let names = || Self::ALL.map(|(name, _)| name).join(", ");
        known.ok_or_else(|| format!("`{word}` is none of {}", names()))
    }
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListRow {
    /// What it is: a path (`main > solve+0x31 > MPI_Wait`), a site, a name.
    pub label: String,
    /// Number of the thread or process, in rows of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// [`PathRow::id`]s in it.
    pub paths: Vec<u32>,
    /// Numbers; times of nested activations count once.
    pub figures: Figures,
    /// Sentences of the marks that concern it.
    pub remarks: Vec<String>,
}

/// Rows that a limit left out, added up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rest {
    /// How many.
    pub rows: u64,
    /// All are below this share; 0 when some are left out because of their number alone.
    pub below: f64,
    /// Their numbers; times nested in one another count once.
    pub figures: Figures,
}

/// A table: rows and what it does not show.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What a row is.
    pub group: Group,
    /// Order.
    pub sort: Sort,
    /// Rows.
    pub rows: Vec<ListRow>,
    /// Everything not in a row.
    pub rest: Option<Rest>,
    /// Everything, nested activations once.
    pub all: Figures,
}

/// A function at one place of the call tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TreeNode {
    /// Function; with the call site in its caller where siblings share the name.
    pub name: String,
    /// File name of the module.
    pub module: String,
    /// Number of the probed function, when it is one.
    pub func: Option<u32>,
    /// Inlined into its parent.
    pub inlined: bool,
    /// Calls that end here.
    pub calls: u64,
    /// Weight of the calls that end here, without probed callees.
    pub own: u64,
    /// Weight of everything below, `own` included.
    pub total: u64,
    /// Weight of the calls that end here, with what they call: `total` without what was counted below them while their function had
    /// no probe. For live views; absent where weights are no times.
    #[serde(skip)]
    pub seen: Option<u64>,
    /// Paths here and below whose sum is negative: they weigh nothing.
    pub negative: u64,
    /// Calls here and below with their times, nested ones once, and how well these are known.
    pub times: Figures,
    /// Own time is what remains without callees, and theirs is not known well: so is it.
    pub own_rough: bool,
    /// Largest first.
    pub children: Vec<TreeNode>,
    /// Others that are too small to be told.
    pub small: Small,
}

/// Nodes that were added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Small {
    /// How many, without what is below them.
    pub nodes: u64,
    /// Their weight.
    pub total: u64,
}

/// Two profiles of one program, before and after a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallDifference {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Totals before and after.
    pub whole: (WholeRow, WholeRow),
    /// Functions, largest change first.
    pub functions: Vec<DifferenceRow>,
    /// Paths, largest change first.
    pub paths: Vec<DifferenceRow>,
    /// Whether the files differ, so that call sites were matched by order and not by address.
    pub rebuilt: bool,
}

/// One path or function on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DifferenceRow {
    /// Names, with call sites where they tell rows apart.
    pub label: String,
    /// Absent: not called before.
    pub before: Option<Figures>,
    /// Absent: not called after.
    pub after: Option<Figures>,
}
