/*
 * The way of most calls: the same function from the same call site at the same depth of the same stack
 * as some call before. What that one found out is kept by address and value, so that a call is known
 * again by comparing words, and everything else is known with it; learn.c keeps it. Constraints: of the registers that a
 * function may change these change only those that entry.S has saved for them, rax, rcx, rdx, rsi and rdi (build.rs keeps the
 * compiler from r8 to r11 in this file), and they call nothing. They give up before
 * they have changed anything, and handlers.c does the call. Like all handlers they may be interrupted
 * by a signal whose handler does the same: what it has filled anew is told by the serial.
 */
#include "fast.h"

#define FAST __attribute__((noinline))

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

	if (unlikely(h->slot != (u64)&f->ra || h->ra != f->ra || h->point != (u32)f->index))
		return 0;
	/* First that the tables are those that it was filled from: then its addresses hold. */
	t = l->block;
	if (unlikely(two_words(&((const struct wh_header *)segment)->enabled) != two_words(&l->enabled) || t->busy_sp))
		return 0;
	if (unlikely(*h->gate_at != h->gate))
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
static inline int words_fit(const struct hot *h, const struct word *end)
{
	const struct word *w = h->word;
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

FAST void wh_fast_count(struct frame *f);
FAST void wh_fast_entry(struct frame *f);
FAST void wh_fast_exit(u64 *slot);

/* The variant of `h`, whose serial is `owner`, that the words on the stack are; 0: none. `serial` is to be
 * looked at again behind. All words are read at once, so they must lie where nothing can have been unmapped. */
static inline __attribute__((always_inline)) const struct variant *variant_that_fits(struct local *l, const struct hot *h,
											  u32 owner, u32 *serial)
{
	u64 hash = owner;

	if (unlikely(h->slot - l->stack.lo >= l->stack.hi - l->stack.lo || !h->words ||
		     !lasts(l, h->slot, (u64)h->word[h->words - 1].at)))
		return 0;
	for (u32 i = 0; i < h->words; i += 4)
		hash = mixed(hash, *h->word[i].at, *h->word[i + 1].at, *h->word[i + 2].at, *h->word[i + 3].at);
	for (u32 second = 0; second < 2; second++) {
		const struct variant *v = variant_of(l, hash, second);

		*serial = look(&v->serial);
		u64 differ = v->owner ^ owner;
		for (u32 i = 0; i < h->words; i += 4)
			differ |= (*h->word[i].at ^ v->value[i]) | (*h->word[i + 1].at ^ v->value[i + 1]) |
				  (*h->word[i + 2].at ^ v->value[i + 2]) | (*h->word[i + 3].at ^ v->value[i + 3]);
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

static inline __attribute__((always_inline)) void finish_entry(struct local *l, struct frame *f, u64 block, u64 *counter,
							       u64 record, u64 relocated)
{
	u64 pending = 0, now = 0;

	if (likely(block & HOT_TIMED)) {
		if (block & HOT_CPU)
			pending = l->pending;
		now = ticks();
		if (unlikely(now >= l->deadline || (block & HOT_CPU && *l->clock != l->clock_seen)))
			return;
	} else if (unlikely(l->credit-- <= 0)) {
		return;
	}
	admit(l, (u64)&f->ra, f->ra, block, counter, record, now, pending);
	f->index = relocated;
}

/* Functions of their own, so that the others need fewer registers. */
FAST static void count_varied(struct local *l, struct frame *f, const struct hot *h, u32 owner);
FAST static void entry_varied(struct local *l, struct frame *f, const struct hot *h, u32 owner);

static void count_varied(struct local *l, struct frame *f, const struct hot *h, u32 owner)
{
	u32 serial;
	const struct variant *v = variant_that_fits(l, h, owner, &serial);
	u64 block = v ? v->block : 0, relocated = h->relocated;

	if (likely(v && serial == look(&v->serial) && owner == look(&h->serial)))
		finish_count(f, counter_of(l->home, block), relocated);
}

static void entry_varied(struct local *l, struct frame *f, const struct hot *h, u32 owner)
{
	u32 serial;
	const struct variant *v = variant_that_fits(l, h, owner, &serial);
	u64 block = v ? v->block : 0, record = v ? v->record : 0, relocated = h->relocated;

	if (likely(v && serial == look(&v->serial) && owner == look(&h->serial)))
		finish_entry(l, f, block, counter_of(l->home, block), record, relocated);
}

/* Entry of a point that only counts. */
void wh_fast_count(struct frame *f)
{
	u64 segment = G.fast;
	struct local *l;

	if (unlikely(segment & 1))
		return;
	l = wh_own.local;
	if (unlikely(!l || (u64)l->home != segment || --l->credit < 0))
		return;
	const struct hot *h = hot_of(l, (u64)&f->ra, f->ra);
	u32 serial = look(&h->serial);
	if (unlikely(!as_it_was(segment, l, h, f)))
		return;
	const struct word *end = h->end;
	if (likely(end != h->word)) {
		if (unlikely(!words_fit(h, end)))
			return;
	} else if (h->varied) {
		count_varied(l, f, h, serial);
		return;
	}
	u64 *counter = h->counter, relocated = h->relocated;
	if (likely(serial == look(&h->serial)))
		finish_count(f, counter, relocated);
}

/* Entry of a point whose exit is seen. */
void wh_fast_entry(struct frame *f)
{
	u64 segment = G.fast;
	struct local *l;

	if (unlikely(segment & 1))
		return;
	l = wh_own.local;
	if (unlikely(!l || (u64)l->home != segment))
		return;
	const struct hot *h = hot_of(l, (u64)&f->ra, f->ra);
	u32 serial = look(&h->serial);
	if (unlikely(!as_it_was(segment, l, h, f)))
		return;
	const struct word *end = h->end;
	if (likely(end != h->word)) {
		if (unlikely(!words_fit(h, end)))
			return;
	} else if (h->varied) {
		entry_varied(l, f, h, serial);
		return;
	}
	u64 block = h->block, *counter = h->counter, record = h->record, relocated = h->relocated;
	if (likely(serial == look(&h->serial)))
		finish_entry(l, f, block, counter, record, relocated);
}

/* Exit of a call: puts its return address into its slot, 0 if handlers.c is to do it. */
void wh_fast_exit(u64 *slot)
{
	u64 segment = G.fast;
	struct local *l;

	if (unlikely(segment & 1))
		goto otherwise;
	l = wh_own.local;
	if (unlikely(!l || (u64)l->home != segment || !booked(segment, l, wh_own.block, (u64)slot)))
		goto otherwise;
	*slot = *(u64 *)((u64)slot + WH_SHADOW);
	return;
otherwise:
	*slot = 0;
}
