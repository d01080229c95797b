//! Machine code of the running kernel by address, out of /proc/kcore: an ELF core file whose segments are the
//! kernel's memory. It shows the code as it is now, with what was patched at boot, which no file on disk does.
//! Needs root; locked-down kernels and some containers have none.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Program headers beyond this many are not looked at.
const MOST_HEADERS: usize = 4096;
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// The kernel's memory.
#[derive(Debug)]
pub struct Kcore {
    file: File,
    segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
}

impl Kcore {
    /// Opens /proc/kcore.
    ///
    /// # Errors
    /// The kernel's, or `InvalidData` when it is no 64-bit core file.
    pub fn open() -> io::Result<Self> {
        Self::of(File::open("/proc/kcore")?)
    }

    /// The same of any file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn of(file: File) -> io::Result<Self> {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no 64-bit ELF core file");
        let (at, count) = table(&header).ok_or_else(wrong)?;
        let mut headers = vec![0; count * PROGRAM_HEADER];
        file.read_exact_at(&mut headers, at)?;
        Ok(Self { file, segments: segments(&headers) })
    }

    /// Bytes from an address on; `None` when they are not all there.
    #[must_use]
    pub fn bytes(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let end = address.checked_add(len as u64)?;
        let s = self.segments.iter().find(|s| s.address <= address && end <= s.address.saturating_add(s.size))?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, s.offset.checked_add(address - s.address)?).ok()?;
        Some(bytes)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Where the program headers begin, and how many there are.
fn table(header: &[u8]) -> Option<(u64, usize)> {
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(header.get(at..at + 2)?.try_into().ok()?)));
    let is_elf64 = header.get(..6)? == [0x7f, b'E', b'L', b'F', 2, 1];
    (is_elf64 && half(54)? == PROGRAM_HEADER).then_some(())?;
    Some((word(header, 32)?, half(56)?.min(MOST_HEADERS)))
}

fn segments(headers: &[u8]) -> Vec<Segment> {
    let load = |h: &[u8]| {
        let is_load = h.get(..4)? == [1, 0, 0, 0];
        is_load.then_some(Segment { offset: word(h, 8)?, address: word(h, 16)?, size: word(h, 32)? })
    };
    headers.chunks_exact(PROGRAM_HEADER).filter_map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn core(segments: &[(u64, &[u8])]) -> Vec<u8> {
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1];
        file.resize(HEADER, 0);
        file[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
        file[54..56].copy_from_slice(&(PROGRAM_HEADER as u16).to_le_bytes());
        file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
        let mut data = HEADER + segments.len() * PROGRAM_HEADER;
        for (address, bytes) in segments {
            let mut header = vec![1, 0, 0, 0, 5, 0, 0, 0];
            let size = bytes.len() as u64;
            for value in [data as u64, *address, 0, size, size, 4096] {
                header.extend(value.to_le_bytes());
            }
            file.extend(header);
            data += bytes.len();
        }
        segments.iter().for_each(|(_, bytes)| file.extend_from_slice(bytes));
        file
    }

    fn opened(bytes: &[u8]) -> io::Result<Kcore> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        Kcore::of(file)
    }

    #[test]
    fn memory_is_found_by_address() {
        let low = 0xffff_ffff_8100_0000;
        let kernel =
            opened(&core(&[(low, b"text of the kernel"), (0xffff_ffff_c000_0000, b"module")])).expect("a core");
        assert_eq!(kernel.bytes(low + 5, 2).as_deref(), Some(&b"of"[..]));
        assert_eq!(kernel.bytes(0xffff_ffff_c000_0000, 6).as_deref(), Some(&b"module"[..]));
        assert_eq!(kernel.bytes(low + 10, 9), None, "one byte too many");
        assert_eq!(kernel.bytes(u64::MAX, 2), None);
        assert_eq!(kernel.bytes(0x1000, 1), None);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(opened(b"").is_err());
        assert!(opened(&[b'x'; 100]).is_err());
        let mut cut = core(&[(0x1000, b"abc")]);
        cut.truncate(HEADER + 10);
        assert!(opened(&cut).is_err());
    }

    proptest! {
        #[test]
        fn damage_gives_an_error_or_nothing(at in 0..200_usize, value: u8, address: u64, len in 0..64_usize) {
            let mut bytes = core(&[(0x1000, &[7; 40]), (u64::MAX - 8, &[9; 16])]);
            let at = at % bytes.len();
            bytes[at] = value;
            if let Ok(kernel) = opened(&bytes) {
                let _ = kernel.bytes(address, len);
                let _ = kernel.bytes(0x1000, len);
            }
        }
    }
}
