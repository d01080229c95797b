/*
 * What a probed call costs: the function does 4 ns of work and is reached by 3 call paths of 11 frames
 * (or, `random`, by 256 equally likely ones of depth 11). Prints ns per call, net of the bare program;
 * with a second argument fails above the bars.
 */
#include "harness.h"
#include <sched.h>
#include <pthread.h>

#define REPS 400 /* short ones: the best is free of other load */

PROBED u64 target(u64 x, u64 y)
{
	x ^= y;
	x *= 0x9E3779B97F4A7C15ull; x ^= x >> 29;
	x *= 0xBF58476D1CE4E5B9ull; x ^= x >> 32;
	x *= 0x94D049BB133111EBull; x ^= x >> 31;
	return x;
}
#define P7(p) NOINLINE u64 p##7(u64 x, long n) { for (long i = 0; i < n; i++) x = target(x, i); return x; }
#define PX(p, a, b) NOINLINE u64 p##a(u64 x, long n) { volatile u64 l[a]; l[0] = x; u64 r = p##b(x ^ l[0] ^ x, n); return r + l[0] * 0 + a; }
#define PATH(p) P7(p) PX(p, 6, 7) PX(p, 5, 6) PX(p, 4, 5) PX(p, 3, 4) PX(p, 2, 3) PX(p, 1, 2)
PATH(a) PATH(b) PATH(c)
#define L(n, m) NOINLINE u64 r##n(u64 x, unsigned b) { volatile u64 l[2]; l[0] = x; u64 r; \
	if (b & 1) r = r##m(x + 1, b >> 1) + l[0]; else r = r##m(x + 2, b >> 1) ^ l[0]; return r + 1; }
NOINLINE u64 r8(u64 x, unsigned b) { u64 r = target(x, b); __asm__ volatile(""); return r + 1; }
L(7, 8) L(6, 7) L(5, 6) L(4, 5) L(3, 4) L(2, 3) L(1, 2) L(0, 1)

static double fixed(void)
{
	double best = 1e9; u64 x = 1; const long n = 19200;
	for (int r = 0; r < REPS; r++) {
		u64 t = now_ns();
		for (long i = 0; i < n; i += 192) { x = a1(x, 64); x = b1(x, 64); x = c1(x, 64); }
		double d = (double)(now_ns() - t) / n;
		if (d < best) best = d;
	}
	__asm__ volatile("" : : "r"(x));
	return best;
}
static double other_each_call(void)
{
	double best = 1e9; u64 x = 1; const long n = 19200;
	for (int r = 0; r < REPS; r++) {
		u64 t = now_ns();
		for (long i = 0; i < n; i += 3) { x = a1(x, 1); x = b1(x, 1); x = c1(x, 1); }
		double d = (double)(now_ns() - t) / n;
		if (d < best) best = d;
	}
	__asm__ volatile("" : : "r"(x));
	return best;
}
static double random_paths(void)
{
	double best = 1e9; u64 x = 1; const long n = 20000;
	for (int r = 0; r < REPS; r++) {
		u64 s = 88172645463325252ull, t = now_ns();
		for (long i = 0; i < n; i++) { s ^= s << 13; s ^= s >> 7; s ^= s << 17; x += r0(x, s & 255); }
		double d = (double)(now_ns() - t) / n;
		if (d < best) best = d;
	}
	__asm__ volatile("" : : "r"(x));
	return best;
}
int main(int argc, char **argv)
{
	int fail = argc > 2;
	cpu_set_t one; CPU_ZERO(&one); CPU_SET(sched_getcpu(), &one); sched_setaffinity(0, sizeof one, &one);
	setup(argv[1]);
	double bare[3] = {fixed(), other_each_call(), random_paths()};
	printf("%-34s %8s %8s %8s\n", "ns per call (bare; then net)", "3 paths", "each", "random");
	printf("%-34s %8.1f %8.1f %8.1f\n", "bare", bare[0], bare[1], bare[2]);
	struct { const char *name; u32 flags; double bar[2]; } v[] = {
		{"count, entry only", 0, {8, 0}},
		{"count by path, entry only", WH_DO_PATH, {8, 50}},
		{"exit seen, no clock", WH_DO_EXIT, {0, 0}},
		{"exit seen, path, no clock", WH_DO_EXIT | WH_DO_PATH, {0, 0}},
		{"wall", WH_DO_EXIT | WH_DO_WALL, {25, 0}},
		{"wall by path", ALL_TIMES, {25, 50}},
		{"wall + cpu by path", ALL_TIMES | WH_DO_CPU, {30, 0}},
		{"wall + cpu + histogram by path", ALL_TIMES | WH_DO_CPU | WH_DO_HIST, {35, 0}},
	};
	for (unsigned i = 0; i < sizeof v / sizeof *v; i++) {
		u32 p = probe((void *)target, v[i].flags);
		double got[3] = {fixed() - bare[0], other_each_call() - bare[1], random_paths() - bare[2]};
		struct sums s = sums(p);
		unprobe(p);
		printf("%-34s %8.1f %8.1f %8.1f   calls %llu paths %llu min %llu ticks\n", v[i].name, got[0], got[1], got[2],
		       (unsigned long long)s.calls, (unsigned long long)s.paths, (unsigned long long)s.min);
		if (fail && v[i].bar[0] && got[0] > v[i].bar[0]) { failures++; printf("FAILED: above %.0f ns\n", v[i].bar[0]); }
		if (fail && v[i].bar[1] && got[2] > v[i].bar[1]) { failures++; printf("FAILED: above %.0f ns (random)\n", v[i].bar[1]); }
	}
	for (int c = 0; c < WH_LOST_CAUSES; c++) if (lost(c)) { printf("lost[%d] %llu\n", c, (unsigned long long)lost(c)); failures++; }
	return failures != 0;
}
