/*
 * The shared segment of the instrumentation engine: one sparse memfd per target process tree, mapped
 * MAP_SHARED by the controller (crate probe) and by the injected agent of every process in the tree.
 * All references inside are indexes, never addresses, so each side maps it where it likes. Crate abi
 * mirrors every struct; a test compares sizes and offsets through the C compiler. Not stored on disk.
 *
 * Who writes what:
 *   controller  header (but for the atomics), points, modules, rows, rules, extras
 *   agent       sites, frames, paths, threads, pages; each thread block and the pages it owns have one
 *               writer, its thread. x86-64 keeps stores in order: a reader needs no fence, only WH_SEQ.
 * A counter block is read as: s = seq; copy; again while s was odd or seq has changed.
 */
#ifndef WHITHER_AGENT_H
#define WHITHER_AGENT_H

/* Kernel-side programs have no stdint.h; the sizes are those of x86-64 and of the BPF target. */
typedef unsigned char wh_u8;
typedef unsigned short wh_u16;
typedef unsigned int wh_u32;
typedef int wh_s32;
typedef unsigned long long wh_u64;

#define WH_AGENT_MAGIC 0x746e656761687700ull
/* Raised with every change of this file that moves or gives another meaning to a word. */
#define WH_AGENT_ABI 16u

/* Capacities and places of the regions, bytes from the start. Untouched parts cost no memory. */
#define WH_MAX_POINTS 65536u
#define WH_MAX_MODULES 4096u
#define WH_MAX_RULES 65536u
#define WH_MAX_ROWS (16u << 20)
#define WH_MAX_SITES (1u << 19)
#define WH_MAX_FRAMES (1u << 24)
#define WH_MAX_PATHS (1u << 18)
#define WH_MOST_DEPTH 4096u
#define WH_SITE_HEADS 2048u
#define WH_MIN_HEADS 256u
#define WH_MAX_HEADS (1u << 19)
#define WH_MAX_THREADS 4096u
#define WH_MAX_PAGES 32768u
#define WH_MAX_EXTRAS 65536u
#define WH_MAX_RINGS 256u
#define WH_RING_BYTES (1u << 20)
#define WH_THREAD_STRIDE (80u << 10)

#define WH_AT_POINTS 0x10000ull
#define WH_AT_PASSED (WH_AT_POINTS + (wh_u64)WH_MAX_POINTS * 64) /* as far apart as points: calls of one that were let pass, */
#define WH_AT_MODULES (WH_AT_PASSED + (wh_u64)WH_MAX_POINTS * 64) /* where not even a register could be saved */
#define WH_AT_RULES (WH_AT_MODULES + (wh_u64)WH_MAX_MODULES * 64)
#define WH_AT_EXTRAS (WH_AT_RULES + (wh_u64)WH_MAX_RULES * 16)
#define WH_AT_SITES (WH_AT_EXTRAS + (wh_u64)WH_MAX_EXTRAS * 16)
#define WH_AT_FRAMES (WH_AT_SITES + (wh_u64)WH_MAX_SITES * 16)
#define WH_AT_PATH_FRAMES (WH_AT_FRAMES + (wh_u64)WH_MAX_FRAMES * 2)
#define WH_AT_PATH_LINKS (WH_AT_PATH_FRAMES + (wh_u64)WH_MAX_PATHS * 4)
#define WH_AT_PATH_POINTS (WH_AT_PATH_LINKS + (wh_u64)WH_MAX_PATHS * 4)
#define WH_AT_SITE_HEADS (WH_AT_PATH_POINTS + (wh_u64)WH_MAX_PATHS * 2)
#define WH_AT_RUN_HEADS (WH_AT_SITE_HEADS + (wh_u64)WH_SITE_HEADS * 4)
#define WH_AT_PATH_HEADS (WH_AT_RUN_HEADS + (wh_u64)WH_MAX_HEADS * 4)
#define WH_AT_ROWS (WH_AT_PATH_HEADS + (wh_u64)WH_MAX_HEADS * 4)
#define WH_AT_PAGES (WH_AT_ROWS + (wh_u64)WH_MAX_ROWS * 8)
#define WH_AT_THREADS (WH_AT_PAGES + (wh_u64)WH_MAX_PAGES * 4096)
#define WH_AT_RINGS (WH_AT_THREADS + (wh_u64)WH_MAX_THREADS * WH_THREAD_STRIDE)
#define WH_AT_PACE (WH_AT_RINGS + (wh_u64)WH_MAX_RINGS * WH_RING_BYTES) /* whither_pace.h */
#define WH_SEGMENT_BYTES (WH_AT_PACE + (64ull << 20))

/* Why a call was not recorded (its count is then missing; it ran unharmed all the same). */
enum wh_lost {
	WH_LOST_BUSY = 0,    /* the agent was interrupted by a signal whose handler called a probed function */
	WH_LOST_DEPTH = 1,   /* more calls in progress than the active stack holds */
	WH_LOST_TABLE = 2,   /* no thread block or counter page was free, or no room for the stack */
	WH_LOST_SHADOW = 3,  /* the shadow of the return address could not be mapped: entry counted, no exit */
	WH_LOST_JUMPED = 4,  /* left by longjmp, an exception or thread exit: counted, not timed */
	WH_LOST_EXIT = 5,    /* an exit without its record: returned rightly, not timed */
	WH_LOST_RING = 6,    /* event record dropped, the ring was full */
	WH_LOST_CLOCK = 7,   /* recorded but for CPU time: the program has forbidden itself system calls, or a signal
	                      * handler's call came amid the entry */
	WH_LOST_EVENT = 8,   /* recorded but for a counter of the processor, which could not be read */
	WH_LOST_VALUE = 9,   /* recorded but for a stack argument where no memory can be read: not summed */
	WH_LOST_LOW = 10,    /* as SHADOW: the stack lies so low (a heap of a program without PIE) that there is no place for it */
	WH_LOST_APART = 11,  /* no calls: ticks that entries took beyond ordinary ones, for new paths, changes of stack, records left
	                      * behind, which no calibration knows. Taken off the times of calls around, but with WH_DO_USAGE */
	WH_LOST_FOREIGN = 12, /* counted, no exit: nothing is known of the caller's frame, so its code may look at its return
	                       * address (WH_RULE_FOREIGN) */
	WH_LOST_OF_THREAD = 13, /* those above are counted in blocks too; those below belong to threads without one */
	WH_LOST_EARLY = 13,  /* the thread has no thread pointer yet: before the C library of a static program is ready */
	WH_LOST_LOCKED = 14, /* first call of a thread after the program had forbidden itself system calls: no block for it */
	WH_LOST_SHARED = 15, /* made by a child that has its parent's memory and thread pointer (vfork, CLONE_VM) */
	WH_LOST_EDGE = 16,   /* not made by a call: code that begins a coroutine, at the very end of its stack */
	WH_LOST_CAUSES = 17
};

/* A counter of the processor that points name. 16 bytes. */
#define WH_EVENTS 4u
#define WH_EVENT_SET 1u    /* of `flags`: type and config hold */
struct wh_event {
	wh_u32 type;           /* as in struct perf_event_attr */
	wh_u32 flags;
	wh_u64 config;
};

/* Of wh_header.most: timed calls by the path of the call before, the same with WH_CALIBRATE_DEEP frames more, timed calls by another
 * path; and the same three of entries that only count. */
#define WH_MOST 6

/* What wh_calibrate is to call: frames above those that it always has, and how. */
#define WH_CALIBRATE_DEEP 48u
#define WH_CALIBRATE_ALONE 0x10000u  /* a function with nothing in it, each call when all before it is done */
#define WH_CALIBRATE_VARIED 0x20000u /* the same by one path of 256 after the other, in no order; the mean, not the least */

/* Page 0. Controller writes, agent reads, except the words marked "atomic" (both, by locked operations). */
struct wh_header {
	wh_u64 magic;
	wh_u32 abi;
	wh_u32 controller;     /* pid of the controller */
	wh_u64 bytes;          /* length of the segment */
	wh_u64 tsc_mult;       /* ns = (ticks * tsc_mult) >> tsc_shift, 128-bit product */
	wh_u32 enabled;        /* 0: every entry passes through, nothing is recorded. Otherwise 1 */
	wh_u32 generation;     /* raised by the controller after it has changed sites or modules (dlclose). The agent compares
	                        * both words at once */
	wh_u64 heartbeat;      /* TSC, written by the controller at least once a second */
	wh_u64 patience;       /* ticks after the heartbeat at which entries stop recording; 0 = for ever */
	wh_u32 n_points;       /* points[1..n_points) may be looked at; 0 is never used */
	wh_u32 n_modules;
	wh_u32 n_rules;
	wh_u32 recursion;      /* levels of one function kept apart below itself; deeper calls fold into the last
	                        * level: they are counted there, but not timed, being part of a call that is */
	wh_u32 depth;          /* most frames of a path, at most WH_MOST_DEPTH; WH_ROOT_TRUNCATED beyond */
	wh_u32 loads;          /* atomic; +1 by the agent when the loader changed its list (futex) */
	wh_u32 loads_seen;     /* controller has seen that many (futex) */
	wh_u32 load_wait_us;   /* the agent waits that long for loads_seen to follow, unless the heartbeat stops; 0 = does
	                        * not wait */
	wh_u32 next_frame;     /* atomic; units [WH_FIRST_FRAME..next_frame) of frames[] are in use */
	wh_u32 next_path;      /* atomic; paths[1..next_path) are in use */
	wh_u32 next_thread;    /* atomic; threads[0..next_thread) were used at some time */
	wh_u32 next_page;      /* atomic; pages[1..next_page) belong to some thread */
	wh_u32 next_ring;      /* atomic */
	wh_u32 forks;          /* atomic; children that joined */
	wh_u32 no_cpu_page;    /* atomic; threads whose CPU time costs two system calls, perf refused */
	wh_u32 tsc_shift;
	wh_u64 lost[WH_LOST_CAUSES]; /* atomic; of threads without a block */
	wh_u64 cost_inside;    /* ticks that a probed call seems longer than it is (wall, by path): subtract per call */
	wh_u64 cost_whole;     /* ticks that one probed call costs its caller */
	wh_u64 cost_count;     /* the same of an entry that only counts */
	wh_u64 cost_early;     /* ticks that a probed call seems shorter than it is: processors read the clock at its end
	                        * before its work is done, by no more than that work */
	wh_u32 loads_late;     /* atomic; times that the agent did not wait any longer for loads_seen */
	wh_u32 apart;          /* not 0: blocks of ended threads are used again only when there are no fresh ones */
	wh_u32 no_forks;       /* not 0: children pass through, nothing of them is recorded or lost */
	wh_u32 next_site;      /* atomic; sites[1..next_site) are in use */
	wh_u32 stacks_copied;  /* not 0: the program keeps copies of stacks and puts them back (greenlet). One place then holds
	                        * several calls in turns, of which its shadow knows one: no more exits are seen */
	wh_u32 ahead;          /* enum wh_ahead */
	wh_u64 stack_end;      /* first address behind the stack that the process began with */
	wh_u64 most[WH_MOST];  /* ticks that one probed call costs its caller where nothing overlaps with it */
	struct wh_event event[WH_EVENTS]; /* once set, an entry stays */
};

/* Whether memory may be mapped that is not touched yet, for threads to come. */
enum wh_ahead {
	WH_AHEAD_NOT = 0,      /* it would count against a limit, or the program may lock all that is mapped */
	WH_AHEAD_LATER = 1,    /* once there are more than a few threads */
	WH_AHEAD_NOW = 2
};

enum wh_point_state {
	WH_POINT_FREE = 0,
	WH_POINT_ON = 1,
	WH_POINT_OFF = 2,      /* patched, passes through */
	WH_POINT_GONE = 3      /* bytes restored; numbers stay readable, the index is not used again */
};

enum wh_do {
	WH_DO_EXIT = 1,        /* balanced call: the exit is seen; without it only entries count */
	WH_DO_PATH = 2,        /* count by call path; without it by point */
	WH_DO_WALL = 4,
	WH_DO_CPU = 8,
	WH_DO_HIST = 16,       /* log2 of wall ns, in the extra block */
	WH_DO_USAGE = 32,      /* page faults and context switches by getrusage(RUSAGE_THREAD), extra block */
	WH_DO_VALUES = 64,     /* wh_extra list: sum integers, or emit words */
	WH_DO_EMIT = 128,      /* a record per call to the thread's ring */
	WH_DO_LOADER = 256,    /* not a user's point: the loader's list has changed (header.loads) */
	WH_DO_LOCK = 1024,     /* not a user's point: prctl or syscall, see wh_point.lock. The agent makes no system
	                        * call any more once the program is about to forbid itself some */
	WH_DO_SITE = 4096,     /* not a user's point and no function: any instruction, see wh_point.lock */
	WH_DO_UNWIND = 8192,   /* not a user's point: the function by which an unwinder looks for rules */
	WH_DO_EVENTS = 2048,   /* with WH_DO_VALUES and WH_DO_EXIT: some of the wh_extra list are events */
	WH_DO_FP = 512,        /* no unwind rules wanted: follow frame pointers (code without .eh_frame) */
	WH_DO_ANY_CALLER = 16384, /* with WH_DO_EXIT: the exit is seen whoever the caller is, see WH_RULE_FOREIGN */
	WH_DO_ANY_SLOT = 32768 /* its callers keep stacks aligned to eight bytes only (Go): a return slot may begin a page */
};

/* A probe point. 64 bytes. The stub pushes its index and jumps to the common entry of the agent. */
struct wh_point {
	wh_u64 address;        /* first byte of the function in the target */
	wh_u64 relocated;      /* copy of the displaced instructions, followed by the jump back */
	wh_u32 state;          /* enum wh_point_state */
	wh_u32 flags;          /* enum wh_do */
	wh_u32 root;           /* its own path: calls without a path, and those whose path found no room */
	wh_u32 extras;         /* first of its wh_extra list, 0 = none */
	wh_u16 n_extras;
	wh_u16 module;         /* index of its module */
	wh_u8 patch;           /* the controller's kind of patch, for a controller that takes over */
	wh_u8 window;          /* bytes displaced */
	wh_u8 skip;            /* bytes in front of the patch (endbr64) */
	wh_u8 lock;            /* with WH_DO_LOCK: 1 prctl(option, ...), 2 syscall(number, ...). With WH_DO_SITE: 0 a
	                        * system call is about to be made, else the number of a progress point, plus one */
	wh_u8 original[16];    /* text bytes that are replaced, from address + skip. Of a short jump: 2 bytes, the 2
	                        * that replace them, and from 11 on the 5 of the filler it leads to */
	wh_u64 stub;           /* address of its stub; GONE without an address: of memory for stubs, noted before it is
	                        * mapped */
};

/* A word taken at entry or exit. 16 bytes. `loads` times: word = *(word + offset[i]). */
enum wh_source {
	WH_ARG1 = 1, WH_ARG2, WH_ARG3, WH_ARG4, WH_ARG5, WH_ARG6, /* rdi rsi rdx rcx r8 r9 */
	WH_STACK_ARG = 7,      /* `number`-th word above the return address, 0 = the 7th argument */
	WH_RET = 8,            /* rax at exit */
	WH_CONST = 9,
	WH_EVENT = 10          /* what the `number`-th wh_header.event has counted between entry and exit */
};
struct wh_extra {
	wh_u8 source;          /* enum wh_source */
	wh_u8 number;
	wh_u8 width;           /* bytes used of the word: 1 2 4 8; negative values by WH_SIGNED */
	wh_u8 flags;
	wh_u8 loads;           /* 0..2 dereferences of pointers the callee itself must dereference */
	wh_u8 value;           /* 0 or 1: added to wh_block.value[]; 255 = only emitted */
	wh_u16 spare;
	wh_s32 offset[2];
};
#define WH_SIGNED 1

/* A mapped range of code with unwind rows. 64 bytes. */
struct wh_module {
	wh_u64 start;          /* mapped addresses [start, end) */
	wh_u64 end;
	wh_u64 base;           /* row offsets count from here: row.offset = address - base */
	wh_u32 first_row;
	wh_u32 n_rows;         /* sorted by offset */
	wh_u32 state;          /* 0 free, 1 valid, 2 unmapped: never match it */
	wh_u32 flags;          /* 1: code made at run time: no rules, frame pointers may be followed here. 2: its rows cover most of
	                        * its code, so what they leave out is not just built without them. 4: what has no row keeps
	                        * frame pointers (Go) */
	wh_u64 spare[3];
};

/* Unwind row: holds from its offset up to the next row's. Look up return addresses at ra - 1. */
struct wh_row {
	wh_u32 offset;
	wh_u32 rule;
};

/* A rule packed in 32 bits. kind in bits 0..2:
 *   RSP, RBP  bits 3..16: CFA offset / 8 (14 bits, unsigned), from the stack pointer behind the callee's
 *             return (= its return slot + 8), or from rbp; bit 17: rbp is saved, at CFA + 8 * bits
 *             18..31 (14 bits, signed)
 *   BIG       bits 3..31: index into rules[]
 * The caller's return slot is CFA - 8. If rbp is not saved it is unchanged. */
enum wh_rule_kind {
	WH_RULE_NONE = 0,      /* no information: the path is truncated here, and says so */
	WH_RULE_RSP = 1,
	WH_RULE_RBP = 2,
	WH_RULE_BIG = 3,
	WH_RULE_SIGNAL = 4,    /* return address of a signal frame. The path ends here, complete: what a signal
	                        * interrupts is no caller, and would be another path for each instruction */
	WH_RULE_END = 5,       /* outermost frame (return address undefined) */
	WH_RULE_FP = 6,        /* only in sites: no row, frame pointers are followed from here */
	WH_RULE_LATER = 7      /* only in sites: FP it was, but now there are rows: to be looked up */
};
/* With NONE or FP, only in sites: code made at run time, or a piece of a file that has unwind rows but none here (stubs in
 * assembler). Run-time systems look for such callers on their stacks by return address (V8, Java's VM), and end the
 * program when they find ours, so return slots of calls from there are left alone. */
#define WH_RULE_FOREIGN 8u
/* With FP: all code there keeps frame pointers, and has 0 in the outermost frame (Go). */
#define WH_RULE_FRAMED 16u

/* The rare shapes. 16 bytes. cfa = REG + cfa_offset, or *(REG + cfa_offset) + more if `deref`. */
struct wh_rule {
	wh_u8 reg;             /* WH_RULE_RSP or WH_RULE_RBP */
	wh_u8 deref;
	wh_u8 rbp;             /* 0 unchanged, 1 at CFA + rbp_offset, 2 at rbp + rbp_offset */
	wh_u8 spare;
	wh_s32 cfa_offset;
	wh_s32 rbp_offset;
	wh_s32 more;
};

/* A place that calls return to. 16 bytes. Immutable once linked, but for the controller, which gives another
 * `ra` to sites of code that is gone, and another rule to those whose rows have come. */
struct wh_site {
	wh_u64 ra;
	wh_u32 rule;           /* how to get from its return slot to the caller's */
	wh_u32 next;           /* of the same head, 0 = none */
};

/* Call paths are kept from the outermost frame inwards, for outer frames are what paths have in common. A *run* is
 * what a path has for itself when it is first met, in units of frames[], which have 16 bits: frames, each with the one outside
 * of it in front of it,
 *
 *     next run of the same head | the frame outside of the run, or a root | outermost frame | ... | innermost frame
 *            (2 units)                          (2 units)
 *
 * A frame is a unit with the low bits of its site; behind one with the others, if there are any. It is known by the index of
 * the former. The one inside of a frame is the next of its run, or the first of another run: that of a
 * bucket's chain which tells the right frame outside and the right site. Immutable once linked. */
enum wh_frame_bits {
	WH_FRAME_SITE = (1 << 11) - 1, /* the low bits of its site */
	WH_FRAME_WIDE = 1 << 11,   /* the others are in the unit before */
	WH_FRAME_FP = 1 << 12,     /* reached by frame pointers, not by a rule */
	WH_FRAME_FIRST = 1 << 13,  /* outermost of its run */
	WH_FRAME_LAST = 1 << 14,   /* innermost of its run */
	WH_FRAME_MORE = 1 << 15    /* it is no frame, but the other bits of the site of the next unit */
};
#define WH_FRAME_LOW 11u           /* how many bits WH_FRAME_SITE are */
#define WH_RUN_HEAD 4u             /* units in front of the frames */
#define WH_FIRST_FRAME 8u          /* no run lies before it */

/* What stands in the place of a frame outside of the outermost one. */
enum wh_root {
	WH_ROOT_END = 1,       /* nothing: the path is whole */
	WH_ROOT_TRUNCATED = 2, /* no rule, no readable stack, or too deep: callers are missing */
	WH_ROOT_FULL = 3       /* of a point's own path */
};
#define WH_ROOT_JOIN 0x80000000u   /* | path: the call in progress of that path */

/* Heads of the chains of what lies inside of a frame: runs by frame and site, paths by frame and point. The
 * further down a frame lies the more heads it is spread over, so that they grow with what hangs on them. */
static inline wh_u32 wh_head(wh_u32 frame, wh_u32 what)
{
	wh_u32 n = (frame & ~WH_ROOT_JOIN) << (frame & WH_ROOT_JOIN ? 4 : 0) >> 5;
	wh_u64 hash = ((wh_u64)frame << 32 | what) * 0x9e3779b97f4a7c15ull;

	n = n < WH_MIN_HEADS ? WH_MIN_HEADS : 1u << (31 - __builtin_clz(n));
	n = n > WH_MAX_HEADS ? WH_MAX_HEADS : n;
	return (wh_u32)((hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ull >> 40) & (n - 1);
}

/* A distinct call path of a point: 10 bytes in three tables. Path ids are never reused; one whose frame is 0 was lost
 * in a race between two threads and stands for nothing. The path it joins is told by the root of its frames.
 *   WH_AT_PATH_FRAMES  its innermost caller, or a root
 *   WH_AT_PATH_LINKS   the next of the same head, 0 = none; and how many ancestors have the same point: 0 = outermost activation
 *   WH_AT_PATH_POINTS  its point */
#define WH_LINK_NEXT (WH_MAX_PATHS - 1)
#define WH_LINK_SAME_SHIFT 18u

/* Counters of one path in one thread. 64 bytes, 64 to a page. Times in TSC ticks, cpu in ns. */
struct wh_block {
	wh_u32 seq;            /* odd while its thread writes; two steps per exit booked, and by nothing else */
	wh_u32 extra;          /* wh_more of this block, in 64-byte units from WH_AT_PAGES; 0 = none */
	wh_u64 calls;          /* entries */
	wh_u64 wall;           /* of completed calls */
	wh_u64 cpu;
	wh_u64 min;            /* 0 = no call completed; then at least 1 */
	wh_u64 max;
	wh_u64 value[2];
};

/* Behind wh_block.extra. 576 bytes. */
struct wh_more {
	wh_u64 done;           /* completed calls */
	wh_u64 switches;       /* context switches, voluntary and not */
	wh_u64 faults_minor;
	wh_u64 faults_major;
	wh_u64 folded;         /* completed calls without times, being part of one that has them */
	wh_u64 spare[3];
	wh_u64 hist[64];       /* [i]: calls of [2^i, 2^(i+1)) ns without our own cost, [0] those of 0 too */
};

#define WH_FOLDED 0x80000000u

/* A call in progress. 48 bytes. */
struct wh_active {
	wh_u64 slot;           /* address of its return slot */
	wh_u64 t0;             /* TSC at entry, 0 when not timed */
	wh_u64 cpu0;           /* thread CPU ns at entry, odd; even and not 0: not worked out yet, by the agent's word */
	wh_u32 path;           /* with WH_FOLDED: it is part of a call of this path further out, and has no times of its own */
	wh_u32 point;
	wh_u64 usage;          /* switches << 32 | minor faults, low 32 bits each, at entry; of a folded call the agent's own word */
	wh_u64 major;          /* the agent's own word */
};

#define WH_DIRECTORY (WH_MAX_PATHS / 64)
#define WH_ACTIVE 1024u

enum wh_thread_state {
	WH_THREAD_FREE = 0,
	WH_THREAD_LIVE = 1,
	WH_THREAD_DEAD = 2,
	WH_THREAD_CLAIMED = 3  /* a new thread is taking it */
};

/* A thread. Counters stay when it dies: the next thread that takes the block goes on adding, so the
 * sum over all blocks is the total, whoever is alive. One block each WH_THREAD_STRIDE bytes. */
struct wh_thread {
	wh_u32 state;          /* atomic; DEAD is set by the controller, for processes that are gone; threads that
	                        * look for a block judge those of their own process */
	wh_u32 pid;
	wh_u32 tid;
	wh_u32 lives;          /* threads that have used the block */
	wh_u64 started;        /* TSC when it took the block */
	wh_u64 busy_sp;        /* stack pointer inside the agent, 0 outside */
	wh_u64 busy_tsc;
	wh_u32 n_active;       /* active[0..n_active), innermost last; more than WH_ACTIVE: the rest is private */
	wh_u32 seq_active;     /* odd while active[] changes */
	wh_u64 lost[WH_LOST_OF_THREAD];
	wh_u32 ring;           /* index + 1 of its ring, 0 = none */
	wh_u32 cpu_mode;       /* 0 system calls as yet, 1 anchor by a perf page, 2 system calls */
	wh_u64 own[8];         /* the agent's own words: stack bounds, private pointers */
	wh_u64 anchor_cpu;     /* thread CPU ns ... */
	wh_u64 anchor_tsc;     /* ... at this time: what records with an even cpu0 refer to */
	wh_u32 directory[WH_DIRECTORY]; /* path / 64 -> page, 0 = none */
	struct wh_active active[WH_ACTIVE];
};

/* Ring of one thread: head[] counts bytes ever written, tail[] ever read; records are 8-byte aligned and
 * never wrap: a record with kind 0 fills the rest. The data begin 64 bytes behind the ring's start. */
struct wh_ring {
	wh_u64 head;           /* agent */
	wh_u64 tail;           /* controller */
	wh_u64 lost;           /* records dropped, agent */
	wh_u64 spare[5];
};
struct wh_record {
	wh_u16 bytes;          /* whole record */
	wh_u16 kind;           /* 0 filler, 1 a completed call, 2 an entry (no exit wanted) */
	wh_u32 point;
	wh_u64 start;          /* TSC */
	wh_u64 end;            /* TSC, 0 for kind 2 */
	wh_u32 path;
	wh_u32 tid;
	wh_u64 ret;            /* rax */
	wh_u64 word[];         /* its wh_extra words in order */
};

/* Shadows of return slots are mapped in blocks of 64 KiB of stack, or spans of many. `wh_shadow_set` (symbol of the agent,
 * u64[65536], open-addressed) holds the address of each block of slots, its lowest bits telling: */
#define WH_SHADOW_SPAN_BYTES 0x20000000ull
enum wh_shadow_state {
	WH_SHADOW_READY = 0,
	WH_SHADOW_MAPPING = 1, /* a thread is at it */
	WH_SHADOW_REFUSED = 2, /* its place is taken: entries there are only counted */
	WH_SHADOW_SPAN = 4     /* not a block, but the aligned WH_SHADOW_SPAN_BYTES that begin there: READY when all of them
	                        * are mapped, and the entries of the blocks in them have nothing mapped of their own */
};

/* Other private memory of the agent: `wh_maps` (symbol, u64[WH_MAPS][2]) holds {address, bytes | pid << 32},
 * address 0 = unused; pid not 0: only that process has it, its children do not. Threads keep pointers into
 * it in their thread-local storage: it may go only together with the agent itself (dlclose). */
#define WH_MAPS 8192u

/* What the agent's `wh_start` is given and answers; the controller finds these by symbol. */
enum wh_start_answer {
	WH_STARTED = 0,
	WH_START_MAGIC = 1,    /* not a segment */
	WH_START_ABI = 2,      /* another layout */
	WH_START_SHADOW = 3,   /* another distance than the agent's unwind description has */
	WH_START_FORK = 4      /* the kernel cannot wipe memory on fork: a child would write its parent's blocks */
};
struct wh_start {
	wh_u64 segment;        /* address of the mapped segment in the target */
	wh_u64 shadow;         /* distance from a return slot to its shadow (negative) */
	wh_u32 way;            /* 1 mapped by the loader (thread-local storage), 2 by the controller (thread table) */
	wh_u32 abi;
	wh_u32 fsgsbase;       /* not 0: programs may read the thread pointer by an instruction */
};

#endif
