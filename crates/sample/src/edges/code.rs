//! Bytes of images for the interpreter of branches: code and read-only data, read page by page from the file that
//! was mapped, when they are asked for. Constraints: plain reads and no mapping (the owner of a file may truncate it
//! at any time); few bytes are kept; a file is closed soon after its last use, so that nobody's unmount waits for us.

use crate::book::{Book, CodeAt};
use crate::images::{constant_parts_of, own_vdso};
use crate::lives::ImageNo;
use rustc_hash::FxHashMap;
use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::os::unix::fs::FileExt;
use whither_image::jump_tables::Data;
use whither_image::{ImageKind, Segment, Svma, constant_parts};

const PAGE: usize = 4096;
/// A page is kept with so many bytes of the next, so that what crosses the border is one piece.
const OVERLAP: usize = 256;
/// Pages whose slots are made together.
const GROUP: usize = 64;
/// More bytes of pages than this: all are dropped.
const MOST_BYTES: usize = 8 << 20;
/// More open files than this: all are closed.
const MOST_FILES: usize = 256;

/// Files in use.
#[derive(Default)]
pub(crate) struct CodeFiles {
    /// `None`: it could not be opened.
    open: FxHashMap<ImageNo, Option<CodeFile>>,
}

impl CodeFiles {
    /// The bytes of the image mapped there.
    pub(crate) fn get(&mut self, book: &Book, at: &CodeAt) -> Option<&CodeFile> {
        let no = at.mapped.image;
        if !self.open.contains_key(&no) {
            let kept: usize = self.open.values().flatten().map(|f| f.kept.get()).sum();
            if self.open.len() >= MOST_FILES || kept > MOST_BYTES {
                self.open.clear();
            }
            let file = CodeFile::open(book, at);
            self.open.insert(no, file);
        }
        let file = self.open.get_mut(&no)?.as_mut()?;
        if file.kept.get() > MOST_BYTES {
            file.drop_pages();
        }
        file.used = true;
        Some(file)
    }

    /// Closes what was not used since the last call. Files that could not be opened may be tried again.
    pub(crate) fn forget(&mut self) {
        self.open.retain(|_, file| file.as_mut().is_some_and(|f| std::mem::take(&mut f.used)));
    }
}

enum Origin {
    File(File),
    Memory(Vec<u8>),
}

/// The constant parts of one image.
pub(crate) struct CodeFile {
    from: Origin,
    parts: Vec<Part>,
    kept: Cell<usize>,
    used: bool,
}

type Page = OnceCell<Box<[u8]>>;

struct Part {
    segment: Segment,
    groups: Vec<OnceCell<Box<[Page]>>>,
}

impl Part {
    fn new(segment: Segment) -> Self {
        let groups = usize::try_from(segment.size).unwrap_or(0).div_ceil(PAGE * GROUP);
        Self { segment, groups: (0..groups).map(|_| OnceCell::new()).collect() }
    }
}

impl CodeFile {
    fn open(book: &Book, at: &CodeAt) -> Option<Self> {
        if book.image(at.mapped.image).kind == ImageKind::Vdso {
            return Self::of_memory(own_vdso()?);
        }
        let file = book.open_image(at)?;
        let size = file.metadata().ok()?.len();
        let parts = constant_parts_of(&file)?;
        // Pages that ran are in memory; reading ahead would fetch others from the disk.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Some(Self::new(Origin::File(file), parts, size))
    }

    fn of_memory(bytes: Vec<u8>) -> Option<Self> {
        let parts = constant_parts(&bytes).ok()?;
        let size = bytes.len() as u64;
        Some(Self::new(Origin::Memory(bytes), parts, size))
    }

    fn new(from: Origin, parts: Vec<Segment>, size: u64) -> Self {
        // Headers may state more than the file has.
        let held = |s: Segment| Segment { size: s.size.min(size.saturating_sub(s.offset)), ..s };
        let parts = parts.into_iter().map(|s| Part::new(held(s))).collect();
        Self { from, parts, kept: Cell::new(0), used: true }
    }

    fn drop_pages(&mut self) {
        for group in self.parts.iter_mut().flat_map(|p| &mut p.groups) {
            group.take();
        }
        self.kept.set(0);
    }

    fn page<'a>(&'a self, part: &'a Part, number: usize) -> Option<&'a [u8]> {
        let make = || (0..GROUP).map(|_| OnceCell::new()).collect();
        let group = part.groups.get(number / GROUP)?.get_or_init(make);
        let page = group[number % GROUP].get_or_init(|| {
            let bytes = self.read(&part.segment, number * PAGE).unwrap_or_default();
            self.kept.set(self.kept.get() + bytes.len());
            bytes
        });
        Some(page)
    }

    /// A page with its overlap, or up to the end of the segment; nothing when the file has shrunk.
    fn read(&self, segment: &Segment, from: usize) -> Option<Box<[u8]>> {
        let left = segment.size.checked_sub(from as u64)?;
        let n = left.min((PAGE + OVERLAP) as u64) as usize;
        let at = segment.offset.checked_add(from as u64)?;
        match &self.from {
            Origin::File(file) => {
                let mut bytes = vec![0; n];
                file.read_exact_at(&mut bytes, at).ok()?;
                Some(bytes.into())
            }
            Origin::Memory(bytes) => {
                let at = usize::try_from(at).ok()?;
                Some(bytes.get(at..at.checked_add(n)?)?.into())
            }
        }
    }
}

impl Data for CodeFile {
    fn bytes(&self, at: Svma, len: usize) -> Option<&[u8]> {
        let part =
            self.parts.iter().find(|p| at.0 >= p.segment.address && at.0 - p.segment.address < p.segment.size)?;
        let within = usize::try_from(at.0 - part.segment.address).ok()?;
        let from = within % PAGE;
        self.page(part, within / PAGE)?.get(from..from.checked_add(len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn of_file(bytes: &[u8], parts: Vec<Segment>) -> (CodeFile, File) {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(bytes).expect("written");
        let writer = file.try_clone().expect("a descriptor");
        let size = file.metadata().expect("a file").len();
        (CodeFile::new(Origin::File(file), parts, size), writer)
    }

    #[test]
    fn every_short_range_is_what_the_file_says() {
        let bytes: Vec<u8> = (0..3 * PAGE + 100).map(|i| (i * 7 + i / 251) as u8).collect();
        let parts = vec![
            Segment { offset: 10, address: 0x1000, size: 2 * PAGE as u64 + 17 },
            // More than the file has.
            Segment { offset: 2 * PAGE as u64, address: 0x9000, size: 1 << 60 },
        ];
        let (file, _) = of_file(&bytes, parts);
        for (address, offset, size) in [(0x1000_u64, 10, 2 * PAGE + 17), (0x9000, 2 * PAGE, PAGE + 100)] {
            for at in 0..size {
                for len in [1, 15, 64] {
                    let expect = (at + len <= size).then(|| &bytes[offset + at..offset + at + len]);
                    assert_eq!(file.bytes(Svma(address + at as u64), len), expect, "{at} {len}");
                }
            }
        }
        assert_eq!(file.bytes(Svma(0xfff), 1), None);
        assert_eq!(file.bytes(Svma(0x1000), usize::MAX), None);
        assert_eq!(file.bytes(Svma(u64::MAX), 1), None);
    }

    #[test]
    fn a_file_that_shrinks_gives_nothing() {
        let (file, writer) = of_file(&[1; 2 * PAGE], vec![Segment { offset: 0, address: 0, size: 2 * PAGE as u64 }]);
        assert!(file.bytes(Svma(0), 4).is_some());
        writer.set_len(100).expect("shrunk");
        assert_eq!(file.bytes(Svma(PAGE as u64), 4), None);
    }

    #[test]
    fn pages_are_dropped_and_read_again() {
        let (mut file, _) = of_file(&[5; 2 * PAGE], vec![Segment { offset: 0, address: 0, size: 2 * PAGE as u64 }]);
        assert!(file.bytes(Svma(3), 4).is_some() && file.kept.get() > PAGE);
        file.drop_pages();
        assert_eq!(file.kept.get(), 0);
        assert_eq!(file.bytes(Svma(3), 2), Some(&[5, 5][..]));
    }
}
