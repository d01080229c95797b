//! Branches of an image that lead to bytes somebody wants to replace. A byte-wise search over all code
//! finds what looks like a branch with a 32-bit distance into one of those bytes, and only the few
//! functions with such a find are decoded to tell. So a library of 150 MB costs a tenth of a second
//! instead of the second and more that decoding all of it takes. What cannot be decoded counts as a branch.

use super::Spans;
use crate::disasm::{Flow, decode};
use crate::ids::Svma;
use crate::stated::StatedBytes;
use std::ops::Range;

/// Addresses of interest within one range of code, a bit each.
pub(super) struct Interest {
    ranges: Vec<(Range<u64>, Vec<u64>)>,
}

impl Interest {
    pub(super) fn new(code: &[Range<u64>]) -> Self {
        let bits = |r: &Range<u64>| vec![0; ((r.end - r.start) / 64 + 1) as usize];
        Self { ranges: code.iter().map(|r| (r.clone(), bits(r))).collect() }
    }

    pub(super) fn add(&mut self, addresses: Range<u64>) {
        let Some(i) = self.ranges.partition_point(|(r, _)| r.start <= addresses.start).checked_sub(1) else { return };
        let (range, bits) = &mut self.ranges[i];
        for at in addresses.start..addresses.end.min(range.end) {
            let bit = at - range.start;
            bits[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    pub(super) fn holds(&self, at: u64) -> bool {
        self.ranges.iter().any(|(range, bits)| {
            let bit = at.wrapping_sub(range.start);
            bit < range.end - range.start && bits[(bit / 64) as usize] >> (bit % 64) & 1 != 0
        })
    }
}

/// Branches and pointers into the bytes of interest, sorted: (target, where it stands).
pub(super) type Found = Vec<(u64, u64)>;

/// Direct branches with a 32-bit distance.
pub(super) fn branches(bytes: &StatedBytes, code: &[Range<u64>], spans: &Spans, interest: &Interest) -> Found {
    let mut found = Vec::new();
    for range in code {
        if let Some(code) = bytes.get(range.clone()) {
            search(code, range.start, interest, &mut found);
        }
    }
    // In order of their places, so that each function is decoded once.
    found.sort_unstable_by_key(|(_, from)| *from);
    let mut real = Vec::new();
    for of_one in found.chunk_by(|a, b| spans.index(a.1) == spans.index(b.1)) {
        verify(bytes, spans, of_one, &mut real);
    }
    real.sort_unstable();
    real
}

/// Bytes that look like `call`, `jmp`, `jcc` or `xbegin` to an address of interest.
fn search(code: &[u8], start: u64, interest: &Interest, found: &mut Found) {
    for (i, pair) in code.windows(2).enumerate() {
        let skip = match pair {
            [0xe8 | 0xe9, _] => 1,
            [0x0f, 0x80..=0x8f] | [0xc7, 0xf8] => 2,
            _ => continue,
        };
        let Some(distance) = code.get(i + skip..).and_then(<[u8]>::first_chunk::<4>) else { break };
        let from = start + i as u64;
        let target = from.wrapping_add(skip as u64 + 4).wrapping_add_signed(i32::from_le_bytes(*distance).into());
        if interest.holds(target) {
            found.push((target, from));
        }
    }
}

/// Bytes near `wanted` that look like a branch with an 8-bit distance into it, outside of `own`.
pub(super) fn short_branches(bytes: &StatedBytes, spans: &Spans, wanted: &Range<u64>, own: &Range<u64>) -> Found {
    let mut found = Vec::new();
    for from in wanted.start.saturating_sub(130)..wanted.end.saturating_add(130) {
        if own.contains(&from) {
            continue;
        }
        let Some(&[opcode, distance]) = bytes.get(from..from.saturating_add(2)).and_then(<[u8]>::first_chunk::<2>)
        else {
            continue;
        };
        let target = from.wrapping_add(2).wrapping_add_signed(i64::from(distance.cast_signed()));
        if matches!(opcode, 0x70..=0x7f | 0xeb | 0xe0..=0xe3) && wanted.contains(&target) {
            found.push((target, from));
        }
    }
    let mut real = Vec::new();
    for of_one in found.chunk_by(|a, b| spans.index(a.1) == spans.index(b.1)) {
        verify(bytes, spans, of_one, &mut real);
    }
    real
}

/// Keeps those of one function that are instructions. Outside of every function, and where something
/// in front does not decode, all are kept.
fn verify(bytes: &StatedBytes, spans: &Spans, found: &[(u64, u64)], real: &mut Found) {
    let Some((_, last)) = found.last() else { return };
    let span = spans.index(*last).map(|i| spans.get(i));
    let Some(code) = span.and_then(|s| bytes.get(s.start..s.end.min(last.saturating_add(16)))) else {
        real.extend(found);
        return;
    };
    let insns = decode(code, Svma(span.map_or(0, |s| s.start)));
    let broken = insns.iter().find(|i| i.flow == Flow::Invalid).map(|i| i.address.0);
    real.extend(found.iter().filter(|(target, from)| {
        let insn = insns.partition_point(|i| i.address.0 <= *from).checked_sub(1).map(|i| &insns[i]);
        broken.is_some_and(|at| at <= *from)
            || insn.is_some_and(|i| matches!(i.flow, Flow::Jump(t) | Flow::Branch(t) | Flow::Call(t) if t.0 == *target))
    }));
}

/// Words in data, aligned, that hold an address of interest: jump tables and labels taken as values.
pub(super) fn pointers(bytes: &[u8], at: u64, interest: &Interest, found: &mut Found) {
    let skip = (at.wrapping_neg() % 8) as usize;
    for (i, word) in bytes.get(skip..).unwrap_or_default().chunks_exact(8).enumerate() {
        let value = word.try_into().map_or(0, u64::from_le_bytes);
        if interest.holds(value) {
            found.push((value, at + skip as u64 + i as u64 * 8));
        }
    }
}
