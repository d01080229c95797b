//! Rows of a causal recording as columns, and back. `u32::MAX` stands for "none", an empty text too; lists
//! are JSON text; a probability is kept in parts per thousand million, so that tables hold integers only.

use super::columns::{Column, TableError};
use super::parts::{from_word, texts, unknown, word, words};
use crate::causal::{PointVisits, Target, TargetSamples, Window};
use serde::Serialize;
use serde::de::DeserializeOwned;

const NONE: u32 = u32::MAX;
const PARTS: f64 = 1e9;

fn u32s<T>(rows: &[T], of: impl Fn(&T) -> u32) -> Column {
    Column::U32(rows.iter().map(of).collect())
}

fn u64s<T>(rows: &[T], of: impl Fn(&T) -> u64) -> Column {
    Column::U64(rows.iter().map(of).collect())
}

fn i64s<T>(rows: &[T], of: impl Fn(&T) -> i64) -> Column {
    Column::I64(rows.iter().map(of).collect())
}

fn to_list<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn from_list<T: DeserializeOwned>(column: &'static str, text: &str) -> Result<T, TableError> {
    serde_json::from_str(text).map_err(|_| unknown(column, text))
}

/// Columns of [`super::CAUSAL_WINDOWS`].
pub(crate) fn windows_to_columns(rows: &[(u32, &Window)]) -> Vec<Column> {
    vec![
        u32s(rows, |r| r.0),
        u32s(rows, |r| r.1.run),
        u32s(rows, |r| r.1.target),
        u32s(rows, |r| u32::from(r.1.percent)),
        words(rows.iter().map(|r| word(&r.1.selection))),
        u64s(rows, |r| (r.1.probability.clamp(0.0, 1.0) * PARTS).round() as u64),
        u32s(rows, |r| r.1.stratum),
        u64s(rows, |r| r.1.begin_ns),
        u64s(rows, |r| r.1.wall_ns),
        u64s(rows, |r| r.1.drain_ns),
        u64s(rows, |r| r.1.delay_ns),
        u64s(rows, |r| r.1.hits),
        u64s(rows, |r| r.1.samples),
        u64s(rows, |r| r.1.own_wait_ns),
        u64s(rows, |r| r.1.foreign_wait_ns),
        u64s(rows, |r| r.1.steal_ns),
        u64s(rows, |r| r.1.major_faults),
        u32s(rows, |r| r.1.threads),
        u64s(rows, |r| r.1.max_debt_ns),
        u64s(rows, |r| r.1.lost),
        words(rows.iter().map(|r| r.1.dropped.as_ref().map(word).unwrap_or_default())),
    ]
}

/// Rows of [`super::CAUSAL_WINDOWS`], without their visits.
pub(crate) fn windows_from_columns(columns: Vec<Column>) -> Result<Vec<Window>, TableError> {
    let Ok(
        [
            Column::U32(number),
            Column::U32(run),
            Column::U32(target),
            Column::U32(percent),
            Column::Text(selection),
            Column::U64(probability),
            Column::U32(stratum),
            Column::U64(begin_ns),
            Column::U64(wall_ns),
            Column::U64(drain_ns),
            Column::U64(delay_ns),
            Column::U64(hits),
            Column::U64(samples),
            Column::U64(own_wait_ns),
            Column::U64(foreign_wait_ns),
            Column::U64(steal_ns),
            Column::U64(major_faults),
            Column::U32(threads),
            Column::U64(max_debt_ns),
            Column::U64(lost),
            Column::Text(dropped),
        ],
    ) = <[Column; 21]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let row = |i: usize| {
        if number[i] as usize != i {
            return Err(unknown("window", &number[i].to_string()));
        }
        let reason = dropped.get(i);
        Ok(Window {
            run: run[i],
            target: target[i],
            percent: percentage(percent[i])?,
            selection: from_word("selection", selection.get(i))?,
            probability: probability[i] as f64 / PARTS,
            stratum: stratum[i],
            begin_ns: begin_ns[i],
            wall_ns: wall_ns[i],
            drain_ns: drain_ns[i],
            delay_ns: delay_ns[i],
            hits: hits[i],
            samples: samples[i],
            visits: Vec::new(),
            own_wait_ns: own_wait_ns[i],
            foreign_wait_ns: foreign_wait_ns[i],
            steal_ns: steal_ns[i],
            major_faults: major_faults[i],
            threads: threads[i],
            max_debt_ns: max_debt_ns[i],
            lost: lost[i],
            dropped: if reason.is_empty() { None } else { Some(from_word("dropped", reason)?) },
        })
    };
    (0..number.len()).map(row).collect()
}

fn percentage(n: u32) -> Result<u8, TableError> {
    u8::try_from(n).ok().filter(|p| *p <= 100).ok_or_else(|| unknown("percent", &n.to_string()))
}

/// Columns of [`super::CAUSAL_VISITS`]: each row with the number of its window.
pub(crate) fn visits_to_columns(rows: &[(u32, PointVisits)]) -> Vec<Column> {
    vec![
        u32s(rows, |r| r.0),
        u32s(rows, |r| r.1.point),
        u64s(rows, |r| r.1.visits),
        u64s(rows, |r| r.1.first_ns),
        u64s(rows, |r| r.1.last_ns),
        i64s(rows, |r| r.1.first_virtual_ns),
        i64s(rows, |r| r.1.last_virtual_ns),
        i64s(rows, |r| r.1.sum_virtual_ns),
        i64s(rows, |r| r.1.under_way),
    ]
}

/// Rows of [`super::CAUSAL_VISITS`] with the numbers of their windows.
pub(crate) fn visits_from_columns(columns: Vec<Column>) -> Result<Vec<(u32, PointVisits)>, TableError> {
    let Ok(
        [
            Column::U32(window),
            Column::U32(point),
            Column::U64(visits),
            Column::U64(first_ns),
            Column::U64(last_ns),
            Column::I64(first_virtual_ns),
            Column::I64(last_virtual_ns),
            Column::I64(sum_virtual_ns),
            Column::I64(under_way),
        ],
    ) = <[Column; 9]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let row = |i: usize| {
        let visits = PointVisits {
            point: point[i],
            visits: visits[i],
            first_ns: first_ns[i],
            last_ns: last_ns[i],
            first_virtual_ns: first_virtual_ns[i],
            last_virtual_ns: last_virtual_ns[i],
            sum_virtual_ns: sum_virtual_ns[i],
            under_way: under_way[i],
        };
        (window[i], visits)
    };
    Ok((0..window.len()).map(row).collect())
}

/// Columns of [`super::CAUSAL_TARGETS`].
pub(crate) fn targets_to_columns(rows: &[(u32, &Target)]) -> Vec<Column> {
    vec![
        u32s(rows, |r| r.0),
        words(rows.iter().map(|r| word(&r.1.unit))),
        texts(rows.iter().map(|r| r.1.name.as_str())),
        texts(rows.iter().map(|r| r.1.file.as_str())),
        u32s(rows, |r| r.1.line),
        words(rows.iter().map(|r| to_list(&r.1.path))),
        words(rows.iter().map(|r| to_list(&r.1.aliases))),
        texts(rows.iter().map(|r| r.1.module.as_str())),
        words(rows.iter().map(|r| r.1.image.as_ref().map(word).unwrap_or_default())),
        words(rows.iter().map(|r| to_list(&r.1.ranges))),
    ]
}

/// Rows of [`super::CAUSAL_TARGETS`].
pub(crate) fn targets_from_columns(columns: Vec<Column>) -> Result<Vec<Target>, TableError> {
    let Ok(
        [
            Column::U32(number),
            Column::Text(unit),
            Column::Text(name),
            Column::Text(file),
            Column::U32(line),
            Column::Text(path),
            Column::Text(aliases),
            Column::Text(module),
            Column::Text(image),
            Column::Text(ranges),
        ],
    ) = <[Column; 10]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let row = |i: usize| {
        if number[i] as usize != i {
            return Err(unknown("target", &number[i].to_string()));
        }
        let id = image.get(i);
        Ok(Target {
            unit: from_word("unit", unit.get(i))?,
            name: name.get(i).to_string(),
            file: file.get(i).to_string(),
            line: line[i],
            path: from_list("path", path.get(i))?,
            aliases: from_list("aliases", aliases.get(i))?,
            module: module.get(i).to_string(),
            image: if id.is_empty() { None } else { Some(from_word("image_id", id)?) },
            ranges: from_list("ranges", ranges.get(i))?,
        })
    };
    (0..number.len()).map(row).collect()
}

/// Columns of [`super::CAUSAL_SAMPLES`].
pub(crate) fn samples_to_columns(rows: &[TargetSamples]) -> Vec<Column> {
    vec![
        u32s(rows, |r| r.target.unwrap_or(NONE)),
        u32s(rows, |r| r.stratum),
        u64s(rows, |r| r.plain),
        u64s(rows, |r| r.plain_ns),
        u64s(rows, |r| r.all),
    ]
}

/// Rows of [`super::CAUSAL_SAMPLES`].
pub(crate) fn samples_from_columns(columns: Vec<Column>) -> Result<Vec<TargetSamples>, TableError> {
    let Ok([Column::U32(target), Column::U32(stratum), Column::U64(plain), Column::U64(plain_ns), Column::U64(all)]) =
        <[Column; 5]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let row = |i: usize| TargetSamples {
        target: (target[i] != NONE).then_some(target[i]),
        stratum: stratum[i],
        plain: plain[i],
        plain_ns: plain_ns[i],
        all: all[i],
    };
    Ok((0..target.len()).map(row).collect())
}
