//! Why a session could not be, in words for the user, and the exit code that goes with it.

use std::path::PathBuf;
use whither_kernel::KernelError;
use whither_probe::ProbeError;
use whither_probe::select::SelectError;
use whither_sample::SampleError;
use whither_store::StoreError;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Collecting failed.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Storing failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Rights are missing for what was asked.
    #[error("{what} is not allowed here: {why}. {remedy}")]
    Rights {
        /// What was asked.
        what: String,
        /// The kernel's reason.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// The machine does not have what was asked.
    #[error("{what} cannot be had here: {why}. {remedy}")]
    Missing {
        /// What was asked.
        what: String,
        /// The kernel's reason.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// Functions match, and each is refused.
    #[error(
        "none of the functions that match can be measured in process {pid} ({matched} refused; {name}: {reason}); \
         `whither calls --dry-run` tells why for each"
    )]
    NoneMeasured {
        /// The process.
        pid: u32,
        /// How many match.
        matched: usize,
        /// The first of them.
        name: String,
        /// Why it is refused.
        reason: String,
    },
    /// The process ended while it was being attached to.
    #[error("process {pid} {end} while whither attached to it: nothing was measured")]
    EndedMeanwhile {
        /// The process.
        pid: u32,
        /// How.
        end: whither_kernel::end::End,
    },
    /// A stop was asked for before the command was started.
    #[error("interrupted before the command was started; nothing was run")]
    Interrupted,
    /// A pid does not exist.
    #[error("there is no process {0}")]
    NoSuchProcess(u32),
    /// A thread where a process is meant.
    #[error(
        "{tid} is a thread of process {process}, and processes are sampled whole: record -p {process} --threads, then \
         prof --by thread"
    )]
    IsThread {
        /// Thread.
        tid: u32,
        /// Its process.
        process: u32,
    },
    /// The daemon's socket is another user's.
    #[error("the daemon of the database {db} belongs to another user, who alone may ask it (or root)")]
    NotYourDaemon {
        /// Database.
        db: PathBuf,
    },
    /// No daemon answers.
    #[error("no daemon runs on the database {db}: {source}; start one with 'whither daemon run --db {db}'")]
    NoDaemon {
        /// Database.
        db: PathBuf,
        /// Why the socket did not answer.
        source: std::io::Error,
    },
    /// A daemon runs already.
    #[error("a daemon runs on the database {db} already; 'whither daemon status --db {db}' asks it")]
    DaemonRuns {
        /// Database.
        db: PathBuf,
    },
    /// Instrumenting a process failed.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// A pattern of functions that can never match.
    #[error(transparent)]
    Pattern(#[from] SelectError),
    /// A pattern that says nothing about probes in place.
    #[error("probes in place are named by #number, name or address; `{0}` is a source line")]
    NotInPlace(String),
    /// A word of `-m` that means nothing.
    #[error("the metric `{word}` cannot be measured: {why}")]
    Metric {
        /// As written.
        word: String,
        /// Why not.
        why: String,
    },
    /// No function matched.
    #[error("no function of process {pid} matches {}{}", patterns.join(" or "), why_or_near(why, near))]
    NothingMatched {
        /// The process.
        pid: u32,
        /// As written.
        patterns: Vec<String>,
        /// What is known of why, besides that no name is like that.
        why: Vec<String>,
        /// Names like them.
        near: Vec<String>,
    },
    /// A progress point, target or pattern of `whither causal` that means nothing here.
    #[error("`{text}`: {why}")]
    Point {
        /// As written.
        text: String,
        /// Why, and what there is instead.
        why: String,
    },
    /// Another session inserts delays.
    #[error("another `whither causal` is at work on this machine: their delays would add up; wait for its end")]
    Busy,
    /// Delays are inserted with interrupts off.
    #[error(
        "this is a real-time kernel (PREEMPT_RT): experiments keep interrupts off for up to half a millisecond, which it \
         promises not to do; measure on an ordinary kernel"
    )]
    RealtimeKernel,
    /// A process that is never measured.
    #[error("process {pid} cannot be measured: {why}")]
    Unmeasurable {
        /// The process.
        pid: u32,
        /// Why, and what to do.
        why: String,
    },
    /// No session of `whither calls` answers.
    #[error(
        "no session of this user measures process {pid}{}; start one with 'whither calls -p {pid} -f PATTERN'",
        measured(running)
    )]
    NoCallSession {
        /// The process.
        pid: u32,
        /// Processes that are measured.
        running: Vec<u32>,
    },
    /// A process is measured already.
    #[error(
        "process {pid} is measured by a session already; ask it with 'whither calls show -p {pid}', add to it with \
         'whither calls add -p {pid} PATTERN'"
    )]
    CallSessionRuns {
        /// The process.
        pid: u32,
    },
    /// A session answers late, or nonsense.
    #[error("the session that measures process {pid} gives no answer: {why}")]
    Deaf {
        /// The process.
        pid: u32,
        /// What happened.
        why: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, on what.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

impl SessionError {
    /// Exit code: 127 and 126 as a shell's for a command that cannot be started, 3 for what the
    /// system cannot or may not do (a pid that does not exist among them), 130 as after Ctrl-C.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Kernel(KernelError::Launch { source, .. })
            | Self::Probe(ProbeError::Kernel(KernelError::Launch { source, .. })) => {
                if source.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
            }
            Self::Interrupted => 130,
            Self::Kernel(KernelError::UnknownEvent { .. })
            | Self::Pattern(_)
            | Self::Metric { .. }
            | Self::Point { .. } => 2,
            Self::NothingMatched { .. } => 1,
            _ => 3,
        }
    }
}

/// What is known says more than advice on names.
fn why_or_near(why: &[String], near: &[String]) -> String {
    if why.is_empty() { near_names(near) } else { format!("; {}", why.join("; ")) }
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() {
        return "; a pattern is a regular expression over the whole name, `.*part.*` finds parts of names; functions of \
                stripped programs are called FILE+0xADDRESS, and `--dry-run -f '.*'` lists them"
            .into();
    }
    format!("; there are {}", near.join(", "))
}

fn measured(running: &[u32]) -> String {
    if running.is_empty() {
        return String::new();
    }
    let pids: Vec<String> = running.iter().map(u32::to_string).collect();
    format!(" (measured now: {})", pids.join(", "))
}
