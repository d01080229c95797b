/*
 * What the files of the causal profiler's back end without BPF share: where its words are, a thread's slot, who may
 * be at it. Constraint: a slot belongs to its thread alone, but for the grant that a waker leaves; a tick that finds
 * its thread at the slot goes away, its time is the next tick's.
 */
#ifndef WH_PACE_INTERNAL_H
#define WH_PACE_INTERNAL_H

#include "agent.h"
#include "../include/whither_pace.h"

/* Debts below this wait for more: a sleep is some ten microseconds longer than it should be. */
#define LEAST_PAUSE_NS 50000ll
/* Longest pause at once. */
#define MOST_PAUSE_NS 4000000ll

/* A frame that a walk looks for: see pace_walk.c. */
struct paced_walk {
	u64 hit;
	u64 site;
	u64 marks; /* of it */
	u32 n;
	u64 frames[WH_CZ_FRAMES];
};

/* Not 0 while the process is paced. A page of its own, which a forked child finds wiped. */
extern volatile u32 *pace_live;

static inline struct wh_pace_ctl *pace_ctl(void)
{
	return (struct wh_pace_ctl *)(G.segment + WH_AT_PACE);
}

static inline struct wh_pace_slot *slot_at(u64 i)
{
	return (struct wh_pace_slot *)(G.segment + WH_AT_PACE_SLOTS) + i;
}

static inline u64 *waiting_at(u64 i)
{
	return (u64 *)(G.segment + WH_AT_PACE_WAITING) + i;
}

static inline u64 index_of(const struct wh_pace_slot *s)
{
	return (u64)(s - slot_at(0));
}

static inline u64 slots_used(void)
{
	u64 n = __atomic_load_n(&pace_ctl()->n_slots, __ATOMIC_ACQUIRE);

	return n < WH_PACE_SLOTS ? n : WH_PACE_SLOTS;
}

/* What the window says: OFF when nobody has been heard of for too long. */
static inline u64 pace_state(const struct wh_pace_ctl *c, u64 now)
{
	u64 state = *(const volatile u64 *)&c->state;
	s64 age = (s64)(now - *(const volatile u64 *)&c->beat);

	return age < (s64)c->silence ? state : WH_CZ_OFF;
}

/* pace.c */
u64 cpu_now(void);
u64 blocks_so_far(void);
struct wh_pace_slot *slot_take(u64 sp);
void slot_leave(struct wh_pace_slot *s);
void slot_sync(struct wh_pace_slot *s, const struct wh_pace_ctl *c, u64 now);
void pace_pay(struct wh_pace_slot *s, struct wh_pace_ctl *c);

/* pace_wait.c */
void wait_over(struct wh_pace_slot *s, struct wh_pace_ctl *c, u64 now);
int waits_for_signals(const struct regs *r);
void drop_tick(u64 signal);
void before_call(struct wh_pace_slot *s, struct wh_pace_ctl *c, const struct regs *r, u64 now);

/* pace_walk.c */
void pace_walk(struct wh_pace_slot *s, const struct wh_pace_ctl *c, u64 ip, u64 sp, u64 bp, struct paced_walk *w);

#endif
