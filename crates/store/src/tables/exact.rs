//! Exact counts as columns, and back.

use super::columns::{Column, Indexed, TableError};
use super::samples::image_numbers;
use crate::model::{ExactCount, ImageOffset};
use crate::run::Run;
use std::ops::Range;

/// Columns of [`super::EXACT`].
pub(crate) fn exact_to_columns(run: &Run, range: Range<usize>) -> Vec<Column> {
    let rows = &run.exact[range];
    let column = |of: fn(&ExactCount) -> u64| Column::U64(rows.iter().map(of).collect());
    vec![
        Column::Id(Indexed {
            values: run.images.iter().map(|i| i.id).collect(),
            rows: rows.iter().map(|e| e.image.0).collect(),
        }),
        column(|e| e.offset.0),
        column(|e| e.set),
        Column::U32(rows.iter().map(|e| u32::from(e.leads)).collect()),
        column(|e| e.hits),
        column(|e| e.whole),
        column(|e| e.crowded),
        column(|e| e.squares),
        column(|e| e.windows),
        column(|e| e.enabled_ns),
        column(|e| e.hits_ns),
    ]
}

/// Rows of [`super::EXACT`]; the run's images are known already.
pub(crate) fn exact_from_columns(columns: Vec<Column>, run: &Run) -> Result<Vec<ExactCount>, TableError> {
    let Ok(
        [
            Column::Id(image),
            Column::U64(offset),
            Column::U64(set),
            Column::U32(leads),
            Column::U64(hits),
            Column::U64(whole),
            Column::U64(crowded),
            Column::U64(squares),
            Column::U64(windows),
            Column::U64(enabled_ns),
            Column::U64(hits_ns),
        ],
    ) = <[Column; 11]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let images = image_numbers(&image, run)?;
    let row = |i: usize| ExactCount {
        image: images[image.rows[i] as usize],
        offset: ImageOffset(offset[i]),
        set: set[i],
        leads: leads[i] != 0,
        hits: hits[i],
        whole: whole[i],
        crowded: crowded[i],
        squares: squares[i],
        windows: windows[i],
        enabled_ns: enabled_ns[i],
        hits_ns: hits_ns[i],
    };
    Ok((0..offset.len()).map(row).collect())
}
