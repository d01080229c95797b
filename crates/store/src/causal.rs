//! Causal profiles as values: what was speeded up virtually, for how long, and how often the program
//! reached its progress points meanwhile. One [`Window`] is one experiment; nothing is aggregated before
//! it is stored, so curves, intervals and verdicts can be worked out again (by the `causal` analysis)
//! from a recording. Times are nanoseconds; virtual time is real time minus the delays a thread has paid.

use serde::{Deserialize, Serialize};
use whither_image::ImageId;

/// Everything a session of `whither causal` knew; recordings that were extended hold several runs in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CausalRun {
    /// Where, when and how it was measured.
    pub meta: CausalMeta,
    /// Progress points; [`PointVisits::point`] is an index into this.
    pub points: Vec<ProgressPoint>,
    /// What could be speeded up; [`Window::target`] is an index into this.
    pub targets: Vec<Target>,
    /// Experiments in the order in which they began, dropped ones included.
    pub windows: Vec<Window>,
    /// Samples by target and stratum, those outside any window included.
    pub samples: Vec<TargetSamples>,
    /// How often threads took turns in the targets.
    pub turns: Vec<Turns>,
    /// What came from outside, by the target of the window. Not known of recordings made before.
    #[serde(default)]
    pub asked: Vec<FromOutside>,
    /// Waits that no virtual speed-up applies to, with who ended them.
    pub waits: Vec<Wait>,
    /// What the threads of targets wait for most.
    #[serde(default)]
    pub takes_over: Vec<TakesOver>,
    /// Where samples lay whose code cannot be a target.
    #[serde(default)]
    pub elsewhere: Elsewhere,
    /// What the measuring cost.
    pub overhead: CausalOverhead,
    /// Sentences the user must see.
    pub notes: Vec<String>,
}

/// Where, when and how a run was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CausalMeta {
    /// Command line of the target.
    pub command: String,
    /// First process of the group.
    pub pid: u32,
    /// Processes and threads seen at the most.
    pub processes: u32,
    /// See `processes`.
    pub threads: u32,
    /// Wall-clock begin, nanoseconds since 1970.
    pub began_ns: u64,
    /// Real time from the first window's begin to the last one's end.
    pub duration_ns: u64,
    /// Host name.
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// Version of whither.
    pub version: String,
    /// How delays were inserted.
    pub executor: Executor,
    /// Why in this way; empty where it is not known.
    #[serde(default)]
    pub executor_reason: String,
    /// Goroutines of the program were seen to change threads: delays, which are per thread, do not follow them.
    #[serde(default)]
    pub goroutines_move: bool,
    /// Run time that one sample of a window stands for.
    pub period_ns: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Whether visits depend on the program alone or on arrivals from outside.
    pub load: LoadKind,
    /// What the user said of targets. Not known of recordings made before, and of profiles that were imported.
    #[serde(default)]
    pub asked: Option<Asked>,
    /// The program was launched, not attached to: who drives it may be part of it. Not known of recordings made before.
    #[serde(default)]
    pub launched: bool,
    /// Runs of the command that the windows come from (1 unless the command is repeated).
    pub runs: u32,
    /// Exit status of the command as waitpid gives it, when it ended.
    pub status: Option<i32>,
}

/// What counts as the program's own code and what a target is, as the user wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// `--unit`.
    pub unit: String,
    /// `--source`.
    pub source: Vec<String>,
    /// `--binary`.
    pub binary: Option<String>,
    /// `--exclude`.
    pub exclude: Vec<String>,
    /// `--off-cpu`.
    pub off_cpu: Vec<String>,
    /// `--kernel-time`.
    pub kernel_time: String,
}

/// How [`CausalMeta::executor_reason`] begins where delays had better been slept and could not be.
pub const SLEEP_REFUSED: &str = "sleeping would be better";

/// How delays are inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Executor {
    /// The kernel-side sampler spins in the thread's place.
    #[default]
    Spin,
    /// A handler inside the target sleeps.
    Sleep,
    /// The same, and the target's own threads take the samples too: the back end without BPF.
    Agent,
}

/// What decides how often the points are visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadKind {
    /// The program itself: it visits as often as it can.
    Closed,
    /// Arrivals from outside or a clock.
    Open,
    /// Nothing has told; a closed loop is assumed.
    #[default]
    Unknown,
}

/// Where the program makes progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgressPoint {
    /// What the user wrote, or the name in the source.
    pub name: String,
    /// How visits are counted.
    pub kind: PointKind,
    /// Of a latency pair, the index of its end point; the pair's begin holds it.
    pub end: Option<u32>,
}

/// How visits of a point are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointKind {
    /// A probe at an instruction: each visit has its time.
    Probe,
    /// A system call or another kernel tracepoint: each visit has its time.
    Kernel,
    /// A counter in the program's memory, polled.
    Counter,
    /// Samples that hit a place, instead of visits: relative rates only.
    Sampled,
    /// The end of the program: one visit per run.
    End,
}

/// Something that can be made faster virtually.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What kind of thing it is.
    pub unit: Unit,
    /// Function (demangled), or the class of an off-CPU wait.
    pub name: String,
    /// Source file, empty when not known.
    pub file: String,
    /// Line in `file`, 0 when not known.
    pub line: u32,
    /// Callers it is limited to, the nearest first; empty unless `unit` is [`Unit::Path`].
    pub path: Vec<String>,
    /// Other names of the same code.
    pub aliases: Vec<String>,
    /// Path of the module as the program saw it.
    pub module: String,
    /// Identity of the module, when its file could be read.
    pub image: Option<ImageId>,
    /// Stated addresses `[start, end)` that belong to it.
    pub ranges: Vec<(u64, u64)>,
}

/// Kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// The first frame in scope is this source line.
    Line,
    /// The first frame in scope is in this function, inlined copies included.
    Function,
    /// Any frame is in this function: callees are made faster too.
    Inclusive,
    /// A function or line for given callers only.
    Path,
    /// Time blocked on something outside the program.
    OffCpu,
}

/// One experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Run of the command, from 0.
    pub run: u32,
    /// Target, an index into [`CausalRun::targets`].
    pub target: u32,
    /// Virtual speed-up in percent, 0 to 100.
    pub percent: u8,
    /// How it was chosen.
    pub selection: Selection,
    /// Probability with which this target had been chosen.
    pub probability: f64,
    /// Piece of the run for which the allocation was fixed beforehand.
    pub stratum: u32,
    /// `CLOCK_MONOTONIC` at its begin.
    pub begin_ns: u64,
    /// Real length until crediting stopped.
    pub wall_ns: u64,
    /// Length of the time in which debts were paid afterwards.
    pub drain_ns: u64,
    /// Delay that every thread owed or had paid at its end.
    pub delay_ns: u64,
    /// Samples in the target.
    pub hits: u64,
    /// Samples of the whole group.
    pub samples: u64,
    /// By point.
    pub visits: Vec<PointVisits>,
    /// Time that threads of the group waited for a core behind one another.
    pub own_wait_ns: u64,
    /// Time that they waited behind threads of others.
    pub foreign_wait_ns: u64,
    /// Time the hypervisor took from this machine's CPUs.
    pub steal_ns: u64,
    /// Major page faults of the group.
    pub major_faults: u64,
    /// Threads of the group that were sampled.
    pub threads: u32,
    /// Largest debt a thread had at any moment.
    pub max_debt_ns: u64,
    /// Observations lost: full tables, updates that gave up.
    pub lost: u64,
    /// Why it does not count; `None` for a good window.
    pub dropped: Option<DropReason>,
}

/// Visits of a point within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointVisits {
    /// Index into [`CausalRun::points`].
    pub point: u32,
    /// Visits seen. Of a sampled point: samples.
    pub visits: u64,
    /// Real time of the first and the last visit, since the window's begin; both 0 when not stamped.
    pub first_ns: u64,
    /// See `first_ns`.
    pub last_ns: u64,
    /// Virtual time of the first and the last visit since the window's begin (signed: a thread can lead).
    /// Not stamped: virtual time of the window's begin (0) and of its end.
    pub first_virtual_ns: i64,
    /// See `first_virtual_ns`.
    pub last_virtual_ns: i64,
    /// Sum of the virtual times of all visits since the window's begin: latency by Little's law.
    pub sum_virtual_ns: i64,
    /// Of a latency pair's begin: requests under way when the window began.
    pub under_way: i64,
}

/// How a window was chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// By lot among recent samples, as in the paper.
    #[default]
    Lottery,
    /// Part of a block that was allocated to the target beforehand.
    Block,
    /// The user fixed it.
    Fixed,
}

/// Why a window does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// Others used the cores.
    ForeignLoad,
    /// The hypervisor used the cores.
    Steal,
    /// Fewer than two visits.
    NoVisits,
    /// The program ended in it.
    Ended,
    /// The program was stopped, frozen or under a debugger.
    Stopped,
    /// Too many observations were lost.
    Lost,
    /// Debts could not be paid in time.
    NotDrained,
    /// Delays were spun, and the session slept them later on: the two do not go together.
    Spun,
    /// Programs had just been started, and nothing of their code could be made faster yet.
    Started,
    /// Ticks came rarely while the program had one thread, and more often later on: the two do not go together.
    Ticks,
}

/// Samples of a target in a stratum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSamples {
    /// Target, an index into [`CausalRun::targets`]; `None` for samples outside all of them.
    pub target: Option<u32>,
    /// Stratum.
    pub stratum: u32,
    /// Samples in it while no speed-up was on (outside windows, and in windows of 0 %).
    pub plain: u64,
    /// Virtual time in which `plain` was taken.
    pub plain_ns: u64,
    /// Samples in it in all.
    pub all: u64,
}

/// How often threads that were sampled in a target waited for other threads of the program, in windows with speed-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// Target, an index into [`CausalRun::targets`].
    pub target: u32,
    /// Run time that its samples stand for.
    pub run_ns: u64,
    /// Waits in it that other threads ended.
    pub waits: u64,
    /// Run time of programs that had just been begun, whoever was sampled: nothing of them was made faster yet.
    #[serde(default)]
    pub begun_ns: u64,
}

impl Turns {
    /// With what another one saw.
    pub fn add(&mut self, other: &Self) {
        self.run_ns = self.run_ns.saturating_add(other.run_ns);
        self.waits = self.waits.saturating_add(other.waits);
        self.begun_ns = self.begun_ns.saturating_add(other.begun_ns);
    }
}

/// Data from outside that woke threads of the program, and what became of delays then. Of windows that were good when they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromOutside {
    /// Target, an index into [`CausalRun::targets`].
    pub target: u32,
    /// Length of the windows.
    pub wall_ns: u64,
    /// Wake-ups by data that the program had not asked for: requests.
    pub times: u64,
    /// Of those, by programs of this machine that sleep to times that the world sets.
    pub by_world: u64,
    /// By data of which nobody knows which answer of the program it waited for.
    pub unknown: u64,
    /// Windows with speed-up: what threads were to be delayed by.
    pub delay_ns: u64,
    /// Windows with speed-up: delays that were really made, all threads.
    pub paid_ns: u64,
    /// Windows with speed-up: what threads owed when data woke them of which nobody knows what it waited for.
    pub unknown_debt_ns: u64,
}

impl FromOutside {
    /// With what another one saw.
    pub fn add(&mut self, other: &Self) {
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        self.times = self.times.saturating_add(other.times);
        self.by_world = self.by_world.saturating_add(other.by_world);
        self.unknown = self.unknown.saturating_add(other.unknown);
        self.delay_ns = self.delay_ns.saturating_add(other.delay_ns);
        self.paid_ns = self.paid_ns.saturating_add(other.paid_ns);
        self.unknown_debt_ns = self.unknown_debt_ns.saturating_add(other.unknown_debt_ns);
    }

    /// Adds to what is known of the same target.
    pub fn add_to(self, all: &mut Vec<Self>) {
        match all.iter_mut().find(|a| a.target == self.target) {
            Some(same) => same.add(&self),
            None => all.push(self),
        }
    }
}

/// Code that limits the program once a target has become fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakesOver {
    /// Target, an index into [`CausalRun::targets`].
    pub target: u32,
    /// What the threads run most that the target's threads wait for, a target too.
    pub by: u32,
}

/// A place where threads wait for one another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Where the thread waits, as a place of the program.
    pub site: Target,
    /// Time waited, all threads.
    pub blocked_ns: u64,
    /// Who ended the waits: a place of the waking thread, and how often.
    pub woken_by: Vec<(Target, u64)>,
}

/// Samples of running threads in modules that are not in scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// All samples of running threads, those in scope included; 0: not recorded.
    pub all: u64,
    /// Most samples first.
    pub modules: Vec<ModuleSamples>,
}

/// Samples in one module that is not in scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleSamples {
    /// Its path; empty for code of no file.
    pub module: String,
    /// With no code in scope on the stack: no target has them.
    pub outside: u64,
    /// Counted for the call that code in scope had made.
    pub charged: u64,
}

/// What helps where breakpoints of progress points slow the target down.
pub const CHEAPER_POINT: &str = "name a place that is reached less often (a batch instead of an item), or count it by samples \
                                 (--progress sampled:FILE:LINE)";

/// What measuring cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CausalOverhead {
    /// From the order to the first window.
    pub startup_ns: u64,
    /// What sampling took from the target: ticks with their interrupts, delays excluded.
    pub handlers_ns: u64,
    /// CPU time of whither itself.
    pub user_ns: u64,
    /// Delays inserted, all threads.
    pub inserted_ns: u64,
    /// CPU time of the target while it was measured, with the delays.
    pub target_cpu_ns: u64,
    /// What one tick took from the thread it met; 0: not known.
    #[serde(default)]
    pub tick_cost_ns: u64,
    /// What visits of progress points took from the target by their breakpoints, about.
    #[serde(default)]
    pub points_ns: u64,
    /// Share of the run time in which threads spun, waiting for others without the kernel.
    #[serde(default)]
    pub spun: f64,
    /// Share of the run time that threads were at locked instructions in, where several of them were there for long.
    #[serde(default)]
    pub atomic: f64,
    /// Samples that `spun` is a share of; 0: not known.
    #[serde(default)]
    pub spun_of: u64,
    /// Real time between two ticks in windows that count; 0: [`CausalMeta::period_ns`], as in recordings made before.
    #[serde(default)]
    pub spacing_ns: u64,
}

impl CausalRun {
    /// Real time between two ticks of a CPU: delays lag behind by that. What one sample of a window stands for is
    /// [`CausalMeta::period_ns`].
    #[must_use]
    pub fn tick_ns(&self) -> u64 {
        if self.overhead.spacing_ns > 0 { self.overhead.spacing_ns } else { self.meta.period_ns }
    }
}
