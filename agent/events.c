/*
 * Counters of the processor: how many cycles, instructions or misses a call took, read by the thread
 * itself. Each thread opens a counter of its own when it first needs it; its page says where to read.
 * Constraints: no descriptor stays open (the program might close it, or read from it); an instruction
 * that the processor would refuse is never executed, so the page is asked anew at each reading; what the
 * agent does between two readings is counted with the call.
 */
#include "agent.h"

/* Beginning of struct perf_event_mmap_page. */
struct counter_page {
	u32 version, compat;
	u32 lock;          /* changes with each scheduling */
	u32 index;         /* 0: not on the processor now; else number + 1 */
	s64 offset;
	u64 enabled, running;
	u64 capabilities;
	u16 width;         /* bits of the counter */
};
#define MAY_READ 4u /* cap_user_rdpmc */
#define REFUSED 1ul

#ifdef WH_FAKE_RDPMC
u64 wh_fake_rdpmc(u32 counter);
#define rdpmc wh_fake_rdpmc
#else
static inline u64 rdpmc(u32 counter)
{
	u32 low, high;

	__asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(counter));
	return (u64)high << 32 | low;
}
#endif

static u64 counter_open(struct local *l, u32 number)
{
	const struct wh_event *e = &header()->event[number];
	u64 attr[14] = {e->type | (u64)sizeof(attr) << 32, e->config, 0, 0, 0, 3 << 5 /* not kernel, hypervisor */};

	if (number >= WH_EVENTS || !(e->flags & WH_EVENT_SET) || G.locked)
		return REFUSED;
	s64 fd = sys6(SYS_PERF_EVENT_OPEN, (u64)attr, 0, ~0ull, ~0ull, 8 /* close on exec */, 0);
	if (fd < 0)
		return REFUSED;
	s64 page = sys6(SYS_MMAP, 0, PAGE, 1, MAP_SHARED_, (u64)fd, 0);
	sys2(SYS_CLOSE, fd, 0);
	if (page < 0 && page > -4096)
		return REFUSED;
	if (!map_listed((u64)page, l->block->pid)) {
		sys2(SYS_MUNMAP, page, PAGE);
		return REFUSED;
	}
	return (u64)page;
}

/* What a counter has counted, plus 1; 0: it cannot be read now. */
static u64 counter_read(const volatile struct counter_page *page)
{
	for (int tries = 0; tries < 8; tries++) {
		u32 seq = page->lock;
		barrier();
		u32 index = page->index, unused = 64u - page->width;
		s64 count = page->offset;

		if (!(page->capabilities & MAY_READ) || !index || unused >= 64)
			return 0;
		count += (s64)(rdpmc(index - 1) << unused) >> unused;
		barrier();
		if (likely(page->lock == seq))
			return (u64)count + 1;
	}
	return 0;
}

static u64 event_now(struct local *l, u32 number)
{
	if (number >= WH_EVENTS)
		return 0;
	if (unlikely(!l->event[number]))
		l->event[number] = counter_open(l, number);
	return l->event[number] == REFUSED ? 0 : counter_read((const volatile struct counter_page *)l->event[number]);
}

/* Notes where the counters stand at an entry, which is active[index]; `counts` 0: the call is part of one
 * that is counted. */
slow_path void events_at_entry(struct local *l, const struct wh_point *p, u32 index, int counts)
{
	u32 n = extras(p);

	if (!l->words && !G.locked)
		l->words = map_own((u64)WH_ACTIVE * sizeof(*l->words));
	if (!l->words || index >= WH_ACTIVE)
		return;
	for (u32 i = 0; i < n; i++)
		if (extra_at(p, i)->source == WH_EVENT)
			l->words[index][i] = counts ? event_now(l, extra_at(p, i)->number) : ~0ull;
}

/* Adds what was counted since. `index` is the record's place, if it is still in it. */
slow_path void events_at_exit(struct local *l, const struct wh_point *p, u32 index, struct wh_block *b)
{
	u32 n = extras(p);

	for (u32 i = 0; i < n; i++) {
		const struct wh_extra *x = extra_at(p, i);

		if (x->source != WH_EVENT || x->value >= 2)
			continue;
		u64 now = event_now(l, x->number);
		u64 before = l->words && index < WH_ACTIVE ? l->words[index][i] : 0;
		if (before == ~0ull)
			continue;
		if (now && before && now >= before)
			b->value[x->value] += now - before;
		else
			l->block->lost[WH_LOST_EVENT]++;
	}
}

void events_drop(struct local *l)
{
	for (u32 i = 0; i < WH_EVENTS; i++) {
		if (l->event[i] > REFUSED)
			unmap_own(l->event[i], PAGE);
		l->event[i] = 0;
	}
}
