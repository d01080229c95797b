//! From records in time order to rows: the books of lives, images and kernel ranges are kept up to
//! date, and each sample is placed at once, so that there is no ambiguity of time as with samples
//! aggregated in the kernel.

use super::build_ids::BuildIds;
use super::container::Refusal;
use super::events::{Branches, Source, sources};
use super::kernel_layout::{KernelLayout, running_kernel_at};
use super::record::{Entry, Mapping, Mode, Sample, decode};
use super::straight::Straight;
use super::user_stack::{is_lone, unwound};
use super::{Imported, Lookup};
use crate::aggregate::{Aggregate, Key, ProcessNo, StackKey};
use crate::branches::{self, Place};
use crate::images::{Images, MappingFacts};
use crate::lives::{Found, ImageNo, LifeNo, Lives, Mapped};
use crate::unwind::Unwinders;
use linux_perf_data::{Feature, PerfFile, PerfFileReader, PerfFileRecord};
use rustc_hash::FxHashMap;
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use whither_image::{ImageId, ImageKind};
use whither_kernel::proc;
use whither_kernel::records::{BranchEntry, MappedFile};
use whither_store::model::{EdgeSource, EpochMeta, Event, Losses, Process, Rate, StackEnd, process_key};

const NS: u64 = 1_000_000_000;
/// Values of a call chain from here on are markers, not addresses.
const CONTEXT_MAX: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// Reads all records of a checked file.
pub(super) fn import<R: Read + Seek>(reader: R, written_ns: u64, lookup: Lookup) -> Result<Imported, Refusal> {
    let PerfFileReader { mut perf_file, mut record_iter } = PerfFileReader::parse_file(reader)?;
    let mut importer = Importer::new(&perf_file, lookup);
    while let Some(record) = record_iter.next_record(&mut perf_file)? {
        let PerfFileRecord::EventRecord { attr_index, record } = record else { continue };
        let time = record.timestamp();
        let layout = importer.sources[attr_index].layout;
        match decode(record.record_type.0, record.misc, &record.data.as_slice(), layout) {
            Some(entry) => importer.take(attr_index, time, entry),
            None => importer.short_records += 1,
        }
    }
    importer.finish(&perf_file, written_ns)
}

/// First and last time seen, and samples, of one event on one CPU.
#[derive(Clone, Copy, Debug)]
struct Seen {
    samples: u64,
    period: u64,
}

struct Importer {
    sources: Vec<Source>,
    events: Vec<Event>,
    ids: BuildIds,
    host: String,
    /// Files named in the file may be looked at; when also of this host, those without build-id.
    lookup: Lookup,
    same_host: bool,
    lives: Lives,
    images: Images,
    kernel: KernelLayout,
    rows: Aggregate,
    losses: Losses,
    /// Records lost as told where they are missing, and samples lost as perf sums them up at the end: mostly the same.
    lost: (u64, u64),
    jits: FxHashMap<LifeNo, Option<ImageNo>>,
    jit_images: FxHashMap<ImageNo, u32>,
    file_images: FxHashMap<(String, Identity), ImageNo>,
    seen: FxHashMap<(u32, u16), Seen>,
    /// Of samples, on the file's clock.
    first: Option<u64>,
    last: u64,
    throttled: u64,
    short_records: u64,
    straight: Straight,
    unwinders: Unwinders,
    /// Registers of other machines bear other numbers, and their code has other rules.
    unwindable: bool,
}

/// A file as the record identifies it.
type Identity = (u64, Vec<u8>);

impl Importer {
    fn new(file: &PerfFile, lookup: Lookup) -> Self {
        let (sources, events) = sources(file.event_attributes(), &cpu(file));
        let host = text(file.hostname());
        Self {
            sources,
            events,
            ids: BuildIds::parse(file.feature_section_data(Feature::BUILD_ID).unwrap_or_default()),
            same_host: lookup == Lookup::LocalFiles && host == proc::machine().host,
            host,
            lookup,
            lives: Lives::default(),
            images: Images::default(),
            kernel: KernelLayout::default(),
            rows: Aggregate::default(),
            losses: Losses::default(),
            lost: (0, 0),
            jits: FxHashMap::default(),
            jit_images: FxHashMap::default(),
            file_images: FxHashMap::default(),
            seen: FxHashMap::default(),
            first: None,
            last: 0,
            throttled: 0,
            short_records: 0,
            straight: Straight::default(),
            unwinders: Unwinders::default(),
            unwindable: text(file.arch()) == "x86_64",
        }
    }

    fn take(&mut self, attribute: usize, time: Option<u64>, entry: Entry) {
        let time = time.unwrap_or(self.last);
        match entry {
            Entry::Sample(sample) => self.sample(attribute, &sample),
            Entry::Mapping(m) => self.mapping(&m, time),
            Entry::Comm { pid, exec: true, name, .. } => {
                self.lives.execed(pid, name, time);
            }
            Entry::Comm { pid, tid, exec: false, name } => self.named(pid, tid, name, time),
            Entry::Fork { pid, parent, tid, by, .. } if pid == parent => self.lives.thread_born(tid, pid, by),
            // perf invents these for what ran already; the parent's mappings are not inherited.
            Entry::Fork { announced: true, .. } => {}
            Entry::Fork { pid, parent, .. } => {
                self.lives.forked(pid, parent, time);
            }
            Entry::Exit { pid, tid } if pid == tid => self.lives.ended(pid, time),
            Entry::Lost(n) => self.lost.0 = self.lost.0.saturating_add(n),
            Entry::LostSamples(n) => self.lost.1 = self.lost.1.saturating_add(n),
            Entry::Throttled => self.throttled += 1,
            Entry::Ksymbol { gone: false, address, length, name } => {
                self.kernel.symbol(&mut self.images, address, length, &name);
            }
            Entry::Ksymbol { .. } | Entry::Exit { .. } | Entry::Other => {}
        }
    }

    fn named(&mut self, pid: u32, tid: u32, name: String, time: u64) {
        if pid == tid {
            // Also how perf announces a process that ran already.
            self.lives.found(pid, name.clone(), String::new(), 0, time);
            self.lives.renamed(pid, name);
        } else {
            self.lives.name_thread(tid, name);
        }
    }

    fn mapping(&mut self, m: &Mapping, time: u64) {
        if m.pid == u32::MAX {
            if self.same_host && m.path.starts_with("[kernel") && self.ids.kernel.is_none() {
                self.ids.kernel = running_kernel_at(m.start);
            }
            return self.kernel.mapping(&mut self.images, &self.ids, m);
        }
        if m.length == 0 {
            return;
        }
        let image = self.image(m);
        let mapped = Mapped { start: m.start, end: m.start.saturating_add(m.length), offset: m.offset, image };
        self.lives.mapped(m.pid, mapped, &m.path, time);
    }

    /// The image of a user mapping.
    fn image(&mut self, m: &Mapping) -> ImageNo {
        let identity = match &m.file {
            MappedFile::BuildId(bytes) => (0, bytes.clone()),
            MappedFile::Inode { inode, .. } => (*inode, Vec::new()),
        };
        let key = (m.path.clone(), identity);
        if let Some(no) = self.file_images.get(&key) {
            return *no;
        }
        let no = self.first_sight(m);
        self.file_images.insert(key, no);
        no
    }

    fn first_sight(&mut self, m: &Mapping) -> ImageNo {
        let path = m.path.strip_suffix(" (deleted)").unwrap_or(&m.path);
        let own = match &m.file {
            MappedFile::BuildId(bytes) if !bytes.is_empty() => Some(ImageId::from_build_id(bytes)),
            _ => None,
        };
        let known = own.or_else(|| self.ids.file(&m.path)).or_else(|| self.ids.file(path));
        if path == "[vdso]" {
            return self.vdso(m, known);
        }
        if !path.starts_with('/') || path.starts_with("//") || path.starts_with("/dev/zero") {
            return self.of_mapping(m, MappedFile::BuildId(Vec::new()));
        }
        match known {
            Some(id) if self.may_open(path, None) => self.of_mapping(m, MappedFile::BuildId(id.0.to_vec())),
            Some(id) => self.images.kernel_part(ImageKind::Elf, path, Some(id), 0),
            None if self.may_open(path, Some(&m.file)) => self.of_mapping(m, m.file.clone()),
            None => self.images.labelled(ImageKind::Elf, path, &format!("{path}\0{:?}", m.file)),
        }
    }

    /// Ours, with its symbols, if it is the same one.
    fn vdso(&mut self, m: &Mapping, known: Option<ImageId>) -> ImageNo {
        let Some(id) = known else {
            return self.images.labelled(ImageKind::Vdso, &m.path, &format!("vdso {}", self.host));
        };
        if self.lookup == Lookup::LocalFiles {
            self.of_mapping(m, MappedFile::BuildId(Vec::new()));
        }
        self.images.kernel_part(ImageKind::Vdso, &m.path, Some(id), m.length)
    }

    /// Whether the file may be opened to identify it: a plain file (a pipe would block), and, where
    /// no build-id can prove that it is the right one, the same inode on the same host.
    fn may_open(&self, path: &str, proof: Option<&MappedFile>) -> bool {
        if self.lookup == Lookup::Nothing {
            return false;
        }
        let Some(meta) = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file) else { return false };
        match proof {
            None => true,
            Some(MappedFile::Inode { inode, .. }) => self.same_host && meta.ino() == *inode,
            Some(MappedFile::BuildId(_)) => false,
        }
    }

    /// The image book must not look into /proc: the pid may be anyone's by now.
    fn of_mapping(&mut self, m: &Mapping, file: MappedFile) -> ImageNo {
        let range = (m.start, m.start.saturating_add(m.length));
        self.images.of_mapping(&MappingFacts { pid: u32::MAX, range, path: &m.path, file: &file })
    }

    fn sample(&mut self, attribute: usize, s: &Sample) {
        let source = &self.sources[attribute];
        let Some(event) = source.event else { return };
        let (period, max_stack, branches) =
            (s.period.unwrap_or(source.period).max(1), source.max_stack, source.branches);
        let time = s.time.unwrap_or(self.last);
        self.first = Some(self.first.unwrap_or(time).min(time));
        self.last = self.last.max(time);
        let seen = self.seen.entry((s.cpu, event)).or_insert(Seen { samples: 0, period });
        seen.samples += 1;
        let life = self.lives.at(s.pid, time);
        let (image, offset) = self.place(life, s.mode, s.ip);
        let process = self.process(life, s.pid);
        // Seconds of the file's clock; turned into wall time at the end, when it is known.
        let slice = u32::try_from(time / NS).unwrap_or(u32::MAX);
        self.rows.add(Key { image, event, process, tid: s.tid, slice, offset, period }, 1);
        if !s.chain.is_empty() || s.user.is_some() {
            let (frames, end) = self.frames(life, s, max_stack);
            let stack = self.rows.stack(frames, end);
            self.losses.stacks_truncated += u64::from(end == StackEnd::Truncated);
            self.rows.add_stack(StackKey { stack, event, process, tid: s.tid, slice, period }, 1);
        }
        match branches {
            Branches::None => {}
            Branches::Partial => self.straight.partial += u64::from(!s.branches.is_empty()),
            Branches::Whole(source) => self.straight_runs(life, &s.branches, source),
        }
    }

    /// Evidence of where branches went, from the CPU's records of them.
    fn straight_runs(&mut self, life: Option<LifeNo>, stack: &[BranchEntry], source: EdgeSource) {
        let found = branches::rows(stack, source, &mut |address| self.code_place(life, address));
        self.straight.add(&found, source);
        self.losses.impossible_runs += found.impossible;
        self.rows.add_runs(found.under_way, &found.rows);
    }

    /// Where an address lies, if that is code of a file or the kernel's.
    fn code_place(&mut self, life: Option<LifeNo>, address: u64) -> Option<Place> {
        let mode = if address >> 63 == 1 { Mode::Kernel } else { Mode::User };
        let place = self.place(life, mode, address);
        let kind = self.images.get(place.0).kind;
        matches!(kind, ImageKind::Elf | ImageKind::Vdso | ImageKind::Kernel | ImageKind::Module).then_some(place)
    }

    /// Frames of a call chain, and of the user stack where a copy of it has to be unwound.
    fn frames(&mut self, life: Option<LifeNo>, s: &Sample, max: usize) -> (Vec<(ImageNo, u64)>, StackEnd) {
        let mut frames = Vec::with_capacity(s.chain.len());
        let mut whole = self.walked(life, s.mode, &s.chain, &mut frames);
        let mut end = StackEnd::Complete;
        if let Some(copy) = s.user.as_ref().filter(|_| self.lookup == Lookup::LocalFiles && self.unwindable) {
            let of = life.and_then(|no| Some((no, self.lives.get(no)?)));
            let (user, reached) = unwound(&mut self.unwinders, &self.images, of, copy);
            whole &= self.walked(life, Mode::User, &user, &mut frames);
            end = reached;
        } else if s.user.is_some() || is_lone(&s.chain, s.mode, |v| (v >= CONTEXT_MAX).then(|| context(v))) {
            end = StackEnd::Truncated;
        }
        if frames.is_empty() {
            frames.push(self.place(life, s.mode, s.ip));
        }
        (frames, if !whole || s.chain.len() >= max { StackEnd::Truncated } else { end })
    }

    /// Adds the frames of a chain, up to the first return address that cannot be one; tells whether there was none.
    fn walked(&mut self, life: Option<LifeNo>, mode: Mode, chain: &[u64], frames: &mut Vec<(ImageNo, u64)>) -> bool {
        let (mut mode, mut first) = (mode, true);
        for &value in chain {
            if value >= CONTEXT_MAX {
                (mode, first) = (context(value), true);
                continue;
            }
            // A return address lies behind its call; the call is what the caller was doing.
            let at = if first { value } else { value.wrapping_sub(1) };
            let place = self.place(life, mode, at);
            if !first && self.images.get(place.0).kind == ImageKind::Unknown {
                return false;
            }
            frames.push(place);
            first = false;
        }
        true
    }

    fn place(&mut self, life: Option<LifeNo>, mode: Mode, pc: u64) -> (ImageNo, u64) {
        match mode {
            Mode::User => self.user_place(life, pc),
            Mode::Kernel if !self.kernel.is_known() => {
                self.unknown("[unknown: the file does not say where the kernel was]")
            }
            Mode::Kernel => match self.kernel.find(pc) {
                Some(place) => place,
                None => self.unknown("[unknown: kernel address outside the kernel and its modules]"),
            },
            Mode::Elsewhere => self.unknown("[unknown: guest or hypervisor]"),
        }
    }

    fn user_place(&mut self, life: Option<LifeNo>, pc: u64) -> (ImageNo, u64) {
        let Some((no, life)) = life.and_then(|no| Some((no, self.lives.get(no)?))) else {
            return self.unknown("[unknown: process was never seen]");
        };
        // Records come in time order: of several mappings the present one is right.
        let (Found::One(m) | Found::Several(m)) = life.maps.find(pc) else {
            let blank = life.maps.mappings().is_empty();
            return self.unknown(if blank {
                "[unknown: mappings of the process were never seen]"
            } else {
                "[unknown: nothing executable was mapped there]"
            });
        };
        if self.images.get(m.image).kind != ImageKind::Anon {
            return (m.image, m.offset_of(pc));
        }
        (self.jit(no).unwrap_or(m.image), pc)
    }

    fn unknown(&mut self, label: &str) -> (ImageNo, u64) {
        (self.images.synthetic(ImageKind::Unknown, label), 0)
    }

    /// The area of generated code of a life whose perf map is still here.
    fn jit(&mut self, no: LifeNo) -> Option<ImageNo> {
        if let Some(image) = self.jits.get(&no) {
            return *image;
        }
        let life = self.lives.get(no)?;
        let map = if self.same_host { crate::jit::Home::of(life.pid).map(0) } else { None };
        let image = map.map(|_| {
            let identity = format!("jit {} {} {} {}", self.host, life.pid, life.born, life.execs);
            self.images.labelled(ImageKind::Jit, &format!("[jit: {}]", life.comm), &identity)
        });
        if let Some(image) = image {
            self.jit_images.insert(image, life.pid);
        }
        self.jits.insert(no, image);
        image
    }

    fn process(&mut self, life: Option<LifeNo>, pid: u32) -> ProcessNo {
        let life = life.and_then(|no| self.lives.get(no));
        let comm = match life {
            _ if pid == 0 => "swapper",
            Some(life) if !life.comm.is_empty() => life.comm.as_str(),
            _ => "[unknown]",
        };
        let (execs, exe) = life.map_or((0, ""), |l| (l.execs, l.exe.as_str()));
        // Starts are not known; lives of one pid differ by their birth on the file's clock.
        let born = life.map_or(0, |l| l.born);
        let key = process_key(&self.host, pid, born, execs, comm, "");
        self.rows.process(key, || Process {
            key,
            pid,
            start_ns: 0,
            comm: comm.to_owned(),
            exe: exe.to_owned(),
            cgroup: String::new(),
        })
    }

    fn finish(mut self, file: &PerfFile, written_ns: u64) -> Result<Imported, Refusal> {
        let first = self.first.ok_or(Refusal::Empty)?;
        let anchor = Anchor::new(file, self.last, written_ns);
        self.rows.rates = self.rates(first, anchor);
        let (images, events) = (&self.images, self.events.clone());
        let mut profile = self.rows.cut(&events, |no| images.get(no));
        self.lives.tell_names(&mut profile);
        let shift =
            |slice: &mut u32| *slice = u32::try_from(anchor.wall(u64::from(*slice) * NS) / NS).unwrap_or(u32::MAX);
        profile.samples.iter_mut().for_each(|s| shift(&mut s.slice));
        profile.stack_samples.iter_mut().for_each(|s| shift(&mut s.slice));
        let meta = self.meta(file, first, anchor);
        let jit_images = self.jit_images.iter().map(|(no, pid)| (self.images.get(*no).id, *pid)).collect();
        let programs = self.kernel.programs().map(|(no, size)| (self.images.get(no).id, size)).collect();
        profile.epochs = vec![meta.clone()];
        Ok(Imported { profile, meta, jit_images, programs })
    }

    fn rates(&self, first: u64, anchor: Anchor) -> Vec<Rate> {
        let rate = |(&(cpu, event), seen): (&(u32, u16), &Seen)| Rate {
            start_ns: anchor.wall(first),
            length_ns: self.last - first,
            cpu,
            event: self.events[usize::from(event)].name.clone(),
            period: seen.period,
            delivered: seen.samples,
            ..Rate::default()
        };
        let mut rates: Vec<Rate> = self.seen.iter().map(rate).collect();
        rates.sort_by(|a, b| (a.cpu, &a.event).cmp(&(b.cpu, &b.event)));
        rates
    }

    fn meta(&self, file: &PerfFile, first: u64, anchor: Anchor) -> EpochMeta {
        let command = command_line(file.feature_section_data(Feature::CMDLINE).unwrap_or_default());
        EpochMeta {
            version: whither_store::FORMAT_VERSION,
            tool: format!("perf {}", text(file.perf_version())).trim_end().to_owned(),
            host: self.host.clone(),
            kernel: text(file.os_release()),
            cpu: text(file.cpu_desc()),
            cpus: file.nr_cpus().ok().flatten().map_or(0, |n| n.nr_cpus_online),
            start_ns: anchor.wall(first),
            end_ns: anchor.wall(self.last),
            start_boottime_ns: first,
            scope: scope(&command).to_owned(),
            command,
            backend: "import".into(),
            notes: self.notes(anchor),
            slice_s: 1,
            threads: true,
            losses: Losses { dropped: self.lost.0.max(self.lost.1), ..self.losses.clone() },
            ..EpochMeta::default()
        }
    }

    /// Events of groups without a sample of their own.
    fn counted_only(&self) -> impl Iterator<Item = &str> {
        const OF_GROUP: u64 = 1 << 3;
        let sampled = |event: u16| self.seen.keys().any(|(_, e)| *e == event);
        let grouped = |event: u16| self.sources.iter().any(|s| s.event == Some(event) && s.layout.read & OF_GROUP != 0);
        let numbered = self.events.iter().enumerate().map(|(n, e)| (n as u16, e));
        numbered.filter(move |(n, _)| grouped(*n) && !sampled(*n)).map(|(_, e)| e.name.as_str())
    }

    fn notes(&self, anchor: Anchor) -> Vec<String> {
        let mut notes =
            vec!["Imported from perf.data; samples of idle CPUs are included, as in perf report.".to_owned()];
        if !anchor.exact {
            notes.push("The file has no wall clock: times of day are taken from when it was written.".to_owned());
        }
        if self.throttled > 0 {
            notes.push(format!(
                "The kernel throttled sampling {} times; busy phases are under-represented.",
                self.throttled
            ));
        }
        notes.extend(self.straight.notes());
        notes.extend(self.counted_only().map(|event| {
            format!(
                "{event} was counted at samples of another event of its group (leader sampling, `:S`): such counts are not \
                 imported, its column is empty."
            )
        }));
        if self.short_records > 0 {
            notes.push(format!("{} records were too short to be read and were left out.", self.short_records));
        }
        notes
    }
}

/// What the file says of its CPU: vendor and model.
fn cpu(file: &PerfFile) -> String {
    format!("{} {}", text(file.cpu_id()), text(file.cpu_desc()))
}

/// What a marker in a call chain says of the addresses behind it.
fn context(marker: u64) -> Mode {
    match marker {
        CONTEXT_KERNEL => Mode::Kernel,
        CONTEXT_USER => Mode::User,
        _ => Mode::Elsewhere,
    }
}

/// Relation of the file's clock to wall time.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    clock: u64,
    wall: u64,
    exact: bool,
}

impl Anchor {
    /// From the file when perf was told to note it, else from the time it was written.
    fn new(file: &PerfFile, last: u64, written_ns: u64) -> Self {
        match file.clock_data() {
            Ok(Some(data)) => Self { clock: data.clockid_time_ns, wall: data.wall_clock_ns, exact: true },
            _ => Self { clock: last, wall: written_ns, exact: false },
        }
    }

    fn wall(self, clock: u64) -> u64 {
        if clock >= self.clock {
            self.wall.saturating_add(clock - self.clock)
        } else {
            self.wall.saturating_sub(self.clock - clock)
        }
    }
}

fn text(field: Result<Option<&str>, linux_perf_data::Error>) -> String {
    field.ok().flatten().unwrap_or_default().to_owned()
}

/// `u32 count; { u32 length, zero-padded text }[]`
fn command_line(section: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = section.get(4..).unwrap_or_default();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((word, tail)) = tail.split_at_checked(length) else { break };
        let end = word.iter().position(|b| *b == 0).unwrap_or(length);
        words.push(String::from_utf8_lossy(&word[..end]).into_owned());
        rest = tail;
    }
    words
}

fn scope(command: &[String]) -> &'static str {
    let flags = || command.iter().take_while(|w| *w != "--");
    if flags().any(|w| w == "-a" || w == "--all-cpus") { "whole system" } else { "command" }
}
