//! Import of `perf.data` files as `perf record` writes them: samples, stacks and side-band become the
//! same rows that our own collectors make. The container and the order of records are read by
//! `linux-perf-data`; what it would trust without looking is checked before (`container`), and the
//! bodies of records are decoded here (`record`), because a file from anywhere must not be able to
//! make us panic or allocate without bound.

mod build_ids;
mod container;
mod events;
mod importer;
mod kernel_layout;
mod names;
mod record;
mod straight;
mod user_stack;

use crate::error::SampleError;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;
use whither_image::ImageId;
use whither_store::model::{EpochMeta, Profile};

pub use container::Refusal;
pub use names::local_names;

/// What a file holds.
#[derive(Debug)]
pub struct Imported {
    /// Rows.
    pub profile: Profile,
    /// What the file says of itself.
    pub meta: EpochMeta,
    /// Images of run-time generated code and the process whose perf map may name their functions.
    pub jit_images: Vec<(ImageId, u32)>,
    /// Images of BPF programs and their sizes in bytes.
    pub programs: Vec<(ImageId, u64)>,
}

/// Whether files of this machine may be looked at to identify images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Paths named in the file are opened when they are plain files.
    LocalFiles,
    /// The file's own facts only.
    Nothing,
}

/// Reads a `perf.data` file.
///
/// # Errors
/// [`SampleError::Import`] when it cannot be read, is no `perf.data` file, is damaged, or has a form
/// that is not supported; the reason says which.
pub fn perf_data(path: &Path) -> Result<Imported, SampleError> {
    let refuse = |why: Refusal| SampleError::Import { path: path.to_path_buf(), why: why.to_string() };
    let file = File::open(path).map_err(|e| refuse(e.into()))?;
    let meta = file.metadata().map_err(|e| refuse(e.into()))?;
    if !meta.is_file() {
        return Err(refuse(Refusal::NotAFile));
    }
    let written = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    let written = written.map_or(0, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX));
    read(BufReader::with_capacity(1 << 18, file), written, Lookup::LocalFiles).map_err(refuse)
}

/// Reads the bytes of a `perf.data` file that was written at a wall time (ns since the Unix epoch).
///
/// # Errors
/// [`Refusal`] says what is wrong with it.
pub fn read<R: Read + Seek>(mut reader: R, written_ns: u64, lookup: Lookup) -> Result<Imported, Refusal> {
    container::check(&mut reader)?;
    reader.seek(SeekFrom::Start(0))?;
    importer::import(reader, written_ns, lookup)
}

#[cfg(test)]
mod tests;
