//! Names of addresses in a snapshot: from the files on this machine, or from what a recording kept.

use crate::cli::NameArgs;
use crate::source::symbol_options;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use whither_calls::{Names, SymbolNames};
use whither_image::{ElfSummary, IdKind, ImageKind, condensed};
use whither_kernel::proc::open_plain;
use whither_store::calls::{CallModule, CallPlace};
use whither_store::model::Image;
use whither_store::symbols::Symbols as _;
use whither_store::{StoredSymbols, SymbolService};

/// Finds names of running or ended processes by their files.
pub(super) struct FileNames {
    symbols: SymbolService,
    /// A process whose root directory the paths may be below.
    pid: Option<u32>,
}

impl FileNames {
    /// Names by the files of this machine; `pid` may live in another root directory.
    pub(super) fn new(args: &NameArgs, pid: Option<u32>) -> Self {
        Self { symbols: SymbolService::new(symbol_options(args), StoredSymbols::default()), pid }
    }

    /// Names to ask; keeps what it found while it lives.
    pub(super) fn names(&self) -> SymbolNames<'_> {
        SymbolNames::new(&self.symbols, |module| self.image(module))
    }

    /// What could not be read.
    pub(super) fn problems(&self) -> Vec<String> {
        self.symbols.problems()
    }

    fn image(&self, module: &CallModule) -> Option<Image> {
        let seen = PathBuf::from(module.path.trim_end_matches(" (deleted)"));
        let below = self.pid.map(|pid| PathBuf::from(format!("/proc/{pid}/root{}", seen.display())));
        std::iter::once(seen).chain(below).filter(|p| p.is_absolute()).find_map(|path| image(path, module))
    }
}

/// A file of another build would give wrong names with confidence.
fn image(path: PathBuf, module: &CallModule) -> Option<Image> {
    let file = open_plain(&path)?;
    let size = file.metadata().ok()?.len();
    let mut summary = ElfSummary::parse(&condensed(|offset, n| piece(&file, offset, n))?).ok()?;
    if summary.id_kind != IdKind::BuildId {
        summary = ElfSummary::parse(&fs::read(&path).ok()?).ok()?;
    }
    let right = module.id.is_none_or(|id| id == summary.id || summary.id_kind != IdKind::BuildId);
    right.then(|| Image {
        id: summary.id,
        id_kind: summary.id_kind,
        kind: ImageKind::Elf,
        path: path.to_string_lossy().into_owned(),
        segments: summary.segments,
        size,
    })
}

fn piece(file: &File, offset: u64, n: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(n).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// Names kept, then names by files.
pub(super) struct Both<'a>(pub(super) &'a dyn Names, pub(super) &'a dyn Names);

impl Names for Both<'_> {
    fn place(&self, module: &CallModule, address: u64) -> CallPlace {
        let first = self.0.place(module, address);
        if first == CallPlace::default() { self.1.place(module, address) } else { first }
    }
}
