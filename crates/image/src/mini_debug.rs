//! `.gnu_debugdata`: the symbols of a stripped program as a small ELF file, xz-compressed, inside the
//! program itself (MiniDebugInfo of Fedora and its relatives). Only its symbol table is of use.

use crate::error::Problem;
use crate::view::View;
use lzma_rust2::XzReader;
use std::io::Read;

const SECTION: &str = ".gnu_debugdata";
/// A larger file is no table of symbols; a few kilobytes can claim to unpack to anything.
const MOST_BYTES: u64 = 256 << 20;
/// Dictionary and tables of the decoder: `xz -9` needs 65 MiB.
const MOST_MEMORY_KIB: u32 = 96 << 10;

/// The embedded debug file, unpacked; `None` when there is none, or when it is broken, which is told.
pub(crate) fn mini_debug(view: &View<'_>, problems: &mut Vec<Problem>) -> Option<Vec<u8>> {
    let packed = view.bytes(view.section(SECTION)?);
    match packed.ok_or_else(|| "it lies outside the file".to_owned()).and_then(unpacked) {
        Ok(bytes) => Some(bytes),
        Err(reason) => {
            problems.push(Problem::new(SECTION, format!("the symbols in it cannot be used: {reason}")));
            None
        }
    }
}

fn unpacked(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let reader = XzReader::new_mem_limit(packed, true, MOST_MEMORY_KIB);
    reader.take(MOST_BYTES + 1).read_to_end(&mut out).map_err(|e| e.to_string())?;
    if out.len() as u64 > MOST_BYTES {
        return Err(format!("it unpacks to more than {} MiB", MOST_BYTES >> 20));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `printf 'hello hello hello hello\n' | xz -c`
    const HELLO: &[u8] = &[
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01, 0x16, 0x00,
        0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0xe0, 0x00, 0x17, 0x00, 0x0c, 0x5d, 0x00, 0x34, 0x19, 0x49, 0xee, 0x8d,
        0xe9, 0x56, 0x0a, 0xc1, 0x21, 0xb0, 0x00, 0x00, 0x6c, 0x14, 0xed, 0x1b, 0x3b, 0x68, 0xbb, 0x91, 0x00, 0x01,
        0x28, 0x18, 0xd7, 0x83, 0xb7, 0x6e, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
    ];

    #[test]
    fn what_xz_packed_is_unpacked() {
        assert_eq!(unpacked(HELLO).unwrap(), b"hello hello hello hello\n");
        for cut in 0..HELLO.len() {
            assert!(unpacked(&HELLO[..cut]).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn damage_is_an_error_or_changes_nothing(at in 0..HELLO.len(), bit in 0_u32..8) {
            let mut damaged = HELLO.to_vec();
            damaged[at] ^= 1 << bit;
            if let Ok(bytes) = unpacked(&damaged) {
                prop_assert_eq!(bytes, b"hello hello hello hello\n");
            }
        }
    }
}
