//! Call-path recordings on disk: a directory with `calls.json` and Parquet tables, committed by one
//! rename. Unlike epochs of samples a recording is written once, whole, when the session ends (or again
//! and again under the same name, each time replacing the one before); it is small: paths, not calls.

use crate::call_steps::CallScript;
use crate::calls::{
    CallEpoch, CallLost, CallModule, CallProcess, CallRecording, CallSnapshot, CallThread, Gap, InProgress, LatePoint,
    OwnCost, PathTotals, Whole,
};
use crate::epoch::OnExisting;
use crate::error::StoreError;
use crate::layout::FORMAT_VERSION;
use crate::recording_dir::{Files, Form, put, read};
use crate::tables::columns::Column;
use crate::tables::{self, Table, calls as columns};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

/// `calls.json` and its tables.
static FORM: Form = Form {
    description: "calls.json",
    tables: &[
        &tables::CALL_POINTS,
        &tables::CALL_FRAMES,
        &tables::CALL_PATHS,
        &tables::CALL_THREADS,
        &tables::CALL_NAMES,
    ],
};

/// Whether a directory is a call-path recording.
#[must_use]
pub fn is_recording(dir: &Path) -> bool {
    FORM.is(dir)
}

/// Writes a recording: afterwards it is there with all its tables, or (after an error) what was there
/// before.
///
/// # Errors
/// [`StoreError::Exists`], [`StoreError::NotOurs`] when what is there is no call-path recording,
/// [`StoreError::NoSpace`], or the system's.
pub fn save(dir: &Path, recording: &CallRecording, on_existing: OnExisting) -> Result<(), StoreError> {
    FORM.save(dir, on_existing, |tmp| write(tmp, recording))
}

/// Reads a recording.
///
/// # Errors
/// [`StoreError::NotAStore`], [`StoreError::Version`], [`StoreError::Corrupt`], or the system's.
pub fn load(dir: &Path) -> Result<CallRecording, StoreError> {
    let manifest: Manifest = FORM.manifest(dir)?;
    let files = &manifest.files;
    let rows = Rows {
        points: read(dir, files, &tables::CALL_POINTS, columns::points_from_columns)?,
        frames: read(dir, files, &tables::CALL_FRAMES, columns::frames_from_columns)?,
        paths: read(dir, files, &tables::CALL_PATHS, columns::paths_from_columns)?,
        threads: read(dir, files, &tables::CALL_THREADS, columns::threads_from_columns)?,
    };
    let names = read(dir, files, &tables::CALL_NAMES, columns::names_from_columns)?;
    let epochs = rows
        .into_epochs(manifest.epochs)
        .ok_or_else(|| StoreError::corrupt(dir, "its tables name an epoch or a path that it does not have"))?;
    Ok(CallRecording {
        command: manifest.command,
        host: manifest.host,
        tool: manifest.tool,
        start_ns: manifest.start_ns,
        metrics: manifest.metrics,
        script: manifest.script,
        epochs,
        names,
    })
}

/// What `calls.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    tool: String,
    command: String,
    host: String,
    start_ns: u64,
    #[serde(default)]
    metrics: Vec<String>,
    #[serde(default)]
    script: Option<CallScript>,
    epochs: Vec<EpochInfo>,
    files: Files,
}

/// An epoch but for its tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EpochInfo {
    name: String,
    at_ns: u64,
    whole: Whole,
    processes: Vec<CallProcess>,
    threads: Vec<CallThread>,
    modules: Vec<CallModule>,
    #[serde(default)]
    late: Vec<LatePoint>,
    #[serde(default)]
    gaps: Vec<Gap>,
    in_progress: Vec<InProgress>,
    lost: CallLost,
    own_cost: OwnCost,
    notes: Vec<String>,
}

impl EpochInfo {
    fn of(epoch: &CallEpoch) -> Self {
        let s = epoch.snapshot.clone();
        Self {
            name: epoch.name.clone(),
            at_ns: s.at_ns,
            whole: s.whole,
            processes: s.processes,
            threads: s.threads,
            modules: s.modules,
            late: s.late,
            gaps: s.gaps,
            in_progress: s.in_progress,
            lost: s.lost,
            own_cost: s.own_cost,
            notes: s.notes,
        }
    }

    fn into_epoch(self) -> CallEpoch {
        let snapshot = CallSnapshot {
            at_ns: self.at_ns,
            whole: self.whole,
            processes: self.processes,
            threads: self.threads,
            modules: self.modules,
            late: self.late,
            gaps: self.gaps,
            in_progress: self.in_progress,
            lost: self.lost,
            own_cost: self.own_cost,
            notes: self.notes,
            ..CallSnapshot::default()
        };
        CallEpoch { name: self.name, snapshot }
    }
}

/// The tables as read, each row with its epoch.
struct Rows {
    points: Vec<(u32, crate::calls::CallPoint)>,
    frames: Vec<(u32, crate::calls::CallFrame)>,
    paths: Vec<(u32, crate::calls::CallPath)>,
    threads: Vec<columns::ThreadRow<PathTotals>>,
}

impl Rows {
    /// `None` when a row belongs to no epoch or path.
    fn into_epochs(self, infos: Vec<EpochInfo>) -> Option<Vec<CallEpoch>> {
        let mut epochs: Vec<CallEpoch> = infos.into_iter().map(EpochInfo::into_epoch).collect();
        let mut index: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        for (epoch, point) in self.points {
            epochs.get_mut(epoch as usize)?.snapshot.points.push(point);
        }
        for (epoch, frame) in self.frames {
            epochs.get_mut(epoch as usize)?.snapshot.frames.push(frame);
        }
        for (epoch, path) in self.paths {
            let paths = &mut epochs.get_mut(epoch as usize)?.snapshot.paths;
            index.insert((epoch, path.id), paths.len());
            paths.push(path);
        }
        for (epoch, path, tid, totals) in self.threads {
            let place = *index.get(&(epoch, path))?;
            epochs.get_mut(epoch as usize)?.snapshot.paths.get_mut(place)?.threads.push((tid, totals));
        }
        Some(epochs)
    }
}

fn write(dir: &Path, recording: &CallRecording) -> Result<(), StoreError> {
    let mut files = Files::new();
    let mut put = |table: &Table, rows: usize, make: &dyn Fn(Range<usize>) -> Vec<Column>| {
        put(dir, &mut files, table, rows, make)
    };
    let epochs = &recording.epochs;
    let (points, frames) = (columns::flat(epochs, |s| &s.points), columns::flat(epochs, |s| &s.frames));
    let (paths, threads) = (columns::flat(epochs, |s| &s.paths), columns::thread_rows(epochs));
    let names = columns::name_rows(&recording.names);
    put(&tables::CALL_POINTS, points.len(), &|r| columns::points_to_columns(&points[r]))?;
    put(&tables::CALL_FRAMES, frames.len(), &|r| columns::frames_to_columns(&frames[r]))?;
    put(&tables::CALL_PATHS, paths.len(), &|r| columns::paths_to_columns(&paths[r]))?;
    put(&tables::CALL_THREADS, threads.len(), &|r| columns::threads_to_columns(&threads[r]))?;
    put(&tables::CALL_NAMES, names.len(), &|r| columns::names_to_columns(&names, r))?;
    let manifest = Manifest {
        version: FORMAT_VERSION,
        tool: recording.tool.clone(),
        command: recording.command.clone(),
        host: recording.host.clone(),
        start_ns: recording.start_ns,
        metrics: recording.metrics.clone(),
        script: recording.script.clone(),
        epochs: epochs.iter().map(EpochInfo::of).collect(),
        files,
    };
    FORM.describe(dir, &manifest, &manifest.files)
}
