/*
 * The hot part of template.c, small enough to stand in the entry handlers.
 */
#ifndef WH_TEMPLATE_H
#define WH_TEMPLATE_H

#include "agent.h"

static inline struct shape *shapes_of(struct local *l, u32 point, u64 ra)
{
	return l->shapes[(u32)((ra ^ (u64)point << 40) * 0x9e3779b97f4a7c15ull >> 40) % SHAPES];
}

/* `last`: how far from the slot the last word is that can be read. */
static inline int shape_fits(const struct shape *s, u32 point, u64 ra, u64 last)
{
	return likely(s->ra == ra && s->point == point && s->serial && s->reach <= last + 8);
}

/* The word at offset i, of the stack whatever stands there: a signal handler's call on a stack that lies within this one may have
 * put another shape where this one was. */
static inline u64 word(const struct shape *s, u64 slot, u32 i, u64 last)
{
	u64 offset = *(const volatile u32 *)&s->offset[i];

	return *(const u64 *)(slot + (offset < last ? offset : last));
}

static inline int rest_fits(const struct local *l, const struct template *t, u64 slot, u64 rbp, u64 last)
{
	if (t->live != ~0ull && t->live != rbp - slot)
		return 0;
	for (u32 i = 0; i < t->relatives; i++) {
		struct relative r = relative(t, i);

		if (unlikely(r.offset > last)) /* as with words */
			return 0;
		if (*(const u64 *)(slot + r.offset) != slot + (u64)(s64)r.value)
			return 0;
	}
	if (t->join) {
		u32 n = l->block->n_active;
		const struct wh_active *r = &l->block->active[n - 1];

		if (n == 0 || n > WH_ACTIVE || r->slot != slot + t->join - 1 || (r->path & ~WH_FOLDED) != t->join_path)
			return 0;
	}
	return 1;
}

/* The template's path if the words on the stack are its words, else 0. */
static inline __attribute__((always_inline)) u32 template_fits(const struct local *l, const struct shape *s, const struct template *t, u64 slot, u64 rbp, u64 last)
{
	u32 path = t->path;
	u64 differ = t->serial ^ s->serial;

	barrier();
	for (u32 i = 0; i < s->words; i += 4) {
		differ |= word(s, slot, i, last) ^ t->room[i];
		differ |= word(s, slot, i + 1, last) ^ t->room[i + 1];
		differ |= word(s, slot, i + 2, last) ^ t->room[i + 2];
		differ |= word(s, slot, i + 3, last) ^ t->room[i + 3];
	}
	return likely(differ == 0) && likely(rest_fits(l, t, slot, rbp, last)) ? path : 0;
}

#endif
