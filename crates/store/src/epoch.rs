//! One epoch directory: its description, its lock, its segments; and the writer that appends to it.
//! A recording is an epoch in a directory of its own. How epochs form a database is in `database`.

use crate::database::{Database, epoch_dirs, is_database};
use crate::description;
use crate::durable::{TMP, create_dir, remove_any, remove_leftovers, replace_file, sync_dir};
use crate::error::StoreError;
use crate::layout::{
    COMPACT_LOCK_FILE, EPOCH_FILE, FORMAT_VERSION, LOCK_FILE, REPLACES_FILE, SEALED_FILE, SYMBOLS_DIR, SegmentRange,
    split_covered,
};
use crate::model::{EpochMeta, Profile};
use crate::run::Run;
use crate::segment::{self, SegmentInfo};
use crate::stored::StoredSymbols;
use crate::tables::Quality;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What to do when the recording to be made exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExisting {
    /// Fail with [`StoreError::Exists`].
    Refuse,
    /// Remove it first, provided that this tool made it and nobody writes to it.
    Replace,
}

/// Appends to one epoch. Whatever [`EpochWriter::append`] returned `Ok` for survives a crash at any
/// later instant; the directory is locked against other writers until this value is dropped.
#[derive(Debug)]
pub struct EpochWriter {
    dir: PathBuf,
    meta: EpochMeta,
    next: u32,
    /// Held for its `flock`.
    _lock: File,
}

impl EpochWriter {
    /// Starts a recording in `dir` (made if missing, but not what it is in; an empty directory is used as it is).
    /// `meta.version` is filled in.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::NotOurs`], [`StoreError::Busy`], or the system's.
    pub fn create(dir: &Path, mut meta: EpochMeta, on_existing: OnExisting) -> Result<Self, StoreError> {
        make_room(dir, on_existing)?;
        create_dir(dir)?;
        let lock = lock(dir)?;
        meta.version = FORMAT_VERSION;
        write_meta(dir, &meta)?;
        Ok(Self { dir: dir.to_owned(), meta, next: 1, _lock: lock })
    }

    /// Goes on with an epoch that was not sealed, after a restart or crash.
    ///
    /// # Errors
    /// [`StoreError::Sealed`], [`StoreError::Busy`], [`StoreError::NotAStore`],
    /// [`StoreError::Version`], or the system's.
    pub fn resume(dir: &Path) -> Result<Self, StoreError> {
        read_meta(dir)?;
        let lock = lock(dir)?;
        // Read again: another writer may have sealed it before the lock was ours.
        let meta = read_meta(dir)?;
        if is_sealed(dir) {
            return Err(StoreError::Sealed { path: dir.to_owned() });
        }
        remove_leftovers(dir)?;
        let next = all_ranges(dir)?.iter().map(|r| r.last).max().unwrap_or(0) + 1;
        Ok(Self { dir: dir.to_owned(), meta, next, _lock: lock })
    }

    /// Writes one part as a segment: samples, stacks and rates of the time window, with the images
    /// and processes they refer to (`part.epochs` is ignored; rows may be in any order). An empty
    /// part writes nothing.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] or the system's; nothing of the part is left behind then, and it may
    /// be appended again, alone or merged with a later one.
    pub fn append(&mut self, part: &Profile, window_ns: (u64, u64)) -> Result<SegmentInfo, StoreError> {
        self.append_owned(part.clone(), window_ns).map_err(|(error, _)| error)
    }

    /// As [`Self::append`], without a second copy of the rows in memory; on error the part comes
    /// back (sorted, equal rows added up), to be appended again.
    ///
    /// # Errors
    /// As [`Self::append`].
    #[expect(clippy::result_large_err, reason = "the part is what the caller must not lose")]
    pub fn append_owned(&mut self, part: Profile, window_ns: (u64, u64)) -> Result<SegmentInfo, (StoreError, Profile)> {
        let run = Run::from_profile(part);
        let range = SegmentRange { first: self.next, last: self.next };
        if run.is_empty() {
            return Ok(SegmentInfo { path: self.dir.join(range.name()), rows: 0, stack_rows: 0, bytes: 0 });
        }
        match segment::write(&self.dir, range, window_ns, &run, Quality::Seal) {
            Ok(info) => {
                self.next += 1;
                Ok(info)
            }
            Err(error) => Err((error, run.into_profile())),
        }
    }

    /// The description as last written.
    #[must_use]
    pub fn meta(&self) -> &EpochMeta {
        &self.meta
    }

    /// The epoch's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Changes the description on disk, atomically. On error the old one stays, here too.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] or the system's.
    pub fn update_meta(&mut self, change: impl FnOnce(&mut EpochMeta)) -> Result<(), StoreError> {
        let mut meta = self.meta.clone();
        change(&mut meta);
        meta.version = FORMAT_VERSION;
        write_meta(&self.dir, &meta)?;
        self.meta = meta;
        Ok(())
    }

    /// Stores names, code and lines of sampled functions, replacing those stored before.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] or the system's.
    pub fn put_symbols(&mut self, symbols: &StoredSymbols) -> Result<(), StoreError> {
        symbols.write(&self.dir)
    }

    /// Closes the epoch for good.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] or the system's; the epoch is then still readable, but open.
    pub fn seal(mut self, end_ns: u64) -> Result<(), StoreError> {
        self.update_meta(|m| m.end_ns = end_ns)?;
        replace_file(&self.dir, SEALED_FILE, b"")
    }
}

/// Stores names, code and lines of sampled functions in an epoch or recording, sealed or not, in one
/// step, replacing those stored before. Rows are not touched, so no lock is needed.
///
/// # Errors
/// [`StoreError::NotAStore`], [`StoreError::Version`], [`StoreError::NoSpace`], or the system's.
pub fn put_symbols(epoch: &Path, symbols: &StoredSymbols) -> Result<(), StoreError> {
    read_meta(epoch)?;
    symbols.write(epoch)
}

/// Reads and checks `epoch.json`.
pub(crate) fn read_meta(dir: &Path) -> Result<EpochMeta, StoreError> {
    let path = dir.join(EPOCH_FILE);
    let bytes = fs::read(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => StoreError::NotAStore { path: dir.to_owned() },
        _ => StoreError::io("read", &path)(e),
    })?;
    description::from_text(&path, &bytes)
}

pub(crate) fn write_meta(dir: &Path, meta: &EpochMeta) -> Result<(), StoreError> {
    replace_file(dir, EPOCH_FILE, &description::to_text(meta))
}

/// Whether this is a recording or epoch that nobody has closed: it is being made, or its maker was killed.
#[must_use]
pub fn is_unfinished(dir: &Path) -> bool {
    dir.join(EPOCH_FILE).exists() && !is_sealed(dir)
}

pub(crate) fn is_sealed(dir: &Path) -> bool {
    dir.join(SEALED_FILE).exists()
}

/// Takes the writer's lock; it goes away with the value, also when the process is killed.
pub(crate) fn lock(dir: &Path) -> Result<File, StoreError> {
    lock_file(dir, LOCK_FILE)
}

fn lock_file(dir: &Path, name: &str) -> Result<File, StoreError> {
    let path = dir.join(name);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(StoreError::io("create", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Busy { path: dir.to_owned() }),
        Err(e) => Err(StoreError::io("lock", &path)(e.into())),
    }
}

/// Whether somebody is writing to the epoch now.
pub(crate) fn is_busy(dir: &Path) -> bool {
    matches!(lock(dir), Err(StoreError::Busy { .. }))
}

/// Takes the lock of those who merge or drop segments beside a writer; `None` when another does.
pub(crate) fn lock_compaction(dir: &Path) -> Result<Option<File>, StoreError> {
    match lock_file(dir, COMPACT_LOCK_FILE) {
        Ok(held) => Ok(Some(held)),
        Err(StoreError::Busy { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The epoch itself when `path` is a recording, all epochs when it is a database.
pub(crate) fn epoch_dirs_at(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    if is_database(path) {
        return Database::open(path).and_then(|db| epoch_dirs(db.path()));
    }
    read_meta(path).map(|_| vec![path.to_owned()])
}

/// Ranges of the segments to read, and of those a wider one covers.
pub(crate) fn segments(dir: &Path) -> Result<(Vec<SegmentRange>, Vec<SegmentRange>), StoreError> {
    all_ranges(dir).map(split_covered)
}

fn all_ranges(dir: &Path) -> Result<Vec<SegmentRange>, StoreError> {
    let entries = fs::read_dir(dir).map_err(StoreError::io("list", dir))?;
    let names = entries.map(|e| e.map(|e| e.file_name()).map_err(StoreError::io("list", dir)));
    names.filter_map(|n| n.map(|n| SegmentRange::parse(n.to_str()?)).transpose()).collect()
}

/// Makes sure that `dir` can become a new recording.
fn make_room(dir: &Path, on_existing: OnExisting) -> Result<(), StoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(StoreError::io("list", dir)(e)),
    };
    let names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    if names.is_empty() {
        return Ok(());
    }
    match on_existing {
        OnExisting::Refuse => Err(StoreError::Exists { path: dir.to_owned() }),
        OnExisting::Replace => remove_epoch(dir),
    }
}

/// Removes an epoch directory, and never anything else: every name in it must be one of ours, and
/// nobody may be writing.
pub(crate) fn remove_epoch(dir: &Path) -> Result<(), StoreError> {
    let not_ours = |why: String| StoreError::NotOurs { path: dir.to_owned(), why };
    if fs::symlink_metadata(dir).map_err(StoreError::io("inspect", dir))?.is_symlink() {
        return Err(not_ours("it is a symbolic link".into()));
    }
    let meta = fs::read(dir.join(EPOCH_FILE)).map_err(|_| not_ours("it has no epoch.json".into()))?;
    let value: serde_json::Value =
        serde_json::from_slice(&meta).map_err(|_| not_ours("its epoch.json is not JSON".into()))?;
    if !(value["version"].is_u64() && value["tool"].is_string() && value["scope"].is_string()) {
        return Err(not_ours("its epoch.json does not describe an epoch".into()));
    }
    for entry in fs::read_dir(dir).map_err(StoreError::io("list", dir))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !is_our_name(&name) {
            return Err(not_ours(format!("it also holds `{name}`")));
        }
    }
    let _held = lock(dir)?;
    // One rename first: a crash half-way through must not leave half an epoch behind.
    let doomed = dir.with_file_name(format!("{TMP}removed-{}", std::process::id()));
    fs::rename(dir, &doomed).map_err(StoreError::io("rename", dir))?;
    remove_any(&doomed)?;
    dir.parent().filter(|p| !p.as_os_str().is_empty()).map_or(Ok(()), sync_dir)
}

pub(crate) fn is_our_name(name: &str) -> bool {
    matches!(name, EPOCH_FILE | SEALED_FILE | LOCK_FILE | COMPACT_LOCK_FILE | SYMBOLS_DIR | REPLACES_FILE)
        || name.starts_with(TMP)
        || SegmentRange::parse(name).is_some()
}
