//! The real [`Symbols`]: files found by identity, the disk cache of function tables, DWARF opened when
//! a line is first asked for, and the symbols stored in the recording where files are missing.

use crate::cache::{Cache, MadeWith, Stripped};
use crate::debuginfod::Debuginfod;
use crate::finder::{Files, Finder, Opened};
use crate::model::{Image, ImageKind};
use crate::running_kernel;
use crate::stored::{StoredCode, StoredFunction, StoredLine, StoredSymbols};
use crate::symbols::Symbols;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use whither_image::{
    Bytes, CodeName, Declared, FrameRun, Function, FunctionTable, ImageId, ImageOffset, LineService, Segment,
    SourceFrame, StatedBytes, Statement, Svma, code_names, function_table, to_offset, to_svma,
};

/// Larger source files are generated ones nobody reads line by line.
const MAX_SOURCE_BYTES: u64 = 32 << 20;

/// Where symbols, debug information and source may come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolOptions {
    /// Directories like `/usr/lib/debug`: `.build-id/` inside, and paths mirrored below.
    pub debug_dirs: Vec<PathBuf>,
    /// Function tables are kept here; `None` keeps nothing.
    pub cache_dir: Option<PathBuf>,
    /// Ask the servers in `DEBUGINFOD_URLS` for what is not on this machine (needs `cache_dir`).
    pub debuginfod: bool,
    /// Beginnings of source paths to replace (`/build/src=/home/me/src`), first match wins.
    pub source_prefix_map: Vec<(String, String)>,
}

impl Default for SymbolOptions {
    /// `/usr/lib/debug`, no cache, no network.
    fn default() -> Self {
        Self {
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            cache_dir: None,
            debuginfod: false,
            source_prefix_map: Vec::new(),
        }
    }
}

impl SymbolOptions {
    /// `$XDG_CACHE_HOME/whither` or `~/.cache/whither`; `None` without a home.
    #[must_use]
    pub fn default_cache_dir() -> Option<PathBuf> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p: &PathBuf| p.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|h| h.join(".cache")))?;
        Some(base.join("whither"))
    }
}

/// Names, lines, code and source of the images of a loaded store. Shared between threads.
pub struct SymbolService {
    finder: Finder,
    cache: Option<Cache>,
    source_prefix_map: Vec<(String, String)>,
    stored: StoredSymbols,
    provided: FxHashMap<ImageId, Bytes>,
    images: Mutex<FxHashMap<ImageId, Arc<Entry>>>,
    sources: Mutex<FxHashMap<String, Option<Arc<Vec<String>>>>>,
    problems: Mutex<BTreeSet<String>>,
}

/// What is known of one image, each part worked out when first asked for.
#[derive(Default)]
struct Entry {
    files: OnceLock<Files>,
    functions: OnceLock<Arc<FunctionTable>>,
    lines: OnceLock<Option<LineService>>,
    stated: OnceLock<Option<Arc<StatedBytes>>>,
}

impl SymbolService {
    /// A service over what the machine has and what a store holds.
    #[must_use]
    pub fn new(options: SymbolOptions, mut stored: StoredSymbols) -> Self {
        stored.merge(StoredSymbols::default());
        let mut problems = BTreeSet::new();
        let debuginfod = if options.debuginfod { debuginfod(&options, &mut problems) } else { None };
        Self {
            finder: Finder { debug_dirs: options.debug_dirs, debuginfod },
            cache: options.cache_dir.as_deref().map(Cache::new),
            source_prefix_map: options.source_prefix_map,
            stored,
            provided: FxHashMap::default(),
            images: Mutex::default(),
            sources: Mutex::default(),
            problems: Mutex::new(problems),
        }
    }

    /// Bytes of an image whose file has no name any more, before anything is asked of it.
    pub fn provide(&mut self, image: ImageId, bytes: Bytes) {
        self.provided.insert(image, bytes);
    }

    /// Functions of an image that are in no file, instead of those told before.
    pub fn learn(&mut self, image: ImageId, functions: Vec<StoredFunction>) {
        let mut new = StoredSymbols { funcs: functions, ..StoredSymbols::default() };
        new.merge(StoredSymbols::default());
        let funcs = &mut self.stored.funcs;
        let old = funcs.partition_point(|f| f.image < image)..funcs.partition_point(|f| f.image <= image);
        funcs.splice(old, new.funcs);
        self.images.get_mut().unwrap_or_else(PoisonError::into_inner).remove(&image);
    }

    fn entry(&self, image: &Image) -> Arc<Entry> {
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(images.entry(image.id).or_default())
    }

    fn files<'a>(&self, entry: &'a Entry, image: &Image) -> &'a Files {
        entry.files.get_or_init(|| {
            let files = match self.provided.get(&image.id) {
                Some(bytes) => self.finder.beside(image, bytes),
                None => self.finder.find(image),
            };
            self.report(files.problems.iter().cloned());
            files
        })
    }

    fn make_functions(&self, entry: &Entry, image: &Image) -> FunctionTable {
        let stored = self.stored_functions(image.id);
        if image.kind != ImageKind::Elf {
            // A recording without names was made when they could not be written.
            let running = || running_kernel::functions(image).unwrap_or_else(|| table_of(stored));
            return if stored.is_empty() { running() } else { table_of(stored) };
        }
        if let Some(table) = self.cached(image) {
            return with_stored(table, stored);
        }
        let files = self.files(entry, image);
        let (table, problems) = match (&files.main, &files.debug) {
            (Some(main), debug) => function_table(&main.bytes, debug.as_ref().map(|d| &*d.bytes)),
            (None, Some(debug)) => moved(function_table(&debug.bytes, None), &debug.summary.segments, &image.segments),
            (None, None) => {
                if stored.is_empty() && files.problems.is_empty() {
                    self.report([format!(
                        "{}: there is no such file here, so its functions have no names: it was gone before it could be read, or \
                         belongs to a container or another machine",
                        image.path
                    )]);
                }
                return table_of(stored);
            }
        };
        self.report(problems.iter().map(|p| format!("{}: {p}", image.path)));
        if let (Some(cache), Some(main)) = (&self.cache, &files.main) {
            cache.put(image.id, &table, &made_with(image, files, main));
        }
        with_stored(table, stored)
    }

    /// A cached table, unless there may be more names than when it was made.
    fn cached(&self, image: &Image) -> Option<FunctionTable> {
        let (table, made) = self.cache.as_ref()?.get(image.id)?;
        let holds = match made {
            MadeWith::Symbols => true,
            MadeWith::Stripped(of) => {
                let path = Path::new(&image.path);
                let is_it = !path.exists() || of == Stripped::of(path, Some(&of.link));
                is_it && !self.finder.debug_file_exists(image, &of.link)
            }
        };
        holds.then_some(table)
    }

    fn lines<'a>(&self, entry: &'a Entry, image: &Image) -> Option<&'a LineService> {
        let open = || {
            let files = self.files(entry, image);
            let bytes = [&files.debug, &files.main].into_iter().flatten().find(|f| f.summary.has_dwarf)?.bytes.clone();
            let split = Box::new(self.finder.split(image, files, &self.source_prefix_map));
            let service = LineService::with_split(&bytes, files.supplementary.as_ref(), split);
            let service = service.map_err(|e| self.report([format!("{}: {e}", image.path)])).ok()?;
            self.report(service.problems().iter().map(|p| format!("{}: {p}", image.path)));
            Some(service)
        };
        entry.lines.get_or_init(open).as_ref()
    }

    /// The bytes of an image's own file, when it is found here.
    #[must_use]
    pub fn file(&self, image: &Image) -> Option<Bytes> {
        let entry = self.entry(image);
        self.files(&entry, image).main.as_ref().map(|main| main.bytes.clone())
    }

    /// Whether source lines of an image are known.
    #[must_use]
    pub fn has_lines(&self, image: &Image) -> bool {
        let entry = self.entry(image);
        self.lines(&entry, image).is_some()
    }

    /// Inline chains in a range of stated addresses, in order and without holes; empty without line information.
    #[must_use]
    pub fn runs(&self, image: &Image, range: Range<Svma>) -> Vec<FrameRun> {
        let entry = self.entry(image);
        self.lines(&entry, image).map(|lines| self.told(image, lines, lines.frames_in(range))).unwrap_or_default()
    }

    /// Where the statements of a source file begin in an image.
    #[must_use]
    pub fn statements(&self, image: &Image, file: &str) -> Vec<Statement> {
        let entry = self.entry(image);
        self.lines(&entry, image).map(|lines| lines.statements(file)).unwrap_or_default()
    }

    /// Code of a source file in an image, with the line each piece came from.
    #[must_use]
    pub fn lines_of(&self, image: &Image, file: &str) -> Vec<(Range<Svma>, u32)> {
        let entry = self.entry(image);
        self.lines(&entry, image).map(|lines| lines.lines_of(file)).unwrap_or_default()
    }

    /// Inline chain at a stated address, innermost first; empty without line information.
    #[must_use]
    pub fn chain(&self, image: &Image, at: Svma) -> Vec<SourceFrame> {
        let entry = self.entry(image);
        self.lines(&entry, image).map(|lines| self.told(image, lines, lines.frames(at))).unwrap_or_default()
    }

    /// Every name in the image's symbol tables, aliases included.
    #[must_use]
    pub fn names(&self, image: &Image) -> Vec<CodeName> {
        let entry = self.entry(image);
        let files = self.files(&entry, image);
        let debug = files.debug.as_ref().map(|d| &*d.bytes);
        files.main.as_ref().map(|main| code_names(&main.bytes, debug)).unwrap_or_default()
    }

    /// Inline chains of a range, as rows to store; the last row ends the last range.
    pub(crate) fn lines_in(&self, image: &Image, range: Range<ImageOffset>) -> Vec<StoredLine> {
        let entry = self.entry(image);
        let segments = segments(self.files(&entry, image), image);
        let (Some(lines), Some(start)) = (self.lines(&entry, image), to_svma(&segments, range.start)) else {
            return Vec::new();
        };
        let end = Svma(start.0.saturating_add(range.end.0.saturating_sub(range.start.0)));
        let mut rows = Vec::new();
        for run in self.told(image, lines, lines.frames_in(start..end)) {
            let offset = ImageOffset(range.start.0 + (run.range.start.0 - start.0));
            rows.extend(rows_of(image.id, offset, &run.frames));
        }
        if !rows.is_empty() {
            rows.extend(rows_of(image.id, range.end, &[]));
        }
        rows
    }

    fn stored_functions(&self, id: ImageId) -> &[StoredFunction] {
        let funcs = &self.stored.funcs;
        &funcs[funcs.partition_point(|f| f.image < id)..funcs.partition_point(|f| f.image <= id)]
    }

    fn stored_frames(&self, id: ImageId, at: ImageOffset) -> Vec<SourceFrame> {
        let lines = &self.stored.lines;
        let end = lines.partition_point(|l| (l.image, l.offset) <= (id, at));
        let Some(last) = end.checked_sub(1).map(|i| &lines[i]).filter(|l| l.image == id) else { return Vec::new() };
        let start = lines.partition_point(|l| (l.image, l.offset) < (id, last.offset));
        lines[start..end].iter().filter(|l| !is_end(l)).map(frame_of).collect()
    }

    fn stored_code(&self, id: ImageId, range: &Range<ImageOffset>) -> Option<Vec<u8>> {
        let code = &self.stored.code;
        let end = code.partition_point(|c| (c.image, c.start) <= (id, range.start));
        let holds = |c: &StoredCode| {
            let from = usize::try_from(range.start.0 - c.start.0).ok()?;
            let to = usize::try_from(range.end.0.checked_sub(c.start.0)?).ok()?;
            c.bytes.get(from..to).map(<[u8]>::to_vec)
        };
        code[..end].iter().rev().take_while(|c| c.image == id).find_map(holds)
    }

    fn make_stated(&self, entry: &Entry, image: &Image) -> Option<StatedBytes> {
        if image.kind == ImageKind::Elf
            && let Some(main) = &self.files(entry, image).main
        {
            let stated = StatedBytes::from_elf(&main.bytes);
            return stated.map_err(|e| self.report([format!("{}: {e}", image.path)])).ok();
        }
        let code = &self.stored.code;
        let pieces = &code[code.partition_point(|c| c.image < image.id)..code.partition_point(|c| c.image <= image.id)];
        let placed = |c: &StoredCode| to_svma(&image.segments, c.start).unwrap_or(Svma(c.start.0));
        (!pieces.is_empty()).then(|| StatedBytes::from_pieces(pieces.iter().map(|c| (placed(c), &c.bytes[..]))))
    }

    /// An answer, and a word on damage if it has holes for that.
    fn told<T>(&self, image: &Image, lines: &LineService, answer: T) -> T {
        self.report(lines.trouble().map(|p| format!("{}: {p}", image.path)));
        answer
    }

    fn report(&self, sentences: impl IntoIterator<Item = String>) {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).extend(sentences);
    }
}

impl Symbols for SymbolService {
    fn functions(&self, image: &Image) -> Arc<FunctionTable> {
        let entry = self.entry(image);
        Arc::clone(entry.functions.get_or_init(|| Arc::new(self.make_functions(&entry, image))))
    }

    /// Function tables, in parallel.
    fn prepare(&self, images: &[&Image]) {
        images.par_iter().for_each(|image| drop(self.functions(image)));
    }

    fn frames(&self, image: &Image, at: ImageOffset) -> Vec<SourceFrame> {
        if image.kind == ImageKind::Elf {
            let entry = self.entry(image);
            let found = self.lines(&entry, image).and_then(|lines| {
                let segments = segments(self.files(&entry, image), image);
                to_svma(&segments, at).map(|svma| self.told(image, lines, lines.frames(svma)))
            });
            if let Some(frames) = found.filter(|f| !f.is_empty()) {
                return frames;
            }
        }
        self.stored_frames(image.id, at)
    }

    fn code(&self, image: &Image, range: Range<ImageOffset>) -> Option<Vec<u8>> {
        if range.start >= range.end {
            return None;
        }
        let from_file = || {
            let entry = self.entry(image);
            let main = self.files(&entry, image).main.as_ref()?;
            code_of(&main.bytes, main, &range)
        };
        from_file().or_else(|| self.stored_code(image.id, &range))
    }

    fn declared(&self, image: &Image, ranges: &[Range<Svma>]) -> Declared {
        let entry = self.entry(image);
        self.lines(&entry, image).map(|lines| lines.declared(ranges)).unwrap_or_default()
    }

    fn stated(&self, image: &Image) -> Option<Arc<StatedBytes>> {
        let entry = self.entry(image);
        entry.stated.get_or_init(|| self.make_stated(&entry, image).map(Arc::new)).clone()
    }

    fn source(&self, file: &str) -> Option<Arc<Vec<String>>> {
        if let Some(known) = self.sources.lock().unwrap_or_else(PoisonError::into_inner).get(file) {
            return known.clone();
        }
        let lines = read_source(&mapped(file, &self.source_prefix_map)).map(Arc::new);
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(file.to_owned(), lines.clone());
        lines
    }

    fn source_written(&self, file: &str) -> Option<u64> {
        let written = mapped(file, &self.source_prefix_map).metadata().ok()?.modified().ok()?;
        u64::try_from(written.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos()).ok()
    }

    fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl std::fmt::Debug for SymbolService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SymbolService").field("finder", &self.finder).finish_non_exhaustive()
    }
}

fn debuginfod(options: &SymbolOptions, problems: &mut BTreeSet<String>) -> Option<Debuginfod> {
    let found = options.cache_dir.as_deref().and_then(Debuginfod::from_env);
    if found.is_none() {
        problems.insert(
            "debuginfod was asked for, but DEBUGINFOD_URLS names no server (or there is no cache directory)".into(),
        );
    }
    found
}

fn made_with(image: &Image, files: &Files, main: &Opened) -> MadeWith {
    if files.debug.is_some() || main.summary.has_symtab {
        return MadeWith::Symbols;
    }
    let link = main.summary.debuglink.as_ref().map(|link| link.name.as_str());
    MadeWith::Stripped(Stripped::of(Path::new(&image.path), link))
}

fn table_of(stored: &[StoredFunction]) -> FunctionTable {
    let end = stored.last().map_or(0, |f| f.function.start.0.saturating_add(f.function.size));
    FunctionTable::new(stored.iter().map(|f| f.function.clone()).collect(), ImageOffset(end))
}

/// A recording may know names that the stripped file here does not.
fn with_stored(table: FunctionTable, stored: &[StoredFunction]) -> FunctionTable {
    let better = |f: &Function| table.find(f.start).is_none_or(|known| known.source > f.source);
    let extra: Vec<Function> = stored.iter().map(|f| &f.function).filter(|f| better(f)).cloned().collect();
    if extra.is_empty() {
        return table;
    }
    let end = table.functions().last().map_or(0, |f| f.start.0 + f.size);
    FunctionTable::new(table.functions().iter().cloned().chain(extra).collect(), ImageOffset(end))
}

/// A debug file without its program: its own file offsets mean nothing, the image's count.
fn moved<P>((table, problems): (FunctionTable, P), from: &[Segment], to: &[Segment]) -> (FunctionTable, P) {
    let place = |f: &Function| {
        let start = to_offset(to, to_svma(from, f.start)?)?;
        Some(Function { start, ..f.clone() })
    };
    let functions = table.functions().iter().filter_map(place).collect();
    let end = to.iter().map(|s| s.offset.saturating_add(s.size)).max().unwrap_or(0);
    (FunctionTable::new(functions, ImageOffset(end)), problems)
}

/// The program's own segments are the truth; what the collector noted stands in for them.
fn segments(files: &Files, image: &Image) -> Vec<Segment> {
    files.main.as_ref().map_or_else(|| image.segments.clone(), |m| m.summary.segments.clone())
}

/// Bytes of a range that lies inside an executable segment.
fn code_of(bytes: &Bytes, main: &Opened, range: &Range<ImageOffset>) -> Option<Vec<u8>> {
    let inside = |s: &Segment| range.start.0 >= s.offset && range.end.0 <= s.offset.saturating_add(s.size);
    if !main.summary.segments.iter().any(inside) {
        return None;
    }
    let (start, end) = (usize::try_from(range.start.0).ok()?, usize::try_from(range.end.0).ok()?);
    bytes.get(start..end).map(<[u8]>::to_vec)
}

fn rows_of(image: ImageId, offset: ImageOffset, frames: &[SourceFrame]) -> Vec<StoredLine> {
    let text = |t: &Option<Arc<str>>| t.as_deref().unwrap_or_default().to_owned();
    let end = StoredLine { image, offset, depth: 0, file: String::new(), line: 0, function: String::new() };
    if frames.is_empty() {
        return vec![end];
    }
    let row = |(frame, depth): (&SourceFrame, u32)| StoredLine {
        depth,
        file: text(&frame.file),
        line: frame.line,
        function: text(&frame.function),
        ..end.clone()
    };
    frames.iter().zip(0..).map(row).collect()
}

fn is_end(line: &StoredLine) -> bool {
    line.file.is_empty() && line.line == 0 && line.function.is_empty()
}

fn frame_of(line: &StoredLine) -> SourceFrame {
    let text = |t: &str| (!t.is_empty()).then(|| Arc::from(t));
    SourceFrame { function: text(&line.function), file: text(&line.file), line: line.line, column: 0 }
}

/// A path with its first matching beginning replaced.
pub(crate) fn mapped(file: &str, map: &[(String, String)]) -> PathBuf {
    let replaced = map.iter().find_map(|(from, to)| file.strip_prefix(from.as_str()).map(|rest| format!("{to}{rest}")));
    PathBuf::from(replaced.as_deref().unwrap_or(file))
}

fn read_source(path: &Path) -> Option<Vec<String>> {
    let meta = path.metadata().ok()?;
    if !path.is_absolute() || !meta.is_file() || meta.len() > MAX_SOURCE_BYTES {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;
