//! What can go wrong in a store: errors that stop an operation, and problems that are reported
//! beside a partial answer. Every value carries the path; printing is the caller's business.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An operation on a store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried (`create`, `read`, `rename`, ...).
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The disk (or quota) is full. Nothing of the refused part was left behind; what was sealed
    /// before is intact, and the same part may be appended again after space was made.
    #[error(
        "no space left for {}: the part was not written; free space there (of a database: lower --keep/--max-disk, or run `whither db gc`)",
        path.display()
    )]
    NoSpace {
        /// What could not be written.
        path: PathBuf,
    },
    /// A directory that would be replaced or removed is not one this tool made.
    #[error("{} is not a whither recording ({why}); it is left alone: choose another output", path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// What was found there.
        why: String,
    },
    /// A recording exists already.
    #[error("{} exists already", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// Another process is writing there.
    #[error("{} is being written by another process; stop it first, or use another directory", path.display())]
    Busy {
        /// The epoch directory.
        path: PathBuf,
    },
    /// The epoch is closed.
    #[error("{} is sealed: nothing can be appended; start a new epoch", path.display())]
    Sealed {
        /// The epoch directory.
        path: PathBuf,
    },
    /// Neither a recording nor a database, or nothing at all.
    #[error("{} {}", path.display(), what_is_there(path))]
    NotAStore {
        /// The directory.
        path: PathBuf,
    },
    /// A recording where a database was asked for.
    #[error(
        "{} is one recording, not a database of epochs: `whither prof`, `db check` and `db compact` work on it as it is",
        path.display()
    )]
    NotADatabase {
        /// The recording.
        path: PathBuf,
    },
    /// Written by a newer (or unknown) version.
    #[error(
        "{} has format version {found}, this whither reads version {supported}: use the version of whither that wrote it",
        path.display()
    )]
    Version {
        /// The file that tells.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// Version understood here.
        supported: u32,
    },
    /// Bytes that cannot be what this tool wrote.
    #[error("{} is damaged: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// How it shows.
        what: String,
    },
    /// No epoch is of that host.
    #[error("no epoch is of host `{host}`; there are {known}")]
    NoSuchHost {
        /// As given.
        host: String,
        /// Those there are.
        known: String,
    },
    /// A selection of epochs that selects nothing or is ambiguous.
    #[error("epoch selection `{text}`: {why}")]
    Selection {
        /// As given.
        text: String,
        /// Why it fails, and what exists.
        why: String,
    },
}

impl StoreError {
    /// Wraps an I/O error; a full disk or quota becomes [`StoreError::NoSpace`].
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path },
            _ => Self::Io { action, path, source },
        }
    }

    pub(crate) fn corrupt(path: &Path, what: impl fmt::Display) -> Self {
        Self::Corrupt { path: path.to_owned(), what: what.to_string() }
    }
}

/// Something that was left out of an answer, and why; shown beside the partial result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// File or directory concerned.
    pub path: PathBuf,
    /// One sentence.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(path: &Path, what: impl fmt::Display) -> Self {
        Self { path: path.to_owned(), what: what.to_string() }
    }
}

impl From<StoreError> for Problem {
    fn from(e: StoreError) -> Self {
        let (path, what) = match &e {
            StoreError::Corrupt { path, what } => (path.clone(), format!("damaged, left out: {what}")),
            StoreError::Io { action, path, source } => {
                (path.clone(), format!("left out: cannot {action} it: {source}"))
            }
            StoreError::Version { path, found, supported } => {
                (path.clone(), format!("left out: format version {found}, this whither reads {supported}"))
            }
            other => (PathBuf::new(), other.to_string()),
        };
        Self { path, what }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

fn what_is_there(path: &Path) -> &'static str {
    // A link to nothing is something to look at.
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => "does not exist",
        _ => "is neither a whither recording (no epoch.json) nor a database (no db.toml)",
    }
}
