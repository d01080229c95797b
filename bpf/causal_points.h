/*
 * Where threads of the causal profiler's target are met with interrupts on: at a progress point, and on their way
 * out of a system call. Lives here: what a visit counts, and what is paid there. Not here: ticks, the scheduler.
 * Constraint: nothing here may be done where the kernel may hold a lock, but counting.
 */
#ifndef WHITHER_CAUSAL_POINTS_H
#define WHITHER_CAUSAL_POINTS_H

#include "causal_nap.h"

/* Longest delay of a thread that has just been woken, ns. */
#define MOST_AWAKE_NS 4000000
/* A system call that a signal has ended, or that is to be begun again after one. */
#define INTERRUPTED(result) ((result) == -4 || ((result) <= -512 && (result) >= -516))

/* What was seen before the window began to count is forgotten. */
static void counts(struct wh_cz_visits *v, __u64 counted)
{
	if (v->counted == counted)
		return;
	v->counted = counted;
	v->count = 0;
	v->sum_v = 0;
}

/* These run with interrupts on: counts are atomic, and a pair of stamps may come from two threads that
 * visited the same point on the same CPU within a microsecond. */
static void visit(__u32 point, int may_pay)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &tid);
	struct wh_cz_ctl *c = ctl_now();
	struct wh_cz_cpu *cpu = cpu_now();
	if (!t || !c || !cpu)
		return;
	__u32 key = bpf_get_smp_processor_id() * WH_CZ_POINTS + (point & (WH_CZ_POINTS - 1));
	struct wh_cz_visits *v = bpf_map_lookup_elem(&visits, &key);
	if (v)
		__sync_fetch_and_add(&v->ever, 1);
	__u64 now = bpf_ktime_get_ns();
	__u32 state = mode(c, now);
	if (state == WH_CZ_OFF)
		return;
	wh_debt_sync(&t->clock, (__u32)c->epoch);
	if (v && state == WH_CZ_ON) {
		counts(v, c->counted);
		__u64 at = now - c->begin;
		__s64 virtual = (__s64)at - t->clock.d;
		if (!__sync_fetch_and_add(&v->count, 1)) {
			v->first_t = at;
			v->first_v = virtual;
		}
		v->last_t = at;
		v->last_v = virtual;
		__sync_fetch_and_add(&v->sum_v, virtual);
		if (t->absolute_epoch == (__u32)c->epoch)
			__sync_fetch_and_or(&c->absolute_points, 1ull << (point & 63));
	}
	if (!may_pay || c->nap_signal)
		return;
	/* Ticks go on in this pause. */
	__u64 paid = pay(&t->clock, c, c->cap, 1024);
	if (paid) {
		t->spun += paid;
		__sync_fetch_and_add(&cpu->inserted, paid);
	}
}

/* A thread that the world has woken pays before it goes on: its turn may be over, and others woken by it, before a tick
 * meets it. What slept for as long in virtual as in real time would be early otherwise. Interrupts are on, and the
 * kernel holds no lock on its way out; a signal cannot interrupt a call that is over. */
static void pays_awake(__s64 result)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &tid);
	struct wh_cz_ctl *c = ctl_now();
	struct wh_cz_cpu *cpu = cpu_now();
	if (!t || fresh_of(t) != WH_CZ_FRESH || !c || !cpu || INTERRUPTED(result))
		return;
	__u64 now = bpf_ktime_get_ns();
	is_now(t, WH_CZ_STALE);
	if (mode(c, now) == WH_CZ_OFF)
		return;
	wh_debt_sync(&t->clock, (__u32)c->epoch);
	__u64 owed = wh_debt_owed(&t->clock, &c->g);
	if (!owed || naps(t, c, cpu, owed, now))
		return;
	is_now(t, WH_CZ_PAYING);
	/* While it pays, others go on and are credited: that is owed as well. */
	__u64 paid = 0;
	for (int i = 0; i < 4; i++)
		paid += pay(&t->clock, c, (__s64)(MOST_AWAKE_NS - paid), 1024);
	is_now(t, WH_CZ_STALE);
	t->spun += paid;
	__sync_fetch_and_add(&cpu->inserted, paid);
}

#endif
