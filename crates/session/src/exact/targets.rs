//! Where the chosen procedures are: processes of the target, the images they map, procedures that match, and the
//! instructions worth counting in them.

use super::plan::{Place, Shape};
use regex::Regex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use whither_image::cfg::CfgBlock;
use whither_image::demangle::{Form, demangle};
use whither_image::{Cfg, Function, ImageId, ImageOffset, NameSource, Svma, to_offset, to_svma};
use whither_kernel::proc::{self, Mapping};
use whither_kernel::records::MappedFile;
use whither_sample::images::{Images, MappingFacts};
use whither_sample::lives::ImageNo;
use whither_store::around::Around;
use whither_store::model::{EdgeSource, Image, ImageKind, Profile};
use whither_store::symbols::Symbols as _;
use whither_store::{StoredSymbols, SymbolOptions, SymbolService};

/// Procedures counted, those with most samples first; more share the windows too thinly.
pub(super) const MOST_PROCEDURES: usize = 12;
/// Larger ones are tables of generated code.
const LARGEST: u64 = 1 << 18;

/// Instructions per nanosecond, roughly, and bytes of one.
const INSNS_PER_NS: f64 = 1.5;
const BYTES_PER_INSN: f64 = 4.0;

/// What sampling has found so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Heat {
    /// Samples, by image and position.
    samples: FxHashMap<ImageId, BTreeMap<ImageOffset, u64>>,
    all: u64,
    /// How often walks executed what is at a position and up to the next one.
    walked: FxHashMap<ImageId, BTreeMap<ImageOffset, i64>>,
    /// The time that walks tell of, ns.
    walked_ns: f64,
}

impl Heat {
    pub(super) fn of(profile: &Profile) -> Self {
        let mut heat = Self::default();
        for s in &profile.samples {
            let image = heat.samples.entry(profile.image(s.image).id).or_default();
            *image.entry(s.offset).or_default() += u64::from(s.count);
            heat.all += u64::from(s.count);
        }
        for e in profile.edges.iter().filter(|e| e.source == EdgeSource::Walks) {
            let image = heat.walked.entry(profile.image(e.image).id).or_default();
            *image.entry(e.pc).or_default() += i64::from(e.count);
            *image.entry(ImageOffset(e.branch.0.saturating_add(1))).or_default() -= i64::from(e.count);
            let bytes = e.branch.0.saturating_sub(e.pc.0) as f64 + BYTES_PER_INSN;
            heat.walked_ns += f64::from(e.count) * bytes / BYTES_PER_INSN / INSNS_PER_NS;
        }
        for places in heat.walked.values_mut() {
            let mut sum = 0;
            places.values_mut().for_each(|change| {
                sum += *change;
                *change = sum;
            });
        }
        heat
    }

    /// The later one, unless it is of much less: rows are taken out now and then.
    pub(super) fn or_older(self, older: Option<Self>) -> Self {
        match older {
            Some(older) if older.all > 2 * self.all => older,
            _ => self,
        }
    }

    fn within(&self, image: ImageId, from: ImageOffset, bytes: u64) -> u64 {
        let to = ImageOffset(from.0.saturating_add(bytes));
        self.samples.get(&image).map_or(0, |places| places.range(from..to).map(|p| p.1).sum())
    }

    /// Executions per nanosecond by what walks saw, roughly.
    fn rate(&self, image: ImageId, at: ImageOffset) -> f64 {
        let walked = self.walked.get(&image).and_then(|places| places.range(..=at).next_back());
        walked.map_or(0.0, |(_, n)| *n as f64 / self.walked_ns.max(1.0))
    }
}

/// A procedure that matched.
#[derive(Clone, Debug)]
struct Chosen {
    image: ImageNo,
    function: Function,
    /// Once it is among those with most samples.
    blocks: OnceCell<Blocks>,
}

/// The blocks of a procedure.
#[derive(Clone, Debug)]
struct Blocks {
    shape: Shape,
    /// Where each begins, and its length in bytes.
    places: Vec<(ImageOffset, u64)>,
}

/// The target as of the last look.
pub(super) struct Targets {
    roots: Vec<u32>,
    patterns: Vec<Regex>,
    images: Images,
    symbols: SymbolService,
    /// Executable mappings of each process, with their images.
    maps: FxHashMap<u32, Vec<(Mapping, ImageNo)>>,
    looked_into: FxHashSet<ImageNo>,
    chosen: Vec<Chosen>,
    /// Processes had more than one thread.
    pub(super) threaded: bool,
}

impl Targets {
    pub(super) fn new(roots: Vec<u32>, patterns: Vec<Regex>) -> Self {
        let options = SymbolOptions { cache_dir: None, ..SymbolOptions::default() };
        Self {
            roots,
            patterns,
            images: Images::default(),
            symbols: SymbolService::new(options, StoredSymbols::default()),
            maps: FxHashMap::default(),
            looked_into: FxHashSet::default(),
            chosen: Vec::new(),
            threaded: false,
        }
    }

    /// Looks what runs now.
    pub(super) fn look(&mut self) {
        let mut processes: Vec<u32> = Vec::new();
        let mut todo = self.roots.clone();
        while let Some(pid) = todo.pop() {
            if !processes.contains(&pid) && proc::exists(pid) {
                todo.extend(proc::children(pid));
                processes.push(pid);
            }
        }
        self.maps.retain(|pid, _| processes.contains(pid));
        self.images.begin_batch();
        for pid in processes {
            self.threaded |= proc::threads(pid).len() > 1;
            let maps: Vec<(Mapping, ImageNo)> = proc::executable_mappings(pid)
                .into_iter()
                .map(|m| {
                    let image = self.image_of(pid, &m);
                    (m, image)
                })
                .collect();
            for image in maps.iter().map(|m| m.1) {
                self.match_names(image);
            }
            self.maps.insert(pid, maps);
        }
    }

    fn image_of(&mut self, pid: u32, m: &Mapping) -> ImageNo {
        let file = MappedFile::Inode { major: m.device.0, minor: m.device.1, inode: m.inode };
        self.images.of_mapping(&MappingFacts { pid, range: (m.start, m.end), path: &m.path, file: &file })
    }

    fn match_names(&mut self, no: ImageNo) {
        let image = self.images.get(no);
        if image.kind != ImageKind::Elf || !self.looked_into.insert(no) {
            return;
        }
        let of_code = |f: &&Function| matches!(f.source, NameSource::Symbol | NameSource::Unwind) && f.size <= LARGEST;
        let named = |f: &&Function| {
            let demangled = demangle(&f.name, Form::Short);
            self.patterns.iter().any(|p| p.is_match(&f.name) || p.is_match(&demangled))
        };
        let table = self.symbols.functions(image);
        let found = table.functions().iter().filter(of_code).filter(named);
        self.chosen.extend(found.map(|f| Chosen { image: no, function: f.clone(), blocks: OnceCell::new() }));
    }

    /// Procedures that match.
    pub(super) fn matches(&self) -> usize {
        self.chosen.len()
    }

    pub(super) fn image(&self, no: ImageNo) -> &Image {
        self.images.get(no)
    }

    /// What to count in each procedure with its samples, those with most first; the first place is where it is entered. With executions
    /// per nanosecond, as far as walks tell of any.
    pub(super) fn places(&self, heat: &Heat) -> Vec<(u64, Vec<(Place, f64)>)> {
        let samples = |c: &Chosen| heat.within(self.images.get(c.image).id, c.function.start, c.function.size);
        let mut chosen: Vec<(u64, &Chosen)> = self.chosen.iter().map(|c| (samples(c), c)).collect();
        chosen.sort_by_key(|(samples, c)| (std::cmp::Reverse(*samples), c.image, c.function.start));
        chosen.truncate(MOST_PROCEDURES);
        chosen.iter().map(|(samples, c)| (*samples, self.decisive_places(c, heat))).collect()
    }

    fn decisive_places(&self, c: &Chosen, heat: &Heat) -> Vec<(Place, f64)> {
        let image = self.images.get(c.image).id;
        let blocks = c.blocks.get_or_init(|| self.blocks(c));
        let samples: Vec<u64> = blocks.places.iter().map(|(from, bytes)| heat.within(image, *from, *bytes)).collect();
        let decisive = blocks.shape.decisive(&samples).into_iter();
        let place = |b: usize| {
            let offset = blocks.places[b].0;
            (Place { image: c.image, offset }, heat.rate(image, offset))
        };
        decisive.map(place).collect()
    }

    fn blocks(&self, c: &Chosen) -> Blocks {
        let image = self.images.get(c.image);
        let stated = |at: ImageOffset| to_svma(&image.segments, at).map_or(at.0, |a| a.0);
        let offset = |at: Svma| to_offset(&image.segments, at).unwrap_or(ImageOffset(at.0));
        let around = Around::new(image, &self.symbols);
        let start = stated(c.function.start);
        let cfg = Cfg::new(start..start.saturating_add(c.function.size), &around);
        let place = |b: &CfgBlock| {
            let (first, last) = (cfg.insns[b.insns.start].address, cfg.insns[b.insns.end - 1].end());
            (offset(first), last.0 - first.0)
        };
        Blocks { places: cfg.blocks.iter().map(place).collect(), shape: Shape::of(&cfg) }
    }

    /// Running threads of processes that have all these places, with the places' addresses.
    pub(super) fn threads(&self, places: &[Place]) -> Vec<(u32, Vec<u64>)> {
        let mut out = Vec::new();
        for (&pid, maps) in &self.maps {
            let address = |p: &Place| {
                let of = |(m, image): &&(Mapping, ImageNo)| {
                    *image == p.image && (m.offset..m.offset + (m.end - m.start)).contains(&p.offset.0)
                };
                maps.iter().find(of).map(|(m, _)| m.start + (p.offset.0 - m.offset))
            };
            if let Some(addresses) = places.iter().map(address).collect::<Option<Vec<u64>>>() {
                let running = proc::threads(pid).into_iter().filter(|tid| proc::is_running(pid, *tid));
                out.extend(running.map(|tid| (tid, addresses.clone())));
            }
        }
        out
    }
}
