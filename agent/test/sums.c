/*
 * Sums of integers: signed, and at the limits of their width they stop instead of beginning anew.
 */
#include <stdio.h>
#include <stdlib.h>
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
	if (!failed)
		puts("ok sums");
	return failed;
}
