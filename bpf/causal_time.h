/*
 * Time of watched threads, for the kernel side of the causal profiler. Lives here: how long a thread has run
 * since it was last looked at, and how it pays what it owes. Not here: when that happens, and to whom time is
 * credited. Constraint: both are about the running thread on its own CPU.
 */
#ifndef WHITHER_CAUSAL_TIME_H
#define WHITHER_CAUSAL_TIME_H

#include "causal_maps.h"

#define SCHED_FIFO 1
#define SCHED_RR 2
#define SCHED_DEADLINE 6

static __u32 mode(const struct wh_cz_ctl *c, __u64 now)
{
	__u32 state = c->state;
	return (__s64)(now - c->beat) < (__s64)WH_CZ_SILENCE_NS ? state : WH_CZ_OFF;
}

static int is_realtime(const struct task_struct *task)
{
	return task->policy == SCHED_FIFO || task->policy == SCHED_RR || task->policy == SCHED_DEADLINE;
}

static __u32 fresh_of(const struct wh_cz_thread *t)
{
	return t->fresh % WH_CZ_TURN;
}

static void is_now(struct wh_cz_thread *t, __u32 fresh)
{
	t->fresh = t->fresh - fresh_of(t) + fresh;
}

/* A thread is woken: by one of the group, or by the world. */
static void turn_begins(struct wh_cz_thread *t, struct wh_cz_thread *waker)
{
	is_now(t, WH_CZ_STALE);
	if (waker) {
		t->fresh = WH_CZ_STALE;
		waker->fresh = fresh_of(waker);
	} else if (t->fresh < WH_CZ_ALONE) {
		t->fresh += WH_CZ_TURN + (t->absolute ? WH_CZ_STALE : WH_CZ_FRESH);
	}
}

struct spin {
	__u64 end;
};

static long spin_step(__u32 i, struct spin *s)
{
	return bpf_ktime_get_ns() >= s->end;
}

/* Lets the running thread pay what it owes by spinning, up to a limit; the time that took. 1,024 ns of it
 * pay `worth` ns: while a thread is paused by one tick it is spared the cost of the ticks it would have met
 * meanwhile, which its own time is full of. A spin takes what was asked; if it took longer, the hypervisor
 * had the CPU, and that is nobody's delay. A real-time thread keeps its debt: others may rely on its being in
 * time, and such windows do not count. */
static __u64 pay(struct wh_clock *clock, const struct wh_cz_ctl *c, __s64 limit, __u64 worth)
{
	__u64 owed = wh_debt_owed(clock, &c->g);
	if (!owed || limit <= 0 || !worth || is_realtime(bpf_get_current_task_btf()))
		return 0;
	__u64 ask = owed * 1024 / worth;
	if (ask > (__u64)limit)
		ask = limit;
	__u64 from = bpf_ktime_get_ns();
	struct spin s = {from + ask};
	bpf_loop(1 << 20, spin_step, &s, 0);
	__u64 took = bpf_ktime_get_ns() - from;
	wh_debt_paid(clock, (took < ask + 20000 ? took : ask) * worth / 1024);
	return took;
}

/* Run time of the thread's stint on its core that is not accounted for yet. Time spent paying is no run time;
 * a hole in the ticks (the hypervisor had the CPU) stands for one tick. */
static __u64 stint(struct wh_cz_thread *t, const struct wh_cz_ctl *c, __u64 tick, __u64 now)
{
	__u64 from = t->from > c->begin ? t->from : c->begin;
	__u64 ns = now - from - t->spun;
	if ((__s64)ns < 0)
		ns = 0;
	if (!t->from || ns > 2 * tick)
		ns = tick;
	t->from = now;
	t->spun = 0;
	return ns;
}

/* What a sample stands for: the thread's run time since its last tick, over all its stints. Counting ticks
 * would not do: where delays end by ticks, the program falls into step with them. */
static __u64 ran(struct wh_cz_thread *t, const struct wh_cz_ctl *c, __u64 tick, __u64 now)
{
	__u64 ns = stint(t, c, tick, now);
	if (t->run_epoch == (__u32)c->epoch)
		ns += t->run;
	t->run = 0;
	return ns;
}

static void ran_unseen(struct wh_cz_thread *t, const struct wh_cz_ctl *c, __u64 tick, __u64 now)
{
	t->run = ran(t, c, tick, now);
	t->run_epoch = (__u32)c->epoch;
}

#endif
