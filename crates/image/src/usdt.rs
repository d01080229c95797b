//! Marks that source code leaves for tracers: SystemTap notes (`.note.stapsdt`), each a place in the code
//! with a provider and a name. Arguments are not read; whoever counts visits does not need them.

use crate::ids::Svma;
use crate::view::View;
use object::Endian;

/// Kind of the only note that is defined.
const STAPSDT: u32 = 3;
/// Sizes of name and descriptor, and the kind.
const HEADER: usize = 12;

/// A mark in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where it stands, as stated in the file.
    pub at: Svma,
    /// Stated address of the counter that must not be 0 for the mark to be reached; 0 without one.
    pub semaphore: Svma,
    /// Who defines it.
    pub provider: String,
    /// Its name.
    pub name: String,
}

/// The marks of an image, in file order; empty for files without, and up to the first broken note.
#[must_use]
pub fn marks(file: &[u8]) -> Vec<Mark> {
    let Ok(view) = View::parse(file) else { return Vec::new() };
    let Some(notes) = view.section(".note.stapsdt").and_then(|s| view.bytes(s)) else { return Vec::new() };
    // A library that was prelinked has moved by as much as this empty section has.
    let base = view.section(".stapsdt.base").map(|s| s.address);
    let mut found = Vec::new();
    let mut rest = notes;
    while let Some((mark, next)) = note(&view, rest, base) {
        found.extend(mark);
        rest = next;
    }
    found
}

/// The first note, if it is a mark, and what is behind it.
fn note<'a>(view: &View<'_>, notes: &'a [u8], base: Option<u64>) -> Option<(Option<Mark>, &'a [u8])> {
    let word = |at: usize| Some(view.endian.read_u32(notes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let (name_size, desc_size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
    let name_end = HEADER.checked_add(name_size)?;
    let start = name_end.checked_next_multiple_of(4)?;
    let end = start.checked_add(desc_size)?;
    let name = notes.get(HEADER..name_end)?;
    let desc = notes.get(start..end)?;
    // The last note need not be padded.
    let next = notes.get(end.checked_next_multiple_of(4)?..).unwrap_or_default();
    let mark = (kind == STAPSDT && name == b"stapsdt\0").then(|| mark(view, desc, base)).flatten();
    Some((mark, next))
}

fn mark(view: &View<'_>, desc: &[u8], base: Option<u64>) -> Option<Mark> {
    let size = if view.is_64 { 8 } else { 4 };
    let moved = base.map_or(0, |base| base.wrapping_sub(view.word(desc, 1).unwrap_or(base)));
    let semaphore = view.word(desc, 2)?;
    let mut texts = desc.get(3 * size..)?.split(|b| *b == 0).map(|t| String::from_utf8_lossy(t).into_owned());
    Some(Mark {
        at: Svma(view.word(desc, 0)?.wrapping_add(moved)),
        semaphore: Svma(if semaphore == 0 { 0 } else { semaphore.wrapping_add(moved) }),
        provider: texts.next()?,
        name: texts.next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the C library's own marks are listed by `readelf -n`.
    #[test]
    fn marks_of_the_c_library() {
        let Ok(file) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
            return eprintln!("SKIP: no C library in Debian's place");
        };
        let found = marks(&file);
        // Some builds of glibc leave no marks.
        match found.iter().find(|m| m.name == "setjmp") {
            Some(setjmp) => assert_eq!((setjmp.provider.as_str(), setjmp.semaphore), ("libc", Svma(0))),
            None => eprintln!("SKIP: this C library has no marks"),
        }
        let code = crate::StatedBytes::from_elf(&crate::Bytes::from(file.clone())).expect("an ELF file");
        assert!(found.iter().all(|m| code.is_code(m.at)), "a mark outside the code");
        // Whatever is cut or damaged gives fewer marks, not a panic.
        for cut in (0..file.len()).step_by(97_003) {
            assert!(marks(&file[..cut]).len() <= found.len());
        }
    }
}
