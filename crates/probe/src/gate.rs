//! Bytes in front of a stub that let calls of some code pass to the agent and all others to the displaced
//! instructions, by the return address on top of the stack. Constraints: registers and stack stay as they are at a
//! function's entry; unused places can be filled while the target stands still, for libraries loaded later.
//!
//! ```text
//! place:  0  cmp  $high, 4(%rsp)      the upper half of the return address
//!         8  jne  next
//!        10  cmp  $first, (%rsp)      the lower half
//!        17  jb   next
//!        19  cmp  $last, (%rsp)
//!        26  jbe  behind              to the stub
//! next:  32  an unused place is jumped over
//! end:       jmp  displaced
//! behind:
//! ```

use crate::api::{Caller, Refusal};
use std::ops::Range;

/// Pieces of code that a gate can know.
pub(crate) const PLACES: usize = 8;
/// Bytes of a place.
const PLACE: usize = 32;
/// Bytes of a gate.
pub(crate) const BYTES: usize = PLACES * PLACE + 5;
/// The first bytes: `cmp $.., 4(%rsp)`.
pub(crate) const BEGIN: [u8; 4] = [0x81, 0x7c, 0x24, 4];

/// Code whose calls pass, none of it across a multiple of 4 GiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    pieces: Vec<Range<u64>>,
}

impl Gate {
    /// For calls from there.
    ///
    /// # Errors
    /// [`Refusal::TooManyCallers`].
    pub(crate) fn of(callers: &[Caller]) -> Result<Self, Refusal> {
        let mut gate = Self::default();
        gate.widen(callers)?;
        Ok(gate)
    }

    /// Lets calls from there pass too; what has to be written, from the gate's begin on: offset and bytes.
    ///
    /// # Errors
    /// [`Refusal::TooManyCallers`]; then it is as it was.
    pub(crate) fn widen(&mut self, callers: &[Caller]) -> Result<Vec<(usize, Vec<u8>)>, Refusal> {
        let mut pieces = self.pieces.clone();
        for piece in callers.iter().flat_map(|caller| halves(&caller.code)) {
            if !pieces.iter().any(|known| known.start <= piece.start && piece.end <= known.end) {
                pieces.push(piece);
            }
        }
        if pieces.len() > PLACES {
            return Err(Refusal::TooManyCallers { pieces: pieces.len(), most: PLACES });
        }
        let new = self.pieces.len()..pieces.len();
        self.pieces = pieces;
        Ok(new.map(|place| (place * PLACE, self.place(place).to_vec())).collect())
    }

    /// Its bytes; the displaced instructions stand `displaced` bytes behind its begin.
    pub(crate) fn bytes(&self, displaced: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..PLACES).flat_map(|place| self.place(place)).collect();
        bytes.push(0xe9);
        bytes.extend(((displaced - BYTES) as u32).to_le_bytes());
        bytes
    }

    fn place(&self, place: usize) -> [u8; PLACE] {
        let mut bytes = [0xcc; PLACE];
        let Some(piece) = self.pieces.get(place) else {
            bytes[..2].copy_from_slice(&[0xeb, PLACE as u8 - 2]);
            return bytes;
        };
        let low = |address: u64| (address as u32).to_le_bytes();
        bytes[..4].copy_from_slice(&BEGIN);
        bytes[4..8].copy_from_slice(&((piece.start >> 32) as u32).to_le_bytes());
        bytes[8..10].copy_from_slice(&[0x75, PLACE as u8 - 10]);
        bytes[10..13].copy_from_slice(&[0x81, 0x3c, 0x24]);
        bytes[13..17].copy_from_slice(&low(piece.start));
        bytes[17..19].copy_from_slice(&[0x72, PLACE as u8 - 19]);
        bytes[19..22].copy_from_slice(&[0x81, 0x3c, 0x24]);
        bytes[22..26].copy_from_slice(&low(piece.end - 1));
        bytes[26..28].copy_from_slice(&[0x0f, 0x86]);
        bytes[28..].copy_from_slice(&((BYTES - (place + 1) * PLACE) as u32).to_le_bytes());
        bytes
    }
}

/// A range cut at multiples of 4 GiB; nothing of an empty one.
fn halves(range: &Range<u64>) -> Vec<Range<u64>> {
    let mut pieces = Vec::new();
    let mut at = range.start;
    while at < range.end && pieces.len() <= PLACES {
        let end = ((at >> 32) + 1).checked_shl(32).filter(|&end| end != 0).map_or(range.end, |end| end.min(range.end));
        pieces.push(at..end);
        at = end;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn caller(code: Range<u64>) -> Caller {
        Caller { module: 0, code }
    }

    /// Where the gate's code leads for a return address: whether to the stub behind it. By hand, as the processor does.
    fn passes(bytes: &[u8], ra: u64) -> bool {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (high, low) = ((ra >> 32) as u32, ra as u32);
        let mut ip = 0;
        let mut flags = (0, 0);
        loop {
            let rel8 = |at: usize| at + 1 + usize::from(bytes[at]);
            match bytes[ip..] {
                [0x81, 0x7c, 0x24, 4, ..] => (flags, ip) = ((high, word(ip + 4)), ip + 8),
                [0x81, 0x3c, 0x24, ..] => (flags, ip) = ((low, word(ip + 3)), ip + 7),
                [0x75, ..] => ip = if flags.0 == flags.1 { ip + 2 } else { rel8(ip + 1) },
                [0x72, ..] => ip = if flags.0 < flags.1 { rel8(ip + 1) } else { ip + 2 },
                [0xeb, ..] => ip = rel8(ip + 1),
                [0x0f, 0x86, ..] => ip += 6 + if flags.0 <= flags.1 { word(ip + 2) as usize } else { 0 },
                [0xe9, ..] => return false,
                [] => return true,
                _ => panic!("no instruction at {ip}"),
            }
        }
    }

    #[test]
    fn calls_of_some_code_pass() {
        let code = [0x5555_1000..0x5555_3000, 0x7fff_ffff_0000..0x8000_0000_1000, 0x1_0000_0000..0x1_0000_0001];
        let gate = Gate::of(&code.clone().map(caller)).unwrap();
        assert_eq!(gate.pieces.len(), 4, "one lies across 4 GiB");
        let bytes = gate.bytes(BYTES + 40);
        assert_eq!((bytes.len(), &bytes[BYTES - 5..]), (BYTES, &[0xe9, 40, 0, 0, 0][..]));
        let edges = code.iter().flat_map(|c| [c.start - 1, c.start, c.end - 1, c.end]);
        for ra in edges.chain([0, u64::MAX, 0x8000_0000_0000, 0x5555_2000 + (1 << 32)]) {
            assert_eq!(passes(&bytes, ra), code.iter().any(|c| c.contains(&ra)), "{ra:#x}");
        }
    }

    #[test]
    fn it_is_widened_in_place() {
        let mut gate = Gate::of(&[caller(0x1000..0x2000)]).unwrap();
        let mut bytes = gate.bytes(400);
        assert_eq!(gate.widen(&[caller(0x1000..0x2000)]).unwrap(), [], "known");
        for (at, new) in gate.widen(&[caller(0x5000..0x6000)]).unwrap() {
            assert_eq!(bytes[at], 0xeb, "unused so far");
            bytes[at..at + new.len()].copy_from_slice(&new);
        }
        assert_eq!(bytes, gate.bytes(400));
        assert!(passes(&bytes, 0x5fff) && passes(&bytes, 0x1000) && !passes(&bytes, 0x3000));
        let many: Vec<Caller> = (0..9).map(|i| caller(i << 32..(i << 32) + 1)).collect();
        let before = gate.clone();
        assert_eq!(gate.widen(&many), Err(Refusal::TooManyCallers { pieces: 11, most: PLACES }));
        assert_eq!(gate, before);
    }

    proptest! {
        #[test]
        fn as_the_ranges_say(starts in prop::collection::vec((0_u64..1 << 47, 1_u64..1 << 30), 1..4), ra in 0_u64..1 << 47, near in 0_u64..1 << 31) {
            let code: Vec<Range<u64>> = starts.iter().map(|&(start, length)| start..start + length).collect();
            let gate = Gate::of(&code.iter().cloned().map(caller).collect::<Vec<_>>()).unwrap();
            let bytes = gate.bytes(BYTES);
            for ra in [ra, code[0].start.wrapping_add(near).wrapping_sub(1 << 20)] {
                prop_assert_eq!(passes(&bytes, ra), code.iter().any(|c| c.contains(&ra)));
            }
        }
    }
}
