/*
 * Callers of whose frames nothing is known: code made at run time, and a stub in assembler without unwind rows in a
 * file that has some. They find their return address as they left it, whichever way the agent takes; calls from
 * elsewhere are timed all the same.
 */
#include "harness.h"

#define ROUNDS 300

typedef u64 victim(void);
struct way {
	const char *name;
	u32 flags;
	int times;     /* of calls by an ordinary caller */
	int any;       /* of calls by the others, too */
};

/* What it finds in its return slot. */
#define VICTIM(name) PROBED static u64 name(void) { return (u64)__builtin_return_address(0); }
VICTIM(by_path)
VICTIM(by_point)
VICTIM(counted)
VICTIM(from_anywhere)
VICTIM(anywhere_by_point)

u64 stub(victim *f), stub_end(void);
__asm__(".text\n.globl stub\nstub: sub $8, %rsp\n call *%rdi\n add $8, %rsp\n ret\n.globl stub_end\nstub_end: nop\n");

NOINLINE static u64 ordinary(victim *f)
{
	u64 found = f();

	__asm__ volatile("");
	return found;
}

static char *made;

static void check(victim *f, const struct way *w)
{
	u32 point = probe((void *)f, w->flags);
	u64 stubs = 0, mades = 0, ours = 0, before = lost(WH_LOST_FOREIGN);

	for (int i = 0; i < ROUNDS; i++) {
		u64 a = stub(f), b = ((u64 (*)(victim *))made)(f), c = ordinary(f);

		stubs += a > (u64)stub && a < (u64)stub_end;
		mades += b - (u64)made < 16;
		ours += c - (u64)ordinary < 64;
	}
	struct sums s = sums(point);
	u64 left = w->any ? 0 : ROUNDS;
	CHECK(stubs == left, "%s: %lu return addresses of the stub", w->name, stubs);
	CHECK(mades == left, "%s: %lu of code made at run time", w->name, mades);
	CHECK(ours == (w->times ? 0 : ROUNDS), "%s: %lu of an ordinary caller", w->name, ours);
	CHECK(s.calls == 3 * ROUNDS, "%s: %lu calls", w->name, s.calls);
	CHECK(s.done == (w->any ? 3 : w->times) * ROUNDS, "%s: %lu exits", w->name, s.done);
	u64 told = lost(WH_LOST_FOREIGN) - before;
	CHECK(told == (w->times && !w->any ? 2 * ROUNDS : 0), "%s: told of %lu", w->name, told);
	unprobe(point);
}

int main(int argc, char **argv)
{
	static const struct way ways[] = {
		{"by path", ALL_TIMES | WH_DO_HIST, 1},
		{"by point", WH_DO_EXIT | WH_DO_WALL | WH_DO_HIST, 1},
		{"counted", WH_DO_PATH},
		{"from anywhere", ALL_TIMES | WH_DO_HIST | WH_DO_ANY_CALLER, 1, 1},
		{"from anywhere, by point", WH_DO_EXIT | WH_DO_WALL | WH_DO_HIST | WH_DO_ANY_CALLER, 1, 1},
	};
	static victim *const victims[] = {by_path, by_point, counted, from_anywhere, anywhere_by_point};

	setup(argv[1]);
	made = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(made, (void *)stub, (u64)stub_end - (u64)stub);
	for (u32 i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		check(victims[i], &ways[i]);
	if (!failures)
		puts("ok foreign");
	return failures != 0;
}
