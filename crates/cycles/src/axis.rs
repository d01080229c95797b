//! The groupings of a listing: for every row of a selection a small number, and a label for each
//! number. Labels are made only for rows that are shown.

use crate::listing::By;
use crate::names::{address, place_label, unambiguous_label};
use crate::places::{PlaceIx, PlaceKind, Places, ambiguous};
use crate::provenance::utc;
use crate::selection::Selection;
use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::sync::Arc;
use whither_image::ImageOffset;
use whither_store::model::{Image, ImageIx, ImageKind, Process, ProcessIx, Profile, Sample};
use whither_store::symbols::Symbols;

/// One grouping, evaluated.
pub(crate) struct Axis<'a> {
    /// One value per row of the selection, dense from 0 up to the number of distinct values.
    pub of_row: Vec<u32>,
    /// What a value is called.
    pub label: Box<dyn Fn(u32) -> String + 'a>,
}

/// Evaluates a grouping over a selection.
pub(crate) fn axis<'a>(by: By, selection: &Selection<'a>, places: &'a Places, symbols: &dyn Symbols) -> Axis<'a> {
    let profile = selection.profile;
    match by {
        By::Image => images(selection),
        By::Proc => procs(profile, places),
        By::Line => lines(selection, symbols, true),
        By::File => lines(selection, symbols, false),
        By::Insn => insns(selection, places),
        By::Process => processes(selection),
        By::Command => interned(selection, |s| profile.process(s.process).comm.as_str(), |c| or(c, "[unknown]")),
        By::Cgroup => interned(selection, |s| profile.process(s.process).cgroup.as_str(), |c| or(c, "[no cgroup]")),
        By::Thread => interned(selection, |s| (s.process, s.tid), |(p, tid)| thread_label(profile, *p, *tid)),
        By::Slice => interned(selection, |s| s.slice, |s| utc(u64::from(*s))),
    }
}

/// An axis over a value that the sample itself has.
pub(crate) fn interned<'a, K: Eq + Hash + Clone + 'a>(
    selection: &Selection<'a>,
    key: impl Fn(&'a Sample) -> K,
    label: impl Fn(&K) -> String + 'a,
) -> Axis<'a> {
    let mut seen = Interner::default();
    let of_row = selection.rows.iter().map(|&r| seen.id(key(selection.sample(r)))).collect();
    let items = seen.items;
    Axis { of_row, label: Box::new(move |v| label(&items[v as usize])) }
}

pub(crate) struct Interner<K> {
    ids: FxHashMap<K, u32>,
    pub items: Vec<K>,
}

impl<K> Default for Interner<K> {
    fn default() -> Self {
        Self { ids: FxHashMap::default(), items: Vec::new() }
    }
}

impl<K: Eq + Hash + Clone> Interner<K> {
    pub(crate) fn id(&mut self, key: K) -> u32 {
        let next = u32::try_from(self.items.len()).expect("fewer keys than sample rows");
        let items = &mut self.items;
        *self.ids.entry(key.clone()).or_insert_with(|| {
            items.push(key);
            next
        })
    }
}

fn or(text: &str, placeholder: &str) -> String {
    (if text.is_empty() { placeholder } else { text }).to_owned()
}

fn process_label(p: &Process) -> String {
    match (p.pid, p.comm.as_str()) {
        (0, comm) => or(comm, "[unknown]"),
        (pid, comm) => format!("{} ({pid})", or(comm, "[unknown]")),
    }
}

fn thread_label(profile: &Profile, process: ProcessIx, tid: u32) -> String {
    let of = process_label(profile.process(process));
    match (tid, profile.thread_name(process, tid)) {
        (0, _) => format!("{of} all threads"),
        (_, Some(name)) => format!("{of} thread {name} ({tid})"),
        (_, None) => format!("{of} thread {tid}"),
    }
}

/// A process that went through several programs of one name (a script's interpreters) is one row.
fn processes<'a>(selection: &Selection<'a>) -> Axis<'a> {
    let profile = selection.profile;
    let mut first: FxHashMap<(u32, u64, &str), ProcessIx> = FxHashMap::default();
    let of: Vec<ProcessIx> = (0u32..)
        .map(ProcessIx)
        .zip(&profile.processes)
        .map(|(ix, p)| *first.entry((p.pid, p.start_ns, &p.comm)).or_insert(ix))
        .collect();
    interned(selection, move |s| of[s.process.0 as usize], |p| process_label(profile.process(*p)))
}

/// Builds of one path are kept apart by the start of their id.
fn images<'a>(selection: &Selection<'a>) -> Axis<'a> {
    let profile = selection.profile;
    let mut paths: FxHashMap<&str, u32> = FxHashMap::default();
    for image in &profile.images {
        *paths.entry(&image.path).or_default() += 1;
    }
    let label = move |ix: &ImageIx| {
        let image = profile.image(*ix);
        let builds = !is_made(image) && paths[image.path.as_str()] > 1;
        if builds { with_build(image) } else { image.path.clone() }
    };
    let first = first_made(profile);
    interned(selection, move |s| first.get(&s.image).copied().unwrap_or(s.image), label)
}

/// Code made at run time is an image per process; what such images are called tells no more than the command.
fn is_made(image: &Image) -> bool {
    matches!(image.kind, ImageKind::Anon | ImageKind::Jit)
}

/// The image that stands for all code made at run time that is called the same.
pub(crate) fn first_made(profile: &Profile) -> FxHashMap<ImageIx, ImageIx> {
    let mut first: FxHashMap<&str, ImageIx> = FxHashMap::default();
    let made = (0u32..).map(ImageIx).zip(&profile.images).filter(|(_, image)| is_made(image));
    made.map(|(ix, image)| (ix, *first.entry(&image.path).or_insert(ix))).collect()
}

fn with_build(image: &Image) -> String {
    let hex = image.id.to_hex();
    format!("{} (build {})", image.path, &hex[..8.min(hex.len())])
}

fn procs<'a>(profile: &'a Profile, places: &'a Places) -> Axis<'a> {
    let twins = ambiguous(&places.places);
    let label = move |v: u32| {
        let place = &places.places[v as usize];
        let image = profile.image(place.image);
        if twins[v as usize] { unambiguous_label(place, image) } else { place_label(place, image) }
    };
    Axis { of_row: places.of_row.iter().map(|p| p.0).collect(), label: Box::new(label) }
}

/// `name+0x1f`, with the address in front.
fn insns<'a>(selection: &Selection<'a>, places: &'a Places) -> Axis<'a> {
    let profile = selection.profile;
    let mut seen = Interner::default();
    let mut id = |row: u32, place: PlaceIx| {
        let s = selection.sample(row);
        seen.id((s.image, s.offset, place))
    };
    let rows = selection.rows.iter().zip(&places.of_row);
    let of_row = rows.map(|(&row, &place)| id(row, place)).collect();
    let items = seen.items;
    let label = move |v: u32| {
        let (image, offset, place) = items[v as usize];
        let (image, place) = (profile.image(image), places.get(place));
        let within = match &place.kind {
            PlaceKind::Function { start, .. } => format!("+{:#x}", offset.0 - start.0),
            _ => String::new(),
        };
        format!("{:#x} {}{within}", address(image, offset), place_label(place, image))
    };
    Axis { of_row, label: Box::new(label) }
}

/// Source position of the innermost (inlined) function, with or without the line.
fn lines<'a>(selection: &Selection<'a>, symbols: &dyn Symbols, with_line: bool) -> Axis<'a> {
    let mut known: FxHashMap<(ImageIx, ImageOffset), u32> = FxHashMap::default();
    let mut seen: Interner<Option<(Arc<str>, u32)>> = Interner::default();
    let mut line_of = |s: &Sample| {
        *known.entry((s.image, s.offset)).or_insert_with(|| {
            let image = selection.profile.image(s.image);
            seen.id(source_line(image, s.offset, symbols, with_line))
        })
    };
    let of_row = selection.rows.iter().map(|&r| line_of(selection.sample(r))).collect();
    let items = seen.items;
    let label = move |v: u32| match &items[v as usize] {
        Some((file, 0)) => file.to_string(),
        Some((file, line)) => format!("{file}:{line}"),
        None => "[no line information]".to_owned(),
    };
    Axis { of_row, label: Box::new(label) }
}

fn source_line(image: &Image, at: ImageOffset, symbols: &dyn Symbols, with_line: bool) -> Option<(Arc<str>, u32)> {
    let frame = symbols.frames(image, at).into_iter().next()?;
    Some((frame.file?, if with_line { frame.line } else { 0 }))
}
