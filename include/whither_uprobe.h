/*
 * Words shared between bpf/calls.bpf.c and crate probe (mirrored in crate abi): the tables of the
 * uprobe back end. Unwind rows and rules are those of whither_agent.h. Not stored on disk.
 */
#ifndef WHITHER_UPROBE_H
#define WHITHER_UPROBE_H
#include "whither_agent.h"

#define WH_UP_FRAMES 64u   /* power of two */
#define WH_UP_RANGES 4096u /* per half; power of two */
#define WH_UP_RULES 16384u /* power of two */
#define WH_UP_PATHS 65536u

/* Word of a point: WH_DO_EXIT, WH_DO_PATH, this, and its two values, of 6 bits each: where they come from (0 none, 1 to 6
 * an argument, WH_UP_RET), log2 of their bytes, whether they have a sign. */
#define WH_UP_ON 0x10000u
#define WH_UP_VALUE_SHIFT 20u
#define WH_UP_VALUE_BITS 6u
#define WH_UP_RET 7u
#define WH_UP_FROM(value) ((value) & 7)
#define WH_UP_WIDTH(value) (8u << ((value) >> 3 & 3)) /* bits */
#define WH_UP_SIGNED(value) ((value) >> 5 & 1)

/* Cookie of a breakpoint: its point, and from bit 32 the turn that it was set in. */
#define WH_UP_POINT(cookie) ((wh_u32)(cookie))
#define WH_UP_TURN(cookie) ((wh_u32)((cookie) >> 32))

/* Registers of the probed thread, as the kernel hands them to a uprobe program. */
struct wh_user_regs {
	wh_u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

struct wh_up_call_key {
	wh_u64 slot; /* address of the return slot */
	wh_u32 tgid;
	wh_u32 spare;
};
struct wh_up_call {
	wh_u64 t0; /* CLOCK_MONOTONIC ns */
	wh_u64 off0;
	wh_u64 path;
	wh_u32 point;
	wh_u32 tid;
};
/* Where a thread met breakpoints last, and of which turn the newest there was: entries, exits. */
#define WH_UP_ENTRY 0
#define WH_UP_EXIT 1
struct wh_up_met {
	wh_u64 ip[2];
	wh_u32 turn[2];
};
struct wh_up_path_key {
	wh_u64 path; /* hash of its frames, 0 = path not kept */
	wh_u32 point;
	wh_u32 tgid;
};
struct wh_up_counts {
	wh_u64 calls;
	wh_u64 done;
	wh_u64 wall; /* ns */
	wh_u64 cpu;
	wh_u64 min;
	wh_u64 max;
	wh_u64 value[2];
	wh_u64 hist[64]; /* log2 of ns */
};
struct wh_up_frames {
	wh_u32 n;
	wh_u32 flags; /* WH_ROOT_END or WH_ROOT_TRUNCATED */
	wh_u64 ra[WH_UP_FRAMES];
};
struct wh_up_off {
	wh_u64 total; /* ns off the CPU since the account began */
	wh_u64 since; /* when it left the CPU, 0 while running */
};

#endif
