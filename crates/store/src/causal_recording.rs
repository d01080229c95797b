//! Causal recordings on disk: a directory with `causal.json` and Parquet tables, committed by one rename.
//! Every window is kept as it was, dropped ones with their reason. Extending a recording reads it, appends
//! and writes it anew: an hour of windows is less than a megabyte.

use crate::causal::{
    CausalMeta, CausalOverhead, CausalRun, Elsewhere, FromOutside, PointVisits, ProgressPoint, TakesOver, Turns, Wait,
    Window,
};
use crate::epoch::OnExisting;
use crate::error::StoreError;
use crate::layout::FORMAT_VERSION;
use crate::recording_dir::{Files, Form, put, read};
use crate::tables::{self, causal as columns};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// `causal.json` and its tables.
static FORM: Form = Form {
    description: "causal.json",
    tables: &[&tables::CAUSAL_WINDOWS, &tables::CAUSAL_VISITS, &tables::CAUSAL_TARGETS, &tables::CAUSAL_SAMPLES],
};

/// Whether a directory is a causal recording.
#[must_use]
pub fn is_recording(dir: &Path) -> bool {
    FORM.is(dir)
}

/// Writes a recording: afterwards it is there with all its tables, or (after an error) what was there
/// before.
///
/// # Errors
/// [`StoreError::Exists`], [`StoreError::NotOurs`] when what is there is no causal recording,
/// [`StoreError::NoSpace`], or the system's.
pub fn save(dir: &Path, run: &CausalRun, on_existing: OnExisting) -> Result<(), StoreError> {
    FORM.save(dir, on_existing, |tmp| write(tmp, run))
}

/// Reads a recording.
///
/// # Errors
/// [`StoreError::NotAStore`], [`StoreError::Version`], [`StoreError::Corrupt`], or the system's.
pub fn load(dir: &Path) -> Result<CausalRun, StoreError> {
    let manifest: Manifest = FORM.manifest(dir)?;
    let files = &manifest.files;
    let mut windows = read(dir, files, &tables::CAUSAL_WINDOWS, columns::windows_from_columns)?;
    let visits = read(dir, files, &tables::CAUSAL_VISITS, columns::visits_from_columns)?;
    let targets = read(dir, files, &tables::CAUSAL_TARGETS, columns::targets_from_columns)?;
    let samples = read(dir, files, &tables::CAUSAL_SAMPLES, columns::samples_from_columns)?;
    let missing = |what: &str| StoreError::corrupt(dir, format!("its tables name a {what} that it does not have"));
    for (window, visits) in visits {
        windows.get_mut(window as usize).ok_or_else(|| missing("window"))?.visits.push(visits);
    }
    let run = CausalRun {
        meta: manifest.meta,
        points: manifest.points,
        targets,
        windows,
        samples,
        turns: manifest.turns,
        asked: manifest.asked,
        waits: manifest.waits,
        takes_over: manifest.takes_over,
        elsewhere: manifest.elsewhere,
        overhead: manifest.overhead,
        notes: manifest.notes,
    };
    match dangling(&run) {
        Some(what) => Err(missing(what)),
        None => Ok(run),
    }
}

/// What `causal.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    meta: CausalMeta,
    points: Vec<ProgressPoint>,
    /// Not known of recordings made before.
    #[serde(default)]
    turns: Vec<Turns>,
    /// Not known of recordings made before.
    #[serde(default)]
    asked: Vec<FromOutside>,
    waits: Vec<Wait>,
    /// Not known of recordings made before.
    #[serde(default)]
    takes_over: Vec<TakesOver>,
    /// Not known of recordings made before.
    #[serde(default)]
    elsewhere: Elsewhere,
    overhead: CausalOverhead,
    notes: Vec<String>,
    files: Files,
}

/// The kind of thing that an index names and that is not there.
fn dangling(run: &CausalRun) -> Option<&'static str> {
    let (targets, points) = (run.targets.len(), run.points.len());
    let target = |t: u32| (t as usize) < targets;
    let point = |p: u32| (p as usize) < points;
    let named = run.windows.iter().map(|w| w.target).chain(run.turns.iter().map(|t| t.target));
    let named = named.chain(run.asked.iter().map(|a| a.target));
    let named = named.chain(run.takes_over.iter().flat_map(|t| [t.target, t.by]));
    if !named.into_iter().all(target) || !run.samples.iter().all(|s| s.target.is_none_or(target)) {
        return Some("target");
    }
    let visited = run.windows.iter().flat_map(|w| &w.visits).all(|v| point(v.point));
    let paired = run.points.iter().filter_map(|p| p.end).all(point);
    (!visited || !paired).then_some("progress point")
}

fn write(dir: &Path, run: &CausalRun) -> Result<(), StoreError> {
    let mut files = Files::new();
    let windows: Vec<(u32, &Window)> = (0..).zip(&run.windows).collect();
    let visits: Vec<(u32, PointVisits)> =
        windows.iter().flat_map(|(i, w)| w.visits.iter().map(move |v| (*i, *v))).collect();
    let targets: Vec<_> = (0..).zip(&run.targets).collect();
    let samples = &run.samples;
    put(dir, &mut files, &tables::CAUSAL_WINDOWS, windows.len(), &|r| columns::windows_to_columns(&windows[r]))?;
    put(dir, &mut files, &tables::CAUSAL_VISITS, visits.len(), &|r| columns::visits_to_columns(&visits[r]))?;
    put(dir, &mut files, &tables::CAUSAL_TARGETS, targets.len(), &|r| columns::targets_to_columns(&targets[r]))?;
    put(dir, &mut files, &tables::CAUSAL_SAMPLES, samples.len(), &|r| columns::samples_to_columns(&samples[r]))?;
    let manifest = Manifest {
        version: FORMAT_VERSION,
        meta: run.meta.clone(),
        points: run.points.clone(),
        turns: run.turns.clone(),
        asked: run.asked.clone(),
        waits: run.waits.clone(),
        takes_over: run.takes_over.clone(),
        elsewhere: run.elsewhere.clone(),
        overhead: run.overhead,
        notes: run.notes.clone(),
        files,
    };
    FORM.describe(dir, &manifest, &manifest.files)
}
