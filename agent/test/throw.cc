// C++ exceptions, destructors, rethrows, forced unwinding and backtrace() through probed frames. The
// unwinder must walk the agent's frames by their description alone.
#include "harness.h"
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <string>

static long alive, caught;
struct Guard { Guard() { alive++; } ~Guard() { alive--; } };

PROBED long thrower(long n)
{
	Guard g;
	if (n % 2) throw std::runtime_error(std::to_string(n));
	return n;
}
PROBED long chain(int depth, long n)
{
	Guard g;
	std::string s(40, 'x');
	long r = depth ? chain(depth - 1, n) : thrower(n);
	return r + (long)s.size() - 40;
}
PROBED long rethrower(long n)
{
	try { return chain(1, n); } catch (const std::exception &e) { Guard g; caught++; throw; }
}
PROBED long nested(long n)
{
	try { return rethrower(n); } catch (...) {
		try { return rethrower(n); } catch (...) { return -n; }
	}
}
static void *leaver(void *)
{
	Guard g;
	struct Inner { PROBED static void go(int d) { Guard h; if (d) { go(d - 1); asm volatile(""); } else pthread_exit((void *)5); } };
	Inner::go(4);
	return 0;
}

int main(int, char **argv)
{
	setup(argv[1]);
	u32 t = probe((void *)thrower, ALL_TIMES | WH_DO_CPU), c = probe((void *)chain, ALL_TIMES), r = probe((void *)rethrower, ALL_TIMES), n = probe((void *)nested, ALL_TIMES);
	for (int depth : {0, 1, 49}) {
		long seen = 0;
		for (long i = 0; i < 400; i++) {
			try { CHECK(chain(depth, i) == i && i % 2 == 0, "no exception"); }
			catch (const std::runtime_error &e) { CHECK(std::stol(e.what()) == i, "another exception"); seen++; }
		}
		CHECK(seen == 200 && alive == 0, "seen %ld alive %ld", seen, alive);
	}
	u64 calls = sums(t).calls;
	CHECK(calls == 1200, "calls %llu", (unsigned long long)calls);
	for (long i = 0; i < 100; i++) CHECK(nested(i) == (i % 2 ? -i : i), "nested");
	CHECK(sums(n).calls == 100 && sums(r).calls == 150 && caught == 100 && alive == 0, "rethrow");
	CHECK(sums(n).min > 0, "nested is timed");
	CHECK(sums(c).calls == 1200 + 400 * 50 - 400 + 400 + 300, "chain %llu", (unsigned long long)sums(c).calls);
	for (int i = 0; i < 50; i++) {
		pthread_t th; void *got;
		pthread_create(&th, 0, leaver, 0); pthread_join(th, &got);
		CHECK(got == (void *)5 && alive == 0, "forced unwind: alive %ld", alive);
	}
	printf("jumped %llu, exits without record %llu\n", (unsigned long long)lost(WH_LOST_JUMPED), (unsigned long long)lost(WH_LOST_EXIT));
	printf(failures ? "FAILED throw\n" : "ok     throw\n");
	return failures != 0;
}
