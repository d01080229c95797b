//! Source lines and inlined functions of a position, from DWARF 2 to 5. Opening reads only unit
//! headers; functions and lines of a unit are parsed when an address in it is first asked for.
//! Where a unit left them in another file (`split`) and that is missing, there are lines but no inlined functions.

use crate::bytes::Bytes;
use crate::declared::{Declared, declared};
use crate::error::{ImageError, Problem};
use crate::ids::Svma;
use crate::sections::section;
use crate::signature::{Signature, Signatures};
use crate::source::SourceFrame;
use crate::split::{self, Split, SplitFiles};
use crate::statements::{Statement, statements};
use addr2line::{Context, FrameIter, Location, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{Dwarf, EndianSlice, RunTimeEndian, SectionId};
use object::Object;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// What lines and inlined functions need. Location lists, the largest part after `.debug_info`, and
/// macros are left out: decompressing them would double the time to open.
const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Answers what source code an address came from. Shared between threads; one question at a time.
pub struct LineService {
    loaded: Loaded,
    problems: Vec<Problem>,
}

/// Inline chains of an address range: the same chain holds from one start to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// Addresses of the run.
    pub range: Range<Svma>,
    /// Innermost first; empty where nothing is known.
    pub frames: Vec<SourceFrame>,
}

impl LineService {
    /// Opens the debug information in `debug` (the image itself or its separate debug file), with
    /// the supplementary file its `.gnu_debugaltlink` names, if it names one and it was found.
    ///
    /// # Errors
    /// [`ImageError::NoDwarf`] without line information, [`ImageError::Dwarf`] when not even the
    /// unit headers can be read.
    pub fn new(debug: &Bytes, supplementary: Option<&Bytes>) -> Result<Self, ImageError> {
        Self::open(debug, supplementary, None)
    }

    /// The same, with what units left in files of their own.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_split(
        debug: &Bytes,
        supplementary: Option<&Bytes>,
        files: Box<dyn SplitFiles>,
    ) -> Result<Self, ImageError> {
        Self::open(debug, supplementary, Some(files))
    }

    fn open(
        debug: &Bytes,
        supplementary: Option<&Bytes>,
        split: Option<Box<dyn SplitFiles>>,
    ) -> Result<Self, ImageError> {
        let mut problems = Vec::new();
        let main = Sections::load(debug, &mut problems)?;
        if main.bytes(SectionId::DebugInfo).is_empty() && main.bytes(SectionId::DebugLine).is_empty() {
            return Err(ImageError::NoDwarf);
        }
        let sup = supplementary.and_then(|bytes| {
            let loaded = Sections::load(bytes, &mut problems);
            loaded.map_err(|e| problems.push(Problem::new("supplementary debug file", e))).ok()
        });
        let loaded =
            Loaded::try_new(Files { main, sup, split: Split::new(split) }, |files| context(files, &mut problems))?;
        Ok(Self { loaded, problems })
    }

    /// The inline chain at an address, innermost first; empty when nothing is known of it.
    #[must_use]
    pub fn frames(&self, at: Svma) -> Vec<SourceFrame> {
        self.ask(|lines| lines.frames(at))
    }

    /// The same for many addresses; much cheaper than one by one when they are close together.
    #[must_use]
    pub fn frames_at(&self, addresses: &[Svma]) -> Vec<Vec<SourceFrame>> {
        self.ask(|lines| addresses.iter().map(|&at| lines.frames(at)).collect())
    }

    /// All inline chains in a range of code, in order and without holes. About a microsecond per
    /// byte: meant for a function, not for a whole image.
    #[must_use]
    pub fn frames_in(&self, range: Range<Svma>) -> Vec<FrameRun> {
        self.ask(|lines| lines.runs(range))
    }

    /// Code of a source file, whose path ends in `file` (whole components), with the line each piece came
    /// from; inlined code counts where it was inlined. Reads all line tables: seconds for a browser.
    #[must_use]
    pub fn lines_of(&self, file: &str) -> Vec<(Range<Svma>, u32)> {
        self.ask(|lines| lines.of_file(file))
    }

    /// First instructions of the statements of a source file, whose path ends in `file` (whole components):
    /// where a breakpoint on a line belongs. Reads all line tables.
    #[must_use]
    pub fn statements(&self, file: &str) -> Vec<Statement> {
        let files = self.loaded.borrow_owner();
        Dwarf::load(|id| files.main.reader(id)).map(|dwarf| statements(&dwarf, file)).unwrap_or_default()
    }

    /// Where functions are declared, and discriminators of the code in `ranges`. Reads all units: seconds for a
    /// browser.
    #[must_use]
    pub fn declared(&self, ranges: &[Range<Svma>]) -> Declared {
        let files = self.loaded.borrow_owner();
        Dwarf::load(|id| files.main.reader(id)).map(|dwarf| declared(&dwarf, ranges, &files.split)).unwrap_or_default()
    }

    /// What the functions that begin at these addresses are declared to take; `None` where none is declared to begin.
    /// Reads each unit that holds one: a tenth of a second for a large one.
    #[must_use]
    pub fn signatures(&self, functions: &[Svma]) -> Vec<Option<Signature>> {
        self.ask(|lines| {
            let mut read = Signatures::default();
            functions.iter().map(|at| lines.signature(*at, &mut read)).collect()
        })
    }

    /// What was left out when opening.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Why addresses asked for had no answer, where damage is the reason.
    #[must_use]
    pub fn trouble(&self) -> Option<Problem> {
        self.ask(|lines| lines.trouble.clone().flatten())
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Lines<'_>) -> T) -> T {
        self.loaded.with_dependent(|_, lines| {
            // The caches inside are only ever extended, so a panic elsewhere left them usable.
            question(&mut lines.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }
}

impl std::fmt::Debug for LineService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LineService").field("problems", &self.problems).finish_non_exhaustive()
    }
}

type LockedLines<'a> = Mutex<Lines<'a>>;

self_cell::self_cell!(
    /// The sections and the parsed units that borrow from them.
    struct Loaded {
        owner: Files,
        #[not_covariant]
        dependent: LockedLines,
    }
);

struct Files {
    main: Sections,
    sup: Option<Sections>,
    split: Split,
}

impl Files {
    /// The first unit whose description cannot be read, which the reader of lines passes over in silence.
    fn unreadable(&self) -> Option<Problem> {
        let dwarf = Dwarf::load(|id| self.main.reader(id)).ok()?;
        let mut units = dwarf.units();
        loop {
            match units.next() {
                Ok(Some(header)) => match dwarf.unit(header) {
                    Ok(_) => {}
                    Err(e) => return Some(damaged(&e)),
                },
                Ok(None) => return None,
                Err(e) => return Some(damaged(&e)),
            }
        }
    }
}

fn damaged(e: &gimli::Error) -> Problem {
    Problem::new(
        "debug information",
        format!("some is damaged, so that code has no lines ({e}); install or build the file anew"),
    )
}

/// The debug sections of one file, decompressed.
pub(crate) struct Sections {
    endian: RunTimeEndian,
    bytes: Vec<(SectionId, Bytes)>,
}

impl Sections {
    fn load(file: &Bytes, problems: &mut Vec<Problem>) -> Result<Self, ImageError> {
        Self::load_named(file, &SECTIONS, |id| Some(id.name()), problems)
    }

    /// Loads sections by the names that `name` gives them.
    pub(crate) fn load_named(
        file: &Bytes,
        ids: &[SectionId],
        name: impl Fn(SectionId) -> Option<&'static str> + Copy + Sync,
        problems: &mut Vec<Problem>,
    ) -> Result<Self, ImageError> {
        let elf = object::File::parse(&file[..]).map_err(|e| ImageError::broken("section headers", e))?;
        let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let load = |id| section(&elf, file, name(id)).map(|bytes| (id, bytes));
        // Decompression is most of the time of opening a Debian debug file: one thread for the
        // largest section, this one for the rest.
        let loaded: Vec<_> = std::thread::scope(|scope| {
            let info = scope.spawn(|| load(SectionId::DebugInfo));
            let mut loaded: Vec<_> = ids.iter().filter(|id| **id != SectionId::DebugInfo).map(|id| load(*id)).collect();
            loaded.extend(info.join());
            loaded
        });
        let mut bytes = Vec::with_capacity(loaded.len());
        for section in loaded {
            section.map(|s| bytes.push(s)).unwrap_or_else(|problem| problems.push(problem));
        }
        Ok(Self { endian, bytes })
    }

    fn bytes(&self, id: SectionId) -> &[u8] {
        self.bytes.iter().find(|(i, _)| *i == id).map_or(&[], |(_, bytes)| &bytes[..])
    }

    pub(crate) fn reader(&self, id: SectionId) -> Result<Slice<'_>, gimli::Error> {
        Ok(EndianSlice::new(self.bytes(id), self.endian))
    }

    pub(crate) fn endian(&self) -> RunTimeEndian {
        self.endian
    }
}

fn context<'a>(files: &'a Files, problems: &mut Vec<Problem>) -> Result<LockedLines<'a>, ImageError> {
    let open = |with_aranges: bool| {
        let mut dwarf = Dwarf::load(|id| match id {
            SectionId::DebugAranges if !with_aranges => Ok(EndianSlice::new(&[], files.main.endian)),
            _ => files.main.reader(id),
        })?;
        if let Some(sup) = &files.sup {
            dwarf.load_sup(|id| sup.reader(id))?;
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        Context::from_dwarf(dwarf)
    };
    let context = open(true).or_else(|e: gimli::Error| {
        problems.push(Problem::new(".debug_aranges", format!("opened without it: {e}")));
        open(false)
    });
    let context = context.map_err(|e| ImageError::Dwarf { detail: e.to_string() })?;
    if let Ok(dwarf) = Dwarf::load(|id| files.main.reader(id)) {
        problems.extend(split::missing(&dwarf, &files.split));
    }
    Ok(Mutex::new(Lines { context, files, names: Names::default(), trouble: None }))
}

/// Answers a lookup, fetching what units left elsewhere when it is asked for.
fn complete<'a, L: LookupContinuation<Buf = Slice<'a>>>(mut lookup: LookupResult<L>, split: &'a Split) -> L::Output {
    loop {
        lookup = match lookup {
            LookupResult::Output(found) => return found,
            LookupResult::Load { load, continuation } => continuation.resume(fetch(&load, split)),
        };
    }
}

fn fetch<'a>(load: &SplitDwarfLoad<Slice<'a>>, split: &'a Split) -> Option<Arc<Dwarf<Slice<'a>>>> {
    let text = |part: Option<Slice<'a>>| Some(part?.to_string_lossy().into_owned());
    split.open(load.dwo_id, &text(load.comp_dir).unwrap_or_default(), &text(load.path)?, &load.parent)
}

/// An address not to ask the reader for, as it asks for the byte behind; no code is there anyway.
const NO_CODE: Svma = Svma(u64::MAX);

struct Lines<'a> {
    context: Context<Slice<'a>>,
    files: &'a Files,
    names: Names,
    /// What keeps addresses from having an answer, once one had none.
    trouble: Option<Option<Problem>>,
}

impl Lines<'_> {
    fn frames(&mut self, at: Svma) -> Vec<SourceFrame> {
        let Self { context, files, names, .. } = self;
        if at == NO_CODE {
            return Vec::new();
        }
        let found = match complete(context.find_frames(at.0), &files.split) {
            Ok(frames) => names.chain(frames),
            // The unit's functions cannot be read (a missing supplementary file, say); lines may be.
            Err(e) => match context.find_location(at.0) {
                Ok(Some(location)) => vec![names.frame(None, Some(location))],
                Ok(None) => Vec::new(),
                Err(_) => {
                    self.trouble.get_or_insert_with(|| Some(damaged(&e)));
                    Vec::new()
                }
            },
        };
        if found.is_empty() && self.trouble.is_none() {
            self.trouble = Some(files.unreadable());
        }
        found
    }

    fn signature(&mut self, at: Svma, read: &mut Signatures) -> Option<Signature> {
        if at == NO_CODE {
            return None;
        }
        read.at(complete(self.context.find_dwarf_and_unit(at.0), &self.files.split)?, at.0)
    }

    fn of_file(&mut self, file: &str) -> Vec<(Range<Svma>, u32)> {
        let ends = |path: &str| path.strip_suffix(file).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        let Ok(all) = self.context.find_location_range(0, u64::MAX - 1) else { return Vec::new() };
        let ours = all.filter(|(_, _, l)| l.file.is_some_and(ends));
        ours.filter_map(|(at, len, l)| Some((Svma(at)..Svma(at.checked_add(len)?), l.line?))).collect()
    }

    /// Asks byte by byte: inline ranges need not begin where line rows do, and a function is short.
    fn runs(&mut self, range: Range<Svma>) -> Vec<FrameRun> {
        let mut runs: Vec<FrameRun> = Vec::new();
        for at in range.start.0..range.end.0 {
            let frames = self.frames(Svma(at));
            match runs.last_mut() {
                Some(run) if run.frames == frames => run.range.end = Svma(at + 1),
                _ => runs.push(FrameRun { range: Svma(at)..Svma(at + 1), frames }),
            }
        }
        runs
    }
}

/// One copy of each name and path handed out: thousands of addresses share a few dozen.
#[derive(Default)]
struct Names(FxHashMap<Box<str>, Arc<str>>);

impl Names {
    fn chain(&mut self, mut frames: FrameIter<'_, Slice<'_>>) -> Vec<SourceFrame> {
        let mut chain = Vec::new();
        // A broken entry ends the chain: what is inside of it stays right.
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            chain.push(self.frame(name.as_deref(), frame.location));
        }
        chain
    }

    fn frame(&mut self, function: Option<&str>, location: Option<Location<'_>>) -> SourceFrame {
        SourceFrame {
            function: function.map(|name| self.intern(name)),
            file: location.as_ref().and_then(|l| l.file).map(|file| self.intern(file)),
            line: location.as_ref().and_then(|l| l.line).unwrap_or(0),
            column: location.as_ref().and_then(|l| l.column).unwrap_or(0),
        }
    }

    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = text.into();
        self.0.insert(text.into(), Arc::clone(&shared));
        shared
    }
}
