//! Where functions begin and end according to `.eh_frame`: the only thing a stripped binary tells.
//! Only extents are read here; the unwinding rules in the same bytes are `unwind`'s.

use crate::error::Problem;
use crate::view::View;
use gimli::{BaseAddresses, CieOrFde, CommonInformationEntry, EhFrame, EhFrameHdr, EndianSlice, Pointer};
use gimli::{RunTimeEndian, UnwindSection};
use object::elf;
use rustc_hash::FxHashMap;
use std::ops::Range;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// What `.eh_frame` tells of where functions are.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    /// Stated address ranges of all FDEs, sorted and without empty ones.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Starts of those that describe the frame of a signal handler: the code that handlers return to.
    pub(crate) signal_frames: Vec<u64>,
}

/// Reads the extents.
pub(crate) fn extents(view: &View<'_>, problems: &mut Vec<Problem>) -> Extents {
    let Some((address, bytes)) = eh_frame(view) else {
        return Extents::default();
    };
    let mut found = Extents::default();
    if let Err(e) = walk(view, address, bytes, &mut found) {
        problems.push(Problem::new(".eh_frame", format!("read up to a broken entry: {e}")));
    }
    found.ranges.sort_unstable_by_key(|r| (r.start, r.end));
    found.ranges.dedup();
    found
}

fn walk(view: &View<'_>, address: u64, bytes: &[u8], found: &mut Extents) -> gimli::Result<()> {
    let mut section = EhFrame::new(bytes, endian(view));
    section.set_address_size(if view.is_64 { 8 } else { 4 });
    let bases = bases(view).set_eh_frame(address);
    let mut cies: FxHashMap<usize, CommonInformationEntry<Slice<'_>>> = FxHashMap::default();
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next()? {
        let CieOrFde::Fde(partial) = entry else { continue };
        // Thousands of FDEs share one CIE; parsing it again for each doubles the time.
        let fde = partial.parse(|section, bases, offset| match cies.get(&offset.0) {
            Some(cie) => Ok(cie.clone()),
            None => section.cie_from_offset(bases, offset).inspect(|cie| {
                cies.insert(offset.0, cie.clone());
            }),
        })?;
        let (start, end) = (fde.initial_address(), fde.initial_address().saturating_add(fde.len()));
        if start != 0 && start < end {
            found.ranges.push(start..end);
            if fde.is_signal_trampoline() {
                found.signal_frames.push(start);
            }
        }
    }
    Ok(())
}

/// Stated ranges of the code that signal handlers return to. Every entry is stepped over, but only those are parsed.
pub(crate) fn signal_frames(view: &View<'_>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    if let Some((address, bytes)) = eh_frame(view) {
        // What was found before a broken entry holds.
        let _ = walk_signal_frames(view, address, bytes, &mut found);
    }
    found
}

fn walk_signal_frames(view: &View<'_>, address: u64, bytes: &[u8], found: &mut Vec<Range<u64>>) -> gimli::Result<()> {
    let mut section = EhFrame::new(bytes, endian(view));
    section.set_address_size(if view.is_64 { 8 } else { 4 });
    let bases = bases(view).set_eh_frame(address);
    let mut trampolines: FxHashMap<usize, CommonInformationEntry<Slice<'_>>> = FxHashMap::default();
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next()? {
        match entry {
            CieOrFde::Cie(cie) if cie.is_signal_trampoline() => drop(trampolines.insert(cie.offset(), cie)),
            CieOrFde::Fde(partial) => {
                let Some(cie) = trampolines.get(&partial.cie_offset().0) else { continue };
                let fde = partial.parse(|_, _, _| Ok(cie.clone()))?;
                found.push(fde.initial_address()..fde.initial_address().saturating_add(fde.len()));
            }
            CieOrFde::Cie(_) => {}
        }
    }
    Ok(())
}

/// Stated address and bytes of `.eh_frame`, found by section or, without sections, through the
/// program header of `.eh_frame_hdr`.
pub(crate) fn eh_frame<'a>(view: &View<'a>) -> Option<(u64, &'a [u8])> {
    if let Some(section) = view.section(".eh_frame") {
        return Some((section.address, view.bytes(section)?));
    }
    let (address, header) = eh_frame_hdr(view)?;
    let bases = bases(view).set_eh_frame_hdr(address);
    let word = if view.is_64 { 8 } else { 4 };
    let parsed = EhFrameHdr::new(header, endian(view)).parse(&bases, word).ok()?;
    let Pointer::Direct(start) = parsed.eh_frame_ptr() else { return None };
    Some((start, loaded_from(view, start)?))
}

/// Stated address and bytes of `.eh_frame_hdr`.
pub(crate) fn eh_frame_hdr<'a>(view: &View<'a>) -> Option<(u64, &'a [u8])> {
    let header = view.programs.iter().find(|p| p.kind == elf::PT_GNU_EH_FRAME)?;
    Some((header.address, view.range(header.offset, header.file_size)?))
}

/// Whether the search table of `.eh_frame_hdr` points into `.eh_frame` only. The walkers of this table
/// trust it, and a cut or damaged file must not lead them astray.
pub(crate) fn header_holds(view: &View<'_>, header: (u64, &[u8]), frame: (u64, &[u8])) -> bool {
    let bases = bases(view).set_eh_frame_hdr(header.0).set_eh_frame(frame.0);
    let word = if view.is_64 { 8 } else { 4 };
    let Ok(parsed) = EhFrameHdr::new(header.1, endian(view)).parse(&bases, word) else { return false };
    let inside = |p: Pointer| matches!(p, Pointer::Direct(at) if at >= frame.0 && at - frame.0 < frame.1.len() as u64);
    let Some(table) = parsed.table() else { return false };
    let mut rows = table.iter(&bases);
    loop {
        match rows.next() {
            Ok(Some((_, fde))) if inside(fde) => {}
            Ok(None) => return parsed.eh_frame_ptr() == Pointer::Direct(frame.0),
            _ => return false,
        }
    }
}

/// What pointers relative to a section count from.
pub(crate) fn bases(view: &View<'_>) -> BaseAddresses {
    let mut bases = BaseAddresses::default();
    if let Some(text) = view.section(".text") {
        bases = bases.set_text(text.address);
    }
    if let Some(got) = view.section(".got") {
        bases = bases.set_got(got.address);
    }
    bases
}

/// File bytes from a stated address to the end of the segment that holds it.
fn loaded_from<'a>(view: &View<'a>, address: u64) -> Option<&'a [u8]> {
    let holds =
        |p: &&crate::view::Program| p.kind == elf::PT_LOAD && address >= p.address && address - p.address < p.file_size;
    let load = view.programs.iter().find(holds)?;
    let skip = address - load.address;
    view.range(load.offset.checked_add(skip)?, load.file_size - skip)
}

fn endian(view: &View<'_>) -> RunTimeEndian {
    match view.endian {
        object::Endianness::Little => RunTimeEndian::Little,
        object::Endianness::Big => RunTimeEndian::Big,
    }
}
