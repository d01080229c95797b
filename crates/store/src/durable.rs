//! Files and directories that are either wholly there or not at all: private modes, write to a
//! temporary name, fsync, rename, fsync of the directory. No format is known here.

use crate::error::StoreError;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Prefix of names that do not count: a crash may leave them, `check` and `gc` remove them.
pub(crate) const TMP: &str = ".tmp-";

/// Replaces the file `dir/name` atomically and durably.
pub(crate) fn replace_file(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let path = dir.join(name);
    let tmp = dir.join(format!("{TMP}{}-{name}", std::process::id()));
    let written =
        write_file(&tmp, bytes).and_then(|()| fs::rename(&tmp, &path).map_err(StoreError::io("rename to", &path)));
    if written.is_err() {
        // Best effort: what stays is ignored by readers and removed by the next check.
        let _ = fs::remove_file(&tmp);
    }
    written.and_then(|()| sync_dir(dir))
}

/// Creates a file (mode 0600), writes it and fsyncs it. The name becomes durable with the directory.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    write_unsynced(path, bytes).and_then(|file| file.sync_all().map_err(StoreError::io("fsync", path)))
}

/// Makes the contents of all files of a directory durable, and then their names. One after another: threads that ask at
/// the same time spin for 4 ms of CPU time to save 10 of waiting.
pub(crate) fn sync_all(dir: &Path, names: &[&str]) -> Result<(), StoreError> {
    names.iter().try_for_each(|name| {
        let path = dir.join(name);
        File::open(&path).and_then(|f| f.sync_all()).map_err(StoreError::io("fsync", &path))
    })?;
    sync_dir(dir)
}

/// Creates a file (mode 0600) and writes it.
pub(crate) fn write_unsynced(path: &Path, bytes: &[u8]) -> Result<File, StoreError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(StoreError::io("create", path))?;
    file.write_all(bytes).map_err(StoreError::io("write", path))?;
    Ok(file)
}

/// Creates a directory and its parents, mode 0700, and makes the names durable.
pub(crate) fn create_dirs(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(StoreError::io("create", path))?;
    path.parent().filter(|p| !p.as_os_str().is_empty()).map_or(Ok(()), sync_dir)
}

/// As [`create_dirs`], for a place that the user named: where it is to be made must be there, as a slip of the pen would
/// make any tree.
pub(crate) fn create_dir(path: &Path) -> Result<(), StoreError> {
    let missing = |parent: &Path| !parent.as_os_str().is_empty() && !parent.exists();
    match path.parent().filter(|parent| missing(parent)) {
        Some(parent) => Err(StoreError::io("find", parent)(rustix::io::Errno::NOENT.into())),
        None => create_dirs(path),
    }
}

/// Makes renames and creations inside a directory durable.
pub(crate) fn sync_dir(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|d| d.sync_all()).map_err(StoreError::io("fsync", path))
}

/// Removes what a crash left in a directory; returns the names removed.
pub(crate) fn remove_leftovers(dir: &Path) -> Result<Vec<String>, StoreError> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(dir).map_err(StoreError::io("list", dir))? {
        let entry = entry.map_err(StoreError::io("list", dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(TMP) {
            remove_any(&entry.path())?;
            removed.push(name);
        }
    }
    Ok(removed)
}

/// Removes a file or a directory tree; a symbolic link is removed, not followed.
pub(crate) fn remove_any(path: &Path) -> Result<(), StoreError> {
    let meta = fs::symlink_metadata(path).map_err(StoreError::io("inspect", path))?;
    let removed = if meta.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.map_err(StoreError::io("remove", path))
}
