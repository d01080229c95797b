/*
 * The way of most calls: the same function from the same call site at the same depth of the same stack
 * as some call before. What that one found out is kept by address and value, so that a call is known
 * again by comparing words, and everything else is known with it. Constraints: these functions save
 * every register they use and call nothing; entry.S has saved nothing for them. They give up before
 * they have changed anything, and handlers.c does the call. Like all handlers they may be interrupted
 * by a signal whose handler does the same: what it has filled anew is told by the serial.
 */
#include "fast.h"

#define FAST __attribute__((no_caller_saved_registers, noinline))

/* What entry.S has pushed, and above it what the stub and the call have. The index is below 65536; an
 * address in its place says that the call is done and goes on there. */
struct frame {
	u64 rbp, rdi, index, ra;
};

static inline struct hot *hot_of(struct local *l, u64 slot, u64 ra)
{
	struct hot *h = &l->hot[(u32)(ra + (slot >> 3)) % HOTS];

	one_register(h);
	return h;
}

static inline const struct wh_point *point_in(u64 segment, u64 index)
{
	return (const struct wh_point *)(segment + WH_AT_POINTS) + index;
}

/* Whether all is as it was; `h->serial` is to be looked at before and behind. */
static inline __attribute__((always_inline)) int as_it_was(u64 segment, const struct local *l, const struct hot *h,
							   const struct frame *f)
{
	u64 ra = f->ra;
	u32 index = (u32)f->index;
	const struct wh_header *header = (const struct wh_header *)segment;
	const struct wh_thread *t = l->block;
	u64 gate;
	u32 n = t->n_active;

	if (unlikely(h->slot != (u64)&f->ra || h->ra != ra || h->point != index))
		return 0;
	__builtin_memcpy(&gate, &point_in(segment, index)->state, 8);
	if (unlikely(gate != h->gate || !header->enabled || header->generation != l->generation || t->busy_sp))
		return 0;
	if (n) {
		const struct wh_active *top = &t->active[n - 1];

		if (unlikely(n >= WH_ACTIVE || top->slot != h->top_slot || top->path != h->top_path))
			return 0;
	} else if (unlikely(h->top_slot)) {
		return 0;
	}
	for (u32 i = 0; i < h->words; i += 4)
		if (unlikely(*h->word[i].at != h->word[i].value || *h->word[i + 1].at != h->word[i + 1].value ||
			     *h->word[i + 2].at != h->word[i + 2].value || *h->word[i + 3].at != h->word[i + 3].value))
			return 0;
	return 1;
}

static inline u32 look(const u32 *serial)
{
	u32 is = *(const volatile u32 *)serial;

	barrier();
	return is;
}

FAST void wh_fast_count(struct frame *f);
FAST void wh_fast_entry(struct frame *f);
FAST void wh_fast_exit(u64 *slot);

/* Entry of a point that only counts. */
void wh_fast_count(struct frame *f)
{
	u64 segment = G.fast;
	struct local *l;

	if (unlikely(segment & 1))
		return;
	l = wh_own.local;
	if (unlikely(!l || (u64)l->home != segment || l->credit <= 0))
		return;
	const struct hot *h = hot_of(l, (u64)&f->ra, f->ra);
	u32 serial = look(&h->serial);
	if (unlikely(!as_it_was(segment, l, h, f)))
		return;
	u64 block = h->block;
	if (unlikely(serial != look(&h->serial)))
		return;
	l->credit--;
	__asm__ volatile("incq %0" : "+m"(((struct wh_block *)(segment + (block & ~HOT_BITS)))->calls));
	f->index = point_in(segment, f->index)->relocated;
}

/* Entry of a point whose exit is seen. */
void wh_fast_entry(struct frame *f)
{
	u64 segment = G.fast, pending = 0, now = 0;
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
	u64 block = h->block, record = h->record;
	if (unlikely(serial != look(&h->serial)))
		return;
	if (likely(block & HOT_TIMED)) {
		if (block & HOT_CPU)
			pending = l->pending;
		now = ticks();
		if (unlikely(now >= l->deadline || (block & HOT_CPU && *l->clock != l->clock_seen)))
			return;
	}
	admit(segment, l, (u64)&f->ra, f->ra, block, record, now, pending);
	f->index = point_in(segment, f->index)->relocated;
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

static void add_word(struct hot *h, u64 at, u64 value)
{
	h->word[h->words].at = (const u64 *)at;
	h->word[h->words++].value = value;
}

/* Whether a call site's path is worth keeping: not where it is another at each call. */
static int worth(struct hot *h, u64 owner)
{
	if (h->owner != owner) {
		h->owner = owner;
		h->skip = h->left = 0;
		return 1;
	}
	if (h->left) {
		h->left--;
		return 0;
	}
	if (h->slot) {
		u64 served = ((struct wh_block *)(G.segment + (h->block & ~HOT_BITS)))->calls - h->calls;

		h->skip = served < 8 ? h->skip * 2 + 1 : 0;
		if (h->skip > 255)
			h->skip = 255;
		h->left = h->skip;
		if (h->left) {
			h->slot = 0;
			return 0;
		}
	}
	return 1;
}

/* Keeps what a call of a point at `slot` has found: `found` is the path of the template `t`; without one
 * the point's own path. Called where nothing is out of the ordinary. */
void hot_learn(struct local *l, const struct wh_point *p, u32 point, u64 slot, u64 rbp, u32 found, const struct shape *s,
	       const struct template *t)
{
	u64 ra = *(const u64 *)slot;
	struct hot *h = hot_of(l, slot, ra);
	const struct wh_thread *thread = l->block;
	u32 n = thread->n_active, path = found & ~WH_FOLDED;
	u32 page = thread->directory[path / 64];

	if (ra == G.exit || ((p->flags & WH_DO_EXIT) && l->stack.no_shadow))
		return;
	if (l->learning || !page || n >= WH_ACTIVE || (t && s->words + t->relatives + 1 > HOT_WORDS) || !worth(h, slot ^ ra))
		return;
	l->learning = 1;
	h->slot = 0;
	barrier();
	h->serial = ++l->serial;
	h->ra = ra;
	h->point = point;
	h->gate = p->state | (u64)p->flags << 32;
	h->top_slot = n ? thread->active[n - 1].slot : 0;
	h->top_path = n ? thread->active[n - 1].path : 0;
	h->record = record_words(path, point);
	h->block = WH_AT_PAGES + (u64)page * PAGE + path % 64 * sizeof(struct wh_block);
	h->calls = ((struct wh_block *)(G.segment + h->block))->calls;
	h->block |= hot_bits((u32)(h->gate >> 32), found);
	h->words = 0;
	for (u32 i = 0; t && i < s->words; i++)
		if (s->offset[i]) /* not the slot itself */
			add_word(h, slot + (u64)(s64)s->offset[i], t->value[i]);
	for (u32 i = 0; t && i < t->relatives; i++)
		add_word(h, slot + t->relative[i].offset, t->relative[i].value + slot);
	if (t && t->live != ~0ull) /* as entry.S pushes it */
		add_word(h, slot - __builtin_offsetof(struct frame, ra), rbp);
	while (h->words % 4)
		add_word(h, slot, ra);
	barrier();
	h->slot = slot;
	l->learning = 0;
}

void hot_forget(struct local *l)
{
	for (u32 i = 0; i < HOTS; i++)
		if (l->hot[i].slot)
			l->hot[i].slot = 0;
}
