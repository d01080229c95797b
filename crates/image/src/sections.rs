//! Bytes of a section, decompressed where it is compressed. What they mean is their readers' business.

use crate::bytes::Bytes;
use crate::error::Problem;
use object::{Object, ObjectSection};
use std::borrow::Cow;

/// No compressor in use shrinks more than zlib's best case; a header that claims more is hostile.
const GREATEST_RATIO: u64 = 1100;

/// Bytes of the section of this name in a file that is not parsed yet; none when it has no such section.
pub(crate) fn section_bytes(file: &Bytes, name: &'static str) -> Result<Bytes, Problem> {
    let elf = object::File::parse(&file[..]).map_err(|e| Problem::new(name, e))?;
    section(&elf, file, Some(name))
}

/// The same for a file that is; none without a name.
pub(crate) fn section(elf: &object::File<'_>, file: &Bytes, name: Option<&'static str>) -> Result<Bytes, Problem> {
    let Some((name, section)) = name.and_then(|name| Some((name, elf.section_by_name(name)?))) else {
        return Ok(Bytes::default());
    };
    let failed = |e: object::read::Error| Problem::new(name, e);
    let compressed = section.compressed_data().map_err(failed)?;
    if compressed.uncompressed_size / GREATEST_RATIO > compressed.data.len() as u64 {
        return Err(Problem::new(name, "it claims an impossible uncompressed size and is not read"));
    }
    Ok(match compressed.decompress().map_err(failed)? {
        Cow::Borrowed(part) => file.share(part),
        Cow::Owned(bytes) => Bytes::from(bytes),
    })
}
