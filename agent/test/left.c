/*
 * Threads whose handler does nothing but jump out of what it interrupted, which from the thread's first call on is the agent
 * again and again: calls that follow are calls as others, and one in 10,000 may be lost. Run: left AGENT.SO.
 */
#include "harness.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>

static volatile u64 sink;
PROBED u64 work(u64 x) { return x * 2654435761u + 1; }

#define LEFT_THREADS 48
static __thread sigjmp_buf from;
static __thread volatile int ready;
static u64 calls_made, jumps_made;
static void only_jump(int s) { (void)s; if (ready) { ready = 0; siglongjmp(from, 1); } }
static NOINLINE u64 further_in(u64 x, int depth) { u64 r = depth ? further_in(x, depth - 1) : work(x); __asm__ volatile(""); return r; }
static void *left_thread(void *arg)
{
	struct sigevent ev = {0}; ev.sigev_notify = SIGEV_THREAD_ID; ev.sigev_signo = SIGUSR2; ev._sigev_un._tid = (int)syscall(SYS_gettid);
	struct itimerspec it = {{0, 150000}, {0, 10000 + (s64)arg % 16 * 8000}}, none = {{0, 0}, {0, 0}};
	volatile u64 calls = 0, jumps = 0;
	timer_t timer;
	timer_create(CLOCK_MONOTONIC, &ev, &timer);
	timer_settime(timer, 0, &it, 0);
	for (volatile u64 i = 0; i < 8000; i++) {
		ready = 0;
		if (!sigsetjmp(from, 1)) ready = 1; else jumps++;
		calls++;
		sink = further_in(i, (int)(i * 7 % 13));
		calls++;
		sink = work(i);
	}
	ready = 0;
	timer_settime(timer, 0, &none, 0);
	timer_delete(timer);
	__atomic_fetch_add(&calls_made, calls, __ATOMIC_RELAXED);
	__atomic_fetch_add(&jumps_made, jumps, __ATOMIC_RELAXED);
	return 0;
}
int main(int argc, char **argv)
{
	struct { const char *name; u32 flags; } forms[] = {{"count", WH_DO_PATH}, {"wall", ALL_TIMES}};
	(void)argc;
	setup(argv[1]);
	struct sigaction sa = {0}; sa.sa_handler = only_jump; sigaction(SIGUSR2, &sa, 0);
	for (int k = 0; k < 2; k++) {
		u32 p = probe((void *)work, forms[k].flags);
		u64 before = lost(WH_LOST_BUSY);
		calls_made = jumps_made = 0;
		for (u64 i = 0; i < LEFT_THREADS; i++) {
			pthread_t t;
			pthread_create(&t, 0, left_thread, (void *)i);
			pthread_join(t, 0);
		}
		u64 missed = lost(WH_LOST_BUSY) - before, calls = sums(p).calls;
		printf("  %s: %llu jumps, %llu calls of %llu counted, busy %llu\n", forms[k].name, (unsigned long long)jumps_made, (unsigned long long)calls,
		       (unsigned long long)calls_made, (unsigned long long)missed);
		/* A jump may come between what counts here and what counts there. */
		CHECK(jumps_made > LEFT_THREADS && calls + missed <= calls_made && calls + missed + jumps_made >= calls_made, "calls %llu of %llu", (unsigned long long)calls, (unsigned long long)calls_made);
		CHECK(missed <= calls_made / 10000, "%s: lost %llu of %llu", forms[k].name, (unsigned long long)missed, (unsigned long long)calls_made);
		unprobe(p);
	}
	printf("%s left\n", failures ? "FAILED" : "ok    ");
	return failures != 0;
}
