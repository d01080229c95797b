//! The debug files of an image whose own bytes are at hand, for lenses that look at running programs: the file of its
//! build-id, the one its debug link names, the part that files share, split debug information. Found by the same rules
//! as for recordings: what does not bear the image's identity is never used, and nothing is fetched.

use crate::finder::{Files, Finder, Opened};
use crate::model::{Image, ImageKind};
use crate::service::SymbolOptions;
use whither_image::{Bytes, ElfSummary, LineService};

/// What was found.
#[derive(Debug)]
pub struct DebugFiles {
    image: Image,
    finder: Finder,
    files: Files,
}

impl DebugFiles {
    /// Of an image that is mapped from `path`, with these bytes; `None` when they are no ELF file.
    #[must_use]
    pub fn beside(path: &str, bytes: &Bytes) -> Option<Self> {
        let summary = ElfSummary::parse(bytes).ok()?;
        let image = Image {
            id: summary.id,
            id_kind: summary.id_kind,
            kind: ImageKind::Elf,
            path: path.to_owned(),
            segments: Vec::new(),
            size: bytes.len() as u64,
        };
        let finder = Finder { debug_dirs: SymbolOptions::default().debug_dirs, debuginfod: None };
        let files = finder.beside(&image, bytes);
        Some(Self { image, finder, files })
    }

    /// The separate debug file.
    #[must_use]
    pub fn separate(&self) -> Option<&Bytes> {
        self.files.debug.as_ref().map(|file| &file.bytes)
    }

    /// Source lines, from wherever they are.
    #[must_use]
    pub fn lines(&self) -> Option<LineService> {
        let tells = |file: &&Opened| file.summary.has_dwarf;
        let bytes = &[&self.files.debug, &self.files.main].into_iter().flatten().find(tells)?.bytes;
        let split = Box::new(self.finder.split(&self.image, &self.files, &[]));
        LineService::with_split(bytes, self.files.supplementary.as_ref(), split).ok()
    }
}
