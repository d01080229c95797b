//! Pairs of moments as columns, and back. The words of `course` sort as [`Course`] does, so that the declared sort order is
//! that of the rows in memory.

use super::columns::{Column, Indexed, TableError};
use super::parts::unknown;
use super::samples::image_numbers;
use crate::model::{Course, ImageOffset, LapCount};
use crate::run::Run;
use std::ops::Range;

const WORDS: [&str; 5] = ["kernel", "left", "otherwise", "remaining", "steps"];

/// Columns of [`super::LAPS`].
pub(crate) fn laps_to_columns(run: &Run, range: Range<usize>) -> Vec<Column> {
    let rows = &run.laps[range];
    let word = |c: Course| match c {
        Course::Kernel => 0,
        Course::Left => 1,
        Course::Otherwise => 2,
        Course::Remaining(_) => 3,
        Course::Steps(_) => 4,
    };
    let pace = |c: Course| if let Course::Steps(n) | Course::Remaining(n) = c { u32::from(n) } else { 0 };
    vec![
        Column::Id(Indexed {
            values: run.images.iter().map(|i| i.id).collect(),
            rows: rows.iter().map(|l| l.image.0).collect(),
        }),
        Column::U64(rows.iter().map(|l| l.offset.0).collect()),
        Column::U32(rows.iter().map(|l| u32::from(l.span)).collect()),
        Column::Text(Indexed {
            values: WORDS.map(Box::from).into(),
            rows: rows.iter().map(|l| word(l.course)).collect(),
        }),
        Column::U32(rows.iter().map(|l| pace(l.course)).collect()),
        Column::U64(rows.iter().map(|l| l.pairs).collect()),
        Column::U64(rows.iter().map(|l| l.laps).collect()),
        Column::U64(rows.iter().map(|l| l.ns).collect()),
        Column::U64(rows.iter().map(|l| l.handler_ns).collect()),
    ]
}

/// Rows of [`super::LAPS`]; the run's images are known already.
pub(crate) fn laps_from_columns(columns: Vec<Column>, run: &Run) -> Result<Vec<LapCount>, TableError> {
    let Ok(
        [
            Column::Id(image),
            Column::U64(offset),
            Column::U32(span),
            Column::Text(course),
            Column::U32(pace),
            Column::U64(pairs),
            Column::U64(laps),
            Column::U64(ns),
            Column::U64(handler_ns),
        ],
    ) = <[Column; 9]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let images = image_numbers(&image, run)?;
    (0..offset.len())
        .map(|i| {
            Ok(LapCount {
                image: images[image.rows[i] as usize],
                offset: ImageOffset(offset[i]),
                span: u8::try_from(span[i]).map_err(|_| TableError::Inconsistent)?,
                course: course_of(course.get(i), pace[i])?,
                pairs: pairs[i],
                laps: laps[i],
                ns: ns[i],
                handler_ns: handler_ns[i],
            })
        })
        .collect()
}

fn course_of(word: &str, pace: u32) -> Result<Course, TableError> {
    let pace = u16::try_from(pace).map_err(|_| TableError::Inconsistent);
    match word {
        "kernel" => Ok(Course::Kernel),
        "left" => Ok(Course::Left),
        "otherwise" => Ok(Course::Otherwise),
        "remaining" => pace.map(Course::Remaining),
        "steps" => pace.map(Course::Steps),
        _ => Err(unknown("course", word)),
    }
}
