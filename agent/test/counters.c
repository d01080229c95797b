/*
 * The reading of the processor's counters, with pages and a counter of our own making: what is read when, what is
 * not, and what a call is said to have counted. No counter of this machine is needed for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define WH_FAKE_RDPMC
#include "../events.c"

struct global G;
static u64 counter;
static struct counter_page *scheduled_away;
u64 wh_fake_rdpmc(u32 number)
{
	if (number != 5) {
		puts("FAILED: read a counter that is not ours");
		exit(1);
	}
	if (scheduled_away) { /* between the page and the counter */
		scheduled_away->lock++;
		scheduled_away->offset += 1000;
		scheduled_away = 0;
	}
	return counter;
}
void *map_own(u64 bytes) { return calloc(1, bytes); }
int map_listed(u64 address, u32 pid) { (void)address; (void)pid; return 0; }
void unmap_own(u64 address, u64 bytes) { (void)address; (void)bytes; }

static int failed;
static void is(const char *what, u64 got, u64 wanted)
{
	if (got != wanted) {
		printf("FAILED: %s: %llu, not %llu\n", what, got, wanted);
		failed = 1;
	}
}

int main(void)
{
	static struct counter_page page = {.index = 6, .offset = 100, .capabilities = MAY_READ, .width = 48};
	static struct local l;
	static struct wh_thread block;
	static struct wh_block b;
	const u64 top = 1ull << 47;

	counter = 7;
	is("offset and counter", counter_read(&page), 108);
	counter = (1ull << 48) - 3; /* a counter of 48 bits that stands below zero */
	is("sign", counter_read(&page), 98);
	counter = top - 1;
	is("largest", counter_read(&page), 100 + top);
	counter = 7;
	scheduled_away = &page;
	is("read again after a scheduling", counter_read(&page), 1108);
	page.index = 0;
	is("not on the processor", counter_read(&page), 0);
	page.index = 6;
	page.capabilities = 0;
	is("no leave to read", counter_read(&page), 0);
	page.capabilities = MAY_READ;
	page.width = 0;
	is("no width", counter_read(&page), 0);
	page.width = 48;

	G.segment = calloc(1, WH_AT_SITES);
	struct wh_point *p = point_at(1);
	struct wh_extra *x = (struct wh_extra *)(G.segment + WH_AT_EXTRAS);
	*p = (struct wh_point){.extras = 1, .n_extras = 2};
	x[1] = (struct wh_extra){.source = WH_ARG1, .value = 0};
	x[2] = (struct wh_extra){.source = WH_EVENT, .number = 2, .value = 1};
	l.block = &block;
	l.event[2] = (u64)&page;
	events_at_entry(&l, p, 3, 1);
	counter += 40;
	events_at_exit(&l, p, 3, &b);
	is("sum", b.value[1], 40);
	is("the argument's", b.value[0], 0);
	events_at_entry(&l, p, 4, 0); /* part of a call that is counted */
	counter += 9;
	events_at_exit(&l, p, 4, &b);
	is("folded", b.value[1], 40);
	is("nothing lost", block.lost[WH_LOST_EVENT], 0);
	events_at_entry(&l, p, 3, 1);
	page.index = 0;
	events_at_exit(&l, p, 3, &b);
	is("lost at the exit", block.lost[WH_LOST_EVENT], 1);
	page.index = 6;
	events_at_entry(&l, p, WH_ACTIVE, 1);
	events_at_exit(&l, p, WH_ACTIVE, &b);
	is("too deep", block.lost[WH_LOST_EVENT], 2);
	x[2].number = WH_EVENTS; /* the list was full */
	events_at_entry(&l, p, 3, 1);
	events_at_exit(&l, p, 3, &b);
	is("no place", block.lost[WH_LOST_EVENT], 3);
	is("the sum at last", b.value[1], 40);
	events_drop(&l);
	is("dropped", l.event[2], 0);
	if (!failed)
		puts("ok counters");
	return failed;
}
