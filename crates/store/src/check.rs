//! Verifying a store: every version, length, checksum, row count and reference, and what crashes left
//! behind. Nothing is changed by [`check()`]; [`repair()`] removes leftovers only, never data.

use crate::compact::replaced_by;
use crate::database::{epoch_dirs, is_database, is_unbegun, stray_dirs, temporary_dirs};
use crate::durable::TMP;
use crate::epoch::{epoch_dirs_at, is_busy, is_our_name, is_sealed, read_meta, segments};
use crate::error::StoreError;
use crate::layout::{SEGMENT_FILE, SegmentRange};
use crate::retain::{remove_all_leftovers, remove_epoch_leftovers};
use crate::segment::{self, Manifest, RowFilter, read_manifest};
use crate::stored::StoredSymbols;
use crate::tables::{EDGES, EXACT, LAPS, SAMPLES, STACKS, THREADS};
use rayon::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Harmless remains of a crash; `repair` removes them.
    Leftover,
    /// Something that is not ours; readers ignore it.
    Stranger,
    /// Samples cannot be read.
    Damage,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File or directory.
    pub path: PathBuf,
    /// How bad.
    pub severity: Severity,
    /// One sentence.
    pub what: String,
}

/// Verifies a recording or a database; an empty list means that everything is sound.
///
/// # Errors
/// [`StoreError::NotAStore`], [`StoreError::Version`], or the system's when listing.
pub fn check(path: &Path) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Vec::new();
    if is_database(path) {
        findings
            .extend(temporary_dirs(path)?.into_iter().map(|p| leftover(p, "left by an interrupted removal or merge")));
        findings.extend(stray_dirs(path)?.into_iter().map(|p| {
            if is_unbegun(&p) {
                leftover(p, "an epoch that could not be begun")
            } else {
                damage(p, "an epoch directory without epoch.json")
            }
        }));
        for epoch in epoch_dirs(path)? {
            let replaced = replaced_by(path, &epoch).into_iter().filter(|p| p.exists());
            findings.extend(replaced.map(|p| leftover(p, "already merged into another epoch")));
        }
    }
    for epoch in epoch_dirs_at(path)? {
        check_epoch(&epoch, &mut findings)?;
    }
    Ok(findings)
}

/// Removes leftovers of crashes from a recording or a database; returns what was removed.
///
/// # Errors
/// [`StoreError::NotAStore`], [`StoreError::Version`], or the system's.
pub fn repair(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    if is_database(path) {
        remove_all_leftovers(path)
    } else {
        read_meta(path).and_then(|_| remove_epoch_leftovers(path))
    }
}

fn check_epoch(epoch: &Path, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
    match read_meta(epoch) {
        Ok(meta) if is_sealed(epoch) && meta.end_ns == 0 => {
            findings.push(damage(epoch.to_owned(), "sealed, but its end is not recorded"));
        }
        Ok(_) => {}
        Err(e) => findings.push(damage(epoch.to_owned(), e)),
    }
    let busy = is_busy(epoch);
    for name in names(epoch)? {
        if name.starts_with(TMP) {
            if !busy {
                findings.push(leftover(epoch.join(name), "left by a writer that was interrupted"));
            }
        } else if !is_our_name(&name) {
            findings.push(stranger(epoch.join(name)));
        }
    }
    let (live, covered) = segments(epoch)?;
    let covered = covered.into_iter().map(|r| leftover(epoch.join(r.name()), "already merged into a wider segment"));
    findings.extend(covered);
    findings.extend(live.par_iter().flat_map_iter(|r| check_segment(epoch, *r)).collect::<Vec<_>>());
    if let Err(e) = StoredSymbols::read(epoch) {
        findings.push(damage(epoch.join(crate::layout::SYMBOLS_DIR), e));
    }
    Ok(())
}

fn check_segment(epoch: &Path, range: SegmentRange) -> Vec<Finding> {
    let path = epoch.join(range.name());
    let manifest = match read_manifest(&path) {
        Ok(manifest) => manifest,
        Err(e) => return vec![damage(path, e)],
    };
    let mut findings = Vec::new();
    for name in names(&path).unwrap_or_default() {
        if name != SEGMENT_FILE && !manifest.files.contains_key(&name) {
            findings.push(stranger(path.join(name)));
        }
    }
    findings.extend(check_rows(&path, &manifest));
    findings
}

/// Reads everything once: lengths, checksums, encodings and references between tables.
fn check_rows(path: &Path, manifest: &Manifest) -> Option<Finding> {
    let run = match segment::read(path, manifest, &RowFilter::ALL) {
        Ok(run) => run,
        Err(e) => return Some(damage(path.to_owned(), e)),
    };
    let stated = |file: &str| manifest.files.get(file).map_or(0, |f| f.rows);
    let found = [
        (SAMPLES.file, run.samples.len()),
        (STACKS.file, run.stack_samples.len()),
        (EDGES.file, run.edges.len()),
        (EXACT.file, run.exact.len()),
        (LAPS.file, run.laps.len()),
        (THREADS.file, run.threads.len()),
    ];
    let (file, rows) = found.into_iter().find(|(file, rows)| stated(file) != *rows as u64)?;
    Some(damage(path.join(file), format!("{rows} rows instead of {}", stated(file))))
}

fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let entries = fs::read_dir(dir).map_err(StoreError::io("list", dir))?;
    Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
}

fn damage(path: PathBuf, what: impl ToString) -> Finding {
    Finding { path, severity: Severity::Damage, what: what.to_string() }
}

fn leftover(path: PathBuf, what: &str) -> Finding {
    Finding { path, severity: Severity::Leftover, what: what.to_owned() }
}

fn stranger(path: PathBuf) -> Finding {
    Finding { path, severity: Severity::Stranger, what: "not made by whither; ignored".to_owned() }
}
