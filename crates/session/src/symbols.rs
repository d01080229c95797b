//! What a recording keeps so that it opens elsewhere: names of the kernel, of BPF programs and of code
//! made at run time, which exist nowhere but on this machine now; the same and the code of programs whose file is gone;
//! and names, code and lines of sampled functions.

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

/// Names alone.
const NAMES: GatherLimits = GatherLimits { share: 0.0, bytes: 0 };

/// A longer function of the kernel is a table of names gone wrong.
const LONGEST_KERNEL_FUNCTION: usize = 256 << 10;

/// Gathers and stores the symbols of everything sampled in the epoch so far.
///
/// # Errors
/// The store's.
pub(crate) fn keep(writer: &mut EpochWriter, book: &Book, code: bool) -> Result<(), whither_store::StoreError> {
    let loaded = load(&[writer.path().to_path_buf()], &Selection::default())?;
    let service = service(book, &loaded.profile, code);
    let limits = if code { KEPT } else { NAMES };
    let mut stored = service.gather(&loaded.profile, limits);
    if code {
        stored.merge(of_files_gone(book, &loaded.profile));
    }
    stored.merge(loaded.stored.clone());
    let full = writer.put_symbols(&stored);
    if full.is_err() {
        // On a full disk there may still be room for names, and those of the kernel and of run-time code are nowhere else.
        let mut names = service.gather(&loaded.profile, NAMES);
        names.merge(loaded.stored);
        writer.put_symbols(&names)?;
    }
    full
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

/// A symbol service that also knows what only this machine knows now; with `code`, that of the kernel and of deleted
/// files too.
pub(crate) fn service(book: &Book, profile: &Profile, code: bool) -> SymbolService {
    let mut known = StoredSymbols::default();
    for image in &profile.images {
        let table = match image.kind {
            ImageKind::Jit => perf_map(book, image),
            ImageKind::Vdso => own_vdso().map(|bytes| function_table(&bytes, None).0),
            ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf => kernel_table(book, image),
            _ => None,
        };
        known.funcs.extend(
            table.iter().flat_map(|t| t.functions()).map(|f| StoredFunction { image: image.id, function: f.clone() }),
        );
    }
    // Root only, and not on every machine: then kernel functions are listed by offset.
    if let Some(kernel) = code.then(|| Kcore::open().ok()) {
        known.code = sampled_code(profile, &|image| match image.kind {
            ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf => {
                let base = book.kernel().base(book.image_no(image)?)?;
                Some(kernel_code(kernel.as_ref()?, base, kernel_table(book, image)?))
            }
            _ => None,
        });
    }
    // No file cache here: it belongs to the user who reads, not to a recorder that may run as root.
    let options = SymbolOptions { cache_dir: None, ..SymbolOptions::default() };
    let mut service = SymbolService::new(options, known);
    for image in profile.images.iter().filter(|i| i.kind == ImageKind::Elf) {
        if let Some(bytes) = book.held_bytes(&image.id) {
            service.provide(image.id, bytes.into());
        }
    }
    service
}

/// Names, code and lines of all sampled functions of files that were deleted or replaced: nobody will find them again.
fn of_files_gone(book: &Book, profile: &Profile) -> StoredSymbols {
    let mut service = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
    let mut hold = |image: &Image| {
        let bytes = (image.kind == ImageKind::Elf).then(|| book.held_bytes(&image.id)).flatten();
        bytes.map(|bytes| service.provide(image.id, bytes.into())).is_some()
    };
    let gone: Vec<bool> = profile.images.iter().map(&mut hold).collect();
    gather_of(&service, profile, &gone)
}

/// Everything about the sampled functions of some images.
fn gather_of(service: &SymbolService, profile: &Profile, images: &[bool]) -> StoredSymbols {
    if !images.contains(&true) {
        return StoredSymbols::default();
    }
    let samples = profile.samples.iter().filter(|s| images[s.image.0 as usize]).copied().collect();
    let part = Profile { images: profile.images.clone(), samples, ..Profile::default() };
    service.gather(&part, GatherLimits { share: 1.0, ..KEPT })
}

/// Where the code of an image can be had only now and here.
struct CodeSource<'a> {
    functions: FunctionTable,
    /// Bytes from a position in the image on.
    bytes: Box<dyn Fn(ImageOffset, usize) -> Option<Vec<u8>> + 'a>,
}

/// The kernel as it runs; `base`: where the image lies in memory.
fn kernel_code(kernel: &Kcore, base: u64, functions: FunctionTable) -> CodeSource<'_> {
    let bytes = move |start: ImageOffset, size| {
        let usual = size <= LONGEST_KERNEL_FUNCTION;
        usual.then(|| kernel.bytes(base.checked_add(start.0)?, size)).flatten()
    };
    CodeSource { functions, bytes: Box::new(bytes) }
}

/// Code of the sampled functions of all images that `source` knows, those with most samples first.
fn sampled_code<'a>(profile: &Profile, source: &dyn Fn(&Image) -> Option<CodeSource<'a>>) -> Vec<StoredCode> {
    let mut found: Vec<(u64, StoredCode)> = Vec::new();
    for run in profile.samples.chunk_by(|a, b| a.image == b.image) {
        let image = profile.image(run[0].image);
        let Some(source) = source(image) else { continue };
        let mut functions: BTreeMap<ImageOffset, (u64, u64)> = BTreeMap::new();
        for sample in run {
            if let Some(f) = source.functions.find(sample.offset) {
                functions.entry(f.start).or_insert((f.size, 0)).1 += u64::from(sample.count);
            }
        }
        found.extend(functions.into_iter().filter_map(|(start, (size, samples))| {
            let size = usize::try_from(size).ok().filter(|size| *size <= KEPT.bytes)?;
            let bytes = (source.bytes)(start, size).filter(|bytes| !bytes.is_empty())?;
            Some((samples, StoredCode { image: image.id, start, bytes }))
        }));
    }
    found.sort_by_key(|(samples, code)| (std::cmp::Reverse(*samples), code.image, code.start));
    let mut room = KEPT.bytes;
    let fits = |(_, code): &(u64, StoredCode)| {
        room = room.saturating_sub(code.bytes.len());
        room > 0
    };
    found.into_iter().take_while(fits).map(|(_, code)| code).collect()
}

/// Of what only this machine knows now, the functions that a part has samples in; and the code of those whose file is
/// gone.
pub(crate) fn local_names(book: &Book, part: &Profile) -> StoredSymbols {
    let mut names = of_files_gone(book, part);
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

/// The same as rows to store.
pub(crate) fn local_functions(book: &Book, image: &Image) -> Option<Vec<StoredFunction>> {
    Some(local_table(book, image)?.functions().iter().map(|f| stored(image, f)).collect())
}

/// Functions of an image that cannot be read from a file later or elsewhere.
fn local_table(book: &Book, image: &Image) -> Option<FunctionTable> {
    match image.kind {
        ImageKind::Jit => perf_map(book, image),
        ImageKind::Vdso => own_vdso().map(|bytes| function_table(&bytes, None).0),
        ImageKind::Elf => book.held_bytes(&image.id).map(|bytes| function_table(&bytes, None).0),
        ImageKind::Kernel | ImageKind::Module | ImageKind::Bpf => kernel_table(book, image),
        ImageKind::Anon | ImageKind::Unknown => None,
    }
}

fn perf_map(book: &Book, image: &Image) -> Option<FunctionTable> {
    Some(parse_perf_map(&book.perf_map(&image.id)?).0)
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
        let place = |image: &Image| (image.kind == ImageKind::Kernel).then(|| table.clone());
        let code = sampled_code(&profile, &|image| Some(kernel_code(&kernel, 0xffff_ffff_8100_0000, place(image)?)));
        let found: Vec<_> = code.iter().map(|c| (c.start.0, c.bytes.as_slice())).collect();
        assert_eq!(found, [(8, &b"cccc"[..]), (4, &b"bbbb"[..])], "hottest first, and only what was sampled");
    }

    #[test]
    fn sampled_functions_of_a_file_that_is_gone_keep_their_code() {
        let file = std::fs::read(std::env::current_exe().expect("a running test")).expect("readable");
        let ours = function_table(&file, None).0;
        let f =
            ours.functions().iter().find(|f| f.name.contains("sampled_functions_of_a_file")).expect("this function");
        let image = |id, path: &str| Image {
            id: ImageId([id; 20]),
            id_kind: IdKind::CodeHash,
            kind: ImageKind::Elf,
            path: path.into(),
            segments: whither_image::ElfSummary::parse(&file).expect("an ELF file").segments,
            size: file.len() as u64,
        };
        let sample = |image| Sample {
            image: ImageIx(image),
            event: EventIx(0),
            process: ProcessIx(0),
            tid: 0,
            slice: 0,
            offset: ImageOffset(f.start.0 + 1),
            period: 1,
            count: 3,
        };
        let images = vec![image(7, "/bin/gone"), image(8, "/bin/there")];
        let profile = Profile { images, samples: vec![sample(0), sample(1)], ..Profile::default() };
        let mut service = SymbolService::new(SymbolOptions::default(), StoredSymbols::default());
        service.provide(ImageId([7; 20]), file.clone().into());
        let kept = gather_of(&service, &profile, &[true, false]);
        let start = f.start.0 as usize;
        let bytes = file[start..start + f.size as usize].to_vec();
        assert_eq!(kept.code, [StoredCode { image: ImageId([7; 20]), start: f.start, bytes }]);
        assert!(kept.lines.iter().any(|l| l.file.ends_with("symbols.rs") && l.line > 0), "{:?}", kept.lines);
        assert_eq!(gather_of(&service, &profile, &[false, false]), StoredSymbols::default());
    }
}
