//! What must hold of a `perf.data` file before its reader may trust it: every size and offset in the
//! header, the feature sections, the event descriptions and the record headers lies inside the file.
//! Contents are not looked at here.
//!
//! ```text
//! 0    "PERFILE2"   8 header size   16 attribute size
//! 24   attribute section, data section, event types section (offset, size each)
//! 72   256 feature bits
//! then records from the data section's offset; after them one (offset, size) per feature bit set
//! ```

use std::io::{self, Read, Seek, SeekFrom};

const HEADER: u64 = 104;
const PIPE_HEADER: u64 = 16;
const EVENT_DESC: u32 = 12;
/// Feature bits from here on are another tool's (Android's simpleperf).
const FIRST_FOREIGN: u32 = 128;
const AUXTRACE: u32 = 71;

/// Why a file is not imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A directory, a pipe.
    #[error("it is not a plain file; give the file that perf record wrote")]
    NotAFile,
    /// Something else.
    #[error("it is not a perf.data file (it does not begin with PERFILE2)")]
    NotPerfData,
    /// Old or foreign.
    #[error("its format is not supported: {0}")]
    Unsupported(&'static str),
    /// `perf record` did not come to its end.
    #[error("perf record was ended before it wrote the file's header; record again and let it finish")]
    Unfinished,
    /// Sizes that do not fit.
    #[error("it is damaged: {what} at byte {offset} does not fit into the file")]
    Damaged {
        /// Which part.
        what: &'static str,
        /// Where.
        offset: u64,
    },
    /// The reader's complaint.
    #[error("it is damaged: {0}")]
    Unreadable(#[from] linux_perf_data::Error),
    /// No samples at all.
    #[error("it holds no samples; look at `perf report --header-only` to see what was recorded")]
    Empty,
}

#[derive(Clone, Copy, Debug)]
struct Section {
    offset: u64,
    size: u64,
}

impl Section {
    fn at(bytes: &[u8], at: usize) -> Self {
        Self { offset: u64_at(bytes, at), size: u64_at(bytes, at + 8) }
    }

    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }

    fn inside(self, length: u64, what: &'static str) -> Result<Self, Refusal> {
        match self.end() {
            Some(end) if end <= length => Ok(self),
            _ => Err(Refusal::Damaged { what, offset: self.offset }),
        }
    }
}

/// Checks the whole file.
pub(super) fn check<R: Read + Seek>(reader: &mut R) -> Result<(), Refusal> {
    let length = reader.seek(SeekFrom::End(0))?;
    let header = header(reader, length)?;
    let attributes = Section::at(&header, 24).inside(length, "the attribute section")?;
    let data = Section::at(&header, 40).inside(length, "the data section")?;
    if data.size == 0 {
        return Err(Refusal::Unfinished);
    }
    let attribute_size = u64_at(&header, 16);
    if !(64..=4096).contains(&attribute_size) {
        return Err(Refusal::Damaged { what: "the attribute size", offset: attributes.offset });
    }
    Section::at(&header, 56).inside(length, "the event types section")?;
    features(reader, &header, data, length)?;
    records(reader, data)
}

fn header<R: Read + Seek>(reader: &mut R, length: u64) -> Result<[u8; HEADER as usize], Refusal> {
    reader.seek(SeekFrom::Start(0))?;
    let mut header = [0; HEADER as usize];
    if length < PIPE_HEADER {
        return Err(Refusal::NotPerfData);
    }
    let available = length.min(HEADER) as usize;
    reader.read_exact(&mut header[..available])?;
    match &header[..8] {
        b"PERFILE2" => {}
        b"2ELIFREP" => return Err(Refusal::Unsupported("it was written on a big-endian machine")),
        b"PERFFILE" => return Err(Refusal::Unsupported("it was written by a perf older than Linux 2.6.35")),
        _ => return Err(Refusal::NotPerfData),
    }
    match u64_at(&header, 8) {
        PIPE_HEADER => Err(Refusal::Unsupported(
            "it is a stream (perf record -o -), which does not describe its events in the form that is read here: record to a file \
             (perf record -o perf.data)",
        )),
        HEADER if length >= HEADER => Ok(header),
        _ => Err(Refusal::Damaged { what: "the header", offset: 8 }),
    }
}

fn features<R: Read + Seek>(reader: &mut R, header: &[u8], data: Section, length: u64) -> Result<(), Refusal> {
    let bits = (0..256).filter(|bit| header[72 + bit / 8] & (1 << (bit % 8)) != 0);
    let bits: Vec<u32> = bits.map(|bit| bit as u32).collect();
    if bits.iter().any(|bit| *bit >= FIRST_FOREIGN) {
        return Err(Refusal::Unsupported("it was written by simpleperf"));
    }
    let at = data.offset + data.size;
    let table = Section { offset: at, size: bits.len() as u64 * 16 }.inside(length, "the feature table")?;
    let table = bytes(reader, table)?;
    let mut total = 0u64;
    let mut described = None;
    for (i, bit) in bits.iter().enumerate() {
        let section = Section::at(&table, i * 16).inside(length, "a feature section")?;
        // Sections do not overlap, so together they are no larger than the file.
        total = total.saturating_add(section.size);
        if total > length {
            return Err(Refusal::Damaged { what: "a feature section", offset: section.offset });
        }
        if *bit == EVENT_DESC {
            described = Some(section);
        }
    }
    let section = described.ok_or(Refusal::Unsupported("it does not describe its events (HEADER_EVENT_DESC)"))?;
    let damaged = Refusal::Damaged { what: "the event description", offset: section.offset };
    event_descriptions(&bytes(reader, section)?).ok_or(damaged)
}

/// `u32 events, u32 attribute size; { attribute, u32 ids, u32 length, name, u64 id[] }[]`
fn event_descriptions(bytes: &[u8]) -> Option<()> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?) as usize);
    let (events, size) = (u32_at(0)?, u32_at(4)?);
    // The reader sets aside memory for so many events.
    if events == 0 || events > bytes.len() / 64 || size < 64 {
        return None;
    }
    let mut at = 8usize;
    for _ in 0..events {
        at = at.checked_add(size)?;
        let (ids, name) = (u32_at(at)?, u32_at(at.checked_add(4)?)?);
        at = at.checked_add(8)?.checked_add(name)?.checked_add(ids.checked_mul(8)?)?;
        if at > bytes.len() {
            return None;
        }
    }
    Some(())
}

/// Walks the headers of all records.
fn records<R: Read + Seek>(reader: &mut R, data: Section) -> Result<(), Refusal> {
    let damaged = |offset| Refusal::Damaged { what: "a record", offset };
    let end = data.offset + data.size;
    let mut at = data.offset;
    reader.seek(SeekFrom::Start(at))?;
    while at < end {
        let mut head = [0; 16];
        let available = (end - at).min(16) as usize;
        reader.read_exact(&mut head[..available])?;
        let kind = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let size = u64::from(u16::from_le_bytes([head[6], head[7]]));
        // The trace of a processor follows its record.
        let trace = if kind == AUXTRACE { u64_at(&head, 8) } else { 0 };
        let next = at.checked_add(size).and_then(|n| n.checked_add(trace)).filter(|n| size >= 8 && *n <= end);
        let next = next.ok_or_else(|| damaged(at))?;
        let skip = i64::try_from(next - at).map_err(|_| damaged(at))? - available as i64;
        reader.seek_relative(skip)?;
        at = next;
    }
    Ok(())
}

fn bytes<R: Read + Seek>(reader: &mut R, section: Section) -> Result<Vec<u8>, Refusal> {
    reader.seek(SeekFrom::Start(section.offset))?;
    let size = usize::try_from(section.size).map_err(|_| Refusal::NotPerfData)?;
    let mut bytes = vec![0; size];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
