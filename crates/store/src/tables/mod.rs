//! The on-disk tables: which columns each has, in which order rows are sorted, and the passage
//! between a canonical [`Profile`](crate::model::Profile) and columns. Tables only ever gain columns;
//! a reader finds columns by name and ignores those it does not know (docs/reference/schema.md).

pub(crate) mod calls;
pub(crate) mod causal;
pub(crate) mod columns;
pub(crate) mod edges;
pub(crate) mod exact;
pub(crate) mod laps;
pub(crate) mod parts;
pub(crate) mod samples;
pub(crate) mod stored;
pub(crate) mod threads;

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
    /// `INT64`, signed.
    I64,
}

/// How the values of a column are encoded before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Dictionary and run lengths: few values, or long runs.
    Dict,
    /// Bit-packed differences: sorted or slowly varying numbers.
    Delta,
    /// First bytes of all values, then second bytes, ..: small numbers in no order, which then compress to
    /// what they tell.
    Split,
    /// As is: hashes, bytes.
    Plain,
}

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) coding: Coding,
    /// What every row of a file has that was written before there was this column; `None`: no such file is whole.
    pub(crate) before: Option<&'static str>,
}

/// A table: its file name, columns, and how many of the leading columns are the sort key.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) file: &'static str,
    pub(crate) columns: &'static [Spec],
    pub(crate) sorted: usize,
}

const fn col(name: &'static str, kind: Kind, coding: Coding) -> Spec {
    Spec { name, kind, coding, before: None }
}

/// A column of words that older files lack.
const fn newer(name: &'static str, before: &'static str) -> Spec {
    Spec { name, kind: Kind::Text, coding: Coding::Dict, before: Some(before) }
}

/// Aggregated samples. Positions come before who was there and when: the same place in several processes and
/// slices then costs a few bits, where a list of places for each would cost more than a byte per place.
pub(crate) static SAMPLES: Table = Table {
    file: "samples.parquet",
    columns: &[
        col("image_id", Kind::Id, Coding::Dict),
        col("event", Kind::Text, Coding::Dict),
        col("offset", Kind::U64, Coding::Delta),
        col("process", Kind::U64, Coding::Dict),
        col("tid", Kind::U32, Coding::Dict),
        col("slice", Kind::U32, Coding::Dict),
        col("period", Kind::U64, Coding::Dict),
        col("count", Kind::U32, Coding::Split),
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

/// Names of threads.
pub(crate) static THREADS: Table = Table {
    file: "threads.parquet",
    columns: &[
        col("process", Kind::U64, Coding::Dict),
        col("tid", Kind::U32, Coding::Delta),
        col("name", Kind::Text, Coding::Dict),
    ],
    sorted: 2,
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

/// Branch evidence.
pub(crate) static EDGES: Table = Table {
    file: "edges.parquet",
    columns: &[
        col("image_id", Kind::Id, Coding::Dict),
        col("pc", Kind::U64, Coding::Delta),
        col("branch", Kind::U64, Coding::Delta),
        col("way", Kind::Text, Coding::Dict),
        col("target", Kind::U64, Coding::Dict),
        newer("source", edges::REGISTERS),
        col("count", Kind::U32, Coding::Dict),
    ],
    sorted: 6,
};

/// Executions counted by breakpoints.
pub(crate) static EXACT: Table = Table {
    file: "exact.parquet",
    columns: &[
        col("image_id", Kind::Id, Coding::Dict),
        col("offset", Kind::U64, Coding::Delta),
        col("set", Kind::U64, Coding::Plain),
        col("leads", Kind::U32, Coding::Dict),
        col("hits", Kind::U64, Coding::Plain),
        col("whole", Kind::U64, Coding::Plain),
        col("crowded", Kind::U64, Coding::Plain),
        col("squares", Kind::U64, Coding::Plain),
        col("windows", Kind::U64, Coding::Plain),
        col("enabled_ns", Kind::U64, Coding::Plain),
        col("hits_ns", Kind::U64, Coding::Plain),
    ],
    sorted: 4,
};

/// Pairs of moments.
pub(crate) static LAPS: Table = Table {
    file: "laps.parquet",
    columns: &[
        col("image_id", Kind::Id, Coding::Dict),
        col("offset", Kind::U64, Coding::Delta),
        col("span", Kind::U32, Coding::Dict),
        col("course", Kind::Text, Coding::Dict),
        col("pace", Kind::U32, Coding::Dict),
        col("pairs", Kind::U64, Coding::Plain),
        col("laps", Kind::U64, Coding::Plain),
        col("ns", Kind::U64, Coding::Plain),
        col("handler_ns", Kind::U64, Coding::Plain),
    ],
    sorted: 5,
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

/// Probed functions of a call-path recording.
pub(crate) static CALL_POINTS: Table = Table {
    file: "call_points.parquet",
    columns: &[
        col("epoch", Kind::U32, Coding::Delta),
        col("point", Kind::U32, Coding::Delta),
        col("id", Kind::U32, Coding::Delta),
        col("name", Kind::Text, Coding::Plain),
        col("names", Kind::Text, Coding::Plain),
        col("module", Kind::U32, Coding::Dict),
        col("offset", Kind::U64, Coding::Delta),
        col("size", Kind::U64, Coding::Dict),
        col("patch", Kind::Text, Coding::Dict),
        col("state", Kind::Text, Coding::Dict),
        col("entry_only", Kind::Text, Coding::Dict),
        col("refused", Kind::Text, Coding::Dict),
        col("values", Kind::Text, Coding::Dict),
    ],
    sorted: 2,
};

/// Frames of call paths.
pub(crate) static CALL_FRAMES: Table = Table {
    file: "call_frames.parquet",
    columns: &[
        col("epoch", Kind::U32, Coding::Delta),
        col("frame", Kind::U32, Coding::Delta),
        col("kind", Kind::Text, Coding::Dict),
        col("module", Kind::U32, Coding::Dict),
        col("offset", Kind::U64, Coding::Delta),
        col("caller", Kind::U32, Coding::Delta),
        col("by_frame_pointer", Kind::U32, Coding::Dict),
    ],
    sorted: 2,
};

/// Call paths with their counters.
pub(crate) static CALL_PATHS: Table = Table {
    file: "call_paths.parquet",
    columns: &[
        col("epoch", Kind::U32, Coding::Delta),
        col("path", Kind::U32, Coding::Delta),
        col("point", Kind::U32, Coding::Dict),
        col("frame", Kind::U32, Coding::Delta),
        col("parent", Kind::U32, Coding::Dict),
        col("same", Kind::U32, Coding::Dict),
        col("folded", Kind::U32, Coding::Dict),
        col("calls", Kind::U64, Coding::Plain),
        col("done", Kind::U64, Coding::Plain),
        col("wall_ns", Kind::U64, Coding::Plain),
        col("cpu_ns", Kind::U64, Coding::Plain),
        col("min_ns", Kind::U64, Coding::Plain),
        col("max_ns", Kind::U64, Coding::Plain),
        col("value_0", Kind::I64, Coding::Plain),
        col("value_1", Kind::I64, Coding::Plain),
        col("usage", Kind::U32, Coding::Dict),
        col("switches", Kind::U64, Coding::Dict),
        col("faults_minor", Kind::U64, Coding::Dict),
        col("faults_major", Kind::U64, Coding::Dict),
        col("hist", Kind::Text, Coding::Plain),
    ],
    sorted: 0,
};

/// The counters of call paths by thread.
pub(crate) static CALL_THREADS: Table = Table {
    file: "call_threads.parquet",
    columns: &[
        col("epoch", Kind::U32, Coding::Delta),
        col("path", Kind::U32, Coding::Delta),
        col("tid", Kind::U32, Coding::Dict),
        col("calls", Kind::U64, Coding::Plain),
        col("done", Kind::U64, Coding::Plain),
        col("wall_ns", Kind::U64, Coding::Plain),
        col("cpu_ns", Kind::U64, Coding::Plain),
        col("min_ns", Kind::U64, Coding::Plain),
        col("max_ns", Kind::U64, Coding::Plain),
        col("value_0", Kind::I64, Coding::Plain),
        col("value_1", Kind::I64, Coding::Plain),
        col("usage", Kind::U32, Coding::Dict),
        col("switches", Kind::U64, Coding::Dict),
        col("faults_minor", Kind::U64, Coding::Dict),
        col("faults_major", Kind::U64, Coding::Dict),
        col("hist", Kind::Text, Coding::Plain),
    ],
    sorted: 0,
};

/// Names of the addresses of a call-path recording, one row per level of inlining.
pub(crate) static CALL_NAMES: Table = Table {
    file: "call_names.parquet",
    columns: &[
        col("module", Kind::Text, Coding::Dict),
        col("address", Kind::U64, Coding::Delta),
        col("depth", Kind::U32, Coding::Dict),
        col("function", Kind::Text, Coding::Dict),
        col("start", Kind::U64, Coding::Dict),
        col("inlined", Kind::Text, Coding::Dict),
        col("file", Kind::Text, Coding::Dict),
        col("line", Kind::U32, Coding::Delta),
        col("target", Kind::U64, Coding::Dict),
        col("called", Kind::Text, Coding::Dict),
    ],
    sorted: 0,
};

/// Experiments of a causal profile.
pub(crate) static CAUSAL_WINDOWS: Table = Table {
    file: "causal_windows.parquet",
    columns: &[
        col("window", Kind::U32, Coding::Delta),
        col("run", Kind::U32, Coding::Dict),
        col("target", Kind::U32, Coding::Dict),
        col("percent", Kind::U32, Coding::Dict),
        col("selection", Kind::Text, Coding::Dict),
        col("probability_ppb", Kind::U64, Coding::Dict),
        col("stratum", Kind::U32, Coding::Dict),
        col("begin_ns", Kind::U64, Coding::Delta),
        col("wall_ns", Kind::U64, Coding::Plain),
        col("drain_ns", Kind::U64, Coding::Plain),
        col("delay_ns", Kind::U64, Coding::Plain),
        col("hits", Kind::U64, Coding::Plain),
        col("samples", Kind::U64, Coding::Plain),
        col("own_wait_ns", Kind::U64, Coding::Plain),
        col("foreign_wait_ns", Kind::U64, Coding::Plain),
        col("steal_ns", Kind::U64, Coding::Plain),
        col("major_faults", Kind::U64, Coding::Dict),
        col("threads", Kind::U32, Coding::Dict),
        col("max_debt_ns", Kind::U64, Coding::Plain),
        col("lost", Kind::U64, Coding::Dict),
        col("dropped", Kind::Text, Coding::Dict),
    ],
    sorted: 1,
};

/// Visits of progress points in each window.
pub(crate) static CAUSAL_VISITS: Table = Table {
    file: "causal_visits.parquet",
    columns: &[
        col("window", Kind::U32, Coding::Delta),
        col("point", Kind::U32, Coding::Dict),
        col("visits", Kind::U64, Coding::Plain),
        col("first_ns", Kind::U64, Coding::Plain),
        col("last_ns", Kind::U64, Coding::Plain),
        col("first_virtual_ns", Kind::I64, Coding::Plain),
        col("last_virtual_ns", Kind::I64, Coding::Plain),
        col("sum_virtual_ns", Kind::I64, Coding::Plain),
        col("under_way", Kind::I64, Coding::Dict),
    ],
    sorted: 2,
};

/// What could be speeded up.
pub(crate) static CAUSAL_TARGETS: Table = Table {
    file: "causal_targets.parquet",
    columns: &[
        col("target", Kind::U32, Coding::Delta),
        col("unit", Kind::Text, Coding::Dict),
        col("name", Kind::Text, Coding::Dict),
        col("file", Kind::Text, Coding::Dict),
        col("line", Kind::U32, Coding::Delta),
        col("path", Kind::Text, Coding::Dict),
        col("aliases", Kind::Text, Coding::Dict),
        col("module", Kind::Text, Coding::Dict),
        col("image_id", Kind::Text, Coding::Dict),
        col("ranges", Kind::Text, Coding::Plain),
    ],
    sorted: 1,
};

/// Samples by target and stratum.
pub(crate) static CAUSAL_SAMPLES: Table = Table {
    file: "causal_samples.parquet",
    columns: &[
        col("target", Kind::U32, Coding::Dict),
        col("stratum", Kind::U32, Coding::Delta),
        col("plain", Kind::U64, Coding::Plain),
        col("plain_ns", Kind::U64, Coding::Plain),
        col("all", Kind::U64, Coding::Plain),
    ],
    sorted: 0,
};

#[cfg(test)]
mod tests;
