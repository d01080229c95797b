/*
 * Sums of integers: signed, at the limits of their width they stop instead of beginning anew, and of
 * arguments that are not there nothing is summed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../record.c"

struct global G;
void *map_own(u64 bytes) { return calloc(1, bytes); }
int map_listed(u64 address, u32 pid) { (void)address; (void)pid; return 0; }
void unmap_own(u64 address, u64 bytes) { (void)address; (void)bytes; }

static int failed;

static void is(const char *what, s64 found, s64 expected)
{
	if (found != expected) {
		printf("FAILED: %s is %lld, expected %lld\n", what, (long long)found, (long long)expected);
		failed = 1;
	}
}

/* A slot next to the end of its page, and nothing mapped behind. */
static void beyond_the_stack(void)
{
	static struct wh_thread thread;
	struct local *l = calloc(1, sizeof(*l));
	char *pages = mmap(0, 2 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u64 slot = (u64)pages + PAGE - 16, word = 7;
	struct wh_extra x = {.source = WH_STACK_ARG, .width = 8};

	l->block = &thread;
	thread.pid = (u32)getpid();
	*(u64 *)(pages + PAGE - 8) = 41;
	*(u64 *)(pages + PAGE) = 42;
	is("an argument on the page of the slot", entry_word(l, &x, slot, 0, &word) ? (s64)word : -1, 41);
	x.number = 1;
	is("one on the next page", entry_word(l, &x, slot, 0, &word) ? (s64)word : -1, 42);
	is("one across both", entry_word(l, &x, slot - 4, 0, &word) ? 1 : -1, 1);
	mprotect(pages + PAGE, PAGE, 0);
	is("one where nothing can be read", entry_word(l, &x, slot, 0, &word), 0);
	is("one across the end", entry_word(l, &x, slot - 4, 0, &word), 0);
	mprotect(pages + PAGE, PAGE, 3);
	G.locked = 1;
	is("one that may not be asked for", entry_word(l, &x, slot, 0, &word), 0);
	G.locked = 0;
}

int main(void)
{
	struct wh_block b = {0};
	struct wh_extra x = {.source = WH_RET, .value = 0};
	const s64 most = (s64)(~0ull >> 1);

	add(&b, &x, (u64)-5);
	add(&b, &x, 3);
	is("a sum of both signs", (s64)b.value[0], -2);
	add(&b, &x, (u64)most);
	add(&b, &x, 2);
	is("the largest", (s64)b.value[0], most);
	add(&b, &x, 1ull << 62);
	is("beyond the largest", (s64)b.value[0], most);
	b.value[0] = (u64)(-most);
	add(&b, &x, (u64)-7);
	is("below the smallest", (s64)b.value[0], -most - 1);
	x.value = 255;
	add(&b, &x, 9);
	is("only emitted", (s64)b.value[1], 0);
	beyond_the_stack();
	if (!failed)
		puts("ok sums");
	return failed;
}
