//! Bytes of an ELF file at the addresses it states: what the loader would map there, before relocation.

use crate::bytes::Bytes;
use crate::error::ImageError;
use crate::ids::{Segment, Svma};
use crate::jump_tables::Data;
use crate::unwind_rows::UnwindRows;
use crate::view::{Program, View};
use object::elf;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The loaded parts of a file, addressed as stated. Cloning copies pointers.
#[derive(Clone, Debug)]
pub struct StatedBytes {
    file: Bytes,
    loads: Vec<Load>,
    /// Worked out once for all who look at the file.
    rows: Arc<OnceLock<Option<UnwindRows>>>,
}

/// The loaded parts that a program cannot change: code and read-only data, where memory is what the file says.
/// Headers are enough for it (see [`crate::condensed()`]); nothing for a file that is not x86-64.
///
/// # Errors
/// When the program headers cannot be read.
pub fn constant_parts(headers: &[u8]) -> Result<Vec<Segment>, ImageError> {
    let view = View::parse_programs(headers)?;
    if view.machine != elf::EM_X86_64 {
        return Ok(Vec::new());
    }
    let constant = |p: &&Program| p.kind == elf::PT_LOAD && !p.writable && p.file_size > 0;
    let segment = |p: &Program| Segment { offset: p.offset, address: p.address, size: p.file_size };
    Ok(view.programs.iter().filter(constant).map(segment).collect())
}

#[derive(Clone, Debug)]
struct Load {
    addresses: Range<u64>,
    offset: usize,
    executable: bool,
    writable: bool,
}

impl StatedBytes {
    /// The loadable segments of an ELF file, cut to what the file holds.
    ///
    /// # Errors
    /// When the program headers cannot be read.
    pub fn from_elf(file: &Bytes) -> Result<Self, ImageError> {
        let view = View::parse_programs(file)?;
        let mut loads: Vec<Load> = view
            .programs
            .iter()
            .filter(|p| p.kind == elf::PT_LOAD)
            .filter_map(|p| {
                let held = (file.len() as u64).saturating_sub(p.offset).min(p.file_size);
                let addresses = p.address..p.address.checked_add(held)?;
                let offset = usize::try_from(p.offset).ok()?;
                Some(Load { addresses, offset, executable: p.executable, writable: p.writable })
            })
            .collect();
        loads.sort_by_key(|l| l.addresses.start);
        Ok(Self { file: file.clone(), loads, rows: Arc::default() })
    }

    /// Pieces of code known by address, where there is no file. Overlapping ones are cut.
    #[must_use]
    pub fn from_pieces<'a>(pieces: impl IntoIterator<Item = (Svma, &'a [u8])>) -> Self {
        let mut sorted: Vec<(Svma, &[u8])> = pieces.into_iter().collect();
        sorted.sort_by_key(|p| p.0);
        let (mut bytes, mut loads, mut reached) = (Vec::new(), Vec::new(), 0);
        for (at, piece) in sorted {
            let known = usize::try_from(u64::saturating_sub(reached, at.0)).unwrap_or(usize::MAX);
            let Some(fresh) = piece.get(known..).filter(|f| !f.is_empty()) else { continue };
            let start = at.0 + known as u64;
            let Some(end) = start.checked_add(fresh.len() as u64) else { continue };
            loads.push(Load { addresses: start..end, offset: bytes.len(), executable: true, writable: false });
            bytes.extend_from_slice(fresh);
            reached = end;
        }
        Self { file: Bytes::from(bytes), loads, rows: Arc::default() }
    }

    /// The same without what relocation or the program may change: text and read-only data stay.
    #[must_use]
    pub fn unchanging(mut self) -> Self {
        self.loads.retain(|l| !l.writable);
        self
    }

    /// Bytes of a range inside one segment.
    #[must_use]
    pub fn get(&self, range: Range<u64>) -> Option<&[u8]> {
        let load = self.loads.iter().find(|l| l.addresses.contains(&range.start))?;
        if range.end > load.addresses.end {
            return None;
        }
        let from = load.offset + usize::try_from(range.start - load.addresses.start).ok()?;
        self.file.get(from..from + usize::try_from(range.end.checked_sub(range.start)?).ok()?)
    }

    /// Unwind rules of the file the bytes are of; `None` for pieces of code.
    #[must_use]
    pub fn unwind_rows(&self) -> Option<&UnwindRows> {
        self.rows.get_or_init(|| UnwindRows::from_elf(&self.file).ok()).as_ref()
    }

    /// All bytes, each segment with the address of its first.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.loads.iter().filter_map(|l| Some((l.addresses.start, self.get(l.addresses.clone())?)))
    }

    /// Whether an address lies in executable bytes.
    #[must_use]
    pub fn is_code(&self, at: Svma) -> bool {
        self.loads.iter().any(|l| l.executable && l.addresses.contains(&at.0))
    }
}

impl Data for StatedBytes {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        self.get(at.0..at.0.checked_add(len as u64)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::read::elf::{FileHeader, ProgramHeader};

    #[test]
    fn constant_parts_are_the_loads_without_the_write_flag() {
        let bytes = std::fs::read(std::env::current_exe().expect("a running test")).expect("readable");
        let header = elf::FileHeader64::<object::LittleEndian>::parse(&*bytes).expect("ELF");
        let all = header.program_headers(object::LittleEndian, &*bytes).expect("program headers");
        let loads = || all.iter().filter(|p| p.p_type(object::LittleEndian) == elf::PT_LOAD);
        let fixed = |p: &&elf::ProgramHeader64<_>| !p.p_flags(object::LittleEndian).contains(elf::PF_W);
        let expect: Vec<u64> = loads().filter(fixed).map(|p| p.p_offset(object::LittleEndian)).collect();
        let head = crate::condensed(|at, n| Some(bytes.get(at as usize..(at + n) as usize)?.to_vec()));
        let found = constant_parts(&head.expect("condensed")).expect("readable");
        assert_eq!(found.iter().map(|s| s.offset).collect::<Vec<_>>(), expect);
        assert!(found.len() < loads().count(), "a program has writable data");
        assert!(constant_parts(b"no ELF").is_err());
    }
}
