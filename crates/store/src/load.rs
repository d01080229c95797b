//! Reading recordings, epochs and whole databases into one merged profile. A damaged segment becomes
//! a problem beside the answer; the rest is read.

use crate::database::{self, EpochInfo};
use crate::epoch::{read_meta, segments};
use crate::error::{Problem, StoreError};
use crate::layout::{DATABASE_FILE, EPOCH_FILE, SegmentRange};
use crate::model::{EpochMeta, Image, Profile};
use crate::rebuild::with_remedy;
use crate::run::Run;
use crate::segment::{RowFilter, read_manifest, read_rest};
use crate::stored::StoredSymbols;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// A reader that loses this many races against compaction reads what is there.
const MAX_ATTEMPTS: u32 = 5;

/// Tells which images are wanted.
pub type ImagePredicate = Box<dyn Fn(&Image) -> bool + Send + Sync>;

/// Which part of a store is wanted; the default is all of it.
#[derive(Default)]
pub struct Selection {
    /// Event names; `None` is all.
    pub events: Option<Vec<String>>,
    /// Nanoseconds since the Unix epoch, half-open. Rows have the resolution of a time slice: every
    /// slice that overlaps the range counts whole.
    pub time_ns: Option<(u64, u64)>,
    /// Which epochs of a database: see [`crate::EpochSelector`].
    pub epochs: Option<String>,
    /// Host names; empty is all.
    pub hosts: Vec<String>,
    /// Samples (and stacks whose innermost frame) lie in such an image.
    pub images: Option<ImagePredicate>,
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection")
            .field("events", &self.events)
            .field("time_ns", &self.time_ns)
            .field("epochs", &self.epochs)
            .field("hosts", &self.hosts)
            .field("images", &self.images.is_some())
            .finish()
    }
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Everything, merged.
    pub profile: Profile,
    /// Symbols kept in the recordings.
    pub stored: StoredSymbols,
    /// What could not be read, for the user.
    pub problems: Vec<Problem>,
    /// Directories the epochs of `profile.epochs` were read from, in the same order.
    pub paths: Vec<PathBuf>,
}

/// Reads recordings, epoch directories and databases, merged.
///
/// # Errors
/// [`StoreError::NotAStore`], [`StoreError::Version`] or [`StoreError::Selection`]: what was named
/// cannot be read at all. Damage inside becomes [`Loaded::problems`].
pub fn load(paths: &[PathBuf], selection: &Selection) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded::default();
    let mut epochs = Vec::new();
    for path in paths {
        epochs.extend(find_epochs(path, selection, &mut loaded.problems)?);
    }
    epochs.sort_by(|a, b| (a.meta.start_ns, &a.path).cmp(&(b.meta.start_ns, &b.path)));
    epochs.dedup_by(|a, b| a.path == b.path);
    read_epochs(epochs, selection, &mut loaded);
    Ok(loaded)
}

/// An epoch to be read.
struct Found {
    path: PathBuf,
    meta: EpochMeta,
}

fn find_epochs(path: &Path, selection: &Selection, problems: &mut Vec<Problem>) -> Result<Vec<Found>, StoreError> {
    let wanted_host = |m: &EpochMeta| selection.hosts.is_empty() || selection.hosts.contains(&m.host);
    if path.join(EPOCH_FILE).exists() || !path.join(DATABASE_FILE).exists() {
        let meta = read_meta(path).map_err(|e| with_remedy(path, e))?;
        return Ok(if wanted_host(&meta) { vec![Found { path: path.to_owned(), meta }] } else { Vec::new() });
    }
    let infos = database::list_epochs(path, selection.epochs.as_deref(), problems)?;
    if let Some(unknown) = selection.hosts.iter().find(|&host| infos.iter().all(|info| info.host != *host)) {
        return Err(no_such_host(unknown, &infos));
    }
    let mut found = Vec::new();
    for info in infos {
        match read_meta(&info.path) {
            Ok(meta) if wanted_host(&meta) && overlaps(&meta, selection) => found.push(Found { path: info.path, meta }),
            Ok(_) => {}
            Err(e) => problems.push(Problem::new(&info.path, e)),
        }
    }
    Ok(found)
}

fn no_such_host(host: &str, epochs: &[EpochInfo]) -> StoreError {
    let known: BTreeSet<&str> = epochs.iter().map(|e| e.host.as_str()).collect();
    let there = known.into_iter().collect::<Vec<_>>().join(", ");
    StoreError::NoSuchHost { host: host.to_owned(), known: if there.is_empty() { "none".to_owned() } else { there } }
}

fn overlaps(meta: &EpochMeta, selection: &Selection) -> bool {
    selection.time_ns.is_none_or(|(from, to)| meta.start_ns < to && (meta.end_ns == 0 || meta.end_ns > from))
}

fn read_epochs(epochs: Vec<Found>, selection: &Selection, loaded: &mut Loaded) {
    let read = |epoch: &Found| (read_segments(epoch, selection), StoredSymbols::read(&epoch.path));
    let parts: Vec<_> = epochs.par_iter().map(read).collect();
    let mut runs = Vec::new();
    for ((good, problems), stored) in parts {
        runs.extend(good);
        loaded.problems.extend(problems);
        match stored {
            Ok(symbols) => loaded.stored.merge(symbols),
            Err(e) => loaded.problems.push(Problem::from(e)),
        }
    }
    loaded.profile = Run::merge(runs).into_profile();
    for epoch in epochs {
        loaded.profile.epochs.push(epoch.meta);
        loaded.paths.push(epoch.path);
    }
}

/// Reads an epoch's segments. When the listing is no longer true afterwards, segments were merged or
/// dropped meanwhile, perhaps between two entries of the listing: then everything is read again.
fn read_segments(epoch: &Found, selection: &Selection) -> (Vec<Run>, Vec<Problem>) {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let ranges = match segments(&epoch.path) {
            Ok((live, _)) => live,
            Err(e) => return (Vec::new(), vec![Problem::from(e)]),
        };
        let read: Vec<_> = ranges.par_iter().map(|&range| read_segment(epoch, range, selection)).collect();
        let moved = segments(&epoch.path).is_ok_and(|(live, _)| live != ranges);
        if moved && attempts < MAX_ATTEMPTS {
            continue;
        }
        let (mut runs, mut problems) = (Vec::new(), Vec::new());
        for segment in read {
            match segment {
                Ok((run, missing)) => {
                    runs.push(run);
                    problems.extend(missing.into_iter().map(Problem::from));
                }
                Err(e) => problems.push(Problem::from(e)),
            }
        }
        return (runs, problems);
    }
}

fn read_segment(
    epoch: &Found,
    range: SegmentRange,
    selection: &Selection,
) -> Result<(Run, Vec<StoreError>), StoreError> {
    let path = epoch.path.join(range.name());
    let filter = RowFilter {
        events: selection.events.as_deref(),
        time_ns: selection.time_ns,
        images: selection.images.as_deref(),
        slice_s: epoch.meta.slice_s,
    };
    let manifest = read_manifest(&path)?;
    if filter.wants_window(&manifest) { read_rest(&path, &manifest, &filter) } else { Ok(Default::default()) }
}
