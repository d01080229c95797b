//! The book of images: from what the kernel says of a mapping (build-id, or device and inode, and a
//! path) to an identity, and from there to a row of the store. Files are only *identified* here, by
//! their first bytes where possible; reading symbols is for later. Files that will be gone when
//! symbols are wanted (deleted, memfd) are held open.

use crate::lives::ImageNo;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use whither_image::{
    ElfSummary, IdKind, ImageId, ImageKind, PrefixId, Segment, build_id_from_prefix, build_id_from_sections, code_hash,
    condensed, constant_parts, to_offset,
};
use whither_kernel::records::MappedFile;
use whither_store::model::Image;

/// Bytes read of a file at first: headers and notes lie here for almost all files.
const PREFIX: usize = 16 << 10;
/// Largest deleted file kept.
const KEPT_LIMIT: u64 = 256 << 20;
/// Most deleted files held open.
const HELD_LIMIT: usize = 128;
/// What was written within this time before it was first mapped may be gone when names are wanted: programs that were just
/// built and are built again, or tried and removed.
const YOUNG: Duration = Duration::from_secs(3600);
/// Most young files held open, and the largest: a file that is deleted meanwhile keeps its blocks for as long. Only files of
/// the root mount are held, as nobody can unmount a file system with open files.
const YOUNG_FILES: usize = 32;
const YOUNG_LIMIT: u64 = 32 << 20;
/// Most files held open that our own root does not show: programs of containers, which nobody finds again by their path.
/// Only their mount is kept by that, not the directory it is made of.
const FOREIGN_FILES: usize = 256;
/// No `_start` is longer.
const LONGEST_ENTRY: u64 = 64;

/// What memory without a file is called.
const ANON: &str = "[anon]";

/// All images seen.
#[derive(Debug, Default)]
pub struct Images {
    list: Vec<Image>,
    /// Equal files are one image, but under each path that they are mapped by they have a number of their own: what was
    /// sampled must not bear the name of a copy that was seen before.
    by_id: FxHashMap<ImageId, Vec<ImageNo>>,
    by_inode: FxHashMap<(u32, u32, u64, String), ImageNo>,
    held: FxHashMap<ImageNo, File>,
    /// The same for files that may be deleted or replaced soon, the oldest first.
    young: VecDeque<(ImageNo, File)>,
    /// The same for files of other mount namespaces, the oldest first.
    foreign: VecDeque<(ImageNo, File)>,
    /// Images that were in `foreign` once: what is let go is taken again when it is mapped again.
    strangers: FxHashSet<ImageNo>,
    /// Where programs and the dynamic loader begin: nothing called that.
    entries: FxHashMap<ImageNo, u64>,
    /// What the file looked like when it was identified: the same once more needs no reading.
    stamps: FxHashMap<ImageNo, Stamp>,
    /// Those compared with their stamps in the batch of mappings under way.
    compared: FxHashSet<ImageNo>,
}

/// A mapping as a collector knows it.
#[derive(Clone, Copy, Debug)]
pub struct MappingFacts<'a> {
    /// Process it is in.
    pub pid: u32,
    /// First address and first address after it.
    pub range: (u64, u64),
    /// Path as the kernel prints it.
    pub path: &'a str,
    /// Identity as the kernel gives it.
    pub file: &'a MappedFile,
}

impl Images {
    /// The mappings from here on are learnt of at one moment: whether a file was rewritten need be asked once for all.
    pub fn begin_batch(&mut self) {
        self.compared.clear();
    }

    /// The image of a mapping; identifies the file when it is seen for the first time.
    pub fn of_mapping(&mut self, m: &MappingFacts<'_>) -> ImageNo {
        if let Some(no) = self.special(m.path) {
            return no;
        }
        let no = self.of_file(m);
        if self.strangers.contains(&no) && !self.foreign.iter().any(|(held, _)| *held == no) {
            self.hold_again(no, m);
        }
        no
    }

    fn of_file(&mut self, m: &MappingFacts<'_>) -> ImageNo {
        match m.file {
            MappedFile::BuildId(bytes) if !bytes.is_empty() => {
                let id = ImageId::from_build_id(bytes);
                match self.of_path(&id, clean(m.path)) {
                    Some(no) => no,
                    None => self.first_sight(m, Some(id)),
                }
            }
            MappedFile::BuildId(_) => self.first_sight(m, None),
            MappedFile::Inode { major, minor, inode } => {
                let key = (*major, *minor, *inode, m.path.to_string());
                let known = self.by_inode.get(&key).copied();
                match known.filter(|no| !self.is_rewritten(*no, m)) {
                    Some(no) => no,
                    None => {
                        let no = self.first_sight(m, None);
                        self.by_inode.insert(key, no);
                        no
                    }
                }
            }
        }
    }

    /// Whether a known file has other bytes by now: written anew in place, or another one under its number.
    fn is_rewritten(&mut self, no: ImageNo, m: &MappingFacts<'_>) -> bool {
        if self.compared.contains(&no) {
            return false;
        }
        let Some(known) = self.stamps.get(&no) else { return false };
        let now = std::fs::symlink_metadata(clean(m.path)).map(|meta| stamp_of(&meta));
        // Another file of its name says nothing of what was mapped.
        let rewritten = now.is_ok_and(|now| (now.0, now.1) == (known.0, known.1) && now != *known);
        if !rewritten {
            self.compared.insert(no);
        }
        rewritten
    }

    /// vDSO, vsyscall page and memory without a file.
    fn special(&mut self, path: &str) -> Option<ImageNo> {
        match path {
            "[vdso]" => Some(self.vdso()),
            "[vsyscall]" => Some(self.synthetic(ImageKind::Anon, "[vsyscall]")),
            _ if path.is_empty()
                || path.starts_with("//anon")
                || path.starts_with('[')
                || path.starts_with("/dev/zero") =>
            {
                Some(self.synthetic(ImageKind::Anon, ANON))
            }
            _ => None,
        }
    }

    fn first_sight(&mut self, m: &MappingFacts<'_>, known: Option<ImageId>) -> ImageNo {
        let path = clean(m.path);
        let found = whither_kernel::proc::mapped_file_candidates(m.pid, m.range.0, m.range.1, m.path)
            .into_iter()
            .filter_map(|path| identify(path, known))
            .find(|(file, ..)| may_be(file, m.file));
        let image = match &found {
            Some((_, summary, size)) => Image {
                id: known.unwrap_or(summary.id),
                id_kind: if known.is_some() { IdKind::BuildId } else { summary.id_kind },
                kind: ImageKind::Elf,
                path: path.to_string(),
                segments: summary.segments.clone(),
                size: *size,
            },
            None => unread(m, path, known),
        };
        let no = self.add(image);
        if let Some(stamp) = found.as_ref().and_then(|(file, ..)| stamp(file)) {
            self.stamps.insert(no, stamp);
        }
        if let Some((file, summary, size)) = found {
            let entry = Some(summary.entry).filter(|at| at.0 != 0);
            self.entries.extend(entry.and_then(|at| to_offset(&summary.segments, at)).map(|at| (no, at.0)));
            let transient = m.path.ends_with(" (deleted)") || path.starts_with("/memfd:");
            self.hold(no, file, size, transient);
        }
        no
    }

    /// Keeps a file open that may have no name when its symbols are wanted.
    fn hold(&mut self, no: ImageNo, file: File, size: u64, transient: bool) {
        if transient && self.held.len() < HELD_LIMIT {
            self.held.insert(no, file);
        } else if !transient && size <= KEPT_LIMIT && !names(Path::new(&self.get(no).path), &file) {
            self.hold_foreign(no, file);
        } else if !transient && size <= YOUNG_LIMIT && is_young(&file) && on_root_mount(&file) {
            if self.young.len() == YOUNG_FILES {
                self.young.pop_front();
            }
            self.young.push_back((no, file));
        }
    }

    fn hold_foreign(&mut self, no: ImageNo, file: File) {
        if self.foreign.len() == FOREIGN_FILES {
            self.foreign.pop_front();
        }
        self.strangers.insert(no);
        self.foreign.push_back((no, file));
    }

    fn hold_again(&mut self, no: ImageNo, m: &MappingFacts<'_>) {
        if let Some(file) = self.open(no, m.pid, m.range) {
            self.hold_foreign(no, file);
        }
    }

    /// Lets go of files of other mount namespaces but those that `mapped` says are in use; what is wanted of them must have
    /// been read.
    pub(crate) fn let_go(&mut self, mapped: &FxHashSet<ImageNo>) {
        self.foreign.retain(|(no, _)| mapped.contains(no));
    }

    /// Whether a position lies in the code that a program or the dynamic loader begins with.
    pub(crate) fn is_entry(&self, no: ImageNo, offset: u64) -> bool {
        self.entries.get(&no).is_some_and(|&at| (at..at + LONGEST_ENTRY).contains(&offset))
    }

    /// An image without a file, found by its label.
    pub fn synthetic(&mut self, kind: ImageKind, label: &str) -> ImageNo {
        self.labelled(kind, label, label)
    }

    /// An image without a file whose identity needs more than its label (a process's JIT area).
    pub fn labelled(&mut self, kind: ImageKind, label: &str, identity: &str) -> ImageNo {
        let id = label_id(identity);
        if let Some(no) = self.number(&id) {
            return no;
        }
        let path = label.to_string();
        self.add(Image { id, id_kind: IdKind::Synthetic, kind, path, segments: Vec::new(), size: 0 })
    }

    /// Code that a process makes at run time: an image of its own, as addresses of two processes have nothing to do
    /// with each other. It is code without a file until a map of its functions turns up.
    pub fn made_at_run_time(&mut self, identity: &str, comm: &str, has_map: bool) -> ImageNo {
        let no = self.labelled(ImageKind::Anon, ANON, identity);
        if has_map {
            let image = &mut self.list[no.0 as usize];
            image.kind = ImageKind::Jit;
            image.path = format!("[jit: {comm}]");
        }
        no
    }

    /// Whether an image is memory without a file, of any process.
    #[must_use]
    pub fn is_anon(&self, no: ImageNo) -> bool {
        let image = self.get(no);
        image.kind == ImageKind::Anon && image.path == ANON
    }

    /// The kernel or a module, by its build-id when there is one.
    pub fn kernel_part(&mut self, kind: ImageKind, label: &str, id: Option<ImageId>, size: u64) -> ImageNo {
        let (id, id_kind) = id.map_or_else(|| (label_id(label), IdKind::Synthetic), |id| (id, IdKind::BuildId));
        if let Some(no) = self.number(&id) {
            return no;
        }
        self.add(Image { id, id_kind, kind, path: label.to_string(), segments: Vec::new(), size })
    }

    fn vdso(&mut self) -> ImageNo {
        let label = "[vdso]";
        if let Some(no) = self.number(&label_id(label)) {
            return no;
        }
        let bytes = own_vdso().unwrap_or_default();
        let summary = ElfSummary::parse(&bytes).ok();
        let image = Image {
            id: summary.as_ref().map_or_else(|| label_id(label), |s| s.id),
            id_kind: summary.as_ref().map_or(IdKind::Synthetic, |s| s.id_kind),
            kind: ImageKind::Vdso,
            path: label.to_string(),
            segments: summary.map(|s| s.segments).unwrap_or_default(),
            size: bytes.len() as u64,
        };
        let no = self.add(image);
        self.by_id.insert(label_id(label), vec![no]);
        no
    }

    /// A row of the store.
    #[must_use]
    pub fn get(&self, no: ImageNo) -> &Image {
        &self.list[no.0 as usize]
    }

    /// Number of an identity, under the path that it was seen by first.
    #[must_use]
    pub fn number(&self, id: &ImageId) -> Option<ImageNo> {
        self.by_id.get(id)?.first().copied()
    }

    /// Number of an identity under a path.
    pub(crate) fn of_path(&self, id: &ImageId, path: &str) -> Option<ImageNo> {
        self.by_id.get(id)?.iter().copied().find(|&no| self.get(no).path == path)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether none was seen yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The file of an image, through a process that maps it or by its path; only if it is what was mapped.
    #[must_use]
    pub fn open(&self, no: ImageNo, pid: u32, range: (u64, u64)) -> Option<File> {
        if let Some(file) = self.gone(no) {
            return file.try_clone().ok();
        }
        let image = self.get(no);
        let known = self.stamps.get(&no);
        let candidates = whither_kernel::proc::mapped_file_candidates(pid, range.0, range.1, &image.path);
        candidates.into_iter().find_map(|path| {
            let file = whither_kernel::proc::open_plain(&path)?;
            if known.is_some_and(|k| stamp(&file).as_ref() == Some(k)) {
                return Some(file);
            }
            identify(path, Some(image.id)).map(|(file, ..)| file)
        })
    }

    /// Bytes of a file that was deleted or replaced after it was mapped.
    #[must_use]
    pub fn held_bytes(&self, id: &ImageId) -> Option<Vec<u8>> {
        let file = self.by_id.get(id)?.iter().find_map(|&no| self.gone(no))?;
        let size = file.metadata().ok()?.size().min(KEPT_LIMIT);
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    /// A file that was deleted or replaced after it was mapped.
    fn gone(&self, no: ImageNo) -> Option<&File> {
        let mut at_risk = self.young.iter().chain(&self.foreign);
        let gone = |file: &&File| !names(Path::new(&self.get(no).path), file);
        self.held.get(&no).or_else(|| at_risk.find(|(held, _)| *held == no).map(|(_, file)| file).filter(gone))
    }

    fn add(&mut self, image: Image) -> ImageNo {
        if let Some(no) = self.of_path(&image.id, &image.path) {
            return no;
        }
        let no = ImageNo(self.list.len() as u32);
        self.by_id.entry(image.id).or_default().push(no);
        self.list.push(image);
        no
    }
}

/// A path without the kernel's word that the file is gone.
fn clean(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

fn is_young(file: &File) -> bool {
    let age = file.metadata().and_then(|m| m.modified()).ok().and_then(|t| SystemTime::now().duration_since(t).ok());
    age.is_some_and(|age| age < YOUNG)
}

fn on_root_mount(file: &File) -> bool {
    static ROOT: OnceLock<Option<u64>> = OnceLock::new();
    let root = *ROOT.get_or_init(|| mount_of(&File::open("/").ok()?));
    root.is_some() && mount_of(file) == root
}

/// Number of the mount that a file was opened through.
fn mount_of(file: &File) -> Option<u64> {
    let text = whither_kernel::proc::read(&format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let line = text.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"mnt_id:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Whether a path is the name of an open file.
fn names(path: &Path, file: &File) -> bool {
    let identity = |m: std::fs::Metadata| (m.dev(), m.ino());
    let open = file.metadata().map(identity).ok();
    open.is_some() && path.metadata().map(identity).ok() == open
}

/// A file whose bytes cannot be had any more: the kernel's build-id, else a hash of what is known.
fn unread(m: &MappingFacts<'_>, path: &str, known: Option<ImageId>) -> Image {
    let (id, id_kind) = match known {
        Some(id) => (id, IdKind::BuildId),
        None => (label_id(&format!("{path}\0{:?}", m.file)), IdKind::Path),
    };
    Image { id, id_kind, kind: ImageKind::Elf, path: path.to_string(), segments: Vec::new(), size: 0 }
}

fn label_id(label: &str) -> ImageId {
    let hash = |seed: u64| {
        label.bytes().fold(0xcbf2_9ce4_8422_2325_u64 ^ seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
    };
    let mut id = [0; 20];
    id[..8].copy_from_slice(&hash(0).to_le_bytes());
    id[8..16].copy_from_slice(&hash(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    id[16..].copy_from_slice(b"whth");
    ImageId(id)
}

/// Device, inode, bytes, and when they were last written or otherwise changed.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

fn stamp(file: &File) -> Option<Stamp> {
    Some(stamp_of(&file.metadata().ok()?))
}

fn stamp_of(m: &std::fs::Metadata) -> Stamp {
    (m.dev(), m.ino(), m.size(), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()))
}

/// Whether a file may be the one that was mapped. Stacked file systems show devices of their own, of which nothing follows.
fn may_be(file: &File, mapped: &MappedFile) -> bool {
    let MappedFile::Inode { major, minor, inode } = *mapped else { return true };
    let same_device = |m: &std::fs::Metadata| m.dev() == rustix::fs::makedev(major, minor);
    file.metadata().is_ok_and(|m| inode == 0 || !same_device(&m) || m.ino() == inode)
}

/// Opens a candidate and checks that it is the file wanted.
fn identify(path: PathBuf, wanted: Option<ImageId>) -> Option<(File, ElfSummary, u64)> {
    let file = whither_kernel::proc::open_plain(&path)?;
    let meta = file.metadata().ok()?;
    let summary = summary(&file, meta.size())?;
    let right = wanted.is_none_or(|id| summary.id == id);
    right.then_some((file, summary, meta.size()))
}

/// Reads as little as the identity needs. Plain reads, not a mapping: the file may be truncated by
/// its owner at any time, and a mapping would then kill us with SIGBUS.
fn summary(file: &File, size: u64) -> Option<ElfSummary> {
    let mut bytes = head(file, PREFIX as u64)?;
    if let Ok(PrefixId::NeedBytes(_)) = build_id_from_prefix(&bytes) {
        bytes = condensed(|offset, n| piece(file, offset, n))?;
    }
    let mut summary = ElfSummary::parse(&bytes).ok()?;
    if matches!(build_id_from_prefix(&bytes), Ok(PrefixId::Found(_))) {
        return Some(summary);
    }
    if let Some(id) = build_id_from_sections(|offset, n| piece(file, offset, n)) {
        (summary.id, summary.id_kind) = (id, IdKind::BuildId);
    } else {
        let in_file = |s: &Segment| s.offset.checked_add(s.size).is_some_and(|end| end <= size);
        if !summary.segments.iter().all(in_file) {
            return None;
        }
        summary.id_kind = IdKind::CodeHash;
        summary.id = code_hash(&summary.segments, |offset, n| piece(file, offset, n))?;
    }
    Some(summary)
}

/// The parts of a file that a program which maps it cannot change.
pub(crate) fn constant_parts_of(file: &File) -> Option<Vec<Segment>> {
    constant_parts(&condensed(|offset, n| piece(file, offset, n))?).ok()
}

/// So many bytes at an offset, or none.
pub(crate) fn piece(file: &File, offset: u64, n: u64) -> Option<Vec<u8>> {
    let mut piece = vec![0; usize::try_from(n).ok()?];
    file.read_exact_at(&mut piece, offset).ok()?;
    Some(piece)
}

fn head(file: &File, n: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut at_start = file.try_clone().ok()?;
    std::io::Seek::seek(&mut at_start, std::io::SeekFrom::Start(0)).ok()?;
    at_start.take(n).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The vDSO as mapped into our own process: the same bytes for every 64-bit process of this boot.
#[must_use]
pub fn own_vdso() -> Option<Vec<u8>> {
    let all = whither_kernel::proc::executable_mappings(std::process::id());
    let vdso = all.iter().find(|m| m.path == "[vdso]")?;
    let memory = File::open("/proc/self/mem").ok()?;
    let mut bytes = vec![0; usize::try_from(vdso.end - vdso.start).ok()?];
    memory.read_exact_at(&mut bytes, vdso.start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts<'a>(path: &'a str, file: &'a MappedFile) -> MappingFacts<'a> {
        MappingFacts { pid: u32::MAX, range: (0, 1), path, file }
    }

    #[test]
    fn one_file_is_one_image_however_it_is_named() {
        let exe = std::env::current_exe().expect("a running test");
        let path = exe.to_str().expect("utf-8 path");
        let whole = std::fs::read(&exe).expect("readable");
        let id = ElfSummary::parse(&whole).expect("ELF").id;
        let mut images = Images::default();
        let by_id = images.of_mapping(&facts(path, &MappedFile::BuildId(id.0.to_vec())));
        let by_inode = images.of_mapping(&facts(path, &MappedFile::Inode { major: 1, minor: 2, inode: 3 }));
        assert_eq!((by_id, images.len()), (by_inode, 1));
        let whole_segments = ElfSummary::parse(&whole).expect("ELF").segments;
        assert_eq!(images.get(by_id).segments, whole_segments, "a prefix tells the same segments");
    }

    #[test]
    fn copies_of_a_file_bear_their_own_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let exe = std::env::current_exe().expect("a running test");
        let whole = std::fs::read(&exe).expect("readable");
        let id = ElfSummary::parse(&whole).expect("ELF").id;
        let copy = dir.path().join("copy");
        std::fs::write(&copy, &whole).expect("a copy");
        let (mut images, file) = (Images::default(), MappedFile::BuildId(id.0.to_vec()));
        let paths = [exe.to_str().expect("utf-8"), copy.to_str().expect("utf-8")];
        let numbers = paths.map(|path| images.of_mapping(&facts(path, &file)));
        assert_eq!(numbers.map(|no| images.get(no).path.clone()), paths.map(str::to_owned));
        assert_eq!(numbers.map(|no| images.get(no).id), [id, id]);
        // A file that was deleted while it ran keeps its name.
        let gone = format!("{} (deleted)", paths[1]);
        assert_eq!(images.of_mapping(&facts(&gone, &file)), numbers[1]);
        assert_eq!(images.len(), 2);
    }

    #[test]
    fn a_file_written_anew_in_place_is_another_image_from_the_next_batch_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("program");
        std::fs::copy("/bin/true", &path).expect("copied");
        let inode = std::fs::metadata(&path).expect("there").ino();
        let (file, name) = (MappedFile::Inode { major: 0, minor: 0, inode }, path.to_str().expect("UTF-8"));
        let mut images = Images::default();
        let first = images.of_mapping(&facts(name, &file));
        assert_eq!(images.of_mapping(&facts(name, &file)), first);
        std::fs::write(&path, std::fs::read("/bin/cat").expect("readable")).expect("written in place");
        images.begin_batch();
        let second = images.of_mapping(&facts(name, &file));
        assert_ne!(images.get(second).id, images.get(first).id);
        assert_eq!(images.of_mapping(&facts(name, &file)), second);
    }

    #[test]
    fn a_file_without_build_id_has_the_identity_its_whole_bytes_have() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (source, exe) = (dir.path().join("x.c"), dir.path().join("x"));
        // More than a megabyte of code, so that pieces are hashed.
        std::fs::write(&source, "asm(\".text\\n.skip 3000000, 0x90\"); int main(void) { return 0; }")
            .expect("writable");
        let built =
            std::process::Command::new("cc").arg("-Wl,--build-id=none").arg("-o").args([&exe, &source]).status();
        assert!(built.expect("cc runs").success());
        let whole = ElfSummary::parse(&std::fs::read(&exe).expect("readable")).expect("ELF");
        let file = File::open(&exe).expect("readable");
        let size = file.metadata().expect("a file").len();
        let ours = summary(&file, size).expect("identified");
        assert_eq!((ours.id, ours.id_kind), (whole.id, IdKind::CodeHash));
    }

    /// A program that was just written has a name only until the next build.
    #[test]
    fn young_files_keep_their_bytes_when_they_are_replaced() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let path = dir.path().join("program");
        std::fs::copy("/proc/self/exe", &path).expect("copied");
        if std::fs::metadata(&path).expect("there").len() > YOUNG_LIMIT {
            // A test binary with much debug information.
            std::fs::copy("/bin/true", &path).expect("copied");
        }
        let file = File::open(&path).expect("readable");
        if !on_root_mount(&file) {
            println!("SKIP: this tree is not on the root mount");
            return;
        }
        let bytes = std::fs::read(&path).expect("readable");
        let mut images = Images::default();
        let m = MappingFacts {
            pid: std::process::id(),
            range: (0, 0),
            path: path.to_str().expect("UTF-8"),
            file: &MappedFile::BuildId(Vec::new()),
        };
        let no = images.first_sight(&m, None);
        let id = images.get(no).id;
        assert!(images.held_bytes(&id).is_none(), "it is where it was");
        std::fs::write(dir.path().join("other"), b"#!/bin/sh").expect("written");
        std::fs::rename(dir.path().join("other"), &path).expect("replaced");
        assert_eq!(images.held_bytes(&id), Some(bytes));
        std::fs::remove_file(&path).expect("removed");
        assert!(images.held_bytes(&id).is_some());
    }

    #[test]
    fn what_another_mount_holds_is_let_go() {
        assert!(!on_root_mount(&File::open("/proc/self/status").expect("readable")));
    }

    #[test]
    fn headers_far_behind_the_start_are_not_read_up_to() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("post-linked");
        let mut bytes = std::fs::read(std::env::current_exe().expect("a running test")).expect("readable");
        let whole = ElfSummary::parse(&bytes).expect("ELF");
        // Program headers (56 bytes each, their number at 56) moved behind a hole of 200 MiB.
        let size = 56 * usize::from(u16::from_le_bytes([bytes[56], bytes[57]]));
        let headers = bytes[64..64 + size].to_vec();
        let far = 200_u64 << 20;
        bytes[32..40].copy_from_slice(&far.to_le_bytes());
        std::fs::write(&path, &bytes).expect("writable");
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("opened");
        file.write_all_at(&headers, far).expect("written");
        let before = peak_kib();
        let found = summary(&file, far + size as u64).expect("identified");
        assert_eq!((found.id, found.segments), (whole.id, whole.segments));
        assert!(peak_kib() - before < 100 << 10, "the hole was read: {} KiB more", peak_kib() - before);
    }

    /// Most memory ever resident.
    fn peak_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("readable");
        let line = status.lines().find(|l| l.starts_with("VmHWM:")).expect("Linux tells it");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
    }

    #[test]
    fn code_made_at_run_time_gets_its_name_late() {
        let mut images = Images::default();
        let first = images.made_at_run_time("one", "java", false);
        let other = images.made_at_run_time("two", "java", false);
        assert_ne!(first, other, "addresses of two processes have nothing to do with each other");
        assert!(images.is_anon(first));
        assert_eq!(images.made_at_run_time("one", "java", true), first);
        assert_eq!((images.get(first).kind, images.get(first).path.as_str()), (ImageKind::Jit, "[jit: java]"));
        assert!(images.is_anon(other));
        assert_eq!(images.made_at_run_time("one", "java", false), first);
        assert!(!images.is_anon(first), "a name is not taken back");
    }

    #[test]
    fn a_missing_file_keeps_the_kernels_build_id() {
        let mut images = Images::default();
        let no = images.of_mapping(&facts("/no/such/file (deleted)", &MappedFile::BuildId(vec![7; 20])));
        let image = images.get(no);
        assert_eq!((image.id, image.path.as_str()), (ImageId([7; 20]), "/no/such/file"));
        assert!(image.segments.is_empty());
        let file = MappedFile::Inode { major: 1, minor: 2, inode: 3 };
        let other = images.of_mapping(&facts("/no/other", &file));
        assert_eq!(images.get(other).id_kind, IdKind::Path);
    }

    #[test]
    fn the_vdso_is_an_elf_file_of_ours() {
        let mut images = Images::default();
        let file = MappedFile::Inode { major: 0, minor: 0, inode: 0 };
        let a = images.of_mapping(&facts("[vdso]", &file));
        assert_eq!(a, images.of_mapping(&facts("[vdso]", &file)));
        assert_eq!(images.get(a).kind, ImageKind::Vdso);
        let anon = images.of_mapping(&facts("//anon", &file));
        assert_eq!(images.get(anon).path, "[anon]");
    }
}
