//! What a session of `whither causal` is asked for, what it tells while it runs, and what it leaves.

use super::scope::Scope;
use super::words::{PointSpec, TargetSpec};
use std::time::Duration;
use whither_sample::causal::WaitClass;
use whither_store::SymbolOptions;
use whither_store::causal::{CausalRun, LoadKind, Window};

/// Whom to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CausalWhom {
    /// A running process.
    Process(u32),
    /// A command, launched; again and again when it is short.
    Command(Vec<String>),
}

/// What can be a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitChoice {
    /// Source lines.
    Line,
    /// Functions, without what they call.
    Function,
    /// Functions with what they call.
    Inclusive,
    /// Functions by caller.
    Path,
    /// Functions first, and their lines.
    #[default]
    Auto,
}

/// Who takes samples, credits and pays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CausalBackEnd {
    /// BPF where it is allowed, else the agent.
    #[default]
    Auto,
    /// Kernel-side programs.
    Bpf,
    /// The program's own threads, by an agent in it.
    Agent,
}

/// How threads are delayed, by BPF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutorChoice {
    /// In their place, and asleep from when the program shows that cores are scarce.
    #[default]
    Auto,
    /// In their place: nothing is put into the program.
    Spin,
    /// Asleep.
    Sleep,
}

/// How often a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Once; again if it turns out to be short and the time is not over.
    Auto,
    /// So often.
    Times(u32),
}

/// A session.
#[derive(Clone, Debug)]
pub struct CausalOptions {
    /// Whom.
    pub whom: CausalWhom,
    /// The file that will be executed, when it is known: its points are in place before it begins.
    pub executable: Option<String>,
    /// Progress points, the ranking one first.
    pub points: Vec<PointSpec>,
    /// Latency pairs.
    pub pairs: Vec<(PointSpec, PointSpec)>,
    /// Without a point, take the marks in the program.
    pub marks: bool,
    /// Kind of targets.
    pub unit: UnitChoice,
    /// Only these targets; empty: all.
    pub targets: Vec<TargetSpec>,
    /// What is the program's own code.
    pub scope: Scope,
    /// Waits that are targets too.
    pub waits: Vec<WaitClass>,
    /// Whether kernel time counts for the code that called the kernel.
    pub kernel_time: bool,
    /// Whether children are measured too.
    pub follow: bool,
    /// End after so long.
    pub duration: Option<Duration>,
    /// How often a command is run.
    pub runs: Runs,
    /// Whole runs are the visits.
    pub end_to_end: bool,
    /// Time between samples.
    pub period: Duration,
    /// Longest delay at once.
    pub cap: Duration,
    /// Seed, for the record.
    pub seed: u64,
    /// Who does it.
    pub back_end: CausalBackEnd,
    /// How delays are inserted, by BPF.
    pub executor: ExecutorChoice,
    /// What the user says of the load.
    pub load: Option<LoadKind>,
    /// Where names and lines come from.
    pub symbols: SymbolOptions,
}

/// What happens while a session runs.
#[derive(Clone, Debug)]
pub enum CausalEvent {
    /// Experiments can begin.
    Started {
        /// Target.
        pid: u32,
        /// Names of the points.
        points: Vec<String>,
        /// From the order to this moment.
        after: Duration,
    },
    /// Something the user should know.
    Note(String),
    /// A window is over.
    Window(Box<Window>),
    /// It is time for a look: everything so far.
    Look(Box<CausalRun>),
    /// The command is run again.
    Run {
        /// Which run begins, from 1.
        number: u32,
    },
    /// Measuring has ended, the command has not.
    Waiting {
        /// How the command can be left running.
        way_out: String,
    },
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CausalEnd {
    /// The target ended.
    #[default]
    Target,
    /// The time is over.
    Time,
    /// The intervals are narrow enough.
    Narrow,
    /// The user asked.
    Stopped,
}

/// What a session leaves.
#[derive(Clone, Debug, Default)]
pub struct CausalOutcome {
    /// The measurements.
    pub run: CausalRun,
    /// Status of a launched command, 128+n for a signal.
    pub target_status: Option<i32>,
    /// Why it ended.
    pub end: CausalEnd,
    /// Visits by point in all the time that was looked at, windows or not.
    pub visits: Vec<u64>,
    /// That time.
    pub observed_ns: u64,
    /// Why there is no answer, if there is none: what to do about it.
    pub nothing: Option<String>,
}
