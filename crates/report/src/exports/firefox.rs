//! The processed profile format of the Firefox Profiler: one track per process (and thread, when
//! threads are kept apart), one event, samples counted by weight.
//!
//! The store keeps the slice of a sample, not its instant. Samples are laid out inside their slice
//! one after the other, as wide as their weight: activity graphs are right to one slice, and the
//! order inside a slice means nothing.

use super::names::{Namer, in_kernel};
use super::rows::{Row, rows};
use super::{Options, event_of, failed, title_of};
use crate::error::Error;
use fxprof_processed_profile as fx;
use fxprof_processed_profile::debugid::DebugId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use whither_cycles::names::address;
use whither_image::{IdKind, ImageId, ImageKind, ImageOffset};
use whither_store::model::{EventIx, EventUnit, Frame, Image, ImageIx, Profile};
use whither_store::symbols::Symbols;

/// Writes one event.
///
/// # Errors
/// See [`super::write`].
pub fn write(profile: &Profile, symbols: &dyn Symbols, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let event = event_of(profile, options)?;
    let mut all: Vec<Row> = rows(profile).into_iter().filter(|r| r.event == event).collect();
    if all.is_empty() {
        return Err(Error::Empty { event: profile.event(event).name.clone() });
    }
    all.sort_by_key(|r| (r.process, r.tid, r.slice));
    let mut builder = Builder::new(profile, symbols, options, event, &all);
    builder.add_libraries(&all);
    for thread in all.chunk_by(|a, b| (a.process, a.tid) == (b.process, b.tid)) {
        builder.thread(thread);
    }
    serde_json::to_writer(out, &builder.fx).map_err(|e| failed("firefox")(e.into()))
}

const BILLION: u64 = 1_000_000_000;

struct Categories {
    user: fx::CategoryHandle,
    kernel: fx::CategoryHandle,
    jit: fx::CategoryHandle,
}

struct Builder<'a> {
    profile: &'a Profile,
    event: EventIx,
    namer: Namer<'a>,
    fx: fx::Profile,
    categories: Categories,
    /// Seconds since the Unix epoch that all times count from.
    origin: u32,
    /// Nanoseconds of a slice.
    slice: u64,
    processes: FxHashMap<u32, fx::ProcessHandle>,
    libraries: FxHashMap<ImageIx, fx::LibraryHandle>,
}

impl<'a> Builder<'a> {
    fn new(profile: &'a Profile, symbols: &'a dyn Symbols, options: &Options, event: EventIx, all: &[Row]) -> Self {
        let origin = all.iter().map(|r| r.slice).min().unwrap_or(0);
        let start = fx::ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_secs(origin.into()));
        let mut out = fx::Profile::new(
            &title_of(profile, options),
            start,
            fx::SamplingInterval::from_nanos(period_ns(profile, event)),
        );
        out.set_os_name("Linux");
        out.set_symbolicated(true);
        let categories = Categories {
            user: out.add_category("User", fx::CategoryColor::Yellow),
            kernel: out.add_category("Kernel", fx::CategoryColor::Orange),
            jit: out.add_category("JIT", fx::CategoryColor::Blue),
        };
        let seconds = profile.epochs.iter().map(|e| e.slice_s).max().unwrap_or(0).max(1);
        Self {
            profile,
            event,
            namer: Namer::new(profile, symbols, options.lines),
            fx: out,
            categories,
            origin,
            slice: u64::from(seconds) * BILLION,
            processes: FxHashMap::default(),
            libraries: FxHashMap::default(),
        }
    }

    /// Adds the libraries of all frames with the names found in them. The format looks names up when
    /// a frame is added, so this comes before any thread.
    fn add_libraries(&mut self, all: &[Row]) {
        let mut tables: BTreeMap<ImageIx, Vec<fx::Symbol>> = BTreeMap::new();
        let mut seen: FxHashSet<Frame> = FxHashSet::default();
        for frame in all.iter().flat_map(|r| r.frames(self.profile)) {
            if seen.insert(*frame) {
                let image = self.profile.image(frame.image);
                if let Some(symbol) = symbol_of(image, &mut self.namer, *frame) {
                    tables.entry(frame.image).or_default().push(symbol);
                }
            }
        }
        for (ix, symbols) in tables {
            let handle = self.fx.add_lib(library(self.profile.image(ix), symbols));
            self.libraries.insert(ix, handle);
        }
    }

    /// Adds the rows of one thread, ordered by slice.
    fn thread(&mut self, thread_rows: &[Row]) {
        let first = &thread_rows[0];
        let start = self.instant(first.slice, 0);
        let process = self.process(first, start);
        let pid = self.profile.process(first.process).pid;
        let tid = if first.tid == 0 { pid } else { first.tid };
        let thread = self.fx.add_thread(process, tid, start, tid == pid);
        if let Some(name) = self.profile.thread_name(first.process, tid) {
            self.fx.set_thread_name(thread, name);
        }
        for in_slice in thread_rows.chunk_by(|a, b| a.slice == b.slice) {
            self.slice_of(thread, in_slice);
        }
    }

    fn process(&mut self, row: &Row, start: fx::Timestamp) -> fx::ProcessHandle {
        let process = self.profile.process(row.process);
        let name = if process.comm.is_empty() { "[unnamed]" } else { &process.comm };
        let fx = &mut self.fx;
        *self.processes.entry(row.process.0).or_insert_with(|| fx.add_process(name, process.pid, start))
    }

    fn slice_of(&mut self, thread: fx::ThreadHandle, in_slice: &[Row]) {
        let total = in_slice.iter().fold(0_u64, |sum, r| sum.saturating_add(r.weight)).max(1);
        let cpu_time = self.profile.event(self.event).unit == EventUnit::Nanoseconds;
        let mut before = 0_u64;
        for row in in_slice {
            let width = share(self.slice, row.weight, total);
            before += width;
            let at = self.instant(row.slice, before.min(self.slice - 1));
            let busy = fx::CpuDelta::from_nanos(if cpu_time { row.weight.min(width) } else { 0 });
            let stack = self.stack(thread, row);
            self.sample(thread, at, stack, busy, row.samples);
        }
    }

    /// The format's weights are 32 bits wide, so a huge row becomes several.
    fn sample(
        &mut self,
        thread: fx::ThreadHandle,
        at: fx::Timestamp,
        stack: Option<fx::StackHandle>,
        busy: fx::CpuDelta,
        mut samples: u64,
    ) {
        while samples > 0 {
            let part = i32::try_from(samples).unwrap_or(i32::MAX);
            self.fx.add_sample(thread, at, stack, busy, part);
            samples -= u64::from(part.unsigned_abs());
        }
    }

    fn instant(&self, slice: u32, after_ns: u64) -> fx::Timestamp {
        fx::Timestamp::from_nanos_since_reference(u64::from(slice - self.origin) * BILLION + after_ns)
    }

    fn stack(&mut self, thread: fx::ThreadHandle, row: &Row) -> Option<fx::StackHandle> {
        let profile = self.profile;
        let mut frames = Vec::new();
        if let Some(mark) = row.mark(profile) {
            frames.push(self.label(mark, fx::CategoryHandle::OTHER));
        }
        for frame in row.frames(profile).iter().rev() {
            self.push_frame(*frame, &mut frames);
        }
        self.fx.intern_stack_frames(thread, frames.into_iter())
    }

    /// The function itself as a position in its library; functions inlined there as labels.
    fn push_frame(&mut self, frame: Frame, frames: &mut Vec<fx::FrameInfo>) {
        let image = self.profile.image(frame.image);
        let category = match image.kind {
            _ if in_kernel(image) => self.categories.kernel,
            ImageKind::Jit | ImageKind::Anon => self.categories.jit,
            _ => self.categories.user,
        };
        let chain = self.namer.frame(frame);
        let (outer, inlined) = chain.split_last().expect("the namer gives at least one function");
        let library = self.libraries.get(&frame.image).copied();
        let place = library.zip(relative(image, frame.offset));
        frames.push(match place {
            Some((library, address)) => {
                let frame = fx::Frame::RelativeAddressFromInstructionPointer(library, address);
                fx::FrameInfo { frame, category_pair: category.into(), flags: fx::FrameFlags::empty() }
            }
            None => self.label(&outer.name, category),
        });
        for named in inlined.iter().rev() {
            let label = self.label(&named.name, category);
            frames.push(label);
        }
    }

    fn label(&mut self, text: &str, category: fx::CategoryHandle) -> fx::FrameInfo {
        let frame = fx::Frame::Label(self.fx.intern_string(text));
        fx::FrameInfo { frame, category_pair: category.into(), flags: fx::FrameFlags::empty() }
    }
}

/// The function around a frame, or the position alone where there is none, as an entry of a
/// library's symbol table. `None` where addresses do not fit the format (code made at run time).
fn symbol_of(image: &Image, namer: &mut Namer<'_>, frame: Frame) -> Option<fx::Symbol> {
    let chain = namer.frame(frame);
    let name = chain.last()?.name.to_string();
    let (start, size) = namer.extent(frame).unwrap_or((frame.offset, 1));
    relative(image, frame.offset)?;
    Some(fx::Symbol { address: relative(image, start)?, size: Some(u32::try_from(size).unwrap_or(u32::MAX)), name })
}

/// Address of a position relative to where the file's first byte would be loaded.
fn relative(image: &Image, at: ImageOffset) -> Option<u32> {
    if matches!(image.kind, ImageKind::Jit | ImageKind::Anon | ImageKind::Unknown) {
        return None;
    }
    let base = image.segments.iter().map(|s| s.address.wrapping_sub(s.offset)).min().unwrap_or(0);
    u32::try_from(address(image, at).checked_sub(base)?).ok()
}

fn library(image: &Image, symbols: Vec<fx::Symbol>) -> fx::LibraryInfo {
    let name = image.short_name().to_owned();
    fx::LibraryInfo {
        debug_name: name.clone(),
        name,
        path: image.path.clone(),
        debug_path: image.path.clone(),
        debug_id: debug_id(&image.id),
        code_id: (image.id_kind == IdKind::BuildId).then(|| image.id.to_hex()),
        arch: None,
        symbol_table: Some(Arc::new(fx::SymbolTable::new(symbols))),
    }
}

/// The first 16 bytes of the id read as a little-endian GUID, as symbol servers expect.
fn debug_id(id: &ImageId) -> DebugId {
    let mut guid = [0; 16];
    guid.copy_from_slice(&id.0[..16]);
    for part in [0..4, 4..6, 6..8] {
        guid[part].reverse();
    }
    DebugId::from_guid_age(&guid, 0).unwrap_or_default()
}

/// Mean distance of samples in time; 1 ms where the event does not tell.
fn period_ns(profile: &Profile, event: EventIx) -> u64 {
    let of_event = profile.samples.iter().filter(|s| s.event == event);
    let (n, w) = of_event.fold((0_u64, 0_u64), |(n, w), s| (n + u64::from(s.count), w.saturating_add(s.weight())));
    match profile.event(event).unit {
        EventUnit::Nanoseconds => w.checked_div(n).unwrap_or(0).max(1),
        EventUnit::Count => 1_000_000,
    }
}

/// `whole * part / total` without overflow; `total` is not 0.
fn share(whole: u64, part: u64, total: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(part) / u128::from(total)).unwrap_or(whole)
}
