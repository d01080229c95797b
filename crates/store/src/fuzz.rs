//! Doors for the fuzz targets to parsers that are private. Not part of the interface.

use crate::description;
use crate::segment::Manifest;
use crate::tables::{self, Table, calls, causal, columns::TableError, decode, parts, stored};
use bytes::Bytes;
use std::path::Path;

/// Tables in the order of the first byte of the target's input.
static TABLES: [&Table; 19] = [
    &tables::SAMPLES,
    &tables::IMAGES,
    &tables::PROCESSES,
    &tables::STACKS,
    &tables::FRAMES,
    &tables::RATES,
    &tables::FUNCS,
    &tables::CODE,
    &tables::LINES,
    &tables::CALL_POINTS,
    &tables::CALL_FRAMES,
    &tables::CALL_PATHS,
    &tables::CALL_THREADS,
    &tables::CALL_NAMES,
    &tables::CAUSAL_WINDOWS,
    &tables::CAUSAL_VISITS,
    &tables::CAUSAL_TARGETS,
    &tables::CAUSAL_SAMPLES,
    &tables::EDGES,
];

/// Decodes bytes as a table; rows when they are one.
#[must_use]
pub fn table(kind: u8, bytes: &[u8]) -> Option<usize> {
    let table = TABLES[usize::from(kind) % TABLES.len()];
    let columns = decode(table, Bytes::copy_from_slice(bytes), &|_, _| true).ok()?;
    let rows = columns.first().map_or(0, tables::columns::Column::len);
    assert!(columns.iter().all(|c| c.len() == rows), "a decoded table is rectangular");
    let made: Result<usize, TableError> = match table.file {
        "images.parquet" => parts::images_from_columns(columns).map(|v| v.len()),
        "processes.parquet" => parts::processes_from_columns(columns).map(|v| v.len()),
        "rates.parquet" => parts::rates_from_columns(columns).map(|v| v.len()),
        "funcs.parquet" => stored::funcs_from_columns(columns).map(|v| v.len()),
        "code.parquet" => stored::code_from_columns(columns).map(|v| v.len()),
        "lines.parquet" => stored::lines_from_columns(columns).map(|v| v.len()),
        "call_points.parquet" => calls::points_from_columns(columns).map(|v| v.len()),
        "call_frames.parquet" => calls::frames_from_columns(columns).map(|v| v.len()),
        "call_paths.parquet" => calls::paths_from_columns(columns).map(|v| v.len()),
        "call_threads.parquet" => calls::threads_from_columns(columns).map(|v| v.len()),
        "call_names.parquet" => calls::names_from_columns(columns).map(|v| v.len()),
        "causal_windows.parquet" => causal::windows_from_columns(columns).map(|v| v.len()),
        "causal_visits.parquet" => causal::visits_from_columns(columns).map(|v| v.len()),
        "causal_targets.parquet" => causal::targets_from_columns(columns).map(|v| v.len()),
        "causal_samples.parquet" => causal::samples_from_columns(columns).map(|v| v.len()),
        _ => Ok(rows),
    };
    made.ok()
}

/// Parses bytes as `segment.json` and as `epoch.json`; whether they are either.
#[must_use]
pub fn describes(bytes: &[u8]) -> bool {
    let path = Path::new("input.json");
    let segment = description::from_text::<Manifest>(path, bytes).is_ok();
    segment || description::from_text::<crate::model::EpochMeta>(path, bytes).is_ok()
}
