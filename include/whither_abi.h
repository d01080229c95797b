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
 * The tag tells lives of one pid apart: the hashed start time, XOR the number of execs, so that the
 * lives of one process all differ. Processes that reuse a pid may share a tag by chance. */
#define WH_PC_BITS 57
#define WH_EVENT_BITS 4
#define WH_PID_BITS 22
#define WH_TAG_LOW_BITS 10
#define WH_TAG_BITS 13
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
	WH_U32 spare;
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
};

/* Stack of one sample. Followed by n_kernel + n_user addresses (innermost first), then `bytes` bytes
 * of user stack that begin at `sp`. */
#define WH_MAX_FRAMES 127
#define WH_MAX_STACK 8192
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
	WH_U32 spare;
};

#endif
