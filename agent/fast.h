/*
 * The two ends of an ordinary timed call, small enough to stand in several handlers: they call nothing,
 * and give up before they have changed anything. And where what fast.c looks up and learn.c keeps has its place.
 */
#ifndef WH_FAST_H
#define WH_FAST_H

#include "agent.h"

#define NEEDS_CLOCK (WH_DO_WALL | WH_DO_CPU | WH_DO_HIST | WH_DO_EMIT)

/* The compiler is to keep an address, not what it was made of: fewer registers to be saved. */
#define one_register(p) __asm__("" : "+r"(p))

/* What an exit has to do, as wh_active.major tells it. */
static inline u64 hot_bits(u32 flags, u32 found)
{
	if (!(flags & NEEDS_CLOCK))
		return HOT_OURS;
	if (found & WH_FOLDED)
		return 0; /* the slow exit counts it apart; the quick one has no place for that */
	return HOT_OURS | HOT_TIMED | (flags & WH_DO_CPU ? HOT_CPU : 0) | (flags & WH_DO_HIST ? HOT_HIST : 0) |
	       (flags & (WH_DO_CPU | WH_DO_HIST) ? 0 : HOT_PLAIN);
}

/* The calls of a block, which may have HOT_ bits. */
static inline u64 *counter_of(char *segment, u64 block)
{
	return &((struct wh_block *)(segment + (block & ~(u64)HOT_BITS)))->calls;
}

/* Whether the innermost call in progress is folded, of a thread with no more of them than its block holds. */
static inline int folded_now(const struct wh_thread *t)
{
	u32 n = t->n_active;

	return unlikely(n && t->active[n - 1].path & WH_FOLDED);
}

/* Kept with a folded call that is put above `n` records, the innermost `top`: how many there are up to the innermost one
 * that is not folded. */
static inline u64 whole_below(const struct wh_active *top, u32 n)
{
	return n && top->path & WH_FOLDED ? top->usage : n;
}

/* Counts a call in `counter` and puts its record on the active stack; `block` has HOT_ bits, `t0` is 0 if it is not
 * timed, `pending` was read before t0. The place is reserved before it is filled: a signal handler's
 * calls take places above, and give them back. */
static inline void admit(struct local *l, u64 slot, u64 ra, u64 block, u64 *counter, u64 record, u64 t0, u64 pending)
{
	struct wh_thread *t = l->block;
	struct wh_active *r = &t->active[t->n_active];
	u64 link = t->lost[WH_LOST_APART];

	one_register(r);
	if (unlikely(record & WH_FOLDED))
		link = whole_below(r - 1, t->n_active);
	r->slot = slot; /* before the place is taken: a signal handler's call judges the record by it */
	barrier();
	t->n_active++;
	barrier();
	r->slot = slot; /* and behind: a handler's call may have used the place */
	r->t0 = t0;
	r->cpu0 = pending;
	__builtin_memcpy(&r->path, &record, 8);
	r->usage = link;
	r->major = block;
	*(u64 *)(slot + WH_SHADOW) = ra;
	t->seq_active = (t->seq_active | 1) + 1;
	/* One instruction: a signal in between cannot lose a count. */
	__asm__ volatile("incq %0" : "+m"(*counter));
}

static inline u64 record_words(u32 path, u64 point)
{
	return path | point << 32;
}

/* Books the exit at `slot`, now, of the innermost call if it is that one and `admit` made its
 * record; 0: not done. */
static inline int booked(u64 segment, struct local *l, struct wh_thread *t, u64 slot)
{
	u32 n = t->n_active - 1;
	struct wh_active *r = &t->active[n];

	one_register(r);
	if (unlikely(t->busy_sp || n >= WH_ACTIVE || r->slot != slot || !(r->major & HOT_OURS)))
		return 0;
	u64 bits = r->major;
	struct wh_block *b = (struct wh_block *)(segment + (bits & ~(u64)HOT_BITS));
	one_register(b);
	if (likely(bits & HOT_TIMED)) {
		u64 wall = ticks() - r->t0, apart = apart_since(t, r);

		if (unlikely((s64)wall < 1))
			wall = 1;
		if (unlikely(apart))
			wall = without_apart(wall, apart);
		if (bits & (HOT_HIST | HOT_CPU)) {
			if (unlikely((bits & HOT_HIST && !b->extra) ||
				     (bits & HOT_CPU && (r->cpu0 != l->pending || *l->clock != l->clock_seen))))
				return 0;
			update_begin(&b->seq);
			if (bits & HOT_CPU)
				b->cpu += ns_of((const struct wh_header *)segment, wall);
			if (bits & HOT_HIST) {
				struct wh_more *m = (struct wh_more *)(segment + WH_AT_PAGES + (u64)b->extra * 64);

				m->done++;
				m->hist[bin_of((const struct wh_header *)segment, wall)]++;
			}
		} else {
			update_begin(&b->seq);
		}
		b->wall += wall;
		if (unlikely(wall > b->max))
			b->max = wall;
		if (unlikely(wall - 1 < b->min - 1)) /* min 0: none yet */
			b->min = wall;
		barrier();
	}
	b->seq = (b->seq | 1) + 1;
	barrier();
	t->n_active = n;
	return 1;
}

/* Where entry.S compares so many words, of points whose exit is seen and of others, and, the last, what it does with values
 * of several paths: seen from here. */
extern const s32 wh_code_of_entry[MOST_WORDS + 2] __attribute__((visibility("hidden")));
extern const s32 wh_code_of_count[MOST_WORDS + 2] __attribute__((visibility("hidden")));

/* The words of an entry. */
static inline const struct word *words_of(const struct hot *h)
{
	return (const struct word *)&h->slot - h->words;
}

/* What entry.S has pushed, and above it what the stub and the call have. The index is below 65536; an
 * address in its place says that the call is done and goes on there, by way of `exit` if its exit is seen. */
struct frame {
	u64 exit, spare[3], rbp, rdi, rsi, rdx, rcx, rax, index, ra;
};

/* Where in hot[] and first[] calls at this slot have their place. */
static inline u32 place_of(u64 slot, u64 ra)
{
	return (u32)(ra + (slot >> 3)) % HOTS;
}

/* What served last there. */
static inline struct hot *first_of(struct local *l, u32 place)
{
	struct hot *h = &l->hot[place][l->way[place]];

	one_register(h);
	return h;
}

static inline struct hot *other_of(struct local *l, u32 place)
{
	return &l->hot[place][!l->way[place]];
}

/* Multiplied by odd numbers without pattern: a word's place matters as much as its value. */
static inline u64 mixed(u64 hash, u64 a, u64 b, u64 c, u64 d)
{
	return hash * 0xbf58476d1ce4e5b9ull + a * 0x9e3779b97f4a7c15ull + b * 0xd6e8feb86659fd93ull +
	       c * 0x94d049bb133111ebull + d * 0xff51afd7ed558ccdull;
}

/* One of the two places of a variant: with one alone every fifth of 256 paths would share its place with another. */
static inline struct variant *variant_of(struct local *l, u64 hash, u32 second)
{
	return &l->variants[(u32)(second ? hash >> 20 : hash >> 40) % VARIANTS];
}

#endif
