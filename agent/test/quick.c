/*
 * What the quick entries of the agent (fast.c) could get wrong: what they have learnt while a signal came,
 * CPU time that refers to an anchor which is gone, points switched while they are called, controllers that
 * fall silent, and everything at once; and what threads could that meet new paths at the same time.
 * Run: quick AGENT.SO [case...].
 */
#include "harness.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

static volatile u64 sink;
static u64 seed = 88172645463325252ull;
static u64 next_random(void) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed; }

PROBED u64 work(u64 x) { return x * 2654435761u; }
#define SITE(n) NOINLINE u64 site##n(u64 x) { volatile char pad[n * 16 + 8]; pad[0] = 1; return work(x) + pad[0]; }
SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7)
static u64 (*const sites[8])(u64) = {site0, site1, site2, site3, site4, site5, site6, site7};
NOINLINE u64 via(u64 (*f)(u64), u64 x, u64 size) { volatile char *p = (volatile char *)__builtin_alloca(size); p[0] = 0; return f(x) + p[0]; }

static void alarms(void (*handler)(int), int flags, long usec)
{
	struct sigaction sa = {0};
	sa.sa_handler = handler; sa.sa_flags = flags;
	if (handler) sigaction(SIGALRM, &sa, 0);
	struct itimerval it = {{0, usec}, {0, usec}};
	setitimer(ITIMER_REAL, &it, 0);
}
static u64 counted_at(u32 p, u64 (*site)(u64))
{
	u64 got = 0;
	for (u32 i = 1; i < HEADER->next_path; i++) {
		u64 ra[128];
		Dl_info in;
		if (PATH_POINT[i] != p || frames_of(i, ra, 0, 128) < 2) continue;
		if (ra[0] - (u64)site < 96 && dladdr((void *)ra[0], &in) && in.dli_saddr == (void *)site) got += sums_of_path(i).calls;
	}
	return got;
}

/* ---- paths that change with each call, in signal handlers as well ---- */
static volatile u64 interrupted, at_site[8];
static void other_paths(int s)
{
	static u64 state = 0x9e3779b97f4a7c15ull;
	(void)s;
	interrupted++;
	for (int i = 0; i < 6; i++) {
		state ^= state << 13; state ^= state >> 7; state ^= state << 17;
		at_site[state & 7]++;
		sink = via(sites[state & 7], state, (state >> 8 & 15) * 16 + 16);
	}
}
static void learning(void)
{
	for (int flags = 0; flags < 3; flags++) {
		u32 p = probe((void *)work, flags == 0 ? WH_DO_PATH : flags == 1 ? ALL_TIMES : ALL_TIMES | WH_DO_CPU | WH_DO_HIST);
		u64 before = lost(WH_LOST_BUSY), truth = 0, got = 0, end = now_ns() + 1500000000ull, first = interrupted;
		for (int k = 0; k < 8; k++) at_site[k] = 0;
		u64 each[8] = {0};
		alarms(other_paths, 0, 150);
		while (now_ns() < end) {
			for (int i = 0; i < 100; i++) {
				u64 r = next_random();
				each[r & 7]++;
				if (r & 256) sink = via(sites[r & 7], r, (r >> 16 & 31) * 16 + 16); else sink = sites[r & 7](r);
			}
			if (!(next_random() & 63)) HEADER->generation++;
		}
		alarms(0, 0, 0);
		u64 missed = lost(WH_LOST_BUSY) - before;
		for (int k = 0; k < 8; k++) {
			u64 here = counted_at(p, sites[k]);
			CHECK(here <= each[k] + at_site[k] && here + missed >= each[k] + at_site[k], "site %d: %llu of %llu, lost %llu", k, (unsigned long long)here, (unsigned long long)(each[k] + at_site[k]), (unsigned long long)missed);
			got += here;
			truth += each[k] + at_site[k];
		}
		CHECK(got + missed == truth, "%llu + lost %llu of %llu", (unsigned long long)got, (unsigned long long)missed, (unsigned long long)truth);
		CHECK(interrupted - first > 500, "only %llu signals", (unsigned long long)(interrupted - first));
		printf("  flags %d: %llu signals, %llu calls, lost busy %llu, paths %llu\n", flags, (unsigned long long)(interrupted - first), (unsigned long long)truth, (unsigned long long)missed, (unsigned long long)sums(p).paths);
		unprobe(p);
	}
}

/* ---- CPU time of a call in which slow entries slept ---- */
static u64 thread_ns(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return (u64)t.tv_sec * 1000000000ull + (u64)t.tv_nsec; }
static void burn(u64 ns) { u64 end = thread_ns() + ns; while (thread_ns() < end) {} }
PROBED void naps(void) { struct timespec t = {0, 1000000}; nanosleep(&t, 0); }
PROBED void outer(void) { burn(2000000); naps(); burn(2000000); }
PROBED void outest(int n) { if (n) outest(n - 1); else outer(); burn(100000); }
static void anchors(void)
{
	u32 flags = ALL_TIMES | WH_DO_CPU;
	u32 p = probe((void *)outest, flags), q = probe((void *)outer, flags), r = probe((void *)naps, flags | WH_DO_USAGE);
	for (int i = 0; i < 20; i++) outest(3);
	u64 unknown = lost(WH_LOST_CLOCK), outest_all = sums(p).cpu, outer_all = sums(q).cpu;
	for (int i = 0; i < 50; i++) outest(3);
	outest_all = sums(p).cpu - outest_all, outer_all = sums(q).cpu - outer_all;
	/* four levels hold the innermost and 1 + 2 + 3 + 4 times 0.1 ms */
	printf("  50 calls of 4 ms: %.1f ms; four levels %.1f ms\n", (double)outer_all / 1e6, (double)outest_all / 1e6);
	CHECK(outer_all > 195000000 && outer_all < 230000000, "outer has %llu ns", (unsigned long long)outer_all);
	CHECK(outest_all > 4 * 195000000ull + 48000000 && outest_all < 980000000, "outest has %llu ns", (unsigned long long)outest_all);
	CHECK(lost(WH_LOST_CLOCK) == unknown, "CPU time of %llu calls is not known", (unsigned long long)(lost(WH_LOST_CLOCK) - unknown));
	CHECK(sums(r).cpu < 50000000, "naps have %llu ns", (unsigned long long)sums(r).cpu);
	unprobe(p); unprobe(q); unprobe(r);
}

/* ---- a controller that falls silent, for points without a clock as well ---- */
static void silence(void)
{
	const u32 kinds[] = {0, WH_DO_PATH, WH_DO_EXIT, WH_DO_EXIT | WH_DO_PATH, ALL_TIMES};
	for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		u32 p = probe((void *)work, kinds[k]);
		for (int i = 0; i < 100000; i++) sink = site0(1);
		CHECK(sums(p).calls == 100000, "kind %u: %llu", k, (unsigned long long)sums(p).calls);
		HEADER->patience = 1000000; HEADER->heartbeat = __builtin_ia32_rdtsc() - 100000000; HEADER->generation++;
		for (int i = 0; i < 100000; i++) sink = site0(1);
		CHECK(sums(p).calls <= 100001, "kind %u, silent: %llu", k, (unsigned long long)sums(p).calls);
		HEADER->patience = 0;
		u64 before = sums(p).calls;
		for (int i = 0; i < 100000; i++) sink = site0(1);
		CHECK(sums(p).calls == before + 100000, "kind %u, heard again: %llu", k, (unsigned long long)(sums(p).calls - before));
		/* Without a new generation: seen after a thousand calls at the latest. */
		HEADER->patience = 1000000; HEADER->heartbeat = __builtin_ia32_rdtsc() - 100000000;
		for (int i = 0; i < 3000; i++) sink = site0(1);
		if (kinds[k] & WH_DO_WALL) { struct timespec t = {1, 500000000}; nanosleep(&t, 0); sink = site0(1); }
		before = sums(p).calls;
		for (int i = 0; i < 100000; i++) sink = site0(1);
		CHECK(sums(p).calls == before, "kind %u, silent again: %llu more", k, (unsigned long long)(sums(p).calls - before));
		HEADER->patience = 0; HEADER->generation++;
		unprobe(p);
	}
}

/* ---- points switched off, on and to other actions while four threads call them ---- */
static volatile int stop;
static u64 truth_of[4];
static void *caller(void *arg)
{
	u64 n = 0, s = (u64)arg * 7919 + 1;
	while (!stop) { s ^= s << 13; s ^= s >> 7; s ^= s << 17; sink = s & 1 ? sites[s >> 8 & 7](s) : site0(s); n++; }
	truth_of[(u64)arg] = n;
	return 0;
}
static void switching(void)
{
	const u32 kinds[] = {ALL_TIMES, ALL_TIMES | WH_DO_CPU, WH_DO_EXIT | WH_DO_PATH, ALL_TIMES | WH_DO_HIST, ALL_TIMES | WH_DO_USAGE};
	u32 p = probe((void *)work, ALL_TIMES);
	pthread_t t[4];
	stop = 0;
	for (u64 i = 0; i < 4; i++) pthread_create(&t[i], 0, caller, (void *)i);
	struct timespec pause = {0, 200000}, settle = {0, 3000000};
	for (int i = 0; i < 300; i++) {
		POINTS[p].flags = kinds[i % 5];
		POINTS[p].state = WH_POINT_ON;
		nanosleep(&pause, 0);
		POINTS[p].state = WH_POINT_OFF;
		if (i % 10) continue;
		nanosleep(&settle, 0); /* calls under way may still count, a thread that does not run as well */
		nanosleep(&settle, 0);
		u64 before = sums(p).calls;
		nanosleep(&settle, 0);
		u64 more = sums(p).calls - before;
		CHECK(more <= 4, "%llu calls counted while it was off", (unsigned long long)more);
	}
	stop = 1;
	u64 truth = 0;
	for (int i = 0; i < 4; i++) { pthread_join(t[i], 0); truth += truth_of[i]; }
	CHECK(sums(p).calls > 1000 && sums(p).calls < truth, "%llu of %llu", (unsigned long long)sums(p).calls, (unsigned long long)truth);
	unprobe(p);
}

/* ---- everything at once: nested calls by changing paths, longjmp, coroutines, signals and jumps out of them ---- */
#define COS 4
static struct {
	ucontext_t context;
	jmp_buf env[4];
	int levels;
	char *stack;
} cos[COS];
static volatile int me;
static volatile u64 entered, jumps_out;
static u64 spread(u64 r, int depth);
#define COUNT(word) __asm__ volatile("incq %0" : "+m"(word)) /* one instruction: handlers count as well */
#define BODY(n) u64 keep[4] = {r, r * 3, r * 5, r * 7}; COUNT(entered); \
	__asm__ volatile("" : : "r"(keep) : "memory"); \
	u64 got = depth > 0 ? spread(r, depth) : 0; sink = got; \
	if (keep[0] != r || keep[1] != r * 3 || keep[2] != r * 5 || keep[3] != r * 7) failures++; \
	return r + n + (u64)depth;
PROBED u64 s0(u64 r, int depth) { BODY(0) }
PROBED u64 s1(u64 r, int depth) { volatile char big[500]; big[r % 500] = 1; BODY(1) }
PROBED __attribute__((optimize("no-omit-frame-pointer"))) u64 s2(u64 r, int depth) { volatile char *p = (volatile char *)__builtin_alloca(r % 300 + 16); p[1] = 1; BODY(2) }
PROBED u64 s3(u64 r, int depth) { BODY(3) }
PROBED u64 s4(u64 r, int depth) { volatile u64 some[20]; some[r % 20] = r; BODY(4) }
PROBED u64 s5(u64 r, int depth) { BODY(5) }
static u64 (*const storms[6])(u64, int) = {s0, s1, s2, s3, s4, s5};
static int may_jump, may_switch;
static void one(u64 r, int depth)
{
	u64 n = r % 6;
	if (storms[n](r, depth - 1) != r + n + (u64)(depth - 1)) failures++;
}
NOINLINE void turn(void)
{
	int from = me, to = (from + 1 + (int)(next_random() % (COS - 1))) % COS;
	me = to;
	swapcontext(&cos[from].context, &cos[to].context);
}
NOINLINE void guarded(u64 r, int depth)
{
	volatile int level = cos[me].levels;
	if (level >= 4) { one(r, depth); return; }
	if (!setjmp(cos[me].env[level])) {
		cos[me].levels = level + 1;
		one(r, depth);
	}
	cos[me].levels = level;
}
static u64 spread(u64 r, int depth)
{
	/* Which path follows from `r`, so that they come again; what happens on it does not. */
	for (u64 i = 0; i < 2; i++) {
		u64 s = next_random();
		if (may_switch && (s & 127) == 1) turn();
		if (may_jump && (s & 255) == 3 && cos[me].levels) longjmp(cos[me].env[s % (u64)cos[me].levels], 1);
		if ((s & 63) == 5) guarded(r * 5 + i * 7 + 1, depth); else one(r * 5 + i * 7 + 1, depth);
	}
	return r;
}
static sigjmp_buf out;
static volatile int armed;
static void stormy(int sig)
{
	static u64 state = 4711;
	int switching = may_switch, jumping = may_jump;
	(void)sig;
	state ^= state << 13; state ^= state >> 7; state ^= state << 17;
	may_switch = may_jump = 0;
	interrupted++;
	for (int i = 0; i < 2; i++) { u64 r = state >> i & 7; u64 n = r % 6; if (storms[n](r, 1) != r + n + 1) failures++; }
	may_switch = switching; may_jump = jumping;
	if (armed && (state & 7) == 1) { armed = 0; jumps_out++; siglongjmp(out, 1); }
}
static void coroutine(void) { for (;;) { cos[me].levels = 0; one(next_random() & 3, 5); } }
static void storm_for(u64 ns, int how)
{
	u64 end = now_ns() + ns;
	may_jump = how & 1; may_switch = how & 2;
	for (int i = 0; i < COS; i++) cos[i].levels = 0;
	for (int i = 1; i < COS; i++) {
		getcontext(&cos[i].context);
		if (!cos[i].stack) cos[i].stack = (char *)mmap(0, 1 << 18, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		cos[i].context.uc_stack.ss_sp = cos[i].stack; cos[i].context.uc_stack.ss_size = 1 << 18;
		makecontext(&cos[i].context, coroutine, 0);
	}
	me = 0;
	while (now_ns() < end) {
		if (how & 4) { if (sigsetjmp(out, 1)) { cos[me].levels = 0; continue; } armed = 1; }
		for (int i = 0; i < 20; i++) { cos[me].levels = 0; one(next_random() & 3, 6); }
		armed = 0;
		while (me != 0) turn();
	}
}
static void storm(void)
{
	const u32 kinds[] = {ALL_TIMES, ALL_TIMES | WH_DO_CPU | WH_DO_HIST, WH_DO_PATH, ALL_TIMES | WH_DO_CPU, WH_DO_EXIT | WH_DO_WALL, ALL_TIMES | WH_DO_CPU};
	for (int how = 0; how < 8; how++) {
		if (how == 6 || how == 7) continue; /* a jump out of a handler from one coroutine into another's frames is no program */
		u32 p[6];
		u64 before[WH_LOST_CAUSES];
		for (int i = 0; i < 6; i++) p[i] = probe((void *)storms[i], kinds[i] | (how & 1 && i == 3 ? WH_DO_USAGE : 0)); /* asks the kernel */
		for (int i = 0; i < WH_LOST_CAUSES; i++) before[i] = lost(i);
		u64 first = interrupted, start = entered, jumps = jumps_out;
		alarms(stormy, 0, 200);
		storm_for(1000000000ull, how);
		alarms(0, 0, 0);
		u64 calls = 0, truth = entered - start, d[WH_LOST_CAUSES], booked = 0, timed = 0;
		for (int i = 0; i < WH_LOST_CAUSES; i++) d[i] = lost(i) - before[i];
		for (int i = 0; i < 6; i++) calls += sums(p[i]).calls;
		for (u32 i = 1; i < HEADER->next_path; i++) {
			if (PATH_POINT[i] < p[0] || PATH_POINT[i] == p[2]) continue;
			for (u32 k = 0; k < HEADER->next_thread; k++) {
				u32 page = THREAD(k)->directory[i / 64];
				struct wh_block *b = (struct wh_block *)(seg + WH_AT_PAGES + (u64)page * 4096) + i % 64;
				if (page) booked += b->seq / 2, timed += b->calls;
			}
		}
		u64 missed = d[WH_LOST_BUSY] + d[WH_LOST_TABLE];
		jumps = jumps_out - jumps;
		printf("  how %d: %llu signals, %llu jumps out, %llu calls of %llu; lost busy %llu jumped %llu exit %llu; left %u\n", how, (unsigned long long)(interrupted - first),
		       (unsigned long long)jumps, (unsigned long long)calls, (unsigned long long)truth, (unsigned long long)d[WH_LOST_BUSY], (unsigned long long)d[WH_LOST_JUMPED], (unsigned long long)d[WH_LOST_EXIT], THREAD(0)->n_active);
		CHECK(calls + missed >= truth && calls + missed <= truth + jumps, "how %d: %llu + lost %llu of %llu", how, (unsigned long long)calls, (unsigned long long)missed, (unsigned long long)truth);
		CHECK(truth > 100000 && interrupted - first > 300, "how %d: too little", how);
		/* each entry that was seen was left: booked, jumped over, or its record lost; but for those amid a jump */
		u64 known = booked + d[WH_LOST_JUMPED] + d[WH_LOST_EXIT] + THREAD(0)->n_active, slack = 8 + jumps * 4 + (how & 2 ? timed / 100 : 0);
		CHECK(known + slack >= timed && known <= timed + slack, "how %d: %llu entries, %llu known of", how, (unsigned long long)timed, (unsigned long long)known);
		for (int i = 0; i < 6; i++) unprobe(p[i]);
	}
}

/* ---- threads that meet the same new paths at the same time: each path is kept once ---- */
#define TURNS 14
NOINLINE u64 bend(u64 way, int left) { return !left ? work(way) : way >> left & 1 ? bend(way, left - 1) + 1 : bend(way, left - 1) + 2; }
static volatile u32 started;
static void *turns(void *arg)
{
	u64 n = 0;
	__atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);
	while (started < 4) {}
	for (u64 way = 0; way < 1 << TURNS; way++) n += bend(way << 1, TURNS);
	return (void *)n;
}
static void racing(void)
{
	for (int round = 0; round < 2; round++) {
		u32 p = probe((void *)work, round ? WH_DO_PATH : ALL_TIMES);
		pthread_t t[4];
		started = 0;
		for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, turns, 0);
		for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
		struct sums s = sums(p);
		CHECK(s.calls == 4 << TURNS && s.paths == 1 << TURNS, "calls %llu paths %llu", (unsigned long long)s.calls, (unsigned long long)s.paths);
		for (u32 i = 1; i < HEADER->next_path; i++) {
			u64 ra[64];
			if (PATH_POINT[i] != p || !PATH_FRAME[i] || i == POINTS[p].root) continue;
			CHECK(sums_of_path(i).calls == 4 && exact_path(i, ra, 64) >= TURNS + 2, "path %u: %llu calls", i, (unsigned long long)sums_of_path(i).calls);
		}
		unprobe(p);
	}
}

/* ---- 256 paths to one call site, another at each call: hardly any entry is a slow one. Here, where no usual cost is
 * known, slow entries are told by what they cost apart. ---- */
static void many(void)
{
	const u32 kinds[] = {WH_DO_PATH, WH_DO_EXIT | WH_DO_PATH, ALL_TIMES};
	const char *way = getenv("WAY");
	if (way && *way != '1') return; /* there are no quick ones */
	for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		u32 p = probe((void *)work, kinds[k]);
		u64 calls = 20000, slow = 0;
		for (u64 i = 0; i < 2 * calls; i++) {
			u64 before = lost(WH_LOST_APART);
			sink = bend((next_random() & 255) << 1, 8);
			slow += i >= calls && lost(WH_LOST_APART) != before;
		}
		struct sums s = sums(p);
		CHECK(s.calls == 2 * calls && s.paths == 256, "calls %llu paths %llu", (unsigned long long)s.calls, (unsigned long long)s.paths);
		CHECK(slow < calls * 3 / 100, "%llu of %llu entries are slow", (unsigned long long)slow, (unsigned long long)calls);
		printf("  %llu slow of %llu\n", (unsigned long long)slow, (unsigned long long)calls);
		unprobe(p);
	}
}

/* ---- two paths that take one call site in turns: after the first turns no entry is a slow one; and three find their way ---- */
static void pairs(void)
{
	const u32 kinds[] = {WH_DO_PATH, ALL_TIMES};
	const char *way = getenv("WAY");
	if (way && *way != '1') return; /* there are no quick ones */
	for (unsigned k = 0; k < 4; k++) {
		u32 p = probe((void *)work, kinds[k % 2]);
		u64 calls = 20000, slow = 0, paths = 2 + k / 2;
		for (u64 i = 0; i < calls; i++) {
			u64 before = lost(WH_LOST_APART);
			sink = bend(i / 16 % paths << 1, 8);
			slow += lost(WH_LOST_APART) != before;
		}
		struct sums s = sums(p);
		CHECK(s.calls == calls && s.paths == paths, "calls %llu paths %llu", (unsigned long long)s.calls, (unsigned long long)s.paths);
		CHECK(slow < (paths == 2 ? calls / 200 : calls / 10), "%llu of %llu entries are slow", (unsigned long long)slow, (unsigned long long)calls);
		printf("  %llu paths: %llu slow of %llu\n", (unsigned long long)paths, (unsigned long long)slow, (unsigned long long)calls);
		unprobe(p);
	}
}

int main(int argc, char **argv)
{
	struct { const char *name; void (*run)(void); } all[] = {
		{"learning", learning}, {"anchors", anchors}, {"silence", silence}, {"switching", switching}, {"storm", storm}, {"racing", racing}, {"many", many}, {"pairs", pairs}};
	setup(argv[1]);
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		int wanted = argc == 2;
		for (int k = 2; k < argc; k++) wanted |= !strcmp(argv[k], all[i].name);
		if (!wanted) continue;
		int before = failures;
		all[i].run();
		printf("%s %s\n", failures == before ? "ok    " : "FAILED", all[i].name);
	}
	return failures != 0;
}
