//! speedscope's JSON: one profile per event, stacks largest first. Samples have no order inside a
//! slice, so the "left heavy" view is the one to read; the time axis of the other is only weight.

use super::names::{Named, Namer, in_kernel};
use super::rows::{Row, rows};
use super::{Figure, Options, failed, title_of};
use crate::error::Error;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::io::Write;
use whither_store::model::{EventUnit, Profile};
use whither_store::symbols::Symbols;

#[derive(Serialize)]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: &'static str,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: Shared,
    profiles: Vec<Sampled>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<FrameJson>,
}

#[derive(Serialize, Clone, PartialEq, Eq, Hash)]
struct FrameJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Serialize)]
struct Sampled {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes all events, each as one profile.
///
/// # Errors
/// See [`super::write`].
pub fn write(profile: &Profile, symbols: &dyn Symbols, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let mut builder = Builder {
        profile,
        namer: Namer::new(profile, symbols, options.lines),
        index: FxHashMap::default(),
        frames: Vec::new(),
    };
    let all = rows(profile);
    let profiles: Vec<Sampled> =
        (0..profile.events.len()).filter_map(|e| builder.sampled(&all, e, options.figure)).collect();
    if profiles.is_empty() {
        return Err(Error::Empty { event: "any event".into() });
    }
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: title_of(profile, options),
        exporter: concat!("whither ", env!("CARGO_PKG_VERSION")),
        active: 0,
        shared: Shared { frames: builder.frames },
        profiles,
    };
    serde_json::to_writer(out, &file).map_err(|e| failed("speedscope")(e.into()))
}

struct Builder<'a> {
    profile: &'a Profile,
    namer: Namer<'a>,
    index: FxHashMap<FrameJson, usize>,
    frames: Vec<FrameJson>,
}

impl Builder<'_> {
    fn sampled(&mut self, all: &[Row], event: usize, figure: Figure) -> Option<Sampled> {
        let mut sums: FxHashMap<Vec<usize>, u64> = FxHashMap::default();
        for row in all.iter().filter(|r| usize::from(r.event.0) == event) {
            let n = match figure {
                Figure::Weight => row.weight,
                Figure::Samples => row.samples,
            };
            *sums.entry(self.stack(row)).or_default() += n;
        }
        let mut list: Vec<(Vec<usize>, u64)> = sums.into_iter().filter(|(_, n)| *n > 0).collect();
        list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let end = list.iter().map(|(_, n)| n).sum();
        let event = &self.profile.events[event];
        let unit =
            if figure == Figure::Weight && event.unit == EventUnit::Nanoseconds { "nanoseconds" } else { "none" };
        let (samples, weights) = list.into_iter().unzip();
        (end > 0).then(|| Sampled { kind: "sampled", name: event.name.clone(), unit, start: 0, end, samples, weights })
    }

    /// Outermost first: the command, then the frames.
    fn stack(&mut self, row: &Row) -> Vec<usize> {
        let profile = self.profile;
        let mut stack = vec![self.plain(&profile.process(row.process).comm)];
        if let Some(mark) = row.mark(profile) {
            stack.push(self.plain(mark));
        }
        for frame in row.frames(profile).iter().rev() {
            let image = profile.image(frame.image);
            let suffix = if in_kernel(image) { " [kernel]" } else { "" };
            for named in self.namer.frame(*frame).iter().rev() {
                stack.push(self.frame(named, suffix, &image.path));
            }
        }
        stack
    }

    fn plain(&mut self, name: &str) -> usize {
        self.intern(FrameJson { name: name.to_owned(), file: None })
    }

    /// Without line information the image stands in for the file, to tell same-named frames apart.
    fn frame(&mut self, named: &Named, suffix: &str, image: &str) -> usize {
        let file = if named.file.is_empty() { image } else { &named.file };
        self.intern(FrameJson { name: format!("{}{suffix}", named.name), file: Some(file.to_owned()) })
    }

    fn intern(&mut self, frame: FrameJson) -> usize {
        if let Some(&ix) = self.index.get(&frame) {
            return ix;
        }
        let ix = self.frames.len();
        self.frames.push(frame.clone());
        self.index.insert(frame, ix);
        ix
    }
}
