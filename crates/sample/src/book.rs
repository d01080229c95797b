//! Where a sample finds its place: side-band and task records keep the books of lives and images up
//! to date; a drained sample is looked up in them and counted. One value of this type per recording.

use crate::accounts::Accounted;
use crate::aggregate::{Aggregate, EdgeKey, Key, ProcessNo, StackKey};
use crate::branches::{Place, Walk};
use crate::images::{Images, MappingFacts};
use crate::jit::Home;
use crate::kernel_map::KernelMap;
use crate::lives::{Found, ImageNo, Life, LifeNo, Lives, Mapped, Moment, STILL, Which};
use rustc_hash::FxHashMap;
use whither_image::ImageKind;
use whither_kernel::records::{Body, MappedFile, Mmap, Record};
use whither_kernel::{clock, proc};
use whither_store::model::{Event, Image, LapCount, Losses, Process, Profile, StackEnd, process_key};

/// How rows name processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folding {
    /// One row per life.
    PerProcess,
    /// One row per command and cgroup.
    ByCommand,
}

/// What a book is to keep.
#[derive(Clone, Debug)]
pub struct BookOptions {
    /// Events by number.
    pub events: Vec<Event>,
    /// How rows name processes.
    pub folding: Folding,
    /// Images (by path) whose rows keep the process even when folding.
    pub per_process: Option<regex::Regex>,
    /// Keep threads apart.
    pub threads: bool,
    /// Length of a slice, seconds; 0 or 1: every second.
    pub slice_s: u32,
}

/// Who a sample belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Process or thread id and tag, without time (aggregated in the kernel).
    Tagged {
        /// Process id, or thread id when threads are kept apart.
        id: u32,
        /// Tag.
        tag: u16,
    },
    /// Process and thread at a time (`CLOCK_MONOTONIC` ns).
    At {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// When.
        time: u64,
    },
}

/// One aggregated sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleIn {
    /// Who ran.
    pub who: Who,
    /// Where.
    pub pc: u64,
    /// Which event.
    pub event: u16,
    /// One sample every so many units.
    pub period: u64,
    /// How often.
    pub count: u32,
}

/// One stack, addresses innermost first; user addresses behind the first are return addresses.
#[derive(Clone, Debug)]
pub struct StackIn {
    /// Who ran.
    pub who: Who,
    /// Which event.
    pub event: u16,
    /// Period times thinning.
    pub period: u64,
    /// Kernel part.
    pub kernel: Vec<u64>,
    /// User part.
    pub user: Vec<u64>,
    /// How the user part ended.
    pub end: StackEnd,
}

/// A file's code as mapped in a life.
#[derive(Clone, Copy, Debug)]
pub struct CodeAt {
    /// Whose.
    pub life: LifeNo,
    /// Its process.
    pub pid: u32,
    /// The mapping.
    pub mapped: Mapped,
}

/// Code that a life made at run time.
#[derive(Clone, Copy, Debug)]
struct Made {
    image: Option<ImageNo>,
    has_map: bool,
    look_again: u64,
}

/// Where the names of made code are to be found.
#[derive(Clone, Debug)]
struct PerfMap {
    life: LifeNo,
    home: Home,
    /// When the process started, wall time.
    started: u64,
}

/// A process that made code without a map is asked again after this time.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// The books of one recording.
#[derive(Debug)]
pub struct Book {
    options: BookOptions,
    host: String,
    /// What to add to monotonic time to get boot time.
    boot_minus_mono: u64,
    lives: Lives,
    images: Images,
    kernel: KernelMap,
    rows: Aggregate,
    losses: Losses,
    cgroups: FxHashMap<u64, String>,
    cgroups_read: u64,
    made: FxHashMap<LifeNo, Made>,
    /// Of lives that have mapped code without a file.
    homes: FxHashMap<LifeNo, Home>,
    maps: FxHashMap<ImageNo, PerfMap>,
    slice: u32,
    /// Row of the life asked for last, with and without its process kept: drained samples come
    /// sorted by life. Void as soon as anything about processes changes.
    recent: Option<(LifeNo, bool, ProcessNo)>,
    /// The life looked up last, of an id and tag that stand for one alone.
    recent_life: Option<((u32, u16), Moment)>,
}

impl Book {
    /// New books; reads the kernel's symbols.
    #[must_use]
    pub fn new(options: BookOptions) -> Self {
        let mut images = Images::default();
        let kernel = KernelMap::read(&mut images);
        let mut book = Self {
            host: proc::machine().host,
            boot_minus_mono: clock::boottime_ns().saturating_sub(clock::monotonic_ns()),
            lives: Lives::default(),
            images,
            kernel,
            rows: Aggregate::default(),
            losses: Losses::default(),
            cgroups: FxHashMap::default(),
            cgroups_read: 0,
            made: FxHashMap::default(),
            homes: FxHashMap::default(),
            maps: FxHashMap::default(),
            slice: 0,
            recent: None,
            recent_life: None,
            options,
        };
        book.turn_slice();
        book
    }

    /// Follows wall time into its slice. Call after a drain: what was drained belongs to the slice in
    /// which it was sampled.
    pub fn turn_slice(&mut self) {
        self.slice = self.slice_now();
    }

    /// Whether wall time has left the slice: time to drain.
    #[must_use]
    pub fn slice_is_over(&self) -> bool {
        self.slice_now() != self.slice
    }

    fn slice_now(&self) -> u32 {
        let now = u32::try_from(clock::wall_ns() / 1_000_000_000).unwrap_or(u32::MAX);
        now - now % self.options.slice_s.max(1)
    }

    /// Reads what is mapped in processes that run already; all of them, or just these.
    pub fn scan(&mut self, only: Option<&[u32]>) {
        for pid in only.map_or_else(proc::pids, <[u32]>::to_vec) {
            // Before it is looked at: what is reported from here on may not be in what is read.
            let time = clock::monotonic_ns();
            let (comm, exe) = (proc::comm(pid), proc::exe(pid));
            if comm.is_empty() && !proc::exists(pid) {
                continue;
            }
            let exe = exe.strip_suffix(" (deleted)").map_or(exe.clone(), str::to_string);
            self.lives.found(pid, comm, exe, proc::cgroup_id(pid), time);
            for tid in if self.options.threads { proc::threads(pid) } else { Vec::new() } {
                if tid != pid {
                    self.lives.name_thread(tid, proc::thread_comm(pid, tid));
                }
                self.lives.thread(tid, pid);
            }
            for m in proc::executable_mappings(pid) {
                let file = MappedFile::Inode { major: m.device.0, minor: m.device.1, inode: m.inode };
                let mmap = Mmap {
                    pid,
                    start: m.start,
                    length: m.end - m.start,
                    offset: m.offset,
                    file,
                    exec: true,
                    path: m.path,
                };
                self.map(&mmap, time);
            }
        }
    }

    /// The side-band records from here on are learnt of at one moment.
    pub fn begin_batch(&mut self) {
        self.images.begin_batch();
    }

    /// Takes a side-band record in; records must come in time order.
    pub fn record(&mut self, r: &Record) {
        self.forget_recent();
        match &r.body {
            Body::Mmap(Mmap { pid, .. }) | Body::Comm { pid, .. } | Body::Fork { pid, .. }
                if self.lives.is_old(*pid, r.time) => {}
            Body::Mmap(m) if m.exec => self.map(m, r.time),
            Body::Comm { pid, exec: true, name, .. } => {
                self.lives.execed(*pid, name.clone(), r.time);
            }
            Body::Comm { pid, tid, exec: false, name } if pid == tid => self.lives.renamed(*pid, name.clone()),
            Body::Fork { pid, parent, .. } if pid != parent => {
                self.lives.forked(*pid, *parent, r.time);
            }
            Body::Fork { pid, tid, by, .. } if self.options.threads => self.lives.thread_born(*tid, *pid, *by),
            Body::Comm { tid, exec: false, name, .. } if self.options.threads => {
                self.lives.name_thread(*tid, name.clone());
            }
            Body::Exit { pid, tid } if pid == tid => {
                self.note_jit_of(*pid, r.time);
                self.lives.ended(*pid, r.time);
            }
            Body::Exit { tid, .. } if self.options.threads => self.lives.thread_ended(*tid),
            Body::Lost(n) => self.losses.sideband_lost += n,
            Body::Ksymbol { address, length, gone, name } => {
                self.kernel.symbol(&mut self.images, *address, *length, *gone, name);
            }
            _ => {}
        }
    }

    /// Takes a task record in.
    pub fn task(&mut self, task: &whither_abi::Task) {
        self.forget_recent();
        if task.why == whither_abi::WHY_UNMAPPED {
            self.lives.unmapped(task);
            return;
        }
        if self.options.threads {
            self.lives.thread(task.tid, task.tgid);
        }
        self.lives.tagged(task);
    }

    /// Task records will tell when a process has unmapped code.
    pub fn will_be_phased(&mut self) {
        self.lives.will_be_phased();
    }

    fn map(&mut self, m: &Mmap, time: u64) {
        if m.length == 0 {
            return;
        }
        let end = m.start.saturating_add(m.length);
        let facts = MappingFacts { pid: m.pid, range: (m.start, end), path: &m.path, file: &m.file };
        let image = self.images.of_mapping(&facts);
        self.lives.mapped(m.pid, Mapped { start: m.start, end, offset: m.offset, image }, &m.path, time);
        if self.images.is_anon(image)
            && let Some(no) = self.lives.at(m.pid, time)
        {
            self.homes.entry(no).or_insert_with(|| Home::of(m.pid));
        }
    }

    /// Counts a sample.
    pub fn sample(&mut self, s: &SampleIn) {
        let at = self.life_at(s.who, s.pc);
        let life = at.map(|at| at.life);
        let (image, offset) = self.place(at, s.pc, true);
        let process = self.process(life, s.who, image);
        let key =
            Key { image, event: s.event, process, tid: self.tid(s.who), slice: self.slice, offset, period: s.period };
        self.rows.add(key, s.count);
    }

    /// Counts a stack.
    pub fn stack(&mut self, s: &StackIn) {
        let moment = self.moment(s.who);
        let life = moment.map(|m| m.life);
        let mut frames = Vec::with_capacity(s.kernel.len() + s.user.len());
        let mut end = s.end;
        for part in [&s.kernel, &s.user] {
            for (i, &address) in part.iter().enumerate() {
                // A return address lies behind its call; the call is what the caller was doing.
                let at = if i == 0 { address } else { address.wrapping_sub(1) };
                let (image, offset) = self.place(moment, at, false);
                // Code without frame pointers leads a walk astray: what lies in no code is no caller.
                if i > 0 && self.images.get(image).kind == ImageKind::Unknown {
                    end = StackEnd::Truncated;
                    break;
                }
                frames.push((image, offset));
            }
        }
        // The entry point has no caller, and in the dynamic loader no unwind rule that says so.
        if frames.last().is_some_and(|&(image, offset)| self.images.is_entry(image, offset)) {
            end = StackEnd::Complete;
        }
        if end == StackEnd::Truncated {
            self.losses.stacks_truncated += 1;
        }
        let first =
            frames.first().map_or_else(|| self.images.synthetic(ImageKind::Unknown, "[unknown: empty stack]"), |f| f.0);
        let process = self.process(life, s.who, first);
        let stack = self.rows.stack(frames, end);
        let key =
            StackKey { stack, event: s.event, process, tid: self.tid(s.who), slice: self.slice, period: s.period };
        self.rows.add_stack(key, 1);
    }

    /// Code from a file at an address, for interpreting it; `None` where it is not certain what was there.
    #[must_use]
    pub fn code_at(&self, who: Who, pc: u64) -> Option<CodeAt> {
        let Moment { life, until } = self.moment(who)?;
        let Life { pid, maps, .. } = self.lives.get(life)?;
        let mapped = if self.is_exact(who) { maps.find_until(pc, until)? } else { maps.find(pc).alone()? };
        let of_file = matches!(self.images.get(mapped.image).kind, ImageKind::Elf | ImageKind::Vdso);
        of_file.then_some(CodeAt { life, pid: *pid, mapped })
    }

    /// Counts what a stack of branch records tells.
    pub(crate) fn runs(&mut self, under_way: Option<Place>, rows: &[EdgeKey]) {
        self.rows.add_runs(under_way, rows);
    }

    /// Counts what a walk tells.
    pub(crate) fn walk(&mut self, walk: &Walk<'_>) {
        self.rows.add_walk(walk);
    }

    /// Counts branch evidence.
    pub fn edge(&mut self, key: EdgeKey) {
        self.rows.add_edge(key);
    }

    /// Counts a pair of moments.
    pub(crate) fn lap(&mut self, image: ImageNo, row: LapCount) {
        self.rows.add_lap(image, row);
    }

    /// The address space of a sample's life, for unwinding.
    #[must_use]
    pub fn life_of(&self, who: Who) -> Option<(LifeNo, &Life)> {
        let no = self.moment(who)?.life;
        Some((no, self.lives.get(no)?))
    }

    /// What was looked up last may have changed.
    fn forget_recent(&mut self) {
        (self.recent, self.recent_life) = (None, None);
    }

    /// The life of a sample at an address.
    fn life_at(&mut self, who: Who, pc: u64) -> Option<Moment> {
        let Who::Tagged { id, tag } = who else { return self.moment(who) };
        if (pc as i64) < 0 {
            return self.moment(who);
        }
        if let Some((_, known)) = self.recent_life.filter(|(key, _)| *key == (id, tag)) {
            return Some(known);
        }
        Some(match self.lives.by_tag_at(self.lives.process_of(id)?, tag, pc)? {
            Which::Only(at) => {
                self.recent_life = Some(((id, tag), at));
                at
            }
            Which::One(at) => at,
            Which::Several(at) => {
                self.losses.ambiguous += 1;
                at
            }
        })
    }

    fn moment(&self, who: Who) -> Option<Moment> {
        match who {
            Who::Tagged { id, tag } => self.lives.by_tag(self.lives.process_of(id)?, tag),
            Who::At { pid, time, .. } => Some(Moment { life: self.lives.at(pid, time)?, until: time }),
        }
    }

    /// Whether it is known when a sample was taken, as far as it matters for what was mapped.
    fn is_exact(&self, who: Who) -> bool {
        matches!(who, Who::At { .. }) || self.lives.is_phased()
    }

    fn tid(&self, who: Who) -> u32 {
        match who {
            _ if !self.options.threads => 0,
            Who::Tagged { id, .. } => id,
            Who::At { tid, .. } => tid,
        }
    }

    /// Image and offset of an address.
    fn place(&mut self, at: Option<Moment>, pc: u64, count_ambiguous: bool) -> (ImageNo, u64) {
        if pc as i64 >= 0 {
            return self.user_place(at, pc, count_ambiguous);
        }
        self.kernel.find(pc).unwrap_or_else(|| {
            let label = if self.kernel.is_readable() {
                "[unknown: kernel address outside the kernel and its modules]"
            } else {
                "[unknown: kernel addresses are hidden (kernel.kptr_restrict)]"
            };
            (self.images.synthetic(ImageKind::Unknown, label), 0)
        })
    }

    fn user_place(&mut self, at: Option<Moment>, pc: u64, count_ambiguous: bool) -> (ImageNo, u64) {
        let Some((Moment { life: no, until }, life)) = at.and_then(|at| Some((at, self.lives.get(at.life)?))) else {
            return (self.images.synthetic(ImageKind::Unknown, "[unknown: process was never seen]"), 0);
        };
        let exact = until != STILL || self.lives.is_phased();
        let found = match life.maps.find(pc) {
            Found::Several(m) if exact => Found::One(life.maps.find_until(pc, until).unwrap_or(m)),
            found => found,
        };
        let found = match found {
            Found::One(m) => m,
            Found::Several(m) => {
                self.losses.ambiguous += u64::from(count_ambiguous);
                m
            }
            Found::None => {
                let reason = if life.maps.mappings().is_empty() {
                    "[unknown: mappings of the process were never seen]"
                } else {
                    "[unknown: nothing executable was mapped there]"
                };
                return (self.images.synthetic(ImageKind::Unknown, reason), 0);
            }
        };
        if !self.images.is_anon(found.image) {
            return (found.image, found.offset_of(pc));
        }
        // Where processes are folded, an address without a name means nothing.
        self.made_code(no).map_or((found.image, 0), |image| (image, pc))
    }

    /// The image of the code that a life made at run time; when processes are folded only where a map names it.
    fn made_code(&mut self, no: LifeNo) -> Option<ImageNo> {
        match self.made.get(&no) {
            Some(made) if made.has_map || clock::monotonic_ns() < made.look_again => made.image,
            _ => self.look_for_map(no),
        }
    }

    /// Looks whether a life has a perf map by now. What was counted before gets its names too.
    fn look_for_map(&mut self, no: LifeNo) -> Option<ImageNo> {
        let life = self.lives.get(no)?;
        let started = Self::wall_time(life.start);
        let home = self.homes.get(&no).cloned().unwrap_or_else(|| Home::of(life.pid));
        let has_map = home.map(started).is_some();
        let image = (has_map || self.options.folding == Folding::PerProcess).then(|| {
            let identity = format!("jit {} {} {} {}", self.host, life.pid, life.start, life.execs);
            self.images.made_at_run_time(&identity, &life.comm, has_map)
        });
        if let Some(image) = image.filter(|_| has_map) {
            self.maps.insert(image, PerfMap { life: no, home, started });
        }
        self.made.insert(no, Made { image, has_map, look_again: clock::monotonic_ns() + LOOK_AGAIN_NS });
        image
    }

    /// Looks for the maps of these lives, and of all that made code, again.
    fn look_for_maps(&mut self) {
        let unnamed: Vec<LifeNo> = self.made.iter().filter(|(_, m)| !m.has_map).map(|(no, _)| *no).collect();
        for no in unnamed {
            self.look_for_map(no);
        }
    }

    /// Wall time of a process start, or a moment before it where the machine has slept; 0: not known.
    fn wall_time(start: u64) -> u64 {
        if start == 0 { 0 } else { clock::wall_ns().saturating_sub(clock::boottime_ns().saturating_sub(start)) }
    }

    /// A process that made code is about to vanish: look once more for its map.
    fn note_jit_of(&mut self, pid: u32, time: u64) {
        if let Some(no) = self.lives.at(pid, time)
            && self.made.get(&no).is_some_and(|made| !made.has_map)
        {
            self.look_for_map(no);
        }
    }

    /// The map that names the functions of a JIT image.
    #[must_use]
    pub fn perf_map(&self, id: &whither_image::ImageId) -> Option<Vec<u8>> {
        let map = self.maps.get(&self.images.number(id)?)?;
        crate::jit::read_perf_map(&map.home, map.started)
    }

    fn process(&mut self, no: Option<LifeNo>, who: Who, image: ImageNo) -> ProcessNo {
        let life = no.and_then(|no| self.lives.get(no));
        let keep = self.options.folding == Folding::PerProcess
            || self.options.per_process.as_ref().is_some_and(|re| re.is_match(&self.images.get(image).path));
        let Some((no, life)) = no.zip(life) else {
            return self.stranger(who, keep);
        };
        if let Some((_, _, known)) = self.recent.filter(|r| (r.0, r.1) == (no, keep)) {
            return known;
        }
        let cgroup = life.cgroup;
        if cgroup != 0 && !self.cgroups.contains_key(&cgroup) {
            self.read_cgroups(cgroup);
        }
        let life = self.lives.get(no).expect("looked up above");
        let cgroup = self.cgroups.get(&life.cgroup).map_or("", String::as_str);
        let start = if life.start == 0 { 0 } else { life.start + self.boot_minus_mono };
        let (pid, start, execs) = if keep { (life.pid, start, life.execs) } else { (0, 0, 0) };
        let comm = if life.pid == 0 { "swapper" } else { life.comm.as_str() };
        let key = process_key(&self.host, pid, start, execs, comm, cgroup);
        let row = self.rows.process(key, || Process {
            key,
            pid,
            start_ns: start,
            comm: comm.to_string(),
            exe: if keep { life.exe.clone() } else { String::new() },
            cgroup: cgroup.to_string(),
        });
        self.recent = Some((no, keep, row));
        row
    }

    fn stranger(&mut self, who: Who, keep: bool) -> ProcessNo {
        let id = match who {
            Who::Tagged { id, .. } => id,
            Who::At { pid, .. } => pid,
        };
        let comm = if id == 0 { "swapper" } else { "[unknown]" };
        let pid = if keep { id } else { 0 };
        let key = process_key(&self.host, pid, 0, 0, comm, "");
        let comm = comm.to_string();
        let (exe, cgroup) = (String::new(), String::new());
        self.rows.process(key, || Process { key, pid, start_ns: 0, comm, exe, cgroup })
    }

    /// Reads the cgroup tree again, at most once a second: groups come and go with containers.
    fn read_cgroups(&mut self, wanted: u64) {
        let now = clock::monotonic_ns();
        if now.saturating_sub(self.cgroups_read) > 1_000_000_000 {
            self.cgroups_read = now;
            self.cgroups = proc::cgroup_paths().into_iter().collect();
            // Looked for and not there: not looked for again until the next reading.
            self.cgroups.entry(wanted).or_default();
        }
    }

    /// Whether a life is still in the book.
    #[must_use]
    pub fn knows(&self, no: LifeNo) -> bool {
        self.lives.get(no).is_some()
    }

    /// Whether a pid was used so often since the last drain that its lives may be mixed up: time to
    /// drain.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.lives.is_crowded()
    }

    /// Forgets what ended before `time`: all samples taken before have been drained.
    pub fn forget(&mut self, time: u64) {
        self.lives.forget(time, proc::exists);
        let lives = &self.lives;
        self.made.retain(|no, _| lives.get(*no).is_some());
        self.homes.retain(|no, _| lives.get(*no).is_some());
    }

    /// Adds accounting rows of the time since the last cut.
    pub fn account(&mut self, rates: impl IntoIterator<Item = Accounted>) {
        for Accounted { rate, skipped_of_ours } in rates {
            self.losses.dropped += rate.dropped;
            self.losses.skipped += skipped_of_ours;
            self.rows.rates.push(rate);
        }
    }

    /// Adds losses that no rate row tells.
    pub fn lost(&mut self, losses: &Losses) {
        self.losses.add(losses);
    }

    /// Whether more distinct rows than these wait to be cut.
    pub fn exceeds(&mut self, rows: usize) -> bool {
        self.rows.exceeds(rows)
    }

    /// Rows, at most, and samples that wait to be cut.
    #[must_use]
    pub fn waiting(&self) -> (usize, u64) {
        (self.rows.rows(), self.rows.total())
    }

    /// Takes the rows and losses out for a segment.
    pub fn cut(&mut self) -> (Profile, Losses) {
        self.forget_recent();
        self.look_for_maps();
        let images = &self.images;
        let mut profile = self.rows.cut(&self.options.events, |no| images.get(no));
        self.lives.tell_names(&mut profile);
        self.lives.forget_names();
        (profile, std::mem::take(&mut self.losses))
    }

    /// The rows and losses so far; they stay.
    #[must_use]
    pub fn snapshot(&mut self) -> (Profile, Losses) {
        self.look_for_maps();
        let mut profile = self.rows.snapshot(&self.options.events, |no| self.images.get(no));
        self.lives.tell_names(&mut profile);
        (profile, self.losses.clone())
    }

    /// An image's file, opened through a process that maps it; only if it is what was mapped.
    #[must_use]
    pub fn open_image(&self, at: &CodeAt) -> Option<std::fs::File> {
        self.images.open(at.mapped.image, at.pid, (at.mapped.start, at.mapped.end))
    }

    /// Bytes of an image whose file was deleted or replaced after it was mapped.
    #[must_use]
    pub fn held_bytes(&self, id: &whither_image::ImageId) -> Option<Vec<u8>> {
        self.images.held_bytes(id)
    }

    /// Lets go of files of containers that have ended. What is wanted of them must have been read.
    pub fn let_go(&mut self) {
        let lives = &self.lives;
        self.maps.values_mut().filter(|map| lives.get(map.life).is_none()).for_each(|map| map.home.let_go());
        let all = self.lives.iter().flat_map(|(_, life)| life.maps.mappings());
        let mapped = all.map(|m| m.image).collect();
        self.images.let_go(&mapped);
    }

    /// The kernel's symbols as read at the start, and BPF programs seen since.
    #[must_use]
    pub fn kernel(&self) -> &KernelMap {
        &self.kernel
    }

    /// Number of a store row's image.
    #[must_use]
    pub fn image_no(&self, image: &Image) -> Option<ImageNo> {
        self.images.of_path(&image.id, &image.path).or_else(|| self.images.number(&image.id))
    }

    /// All images.
    pub(crate) fn images(&self) -> &Images {
        &self.images
    }

    /// An image of the book.
    #[must_use]
    pub fn image(&self, no: ImageNo) -> &Image {
        self.images.get(no)
    }
}
