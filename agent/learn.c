/*
 * What the quick entries of fast.c know: kept here when handlers.c has done a call where nothing was out of the ordinary.
 * Constraint: a signal may come anywhere, and its handler's calls read what is being filled: it is out of use meanwhile
 * (slot or owner 0), and told from what was there before by its serial.
 */
#include "fast.h"

/* Adds a word in its place: the one furthest out is the last. */
static void add_word(struct hot *h, u64 at, u64 value)
{
	u32 i = h->words;

	if (i >= HOT_WORDS)
		return;
	h->words = i + 1;
	for (; i && (u64)h->word[i - 1].at > at; i--)
		h->word[i] = h->word[i - 1];
	h->word[i] = (struct word){(const u64 *)at, value};
}

static int same_places(const struct hot *a, const struct hot *b)
{
	if (a->words != b->words)
		return 0;
	for (u32 i = 0; i < a->words; i++)
		if (a->word[i].at != b->word[i].at)
			return 0;
	return 1;
}

static int same_but_words(const struct hot *a, const struct hot *b)
{
	return a->slot == b->slot && a->ra == b->ra && a->point == b->point && a->gate == b->gate &&
	       a->top_slot == b->top_slot && a->top_path == b->top_path;
}

static int is_variant(const struct variant *v, const struct hot *h, u64 record)
{
	return v->owner == h->serial && v->record == record;
}

/* Where a variant is to be kept: where it is already, else where it is free, else where another was filled longer ago. */
static struct variant *place_of(struct local *l, const struct hot *h, u64 hash, u64 record)
{
	struct variant *first = variant_of(l, hash, 0), *second = variant_of(l, hash, 1);

	if (!first->owner || is_variant(first, h, record))
		return first;
	if (!second->owner || is_variant(second, h, record))
		return second;
	return (s32)(second->serial - first->serial) < 0 ? second : first;
}

/* Keeps the values of `fresh` beside others of the entry `h`. */
static void vary(struct local *l, const struct hot *h, const struct hot *fresh)
{
	u64 hash = h->serial;

	for (u32 i = 0; i < fresh->words; i += 4)
		hash = mixed(hash, fresh->word[i].value, fresh->word[i + 1].value, fresh->word[i + 2].value,
			     fresh->word[i + 3].value);
	struct variant *v = place_of(l, h, hash, fresh->record);
	v->owner = 0;
	barrier();
	v->serial = next_serial(l);
	v->record = fresh->record;
	v->block = fresh->block;
	for (u32 i = 0; i < fresh->words; i++)
		v->value[i] = fresh->word[i].value;
	barrier();
	v->owner = h->serial;
}

/* Whether `h` shall be filled with the same call by another path; not each time if that does not serve. */
static int worth(struct hot *h)
{
	if (h->left) {
		h->left--;
		return 0;
	}
	u64 served = *h->counter - h->calls;
	h->skip = served < 8 ? h->skip * 2 + 1 : 0;
	if (h->skip > 255)
		h->skip = 255;
	h->left = h->skip / 2;
	return 1;
}

static void fill(struct local *l, struct hot *h, const struct hot *fresh)
{
	h->slot = 0;
	barrier();
	h->serial = next_serial(l);
	h->ra = fresh->ra;
	h->gate_at = fresh->gate_at;
	h->gate = fresh->gate;
	h->point = fresh->point;
	h->relocated = fresh->relocated;
	h->top_slot = fresh->top_slot;
	h->top_path = fresh->top_path;
	h->record = fresh->record;
	h->block = fresh->block;
	h->counter = fresh->counter;
	h->calls = fresh->calls;
	h->words = fresh->words;
	for (u32 i = 0; i < fresh->words; i++)
		h->word[i] = fresh->word[i];
	h->varied = h->skip > 1;
	h->repeated = fresh->repeated;
	h->end = h->word + (h->varied ? 0 : h->words - h->repeated);
	if (h->varied)
		vary(l, h, fresh);
	barrier();
	h->slot = fresh->slot;
}

/* Whether `h` has just this already: a call may be no quick one for other reasons, as while no clock is set. */
static int known_so(const struct hot *h, const struct hot *fresh)
{
	if (!h->slot || h->varied || h->record != fresh->record || !same_but_words(h, fresh) || !same_places(h, fresh))
		return 0;
	for (u32 i = 0; i < h->words; i++)
		if (h->word[i].value != fresh->word[i].value)
			return 0;
	return 1;
}

static void keep(struct local *l, struct hot *h, const struct hot *fresh)
{
	if (known_so(h, fresh))
		return;
	if (h->owner != (fresh->slot ^ fresh->ra)) {
		h->owner = fresh->slot ^ fresh->ra;
		h->skip = h->left = 0;
		fill(l, h, fresh);
	} else if (h->varied && same_but_words(h, fresh) && same_places(h, fresh)) {
		vary(l, h, fresh);
	} else if (!h->slot || worth(h)) {
		fill(l, h, fresh);
	}
}

static void add_words(struct hot *h, u64 slot, u64 rbp, const struct shape *s, const struct template *t)
{
	if (t->live != ~0ull) /* as entry.S pushes it */
		add_word(h, slot - __builtin_offsetof(struct frame, ra), rbp);
	for (u32 i = 0; i < s->words; i++)
		if (s->offset[i]) /* not the slot itself */
			add_word(h, slot + s->offset[i], t->room[i]);
	for (u32 i = 0; i < t->relatives; i++) {
		struct relative r = relative(t, i);

		add_word(h, slot + r.offset, slot + (u64)(s64)r.value);
	}
	h->repeated = -h->words % 4;
	while (h->words % 4)
		add_word(h, (u64)h->word[h->words - 1].at, h->word[h->words - 1].value);
}

/* Keeps what a call of a point that is on, with `flags`, has found at `slot`: the path `found`, by its
 * template; without one the point's own path. Called where nothing is out of the ordinary. */
void hot_learn(struct local *l, u32 flags, u32 point, u64 slot, u64 rbp, u32 found, const struct match *match)
{
	u64 ra = *(const u64 *)slot, bits = hot_bits(flags, found);
	const struct wh_thread *thread = l->block;
	const struct template *t = match->template;
	u32 n = thread->n_active, path = found & ~WH_FOLDED;
	u32 page = thread->directory[path / 64];
	struct hot *fresh = &l->fresh, *h = hot_of(l, slot, ra);

	if (ra == G.exit || (flags & WH_DO_EXIT && l->stack.no_shadow) || (bits & HOT_CPU && !l->clock))
		return;
	/* A signal handler's call leaves all this alone: what is being learnt below it would be mixed up. */
	if (l->learning || !page || n >= WH_ACTIVE || (t && match->shape->words + t->relatives + 1 > HOT_WORDS))
		return;
	u32 serial = next_serial(l);
	l->learning = serial;
	barrier();
	fresh->slot = slot;
	fresh->ra = ra;
	fresh->point = point;
	fresh->gate_at = (const u64 *)&point_at(point)->state;
	fresh->gate = WH_POINT_ON | (u64)flags << 32; /* as they were seen, whatever they are by now */
	fresh->top_slot = n ? thread->active[n - 1].slot : 0;
	fresh->top_path = n ? thread->active[n - 1].path : 0;
	fresh->record = record_words(found, point);
	fresh->block = WH_AT_PAGES + (u64)page * PAGE + path % 64 * sizeof(struct wh_block);
	fresh->counter = counter_of(G.segment, fresh->block);
	fresh->calls = *fresh->counter;
	fresh->relocated = point_at(point)->relocated;
	fresh->block |= bits;
	fresh->words = fresh->repeated = 0;
	if (t)
		add_words(fresh, slot, rbp, match->shape, t);
	barrier();
	/* A handler's call that walked may have written another template or shape where these were. */
	if (!t || match->learnt == *(volatile u32 *)&l->learnt)
		keep(l, h, fresh);
	barrier();
	if (likely(l->learning == serial))
		l->learning = 0;
	else
		h->slot = 0; /* taken for given up, by a handler that has lasted long */
}

void hot_forget(struct local *l)
{
	for (u32 i = 0; i < HOTS; i++)
		if (l->hot[i].slot)
			l->hot[i].slot = 0;
}
