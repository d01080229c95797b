/*
 * Paths learnt as templates: the words that a walk relied on, so that the next call of the same path is
 * recognised by comparing them all at once, each read independent of the others. So only words that can be read whatever has become of
 * the frames count: on stacks that the program may unmap, those on the page of the slot. It proves as much as
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

/* All templates of both shapes of this call site; 0: none fits. */
u32 template_search(struct local *l, u32 point, u64 slot, u64 rbp, struct match *match)
{
	u64 ra = *(const u64 *)slot, last = surely_up_to(l, slot) - 8 - slot;
	struct shape *s = shapes_of(l, point, ra);

	match->learnt = *(volatile u32 *)&l->learnt;
	barrier();
	for (int way = 0; way < 2; way++, s++) {
		if (!shape_fits(s, point, ra, last))
			continue;
		u32 place = template_place(l, s, slot, last);
		u32 path = template_fits(l, s, &l->templates[place], slot, rbp, last);
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
	u64 last = surely_up_to(l, slot) - 8 - slot;

	t->shape.reach = reach(t);
	if (t->shape.reach > last + 8 || (s[0].serial && s[1].serial && l->misses++ % 4))
		return;
	l->learnt++;
	barrier();
	pad(t);
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
	struct template *to = &l->templates[template_place(l, s, slot, last)];
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
