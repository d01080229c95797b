//! What a session of `whither calls` is asked for, what it tells while it runs, and what it leaves.

use super::wire::{Reply, Verb};
use rustc_hash::FxHashMap;
use std::path::PathBuf;
use std::time::Duration;
use whither_probe::{CostClass, Detached, Options, Order, Pause, PointAction};
use whither_store::call_steps::CallStep;
use whither_store::calls::{CallEpoch, CallSnapshot, PatchKind};

/// Whom to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallsTarget {
    /// A running process.
    Process(u32),
    /// A command, launched.
    Command(Vec<String>),
}

/// Ways to reach a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallsBackend {
    /// Code in the process, uprobes where that is refused.
    #[default]
    Auto,
    /// Code in the process only.
    Patch,
    /// Uprobes only: the target's text is the kernel's business.
    Uprobe,
}

/// A session.
#[derive(Clone, Debug)]
pub struct CallsOptions {
    /// Whom.
    pub target: CallsTarget,
    /// Which functions, inclusions and exclusions in the order written.
    pub orders: Vec<Order>,
    /// The inclusions as the user wrote them, for messages.
    pub patterns: Vec<String>,
    /// What a probe does.
    pub actions: Vec<PointAction>,
    /// How functions are reached.
    pub backend: CallsBackend,
    /// How the engine behaves; `safe` follows from `backend`.
    pub engine: Options,
    /// End after so long.
    pub duration: Option<Duration>,
    /// Tell a snapshot this often.
    pub interval: Option<Duration>,
    /// Steps of another session to be taken at their times.
    pub steps: Vec<CallStep>,
    /// Directory of control sockets.
    pub runtime: PathBuf,
}

impl CallsOptions {
    /// The engine's part.
    pub(super) fn engine_options(&self) -> Options {
        Options {
            safe: self.engine.safe || self.backend == CallsBackend::Uprobe,
            uprobes: self.engine.uprobes && self.backend != CallsBackend::Patch,
            ..self.engine.clone()
        }
    }
}

/// What happens while a session runs.
#[derive(Clone, Debug)]
pub enum CallsEvent {
    /// Probes are in place.
    Started {
        /// Target.
        pid: u32,
        /// Probed functions.
        points: usize,
        /// How long the target was held up; nothing for a command, which had not begun.
        pause: Pause,
    },
    /// Something the user should know.
    Note(String),
    /// Functions that matched and are not measured.
    Refused {
        /// Their names.
        names: Vec<String>,
        /// Why none of them is.
        reason: String,
    },
    /// A step of another session was taken.
    Replayed {
        /// In words.
        step: String,
        /// What was asked for it; a step may come to several.
        verb: Verb,
        /// What came of it.
        reply: Reply,
    },
    /// It is time for a summary.
    Interval(Box<CallSnapshot>),
    /// The table waits for the command's end.
    Waiting {
        /// How the command can be left running.
        way_out: String,
    },
}

/// Functions that are refused for the same reason, in the order of the first ones.
pub(super) fn refusals(each: impl IntoIterator<Item = (String, String)>) -> Vec<CallsEvent> {
    let mut by_reason: Vec<(String, Vec<String>)> = Vec::new();
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    for (name, reason) in each {
        let place = *places.entry(reason.clone()).or_insert(by_reason.len());
        match by_reason.get_mut(place) {
            Some((_, names)) => names.push(name),
            None => by_reason.push((reason, vec![name])),
        }
    }
    by_reason.into_iter().map(|(reason, names)| CallsEvent::Refused { names, reason }).collect()
}

/// What a session leaves.
#[derive(Clone, Debug, Default)]
pub struct CallsOutcome {
    /// Epochs in order; the last one ends with the session.
    pub epochs: Vec<CallEpoch>,
    /// What was changed while it ran, in order.
    pub steps: Vec<CallStep>,
    /// Start, nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// Status of a launched command, 128+n for a signal.
    pub target_status: Option<i32>,
    /// How the target was left; `None` when it ended by itself or could not be left.
    pub detached: Option<Detached>,
    /// Why it could not be left: the probes stay, and go on counting into memory that nobody reads.
    pub stayed: Option<String>,
    /// Names like the patterns that matched nothing, when none did.
    pub unmatched: Option<Vec<String>>,
}

/// A function that would be probed: a line of `--dry-run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// Names, the preferred first.
    pub names: Vec<String>,
    /// Path of the module.
    pub module: String,
    /// Stated address.
    pub offset: u64,
    /// Address in the process.
    pub address: u64,
    /// Bytes, 0 when not known.
    pub size: u64,
    /// How, or why not.
    pub patch: Result<PatchKind, String>,
    /// What a call will cost.
    pub cost: CostClass,
    /// Why only entries would count.
    pub entry_only: Option<String>,
}
