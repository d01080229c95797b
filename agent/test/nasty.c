/*
 * The agent under everything a C program can do to its stack: each case has a known answer, and the
 * program must come out as if it were not probed. Run: nasty AGENT.SO [case...].
 */
#include "harness.h"
#include <fcntl.h>
#include <complex.h>
#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>

static volatile u64 sink;

/* ---- counts and paths against backtrace() ---- */
static void *seen[64];
static int n_seen;
static u32 want_point;
static int no_backtrace; /* for callers that no unwinder can pass */
PROBED u64 leaf(u64 x) { if (!no_backtrace) n_seen = backtrace(seen, 64); return x + 1; }
NOINLINE u64 mid_a(u64 x) { return leaf(x) + 1; }
NOINLINE u64 mid_b(u64 x) { volatile char big[3000]; big[0] = (char)x; return leaf(x + big[0]) + leaf(x) * 2; }
__attribute__((noinline, optimize("no-omit-frame-pointer"))) u64 mid_fp(u64 x)
{
	char *p = (char *)__builtin_alloca(x % 512 + 16); memset(p, 0, 16); u64 r = mid_a(x) + (u64)p[3];
	return r + leaf(x);
}
static void same_as_backtrace(const char *what)
{
	/* the path that was counted last is found by its frames: it must be among the point's paths */
	u64 ra[128];
	int from = 0;
	u64 exits = (u64)dlsym(agent, "wh_exits");
	while (from < n_seen && (u64)seen[from] - exits >= EXITS << EXIT_SHIFT) from++;
	CHECK(from < n_seen, "%s: backtrace does not show the agent's frame", what);
	from++;
	for (u32 i = 1; i < HEADER->next_path; i++) {
		if (PATH_POINT[i] != want_point || !PATH_FRAME[i]) continue;
		int n = exact_path(i, ra, 128), k = 0;
		while (k < n && from + k < n_seen && ra[k] == (u64)seen[from + k]) k++;
		if (k == n && from + k == n_seen) return;
	}
	CHECK(0, "%s: no path equals backtrace() of %d frames", what, n_seen - from);
	for (int i = 0; i < n_seen; i++) printf("   bt %p\n", seen[i]);
	for (u32 i = 1; i < HEADER->next_path; i++) {
		u32 flags; int n = frames_of(i, ra, &flags, 128);
		printf("   path %u flags %u:", i, flags);
		for (int k = 0; k < n; k++) printf(" %llx", (unsigned long long)ra[k]);
		printf("\n");
	}
}
static void paths(void)
{
	u32 p = want_point = probe((void *)leaf, ALL_TIMES | WH_DO_CPU | WH_DO_HIST);
	u64 r = 0;
	for (int i = 0; i < 1000; i++) r += mid_a(5);
	same_as_backtrace("mid_a");
	for (int i = 0; i < 500; i++) r += mid_b(5);
	same_as_backtrace("mid_b");
	for (int i = 0; i < 100; i++) r += mid_fp((u64)i);
	same_as_backtrace("mid_fp");
	struct sums s = sums(p);
	CHECK(s.calls == 1000 + 1000 + 200, "calls %llu", (unsigned long long)s.calls);
	CHECK(s.paths == 5, "paths %llu", (unsigned long long)s.paths);
	CHECK(s.done == s.calls && s.hist == s.calls, "done %llu hist %llu", (unsigned long long)s.done, (unsigned long long)s.hist);
	CHECK(s.min >= 1 && s.max >= s.min && s.wall >= s.min * s.calls, "times");
	CHECK(s.cpu > 0 && s.cpu <= (u64)((double)s.wall * 1.2) + 1000000, "cpu %llu ns wall %llu ticks", (unsigned long long)s.cpu, (unsigned long long)s.wall);
	unprobe(p);
	sink = r;
}

/* ---- recursion: joined paths, folding ---- */
static u64 deepest;
PROBED u64 rec(u64 n) { if (!n) return 1; return rec(n - 1) + 1; }
PROBED u64 even(u64 n); PROBED u64 odd(u64 n) { return n ? even(n - 1) + 1 : 0; }
PROBED u64 even(u64 n) { return n ? odd(n - 1) + 1 : 0; }
PROBED u64 end_of(u64 n) { sink = n; return n; }
PROBED u64 pong(u64 n); PROBED u64 ping(u64 n) { end_of(n); return n ? pong(n - 1) + 1 : 0; }
PROBED u64 pong(u64 n) { end_of(n); return n ? ping(n - 1) + 1 : 0; }
static void recursion(void)
{
	u32 p = probe((void *)rec, ALL_TIMES);
	CHECK(rec(10) == 11, "result");
	struct sums s = sums(p);
	CHECK(s.calls == 11 && s.paths == 11, "calls %llu paths %llu", (unsigned long long)s.calls, (unsigned long long)s.paths);
	CHECK(rec(1000) == 1001, "result");
	s = sums(p);
	CHECK(s.calls == 11 + 1001 && s.paths == 11 + 65, "calls %llu paths %llu", (unsigned long long)s.calls, (unsigned long long)s.paths);
	for (u32 i = 1; i < HEADER->next_path; i++)
		if (PATH_POINT[i] == p && PATH_SAME(i)) {
			CHECK(PATH_POINT[joined(i)] == p && PATH_SAME(joined(i)) == PATH_SAME(i) - 1, "same");
			if (PATH_SAME(i) > deepest) deepest = PATH_SAME(i);
		}
	CHECK(deepest == 64, "deepest %llu", (unsigned long long)deepest);
	CHECK(folded(p) == 1001 - 65, "folded %llu", (unsigned long long)folded(p));
	unprobe(p);
	u32 e = probe((void *)even, ALL_TIMES), o = probe((void *)odd, ALL_TIMES);
	CHECK(even(500) == 500, "result");
	struct sums a = sums(e), b = sums(o);
	CHECK(a.calls == 251 && b.calls == 250, "%llu %llu", (unsigned long long)a.calls, (unsigned long long)b.calls);
	CHECK(a.paths <= 66 && b.paths <= 66, "paths %llu %llu", (unsigned long long)a.paths, (unsigned long long)b.paths);
	CHECK(folded(e) == 251 - 65 && folded(o) == 250 - 65, "folded %llu %llu", (unsigned long long)folded(e), (unsigned long long)folded(o));
	unprobe(e); unprobe(o);
	/* What is called from folded calls has its times, unless it is in progress itself. */
	u32 pi = probe((void *)ping, ALL_TIMES), po = probe((void *)pong, ALL_TIMES), lf = probe((void *)end_of, ALL_TIMES);
	u64 began = __builtin_ia32_rdtsc();
	for (int i = 0; i < 50; i++) CHECK(ping(300) == 300, "result");
	u64 lasted = __builtin_ia32_rdtsc() - began;
	s = sums(lf);
	CHECK(s.calls == 50 * 301 && folded(lf) == 0, "%llu calls of the leaf, %llu folded", (unsigned long long)s.calls, (unsigned long long)folded(lf));
	CHECK(folded(pi) == 50 * (151 - 65) && folded(po) == 50 * (150 - 65), "folded %llu %llu", (unsigned long long)folded(pi), (unsigned long long)folded(po));
	for (u32 i = 1; i < HEADER->next_path; i++)
		if (PATH_POINT[i] == pi || PATH_POINT[i] == po || PATH_POINT[i] == lf)
			CHECK(sums_of_path(i).wall <= lasted, "path %u: %llu of %llu ticks", i, (unsigned long long)sums_of_path(i).wall, (unsigned long long)lasted);
	unprobe(pi); unprobe(po); unprobe(lf);
}
static void *deep_thread(void *arg) { (void)arg; return (void *)rec(100000); }
static void deep(void)
{
	u32 p = probe((void *)rec, ALL_TIMES);
	pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setstacksize(&a, 64 << 20);
	pthread_t t; void *got;
	u64 before = lost(WH_LOST_DEPTH), began = now_ns();
	pthread_create(&t, &a, deep_thread, 0);
	pthread_join(t, &got);
	u64 first = now_ns() - began; began = now_ns();
	pthread_create(&t, &a, deep_thread, 0);
	pthread_join(t, &got);
	printf("  100001 deep: first %.1f ms, then %.1f ms\n", (double)first / 1e6, (double)(now_ns() - began) / 1e6);
	CHECK((u64)got == 100001, "result %llu", (unsigned long long)(u64)got);
	struct sums s = sums(p);
	CHECK(s.calls == 200002 && lost(WH_LOST_DEPTH) == before, "calls %llu", (unsigned long long)s.calls);
	for (int c = 0; c < 8; c++) if (lost(c)) printf("  lost[%d] %llu\n", c, (unsigned long long)lost(c));
	unprobe(p);
}

/* ---- tail calls ---- */
PROBED u64 tail_to(u64 x) { __asm__ volatile(""); return x * 3; }
u64 tail_from(u64 x);
__asm__(".text\n.p2align 4\ntail_from: .cfi_startproc\n.fill 8, 1, 0x90\ninc %rdi\njmp tail_to\n.cfi_endproc");
static void tails(void)
{
	u32 a = probe((void *)tail_from, ALL_TIMES), b = probe((void *)tail_to, ALL_TIMES);
	u64 before = lost(WH_LOST_JUMPED);
	for (u64 i = 0; i < 1000; i++) CHECK(tail_from(i) == (i + 1) * 3, "result");
	struct sums x = sums(a), y = sums(b);
	CHECK(x.calls == 1000 && y.calls == 1000 && x.min && y.min, "%llu %llu", (unsigned long long)x.calls, (unsigned long long)y.calls);
	CHECK(lost(WH_LOST_JUMPED) == before, "jumped");
	unprobe(a); unprobe(b);
}

/* ---- longjmp ---- */
static jmp_buf env;
PROBED void jumper(int depth) { if (depth) { jumper(depth - 1); __asm__ volatile(""); return; } longjmp(env, 1); }
static void jumps(void)
{
	u32 p = probe((void *)jumper, ALL_TIMES);
	u64 before = lost(WH_LOST_JUMPED);
	volatile int landed = 0;
	for (volatile int i = 0; i < 1000; i++)
		if (!setjmp(env)) jumper(4); else landed++;
	CHECK(landed == 1000, "landed %d", landed);
	struct sums s = sums(p);
	u64 jumped = lost(WH_LOST_JUMPED) - before;
	CHECK(s.calls == 5000, "calls %llu", (unsigned long long)s.calls);
	CHECK(jumped >= 4990 && jumped <= 5000, "jumped %llu", (unsigned long long)jumped);
	unprobe(p);
}

/* ---- threads, pthread_exit ---- */
PROBED u64 work(u64 x) { return x * 2654435761u; }
PROBED void leave_thread(int depth) { if (depth) { leave_thread(depth - 1); __asm__ volatile(""); } else pthread_exit((void *)7); }
static void *worker(void *arg)
{
	u64 x = (u64)arg;
	for (int i = 0; i < 20000; i++) x = work(x);
	leave_thread(3);
	return (void *)x;
}
static void threads(void)
{
	u32 p = probe((void *)work, ALL_TIMES | WH_DO_CPU), q = probe((void *)leave_thread, ALL_TIMES);
	for (int round = 0; round < 10; round++) {
		pthread_t t[8]; void *got;
		for (u64 i = 0; i < 8; i++) pthread_create(&t[i], 0, worker, (void *)i);
		for (int i = 0; i < 8; i++) { pthread_join(t[i], &got); CHECK(got == (void *)7, "exit value"); }
	}
	struct sums s = sums(p), e = sums(q);
	CHECK(s.calls == 1600000, "calls %llu", (unsigned long long)s.calls);
	CHECK(e.calls == 320, "exits %llu", (unsigned long long)e.calls);
	CHECK(HEADER->next_thread <= 48, "blocks %u", HEADER->next_thread);
	unprobe(p); unprobe(q);
}
static void *brief(void *arg) { return (void *)work((u64)arg); }
static void churn(void)
{
	u32 p = probe((void *)work, ALL_TIMES | WH_DO_CPU);
	u32 at_first = 0, pages = 0;
	for (int i = 0; i < 10000; i++) {
		pthread_t t; pthread_create(&t, 0, brief, 0); pthread_join(t, 0);
		if (i == 1000) { at_first = HEADER->next_thread; pages = HEADER->next_page; }
	}
	struct sums s = sums(p);
	CHECK(s.calls == 10000, "calls %llu", (unsigned long long)s.calls);
	CHECK(HEADER->next_thread <= at_first + 2 && HEADER->next_page <= pages + 16, "threads %u -> %u, pages %u -> %u", at_first, HEADER->next_thread, pages, HEADER->next_page);
	unprobe(p);
}

/* ---- signals ---- */
static volatile u64 handled, loops;
PROBED u64 in_handler(u64 x) { return x + 1; }
static void on_signal(int s) { (void)s; handled = in_handler(handled); }
static void signals(void)
{
	u32 paths = HEADER->next_path;
	u32 p = probe((void *)in_handler, ALL_TIMES), q = probe((void *)work, ALL_TIMES), r = probe((void *)rec, ALL_TIMES);
	u64 busy = lost(WH_LOST_BUSY), tables = lost(WH_LOST_TABLE);
	struct sigaction sa = {0}; sa.sa_handler = on_signal; sigaction(SIGALRM, &sa, 0);
	timer_t timer; struct sigevent ev = {0}; ev.sigev_notify = SIGEV_SIGNAL; ev.sigev_signo = SIGALRM;
	timer_create(CLOCK_MONOTONIC, &ev, &timer);
	struct itimerspec it = {{0, 300000}, {0, 300000}};
	timer_settime(timer, 0, &it, 0);
	u64 end = now_ns() + 1500000000ull, x = 1, n = 0, deep_calls = 0;
	while (now_ns() < end) {
		for (int i = 0; i < 200; i++) { x = work(x); n++; }
		CHECK(rec(20) == 21, "result"); deep_calls += 21;
	}
	memset(&it, 0, sizeof it); timer_settime(timer, 0, &it, 0);
	struct sums a = sums(p), b = sums(q), c = sums(r);
	u64 missed = lost(WH_LOST_BUSY) - busy;
	CHECK(handled > 500, "only %llu signals", (unsigned long long)handled);
	CHECK(a.calls + b.calls + c.calls + missed + lost(WH_LOST_TABLE) - tables == handled + n + deep_calls, "%llu + %llu + %llu + lost %llu, truth %llu + %llu + %llu",
	      (unsigned long long)a.calls, (unsigned long long)b.calls, (unsigned long long)c.calls, (unsigned long long)missed, (unsigned long long)handled, (unsigned long long)n, (unsigned long long)deep_calls);
	printf("  %llu signals, %llu calls, lost busy %llu\n", (unsigned long long)handled, (unsigned long long)(n + deep_calls), (unsigned long long)missed);
	CHECK(HEADER->next_path - paths < 2000, "paths %u", HEADER->next_path - paths);
	unprobe(p); unprobe(q); unprobe(r);
	timer_delete(timer); sink = x;
}
static sigjmp_buf out;
static volatile int armed;
static void jump_out(int s) { (void)s; handled = in_handler(handled); if (armed) { armed = 0; siglongjmp(out, 1); } }
static void signal_jumps(void)
{
	u32 p = probe((void *)in_handler, ALL_TIMES), q = probe((void *)work, ALL_TIMES);
	struct sigaction sa = {0}; sa.sa_handler = jump_out; sigaction(SIGALRM, &sa, 0);
	struct itimerval it = {{0, 300}, {0, 300}};
	setitimer(ITIMER_REAL, &it, 0);
	u64 end = now_ns() + 1000000000ull;
	volatile u64 n = 0, jumps = 0;
	while (now_ns() < end) {
		if (sigsetjmp(out, 1)) { jumps++; continue; }
		armed = 1;
		for (int i = 0; i < 2000; i++) { n++; sink = work(n); }
	}
	memset(&it, 0, sizeof it); setitimer(ITIMER_REAL, &it, 0);
	struct sums b = sums(q);
	/* The last jump may have left the agent in the middle: calls from no further out are lost for a tenth of a second. */
	for (u64 soon = now_ns() + 1000000000ull; sums(q).calls == b.calls && now_ns() < soon;)
		sink = work(n);
	printf("  %llu jumps out of handlers, %llu calls of %llu counted, busy %llu jumped %llu\n", (unsigned long long)jumps, (unsigned long long)b.calls,
	       (unsigned long long)n, (unsigned long long)lost(WH_LOST_BUSY), (unsigned long long)lost(WH_LOST_JUMPED));
	CHECK(jumps > 100 && b.calls + n / 50 > n, "jumps %llu calls %llu of %llu", (unsigned long long)jumps, (unsigned long long)b.calls, (unsigned long long)n);
	unprobe(p); unprobe(q);
}
static void alternate_stack(void)
{
	u32 p = probe((void *)in_handler, ALL_TIMES), q = probe((void *)rec, ALL_TIMES);
	stack_t ss = {0}; ss.ss_size = 1 << 16; ss.ss_sp = malloc(ss.ss_size); sigaltstack(&ss, 0);
	struct sigaction sa = {0}; sa.sa_handler = on_signal; sa.sa_flags = SA_ONSTACK; sigaction(SIGUSR1, &sa, 0);
	u64 jumped = lost(WH_LOST_JUMPED), exits = lost(WH_LOST_EXIT);
	handled = 0;
	for (int i = 0; i < 1000; i++) { raise(SIGUSR1); CHECK(rec(3) == 4, "result"); }
	struct sums s = sums(p);
	CHECK(s.calls == 1000 && handled == 1000, "calls %llu", (unsigned long long)s.calls);
	CHECK(lost(WH_LOST_JUMPED) == jumped && lost(WH_LOST_EXIT) == exits, "jumped %llu exits %llu", (unsigned long long)(lost(WH_LOST_JUMPED) - jumped), (unsigned long long)(lost(WH_LOST_EXIT) - exits));
	ss.ss_flags = SS_DISABLE; sigaltstack(&ss, 0);
	unprobe(p); unprobe(q);
}

/* ---- fork ---- */
PROBED u64 forker(int depth)
{
	if (depth) { u64 r = forker(depth - 1); __asm__ volatile(""); return r + 1; }
	pid_t pid = fork();
	if (pid == 0) { for (int i = 0; i < 50; i++) sink = work((u64)i); return 0; }
	int status = 0;
	waitpid(pid, &status, 0);
	return (u64)WEXITSTATUS(status) * 100;
}
static void forks(void)
{
	u32 p = probe((void *)work, ALL_TIMES | WH_DO_CPU), q = probe((void *)forker, ALL_TIMES);
	pid_t me = getpid();
	u32 before = HEADER->forks;
	for (int i = 0; i < 50; i++) {
		u64 r = forker(5);
		if (getpid() != me) _exit(r == 5 ? 3 : 9); /* the child went back through five inherited calls */
		CHECK(r == 305, "result %llu", (unsigned long long)r);
	}
	struct sums s = sums(p), f = sums(q);
	CHECK(s.calls == 2500, "calls %llu", (unsigned long long)s.calls);
	CHECK(f.calls == 300, "forkers %llu", (unsigned long long)f.calls);
	CHECK(HEADER->forks - before == 50, "forks %u", HEADER->forks - before);
	for (int i = 0; i < 20; i++) {
		pid_t pid = vfork();
		if (!pid) { sink = work(1); _exit(0); }
		waitpid(pid, 0, 0);
	}
	CHECK(sums(p).calls + lost(WH_LOST_SHARED) == 2520, "vfork calls %llu", (unsigned long long)sums(p).calls);
	if (system("true") != 0) CHECK(0, "system");
	unprobe(p); unprobe(q);
}

/* ---- coroutines ---- */
static ucontext_t home, co[4];
static int finished;
PROBED u64 yields(int me, int depth)
{
	if (depth) { u64 r = yields(me, depth - 1); __asm__ volatile(""); return r + 1; }
	swapcontext(&co[me], &home);
	return 1;
}
static void body(int me) { for (int i = 0; i < 100; i++) if (yields(me, me + 1) != (u64)me + 2) failures++; finished++; }
static void coroutines(void)
{
	for (int heap = 0; heap < 2; heap++) {
		u32 p = probe((void *)yields, ALL_TIMES);
		u64 jumped = lost(WH_LOST_JUMPED), exits = lost(WH_LOST_EXIT);
		finished = 0;
		for (int i = 0; i < 4; i++) {
			getcontext(&co[i]);
			co[i].uc_stack.ss_size = 1 << 16;
			co[i].uc_stack.ss_sp = heap ? malloc(1 << 16) : mmap(0, 1 << 16, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			co[i].uc_link = &home;
			makecontext(&co[i], (void (*)(void))body, 1, i);
		}
		for (int k = 0; k < 101; k++) for (int i = 0; i < 4; i++) swapcontext(&home, &co[i]);
		CHECK(finished == 4, "finished %d", finished);
		struct sums s = sums(p);
		CHECK(s.calls == 100 * (2 + 3 + 4 + 5), "calls %llu", (unsigned long long)s.calls);
		printf("  %s: jumped %llu, exits without record %llu of %llu\n", heap ? "heap" : "mmap", (unsigned long long)(lost(WH_LOST_JUMPED) - jumped), (unsigned long long)(lost(WH_LOST_EXIT) - exits), (unsigned long long)s.calls);
		unprobe(p);
	}
}

/* ---- arguments and results of every kind ---- */
struct big { double a, b, c; int d; };
PROBED double fp8(double a, double b, double c, double d, double e, double f, double g, double h, int i, int j, int k, int l, int m, int n, int o, double z)
{ return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + i + j + k + l + m + n + 10 * o + z; }
PROBED long args17(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l, long m, long n, long o, long p, long q)
{ return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k + 12 * l + 13 * m + 14 * n + 15 * o + 16 * p + 17 * q; }
PROBED double summing(int n, ...) { va_list v; va_start(v, n); double r = 0; for (int i = 0; i < n; i++) r += i & 1 ? va_arg(v, double) : (double)va_arg(v, long); va_end(v); return r; }
PROBED long double ld(long double a, long double b) { return a * b; }
PROBED double complex cx(double complex a, double complex b) { return a * b; }
PROBED long double complex lcx(long double complex a) { return a * 2; }
PROBED struct big by_value(struct big b, int k) { b.a += k; b.d += k; return b; }
PROBED unsigned __int128 wide(unsigned __int128 a, u64 b) { return a * b; }
typedef int v8 __attribute__((vector_size(32)));
PROBED __attribute__((target("avx2"))) v8 vec(v8 a, v8 b) { return a + b; }
__attribute__((target("avx2"), noinline)) static int vec_ok(void) { v8 a = {1, 2, 3, 4, 5, 6, 7, 8}, b = {8, 7, 6, 5, 4, 3, 2, 1}; v8 r = vec(a, b); for (int i = 0; i < 8; i++) if (r[i] != 9) return 0; return 1; }
/* A page of a file that is not in memory: this thread then has had major faults, where disks are not memory. */
static void major_fault(void)
{
	char name[] = "/var/tmp/whither-major-XXXXXX", page[4096] = {1};
	int fd = mkstemp(name);
	if (fd < 0) return;
	unlink(name);
	if (write(fd, page, sizeof page) == sizeof page && !fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)) {
		volatile char *p = (volatile char *)mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p != MAP_FAILED) { sink += (u64)p[0]; munmap((void *)p, 4096); }
	}
	close(fd);
}
static void arguments(void)
{
	major_fault();
	void *f[] = {(void *)fp8, (void *)args17, (void *)summing, (void *)ld, (void *)cx, (void *)lcx, (void *)by_value, (void *)wide, (void *)vec};
	u32 first = HEADER->n_points;
	for (u32 i = 0; i < 9; i++) probe(f[i], (ALL_TIMES | WH_DO_CPU | WH_DO_HIST | WH_DO_USAGE));
	int outer = 10;
	int nested(int x) { return x + outer; }
	int (*volatile pointer)(int) = nested;
	for (int i = 0; i < 100; i++) {
		CHECK(fp8(1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 0.5) == 204 + 21 + 70 + 0.5, "fp8");
		CHECK(args17(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17) == 1785, "args17");
		CHECK(summing(6, 1l, 0.5, 2l, 0.25, 3l, 0.125) == 6.875, "varargs");
		CHECK(ld(1.5L, 3.0L) == 4.5L, "long double");
		CHECK(cx(1 + 2 * I, 3 + 4 * I) == -5 + 10 * I, "complex");
		CHECK(lcx(1.5L + 2 * I) == 3 + 4 * I, "long double complex");
		struct big b = by_value((struct big){1, 2, 3, 4}, i);
		CHECK(b.a == 1 + i && b.b == 2 && b.c == 3 && b.d == 4 + i, "struct");
		CHECK((u64)(wide((unsigned __int128)1 << 70, 5) >> 70) == 5, "int128");
		if (__builtin_cpu_supports("avx2")) CHECK(vec_ok(), "avx");
		CHECK(pointer(i) == i + 10, "nested");
	}
	for (u32 i = first; i < HEADER->n_points; i++) {
		if (i < first + 8) CHECK(sums(i).calls == 100 && sums(i).done == 100, "point %u calls %llu", i, (unsigned long long)sums(i).calls);
		unprobe(i);
	}
}

/* ---- values and event records ---- */
struct box { u64 pad; int *inner; };
PROBED long sends(int fd, const struct box *b, long bytes) { (void)fd; (void)b; __asm__ volatile(""); return bytes - 1; }
static void values(void)
{
	struct wh_extra *x = (struct wh_extra *)(seg + WH_AT_EXTRAS) + 1;
	x[0] = (struct wh_extra){.source = WH_ARG3, .width = 8, .flags = WH_SIGNED, .value = 0};
	x[1] = (struct wh_extra){.source = WH_RET, .width = 4, .flags = WH_SIGNED, .value = 1};
	x[2] = (struct wh_extra){.source = WH_ARG2, .width = 4, .flags = WH_SIGNED, .loads = 2, .value = 255, .offset = {8, 4}};
	u32 p = probe((void *)sends, ALL_TIMES | WH_DO_VALUES | WH_DO_EMIT);
	POINTS[p].extras = 1; POINTS[p].n_extras = 3;
	int inner[2] = {5, -77};
	struct box b = {1, inner};
	u64 want = 0;
	for (long i = 0; i < 20000; i++) { want += (u64)(i - 100); sends(3, &b, i - 100); }
	struct sums s = sums(p);
	CHECK(s.value[0] == want && s.value[1] == want - 20000, "%lld %lld", (long long)s.value[0], (long long)s.value[1]);
	u64 got = 0;
	for (u32 i = 0; i < HEADER->next_ring; i++) {
		struct wh_ring *r = (struct wh_ring *)(seg + WH_AT_RINGS + (u64)i * WH_RING_BYTES);
		u64 at = r->tail, first = 1;
		while (at < r->head) {
			struct wh_record *rec = (struct wh_record *)((char *)r + 64 + at % (WH_RING_BYTES - 64));
			if (rec->kind == 1 && rec->point == p) {
				got++;
				CHECK(rec->word[0] - 1 == rec->word[1] && rec->word[2] == (u64)-77 && rec->end > rec->start, "record");
				if (first) CHECK(rec->word[0] == (u64)-100, "first");
				first = 0;
			}
			if (!rec->bytes) { CHECK(0, "record of no length"); break; }
			at += rec->bytes;
		}
		CHECK(got + r->lost == 20000, "got %llu lost %llu", (unsigned long long)got, (unsigned long long)r->lost);
		r->tail = r->head;
	}
	for (long i = 0; i < 30000; i++) { /* round the ring, drained now and then */
		sends(3, &b, i);
		struct wh_ring *r = (struct wh_ring *)(seg + WH_AT_RINGS);
		if (i % 1000 == 999) {
			for (u64 at = r->tail; at < r->head;) {
				struct wh_record *rec = (struct wh_record *)((char *)r + 64 + at % (WH_RING_BYTES - 64));
				if (rec->kind == 1) { got++; CHECK(rec->word[0] == rec->word[1] + 1, "record"); }
				if (!rec->bytes) { CHECK(0, "record of no length"); break; }
				at += rec->bytes;
			}
			r->tail = r->head;
		}
	}
	CHECK(got + ((struct wh_ring *)(seg + WH_AT_RINGS))->lost == 50000, "records %llu", (unsigned long long)got);
	unprobe(p);
}

/* ---- controller gone, points off, CPU clock ---- */
static void silence(void)
{
	u32 p = probe((void *)work, ALL_TIMES);
	for (int i = 0; i < 100; i++) sink = work(1);
	POINTS[p].state = WH_POINT_OFF;
	for (int i = 0; i < 100; i++) sink = work(1);
	CHECK(sums(p).calls == 100, "off: %llu", (unsigned long long)sums(p).calls);
	POINTS[p].state = WH_POINT_ON;
	HEADER->heartbeat = __builtin_ia32_rdtsc(); HEADER->patience = 100000000; HEADER->generation++;
	u64 start = sums(p).calls, heard = 0;
	while (__builtin_ia32_rdtsc() - HEADER->heartbeat < 100000000) sink = work(1), heard++;
	for (int i = 0; i < 100; i++) sink = work(1);
	CHECK(sums(p).calls - start >= heard / 2, "counted %llu of %llu while it was heard", (unsigned long long)(sums(p).calls - start), (unsigned long long)heard);
	CHECK(sums(p).calls - start <= heard + 1, "silent: %llu after %llu", (unsigned long long)(sums(p).calls - start), (unsigned long long)heard);
	HEADER->heartbeat = __builtin_ia32_rdtsc() + 10000000000ull;
	u64 before = sums(p).calls;
	for (int i = 0; i < 100; i++) sink = work(1);
	CHECK(sums(p).calls == before + 100, "heard again: %llu", (unsigned long long)sums(p).calls);
	HEADER->patience = 0;
	unprobe(p);
}
PROBED void burn(u64 ns) { u64 t0 = now_ns(); while (now_ns() - t0 < ns) {} }
PROBED void doze(u64 ns) { struct timespec t = {0, (long)ns}; nanosleep(&t, 0); }
static u64 thread_ns(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return (u64)t.tv_sec * 1000000000ull + (u64)t.tv_nsec; }
/* Time that the host took from this machine: runs on in the TSC, but is no CPU time of a thread. */
static u64 stolen_ns(void)
{
	u64 v[8] = {0};
	FILE *f = fopen("/proc/stat", "r");
	if (f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", (unsigned long long *)v, (unsigned long long *)v + 1, (unsigned long long *)v + 2, (unsigned long long *)v + 3,
			(unsigned long long *)v + 4, (unsigned long long *)v + 5, (unsigned long long *)v + 6, (unsigned long long *)v + 7) != 8) v[7] = 0;
	if (f) fclose(f);
	return v[7] * 10000000;
}
static void cpu_clock(void)
{
	u32 p = probe((void *)burn, ALL_TIMES | WH_DO_CPU), q = probe((void *)doze, ALL_TIMES | WH_DO_CPU | WH_DO_USAGE | WH_DO_HIST);
	u64 before = thread_ns(), stolen = stolen_ns();
	for (int i = 0; i < 3000; i++) burn(200000);
	u64 truth = thread_ns() - before;
	stolen = stolen_ns() - stolen + 10000000;
	for (int i = 0; i < 20; i++) doze(5000000);
	struct sums s = sums(p), d = sums(q);
	u64 wall = (u64)(((unsigned __int128)s.wall * HEADER->tsc_mult) >> 32), dozed = (u64)(((unsigned __int128)d.wall * HEADER->tsc_mult) >> 32);
	printf("  burn: wall %.2f ms, cpu %.2f ms, thread clock %.2f ms (mode %u); doze: wall %.2f ms, cpu %.3f ms\n", (double)wall / 1e6, (double)s.cpu / 1e6, (double)truth / 1e6, THREAD(0)->cpu_mode, (double)dozed / 1e6, (double)d.cpu / 1e6);
	CHECK((double)s.cpu > 0.985 * (double)truth && (double)s.cpu < 1.01 * (double)truth + (double)stolen, "cpu %llu truth %llu", (unsigned long long)s.cpu, (unsigned long long)truth);
	CHECK(d.cpu < dozed / 10, "doze cpu %llu", (unsigned long long)d.cpu);
	unprobe(p); unprobe(q);
}


/* ---- no unwind rows: frame pointers where there are any, never a crash, never an unmarked guess ---- */
__attribute__((noipa, optimize("omit-frame-pointer"))) u64 rbp_is_data(u64 x)
{
	u64 r;
	__asm__ volatile("push %%rbp\n mov %1, %%rbp\n mov %1, %%rdi\n sub $136, %%rsp\n call leaf\n add $136, %%rsp\n pop %%rbp" : "=a"(r) : "b"(x) : "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "memory");
	return r;
}
static void without_rows(void)
{
	u32 modules = HEADER->n_modules, p;
	HEADER->n_modules = 0;
	no_backtrace = 1;
	p = want_point = probe((void *)leaf, ALL_TIMES);
	u64 n = 0;
	for (int i = 0; i < 300; i++) { sink = mid_fp((u64)i); n += 2; }
	u64 odd[] = {0, 8, 1, (u64)&n, (u64)&n + 3, ~0ull, (u64)seg, 0x7fffffffe000, (u64)__builtin_frame_address(0) - 4096, (u64)__builtin_frame_address(0) + (1 << 19)};
	for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) { CHECK(rbp_is_data(odd[i]) == odd[i] + 1, "result"); n++; }
	CHECK(sums(p).calls == n, "calls %llu of %llu", (unsigned long long)sums(p).calls, (unsigned long long)n);
	int through = 0;
	for (u32 i = 1; i < HEADER->next_path; i++) {
		u64 ra[128]; u32 root;
		if (PATH_POINT[i] != p || i == POINTS[p].root) continue;
		int k = frames_of(i, ra, &root, 128);
		CHECK(by_frame_pointers(i) || root == WH_ROOT_TRUNCATED, "path %u of %d frames without a mark, root %u", i, k, root);
		if (k > 2) through++;
	}
	printf("  %d paths went on by frame pointers\n", through);
	HEADER->n_modules = modules;
	no_backtrace = 0;
	unprobe(p);
}

/* ---- the place of the shadow is taken: counted, not timed, unharmed ---- */
static void *on_taken_stack(void *arg) { u64 r = 0; for (int i = 0; i < 1000; i++) r += work((u64)i) + rec(3); return arg ? (void *)r : 0; }
/* Where heaps of programs without PIE lie there is nothing 16 TiB below. */
static void low_stack(void)
{
	u32 p = probe((void *)work, ALL_TIMES), q = probe((void *)rec, ALL_TIMES);
	u64 size = 1 << 20;
	char *stack = (char *)mmap(0, size, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setstack(&a, stack, size);
	pthread_t t; void *got; u64 before = lost(WH_LOST_LOW), other = lost(WH_LOST_SHADOW);
	pthread_create(&t, &a, on_taken_stack, (void *)1); pthread_join(t, &got);
	CHECK(sums(p).calls == 1000 && sums(q).calls == 4000, "calls %llu %llu", (unsigned long long)sums(p).calls, (unsigned long long)sums(q).calls);
	CHECK(lost(WH_LOST_LOW) - before == 5000 && lost(WH_LOST_SHADOW) == other, "lost %llu", (unsigned long long)(lost(WH_LOST_LOW) - before));
	munmap(stack, size); unprobe(p); unprobe(q);
}
static void shadow_taken(void)
{
	u32 p = probe((void *)work, ALL_TIMES), q = probe((void *)rec, ALL_TIMES);
	u64 size = 1 << 20;
	char *stack = (char *)mmap(0, size, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u64 first = (u64)stack & ~0xffffull;
	char *taken = (char *)mmap((void *)(first - 0x100000000000ull + 0x10000), size + 0x20000, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (taken == MAP_FAILED) { printf("  SKIP: its place is in use\n"); unprobe(p); unprobe(q); return; }
	memset(taken, 0x5a, size);
	pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setstack(&a, stack, size);
	pthread_t t; void *got; u64 want = 0, before = lost(WH_LOST_SHADOW);
	for (int i = 0; i < 1000; i++) want += (u64)i * 2654435761u + 4;
	pthread_create(&t, &a, on_taken_stack, (void *)1); pthread_join(t, &got);
	CHECK((u64)got == want, "result");
	CHECK(sums(p).calls == 1000 && sums(q).calls == 4000, "calls %llu %llu", (unsigned long long)sums(p).calls, (unsigned long long)sums(q).calls);
	CHECK(lost(WH_LOST_SHADOW) - before == 5000 && sums(p).wall == 0, "lost %llu", (unsigned long long)(lost(WH_LOST_SHADOW) - before));
	for (u64 i = 0; i < size; i++) if (taken[i] != 0x5a) { CHECK(0, "foreign memory written at %llu", (unsigned long long)i); break; }
	munmap(taken, size + 0x20000); munmap(stack, size);
	unprobe(p); unprobe(q);
}

/* ---- many call sites of one function, more than one shape each: exact counts by path ---- */
#define SITE(n) NOINLINE u64 site##n(u64 x) { volatile char pad[n * 16 + 8]; pad[0] = 1; return work(x) + pad[0]; }
SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7)
NOINLINE u64 via(u64 (*f)(u64), u64 x, u64 size) { volatile char *p = (volatile char *)__builtin_alloca(size); p[0] = 0; return f(x) + p[0]; }
static void many_paths(void)
{
	u64 (*f[8])(u64) = {site0, site1, site2, site3, site4, site5, site6, site7};
	u32 p = probe((void *)work, ALL_TIMES);
	u64 s = 1, each[8] = {0}, n = 0;
	for (int i = 0; i < 200000; i++) {
		s ^= s << 13; s ^= s >> 7; s ^= s << 17;
		if (s & 1) sink = via(f[s >> 3 & 7], s, (s >> 8 & 15) * 16 + 16); else sink = f[s >> 3 & 7](s);
		each[s >> 3 & 7]++; n++;
		if (i == 100000) HEADER->generation++;
	}
	CHECK(sums(p).calls == n && sums(p).paths == 16, "calls %llu paths %llu", (unsigned long long)sums(p).calls, (unsigned long long)sums(p).paths);
	for (int k = 0; k < 8; k++) {
		u64 got = 0;
		for (u32 i = 1; i < HEADER->next_path; i++) {
			u64 ra[128];
			if (PATH_POINT[i] != p || frames_of(i, ra, 0, 128) < 2) continue;
			Dl_info in;
			if (ra[0] - (u64)f[k] < 96 && dladdr((void *)ra[0], &in) && in.dli_saddr == (void *)f[k]) got += sums_of_path(i).calls;
		}
		CHECK(got == each[k], "site %d: %llu of %llu", k, (unsigned long long)got, (unsigned long long)each[k]);
	}
	unprobe(p);
}

/* ---- two steps of the sequence word per exit, in every form, and whatever a handler left behind ---- */
static void sequences(void)
{
	u32 p = probe((void *)work, ALL_TIMES), q = probe((void *)rec, ALL_TIMES), levels = HEADER->recursion;
	HEADER->recursion = 3;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 100; i++) sink = work(1) + rec(20);
		for (u32 i = 1; i < HEADER->next_path; i++) {
			u32 page = THREAD(0)->directory[i / 64];
			if (!page || (PATH_POINT[i] != p && PATH_POINT[i] != q)) continue;
			struct wh_block *b = (struct wh_block *)(seg + WH_AT_PAGES + (u64)page * 4096) + i % 64;
			if (!b->calls) continue;
			CHECK(b->seq == 2 * b->calls, "round %d, path %u: sequence %u after %llu calls", round, i, b->seq, (unsigned long long)b->calls);
			b->seq |= 1;
		}
		THREAD(0)->seq_active |= round == 0;
	}
	CHECK(folded(q) == 2 * 100 * (21 - 4), "folded %llu", (unsigned long long)folded(q));
	CHECK(!(THREAD(0)->seq_active & 1), "the active stack stays odd");
	HEADER->recursion = levels;
	unprobe(p); unprobe(q);
}

/* ---- a program that forbids itself system calls is not killed for ours ---- */
PROBED int my_prctl(int option, u64 a, void *b) { return (int)syscall(SYS_prctl, option, a, b, 0, 0); }
PROBED u64 roomy(u64 x, int left) { volatile char room[2000]; room[x % 2000] = 1; u64 y = left ? roomy(x + 1, left - 1) : x; return y + (u64)room[x % 2000]; }
static void locked_in(int strict)
{
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_exit), ALLOW(SYS_sched_yield), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
	struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
	int bad = 0;
	sink = work(1);
	my_prctl(PR_SET_NO_NEW_PRIVS, 1, 0);
	bad = strict ? my_prctl(PR_SET_SECCOMP, 1, 0) : my_prctl(PR_SET_SECCOMP, 2, &program);
	for (int i = 0; i < 1000; i++) {
		for (int k = 0; k < 100; k++) sink = work((u64)k);
		if (!strict) syscall(SYS_sched_yield);
	}
	for (int i = 0; i < 10; i++) sink = roomy((u64)i, 1000);
	syscall(SYS_exit, bad ? 9 : 5);
}
static void locks(void)
{
	cpu_set_t all, one;
	sched_getaffinity(0, sizeof all, &all);
	CPU_ZERO(&one); CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one); /* parent and child take turns: CPU time needs a new anchor */
	for (int strict = 0; strict < 2; strict++) {
		u32 flags = ALL_TIMES | WH_DO_CPU, p = probe((void *)work, flags), q = probe((void *)roomy, flags), r = probe((void *)my_prctl, WH_DO_LOCK);
		u64 before = lost(WH_LOST_BUSY), shadow = lost(WH_LOST_SHADOW);
		int status = 0;
		POINTS[r].lock = 1;
		pid_t child = fork();
		if (!child) locked_in(strict);
		while (waitpid(child, &status, WNOHANG) == 0) {}
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5, "strict %d: status %x", strict, status);
		u64 missed = lost(WH_LOST_BUSY) - before;
		printf("  strict %d: work %llu, roomy %llu, not counted %llu\n", strict, (unsigned long long)sums(p).calls, (unsigned long long)sums(q).calls, (unsigned long long)missed);
		CHECK(sums(p).calls == (strict ? 1 : 100001), "work %llu", (unsigned long long)sums(p).calls);
		CHECK(sums(p).calls + sums(q).calls + missed == 100001 + 10010, "neither counted nor told");
		CHECK(strict || (sums(q).calls == 10010 && lost(WH_LOST_SHADOW) == shadow), "roomy %llu, shadow lost %llu", (unsigned long long)sums(q).calls, (unsigned long long)(lost(WH_LOST_SHADOW) - shadow));
		CHECK(strict || lost(WH_LOST_CLOCK), "CPU time is missing without a word");
		unprobe(p); unprobe(q); unprobe(r);
	}
	sched_setaffinity(0, sizeof all, &all);
}

int main(int argc, char **argv)
{
	struct { const char *name; void (*run)(void); } all[] = {
		{"paths", paths}, {"recursion", recursion}, {"deep", deep}, {"tails", tails}, {"jumps", jumps}, {"threads", threads}, {"churn", churn},
		{"signals", signals}, {"signal_jumps", signal_jumps}, {"alternate_stack", alternate_stack}, {"forks", forks}, {"coroutines", coroutines},
		{"arguments", arguments}, {"values", values}, {"silence", silence}, {"cpu_clock", cpu_clock},
		{"without_rows", without_rows}, {"shadow_taken", shadow_taken}, {"low stack", low_stack}, {"many_paths", many_paths}, {"sequences", sequences}, {"locks", locks}};
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
