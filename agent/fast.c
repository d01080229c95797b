/*
 * The way of most calls: the same function from the same call site at the same depth of the same stack
 * as some call before. What that one found out is kept by address and value, so that a call is known
 * again by comparing words, and everything else is known with it. Constraints: these functions save
 * every register they use and call nothing; entry.S has saved nothing for them. They give up before
 * they have changed anything, and handlers.c does the call. Like all handlers they may be interrupted
 * by a signal whose handler does the same: what it has filled anew is told by the serial.
 */
#include "fast.h"

#define FAST __attribute__((no_caller_saved_registers, noinline))

/* What entry.S has pushed, and above it what the stub and the call have. The index is below 65536; an
 * address in its place says that the call is done and goes on there. */
struct frame {
	u64 rbp, rdi, index, ra;
};

static inline struct hot *hot_of(struct local *l, u64 slot, u64 ra)
{
	struct hot *h = &l->hot[(u32)(ra + (slot >> 3)) % HOTS];

	one_register(h);
	return h;
}

static inline u64 two_words(const u32 *first)
{
	u64 both;

	__builtin_memcpy(&both, first, 8);
	return both;
}

/* Whether all is as it was but for the words; `h->serial` is to be looked at before and behind. */
static inline __attribute__((always_inline)) int as_it_was(u64 segment, const struct local *l, const struct hot *h,
							   const struct frame *f)
{
	const struct wh_thread *t;
	u32 n;

	if (unlikely(h->slot != (u64)&f->ra || h->ra != f->ra || h->point != (u32)f->index))
		return 0;
	/* First that the tables are those that it was filled from: then its addresses hold. */
	t = l->block;
	if (unlikely(two_words(&((const struct wh_header *)segment)->enabled) != two_words(&l->enabled) || t->busy_sp))
		return 0;
	if (unlikely(*h->gate_at != h->gate))
		return 0;
	n = t->n_active;
	if (n) {
		const struct wh_active *top = &t->active[n - 1];

		if (unlikely(n >= WH_ACTIVE || top->slot != h->top_slot || top->path != h->top_path))
			return 0;
	} else if (unlikely(h->top_slot)) {
		return 0;
	}
	return 1;
}

/* From the slot outwards, each word only when those before are as they were: they prove that its frame is
 * there, and so that it can be read, whatever became of the memory further out since. */
static inline int words_fit(const struct hot *h, const struct word *end)
{
	const struct word *w = h->word;

	do {
		if (unlikely(*w[0].at != w[0].value || *w[1].at != w[1].value || *w[2].at != w[2].value ||
			     *w[3].at != w[3].value))
			return 0;
		w += 4;
	} while (w < end);
	return 1;
}

/* Multiplied by odd numbers without pattern: a word's place matters as much as its value. */
static inline u64 mixed(u64 hash, u64 a, u64 b, u64 c, u64 d)
{
	return hash * 0xbf58476d1ce4e5b9ull + a * 0x9e3779b97f4a7c15ull + b * 0xd6e8feb86659fd93ull +
	       c * 0x94d049bb133111ebull + d * 0xff51afd7ed558ccdull;
}

static inline struct variant *variant_of(struct local *l, u64 hash)
{
	return &l->variants[(u32)(hash >> 40) % VARIANTS];
}

static inline u32 look(const u32 *serial)
{
	barrier();
	u32 is = *(const volatile u32 *)serial;
	barrier();
	return is;
}

FAST void wh_fast_count(struct frame *f);
FAST void wh_fast_entry(struct frame *f);
FAST void wh_fast_exit(u64 *slot);

/* The variant of `h`, whose serial is `owner`, that the words on the stack are; 0: none. `serial` is to be
 * looked at again behind. All words are read at once, so what is known of the stack must hold them. */
static inline const struct variant *variant_that_fits(struct local *l, const struct hot *h, u32 owner, u32 *serial)
{
	u64 hash = owner, differ = 0;

	if (unlikely(h->slot - l->stack.lo >= l->stack.hi - l->stack.lo || !h->words ||
		     (u64)h->word[h->words - 1].at > l->stack.top - 8))
		return 0;
	for (u32 i = 0; i < h->words; i += 4)
		hash = mixed(hash, *h->word[i].at, *h->word[i + 1].at, *h->word[i + 2].at, *h->word[i + 3].at);
	const struct variant *v = variant_of(l, hash);
	*serial = look(&v->serial);
	if (unlikely(v->owner != owner))
		return 0;
	for (u32 i = 0; i < h->words; i += 4)
		differ |= (*h->word[i].at ^ v->value[i]) | (*h->word[i + 1].at ^ v->value[i + 1]) |
			  (*h->word[i + 2].at ^ v->value[i + 2]) | (*h->word[i + 3].at ^ v->value[i + 3]);
	return likely(!differ) ? v : 0;
}

static inline void finish_count(struct frame *f, u64 *counter, u64 relocated)
{
	__asm__ volatile("incq %0" : "+m"(*counter));
	f->index = relocated;
}

static inline __attribute__((always_inline)) void finish_entry(struct local *l, struct frame *f, u64 block, u64 *counter,
							       u64 record, u64 relocated)
{
	u64 pending = 0, now = 0;

	if (likely(block & HOT_TIMED)) {
		if (block & HOT_CPU)
			pending = l->pending;
		now = ticks();
		if (unlikely(now >= l->deadline || (block & HOT_CPU && *l->clock != l->clock_seen)))
			return;
	} else if (unlikely(l->credit-- <= 0)) {
		return;
	}
	admit(l, (u64)&f->ra, f->ra, block, counter, record, now, pending);
	f->index = relocated;
}

/* Functions of their own, so that the others need fewer registers. */
FAST static void count_varied(struct local *l, struct frame *f, const struct hot *h, u32 owner);
FAST static void entry_varied(struct local *l, struct frame *f, const struct hot *h, u32 owner);

static void count_varied(struct local *l, struct frame *f, const struct hot *h, u32 owner)
{
	u32 serial;
	const struct variant *v = variant_that_fits(l, h, owner, &serial);
	u64 block = v ? v->block : 0, relocated = h->relocated;

	if (likely(v && serial == look(&v->serial) && owner == look(&h->serial)))
		finish_count(f, counter_of(l->home, block), relocated);
}

static void entry_varied(struct local *l, struct frame *f, const struct hot *h, u32 owner)
{
	u32 serial;
	const struct variant *v = variant_that_fits(l, h, owner, &serial);
	u64 block = v ? v->block : 0, record = v ? v->record : 0, relocated = h->relocated;

	if (likely(v && serial == look(&v->serial) && owner == look(&h->serial)))
		finish_entry(l, f, block, counter_of(l->home, block), record, relocated);
}

/* Entry of a point that only counts. */
void wh_fast_count(struct frame *f)
{
	u64 segment = G.fast;
	struct local *l;

	if (unlikely(segment & 1))
		return;
	l = wh_own.local;
	if (unlikely(!l || (u64)l->home != segment || --l->credit < 0))
		return;
	const struct hot *h = hot_of(l, (u64)&f->ra, f->ra);
	u32 serial = look(&h->serial);
	if (unlikely(!as_it_was(segment, l, h, f)))
		return;
	const struct word *end = h->end;
	if (likely(end != h->word)) {
		if (unlikely(!words_fit(h, end)))
			return;
	} else if (h->varied) {
		count_varied(l, f, h, serial);
		return;
	}
	u64 *counter = h->counter, relocated = h->relocated;
	if (likely(serial == look(&h->serial)))
		finish_count(f, counter, relocated);
}

/* Entry of a point whose exit is seen. */
void wh_fast_entry(struct frame *f)
{
	u64 segment = G.fast;
	struct local *l;

	if (unlikely(segment & 1))
		return;
	l = wh_own.local;
	if (unlikely(!l || (u64)l->home != segment))
		return;
	const struct hot *h = hot_of(l, (u64)&f->ra, f->ra);
	u32 serial = look(&h->serial);
	if (unlikely(!as_it_was(segment, l, h, f)))
		return;
	const struct word *end = h->end;
	if (likely(end != h->word)) {
		if (unlikely(!words_fit(h, end)))
			return;
	} else if (h->varied) {
		entry_varied(l, f, h, serial);
		return;
	}
	u64 block = h->block, *counter = h->counter, record = h->record, relocated = h->relocated;
	if (likely(serial == look(&h->serial)))
		finish_entry(l, f, block, counter, record, relocated);
}

/* Exit of a call: puts its return address into its slot, 0 if handlers.c is to do it. */
void wh_fast_exit(u64 *slot)
{
	u64 segment = G.fast;
	struct local *l;

	if (unlikely(segment & 1))
		goto otherwise;
	l = wh_own.local;
	if (unlikely(!l || (u64)l->home != segment || !booked(segment, l, wh_own.block, (u64)slot)))
		goto otherwise;
	*slot = *(u64 *)((u64)slot + WH_SHADOW);
	return;
otherwise:
	*slot = 0;
}

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

/* Keeps the values of `fresh` beside others of the entry `h`. */
static void vary(struct local *l, const struct hot *h, const struct hot *fresh)
{
	u64 hash = h->serial;

	for (u32 i = 0; i < fresh->words; i += 4)
		hash = mixed(hash, fresh->word[i].value, fresh->word[i + 1].value, fresh->word[i + 2].value,
			     fresh->word[i + 3].value);
	struct variant *v = variant_of(l, hash);
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
	h->end = h->word + (h->varied ? 0 : h->words);
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
	fresh->words = 0;
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
