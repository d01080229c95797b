//! Why a session could not be, in words for the user, and the exit code that goes with it.

use std::path::PathBuf;
use whither_kernel::KernelError;
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
    /// A stop was asked for before the command was started.
    #[error("interrupted before the command was started; nothing was run")]
    Interrupted,
    /// A pid does not exist.
    #[error("there is no process {0}")]
    NoSuchProcess(u32),
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
            Self::Kernel(KernelError::Launch { source, .. }) => {
                if source.kind() == std::io::ErrorKind::NotFound {
                    127
                } else {
                    126
                }
            }
            Self::Interrupted => 130,
            Self::Kernel(KernelError::UnknownEvent { .. }) => 2,
            _ => 3,
        }
    }
}
