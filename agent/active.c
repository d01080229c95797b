/*
 * Calls in progress of a thread, innermost last, keyed by the address of their return slot. Calls left
 * by longjmp, exceptions or thread exit leave records behind: they are recognised here by a later
 * entry at or above their slot on the same stack, or by an exit further out. Constraint: records of
 * other stacks (coroutines, alternate signal stacks) are not touched, as far as stacks can be told apart.
 */
#include "agent.h"

static int same_stack(const struct local *l, u64 slot)
{
	return slot - l->stack.lo < l->stack.top - l->stack.lo;
}

/* Record beyond those in the block; 0 when no memory is to be had. */
slow_path struct wh_active *record_slow(struct local *l, u32 index)
{
	u32 chunk = (index - WH_ACTIVE) / CHUNK;

	if (chunk >= CHUNKS)
		return 0;
	if (!l->chunk[chunk] && !G.locked)
		l->chunk[chunk] = map_own(CHUNK * sizeof(struct wh_active));
	return l->chunk[chunk] ? &l->chunk[chunk][(index - WH_ACTIVE) % CHUNK] : 0;
}

/* Removes records of this stack whose frames are gone, down to the first that encloses `slot`. One at
 * `slot` itself stays if the function was reached by a tail call: the slot then holds our exit. */
slow_path void drop_stale(struct local *l, u64 slot)
{
	struct wh_thread *t = l->block;
	u64 tail = *(u64 *)slot == G.exit, began = ticks();
	u32 kept = t->n_active, from = kept;

	while (from) {
		const struct wh_active *r = record(l, from - 1);

		if (same_stack(l, r->slot) && (r->slot > slot || (r->slot == slot && tail)))
			break;
		from--;
	}
	update_begin(&t->seq_active);
	u32 to = from;
	for (u32 i = from; i < kept; i++) {
		const struct wh_active *r = record(l, i);

		if (same_stack(l, r->slot))
			t->lost[WH_LOST_JUMPED]++;
		else if (to++ != i)
			*record(l, to - 1) = *r;
	}
	t->n_active = to;
	update_end(&t->seq_active);
	spent_apart(l, began);
}

struct wh_active *find_record(struct local *l, u64 slot)
{
	for (u32 i = l->block->n_active; i; i--) {
		struct wh_active *r = record(l, i - 1);

		if (r->slot == slot)
			return r;
		if (same_stack(l, r->slot) && r->slot > slot)
			return 0;
	}
	return 0;
}

/* Whether a path has a call in progress that is not folded, within the whole call that the innermost one is folded into.
 * Folded calls are passed over by what they keep: what is amid being written, or has moved, only costs a step. */
slow_path int in_progress(struct local *l, u32 path)
{
	u32 i = l->block->n_active, whole = i ? record(l, i - 1)->path & ~WH_FOLDED : 0;

	while (i) {
		const struct wh_active *r = record(l, i - 1);

		if (r->path & WH_FOLDED) {
			i = r->usage < i ? (u32)r->usage : i - 1;
			continue;
		}
		if (r->path == path)
			return 1;
		if (r->path == whole)
			return 0;
		i--;
	}
	return 0;
}

/* Takes the record of `slot` out. Those further in on the same stack were jumped over. */
static int take(struct local *l, u64 slot, struct wh_active *out)
{
	struct wh_thread *t = l->block;
	struct wh_active *r;

	if (!same_stack(l, slot) && !stack_enter(l, slot))
		return 0;
	r = find_record(l, slot);
	if (!r)
		return 0;
	*out = *r;
	u32 n = t->n_active, at = n;
	while (record(l, at - 1) != r)
		at--;
	u32 to = at - 1;
	update_begin(&t->seq_active);
	for (u32 i = at; i < n; i++) {
		const struct wh_active *inner = record(l, i);

		if (same_stack(l, inner->slot) && inner->slot < slot)
			t->lost[WH_LOST_JUMPED]++;
		else
			*record(l, to++) = *inner;
	}
	t->n_active = to;
	update_end(&t->seq_active);
	return 1;
}

slow_path int take_record(struct local *l, u64 slot, struct wh_active *out)
{
	u64 began = ticks();
	int taken = take(l, slot, out);

	spent_apart(l, began);
	return taken;
}
