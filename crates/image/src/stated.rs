//! Bytes of an ELF file at the addresses it states: what the loader would map there, before relocation.

use crate::bytes::Bytes;
use crate::error::ImageError;
use crate::ids::Svma;
use crate::jump_tables::Data;
use crate::view::View;
use object::elf;
use std::ops::Range;

/// The loaded parts of a file, addressed as stated. Cloning copies pointers.
#[derive(Clone, Debug)]
pub struct StatedBytes {
    file: Bytes,
    loads: Vec<Load>,
}

#[derive(Clone, Debug)]
struct Load {
    addresses: Range<u64>,
    offset: usize,
    executable: bool,
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
                Some(Load { addresses, offset: usize::try_from(p.offset).ok()?, executable: p.executable })
            })
            .collect();
        loads.sort_by_key(|l| l.addresses.start);
        Ok(Self { file: file.clone(), loads })
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
