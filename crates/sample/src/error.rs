//! What can go wrong while collecting, with the facts a user needs to mend it.

use whither_kernel::KernelError;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// BPF refused.
    #[error("{what} failed: {why}")]
    Bpf {
        /// What was being done.
        what: &'static str,
        /// libbpf's account.
        why: String,
    },
    /// The kernel refused something else.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// More threads than can be watched one by one.
    #[error(
        "{threads} threads on {cpus} CPUs are more than {limit} events: sample the whole system ('whither record -a') \
         and choose the process when asking ('whither prof --process')"
    )]
    TooManyThreads {
        /// Threads of the processes.
        threads: usize,
        /// CPUs.
        cpus: usize,
        /// Most events.
        limit: usize,
    },
    /// An imported file is not what it should be.
    #[error("cannot import {path}: {why}")]
    Import {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        why: String,
    },
}

impl SampleError {
    /// From libbpf's error, its causes included: the first line seldom tells the reason.
    #[must_use]
    pub fn bpf(what: &'static str, error: libbpf_rs::Error) -> Self {
        Self::Bpf { what, why: format!("{error:#}") }
    }

    /// Whether the thread that was to be watched has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        const ESRCH: i32 = 3;
        matches!(self, Self::Kernel(e) if e.errno() == Some(ESRCH))
    }

    /// Whether rights, not a defect, are the reason.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Kernel(e) => matches!(e.errno(), Some(1 | 13)),
            Self::Bpf { why, .. } => why.contains("ermission") || why.contains("not permitted"),
            Self::Import { .. } | Self::TooManyThreads { .. } => false,
        }
    }
}
