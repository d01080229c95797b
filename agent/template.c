/*
 * Paths learnt as templates: the words that a walk relied on, so that the next call of the same path is
 * recognised by comparing them all at once, each read independent of the others where the stack lasts as long as its thread. It proves as much as
 * the walk does: equal return addresses at the places where equal rules find them. Constraints: private
 * to the thread; a template may be overwritten at any time by a signal handler's call, so its path is
 * read before its words are compared.
 */
#include "template.h"

/* Multiplied by odd numbers without pattern: a word's place matters as much as its value. So does the innermost call in
 * progress: where a function calls itself, the words are the same at each depth but for the path that is joined. */
static inline u32 template_place(const struct local *l, const struct shape *s, u64 slot, u64 last)
{
	u32 n = l->block->n_active - 1;
	u64 hash = s->serial + (n < WH_ACTIVE ? l->block->active[n].path * 0xff51afd7ed558ccdull : 0);

	for (u32 i = 0; i < s->words; i += 4)
		hash = hash * 0xbf58476d1ce4e5b9ull + word(s, slot, i, last) * 0x9e3779b97f4a7c15ull +
		       word(s, slot, i + 1, last) * 0xd6e8feb86659fd93ull + word(s, slot, i + 2, last) * 0x94d049bb133111ebull +
		       word(s, slot, i + 3, last) * 0xff51afd7ed558ccdull;
	return (u32)(hash >> 40) % TEMPLATES;
}

/* Whether a signal handler's call has put others in their places. */
static inline int taken(const struct shape *s, const struct template *t, u32 serial)
{
	barrier();
	int other = *(const volatile u32 *)&s->serial != serial || *(const volatile u32 *)&t->serial != serial;
	barrier();
	return other;
}

/* The same where memory around the frames may be unmapped at any time: each word is read only when those before, further in,
 * are as they were, and so are the frame pointers among them: this proves that its frame is there. */
static slow_path u32 template_fits_in_order(const struct local *l, const struct shape *s, const struct template *t, u64 slot, u64 rbp)
{
	u32 path = t->path, serial = *(const volatile u32 *)&s->serial, n = s->words;
	u64 last = s->reach - 8;
	u32 met = 0;

	if (t->serial != serial || (t->live != ~0ull && t->live != rbp - slot))
		return 0;
	for (u32 i = 0; i < n; i++) {
		u64 offset = *(const volatile u32 *)&s->offset[i], value = t->room[i];

		for (; met < t->relatives && relative(t, met).offset < offset; met++) {
			struct relative r = relative(t, met);

			if (taken(s, t, serial) || *(const u64 *)(slot + r.offset) != slot + (u64)(s64)r.value)
				return 0;
		}
		/* The first word of a page no frame further in proves, see walk.c. */
		if ((offset && !((slot + offset) & (PAGE - 1))) || taken(s, t, serial) || *(const u64 *)(slot + offset) != value)
			return 0;
	}
	return !taken(s, t, serial) && rest_fits(l, t, slot, rbp, last) ? path : 0;
}

/* All templates of both shapes of this call site; 0: none fits. */
u32 template_search(struct local *l, u32 point, u64 slot, u64 rbp, struct match *match)
{
	u64 ra = *(const u64 *)slot, last = surely_up_to(l, slot) - 8 - slot;
	struct shape *s = shapes_of(l, point, ra);

	match->learnt = *(volatile u32 *)&l->learnt;
	barrier();
	for (int way = 0; way < 2; way++, s++) {
		if (!shape_fits(s, point, ra) || (l->stack.lasting && s->reach > last + 8))
			continue;
		u32 place = template_place(l, s, slot, last);
		u32 path = likely(l->stack.lasting) ? template_fits(l, s, &l->templates[place], slot, rbp, last)
						    : template_fits_in_order(l, s, &l->templates[place], slot, rbp);
		if (path) {
			match->shape = s;
			match->template = &l->templates[place];
			return path;
		}
	}
	return 0;
}

static int same_shape(const struct shape *a, const struct shape *b)
{
	if (a->words != b->words)
		return 0;
	for (u32 i = 0; i < a->words; i++)
		if (a->offset[i] != b->offset[i])
			return 0;
	return 1;
}

/* Rounds the words up to a multiple of four by repeating the first. */
static void pad(struct trace *t)
{
	while (t->shape.words % 4) {
		t->shape.offset[t->shape.words] = t->shape.offset[0];
		t->template.room[t->shape.words++] = t->template.room[0];
	}
}

static u64 reach(const struct trace *t)
{
	u64 most = 0;

	for (u32 i = 0; i < t->shape.words; i++)
		if (t->shape.offset[i] > most)
			most = t->shape.offset[i];
	for (u32 i = 0; i < t->template.relatives; i++)
		if (relative(&t->template, i).offset > most)
			most = relative(&t->template, i).offset;
	return most + 8;
}

/* Keeps what the last walk saw. Where call sites have more shapes than are kept, not every miss is worth
 * the copying. */
void template_learn(struct local *l, u32 point, u64 slot, u32 path)
{
	struct trace *t = &l->trace;
	u64 ra = *(const u64 *)slot;
	struct shape *s = shapes_of(l, point, ra);

	if (s[0].serial && s[1].serial && l->misses++ % 4)
		return;
	l->learnt++;
	barrier();
	pad(t);
	t->shape.reach = reach(t);
	for (int way = 0; way < 2; way++)
		if (s[way].serial && s[way].point == point && s[way].ra == ra && same_shape(&s[way], &t->shape)) {
			s += way;
			goto known;
		}
	u32 before = s->serial;
	s[0].serial = s[1].serial = 0;
	barrier();
	s[1] = s[0];
	barrier();
	s[1].serial = before;
	*s = t->shape;
	s->point = point;
	s->ra = ra;
	barrier();
	s->serial = next_serial(l);
known:
	if (t->shape.reach > s->reach)
		s->reach = t->shape.reach;
	struct template *to = &l->templates[template_place(l, s, slot, surely_up_to(l, slot) - 8 - slot)];
	to->serial = 0;
	barrier();
	to->path = path;
	to->relatives = t->template.relatives;
	to->join = t->template.join;
	to->join_path = t->template.join_path;
	to->live = t->template.live;
	for (u32 i = 0; i < s->words; i++)
		to->room[i] = t->template.room[i];
	for (u32 i = ROOM - to->relatives; i < ROOM; i++)
		to->room[i] = t->template.room[i];
	barrier();
	to->serial = s->serial;
}

void templates_forget(struct local *l)
{
	l->learnt++;
	barrier();
	for (u32 i = 0; i < SHAPES; i++)
		l->shapes[i][0].serial = l->shapes[i][1].serial = 0;
}
