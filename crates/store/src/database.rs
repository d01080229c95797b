//! A database: a tree of epochs, `host=H/date=D/epoch=START-N`, written by many hosts without
//! coordination. Listing, selecting, labelling and removing live here; what an epoch holds does not.

use crate::compact::replaced_by;
use crate::durable::{TMP, create_dirs, remove_any, replace_file, sync_dir};
use crate::epoch::{EpochWriter, OnExisting, is_busy, is_sealed, lock, read_meta, remove_epoch, segments, write_meta};
use crate::error::{Problem, StoreError};
use crate::layout::{DATABASE_FILE, EPOCH_FILE, FORMAT_VERSION, LOCK_FILE, epoch_name, epoch_parent, host_word};
use crate::model::EpochMeta;
use crate::rebuild::with_remedy;
use crate::segment::read_manifest;
use crate::tables::SAMPLES;
use std::fs;
use std::path::{Path, PathBuf};

/// An opened database.
#[derive(Clone, Debug)]
pub struct Database {
    root: PathBuf,
}

/// One epoch, as `epochs list` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochInfo {
    /// Directory.
    pub path: PathBuf,
    /// Host name.
    pub host: String,
    /// Label, empty when none was given.
    pub label: String,
    /// Start, nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// End; 0 while open (or after a crash).
    pub end_ns: u64,
    /// Closed for good.
    pub sealed: bool,
    /// Sample rows in sealed segments.
    pub rows: u64,
    /// Bytes on disk, everything included.
    pub bytes: u64,
}

/// What the daemon of one host has in a database beside its epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonFiles {
    /// Socket that it listens on.
    pub socket: PathBuf,
    /// Locked as long as it runs.
    pub lock: PathBuf,
}

impl Database {
    /// Opens a database, creating it when the directory does not exist or is empty.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`] for a directory with other contents, [`StoreError::Version`], or
    /// the system's.
    pub fn open_or_create(root: &Path) -> Result<Self, StoreError> {
        if root.join(DATABASE_FILE).exists() {
            return Self::open(root);
        }
        let temporary = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(TMP);
        // Temporary files may be those of another that makes the same database just now.
        let used = fs::read_dir(root).is_ok_and(|entries| entries.flatten().any(|entry| !temporary(&entry)));
        if used {
            return if root.join(DATABASE_FILE).exists() {
                Self::open(root)
            } else {
                Err(StoreError::NotAStore { path: root.to_owned() })
            };
        }
        create_dirs(root)?;
        replace_file(
            root,
            DATABASE_FILE,
            format!("# A profile database of whither.\nversion = {FORMAT_VERSION}\n").as_bytes(),
        )?;
        Ok(Self { root: root.to_owned() })
    }

    /// Files by which the daemon of a host is reached, and by which it is the only one: hosts share a tree, but not a kernel.
    #[must_use]
    pub fn daemon_files(root: &Path, host: &str) -> DaemonFiles {
        let word = host_word(host);
        DaemonFiles {
            socket: root.join(format!("control-{word}.sock")),
            lock: root.join(format!("daemon-{word}.lock")),
        }
    }

    /// Opens a database that exists.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`], [`StoreError::NotADatabase`], [`StoreError::Version`], or the system's.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        check_version(root)?;
        Ok(Self { root: root.to_owned() })
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Starts an epoch; host and date come from `meta`.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] or the system's.
    pub fn new_epoch(&self, meta: EpochMeta) -> Result<EpochWriter, StoreError> {
        let parent = epoch_parent(&self.root, &meta.host, meta.start_ns);
        create_dirs(&parent)?;
        let mut n = 1;
        loop {
            let dir = parent.join(epoch_name(meta.start_ns, n));
            match EpochWriter::create(&dir, meta.clone(), OnExisting::Refuse) {
                Err(StoreError::Exists { .. } | StoreError::Busy { .. }) if n < 10_000 => n += 1,
                made => {
                    if made.is_err() && is_unbegun(&dir) {
                        // Best effort; `db check --repair` does it otherwise.
                        let _ = remove_any(&dir);
                    }
                    sync_dir(&parent)?;
                    return made;
                }
            }
        }
    }

    /// Goes on with an open epoch (see [`EpochWriter::resume`]).
    ///
    /// # Errors
    /// As [`EpochWriter::resume`].
    pub fn open_epoch(&self, path: &Path) -> Result<EpochWriter, StoreError> {
        EpochWriter::resume(path)
    }

    /// All epochs by start time, and what could not be read.
    ///
    /// # Errors
    /// The system's, when the directory cannot be listed.
    pub fn epochs(&self) -> Result<(Vec<EpochInfo>, Vec<Problem>), StoreError> {
        let mut problems = Vec::new();
        let epochs = list_epochs(&self.root, None, &mut problems)?;
        Ok((epochs, problems))
    }

    /// Epochs selected by `selector` (see [`EpochSelector`]).
    ///
    /// # Errors
    /// [`StoreError::Selection`] when none is.
    pub fn select(&self, selector: &str) -> Result<Vec<EpochInfo>, StoreError> {
        list_epochs(&self.root, Some(selector), &mut Vec::new())
    }

    /// Gives the selected epochs a label.
    ///
    /// # Errors
    /// [`StoreError::Selection`], or [`StoreError::Busy`] for an epoch that is being written (its
    /// writer holds the description; ask the daemon).
    pub fn label(&self, selector: &str, text: &str) -> Result<Vec<EpochInfo>, StoreError> {
        let epochs = self.select(selector)?;
        for epoch in &epochs {
            let _held = lock(&epoch.path)?;
            let mut meta = read_meta(&epoch.path)?;
            text.clone_into(&mut meta.label);
            write_meta(&epoch.path, &meta)?;
        }
        Ok(epochs)
    }

    /// Removes the selected epochs; returns those removed.
    ///
    /// # Errors
    /// [`StoreError::Selection`], [`StoreError::Busy`], [`StoreError::NotOurs`].
    pub fn remove(&self, selector: &str) -> Result<Vec<EpochInfo>, StoreError> {
        let epochs = self.select(selector)?;
        for epoch in &epochs {
            remove_epoch(&epoch.path)?;
        }
        Ok(epochs)
    }
}

/// A selection of epochs in words: `all`; `last`, `last-N` (N before the last); a label; a date
/// (`2026-11-20`); the name of an epoch's directory or the beginning of its start time
/// (`20261120T14`); `A..B` from one to another, both included; several separated by commas.
#[derive(Clone, Copy, Debug)]
pub struct EpochSelector<'a>(pub &'a str);

impl EpochSelector<'_> {
    /// Picks from epochs sorted by start; the order is kept.
    ///
    /// # Errors
    /// [`StoreError::Selection`] when a part of it selects nothing.
    pub fn pick(self, epochs: &[EpochInfo]) -> Result<Vec<EpochInfo>, StoreError> {
        let mut picked = vec![false; epochs.len()];
        for part in self.0.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let found = pick_part(part, epochs);
            if found.is_empty() {
                return Err(StoreError::Selection { text: self.0.to_owned(), why: nothing(part, epochs) });
            }
            found.into_iter().for_each(|i| picked[i] = true);
        }
        Ok(epochs.iter().zip(&picked).filter(|(_, p)| **p).map(|(e, _)| e.clone()).collect())
    }
}

fn nothing(part: &str, epochs: &[EpochInfo]) -> String {
    let known: Vec<String> = epochs
        .iter()
        .rev()
        .take(5)
        .map(|e| if e.label.is_empty() { dir_name(e).to_owned() } else { format!("{} ({})", dir_name(e), e.label) })
        .collect();
    match known.is_empty() {
        true => "the database has no epochs".to_owned(),
        false => format!("`{part}` matches none; the latest are {}", known.join(", ")),
    }
}

fn pick_part(part: &str, epochs: &[EpochInfo]) -> Vec<usize> {
    if let Some((a, b)) = part.split_once("..") {
        let first = pick_part(a, epochs).first().copied();
        let last = pick_part(b, epochs).last().copied();
        return match (first, last) {
            (Some(first), Some(last)) => (first..=last).collect(),
            _ => Vec::new(),
        };
    }
    if part == "all" {
        return (0..epochs.len()).collect();
    }
    let labelled: Vec<usize> = positions(epochs, |e| e.label == part);
    if !labelled.is_empty() {
        return labelled;
    }
    if let Some(back) = part.strip_prefix("last") {
        let n = if back.is_empty() { Some(0) } else { back.strip_prefix('-').and_then(|n| n.parse::<usize>().ok()) };
        return n.and_then(|n| epochs.len().checked_sub(n + 1)).into_iter().collect();
    }
    positions(epochs, |e| named(e, part))
}

fn positions(epochs: &[EpochInfo], test: impl Fn(&EpochInfo) -> bool) -> Vec<usize> {
    epochs.iter().enumerate().filter(|(_, e)| test(e)).map(|(i, _)| i).collect()
}

/// Whether a date, a directory name or the beginning of a start time names an epoch.
fn named(epoch: &EpochInfo, text: &str) -> bool {
    let name = dir_name(epoch);
    let start = name.strip_prefix("epoch=").unwrap_or(name);
    let date = crate::layout::date_text(epoch.start_ns);
    text == name || text == date || (text.len() >= 4 && start.starts_with(text))
}

fn dir_name(epoch: &EpochInfo) -> &str {
    epoch.path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
}

/// Epochs below a database's directory, by start time.
pub(crate) fn list_epochs(
    root: &Path,
    selector: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Result<Vec<EpochInfo>, StoreError> {
    check_version(root)?;
    let mut epochs = Vec::new();
    let dirs = epoch_dirs(root)?;
    let replaced: Vec<PathBuf> = dirs.iter().flat_map(|d| replaced_by(root, d)).collect();
    for dir in dirs.into_iter().filter(|d| !replaced.contains(d)) {
        match epoch_info(&dir) {
            Ok(info) => epochs.push(info),
            Err(e) => problems.push(Problem::new(&dir, with_remedy(&dir, e))),
        }
    }
    // A directory without parts is one that a writer has just made.
    let lost = |dir: &PathBuf| with_remedy(dir, StoreError::NotAStore { path: dir.clone() });
    let stray = stray_dirs(root)?.into_iter().map(|dir| (lost(&dir), dir));
    let stray = stray.filter(|(e, _)| matches!(e, StoreError::Corrupt { .. }));
    problems.extend(stray.map(|(e, dir)| Problem::new(&dir, e)));
    epochs.sort_by(|a, b| (a.start_ns, &a.path).cmp(&(b.start_ns, &b.path)));
    selector.map_or(Ok(epochs.clone()), |s| EpochSelector(s).pick(&epochs))
}

pub(crate) fn is_database(path: &Path) -> bool {
    path.join(DATABASE_FILE).exists()
}

/// Directories of the right place and name that hold an `epoch.json`.
pub(crate) fn epoch_dirs(root: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut dirs = below(root, &["host=", "date=", "epoch="])?;
    dirs.retain(|dir| dir.join(EPOCH_FILE).exists());
    Ok(dirs)
}

/// Directories of epochs that lost their description.
pub(crate) fn stray_dirs(root: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut dirs = below(root, &["host=", "date=", "epoch="])?;
    dirs.retain(|dir| !dir.join(EPOCH_FILE).exists());
    Ok(dirs)
}

/// Whether a directory without epoch.json holds nothing but a lock that nobody has: an epoch that could not be begun.
pub(crate) fn is_unbegun(dir: &Path) -> bool {
    let is_nothing = |name: &str| name == LOCK_FILE || name.starts_with(TMP);
    let entries = fs::read_dir(dir);
    entries.is_ok_and(|all| all.flatten().all(|e| e.file_name().to_str().is_some_and(is_nothing))) && !is_busy(dir)
}

/// What an interrupted removal or merge left beside epochs.
pub(crate) fn temporary_dirs(root: &Path) -> Result<Vec<PathBuf>, StoreError> {
    below(root, &["host=", "date=", TMP])
}

/// Children by name, level by level.
fn below(root: &Path, prefixes: &[&str]) -> Result<Vec<PathBuf>, StoreError> {
    let mut level = vec![root.to_owned()];
    for prefix in prefixes {
        let mut next = Vec::new();
        for dir in &level {
            next.extend(children(dir, prefix)?);
        }
        level = next;
    }
    level.sort();
    Ok(level)
}

/// Bytes of all files below a directory; what vanishes meanwhile counts nothing.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |e: fs::DirEntry| match e.metadata() {
        Ok(m) if m.is_dir() => disk_bytes(&e.path()),
        Ok(m) => m.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn children(dir: &Path, prefix: &str) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        // Another host may remove what it owns between the listing and now.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(StoreError::io("list", dir)(e)),
    };
    let named = |e: &fs::DirEntry| e.file_name().to_str().is_some_and(|n| n.starts_with(prefix));
    Ok(entries.flatten().filter(named).map(|e| e.path()).collect())
}

pub(crate) fn epoch_info(dir: &Path) -> Result<EpochInfo, StoreError> {
    let meta = read_meta(dir)?;
    let (live, _) = segments(dir)?;
    let manifests = live.iter().filter_map(|r| read_manifest(&dir.join(r.name())).ok());
    let rows = manifests.map(|m| m.files.get(SAMPLES.file).map_or(0, |f| f.rows)).sum();
    Ok(EpochInfo {
        path: dir.to_owned(),
        host: meta.host,
        label: meta.label,
        start_ns: meta.start_ns,
        end_ns: meta.end_ns,
        sealed: is_sealed(dir),
        rows,
        bytes: disk_bytes(dir),
    })
}

fn check_version(root: &Path) -> Result<(), StoreError> {
    let path = root.join(DATABASE_FILE);
    let text = fs::read_to_string(&path).map_err(|_| match root.join(EPOCH_FILE).exists() {
        true => StoreError::NotADatabase { path: root.to_owned() },
        false => StoreError::NotAStore { path: root.to_owned() },
    })?;
    // One key: a whole TOML reader would be weight without use.
    let version = text.lines().find_map(|l| l.split_once('=').filter(|(k, _)| k.trim() == "version"));
    let found = version.and_then(|(_, v)| v.trim().parse().ok());
    match found {
        Some(FORMAT_VERSION) => Ok(()),
        Some(found) => Err(StoreError::Version { path, found, supported: FORMAT_VERSION }),
        None => Err(StoreError::corrupt(&path, "it has no `version = N` line")),
    }
}
