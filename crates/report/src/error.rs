//! What can go wrong when results leave the program: the writer fails, or a format cannot say what
//! the profile holds.

use thiserror::Error;

/// Why an export did not come about.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The output could not be written.
    #[error("cannot write the {format} export: {source}; free space or choose another output")]
    Write {
        /// Name of the format.
        format: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is nothing to export.
    #[error("nothing to export: the selection holds no samples of {event}")]
    Empty {
        /// The event asked for.
        event: String,
    },
    /// No procedure could be analysed.
    #[error("no sampled procedure could be analysed: {why}")]
    NoFlows {
        /// What stood in the way of the one with most samples.
        why: String,
    },
    /// The profile has no such event.
    #[error("this profile has no event `{name}`; it has {have}")]
    Event {
        /// As the user wrote it.
        name: String,
        /// Events there are, joined by commas.
        have: String,
    },
}
