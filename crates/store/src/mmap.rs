//! Files as shared bytes. The only `unsafe` of this crate: large files are mapped, small ones read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use whither_image::Bytes;

/// Below this a copy is cheaper than a mapping, and immune to the file changing.
const SMALL: u64 = 1 << 20;

/// Opens a regular file; anything else (a FIFO would block, a device has no end) is refused.
///
/// # Errors
/// What the system says, or that it is no regular file.
pub fn open(path: &Path) -> io::Result<Bytes> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if length < SMALL { read(file) } else { map(&file) }
}

fn read(file: File) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    // Bounded: the file may have grown since its length was asked.
    file.take(2 * SMALL).read_to_end(&mut bytes)?;
    Ok(Bytes::from(bytes))
}

#[expect(unsafe_code, reason = "a private read-only mapping has no safe interface")]
fn map(file: &File) -> io::Result<Bytes> {
    // SAFETY: the mapping is private and never written through. Its bytes are only ever parsed as
    // untrusted input, so a writer changing them meanwhile yields wrong values, which parsers must
    // bear anyway. A file cut short while mapped would raise SIGBUS in this reading process (never in
    // a target); package managers and linkers replace files by rename, which does not.
    let mapping = unsafe { memmap2::Mmap::map(file) }?;
    Ok(Bytes::new(mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_files_have_their_bytes() {
        let dir = tempfile::tempdir().unwrap();
        for length in [0, 10, SMALL as usize, 3 * SMALL as usize + 1] {
            let path = dir.path().join("f");
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            assert!(*open(&path).unwrap() == bytes[..]);
        }
    }

    #[test]
    fn what_is_not_a_file_is_refused() {
        assert!(open(Path::new("/dev/zero")).is_err());
        assert!(open(Path::new("/")).is_err());
    }
}
