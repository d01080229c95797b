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

static inline int shape_fits(const struct local *l, const struct shape *s, u32 point, u64 ra, u64 slot)
{
	return likely(s->ra == ra && s->point == point && s->serial && slot + s->reach <= l->stack.top);
}

static inline int rest_fits(const struct local *l, const struct template *t, u64 slot, u64 rbp)
{
	if (t->live != ~0ull && t->live != rbp - slot)
		return 0;
	for (u32 i = 0; i < t->relatives; i++) {
		struct relative r = relative(t, i);

		/* A signal handler's call may have put words of another path there since. */
		if (unlikely(slot + r.offset > l->stack.top - 8))
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
static inline __attribute__((always_inline)) u32 template_fits(const struct local *l, const struct shape *s, const struct template *t, u64 slot, u64 rbp)
{
	u32 path = t->path;
	u64 differ = t->serial ^ s->serial;

	barrier();
	for (u32 i = 0; i < s->words; i += 4) {
		differ |= *(const u64 *)(slot + (u64)(s64)s->offset[i]) ^ t->room[i];
		differ |= *(const u64 *)(slot + (u64)(s64)s->offset[i + 1]) ^ t->room[i + 1];
		differ |= *(const u64 *)(slot + (u64)(s64)s->offset[i + 2]) ^ t->room[i + 2];
		differ |= *(const u64 *)(slot + (u64)(s64)s->offset[i + 3]) ^ t->room[i + 3];
	}
	return likely(differ == 0) && likely(rest_fits(l, t, slot, rbp)) ? path : 0;
}

#endif
