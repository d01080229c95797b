//! What a recording keeps so that it opens elsewhere: names of the kernel, of BPF programs and of code
//! made at run time, which exist nowhere but on this machine now, and names, code and lines of
//! sampled functions.

use crate::SessionError;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::path::Path;
use whither_image::perfmap::parse_perf_map;
use whither_image::{Function, FunctionTable, ImageKind, function_table};
use whither_sample::Book;
use whither_sample::images::own_vdso;
use whither_store::model::{Image, Profile};
use whither_store::{
    EpochWriter, GatherLimits, Selection, StoredFunction, StoredSymbols, SymbolOptions, SymbolService, load,
};

/// Code and lines are kept of the functions that hold this share of the samples: the long tail would
/// make a recording of ten seconds weigh as much as a trace.
pub(crate) const KEPT: GatherLimits = GatherLimits { share: 0.95, bytes: 4 << 20 };

/// Gathers and stores the symbols of everything sampled in the epoch so far.
///
/// # Errors
/// The store's.
pub(crate) fn keep(writer: &mut EpochWriter, book: &Book, code: bool) -> Result<(), whither_store::StoreError> {
    let loaded = load(&[writer.path().to_path_buf()], &Selection::default())?;
    let service = service(book, &loaded.profile);
    let limits = if code { KEPT } else { GatherLimits { share: 0.0, bytes: 0 } };
    let mut stored = service.gather(&loaded.profile, limits);
    stored.merge(loaded.stored);
    writer.put_symbols(&stored)
}

/// Stores names, code and lines of the functions sampled in an epoch or recording, as far as the files
/// are here. What is stored already stays.
///
/// # Errors
/// The store's.
pub fn gather(epoch: &Path) -> Result<(), SessionError> {
    let loaded = load(&[epoch.to_path_buf()], &Selection::default())?;
    let options = SymbolOptions { cache_dir: None, ..SymbolOptions::default() };
    let mut stored = SymbolService::new(options, loaded.stored.clone()).gather(&loaded.profile, KEPT);
    stored.merge(loaded.stored);
    Ok(whither_store::put_symbols(epoch, &stored)?)
}

/// A symbol service that also knows what only this machine knows now.
pub(crate) fn service(book: &Book, profile: &Profile) -> SymbolService {
    let mut known = StoredSymbols::default();
    let jits = book.jit_images();
    for image in &profile.images {
        let table = match image.kind {
            ImageKind::Jit => jits.iter().find(|(id, _)| *id == image.id).and_then(|(_, pid)| perf_map(*pid)),
            ImageKind::Vdso => own_vdso().map(|bytes| function_table(&bytes, None).0),
            ImageKind::Elf => book.held_bytes(&image.id).map(|bytes| function_table(&bytes, None).0),
            ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf => kernel_table(book, image),
            _ => None,
        };
        known.funcs.extend(
            table.iter().flat_map(|t| t.functions()).map(|f| StoredFunction { image: image.id, function: f.clone() }),
        );
    }
    // No file cache here: it belongs to the user who reads, not to a recorder that may run as root.
    let options = SymbolOptions { cache_dir: None, ..SymbolOptions::default() };
    SymbolService::new(options, known)
}

/// Of what only this machine knows now, the functions that a part has samples in.
pub(crate) fn local_names(book: &Book, part: &Profile) -> StoredSymbols {
    let mut names = StoredSymbols::default();
    // Samples are sorted by image and, within a process, by position: equal functions come in runs.
    for run in part.samples.chunk_by(|a, b| a.image == b.image) {
        let image = part.image(run[0].image);
        let Some(table) = local_table(book, image) else { continue };
        let starts: BTreeSet<_> = run.iter().filter_map(|s| table.find(s.offset)).map(|f| f.start).collect();
        names.funcs.extend(starts.iter().filter_map(|&at| table.find(at)).map(|f| stored(image, f)));
    }
    names
}

fn stored(image: &Image, function: &Function) -> StoredFunction {
    StoredFunction { image: image.id, function: function.clone() }
}

/// Functions of an image that cannot be read from a file later or elsewhere.
fn local_table(book: &Book, image: &Image) -> Option<FunctionTable> {
    match image.kind {
        ImageKind::Jit => {
            let jits = book.jit_images();
            jits.iter().find(|(id, _)| *id == image.id).and_then(|(_, pid)| perf_map(*pid))
        }
        ImageKind::Vdso => own_vdso().map(|bytes| function_table(&bytes, None).0),
        ImageKind::Elf => book.held_bytes(&image.id).map(|bytes| function_table(&bytes, None).0),
        ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf => kernel_table(book, image),
        ImageKind::Anon | ImageKind::Unknown => None,
    }
}

fn perf_map(pid: u32) -> Option<FunctionTable> {
    Some(parse_perf_map(&whither_sample::jit::read_perf_map(pid)?).0)
}

fn kernel_table(book: &Book, image: &Image) -> Option<FunctionTable> {
    let no = book.image_no(image)?;
    book.kernel().functions(no, &image.path)
}

/// Bytes of a directory and all below it.
pub(crate) fn bytes_below(dir: &Path) -> u64 {
    let mut sum = 0;
    let mut todo = vec![dir.to_path_buf()];
    let mut seen: FxHashSet<std::path::PathBuf> = FxHashSet::default();
    while let Some(dir) = todo.pop() {
        if !seen.insert(dir.clone()) {
            continue;
        }
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(m) if m.is_dir() => todo.push(entry.path()),
                Ok(m) => sum += m.len(),
                Err(_) => {}
            }
        }
    }
    sum
}
