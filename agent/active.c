/*
 * Calls in progress of a thread, innermost last, keyed by the address of their return slot. Calls left
 * by longjmp, exceptions or thread exit leave records behind: they are recognised here by a later
 * entry at or above their slot on the same stack, or by an exit further out. Constraint: records of
 * other stacks (coroutines, alternate signal stacks) are not touched, as far as stacks can be told apart.
 *
 * A thread may have a thousand coroutines suspended in probed calls, and a change to one of them must not cost more for the
 * others. So the records of each stack stand together, and those of the stack in use end the list, in
 *
 *     records of some stack | records of another | hole | those of the stack in use
 *
 * [stack.first, n_active). When another stack comes into use its records are moved to the end, and leave holes where they
 * were: what has no path, and a slot that no call has. Quick entries and exits (fast.h) know the last record alone, and may
 * have put calls of other stacks behind those of the one in use: these are given to their stacks when it is left.
 */
#include "agent.h"

#define HOLE (~0ull)
#define TIDY 64u

static void make_hole(struct wh_active *r)
{
	r->slot = HOLE;
	r->t0 = 0;
	r->cpu0 = 0;
	r->path = 0;
	r->point = 0;
	r->usage = 0;
	r->major = 0;
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

/* Moves a record, with the words that were taken at its entry. */
static void move(struct local *l, u32 to, u32 from)
{
	*record(l, to) = *record(l, from);
	for (u32 i = 0; l->words && to < WH_ACTIVE && i < MAX_WORDS; i++)
		l->words[to][i] = from < WH_ACTIVE ? l->words[from][i] : 0;
}

/* Moves the records [from, from + count) of a stack; to where they do not overlap, or downwards. What folded ones know of
 * their places goes along. */
static void move_group(struct local *l, u32 to, u32 from, u32 count)
{
	for (u32 i = 0; i < count; i++) {
		struct wh_active *r = record(l, from + i);

		if (r->path & WH_FOLDED)
			r->usage = r->usage >= from ? r->usage - from + to : to;
		move(l, to + i, from + i);
	}
}

static void make_holes(struct local *l, u32 from, u32 count)
{
	for (u32 i = 0; i < count; i++)
		make_hole(record(l, from + i));
}

/* Whether there is memory for the records up to `end`. */
static int room(struct local *l, u32 end)
{
	for (u32 at = l->block->n_active; at < end; at += CHUNK / 2)
		if (!record(l, at))
			return 0;
	return end <= l->block->n_active || record(l, end - 1);
}

/* Quick exits may have taken some away. */
static void clamp(const struct local *l, struct stack *s)
{
	u32 n = l->block->n_active;

	if (s->first >= n)
		s->count = 0;
	else if (s->count > n - s->first)
		s->count = n - s->first;
}

/* Gives records [from, to), which are on `s`, to it; they stay nobody's if there is no memory. */
static void append(struct local *l, struct stack *s, u32 from, u32 to)
{
	struct wh_thread *t = l->block;
	u32 more = to - from, at = t->n_active;

	clamp(l, s);
	if (!s->count) {
		s->first = from;
	} else if (s->first + s->count != from) {
		if (!room(l, at + s->count + more))
			return;
		move_group(l, at, s->first, s->count);
		move_group(l, at + s->count, from, more);
		t->n_active = at + s->count + more;
		make_holes(l, s->first, s->count);
		make_holes(l, from, more);
		s->first = at;
	}
	s->count += more;
}

/* Records [at, end) behind those of the stack in use, which quick entries have put there. */
static void distribute(struct local *l, u32 at, u32 end)
{
	while (at < end) {
		u64 slot = record(l, at)->slot;
		s32 which = slot == HOLE ? -1 : stack_of(l, slot);
		u32 to = at + 1;

		if (which >= 0) {
			struct stack *s = &l->stacks[which];

			while (to < end && is_on(s, record(l, to)->slot))
				to++;
			append(l, s, at, to);
		}
		at = to;
	}
}

/* Whether a hole is to stand behind the record before `at`, where those of `s` begin: quick entries take a record further up
 * for one of a caller, and one further down for one that was jumped out of. */
static u32 apart(struct local *l, const struct stack *s, u32 at)
{
	return at && record(l, at - 1)->slot < s->hi;
}

/* The stack in use is about to be left: what it has is noted. */
void records_leave(struct local *l)
{
	struct wh_thread *t = l->block;
	struct stack *s = &l->stack;
	u32 n = t->n_active, at;

	if (s->first > n)
		s->first = n;
	for (at = s->first; at < n && is_on(s, record(l, at)->slot); at++)
		;
	s->count = at - s->first;
	l->stacks[l->stack_now] = *s;
	if (unlikely(at < n)) {
		update_begin(&t->seq_active);
		distribute(l, at, n);
		update_end(&t->seq_active);
		l->stack = l->stacks[l->stack_now];
	}
}

/* Makes the list dense. Records that belong to no stack, which was forgotten for others, are given up. */
static void tidy(struct local *l)
{
	struct wh_thread *t = l->block;
	u32 n = t->n_active, at = 0, to = 0;

	l->stack.count = n - l->stack.first;
	l->stacks[l->stack_now] = l->stack;
	while (at < n) {
		u64 slot = record(l, at)->slot;
		s32 which = slot == HOLE ? -1 : stack_of(l, slot);
		struct stack *s = which < 0 ? 0 : &l->stacks[which];

		if (!s || s->first != at || !s->count) {
			t->lost[WH_LOST_JUMPED] += slot != HOLE;
			at++;
			continue;
		}
		clamp(l, s);
		if ((u32)which == l->stack_now && to < at && apart(l, s, to))
			make_hole(record(l, to++));
		move_group(l, to, at, s->count);
		s->first = to;
		to += s->count;
		at += s->count;
	}
	t->n_active = to;
	if (!l->stack.count) {
		if (to < at && apart(l, &l->stack, to))
			make_hole(record(l, t->n_active++));
		l->stacks[l->stack_now].first = t->n_active;
	}
	l->stack = l->stacks[l->stack_now];
	l->tidy_at = t->n_active * 2 > TIDY ? t->n_active * 2 : TIDY;
}

/* Another stack has come into use: its records end the list from now on. */
void records_join(struct local *l)
{
	struct wh_thread *t = l->block;
	struct stack *s = &l->stack;

	update_begin(&t->seq_active);
	while (t->n_active && record(l, t->n_active - 1)->slot == HOLE)
		t->n_active--;
	clamp(l, s);
	u32 n = t->n_active, from = s->first, hole = apart(l, s, n);
	int there = s->count && from + s->count == n;
	if (!there && !room(l, n + hole + s->count)) {
		s->count = 0;
		s->first = n;
	} else if (!there) {
		if (hole)
			make_hole(record(l, n));
		move_group(l, n + hole, from, s->count);
		s->first = n + hole;
		t->n_active = s->first + s->count;
		make_holes(l, from, s->count);
	}
	if (t->n_active > l->tidy_at)
		tidy(l);
	update_end(&t->seq_active);
}

/* Removes records of this stack whose frames are gone, down to the first that encloses `slot`. One at
 * `slot` itself stays if the function was reached by a tail call: the slot then holds our exit. */
slow_path void drop_stale(struct local *l, u64 slot)
{
	struct wh_thread *t = l->block;
	u64 tail = is_exit(*(u64 *)slot);
	u32 kept = t->n_active, from = kept;

	while (from > l->stack.first) {
		const struct wh_active *r = record(l, from - 1);

		if (is_on(&l->stack, r->slot) && (r->slot > slot || (r->slot == slot && tail)))
			break;
		from--;
	}
	update_begin(&t->seq_active);
	u32 to = from;
	for (u32 i = from; i < kept; i++) {
		if (is_on(&l->stack, record(l, i)->slot))
			t->lost[WH_LOST_JUMPED]++;
		else if (to++ != i)
			move(l, to - 1, i);
	}
	t->n_active = to;
	update_end(&t->seq_active);
}

/* The record of `slot` among [first, end), which are of the stack `s` but for what quick entries have put there. */
static struct wh_active *find_among(struct local *l, const struct stack *s, u32 first, u32 end, u64 slot)
{
	for (u32 i = end; i > first; i--) {
		struct wh_active *r = record(l, i - 1);

		if (r->slot == slot)
			return r;
		if (r->slot > slot && is_on(s, r->slot))
			return 0;
	}
	return 0;
}

struct wh_active *find_record(struct local *l, u64 slot)
{
	struct wh_active *r = find_among(l, &l->stack, l->stack.first, l->block->n_active, slot);
	s32 which = r || is_on(&l->stack, slot) ? -1 : stack_of(l, slot);

	if (likely(which < 0 || (u32)which == l->stack_now))
		return r;
	struct stack *s = &l->stacks[which];
	clamp(l, s);
	return find_among(l, s, s->first, s->first + s->count, slot);
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

/* Takes the record of `slot` out, which is on the stack in use. Those further in on it were jumped over. */
static void take_out(struct local *l, struct wh_active *r, u64 slot)
{
	struct wh_thread *t = l->block;
	u32 n = t->n_active, at = n;

	while (record(l, at - 1) != r)
		at--;
	u32 to = at - 1;
	update_begin(&t->seq_active);
	for (u32 i = at; i < n; i++) {
		u64 inner = record(l, i)->slot;

		if (is_on(&l->stack, inner) && inner < slot)
			t->lost[WH_LOST_JUMPED]++;
		else
			move(l, to++, i);
	}
	t->n_active = to;
	update_end(&t->seq_active);
}

/* Where a stack was taken for two, a call may have been entered on the one and be left on the other. */
static int take_anywhere(struct local *l, u64 slot, struct wh_active *out)
{
	for (u32 i = l->block->n_active; i; i--) {
		struct wh_active *r = record(l, i - 1);

		if (r->slot != slot)
			continue;
		*out = *r;
		make_hole(r);
		return 1;
	}
	return 0;
}

static int take(struct local *l, u64 slot, struct wh_active *out)
{
	if (!is_on(&l->stack, slot) && !stack_enter(l, slot, 0))
		return 0;
	struct wh_active *r = find_among(l, &l->stack, l->stack.first, l->block->n_active, slot);
	if (!r)
		return take_anywhere(l, slot, out);
	*out = *r;
	take_out(l, r, slot);
	return 1;
}

slow_path int take_record(struct local *l, u64 slot, struct wh_active *out)
{
	u64 began = ticks();
	int taken = take(l, slot, out);

	spent_apart(l, began);
	return taken;
}
