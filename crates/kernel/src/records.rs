//! Perf ring records from bytes to values (perf_event_open(2), "MMAP layout"). Only the records and
//! fields that [`crate::perf::Attr`] asks for are understood; others become [`Body::Other`]. Records
//! that are short or contradict themselves are refused, never guessed.

use perf_event_open_sys::bindings as b;

/// A record with the identity every record of ours carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// CPU it was written on.
    pub cpu: u32,
    /// Process it was written in.
    pub pid: u32,
    /// Thread it was written in.
    pub tid: u32,
    /// Id of the event that wrote it.
    pub id: u64,
    /// What it says.
    pub body: Body,
}

/// Identity of a mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappedFile {
    /// GNU build-id as the kernel read it from the mapped pages.
    BuildId(Vec<u8>),
    /// Device and inode; 0 for anonymous memory.
    Inode {
        /// Major device number.
        major: u32,
        /// Minor device number.
        minor: u32,
        /// Inode number.
        inode: u64,
    },
}

/// A new mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mmap {
    /// Process.
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// File offset of the first byte.
    pub offset: u64,
    /// Identity of the file.
    pub file: MappedFile,
    /// Executable.
    pub exec: bool,
    /// Path as the process saw it, `//anon`, `[vdso]`, `[heap]`.
    pub path: String,
}

/// General registers as instructions number them (rax rcx rdx rbx rsp rbp rsi rdi r8..r15), and flags. They are the
/// target's secrets, so they do not print.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct UserRegisters {
    /// General registers.
    pub gpr: [u64; 16],
    /// Flags.
    pub flags: u64,
}

impl std::fmt::Debug for UserRegisters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserRegisters(..)")
    }
}

/// A branch that was taken, as the CPU recorded it (`struct perf_branch_entry`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchEntry {
    /// The branch; or what was to be executed when an interrupt or a fault came.
    pub from: u64,
    /// Where it led.
    pub to: u64,
    /// How it was predicted, how long it took, of which kind it was.
    pub flags: u64,
}

impl BranchEntry {
    /// Bytes of one.
    pub const SIZE: usize = 24;
    /// A transaction was given up here: what ran before it did not happen.
    const ABORT: u64 = 1 << 3;

    /// From its bytes; other lengths give zeros.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let word = |i: usize| {
            let word = bytes.get(8 * i..8 * i + 8).and_then(|w| w.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        Self { from: word(0), to: word(1), flags: word(2) }
    }

    /// Whether it was only guessed to be taken, and was not.
    #[must_use]
    pub fn is_wrong_path(&self) -> bool {
        const SPECULATION: u32 = 24;
        const WRONG_PATH: u64 = 1;
        self.flags >> SPECULATION & 3 == WRONG_PATH
    }

    /// Whether it gave up a transaction.
    #[must_use]
    pub fn is_abort(&self) -> bool {
        self.flags & Self::ABORT != 0
    }
}

/// A sample as written to a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingSample {
    /// Program counter.
    pub ip: u64,
    /// Taken in user mode.
    pub user: bool,
    /// Distance to the sample before, in the event's unit; of an instance whose period was changed, that it was born with.
    pub period: u64,
    /// By an instance that a thread or process has inherited, where that is told.
    pub inherited: bool,
    /// Call chain with context markers, innermost first.
    pub chain: Vec<u64>,
    /// Branches taken before, the last one first.
    pub branches: Vec<BranchEntry>,
    /// All general registers of 64-bit user code, when the event asked for them.
    pub registers: Option<Box<UserRegisters>>,
    /// User bp, sp, ip when the event asked for registers and the thread has any.
    pub regs: Option<[u64; 3]>,
    /// User stack from sp upwards.
    pub stack: Vec<u8>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// New mapping.
    Mmap(Mmap),
    /// New name, by exec or by `prctl`.
    Comm {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// By exec: the process is a new program.
        exec: bool,
        /// The name.
        name: String,
    },
    /// A process (`pid != parent`) or thread was born.
    Fork {
        /// New process.
        pid: u32,
        /// Parent process.
        parent: u32,
        /// New thread.
        tid: u32,
        /// The thread that made it, whose name it has at first.
        by: u32,
    },
    /// A thread ended; the process too when `tid == pid`.
    Exit {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
    /// Records lost before this one.
    Lost(u64),
    /// The kernel held the event back.
    Throttle,
    /// A kernel symbol (BPF program, ftrace trampoline) came or went.
    Ksymbol {
        /// Address.
        address: u64,
        /// Bytes.
        length: u32,
        /// Went away.
        gone: bool,
        /// Name.
        name: String,
    },
    /// A sample.
    Sample(RingSample),
    /// Anything else.
    Other(u32),
}

/// What the samples of a ring carry beyond the fixed fields.
pub use crate::perf::SampleFields;

/// Reads one record as [`crate::ring::Ring::drain`] hands it out; `None` when it is malformed.
#[must_use]
pub fn parse(bytes: &[u8], fields: SampleFields) -> Option<Record> {
    let mut c = Cursor { bytes, at: 0 };
    let kind = c.u32()?;
    let misc = c.u16()?;
    let size = usize::from(c.u16()?);
    if size != bytes.len() {
        return None;
    }
    if kind == b::PERF_RECORD_SAMPLE {
        return sample(&mut c, misc, fields);
    }
    let length = if fields.instance { TRAILER + INSTANCE } else { TRAILER };
    let trailer_at = bytes.len().checked_sub(length).filter(|&at| at >= 8)?;
    let mut trailer = Cursor { bytes, at: trailer_at };
    let (pid, tid) = (trailer.u32()?, trailer.u32()?);
    let time = trailer.u64()?;
    if fields.instance {
        trailer.u64()?;
    }
    let cpu = trailer.u32()?;
    trailer.u32()?;
    let id = trailer.u64()?;
    c.bytes = &bytes[..trailer_at];
    let body = body(kind, misc, &mut c)?;
    Some(Record { time, cpu, pid, tid, id, body })
}

/// Which event wrote a sample, without reading the rest of it: events of one ring may differ in their fields.
#[must_use]
pub fn event_of_sample(bytes: &[u8]) -> Option<u64> {
    let mut c = Cursor { bytes, at: 0 };
    (c.u32()? == b::PERF_RECORD_SAMPLE).then_some(())?;
    c.u32()?;
    c.u64()
}

/// TID (8), TIME (8), CPU (8), IDENTIFIER (8).
const TRAILER: usize = 32;
/// `STREAM_ID`, between `TIME` and `CPU`.
const INSTANCE: usize = 8;

fn body(kind: u32, misc: u16, c: &mut Cursor<'_>) -> Option<Body> {
    Some(match kind {
        b::PERF_RECORD_MMAP2 => Body::Mmap(mmap(c)?),
        b::PERF_RECORD_COMM => {
            let (pid, tid) = (c.u32()?, c.u32()?);
            Body::Comm { pid, tid, exec: u32::from(misc) & b::PERF_RECORD_MISC_COMM_EXEC != 0, name: c.text() }
        }
        b::PERF_RECORD_FORK => {
            let (pid, parent, tid, by) = (c.u32()?, c.u32()?, c.u32()?, c.u32()?);
            Body::Fork { pid, parent, tid, by }
        }
        b::PERF_RECORD_EXIT => {
            let (pid, _, tid) = (c.u32()?, c.u32()?, c.u32()?);
            Body::Exit { pid, tid }
        }
        b::PERF_RECORD_LOST => {
            c.u64()?;
            Body::Lost(c.u64()?)
        }
        b::PERF_RECORD_LOST_SAMPLES => Body::Lost(c.u64()?),
        b::PERF_RECORD_THROTTLE => Body::Throttle,
        b::PERF_RECORD_KSYMBOL => {
            let (address, length) = (c.u64()?, c.u32()?);
            let (_, flags) = (c.u16()?, c.u16()?);
            Body::Ksymbol { address, length, gone: flags & 1 != 0, name: c.text() }
        }
        other => Body::Other(other),
    })
}

/// The flag that says "build-id" is not looked at: it may be there for another listener, who has asked for one.
fn mmap(c: &mut Cursor<'_>) -> Option<Mmap> {
    let (pid, _tid) = (c.u32()?, c.u32()?);
    let (start, length, offset) = (c.u64()?, c.u64()?, c.u64()?);
    let (major, minor, inode) = (c.u32()?, c.u32()?, c.u64()?);
    c.u64()?;
    let file = MappedFile::Inode { major, minor, inode };
    let (prot, _flags) = (c.u32()?, c.u32()?);
    let exec = prot & libc::PROT_EXEC as u32 != 0;
    Some(Mmap { pid, start, length, offset, file, exec, path: c.text() })
}

fn sample(c: &mut Cursor<'_>, misc: u16, fields: SampleFields) -> Option<Record> {
    let id = c.u64()?;
    let ip = c.u64()?;
    let (pid, tid) = (c.u32()?, c.u32()?);
    let time = c.u64()?;
    let inherited = fields.instance && c.u64()? != id;
    let cpu = c.u32()?;
    c.u32()?;
    let period = c.u64()?;
    let mode = u32::from(misc) & b::PERF_RECORD_MISC_CPUMODE_MASK;
    let mut s = RingSample { ip, user: mode == b::PERF_RECORD_MISC_USER, period, inherited, ..RingSample::default() };
    if fields.callchain {
        let n = usize::try_from(c.u64()?).ok().filter(|&n| n <= c.rest() / 8)?;
        s.chain = (0..n).map_while(|_| c.u64()).collect();
    }
    if fields.branches {
        let n = usize::try_from(c.u64()?).ok().filter(|&n| n <= c.rest() / BranchEntry::SIZE)?;
        s.branches = c.take(n * BranchEntry::SIZE)?.chunks_exact(BranchEntry::SIZE).map(BranchEntry::read).collect();
    }
    if fields.registers {
        registers(c, &mut s)?;
    } else if fields.user_stack > 0 && c.u64()? != 0 {
        s.regs = Some([c.u64()?, c.u64()?, c.u64()?]);
    }
    if fields.user_stack > 0 {
        let room = usize::try_from(c.u64()?).ok()?;
        if room > 0 {
            let bytes = c.take(room)?;
            let filled = usize::try_from(c.u64()?).ok()?.min(room);
            s.stack = bytes[..filled].to_vec();
        }
    }
    Some(Record { time, cpu, pid, tid, id, body: Body::Sample(s) })
}

/// [`crate::perf::ALL_REGS`], behind the word that tells whether it was 64-bit code.
fn registers(c: &mut Cursor<'_>, s: &mut RingSample) -> Option<()> {
    const ABI_64: u64 = 2;
    /// Encoding number of each of ax bx cx dx si di bp sp.
    const LOW: [usize; 8] = [0, 3, 1, 2, 6, 7, 5, 4];
    let abi = c.u64()?;
    if abi == 0 {
        return Some(());
    }
    let mut all = UserRegisters::default();
    for number in LOW {
        all.gpr[number] = c.u64()?;
    }
    let ip = c.u64()?;
    all.flags = c.u64()?;
    for number in 8..16 {
        all.gpr[number] = c.u64()?;
    }
    s.regs = Some([all.gpr[5], all.gpr[4], ip]);
    s.registers = (abi == ABI_64).then(|| Box::new(all));
    Some(())
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(n)?;
        let part = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(part)
    }
    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    fn rest(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }
    /// Text up to the first NUL, or all that is left.
    fn text(&mut self) -> String {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut r = Vec::new();
        r.extend(kind.to_le_bytes());
        r.extend(misc.to_le_bytes());
        r.extend(((8 + body.len() + TRAILER) as u16).to_le_bytes());
        r.extend(body);
        r.extend(7_u32.to_le_bytes());
        r.extend(8_u32.to_le_bytes());
        r.extend(99_u64.to_le_bytes());
        r.extend(1_u32.to_le_bytes());
        r.extend(0_u32.to_le_bytes());
        r.extend(5_u64.to_le_bytes());
        r
    }

    #[test]
    fn a_comm_by_exec() {
        let mut body = Vec::new();
        body.extend(7_u32.to_le_bytes());
        body.extend(7_u32.to_le_bytes());
        body.extend(b"cc1\0\0\0\0\0");
        let bytes = record(b::PERF_RECORD_COMM, b::PERF_RECORD_MISC_COMM_EXEC as u16, &body);
        let r = parse(&bytes, SampleFields::default()).expect("well formed");
        assert_eq!((r.time, r.cpu, r.pid, r.tid, r.id), (99, 1, 7, 8, 5));
        assert_eq!(r.body, Body::Comm { pid: 7, tid: 7, exec: true, name: "cc1".into() });
    }

    #[test]
    fn a_mapping_with_the_flag_of_another_listener() {
        let mut body = Vec::new();
        body.extend(7_u32.to_le_bytes());
        body.extend(7_u32.to_le_bytes());
        for w in [0x1000_u64, 0x2000, 0x3000] {
            body.extend(w.to_le_bytes());
        }
        body.extend(254_u32.to_le_bytes());
        body.extend(1_u32.to_le_bytes());
        body.extend(77_u64.to_le_bytes());
        body.extend(5_u64.to_le_bytes());
        body.extend((libc::PROT_EXEC as u32).to_le_bytes());
        body.extend(0_u32.to_le_bytes());
        body.extend(b"/bin/x\0\0");
        let bytes = record(b::PERF_RECORD_MMAP2, b::PERF_RECORD_MISC_MMAP_BUILD_ID as u16, &body);
        let Body::Mmap(m) = parse(&bytes, SampleFields::default()).expect("well formed").body else {
            panic!("not a mapping")
        };
        assert_eq!((m.start, m.length, m.offset, m.exec, m.path.as_str()), (0x1000, 0x2000, 0x3000, true, "/bin/x"));
        assert_eq!(m.file, MappedFile::Inode { major: 254, minor: 1, inode: 77 });
    }

    /// A sample with a call chain of one, these branches, and registers of 64-bit code.
    fn sample_with(branches: &[(u64, u64, u64)], claimed: u64) -> Vec<u8> {
        let mut words = vec![5, 0x1234, 7 | 8 << 32, 99, 1, 1000, 1, 0x1234, claimed];
        words.extend(branches.iter().flat_map(|b| [b.0, b.1, b.2]));
        words.push(2);
        words.extend(100..118_u64);
        let mut r = b::PERF_RECORD_SAMPLE.to_le_bytes().to_vec();
        r.extend((b::PERF_RECORD_MISC_USER as u16).to_le_bytes());
        r.extend(((8 + 8 * words.len()) as u16).to_le_bytes());
        r.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        r
    }

    #[test]
    fn samples_tell_whether_their_event_was_inherited() {
        let fields = SampleFields { instance: true, ..SampleFields::default() };
        let of = |instance: u64| {
            // Id, address, pid and tid, time, instance, CPU, period.
            let words = [5, 0x1234, 7 | 8 << 32, 99, instance, 1, 1000];
            let mut r = b::PERF_RECORD_SAMPLE.to_le_bytes().to_vec();
            r.extend((b::PERF_RECORD_MISC_USER as u16).to_le_bytes());
            r.extend(((8 + 8 * words.len()) as u16).to_le_bytes());
            r.extend(words.iter().flat_map(|w| w.to_le_bytes()));
            let record = parse(&r, fields).expect("well formed");
            let Body::Sample(s) = record.body else { panic!("no sample") };
            (record.time, record.cpu, s.period, s.inherited)
        };
        assert_eq!((of(5), of(6)), ((99, 1, 1000, false), (99, 1, 1000, true)));
    }

    #[test]
    fn a_sample_brings_the_branches_before_it() {
        let fields = SampleFields { callchain: true, registers: true, branches: true, ..SampleFields::default() };
        let wrong_path = 1 << 24;
        let bytes = sample_with(&[(0x20, 0x10, 2), (0x18, 0x1c, wrong_path), (0x50, 0x40, 8)], 3);
        let Body::Sample(s) = parse(&bytes, fields).expect("well formed").body else { panic!("no sample") };
        let told: Vec<(u64, u64)> = s.branches.iter().map(|b| (b.from, b.to)).collect();
        assert_eq!(told, [(0x20, 0x10), (0x18, 0x1c), (0x50, 0x40)]);
        let odd: Vec<(bool, bool)> = s.branches.iter().map(|b| (b.is_wrong_path(), b.is_abort())).collect();
        assert_eq!(odd, [(false, false), (true, false), (false, true)]);
        assert_eq!((s.chain, s.regs.map(|r| r[2])), (vec![0x1234], Some(108)), "what is around them");
        assert_eq!(event_of_sample(&bytes), Some(5));
        // A stack that claims more than the record holds.
        assert_eq!(parse(&sample_with(&[(0x20, 0x10, 2)], 1 << 60), fields), None);
        assert_eq!(parse(&sample_with(&[(0x20, 0x10, 2)], 20), fields), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(
            kind in 0..24_u32, misc in any::<u16>(), body in prop::collection::vec(any::<u8>(), 0..300),
            callchain in any::<bool>(), registers in any::<bool>(), user_stack in prop::sample::select(vec![0_u32, 8192]),
            branches in any::<bool>(), instance in any::<bool>(),
        ) {
            let fields = SampleFields { callchain, user_stack, registers, branches, instance };
            for bytes in [record(kind, misc, &body), body] {
                let _ = (parse(&bytes, fields), event_of_sample(&bytes));
            }
        }
    }
}
