//! Symbols kept inside a recording: names, code and source positions of the functions that samples
//! fell into, so that it opens on another machine or after an upgrade. Used when the files are gone.

use crate::durable::{TMP, create_dirs, remove_any, sync_dir};
use crate::error::StoreError;
use crate::layout::{FORMAT_VERSION, SYMBOLS_DIR};
use crate::segment::{self, Manifest, read_checked, write_manifest, write_table};
use crate::tables::columns::{Column, Quality, TableError};
use crate::tables::{self, Table, decode, stored as columns};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use whither_image::{Function, ImageId, ImageOffset};

/// A stored function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFunction {
    /// Image it lies in.
    pub image: ImageId,
    /// Extent, mangled name and where they come from.
    pub function: Function,
}

/// Stored machine code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredCode {
    /// Image it lies in.
    pub image: ImageId,
    /// Position of the first byte.
    pub start: ImageOffset,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One level of the inline chain of a range of instructions that begins at `offset` and reaches to
/// the next offset stored for the image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredLine {
    /// Image it lies in.
    pub image: ImageId,
    /// First position it holds for.
    pub offset: ImageOffset,
    /// Inline depth, 0 innermost.
    pub depth: u32,
    /// Source file, empty when not known.
    pub file: String,
    /// Line, 0 when not known (a row with an empty file, line 0 and no function ends a range).
    pub line: u32,
    /// Mangled name of the function, empty when not known.
    pub function: String,
}

/// Symbols of sampled functions; lists are sorted by image and position once written or read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredSymbols {
    /// Functions.
    pub funcs: Vec<StoredFunction>,
    /// Code.
    pub code: Vec<StoredCode>,
    /// Source positions.
    pub lines: Vec<StoredLine>,
}

impl StoredSymbols {
    /// Adds those of another recording; equal rows are kept once.
    pub fn merge(&mut self, other: Self) {
        self.funcs.extend(other.funcs);
        self.code.extend(other.code);
        self.lines.extend(other.lines);
        self.tidy();
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.funcs.is_empty() && self.code.is_empty() && self.lines.is_empty()
    }

    /// Sorts and drops duplicates; of two functions at one place the better known one stays.
    fn tidy(&mut self) {
        let key = |f: &StoredFunction| (f.image, f.function.start, f.function.source, f.function.name.clone());
        self.funcs.sort_by_cached_key(key);
        self.funcs.dedup_by(|later, kept| (later.image, later.function.start) == (kept.image, kept.function.start));
        self.code.sort();
        self.code.dedup();
        self.lines.sort();
        self.lines.dedup();
    }

    /// Writes `symbols/` of an epoch, replacing an older one in one step.
    pub(crate) fn write(&self, epoch: &Path) -> Result<(), StoreError> {
        let mut tidy = self.clone();
        tidy.tidy();
        let tmp = epoch.join(format!("{TMP}{SYMBOLS_DIR}"));
        if tmp.exists() {
            remove_any(&tmp)?;
        }
        let done = tidy.write_tables(&tmp).and_then(|()| swap_in(&tmp, &epoch.join(SYMBOLS_DIR)));
        if tmp.exists() {
            // The old tables after a swap, or what an error left; ignored by readers if it stays.
            let _ = remove_any(&tmp);
        }
        done.and_then(|()| sync_dir(epoch))
    }

    /// Reads `symbols/` of an epoch; nothing stored is an empty value.
    pub(crate) fn read(epoch: &Path) -> Result<Self, StoreError> {
        let dir = epoch.join(SYMBOLS_DIR);
        if !dir.is_dir() {
            return Ok(Self::default());
        }
        let manifest = segment::read_manifest(&dir)?;
        let mut symbols = Self {
            funcs: read_rows(&dir, &manifest, &tables::FUNCS, columns::funcs_from_columns)?,
            code: read_rows(&dir, &manifest, &tables::CODE, columns::code_from_columns)?,
            lines: read_rows(&dir, &manifest, &tables::LINES, columns::lines_from_columns)?,
        };
        symbols.tidy();
        Ok(symbols)
    }

    fn write_tables(&self, dir: &Path) -> Result<(), StoreError> {
        create_dirs(dir)?;
        let mut files = BTreeMap::new();
        let mut put = |table: &Table, rows: usize, make: &dyn Fn(Range<usize>) -> Vec<Column>| {
            let written = write_table(dir, table, rows, make, Quality::Seal)?;
            files.extend(written.map(|info| (table.file.to_owned(), info)));
            Ok::<(), StoreError>(())
        };
        put(&tables::FUNCS, self.funcs.len(), &|r| columns::funcs_to_columns(&self.funcs[r]))?;
        put(&tables::CODE, self.code.len(), &|r| columns::code_to_columns(&self.code[r]))?;
        put(&tables::LINES, self.lines.len(), &|r| columns::lines_to_columns(&self.lines[r]))?;
        let manifest = Manifest { version: FORMAT_VERSION, start_ns: 0, end_ns: 0, events: Vec::new(), files };
        write_manifest(dir, &manifest)
    }
}

fn read_rows<T>(
    dir: &Path,
    manifest: &Manifest,
    table: &Table,
    rows: fn(Vec<Column>) -> Result<Vec<T>, TableError>,
) -> Result<Vec<T>, StoreError> {
    let Some(info) = manifest.files.get(table.file) else { return Ok(Vec::new()) };
    let path = dir.join(table.file);
    let bytes = read_checked(&path, info)?;
    decode(table, bytes, &|_, _| true).and_then(rows).map_err(|e| StoreError::corrupt(&path, e))
}

/// Puts a finished directory in the place of another, without an instant at which there is none
/// where the file system can exchange names.
pub(crate) fn swap_in(new: &Path, place: &Path) -> Result<(), StoreError> {
    if !place.exists() {
        return fs::rename(new, place).map_err(StoreError::io("rename to", place));
    }
    if renameat_with(CWD, new, CWD, place, RenameFlags::EXCHANGE).is_ok() {
        return Ok(());
    }
    remove_any(place)?;
    fs::rename(new, place).map_err(StoreError::io("rename to", place))
}
