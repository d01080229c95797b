//! The on-disk tables: which columns each has, in which order rows are sorted, and the passage
//! between a canonical [`Profile`](crate::model::Profile) and columns. Tables only ever gain columns;
//! a reader finds columns by name and ignores those it does not know (docs/reference/schema.md).

pub(crate) mod columns;
pub(crate) mod parts;
pub(crate) mod samples;
pub(crate) mod stored;

pub(crate) use columns::{Quality, decode, encode};

/// Physical and logical type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `FIXED_LEN_BYTE_ARRAY(20)`.
    Id,
    /// UTF-8 string.
    Text,
    /// Bytes.
    Blob,
    /// `INT32`, unsigned.
    U32,
    /// `INT64`, unsigned.
    U64,
}

/// How the values of a column are encoded before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Dictionary and run lengths: few values, or long runs.
    Dict,
    /// Bit-packed differences: sorted or slowly varying numbers.
    Delta,
    /// As is: hashes, bytes.
    Plain,
}

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) coding: Coding,
}

/// A table: its file name, columns, and how many of the leading columns are the sort key.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) file: &'static str,
    pub(crate) columns: &'static [Spec],
    pub(crate) sorted: usize,
}

const fn col(name: &'static str, kind: Kind, coding: Coding) -> Spec {
    Spec { name, kind, coding }
}

/// Aggregated samples.
pub(crate) static SAMPLES: Table = Table {
    file: "samples.parquet",
    columns: &[
        col("image_id", Kind::Id, Coding::Dict),
        col("event", Kind::Text, Coding::Dict),
        col("process", Kind::U64, Coding::Dict),
        col("tid", Kind::U32, Coding::Delta),
        col("slice", Kind::U32, Coding::Delta),
        col("offset", Kind::U64, Coding::Delta),
        col("period", Kind::U64, Coding::Dict),
        col("count", Kind::U32, Coding::Dict),
    ],
    sorted: 7,
};

/// Images the samples and frames of the segment fell into.
pub(crate) static IMAGES: Table = Table {
    file: "images.parquet",
    columns: &[
        col("image_id", Kind::Id, Coding::Plain),
        col("id_kind", Kind::Text, Coding::Dict),
        col("kind", Kind::Text, Coding::Dict),
        col("path", Kind::Text, Coding::Plain),
        col("segments", Kind::Text, Coding::Plain),
        col("size", Kind::U64, Coding::Plain),
    ],
    sorted: 1,
};

/// Processes the samples and stacks of the segment belong to.
pub(crate) static PROCESSES: Table = Table {
    file: "processes.parquet",
    columns: &[
        col("process", Kind::U64, Coding::Plain),
        col("pid", Kind::U32, Coding::Plain),
        col("start_ns", Kind::U64, Coding::Plain),
        col("comm", Kind::Text, Coding::Dict),
        col("exe", Kind::Text, Coding::Dict),
        col("cgroup", Kind::Text, Coding::Dict),
    ],
    sorted: 1,
};

/// Aggregated samples that carried a stack.
pub(crate) static STACKS: Table = Table {
    file: "stacks.parquet",
    columns: &[
        col("stack", Kind::U64, Coding::Plain),
        col("event", Kind::Text, Coding::Dict),
        col("process", Kind::U64, Coding::Dict),
        col("tid", Kind::U32, Coding::Delta),
        col("slice", Kind::U32, Coding::Delta),
        col("period", Kind::U64, Coding::Dict),
        col("count", Kind::U32, Coding::Dict),
    ],
    sorted: 6,
};

/// Frames of the distinct stacks, innermost first.
pub(crate) static FRAMES: Table = Table {
    file: "frames.parquet",
    columns: &[
        col("stack", Kind::U64, Coding::Dict),
        col("depth", Kind::U32, Coding::Delta),
        col("image_id", Kind::Id, Coding::Dict),
        col("offset", Kind::U64, Coding::Dict),
        col("end", Kind::Text, Coding::Dict),
    ],
    sorted: 2,
};

/// Accounting per CPU and interval.
pub(crate) static RATES: Table = Table {
    file: "rates.parquet",
    columns: &[
        col("start_ns", Kind::U64, Coding::Delta),
        col("cpu", Kind::U32, Coding::Dict),
        col("event", Kind::Text, Coding::Dict),
        col("length_ns", Kind::U64, Coding::Dict),
        col("period", Kind::U64, Coding::Dict),
        col("delivered", Kind::U64, Coding::Dict),
        col("idle", Kind::U64, Coding::Dict),
        col("dropped", Kind::U64, Coding::Dict),
        col("skipped", Kind::U64, Coding::Dict),
        col("steal_ns", Kind::U64, Coding::Dict),
    ],
    sorted: 3,
};

/// Functions that samples fell into, so that a recording opens without the binaries.
pub(crate) static FUNCS: Table = Table {
    file: "funcs.parquet",
    columns: &[
        col("image_id", Kind::Id, Coding::Dict),
        col("start", Kind::U64, Coding::Delta),
        col("size", Kind::U64, Coding::Dict),
        col("name", Kind::Text, Coding::Plain),
        col("source", Kind::Text, Coding::Dict),
    ],
    sorted: 2,
};

/// Machine code of such functions.
pub(crate) static CODE: Table = Table {
    file: "code.parquet",
    columns: &[
        col("image_id", Kind::Id, Coding::Dict),
        col("start", Kind::U64, Coding::Delta),
        col("bytes", Kind::Blob, Coding::Plain),
    ],
    sorted: 2,
};

/// Source positions inside such functions, one row per level of inlining.
pub(crate) static LINES: Table = Table {
    file: "lines.parquet",
    columns: &[
        col("image_id", Kind::Id, Coding::Dict),
        col("offset", Kind::U64, Coding::Delta),
        col("depth", Kind::U32, Coding::Delta),
        col("file", Kind::Text, Coding::Dict),
        col("line", Kind::U32, Coding::Delta),
        col("function", Kind::Text, Coding::Dict),
    ],
    sorted: 3,
};

#[cfg(test)]
mod tests;
