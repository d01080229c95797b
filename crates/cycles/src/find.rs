//! Finding one procedure from what a user typed: a name, `IMAGE!NAME`, an address, `FILE:LINE`, or
//! a label that a listing printed. Only procedures with samples are looked at.

use crate::error::Error;
use crate::names::{address, demangled, place_label};
use crate::near::{last_component, near_matches, without_arguments};
use crate::pattern::Pattern;
use crate::places::{Inlines, Place, PlaceKind, Places};
use crate::selection::Selection;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use whither_image::{ImageOffset, Svma, to_offset};
use whither_store::model::{Image, ImageIx, ImageKind, Profile};
use whither_store::symbols::Symbols;

/// A procedure with samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// Image it is in.
    pub image: ImageIx,
    /// First byte.
    pub start: ImageOffset,
    /// Bytes.
    pub size: u64,
    /// Mangled name.
    pub name: Arc<str>,
    /// Samples of the main event: the first selected. Samples of different events do not add up.
    pub samples: u64,
}

impl Procedure {
    /// `IMAGE!NAME`, or with `@ADDRESS` when asked: what [`find`] accepts.
    fn label(&self, profile: &Profile, with_address: bool) -> String {
        let image = profile.image(self.image);
        let name = format!("{}!{}", image.path, demangled(&self.name));
        if with_address { format!("{name}@{:#x}", address(image, self.start)) } else { name }
    }
}

/// All procedures of a selection, most samples of the main event first; those that only other events saw come last.
#[must_use]
pub fn procedures(selection: &Selection<'_>, symbols: &dyn Symbols) -> Vec<Procedure> {
    let places = Places::resolve(selection, symbols, Inlines::Outermost);
    let mut samples = vec![0u64; places.places.len()];
    for (&row, place) in selection.rows.iter().zip(&places.of_row) {
        let s = selection.sample(row);
        if selection.column(s.event) == Some(0) {
            samples[place.0 as usize] += u64::from(s.count);
        }
    }
    let mut out: Vec<Procedure> = places.places.iter().zip(samples).filter_map(|(p, n)| procedure(p, n)).collect();
    out.sort_by(|a, b| b.samples.cmp(&a.samples).then(a.image.cmp(&b.image)).then(a.start.cmp(&b.start)));
    out
}

fn procedure(place: &Place, samples: u64) -> Option<Procedure> {
    match &place.kind {
        PlaceKind::Function { name, start, size } => {
            Some(Procedure { image: place.image, start: *start, size: *size, name: Arc::clone(name), samples })
        }
        _ => None,
    }
}

/// The one procedure that `wanted` names.
///
/// # Errors
/// [`Error::NoProcedure`] with near matches, [`Error::Ambiguous`] with candidates by samples,
/// [`Error::Pattern`].
pub fn find(selection: &Selection<'_>, symbols: &dyn Symbols, wanted: &str) -> Result<Procedure, Error> {
    let all = procedures(selection, symbols);
    let mut found = matching(selection, symbols, wanted, &all)?;
    match found.len() {
        0 => Err(nameless(selection, symbols, wanted)
            .or_else(|| inlined(selection, symbols, wanted))
            .unwrap_or_else(|| missing(wanted, &all))),
        1 => Ok(found.swap_remove(0)),
        _ => Err(ambiguous(selection.profile, wanted, &found)),
    }
}

/// All that `wanted` may mean, most samples first; empty when nothing matches.
///
/// # Errors
/// [`Error::Pattern`].
pub fn candidates(selection: &Selection<'_>, symbols: &dyn Symbols, wanted: &str) -> Result<Vec<Procedure>, Error> {
    matching(selection, symbols, wanted, &procedures(selection, symbols))
}

fn matching(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    wanted: &str,
    all: &[Procedure],
) -> Result<Vec<Procedure>, Error> {
    let profile = selection.profile;
    let (image, name) = split_image(wanted);
    let in_image = match image {
        Some(text) => images_named(profile, text)?,
        None => vec![true; profile.images.len()],
    };
    let within: Vec<&Procedure> = all.iter().filter(|p| in_image[p.image.0 as usize]).collect();
    if let Some(at) = parse_address(name) {
        return Ok(owned(within.into_iter().filter(|p| holds(p, profile.image(p.image), at))));
    }
    if let Some((file, line)) = parse_line(name) {
        let hit = procedures_of_line(selection, symbols, file, line, &within);
        if !hit.is_empty() {
            return Ok(hit);
        }
    }
    by_name(profile, name, &within)
}

fn owned<'p>(procedures: impl Iterator<Item = &'p Procedure>) -> Vec<Procedure> {
    procedures.cloned().collect()
}

/// `IMAGE!NAME`; a `!` inside of a name (`operator!`) is none.
fn split_image(wanted: &str) -> (Option<&str>, &str) {
    match wanted.split_once('!') {
        Some((image, name)) if !image.is_empty() && !name.is_empty() && !image.ends_with("operator") => {
            (Some(image), name)
        }
        _ => (None, wanted),
    }
}

/// By whole path or file name; else by pattern.
fn images_named(profile: &Profile, text: &str) -> Result<Vec<bool>, Error> {
    let exact: Vec<bool> = profile.images.iter().map(|i| i.path == text || i.short_name() == text).collect();
    if exact.contains(&true) {
        return Ok(exact);
    }
    let pattern = Pattern::parse(text)?;
    Ok(profile.images.iter().map(|i| pattern.matches_path(&i.path)).collect())
}

fn parse_address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn holds(p: &Procedure, image: &Image, at: u64) -> bool {
    let offset = to_offset(&image.segments, Svma(at));
    offset.is_some_and(|o| o >= p.start && o.0 - p.start.0 < p.size)
}

/// `file.c:12`, but not `ns::12`.
fn parse_line(text: &str) -> Option<(&str, u32)> {
    let (file, line) = text.rsplit_once(':')?;
    (!file.is_empty() && !file.ends_with(':')).then_some((file, line.parse().ok()?))
}

/// Procedures with a sample on that line, inlined code included.
fn procedures_of_line(
    selection: &Selection<'_>,
    symbols: &dyn Symbols,
    file: &str,
    line: u32,
    within: &[&Procedure],
) -> Vec<Procedure> {
    let mut seen = FxHashSet::default();
    let mut hits = FxHashSet::default();
    for &row in &selection.rows {
        let s = selection.sample(row);
        if !seen.insert((s.image, s.offset)) {
            continue;
        }
        let frames = symbols.frames(selection.profile.image(s.image), s.offset);
        let at_line = |f: &whither_image::SourceFrame| {
            f.line == line && f.file.as_deref().is_some_and(|path| path_ends_with(path, file))
        };
        if frames.iter().any(at_line) {
            hits.insert((s.image, s.offset));
        }
    }
    let has_hit = |p: &&&Procedure| {
        hits.iter().any(|(image, at)| *image == p.image && *at >= p.start && at.0 - p.start.0 < p.size)
    };
    owned(within.iter().filter(has_hit).copied())
}

/// Whole path components only: `b.c` is the end of `/a/b.c`, not of `/a/bb.c`.
fn path_ends_with(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|head| head.is_empty() || head.ends_with('/') || end.starts_with('/'))
}

/// The best kind of match that finds anything: the whole name, the name without arguments, its last
/// component, a pattern.
fn by_name(profile: &Profile, name: &str, within: &[&Procedure]) -> Result<Vec<Procedure>, Error> {
    let (bare, at) = match name.rsplit_once("@0x") {
        Some((bare, hex)) => (bare, u64::from_str_radix(hex, 16).ok()),
        None => (name, None),
    };
    if let Some(at) = at {
        let here = |p: &&&Procedure| address(profile.image(p.image), p.start) == at;
        let found = owned(within.iter().filter(here).filter(|p| *demangled(&p.name) == *bare).copied());
        // A nameless function is itself called `fn@0x1234`.
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let kinds: [fn(&str) -> String; 4] = [
        ToOwned::to_owned,
        |raw| demangled(raw).into_owned(),
        |raw| without_arguments(&demangled(raw)).to_owned(),
        |raw| last_component(&demangled(raw)).to_owned(),
    ];
    for kind in kinds {
        let found = owned(within.iter().filter(|p| kind(&p.name) == name).copied());
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let pattern = Pattern::parse(name)?;
    Ok(owned(within.iter().filter(|p| pattern.matches(&demangled(&p.name))).copied()))
}

/// What a row of a listing stands for that is no procedure, named by its label or by its image.
fn nameless(selection: &Selection<'_>, symbols: &dyn Symbols, wanted: &str) -> Option<Error> {
    let places = Places::resolve(selection, symbols, Inlines::Outermost);
    let image = |p: &Place| selection.profile.image(p.image);
    let meant = |p: &&Place| {
        let (path, label) = (&*image(p).path, place_label(p, image(p)));
        // All of what is no file has no name; of a file it is some of the code.
        let whole = matches!(image(p).kind, ImageKind::Anon | ImageKind::Jit | ImageKind::Unknown) && path == wanted;
        matches!(p.kind, PlaceKind::Nameless) && (whole || label == wanted || format!("{path}!{label}") == wanted)
    };
    let place = places.places.iter().find(meant)?;
    let what = match image(place).kind {
        ImageKind::Anon | ImageKind::Jit => {
            "executable memory without a file (code made at run time), gone with its process; a /tmp/perf-PID.map would \
             name what is in it"
        }
        ImageKind::Unknown => "samples of processes whose code is not known",
        _ => "code of this file that no symbol and no unwind row tells the bounds of",
    };
    Some(Error::Nameless { name: wanted.to_owned(), what })
}

/// Most procedures named that hold the code of an inlined one.
const HOLDERS: usize = 5;

/// Where a function went that is sampled in inlined copies only.
fn inlined(selection: &Selection<'_>, symbols: &dyn Symbols, wanted: &str) -> Option<Error> {
    let (_, wanted) = split_image(wanted);
    let pattern = Pattern::parse(wanted).ok()?;
    let expanded = Places::resolve(selection, symbols, Inlines::Expand);
    let outermost = Places::resolve(selection, symbols, Inlines::Outermost);
    let mut holders: BTreeMap<String, u64> = BTreeMap::new();
    for ((&row, inner), outer) in selection.rows.iter().zip(&expanded.of_row).zip(&outermost.of_row) {
        let PlaceKind::Inlined { name } = &expanded.places[inner.0 as usize].kind else { continue };
        let PlaceKind::Function { name: outer, .. } = &outermost.places[outer.0 as usize].kind else { continue };
        let full = demangled(name);
        if [name.as_ref(), without_arguments(&full), last_component(&full)]
            .iter()
            .any(|n| *n == wanted || pattern.matches(n))
        {
            *holders.entry(demangled(outer).into_owned()).or_default() += u64::from(selection.sample(row).count);
        }
    }
    let mut into: Vec<(u64, String)> = holders.into_iter().map(|(name, n)| (n, name)).collect();
    into.sort_by(|a, b| b.cmp(a));
    into.truncate(HOLDERS);
    let into: Vec<String> = into.into_iter().map(|(_, name)| name).collect();
    (!into.is_empty()).then(|| Error::Inlined { name: wanted.to_owned(), into })
}

fn missing(wanted: &str, all: &[Procedure]) -> Error {
    let (_, name) = split_image(wanted);
    let names: Vec<String> = all.iter().map(|p| demangled(&p.name).into_owned()).collect();
    let near = near_matches(name, names.iter().map(String::as_str), 5);
    Error::NoProcedure { name: wanted.to_owned(), near }
}

fn ambiguous(profile: &Profile, wanted: &str, found: &[Procedure]) -> Error {
    let twin = |p: &Procedure| {
        found.iter().filter(|o| o.image == p.image && demangled(&o.name) == demangled(&p.name)).count() > 1
    };
    let candidates = found.iter().map(|p| (p.label(profile, twin(p)), p.samples)).collect();
    Error::Ambiguous { name: wanted.to_owned(), candidates }
}
