/*
 * The way of most calls: the same function from the same call site at the same depth of the same stack
 * as some call before. What that one found out is kept by address and value, so that a call is known
 * again by comparing words, and everything else is known with it; learn.c keeps it. Constraints: of the registers that a
 * function may change these change only those that entry.S has saved for them, rax, rcx, rdx, rsi and rdi (build.rs keeps the
 * compiler from r8 to r11 in this file), and they call nothing. They give up before
 * they have changed anything, and handlers.c does the call. Like all handlers they may be interrupted
 * by a signal whose handler does the same: what it has filled anew is told by the serial. entry.S does the most frequent of
 * this itself: entries by what served last, and both ends of calls with wall time or with wall and CPU time.
 */
#include "fast.h"

#define FAST __attribute__((noinline))

#define STANDS(type, member, at) _Static_assert(__builtin_offsetof(type, member) == (at), #member)
#define STANDS_BEHIND(member, at) STANDS(struct hot, member, AT_HEAD + (at))
STANDS(struct global, segment, 0);
STANDS(struct global, fast, AT_FAST);
STANDS(struct global, near_end, AT_NEAR_END);
STANDS(struct global, end, AT_END);
_Static_assert(WH_AT_POINTS + __builtin_offsetof(struct wh_point, relocated) == AT_POINTS_RELOCATED, "as entry.S has it");
STANDS(struct local, home, AT_HOME);
STANDS(struct local, block, AT_BLOCK);
STANDS(struct local, enabled, AT_ENABLED);
STANDS(struct local, credit, AT_CREDIT);
STANDS(struct local, clock_seen, AT_CLOCK_SEEN);
STANDS(struct local, deadline, AT_DEADLINE);
STANDS(struct local, clock, AT_CLOCK);
STANDS(struct local, pending, AT_PENDING);
STANDS(struct local, way, AT_WAY);
STANDS(struct local, hot, AT_HOT);
_Static_assert(sizeof(struct hot) == HOT_BYTES && HOT_BYTES == 5 * 256 && WAYS == 2, "as entry.S has it");
STANDS(struct own, local, 0);
STANDS(struct own, block, 8);
STANDS(struct wh_header, tsc_mult, AT_MULT);
STANDS(struct wh_header, tsc_shift, AT_SHIFT);
STANDS(struct wh_header, enabled, AT_HEADER_ENABLED);
STANDS(struct wh_header, generation, AT_HEADER_ENABLED + 4);
STANDS(struct local, generation, AT_ENABLED + 4);
STANDS(struct wh_thread, busy_sp, AT_BUSY);
STANDS(struct wh_thread, n_active, AT_N_ACTIVE);
STANDS(struct wh_thread, active, AT_ACTIVE);
STANDS(struct wh_active, slot, 0);
STANDS(struct wh_active, t0, AT_ACTIVE_T0);
STANDS(struct wh_active, cpu0, AT_ACTIVE_CPU0);
STANDS(struct wh_active, path, AT_ACTIVE_PATH);
STANDS(struct wh_active, point, AT_ACTIVE_PATH + 4);
STANDS(struct wh_active, usage, AT_ACTIVE_USAGE);
STANDS(struct wh_active, major, AT_ACTIVE_MAJOR);
STANDS(struct wh_thread, seq_active, AT_SEQ_ACTIVE);
STANDS(struct wh_thread, lost[WH_LOST_APART], AT_APART);
STANDS(struct wh_block, seq, 0);
STANDS(struct wh_block, wall, AT_WALL);
STANDS(struct wh_block, cpu, AT_CPU);
STANDS(struct wh_block, min, AT_MIN);
STANDS(struct wh_block, max, AT_MAX);
_Static_assert(sizeof(struct wh_active) == 48 && WH_ACTIVE == MOST_ACTIVE && WH_MAX_POINTS <= HOT_JOINED, "as entry.S has it");
STANDS_BEHIND(slot, 0);
STANDS_BEHIND(ra, AT_RA);
STANDS_BEHIND(point, AT_POINT);
STANDS_BEHIND(key, AT_KEY);
STANDS_BEHIND(gate, AT_GATE);
STANDS_BEHIND(code, AT_CODE);
STANDS_BEHIND(relocated, AT_RELOCATED);
STANDS_BEHIND(top_slot, AT_TOP_SLOT);
STANDS_BEHIND(top_path, AT_TOP_PATH);
STANDS_BEHIND(record, AT_RECORD);
STANDS_BEHIND(block, AT_MAJOR);
STANDS_BEHIND(exit, AT_EXIT);
_Static_assert(sizeof(struct word) == WORD_BYTES && MOST_WORDS == HOT_WORDS, "as entry.S has it");
_Static_assert(WH_AT_POINTS + __builtin_offsetof(struct wh_point, state) == AT_STATES, "as entry.S has it");
_Static_assert(sizeof(struct wh_point) == 1 << POINT_SHIFT && WH_AT_PASSED == AT_PASSED, "as entry.S has it");
/* Where entry.S leaves rbp, for both kinds of entries. */
_Static_assert(__builtin_offsetof(struct frame, index) - __builtin_offsetof(struct frame, rbp) == 48, "as entry.S has it");
_Static_assert(__builtin_offsetof(struct frame, index) == 80, "where entry.S looks for the exit");
_Static_assert(EXITS <= 1 << 16, "as entry.S has it");

static inline u64 two_words(const u32 *first)
{
	u64 both;

	__builtin_memcpy(&both, first, 8);
	return both;
}

/* Whether all is as it was but for the words; `h->serial` is to be looked at before and behind. */
static inline __attribute__((always_inline)) int as_it_was(u64 segment, const struct local *l, const struct hot *h,
							   const struct frame *f)
{
	const struct wh_thread *t;
	u32 n;

	if (unlikely(h->slot != (u64)&f->ra || h->ra != f->ra || (h->point & ~HOT_JOINED) != (u32)f->index))
		return 0;
	/* First that the tables are those that it was filled from: then its addresses hold. */
	t = l->block;
	if (unlikely(two_words(&((const struct wh_header *)segment)->enabled) != two_words(&l->enabled) || t->busy_sp))
		return 0;
	if (unlikely(*(const u64 *)(segment + AT_STATES + (f->index << POINT_SHIFT)) != h->gate))
		return 0;
	n = t->n_active;
	if (n) {
		const struct wh_active *top = &t->active[n - 1];

		if (unlikely(n >= WH_ACTIVE || top->slot != h->top_slot || top->path != h->top_path))
			return 0;
	} else if (unlikely(h->top_slot)) {
		return 0;
	}
	return 1;
}

/* From the slot outwards, each word only when those before are as they were: they prove that its frame is
 * there, and so that it can be read, whatever became of the memory further out since. */
static inline __attribute__((always_inline)) int words_fit(const struct hot *h)
{
	const struct word *w = words_of(h), *end = (const struct word *)&h->slot;
	u64 bytes = (u64)end - (u64)w;

	if (bytes & sizeof *w) {
		if (unlikely(*w->at != w->value))
			return 0;
		w++;
	}
	if (bytes & 2 * sizeof *w) {
		if (unlikely(*w[0].at != w[0].value || *w[1].at != w[1].value))
			return 0;
		w += 2;
	}
	for (; w < end; w += 4)
		if (unlikely(*w[0].at != w[0].value || *w[1].at != w[1].value || *w[2].at != w[2].value ||
			     *w[3].at != w[3].value))
			return 0;
	return 1;
}

static inline u32 look(const u32 *serial)
{
	barrier();
	u32 is = *(const volatile u32 *)serial;
	barrier();
	return is;
}

/* Whether `h` is still what had this key. */
static inline int has_key(const struct hot *h, u64 key)
{
	barrier();
	u64 is = *(const volatile u64 *)&h->key;
	barrier();
	return likely(is == key);
}

FAST void wh_without_call(struct frame *f);
FAST void wh_varied_count(struct frame *f, const struct hot *h, u64 key);
FAST void wh_other_count(struct frame *f);
FAST void wh_fast_entry(struct frame *f, const struct hot *h, u64 key);
FAST void wh_varied_entry(struct frame *f, const struct hot *h, u64 key);
FAST void wh_other_entry(struct frame *f);
FAST void wh_fast_exit(u64 *slot);

/* The variant of `h`, whose serial is `owner`, that the words on the stack are; 0: none. `serial` is to be
 * looked at again behind. All words are read at once, so they must lie where nothing can have been unmapped. */
static inline __attribute__((always_inline)) const struct variant *variant_that_fits(struct local *l, const struct hot *h,
											  u32 owner, u32 *serial)
{
	const struct word *w = words_of(h);
	u64 hash = owner;

	if (unlikely(h->slot - l->stack.lo >= l->stack.hi - l->stack.lo || !h->words ||
		     !lasts(l, h->slot, (u64)w[h->words - 1].at)))
		return 0;
	for (u32 i = 0; i < h->words; i += 4)
		hash = mixed(hash, *w[i].at, *w[i + 1].at, *w[i + 2].at, *w[i + 3].at);
	for (u32 second = 0; second < 2; second++) {
		const struct variant *v = variant_of(l, hash, second);

		*serial = look(&v->serial);
		u64 differ = v->owner ^ owner;
		for (u32 i = 0; i < h->words; i += 4)
			differ |= (*w[i].at ^ v->value[i]) | (*w[i + 1].at ^ v->value[i + 1]) |
				  (*w[i + 2].at ^ v->value[i + 2]) | (*w[i + 3].at ^ v->value[i + 3]);
		if (likely(!differ))
			return v;
	}
	return 0;
}

static inline void finish_count(struct frame *f, u64 *counter, u64 relocated)
{
	__asm__ volatile("incq %0" : "+m"(*counter));
	f->index = relocated;
}

/* 1: it is done. */
static inline __attribute__((always_inline)) int finish_entry(struct local *l, struct frame *f, u64 block, u64 *counter,
							      u64 record, u64 relocated, u64 exit)
{
	u64 pending = 0, now = 0;

	if (likely(block & HOT_TIMED)) {
		if (block & HOT_CPU)
			pending = l->pending;
		now = ticks();
		if (unlikely(now >= l->deadline || (block & HOT_CPU && *l->clock != l->clock_seen)))
			return 0;
	} else if (unlikely(l->credit-- <= 0)) {
		return 0;
	}
	admit(l, (u64)&f->ra, f->ra, block, counter, record, now, pending);
	f->exit = exit;
	f->index = relocated;
	return 1;
}

/* Code whose return slot would begin a page was not called: functions find the stack eight bytes away from a multiple of sixteen.
 * What begins a coroutine is entered so, at the very end of a stack, where no slot need be. Other languages' functions may find it
 * anywhere: then the index is left as it is, for the long way. */
void wh_without_call(struct frame *f)
{
	const struct wh_point *p = point_at(f->index);

	if (p->flags & WH_DO_ANY_SLOT)
		return;
	f->index = p->relocated;
	if (header()->enabled)
		__atomic_fetch_add(&header()->lost[WH_LOST_EDGE], 1, __ATOMIC_RELAXED);
}

/* `key` tells that `h` is still what it was when all but its words was compared. 1: it is done. */
static inline __attribute__((always_inline)) int count_varied(struct local *l, struct frame *f, const struct hot *h, u64 key)
{
	u32 serial;
	const struct variant *v = variant_that_fits(l, h, h->serial, &serial);
	u64 block = v ? v->block : 0, relocated = h->relocated;

	if (unlikely(!v || serial != look(&v->serial) || !has_key(h, key)))
		return 0;
	finish_count(f, counter_of(l->home, block), relocated);
	return 1;
}

static inline __attribute__((always_inline)) int entry_varied(struct local *l, struct frame *f, const struct hot *h, u64 key)
{
	u32 serial;
	const struct variant *v = variant_that_fits(l, h, h->serial, &serial);
	u64 block = v ? v->block : 0, record = v ? v->record : 0, relocated = h->relocated, exit = h->exit;

	if (unlikely(!v || serial != look(&v->serial) || !has_key(h, key)))
		return 0;
	return finish_entry(l, f, block, counter_of(l->home, block), record, relocated, exit);
}

static inline int count_plain(struct frame *f, const struct hot *h, u64 key)
{
	u64 *counter = h->counter, relocated = h->relocated;

	if (unlikely(!has_key(h, key)))
		return 0;
	finish_count(f, counter, relocated);
	return 1;
}

static inline __attribute__((always_inline)) int entry_plain(struct local *l, struct frame *f, const struct hot *h, u64 key)
{
	u64 block = h->block, *counter = h->counter, record = h->record, relocated = h->relocated, exit = h->exit;

	return has_key(h, key) && finish_entry(l, f, block, counter, record, relocated, exit);
}

/* What did not serve last where this call has its place, if all of it fits but for its words; and what goes with it. */
static inline __attribute__((always_inline)) const struct hot *other_that_fits(struct local **l, const struct frame *f, u32 *place, u64 *key)
{
	u64 segment = G.fast;

	if (unlikely(segment & 1))
		return 0;
	*l = wh_own.local;
	if (unlikely(!*l || (u64)(*l)->home != segment))
		return 0;
	*place = place_of((u64)&f->ra, f->ra);
	const struct hot *h = other_of(*l, *place);
	*key = *(const volatile u64 *)&h->key;
	barrier();
	return as_it_was(segment, *l, h, f) ? h : 0;
}

/* Entry of a point that only counts, of which entry.S has not found that it is what served last. */
void wh_other_count(struct frame *f)
{
	struct local *l;
	u32 place;
	u64 key;
	const struct hot *h = other_that_fits(&l, f, &place, &key);

	if (!h || l->credit < 0 || !(h->varied ? count_varied(l, f, h, key) : words_fit(h) && count_plain(f, h, key)))
		return;
	l->way[place] ^= 1;
}

/* The same where what served last has values of several paths, and fits but for its words. */
void wh_varied_count(struct frame *f, const struct hot *h, u64 key)
{
	if (unlikely(!count_varied(wh_own.local, f, h, key)))
		wh_other_count(f);
}

/* Entry of a point whose exit is seen: `h` has just been found to fit, when it had this key. */
void wh_fast_entry(struct frame *f, const struct hot *h, u64 key)
{
	entry_plain(wh_own.local, f, h, key);
}

void wh_other_entry(struct frame *f)
{
	struct local *l;
	u32 place;
	u64 key;
	const struct hot *h = other_that_fits(&l, f, &place, &key);

	if (!h || !(h->varied ? entry_varied(l, f, h, key) : words_fit(h) && entry_plain(l, f, h, key)))
		return;
	l->way[place] ^= 1;
}

void wh_varied_entry(struct frame *f, const struct hot *h, u64 key)
{
	if (unlikely(!entry_varied(wh_own.local, f, h, key)))
		wh_other_entry(f);
}

/* Exit of a call: puts its return address into its slot, the index of its exit if handlers.c is to do it. */
void wh_fast_exit(u64 *slot)
{
	u64 segment = G.fast, exit = exit_index(*slot), ra = wh_returns[exit];
	struct local *l;

	/* The other way round the call in progress at this place is not the one that returns. */
	if (unlikely(segment & 1 || ra != *(u64 *)((u64)slot + WH_SHADOW))) /* there may be no fs */
		goto otherwise;
	l = wh_own.local;
	if (unlikely(!l || (u64)l->home != segment || !booked(segment, l, wh_own.block, (u64)slot)))
		goto otherwise;
	*slot = ra;
	return;
otherwise:
	*slot = exit;
}
