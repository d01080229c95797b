//! A file of which only headers and unwind rules are filled in, each at its place. Collectors unwind programs of
//! hundreds of megabytes whose rules are a few: the rest is never read, and as zeros never touched it takes no memory.
//! Nothing is read here; the caller's closure does.

use crate::elf::{FILE_HEADER, program_headers};
use crate::extents::eh_frame_hdr;
use crate::view::View;
use object::elf;

/// Section headers and their names are shorter; more is damage.
const MOST: u64 = 64 << 20;

/// Bytes from which [`crate::ElfUnwindInfo::from_elf`] reads the same rules as from the whole file of `size` bytes.
/// `read` gives bytes at a file offset, all of them or `None`. `None` when the file is not ELF; parts that cannot be
/// read stay zero, as if they had been cut off.
pub fn rules_only(size: u64, mut read: impl FnMut(u64, u64) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut sparse = Sparse { bytes: vec![0; usize::try_from(size).ok()?] };
    sparse.fill((0, FILE_HEADER), &mut read)?;
    if !sparse.bytes.starts_with(&elf::ELFMAG) {
        return None;
    }
    let programs = program_headers(&sparse.bytes)?;
    sparse.fill((programs.start, programs.size()), &mut read)?;
    if let Some((sections, names)) = section_headers(&sparse.bytes) {
        let _ = sparse.fill(sections, &mut read);
        let _ = names_of(&sparse.bytes, names).and_then(|names| sparse.fill(names, &mut read));
    }
    for part in rules(&sparse.bytes) {
        let _ = sparse.fill(part, &mut read);
    }
    Some(sparse.bytes)
}

/// Offset and length in the file.
type Place = (u64, u64);

struct Sparse {
    bytes: Vec<u8>,
}

impl Sparse {
    fn fill(&mut self, (start, length): Place, read: &mut impl FnMut(u64, u64) -> Option<Vec<u8>>) -> Option<()> {
        let from = usize::try_from(start).ok()?;
        let to = self.bytes.get_mut(from..from.checked_add(usize::try_from(length).ok()?)?)?;
        let bytes = read(start, length)?;
        (bytes.len() == to.len()).then(|| to.copy_from_slice(&bytes))
    }
}

/// The section headers of a 64-bit little-endian file, and where the header of their names lies.
fn section_headers(file: &[u8]) -> Option<(Place, u64)> {
    if file.get(4..6)? != [2, 1] {
        return None;
    }
    let half = |at: usize| Some(u64::from(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?)));
    let (start, entry, count, names) = (word(file, 40)?, half(58)?, half(60)?, half(62)?);
    let size = entry.checked_mul(count).filter(|size| start != 0 && (1..MOST).contains(size))?;
    Some(((start, size), start.checked_add(names * entry)?))
}

fn names_of(file: &[u8], header: u64) -> Option<Place> {
    let at = usize::try_from(header).ok()?;
    let place = (word(file, at.checked_add(24)?)?, word(file, at.checked_add(32)?)?);
    (place.1 < MOST).then_some(place)
}

fn word(file: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(file.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Search tables and rules; without section headers the whole segment that the table is in, which holds the rules too.
fn rules(headers: &[u8]) -> Vec<Place> {
    let Ok(view) = View::parse(headers) else { return Vec::new() };
    let mut places = Vec::new();
    let table = view.programs.iter().find(|p| p.kind == elf::PT_GNU_EH_FRAME);
    places.extend(table.map(|p| (p.offset, p.file_size)));
    match view.section(".eh_frame") {
        Some(section) => places.push((section.offset, section.size)),
        None => places.extend(eh_frame_hdr(&view).and_then(|(address, _)| {
            let holds = |p: &&crate::view::Program| {
                p.kind == elf::PT_LOAD && address >= p.address && address - p.address < p.file_size
            };
            view.programs.iter().find(holds).map(|p| (p.offset, p.file_size))
        })),
    }
    // Rules for debuggers, where there are any.
    places.extend(view.section(".debug_frame").map(|section| (section.offset, section.size)));
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, ElfUnwindInfo};
    use proptest::prelude::*;

    fn reader<'a>(file: &'a [u8], read: &'a mut u64) -> impl FnMut(u64, u64) -> Option<Vec<u8>> + 'a {
        move |offset, size| {
            let start = usize::try_from(offset).ok()?;
            let bytes = file.get(start..start.checked_add(usize::try_from(size).ok()?)?)?;
            *read += size;
            Some(bytes.to_vec())
        }
    }

    fn ours() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("known")).expect("readable")
    }

    /// All that unwinding reads, as text.
    fn shown(file: Vec<u8>) -> String {
        let info = ElfUnwindInfo::from_elf(&Bytes::from(file)).expect("ELF");
        assert!(info.has_rules());
        format!("{info:?}")
    }

    #[test]
    fn the_rules_are_those_of_the_whole_file_and_little_else_is_read() {
        let (whole, mut read) = (ours(), 0);
        let sparse = rules_only(whole.len() as u64, reader(&whole, &mut read)).expect("ELF");
        assert!(shown(sparse) == shown(whole.clone()));
        assert!(read < whole.len() as u64 / 4, "{read} of {} bytes were read", whole.len());
    }

    #[test]
    fn a_file_without_section_headers_has_its_rules_too() {
        let (mut whole, mut read) = (ours(), 0);
        whole[40..48].fill(0);
        whole[58..64].fill(0);
        let sparse = rules_only(whole.len() as u64, reader(&whole, &mut read)).expect("ELF");
        assert!(shown(sparse) == shown(whole));
    }

    proptest! {
        #[test]
        fn damage_gives_no_panic(at in 0usize..1024, value: u8, size in 0u64..1 << 20) {
            let (mut file, mut read) = (ours(), 0);
            file[at] = value;
            if let Some(sparse) = rules_only(size, reader(&file, &mut read)) {
                let _ = ElfUnwindInfo::from_elf(&Bytes::from(sparse));
            }
        }
    }
}
