//! A segment: a directory of tables plus `segment.json`, committed by one rename. It holds everything
//! its rows refer to, so segments can be read, merged and dropped one by one.

use crate::description;
use crate::durable::{TMP, create_dirs, remove_any, sync_all, sync_dir, write_unsynced};
use crate::error::StoreError;
use crate::layout::{SEGMENT_FILE, SEGMENT_VERSION, SegmentRange};
use crate::model::{EdgeSample, Event, ExactCount, Image, LapCount, Sample, StackIx, StackSample};
use crate::run::{RankedEvent, Run};
use crate::tables::columns::{Column, Quality, TableError};
use crate::tables::{self, Table, decode, edges, encode, exact, laps, parts, samples, threads};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use whither_image::ImageId;

/// What a segment says of itself (`segment.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    /// Time the segment covers, nanoseconds since the Unix epoch.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Events, in the order the user asked for them.
    pub(crate) events: Vec<Event>,
    /// Tables present; an absent one is empty.
    pub(crate) files: BTreeMap<String, FileInfo>,
}

/// Size and checksum of a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileInfo {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) crc32c: u32,
}

/// What [`crate::EpochWriter::append`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The segment's directory.
    pub path: PathBuf,
    /// Sample rows.
    pub rows: u64,
    /// Stack rows.
    pub stack_rows: u64,
    /// Bytes of all tables on disk.
    pub bytes: u64,
}

/// Which rows of a segment are wanted.
pub(crate) struct RowFilter<'a> {
    pub(crate) events: Option<&'a [String]>,
    /// Half-open, nanoseconds since the Unix epoch.
    pub(crate) time_ns: Option<(u64, u64)>,
    pub(crate) images: Option<&'a (dyn Fn(&Image) -> bool + Send + Sync)>,
    /// Length of a slice of this epoch.
    pub(crate) slice_s: u32,
}

impl RowFilter<'_> {
    /// Everything.
    pub(crate) const ALL: RowFilter<'static> = RowFilter { events: None, time_ns: None, images: None, slice_s: 0 };

    /// Whether rows of a segment can lie in the range asked for.
    pub(crate) fn wants_window(&self, manifest: &Manifest) -> bool {
        self.time_ns
            .is_none_or(|(from, to)| manifest.start_ns < to && manifest.end_ns.max(manifest.start_ns + 1) > from)
    }

    /// Slices that overlap the range count whole: finer times are not kept. Rows without a slice
    /// share the window of their segment, which was asked for already.
    fn wants_slice(&self, slice: u32) -> bool {
        let Some((from, to)) = self.time_ns else { return true };
        let second = 1_000_000_000;
        let start = u64::from(slice) * second;
        slice == 0 || (start < to && start + u64::from(self.slice_s.max(1)) * second > from)
    }
}

/// Writes a segment below an epoch directory. After an error nothing is left behind.
pub(crate) fn write(
    epoch: &Path,
    range: SegmentRange,
    window_ns: (u64, u64),
    run: &Run,
    quality: Quality,
) -> Result<SegmentInfo, StoreError> {
    let path = epoch.join(range.name());
    let tmp = epoch.join(format!("{TMP}{}", range.name()));
    if tmp.exists() {
        remove_any(&tmp)?;
    }
    let committed = write_tables(&tmp, window_ns, run, quality).and_then(|manifest| {
        fs::rename(&tmp, &path).map_err(StoreError::io("rename to", &path))?;
        // Without this the rename may be undone by a power cut: then the caller must be free to
        // write the rows again, so the segment may not stay either.
        sync_dir(epoch).inspect_err(|_| drop(remove_any(&path)))?;
        Ok(manifest)
    });
    if committed.is_err() && tmp.exists() {
        // What cannot be removed now is ignored by readers and removed by the next check.
        let _ = remove_any(&tmp);
    }
    committed.map(|m| info(path, &m))
}

/// Reads `segment.json`.
pub(crate) fn read_manifest(segment: &Path) -> Result<Manifest, StoreError> {
    let path = segment.join(SEGMENT_FILE);
    let bytes = fs::read(&path).map_err(StoreError::io("read", &path))?;
    description::from_text_up_to(SEGMENT_VERSION, &path, &bytes)
}

/// Reads the wanted rows of a segment.
pub(crate) fn read(segment: &Path, manifest: &Manifest, filter: &RowFilter<'_>) -> Result<Run, StoreError> {
    read_with(segment, manifest, filter, &mut Err)
}

/// Reads what can be read: samples are worth having without what accompanies them. What was left out comes with them.
///
/// # Errors
/// The samples, or what they refer to, cannot be read.
pub(crate) fn read_rest(
    segment: &Path,
    manifest: &Manifest,
    filter: &RowFilter<'_>,
) -> Result<(Run, Vec<StoreError>), StoreError> {
    let mut missing = Vec::new();
    let run = read_with(segment, manifest, filter, &mut |e| {
        missing.push(e);
        Ok(())
    })?;
    Ok((run, missing))
}

/// `damaged`: is told of a table that only accompanies the samples, and allows to go on without it.
fn read_with(
    segment: &Path,
    manifest: &Manifest,
    filter: &RowFilter<'_>,
    damaged: &mut dyn FnMut(StoreError) -> Result<(), StoreError>,
) -> Result<Run, StoreError> {
    let table = |table: &Table| read_table(segment, manifest, table);
    let mut side = |which: &Table| match table(which) {
        Err(e) => damaged(e).map(|()| None),
        read => read,
    };
    let (stacks, frames) = (side(&tables::STACKS)?, side(&tables::FRAMES)?);
    // Neither means anything without the other.
    let whole = frames.is_some() || !manifest.files.contains_key(tables::FRAMES.file);
    let tables = Tables {
        edges: side(&tables::EDGES)?,
        exact: side(&tables::EXACT)?,
        laps: side(&tables::LAPS)?,
        threads: side(&tables::THREADS)?,
        rates: side(&tables::RATES)?,
        frames: frames.filter(|_| stacks.is_some()),
        stacks: stacks.filter(|_| whole),
        images: table(&tables::IMAGES)?,
        processes: table(&tables::PROCESSES)?,
        samples: table(&tables::SAMPLES)?,
    };
    tables.into_run(&manifest.events, filter).map_err(|e| StoreError::corrupt(segment, e))
}

/// The bytes of the tables of one segment; an absent table is `None`.
struct Tables {
    images: Option<Bytes>,
    processes: Option<Bytes>,
    samples: Option<Bytes>,
    stacks: Option<Bytes>,
    frames: Option<Bytes>,
    edges: Option<Bytes>,
    exact: Option<Bytes>,
    laps: Option<Bytes>,
    threads: Option<Bytes>,
    rates: Option<Bytes>,
}

impl Tables {
    fn into_run(self, events: &[Event], filter: &RowFilter<'_>) -> Result<Run, TableError> {
        let all = |_: ImageId, _: ImageId| true;
        let rows = |table: &Table, bytes: Option<Bytes>| bytes.map(|b| decode(table, b, &all)).transpose();
        let mut run = Run { events: ranked(events), ..Run::default() };
        if let Some(columns) = rows(&tables::IMAGES, self.images)? {
            run.images = parts::images_from_columns(columns)?;
        }
        if let Some(columns) = rows(&tables::PROCESSES, self.processes)? {
            run.processes = parts::processes_from_columns(columns)?;
        }
        if let Some(columns) = rows(&tables::THREADS, self.threads)? {
            run.threads = threads::threads_from_columns(columns, &run)?;
        }
        if let Some(columns) = rows(&tables::FRAMES, self.frames)? {
            run.stacks = parts::frames_from_columns(columns, &run)?;
        }
        if let Some(columns) = rows(&tables::RATES, self.rates)? {
            run.rates = parts::rates_from_columns(columns)?;
        }
        let wanted = Wanted::new(filter, &run);
        if let Some(bytes) = self.samples {
            let columns = decode(&tables::SAMPLES, bytes, &|low, high| wanted.any_between(&run, low, high))?;
            run.samples = samples::samples_from_columns(columns, &run)?;
            run.samples.retain(|s| wanted.sample(s));
        }
        if let Some(columns) = rows(&tables::STACKS, self.stacks)? {
            let numbers = known_stacks(&mut run, &columns);
            run.stack_samples = samples::stacks_from_columns(columns, &run, &numbers)?;
            let stacks = std::mem::take(&mut run.stacks);
            run.stack_samples.retain(|s| wanted.stack(s, &stacks[s.stack.0 as usize].stack));
            run.stacks = stacks;
        }
        if let Some(bytes) = self.edges {
            let columns = decode(&tables::EDGES, bytes, &|low, high| wanted.any_between(&run, low, high))?;
            run.edges = edges::edges_from_columns(columns, &run)?;
            run.edges.retain(|e| wanted.edge(e));
        }
        if let Some(bytes) = self.exact {
            let columns = decode(&tables::EXACT, bytes, &|low, high| wanted.any_between(&run, low, high))?;
            run.exact = exact::exact_from_columns(columns, &run)?;
            run.exact.retain(|e| wanted.exact(e));
        }
        if let Some(bytes) = self.laps {
            let columns = decode(&tables::LAPS, bytes, &|low, high| wanted.any_between(&run, low, high))?;
            run.laps = laps::laps_from_columns(columns, &run)?;
            run.laps.retain(|l| wanted.laps(l));
        }
        run.rates.retain(|r| wanted.rate(r));
        check_sorted(&run)?;
        Ok(run)
    }
}

/// A filter, worked out for the images and events of one segment.
struct Wanted<'a> {
    filter: &'a RowFilter<'a>,
    images: Vec<bool>,
    events: Vec<bool>,
}

impl<'a> Wanted<'a> {
    fn new(filter: &'a RowFilter<'a>, run: &Run) -> Self {
        let named = |name: &str| filter.events.is_none_or(|names| names.iter().any(|n| n == name));
        Self {
            filter,
            images: run.images.iter().map(|i| filter.images.is_none_or(|f| f(i))).collect(),
            events: run.events.iter().map(|e| named(&e.event.name)).collect(),
        }
    }

    fn any_between(&self, run: &Run, low: ImageId, high: ImageId) -> bool {
        run.images.iter().zip(&self.images).any(|(i, &wanted)| wanted && low <= i.id && i.id <= high)
    }

    fn sample(&self, s: &Sample) -> bool {
        self.images[s.image.0 as usize] && self.events[s.event.0 as usize] && self.filter.wants_slice(s.slice)
    }

    /// A stack belongs to the image of its innermost frame, as its sample does.
    fn stack(&self, s: &StackSample, stack: &crate::model::Stack) -> bool {
        let image = stack.frames.first().map_or(self.filter.images.is_none(), |f| self.images[f.image.0 as usize]);
        image && self.events[s.event.0 as usize] && self.filter.wants_slice(s.slice)
    }

    /// Branches are evidence whatever event was sampled; their time is the segment's.
    fn edge(&self, e: &EdgeSample) -> bool {
        self.images[e.image.0 as usize]
    }

    /// The same holds for exact counts.
    fn exact(&self, e: &ExactCount) -> bool {
        self.images[e.image.0 as usize]
    }

    /// And for pairs of moments.
    fn laps(&self, l: &LapCount) -> bool {
        self.images[l.image.0 as usize]
    }

    fn rate(&self, r: &crate::model::Rate) -> bool {
        let named = self.filter.events.is_none_or(|names| names.contains(&r.event));
        let inside = |(from, to)| r.start_ns < to && r.start_ns.saturating_add(r.length_ns.max(1)) > from;
        named && self.filter.time_ns.is_none_or(inside)
    }
}

/// Number of each stack hash. Stacks without frames have rows only in `stacks`: they are added.
fn known_stacks(run: &mut Run, columns: &[Column]) -> rustc_hash::FxHashMap<u64, StackIx> {
    use crate::model::{Stack, StackEnd};
    let known: rustc_hash::FxHashSet<u64> = run.stacks.iter().map(|s| s.hash).collect();
    if let Some(Column::U64(hashes)) = columns.first() {
        let mut missing: Vec<u64> = hashes.iter().copied().filter(|h| !known.contains(h)).collect();
        missing.sort_unstable();
        missing.dedup();
        let empty =
            |hash| crate::run::HashedStack { hash, stack: Stack { frames: Vec::new(), end: StackEnd::Truncated } };
        run.stacks.extend(missing.into_iter().map(empty));
        run.stacks.sort_by_key(|s| s.hash);
    }
    run.stacks.iter().map(|s| s.hash).zip((0..).map(StackIx)).collect()
}

/// Merging relies on the order; a file that passed its checksum but is out of order is not ours.
fn check_sorted(run: &Run) -> Result<(), TableError> {
    let sorted = run.samples.is_sorted()
        && run.stack_samples.is_sorted()
        && run.edges.is_sorted()
        && run.exact.is_sorted()
        && run.laps.is_sorted()
        && run.threads.is_sorted_by_key(|t| (t.process, t.tid))
        && run.images.is_sorted_by_key(|i| i.id)
        && run.processes.is_sorted_by_key(|p| p.key)
        && run.stacks.is_sorted_by_key(|s| s.hash);
    if sorted { Ok(()) } else { Err(TableError::Inconsistent) }
}

fn ranked(events: &[Event]) -> Vec<RankedEvent> {
    let mut ranked: Vec<RankedEvent> =
        events.iter().zip(0..).map(|(event, rank)| RankedEvent { event: event.clone(), rank }).collect();
    ranked.sort_by(|a, b| a.event.name.cmp(&b.event.name));
    ranked
}

fn read_table(segment: &Path, manifest: &Manifest, table: &Table) -> Result<Option<Bytes>, StoreError> {
    let Some(info) = manifest.files.get(table.file) else { return Ok(None) };
    read_checked(&segment.join(table.file), info).map(Some)
}

/// Reads a file whose length and checksum are known.
pub(crate) fn read_checked(path: &Path, info: &FileInfo) -> Result<Bytes, StoreError> {
    let bytes = fs::read(path).map_err(StoreError::io("read", path))?;
    if bytes.len() as u64 != info.bytes {
        return Err(StoreError::corrupt(path, format_args!("{} bytes instead of {}", bytes.len(), info.bytes)));
    }
    if crc32c::crc32c(&bytes) != info.crc32c {
        return Err(StoreError::corrupt(path, "its checksum does not match"));
    }
    Ok(Bytes::from(bytes))
}

fn write_tables(dir: &Path, window_ns: (u64, u64), run: &Run, quality: Quality) -> Result<Manifest, StoreError> {
    create_dirs(dir)?;
    let mut files = BTreeMap::new();
    let mut put = |table: &Table, rows: usize, columns: &dyn Fn(Range<usize>) -> Vec<Column>| {
        let written = write_table(dir, table, rows, columns, quality)?;
        files.extend(written.map(|info| (table.file.to_owned(), info)));
        Ok::<(), StoreError>(())
    };
    let frames = parts::flat_frames(run);
    let places = samples::by_place(&run.samples);
    put(&tables::SAMPLES, places.len(), &|r| samples::samples_to_columns(run, &places[r]))?;
    put(&tables::IMAGES, run.images.len(), &|r| parts::images_to_columns(&run.images[r]))?;
    put(&tables::PROCESSES, run.processes.len(), &|r| parts::processes_to_columns(&run.processes[r]))?;
    put(&tables::THREADS, run.threads.len(), &|r| threads::threads_to_columns(run, r))?;
    put(&tables::STACKS, run.stack_samples.len(), &|r| samples::stacks_to_columns(run, r))?;
    put(&tables::FRAMES, frames.len(), &|r| parts::frames_to_columns(run, &frames[r]))?;
    put(&tables::EDGES, run.edges.len(), &|r| edges::edges_to_columns(run, r))?;
    put(&tables::EXACT, run.exact.len(), &|r| exact::exact_to_columns(run, r))?;
    put(&tables::LAPS, run.laps.len(), &|r| laps::laps_to_columns(run, r))?;
    put(&tables::RATES, run.rates.len(), &|r| parts::rates_to_columns(&run.rates[r]))?;
    let mut events: Vec<&RankedEvent> = run.events.iter().collect();
    events.sort_by_key(|e| e.rank);
    let events = events.into_iter().map(|e| e.event.clone()).collect();
    let manifest = Manifest { version: SEGMENT_VERSION, start_ns: window_ns.0, end_ns: window_ns.1, events, files };
    write_manifest(dir, &manifest)?;
    Ok(manifest)
}

/// Writes `segment.json` and makes it and the tables it names durable.
pub(crate) fn write_manifest(dir: &Path, manifest: &Manifest) -> Result<(), StoreError> {
    write_unsynced(&dir.join(SEGMENT_FILE), &description::to_text(manifest))?;
    let names: Vec<&str> = manifest.files.keys().map(String::as_str).chain([SEGMENT_FILE]).collect();
    sync_all(dir, &names)
}

/// Writes one table unless it is empty; [`write_manifest`] makes it durable.
pub(crate) fn write_table(
    dir: &Path,
    table: &Table,
    rows: usize,
    columns: &dyn Fn(Range<usize>) -> Vec<Column>,
    quality: Quality,
) -> Result<Option<FileInfo>, StoreError> {
    if rows == 0 {
        return Ok(None);
    }
    let path = dir.join(table.file);
    let bytes = encode(table, rows, columns, quality).map_err(|e| StoreError::corrupt(&path, e))?;
    write_unsynced(&path, &bytes)?;
    Ok(Some(FileInfo { rows: rows as u64, bytes: bytes.len() as u64, crc32c: crc32c::crc32c(&bytes) }))
}

fn info(path: PathBuf, manifest: &Manifest) -> SegmentInfo {
    let rows = |table: &Table| manifest.files.get(table.file).map_or(0, |f| f.rows);
    SegmentInfo {
        path,
        rows: rows(&tables::SAMPLES),
        stack_rows: rows(&tables::STACKS),
        bytes: manifest.files.values().map(|f| f.bytes).sum(),
    }
}
