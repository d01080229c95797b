//! What can go wrong with foreign bytes, in two shapes: an [`ImageError`] when there is no answer at
//! all, and a [`Problem`] when there is an answer but part of it is missing.

use std::fmt;

/// Why a parser has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes are not an ELF file at all.
    #[error("not an ELF file: it begins with {start:02x?} instead of 7f 45 4c 46")]
    NotElf {
        /// The first bytes, four at most.
        start: Vec<u8>,
    },
    /// ELF, but a part that everything rests on cannot be read.
    #[error("broken ELF file: {part} cannot be read: {detail}")]
    BrokenElf {
        /// Which part.
        part: &'static str,
        /// What the reader says.
        detail: String,
    },
    /// Debug information that cannot be opened.
    #[error("debug information cannot be read: {detail}")]
    Dwarf {
        /// What the reader says.
        detail: String,
    },
    /// There is no debug information; not an error of the file.
    #[error("the file has no line information (no .debug_info and .debug_line sections)")]
    NoDwarf,
    /// All kernel addresses read as zero.
    #[error(
        "the kernel hides its addresses: all {lines} lines of /proc/kallsyms read 0; run as root, \
         or set kernel.kptr_restrict to 0"
    )]
    KernelAddressesHidden {
        /// Lines seen.
        lines: usize,
    },
    /// The list of kernel symbols lacks the symbol all offsets count from.
    #[error("no _stext among the {lines} lines of kernel symbols, so offsets have no origin")]
    NoKernelStart {
        /// Lines seen.
        lines: usize,
    },
    /// A jitdump file whose header is wrong.
    #[error("not a jitdump file: {detail}")]
    BadJitdump {
        /// What is wrong.
        detail: String,
    },
    /// A cached function table that was cut, damaged or written by another version.
    #[error("cached function table cannot be used: {detail}; it will be made again from the image")]
    BadTable {
        /// What is wrong.
        detail: &'static str,
    },
}

impl ImageError {
    /// A broken part of an ELF file with the reader's own words.
    pub(crate) fn broken(part: &'static str, detail: impl fmt::Display) -> Self {
        Self::BrokenElf { part, detail: detail.to_string() }
    }
}

/// Something that made an answer partial: one sentence, and where it happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// What failed and why, a sentence without full stop.
    pub sentence: String,
    /// The section, record or line it happened in.
    pub context: String,
}

impl Problem {
    /// From the place and the sentence.
    pub fn new(context: impl Into<String>, sentence: impl fmt::Display) -> Self {
        Self { sentence: sentence.to_string(), context: context.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.context, self.sentence)
    }
}
