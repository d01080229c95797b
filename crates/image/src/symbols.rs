//! The function table of an ELF file: symbol tables of the file and of its debug file (or the small
//! one that Fedora packs into stripped programs, or what Go keeps), PLT stubs, and for what they leave
//! open the extents in `.eh_frame` and at last the section. Everything is gathered in stated addresses
//! and turned into file offsets at the end.

use crate::elf::build_id;
use crate::error::Problem;
use crate::extents::{Extents, extents};
use crate::functions::{Function, FunctionTable, NameSource};
use crate::go_names::{GoFunction, go_functions};
use crate::ids::{ImageOffset, Segment, Svma, to_offset};
use crate::mini_debug::mini_debug;
use crate::plt::{Stub, Target, stubs};
use crate::view::{Section, View, string_at};
use object::elf;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::ops::Range;

/// Alignment padding between functions is shorter than this and gets no entry of its own.
const SHORTEST_GAP: u64 = 16;
/// Code nothing is known of is cut here: a stripped browser has 200 MB of it, and one entry for all
/// would neither say where the time goes nor be a piece that can be disassembled.
const LONGEST_UNKNOWN: u64 = 4096;

/// The functions of `main`, named also by the symbols of its separate `debug` file, or else of the one
/// embedded in it, in file offsets
/// of `main` (see [`to_offset`]); functions outside its executable segments are left out. Broken
/// parts are told as problems, and a debug file with another build-id is not used.
#[must_use]
pub fn function_table(main: &[u8], debug: Option<&[u8]>) -> (FunctionTable, Vec<Problem>) {
    let mut problems = Vec::new();
    let view = match View::parse(main) {
        Ok(view) => view,
        Err(e) => return (FunctionTable::default(), vec![Problem::new("image", e)]),
    };
    problems.extend(view.problems.iter().cloned());
    let embedded = if debug.is_none() && !has_symtab(&view) { mini_debug(&view, &mut problems) } else { None };
    let debug = debug.or(embedded.as_deref()).and_then(|debug| debug_view(&view, debug, &mut problems));
    let code = code_ranges(&view);
    let extents = extents(&view, &mut problems);
    let mut labels = symbols(&view, &code, &mut problems);
    if let Some(debug) = &debug {
        labels.extend(symbols(debug, &code, &mut problems));
    }
    if debug.is_none() {
        labels.extend(go_labels(&view, &code));
    }
    labels.extend(plt_labels(&view, &labels));
    let mut functions = sized(labels, &code, &extents.ranges);
    let named = FunctionTable::new(functions.clone(), ImageOffset(0));
    functions.extend(fill_gaps(&named, &code, &extents));
    (in_file_offsets(functions, &view.code_segments()), problems)
}

/// Functions of a Go program without a symbol table, by its run-time system's own.
pub(crate) fn go_labels<'a>(view: &View<'a>, code: &[(Range<u64>, &[u8])]) -> Vec<Label<'a>> {
    if has_symtab(view) {
        return Vec::new();
    }
    go_functions(view).into_iter().map(go_label).filter(|l| range_of(code, l.address).is_some()).collect()
}

fn go_label((address, size, name): GoFunction<'_>) -> Label<'_> {
    Label { address, size, name: name.into(), source: NameSource::Symbol, resolver: false, mark: false }
}

fn has_symtab(view: &View<'_>) -> bool {
    view.sections.iter().any(|s| s.kind == elf::SHT_SYMTAB)
}

/// A debug file of another build would give wrong names with confidence.
pub(crate) fn debug_view<'a>(main: &View<'_>, debug: &'a [u8], problems: &mut Vec<Problem>) -> Option<View<'a>> {
    let view = View::parse(debug).map_err(|e| problems.push(Problem::new("debug file", e))).ok()?;
    match (build_id(main), build_id(&view)) {
        (Some(main), Some(debug)) if main != debug => {
            let sentence = format!("it belongs to build {debug}, the image is {main}; its symbols are not used");
            problems.push(Problem::new("debug file", sentence));
            None
        }
        _ => Some(view),
    }
}

/// Executable sections as (stated addresses, name); whole segments when the section table is gone.
pub(crate) fn code_ranges<'a>(view: &View<'a>) -> Vec<(Range<u64>, &'a [u8])> {
    let mut ranges: Vec<_> = view
        .sections
        .iter()
        .filter(|s| s.executable && s.size > 0 && s.address > 0)
        .map(|s| (s.addresses(), s.name))
        .collect();
    if ranges.is_empty() {
        let segments = view.code_segments();
        ranges.extend(segments.iter().map(|s| (s.address..s.address.saturating_add(s.size), b"code".as_slice())));
    }
    ranges.sort_by_key(|(r, _)| (r.start, r.end));
    // Sections of a sane file are disjoint and together no longer than the file. A broken one may
    // claim anything, and work and memory here grow with it.
    let (mut end, mut left) = (0, view.data.len() as u64);
    for (range, _) in &mut ranges {
        range.start = range.start.max(end);
        range.end = range.end.min(range.start.saturating_add(left)).max(range.start);
        left -= range.end - range.start;
        end = range.end;
    }
    ranges.retain(|(r, _)| r.start < r.end);
    ranges
}

/// The code range that holds an address.
fn range_of<'r>(code: &'r [(Range<u64>, &[u8])], address: u64) -> Option<&'r Range<u64>> {
    let i = code.partition_point(|(r, _)| r.start <= address).checked_sub(1)?;
    let (range, _) = &code[i];
    range.contains(&address).then_some(range)
}

/// A symbol before its extent is settled.
pub(crate) struct Label<'a> {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) name: Cow<'a, [u8]>,
    source: NameSource,
    /// Its code chooses the function at load time.
    pub(crate) resolver: bool,
    /// Only a mark in hand-written code: of no account inside a function with a size.
    pub(crate) mark: bool,
}

pub(crate) fn symbols<'a>(
    view: &View<'a>,
    code: &[(Range<u64>, &[u8])],
    problems: &mut Vec<Problem>,
) -> Vec<Label<'a>> {
    let mut labels = Vec::new();
    let tables = view.sections.iter().filter(|s| s.kind == elf::SHT_SYMTAB || s.kind == elf::SHT_DYNSYM);
    for table in tables {
        match symbol_bytes(view, table) {
            Some((entries, strings)) => labels.extend(
                entries
                    .chunks_exact(if view.is_64 { 24 } else { 16 })
                    .filter_map(|entry| label(view, entry, strings))
                    .filter(|l| range_of(code, l.address).is_some()),
            ),
            None if table.kind == elf::SHT_SYMTAB || !labels.is_empty() => {
                let context = String::from_utf8_lossy(table.name).into_owned();
                problems.push(Problem::new(context, "the symbol table lies outside the file"));
            }
            // A separate debug file keeps the header of .dynsym without its bytes.
            None => {}
        }
    }
    labels
}

fn symbol_bytes<'a>(view: &View<'a>, table: &Section<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let strings = view.sections.get(table.link as usize)?;
    Some((view.bytes(table)?, view.bytes(strings)?))
}

/// A symbol table entry that names code, else `None`.
fn label<'a>(view: &View<'a>, entry: &[u8], strings: &'a [u8]) -> Option<Label<'a>> {
    let (info, section, address, size) = if view.is_64 {
        (entry[4], view.u16(entry, 6)?, view.u64(entry, 8)?, view.u64(entry, 16)?)
    } else {
        (entry[12], view.u16(entry, 14)?, view.u32(entry, 4)?.into(), view.u32(entry, 8)?.into())
    };
    let kind = elf::SymbolType(info & 0xf);
    let mark = kind == elf::STT_NOTYPE;
    if section == 0 || !(mark || kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC) {
        return None;
    }
    let name = plain_name(string_at(strings, view.u32(entry, 0)? as usize)?);
    // Local labels of the assembler and the mapping symbols of ARM name no function.
    if name.is_empty() || mark && (name.starts_with(b".L") || name.starts_with(b"$")) {
        return None;
    }
    Some(Label {
        address,
        size,
        name: name.into(),
        source: NameSource::Symbol,
        resolver: kind == elf::STT_GNU_IFUNC,
        mark,
    })
}

/// Without the symbol version some linkers append (`memcpy@@GLIBC_2.14`).
fn plain_name(name: &[u8]) -> &[u8] {
    match name.iter().position(|&b| b == b'@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

fn plt_labels(view: &View<'_>, symbols: &[Label<'_>]) -> Vec<Label<'static>> {
    let stubs = stubs(view);
    let resolvers = resolver_names(&stubs, symbols);
    let label = |stub: Stub| {
        let mut name = match stub.target {
            Target::Name(name) => name,
            Target::Resolver(at) => {
                resolvers.get(&at).map_or_else(|| format!("ifunc@{at:#x}").into_bytes(), |name| name.to_vec())
            }
        };
        name.extend_from_slice(b"@plt");
        Label {
            address: stub.address,
            size: stub.size,
            name: name.into(),
            source: NameSource::Plt,
            resolver: false,
            mark: false,
        }
    };
    stubs.into_iter().map(label).collect()
}

/// The best name at each address some stub's resolver has.
fn resolver_names<'l>(stubs: &[Stub], symbols: &'l [Label<'_>]) -> FxHashMap<u64, &'l [u8]> {
    let at = stubs.iter().filter_map(|s| if let Target::Resolver(at) = s.target { Some(at) } else { None });
    let wanted: FxHashSet<u64> = at.collect();
    let mut names: FxHashMap<u64, &[u8]> = FxHashMap::default();
    let cost = |name: &[u8]| (name.iter().take_while(|&&b| b == b'_').count(), name.len());
    for l in symbols.iter().filter(|l| !l.mark && wanted.contains(&l.address)) {
        let best = names.entry(l.address).or_insert(&l.name);
        if cost(&l.name) < cost(best) {
            *best = &l.name;
        }
    }
    names
}

/// Settles the extents: marks inside functions go, and what has no size ends at the next start, the
/// end of its unwind entry or the end of its section, whichever comes first.
fn sized(mut labels: Vec<Label<'_>>, code: &[(Range<u64>, &[u8])], extents: &[Range<u64>]) -> Vec<Function> {
    labels.sort_by_key(|l| (l.address, l.mark));
    let mut covered = 0;
    labels.retain(|l| {
        if l.mark && l.address < covered {
            return false;
        }
        if !l.mark {
            covered = covered.max(l.address.saturating_add(l.size));
        }
        true
    });
    let starts: Vec<u64> = labels.iter().map(|l| l.address).collect();
    let size = |l: &Label<'_>| {
        let section_end = range_of(code, l.address).map_or(l.address, |r| r.end);
        if l.size > 0 {
            return l.size.min(section_end - l.address);
        }
        let next = starts.get(starts.partition_point(|&s| s <= l.address)).copied();
        let i = extents.partition_point(|e| e.start <= l.address);
        let own = i.checked_sub(1).map(|i| extents[i].end).filter(|&end| end > l.address);
        let following = extents.get(i).map(|e| e.start);
        [next, own, following].into_iter().flatten().fold(section_end, u64::min) - l.address
    };
    let function = |l: &Label<'_>| Function {
        start: ImageOffset(l.address),
        size: size(l),
        name: String::from_utf8_lossy(&l.name).into(),
        source: l.source,
    };
    labels.iter().map(function).collect()
}

/// What stands for the code that signal handlers return to, where no symbol names it: the words of gdb.
const SIGNAL_FRAME: &str = "<signal handler called>";

/// Entries for code that no symbol covers: by unwind extents, else by section.
fn fill_gaps(named: &FunctionTable, code: &[(Range<u64>, &[u8])], extents: &Extents) -> Vec<Function> {
    let mut out = Vec::new();
    let mut named = named.functions().iter().peekable();
    for (range, section) in code {
        let mut at = range.start;
        while at < range.end {
            while named.next_if(|f| f.start.0 + f.size <= at).is_some() {}
            let (gap_end, resume) = match named.peek() {
                Some(f) if f.start.0 < range.end => (f.start.0.max(at), f.start.0 + f.size),
                _ => (range.end, range.end),
            };
            fill_gap(at..gap_end, section, range.start, extents, &mut out);
            at = resume.max(gap_end);
        }
    }
    out
}

fn fill_gap(gap: Range<u64>, section: &[u8], section_start: u64, extents: &Extents, out: &mut Vec<Function>) {
    let mut at = gap.start;
    let Extents { ranges: extents, signal_frames } = extents;
    let first = extents.partition_point(|e| e.start < at).saturating_sub(1);
    let mut unwound = |range: Range<u64>| {
        let signal = signal_frames.contains(&range.start);
        let name = if signal { SIGNAL_FRAME.to_owned() } else { format!("fn@{:#x}", range.start) };
        out.push(anonymous(&range, name, NameSource::Unwind));
    };
    let mut unknown = Vec::new();
    for extent in extents[first..].iter().take_while(|e| e.start < gap.end) {
        let (start, end) = (extent.start.max(at), extent.end.min(gap.end));
        if start < end {
            unknown.push(at..start);
            unwound(start..end);
            at = end;
        }
    }
    unknown.push(at..gap.end);
    let section_name = String::from_utf8_lossy(section);
    for range in unknown.into_iter().filter(|r| r.end.saturating_sub(r.start) >= SHORTEST_GAP) {
        out.extend(pieces(range, section_start).map(|piece| {
            let name = format!("{section_name}+{:#x}", piece.start - section_start);
            anonymous(&piece, name, NameSource::Section)
        }));
    }
}

/// A range cut at multiples of [`LONGEST_UNKNOWN`] from the start of its section.
fn pieces(range: Range<u64>, section_start: u64) -> impl Iterator<Item = Range<u64>> {
    let next = move |at: u64| {
        let cut = (at - section_start) / LONGEST_UNKNOWN + 1;
        section_start.saturating_add(cut * LONGEST_UNKNOWN).min(range.end)
    };
    let mut at = range.start;
    std::iter::from_fn(move || {
        let piece = at..next(at);
        at = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

fn anonymous(range: &Range<u64>, name: String, source: NameSource) -> Function {
    Function { start: ImageOffset(range.start), size: range.end - range.start, name: name.into(), source }
}

fn in_file_offsets(functions: Vec<Function>, segments: &[Segment]) -> FunctionTable {
    let moved = functions.into_iter().filter_map(|f| {
        let start = to_offset(segments, Svma(f.start.0))?;
        let segment = segments.iter().find(|s| f.start.0 >= s.address && f.start.0 - s.address < s.size);
        let room = segment.map_or(f.size, |s| s.size - (f.start.0 - s.address));
        Some(Function { start, size: f.size.min(room), ..f })
    });
    FunctionTable::new(moved.collect(), ImageOffset(0))
}
