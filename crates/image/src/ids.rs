//! Identities and addresses of images: what a build-id, a file offset and a link-time address are,
//! as types that cannot be mixed up. No parsing lives here.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Identity of an image (an executable, a library, the kernel, a JIT area): the GNU build-id padded
/// or cut to 20 bytes, else a 20-byte hash of pieces of the executable segments ([`IdKind`] tells which).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ImageId(pub [u8; 20]);

impl ImageId {
    /// From a build-id note of any length: cut to 20 bytes, or padded with zeros.
    #[must_use]
    pub fn from_build_id(bytes: &[u8]) -> Self {
        let mut id = [0; 20];
        let n = bytes.len().min(20);
        id[..n].copy_from_slice(&bytes[..n]);
        Self(id)
    }

    /// Lower-case hexadecimal without the zero padding, as `file` and `readelf -n` print a build-id.
    #[must_use]
    pub fn to_hex(self) -> String {
        let end = self.0.iter().rposition(|&b| b != 0).map_or(0, |p| p + 1);
        // An id keeps at least 8 bytes so that a build-id ending in zero bytes stays recognisable.
        let end = if end > 16 { 20 } else { end.max(8) };
        self.0[..end].iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Parses what [`Self::to_hex`] prints (2 to 40 hex digits).
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() < 2 || text.len() > 40 || !text.len().is_multiple_of(2) || !text.is_ascii() {
            return None;
        }
        let bytes: Option<Vec<u8>> =
            (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect();
        Some(Self::from_build_id(&bytes?))
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageId({})", self.to_hex())
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl Serialize for ImageId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for ImageId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::from_hex(&text).ok_or_else(|| serde::de::Error::custom("image id is not hexadecimal"))
    }
}

/// What an [`ImageId`] was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdKind {
    /// The GNU build-id note.
    BuildId,
    /// SHA-1 of the executable segments (of large ones, pieces): survives copying, not `strip`.
    CodeHash,
    /// SHA-1 of path, inode and size, because the bytes could not be read.
    Path,
    /// A name of our own (JIT areas, pseudo-images of unknown samples).
    Synthetic,
}

/// What kind of thing an image is; decides what an [`ImageOffset`] counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageKind {
    /// An ELF file: the offset is the file offset.
    Elf,
    /// The kernel proper: the offset counts from `_stext` (KASLR removed).
    Kernel,
    /// A kernel module: the offset counts from the start of its text in memory.
    Module,
    /// The vDSO: the offset is the file offset in the image the kernel maps.
    Vdso,
    /// Code made at run time with a perf map or jitdump: the offset is the address.
    Jit,
    /// JIT-compiled BPF programs: the offset counts from the lowest program address seen.
    Bpf,
    /// Executable memory without a file or a map: the offset is the address.
    Anon,
    /// Samples that could not be given to an image; the path tells the reason.
    Unknown,
}

/// Position in an image; what it counts from is told by [`ImageKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageOffset(pub u64);

/// Address as stated in an ELF file (what `objdump`, `nm` and `addr2line` print).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Svma(pub u64);

/// One executable `PT_LOAD`, enough to turn file offsets into stated addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// File offset of the first byte.
    pub offset: u64,
    /// Stated address of the first byte.
    pub address: u64,
    /// Bytes in the file.
    pub size: u64,
}

/// File offset to stated address by the executable segments; kinds other than ELF have none and
/// keep the number. `None` when segments are known and none holds the offset.
#[must_use]
pub fn to_svma(segments: &[Segment], offset: ImageOffset) -> Option<Svma> {
    if segments.is_empty() {
        return Some(Svma(offset.0));
    }
    segments
        .iter()
        .find(|s| offset.0 >= s.offset && offset.0 - s.offset < s.size)
        .map(|s| Svma(s.address.wrapping_add(offset.0 - s.offset)))
}

/// Stated address to file offset; the inverse of [`to_svma`].
#[must_use]
pub fn to_offset(segments: &[Segment], address: Svma) -> Option<ImageOffset> {
    if segments.is_empty() {
        return Some(ImageOffset(address.0));
    }
    segments
        .iter()
        .find(|s| address.0 >= s.address && address.0 - s.address < s.size)
        .map(|s| ImageOffset(s.offset.wrapping_add(address.0 - s.address)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn offsets_and_addresses_are_inverse(
            layout in proptest::collection::vec((0u64..1 << 20, 1u64..1 << 20, 0u64..1 << 40), 0..5),
            probe in 0u64..1 << 23,
        ) {
            // Segments of a sane file overlap neither in the file nor in memory.
            let (mut offset, mut address) = (0, 0x40_0000);
            let segments: Vec<Segment> = layout.iter().map(|(gap, size, away)| {
                let segment = Segment { offset: offset + gap, address: address + away, size: *size };
                (offset, address) = (segment.offset + size, segment.address + size);
                segment
            }).collect();
            match to_svma(&segments, ImageOffset(probe)) {
                Some(at) => prop_assert_eq!(to_offset(&segments, at), Some(ImageOffset(probe))),
                None => prop_assert!(segments.iter().all(|s| probe < s.offset || probe >= s.offset + s.size)),
            }
        }

        #[test]
        fn ids_survive_as_text(bytes: [u8; 20]) {
            let id = ImageId(bytes);
            prop_assert_eq!(ImageId::from_hex(&id.to_hex()), Some(id));
        }
    }
}
