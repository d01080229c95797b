//! Rows of a call-path recording as columns, and back. `u32::MAX` and `u64::MAX` stand for "none", an empty
//! text too; a histogram is text, `bin:calls` of the bins that are not empty.

use super::columns::{Column, TableError};
use super::parts::{from_word, texts, unknown, word, words};
use crate::calls::{
    CallEpoch, CallFrame, CallName, CallPath, CallPlace, CallPoint, CallPosition, CallSite, CallSnapshot, PathTotals,
    Usage,
};
use std::ops::Range;

const NONE: u32 = u32::MAX;
/// Bins of a histogram.
const BINS: usize = 64;
/// Histogram that was asked for and is empty.
const EMPTY: &str = "-";
/// Stands for the target of a call at a place that handlers of signals return to.
const OF_A_SIGNAL: u64 = u64::MAX - 1;

/// Rows of one kind of all epochs, with the number of the epoch.
pub(crate) fn flat<'a, T>(epochs: &'a [CallEpoch], rows: fn(&'a CallSnapshot) -> &'a [T]) -> Vec<(u32, u32, &'a T)> {
    let numbered = (0_u32..).zip(epochs);
    numbered.flat_map(|(epoch, e)| (0_u32..).zip(rows(&e.snapshot)).map(move |(i, row)| (epoch, i, row))).collect()
}

/// Columns of [`super::CALL_POINTS`].
pub(crate) fn points_to_columns(rows: &[(u32, u32, &CallPoint)]) -> Vec<Column> {
    let list = |v: &Vec<String>| serde_json::to_string(v).unwrap_or_default();
    vec![
        Column::U32(rows.iter().map(|r| r.0).collect()),
        Column::U32(rows.iter().map(|r| r.1).collect()),
        Column::U32(rows.iter().map(|r| r.2.id).collect()),
        texts(rows.iter().map(|r| r.2.names.first().map_or("", String::as_str))),
        words(rows.iter().map(|r| list(&r.2.names))),
        Column::U32(rows.iter().map(|r| r.2.module).collect()),
        Column::U64(rows.iter().map(|r| r.2.offset).collect()),
        Column::U64(rows.iter().map(|r| r.2.size).collect()),
        words(rows.iter().map(|r| r.2.patch.as_ref().map(word).unwrap_or_default())),
        words(rows.iter().map(|r| word(&r.2.state))),
        texts(rows.iter().map(|r| r.2.entry_only.as_deref().unwrap_or_default())),
        texts(rows.iter().map(|r| r.2.refused.as_deref().unwrap_or_default())),
        words(rows.iter().map(|r| list(&r.2.values))),
    ]
}

/// Rows of [`super::CALL_POINTS`] with their epochs.
pub(crate) fn points_from_columns(columns: Vec<Column>) -> Result<Vec<(u32, CallPoint)>, TableError> {
    let Ok(
        [
            Column::U32(epoch),
            Column::U32(_),
            Column::U32(id),
            Column::Text(_),
            Column::Text(names),
            Column::U32(module),
            Column::U64(offset),
            Column::U64(size),
            Column::Text(patch),
            Column::Text(state),
            Column::Text(entry_only),
            Column::Text(refused),
            Column::Text(values),
        ],
    ) = <[Column; 13]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let row = |i: usize| {
        let point = CallPoint {
            id: id[i],
            names: list("names", names.get(i))?,
            module: module[i],
            offset: offset[i],
            size: size[i],
            patch: some(patch.get(i)).map(|p| from_word("patch", &p)).transpose()?,
            state: from_word("state", state.get(i))?,
            entry_only: some(entry_only.get(i)),
            refused: some(refused.get(i)),
            values: list("values", values.get(i))?,
        };
        Ok((epoch[i], point))
    };
    (0..epoch.len()).map(row).collect()
}

/// Columns of [`super::CALL_FRAMES`].
pub(crate) fn frames_to_columns(rows: &[(u32, u32, &CallFrame)]) -> Vec<Column> {
    vec![
        Column::U32(rows.iter().map(|r| r.0).collect()),
        Column::U32(rows.iter().map(|r| r.1).collect()),
        words(rows.iter().map(|r| word(&r.2.kind))),
        Column::U32(rows.iter().map(|r| r.2.module).collect()),
        Column::U64(rows.iter().map(|r| r.2.offset).collect()),
        Column::U32(rows.iter().map(|r| r.2.caller).collect()),
        Column::U32(rows.iter().map(|r| u32::from(r.2.by_frame_pointer)).collect()),
    ]
}

/// Rows of [`super::CALL_FRAMES`] with their epochs.
pub(crate) fn frames_from_columns(columns: Vec<Column>) -> Result<Vec<(u32, CallFrame)>, TableError> {
    let Ok(
        [
            Column::U32(epoch),
            Column::U32(_),
            Column::Text(kind),
            Column::U32(module),
            Column::U64(offset),
            Column::U32(caller),
            Column::U32(by_frame_pointer),
        ],
    ) = <[Column; 7]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let row = |i: usize| {
        let frame = CallFrame {
            kind: from_word("kind", kind.get(i))?,
            module: module[i],
            offset: offset[i],
            caller: caller[i],
            by_frame_pointer: by_frame_pointer[i] != 0,
        };
        Ok((epoch[i], frame))
    };
    (0..epoch.len()).map(row).collect()
}

/// Columns of [`super::CALL_PATHS`].
pub(crate) fn paths_to_columns(rows: &[(u32, u32, &CallPath)]) -> Vec<Column> {
    let mut columns = vec![
        Column::U32(rows.iter().map(|r| r.0).collect()),
        Column::U32(rows.iter().map(|r| r.2.id).collect()),
        Column::U32(rows.iter().map(|r| r.2.point).collect()),
        Column::U32(rows.iter().map(|r| r.2.frame).collect()),
        Column::U32(rows.iter().map(|r| r.2.parent.unwrap_or(NONE)).collect()),
        Column::U32(rows.iter().map(|r| u32::from(r.2.same)).collect()),
        Column::U32(rows.iter().map(|r| u32::from(r.2.folded)).collect()),
    ];
    columns.extend(totals_to_columns(&rows.iter().map(|r| &r.2.totals).collect::<Vec<_>>()));
    columns
}

/// Rows of [`super::CALL_PATHS`] with their epochs, without numbers by thread.
pub(crate) fn paths_from_columns(mut columns: Vec<Column>) -> Result<Vec<(u32, CallPath)>, TableError> {
    if columns.len() != 20 {
        return Err(TableError::Inconsistent);
    }
    let totals = totals_from_columns(columns.split_off(7))?;
    let Ok(
        [
            Column::U32(epoch),
            Column::U32(id),
            Column::U32(point),
            Column::U32(frame),
            Column::U32(parent),
            Column::U32(same),
            Column::U32(folded),
        ],
    ) = <[Column; 7]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let row = |(i, totals): (usize, PathTotals)| {
        let path = CallPath {
            id: id[i],
            point: point[i],
            frame: frame[i],
            parent: Some(parent[i]).filter(|p| *p != NONE),
            same: u16::try_from(same[i]).map_err(|_| unknown("same", &same[i].to_string()))?,
            folded: folded[i] != 0,
            totals,
            threads: Vec::new(),
        };
        Ok((epoch[i], path))
    };
    totals.into_iter().enumerate().map(row).collect()
}

/// A row of [`super::CALL_THREADS`]: epoch, path, thread.
pub(crate) type ThreadRow<T> = (u32, u32, u32, T);

/// All of them.
pub(crate) fn thread_rows(epochs: &[CallEpoch]) -> Vec<ThreadRow<&PathTotals>> {
    let paths = flat(epochs, |s| &s.paths);
    paths.into_iter().flat_map(|(e, _, p)| p.threads.iter().map(move |(tid, t)| (e, p.id, *tid, t))).collect()
}

/// Columns of [`super::CALL_THREADS`].
pub(crate) fn threads_to_columns(rows: &[ThreadRow<&PathTotals>]) -> Vec<Column> {
    let mut columns = vec![
        Column::U32(rows.iter().map(|r| r.0).collect()),
        Column::U32(rows.iter().map(|r| r.1).collect()),
        Column::U32(rows.iter().map(|r| r.2).collect()),
    ];
    columns.extend(totals_to_columns(&rows.iter().map(|r| r.3).collect::<Vec<_>>()));
    columns
}

/// Rows of [`super::CALL_THREADS`].
pub(crate) fn threads_from_columns(mut columns: Vec<Column>) -> Result<Vec<ThreadRow<PathTotals>>, TableError> {
    if columns.len() != 16 {
        return Err(TableError::Inconsistent);
    }
    let totals = totals_from_columns(columns.split_off(3))?;
    let Ok([Column::U32(epoch), Column::U32(path), Column::U32(tid)]) = <[Column; 3]>::try_from(columns) else {
        return Err(TableError::Inconsistent);
    };
    Ok(totals.into_iter().enumerate().map(|(i, t)| (epoch[i], path[i], tid[i], t)).collect())
}

fn totals_to_columns(rows: &[&PathTotals]) -> Vec<Column> {
    let usage = |r: &&PathTotals| r.usage.unwrap_or_default();
    let numbers = |figure: fn(&PathTotals) -> u64| Column::U64(rows.iter().map(|r| figure(r)).collect());
    vec![
        numbers(|t| t.calls),
        numbers(|t| t.done),
        numbers(|t| t.wall_ns),
        numbers(|t| t.cpu_ns),
        numbers(|t| t.min_ns),
        numbers(|t| t.max_ns),
        Column::I64(rows.iter().map(|r| r.values[0]).collect()),
        Column::I64(rows.iter().map(|r| r.values[1]).collect()),
        Column::U32(rows.iter().map(|r| u32::from(r.usage.is_some())).collect()),
        Column::U64(rows.iter().map(|r| usage(r).switches).collect()),
        Column::U64(rows.iter().map(|r| usage(r).faults_minor).collect()),
        Column::U64(rows.iter().map(|r| usage(r).faults_major).collect()),
        words(rows.iter().map(|r| hist_text(r.hist.as_deref()))),
    ]
}

fn totals_from_columns(columns: Vec<Column>) -> Result<Vec<PathTotals>, TableError> {
    let Ok(
        [
            Column::U64(calls),
            Column::U64(done),
            Column::U64(wall_ns),
            Column::U64(cpu_ns),
            Column::U64(min_ns),
            Column::U64(max_ns),
            Column::I64(value_0),
            Column::I64(value_1),
            Column::U32(usage),
            Column::U64(switches),
            Column::U64(faults_minor),
            Column::U64(faults_major),
            Column::Text(hist),
        ],
    ) = <[Column; 13]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let used = |i: usize| Usage { switches: switches[i], faults_minor: faults_minor[i], faults_major: faults_major[i] };
    let row = |i: usize| {
        Ok(PathTotals {
            calls: calls[i],
            done: done[i],
            wall_ns: wall_ns[i],
            cpu_ns: cpu_ns[i],
            min_ns: min_ns[i],
            max_ns: max_ns[i],
            values: [value_0[i], value_1[i]],
            usage: (usage[i] != 0).then(|| used(i)),
            hist: hist_from(hist.get(i))?,
        })
    };
    (0..calls.len()).map(row).collect()
}

fn hist_text(hist: Option<&[u64]>) -> String {
    let Some(hist) = hist else { return String::new() };
    let filled = hist.iter().enumerate().take(BINS).filter(|(_, n)| **n > 0);
    let text: Vec<String> = filled.map(|(bin, n)| format!("{bin}:{n}")).collect();
    if text.is_empty() { EMPTY.into() } else { text.join(" ") }
}

fn hist_from(text: &str) -> Result<Option<Vec<u64>>, TableError> {
    if text.is_empty() {
        return Ok(None);
    }
    let mut hist = vec![0; BINS];
    for part in text.split(' ').filter(|p| *p != EMPTY) {
        let pair = part.split_once(':').and_then(|(bin, n)| Some((bin.parse::<usize>().ok()?, n.parse().ok()?)));
        let place = pair.and_then(|(bin, n)| Some((hist.get_mut(bin)?, n)));
        let (place, n) = place.ok_or_else(|| unknown("hist", text))?;
        *place = n;
    }
    Ok(Some(hist))
}

/// A row of [`super::CALL_NAMES`]: a name and one of its positions (`None`: it has none).
pub(crate) fn name_rows(names: &[CallName]) -> Vec<(&CallName, Option<usize>)> {
    let rows = |n: &CallName| -> Vec<Option<usize>> {
        if n.place.positions.is_empty() { vec![None] } else { (0..n.place.positions.len()).map(Some).collect() }
    };
    names.iter().flat_map(|n| rows(n).into_iter().map(move |depth| (n, depth))).collect()
}

/// Columns of [`super::CALL_NAMES`].
pub(crate) fn names_to_columns(rows: &[(&CallName, Option<usize>)], range: Range<usize>) -> Vec<Column> {
    let rows = &rows[range];
    let nowhere = CallPosition::default();
    let position = |r: &(&CallName, Option<usize>)| r.1.and_then(|d| r.0.place.positions.get(d)).cloned();
    let positions: Vec<CallPosition> = rows.iter().map(|r| position(r).unwrap_or_else(|| nowhere.clone())).collect();
    let depth = |r: &(&CallName, Option<usize>)| r.1.and_then(|d| u32::try_from(d).ok()).unwrap_or(NONE);
    vec![
        texts(rows.iter().map(|r| r.0.module.as_str())),
        Column::U64(rows.iter().map(|r| r.0.address).collect()),
        Column::U32(rows.iter().map(depth).collect()),
        texts(rows.iter().map(|r| r.0.place.function.as_str())),
        Column::U64(rows.iter().map(|r| r.0.place.start.unwrap_or(u64::MAX)).collect()),
        texts(positions.iter().map(|p| p.function.as_str())),
        texts(positions.iter().map(|p| p.file.as_str())),
        Column::U32(positions.iter().map(|p| p.line).collect()),
        Column::U64(rows.iter().map(|r| target(&r.0.place.site)).collect()),
        texts(rows.iter().map(|r| called(&r.0.place.site))),
    ]
}

/// Stated address that a call leads to; where none is known, whether the place is one that signals return to.
fn target(site: &CallSite) -> u64 {
    match site {
        CallSite::Unknown => u64::MAX,
        CallSite::Signal => OF_A_SIGNAL,
        CallSite::Direct { target, .. } => *target,
    }
}

fn called(site: &CallSite) -> &str {
    match site {
        CallSite::Direct { function, .. } => function,
        CallSite::Unknown | CallSite::Signal => "",
    }
}

fn site(target: u64, function: &str) -> CallSite {
    match target {
        u64::MAX => CallSite::Unknown,
        OF_A_SIGNAL => CallSite::Signal,
        target => CallSite::Direct { target, function: function.to_owned() },
    }
}

/// Rows of [`super::CALL_NAMES`], put together.
pub(crate) fn names_from_columns(columns: Vec<Column>) -> Result<Vec<CallName>, TableError> {
    let Ok(
        [
            Column::Text(module),
            Column::U64(address),
            Column::U32(depth),
            Column::Text(function),
            Column::U64(start),
            Column::Text(inlined),
            Column::Text(file),
            Column::U32(line),
            Column::U64(target),
            Column::Text(called),
        ],
    ) = <[Column; 10]>::try_from(columns)
    else {
        return Err(TableError::Inconsistent);
    };
    let mut names: Vec<CallName> = Vec::new();
    for i in 0..address.len() {
        let same = |n: &CallName| n.address == address[i] && *n.module == **module.get(i);
        if depth[i] == 0 || depth[i] == NONE || !names.last().is_some_and(same) {
            let place = CallPlace {
                function: function.get(i).to_string(),
                start: Some(start[i]).filter(|s| *s != u64::MAX),
                positions: Vec::new(),
                site: site(target[i], called.get(i)),
            };
            names.push(CallName { module: module.get(i).to_string(), address: address[i], place });
        }
        if depth[i] != NONE {
            let position =
                CallPosition { function: inlined.get(i).to_string(), file: file.get(i).to_string(), line: line[i] };
            if let Some(name) = names.last_mut() {
                name.place.positions.push(position);
            }
        }
    }
    Ok(names)
}

fn list(column: &'static str, text: &str) -> Result<Vec<String>, TableError> {
    serde_json::from_str(text).map_err(|_| unknown(column, text))
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
