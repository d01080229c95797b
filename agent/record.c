/*
 * Words taken from calls: summed into the path's block, or written with times to the thread's ring.
 * Constraints: pointers are followed only where the controller says that the callee follows them too;
 * a full ring drops the record and counts it, nothing ever waits.
 */
#include "agent.h"

#define RING_DATA (WH_RING_BYTES - 64u)

static u64 narrow(u64 word, const struct wh_extra *x)
{
	u32 spare = x->width < 8 ? 64 - x->width * 8u : 0;

	if (spare >= 64)
		return 0;
	return x->flags & WH_SIGNED ? (u64)((s64)(word << spare) >> spare) : word << spare >> spare;
}

/* Follows the pointers; a null or kernel-side one gives 0. */
static u64 loaded(u64 word, const struct wh_extra *x)
{
	for (u32 i = 0; i < x->loads && i < 2; i++) {
		u64 at = word + (u64)(s64)x->offset[i];

		if (word < PAGE || at < PAGE || at >> 47)
			return 0;
		__builtin_memcpy(&word, (const void *)at, 8);
	}
	return word;
}

/* The last load is as wide as the value, so that it does not read behind the object. */
static u64 taken(u64 word, const struct wh_extra *x)
{
	struct wh_extra first = *x;

	if (!x->loads)
		return narrow(word, x);
	first.loads = x->loads > 2 ? 1 : (u8)(x->loads - 1);
	word = loaded(word, &first);
	u64 at = word + (u64)(s64)x->offset[first.loads];
	if (word < PAGE || at < PAGE || at >> 47)
		return 0;
	switch (x->width) {
	case 1: word = *(const u8 *)at; break;
	case 2: word = *(const u16 *)at; break;
	case 4: word = *(const u32 *)at; break;
	default: word = *(const u64 *)at; break;
	}
	return narrow(word, x);
}

/* Reads where nothing need be mapped, or no more by the time of reading; how many bytes it got. */
slow_path u64 read_asking(const struct local *l, u64 at, void *to, u64 bytes)
{
	struct {
		u64 base, bytes;
	} local = {(u64)to, bytes}, remote = {at, bytes};
	s64 got = G.locked ? 0 : sys6(SYS_PROCESS_VM_READV, l->block->pid, (u64)&local, 1, (u64)&remote, 1, 0);

	return got > 0 ? (u64)got : 0;
}

/* The user may have named an argument that the function has not, and above the first frame of a stack nothing need be
 * mapped: only the page of the slot itself is read without asking. What is known of the stack may be out of date. */
static int stack_word(const struct local *l, u64 slot, u64 at, u64 *word)
{
	if (unlikely((at + 7) / PAGE != slot / PAGE))
		return read_asking(l, at, word, 8) == 8;
	*word = *(const u64 *)at;
	return 1;
}

static u64 source(const struct wh_extra *x, const struct regs *r)
{
	switch (x->source) {
	case WH_ARG1: return r->rdi;
	case WH_ARG2: return r->rsi;
	case WH_ARG3: return r->rdx;
	case WH_ARG4: return r->rcx;
	case WH_ARG5: return r->r8;
	case WH_ARG6: return r->r9;
	case WH_CONST: return (u64)(s64)x->offset[0];
	default: return 0;
	}
}

/* Sums are signed and stop at the largest value, which the reader takes for "at least": one that wrapped would look like any
 * other. */
static void add(struct wh_block *b, const struct wh_extra *x, u64 word)
{
	s64 sum;

	if (!b || x->value >= 2)
		return;
	if (__builtin_add_overflow((s64)b->value[x->value], (s64)word, &sum))
		sum = (s64)word < 0 ? -(s64)(~0ull >> 1) - 1 : (s64)(~0ull >> 1);
	b->value[x->value] = (u64)sum;
}

/* A word known at entry; 0: it cannot be read. */
static int entry_word(struct local *l, const struct wh_extra *x, u64 slot, const struct regs *regs, u64 *word)
{
	*word = 0;
	if (x->source != WH_STACK_ARG)
		*word = source(x, regs);
	else if (!stack_word(l, slot, slot + 8 + 8ull * x->number, word))
		return 0;
	if (x->source != WH_CONST)
		*word = taken(*word, x);
	return 1;
}

/* Words known at entry: summed into `b`, kept for the event record of active[index]. */
slow_path void values_at_entry(struct local *l, const struct wh_point *p, u32 index, u64 slot, const struct regs *regs,
			       struct wh_block *b)
{
	u32 n = extras(p);

	if ((p->flags & WH_DO_EMIT) && !l->words && !G.locked)
		l->words = map_own((u64)WH_ACTIVE * sizeof(*l->words));
	/* No step of b->seq here: its steps count the exits, and a lone sum cannot be read torn. */
	for (u32 i = 0; i < n; i++) {
		const struct wh_extra *x = extra_at(p, i);

		if (x->source == WH_RET || x->source == WH_EVENT)
			continue;
		u64 word;
		if (likely(entry_word(l, x, slot, regs, &word)))
			add(b, x, word);
		else
			l->block->lost[WH_LOST_VALUE]++;
		if (l->words && index < WH_ACTIVE)
			l->words[index][i] = word;
	}
}

/* Sums of the return value. The caller holds the block's sequence. */
slow_path void values_at_exit(const struct wh_point *p, u64 ret, struct wh_block *b)
{
	for (u32 i = 0; i < extras(p); i++)
		if (extra_at(p, i)->source == WH_RET)
			add(b, extra_at(p, i), taken(ret, extra_at(p, i)));
}

static struct wh_ring *ring_of(struct wh_thread *t)
{
	if (!t->ring) {
		if (header()->next_ring >= WH_MAX_RINGS)
			return 0;
		u32 index = __atomic_fetch_add(&header()->next_ring, 1, __ATOMIC_RELAXED);
		if (index >= WH_MAX_RINGS)
			return 0;
		t->ring = index + 1;
	}
	return (struct wh_ring *)(G.segment + WH_AT_RINGS + (u64)(t->ring - 1) * WH_RING_BYTES);
}

/* Room for a record of so many bytes, not wrapping; 0: full. */
static struct wh_record *reserve(struct wh_ring *ring, u32 bytes, u64 *head)
{
	u64 tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
	u32 at = (u32)(*head % RING_DATA), rest = RING_DATA - at;
	u32 filler = rest < bytes ? rest : 0;

	if (*head + filler + bytes - tail > RING_DATA)
		return 0;
	if (filler) {
		struct wh_record *fill = (struct wh_record *)((char *)ring + 64 + at);

		fill->bytes = (u16)filler;
		fill->kind = 0;
		*head += filler;
		at = 0;
	}
	return (struct wh_record *)((char *)ring + 64 + at);
}

/* A record of the call `r` = active[index]; `end` 0: only its entry is known. */
slow_path void emit(struct local *l, const struct wh_point *p, const struct wh_active *r, u32 index, u64 end, u64 ret)
{
	struct wh_thread *t = l->block;
	struct wh_ring *ring = ring_of(t);
	u32 n = extras(p), bytes = (u32)sizeof(struct wh_record) + n * 8;
	u64 head = ring ? ring->head : 0;
	struct wh_record *to = ring && index < WH_ACTIVE && l->words ? reserve(ring, bytes, &head) : 0;

	if (!to) {
		if (ring)
			ring->lost++;
		t->lost[WH_LOST_RING]++;
		return;
	}
	to->bytes = (u16)bytes;
	to->kind = end ? 1 : 2;
	to->point = r->point;
	to->start = r->t0;
	to->end = end;
	to->path = r->path & ~WH_FOLDED;
	to->tid = t->tid;
	to->ret = ret;
	for (u32 i = 0; i < n; i++)
		to->word[i] = extra_at(p, i)->source == WH_RET ? taken(ret, extra_at(p, i)) : l->words[index][i];
	__atomic_store_n(&ring->head, head + bytes, __ATOMIC_RELEASE);
}

/* Context switches << 32 | minor faults, and major faults of this thread so far. */
slow_path void usage_now(u64 *usage, u64 *major)
{
	u64 r[18] = {0}; /* struct rusage: two times, then 14 counts */

	if (!G.locked)
		sys2(SYS_GETRUSAGE, 1 /* RUSAGE_THREAD */, r);
	*usage = (r[16] + r[17]) << 32 | (u32)r[8];
	*major = r[9];
}
