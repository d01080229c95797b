/*
 * Words that cross an address space: written by the kernel-side programs in bpf/, read by the tool
 * (crate abi mirrors every struct and checks sizes and offsets against the C compiler). Nothing here
 * is ever stored on disk. Little-endian, naturally aligned, no implicit padding.
 */
#ifndef WHITHER_ABI_H
#define WHITHER_ABI_H

#ifndef WHITHER_ABI_NO_STDINT
#include <stdint.h>
#define WH_U16 uint16_t
#define WH_U32 uint32_t
#define WH_U64 uint64_t
#else
#define WH_U16 unsigned short
#define WH_U32 unsigned int
#define WH_U64 unsigned long long
#endif

/* One aggregated sample: who ran, where, which event, how often. 16 bytes, four to a cache line.
 *   where:  63..61 tag, high bits | 60..57 event | 56..0 program counter (bit 56 repeated upwards
 *           gives it back)
 *   who:    31..22 tag, low bits  | 21..0 thread-group id, or thread id when threads are kept apart
 * The tag tells lives of one pid apart: the hashed start time, XOR WH_EXEC_STEP times the number of execs, so that the
 * lives of one process all differ, XOR the phase of its process id. Processes that reuse a pid may share a tag by chance.
 * A phase ends when a process has unmapped code: what was sampled in it is told from what is mapped at the same place
 * afterwards. Process ids share WH_PHASES numbers, which only count up. */
#define WH_PHASES 1024
#define WH_PC_BITS 57
#define WH_EVENT_BITS 4
#define WH_PID_BITS 22
#define WH_TAG_LOW_BITS 10
#define WH_TAG_BITS 13
/* Odd, and farther from 0 than phases between two drains. */
#define WH_EXEC_STEP 3079
struct wh_entry {
	WH_U64 where;
	WH_U32 who;
	WH_U32 count;
};

#define WH_WAYS 4
struct wh_bucket {
	struct wh_entry way[WH_WAYS];
};

/* State of one CPU: one cache line, written by its own handler only. `busy` is set while a handler
 * runs: a reader flips `wh_active` and waits until it is 0. Counts never go down. */
struct wh_cpu {
	WH_U32 busy;
	WH_U32 victim;
	WH_U32 draw;
	WH_U32 regs_drop; /* registers lost because the ring was full; wraps */
	WH_U64 hit;
	WH_U64 miss;
	WH_U64 drop;
	WH_U64 idle;
	WH_U64 stack_drop;
	WH_U64 other; /* samples outside the chosen processes */
};

/* Records of the `events` ring; the first word tells the kind. */
enum wh_kind {
	WH_TASK = 1,  /* struct wh_task: a task exists, was forked, or has just exec'ed */
	WH_STACK = 2, /* struct wh_stack, addresses, then stack bytes */
	WH_REGS = 3,  /* struct wh_regs */
	WH_PATH = 4,  /* struct wh_path, up to its last hop */
	WH_PAIR = 5,  /* struct wh_pair */
};

#define WH_COMM 16
struct wh_task {
	WH_U32 kind;
	WH_U32 why; /* enum wh_why */
	WH_U32 tgid;
	WH_U32 tid;
	WH_U32 tag;
	WH_U32 parent; /* tgid of the parent */
	WH_U64 time;   /* CLOCK_MONOTONIC ns */
	WH_U64 start;  /* leader's start, ns of CLOCK_MONOTONIC */
	WH_U64 cgroup; /* id in the unified hierarchy */
	char comm[WH_COMM];
};

enum wh_why {
	WH_SEEN = 0, /* start-up scan */
	WH_FORKED = 1,
	WH_EXECED = 2,
	WH_UNMAPPED = 3, /* a phase of `tgid` begins, whose number is in `tag` */
};

/* Stack of one sample. Followed by n_kernel + n_user addresses (innermost first), then `bytes` bytes
 * of user stack that begin at `sp`. */
#define WH_MAX_FRAMES 127
#define WH_MAX_STACK 65536
struct wh_stack {
	WH_U32 kind;
	WH_U32 who;
	WH_U32 tgid;
	WH_U32 tid;
	WH_U64 where; /* as in struct wh_entry */
	WH_U64 time;  /* CLOCK_MONOTONIC ns */
	WH_U64 ip;    /* user registers, 0 for a kernel thread */
	WH_U64 sp;
	WH_U64 bp;
	WH_U32 n_kernel;
	WH_U32 n_user;
	WH_U32 bytes;
	WH_U32 holes; /* bit n: the bytes in the n-th page from `sp` on could not be read */
};

/* User registers at a sample, and what the recipe of its place found. Read at once and thrown away: registers
 * are the target's secrets. `value` holds the general registers as instructions number them (rax rcx rdx rbx rsp
 * rbp rsi rdi r8..r15), then the values of the steps; one that could not be taken, or that the recipe does not
 * have, has no bit in `known`. */
#define WH_GPRS 16
#define WH_STEPS 6
#define WH_TERMS 3
struct wh_regs {
	WH_U32 kind;
	WH_U32 tgid;
	WH_U64 pc;
	WH_U64 time; /* CLOCK_MONOTONIC ns */
	WH_U64 flags;
	WH_U32 recipe; /* wh_recipe.id, 0: there was none */
	WH_U32 known;  /* bit i: step i */
	WH_U64 value[WH_GPRS + WH_STEPS];
};

/* Two moments of one thread that no other thread came between: a sample, and when the event for second moments came after it. */
struct wh_pair {
	WH_U32 kind;
	WH_U32 tgid;
	WH_U64 time;	  /* of the second one, CLOCK_MONOTONIC ns */
	WH_U64 length_ns; /* from when the sample's handler was left */
	WH_U64 handler_ns; /* what that had taken */
	WH_U64 pc[2];	  /* the second one is 0 in the kernel */
	WH_U64 first[WH_GPRS];
	WH_U64 second[WH_GPRS];
};

/* A step at a place of a process: the sum of the sources times their scales and `disp`, shifted to the left, then to
 * the right (that takes a field out of it); with a width, what stands in memory there, extended by zeros. Written by
 * the tool only. */
struct wh_step {
	WH_U64 disp;
	short scale[WH_TERMS];		/* 0: no such term */
	unsigned char source[WH_TERMS]; /* index into wh_regs.value: a register or an earlier step */
	unsigned char up;
	unsigned char down;
	unsigned char is_signed; /* the shift to the right repeats the sign */
	unsigned char width;	 /* bytes to load: 1, 2, 4, 8; 0: none */
	unsigned char used;	 /* 0: the recipe ends here */
	WH_U16 spare;
};

/* The value of a step, or the address of its load. Sources are in range. */
static inline __attribute__((always_inline)) WH_U64 wh_sum(const struct wh_step *s, const WH_U64 *value)
{
	WH_U64 sum = s->disp;
	for (int i = 0; i < WH_TERMS; i++) {
		unsigned int from = s->source[i];
		if (from < WH_GPRS + WH_STEPS)
			sum += value[from] * (WH_U64)(long long)s->scale[i];
	}
	sum <<= s->up & 63;
	return s->is_signed ? (WH_U64)((long long)sum >> (s->down & 63)) : sum >> (s->down & 63);
}

struct wh_place {
	WH_U64 pc;
	WH_U32 tgid;
	WH_U32 spare;
};
/* `again` repeats the id behind the steps: who reads it first and `id` last has seen one recipe, not two halves. */
struct wh_recipe {
	WH_U32 id;
	WH_U32 spare;
	struct wh_step step[WH_STEPS];
	WH_U32 again;
	WH_U32 spare2;
};

#endif
