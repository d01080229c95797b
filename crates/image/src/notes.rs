//! ELF notes outside an ELF file: `/sys/kernel/notes` and `/sys/module/*/notes/*` hold raw note
//! records in the machine's own byte order.

use crate::ids::ImageId;
use object::{Endian, Endianness};

const NT_GNU_BUILD_ID: u32 = 3;
/// Sizes of name and descriptor, and the kind.
const HEADER: usize = 12;

/// The GNU build-id among raw notes (little-endian, 4-byte alignment); `None` when there is none
/// or the notes are cut before it.
#[must_use]
pub fn build_id_from_notes(notes: &[u8]) -> Option<ImageId> {
    build_id_from_notes_aligned(notes, 4, Endianness::Little)
}

/// The same for notes of an ELF segment, whose alignment (4 or 8) is told by its header.
pub(crate) fn build_id_from_notes_aligned(notes: &[u8], align: u64, endian: Endianness) -> Option<ImageId> {
    let padded = |size: usize| size.checked_next_multiple_of(if align == 8 { 8 } else { 4 });
    let mut rest = notes;
    loop {
        let name_size = word(rest, 0, endian)? as usize;
        let desc_size = word(rest, 4, endian)? as usize;
        let kind = word(rest, 8, endian)?;
        let name_end = HEADER.checked_add(name_size)?;
        let desc_start = padded(name_end)?;
        let desc_end = desc_start.checked_add(desc_size)?;
        let name = rest.get(HEADER..name_end)?;
        let desc = rest.get(desc_start..desc_end)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && !desc.is_empty() {
            return Some(ImageId::from_build_id(desc));
        }
        rest = rest.get(padded(desc_end)?..)?;
    }
}

fn word(bytes: &[u8], at: usize, endian: Endianness) -> Option<u32> {
    let raw = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(endian.read_u32(raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for n in [name.len() as u32, desc.len() as u32, kind] {
            out.extend(n.to_le_bytes());
        }
        for part in [name, desc] {
            out.extend(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    #[test]
    fn finds_the_build_id_behind_other_notes() {
        let mut notes = note(b"Xen\0", 6, b"linux");
        notes.extend(note(b"GNU\0", 3, &[7; 20]));
        assert_eq!(build_id_from_notes(&notes), Some(ImageId([7; 20])));
        for cut in 0..notes.len() {
            assert_eq!(build_id_from_notes(&notes[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn agrees_with_the_running_kernel() {
        let Ok(notes) = std::fs::read("/sys/kernel/notes") else {
            eprintln!("skipped: /sys/kernel/notes cannot be read");
            return;
        };
        assert!(build_id_from_notes(&notes).is_some());
    }

    #[test]
    fn huge_sizes_end() {
        assert_eq!(build_id_from_notes(&[0xff; 64]), None);
    }
}
