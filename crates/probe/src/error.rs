//! What can go wrong with instrumenting a process. Refusals of single functions are values of
//! [`crate::api`], not errors: one function that cannot be patched never stops the others.

use std::io::Error;
use std::time::Duration;
use whither_kernel::KernelError;

/// Why the engine cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel refused, or the process cannot be traced.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The process ended.
    #[error("process {pid} ended while {what}")]
    Ended {
        /// The process.
        pid: u32,
        /// What was being done.
        what: &'static str,
    },
    /// The process executed another program in the middle of something.
    #[error("process {pid} executed another program while {what}: try again")]
    Executed {
        /// The process.
        pid: u32,
        /// What was being done.
        what: &'static str,
    },
    /// A thread could not be stopped.
    #[error(
        "thread {tid} of process {pid} did not stop within {waited:?} (state {state}); everything runs on unchanged"
    )]
    Unstoppable {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// State letter of /proc.
        state: char,
        /// How long was waited.
        waited: Duration,
    },
    /// The library with counters for marks of Coz could not be made.
    #[error("making the library with counters for marks of Coz: {0}")]
    Preload(Error),
    /// A system call made in the process failed.
    #[error("{what} inside process {pid} failed: {source}")]
    RemoteCall {
        /// Which.
        what: &'static str,
        /// The process.
        pid: u32,
        /// Its error number.
        source: Error,
    },
    /// A function called in the process did not come back in order.
    #[error("calling {what} inside process {pid}: {why}; its registers are as before")]
    RemoteFault {
        /// Which.
        what: &'static str,
        /// The process.
        pid: u32,
        /// What happened.
        why: String,
    },
    /// It was stopped by somebody.
    #[error(
        "process {pid} is stopped, by a signal or job control, and none of its threads can let us in: let it go on (kill \
         -CONT {pid}), then try again"
    )]
    Halted {
        /// The process.
        pid: u32,
    },
    /// Its control group keeps it from running.
    #[error(
        "process {pid} is frozen by its control group, so nothing runs in it: thaw it (echo {word} > {file}), then try again"
    )]
    Frozen {
        /// The process.
        pid: u32,
        /// What thaws it.
        file: String,
        /// What is written there.
        word: &'static str,
    },
    /// No thread stands where a function may be called.
    #[error(
        "none of the {threads} threads of process {pid} came to a place where a function may be called (all are in the \
         loader, in an allocator, or do not run) within {} ms: try again",
        waited.as_millis()
    )]
    NoSafeThread {
        /// The process.
        pid: u32,
        /// Its threads.
        threads: usize,
        /// How long was waited.
        waited: Duration,
    },
    /// A seccomp filter judges the process's system calls, and may not be suspended.
    #[error(
        "process {pid} runs under a seccomp filter, which might kill it for a system call made for us; suspending the \
         filter needs CAP_SYS_ADMIN; uprobes need no call ('whither calls --safe')"
    )]
    Seccomp {
        /// The process.
        pid: u32,
    },
    /// The agent could not be put into the process; nothing of it is left there.
    #[error("cannot put the agent into process {pid}: {why}")]
    Injection {
        /// The process.
        pid: u32,
        /// What happened.
        why: String,
    },
    /// The agent's image is not what it should be: a fault of this build.
    #[error("the agent's image cannot be used: {why}")]
    Agent {
        /// What is wrong.
        why: String,
    },
    /// Another version's agent is in the process.
    #[error(
        "the agent found in process {pid} is another version's (layout {theirs}, here {ours}): use the whither that attached \
         to it; nothing was changed"
    )]
    OtherLayout {
        /// The process.
        pid: u32,
        /// Its layout.
        theirs: u32,
        /// The one known here.
        ours: u32,
    },
    /// A pattern that is none.
    #[error(transparent)]
    Select(#[from] crate::select::SelectError),
    /// A number that no point of this session has.
    #[error("there is no probe #{id} in this session")]
    NoPoint {
        /// The number.
        id: u32,
    },
    /// The engine was made to look, not to change anything.
    #[error("process {pid} is only being looked at: nothing is changed in it")]
    OnlyLooking {
        /// The process.
        pid: u32,
    },
    /// Nothing to take over.
    #[error("there is no agent in process {pid}: attach to it instead")]
    NoAgent {
        /// The process.
        pid: u32,
    },
    /// Somebody measures it.
    #[error("process {pid} is already measured by process {controller}: use its session, or end it")]
    Controlled {
        /// The process.
        pid: u32,
        /// The controller.
        controller: u32,
    },
}
