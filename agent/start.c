/*
 * What the controller calls, with all other threads standing still or outside of the agent: starting,
 * stopping, measuring the agent's own cost; and what the loader's probe does. No hot path here.
 */
#include "agent.h"

struct global G;
extern u64 wh_empty(u64 x);
extern u64 wh_bare(u64 x);

/* A forked child must find its private memory wiped. */
static int can_wipe(void)
{
	void *page = map_private(0, PAGE);
	s64 answer = page ? sys3(SYS_MADVISE, page, PAGE, 18 /* MADV_WIPEONFORK */) : -1;

	if (page)
		sys2(SYS_MUNMAP, page, PAGE);
	return answer == 0;
}

/* So much is needed below the slot of a call, the kernel's own frame for a signal that comes meanwhile aside. */
#define NEEDED 0x1000ull

/* How far the first thread's stack, which ends at `top`, may grow. */
static void find_end(u64 top)
{
	u64 limit[2] = {0, 0};
	s64 answer = sys4(SYS_PRLIMIT64, 0, 3 /* RLIMIT_STACK */, 0, limit);

	G.end = answer == 0 && top && limit[0] < top ? (top - limit[0]) & ~(PAGE - 1) : 0;
	G.near_end = G.end ? G.end + NEEDED : 0;
}

exported u64 wh_start(const struct wh_start *start)
{
	const struct wh_header *h = (const struct wh_header *)start->segment;

	if (h->magic != WH_AGENT_MAGIC || h->bytes < WH_SEGMENT_BYTES)
		return WH_START_MAGIC;
	if (h->abi != WH_AGENT_ABI || start->abi != WH_AGENT_ABI)
		return WH_START_ABI;
	if ((s64)start->shadow != WH_SHADOW)
		return WH_START_SHADOW;
	if (!can_wipe())
		return WH_START_FORK;
	/* A gigabyte, which a core dump would make memory of. */
	sys3(SYS_MADVISE, start->segment, h->bytes, MADV_DONTDUMP_);
	if (!G.cookie)
		G.cookie = ticks() | 1;
	find_end(h->stack_end);
	G.way = start->way;
	G.pid = (u32)sys0(SYS_GETPID);
	G.often = start->way == 2 ? 15 : 1023;
	G.fsgsbase = start->fsgsbase;
	barrier();
	G.segment = (char *)start->segment;
	G.fast = start->way == 1 && !G.locked ? start->segment : 1;
	return WH_STARTED;
}

/* Nothing is recorded from now on. Stubs still find their points through the segment: it stays mapped
 * until the last of them is gone. */
exported void wh_stop(void)
{
	if (G.segment)
		header()->enabled = 0;
}

/* Behind this nothing before it is still being done. */
static inline void all_done(void)
{
	__asm__ volatile("lfence" ::: "memory");
}

/* Fewest ticks that 64 calls of `wh_empty` took in `rounds` rounds. The controller asks once without and
 * once with a probe on it: the difference / 64 is what a probed call costs its caller. */
__attribute__((noinline)) static u64 calls_of_empty(u64 rounds)
{
	u64 best = ~0ull, x = rounds | 1;

	while (rounds--) {
		u64 start = ticks(), took;

		for (int i = 0; i < 64; i++) {
			x = wh_empty(x);
			barrier();
		}
		took = ticks() - start;
		if (took < best)
			best = took;
	}
	return best;
}

/* The other end: fewest ticks of 64 calls of a function with nothing in it, each of which begins when all before it is
 * done, so that no part of a probe hides behind anything. */
__attribute__((noinline)) static u64 calls_alone(u64 rounds)
{
	u64 best = ~0ull, x = rounds | 1;

	while (rounds--) {
		u64 start = ticks(), took;

		for (int i = 0; i < 64; i++) {
			all_done();
			x = wh_bare(x);
			barrier();
		}
		all_done();
		took = ticks() - start;
		if (took < best)
			best = took;
	}
	return best;
}

/* One of 2^`left` paths. The two places must not become one: what stands behind them differs. */
__attribute__((noinline)) static u64 one_way(u64 x, u32 bits, u32 left)
{
	if (!left) {
		all_done();
		x = wh_bare(x);
		barrier();
		return x;
	}
	if (bits & 1) {
		x = one_way(x, bits >> 1, left - 1);
		__asm__ volatile("add $1, %0" : "+r"(x));
	} else {
		x = one_way(x, bits >> 1, left - 1);
		__asm__ volatile("add $3, %0" : "+r"(x));
	}
	return x;
}

/* Mean ticks of 64 calls by paths in no order: processors learn what comes again, so it never does. */
__attribute__((noinline)) static u64 calls_varied(u64 rounds)
{
	static u32 any;
	u64 x = 1, start = ticks();

	for (u64 i = 0; i < rounds * 64; i++) {
		any = any * 1664525 + 1013904223;
		x = one_way(x, any >> 20, 8);
	}
	all_done();
	return (ticks() - start) / (rounds ? rounds : 1);
}

/* Frames as a program has them: what a call costs grows a little with each. */
__attribute__((noinline)) static u64 below(u64 rounds, u32 frames, u32 how)
{
	u64 best;

	if (frames)
		best = below(rounds, frames - 1, how);
	else if (how & WH_CALIBRATE_VARIED)
		best = calls_varied(rounds);
	else
		best = how & WH_CALIBRATE_ALONE ? calls_alone(rounds) : calls_of_empty(rounds);

	barrier();
	return best;
}

/* What this thread has spent apart from calls; of one that has recorded nothing yet, nothing. */
static u64 *apart_here(void)
{
	static u64 none;
	struct local *l = local_of_thread();

	none = 0;
	return l && l->home == G.segment && l->block ? &l->block->lost[WH_LOST_APART] : &none;
}

/* Called by wh_calibrate, the outermost frame. What a thread's first call finds out is no cost of the program's calls. */
__attribute__((visibility("hidden"))) u64 calibrate(u64 rounds, u32 how)
{
	u64 before = *apart_here();
	u64 fewest = below(rounds, (how & WH_CALIBRATE_VARIED ? 0 : 8) + (how & 0xff), how);

	*apart_here() = before;
	return fewest;
}

/* A living controller writes its heartbeat four times a second. */
#define BEATS_NS 1000000000ll
#define SLICE_NS 100000000ull

static int controller_lives(const struct wh_header *h)
{
	s64 age = (s64)(ticks() - h->heartbeat);

	return age <= 0 || (s64)ticks_to_ns((u64)age) < BEATS_NS;
}

/* The loader's list has changed: tells the controller, and gives it a moment to patch what is new. On a busy
 * machine that moment may be long; nobody is waited for who is not there. */
slow_path void loader_changed(void)
{
	struct wh_header *h = header();
	u32 mine = __atomic_add_fetch(&h->loads, 1, __ATOMIC_ACQ_REL);
	u64 limit = h->load_wait_us;
	u64 began = ticks();

	if (G.locked)
		return;
	sys3(SYS_FUTEX, &h->loads, 1 /* WAKE, shared */, 0x7fffffff);
	if (!limit || !h->enabled || !h->tsc_mult)
		return;
	u64 wanted = limit * 1000;
	for (;;) {
		u32 seen = __atomic_load_n(&h->loads_seen, __ATOMIC_ACQUIRE);
		u64 waited = ticks_to_ns(ticks() - began);

		/* One that leaves does not answer any more. */
		if ((s32)(seen - mine) >= 0 || !__atomic_load_n(&h->enabled, __ATOMIC_ACQUIRE))
			return;
		if (waited >= wanted || !controller_lives(h)) {
			__atomic_fetch_add(&h->loads_late, 1, __ATOMIC_RELAXED);
			return;
		}
		u64 left[2] = {0, wanted - waited < SLICE_NS ? wanted - waited : SLICE_NS};
		sys4(SYS_FUTEX, &h->loads_seen, 0 /* WAIT, shared */, seen, left);
	}
}
