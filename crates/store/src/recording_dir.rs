//! Recordings that are written whole: a directory with one JSON description and Parquet tables, committed
//! by one rename (or again under the same name, each time replacing the one before). What the tables hold
//! is the business of `calls_recording` and `causal_recording`; epochs of samples, which grow, are in `epoch`.

use crate::description;
use crate::durable::{TMP, create_dirs, remove_any, sync_all, sync_dir, write_unsynced};
use crate::epoch::OnExisting;
use crate::error::StoreError;
use crate::segment::{FileInfo, read_checked, write_table};
use crate::stored::swap_in;
use crate::tables::columns::{Column, Quality, TableError};
use crate::tables::{Table, decode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A kind of recording: the file that describes it, and the tables it may have.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) description: &'static str,
    pub(crate) tables: &'static [&'static Table],
}

/// Rows, length and checksum of each table file.
pub(crate) type Files = BTreeMap<String, FileInfo>;

impl Form {
    /// Whether a directory is a recording of this kind.
    pub(crate) fn is(&self, dir: &Path) -> bool {
        dir.join(self.description).is_file()
    }

    /// Writes a recording by `fill`: afterwards it is there with all its files, or (after an error) what was
    /// there before.
    pub(crate) fn save(
        &self,
        dir: &Path,
        on_existing: OnExisting,
        fill: impl FnOnce(&Path) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.make_room(dir, on_existing)?;
        let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        create_dirs(parent)?;
        let tmp = temporary(parent, dir);
        if tmp.exists() {
            remove_any(&tmp)?;
        }
        let done = create_dirs(&tmp).and_then(|()| fill(&tmp)).and_then(|()| swap_in(&tmp, dir));
        if tmp.exists() {
            // The old recording after a swap, or what an error left; the name says that it does not count.
            let _ = remove_any(&tmp);
        }
        done.and_then(|()| sync_dir(parent))
    }

    /// Writes the description and makes everything durable.
    pub(crate) fn describe<T: Serialize>(&self, dir: &Path, manifest: &T, files: &Files) -> Result<(), StoreError> {
        write_unsynced(&dir.join(self.description), &description::to_text(manifest))?;
        let names: Vec<&str> = files.keys().map(String::as_str).chain([self.description]).collect();
        sync_all(dir, &names)
    }

    /// Reads the description.
    pub(crate) fn manifest<T: DeserializeOwned>(&self, dir: &Path) -> Result<T, StoreError> {
        let path = dir.join(self.description);
        if !self.is(dir) {
            return Err(StoreError::NotAStore { path: dir.to_owned() });
        }
        let bytes = fs::read(&path).map_err(StoreError::io("read", &path))?;
        description::from_text(&path, &bytes)
    }

    /// Refuses to replace anything but a recording of this kind.
    fn make_room(&self, dir: &Path, on_existing: OnExisting) -> Result<(), StoreError> {
        let not_ours = |why: &str| StoreError::NotOurs { path: dir.to_owned(), why: why.into() };
        match fs::symlink_metadata(dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(StoreError::io("inspect", dir)(e)),
            Ok(meta) if meta.is_symlink() => return Err(not_ours("it is a symbolic link")),
            Ok(meta) if !meta.is_dir() => return Err(not_ours("it is a file")),
            Ok(_) => {}
        }
        let entries = fs::read_dir(dir).map_err(StoreError::io("list", dir))?;
        let names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        if names.is_empty() {
            return Ok(());
        }
        if on_existing == OnExisting::Refuse {
            return Err(StoreError::Exists { path: dir.to_owned() });
        }
        if !self.is(dir) {
            return Err(not_ours(&format!("it has no {}", self.description)));
        }
        match names.iter().find(|n| !self.is_our_name(n)) {
            Some(other) => Err(not_ours(&format!("it also holds `{other}`"))),
            None => Ok(()),
        }
    }

    fn is_our_name(&self, name: &str) -> bool {
        name == self.description || name.starts_with(TMP) || self.tables.iter().any(|t| t.file == name)
    }
}

/// Writes one table, unless it is empty, and notes it in `files`.
pub(crate) fn put(
    dir: &Path,
    files: &mut Files,
    table: &Table,
    rows: usize,
    make: &dyn Fn(Range<usize>) -> Vec<Column>,
) -> Result<(), StoreError> {
    let written = write_table(dir, table, rows, make, Quality::Compact)?;
    files.extend(written.map(|info| (table.file.to_owned(), info)));
    Ok(())
}

/// Reads one table; no rows when the recording has none of it.
pub(crate) fn read<T>(
    dir: &Path,
    files: &Files,
    table: &Table,
    rows: fn(Vec<Column>) -> Result<Vec<T>, TableError>,
) -> Result<Vec<T>, StoreError> {
    let Some(info) = files.get(table.file) else { return Ok(Vec::new()) };
    let path = dir.join(table.file);
    let bytes = read_checked(&path, info)?;
    decode(table, bytes, &|_, _| true).and_then(rows).map_err(|e| StoreError::corrupt(&path, e))
}

fn temporary(parent: &Path, dir: &Path) -> PathBuf {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    parent.join(format!("{TMP}{}-{name}", std::process::id()))
}
