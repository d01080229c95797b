/*
 * CPU time of the thread without a system call per reading: between two schedulings CPU time runs with
 * the TSC. The page of a perf event tells by its lock word when the thread was scheduled anew; then the
 * thread clock is read and the pair kept as anchor. Where perf is refused each reading asks the kernel; and so
 * do a thread's first ones: to open an event takes as long as some hundred of them, and many threads make few calls.
 * Constraint: time that a hypervisor takes away between two schedulings is counted as CPU time here, the
 * page does not tell it.
 */
#include "agent.h"

#define FIRST_ASKS 16 /* two for a call; then an event is opened, which takes 20 to 40 us */
#define LOCK_WORD 2 /* struct perf_event_mmap_page.lock is its third word */

static u64 thread_clock(void)
{
	struct {
		u64 seconds, nanoseconds;
	} now = {0, 0};

	sys2(SYS_CLOCK_GETTIME, 3 /* CLOCK_THREAD_CPUTIME_ID */, &now);
	return now.seconds * 1000000000ull + now.nanoseconds;
}

/* The smallest event that has a page: task clock, this thread, user space only. */
static volatile u32 *perf_page(u32 pid)
{
	u64 attr[14] = {1 | (u64)sizeof(attr) << 32, 1 /* TASK_CLOCK */, 0, 0, 0, 3 << 5 /* not kernel, hypervisor */};
	s64 fd = sys6(SYS_PERF_EVENT_OPEN, (u64)attr, 0, ~0ull, ~0ull, 8 /* close on exec */, 0);
	s64 page;

	if (fd < 0)
		return 0;
	page = sys6(SYS_MMAP, 0, PAGE, 1, MAP_SHARED_, (u64)fd, 0);
	sys2(SYS_CLOSE, fd, 0);
	if (page < 0 && page > -4096)
		return 0;
	if (!map_listed((u64)page, pid)) {
		sys2(SYS_MUNMAP, page, PAGE);
		return 0;
	}
	return (volatile u32 *)page + LOCK_WORD;
}

static void clock_open(struct local *l)
{
	l->clock = perf_page(l->block->pid);
	l->block->cpu_mode = l->clock ? 1 : 2;
	if (!l->clock) {
		l->clock = &l->no_clock;
		__atomic_fetch_add(&header()->no_cpu_page, 1, __ATOMIC_RELAXED);
	}
}

/* Before the anchor goes that they refer to. All records are looked at: those of slow entries, which refer
 * to none, may lie above others that do. */
static void settle(struct local *l)
{
	struct wh_thread *t = l->block;
	u32 n = t->n_active < WH_ACTIVE ? t->n_active : WH_ACTIVE;

	if (t->cpu_mode == 2) /* no anchor ever held */
		return;
	for (struct wh_active *r = t->active; n--; r++)
		if (r->cpu0 && !(r->cpu0 & 1)) {
			r->cpu0 = clock_at_entry(l, r);
			t->lost[WH_LOST_CLOCK] += !r->cpu0;
		}
	l->pending += 2;
}

/* 0: the CPU time may not be asked for any more. */
slow_path int clock_anchor(struct local *l)
{
	if (G.locked) {
		l->block->lost[WH_LOST_CLOCK]++;
		return 0;
	}
	if (!l->clock) {
		l->clock = &l->no_clock;
		l->block->cpu_mode = 0;
		l->asks = FIRST_ASKS;
	}
	if (l->block->cpu_mode == 0 && !l->asks--)
		clock_open(l);
	settle(l);
	for (int tries = 0; tries < 4; tries++) {
		u32 seen = *l->clock;

		l->cpu_ns = thread_clock();
		l->cpu_ticks = ticks();
		l->clock_seen = seen;
		if (*l->clock == seen)
			break;
	}
	l->block->anchor_cpu = l->cpu_ns; /* for the controller: what calls in progress have used */
	l->block->anchor_tsc = l->cpu_ticks;
	if (l->block->cpu_mode != 1)
		l->clock_seen = ~l->no_clock; /* never equal: ask again next time */
	return 1;
}
