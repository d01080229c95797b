//! The shared segment of the instrumentation engine, mirrored from `include/whither_agent.h`: regions,
//! structs and flag words with exact layouts. What a word means and who may write it is told in the
//! header; here stand only the types. A test compares every size and offset with the C compiler's.

pub use crate::lost::*;

/// `WH_AGENT_MAGIC`.
pub const AGENT_MAGIC: u64 = 0x746e656761687700;
/// Frames more than few: what a call costs with them tells what each costs.
pub const CALIBRATE_DEEP: u32 = 48;
/// Calibration calls a function with nothing in it, each call when all before it is done.
pub const CALIBRATE_ALONE: u32 = 0x10000;
/// The same by one path of 256 after the other, in no order.
pub const CALIBRATE_VARIED: u32 = 0x20000;

/// `WH_AGENT_ABI`.
pub const AGENT_ABI: u32 = 16;
/// `WH_MAX_POINTS`.
pub const MAX_POINTS: u32 = 65536;
/// `WH_MAX_MODULES`.
pub const MAX_MODULES: u32 = 4096;
/// `WH_MAX_RULES`.
pub const MAX_RULES: u32 = 65536;
/// `WH_MAX_ROWS`.
pub const MAX_ROWS: u32 = 16 << 20;
/// `WH_MAX_SITES`.
pub const MAX_SITES: u32 = 1 << 19;
/// `WH_MAX_FRAMES`.
pub const MAX_FRAMES: u32 = 1 << 24;
/// `WH_MAX_PATHS`.
pub const MAX_PATHS: u32 = 1 << 18;
/// `WH_MOST_DEPTH`.
pub const MOST_DEPTH: u32 = 4096;
/// `WH_SITE_HEADS`.
pub const SITE_HEADS: u32 = 2048;
/// `WH_MAX_HEADS`.
pub const MAX_HEADS: u32 = 1 << 19;
/// `WH_MAX_THREADS`.
pub const MAX_THREADS: u32 = 4096;
/// `WH_MAX_PAGES`.
pub const MAX_PAGES: u32 = 32768;
/// `WH_MAX_EXTRAS`.
pub const MAX_EXTRAS: u32 = 65536;
/// `WH_MAX_RINGS`.
pub const MAX_RINGS: u32 = 256;
/// `WH_RING_BYTES`.
pub const RING_BYTES: u32 = 1 << 20;
/// `WH_THREAD_STRIDE`.
pub const THREAD_STRIDE: u32 = 80 << 10;
/// `WH_AT_POINTS`.
pub const AT_POINTS: u64 = 0x10000;
/// `WH_AT_PASSED`.
pub const AT_PASSED: u64 = AT_POINTS + MAX_POINTS as u64 * 64;
/// `WH_AT_MODULES`.
pub const AT_MODULES: u64 = AT_PASSED + MAX_POINTS as u64 * 64;
/// `WH_AT_RULES`.
pub const AT_RULES: u64 = AT_MODULES + MAX_MODULES as u64 * 64;
/// `WH_AT_EXTRAS`.
pub const AT_EXTRAS: u64 = AT_RULES + MAX_RULES as u64 * 16;
/// `WH_AT_SITES`.
pub const AT_SITES: u64 = AT_EXTRAS + MAX_EXTRAS as u64 * 16;
/// `WH_AT_FRAMES`.
pub const AT_FRAMES: u64 = AT_SITES + MAX_SITES as u64 * 16;
/// `WH_AT_PATH_FRAMES`.
pub const AT_PATH_FRAMES: u64 = AT_FRAMES + MAX_FRAMES as u64 * 2;
/// `WH_AT_PATH_LINKS`.
pub const AT_PATH_LINKS: u64 = AT_PATH_FRAMES + MAX_PATHS as u64 * 4;
/// `WH_AT_PATH_POINTS`.
pub const AT_PATH_POINTS: u64 = AT_PATH_LINKS + MAX_PATHS as u64 * 4;
/// `WH_AT_SITE_HEADS`.
pub const AT_SITE_HEADS: u64 = AT_PATH_POINTS + MAX_PATHS as u64 * 2;
/// `WH_AT_RUN_HEADS`.
pub const AT_RUN_HEADS: u64 = AT_SITE_HEADS + SITE_HEADS as u64 * 4;
/// `WH_AT_PATH_HEADS`.
pub const AT_PATH_HEADS: u64 = AT_RUN_HEADS + MAX_HEADS as u64 * 4;
/// `WH_AT_ROWS`.
pub const AT_ROWS: u64 = AT_PATH_HEADS + MAX_HEADS as u64 * 4;
/// `WH_AT_PAGES`.
pub const AT_PAGES: u64 = AT_ROWS + MAX_ROWS as u64 * 8;
/// `WH_AT_THREADS`.
pub const AT_THREADS: u64 = AT_PAGES + MAX_PAGES as u64 * 4096;
/// `WH_AT_RINGS`.
pub const AT_RINGS: u64 = AT_THREADS + MAX_THREADS as u64 * THREAD_STRIDE as u64;
/// `WH_AT_PACE`.
pub const AT_PACE: u64 = AT_RINGS + MAX_RINGS as u64 * RING_BYTES as u64;
/// `WH_SEGMENT_BYTES`.
pub const SEGMENT_BYTES: u64 = AT_PACE + (64 << 20);
/// `WH_SIGNED`.
pub const SIGNED: u8 = 1;
/// `WH_DIRECTORY`.
pub const DIRECTORY: u32 = MAX_PATHS / 64;
/// `WH_ACTIVE`.
pub const ACTIVE: u32 = 1024;
/// `WH_EVENTS`.
pub const EVENTS: usize = 4;
/// `WH_EVENT_SET`.
pub const EVENT_SET: u32 = 1;
/// `WH_POINT_FREE`.
pub const POINT_FREE: u32 = 0;
/// `WH_POINT_ON`.
pub const POINT_ON: u32 = 1;
/// `WH_POINT_OFF`: patched, passes through.
pub const POINT_OFF: u32 = 2;
/// `WH_POINT_GONE`: bytes restored; numbers stay readable, the index is not used again.
pub const POINT_GONE: u32 = 3;
/// `WH_DO_EXIT`: balanced call: the exit is seen; without it only entries count.
pub const DO_EXIT: u32 = 1;
/// `WH_DO_PATH`: count by call path; without it by point.
pub const DO_PATH: u32 = 2;
/// `WH_DO_WALL`.
pub const DO_WALL: u32 = 4;
/// `WH_DO_CPU`.
pub const DO_CPU: u32 = 8;
/// `WH_DO_HIST`: log2 of wall ns, in the extra block.
pub const DO_HIST: u32 = 16;
/// `WH_DO_USAGE`: page faults and context switches by getrusage(RUSAGE_THREAD), extra block.
pub const DO_USAGE: u32 = 32;
/// `WH_DO_VALUES`: wh_extra list: sum integers, or emit words.
pub const DO_VALUES: u32 = 64;
/// `WH_DO_EMIT`: a record per call to the thread's ring.
pub const DO_EMIT: u32 = 128;
/// `WH_DO_LOADER`: not a user's point: the loader's list has changed (header.loads).
pub const DO_LOADER: u32 = 256;
/// `WH_DO_LOCK`: not a user's point: `prctl` or `syscall`, see `Point::lock`.
pub const DO_LOCK: u32 = 1024;
/// `WH_DO_EVENTS`: with `DO_VALUES` and `DO_EXIT`: some of the extras are events.
pub const DO_EVENTS: u32 = 2048;
/// `WH_DO_SITE`: not a user's point and no function: any instruction, see `Point::lock`.
pub const DO_SITE: u32 = 4096;
/// `WH_DO_UNWIND`: not a user's point: the function by which an unwinder looks for rules.
pub const DO_UNWIND: u32 = 8192;
/// Of points that no user has asked for.
pub const NOT_ASKED_FOR: u32 = DO_LOADER | DO_LOCK | DO_SITE | DO_UNWIND;
/// `WH_DO_FP`: no unwind rules wanted: follow frame pointers (code without .eh_frame).
pub const DO_FP: u32 = 512;
/// `WH_DO_ANY_CALLER`: with [`DO_EXIT`]: the exit is seen whoever the caller is.
pub const DO_ANY_CALLER: u32 = 16384;
/// `WH_DO_ANY_SLOT`.
pub const DO_ANY_SLOT: u32 = 32768;
/// `WH_ARG1`: rdi rsi rdx rcx r8 r9.
pub const ARG1: u8 = 1;
/// `WH_ARG2`.
pub const ARG2: u8 = 2;
/// `WH_ARG3`.
pub const ARG3: u8 = 3;
/// `WH_ARG4`.
pub const ARG4: u8 = 4;
/// `WH_ARG5`.
pub const ARG5: u8 = 5;
/// `WH_ARG6`.
pub const ARG6: u8 = 6;
/// `WH_STACK_ARG`: `number`-th word above the return address, 0 = the 7th argument.
pub const STACK_ARG: u8 = 7;
/// `WH_RET`: rax at exit.
pub const RET: u8 = 8;
/// `WH_CONST`.
pub const CONST: u8 = 9;
/// `WH_EVENT`: what the `number`-th event of the header has counted between entry and exit.
pub const EVENT: u8 = 10;
/// `WH_RULE_NONE`: no information: the path is truncated here, and says so.
pub const RULE_NONE: u32 = 0;
/// `WH_RULE_RSP`.
pub const RULE_RSP: u32 = 1;
/// `WH_RULE_RBP`.
pub const RULE_RBP: u32 = 2;
/// `WH_RULE_BIG`.
pub const RULE_BIG: u32 = 3;
/// `WH_RULE_SIGNAL`: return address of a signal frame; the path ends here, complete.
pub const RULE_SIGNAL: u32 = 4;
/// `WH_RULE_END`: outermost frame (return address undefined).
pub const RULE_END: u32 = 5;
/// `WH_RULE_FP`: only in sites: no row, frame pointers are followed from here.
pub const RULE_FP: u32 = 6;
/// Of [`Module::flags`]: code made at run time.
pub const MODULE_MADE: u32 = 1;
/// Of [`Module::flags`]: its rows cover most of its code.
pub const MODULE_COVERED: u32 = 2;
/// Of [`Module::flags`]: what has no rows keeps frame pointers.
pub const MODULE_FRAMED: u32 = 4;
/// `WH_RULE_LATER`: only in sites: to be looked up anew.
pub const RULE_LATER: u32 = 7;
/// `WH_AHEAD_NOT`: no memory may be mapped before it is touched.
pub const AHEAD_NOT: u32 = 0;
/// `WH_AHEAD_LATER`: it may, once there are more than a few threads.
pub const AHEAD_LATER: u32 = 1;
/// `WH_AHEAD_NOW`: it may.
pub const AHEAD_NOW: u32 = 2;
/// `WH_SHADOW_READY`: lowest bits of an entry of the agent's shadow set.
pub const SHADOW_READY: u64 = 0;
/// `WH_SHADOW_MAPPING`: a thread is at it.
pub const SHADOW_MAPPING: u64 = 1;
/// `WH_SHADOW_REFUSED`: its place is taken: entries there are only counted.
pub const SHADOW_REFUSED: u64 = 2;
/// `WH_SHADOW_SPAN`: not a block, but [`SHADOW_SPAN_BYTES`] that begin there.
pub const SHADOW_SPAN: u64 = 4;
/// `WH_SHADOW_SPAN_BYTES`.
pub const SHADOW_SPAN_BYTES: u64 = 0x2000_0000;
/// `WH_STARTED`.
pub const STARTED: u64 = 0;
/// `WH_START_MAGIC`: not a segment.
pub const START_MAGIC: u64 = 1;
/// `WH_START_ABI`: another layout.
pub const START_ABI: u64 = 2;
/// `WH_START_SHADOW`: another distance than the agent's unwind description has.
pub const START_SHADOW: u64 = 3;
/// `WH_START_FORK`: the kernel cannot wipe memory on fork.
pub const START_FORK: u64 = 4;
/// `WH_FRAME_SITE`: of a unit of frames: the low bits of its site.
pub const FRAME_SITE: u32 = (1 << FRAME_LOW) - 1;
/// `WH_FRAME_WIDE`: the others are in the unit before.
pub const FRAME_WIDE: u32 = 1 << 11;
/// `WH_FRAME_FP`: reached by frame pointers, not by a rule.
pub const FRAME_FP: u32 = 1 << 12;
/// `WH_FRAME_FIRST`: outermost of its run.
pub const FRAME_FIRST: u32 = 1 << 13;
/// `WH_FRAME_LAST`: innermost of its run.
pub const FRAME_LAST: u32 = 1 << 14;
/// `WH_FRAME_MORE`: no frame, but the other bits of the site of the next unit.
pub const FRAME_MORE: u32 = 1 << 15;
/// `WH_FRAME_LOW`: how many bits `FRAME_SITE` are.
pub const FRAME_LOW: u32 = 11;
/// `WH_RUN_HEAD`: units in front of the frames of a run.
pub const RUN_HEAD: u32 = 4;
/// `WH_FIRST_FRAME`: no run lies before it.
pub const FIRST_FRAME: u32 = 8;
/// `WH_LINK_NEXT`: of a path's link: the next of the same head.
pub const LINK_NEXT: u32 = MAX_PATHS - 1;
/// `WH_FOLDED`: with the path of a call in progress: it is part of a call of that path further out.
pub const FOLDED: u32 = 0x8000_0000;
/// `WH_LINK_SAME_SHIFT`: above it stands how many ancestors have the same point.
pub const LINK_SAME_SHIFT: u32 = 18;
/// `WH_ROOT_END`: nothing stands outside of the outermost frame, the path is whole.
pub const ROOT_END: u32 = 1;
/// `WH_ROOT_TRUNCATED`: no rule, no readable stack, or too deep: callers are missing.
pub const ROOT_TRUNCATED: u32 = 2;
/// `WH_ROOT_FULL`: of a point's own path.
pub const ROOT_FULL: u32 = 3;
/// `WH_ROOT_JOIN`: with a path: the call in progress of that path.
pub const ROOT_JOIN: u32 = 0x8000_0000;
/// `WH_THREAD_FREE`.
pub const THREAD_FREE: u32 = 0;
/// `WH_THREAD_LIVE`.
pub const THREAD_LIVE: u32 = 1;
/// `WH_THREAD_DEAD`.
pub const THREAD_DEAD: u32 = 2;
/// `WH_THREAD_CLAIMED`: a new thread is taking it.
pub const THREAD_CLAIMED: u32 = 3;

/// `struct wh_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `type`, as in `struct perf_event_attr`.
    pub kind: u32,
    /// `WH_EVENT_SET`.
    pub flags: u32,
    /// `config`.
    pub config: u64,
}

/// `struct wh_header`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// `magic`.
    pub magic: u64,
    /// `abi`.
    pub abi: u32,
    /// Pid of the controller.
    pub controller: u32,
    /// Length of the segment.
    pub bytes: u64,
    /// Ns = (ticks * tsc_mult) >> tsc_shift, 128-bit product.
    pub tsc_mult: u64,
    /// 0: every entry passes through, nothing is recorded. Otherwise 1: compared by the agent as one word with `generation`.
    pub enabled: u32,
    /// Raised by the controller after it has changed nodes or modules (dlclose).
    pub generation: u32,
    /// TSC, written by the controller at least once a second.
    pub heartbeat: u64,
    /// Ticks after the heartbeat at which entries stop recording; 0 = for ever.
    pub patience: u64,
    /// Points\[1..n_points) may be looked at; 0 is never used.
    pub n_points: u32,
    /// `n_modules`.
    pub n_modules: u32,
    /// `n_rules`.
    pub n_rules: u32,
    /// Levels of one function kept apart below itself; deeper calls fold.
    pub recursion: u32,
    /// Most frames of a path, WH_ROOT_TRUNCATED beyond.
    pub depth: u32,
    /// Atomic; +1 by the agent when the loader changed its list (futex).
    pub loads: u32,
    /// Controller has seen that many (futex).
    pub loads_seen: u32,
    /// The agent waits that long for loads_seen to follow; 0 = does not wait.
    pub load_wait_us: u32,
    /// Atomic; units \[WH_FIRST_FRAME..next_frame) of frames\[\] are in use.
    pub next_frame: u32,
    /// Atomic; paths\[1..next_path) are in use.
    pub next_path: u32,
    /// Atomic; threads\[0..next_thread) were used at some time.
    pub next_thread: u32,
    /// Atomic; pages\[1..next_page) belong to some thread.
    pub next_page: u32,
    /// Atomic.
    pub next_ring: u32,
    /// Atomic; children that joined.
    pub forks: u32,
    /// Atomic; threads whose CPU time costs two system calls, perf refused.
    pub no_cpu_page: u32,
    /// `tsc_shift`.
    pub tsc_shift: u32,
    /// Atomic; of threads without a block.
    pub lost: [u64; LOST_CAUSES],
    /// Ticks that a probed call seems longer than it is (wall, by path): subtract per call.
    pub cost_inside: u64,
    /// Ticks that one probed call costs its caller.
    pub cost_whole: u64,
    /// The same of an entry that only counts.
    pub cost_count: u64,
    /// Ticks that a probed call seems shorter than it is: processors read the clock at its end before its work is done, by no more
    /// than that work.
    pub cost_early: u64,
    /// Atomic; times that the agent did not wait any longer for `loads_seen`.
    pub loads_late: u32,
    /// Not 0: blocks of ended threads are used again only when there are no fresh ones.
    pub apart: u32,
    /// Not 0: children pass through, nothing of them is recorded or lost.
    pub no_forks: u32,
    /// Atomic; sites\[1..next_site) are in use.
    pub next_site: u32,
    /// Not 0: the program keeps copies of stacks: no more exits are seen.
    pub stacks_copied: u32,
    /// [`AHEAD_NOT`] and so on.
    pub ahead: u32,
    /// First address behind the stack that the process began with; 0: not known.
    pub stack_end: u64,
    /// Ticks of a probed call where nothing overlaps with it: timed by one path, by a deep one, by varied ones; counted likewise.
    pub most: [u64; 6],
    /// Counters of the processor that points name.
    pub event: [Event; EVENTS],
}

/// `struct wh_point`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// First byte of the function in the target.
    pub address: u64,
    /// Copy of the displaced instructions, followed by the jump back.
    pub relocated: u64,
    /// Enum wh_point_state.
    pub state: u32,
    /// Enum wh_do.
    pub flags: u32,
    /// Its own path: calls without a path, and those whose path found no room.
    pub root: u32,
    /// First of its wh_extra list, 0 = none.
    pub extras: u32,
    /// `n_extras`.
    pub n_extras: u16,
    /// Index of its module.
    pub module: u16,
    /// The controller's kind of patch, for a controller that takes over.
    pub patch: u8,
    /// Bytes displaced.
    pub window: u8,
    /// Bytes in front of the patch (endbr64).
    pub skip: u8,
    /// With `DO_LOCK`: 1 `prctl(option, ...)`, 2 `syscall(number, ...)`. With `DO_SITE`: 0 a system call is about to be
    /// made, else the number of a progress point, plus one.
    pub lock: u8,
    /// Text bytes of the window before the patch, from address + skip.
    pub original: [u8; 16],
    /// Address of its stub.
    pub stub: u64,
}

/// `struct wh_extra`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Enum wh_source.
    pub source: u8,
    /// `number`.
    pub number: u8,
    /// Bytes used of the word: 1 2 4 8; negative values by WH_SIGNED.
    pub width: u8,
    /// `flags`.
    pub flags: u8,
    /// 0..2 dereferences of pointers the callee itself must dereference.
    pub loads: u8,
    /// 0 or 1: added to wh_block.value\[\]; 255 = only emitted.
    pub value: u8,
    /// `spare`.
    pub spare: u16,
    /// `offset`.
    pub offset: [i32; 2],
}

/// `struct wh_module`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Mapped addresses \[start, end).
    pub start: u64,
    /// `end`.
    pub end: u64,
    /// Row offsets count from here: row.offset = address - base.
    pub base: u64,
    /// `first_row`.
    pub first_row: u32,
    /// Sorted by offset.
    pub n_rows: u32,
    /// 0 free, 1 valid, 2 unmapped: never match it.
    pub state: u32,
    /// 1: no rules, frame pointers may be followed here (JIT).
    pub flags: u32,
    /// `spare`.
    pub spare: [u64; 3],
}

/// `struct wh_row`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// `offset`.
    pub offset: u32,
    /// `rule`.
    pub rule: u32,
}

/// `struct wh_rule`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// WH_RULE_RSP or WH_RULE_RBP.
    pub reg: u8,
    /// `deref`.
    pub deref: u8,
    /// 0 unchanged, 1 at CFA + rbp_offset, 2 at rbp + rbp_offset.
    pub rbp: u8,
    /// `spare`.
    pub spare: u8,
    /// `cfa_offset`.
    pub cfa_offset: i32,
    /// `rbp_offset`.
    pub rbp_offset: i32,
    /// `more`.
    pub more: i32,
}

/// `struct wh_site`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Return address.
    pub ra: u64,
    /// How to get from its return slot to the caller's.
    pub rule: u32,
    /// Of the same head, 0 = none.
    pub next: u32,
}

/// `struct wh_block`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Odd while its thread writes.
    pub seq: u32,
    /// Wh_more of this block, in 64-byte units from WH_AT_PAGES; 0 = none.
    pub extra: u32,
    /// Entries.
    pub calls: u64,
    /// Of completed calls.
    pub wall: u64,
    /// `cpu`.
    pub cpu: u64,
    /// 0 = no call completed; then at least 1.
    pub min: u64,
    /// `max`.
    pub max: u64,
    /// `value`.
    pub value: [u64; 2],
}

/// `struct wh_more`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct More {
    /// Completed calls.
    pub done: u64,
    /// Context switches, voluntary and not.
    pub switches: u64,
    /// `faults_minor`.
    pub faults_minor: u64,
    /// `faults_major`.
    pub faults_major: u64,
    /// Completed calls without times, being part of one that has them.
    pub folded: u64,
    /// `spare`.
    pub spare: [u64; 3],
    /// \[i\]: calls of \[2^i, 2^(i+1)) ns without our own cost, \[0\] those of 0 too.
    pub hist: [u64; 64],
}

/// `struct wh_active`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Active {
    /// Address of its return slot.
    pub slot: u64,
    /// TSC at entry, 0 when not timed.
    pub t0: u64,
    /// Thread CPU ns at entry, odd; even and not 0: to be worked out from the thread's anchor, as long as it is.
    pub cpu0: u64,
    /// `path`.
    pub path: u32,
    /// `point`.
    pub point: u32,
    /// Switches << 32 | minor faults, low 32 bits each, at entry.
    pub usage: u64,
    /// The agent's own word.
    pub major: u64,
}

/// `struct wh_thread`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Atomic; DEAD is set by the controller, or by a thread that looks for a block.
    pub state: u32,
    /// `pid`.
    pub pid: u32,
    /// `tid`.
    pub tid: u32,
    /// Threads that have used the block.
    pub lives: u32,
    /// TSC when it took the block.
    pub started: u64,
    /// Stack pointer inside the agent, 0 outside.
    pub busy_sp: u64,
    /// `busy_tsc`.
    pub busy_tsc: u64,
    /// Active\[0..n_active), innermost last; more than WH_ACTIVE: the rest is private.
    pub n_active: u32,
    /// Odd while active\[\] changes.
    pub seq_active: u32,
    /// `lost`.
    pub lost: [u64; LOST_OF_THREAD],
    /// Index + 1 of its ring, 0 = none.
    pub ring: u32,
    /// 0 system calls as yet, 1 anchor by a perf page, 2 system calls.
    pub cpu_mode: u32,
    /// The agent's own words: stack bounds, private pointers.
    pub own: [u64; 8],
    /// Thread CPU ns ...
    pub anchor_cpu: u64,
    /// ... at this TSC: what records with an even `cpu0` refer to.
    pub anchor_tsc: u64,
    /// Path / 64 -> page, 0 = none.
    pub directory: [u32; DIRECTORY as usize],
    /// `active`.
    pub active: [Active; ACTIVE as usize],
}

/// `struct wh_ring`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Agent.
    pub head: u64,
    /// Controller.
    pub tail: u64,
    /// Records dropped, agent.
    pub lost: u64,
    /// `spare`.
    pub spare: [u64; 5],
}

/// `struct wh_record`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Whole record.
    pub bytes: u16,
    /// 0 filler, 1 a completed call, 2 an entry (no exit wanted).
    pub kind: u16,
    /// `point`.
    pub point: u32,
    /// TSC.
    pub start: u64,
    /// TSC, 0 for kind 2.
    pub end: u64,
    /// `path`.
    pub path: u32,
    /// `tid`.
    pub tid: u32,
    /// Rax.
    pub ret: u64,
}

/// `struct wh_start`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Address of the mapped segment in the target.
    pub segment: u64,
    /// Distance from a return slot to its shadow (negative).
    pub shadow: u64,
    /// 1 mapped by the loader (thread-local storage), 2 by the controller (thread table).
    pub way: u32,
    /// `abi`.
    pub abi: u32,
    /// Not 0: programs may read the thread pointer by an instruction.
    pub fsgsbase: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_are_the_c_compilers() {
        let mut rows = String::new();
        macro_rules! row {
            ($c:literal, $rust:ident: $($field:ident),*) => {
                rows += &format!("{} {}", $c, size_of::<$rust>());
                $( rows += &format!(" {}", offset_of!($rust, $field)); )*
                rows += "\n";
            };
        }
        row!("wh_header", Header: magic, abi, enabled, bytes, tsc_mult, tsc_shift, controller, heartbeat, patience, n_points, n_modules, n_rules, recursion, depth, loads, loads_seen, load_wait_us, next_frame, next_path, next_thread, next_page, next_ring, forks, no_cpu_page, generation, lost, cost_inside, cost_whole, cost_count, cost_early, loads_late, apart, no_forks, next_site, stacks_copied, ahead, stack_end, most, event);
        row!("wh_event", Event: kind, flags, config);
        row!("wh_point", Point: address, relocated, state, flags, root, extras, n_extras, module, patch, window, skip, lock, original, stub);
        row!("wh_extra", Extra: source, number, width, flags, loads, value, spare, offset);
        row!("wh_module", Module: start, end, base, first_row, n_rows, state, flags, spare);
        row!("wh_row", Row: offset, rule);
        row!("wh_rule", Rule: reg, deref, rbp, spare, cfa_offset, rbp_offset, more);
        row!("wh_site", Site: ra, rule, next);
        row!("wh_block", Block: seq, extra, calls, wall, cpu, min, max, value);
        row!("wh_more", More: done, switches, faults_minor, faults_major, spare, hist);
        row!("wh_active", Active: slot, t0, cpu0, path, point, usage, major);
        row!("wh_thread", Thread: state, pid, tid, lives, started, busy_sp, busy_tsc, n_active, seq_active, lost, ring, cpu_mode, own, anchor_cpu, anchor_tsc, directory, active);
        row!("wh_ring", Ring: head, tail, lost, spare);
        row!("wh_record", Record: bytes, kind, point, start, end, path, tid, ret);
        row!("wh_start", Start: segment, shadow, way, abi, fsgsbase);
        rows += &format!(
            "{SEGMENT_BYTES} {AGENT_ABI} {DO_FP} {DO_ANY_CALLER} {DO_ANY_SLOT} {FRAME_SITE} {FRAME_WIDE} {FRAME_FP} {FRAME_FIRST} {FRAME_LAST}\n"
        );
        rows += &format!(
            "{SHADOW_READY} {SHADOW_MAPPING} {SHADOW_REFUSED} {SHADOW_SPAN} {SHADOW_SPAN_BYTES} {AHEAD_NOT} {AHEAD_LATER} {AHEAD_NOW}\n"
        );
        rows += &format!("{FRAME_MORE} {FRAME_LOW} {RUN_HEAD} {LINK_NEXT} {LINK_SAME_SHIFT} {AT_PATH_POINTS}\n");
        rows += &format!(
            "{FIRST_FRAME} {ROOT_END} {ROOT_TRUNCATED} {ROOT_FULL} {ROOT_JOIN} {RULE_FP} {RULE_LATER} {FOLDED} {CALIBRATE_DEEP} {CALIBRATE_ALONE} {CALIBRATE_VARIED} {LOST_OF_THREAD} {LOST_EARLY} {LOST_EDGE} {LOST_CAUSES}\n"
        );
        let program = r#"
            #include <stdio.h>
            #include <stddef.h>
            #include "whither_agent.h"
            #define O(s, f) printf(" %zu", offsetof(struct s, f));
            #define S(s) printf(#s " %zu", sizeof(struct s));
            int main(void) {
                S(wh_header) O(wh_header, magic) O(wh_header, abi) O(wh_header, enabled) O(wh_header, bytes) O(wh_header, tsc_mult) O(wh_header, tsc_shift) O(wh_header, controller) O(wh_header, heartbeat) O(wh_header, patience) O(wh_header, n_points) O(wh_header, n_modules) O(wh_header, n_rules) O(wh_header, recursion) O(wh_header, depth) O(wh_header, loads) O(wh_header, loads_seen) O(wh_header, load_wait_us) O(wh_header, next_frame) O(wh_header, next_path) O(wh_header, next_thread) O(wh_header, next_page) O(wh_header, next_ring) O(wh_header, forks) O(wh_header, no_cpu_page) O(wh_header, generation) O(wh_header, lost) O(wh_header, cost_inside) O(wh_header, cost_whole) O(wh_header, cost_count) O(wh_header, cost_early) O(wh_header, loads_late) O(wh_header, apart) O(wh_header, no_forks) O(wh_header, next_site) O(wh_header, stacks_copied) O(wh_header, ahead) O(wh_header, stack_end) O(wh_header, most) O(wh_header, event) puts("");
                S(wh_event) O(wh_event, type) O(wh_event, flags) O(wh_event, config) puts("");
                S(wh_point) O(wh_point, address) O(wh_point, relocated) O(wh_point, state) O(wh_point, flags) O(wh_point, root) O(wh_point, extras) O(wh_point, n_extras) O(wh_point, module) O(wh_point, patch) O(wh_point, window) O(wh_point, skip) O(wh_point, lock) O(wh_point, original) O(wh_point, stub) puts("");
                S(wh_extra) O(wh_extra, source) O(wh_extra, number) O(wh_extra, width) O(wh_extra, flags) O(wh_extra, loads) O(wh_extra, value) O(wh_extra, spare) O(wh_extra, offset) puts("");
                S(wh_module) O(wh_module, start) O(wh_module, end) O(wh_module, base) O(wh_module, first_row) O(wh_module, n_rows) O(wh_module, state) O(wh_module, flags) O(wh_module, spare) puts("");
                S(wh_row) O(wh_row, offset) O(wh_row, rule) puts("");
                S(wh_rule) O(wh_rule, reg) O(wh_rule, deref) O(wh_rule, rbp) O(wh_rule, spare) O(wh_rule, cfa_offset) O(wh_rule, rbp_offset) O(wh_rule, more) puts("");
                S(wh_site) O(wh_site, ra) O(wh_site, rule) O(wh_site, next) puts("");
                S(wh_block) O(wh_block, seq) O(wh_block, extra) O(wh_block, calls) O(wh_block, wall) O(wh_block, cpu) O(wh_block, min) O(wh_block, max) O(wh_block, value) puts("");
                S(wh_more) O(wh_more, done) O(wh_more, switches) O(wh_more, faults_minor) O(wh_more, faults_major) O(wh_more, spare) O(wh_more, hist) puts("");
                S(wh_active) O(wh_active, slot) O(wh_active, t0) O(wh_active, cpu0) O(wh_active, path) O(wh_active, point) O(wh_active, usage) O(wh_active, major) puts("");
                S(wh_thread) O(wh_thread, state) O(wh_thread, pid) O(wh_thread, tid) O(wh_thread, lives) O(wh_thread, started) O(wh_thread, busy_sp) O(wh_thread, busy_tsc) O(wh_thread, n_active) O(wh_thread, seq_active) O(wh_thread, lost) O(wh_thread, ring) O(wh_thread, cpu_mode) O(wh_thread, own) O(wh_thread, anchor_cpu) O(wh_thread, anchor_tsc) O(wh_thread, directory) O(wh_thread, active) puts("");
                S(wh_ring) O(wh_ring, head) O(wh_ring, tail) O(wh_ring, lost) O(wh_ring, spare) puts("");
                S(wh_record) O(wh_record, bytes) O(wh_record, kind) O(wh_record, point) O(wh_record, start) O(wh_record, end) O(wh_record, path) O(wh_record, tid) O(wh_record, ret) puts("");
                S(wh_start) O(wh_start, segment) O(wh_start, shadow) O(wh_start, way) O(wh_start, abi) O(wh_start, fsgsbase) puts("");
                printf("%llu %u %d %d %d %u %u %u %u %u\n", (unsigned long long)WH_SEGMENT_BYTES, WH_AGENT_ABI, WH_DO_FP, WH_DO_ANY_CALLER, WH_DO_ANY_SLOT, WH_FRAME_SITE,
                       WH_FRAME_WIDE, WH_FRAME_FP, WH_FRAME_FIRST, WH_FRAME_LAST);
                printf("%u %u %u %u %llu %u %u %u\n", WH_SHADOW_READY, WH_SHADOW_MAPPING, WH_SHADOW_REFUSED, WH_SHADOW_SPAN, (unsigned long long)WH_SHADOW_SPAN_BYTES, WH_AHEAD_NOT, WH_AHEAD_LATER, WH_AHEAD_NOW);
                printf("%u %u %u %u %u %llu\n", WH_FRAME_MORE, WH_FRAME_LOW, WH_RUN_HEAD, WH_LINK_NEXT, WH_LINK_SAME_SHIFT, (unsigned long long)WH_AT_PATH_POINTS);
                printf("%u %u %u %u %u %u %u %u %u %u %u %u %u %u %u\n", WH_FIRST_FRAME, WH_ROOT_END, WH_ROOT_TRUNCATED, WH_ROOT_FULL, WH_ROOT_JOIN,
                       WH_RULE_FP, WH_RULE_LATER, WH_FOLDED, WH_CALIBRATE_DEEP, WH_CALIBRATE_ALONE, WH_CALIBRATE_VARIED, WH_LOST_OF_THREAD, WH_LOST_EARLY, WH_LOST_EDGE, WH_LOST_CAUSES);
            }"#;
        assert_eq!(crate::tests::run_c("agent", program), rows);
    }
}
