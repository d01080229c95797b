//! Keeping a database within limits of age and size: the oldest goes first, what is being written
//! stays, and everything dropped is told.

use crate::compact::{finish_replacing, remove_segments, replaced_by};
use crate::database::{Database, EpochInfo, disk_bytes, epoch_dirs, is_unbegun, stray_dirs, temporary_dirs};
use crate::durable::{remove_any, remove_leftovers};
use crate::epoch::{is_busy, lock, lock_compaction, remove_epoch, segments};
use crate::error::{Problem, StoreError};
use crate::segment::read_manifest;
use crate::tables::SAMPLES;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limits of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Drop epochs that ended longer ago.
    pub max_age: Option<Duration>,
    /// Drop the oldest epochs until all files together are not larger.
    pub max_bytes: Option<u64>,
}

/// Something that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Epoch or segment directory.
    pub path: PathBuf,
    /// Label of the epoch.
    pub label: String,
    /// Start of what it held, nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// Sample rows.
    pub rows: u64,
    /// Bytes freed.
    pub bytes: u64,
    /// Which limit it exceeded.
    pub why: Limit,
}

/// A limit of a [`RetentionPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `max_age`.
    Age,
    /// `max_bytes`.
    Bytes,
}

/// What [`Database::gc`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Epochs and segments dropped, oldest first.
    pub dropped: Vec<Dropped>,
    /// Temporary files of crashed writers that were removed.
    pub leftovers: Vec<PathBuf>,
    /// Bytes of the database afterwards.
    pub bytes: u64,
    /// What could not be dropped, and why.
    pub problems: Vec<Problem>,
}

/// Removes what a crash left in a single recording, to which no limits apply.
///
/// # Errors
/// [`StoreError::NotAStore`], or the system's.
pub fn gc_recording(path: &Path) -> Result<GcReport, StoreError> {
    Ok(GcReport { leftovers: crate::check::repair(path)?, bytes: disk_bytes(path), ..GcReport::default() })
}

impl Database {
    /// Removes leftovers of crashes, then what exceeds the limits; `now_ns` is the time since the
    /// Unix epoch. An epoch that is being written loses its oldest segments at last, when nothing
    /// else is left to drop, but never its newest.
    ///
    /// # Errors
    /// The system's, when the database cannot be listed.
    pub fn gc(&self, policy: RetentionPolicy, now_ns: u64) -> Result<GcReport, StoreError> {
        let mut report = GcReport { leftovers: remove_all_leftovers(self.path())?, ..GcReport::default() };
        let (mut epochs, problems) = self.epochs()?;
        report.problems = problems;
        if let Some(age) = policy.max_age {
            let limit = now_ns.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
            epochs.retain(|e| !(ended_before(e, limit) && drop_epoch(e, Limit::Age, &mut report)));
        }
        report.bytes = disk_bytes(self.path());
        if let Some(limit) = policy.max_bytes {
            shrink(&epochs, limit, &mut report);
        }
        Ok(report)
    }
}

/// Drops whole epochs, then segments of the open ones, until the limit holds.
fn shrink(epochs: &[EpochInfo], limit: u64, report: &mut GcReport) {
    for epoch in epochs {
        if report.bytes <= limit {
            return;
        }
        if !is_busy(&epoch.path) && drop_epoch(epoch, Limit::Bytes, report) {
            report.bytes = report.bytes.saturating_sub(epoch.bytes);
        }
    }
    for epoch in epochs.iter().filter(|e| is_busy(&e.path)) {
        if let Err(e) = shrink_open(epoch, limit, report) {
            report.problems.push(Problem::from(e));
        }
    }
}

fn shrink_open(epoch: &EpochInfo, limit: u64, report: &mut GcReport) -> Result<(), StoreError> {
    let Some(_held) = lock_compaction(&epoch.path)? else { return Ok(()) };
    let (mut live, covered) = segments(&epoch.path)?;
    remove_segments(&epoch.path, &covered)?;
    live.pop();
    for range in live {
        if report.bytes <= limit {
            break;
        }
        let path = epoch.path.join(range.name());
        let manifest = read_manifest(&path).ok();
        let bytes = disk_bytes(&path);
        remove_segments(&epoch.path, &[range])?;
        report.bytes = report.bytes.saturating_sub(bytes);
        report.dropped.push(Dropped {
            label: epoch.label.clone(),
            start_ns: manifest.as_ref().map_or(epoch.start_ns, |m| m.start_ns),
            rows: manifest.and_then(|m| m.files.get(SAMPLES.file).map(|f| f.rows)).unwrap_or(0),
            bytes,
            why: Limit::Bytes,
            path,
        });
    }
    Ok(())
}

/// An epoch that nobody closed ended at the latest when its last segment did.
fn ended_before(epoch: &EpochInfo, limit: u64) -> bool {
    let last_segment = || {
        let (live, _) = segments(&epoch.path).ok()?;
        read_manifest(&epoch.path.join(live.last()?.name())).ok().map(|m| m.end_ns)
    };
    let end = if epoch.end_ns > 0 { epoch.end_ns } else { last_segment().unwrap_or(epoch.start_ns) };
    end < limit && !is_busy(&epoch.path)
}

fn drop_epoch(epoch: &EpochInfo, why: Limit, report: &mut GcReport) -> bool {
    match remove_epoch(&epoch.path) {
        Ok(()) => {
            let EpochInfo { path, label, start_ns, rows, bytes, .. } = epoch.clone();
            report.dropped.push(Dropped { path, label, start_ns, rows, bytes, why });
            true
        }
        Err(e) => {
            report.problems.push(Problem::new(&epoch.path, e));
            false
        }
    }
}

/// Removes what crashes left: temporary names, segments and epochs that wider ones replaced.
pub(crate) fn remove_all_leftovers(root: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut removed = Vec::new();
    for epoch in epoch_dirs(root)? {
        if !replaced_by(root, &epoch).is_empty() {
            removed.extend(replaced_by(root, &epoch).into_iter().filter(|p| p.exists()));
            finish_replacing(root, &epoch)?;
        }
    }
    let unbegun = stray_dirs(root)?.into_iter().filter(|dir| is_unbegun(dir));
    for dir in temporary_dirs(root)?.into_iter().chain(unbegun) {
        remove_any(&dir)?;
        removed.push(dir);
    }
    for epoch in epoch_dirs(root)? {
        removed.extend(remove_epoch_leftovers(&epoch)?);
    }
    Ok(removed)
}

/// The same inside one epoch, unless somebody is writing there: temporary names are then in use.
pub(crate) fn remove_epoch_leftovers(epoch: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let _writer = match lock(epoch) {
        Ok(held) => held,
        Err(StoreError::Busy { .. }) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let Some(_compactor) = lock_compaction(epoch)? else { return Ok(Vec::new()) };
    let (_, covered) = segments(epoch)?;
    remove_segments(epoch, &covered)?;
    let names = remove_leftovers(epoch)?.into_iter().chain(covered.iter().map(|r| r.name()));
    Ok(names.map(|n| epoch.join(n)).collect())
}
