//! What a recording keeps so that it opens elsewhere: names of the kernel, of BPF programs and of code
//! made at run time, which exist nowhere but on this machine now, and names, code and lines of
//! sampled functions.

use crate::SessionError;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use whither_image::perfmap::parse_perf_map;
use whither_image::{Function, FunctionTable, ImageKind, ImageOffset, function_table};
use whither_kernel::kcore::Kcore;
use whither_sample::Book;
use whither_sample::images::own_vdso;
use whither_store::model::{Image, Profile};
use whither_store::{
    EpochWriter, GatherLimits, Selection, StoredCode, StoredFunction, StoredSymbols, SymbolOptions, SymbolService, load,
};

/// Code and lines are kept of the functions that hold this share of the samples: the long tail would
/// make a recording of ten seconds weigh as much as a trace.
pub(crate) const KEPT: GatherLimits = GatherLimits { share: 0.95, bytes: 4 << 20 };

/// A longer function of the kernel is a table of names gone wrong.
const LONGEST_KERNEL_FUNCTION: usize = 256 << 10;

/// Gathers and stores the symbols of everything sampled in the epoch so far.
///
/// # Errors
/// The store's.
pub(crate) fn keep(writer: &mut EpochWriter, book: &Book, code: bool) -> Result<(), whither_store::StoreError> {
    let loaded = load(&[writer.path().to_path_buf()], &Selection::default())?;
    let service = service(book, &loaded.profile, code);
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

/// A symbol service that also knows what only this machine knows now; with `code`, the kernel's code too.
pub(crate) fn service(book: &Book, profile: &Profile, code: bool) -> SymbolService {
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
    // Root only, and not on every machine: then kernel functions are listed by offset.
    if let Some(kernel) = code.then(Kcore::open).and_then(Result::ok) {
        known.code = kernel_code(
            profile,
            &|image| Some((book.kernel().base(book.image_no(image)?)?, kernel_table(book, image)?)),
            &kernel,
        );
    }
    // No file cache here: it belongs to the user who reads, not to a recorder that may run as root.
    let options = SymbolOptions { cache_dir: None, ..SymbolOptions::default() };
    SymbolService::new(options, known)
}

/// Code of the kernel's sampled functions, those with most samples first. `place` tells where an image of the
/// kernel lies in memory, and its functions.
fn kernel_code(
    profile: &Profile,
    place: &dyn Fn(&Image) -> Option<(u64, FunctionTable)>,
    kernel: &Kcore,
) -> Vec<StoredCode> {
    let mut found: Vec<(u64, u64, StoredCode)> = Vec::new();
    for run in profile.samples.chunk_by(|a, b| a.image == b.image) {
        let image = profile.image(run[0].image);
        if !matches!(image.kind, ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf) {
            continue;
        }
        let Some((base, table)) = place(image) else { continue };
        let mut functions: BTreeMap<ImageOffset, (u64, u64)> = BTreeMap::new();
        for sample in run {
            if let Some(f) = table.find(sample.offset) {
                functions.entry(f.start).or_insert((f.size, 0)).1 += u64::from(sample.count);
            }
        }
        let empty = |start| StoredCode { image: image.id, start, bytes: Vec::new() };
        found.extend(functions.into_iter().map(|(start, (size, samples))| {
            let mut code = empty(start);
            code.bytes = usize::try_from(size)
                .ok()
                .filter(|size| *size <= LONGEST_KERNEL_FUNCTION)
                .and_then(|size| kernel.bytes(base.checked_add(start.0)?, size))
                .unwrap_or_default();
            (samples, base, code)
        }));
    }
    found.retain(|(_, _, code)| !code.bytes.is_empty());
    found.sort_by_key(|(samples, base, code)| (std::cmp::Reverse(*samples), *base, code.start));
    let mut room = KEPT.bytes;
    let fits = |(_, _, code): &(u64, u64, StoredCode)| {
        room = room.saturating_sub(code.bytes.len());
        room > 0
    };
    found.into_iter().take_while(fits).map(|(_, _, code)| code).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use whither_image::{IdKind, ImageId, NameSource};
    use whither_store::model::{EventIx, ImageIx, ProcessIx, Sample};

    /// A core file with one segment.
    fn core(address: u64, bytes: &[u8]) -> Kcore {
        let mut file = vec![0; 120];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        (file[32], file[54], file[56], file[64]) = (64, 56, 1, 1);
        file[72..80].copy_from_slice(&120_u64.to_le_bytes());
        file[80..88].copy_from_slice(&address.to_le_bytes());
        file[96..104].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        file.extend_from_slice(bytes);
        let mut on_disk = tempfile::tempfile().expect("a file");
        on_disk.write_all(&file).expect("written");
        Kcore::of(on_disk).expect("a core file")
    }

    #[test]
    fn sampled_functions_of_the_kernel_keep_their_code() {
        let image = |kind, path: &str| Image {
            id: ImageId([path.len() as u8; 20]),
            id_kind: IdKind::Synthetic,
            kind,
            path: path.to_owned(),
            segments: Vec::new(),
            size: 0,
        };
        let sample = |image, offset, count| Sample {
            image: ImageIx(image),
            event: EventIx(0),
            process: ProcessIx(0),
            tid: 0,
            slice: 0,
            offset: ImageOffset(offset),
            period: 1,
            count,
        };
        let profile = Profile {
            images: vec![image(ImageKind::Kernel, "[kernel]"), image(ImageKind::Elf, "/bin/app")],
            // The second and third function; one beyond what the core holds; one of a program.
            samples: vec![sample(0, 5, 1), sample(0, 6, 2), sample(0, 9, 50), sample(0, 40, 7), sample(1, 5, 9)],
            ..Profile::default()
        };
        let function = |start, size| Function {
            start: ImageOffset(start),
            size,
            name: format!("f{start}").into(),
            source: NameSource::Symbol,
        };
        let table =
            FunctionTable::new(vec![function(0, 4), function(4, 4), function(8, 4), function(40, 4)], ImageOffset(64));
        let kernel = core(0xffff_ffff_8100_0000, b"aaaabbbbcccc");
        let code = kernel_code(&profile, &|_| Some((0xffff_ffff_8100_0000, table.clone())), &kernel);
        let found: Vec<_> = code.iter().map(|c| (c.start.0, c.bytes.as_slice())).collect();
        assert_eq!(found, [(8, &b"cccc"[..]), (4, &b"bbbb"[..])], "hottest first, and only what was sampled");
    }
}
