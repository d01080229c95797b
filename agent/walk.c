/*
 * From a return slot to the frames of a call. The walk goes from frame to frame by the rules of their
 * call sites: equal return address means equal rule, so only a site that was never met asks the unwind
 * tables. Constraints: other threads and processes add sites at the same time without locks; every word
 * read lies where the stack can be read now; a walk that cannot go on says so by its root.
 *
 * A slot that holds our exit address belongs to a call in progress: its path is already known, the walk
 * ends by joining it. If its record was lost, its true address is in the shadow.
 */
#include "agent.h"

/* Of the walk: the table of sites is full. */
#define NO_ROOM 0u

static u32 *site_head(u64 ra)
{
	return (u32 *)(G.segment + WH_AT_SITE_HEADS) + (u32)(ra * 0x9e3779b97f4a7c15ull >> 40) % WH_SITE_HEADS;
}

static u32 site_among(u32 site, u32 end, u64 ra)
{
	for (; site && site != end; site = site_at(site)->next)
		if (site_at(site)->ra == ra)
			return site;
	return 0;
}

/* A site met for the first time; 0: the table is full. */
static u32 site_create(u32 *head, u64 ra)
{
	struct wh_header *h = header();

	if (h->next_site >= WH_MAX_SITES)
		return 0;
	u32 id = __atomic_fetch_add(&h->next_site, 1, __ATOMIC_RELAXED);
	if (!id || id >= WH_MAX_SITES)
		return 0;
	struct wh_site *site = site_at(id);
	u32 next = __atomic_load_n(head, __ATOMIC_ACQUIRE), found = site_among(next, 0, ra);
	if (found)
		return found;
	site->ra = ra;
	site->rule = rule_of_caller(ra);
	for (;;) {
		u32 before = next;

		site->next = next;
		if (__atomic_compare_exchange_n(head, &next, id, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return id;
		found = site_among(next, before, ra);
		if (found)
			return found;
	}
}

/* What is to be known of a return address, which a frame pointer may have led to. 0: it is none, or the table is
 * full (then it is `full`). */
static slow_path const struct known *site_of(struct local *l, u64 ra, int by_fp, int *full)
{
	struct known *known = &l->known[(u32)(ra * 0x9e3779b97f4a7c15ull >> 40) % KNOWN];
	u32 *head = site_head(ra), site = site_among(__atomic_load_n(head, __ATOMIC_ACQUIRE), 0, ra);

	if (!site) {
		if (by_fp && !plausible(ra))
			return 0;
		site = site_create(head, ra);
		*full = !site;
		if (!site)
			return 0;
	}
	u32 rule = *(volatile u32 *)&site_at(site)->rule;
	if (unlikely((rule & 7) == WH_RULE_LATER))
		rule = site_at(site)->rule = rule_of_caller(ra);
	known->ra = 0;
	barrier();
	known->site = site;
	known->rule = rule;
	barrier();
	known->ra = ra;
	return known;
}

/* Bytes from the slot, which are no more than this in a template. */
#define FURTHEST (1ull << 30)

/* Notes a word that the walk has relied on. */
static inline void note(struct trace *t, u64 offset, u64 value)
{
	struct shape *shape = &t->shape;

	if (unlikely(shape->words >= WORDS || shape->words + t->template.relatives + 4 > ROOM || offset > FURTHEST)) {
		t->usable = 0;
		return;
	}
	shape->offset[shape->words] = (u32)offset;
	t->template.room[shape->words++] = value;
}

/* Notes that a rule used rbp, which came from the word at `from`, or was live at entry (0). */
static inline void note_rbp(struct trace *t, u64 slot, u64 from, u64 rbp)
{
	struct template *to = &t->template;

	if (!from) {
		to->live = rbp - slot;
	} else if (t->shape.words + to->relatives + 4 <= ROOM && from - slot <= FURTHEST && rbp - slot <= FURTHEST) {
		struct relative r = {(u32)(from - slot), (s32)(rbp - slot)};

		__builtin_memcpy(&to->room[ROOM - 1 - to->relatives++], &r, sizeof r);
	} else {
		t->usable = 0;
	}
}

/* Notes that rbp, which came from the word at `from`, was 0. */
static inline void note_zero(struct trace *t, u64 slot, u64 from)
{
	if (from)
		note(t, from - slot, 0);
	else
		t->template.live = 0 - slot;
}

/* Ends a walk that cannot go on: callers are missing, and no template can tell. */
static slow_path u32 cut(struct local *l)
{
	l->trace.usable = 0;
	return WH_ROOT_TRUNCATED;
}

/* The call in progress whose return slot is `slot`: the innermost one mostly, else it is looked for among those of other stacks. */
static const struct wh_active *calling(struct local *l, u64 slot)
{
	u32 n = l->block->n_active;
	const struct wh_active *r = n ? record(l, n - 1) : 0;

	if (likely(r && r->slot == slot))
		return r;
	return find_record(l, slot);
}

/* A word of the stack, further out than the slot; 0: there is none. */
static inline int stack_word(struct local *l, u64 slot, u64 at, u64 *word)
{
	if (unlikely(l->stack.lasting ? at > l->stack.lasting - 8 : (at | 7) / PAGE != slot / PAGE))
		return outlying(l, at, word);
	*word = *(const u64 *)at;
	return 1;
}

/* Gathers the frames above `slot` in l->frames, innermost first, and tells what stands outside of them: a root. */
static u32 walk(struct local *l, const struct wh_point *p, u64 slot, u64 rbp, u32 *n)
{
	struct trace *t = &l->trace;
	u64 s = slot, ra = *(const u64 *)slot, rbp_from = 0;
	u32 most = header()->depth;
	int by_fp = 0, rows = !(p->flags & WH_DO_FP);

	if (most > WH_MOST_DEPTH)
		most = WH_MOST_DEPTH;
	l->far_words = 0;
	for (;;) {
		const struct known *known = &l->known[(u32)(ra * 0x9e3779b97f4a7c15ull >> 40) % KNOWN];

		if (unlikely(known->ra != ra || !ra)) {
			int full = 0;

			if (is_exit(ra)) {
				const struct wh_active *r = calling(l, s);

				if (r) {
					note(t, s - slot, ra);
					t->template.join = s - slot + 1;
					t->template.join_path = r->path & ~WH_FOLDED;
					return WH_ROOT_JOIN | (r->path & ~WH_FOLDED);
				}
				t->usable = 0;
				ra = returns_to(exit_index(ra), s);
			}
			if (!ra) {
				if (by_fp) /* where a register happened to point */
					return cut(l);
				note(t, s - slot, ra);
				return WH_ROOT_END;
			}
			known = site_of(l, ra, by_fp, &full);
			if (!known) {
				t->usable = 0;
				return full ? NO_ROOM : WH_ROOT_TRUNCATED;
			}
		}
		l->frames[(*n)++] = known->site | (by_fp ? BY_FP : 0);
		note(t, s - slot, ra);

		u32 rule = rows ? known->rule : WH_RULE_FP;
		u64 next;
		if ((rule & 7) == WH_RULE_END || (rule & 7) == WH_RULE_SIGNAL)
			return WH_ROOT_END;
		if (unlikely(*n >= most))
			return WH_ROOT_TRUNCATED;
		if (likely((rule & 7) == WH_RULE_RSP)) {
			next = s + (u64)(rule >> 3 & 0x3fff) * 8;
		} else if ((rule & 7) == WH_RULE_RBP) {
			next = rbp + (u64)(rule >> 3 & 0x3fff) * 8 - 8;
			note_rbp(t, slot, rbp_from, rbp);
		} else if ((rule & 7) == WH_RULE_FP) {
			if (rule & WH_RULE_FRAMED && !rbp) { /* the outermost frame: none is around it */
				note_zero(t, slot, rbp_from);
				return WH_ROOT_END;
			}
			if ((rbp & 7) || rbp <= s || rbp - s > 1 << 20)
				return cut(l);
			next = rbp + 8;
		} else if ((rule & 7) == WH_RULE_BIG) {
			if (!big_step(rule, s, &rbp, slot, surely_up_to(l, slot), &next))
				return cut(l);
		} else {
			return WH_ROOT_TRUNCATED;
		}
		if (unlikely(next <= s || !stack_word(l, slot, next, &ra)))
			return cut(l);
		if ((rule & 7) == WH_RULE_FP) {
			note_rbp(t, slot, rbp_from, rbp);
			rbp_from = rbp;
			if (unlikely(!stack_word(l, slot, rbp, &rbp)))
				return cut(l);
			by_fp = 1;
		} else if ((rule & 7) == WH_RULE_BIG) {
			by_fp = 0;
			t->usable = 0;
		} else {
			by_fp = 0;
			if (rule & 1 << 17) {
				u64 saved = next + 8 + (u64)((s64)(s32)rule >> 18) * 8;

				if (unlikely(saved < slot || !stack_word(l, slot, saved, &rbp)))
					return cut(l);
				rbp_from = saved;
			}
		}
		s = next;
	}
}

/* UNSEEN if a call that returns to `ra` must have its return slot left alone. */
slow_path u32 unseen_from(struct local *l, u64 ra)
{
	int full;
	const struct known *known;

	if (!ra || is_exit(ra)) /* no caller; a tail call, whose slot is ours already */
		return 0;
	known = site_of(l, ra, 0, &full);
	return is_foreign(known ? known->rule : rule_of(ra)) ? UNSEEN : 0;
}

/* The path of a call of `point` whose return slot is `slot`, perhaps with UNSEEN; 0: the point has none of its own yet. */
u32 find_path(struct local *l, const struct wh_point *p, u32 point, u64 slot, u64 rbp)
{
	struct trace *t = &l->trace;
	u32 n = 0, root, path;

	if (unlikely(!root_path(p)))
		return 0;
	t->usable = 1;
	t->shape.words = 0;
	t->template.relatives = 0;
	t->template.join = 0;
	t->template.live = ~0ull;
	root = walk(l, p, slot, rbp, &n);
	path = root == NO_ROOM ? root_path(p) : path_of_frames(l, p, point, root, n);
	if (!(p->flags & WH_DO_ANY_CALLER) && !is_native(l, *(const u64 *)slot))
		path |= unseen_from(l, *(const u64 *)slot);
	if (t->usable)
		template_learn(l, point, slot, path);
	return path;
}
