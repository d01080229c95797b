//! pprof's gzipped `profile.proto`: real stacks where they were recorded, else positions as stacks of
//! one frame; for each event a sample type for its samples and one for its amount.
//!
//! Addresses: samples of many processes are merged, so images have no common load address. Each image
//! gets one of its own, far from the others, such that `address - start + offset` is the file offset,
//! which is how pprof finds code in a position-independent file. A file linked to a fixed address
//! keeps it.

use super::names::{Named, Namer};
use super::pprof_proto::{Function, Label, Line, Location, Mapping, Profile as Proto, Sample, ValueType};
use super::rows::{Callers, Row, rows};
use super::{Options, failed, remarks};
use crate::error::Error;
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use rustc_hash::FxHashMap;
use std::io::Write;
use std::rc::Rc;
use whither_image::{IdKind, ImageKind, ImageOffset};
use whither_store::model::{EventUnit, Frame, Image, ImageIx, Profile};
use whither_store::symbols::Symbols;

/// Writes the profile with all its events.
///
/// # Errors
/// See [`super::write`].
pub fn write(profile: &Profile, symbols: &dyn Symbols, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let mut builder = Builder::new(profile, symbols, options.lines);
    for row in rows(profile) {
        builder.add(&row);
    }
    if builder.samples.is_empty() {
        return Err(Error::Empty { event: "any event".into() });
    }
    let bytes = builder.finish().encode_to_vec();
    let mut gz = GzEncoder::new(out, Compression::default());
    gz.write_all(&bytes).and_then(|()| gz.finish().map(drop)).map_err(failed("pprof"))
}

/// Distance between the made-up load addresses of images.
const APART: u64 = 1 << 36;
/// Above this difference of address and offset a file is linked to a fixed address; linkers
/// leave some pages between segments of position-independent files.
const FIXED: u64 = 1 << 20;

struct Builder<'a> {
    profile: &'a Profile,
    namer: Namer<'a>,
    proto: Proto,
    strings: FxHashMap<Rc<str>, i64>,
    functions: FxHashMap<(Rc<str>, Rc<str>), u64>,
    mappings: FxHashMap<(ImageIx, usize), u64>,
    locations: FxHashMap<Place, u64>,
    samples: FxHashMap<Key, usize>,
}

/// What a location stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Code(Frame),
    Mark(&'static str),
}

/// Rows that become one pprof sample.
type Key = (Callers, Frame, u32, u32);

impl<'a> Builder<'a> {
    fn new(profile: &'a Profile, symbols: &'a dyn Symbols, lines: bool) -> Self {
        let mut builder = Self {
            profile,
            namer: Namer::new(profile, symbols, lines),
            proto: Proto::default(),
            strings: FxHashMap::default(),
            functions: FxHashMap::default(),
            mappings: FxHashMap::default(),
            locations: FxHashMap::default(),
            samples: FxHashMap::default(),
        };
        builder.string("");
        builder.header();
        builder
    }

    fn finish(mut self) -> Proto {
        self.main_program_first();
        self.proto
    }

    /// Readers take the first mapping for the program (profile.proto, `mapping`): the executable with most samples.
    fn main_program_first(&mut self) {
        let mut weights: FxHashMap<&str, u64> = FxHashMap::default();
        for s in &self.profile.samples {
            *weights.entry(self.profile.process(s.process).exe.as_str()).or_default() += s.weight();
        }
        weights.remove("");
        let main = weights.into_iter().max_by_key(|(exe, weight)| (*weight, std::cmp::Reverse(*exe)));
        let name = main.and_then(|(exe, _)| self.strings.get(exe).copied());
        if let Some(at) = name.and_then(|name| self.proto.mapping.iter().position(|m| m.filename == name)) {
            self.proto.mapping[..=at].rotate_right(1);
        }
    }

    fn header(&mut self) {
        for event in &self.profile.events {
            let unit = match event.unit {
                EventUnit::Nanoseconds => "nanoseconds",
                EventUnit::Count => "count",
            };
            let samples =
                if self.profile.events.len() == 1 { "samples".into() } else { format!("{}-samples", event.name) };
            let types = [(samples, "count"), (event.name.clone(), unit)];
            for (kind, unit) in types {
                let value = ValueType { kind: self.string(&kind), unit: self.string(unit) };
                self.proto.sample_type.push(value);
            }
        }
        self.proto.period_type = self.proto.sample_type.get(1).cloned();
        self.proto.default_sample_type = self.proto.period_type.as_ref().map_or(0, |t| t.kind);
        self.proto.period = mean_period(self.profile);
        let start = self.profile.epochs.iter().map(|e| e.start_ns).filter(|&s| s > 0).min().unwrap_or(0);
        let end = self.profile.epochs.iter().map(|e| e.end_ns).max().unwrap_or(0);
        self.proto.time_nanos = signed(start);
        self.proto.duration_nanos = signed(end.saturating_sub(start));
        self.proto.comment = remarks(self.profile).iter().map(|r| self.string(r)).collect();
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&ix) = self.strings.get(text) {
            return ix;
        }
        let ix = signed(self.proto.string_table.len() as u64);
        self.proto.string_table.push(text.to_owned());
        self.strings.insert(text.into(), ix);
        ix
    }

    fn add(&mut self, row: &Row) {
        let key = (row.callers, row.leaf, row.process.0, row.tid);
        let at = match self.samples.get(&key) {
            Some(&at) => at,
            None => self.new_sample(row, key),
        };
        let first = usize::from(row.event.0) * 2;
        let values = &mut self.proto.sample[at].value;
        values[first] = values[first].saturating_add(signed(row.samples));
        values[first + 1] = values[first + 1].saturating_add(signed(row.weight));
    }

    fn new_sample(&mut self, row: &Row, key: Key) -> usize {
        let profile = self.profile;
        let mut location_id: Vec<u64> = row.frames(profile).iter().map(|f| self.location(*f)).collect();
        if let Some(mark) = row.mark(profile) {
            location_id.push(self.mark(mark));
        }
        let sample = Sample { location_id, value: vec![0; self.proto.sample_type.len()], label: self.labels(row) };
        let at = self.proto.sample.len();
        self.proto.sample.push(sample);
        self.samples.insert(key, at);
        at
    }

    /// The labels pprof's `-tagfocus` and tag view know.
    fn labels(&mut self, row: &Row) -> Vec<Label> {
        let process = self.profile.process(row.process);
        let mut labels = Vec::new();
        let thread = self.profile.thread_name(row.process, row.tid).unwrap_or_default();
        for (key, text) in [("comm", process.comm.as_str()), ("thread", thread), ("cgroup", &process.cgroup)] {
            if !text.is_empty() {
                let label = Label { key: self.string(key), str: self.string(text), num: 0 };
                labels.push(label);
            }
        }
        for (key, number) in [("pid", process.pid), ("tid", row.tid)] {
            if number > 0 {
                labels.push(Label { key: self.string(key), str: 0, num: i64::from(number) });
            }
        }
        labels
    }

    /// A frame that says why there are no callers, as the root of such samples.
    fn mark(&mut self, mark: &'static str) -> u64 {
        if let Some(&id) = self.locations.get(&Place::Mark(mark)) {
            return id;
        }
        let text: Rc<str> = mark.into();
        let named = Named { name: Rc::clone(&text), system: text, file: "".into(), line: 0, inlined: false };
        let line = vec![self.line(&named)];
        self.new_location(Place::Mark(mark), 0, 0, line)
    }

    fn location(&mut self, frame: Frame) -> u64 {
        if let Some(&id) = self.locations.get(&Place::Code(frame)) {
            return id;
        }
        let (mapping_id, address) = self.mapping(frame.image, frame.offset);
        let named = self.namer.frame(frame);
        let line: Vec<Line> = named.iter().map(|n| self.line(n)).collect();
        if let Some(m) = usize::try_from(mapping_id).ok().and_then(|i| self.proto.mapping.get_mut(i.wrapping_sub(1))) {
            m.has_functions = true;
            m.has_filenames |= named.iter().any(|n| !n.file.is_empty());
            m.has_line_numbers |= named.iter().any(|n| n.line > 0);
            m.has_inline_frames |= named.len() > 1;
        }
        self.new_location(Place::Code(frame), mapping_id, address, line)
    }

    fn new_location(&mut self, key: Place, mapping_id: u64, address: u64, line: Vec<Line>) -> u64 {
        let id = self.proto.location.len() as u64 + 1;
        self.proto.location.push(Location { id, mapping_id, address, line, is_folded: false });
        self.locations.insert(key, id);
        id
    }

    fn line(&mut self, named: &Named) -> Line {
        let key = (Rc::clone(&named.system), Rc::clone(&named.file));
        let function_id = match self.functions.get(&key) {
            Some(&id) => id,
            None => self.new_function(named, key),
        };
        Line { function_id, line: i64::from(named.line) }
    }

    fn new_function(&mut self, named: &Named, key: (Rc<str>, Rc<str>)) -> u64 {
        let id = self.proto.function.len() as u64 + 1;
        let function = Function {
            id,
            name: self.string(&named.name),
            system_name: self.string(&named.system),
            filename: self.string(&named.file),
            start_line: 0,
        };
        self.proto.function.push(function);
        self.functions.insert(key, id);
        id
    }

    /// Mapping that holds a position, made when first needed, and the address in it.
    fn mapping(&mut self, ix: ImageIx, at: ImageOffset) -> (u64, u64) {
        let image = self.profile.image(ix);
        let segment = image.segments.iter().position(|s| at.0 >= s.offset && at.0 - s.offset < s.size);
        let place = Placement::of(image, ix, segment);
        let key = (ix, segment.unwrap_or(usize::MAX));
        let id = match self.mappings.get(&key) {
            Some(&id) => id,
            None => self.new_mapping(image, key, &place),
        };
        let m = &mut self.proto.mapping[usize::try_from(id - 1).expect("ids count from 1")];
        let address = place.start.wrapping_add(at.0.wrapping_sub(place.offset));
        // An image of unknown size grows with what was seen in it.
        m.memory_limit = m.memory_limit.max(address.saturating_add(1));
        (id, address)
    }

    fn new_mapping(&mut self, image: &Image, key: (ImageIx, usize), place: &Placement) -> u64 {
        let id = self.proto.mapping.len() as u64 + 1;
        let build_id = if image.id_kind == IdKind::BuildId { image.id.to_hex() } else { String::new() };
        let mapping = Mapping {
            id,
            memory_start: place.start,
            memory_limit: place.start.saturating_add(place.size),
            file_offset: place.offset,
            filename: self.string(&image.path),
            build_id: self.string(&build_id),
            ..Mapping::default()
        };
        self.proto.mapping.push(mapping);
        self.mappings.insert(key, id);
        id
    }
}

/// Where a part of an image lies in the made-up address space.
struct Placement {
    start: u64,
    offset: u64,
    size: u64,
}

impl Placement {
    fn of(image: &Image, ix: ImageIx, segment: Option<usize>) -> Self {
        let base = (u64::from(ix.0) + 1).wrapping_mul(APART);
        match segment.map(|i| image.segments[i]) {
            Some(s) if s.address.wrapping_sub(s.offset) >= FIXED => {
                Self { start: s.address, offset: s.offset, size: s.size }
            }
            Some(s) => Self { start: base.wrapping_add(s.offset), offset: s.offset, size: s.size },
            // JIT and anonymous code: the position is the address itself.
            None if matches!(image.kind, ImageKind::Jit | ImageKind::Anon) => Self { start: 0, offset: 0, size: 0 },
            None => Self { start: base, offset: 0, size: image.size },
        }
    }
}

/// Mean period of the first event over its samples, in its unit.
fn mean_period(profile: &Profile) -> i64 {
    let first = profile.samples.iter().filter(|s| s.event.0 == 0);
    let (n, w) = first.fold((0_u64, 0_u64), |(n, w), s| (n + u64::from(s.count), w.saturating_add(s.weight())));
    signed(w.checked_div(n).unwrap_or(0))
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
