//! The build-id of files whose only trace of it is a section: Go's linker leaves the GNU note outside all note
//! segments, so that the kernel does not see it, while `file`, `readelf` and debuggers do. Nothing is read here; the
//! caller's closure does.

use crate::elf::FILE_HEADER;
use crate::ids::ImageId;
use crate::notes::build_id_from_notes_aligned;
use object::elf;
use object::{Endian, Endianness};

/// More section headers or longer notes than this are damage.
const MOST: u64 = 1 << 20;

/// The build-id from the note sections of an ELF file, without reading anything else of it. `read` gives bytes at a
/// file offset, all of them or `None`. `None` when there are no such sections, or they cannot be read.
pub fn build_id_from_sections(mut read: impl FnMut(u64, u64) -> Option<Vec<u8>>) -> Option<ImageId> {
    let header = read(0, FILE_HEADER)?;
    if !header.starts_with(&elf::ELFMAG) {
        return None;
    }
    let file = Shape {
        wide: *header.get(4)? == 2,
        endian: if *header.get(5)? == 2 { Endianness::Big } else { Endianness::Little },
    };
    let (start, entry, count) = file.table(&header)?;
    let size = entry.checked_mul(count).filter(|size| *size <= MOST)?;
    let headers = read(start, size)?;
    let notes = headers.chunks_exact(usize::try_from(entry).ok()?).filter_map(|section| file.note(section));
    for (offset, size) in notes {
        let found = read(offset, size).and_then(|bytes| build_id_from_notes_aligned(&bytes, 4, file.endian));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// How words lie in the file.
struct Shape {
    wide: bool,
    endian: Endianness,
}

impl Shape {
    /// Start, entry size and number of the section headers.
    fn table(&self, header: &[u8]) -> Option<(u64, u64, u64)> {
        let start = if self.wide { self.word(header, 40)? } else { self.word(header, 32)? };
        let half = |at: usize| Some(u64::from(self.endian.read_u16(header.get(at..at + 2)?.try_into().ok()?)));
        let (entry, count) = if self.wide { (half(58)?, half(60)?) } else { (half(46)?, half(48)?) };
        (start != 0 && entry >= 40).then_some((start, entry, count))
    }

    /// Offset and size of a section that holds notes.
    fn note(&self, section: &[u8]) -> Option<(u64, u64)> {
        if self.endian.read_u32(section.get(4..8)?.try_into().ok()?) != elf::SHT_NOTE.0 {
            return None;
        }
        let (offset, size) = if self.wide { (24, 32) } else { (16, 20) };
        let (offset, size) = (self.word(section, offset)?, self.word(section, size)?);
        (size <= MOST).then_some((offset, size))
    }

    /// A word of the file's size.
    fn word(&self, bytes: &[u8], at: usize) -> Option<u64> {
        if self.wide {
            Some(self.endian.read_u64(bytes.get(at..at + 8)?.try_into().ok()?))
        } else {
            Some(u64::from(self.endian.read_u32(bytes.get(at..at + 4)?.try_into().ok()?)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::{ElfSummary, PrefixId, build_id_from_prefix};
    use crate::ids::IdKind;

    fn reader(file: &[u8]) -> impl FnMut(u64, u64) -> Option<Vec<u8>> {
        move |offset, size| {
            let start = usize::try_from(offset).ok()?;
            file.get(start..start.checked_add(usize::try_from(size).ok()?)?).map(<[u8]>::to_vec)
        }
    }

    /// Our own test binary without note segments, as Go's linker leaves its programs.
    fn without_note_segments() -> Vec<u8> {
        let mut file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let place = crate::elf::program_headers(&file).unwrap();
        let start = usize::try_from(place.start).unwrap();
        let end = start + usize::try_from(place.size()).unwrap();
        for header in file[start..end].chunks_exact_mut(56) {
            if header[..4] == elf::PT_NOTE.0.to_le_bytes() {
                header[..4].fill(0);
            }
        }
        file
    }

    #[test]
    fn sections_tell_the_build_id_that_no_segment_holds() {
        let file = without_note_segments();
        assert_eq!(build_id_from_prefix(&file).unwrap(), PrefixId::Absent, "the kernel sees none");
        let whole = ElfSummary::parse(&file).unwrap();
        assert_eq!(whole.id_kind, IdKind::BuildId);
        let mut bytes = 0;
        let mut inner = reader(&file);
        let found = build_id_from_sections(|offset, size| {
            bytes += size;
            inner(offset, size)
        });
        assert_eq!(found, Some(whole.id), "one identity, however the file is read");
        assert!(bytes < 64 << 10, "{bytes} bytes read");
    }

    #[test]
    fn broken_files_end() {
        let file = without_note_segments();
        for cut in [0, 3, 63, 64, 1000] {
            assert_eq!(build_id_from_sections(reader(&file[..cut])), None, "cut at {cut}");
        }
        let mut wild = file;
        wild[58..62].fill(0xff);
        assert_eq!(build_id_from_sections(reader(&wild)), None);
        wild[40..48].fill(0xff);
        assert_eq!(build_id_from_sections(reader(&wild)), None);
    }
}
