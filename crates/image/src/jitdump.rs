//! Code made at run time with its bytes, names and lines, from a jitdump file
//! (`jit-PID.dump`, written by engines for `perf inject`).
//!
//! ```text
//! header:  magic "JiTD" version total_size machine pad pid timestamp:u64 flags:u64
//! record:  id:u32 total_size:u32 timestamp:u64 | body
//! LOAD 0:  pid tid vma:u64 address:u64 size:u64 index:u64 name\0 code
//! MOVE 1:  pid tid vma:u64 old:u64 new:u64 size:u64 index:u64
//! LINES 2: address:u64 count:u64 { address:u64 line:u32 discriminator:u32 file\0 }
//! ```

use crate::error::{ImageError, Problem};
use crate::functions::FunctionTable;
use crate::perfmap::Layers;
use object::{Endian, Endianness};
use std::ops::Range;

const MAGIC: u32 = 0x4A69_5444;
const HEADER: usize = 40;
const RECORD: usize = 16;

/// A function as it was when the engine made or moved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitFunction {
    /// When, in nanoseconds of the engine's clock (`CLOCK_MONOTONIC` unless [`JitDump::tsc`]).
    pub time: u64,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Number the engine gave it; moves keep it.
    pub index: u64,
    /// Name as the engine writes it.
    pub name: String,
    /// Where its machine code stands in the dump.
    pub code: Range<usize>,
    /// Line table, sorted by address; empty without one.
    pub lines: Vec<JitLine>,
}

/// From this address on, code came from this line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitLine {
    /// Address.
    pub address: u64,
    /// Line, 1-based.
    pub line: u32,
    /// Source file.
    pub file: String,
}

/// A whole dump, in order of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitDump {
    /// Process that wrote it.
    pub pid: u32,
    /// ELF number of the machine the code is for.
    pub machine: u32,
    /// Times are the machine's time-stamp counter, not nanoseconds.
    pub tsc: bool,
    /// Functions in the order made; a moved one is there twice.
    pub functions: Vec<JitFunction>,
    /// What could not be understood. A dump of a running engine may end within a record.
    pub problems: Vec<Problem>,
}

impl JitDump {
    /// Reads a dump of either byte order, up to where it is cut.
    ///
    /// # Errors
    /// [`ImageError::BadJitdump`] when the header is not one.
    pub fn parse(dump: &[u8]) -> Result<Self, ImageError> {
        let bad = |detail: String| ImageError::BadJitdump { detail };
        let endian = match dump.first_chunk::<4>() {
            Some(m) if u32::from_le_bytes(*m) == MAGIC => Endianness::Little,
            Some(m) if u32::from_be_bytes(*m) == MAGIC => Endianness::Big,
            other => return Err(bad(format!("it begins with {other:02x?}"))),
        };
        let mut header = Cursor { dump, at: 4, end: dump.len(), endian };
        let fields = header.header().ok_or_else(|| bad(format!("it has {} of {HEADER} header bytes", dump.len())))?;
        let mut out = Self { functions: Vec::new(), problems: Vec::new(), ..fields.dump };
        out.records(Cursor { dump, at: fields.size.max(HEADER), end: dump.len(), endian });
        Ok(out)
    }

    /// The functions as they are at the end, by address; later ones win.
    #[must_use]
    pub fn table(&self) -> FunctionTable {
        let mut layers = Layers::default();
        for f in self.functions.iter().filter(|f| f.size > 0) {
            layers.put(f.address, f.size, f.name.as_bytes());
        }
        layers.into_table()
    }

    fn records(&mut self, mut rest: Cursor<'_>) {
        let mut pending = Vec::new();
        while rest.at < rest.end {
            let start = rest.at;
            let Some((id, time, mut body)) = rest.record() else {
                self.problems.push(Problem::new(
                    format!("jitdump record at {start:#x}"),
                    "the file ends within it or its size is wrong; what follows is not read",
                ));
                return;
            };
            let understood = match id {
                0 => self.load(time, &mut body, &mut pending),
                1 => self.relocate(time, &mut body),
                2 => body.lines().map(|(address, lines)| pending.push((address, lines))),
                // Closing and unwind information, and what later versions add.
                _ => Some(()),
            };
            if understood.is_none() {
                self.problems
                    .push(Problem::new(format!("jitdump record at {start:#x}"), "its fields are cut; left out"));
            }
        }
    }

    /// A new function; its line table, if there is one, came just before.
    fn load(&mut self, time: u64, body: &mut Cursor<'_>, pending: &mut Vec<(u64, Vec<JitLine>)>) -> Option<()> {
        body.skip(16)?; // pid, tid, vma
        let (address, size, index) = (body.u64()?, body.u64()?, body.u64()?);
        let name = body.string()?;
        let code = body.at..body.at.checked_add(usize::try_from(size).ok()?)?;
        let lines = pending.iter().rposition(|(at, _)| *at == address).map(|i| pending.swap_remove(i).1);
        pending.clear();
        if code.end > body.end || address.checked_add(size).is_none() {
            return None;
        }
        self.functions.push(JitFunction { time, address, size, index, name, code, lines: lines.unwrap_or_default() });
        Some(())
    }

    fn relocate(&mut self, time: u64, body: &mut Cursor<'_>) -> Option<()> {
        body.skip(16)?; // pid, tid, vma
        let (old, new, size, index) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
        new.checked_add(size)?;
        let from = self.functions.iter().rfind(|f| f.index == index && f.address == old)?;
        let mut moved = JitFunction { time, address: new, size, ..from.clone() };
        for line in &mut moved.lines {
            line.address = line.address.wrapping_sub(old).wrapping_add(new);
        }
        self.functions.push(moved);
        Some(())
    }
}

/// The header's fields, and how long it says it is.
struct Header {
    dump: JitDump,
    size: usize,
}

/// Reads numbers within one record.
struct Cursor<'a> {
    dump: &'a [u8],
    at: usize,
    end: usize,
    endian: Endianness,
}

impl<'a> Cursor<'a> {
    fn header(&mut self) -> Option<Header> {
        let (_version, size, machine, _pad, pid) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let (_time, flags) = (self.u64()?, self.u64()?);
        let dump = JitDump { pid, machine, tsc: flags & 1 != 0, functions: Vec::new(), problems: Vec::new() };
        Some(Header { dump, size: size as usize })
    }

    /// The next record's id, time and body.
    fn record(&mut self) -> Option<(u32, u64, Cursor<'a>)> {
        let start = self.at;
        let (id, size, time) = (self.u32()?, self.u32()? as usize, self.u64()?);
        let end = start.checked_add(size).filter(|end| size >= RECORD && *end <= self.end)?;
        let body = Cursor { dump: self.dump, at: self.at, end, endian: self.endian };
        self.at = end;
        Some((id, time, body))
    }

    fn lines(&mut self) -> Option<(u64, Vec<JitLine>)> {
        let (function, count) = (self.u64()?, self.u64()?);
        let mut lines: Vec<JitLine> = Vec::new();
        for _ in 0..count {
            let (address, line, _discriminator) = (self.u64()?, self.u32()?, self.u32()?);
            let file = self.string()?;
            // "Same as before" is written as the two bytes ff 00.
            let same = file.as_bytes() == "\u{fffd}".as_bytes();
            let file = if same { lines.last().map_or_else(String::new, |l| l.file.clone()) } else { file };
            lines.push(JitLine { address, line, file });
        }
        lines.sort_by_key(|l| l.address);
        Some((function, lines))
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.take(bytes).map(|_| ())
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(bytes).filter(|end| *end <= self.end)?;
        let taken = self.dump.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(self.endian.read_u32(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(self.endian.read_u64(self.take(8)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<String> {
        let rest = self.dump.get(self.at..self.end)?;
        let length = rest.iter().position(|b| *b == 0)?;
        self.at += length + 1;
        Some(String::from_utf8_lossy(&rest[..length]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dump {
        bytes: Vec<u8>,
        little: bool,
    }

    impl Dump {
        fn new(little: bool) -> Self {
            let mut dump = Self { bytes: Vec::new(), little };
            dump.put32(&[MAGIC, 1, 40, 62, 0, 4242]);
            dump.put64(&[5, 1]);
            dump
        }

        fn put32(&mut self, words: &[u32]) {
            for w in words {
                self.bytes.extend(if self.little { w.to_le_bytes() } else { w.to_be_bytes() });
            }
        }

        fn put64(&mut self, words: &[u64]) {
            for w in words {
                self.bytes.extend(if self.little { w.to_le_bytes() } else { w.to_be_bytes() });
            }
        }

        fn record(&mut self, id: u32, time: u64, body: impl FnOnce(&mut Self)) {
            let start = self.bytes.len();
            self.put32(&[id, 0]);
            self.put64(&[time]);
            body(self);
            let size = (self.bytes.len() - start) as u32;
            let size = if self.little { size.to_le_bytes() } else { size.to_be_bytes() };
            self.bytes[start + 4..start + 8].copy_from_slice(&size);
        }

        fn load(&mut self, time: u64, address: u64, index: u64, name: &[u8], code: &[u8]) {
            self.record(0, time, |d| {
                d.put32(&[4242, 4242]);
                d.put64(&[address, address, code.len() as u64, index]);
                d.bytes.extend(name);
                d.bytes.push(0);
                d.bytes.extend(code);
            });
        }
    }

    fn example(little: bool) -> Vec<u8> {
        let mut d = Dump::new(little);
        d.record(2, 9, |d| {
            d.put64(&[0x1000, 2]);
            d.put64(&[0x1000]);
            d.put32(&[7, 0]);
            d.bytes.extend(b"a.js\0");
            d.put64(&[0x1002]);
            d.put32(&[8, 0]);
            d.bytes.extend(b"\xff\0");
        });
        d.load(10, 0x1000, 1, b"f", &[0x90, 0x90, 0xc3]);
        d.load(11, 0x2000, 2, b"g", &[0xc3]);
        d.record(1, 12, |d| {
            d.put32(&[4242, 4242]);
            d.put64(&[0, 0x1000, 0x3000, 3, 1]);
        });
        d.record(3, 13, |_| {});
        d.bytes
    }

    #[test]
    fn loads_moves_and_lines_in_both_byte_orders() {
        for little in [true, false] {
            let bytes = example(little);
            let dump = JitDump::parse(&bytes).unwrap();
            assert_eq!((dump.pid, dump.machine, dump.tsc), (4242, 62, true));
            assert_eq!(dump.problems, []);
            let got: Vec<_> =
                dump.functions.iter().map(|f| (f.time, f.address, &*f.name, &bytes[f.code.clone()])).collect();
            assert_eq!(
                got,
                [
                    (10, 0x1000, "f", &[0x90, 0x90, 0xc3][..]),
                    (11, 0x2000, "g", &[0xc3]),
                    (12, 0x3000, "f", &[0x90, 0x90, 0xc3])
                ]
            );
            let lines: Vec<_> = dump.functions[2].lines.iter().map(|l| (l.address, l.line, &*l.file)).collect();
            assert_eq!(lines, [(0x3000, 7, "a.js"), (0x3002, 8, "a.js")]);
            assert_eq!(dump.table().functions().len(), 3);
        }
    }

    #[test]
    fn a_cut_dump_keeps_what_is_whole() {
        let bytes = example(true);
        for cut in 0..bytes.len() {
            match JitDump::parse(&bytes[..cut]) {
                Ok(dump) => assert!(dump.functions.len() < 3 || cut + 16 >= bytes.len(), "cut at {cut}"),
                Err(e) => assert!(cut < HEADER, "cut at {cut}: {e}"),
            }
        }
    }
}
