/*
 * Counter blocks: pages of the segment given to a thread for 64 paths at a time, and the longer blocks
 * behind them. Constraint: pages are never given back; when they run out the call is lost and counted.
 */
#include "agent.h"

/* A page of its own, 0 when none is left. */
static u32 page_new(void)
{
	struct wh_header *h = header();
	u32 page = 0;

	while (h->next_page < WH_MAX_PAGES && !page)
		page = __atomic_fetch_add(&h->next_page, 1, __ATOMIC_RELAXED);
	return page < WH_MAX_PAGES ? page : 0;
}

slow_path struct wh_block *block_new(struct local *l, u32 path)
{
	u32 page = page_new();

	if (!page)
		return 0;
	l->block->directory[path / 64] = page;
	return block_of(l, path);
}

/* The wh_more of a block, made when it is wanted first; 0 when there is no room. */
struct wh_more *more_of(struct local *l, struct wh_block *b)
{
	const u32 units = sizeof(struct wh_more) / 64, room = PAGE / 64;

	if (unlikely(!b->extra)) {
		if (!l->more_page || l->more_used + units > room) {
			l->more_page = page_new();
			l->more_used = 0;
			if (!l->more_page)
				return 0;
		}
		b->extra = l->more_page * room + l->more_used;
		l->more_used += units;
	}
	return (struct wh_more *)(G.segment + WH_AT_PAGES + (u64)b->extra * 64);
}
