//! Merging segments: all of an epoch into one, or several epochs into one. The order of steps is such
//! that a crash between any two of them neither loses a row nor counts one twice.

use crate::database::{Database, EpochInfo, epoch_info};
use crate::durable::{create_dirs, remove_any, replace_file, sync_dir};
use crate::epoch::{epoch_dirs_at, is_busy, lock, lock_compaction, read_meta, segments, write_meta};
use crate::error::{Problem, StoreError};
use crate::layout::{EPOCH_FILE, REPLACES_FILE, SEALED_FILE, SegmentRange, epoch_name, epoch_parent};
use crate::model::EpochMeta;
use crate::run::Run;
use crate::segment::{self, Manifest, RowFilter, read_manifest};
use crate::stored::StoredSymbols;
use crate::tables::{Quality, SAMPLES};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// When to merge the segments of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactPolicy {
    /// Only epochs with at least this many segments.
    pub min_segments: usize,
}

impl Default for CompactPolicy {
    fn default() -> Self {
        Self { min_segments: 2 }
    }
}

/// What compaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Epochs with merged segments.
    pub epochs: usize,
    /// Segments read.
    pub segments: usize,
    /// Sample rows read and written.
    pub rows: (u64, u64),
    /// Bytes of tables before and after.
    pub bytes: (u64, u64),
    /// Epochs left as they are, and why.
    pub problems: Vec<Problem>,
}

/// Merges the segments of a recording, or of every epoch of a database. Epochs that are being
/// written keep their newest segment apart; an epoch with a damaged segment is left as it is.
///
/// # Errors
/// [`StoreError::NotAStore`], [`StoreError::Version`], or the system's when listing.
pub fn compact(path: &Path, policy: CompactPolicy) -> Result<Compacted, StoreError> {
    let epochs = epoch_dirs_at(path)?;
    let done: Vec<Compacted> = epochs
        .par_iter()
        .map(|epoch| {
            compact_epoch(epoch, policy)
                .unwrap_or_else(|e| Compacted { problems: vec![Problem::from(e)], ..Compacted::default() })
        })
        .collect();
    Ok(done.into_iter().fold(Compacted::default(), Compacted::and))
}

impl Compacted {
    fn and(mut self, other: Self) -> Self {
        self.epochs += other.epochs;
        self.segments += other.segments;
        self.rows = (self.rows.0 + other.rows.0, self.rows.1 + other.rows.1);
        self.bytes = (self.bytes.0 + other.bytes.0, self.bytes.1 + other.bytes.1);
        self.problems.extend(other.problems);
        self
    }
}

fn compact_epoch(epoch: &Path, policy: CompactPolicy) -> Result<Compacted, StoreError> {
    read_meta(epoch)?;
    let Some(_held) = lock_compaction(epoch)? else { return Ok(Compacted::default()) };
    let (mut live, covered) = segments(epoch)?;
    remove_segments(epoch, &covered)?;
    if is_busy(epoch) {
        live.pop();
    }
    let (Some(first), Some(last)) = (live.first(), live.last()) else { return Ok(Compacted::default()) };
    if live.len() < policy.min_segments.max(2) {
        return Ok(Compacted::default());
    }
    let range = SegmentRange { first: first.first, last: last.last };
    let paths: Vec<PathBuf> = live.iter().map(|r| epoch.join(r.name())).collect();
    let (run, manifests) = read_all(&paths)?;
    let info = segment::write(epoch, range, window(&manifests), &run, Quality::Compact)?;
    remove_segments(epoch, &live)?;
    Ok(Compacted {
        epochs: 1,
        segments: live.len(),
        rows: (manifests.iter().map(rows).sum(), info.rows),
        bytes: (manifests.iter().flat_map(|m| m.files.values()).map(|f| f.bytes).sum(), info.bytes),
        problems: Vec::new(),
    })
}

/// Merges the segments; any that cannot be read whole is an error, as merging the rest would make
/// the loss permanent.
fn read_all(segments: &[PathBuf]) -> Result<(Run, Vec<Manifest>), StoreError> {
    let read = |path: &PathBuf| {
        let manifest = read_manifest(path)?;
        Ok((segment::read(path, &manifest, &RowFilter::ALL)?, manifest))
    };
    let parts: Result<Vec<(Run, Manifest)>, StoreError> = segments.par_iter().map(read).collect();
    let (runs, manifests) = parts?.into_iter().unzip();
    Ok((Run::merge(runs), manifests))
}

fn rows(manifest: &Manifest) -> u64 {
    manifest.files.get(SAMPLES.file).map_or(0, |f| f.rows)
}

fn window(manifests: &[Manifest]) -> (u64, u64) {
    let start = manifests.iter().map(|m| m.start_ns).min().unwrap_or(0);
    (start, manifests.iter().map(|m| m.end_ns).max().unwrap_or(start))
}

pub(crate) fn remove_segments(epoch: &Path, ranges: &[SegmentRange]) -> Result<(), StoreError> {
    for range in ranges {
        remove_any(&epoch.join(range.name()))?;
    }
    if ranges.is_empty() { Ok(()) } else { sync_dir(epoch) }
}

impl Database {
    /// Merges the selected epochs (of one host, none being written) into one, which takes the label
    /// of the first that has one.
    ///
    /// # Errors
    /// [`StoreError::Selection`] for fewer than two epochs or several hosts, [`StoreError::Busy`],
    /// [`StoreError::Corrupt`] when a segment cannot be read: then nothing changes.
    pub fn merge(&self, selector: &str) -> Result<EpochInfo, StoreError> {
        let epochs = self.select(selector)?;
        let refuse = |why: &str| StoreError::Selection { text: selector.to_owned(), why: why.to_owned() };
        if epochs.len() < 2 {
            return Err(refuse("merging takes at least two epochs"));
        }
        if epochs.iter().any(|e| e.host != epochs[0].host) {
            return Err(refuse("the epochs are of several hosts"));
        }
        if let Some(between) = self.between(&epochs)? {
            return Err(refuse(&format!(
                "{} lies between them: its time would be told twice; merge it too, or only those next to each other",
                between.path.display()
            )));
        }
        let locks: Result<Vec<_>, StoreError> = epochs.iter().map(|e| lock(&e.path)).collect();
        let _held = locks?;
        let merged = self.write_merged(&epochs)?;
        finish_replacing(self.path(), &merged)?;
        epoch_info(&merged)
    }

    /// An epoch of the same host that began between the first and the last of these, and is none of them.
    fn between(&self, epochs: &[EpochInfo]) -> Result<Option<EpochInfo>, StoreError> {
        let starts = || epochs.iter().map(|e| e.start_ns);
        let (first, last) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
        let others = self.epochs()?.0.into_iter().filter(|e| e.host == epochs[0].host);
        let within = |e: &EpochInfo| e.start_ns > first && e.start_ns < last && epochs.iter().all(|m| m.path != e.path);
        Ok(others.into_iter().find(within))
    }

    /// Builds the merged epoch under a temporary name. Once it has its real name, the list it
    /// carries hides the epochs it replaces, so no instant shows both or neither.
    fn write_merged(&self, epochs: &[EpochInfo]) -> Result<PathBuf, StoreError> {
        let metas: Result<Vec<EpochMeta>, StoreError> = epochs.iter().map(|e| read_meta(&e.path)).collect();
        let meta = merged_meta(metas?);
        let mut paths = Vec::new();
        let mut symbols = StoredSymbols::default();
        for epoch in epochs {
            paths.extend(segments(&epoch.path)?.0.into_iter().map(|r| epoch.path.join(r.name())));
            symbols.merge(StoredSymbols::read(&epoch.path)?);
        }
        let (run, manifests) = read_all(&paths)?;
        let parent = epoch_parent(self.path(), &meta.host, meta.start_ns);
        create_dirs(&parent)?;
        let tmp = parent.join(format!("{}merge-{}", crate::durable::TMP, std::process::id()));
        let built = self.build_merged(&tmp, &meta, &run, window(&manifests), &symbols, epochs);
        let named = built.and_then(|()| self.name_merged(&tmp, &parent, meta.start_ns));
        if named.is_err() && tmp.exists() {
            // What stays is ignored by readers and removed by the next check.
            let _ = remove_any(&tmp);
        }
        named
    }

    fn build_merged(
        &self,
        tmp: &Path,
        meta: &EpochMeta,
        run: &Run,
        window_ns: (u64, u64),
        symbols: &StoredSymbols,
        epochs: &[EpochInfo],
    ) -> Result<(), StoreError> {
        if tmp.exists() {
            remove_any(tmp)?;
        }
        create_dirs(tmp)?;
        if !run.is_empty() {
            segment::write(tmp, SegmentRange { first: 1, last: 1 }, window_ns, run, Quality::Compact)?;
        }
        if !symbols.is_empty() {
            symbols.write(tmp)?;
        }
        let replaced: Vec<&Path> = epochs.iter().filter_map(|e| e.path.strip_prefix(self.path()).ok()).collect();
        let list = serde_json::to_vec(&replaced).map_err(|e| StoreError::corrupt(tmp, e))?;
        replace_file(tmp, REPLACES_FILE, &list)?;
        write_meta(tmp, meta)?;
        replace_file(tmp, SEALED_FILE, b"")
    }

    fn name_merged(&self, tmp: &Path, parent: &Path, start_ns: u64) -> Result<PathBuf, StoreError> {
        let free = (1..).map(|n| parent.join(epoch_name(start_ns, n))).find(|p| !p.exists());
        let path = free.unwrap_or_else(|| parent.join(epoch_name(start_ns, 0)));
        std::fs::rename(tmp, &path).map_err(StoreError::io("rename to", &path))?;
        sync_dir(parent)?;
        Ok(path)
    }
}

/// Removes the epochs that a merged one replaces, then the list. Also ends what a crash interrupted.
pub(crate) fn finish_replacing(root: &Path, merged: &Path) -> Result<(), StoreError> {
    for old in replaced_by(root, merged) {
        if old.join(EPOCH_FILE).exists() {
            remove_any(&old)?;
        }
    }
    let list = merged.join(REPLACES_FILE);
    if list.exists() { remove_any(&list).and_then(|()| sync_dir(merged)) } else { Ok(()) }
}

/// Epochs that a merged one replaces. Only paths of epochs below this database are believed.
pub(crate) fn replaced_by(root: &Path, merged: &Path) -> Vec<PathBuf> {
    let Ok(bytes) = std::fs::read(merged.join(REPLACES_FILE)) else { return Vec::new() };
    let names: Vec<String> = serde_json::from_slice(&bytes).unwrap_or_default();
    let parts = ["host=", "date=", "epoch="];
    let sound = |name: &String| {
        let split: Vec<&str> = name.split('/').collect();
        split.len() == parts.len() && split.iter().zip(parts).all(|(s, p)| s.starts_with(p))
    };
    names.iter().filter(|n| sound(n)).map(|n| root.join(n)).filter(|p| p != merged).collect()
}

fn merged_meta(metas: Vec<EpochMeta>) -> EpochMeta {
    let mut metas = metas.into_iter();
    let mut out = metas.next().unwrap_or_default();
    for meta in metas {
        out.end_ns = out.end_ns.max(meta.end_ns).max(meta.start_ns);
        if out.label.is_empty() {
            out.label = meta.label;
        }
        let new: Vec<String> = meta.notes.into_iter().filter(|n| !out.notes.contains(n)).collect();
        out.notes.extend(new);
        out.slice_s = out.slice_s.max(meta.slice_s);
        out.threads &= meta.threads;
        out.folded |= meta.folded;
        out.losses.add(&meta.losses);
        out.core = out.core.or(meta.core);
        // The latest figures describe the collector best; its CPU time adds up.
        out.cost = crate::model::OwnCost { user_ns: out.cost.user_ns + meta.cost.user_ns, ..meta.cost };
    }
    out
}
