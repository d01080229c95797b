//! Bytes between functions that nothing executes: alignment filler behind an unconditional end.

use super::{CodeMap, JUMP, SHORT_JUMP, ends};
use crate::disasm::decode;
use crate::ids::Svma;
use iced_x86::Mnemonic;
use std::ops::Range;

/// Filler is looked at so far.
pub(super) const LONGEST: u64 = 64;
/// Places offered for one jump.
const MOST_PLACES: usize = 8;
/// A function in front of filler that is longer is not decoded for it.
const LONGEST_BEFORE: u64 = 1 << 16;
/// How far a short jump leads.
const REACH: u64 = 130;

/// The filler that begins at `end`, where a function ends; `None` when something else is there.
pub(super) fn behind(map: &CodeMap, end: u64) -> Option<Range<u64>> {
    let section = map.code.iter().find(|r| r.contains(&end))?;
    let next = map.starts.get(map.starts.partition_point(|s| *s < end)).copied().unwrap_or(u64::MAX);
    let covered = map.spans.index(end).is_some();
    let limit = next.min(section.end).min(end.saturating_add(LONGEST));
    if covered || limit <= end {
        return None;
    }
    // A long nop may straddle the limit: one that is cut does not decode.
    let insns = decode(map.bytes.get(end..limit)?, Svma(end));
    let filling = |i: &&crate::disasm::Insn| matches!(i.raw.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    let last = insns.iter().take_while(filling).last()?;
    Some(end..last.end().0)
}

/// Places for a long jump that a short jump at `at` reaches, nearest first.
pub(super) fn places(map: &CodeMap, at: u64) -> Vec<Svma> {
    let usable = map.spans.near(at, REACH).iter().filter(|s| ends_for_good(map, s));
    let fillers = usable.filter_map(|s| behind(map, s.end));
    let places = fillers.flat_map(|f| (f.start..f.end.saturating_sub(JUMP - 1)).step_by(JUMP as usize));
    let mut places: Vec<u64> = places.filter(|p| reaches(at, *p)).collect();
    places.sort_unstable_by_key(|p| p.abs_diff(at));
    // Nothing may lead there, also not to the first byte: who jumps to filler means what follows it.
    places.retain(|p| map.lands(&(*p..p + JUMP), &(*p..p + JUMP), true).is_none());
    places.truncate(MOST_PLACES);
    places.into_iter().map(Svma).collect()
}

fn reaches(at: u64, place: u64) -> bool {
    i8::try_from(place.wrapping_sub(at.wrapping_add(SHORT_JUMP)).cast_signed()).is_ok()
}

/// Whether control never runs out of the end of a function.
fn ends_for_good(map: &CodeMap, span: &Range<u64>) -> bool {
    if span.end - span.start > LONGEST_BEFORE {
        return false;
    }
    let Some(code) = map.bytes.get(span.clone()) else { return false };
    decode(code, Svma(span.start)).last().is_some_and(|i| ends(i) && i.end().0 == span.end)
}
