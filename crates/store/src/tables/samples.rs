//! Sample and stack rows as columns, and back. In memory sample rows are grouped by process, thread and slice; on disk
//! the position in the image comes before those.

use super::columns::{Column, Indexed, TableError};
use crate::model::{EventIx, ImageIx, ImageOffset, ProcessIx, Sample, StackIx, StackSample};
use crate::run::Run;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::ops::Range;
use whither_image::ImageId;

/// Fewer rows are sorted by one thread: a sampler pays with CPU time for threads that wait for each other.
const WORTH_THREADS: usize = 500_000;

/// The rows of a run in the order of [`super::SAMPLES`].
pub(crate) fn by_place(samples: &[Sample]) -> Vec<u32> {
    let number = |n: usize| u32::try_from(n).expect("a table in memory has fewer than 2^32 rows");
    let mut order: Vec<u32> = (0..number(samples.len())).collect();
    // Rows of one image and event are sorted by process, thread and slice already, which the row's number stands for.
    let parts = order.chunk_by_mut(|&a, &b| same_image(&samples[a as usize], &samples[b as usize]));
    if samples.len() < WORTH_THREADS {
        parts.for_each(|part| sort_by_offset(part, samples));
    } else {
        parts.collect::<Vec<_>>().into_par_iter().for_each(|part| sort_by_offset(part, samples));
    }
    order
}

/// Sorts neighbouring rows by their offset, then by their number.
fn sort_by_offset(rows: &mut [u32], samples: &[Sample]) {
    let first = rows[0];
    let offset = |row: u32| samples[row as usize].offset.0;
    let bits = u64::BITS - (rows.len() as u64).leading_zeros();
    // Of all but code made at run time both fit in a word, which sorts three times as fast.
    if rows.iter().all(|&row| offset(row) >> (u64::BITS - bits) == 0) {
        let mut words: Vec<u64> = rows.iter().map(|&row| offset(row) << bits | u64::from(row - first)).collect();
        words.sort_unstable();
        let mask = (1 << bits) - 1;
        rows.iter_mut().zip(words).for_each(|(row, word)| *row = first + (word & mask) as u32);
    } else {
        rows.sort_unstable_by_key(|&row| (offset(row), row));
    }
}

/// The inverse of [`by_place`]; segments of version 1 are in this order already.
fn by_process(samples: Vec<Sample>) -> Vec<Sample> {
    if samples.is_sorted() {
        return samples;
    }
    let mut order: Vec<u128> = samples.iter().zip(0u32..).map(|(s, row)| group_key(s) | u128::from(row)).collect();
    let mut start = 0;
    for part in samples.chunk_by(same_image) {
        order[start..start + part.len()].sort_unstable();
        start += part.len();
    }
    order.into_iter().map(|key| samples[(key & u128::from(u32::MAX)) as usize]).collect()
}

fn same_image(a: &Sample, b: &Sample) -> bool {
    (a.image, a.event) == (b.image, b.event)
}

fn group_key(s: &Sample) -> u128 {
    u128::from(s.process.0) << 96 | u128::from(s.tid) << 64 | u128::from(s.slice) << 32
}

/// Columns of [`super::SAMPLES`]; `order` is a part of [`by_place`].
pub(crate) fn samples_to_columns(run: &Run, order: &[u32]) -> Vec<Column> {
    let rows = || order.iter().map(|&row| &run.samples[row as usize]);
    vec![
        Column::Id(Indexed {
            values: run.images.iter().map(|i| i.id).collect(),
            rows: rows().map(|s| s.image.0).collect(),
        }),
        Column::Text(event_column(run, rows().map(|s| s.event))),
        Column::U64(rows().map(|s| s.offset.0).collect()),
        Column::U64(rows().map(|s| run.processes[s.process.0 as usize].key).collect()),
        Column::U32(rows().map(|s| s.tid).collect()),
        Column::U32(rows().map(|s| s.slice).collect()),
        Column::U64(rows().map(|s| s.period).collect()),
        Column::U32(rows().map(|s| s.count).collect()),
    ]
}

/// Rows of [`super::SAMPLES`]; the run's events, images and processes are known already.
pub(crate) fn samples_from_columns(columns: Vec<Column>, run: &Run) -> Result<Vec<Sample>, TableError> {
    let Ok(
        [
            Column::Id(image),
            Column::Text(event),
            Column::U64(offset),
            Column::U64(process),
            Column::U32(tid),
            Column::U32(slice),
            Column::U64(period),
            Column::U32(count),
        ],
    ) = <[Column; 8]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let images = image_numbers(&image, run)?;
    let events = event_numbers(&event, run)?;
    let processes = process_numbers(&process, run)?;
    let rows = (0..tid.len()).map(|i| Sample {
        image: images[image.rows[i] as usize],
        event: events[event.rows[i] as usize],
        process: processes[i],
        tid: tid[i],
        slice: slice[i],
        offset: ImageOffset(offset[i]),
        period: period[i],
        count: count[i],
    });
    Ok(by_process(rows.collect()))
}

/// Columns of [`super::STACKS`].
pub(crate) fn stacks_to_columns(run: &Run, range: Range<usize>) -> Vec<Column> {
    let rows = &run.stack_samples[range];
    vec![
        Column::U64(rows.iter().map(|s| run.stacks[s.stack.0 as usize].hash).collect()),
        Column::Text(event_column(run, rows.iter().map(|s| s.event))),
        Column::U64(rows.iter().map(|s| run.processes[s.process.0 as usize].key).collect()),
        Column::U32(rows.iter().map(|s| s.tid).collect()),
        Column::U32(rows.iter().map(|s| s.slice).collect()),
        Column::U64(rows.iter().map(|s| s.period).collect()),
        Column::U32(rows.iter().map(|s| s.count).collect()),
    ]
}

/// Rows of [`super::STACKS`]; `number` gives the index of a stack hash.
pub(crate) fn stacks_from_columns(
    columns: Vec<Column>,
    run: &Run,
    number: &FxHashMap<u64, StackIx>,
) -> Result<Vec<StackSample>, TableError> {
    let Ok(
        [
            Column::U64(stack),
            Column::Text(event),
            Column::U64(process),
            Column::U32(tid),
            Column::U32(slice),
            Column::U64(period),
            Column::U32(count),
        ],
    ) = <[Column; 7]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let events = event_numbers(&event, run)?;
    let processes = process_numbers(&process, run)?;
    (0..tid.len())
        .map(|i| {
            Ok(StackSample {
                stack: *number.get(&stack[i]).ok_or_else(|| bad("stack", format_args!("{:#x}", stack[i])))?,
                event: events[event.rows[i] as usize],
                process: processes[i],
                tid: tid[i],
                slice: slice[i],
                period: period[i],
                count: count[i],
            })
        })
        .collect()
}

fn event_column(run: &Run, events: impl Iterator<Item = EventIx>) -> Indexed<Box<str>> {
    Indexed {
        values: run.events.iter().map(|e| e.event.name.as_str().into()).collect(),
        rows: events.map(|e| u32::from(e.0)).collect(),
    }
}

/// Index of each distinct image id of a column.
pub(crate) fn image_numbers(column: &Indexed<ImageId>, run: &Run) -> Result<Vec<ImageIx>, TableError> {
    let known = numbers(run.images.iter().map(|i| i.id));
    column.values.iter().map(|id| known.get(id).map(|&n| ImageIx(n)).ok_or_else(|| bad("image_id", id))).collect()
}

fn event_numbers(column: &Indexed<Box<str>>, run: &Run) -> Result<Vec<EventIx>, TableError> {
    let known = |name: &str| run.events.iter().position(|e| e.event.name == name);
    column
        .values
        .iter()
        .map(|name| known(name).and_then(|n| u16::try_from(n).ok()).map(EventIx).ok_or_else(|| bad("event", name)))
        .collect()
}

pub(crate) fn process_numbers(column: &[u64], run: &Run) -> Result<Vec<ProcessIx>, TableError> {
    let known = numbers(run.processes.iter().map(|p| p.key));
    let mut last: Option<(u64, ProcessIx)> = None;
    column
        .iter()
        .map(|&key| {
            let ix = match last {
                Some((k, ix)) if k == key => ix,
                _ => known.get(&key).map(|&n| ProcessIx(n)).ok_or_else(|| bad("process", key))?,
            };
            last = Some((key, ix));
            Ok(ix)
        })
        .collect()
}

fn numbers<K: Hash + Eq>(keys: impl Iterator<Item = K>) -> FxHashMap<K, u32> {
    keys.zip(0..).collect()
}

/// A row refers to something the segment's other tables do not have.
fn bad(column: &'static str, value: impl std::fmt::Display) -> TableError {
    TableError::BadValue { column, value: value.to_string() }
}
