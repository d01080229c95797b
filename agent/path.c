/*
 * From the frames of a call to its path id. Frames are looked up from the outermost inwards, as
 * whither_agent.h keeps them; what was not met before is added. Constraint: other threads and processes
 * add frames and paths at the same time without locks.
 */
#include "agent.h"

#define MOST_LEVELS 4096u

static int is_frame(u32 frame)
{
	return frame - WH_FIRST_FRAME < WH_MAX_FRAMES - WH_FIRST_FRAME;
}

static u32 *run_head(u32 outside, u32 word)
{
	return (u32 *)(G.segment + WH_AT_RUN_HEADS) + wh_head(outside, word);
}

static u32 *path_head(u32 frame, u32 point)
{
	return (u32 *)(G.segment + WH_AT_PATH_HEADS) + wh_head(frame, point);
}

static u16 *unit_at(u32 index)
{
	return (u16 *)(G.segment + WH_AT_FRAMES) + index;
}

/* Two units, each for itself: programs may have asked for traps where a word is not aligned. */
static u32 pair_at(u32 index)
{
	const volatile u16 *unit = unit_at(index);

	return unit[0] | (u32)unit[1] << 16;
}

static void set_pair(u32 index, u32 pair)
{
	volatile u16 *unit = unit_at(index);

	unit[0] = (u16)pair;
	unit[1] = (u16)(pair >> 16);
}

/* The first unit of a frame. */
static u32 begin_of(u32 frame)
{
	return frame - !!(*unit_at(frame) & WH_FRAME_WIDE);
}

/* The frame whose first unit is at `index`. */
static u32 frame_from(u32 index)
{
	return index + !!(*unit_at(index) & WH_FRAME_MORE);
}

/* The frame outside of `frame`, or a root. */
static u32 outside_of(u32 frame)
{
	u32 begin = begin_of(frame);

	return *unit_at(frame) & WH_FRAME_FIRST ? pair_at(begin - 2) : begin - 1;
}

/* A frame as the walk tells it. */
static u32 word_of(u32 frame)
{
	u32 unit = *unit_at(frame), site = unit & WH_FRAME_SITE;

	if (unlikely(unit & WH_FRAME_WIDE))
		site |= (u32)(*unit_at(frame - 1) & ~WH_FRAME_MORE) << WH_FRAME_LOW;
	return site | (unit & WH_FRAME_FP ? BY_FP : 0);
}

static u32 units_of(u32 word)
{
	return (word & ~BY_FP) >> WH_FRAME_LOW ? 2 : 1;
}

/* Writes a frame from `index` on: the index behind it. */
static u32 put_frame(u32 index, u32 word, u32 bits)
{
	u32 site = word & ~BY_FP;

	bits |= (site & WH_FRAME_SITE) | (word & BY_FP ? WH_FRAME_FP : 0);
	if (site >> WH_FRAME_LOW) {
		*unit_at(index++) = (u16)(WH_FRAME_MORE | site >> WH_FRAME_LOW);
		bits |= WH_FRAME_WIDE;
	}
	*unit_at(index++) = (u16)bits;
	return index;
}

/* Searches the runs from `run` up to `end` for the one inside of `outside` that begins with `word`; runs go by the frame
 * that they begin with. */
static u32 run_among(u32 run, u32 end, u32 outside, u32 word)
{
	while (is_frame(run) && run != end) {
		u32 begin = begin_of(run);

		if (pair_at(begin - 2) == outside && word_of(run) == word)
			return run;
		run = pair_at(begin - 4);
	}
	return 0;
}

/* The frame `word` inside of another, or of a root; 0: it was not met yet. */
static u32 inside_of(u32 frame, u32 word)
{
	if (is_frame(frame) && !(*unit_at(frame) & WH_FRAME_LAST)) {
		u32 next = frame_from(frame + 1);

		if (word_of(next) == word)
			return next;
	}
	return run_among(__atomic_load_n(run_head(frame, word), __ATOMIC_ACQUIRE), 0, frame, word);
}

/* Room for a run whose frames have so many units: the index of the first; 0: there is none. */
static u32 run_new(u32 units)
{
	struct wh_header *h = header();

	if (h->next_frame > WH_MAX_FRAMES - units - WH_RUN_HEAD)
		return 0;
	u32 at = __atomic_fetch_add(&h->next_frame, units + WH_RUN_HEAD, __ATOMIC_RELAXED);
	return at >= WH_FIRST_FRAME && at <= WH_MAX_FRAMES - units - WH_RUN_HEAD ? at + WH_RUN_HEAD : 0;
}

/* Writes the first `n` of the walk's frames from `begin` on: the innermost. */
static u32 put_frames(const struct local *l, u32 begin, u32 n)
{
	u32 at = begin;

	for (u32 i = n; i--;)
		at = put_frame(at, l->frames[i], (i == n - 1 ? WH_FRAME_FIRST : 0) | (i ? 0 : WH_FRAME_LAST));
	return at - 1;
}

/* Links the first `n` of the walk's frames as a run inside of `outside`: its innermost; 0: no room.
 * Another thread that was faster with its outermost has `raced`. */
static u32 grow(const struct local *l, u32 outside, u32 n, int *raced)
{
	u32 *head = run_head(outside, l->frames[n - 1]), units = 0;
	u32 next = __atomic_load_n(head, __ATOMIC_ACQUIRE), begin;

	for (u32 i = 0; i < n; i++)
		units += units_of(l->frames[i]);
	/* What was not among the runs a moment ago may be by now; below only what comes after `next` is looked at. */
	*raced = run_among(next, 0, outside, l->frames[n - 1]) != 0;
	begin = *raced ? 0 : run_new(units);
	if (!begin)
		return 0;
	u32 innermost = put_frames(l, begin, n);
	set_pair(begin - 2, outside);
	for (;;) {
		u32 before = next;

		set_pair(begin - 4, next);
		if (__atomic_compare_exchange_n(head, &next, frame_from(begin), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return innermost;
		if (run_among(next, before, outside, l->frames[n - 1])) {
			*raced = 1;
			return 0;
		}
	}
}

/* The innermost of the walk's `n` frames inside of `root`, which is it if there are none. 0: they are not all
 * known, and with `may_grow`: the table is full. */
static u32 innermost(const struct local *l, u32 root, u32 n, int may_grow)
{
	u32 at = root;

	while (n) {
		u32 in = inside_of(at, l->frames[n - 1]);
		int raced = 0;

		if (in) {
			at = in;
			n--;
			continue;
		}
		in = may_grow ? grow(l, at, n, &raced) : 0;
		if (!raced)
			return in;
	}
	return at;
}

/* Whether the path is that of the walk's frames. */
static int is_path(const struct local *l, u32 id, u32 point, u32 root, u32 n)
{
	u32 frame = *path_frame(id);

	if (*path_point(id) != point)
		return 0;
	for (u32 i = 0; i < n; i++) {
		if (!is_frame(frame) || word_of(frame) != l->frames[i])
			return 0;
		frame = outside_of(frame);
	}
	return frame == root;
}

static u32 path_among(u32 id, u32 end, u32 frame, u32 point)
{
	for (; id && id != end; id = *path_link(id) & WH_LINK_NEXT)
		if (*path_frame(id) == frame && *path_point(id) == point)
			return id;
	return 0;
}

/* Ancestors of a path that have its point. */
static u32 same_of(u32 id)
{
	return *path_link(id) >> WH_LINK_SAME_SHIFT;
}

/* The path that a path joins, 0 = none. */
static u32 joined(u32 id)
{
	u32 frame = *path_frame(id);

	while (is_frame(frame))
		frame = outside_of(frame);
	return frame & WH_ROOT_JOIN ? frame & ~WH_ROOT_JOIN : 0;
}

/* The innermost ancestor of a call, from path `at` on, that is a call of the same point. */
static u32 ancestor(u32 at, u32 point)
{
	while (at && *path_point(at) != point)
		at = joined(at);
	return at;
}

static u32 levels(u32 at)
{
	u32 n = 0;

	for (; at && n < MOST_LEVELS; at = joined(at))
		n++;
	return n;
}

/* Makes the path of a point that begins at `frame`, unless another thread was faster. `same`: its ancestor of
 * the same point. 0: the table is full. */
static u32 path_create(u32 frame, u32 point, u32 same)
{
	struct wh_header *h = header();
	u32 *head = path_head(frame, point);
	u32 next = __atomic_load_n(head, __ATOMIC_ACQUIRE);
	u32 found = path_among(next, 0, frame, point);

	if (found || h->next_path >= WH_MAX_PATHS)
		return found;
	u32 id = __atomic_fetch_add(&h->next_path, 1, __ATOMIC_RELAXED);
	if (!id || id >= WH_MAX_PATHS)
		return 0;
	u32 level = (same ? same_of(same) + 1 : 0) << WH_LINK_SAME_SHIFT;
	*path_point(id) = (u16)point;
	*path_link(id) = level | next;
	__atomic_store_n(path_frame(id), frame, __ATOMIC_RELEASE); /* readers take it for whole from here on */
	for (;;) {
		u32 before = next;

		*path_link(id) = level | next;
		if (__atomic_compare_exchange_n(head, &next, id, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return id;
		found = path_among(next, before, frame, point);
		if (found) {
			*path_frame(id) = 0;
			return found;
		}
	}
}

/* A path met for the first time, or one that is counted elsewhere: a joined call at the limit of recursion
 * in its nearest ancestor of the same point; with too many levels altogether, in the point's own path. */
static slow_path u32 new_path(const struct local *l, const struct wh_point *p, u32 point, u32 root, u32 n)
{
	u32 parent = root & WH_ROOT_JOIN ? root & ~WH_ROOT_JOIN : 0;
	u32 same = ancestor(parent, point), id;

	if (same && same_of(same) >= header()->recursion)
		return same | WH_FOLDED;
	if (parent && levels(parent) >= MOST_LEVELS)
		return (same ? same : root_path(p)) | WH_FOLDED;
	u32 frame = innermost(l, root, n, 1);
	id = frame ? path_create(frame, point, same) : 0;
	return id ? id : root_path(p);
}

/* Path of the `n` frames of the walk, and the root outside of them. */
u32 path_of_frames(struct local *l, const struct wh_point *p, u32 point, u32 root, u32 n)
{
	u64 hash = (u64)root << 32 | point;
	u32 *cached, frame, id = 0;

	for (u32 i = 0; i < n; i++)
		hash = hash * 0x9e3779b97f4a7c15ull + l->frames[i];
	cached = &l->cache[(u32)(hash * 0xd6e8feb86659fd93ull >> 40) % CACHE];
	if (likely(is_path(l, *cached, point, root, n)))
		return *cached;
	frame = innermost(l, root, n, 0);
	if (frame)
		id = path_among(__atomic_load_n(path_head(frame, point), __ATOMIC_ACQUIRE), 0, frame, point);
	if (!id)
		id = new_path(l, p, point, root, n);
	if (!(id & WH_FOLDED))
		*cached = id;
	return id;
}
