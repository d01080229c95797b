//! The book of lives: which program a pid was at a given time, and what was mapped where. Fed by
//! side-band records and task records in time order; asked when samples are drained. It knows no
//! files: images are numbers handed out by `images`.
//!
//! Aggregated samples carry no time, so a life is found by the *tag* of its pid (design note 4.3),
//! and a mapping that was replaced is kept until the samples taken before have been drained; the tag
//! tells as well which of several were there (`phases`). A tag has few bits: lives that share pid and
//! tag by chance are told apart by what they had mapped.

mod phases;

pub use phases::STILL;

use phases::Phases;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use whither_store::model::{ProcessIx, Profile, ThreadName};

/// Number of an image in the image book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageNo(pub u32);

/// Number of a life in the book; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LifeNo(pub u32);

/// One executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// File offset of the first byte.
    pub offset: u64,
    /// What is mapped.
    pub image: ImageNo,
}

impl Mapped {
    /// File offset of an address inside.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.offset)
    }

    fn holds(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// Mappings of one address space, shared between a parent and its forked children until one changes.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    /// Sorted by start, not overlapping.
    now: Vec<Mapped>,
    /// Replaced ones, with the time they ended.
    before: Vec<(Mapped, u64)>,
}

impl Maps {
    /// Adds a mapping; what it covers is cut or replaced.
    pub fn insert(&mut self, new: Mapped, time: u64) {
        let first = self.now.partition_point(|m| m.end <= new.start);
        let mut last = first;
        let mut pieces = Vec::new();
        while let Some(old) = self.now.get(last).filter(|m| m.start < new.end) {
            if *old == new {
                return;
            }
            if old.image != new.image || old.offset_of(new.start) != new.offset_of(new.start) {
                self.before.push((*old, time));
            }
            if old.start < new.start {
                pieces.push(Mapped { end: new.start, ..*old });
            }
            if old.end > new.end {
                let offset = old.offset_of(new.end);
                pieces.push(Mapped { start: new.end, offset, ..*old });
            }
            last += 1;
        }
        pieces.push(new);
        pieces.sort_by_key(|m| m.start);
        self.now.splice(first..last, pieces);
    }

    /// What was mapped at an address for samples taken until `until` ([`STILL`]: now), without knowing since when.
    #[must_use]
    pub fn find_until(&self, address: u64, until: u64) -> Option<Mapped> {
        let replaced = self.before.iter().filter(|(m, ended)| *ended > until && m.holds(address));
        match replaced.min_by_key(|(_, ended)| *ended) {
            Some((mapped, _)) => Some(*mapped),
            None => self.find(address).any(),
        }
    }

    /// What is or was mapped at an address; several answers when it changed since the last drain.
    #[must_use]
    pub fn find(&self, address: u64) -> Found {
        let i = self.now.partition_point(|m| m.end <= address);
        let now = self.now.get(i).copied().filter(|m| m.holds(address));
        let same = |m: &Mapped| now.is_some_and(|n| n.image == m.image && n.offset_of(address) == m.offset_of(address));
        let mut before = self.before.iter().rev().map(|(m, _)| *m).filter(|m| m.holds(address) && !same(m));
        match (now, before.next()) {
            (Some(m), None) | (None, Some(m)) => Found::One(m),
            (Some(m), Some(_)) => Found::Several(m),
            (None, None) => Found::None,
        }
    }

    /// Forgets mappings replaced before `time`.
    fn forget(&mut self, time: u64) {
        self.before.retain(|(_, ended)| *ended >= time);
    }

    /// All current mappings, by address.
    #[must_use]
    pub fn mappings(&self) -> &[Mapped] {
        &self.now
    }
}

/// Answer of [`Maps::find`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The one mapping there was.
    One(Mapped),
    /// The current one of several there were.
    Several(Mapped),
    /// Nothing known there.
    None,
}

impl Found {
    /// The mapping, if there was just one.
    #[must_use]
    pub fn alone(self) -> Option<Mapped> {
        if let Self::One(m) = self { Some(m) } else { None }
    }

    fn any(self) -> Option<Mapped> {
        match self {
            Self::One(m) | Self::Several(m) => Some(m),
            Self::None => None,
        }
    }
}

/// A life up to some time: what was mapped then is what its samples lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Whose.
    pub life: LifeNo,
    /// `CLOCK_MONOTONIC` ns, or [`STILL`].
    pub until: u64,
}

/// Answer of [`Lives::by_tag_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one there is, whatever the address.
    Only(Moment),
    /// The one that had code there.
    One(Moment),
    /// The newest of several that the sample may belong to.
    Several(Moment),
}

/// One pid between two execs.
#[derive(Clone, Debug)]
pub struct Life {
    /// Process id.
    pub pid: u32,
    /// Tag that the kernel side computes for it; known from task records.
    pub tag: Option<u16>,
    /// Start of the process, `CLOCK_MONOTONIC` ns; 0 when not known.
    pub start: u64,
    /// Execs of this pid seen before this life.
    pub execs: u32,
    /// Command name.
    pub comm: String,
    /// Path of the executable; empty for kernel threads.
    pub exe: String,
    /// Cgroup id, 0 when not known.
    pub cgroup: u64,
    /// When it began, as far as seen.
    pub born: u64,
    /// When the start-up scan looked at it: what was reported of the pid before is in what was read.
    scanned: u64,
    /// When it ended.
    pub died: Option<u64>,
    /// Address space.
    pub maps: Arc<Maps>,
}

/// With more lives of one pid than this, two that share a tag are no rarity any more.
const CROWD: usize = 8;

/// All lives.
#[derive(Debug, Default)]
pub struct Lives {
    lives: FxHashMap<LifeNo, Life>,
    by_pid: FxHashMap<u32, Vec<LifeNo>>,
    threads: FxHashMap<u32, u32>,
    /// What threads other than the first of a process call themselves.
    names: FxHashMap<u32, String>,
    /// Threads that have ended, whose samples are not in yet.
    ended: Vec<u32>,
    phases: Phases,
    /// Whether the kernel side tells phases.
    phased: bool,
    next: u32,
    crowded: bool,
}

impl Lives {
    /// The life a tagged sample belongs to: the newest of that pid with the tag, else the newest one
    /// whose tag is not known yet.
    #[must_use]
    pub fn by_tag(&self, pid: u32, tag: u16) -> Option<Moment> {
        let all = self.by_pid.get(&pid)?;
        let untagged = || all.iter().rev().find(|no| self.lives[no].tag.is_none());
        self.tagged_so(pid, tag).next().or_else(|| untagged().map(|&life| Moment { life, until: STILL }))
    }

    /// Lives of a pid with a tag, the newest first.
    fn tagged_so(&self, pid: u32, tag: u16) -> impl Iterator<Item = Moment> {
        let all = self.by_pid.get(&pid).map_or(&[][..], Vec::as_slice);
        let tagged = all.iter().rev().filter_map(|&life| Some((life, self.lives[&life].tag?)));
        tagged.flat_map(move |(life, own)| self.phases.ends(pid, own, tag).map(move |until| Moment { life, until }))
    }

    /// As [`Self::by_tag`] for a sample at a user address. Of several lives with that tag it is the
    /// newest that had code there; [`Which::Several`] when they had different code there.
    #[must_use]
    pub fn by_tag_at(&self, pid: u32, tag: u16, address: u64) -> Option<Which> {
        let mut twins = self.tagged_so(pid, tag);
        let (Some(newest), Some(second)) = (twins.next(), twins.next()) else {
            // Without the word that a phase began its tag is a stranger's.
            let lost = || Some(Moment { life: self.newest(pid).filter(|_| self.phased)?, until: STILL });
            return self.by_tag(pid, tag).map(Which::Only).or_else(|| lost().map(Which::Several));
        };
        let all = [newest, second].into_iter().chain(twins);
        let mut holding = all.filter_map(|at| {
            let mapped = self.lives[&at.life].maps.find_until(address, at.until)?;
            Some((at, mapped.image, mapped.offset_of(address)))
        });
        let Some((at, image, offset)) = holding.next() else { return Some(Which::One(newest)) };
        let same = holding.all(|(_, i, o)| (i, o) == (image, offset));
        Some(if same { Which::One(at) } else { Which::Several(at) })
    }

    /// Whether the kernel side tells phases: what is mapped at the place of something else is then no riddle.
    #[must_use]
    pub fn is_phased(&self) -> bool {
        self.phased
    }

    /// The kernel side tells phases.
    pub fn will_be_phased(&mut self) {
        self.phased = true;
    }

    /// The kernel side tells that a process has unmapped code: a phase begins.
    pub fn unmapped(&mut self, task: &whither_abi::Task) {
        self.phases.begun(task.tgid, task.tag, task.time);
    }

    /// The life of a pid at a time.
    #[must_use]
    pub fn at(&self, pid: u32, time: u64) -> Option<LifeNo> {
        let all = self.by_pid.get(&pid)?;
        all.iter().rev().find(|no| self.lives[no].born <= time).or_else(|| all.first()).copied()
    }

    /// A life by its number.
    #[must_use]
    pub fn get(&self, no: LifeNo) -> Option<&Life> {
        self.lives.get(&no)
    }

    /// Process id of a thread, as far as seen.
    #[must_use]
    pub fn process_of(&self, tid: u32) -> Option<u32> {
        if self.by_pid.contains_key(&tid) { Some(tid) } else { self.threads.get(&tid).copied() }
    }

    /// A process found by the start-up scan.
    pub fn found(&mut self, pid: u32, comm: String, exe: String, cgroup: u64, time: u64) -> LifeNo {
        if let Some(no) = self.newest(pid) {
            let life = self.lives.get_mut(&no).expect("numbers in by_pid exist");
            if life.exe.is_empty() {
                life.exe = exe;
            }
            return no;
        }
        self.add(Life { comm, exe, cgroup, scanned: time, ..blank(pid, time) })
    }

    /// Whether the start-up scan looked at the process after `time`: a report of then is in what it
    /// read already, and must not undo it. (A child is on the mappings its parent had *then*, not on
    /// those found later.)
    #[must_use]
    pub fn is_old(&self, pid: u32, time: u64) -> bool {
        self.newest(pid).is_some_and(|no| time < self.lives[&no].scanned)
    }

    /// A process was forked: it starts on its parent's mappings.
    pub fn forked(&mut self, pid: u32, parent: u32, time: u64) -> LifeNo {
        self.ended(pid, time);
        let life = match self.newest(parent).and_then(|no| self.lives.get(&no)) {
            Some(p) => Life {
                comm: p.comm.clone(),
                exe: p.exe.clone(),
                cgroup: p.cgroup,
                maps: Arc::clone(&p.maps),
                ..blank(pid, time)
            },
            None => blank(pid, time),
        };
        self.add(life)
    }

    /// A thread is of a process.
    pub fn thread(&mut self, tid: u32, pid: u32) {
        if tid != pid {
            self.threads.insert(tid, pid);
        }
    }

    /// A thread was born; it is called as the one that made it.
    pub fn thread_born(&mut self, tid: u32, pid: u32, by: u32) {
        self.thread(tid, pid);
        match self.names.get(&by).cloned() {
            Some(name) => self.names.insert(tid, name),
            None => self.names.remove(&tid),
        };
    }

    /// A thread that is not the first of its process calls itself so.
    pub fn name_thread(&mut self, tid: u32, name: String) {
        self.names.insert(tid, name);
    }

    /// A thread has ended; its name is kept until the samples that are on their way have been told of.
    pub fn thread_ended(&mut self, tid: u32) {
        self.ended.push(tid);
    }

    /// Names of the threads that a profile has samples of.
    pub fn tell_names(&self, profile: &mut Profile) {
        if self.names.is_empty() {
            return;
        }
        let mut threads: Vec<(ProcessIx, u32)> = profile.samples.iter().map(|s| (s.process, s.tid)).collect();
        threads.sort_unstable();
        threads.dedup();
        let told = threads.into_iter().filter_map(|(process, tid)| {
            let name = self.names.get(&tid).filter(|name| **name != profile.process(process).comm)?;
            Some(ThreadName { process, tid, name: name.clone() })
        });
        profile.threads = told.collect();
    }

    /// Forgets names of threads that have ended.
    pub fn forget_names(&mut self) {
        for tid in self.ended.drain(..) {
            self.names.remove(&tid);
        }
    }

    /// A process has become another program: nothing of its old mappings is left.
    pub fn execed(&mut self, pid: u32, comm: String, time: u64) -> LifeNo {
        let old = self.newest(pid).and_then(|no| self.lives.get(&no));
        let (execs, start, cgroup) = old.map_or((0, 0, 0), |l| (l.execs + 1, l.start, l.cgroup));
        self.ended(pid, time);
        self.add(Life { comm, execs, start, cgroup, ..blank(pid, time) })
    }

    /// The process calls itself otherwise now.
    pub fn renamed(&mut self, pid: u32, comm: String) {
        if let Some(life) = self.newest_mut(pid) {
            life.comm = comm;
        }
    }

    /// Something executable was mapped. The first file mapped after an exec is the executable.
    pub fn mapped(&mut self, pid: u32, new: Mapped, path: &str, time: u64) {
        let no = self.newest(pid).unwrap_or_else(|| self.add(blank(pid, time)));
        let life = self.lives.get_mut(&no).expect("numbers in by_pid exist");
        if life.exe.is_empty() && path.starts_with('/') && !path.starts_with("//") {
            life.exe = path.to_string();
        }
        Arc::make_mut(&mut life.maps).insert(new, time);
    }

    /// The process has ended; what was mapped is kept until its samples are in.
    pub fn ended(&mut self, pid: u32, time: u64) {
        if let Some(life) = self.newest_mut(pid) {
            life.died.get_or_insert(time);
        }
    }

    /// The kernel side tells the tag, start and cgroup of a process as of `time`.
    pub fn tagged(&mut self, task: &whither_abi::Task) {
        if self.is_old(task.tgid, task.time) {
            return;
        }
        let no = self.at(task.tgid, task.time).unwrap_or_else(|| self.add(blank(task.tgid, task.time)));
        let life = self.lives.get_mut(&no).expect("numbers in by_pid exist");
        life.tag = Some(task.tag as u16);
        life.start = task.start;
        life.cgroup = task.cgroup;
        if life.comm.is_empty() {
            life.comm = task.comm();
        }
    }

    /// Forgets lives that ended before `time` (their samples have been drained), unless `alive`
    /// says that threads of the process go on; and mappings replaced before it.
    pub fn forget(&mut self, time: u64, alive: impl Fn(u32) -> bool) {
        self.crowded = false;
        let newest: FxHashMap<u32, LifeNo> =
            self.by_pid.iter().filter_map(|(pid, all)| Some((*pid, *all.last()?))).collect();
        let gone = |no: &LifeNo, life: &Life| {
            life.died.is_some_and(|t| t < time) && (newest.get(&life.pid) != Some(no) || !alive(life.pid))
        };
        let dead: Vec<(LifeNo, u32)> =
            self.lives.iter().filter(|(no, l)| gone(no, l)).map(|(no, l)| (*no, l.pid)).collect();
        for (no, pid) in dead {
            self.lives.remove(&no);
            if let Some(all) = self.by_pid.get_mut(&pid) {
                all.retain(|n| *n != no);
                if all.is_empty() {
                    self.by_pid.remove(&pid);
                }
            }
        }
        self.phases.forget(time);
        let by_pid = &self.by_pid;
        self.threads.retain(|_, pid| by_pid.contains_key(pid));
        for life in self.lives.values_mut().filter(|l| !l.maps.before.is_empty()) {
            Arc::make_mut(&mut life.maps).forget(time);
        }
    }

    /// Whether many lives of one pid wait to be forgotten.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Lives known now.
    pub fn iter(&self) -> impl Iterator<Item = (LifeNo, &Life)> {
        self.lives.iter().map(|(no, life)| (*no, life))
    }

    fn add(&mut self, life: Life) -> LifeNo {
        let no = LifeNo(self.next);
        self.next += 1;
        let all = self.by_pid.entry(life.pid).or_default();
        all.push(no);
        self.crowded |= all.len() > CROWD;
        self.lives.insert(no, life);
        no
    }

    fn newest(&self, pid: u32) -> Option<LifeNo> {
        self.by_pid.get(&pid)?.last().copied()
    }

    fn newest_mut(&mut self, pid: u32) -> Option<&mut Life> {
        let no = self.newest(pid)?;
        self.lives.get_mut(&no)
    }
}

fn blank(pid: u32, time: u64) -> Life {
    Life {
        pid,
        tag: None,
        start: 0,
        execs: 0,
        comm: String::new(),
        exe: String::new(),
        cgroup: 0,
        born: time,
        scanned: 0,
        died: None,
        maps: Arc::default(),
    }
}

#[cfg(test)]
mod tests;
