//! Bodies of records, from bytes to values (perf_event_open(2), "MMAP layout"). Fields that import
//! does not need are stepped over; a body that is too short is no record.

use whither_kernel::records::{BranchEntry, MappedFile};

/// Which optional fields the samples of an event have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// `perf_event_attr.sample_type`.
    pub(super) sample: u64,
    /// `perf_event_attr.read_format`.
    pub(super) read: u64,
    /// An index comes before the branch stack (`PERF_SAMPLE_BRANCH_HW_INDEX`).
    pub(super) branch_index: bool,
    /// Which user registers there are (`perf_event_attr.sample_regs_user`).
    pub(super) user_registers: u64,
    /// Mappings tell build-ids (`perf_event_attr.build_id`).
    pub(super) build_ids: bool,
}

impl Layout {
    fn has(self, bit: u32) -> bool {
        self.sample & (1 << bit) != 0
    }
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Kernel,
    User,
    /// A guest, the hypervisor: nothing is known of its mappings.
    Elsewhere,
}

/// A sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) ip: u64,
    pub(super) mode: Mode,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) time: Option<u64>,
    pub(super) cpu: u32,
    pub(super) period: Option<u64>,
    /// Call chain with context markers, innermost first.
    pub(super) chain: Vec<u64>,
    /// Branches taken before, the last one first.
    pub(super) branches: Vec<BranchEntry>,
    /// User registers and stack, to be unwound.
    pub(super) user: Option<UserCopy>,
}

/// Where user code was, and the bytes from its stack pointer upwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserCopy {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
    pub(super) bytes: Vec<u8>,
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// `u32::MAX` for the kernel's own.
    pub(super) pid: u32,
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) offset: u64,
    pub(super) file: MappedFile,
    pub(super) path: String,
}

/// A record that import uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Sample(Sample),
    /// Executable memory.
    Mapping(Mapping),
    /// A new name; by exec, a new program.
    Comm {
        pid: u32,
        tid: u32,
        exec: bool,
        name: String,
    },
    /// A process or thread was born. `announced`: perf tells of one that ran already.
    Fork {
        pid: u32,
        parent: u32,
        tid: u32,
        /// The thread that made it.
        by: u32,
        announced: bool,
    },
    Exit {
        pid: u32,
        tid: u32,
    },
    Lost(u64),
    LostSamples(u64),
    Throttled,
    /// A BPF program or trampoline came or went.
    Ksymbol {
        address: u64,
        length: u32,
        gone: bool,
        name: String,
    },
    Other,
}

const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;
const KSYMBOL: u32 = 17;

const MISC_MODE: u16 = 7;
/// On MMAP: data; on COMM: by exec; on FORK: announced by perf.
const MISC_13: u16 = 1 << 13;
const MISC_BUILD_ID: u16 = 1 << 14;
const PROT_EXEC: u32 = 4;

/// Decodes a record; `None` when its body is too short.
pub(super) fn decode(kind: u32, misc: u16, body: &[u8], layout: Layout) -> Option<Entry> {
    let mut c = Cursor(body);
    Some(match kind {
        SAMPLE => Entry::Sample(sample(&mut c, misc, layout)?),
        MMAP | MMAP2 => mapping(&mut c, misc, kind == MMAP2, layout.build_ids)?,
        COMM => {
            let (pid, tid) = (c.u32()?, c.u32()?);
            Entry::Comm { pid, tid, exec: misc & MISC_13 != 0, name: c.text() }
        }
        FORK => {
            let (pid, parent, tid, by) = (c.u32()?, c.u32()?, c.u32()?, c.u32()?);
            Entry::Fork { pid, parent, tid, by, announced: misc & MISC_13 != 0 }
        }
        EXIT => {
            let (pid, _, tid) = (c.u32()?, c.u32()?, c.u32()?);
            Entry::Exit { pid, tid }
        }
        LOST => {
            c.u64()?;
            Entry::Lost(c.u64()?)
        }
        LOST_SAMPLES => Entry::LostSamples(c.u64()?),
        THROTTLE => Entry::Throttled,
        KSYMBOL => {
            let (address, length, _) = (c.u64()?, c.u32()?, c.u16()?);
            let gone = c.u16()? & 1 != 0;
            Entry::Ksymbol { address, length, gone, name: c.text() }
        }
        _ => Entry::Other,
    })
}

fn mapping(c: &mut Cursor<'_>, misc: u16, second: bool, build_ids: bool) -> Option<Entry> {
    let (pid, _) = (c.u32()?, c.u32()?);
    let (start, length, offset) = (c.u64()?, c.u64()?, c.u64()?);
    let mut file = MappedFile::Inode { major: 0, minor: 0, inode: 0 };
    let mut executable = misc & MISC_13 == 0;
    if second {
        file = mapped_file(c, misc, build_ids)?;
        let (protection, _) = (c.u32()?, c.u32()?);
        // Synthesised records of old perf versions have no protection.
        executable &= protection == 0 || protection & PROT_EXEC != 0;
    }
    let path = c.text();
    Some(if executable { Entry::Mapping(Mapping { pid, start, length, offset, file, path }) } else { Entry::Other })
}

/// The kernel leaves the flag of a listener who asked for build-ids in records of others, who get device and inode: those are
/// no build-ids of usual length.
fn mapped_file(c: &mut Cursor<'_>, misc: u16, build_ids: bool) -> Option<MappedFile> {
    let usual = matches!(c.0.first_chunk(), Some([16 | 20, 0, 0, 0]));
    if misc & MISC_BUILD_ID != 0 && (build_ids || usual) {
        let size = usize::from(c.take(4)?[0]);
        let id = c.take(20)?;
        return Some(MappedFile::BuildId(id.get(..size)?.to_vec()));
    }
    let (major, minor, inode, _) = (c.u32()?, c.u32()?, c.u64()?, c.u64()?);
    Some(MappedFile::Inode { major, minor, inode })
}

/// Fields come in the order of the kernel's `perf_output_sample`, each only if its bit is set.
fn sample(c: &mut Cursor<'_>, misc: u16, layout: Layout) -> Option<Sample> {
    if layout.has(16) {
        c.u64()?; // identifier: has served to find the event
    }
    let ip = if layout.has(0) { c.u64()? } else { 0 };
    let (pid, tid) = if layout.has(1) { (c.u32()?, c.u32()?) } else { (0, 0) };
    let time = if layout.has(2) { Some(c.u64()?) } else { None };
    for bit in [3, 6, 9] {
        // address, id, stream id
        if layout.has(bit) {
            c.u64()?;
        }
    }
    let cpu = if layout.has(7) { u32::try_from(c.u64()? & 0xffff_ffff).ok()? } else { 0 };
    let period = if layout.has(8) { Some(c.u64()?) } else { None };
    if layout.has(4) {
        skip_read(c, layout.read)?;
    }
    let chain = if layout.has(5) { chain(c)? } else { Vec::new() };
    if layout.has(10) {
        let raw = usize::try_from(c.u32()?).ok()?;
        c.take(raw)?;
    }
    let branches = if layout.has(11) { branches(c, layout.branch_index)? } else { Vec::new() };
    let registers = if layout.has(12) { user_registers(c, layout.user_registers)? } else { None };
    let bytes = if layout.has(13) { user_stack(c)? } else { Vec::new() };
    let user = registers.filter(|_| !bytes.is_empty()).map(|[ip, sp, bp]| UserCopy { ip, sp, bp, bytes });
    Some(Sample { ip, mode: mode(misc), pid, tid, time, cpu, period, chain, branches, user })
}

fn mode(misc: u16) -> Mode {
    match misc & MISC_MODE {
        1 => Mode::Kernel,
        2 => Mode::User,
        _ => Mode::Elsewhere,
    }
}

/// Counter values: of one event, or of a group (`read_format`: time enabled, time running, id,
/// group, lost).
fn skip_read(c: &mut Cursor<'_>, format: u64) -> Option<()> {
    let has = |bit: u32| usize::from(format & (1 << bit) != 0);
    let (times, per_event) = (has(0) + has(1), 1 + has(2) + has(4));
    let words = if has(3) == 1 {
        let events = usize::try_from(c.u64()?).ok()?;
        events.checked_mul(per_event)?.checked_add(times)?
    } else {
        times + per_event
    };
    c.take(words.checked_mul(8)?).map(|_| ())
}

fn chain(c: &mut Cursor<'_>) -> Option<Vec<u64>> {
    let length = usize::try_from(c.u64()?).ok()?;
    let words = c.take(length.checked_mul(8)?)?;
    Some(words.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("chunks of 8"))).collect())
}

/// `[ip, sp, bp]` of 64-bit x86 code; `None` inside for a sample without registers, or of other code.
fn user_registers(c: &mut Cursor<'_>, mask: u64) -> Option<Option<[u64; 3]>> {
    const ABI_64: u64 = 2;
    const IP: u32 = 8;
    const SP: u32 = 7;
    const BP: u32 = 6;
    let abi = c.u64()?;
    if abi == 0 {
        return Some(None);
    }
    let words = c.take(mask.count_ones() as usize * 8)?;
    let register = |bit: u32| {
        let at = (mask & ((1 << bit) - 1)).count_ones() as usize * 8;
        let there = mask & (1 << bit) != 0;
        there.then(|| words[at..at + 8].try_into().map(u64::from_le_bytes).expect("counted above"))
    };
    let all = || Some([register(IP)?, register(SP)?, register(BP)?]);
    Some(if abi == ABI_64 { all() } else { None })
}

/// The part of the copy that was filled.
fn user_stack(c: &mut Cursor<'_>) -> Option<Vec<u8>> {
    let size = usize::try_from(c.u64()?).ok()?;
    if size == 0 {
        return Some(Vec::new());
    }
    let copy = c.take(size)?;
    let filled = usize::try_from(c.u64()?).ok()?;
    Some(copy[..filled.min(size)].to_vec())
}

/// The index is missing where there is no stack at all.
fn branches(c: &mut Cursor<'_>, index: bool) -> Option<Vec<BranchEntry>> {
    let length = usize::try_from(c.u64()?).ok()?;
    if index && length > 0 {
        c.u64()?;
    }
    let entries = c.take(length.checked_mul(BranchEntry::SIZE)?)?;
    Some(entries.chunks_exact(BranchEntry::SIZE).map(BranchEntry::read).collect())
}

/// Little-endian reader that stops at the end.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    /// Up to the zero byte.
    fn text(&mut self) -> String {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping_of(file: [u32; 6], build_ids: bool) -> MappedFile {
        let layout = Layout { sample: 0, read: 0, branch_index: false, user_registers: 0, build_ids };
        let mut body: Vec<u8> = [7_u32, 7].iter().flat_map(|n| n.to_le_bytes()).collect();
        body.extend([0x1000_u64, 0x2000, 0].iter().flat_map(|n| n.to_le_bytes()));
        body.extend(file.iter().chain(&[PROT_EXEC, 2]).flat_map(|n| n.to_le_bytes()));
        body.extend(b"/bin/x\0\0");
        match decode(MMAP2, MISC_BUILD_ID, &body, layout) {
            Some(Entry::Mapping(mapping)) => mapping.file,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_build_id_flag_of_another_listener_is_not_believed() {
        let inode = MappedFile::Inode { major: 254, minor: 1, inode: 77 };
        assert_eq!(mapping_of([254, 1, 77, 0, 5, 0], false), inode);
        let id: Vec<u8> = [1_u32, 2, 3, 4, 5].iter().flat_map(|n| n.to_le_bytes()).collect();
        for asked in [true, false] {
            assert_eq!(mapping_of([20, 1, 2, 3, 4, 5], asked), MappedFile::BuildId(id.clone()));
        }
    }
}
