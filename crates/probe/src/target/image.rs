//! The agent's image mapped by hand: its segments, and the relocations a loader would have applied. Pure.

use crate::ProbeError;
use object::Endianness;
use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader, Rela, SectionHeader, Sym};

const PAGE: u64 = 4096;

/// A range of the image with its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Offset from the image's start, page-aligned.
    pub(super) start: u64,
    /// Whole pages.
    pub(super) bytes: u64,
    /// `PROT_*`.
    pub(super) rights: i32,
}

/// A shared object to be mapped by hand.
pub(super) struct Image<'a> {
    file: ElfFile64<'a, Endianness>,
    data: &'a [u8],
    bytes: u64,
}

fn broken(why: impl ToString) -> ProbeError {
    ProbeError::Agent { why: why.to_string() }
}

impl<'a> Image<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Result<Self, ProbeError> {
        let file = ElfFile64::<Endianness>::parse(data).map_err(broken)?;
        let mut image = Self { file, data, bytes: 0 };
        let ends = image.loads().map(|p| p.p_vaddr(Endianness::Little).saturating_add(p.p_memsz(Endianness::Little)));
        image.bytes = ends.max().unwrap_or(0).next_multiple_of(PAGE);
        if image.bytes == 0 || image.bytes > 64 << 20 {
            return Err(broken(format!("{} bytes long", image.bytes)));
        }
        Ok(image)
    }

    fn loads(&self) -> impl Iterator<Item = &'a elf::ProgramHeader64<Endianness>> + use<'a> {
        let all: &'a [elf::ProgramHeader64<Endianness>] = self.file.elf_program_headers();
        all.iter().filter(|p| p.p_type(Endianness::Little) == elf::PT_LOAD)
    }

    /// Bytes in memory, whole pages.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Rights of its pages.
    pub(super) fn parts(&self) -> Vec<Part> {
        let e = Endianness::Little;
        self.loads()
            .map(|p| {
                let start = p.p_vaddr(e) & !(PAGE - 1);
                let end = (p.p_vaddr(e) + p.p_memsz(e)).next_multiple_of(PAGE);
                let flags = p.p_flags(e);
                let right = |flag: elf::ProgramFlags, right: i32| if flags.contains(flag) { right } else { 0 };
                let rights = right(elf::PF_R, libc::PROT_READ)
                    | right(elf::PF_W, libc::PROT_WRITE)
                    | right(elf::PF_X, libc::PROT_EXEC);
                Part { start, bytes: end - start, rights }
            })
            .collect()
    }

    /// The image as it stands in memory at `base`.
    pub(super) fn relocated(&self, base: u64) -> Result<Vec<u8>, ProbeError> {
        let e = Endianness::Little;
        let mut memory = vec![0_u8; self.bytes as usize];
        for p in self.loads() {
            let bytes = p.data(e, self.data).map_err(|()| broken("a segment lies outside of the file"))?;
            let at = p.p_vaddr(e) as usize;
            let room = at.checked_add(bytes.len()).and_then(|end| memory.get_mut(at..end));
            room.ok_or_else(|| broken("a segment does not fit"))?.copy_from_slice(bytes);
        }
        self.relocate(&mut memory, base)?;
        Ok(memory)
    }

    fn relocate(&self, memory: &mut [u8], base: u64) -> Result<(), ProbeError> {
        let e = Endianness::Little;
        let sections = self.file.elf_section_table();
        let symbols = sections.symbols(e, self.data, elf::SHT_DYNSYM).map_err(broken)?;
        for section in sections.iter() {
            let Some((relocations, _)) = section.rela(e, self.data).map_err(broken)? else { continue };
            for r in relocations {
                let addend = r.r_addend(e) as u64;
                let symbol = || {
                    let index = object::SymbolIndex(r.r_sym(e, false) as usize);
                    symbols.symbol(index).map(|s| s.st_value(e)).map_err(broken)
                };
                let value = match r.r_type(e, false) {
                    elf::R_X86_64_RELATIVE => base.wrapping_add(addend),
                    elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => {
                        base.wrapping_add(symbol()?).wrapping_add(addend)
                    }
                    // Thread-local storage is the loader's: not used when mapped by hand.
                    elf::R_X86_64_TPOFF64 | elf::R_X86_64_NONE => 0,
                    other => return Err(broken(format!("relocation type {other:?}"))),
                };
                let at = r.r_offset(e) as usize;
                let word = at.checked_add(8).and_then(|end| memory.get_mut(at..end));
                word.ok_or_else(|| broken("a relocation lies outside of it"))?.copy_from_slice(&value.to_le_bytes());
            }
        }
        Ok(())
    }
}
