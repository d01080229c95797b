/*
 * Which stack a return slot is on, how far it can be read, and the shadow that keeps true return
 * addresses. Constraints: a read must never fault, so memory is asked for page by page before it is
 * believed, and where the program may unmap it at any time (around coroutines) the kernel does the reading; a shadow is mapped once by whoever comes first; where the place is taken, calls are
 * counted and their exits given up. Signals are blocked in here: nothing may be left half-way.
 */
#include "agent.h"

/* A slot further below what is known of a stack counts as another stack (coroutines on one heap), unless the frames
 * around it lead there. */
#define NEAR 0x8000ull
#define MOST_FRAME 0x4000000ull /* a larger one is a mistake of its rule */
#define NEAR_END 0x100000ull /* a thread is first met that near to its stack's end */
#define RESERVE 0x800000ull /* the usual limit of a stack */

/* Shadows are mapped by the half gigabyte of stacks: to map one takes the lock of the address space, and where dozens of threads begin at once on few
 * processors, each wait for it costs a turn of all of them. */
#define SPAN_BYTES WH_SHADOW_SPAN_BYTES
#define SPANS_AHEAD 3u
#define BLOCKS_APART 8u

exported u64 wh_shadow_set[SHADOW_SET];
static u32 blocks_mapped; /* mapped one by one */

/* What an entry says while somebody of this process is at it. A child forked meanwhile has nobody who will be done with it. */
static u64 mapping(u64 key)
{
	return key | WH_SHADOW_MAPPING | (sys0(SYS_GETPID) & 0x1fff) << 3;
}

/* The key of an entry: a block, or the beginning of a span and WH_SHADOW_SPAN. */
static u64 key_of(u64 word)
{
	return word & ~(BLOCK_BYTES - 1 - WH_SHADOW_SPAN);
}

/* The entry of a key. One that is not there, or that nobody is at any more, is made with `make`, and *ours then; 0: there is none, or no room. */
static u64 *entry_of(u64 key, int make, int *ours)
{
	u32 at = ((u32)(key >> 16) * 2654435761u) >> 16;

	*ours = 0;
	for (u32 tries = 0; tries < SHADOW_SET; tries++, at = (at + 1) % SHADOW_SET) {
		u64 have = __atomic_load_n(&wh_shadow_set[at], __ATOMIC_ACQUIRE);
		int left = have && key_of(have) == key && (have & 3) == WH_SHADOW_MAPPING && have != mapping(key);

		if (have == 0 || left) {
			if (G.locked || !make)
				return 0;
			*ours = __atomic_compare_exchange_n(&wh_shadow_set[at], &have, mapping(key), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
			if (*ours)
				return &wh_shadow_set[at];
		}
		if (key_of(have) == key)
			return &wh_shadow_set[at];
	}
	return 0;
}

static int settle(u64 *entry, u64 key, int got)
{
	u64 begun = mapping(key);

	/* Where a process has the memory of another one, both may have been at it: what is mapped counts. */
	if (got)
		__atomic_store_n(entry, key | WH_SHADOW_READY, __ATOMIC_RELEASE);
	else
		__atomic_compare_exchange_n(entry, &begun, key | WH_SHADOW_REFUSED, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	sys3(SYS_FUTEX, entry, 129 /* WAKE, private */, 0x7fffffff);
	return got;
}

/* What another thread makes of it. It may be without a CPU for long, so nobody spins. */
static int settled(u64 *entry)
{
	u64 pause[2] = {0, 20000000};

	for (u32 waits = 0; waits < 20; waits++) {
		u64 have = __atomic_load_n(entry, __ATOMIC_ACQUIRE);

		if ((have & 3) != WH_SHADOW_MAPPING || G.locked)
			return (have & 3) == WH_SHADOW_READY;
		sys4(SYS_FUTEX, entry, 128 /* WAIT, private */, (u32)have, pause);
	}
	return 0;
}

static int unlimited(u32 what)
{
	u64 limit[2] = {0, 0};

	return sys4(SYS_PRLIMIT64, 0, what, 0, limit) == 0 && limit[0] == ~0ull;
}

/* Whether what is mapped counts against no limit. */
int is_roomy(void)
{
	return header()->ahead && unlimited(9 /* RLIMIT_AS */) && unlimited(2 /* RLIMIT_DATA */);
}

/* Whether memory that is mapped and never touched costs nothing: nor has the program asked for all that it maps to be there at once, as the page at
 * `fresh`, mapped just now, then is. */
int untouched_is_free(u64 fresh)
{
	u8 resident = 1;

	return is_roomy() && sys3(SYS_MINCORE, fresh, PAGE, &resident) == 0 && !(resident & 1);
}

/* What of a span lies below `from` and from `on` upwards. Without huge pages, as a thread uses one page or two of it, and no part of core dumps. */
static int span_rest(u64 span, u64 from, u64 on)
{
	u64 below = from - span, above = span + SPAN_BYTES - on;

	if (below && !map_private(span + (u64)WH_SHADOW, below))
		return 0;
	if (above && !map_private(on + (u64)WH_SHADOW, above)) {
		if (below)
			sys2(SYS_MUNMAP, span + (u64)WH_SHADOW, below);
		return 0;
	}
	sys3(SYS_MADVISE, span + (u64)WH_SHADOW, SPAN_BYTES, 15 /* MADV_NOHUGEPAGE */);
	sys3(SYS_MADVISE, span + (u64)WH_SHADOW, SPAN_BYTES, MADV_DONTDUMP_);
	touch(span + (u64)WH_SHADOW);
	return 1;
}

static int has_shadow(u64 slot)
{
	return slot >= (u64)-WH_SHADOW + BLOCK_BYTES;
}

/* The whole of a span of which nothing is mapped. */
static void span_map(u64 span)
{
	int ours = 0;
	u64 key = span | WH_SHADOW_SPAN, *entry = has_shadow(span) ? entry_of(key, 1, &ours) : 0;

	if (ours)
		settle(entry, key, span_rest(span, span, span));
}

/* Before there are threads: shadows of where the kernel will put their stacks, below what was mapped last. */
slow_path void shadows_ahead(u64 mapped)
{
	u64 span = mapped & ~(SPAN_BYTES - 1);

	for (u32 i = 0; i < SPANS_AHEAD; i++)
		span_map(span - i * SPAN_BYTES);
}

/* The shadow of a block that nobody else is at, and in a program of many stacks that of all around it. Whoever is the first in a span sees to the
 * next one, while others still find room in this. */
static int block_map(u64 block)
{
	u64 span = block & ~(SPAN_BYTES - 1), key = span | WH_SHADOW_SPAN;
	int ours = 0;
	u64 *entry = entry_of(key, blocks_mapped >= BLOCKS_APART, &ours);

	if (entry && !ours && settled(entry)) {
		if (!entry_of((span - SPAN_BYTES) | WH_SHADOW_SPAN, 0, &ours) && untouched_is_free(block + (u64)WH_SHADOW))
			span_map(span - SPAN_BYTES);
		return 1;
	}
	u64 shadow = (u64)map_private(block + (u64)WH_SHADOW, BLOCK_BYTES);
	if (shadow)
		__atomic_fetch_add(&blocks_mapped, 1, __ATOMIC_RELAXED);
	if (ours)
		settle(entry, key, shadow && has_shadow(span) && untouched_is_free(shadow) &&
				   span_rest(span, block, block + BLOCK_BYTES));
	return shadow || (entry && settled(entry)); /* it was there in between */
}

/* The shadow of a block; where system calls are forbidden only one that is there. */
static int shadow_map(u64 block)
{
	int ours;
	u64 *entry = has_shadow(block) ? entry_of(block, 1, &ours) : 0;

	if (!entry)
		return 0;
	return ours ? settle(entry, block, block_map(block)) : settled(entry);
}

/* All blocks of [from, to). */
static int shadow_map_all(u64 from, u64 to)
{
	for (u64 block = from & ~(BLOCK_BYTES - 1); block < to; block += BLOCK_BYTES)
		if (!shadow_map(block))
			return 0;
	return 1;
}

/* Upward from the page boundary `from`: first address that cannot be read, at most `pages` further. */
static u64 readable_up(u64 from, u64 pages)
{
	while (pages-- && !G.locked && readable(from))
		from += PAGE;
	return from;
}

static int grow_up(struct stack *s, u64 slot)
{
	if (slot >= s->top) {
		if (s->lasting)
			return 0;
		u64 pages = (slot - s->top) / PAGE + 1;

		if (pages > NEAR / PAGE)
			return 0;
		s->top = readable_up(s->top, pages);
		if (slot >= s->top)
			return 0;
	}
	u64 end = (slot | (BLOCK_BYTES - 1)) + 1;
	if (end > s->top)
		end = s->top;
	if (!shadow_map_all(s->hi, end))
		return 0;
	s->hi = end;
	return 1;
}

static inline u32 stacks_met(const struct local *l)
{
	return l->stack_next < STACKS ? l->stack_next : STACKS;
}

static int grow_down(const struct local *l, struct stack *s, u64 slot)
{
	u64 page = slot & ~(PAGE - 1);

	/* What was taken for a stack of its own lies between: it stays one. */
	for (u32 i = 0; i < stacks_met(l); i++)
		if (l->stacks[i].lo < s->lo && l->stacks[i].hi > page)
			return 0;
	if (G.locked) { /* nothing can be asked, but a page next to the stack is no guard page, or we were not here */
		if (page + PAGE != s->lo)
			return 0;
	} else {
		for (u64 at = s->lo - PAGE; at >= page; at -= PAGE)
			if (!readable(at))
				return 0;
	}
	if (!shadow_map_all(page, s->lo))
		return 0;
	s->lo = page;
	return 1;
}

/* The stack that a slot is on, of those met; -1: none. What is known of the one in use may be older in stacks[]. */
slow_path s32 stack_of(struct local *l, u64 slot)
{
	u32 n = stacks_met(l);
	u16 *place = &l->stack_place[(u32)((slot >> 12) * 0x9e3779b97f4a7c15ull >> 40) % STACK_PLACES];

	if (n > FEW_STACKS && *place && is_on(&l->stacks[*place - 1], slot))
		return *place - 1;
	for (u32 i = 0; i < n; i++) {
		if (!is_on(&l->stacks[i], slot))
			continue;
		if (n > FEW_STACKS)
			*place = (u16)(i + 1);
		return (s32)i;
	}
	return -1;
}

/* The slot of the caller's frame, by the rule of the frame that `slot` returns to; 0: nothing tells. The frame pointer becomes the caller's. */
u64 slot_around(const struct local *l, u64 slot, u32 rule, u64 *rbp)
{
	u32 kind = rule & 7;
	u64 cfa, saved = 0;

	if (kind == WH_RULE_RSP || kind == WH_RULE_RBP) {
		cfa = (kind == WH_RULE_RSP ? slot + 8 : *rbp) + (u64)(rule >> 3 & 0x3fff) * 8;
		if (rule & 1 << 17)
			saved = cfa + (u64)((s64)(s32)rule >> 18) * 8;
	} else if (kind == WH_RULE_BIG) {
		const struct wh_rule *b = (const struct wh_rule *)(G.segment + WH_AT_RULES) + (rule >> 3);

		if (rule >> 3 >= header()->n_rules || rule >> 3 >= WH_MAX_RULES || b->deref)
			return 0;
		cfa = (b->reg == WH_RULE_RBP ? *rbp : slot + 8) + (u64)(s64)b->cfa_offset;
		if (b->rbp)
			saved = (b->rbp == 1 ? cfa : *rbp) + (u64)(s64)b->rbp_offset;
	} else {
		return 0;
	}
	u64 next = cfa - 8;
	if (next & 7 || next - slot - 1 >= MOST_FRAME)
		return 0;
	if (saved) {
		if (saved & 7 || saved - slot >= MOST_FRAME || read_asking(l, saved, rbp, 8) != 8)
			return 0;
	}
	return next;
}

/* The stack met before that the frames around a slot lead to, so that they are its own however large they are; -1: none. */
static s32 stack_around(struct local *l, u64 slot, u64 rbp)
{
	u64 ra = *(const u64 *)slot;

	for (u32 steps = 0; steps < MOST_STEPS && !G.locked; steps++) {
		slot = slot_around(l, slot, rule_of_caller(ra), &rbp);
		s32 which = slot ? stack_of(l, slot) : -1;

		if (which >= 0 || !slot || read_asking(l, slot, &ra, 8) != 8)
			return which;
	}
	return -1;
}

/* The end of the stack that the page at `at` is part of, if that is there as long as the thread: the one that the process began
 * with, or what the C library made for the thread, which ends with what the thread pointer points to. 0: another one. */
static u64 end_that_lasts(u64 at)
{
	u64 ends[] = {header()->stack_end, (thread_pointer() | (PAGE - 1)) + 1};

	for (u32 i = 0; i < 2; i++)
		if (ends[i] > at && ends[i] - at <= NEAR_END &&
		    readable_up(at + PAGE, (ends[i] - at) / PAGE - 1) == ends[i])
			return ends[i];
	return 0;
}

/* Extends a known stack to the slot, or begins a new one. */
static int stack_find(struct local *l, u64 slot, u64 rbp)
{
	s32 around = stacks_met(l) ? stack_around(l, slot, rbp) : -1;

	for (u32 i = 0; i < stacks_met(l); i++) {
		struct stack *s = &l->stacks[i];
		int grown;

		if (s->no_shadow)
			continue;
		if (slot >= s->lo)
			grown = slot < s->top + NEAR && grow_up(s, slot);
		else
			grown = (s->lo - slot < NEAR || (s32)i == around) && grow_down(l, s, slot);
		if (grown) {
			l->stack_now = i;
			l->stack = *s;
			return 1;
		}
	}
	if (G.locked)
		return 0;
	struct stack new = {.lo = slot & ~(PAGE - 1)};
	new.lasting = end_that_lasts(new.lo);
	new.top = new.lasting ? new.lasting : readable_up(new.lo + PAGE, 4);
	new.hi = (slot | (BLOCK_BYTES - 1)) + 1;
	if (new.hi > new.top)
		new.hi = new.top;
	new.no_shadow = !shadow_map_all(slot, slot + 8);
	l->stack_now = l->stack_next++ % STACKS;
	l->stacks[l->stack_now] = new;
	l->stack = new;
	return 1;
}

/* Shadows for what the stack may still grow by, as long as they can be had. */
slow_path void stack_reserve(struct local *l)
{
	u64 mask = signals_block(), at = l->stack.lo & ~(BLOCK_BYTES - 1);

	for (u64 i = 0; i < RESERVE / BLOCK_BYTES && shadow_map(at); i++)
		at -= BLOCK_BYTES;
	signals_restore(mask);
}

/* Makes the stack of `slot` the current one. 0: this is no thread of ours (it shares the memory and the
 * thread pointer of the one whose block we hold: vfork on a stack of its own). `rbp`: at an entry there, else 0. */
slow_path int stack_enter(struct local *l, u64 slot, u64 rbp)
{
	records_leave(l);
	s32 at = stack_of(l, slot);
	int found = 1;

	if (at >= 0) {
		l->stack_now = (u32)at;
		l->stack = l->stacks[at];
	} else if (G.locked) {
		found = stack_find(l, slot, rbp);
	} else if (same_thread(l)) {
		u64 mask = signals_block();

		stack_find(l, slot, rbp);
		signals_restore(mask);
	} else {
		found = 0;
	}
	records_join(l);
	return found;
}

/* A word that does not last. The walk looks at several near each other. */
slow_path int outlying(struct local *l, u64 at, u64 *word)
{
	u64 i = (at - l->far_at) / 8;

	if (at & 7 || l->stack.lasting)
		return 0;
	if (at < l->far_at || i >= l->far_words) {
		u64 words = (PAGE - at % PAGE) / 8;

		l->far_at = at;
		l->far_words = (u32)(read_asking(l, at, l->far, (words < FAR ? words : FAR) * 8) / 8);
		i = 0;
	}
	*word = l->far[i];
	return i < l->far_words;
}
