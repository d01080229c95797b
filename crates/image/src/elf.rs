//! What an ELF file says of itself at the top: identity, executable segments, where its debug
//! information is. Symbols, lines and unwind rules are read by the parsers beside it.

use crate::error::{ImageError, Problem};
use crate::ids::{IdKind, ImageId, Segment, Svma};
use crate::notes::build_id_from_notes_aligned;
use crate::view::{View, string_at};
use object::elf;

/// The instruction set of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// 64-bit x86; the only one that is disassembled and unwound.
    X86_64,
    /// 32-bit x86.
    X86,
    /// 64-bit ARM.
    Aarch64,
    /// Another one, by its ELF number.
    Other(u16),
}

impl From<elf::Machine> for Machine {
    fn from(machine: elf::Machine) -> Self {
        match machine {
            elf::EM_X86_64 => Self::X86_64,
            elf::EM_386 => Self::X86,
            elf::EM_AARCH64 => Self::Aarch64,
            other => Self::Other(other.0),
        }
    }
}

/// What the file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElfKind {
    /// Linked to fixed addresses.
    Executable,
    /// A shared library or a position-independent executable.
    Shared,
    /// An object file or a kernel module: no segments, addresses count from its sections.
    Relocatable,
    /// A core dump or something else.
    Other(u16),
}

/// Where the separate debug file is: a name to look for and the CRC-32 of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// File name without directory.
    pub name: String,
    /// [`debuglink_crc`] of the right file.
    pub crc: u32,
}

/// Where the supplementary debug file (written by `dwz`) is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugAltLink {
    /// Path, relative to the directory of the file that names it.
    pub path: String,
    /// Build-id of the right file.
    pub build_id: ImageId,
}

/// Everything a profiler needs to know of an ELF file before it reads symbols.
#[derive(Clone, Debug)]
pub struct ElfSummary {
    /// The file's identity.
    pub id: ImageId,
    /// What `id` was made from.
    pub id_kind: IdKind,
    /// Instruction set.
    pub machine: Machine,
    /// 64-bit file; 32-bit ones are read alike.
    pub is_64: bool,
    /// Executable, library or object file.
    pub kind: ElfKind,
    /// Entry point, 0 for most libraries.
    pub entry: Svma,
    /// Stated address of the first loaded byte: what a load bias is added to.
    pub base: Svma,
    /// Executable segments, in file order.
    pub segments: Vec<Segment>,
    /// Name the library gives itself.
    pub soname: Option<String>,
    /// Separate debug file.
    pub debuglink: Option<DebugLink>,
    /// Supplementary debug file.
    pub debugaltlink: Option<DebugAltLink>,
    /// Has a full symbol table (`.symtab`).
    pub has_symtab: bool,
    /// Has line information (`.debug_line`, maybe compressed).
    pub has_dwarf: bool,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

impl ElfSummary {
    /// Reads a whole file.
    ///
    /// # Errors
    /// When it is not ELF, or its file or program headers cannot be read; anything less is a problem
    /// in the summary.
    pub fn parse(data: &[u8]) -> Result<Self, ImageError> {
        let mut view = View::parse(data)?;
        let segments = view.code_segments();
        let (id, id_kind) = identity(&mut view, &segments);
        let kind = match view.file_type {
            elf::ET_EXEC => ElfKind::Executable,
            elf::ET_DYN => ElfKind::Shared,
            elf::ET_REL => ElfKind::Relocatable,
            other => ElfKind::Other(other.0),
        };
        Ok(Self {
            id,
            id_kind,
            machine: view.machine.into(),
            is_64: view.is_64,
            kind,
            entry: view.entry,
            base: base(&view),
            segments,
            soname: soname(&view),
            debuglink: debuglink(&view),
            debugaltlink: debugaltlink(&view),
            has_symtab: view.sections.iter().any(|s| s.kind == elf::SHT_SYMTAB),
            has_dwarf: [".debug_line", ".zdebug_line"].iter().any(|n| view.section(n).is_some_and(|s| s.size > 0)),
            problems: view.problems,
        })
    }
}

/// What the first bytes of a file tell about its build-id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixId {
    /// There it is.
    Found(ImageId),
    /// The file's notes are all in the prefix and hold none: the identity needs the whole file.
    Absent,
    /// The notes lie further behind: read up to this many bytes.
    NeedBytes(u64),
}

/// The build-id from the first bytes of a file (4 KiB do for almost all).
///
/// # Errors
/// When the bytes are not the start of an ELF file.
pub fn build_id_from_prefix(prefix: &[u8]) -> Result<PrefixId, ImageError> {
    let view = match View::parse_programs(prefix) {
        Ok(view) => view,
        Err(ImageError::BrokenElf { part, detail }) => match headers_end(prefix) {
            Some(end) if end > prefix.len() as u64 => return Ok(PrefixId::NeedBytes(end)),
            _ => return Err(ImageError::BrokenElf { part, detail }),
        },
        Err(e) => return Err(e),
    };
    let mut need = None;
    for note in view.programs.iter().filter(|p| p.kind == elf::PT_NOTE) {
        match view.range(note.offset, note.file_size) {
            Some(bytes) => {
                if let Some(id) = build_id_from_notes_aligned(bytes, note.align, view.endian) {
                    return Ok(PrefixId::Found(id));
                }
            }
            None => need = need.max(note.offset.checked_add(note.file_size)),
        }
    }
    Ok(need.map_or(PrefixId::Absent, PrefixId::NeedBytes))
}

/// The CRC-32 that `.gnu_debuglink` states of the separate debug file.
#[must_use]
pub fn debuglink_crc(file: &[u8]) -> u32 {
    crc32fast::hash(file)
}

/// Where the program headers end, from a file header that may be cut behind its 64 bytes.
fn headers_end(prefix: &[u8]) -> Option<u64> {
    match program_headers(prefix) {
        Some(place) => place.start.checked_add(place.size()),
        None => Some(FILE_HEADER),
    }
}

/// Bytes of the largest file header.
pub(crate) const FILE_HEADER: u64 = 64;

/// Where the file header says the program headers are.
pub(crate) struct HeaderPlace {
    pub(crate) start: u64,
    entry: u64,
    count: u64,
}

impl HeaderPlace {
    pub(crate) fn size(&self) -> u64 {
        self.entry * self.count
    }
}

/// `None` when there are fewer bytes than a file header has.
pub(crate) fn program_headers(prefix: &[u8]) -> Option<HeaderPlace> {
    if (prefix.len() as u64) < FILE_HEADER {
        return None;
    }
    let little = prefix[5] == 1;
    let number = |at: usize, size: usize| {
        let bytes = &prefix[at..at + size];
        let fold = |n: u64, b: &u8| n << 8 | u64::from(*b);
        if little { bytes.iter().rev().fold(0, fold) } else { bytes.iter().fold(0, fold) }
    };
    let (start, entry, count) = if prefix[4] == 2 {
        (number(32, 8), number(54, 2), number(56, 2))
    } else {
        (number(28, 4), number(42, 2), number(44, 2))
    };
    Some(HeaderPlace { start, entry, count })
}

fn identity(view: &mut View<'_>, segments: &[Segment]) -> (ImageId, IdKind) {
    if let Some(id) = build_id(view) {
        return (id, IdKind::BuildId);
    }
    let data = view.data;
    let hashed = code_hash(segments, |offset, size| {
        let start = usize::try_from(offset).ok()?;
        data.get(start..start.checked_add(usize::try_from(size).ok()?)?).map(<[u8]>::to_vec)
    });
    if hashed.is_none() {
        view.problems.push(Problem::new(
            "executable segments",
            "the file ends before they do: the identity rests on what is there",
        ));
    }
    (hashed.unwrap_or_else(|| ImageId(sha1_smol::Sha1::from(data).digest().bytes())), IdKind::CodeHash)
}

/// Segments up to this size are hashed whole.
const HASH_WHOLE: u64 = 1 << 20;
/// Of larger ones so many pieces, evenly spread: a rebuild moves code everywhere, and a collector must
/// not read 150 MB to tell which file it met.
const HASH_PIECES: u64 = 256;
const HASH_PIECE: u64 = 4096;

/// Identity of a file without build-id: SHA-1 of place, size and bytes of its executable segments.
/// `read` gives the bytes at a file offset; `None` from it gives `None`.
pub fn code_hash(segments: &[Segment], mut read: impl FnMut(u64, u64) -> Option<Vec<u8>>) -> Option<ImageId> {
    let mut hash = sha1_smol::Sha1::new();
    for s in segments {
        for word in [s.offset, s.address, s.size] {
            hash.update(&word.to_le_bytes());
        }
        if s.size <= HASH_WHOLE {
            hash.update(&read(s.offset, s.size)?);
            continue;
        }
        for i in 0..HASH_PIECES {
            let at = (s.size / HASH_PIECES * i).min(s.size - HASH_PIECE) & !(HASH_PIECE - 1);
            hash.update(&read(s.offset.checked_add(at)?, HASH_PIECE)?);
        }
    }
    Some(ImageId(hash.digest().bytes()))
}

/// The build-id note, from segments or, in files without, from sections.
pub(crate) fn build_id(view: &View<'_>) -> Option<ImageId> {
    let segments = view.programs.iter().filter(|p| p.kind == elf::PT_NOTE);
    let segments = segments.filter_map(|p| Some((view.range(p.offset, p.file_size)?, p.align)));
    let sections = view.sections.iter().filter(|s| s.kind == elf::SHT_NOTE);
    let sections = sections.filter_map(|s| Some((view.bytes(s)?, 4)));
    segments.chain(sections).find_map(|(bytes, align)| build_id_from_notes_aligned(bytes, align, view.endian))
}

/// Page-aligned, as the loader maps it: a load bias is the difference of mapped and stated pages.
fn base(view: &View<'_>) -> Svma {
    let loads = view.programs.iter().filter(|p| p.kind == elf::PT_LOAD);
    Svma(loads.map(|p| p.address & !0xfff).min().unwrap_or(0))
}

fn soname(view: &View<'_>) -> Option<String> {
    let dynamic = view.sections.iter().find(|s| s.kind == elf::SHT_DYNAMIC)?;
    let strings = view.bytes(view.sections.get(dynamic.link as usize)?)?;
    let table = view.bytes(dynamic)?;
    let tag = u64::try_from(elf::DT_SONAME.0).ok()?;
    let offset = (0..)
        .step_by(2)
        .map_while(|i| Some((view.word(table, i)?, view.word(table, i + 1)?)))
        .find(|(t, _)| *t == tag)?
        .1;
    Some(String::from_utf8_lossy(string_at(strings, usize::try_from(offset).ok()?)?).into_owned())
}

fn debuglink(view: &View<'_>) -> Option<DebugLink> {
    let bytes = view.bytes(view.section(".gnu_debuglink")?)?;
    let name = string_at(bytes, 0)?;
    let crc = view.u32(bytes, (name.len() + 1).next_multiple_of(4))?;
    Some(DebugLink { name: String::from_utf8_lossy(name).into_owned(), crc })
}

fn debugaltlink(view: &View<'_>) -> Option<DebugAltLink> {
    let bytes = view.bytes(view.section(".gnu_debugaltlink")?)?;
    let path = string_at(bytes, 0)?;
    let build_id = ImageId::from_build_id(bytes.get(path.len() + 1..)?);
    Some(DebugAltLink { path: String::from_utf8_lossy(path).into_owned(), build_id })
}
