/*
 * What the quick entries of fast.c know: kept here when handlers.c has done a call where nothing was out of the ordinary.
 * Constraint: a signal may come anywhere, and its handler's calls read what is being filled: it is out of use meanwhile
 * (slot or owner 0), and told from what was there before by its serial.
 */
#include "fast.h"

/* From a slot down to where entry.S keeps rbp. */
#define RBP_BELOW (__builtin_offsetof(struct frame, ra) - __builtin_offsetof(struct frame, rbp))

/* Adds a word in its place: the one furthest out is the last. */
static void add_word(struct fresh *f, u64 at, u64 value)
{
	u32 i = f->hot.words;

	if (i >= HOT_WORDS)
		return;
	f->hot.words = i + 1;
	for (; i && (u64)f->word[i - 1].at > at; i--)
		f->word[i] = f->word[i - 1];
	f->word[i] = (struct word){(const u64 *)at, value};
}

/* Whether the words of `h` are the first `n` of `fresh`, but for their values. */
static int same_places(const struct hot *h, const struct fresh *fresh, u32 n)
{
	if (h->words != n)
		return 0;
	for (u32 i = 0; i < n; i++)
		if (words_of(h)[i].at != fresh->word[i].at)
			return 0;
	return 1;
}

static int same_values(const struct hot *h, const struct fresh *fresh)
{
	for (u32 i = 0; i < h->words; i++)
		if (words_of(h)[i].value != fresh->word[i].value)
			return 0;
	return 1;
}

static int same_but_words(const struct hot *a, const struct hot *b)
{
	return a->slot == b->slot && a->ra == b->ra && a->point == b->point && a->gate == b->gate && a->top_slot == b->top_slot &&
	       a->top_path == b->top_path;
}

static int is_variant(const struct variant *v, const struct hot *h, u64 record)
{
	return v->owner == h->serial && v->record == record;
}

/* Where a variant is to be kept: where it is already, else where it is free, else where another was filled longer ago. */
static struct variant *place_for(struct local *l, const struct hot *h, u64 hash, u64 record)
{
	struct variant *first = variant_of(l, hash, 0), *second = variant_of(l, hash, 1);

	if (!first->owner || is_variant(first, h, record))
		return first;
	if (!second->owner || is_variant(second, h, record))
		return second;
	return (s32)(second->serial - first->serial) < 0 ? second : first;
}

/* Keeps the values of `fresh` beside others of the entry `h`. */
static void vary(struct local *l, const struct hot *h, const struct fresh *fresh)
{
	const struct word *w = fresh->word;
	u64 hash = h->serial, record = fresh->hot.record;

	for (u32 i = 0; i < h->words; i += 4)
		hash = mixed(hash, w[i].value, w[i + 1].value, w[i + 2].value, w[i + 3].value);
	struct variant *v = place_for(l, h, hash, record);
	v->owner = 0;
	barrier();
	v->serial = next_serial(l);
	v->record = record;
	v->block = fresh->hot.block;
	for (u32 i = 0; i < h->words; i++)
		v->value[i] = w[i].value;
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

static void fill_words(struct hot *h, const struct fresh *fresh)
{
	h->words = h->varied ? fresh->hot.words : fresh->real;
	const s32 *code = h->gate >> 32 & WH_DO_EXIT ? wh_code_of_entry : wh_code_of_count;
	h->code = (u64)code + (u64)(s64)code[h->varied ? MOST_WORDS + 1 : h->words];
	for (u32 i = 0; i < h->words; i++)
		h->word[HOT_WORDS - h->words + i] = fresh->word[i];
}

static void fill(struct local *l, struct hot *h, const struct fresh *fresh)
{
	const struct hot *f = &fresh->hot;

	h->slot = 0;
	barrier();
	h->serial = next_serial(l);
	h->ra = f->ra;
	h->gate = f->gate;
	h->point = f->point;
	h->relocated = f->relocated;
	h->exit = f->exit;
	h->top_slot = f->top_slot;
	h->top_path = f->top_path;
	h->record = f->record;
	h->block = f->block;
	h->counter = f->counter;
	h->key = (u64)f->counter << KEY_SHIFT | (h->serial & ((1u << KEY_SHIFT) - 1));
	h->calls = f->calls;
	h->varied = h->skip > 1 && fresh->real;
	fill_words(h, fresh);
	if (h->varied)
		vary(l, h, fresh);
	barrier();
	h->slot = f->slot;
}

/* Whether `h` has just this already: a call may be no quick one for other reasons, as while no clock is set. */
static int known_so(const struct hot *h, const struct fresh *fresh)
{
	return h->slot && !h->varied && h->record == fresh->hot.record && same_but_words(h, &fresh->hot) &&
	       same_places(h, fresh, fresh->real) && same_values(h, fresh);
}

/* Whether `h` has values of several paths, to which `fresh` is one more. */
static int takes(const struct hot *h, const struct fresh *fresh)
{
	return h->slot && h->varied && same_but_words(h, &fresh->hot) && same_places(h, fresh, fresh->hot.words);
}

/* In place of what did not serve last: that of another call site gives way at once, one of the same if it is worth it. */
static void replace(struct local *l, u32 place, const struct fresh *fresh)
{
	struct hot *h = other_of(l, place), *stays = first_of(l, place);
	u64 owner = fresh->hot.slot ^ fresh->hot.ra;

	if (h->owner != owner) {
		h->owner = owner;
		h->skip = h->left = 0;
	} else if (h->slot && !worth(h)) {
		return;
	}
	fill(l, h, fresh);
	l->filled[place] = 1;
	l->way[place] = h == &l->hot[place][1];
	if (h->varied && stays->owner == owner && !stays->varied)
		stays->slot = 0; /* its path is learnt once more, with the others */
}

static void keep(struct local *l, u32 place, const struct fresh *fresh)
{
	struct hot *ways = l->hot[place];

	if (known_so(&ways[0], fresh) || known_so(&ways[1], fresh))
		return;
	if (takes(&ways[0], fresh))
		vary(l, &ways[0], fresh);
	else if (takes(&ways[1], fresh))
		vary(l, &ways[1], fresh);
	else
		replace(l, place, fresh);
}

static void forget_place(struct local *l, u32 place)
{
	for (u32 way = 0; way < WAYS; way++)
		l->hot[place][way].slot = 0;
}

static void add_words(struct fresh *f, u64 rbp, const struct shape *s, const struct template *t)
{
	u64 slot = f->hot.slot;

	if (t->live != ~0ull) /* as entry.S keeps it */
		add_word(f, slot - RBP_BELOW, rbp);
	for (u32 i = 0; i < s->words; i++)
		if (s->offset[i]) /* not the slot itself */
			add_word(f, slot + s->offset[i], t->room[i]);
	for (u32 i = 0; i < t->relatives; i++) {
		struct relative r = relative(t, i);

		add_word(f, slot + r.offset, slot + (u64)(s64)r.value);
	}
	f->real = f->hot.words;
	while (f->hot.words % 4)
		add_word(f, (u64)f->word[f->hot.words - 1].at, f->word[f->hot.words - 1].value);
}

/* Keeps what a call of a point that is on, with `flags`, has found at `slot`: the path `found`, by its
 * template; without one the point's own path. Called where nothing is out of the ordinary. */
void hot_learn(struct local *l, u32 flags, u32 point, u64 slot, u64 rbp, u32 found, const struct match *match)
{
	u64 ra = *(const u64 *)slot, bits = hot_bits(flags, found);
	const struct wh_thread *thread = l->block;
	const struct template *t = match->template;
	u32 n = thread->n_active, path = found & ~WH_FOLDED;
	u32 page = thread->directory[path / 64], place = place_of(slot, ra);
	struct hot *fresh = &l->fresh.hot;

	if (is_exit(ra) || (flags & WH_DO_EXIT && l->stack.no_shadow) || (bits & HOT_CPU && !l->clock))
		return;
	/* A signal handler's call leaves all this alone: what is being learnt below it would be mixed up. */
	if (l->learning || !page || n >= WH_ACTIVE || (t && match->shape->words + t->relatives + 1 > HOT_WORDS))
		return;
	u32 serial = next_serial(l);
	l->learning = serial;
	barrier();
	fresh->slot = slot;
	fresh->ra = ra;
	fresh->point = n ? point | HOT_JOINED : point;
	fresh->gate = WH_POINT_ON | (u64)flags << 32; /* as they were seen, whatever they are by now */
	fresh->top_slot = n ? thread->active[n - 1].slot : 0;
	fresh->top_path = n ? thread->active[n - 1].path : 0;
	fresh->record = record_words(found, point);
	fresh->block = WH_AT_PAGES + (u64)page * PAGE + path % 64 * sizeof(struct wh_block);
	fresh->counter = counter_of(G.segment, fresh->block);
	fresh->calls = *fresh->counter;
	fresh->relocated = point_at(point)->relocated;
	fresh->exit = flags & WH_DO_EXIT ? exit_for(ra) : 0;
	fresh->block |= bits;
	fresh->words = l->fresh.real = 0;
	if (t)
		add_words(&l->fresh, rbp, match->shape, t);
	barrier();
	/* A handler's call that walked may have written another template or shape where these were. */
	if (!t || match->learnt == *(volatile u32 *)&l->learnt)
		keep(l, place, &l->fresh);
	barrier();
	if (likely(l->learning == serial))
		l->learning = 0;
	else
		forget_place(l, place); /* taken for given up, by a handler that has lasted long */
}

void hot_forget(struct local *l)
{
	for (u32 place = 0; place < HOTS; place++)
		if (l->filled[place])
			forget_place(l, place);
}
