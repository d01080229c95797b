//! The only room with raw Linux in it: perf events and their rings, /proc, launching a target, clocks.
//! Values go out as plain types; what they mean for a profile is decided above. Every descriptor and
//! mapping is owned by a type of this crate, so nothing outlives the recording that opened it.

// The one crate whose work is unsafe by nature; every block carries its SAFETY comment.
#![allow(unsafe_code)]

pub mod bpf_stats;
pub mod breakpoint;
pub mod calibrate;
pub mod capability;
pub mod clock;
pub mod counters;
pub mod end;
pub mod events;
pub mod freezer;
pub mod gap;
pub mod kcore;
pub mod launch;
pub mod memory;
pub mod offered;
pub mod perf;
pub mod proc;
pub mod ptrace;
pub mod records;
pub mod ring;
pub mod shared;
pub mod syscalls;
pub mod waiting;

use perf::Watch;
use std::path::PathBuf;

/// What can go wrong when talking to the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// `perf_event_open` refused.
    #[error("the kernel refused a perf event (type {kind}, config {config:#x}, {watch:?}): {source}")]
    PerfOpen {
        /// `perf_event_attr.type`.
        kind: u32,
        /// `perf_event_attr.config`.
        config: u64,
        /// Whom it was to watch.
        watch: Watch,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// The ring could not be mapped.
    #[error(
        "mapping a perf ring of {bytes} bytes failed: {source}; users without CAP_IPC_LOCK may map \
         kernel.perf_event_mlock_kb per CPU"
    )]
    RingMap {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A system call failed.
    #[error("{what} failed: {source}")]
    Call {
        /// What was being done.
        what: &'static str,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A file of /proc or /sys could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A process may not or cannot be traced.
    #[error("cannot trace process {pid}: {why}")]
    Untraceable {
        /// The process.
        pid: u32,
        /// Why, and what to do.
        why: ptrace::Untraceable,
    },
    /// A step of tracing failed.
    #[error("{what} failed (thread {tid}): {source}")]
    Trace {
        /// What was being done.
        what: &'static str,
        /// The thread.
        tid: u32,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// Memory of another process could not be reached.
    #[error("{what} {bytes} bytes at {address:#x} of process {pid} failed: {source}")]
    Memory {
        /// Reading or writing.
        what: &'static str,
        /// The process.
        pid: u32,
        /// First address.
        address: u64,
        /// Bytes.
        bytes: usize,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// An event name is not known.
    #[error("unknown event '{name}'{}", events::did_you_mean(suggestions))]
    UnknownEvent {
        /// As the user wrote it.
        name: String,
        /// Near names.
        suggestions: Vec<String>,
    },
    /// The command could not be started.
    #[error("cannot run '{command}': {source}{}", launch_hint(command, source))]
    Launch {
        /// First word of the command.
        command: String,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

/// What the error number does not tell.
fn launch_hint(command: &str, source: &std::io::Error) -> String {
    let path = std::path::Path::new(command);
    match source.kind() {
        std::io::ErrorKind::PermissionDenied if path.is_dir() => "; it is a directory".into(),
        std::io::ErrorKind::PermissionDenied if path.is_file() => "; is it marked executable (chmod +x)?".into(),
        std::io::ErrorKind::NotFound if !command.contains('/') && path.is_file() => {
            format!("; PATH does not lead to it, ./{command} is there")
        }
        std::io::ErrorKind::NotFound if !command.contains('/') => "; no directory of PATH has it".into(),
        std::io::ErrorKind::NotFound if path.is_file() => "; the interpreter it names is missing".into(),
        _ => String::new(),
    }
}

impl KernelError {
    /// The kernel's error number, when there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::PerfOpen { source, .. }
            | Self::RingMap { source, .. }
            | Self::Call { source, .. }
            | Self::Read { source, .. }
            | Self::Trace { source, .. }
            | Self::Memory { source, .. }
            | Self::Launch { source, .. } => source.raw_os_error(),
            Self::UnknownEvent { .. } | Self::Untraceable { .. } => None,
        }
    }
}
