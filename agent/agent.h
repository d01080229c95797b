/*
 * What the agent's files share: its global words, the private memory of a thread, the calls between
 * the files. Constraint: everything a handler touches is either in the shared segment (one writer per
 * block, see whither_agent.h) or in private memory that a forked child finds wiped.
 */
#ifndef WH_AGENT_INTERNAL_H
#define WH_AGENT_INTERNAL_H

#include "sys.h"

/* From a return slot to its shadow; the unwind description of entry.S holds the same number. */
#define WH_SHADOW (-0x100000000000ll)

/* Registers as entry.S saved them. */
struct regs {
	u64 r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax;
};

struct global {
	char *segment;     /* 0 before wh_start and after wh_stop */
	u64 exit;          /* wh_exit_address */
	u64 cookie;        /* tells this life of the agent from one before an exec */
	u32 way;
	u32 thread_base;   /* way 2: how to learn the thread pointer, enum in thread.c */
};
extern struct global G;

static inline struct wh_header *header(void)
{
	return (struct wh_header *)G.segment;
}

static inline struct wh_point *point_at(u64 index)
{
	return (struct wh_point *)(G.segment + WH_AT_POINTS) + index;
}

#endif
