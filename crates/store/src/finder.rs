//! From an image's identity to its files: the program itself, its debug file, the supplementary debug
//! file. A file whose identity differs is never used: names of another build would be wrong with
//! confidence. Nothing is parsed here beyond what tells the identity.

use crate::debuginfod::{Artefact, Debuginfod};
use crate::mmap;
use crate::model::{IdKind, Image, ImageKind};
use crate::service::mapped;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use whither_image::{Bytes, ElfSummary, ImageId, PrefixId, SplitFiles, build_id_from_prefix, debuglink_crc};

/// The files of an image, as far as they were found and match.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) main: Option<Opened>,
    pub(crate) debug: Option<Opened>,
    pub(crate) supplementary: Option<Bytes>,
    /// Sentences about files that exist but cannot be used.
    pub(crate) problems: Vec<String>,
}

/// A file and what it says of itself.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) bytes: Bytes,
    pub(crate) summary: ElfSummary,
    path: PathBuf,
}

/// Where to look.
#[derive(Debug)]
pub(crate) struct Finder {
    pub(crate) debug_dirs: Vec<PathBuf>,
    pub(crate) debuginfod: Option<Debuginfod>,
}

impl Finder {
    /// Finds the files of an ELF image.
    pub(crate) fn find(&self, image: &Image) -> Files {
        let mut files = Files::default();
        if image.kind != ImageKind::Elf {
            return files;
        }
        files.main = self.main(image, &mut files.problems);
        files.debug = self.debug(image, files.main.as_ref());
        let carrier = files.debug.as_ref().or(files.main.as_ref());
        files.supplementary = carrier.and_then(|c| self.supplementary(c));
        files
    }

    /// The same where the bytes of the image itself are known, whatever its path shows now.
    pub(crate) fn beside(&self, image: &Image, bytes: &Bytes) -> Files {
        let mut files = Files::default();
        match ElfSummary::parse(bytes) {
            Ok(summary) => {
                let path = PathBuf::from(image.path.trim_end_matches(" (deleted)"));
                files.main = Some(Opened { bytes: bytes.clone(), summary, path });
            }
            Err(e) => files.problems.push(format!("{}: {e}", image.path)),
        }
        files.debug = self.debug(image, files.main.as_ref());
        let carrier = files.debug.as_ref().or(files.main.as_ref());
        files.supplementary = carrier.and_then(|c| self.supplementary(c));
        files
    }

    /// Whether a debug file seems to be there, by names alone, `link` being the one that the image tells (empty: none): cheap enough
    /// for every image.
    pub(crate) fn debug_file_exists(&self, image: &Image, link: &str) -> bool {
        let by_id = (image.id_kind == IdKind::BuildId).then(|| self.build_id_paths(image.id, ".debug"));
        let path = Path::new(&image.path);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".debug");
        let by_link = self.link_paths(path, &name);
        let told = if link.is_empty() { Vec::new() } else { self.link_paths(path, OsStr::new(link)) };
        by_id.into_iter().flatten().chain(by_link).chain(told).any(|p| p.is_file())
    }

    fn main(&self, image: &Image, problems: &mut Vec<String>) -> Option<Opened> {
        let named = PathBuf::from(image.path.trim_end_matches(" (deleted)"));
        let by_id = if image.id_kind == IdKind::BuildId { self.build_id_paths(image.id, "") } else { Vec::new() };
        for path in std::iter::once(named.clone()).chain(by_id).filter(|p| p.is_absolute()) {
            match open_matching(&path, image.id, image.id_kind) {
                Match::Yes(opened) => return Some(*opened),
                Match::Other(found) if path == named => problems.push(format!(
                    "{} changed since sampling (was {}, now {found}): it is not used",
                    image.path, image.id
                )),
                Match::Unreadable(e) if path == named => {
                    problems.push(format!(
                        "{} cannot be read ({e}): symbols and code come from elsewhere, if at all",
                        image.path
                    ));
                }
                _ => {}
            }
        }
        self.fetch(image.id, image.id_kind, Artefact::Executable)
    }

    fn debug(&self, image: &Image, main: Option<&Opened>) -> Option<Opened> {
        let by_id = if image.id_kind == IdKind::BuildId { self.build_id_paths(image.id, ".debug") } else { Vec::new() };
        by_id
            .iter()
            .find_map(|path| match open_matching(path, image.id, image.id_kind) {
                Match::Yes(opened) => Some(*opened),
                _ => None,
            })
            .or_else(|| self.linked(main?))
            .or_else(|| {
                let complete = main.is_some_and(|m| m.summary.has_dwarf);
                if complete { None } else { self.fetch(image.id, image.id_kind, Artefact::DebugInfo) }
            })
    }

    /// The file that `.gnu_debuglink` names, if one of that name has the CRC stated.
    fn linked(&self, main: &Opened) -> Option<Opened> {
        let link = main.summary.debuglink.as_ref()?;
        // A name, not a path: a crafted one must not lead elsewhere.
        let name = Path::new(&link.name).file_name()?;
        self.link_paths(&main.path, name).into_iter().find_map(|path| {
            let bytes = mmap::open(&path).ok()?;
            let summary = ElfSummary::parse(&bytes).ok()?;
            let contradicts = both_build_ids(&summary, &main.summary) && summary.id != main.summary.id;
            (!contradicts && debuglink_crc(&bytes) == link.crc).then_some(Opened { bytes, summary, path })
        })
    }

    fn link_paths(&self, main: &Path, name: &OsStr) -> Vec<PathBuf> {
        let Some(dir) = main.parent().filter(|d| d.is_absolute()) else { return Vec::new() };
        let mut paths = vec![dir.join(".debug").join(name)];
        if main.file_name() != Some(name) {
            paths.push(dir.join(name));
        }
        let below = dir.strip_prefix("/").unwrap_or(dir);
        paths.extend(self.debug_dirs.iter().map(|d| d.join(below).join(name)));
        paths
    }

    /// The `dwz` file that a debug file shares parts with.
    fn supplementary(&self, carrier: &Opened) -> Option<Bytes> {
        let link = carrier.summary.debugaltlink.as_ref()?;
        let beside = carrier.path.parent()?.join(&link.path);
        let paths = std::iter::once(beside).chain(self.build_id_paths(link.build_id, ".debug"));
        paths
            .filter_map(|path| match open_matching(&path, link.build_id, IdKind::BuildId) {
                Match::Yes(opened) => Some(opened.bytes),
                _ => None,
            })
            .next()
    }

    /// Where split debug information of an image may lie.
    pub(crate) fn split(&self, image: &Image, files: &Files, moved: &[(String, String)]) -> SplitPlaces {
        let carriers: Vec<PathBuf> =
            [&files.main, &files.debug].into_iter().flatten().map(|f| f.path.clone()).collect();
        let package = |path: &PathBuf| {
            let mut name = path.clone().into_os_string();
            name.push(".dwp");
            PathBuf::from(name)
        };
        let mut packages: Vec<PathBuf> = carriers.iter().map(package).collect();
        if image.id_kind == IdKind::BuildId {
            packages.extend(self.build_id_paths(image.id, ".dwp"));
        }
        let beside = carriers.iter().filter_map(|p| Some(p.parent()?.to_owned())).collect();
        SplitPlaces { packages, beside, moved: moved.to_vec() }
    }

    fn build_id_paths(&self, id: ImageId, suffix: &str) -> Vec<PathBuf> {
        let hex = id.to_hex();
        let (head, tail) = hex.split_at(2);
        self.debug_dirs.iter().map(|d| d.join(".build-id").join(head).join(format!("{tail}{suffix}"))).collect()
    }

    fn fetch(&self, id: ImageId, kind: IdKind, what: Artefact) -> Option<Opened> {
        let path = self.debuginfod.as_ref().filter(|_| kind == IdKind::BuildId)?.fetch(id, what)?;
        match open_matching(&path, id, kind) {
            Match::Yes(opened) => Some(*opened),
            _ => None,
        }
    }
}

/// Files that a compiler or `dwp` wrote beside a program.
#[derive(Debug)]
pub(crate) struct SplitPlaces {
    packages: Vec<PathBuf>,
    /// Directories of the program and its debug file: trees are moved after they were built.
    beside: Vec<PathBuf>,
    moved: Vec<(String, String)>,
}

impl SplitFiles for SplitPlaces {
    fn package(&self) -> Option<Bytes> {
        self.packages.iter().find_map(|path| mmap::open(path).ok())
    }

    fn unit(&self, directory: &str, name: &str) -> Option<Bytes> {
        let stated = Path::new(directory).join(name);
        let moved = stated.to_str().map(|path| mapped(path, &self.moved));
        let own = Path::new(name).file_name()?;
        let beside = self.beside.iter().flat_map(|dir| [dir.join(name), dir.join(own)]);
        let paths = std::iter::once(stated.clone()).chain(moved).chain(beside);
        paths.filter(|path| path.is_absolute()).find_map(|path| mmap::open(&path).ok())
    }
}

enum Match {
    Yes(Box<Opened>),
    /// Exists, with this identity.
    Other(ImageId),
    Unreadable(io::Error),
    No,
}

fn open_matching(path: &Path, id: ImageId, kind: IdKind) -> Match {
    let bytes = match mmap::open(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Match::Unreadable(e),
        Err(_) => return Match::No,
    };
    // The note near the start tells most strangers apart without touching the rest of the file.
    if kind == IdKind::BuildId
        && let Ok(PrefixId::Found(found)) = build_id_from_prefix(bytes.get(..4096).unwrap_or(&bytes))
        && found != id
    {
        return Match::Other(found);
    }
    match ElfSummary::parse(&bytes) {
        Ok(summary) if summary.id == id => Match::Yes(Box::new(Opened { bytes, summary, path: path.to_owned() })),
        Ok(summary) => Match::Other(summary.id),
        Err(_) => Match::No,
    }
}

fn both_build_ids(a: &ElfSummary, b: &ElfSummary) -> bool {
    a.id_kind == IdKind::BuildId && b.id_kind == IdKind::BuildId
}
