//! A description (`epoch.json`) that was lost or damaged is written anew from the parts beside it: each tells its time and
//! events itself. What only the description told (losses, cost, command) is gone, and the new one says so.

use crate::database::{epoch_dirs, is_database, stray_dirs};
use crate::epoch::{lock, read_meta, segments, write_meta};
use crate::error::StoreError;
use crate::layout::FORMAT_VERSION;
use crate::model::EpochMeta;
use crate::segment::{self, Manifest, RowFilter, read_manifest};
use std::path::{Path, PathBuf};

/// Writes the descriptions that are missing or damaged below a recording or a database; returns of which directories.
///
/// # Errors
/// [`StoreError::NoSpace`] or the system's.
pub fn rebuild(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut dirs = vec![path.to_owned()];
    if is_database(path) {
        dirs = epoch_dirs(path)?;
        dirs.extend(stray_dirs(path)?);
    }
    let mut written = Vec::new();
    for dir in dirs {
        let lost = matches!(read_meta(&dir), Err(StoreError::Corrupt { .. } | StoreError::NotAStore { .. }));
        let parts = if lost { parts(&dir) } else { Vec::new() };
        if parts.is_empty() {
            continue;
        }
        // A directory in use has its writer's description in a moment.
        if let Ok(_writer) = lock(&dir) {
            write_meta(&dir, &described(&dir, &parts))?;
            written.push(dir);
        }
    }
    Ok(written)
}

/// The error of a description that cannot be read, with what helps where there are parts.
pub(crate) fn with_remedy(dir: &Path, error: StoreError) -> StoreError {
    let what = match &error {
        StoreError::Corrupt { what, .. } => what.clone(),
        StoreError::NotAStore { .. } => "its epoch.json is missing".to_owned(),
        _ => return error,
    };
    let parts = parts(dir).len();
    if parts == 0 {
        return error;
    }
    let what =
        format!("{what}; its samples are in {parts} parts beside: `whither db check --repair` describes them anew");
    StoreError::Corrupt { path: dir.to_owned(), what }
}

fn parts(dir: &Path) -> Vec<(PathBuf, Manifest)> {
    let ranges = segments(dir).map(|(live, _)| live).unwrap_or_default();
    let paths = ranges.into_iter().map(|range| dir.join(range.name()));
    paths.filter_map(|path| read_manifest(&path).ok().map(|manifest| (path, manifest))).collect()
}

fn described(dir: &Path, parts: &[(PathBuf, Manifest)]) -> EpochMeta {
    let host = dir.components().find_map(|c| c.as_os_str().to_str()?.strip_prefix("host="));
    EpochMeta {
        version: FORMAT_VERSION,
        tool: concat!("whither ", env!("CARGO_PKG_VERSION")).to_owned(),
        host: host.unwrap_or_default().to_owned(),
        start_ns: parts.iter().map(|(_, m)| m.start_ns).min().unwrap_or(0),
        end_ns: parts.iter().map(|(_, m)| m.end_ns).max().unwrap_or(0),
        slice_s: slice_length(parts),
        notes: vec![
            "the description of these samples was lost and made anew from them: what it told of losses and cost is not known"
                .to_owned(),
        ],
        ..EpochMeta::default()
    }
}

/// The shortest distance of two slices; what is not longer than the truth cuts no sample off a time range.
fn slice_length(parts: &[(PathBuf, Manifest)]) -> u32 {
    let runs = parts.iter().filter_map(|(path, manifest)| segment::read(path, manifest, &RowFilter::ALL).ok());
    let mut starts: Vec<u32> = runs.flat_map(|run| run.samples.into_iter().map(|s| s.slice)).collect();
    starts.sort_unstable();
    starts.dedup();
    starts.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(1)
}
