//! The words shared across address spaces, mirrored from `include/whither_abi.h` (what the kernel-side
//! programs write and the tool reads) and `include/whither_agent.h` (module [`agent`]). Plain data with exact layouts; a test compares every size and
//! offset with what the C compiler makes of the header. Nothing here is stored on disk.

#![forbid(unsafe_code)]

pub mod agent;
pub mod causal;
mod lost;
pub mod pace;
pub mod pairs;
pub mod path;
pub mod regs;
pub mod uprobe;

/// Bits of a program counter in [`Entry::place`].
pub const PC_BITS: u32 = 57;
/// Bits of an event number in [`Entry::place`].
pub const EVENT_BITS: u32 = 4;
/// Bits of a process or thread id in [`Entry::who`].
pub const PID_BITS: u32 = 22;
/// Low bits of a life's tag, in [`Entry::who`].
pub const TAG_LOW_BITS: u32 = 10;
/// Bits of a life's tag; the high ones are in [`Entry::place`].
pub const TAG_BITS: u32 = 13;
/// `WH_PHASES`.
pub const PHASES: u32 = 1024;
/// Entries of a bucket.
pub const WAYS: usize = 4;
/// Most frames of a kernel or user stack.
pub const MAX_FRAMES: usize = 127;
/// Most bytes of user stack in one record.
pub const MAX_STACK: usize = 65_536;
/// Words of the frame area in front of the stack bytes in a [`StackHead`] record of mode "bytes".
pub const FRAME_AREA: usize = 2 * (MAX_FRAMES + 1);

/// [`Task::kind`] of a task record.
pub const KIND_TASK: u32 = 1;
/// [`StackHead::kind`] of a stack record.
pub const KIND_STACK: u32 = 2;
/// [`regs::Regs::kind`] of a register record.
pub const KIND_REGS: u32 = 3;
/// [`Task::why`]: seen by the start-up scan.
pub const WHY_SEEN: u32 = 0;
/// [`Task::why`]: just forked.
pub const WHY_FORKED: u32 = 1;
/// [`Task::why`]: the process has unmapped code; [`Task::tag`] is the number of the phase that begins.
pub const WHY_UNMAPPED: u32 = 3;
/// [`Task::why`]: just exec'ed.
pub const WHY_EXECED: u32 = 2;

/// One aggregated sample, `struct wh_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// High bits of the tag, event and program counter.
    pub place: u64,
    /// Low bits of the tag, and process or thread id.
    pub who: u32,
    /// Samples.
    pub count: u32,
}

impl Entry {
    /// Program counter, sign-extended as the CPU does.
    #[must_use]
    pub fn pc(&self) -> u64 {
        pc_of(self.place)
    }

    /// Number of the event, as given when it was attached.
    #[must_use]
    pub fn event(&self) -> u16 {
        event_of(self.place)
    }

    /// Process id, or thread id when threads are kept apart.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.who & ((1 << PID_BITS) - 1)
    }

    /// Tag of the life.
    #[must_use]
    pub fn tag(&self) -> u16 {
        (self.who >> PID_BITS) as u16 | ((self.place >> (PC_BITS + EVENT_BITS)) << TAG_LOW_BITS) as u16
    }
}

/// Program counter of a packed place.
#[must_use]
pub fn pc_of(place: u64) -> u64 {
    (((place << (64 - PC_BITS)) as i64) >> (64 - PC_BITS)) as u64
}

/// Event number of a packed place.
#[must_use]
pub fn event_of(place: u64) -> u16 {
    ((place >> PC_BITS) & ((1 << EVENT_BITS) - 1)) as u16
}

/// State of one CPU, `struct wh_cpu`: one cache line.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Set while a handler runs.
    pub busy: u32,
    /// Next victim within a bucket.
    pub victim: u32,
    /// State of the handler's random numbers; must start non-zero.
    pub draw: u32,
    /// Register records lost because the ring was full; wraps.
    pub regs_drop: u32,
    /// Samples that found their entry.
    pub hit: u64,
    /// Samples that made a new entry.
    pub miss: u64,
    /// Samples lost because the overflow ring was full.
    pub drop: u64,
    /// Samples of the idle task.
    pub idle: u64,
    /// Stacks lost because the ring was full.
    pub stack_drop: u64,
    /// Samples outside the chosen processes.
    pub other: u64,
}

/// A task exists, was forked or has exec'ed; `struct wh_task`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// [`KIND_TASK`].
    pub kind: u32,
    /// One of the `WHY_` constants.
    pub why: u32,
    /// Thread-group id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// Tag of the life.
    pub tag: u32,
    /// Thread-group id of the parent.
    pub parent: u32,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// Start of the process, `CLOCK_MONOTONIC` ns.
    pub start: u64,
    /// Cgroup id in the unified hierarchy.
    pub cgroup: u64,
    /// Command name, NUL-padded.
    pub comm: [u8; 16],
}

/// Head of a stack record, `struct wh_stack`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackHead {
    /// [`KIND_STACK`].
    pub kind: u32,
    /// As [`Entry::who`].
    pub who: u32,
    /// Thread-group id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// As [`Entry::place`].
    pub place: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// User instruction pointer, 0 for a kernel thread.
    pub ip: u64,
    /// User stack pointer.
    pub sp: u64,
    /// User frame pointer register.
    pub bp: u64,
    /// Kernel addresses that follow.
    pub n_kernel: u32,
    /// User addresses that follow those.
    pub n_user: u32,
    /// Stack bytes that follow the frame area.
    pub bytes: u32,
    /// Bit n: the bytes in the n-th page from `sp` on could not be read.
    pub holes: u32,
}

/// Little-endian words read at fixed places of a record; `None` when it is too short.
pub(crate) struct Words<'a>(pub(crate) &'a [u8]);

impl Words<'_> {
    pub(crate) fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }
    pub(crate) fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

impl Entry {
    /// Bytes of an entry.
    pub const SIZE: usize = 16;

    /// Reads an entry from a ring record; `None` when it is short.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        Some(Self { place: w.u64(0)?, who: w.u32(8)?, count: w.u32(12)? })
    }
}

impl Task {
    /// Bytes of a task record.
    pub const SIZE: usize = 64;

    /// Reads a task record; `None` when it is short or of another kind.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        let task = Self {
            kind: w.u32(0)?,
            why: w.u32(4)?,
            tgid: w.u32(8)?,
            tid: w.u32(12)?,
            tag: w.u32(16)?,
            parent: w.u32(20)?,
            time: w.u64(24)?,
            start: w.u64(32)?,
            cgroup: w.u64(40)?,
            comm: bytes.get(48..64)?.try_into().ok()?,
        };
        (task.kind == KIND_TASK).then_some(task)
    }

    /// Command name as text.
    #[must_use]
    pub fn comm(&self) -> String {
        let end = self.comm.iter().position(|&b| b == 0).unwrap_or(self.comm.len());
        String::from_utf8_lossy(&self.comm[..end]).into_owned()
    }
}

/// A stack record taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackRecord {
    /// Head.
    pub head: StackHead,
    /// Kernel addresses, innermost first.
    pub kernel: Vec<u64>,
    /// User addresses by frame pointers, innermost first.
    pub user: Vec<u64>,
    /// User stack from `head.sp` upwards.
    pub bytes: Vec<u8>,
}

/// What stands for bytes that could not be read: no address of a program, and not the 0 that ends a stack.
const UNREAD: u8 = 0xaa;
const PAGE: usize = 4096;

impl StackHead {
    /// Marks what could not be read; at the end it is left out.
    fn strike_holes(&self, stack: &mut Vec<u8>) {
        let before = self.sp as usize % PAGE;
        for page in (0..32).rev().filter(|n| self.holes >> n & 1 == 1) {
            let end = ((page + 1) * PAGE - before).min(stack.len());
            let start = (page * PAGE).saturating_sub(before).min(end);
            if end == stack.len() {
                stack.truncate(start);
            } else {
                stack[start..end].fill(UNREAD);
            }
        }
    }
}

impl StackRecord {
    const HEAD: usize = 72;

    /// Reads a stack record; `None` when lengths do not fit together.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let w = Words(bytes);
        let head = StackHead {
            kind: w.u32(0)?,
            who: w.u32(4)?,
            tgid: w.u32(8)?,
            tid: w.u32(12)?,
            place: w.u64(16)?,
            time: w.u64(24)?,
            ip: w.u64(32)?,
            sp: w.u64(40)?,
            bp: w.u64(48)?,
            n_kernel: w.u32(56)?,
            n_user: w.u32(60)?,
            bytes: w.u32(64)?,
            holes: w.u32(68)?,
        };
        let (nk, nu, nb) = (head.n_kernel as usize, head.n_user as usize, head.bytes as usize);
        if head.kind != KIND_STACK || nk > MAX_FRAMES || nu > MAX_FRAMES || nb > MAX_STACK {
            return None;
        }
        let words = |from: usize, n: usize| (0..n).map(|i| w.u64(Self::HEAD + (from + i) * 8)).collect();
        let kernel: Option<Vec<u64>> = words(0, nk);
        let user: Option<Vec<u64>> = words(nk, nu);
        let from = Self::HEAD + FRAME_AREA * 8;
        let mut stack = if nb == 0 { Vec::new() } else { bytes.get(from..from + nb)?.to_vec() };
        head.strike_holes(&mut stack);
        Some(Self { head, kernel: kernel?, user: user?, bytes: stack })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn pages_that_could_not_be_read_are_marked_or_left_out() {
        let head = StackHead { sp: 0x7ff0_0f00, holes: 0b11010, ..StackHead::default() };
        let mut stack = vec![1; 0x100 + 3 * PAGE + 16];
        head.strike_holes(&mut stack);
        // Pages: 0x100 bytes, hole, whole page, hole, hole of 16 bytes.
        assert_eq!(stack.len(), 0x100 + 2 * PAGE);
        assert!(stack[..0x100].iter().all(|b| *b == 1) && stack[0x100 + PAGE..].iter().all(|b| *b == 1));
        assert!(stack[0x100..0x100 + PAGE].iter().all(|b| *b == UNREAD));
    }

    /// Output of a C program that sees our headers.
    pub(crate) fn run_c(name: &str, program: &str) -> String {
        let dir = std::env::temp_dir().join(format!("whither-abi-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        let source = dir.join("layout.c");
        std::fs::write(&source, program).expect("writable");
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");
        let built = std::process::Command::new("cc")
            .args(["-I", include, "-o"])
            .arg(dir.join("layout"))
            .arg(&source)
            .status()
            .expect("a C compiler is needed to build whither at all");
        assert!(built.success());
        let out = std::process::Command::new(dir.join("layout")).output().expect("just built");
        std::fs::remove_dir_all(&dir).expect("our own directory");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    #[test]
    fn program_counters_survive_packing() {
        for pc in [0, 0x40_1000, 0x7fff_ffff_f000, 0xffff_ffff_8100_0000, 0xff11_0000_0000_0000_u64] {
            let place = (pc & ((1 << PC_BITS) - 1)) | (9 << PC_BITS);
            assert_eq!((pc_of(place), event_of(place)), (pc, 9));
        }
    }

    #[test]
    fn a_tag_is_put_together_from_both_words() {
        let tag = 0x1abc_u64 & ((1 << TAG_BITS) - 1);
        let place = 0x40_1000 | (9 << PC_BITS) | (tag >> TAG_LOW_BITS) << (PC_BITS + EVENT_BITS);
        let entry = Entry { place, who: 77 | (tag as u32) << PID_BITS, count: 1 };
        assert_eq!((entry.pc(), entry.event(), entry.id(), entry.tag()), (0x40_1000, 9, 77, tag as u16));
    }

    #[test]
    fn layouts_are_the_c_compilers() {
        let mut rows = String::new();
        macro_rules! row {
            ($c:literal, $rust:ident: $($field:ident = $name:literal),*) => {
                rows += &format!("{} {}", $c, size_of::<$rust>());
                $( rows += &format!(" {}", offset_of!($rust, $field)); let _ = $name; )*
                rows += "\n";
            };
        }
        row!("wh_entry", Entry: place = "where", who = "who", count = "count");
        row!("wh_cpu", Cpu: busy = "busy", draw = "draw", hit = "hit", stack_drop = "stack_drop");
        row!("wh_task", Task: tag = "tag", time = "time", cgroup = "cgroup", comm = "comm");
        row!("wh_stack", StackHead: place = "where", ip = "ip", n_kernel = "n_kernel", bytes = "bytes");
        let program = r#"
            #include <stdio.h>
            #include <stddef.h>
            #include "whither_abi.h"
            #define O(s, f) printf(" %zu", offsetof(struct s, f));
            #define S(s) printf(#s " %zu", sizeof(struct s));
            int main(void) {
                S(wh_entry) O(wh_entry, where) O(wh_entry, who) O(wh_entry, count) puts("");
                S(wh_cpu) O(wh_cpu, busy) O(wh_cpu, draw) O(wh_cpu, hit) O(wh_cpu, stack_drop) puts("");
                S(wh_task) O(wh_task, tag) O(wh_task, time) O(wh_task, cgroup) O(wh_task, comm) puts("");
                S(wh_stack) O(wh_stack, where) O(wh_stack, ip) O(wh_stack, n_kernel) O(wh_stack, bytes) puts("");
            }"#;
        assert_eq!(run_c("kernel", program), rows);
    }

    #[test]
    fn records_read_back_or_are_refused() {
        let mut bytes = vec![0_u8; 72 + 8 * 3];
        bytes[0] = 2;
        bytes[56] = 1;
        bytes[60] = 2;
        bytes[72] = 0xaa;
        let r = StackRecord::read(&bytes).expect("well formed");
        assert_eq!((r.kernel, r.user.len()), (vec![0xaa], 2));
        for n in 0..bytes.len() {
            assert!(StackRecord::read(&bytes[..n]).is_none(), "cut at {n}");
        }
        bytes[56] = 200;
        assert!(StackRecord::read(&bytes).is_none(), "too many frames");
    }
}
