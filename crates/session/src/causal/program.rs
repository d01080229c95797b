//! The processes of the group and what code they have mapped: executables and libraries with their place in
//! memory, their unwind rows and their identity. Files are read once, however many processes map them.

use rustc_hash::FxHashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use whither_image::{Bytes, ElfSummary, IdKind, ImageKind, Svma, UnwindRows, load_bias};
use whither_kernel::memory::Memory;
use whither_kernel::proc::{self, Mapping};
use whither_store::model::Image;

/// A file of code, known by its identity.
#[derive(Clone, Debug)]
pub(super) struct CodeFile {
    /// Identity and place.
    pub(super) image: Image,
    /// Path as the first process saw it.
    pub(super) seen_as: String,
    /// Unwinding rules.
    pub(super) rows: Arc<UnwindRows>,
}

/// A module of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    /// First address.
    pub(super) start: u64,
    /// First address behind it.
    pub(super) end: u64,
    /// What is added to a stated address.
    pub(super) bias: u64,
    /// Index into [`Program::files`].
    pub(super) file: usize,
    /// It is the process's executable.
    pub(super) main: bool,
}

/// Identity of a mapping's file, cheap to tell.
type Key = ((u32, u32), u64, String);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Program {
    /// Files of code, in the order they were seen.
    pub(super) files: Vec<CodeFile>,
    known: FxHashMap<Key, Option<usize>>,
    processes: FxHashMap<u32, Process>,
    /// Of forked children that nobody has looked at yet, and of those that are gone: their samples are read later.
    passing: FxHashMap<u32, (Instant, Vec<Mapped>)>,
}

/// Samples are read that long after they were taken at most.
const LATE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Process {
    modules: Vec<Mapped>,
    seen: Vec<(u64, u64, u64, u64)>,
}

impl Program {
    /// Looks at a process again; whether its modules have changed.
    pub(super) fn refresh(&mut self, pid: u32) -> bool {
        let maps: Vec<Mapping> =
            proc::executable_mappings(pid).into_iter().filter(|m| m.inode != 0 || m.path == "[vdso]").collect();
        let seen: Vec<_> = maps.iter().map(|m| (m.start, m.end, m.offset, m.inode)).collect();
        // A process that is going has no maps: what it had stays as it was.
        if seen.is_empty() || self.processes.get(&pid).is_some_and(|p| p.seen == seen) {
            return false;
        }
        let modules = self.modules(pid, &maps);
        self.passing.remove(&pid);
        self.processes.insert(pid, Process { modules, seen });
        true
    }

    /// A child has the code of its parent until it executes another program, which may be all of its life.
    pub(super) fn forked(&mut self, pid: u32, parent: u32) {
        if !self.processes.contains_key(&pid) {
            self.passing.insert(pid, (Instant::now(), self.modules_of(parent).to_vec()));
        }
    }

    /// What was known of a process that executes another program is of no use any more.
    pub(super) fn execed(&mut self, pid: u32) {
        self.passing.remove(&pid);
    }

    /// Forgets processes that are gone, in a while.
    pub(super) fn keep(&mut self, living: &[u32]) {
        self.passing.retain(|_, (since, _)| since.elapsed() < LATE);
        let gone: Vec<u32> = self.processes.keys().filter(|pid| !living.contains(pid)).copied().collect();
        for pid in gone {
            let modules = self.processes.remove(&pid).map(|p| p.modules).unwrap_or_default();
            self.passing.insert(pid, (Instant::now(), modules));
        }
    }

    /// Processes that were looked at.
    pub(super) fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.processes.keys().copied().collect();
        pids.sort_unstable();
        pids
    }

    /// Modules of a process.
    pub(super) fn modules_of(&self, pid: u32) -> &[Mapped] {
        let passing = || self.passing.get(&pid).map_or(&[][..], |(_, modules)| modules);
        self.processes.get(&pid).map_or_else(passing, |p| &p.modules)
    }

    /// File and stated address of an address in a process.
    pub(super) fn place(&self, pid: u32, address: u64) -> Option<(usize, Svma)> {
        let module = self.modules_of(pid).iter().find(|m| (m.start..m.end).contains(&address))?;
        Some((module.file, Svma(address.wrapping_sub(module.bias))))
    }

    /// Where a range of stated addresses of a file lies, in every process that has it.
    pub(super) fn everywhere(&self, file: usize, start: u64, end: u64, into: &mut Vec<(u32, u64, u64)>) {
        self.processes.keys().for_each(|pid| self.within(*pid, file, start, end, into));
    }

    /// The same in one process.
    pub(super) fn within(&self, pid: u32, file: usize, start: u64, end: u64, into: &mut Vec<(u32, u64, u64)>) {
        let modules = self.processes.get(&pid).map_or(&[][..], |p| &p.modules);
        for m in modules.iter().filter(|m| m.file == file) {
            let (start, end) = (start.wrapping_add(m.bias).max(m.start), end.wrapping_add(m.bias).min(m.end));
            if start < end {
                into.push((pid, start, end));
            }
        }
    }

    /// The file of a path that is going to be executed.
    pub(super) fn file_at(&mut self, path: &str) -> Option<usize> {
        use std::os::unix::fs::MetadataExt;
        // As maps will show it: absolute and without links.
        let path = std::fs::canonicalize(path).ok()?;
        let meta = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let path = path.to_str()?;
        let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let key = (device, meta.ino(), path.to_owned());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let index = self.add(path, &[PathBuf::from(path)]);
        self.known.insert(key, index);
        index
    }

    fn modules(&mut self, pid: u32, maps: &[Mapping]) -> Vec<Mapped> {
        let main = exe_inode(pid);
        let mut modules: Vec<Mapped> = Vec::new();
        for map in maps {
            let Some(file) = self.file_of(pid, map) else { continue };
            let segments = &self.files[file].image.segments;
            let bias = load_bias(segments, map.start, map.offset).unwrap_or(map.start.wrapping_sub(map.offset));
            match modules.iter_mut().find(|m| m.file == file && m.bias == bias) {
                Some(same) => {
                    same.start = same.start.min(map.start);
                    same.end = same.end.max(map.end);
                }
                None => modules.push(Mapped {
                    start: map.start,
                    end: map.end,
                    bias,
                    file,
                    main: map.inode != 0 && map.inode == main,
                }),
            }
        }
        modules
    }

    fn file_of(&mut self, pid: u32, map: &Mapping) -> Option<usize> {
        let key = (map.device, map.inode, map.path.clone());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let index = if map.path == "[vdso]" {
            let bytes = vdso(pid, map);
            bytes.and_then(|bytes| self.push(&map.path, PathBuf::from("[vdso]"), &bytes))
        } else {
            self.add(&map.path, &proc::mapped_file_candidates(pid, map.start, map.end, &map.path))
        };
        self.known.insert(key, index);
        index
    }

    /// Reads the first of `places` that can be read. A path that lasts is better than one below /proc, which
    /// goes with the process.
    fn add(&mut self, seen_as: &str, places: &[PathBuf]) -> Option<usize> {
        let (place, bytes) = places.iter().find_map(|p| Some((p.clone(), whither_store::open_bytes(p).ok()?)))?;
        let summary = ElfSummary::parse(&bytes).ok()?;
        let lasting = places.iter().rev().find(|p| {
            let same = whither_store::open_bytes(p).ok().and_then(|b| ElfSummary::parse(&b).ok());
            same.is_some_and(|s| s.id == summary.id)
        });
        self.push(seen_as, lasting.cloned().unwrap_or(place), &bytes)
    }

    fn push(&mut self, seen_as: &str, path: PathBuf, bytes: &Bytes) -> Option<usize> {
        let summary = ElfSummary::parse(bytes).ok()?;
        // One file under two paths is one file.
        if let Some(same) =
            self.files.iter().position(|f| f.image.id == summary.id && f.image.size == bytes.len() as u64)
        {
            return Some(same);
        }
        let rows = UnwindRows::from_elf(bytes).unwrap_or_default();
        let vdso = seen_as == "[vdso]";
        self.files.push(CodeFile {
            image: Image {
                id: summary.id,
                id_kind: if vdso { IdKind::Synthetic } else { summary.id_kind },
                kind: if vdso { ImageKind::Vdso } else { ImageKind::Elf },
                path: path.to_string_lossy().into_owned(),
                segments: summary.segments,
                size: bytes.len() as u64,
            },
            seen_as: seen_as.strip_suffix(" (deleted)").unwrap_or(seen_as).to_owned(),
            rows: Arc::new(rows),
        });
        Some(self.files.len() - 1)
    }
}

fn exe_inode(pid: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/{}/exe", proc::with_memory(pid))).map_or(0, |m| m.ino())
}

fn vdso(pid: u32, map: &Mapping) -> Option<Bytes> {
    let mut bytes = vec![0; usize::try_from(map.end.checked_sub(map.start)?).ok()?];
    Memory::open(pid).ok()?.read(map.start, &mut bytes).ok()?;
    Some(Bytes::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_code_is_found() {
        let me = std::process::id();
        let mut program = Program::default();
        assert!(program.refresh(me) && !program.refresh(me));
        let here = our_own_code_is_found as fn() as usize as u64;
        let (file, stated) = program.place(me, here).expect("our own code");
        let main = program.modules_of(me).iter().find(|m| m.main).expect("an executable");
        assert_eq!(main.file, file);
        assert!(!program.files[file].rows.rows.is_empty());
        let mut places = Vec::new();
        program.everywhere(file, stated.0, stated.0 + 1, &mut places);
        assert_eq!(places, [(me, here, here + 1)]);
        program.within(me, file, stated.0, stated.0 + 1, &mut places);
        program.within(1, file, stated.0, stated.0 + 1, &mut places);
        assert_eq!(places, [(me, here, here + 1); 2], "in one process");
        let again = program.file_at("/proc/self/exe").expect("the same file");
        assert_eq!(again, file);
        assert!(program.files[file].image.path.starts_with('/'));
        program.keep(&[]);
        assert!(program.pids().is_empty());
        assert_eq!(program.place(me, here), Some((file, stated)), "its last samples are still to come");
    }

    #[test]
    fn a_child_has_its_parent_s_code_until_it_executes_another_program() {
        let me = std::process::id();
        let mut program = Program::default();
        program.refresh(me);
        let here = our_own_code_is_found as fn() as usize as u64;
        // No process has this number, so nothing can be read of it any more.
        let child = u32::MAX - 1;
        program.forked(child, me);
        assert!(!program.refresh(child));
        assert_eq!(program.place(child, here), program.place(me, here));
        assert_eq!(program.pids(), [me], "it is nowhere to be armed");
        program.execed(child);
        assert_eq!(program.place(child, here), None);
    }
}
