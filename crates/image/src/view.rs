//! One flat view of an ELF file's headers, so that the parsers beside it need not care about word
//! size and byte order. It tolerates a cut file: what lies outside the bytes reads as absent.

use crate::error::{ImageError, Problem};
use crate::ids::{Segment, Svma};
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endian, Endianness};
use std::ops::Range;

/// A program header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) kind: elf::ProgramType,
    pub(crate) executable: bool,
    pub(crate) writable: bool,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) file_size: u64,
    pub(crate) align: u64,
}

/// A section header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: elf::SectionType,
    pub(crate) executable: bool,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
    pub(crate) entry_size: u64,
}

impl Section<'_> {
    /// Stated addresses it covers; empty when it would run over the end of the address space.
    pub(crate) fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.size)
    }
}

/// The headers of an ELF file and the bytes behind them.
pub(crate) struct View<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) endian: Endianness,
    pub(crate) is_64: bool,
    pub(crate) machine: elf::Machine,
    pub(crate) file_type: elf::FileType,
    pub(crate) entry: Svma,
    pub(crate) programs: Vec<Program>,
    pub(crate) sections: Vec<Section<'a>>,
    pub(crate) problems: Vec<Problem>,
}

impl<'a> View<'a> {
    /// Headers of a whole file; a broken section table is a problem, broken program headers an error.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, ImageError> {
        let mut view = Self::parse_programs(data)?;
        let sections = if view.is_64 {
            sections::<elf::FileHeader64<Endianness>>(data)
        } else {
            sections::<elf::FileHeader32<Endianness>>(data)
        };
        match sections {
            Ok(sections) => view.sections = sections,
            Err(e) => view.problems.push(Problem::new("section headers", format!("cannot be read: {e}"))),
        }
        Ok(view)
    }

    /// Only the file and program headers; the sections stay empty.
    pub(crate) fn parse_programs(data: &'a [u8]) -> Result<Self, ImageError> {
        if !data.starts_with(&elf::ELFMAG) {
            return Err(ImageError::NotElf { start: data[..data.len().min(4)].to_vec() });
        }
        match data.get(4) {
            Some(2) => programs::<elf::FileHeader64<Endianness>>(data),
            Some(1) => programs::<elf::FileHeader32<Endianness>>(data),
            other => Err(ImageError::broken("file header", format!("class {other:?} is neither 32 nor 64 bit"))),
        }
    }

    /// Executable `PT_LOAD`s with bytes in the file.
    pub(crate) fn code_segments(&self) -> Vec<Segment> {
        self.programs
            .iter()
            .filter(|p| p.kind == elf::PT_LOAD && p.executable && p.file_size > 0)
            .map(|p| Segment { offset: p.offset, address: p.address, size: p.file_size })
            .collect()
    }

    /// The first section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|s| s.name == name.as_bytes())
    }

    /// Bytes of a section; `None` when it has none in the file or the file is too short.
    pub(crate) fn bytes(&self, section: &Section<'_>) -> Option<&'a [u8]> {
        if section.kind == elf::SHT_NOBITS {
            return None;
        }
        self.range(section.offset, section.size)
    }

    /// Bytes of a range of the file, `None` when they are not all there.
    pub(crate) fn range(&self, offset: u64, size: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        self.data.get(start..end)
    }

    /// The 16-bit word at `at`.
    pub(crate) fn u16(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let raw = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(self.endian.read_u16(raw))
    }

    /// The 32-bit word at `at`.
    pub(crate) fn u32(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let raw = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(self.endian.read_u32(raw))
    }

    /// The 64-bit word at `at`.
    pub(crate) fn u64(&self, bytes: &[u8], at: usize) -> Option<u64> {
        let raw = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        Some(self.endian.read_u64(raw))
    }

    /// The word of the file's own class at word index `i`.
    pub(crate) fn word(&self, bytes: &[u8], i: usize) -> Option<u64> {
        if self.is_64 { self.u64(bytes, i.checked_mul(8)?) } else { self.u32(bytes, i.checked_mul(4)?).map(u64::from) }
    }
}

/// The string that starts at `at` in a table, up to its zero byte.
pub(crate) fn string_at(table: &[u8], at: usize) -> Option<&[u8]> {
    let rest = table.get(at..)?;
    rest.iter().position(|&b| b == 0).map(|end| &rest[..end])
}

fn programs<E: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<View<'_>, ImageError> {
    let header = E::parse(data).map_err(|e| ImageError::broken("file header", e))?;
    let endian = header.endian().map_err(|e| ImageError::broken("file header", e))?;
    let programs = header.program_headers(endian, data).map_err(|e| ImageError::broken("program headers", e))?;
    let programs = programs.iter().map(|p| Program {
        kind: p.p_type(endian),
        executable: p.p_flags(endian).contains(elf::PF_X),
        writable: p.p_flags(endian).contains(elf::PF_W),
        offset: p.p_offset(endian).into(),
        address: p.p_vaddr(endian).into(),
        file_size: p.p_filesz(endian).into(),
        align: p.p_align(endian).into(),
    });
    Ok(View {
        data,
        endian,
        is_64: header.is_type_64(),
        machine: header.e_machine(endian),
        file_type: header.e_type(endian),
        entry: Svma(header.e_entry(endian).into()),
        programs: programs.collect(),
        sections: Vec::new(),
        problems: Vec::new(),
    })
}

fn sections<E: FileHeader<Endian = Endianness>>(data: &[u8]) -> object::read::Result<Vec<Section<'_>>> {
    let header = E::parse(data)?;
    let endian = header.endian()?;
    let table = header.sections(endian, data)?;
    let section = |s: &E::SectionHeader| Section {
        name: table.section_name(endian, s).unwrap_or_default(),
        kind: s.sh_type(endian),
        executable: s.sh_flags(endian).contains(elf::SHF_EXECINSTR),
        address: s.sh_addr(endian).into(),
        offset: s.sh_offset(endian).into(),
        size: s.sh_size(endian).into(),
        link: s.sh_link(endian),
        entry_size: s.sh_entsize(endian).into(),
    };
    Ok(table.iter().map(section).collect())
}
