/* Programs with a known answer for the tests of the causal back end: every part is one calibrated loop in a
 * function of its own, and `progress` is called once per round. Usage: rounds WHAT THREADS US1 US2 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static uint64_t per_us;
static uint64_t us1, us2;
volatile uint64_t rounds;

/* Each thread stores to its own stack: a line shared by two cores would make the one faster when the other rests. */
#define LOOP(n) { volatile uint64_t own; for (uint64_t i = 0, x = 1; i < (n); i++) { x = x * 6364136223846793005ull + i; own = x; } (void)own; }

__attribute__((noinline)) void part_a(uint64_t us) { LOOP(us * per_us) }
__attribute__((noinline)) void part_b(uint64_t us) { LOOP(us * per_us + 1) }
__attribute__((noinline)) void by_caller(uint64_t us) { part_a(us); sink++; }
__attribute__((noinline)) void by_other(uint64_t us) { part_a(us); sink++; }
/* The kernel sets no uprobe on an instruction with a lock prefix: something has to stand before it. */
__attribute__((noinline)) void progress(void) { sink = 0; __atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED); }

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void rest(uint64_t us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};
	nanosleep(&t, 0);
}

static pthread_barrier_t both;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int queued;

static void *barrier_a(void *u) { for (;;) { part_a(us1); pthread_barrier_wait(&both); progress(); } return u; }
static void *barrier_b(void *u) { for (;;) { part_b(us2); pthread_barrier_wait(&both); } return u; }
static void *barrier_sleep(void *u) { for (;;) { rest(us1); pthread_barrier_wait(&both); progress(); } return u; }

static void *locker(void *u)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		part_a(us1);
		pthread_mutex_unlock(&lock);
		part_b(us2);
		progress();
	}
	return u;
}

static void *producer(void *u)
{
	for (;;) {
		part_a(us1);
		pthread_mutex_lock(&lock);
		while (queued == 16)
			pthread_cond_wait(&changed, &lock);
		queued++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	return u;
}

static void *consumer(void *u)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		while (queued == 0)
			pthread_cond_wait(&changed, &lock);
		queued--;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
		part_b(us2);
		progress();
	}
	return u;
}

static void *sleeper(void *u) { for (;;) { part_a(us1); rest(us2); progress(); } return u; }
static void *serial(void *u) { for (;;) { part_a(us1); part_b(us2); progress(); } return u; }

static void *callers(void *u)
{
	for (;;) {
		by_caller(us1);
		by_other(us2);
		progress();
	}
	return u;
}

static void *ticker(void *u)
{
	uint64_t next = now();
	for (;;) {
		part_a(us1);
		next += us2 * 1000;
		struct timespec t = {next / 1000000000, next % 1000000000};
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
		progress();
	}
	return u;
}

static const struct {
	const char *name;
	void *(*even)(void *), *(*odd)(void *);
} all[] = {{"barrier", barrier_a, barrier_b}, {"iobar", barrier_sleep, barrier_b}, {"lock", locker, locker},
	   {"queue", producer, consumer},     {"sleep", sleeper, sleeper},         {"serial", serial, serial},
	   {"callers", callers, callers},     {"ticker", ticker, ticker}};

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	int threads = atoi(argv[2]);
	us1 = strtoull(argv[3], 0, 0);
	us2 = strtoull(argv[4], 0, 0);
	per_us = 1;
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < 200; i++) {
		uint64_t from = now();
		LOOP(100000);
		uint64_t took = now() - from;
		best = took < best ? took : best;
	}
	per_us = 100000ull * 1000 / best;
	pthread_barrier_init(&both, 0, threads);
	for (unsigned k = 0; k < sizeof(all) / sizeof(all[0]); k++)
		for (int i = 0; i < threads && !strcmp(argv[1], all[k].name); i++) {
			pthread_t t;
			pthread_create(&t, 0, i % 2 ? all[k].odd : all[k].even, 0);
		}
	puts("ready");
	fflush(stdout);
	for (;;) {
		pause();
	}
}
