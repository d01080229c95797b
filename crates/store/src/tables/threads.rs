//! Names of threads as columns, and back.

use super::columns::{Column, Indexed, TableError};
use super::samples::process_numbers;
use crate::model::ThreadName;
use crate::run::Run;
use std::ops::Range;

/// Columns of [`super::THREADS`].
pub(crate) fn threads_to_columns(run: &Run, range: Range<usize>) -> Vec<Column> {
    let rows = &run.threads[range];
    vec![
        Column::U64(rows.iter().map(|t| run.processes[t.process.0 as usize].key).collect()),
        Column::U32(rows.iter().map(|t| t.tid).collect()),
        Column::Text(Indexed::each(rows.iter().map(|t| t.name.as_str().into()))),
    ]
}

/// Rows of [`super::THREADS`]; the run's processes are known already.
pub(crate) fn threads_from_columns(columns: Vec<Column>, run: &Run) -> Result<Vec<ThreadName>, TableError> {
    let Ok([Column::U64(process), Column::U32(tid), Column::Text(name)]) = <[Column; 3]>::try_from(columns) else {
        return Err(TableError::Inconsistent);
    };
    let processes = process_numbers(&process, run)?;
    let row = |i: usize| ThreadName { process: processes[i], tid: tid[i], name: name.get(i).to_string() };
    Ok((0..tid.len()).map(row).collect())
}
