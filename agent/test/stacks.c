/*
 * Many coroutines suspended in probed calls, gone on with in any order, while the thread's own stack has calls in
 * progress too: every call is counted and its exit found, and a change of stacks costs no more for the others.
 */
#include "harness.h"

#define STACK_BYTES (1 << 16)
#define MOST 3000
#define PART 1000

void change(void **from, void *to); /* keeps what the callee must keep, and changes stacks */
__asm__(".text\n.type change,@function\nchange: .cfi_startproc\n"
	" push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
	" pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n.cfi_endproc\n.size change, . - change\n");

static void *mine, *of[MOST];
static int now, ending, ended;
static u64 entered, rounds;

PROBED u64 inner(int depth)
{
	entered++;
	if (depth) { u64 r = inner(depth - 1); __asm__ volatile(""); return r + 1; }
	change(&of[now], mine);
	return 1;
}

static void body(void)
{
	int me = now;

	while (!ending)
		if (inner(me % 3) != (u64)me % 3 + 1)
			failures++;
	ended++;
	for (;;)
		change(&of[me], mine);
}

PROBED u64 go_on(int which)
{
	rounds++;
	now = which;
	change(&mine, of[which]);
	return (u64)which;
}

static void make(int n)
{
	ending = ended = 0;
	for (int i = 0; i < n; i++) {
		void *memory = i % 2 ? malloc(STACK_BYTES) : mmap(0, STACK_BYTES, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		void **top = (void **)(((u64)memory + STACK_BYTES) & ~15ull);

		*--top = 0;
		*--top = (void *)body;
		of[i] = top - 6;
	}
}

/* Ticks that changes of stack have cost, each: of the part of the run that others disturbed least. */
static u64 run(int n, int times)
{
	u64 before, random = 7, cost = ~0ull;

	make(n);
	for (int i = 0; i < n; i++)
		go_on(i);
	before = lost(WH_LOST_APART);
	for (int i = 0; i < times; i++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		int which = (int)((random >> 33) % (u64)n);
		if (go_on(which) != (u64)which)
			failures++;
		if (i % PART == PART - 1) {
			u64 now = lost(WH_LOST_APART);

			if ((now - before) / PART < cost)
				cost = (now - before) / PART;
			before = now;
		}
	}
	ending = 1;
	for (int i = 0; i < n; i++)
		go_on(i);
	CHECK(ended == n, "%d of %d have ended", ended, n);
	return cost;
}

static int in_progress(void)
{
	int n = 0;

	for (u32 i = 0; i < THREAD(0)->n_active && i < WH_ACTIVE; i++)
		n += THREAD(0)->active[i].path != 0;
	return n;
}

int main(int argc, char **argv)
{
	setup(argv[1]);
	u32 p = probe((void *)inner, ALL_TIMES | WH_DO_HIST), q = probe((void *)go_on, ALL_TIMES | WH_DO_HIST);
	static const int many[] = {1, 2, 7, 8, 9, 40, 300, MOST};
	u64 cost[8];

	for (int i = 0; i < 8; i++)
		cost[i] = run(many[i], 30000);
	struct sums s = sums(p), t = sums(q);
	CHECK(s.calls == entered && s.done == entered, "%lu calls, %lu exits of %lu", s.calls, s.done, entered);
	CHECK(t.calls == rounds && t.done == rounds, "%lu calls, %lu exits of %lu", t.calls, t.done, rounds);
	CHECK(!lost(WH_LOST_JUMPED) && !lost(WH_LOST_EXIT), "%lu jumped, %lu exits", lost(WH_LOST_JUMPED), lost(WH_LOST_EXIT));
	CHECK(!in_progress(), "%d in progress", in_progress());
	CHECK(folded(p) == 0, "%lu folded", folded(p));
	/* Memory that is not in the processor's caches costs what it costs. */
	CHECK(cost[6] < 5 * cost[1], "%lu ticks with 300 stacks, %lu with two", cost[6], cost[1]);
	CHECK(cost[7] < 30 * cost[1], "%lu ticks with %d stacks, %lu with two", cost[7], MOST, cost[1]);
	for (int i = 0; i < 8; i++)
		printf("  %d: %lu ticks\n", many[i], cost[i]);
	if (!failures)
		puts("ok stacks");
	return failures != 0;
}
