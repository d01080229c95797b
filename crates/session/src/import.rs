//! `whither import`: a perf.data file becomes a recording like any other.

use crate::options::Outcome;
use crate::{SessionError, symbols};
use std::path::Path;
use whither_sample::import::{local_names, perf_data};
use whither_store::{EpochWriter, OnExisting, SymbolOptions, SymbolService};

/// Imports a file.
///
/// # Errors
/// When the file cannot be understood or the recording cannot be written.
pub fn import(input: &Path, output: &Path, existing: OnExisting) -> Result<Outcome, SessionError> {
    let imported = perf_data(input)?;
    let names = local_names(&imported);
    let (profile, meta) = (imported.profile, imported.meta);
    let window = (meta.start_ns, meta.end_ns);
    let mut writer = EpochWriter::create(output, meta, existing)?;
    let info = writer.append(&profile, window)?;
    let options = SymbolOptions { cache_dir: None, ..SymbolOptions::default() };
    let stored = SymbolService::new(options, names).gather(&profile, symbols::KEPT);
    writer.put_symbols(&stored)?;
    writer.seal(window.1)?;
    Ok(Outcome {
        path: output.to_path_buf(),
        samples: profile.samples.iter().map(|s| u64::from(s.count)).sum(),
        rows: info.rows,
        bytes: symbols::bytes_below(output),
        unwritten: 0,
        target_status: None,
    })
}
