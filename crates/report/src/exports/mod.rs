//! The profile in the formats of other tools. Each writer takes a [`Profile`] and a [`Symbols`] and
//! writes to anything that implements `Write`; none opens a file.
//!
//! All formats but CSV share the module `rows`, which joins samples and stacks so that **the totals of an
//! export equal the totals of the profile**, for every event, process, image and position.

pub mod calls;
pub mod csv;
pub mod firefox;
pub mod flamegraph;
pub mod flows;
pub mod folded;
mod names;
pub mod pprof;
mod pprof_proto;
mod rows;
pub mod speedscope;

use crate::error::Error;
use std::io;
use whither_store::model::{EventIx, Profile};
use whither_store::symbols::Symbols;

/// The formats, by the name the user gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Gzipped `profile.proto` of pprof.
    Pprof,
    /// Folded stacks: `comm;outer;inner WEIGHT` per line.
    Folded,
    /// Flame graph as an interactive SVG.
    Flamegraph,
    /// Processed profile of the Firefox Profiler.
    Firefox,
    /// JSON of speedscope.
    Speedscope,
    /// One line per sampled position.
    Csv,
}

impl Format {
    /// All formats with their names.
    pub const ALL: [(&'static str, Self); 6] = [
        ("pprof", Self::Pprof),
        ("folded", Self::Folded),
        ("flamegraph", Self::Flamegraph),
        ("firefox", Self::Firefox),
        ("speedscope", Self::Speedscope),
        ("csv", Self::Csv),
    ];

    /// The format of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, f)| *f)
    }

    /// Name as the user writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, f)| *f == self).map_or("", |(n, _)| n)
    }

    /// Usual ending of a file of this format, without a leading dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Pprof => "pb.gz",
            Self::Folded => "folded",
            Self::Flamegraph => "svg",
            Self::Firefox => "firefox.json",
            Self::Speedscope => "speedscope.json",
            Self::Csv => "csv",
        }
    }
}

/// What figure formats with one figure per stack carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Figure {
    /// Amount of the event: nanoseconds of CPU time, cycles, ...
    #[default]
    Weight,
    /// Samples.
    Samples,
}

/// What to export.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Title, for formats that have one.
    pub title: String,
    /// Only this event; when `None` all, and of formats that hold one (folded, flame graph, Firefox) the first.
    pub event: Option<String>,
    /// Figure of formats that hold one (folded, flame graph, speedscope).
    pub figure: Figure,
    /// Frames of inlined functions, lines and files: needs debug information to be read, which
    /// takes time on large binaries.
    pub lines: bool,
}

/// Writes one format.
///
/// # Errors
/// [`Error::Write`] when the writer fails, [`Error::Event`] for an event the profile lacks,
/// [`Error::Empty`] when there are no samples.
pub fn write(
    format: Format,
    profile: &Profile,
    symbols: &dyn Symbols,
    options: &Options,
    out: &mut dyn io::Write,
) -> Result<(), Error> {
    let only = options.event.is_some().then(|| Ok(only(profile, event_of(profile, options)?))).transpose()?;
    let profile = only.as_ref().unwrap_or(profile);
    match format {
        Format::Pprof => pprof::write(profile, symbols, options, out),
        Format::Folded => folded::write(profile, symbols, options, out),
        Format::Flamegraph => flamegraph::write(profile, symbols, options, out),
        Format::Firefox => firefox::write(profile, symbols, options, out),
        Format::Speedscope => speedscope::write(profile, symbols, options, out),
        Format::Csv => csv::write(profile, symbols, options, out),
    }
}

/// The event the options name, else the first of the profile.
fn event_of(profile: &Profile, options: &Options) -> Result<EventIx, Error> {
    let Some(name) = &options.event else {
        return if profile.events.is_empty() {
            Err(Error::Empty { event: "any event".into() })
        } else {
            Ok(EventIx(0))
        };
    };
    let names = || profile.events.iter().map(|e| e.name.as_str());
    let found = names().position(|n| n == name).and_then(|i| u16::try_from(i).ok());
    found.map(EventIx).ok_or_else(|| Error::Event { name: name.clone(), have: names().collect::<Vec<_>>().join(", ") })
}

/// What was sampled of one event.
fn only(profile: &Profile, event: EventIx) -> Profile {
    let mut kept = profile.clone();
    kept.events = vec![profile.events[usize::from(event.0)].clone()];
    kept.samples.retain_mut(|s| std::mem::replace(&mut s.event, EventIx(0)) == event);
    kept.stack_samples.retain_mut(|s| std::mem::replace(&mut s.event, EventIx(0)) == event);
    kept
}

/// Title of the export: the user's, else the scope of what was recorded.
fn title_of(profile: &Profile, options: &Options) -> String {
    match profile.epochs.first() {
        _ if !options.title.is_empty() => options.title.clone(),
        Some(e) if !e.label.is_empty() => e.label.clone(),
        Some(e) if !e.target.is_empty() => e.target.join(" "),
        Some(e) if !e.scope.is_empty() => format!("{} ({})", e.scope, e.host),
        _ => "whither profile".into(),
    }
}

/// Plain sentences of the recording and its losses, for formats that can carry remarks.
fn remarks(profile: &Profile) -> Vec<String> {
    let mut list: Vec<String> = profile.epochs.iter().flat_map(|e| e.notes.iter().cloned()).collect();
    let l = profile.losses();
    let losses = [
        (l.dropped, "samples dropped by whither"),
        (l.skipped, "samples skipped by the kernel (estimate)"),
        (l.unwritten, "samples lost because the disk was full"),
        (l.sideband_lost, "records of mappings lost"),
        (l.stacks_dropped, "stacks dropped"),
        (l.stacks_truncated, "stacks cut short"),
        (l.impossible_runs, "runs between branch records that cannot have happened, left out"),
    ];
    list.extend(losses.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    list.dedup();
    list
}

fn failed(format: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Write { format, source }
}

#[cfg(test)]
mod tests;
