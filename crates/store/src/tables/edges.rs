//! Branch evidence as columns, and back. The words of `way` and `source` sort as [`Way`] and [`EdgeSource`] do, so that
//! the declared sort order is that of the rows in memory.

use super::columns::{Column, Indexed, TableError};
use super::parts::unknown;
use super::samples::image_numbers;
use crate::model::{EdgeSample, EdgeSource, ImageOffset, Way};
use crate::run::Run;
use std::ops::Range;

const WORDS: [&str; 4] = ["fall", "taken", "to", "undecided"];
const SOURCES: [&str; 4] = ["even-records", "records", REGISTERS, "walks"];
/// The only source before there was a column for it.
pub(super) const REGISTERS: &str = "registers";

/// Columns of [`super::EDGES`].
pub(crate) fn edges_to_columns(run: &Run, range: Range<usize>) -> Vec<Column> {
    let rows = &run.edges[range];
    vec![
        Column::Id(Indexed {
            values: run.images.iter().map(|i| i.id).collect(),
            rows: rows.iter().map(|e| e.image.0).collect(),
        }),
        Column::U64(rows.iter().map(|e| e.pc.0).collect()),
        Column::U64(rows.iter().map(|e| e.branch.0).collect()),
        Column::Text(Indexed {
            values: WORDS.map(Box::from).into(),
            rows: rows.iter().map(|e| word_of(e.way)).collect(),
        }),
        Column::U64(rows.iter().map(|e| target(e.way)).collect()),
        Column::Text(Indexed {
            values: SOURCES.map(Box::from).into(),
            rows: rows.iter().map(|e| e.source as u32).collect(),
        }),
        Column::U32(rows.iter().map(|e| e.count).collect()),
    ]
}

/// Rows of [`super::EDGES`]; the run's images are known already.
pub(crate) fn edges_from_columns(columns: Vec<Column>, run: &Run) -> Result<Vec<EdgeSample>, TableError> {
    let Ok(
        [
            Column::Id(image),
            Column::U64(pc),
            Column::U64(branch),
            Column::Text(way),
            Column::U64(target),
            Column::Text(source),
            Column::U32(count),
        ],
    ) = <[Column; 7]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let images = image_numbers(&image, run)?;
    (0..pc.len())
        .map(|i| {
            Ok(EdgeSample {
                image: images[image.rows[i] as usize],
                pc: ImageOffset(pc[i]),
                branch: ImageOffset(branch[i]),
                way: way_of(way.get(i), target[i])?,
                source: source_of(source.get(i))?,
                count: count[i],
            })
        })
        .collect()
}

/// Index into [`WORDS`].
fn word_of(way: Way) -> u32 {
    match way {
        Way::Fall => 0,
        Way::Taken => 1,
        Way::To(_) => 2,
        Way::Undecided => 3,
    }
}

fn target(way: Way) -> u64 {
    match way {
        Way::To(ImageOffset(target)) => target,
        Way::Fall | Way::Taken | Way::Undecided => 0,
    }
}

fn way_of(word: &str, target: u64) -> Result<Way, TableError> {
    match word {
        "fall" => Ok(Way::Fall),
        "taken" => Ok(Way::Taken),
        "to" => Ok(Way::To(ImageOffset(target))),
        "undecided" => Ok(Way::Undecided),
        other => Err(unknown("way", other)),
    }
}

fn source_of(word: &str) -> Result<EdgeSource, TableError> {
    match word {
        "even-records" => Ok(EdgeSource::EvenRecords),
        "records" => Ok(EdgeSource::Records),
        REGISTERS => Ok(EdgeSource::Registers),
        "walks" => Ok(EdgeSource::Walks),
        other => Err(unknown("source", other)),
    }
}
