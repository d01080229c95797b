/*
 * Where a ticked thread is: its frames by unwind rows, the first frame in scope, and whether what the window speeds
 * up is there. As bpf/causal_walk.h says it for the kernel side. Constraint: a word of the stack is read only where
 * a page was found readable; tables that the controller is changing decide nothing.
 */
#include "pace.h"

#define DEPTH 32u
/* Frame pointers farther apart than this are none. */
#define LARGEST_FRAME (1ull << 20)
/* A stack is known page by page: so many at once. */
#define STEP 16u

struct place {
	u64 pc, slot, bp; /* slot: the return address of the frame at pc */
};

/* Index of the last of n rows of three words that begins at or below an address, plus one. */
static u64 row_below(const u64 *rows, u64 n, u64 address)
{
	u64 low = 0, high = n;

	while (low < high) {
		u64 mid = low + (high - low) / 2;

		if (rows[mid * 3] <= address)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static u64 third_word_at(u64 table, u64 n, u64 most, u64 address)
{
	const u64 *rows = (const u64 *)(G.segment + table);
	u64 i = row_below(rows, n < most ? n : most, address);

	return i && address < rows[i * 3 - 2] ? rows[i * 3 - 1] : 0;
}

static u64 marks_at(const struct wh_pace_ctl *c, u64 address)
{
	return third_word_at(WH_AT_PACE_MARKS, c->n_marks, WH_PACE_MARKS, address);
}

static u64 in_scope(const struct wh_pace_ctl *c, u64 address)
{
	return third_word_at(WH_AT_PACE_SCOPES, c->n_scopes, WH_PACE_SCOPES, address);
}

/* Whether the stack can be read up to `end`, from `sp` on. */
static int reachable(struct wh_pace_slot *s, u64 sp, u64 end)
{
	if (sp < s->stack_low || sp >= s->stack_top) {
		s->stack_low = sp & ~(PAGE - 1);
		s->stack_top = s->stack_low + PAGE; /* it was just written to */
	}
	for (u32 i = 0; end > s->stack_top; i++) {
		if (i == STEP || !readable(s->stack_top))
			return 0;
		s->stack_top += PAGE;
	}
	return 1;
}

static int word_of(struct wh_pace_slot *s, u64 sp, u64 at, u64 *word)
{
	if ((at & 7) || at < sp || at - sp > LARGEST_FRAME * DEPTH || !reachable(s, sp, at + 8))
		return 0;
	*word = *(const u64 *)at;
	return 1;
}

/* From the frame at pc to the slot of its return address. */
static int to_slot(struct wh_pace_slot *s, struct place *p, u64 sp, u64 address)
{
	u32 rule = rule_of(address + 1);
	u64 next, saved;

	switch (rule & 7) {
	case WH_RULE_RSP:
		next = p->slot + (u64)(rule >> 3 & 0x3fff) * 8;
		break;
	case WH_RULE_RBP:
		next = p->bp + (u64)(rule >> 3 & 0x3fff) * 8 - 8;
		break;
	case WH_RULE_FP:
		if (p->bp <= p->slot || p->bp - p->slot > LARGEST_FRAME)
			return 0;
		next = p->bp + 8;
		if (!word_of(s, sp, p->bp, &p->bp))
			return 0;
		break;
	case WH_RULE_BIG:
		if (!reachable(s, sp, p->slot + PAGE) || !big_step(rule, p->slot, &p->bp, sp, s->stack_top, &next))
			return 0;
		break;
	default:
		return 0;
	}
	if (((rule & 7) == WH_RULE_RSP || (rule & 7) == WH_RULE_RBP) && rule & 1 << 17) {
		saved = next + 8 + (u64)((s64)(s32)rule >> 18) * 8;
		if (!word_of(s, sp, saved, &p->bp))
			return 0;
	}
	p->slot = next;
	return 1;
}

struct decision {
	u64 unit, callers, caller;
	int decided;
};

static void check(struct paced_walk *w, struct decision *d, const struct wh_pace_ctl *c, u64 address)
{
	u64 ours = in_scope(c, address);

	if (ours && w->site && d->unit == WH_CZ_FIRST && !d->decided) {
		/* A further frame in scope has to be the next caller, when some are asked for. */
		if (!(marks_at(c, address) & (WH_CZ_CALLER << (d->caller & 7)))) {
			w->hit = 0;
			d->decided = 1;
		} else {
			d->decided = ++d->caller >= d->callers;
		}
	}
	if (ours && !w->site) {
		w->site = address;
		w->marks = marks_at(c, address);
		if (d->unit == WH_CZ_FIRST) {
			w->hit = w->marks & WH_CZ_TARGET;
			d->decided = !w->hit || !d->callers;
		} else if (d->unit != WH_CZ_INCLUSIVE) {
			d->decided = 1;
		}
	}
	if (d->unit == WH_CZ_INCLUSIVE && !w->hit)
		w->hit = marks_at(c, address) & WH_CZ_TARGET;
}

/* Looks at the thread that was interrupted with these registers. */
void pace_walk(struct wh_pace_slot *s, const struct wh_pace_ctl *c, u64 ip, u64 sp, u64 bp, struct paced_walk *w)
{
	u64 layout = __atomic_load_n(&c->layout, __ATOMIC_ACQUIRE);
	struct place p = {ip, sp - 8, bp};
	struct decision d = {c->unit, c->callers, 0, 0};

	w->hit = w->site = w->marks = 0;
	w->n = 0;
	s->stack_top = 0; /* the program may have unmapped what was there at the last tick */
	for (u32 i = 0; i < DEPTH; i++) {
		u64 address = i ? p.pc - 1 : p.pc; /* a return address may be the first one behind its function */

		if (i < WH_CZ_FRAMES)
			w->frames[w->n++] = p.pc;
		check(w, &d, c, address);
		if (d.decided && w->n >= WH_CZ_FRAMES)
			break;
		if (!to_slot(s, &p, sp, address) || !word_of(s, sp, p.slot, &p.pc) || !p.pc)
			break;
	}
	if (d.unit == WH_CZ_FIRST && d.caller < d.callers)
		w->hit = 0;
	if (layout & 1 || __atomic_load_n(&c->layout, __ATOMIC_ACQUIRE) != layout)
		w->hit = w->site = w->marks = 0;
}
