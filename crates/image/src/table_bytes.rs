//! A [`FunctionTable`] as bytes, for the disk cache: small, quick to read, and checked, as a cache
//! file may be cut or damaged. Another version is an error, which means: make the table again.
//!
//! ```text
//! "WFT" version:u8 | count:varint | per function: gap:varint size:varint source:u8 length:varint name | crc32:u32le
//! ```
//! `gap` counts from the end of the function before.

use crate::error::ImageError;
use crate::functions::{Function, FunctionTable, NameSource};
use crate::ids::ImageOffset;

const MAGIC: &[u8; 4] = b"WFT\x01";
/// Gap, size, source and name length take a byte each at least: bounds what a count may claim.
const SMALLEST_ENTRY: usize = 4;

impl FunctionTable {
    /// The table in the form [`Self::from_bytes`] reads.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put(&mut out, self.functions().len() as u64);
        let mut end = 0;
        for f in self.functions() {
            put(&mut out, f.start.0 - end);
            put(&mut out, f.size);
            out.push(f.source as u8);
            put(&mut out, f.name.len() as u64);
            out.extend_from_slice(f.name.as_bytes());
            end = f.start.0 + f.size;
        }
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// Reads what [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`ImageError::BadTable`] when the bytes are cut, damaged or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ImageError> {
        let bad = |detail| ImageError::BadTable { detail };
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(bad("it is cut"))?;
        if !body.starts_with(MAGIC) {
            return Err(bad("it is of another version"));
        }
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return Err(bad("its checksum is wrong"));
        }
        let functions = functions(&mut &body[MAGIC.len()..]).ok_or(bad("an entry is broken"))?;
        Self::from_sorted(functions).ok_or(bad("its functions are not in order"))
    }
}

fn functions(input: &mut &[u8]) -> Option<Vec<Function>> {
    let count = usize::try_from(take(input)?).ok()?;
    let mut out = Vec::with_capacity(count.min(input.len() / SMALLEST_ENTRY));
    let mut end = 0u64;
    for _ in 0..count {
        let start = end.checked_add(take(input)?)?;
        let size = take(input)?;
        end = start.checked_add(size)?;
        let source = source(*input.split_off_first()?)?;
        let length = usize::try_from(take(input)?).ok()?;
        let name = std::str::from_utf8(input.split_off(..length)?).ok()?;
        out.push(Function { start: ImageOffset(start), size, name: name.into(), source });
    }
    input.is_empty().then_some(out)
}

fn source(code: u8) -> Option<NameSource> {
    [NameSource::Symbol, NameSource::Plt, NameSource::Unwind, NameSource::Section]
        .into_iter()
        .find(|s| *s as u8 == code)
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *input.split_off_first()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(raw in proptest::collection::vec((0u64..1000, 0u64..300, "[a-zß_]{0,8}", 0u8..4), 0..60)) {
            let functions = raw.into_iter().map(|(start, size, name, s)| Function {
                start: ImageOffset(start), size, name: name.into(), source: source(s).unwrap(),
            });
            let table = FunctionTable::new(functions.collect(), ImageOffset(2000));
            let bytes = table.to_bytes();
            prop_assert_eq!(FunctionTable::from_bytes(&bytes).unwrap(), table);
            for cut in 0..bytes.len() {
                prop_assert!(FunctionTable::from_bytes(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn varints(value: u64) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(take(&mut &out[..]), Some(value));
        }
    }

    #[test]
    fn a_wrong_entry_behind_a_right_checksum_is_an_error() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0, 0, 0, 1, b'f']); // a function of size 0
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        assert!(FunctionTable::from_bytes(&bytes).is_err());
    }
}
