//! The few bytes of a file that tell its identity, put together: file header, program headers, notes.
//! Post-linkers put the program headers tens of megabytes behind the start, and a collector must not
//! hold what lies between. Nothing is read here; the caller's closure does.

use crate::elf::{FILE_HEADER, program_headers};
use crate::view::View;
use object::elf;

/// More program headers or longer notes than this are damage.
const MOST: u64 = 1 << 20;

/// An ELF file with the headers and notes of another one and nothing else: it has the same build-id
/// and the same segments, whose bytes are not in it. `read` gives bytes at a file offset, all of them
/// or `None`. `None` when the file is not ELF or its headers cannot be read.
pub fn condensed(mut read: impl FnMut(u64, u64) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut out = read(0, FILE_HEADER)?;
    if !out.starts_with(&elf::ELFMAG) {
        return None;
    }
    let place = program_headers(&out).filter(|p| p.size() <= MOST)?;
    out.extend(read(place.start, place.size())?);
    point_at_headers(&mut out);
    for note in notes(&out)? {
        let at = out.len() as u64;
        // Notes that cannot be read are absent, as in a file cut short.
        if let Some(bytes) = (note.size <= MOST).then(|| read(note.offset, note.size)).flatten() {
            out.extend(bytes);
            point_at(&mut out, note.header, at);
        }
    }
    Some(out)
}

/// A note segment and where its program header lies in the condensed file.
struct Note {
    header: usize,
    offset: u64,
    size: u64,
}

fn notes(condensed: &[u8]) -> Option<Vec<Note>> {
    let view = View::parse_programs(condensed).ok()?;
    let entry = if view.is_64 { 56 } else { 32 };
    let all = view.programs.iter().enumerate().filter(|(_, p)| p.kind == elf::PT_NOTE);
    let note =
        |(i, p): (usize, &crate::view::Program)| Note { header: 64 + i * entry, offset: p.offset, size: p.file_size };
    Some(all.map(note).collect())
}

/// The program headers follow the 64 bytes of the file header; there are no sections.
fn point_at_headers(file: &mut [u8]) {
    let is_64 = file[4] == 2;
    put(file, if is_64 { 32 } else { 28 }, FILE_HEADER);
    put(file, if is_64 { 40 } else { 32 }, 0);
    // Entry size, number and index of names of the section headers.
    let sections = if is_64 { 58..64 } else { 46..52 };
    file[sections].fill(0);
}

/// Sets the file offset in the program header that begins at `header`.
fn point_at(file: &mut [u8], header: usize, offset: u64) {
    let field = header + if file[4] == 2 { 8 } else { 4 };
    put(file, field, offset);
}

/// A word of the file's size and byte order.
fn put(file: &mut [u8], at: usize, value: u64) {
    let little = file[5] == 1;
    let width = if file[4] == 2 { 8 } else { 4 };
    for i in 0..width {
        let shift = 8 * if little { i } else { width - 1 - i };
        file[at + i] = (value >> shift) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::ElfSummary;
    use crate::ids::{IdKind, ImageId};
    use proptest::prelude::*;

    fn reader(file: &[u8]) -> impl FnMut(u64, u64) -> Option<Vec<u8>> {
        move |offset, size| {
            let start = usize::try_from(offset).ok()?;
            file.get(start..start.checked_add(usize::try_from(size).ok()?)?).map(<[u8]>::to_vec)
        }
    }

    /// Our own test binary with its program headers and notes moved behind its end.
    fn moved_headers() -> (Vec<u8>, Vec<u8>) {
        let plain = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut moved = plain.clone();
        let place = program_headers(&plain).unwrap();
        let (from, size) = (usize::try_from(place.start).unwrap(), usize::try_from(place.size()).unwrap());
        moved.resize(plain.len() + 100_000, 0);
        let at = moved.len() as u64;
        moved.extend_from_slice(&plain[from..from + size]);
        moved[from..from + size].fill(0xee);
        put(&mut moved, 32, at);
        (plain, moved)
    }

    #[test]
    fn headers_far_behind_the_start_tell_the_same() {
        let (plain, moved) = moved_headers();
        let truth = ElfSummary::parse(&plain).unwrap();
        for file in [&plain, &moved] {
            let mut read = 0;
            let mut inner = reader(file);
            let small = condensed(|offset, size| {
                read += size;
                inner(offset, size)
            });
            let found = ElfSummary::parse(&small.unwrap()).unwrap();
            assert_eq!((found.id, found.id_kind, &found.segments), (truth.id, truth.id_kind, &truth.segments));
            assert_eq!(found.id_kind, IdKind::BuildId);
            assert!(read < 8192, "{read} bytes were read");
        }
    }

    #[test]
    fn both_word_sizes_and_byte_orders() {
        for (class, order) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let file = tiny(class, order);
            let small = condensed(reader(&file)).unwrap();
            let summary = ElfSummary::parse(&small).unwrap();
            assert_eq!(
                (summary.id, summary.id_kind),
                (ImageId([9; 20]), IdKind::BuildId),
                "class {class} order {order}"
            );
        }
    }

    /// A header at the start, one program header at 4096, a note at 8192.
    fn tiny(class: u8, order: u8) -> Vec<u8> {
        let mut file = vec![0; 8192];
        file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order, 1]);
        let half = |file: &mut [u8], at: usize, v: u16| {
            let bytes = if order == 1 { v.to_le_bytes() } else { v.to_be_bytes() };
            file[at..at + 2].copy_from_slice(&bytes);
        };
        let word = |v: u32| if order == 1 { v.to_le_bytes() } else { v.to_be_bytes() };
        let wide = class == 2;
        half(&mut file, 16, 3);
        half(&mut file, 18, 62);
        put(&mut file, if wide { 32 } else { 28 }, 4096);
        half(&mut file, if wide { 52 } else { 40 }, if wide { 64 } else { 52 });
        half(&mut file, if wide { 54 } else { 42 }, if wide { 56 } else { 32 });
        half(&mut file, if wide { 56 } else { 44 }, 1);
        file[4096..4100].copy_from_slice(&word(4));
        put(&mut file, 4096 + if wide { 8 } else { 4 }, 8192);
        put(&mut file, 4096 + if wide { 32 } else { 16 }, 36);
        for v in [4, 20, 3] {
            file.extend(word(v));
        }
        file.extend(b"GNU\0");
        file.extend([9; 20]);
        file
    }

    proptest! {
        #[test]
        fn damage_gives_something_or_nothing(at in 0_usize..8228, byte: u8, class in 1_u8..3, order in 1_u8..3) {
            let mut file = tiny(class, order);
            file[at] = byte;
            if let Some(small) = condensed(reader(&file)) {
                let _ = ElfSummary::parse(&small);
            }
        }
    }
}
