//! Images, processes, frames and rates as columns, and back.

use super::columns::{Column, Indexed, TableError};
use super::samples::image_numbers;
use crate::model::{Frame, Image, ImageOffset, Process, Rate, Stack, StackEnd};
use crate::run::{HashedStack, Run};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Columns of [`super::IMAGES`].
pub(crate) fn images_to_columns(images: &[Image]) -> Vec<Column> {
    vec![
        Column::Id(Indexed::each(images.iter().map(|i| i.id))),
        words(images.iter().map(|i| word(&i.id_kind))),
        words(images.iter().map(|i| word(&i.kind))),
        texts(images.iter().map(|i| i.path.as_str())),
        words(images.iter().map(|i| serde_json::to_string(&i.segments).unwrap_or_default())),
        Column::U64(images.iter().map(|i| i.size).collect()),
    ]
}

/// Rows of [`super::IMAGES`].
pub(crate) fn images_from_columns(columns: Vec<Column>) -> Result<Vec<Image>, TableError> {
    let Ok(
        [
            Column::Id(id),
            Column::Text(id_kind),
            Column::Text(kind),
            Column::Text(path),
            Column::Text(segments),
            Column::U64(size),
        ],
    ) = <[Column; 6]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    (0..size.len())
        .map(|i| {
            let listed = segments.get(i);
            Ok(Image {
                id: *id.get(i),
                id_kind: from_word("id_kind", id_kind.get(i))?,
                kind: from_word("kind", kind.get(i))?,
                path: path.get(i).to_string(),
                segments: serde_json::from_str(listed).map_err(|_| unknown("segments", listed))?,
                size: size[i],
            })
        })
        .collect()
}

/// Columns of [`super::PROCESSES`].
pub(crate) fn processes_to_columns(rows: &[Process]) -> Vec<Column> {
    vec![
        Column::U64(rows.iter().map(|p| p.key).collect()),
        Column::U32(rows.iter().map(|p| p.pid).collect()),
        Column::U64(rows.iter().map(|p| p.start_ns).collect()),
        texts(rows.iter().map(|p| p.comm.as_str())),
        texts(rows.iter().map(|p| p.exe.as_str())),
        texts(rows.iter().map(|p| p.cgroup.as_str())),
    ]
}

/// Rows of [`super::PROCESSES`].
pub(crate) fn processes_from_columns(columns: Vec<Column>) -> Result<Vec<Process>, TableError> {
    let Ok(
        [
            Column::U64(key),
            Column::U32(pid),
            Column::U64(start_ns),
            Column::Text(comm),
            Column::Text(exe),
            Column::Text(cgroup),
        ],
    ) = <[Column; 6]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let rows = (0..key.len()).map(|i| Process {
        key: key[i],
        pid: pid[i],
        start_ns: start_ns[i],
        comm: comm.get(i).to_string(),
        exe: exe.get(i).to_string(),
        cgroup: cgroup.get(i).to_string(),
    });
    Ok(rows.collect())
}

/// A row of [`super::FRAMES`]: the stack, and the depth of the frame in it.
pub(crate) type FlatFrame<'a> = (&'a HashedStack, &'a Frame, u32);

/// Rows of [`super::FRAMES`]; a stack without frames has none.
pub(crate) fn flat_frames(run: &Run) -> Vec<FlatFrame<'_>> {
    run.stacks.iter().flat_map(|s| s.stack.frames.iter().zip(0u32..).map(move |(f, depth)| (s, f, depth))).collect()
}

/// Columns of [`super::FRAMES`].
pub(crate) fn frames_to_columns(run: &Run, rows: &[FlatFrame<'_>]) -> Vec<Column> {
    let ends = [StackEnd::Complete, StackEnd::Truncated];
    let end = |s: &HashedStack| u32::from(s.stack.end == StackEnd::Truncated);
    vec![
        Column::U64(rows.iter().map(|(s, ..)| s.hash).collect()),
        Column::U32(rows.iter().map(|(.., depth)| *depth).collect()),
        Column::Id(Indexed {
            values: run.images.iter().map(|i| i.id).collect(),
            rows: rows.iter().map(|(_, f, _)| f.image.0).collect(),
        }),
        Column::U64(rows.iter().map(|(_, f, _)| f.offset.0).collect()),
        Column::Text(Indexed {
            values: ends.iter().map(|e| word(e).into_boxed_str()).collect(),
            rows: rows.iter().map(|(s, ..)| end(s)).collect(),
        }),
    ]
}

/// Stacks of [`super::FRAMES`], sorted by hash.
pub(crate) fn frames_from_columns(columns: Vec<Column>, run: &Run) -> Result<Vec<HashedStack>, TableError> {
    let Ok([Column::U64(stack), Column::U32(_), Column::Id(image), Column::U64(offset), Column::Text(end)]) =
        <[Column; 5]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let images = image_numbers(&image, run)?;
    let mut stacks: Vec<HashedStack> = Vec::new();
    for i in 0..stack.len() {
        if stacks.last().is_none_or(|s| s.hash != stack[i]) {
            let end: StackEnd = from_word("end", end.get(i))?;
            stacks.push(HashedStack { hash: stack[i], stack: Stack { frames: Vec::new(), end } });
        }
        let frame = Frame { image: images[image.rows[i] as usize], offset: ImageOffset(offset[i]) };
        if let Some(last) = stacks.last_mut() {
            last.stack.frames.push(frame);
        }
    }
    Ok(stacks)
}

/// Columns of [`super::RATES`].
pub(crate) fn rates_to_columns(rows: &[Rate]) -> Vec<Column> {
    let number = |f: fn(&Rate) -> u64| Column::U64(rows.iter().map(f).collect());
    vec![
        number(|r| r.start_ns),
        Column::U32(rows.iter().map(|r| r.cpu).collect()),
        texts(rows.iter().map(|r| r.event.as_str())),
        number(|r| r.length_ns),
        number(|r| r.period),
        number(|r| r.delivered),
        number(|r| r.idle),
        number(|r| r.dropped),
        number(|r| r.skipped),
        number(|r| r.steal_ns),
    ]
}

/// Rows of [`super::RATES`].
pub(crate) fn rates_from_columns(columns: Vec<Column>) -> Result<Vec<Rate>, TableError> {
    let Ok(
        [
            Column::U64(start_ns),
            Column::U32(cpu),
            Column::Text(event),
            Column::U64(length_ns),
            Column::U64(period),
            Column::U64(delivered),
            Column::U64(idle),
            Column::U64(dropped),
            Column::U64(skipped),
            Column::U64(steal_ns),
        ],
    ) = <[Column; 10]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let rows = (0..cpu.len()).map(|i| Rate {
        start_ns: start_ns[i],
        length_ns: length_ns[i],
        cpu: cpu[i],
        event: event.get(i).to_string(),
        period: period[i],
        delivered: delivered[i],
        idle: idle[i],
        dropped: dropped[i],
        skipped: skipped[i],
        steal_ns: steal_ns[i],
    });
    Ok(rows.collect())
}

pub(crate) fn texts<'a>(values: impl Iterator<Item = &'a str>) -> Column {
    Column::Text(Indexed::each(values.map(Box::from)))
}

pub(crate) fn words(values: impl Iterator<Item = String>) -> Column {
    Column::Text(Indexed::each(values.map(String::into_boxed_str)))
}

/// The word serde uses for a variant without fields: tables and JSON then agree.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(crate) fn from_word<T: DeserializeOwned>(column: &'static str, text: &str) -> Result<T, TableError> {
    serde_json::from_value(serde_json::Value::from(text)).map_err(|_| unknown(column, text))
}

pub(crate) fn unknown(column: &'static str, value: &str) -> TableError {
    TableError::BadValue { column, value: value.to_owned() }
}
