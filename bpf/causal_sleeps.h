/*
 * Waits that time ends, for the kernel side of the causal profiler: what was asked for, what the end follows from (the rules are
 * in whither_debt.h and whither_rest.h), and who is paid then. Constraint: a wait's arguments are read as the thread blocks, what
 * ended it is known when it is woken.
 */
#ifndef WHITHER_CAUSAL_SLEEPS_H
#define WHITHER_CAUSAL_SLEEPS_H
#include "causal_maps.h"

/* Where a sleep's length or end is, and nanoseconds of the second word's unit; 0: it is none, or in milliseconds. */
static __u64 sleep_asked(const struct pt_regs *regs, __s64 *unit)
{
	*unit = 1;
	switch ((__s64)regs->orig_ax) {
	case 35: /* nanosleep */
		return regs->di;
	case 230: /* clock_nanosleep */
		return regs->dx;
	case 23: /* select without descriptors */
		*unit = 1000;
		return regs->di ? 0 : regs->r8;
	case 270: /* pselect6 */
		return regs->di ? 0 : regs->r8;
	default:
		return 0;
	}
}

/* Where the time-out is of a wait that may end otherwise. */
static __u64 time_out_asked(const struct pt_regs *regs, int *until)
{
	__u32 operation = regs->si & 0x7f; /* of a futex, without PRIVATE and CLOCK_REALTIME */

	*until = 0;
	switch ((__s64)regs->orig_ax) {
	case 271: case 128: /* ppoll, rt_sigtimedwait */
		return regs->dx;
	case 441: /* epoll_pwait2 */
		return regs->r10;
	case 202: /* FUTEX_WAIT for so long, the others until a time */
		*until = operation != 0;
		return operation == 0 || operation == 9 || operation == 11 ? regs->r10 : 0;
	default:
		return 0;
	}
}

/* What the end of a wait follows from, as far as it is a sleep. The system call has read its length just before, so it is there. */
static __u32 how_it_sleeps(const struct pt_regs *regs, struct wh_deadline *last, __u64 now)
{
	__s64 words[2], unit;
	__u64 asked = sleep_asked(regs, &unit);
	int absolute = regs->orig_ax == 230 && regs->si & 1;
	if (!asked)
		return WH_SLEEPS_ON;
	if (bpf_probe_read_user(words, sizeof(words), (const void *)asked))
		return absolute ? WH_SLEEPS_UNTIL : WH_SLEEPS_ON;
	__s64 ns = words[0] * 1000000000ll + words[1] * unit;
	__u32 how = absolute ? wh_debt_sleeps_until(last, ns, now) : wh_debt_sleeps(last, ns, now);
	last->woke = 0;
	return how;
}

/* The thread waits from now on. Which wait it is: the call, and what it waits at (the words of a condition lie in one line). */
static void falls_asleep_until(struct wh_cz_thread *t, const struct pt_regs *regs, __u64 now)
{
	__s64 words[2];
	int until;
	__u64 asked = time_out_asked(regs, &until);

	t->absolute = how_it_sleeps(regs, &t->deadline, now);
	t->wait = (__u32)regs->orig_ax << 22 ^ (__u32)(regs->di >> 6);
	t->rest.asked = 0;
	if (asked && !bpf_probe_read_user(words, sizeof(words), (const void *)asked))
		t->rest.asked = words[0] * 1000000000ll + words[1] - (until ? (__s64)now : 0);
}

/* A runtime's threads take turns in waiting for its timers and for descriptors: rounds are those of the process, where the thread got the wait from another one. */
static int process_keeps(struct wh_cz_thread *t, __u64 since, __u64 now)
{
	struct wh_cz_process *p = bpf_map_lookup_elem(&processes, &t->tgid);

	if (!p || !t->handed || t->class_ != WH_CZ_NET)
		return 0;
	if (p->rest.woke && (__s64)(since - p->rest.woke) >= 0)
		wh_rest_learns(&p->rest, (__s64)(since - p->rest.woke), (__s64)(now - since));
	p->rest.woke = now;
	return wh_rest_keeps(&p->rest);
}

/* A timer ends the wait of a thread. */
static void times_out(struct wh_cz_thread *t, __u64 now)
{
	__u64 since = t->clock.since;
	int kept = 0;

	/* The length of a sleep was read, and its rule knows better. */
	if (t->absolute) {
		t->rest.woke = 0;
		return;
	}
	if (t->rest.asked) {
		kept = wh_debt_sleeps(&t->deadline, t->rest.asked, since);
		t->deadline.woke = 0;
	}
	kept = process_keeps(t, since, now) || kept;
	t->handed = 0;
	if (wh_rest_timed_out(&t->rest, &t->clock, kept, t->wait, since, (__s64)(now - since), now))
		t->absolute = WH_SLEEPS_SEEN;
}

/* Whether rounds of the thread are ended by a clock, nearly all of them. */
static int by_the_clock(struct wh_cz_thread *t)
{
	if (t->absolute == WH_SLEEPS_SEEN)
		return t->rest.always >= WH_KEPT_ALWAYS;
	return wh_debt_woken_by_time(&t->clock, &t->deadline, t->absolute);
}

/* R5 for a thread that absolute time has woken. When nobody else of the group can run, nobody is there to be
 * paid. */
struct others {
	__u32 but;
	__u32 busy;
};

static long other_step(void *map, const __u32 *tid, struct wh_cz_thread *t, struct others *o)
{
	if (*tid == o->but)
		return 0;
	if (t->clock.state != WH_CLOCK_BLOCKED || t->nap == WH_CZ_ASLEEP) {
		o->busy = 1;
		return 1;
	}
	return 0;
}

static void woken_by_time(struct wh_cz_thread *t, __u32 tid, struct wh_cz_ctl *c, struct wh_cz_cpu *cpu)
{
	if (by_the_clock(t))
		t->absolute_epoch = (__u32)c->epoch;
	cpu->absolute++;
	if (c->g <= 0)
		return;
	struct others o = {tid, 0};
	bpf_for_each_map_elem(&threads, other_step, &o, 0);
	if (!o.busy)
		wh_debt_rebase(&c->g, &t->clock);
}

#endif
