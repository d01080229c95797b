/*
 * What happens at entries and exits of probed functions. Lives here: the order of things on the hot
 * path. Constraints: async-signal-safe at every instruction (a signal handler may call a probed
 * function while we are here: it passes through and is counted as lost); the true return address comes
 * from the shadow alone, so an exit is right whatever happened to the records; no call out, no lock,
 * general registers only.
 */
#include "agent.h"

#define NEEDS_CLOCK (WH_DO_WALL | WH_DO_CPU | WH_DO_HIST | WH_DO_EMIT)
#define NEEDS_WORDS (WH_DO_VALUES | WH_DO_EMIT)
#define BUSY_SHIFT 28 /* 2^28 ticks, about 100 ms: no one stays in the agent that long */

/* The in-agent mark is set: does it still hold? A handler that was left by siglongjmp leaves it behind:
 * stale once a call comes from further out on that stack, or after long. */
static slow_path int busy_holds(struct wh_thread *t, u64 slot)
{
	u64 now = ticks();

	if (slot >= t->busy_sp && slot - t->busy_sp < 0x100000)
		return 0;
	if (!t->busy_tsc)
		t->busy_tsc = now;
	return (now - t->busy_tsc) >> BUSY_SHIFT == 0;
}

static inline void leave(struct wh_thread *t)
{
	barrier();
	t->busy_sp = 0;
}

static inline void enter(struct wh_thread *t, u64 slot)
{
	t->busy_sp = slot;
	t->busy_tsc = 0;
	barrier();
}

/* Whether the controller gives no sign any more. */
static inline int silent(u64 now)
{
	const struct wh_header *h = header();
	s64 age = (s64)(now - h->heartbeat);

	return unlikely(h->patience && age > 0 && (u64)age > h->patience);
}

/* Rare checks before an entry is recorded; 0: pass through. */
static slow_path int recheck(struct local *l)
{
	if (l->generation != header()->generation) {
		l->generation = header()->generation;
		for (u32 i = 0; i < CACHE; i++)
			l->cache[i] = 0;
		for (u32 i = 0; i < HINTS; i++)
			l->hint[i] = 0;
	}
	u64 now = ticks();
	l->deaf = (u32)silent(now);
	if (G.way == 2 && now - l->checked > 1 << 21) {
		l->checked = now;
		if (!same_thread(l)) { /* a new thread at the place of a dead one */
			l->home = 0;
			return 0;
		}
	}
	return !l->deaf;
}

/* The thread that may record an entry at `slot`, with its mark set; 0: pass through. */
static inline struct local *begin(const struct wh_point *p, u64 slot)
{
	struct local *l;

	if (unlikely(!header()->enabled || p->state != WH_POINT_ON))
		return 0;
	l = local_of_thread();
	if (unlikely(!l || l->home != G.segment)) {
		l = thread_join();
		if (!l) {
			count_lost(WH_LOST_TABLE);
			return 0;
		}
	}
	struct wh_thread *t = l->block;
	if (unlikely(t->busy_sp) && busy_holds(t, slot)) {
		t->lost[WH_LOST_BUSY]++;
		return 0;
	}
	enter(t, slot);
	if (unlikely((++l->entries & 1023) == 0 || l->deaf || l->generation != header()->generation) && !recheck(l)) {
		leave(t);
		return 0;
	}
	if (unlikely(slot - l->stack.lo >= l->stack.hi - l->stack.lo) && !stack_enter(l, slot)) {
		leave(t);
		count_lost(WH_LOST_TABLE);
		return 0;
	}
	return l;
}

static inline u32 path_of(struct local *l, const struct wh_point *p, u64 slot, u64 rbp)
{
	return likely(p->flags & WH_DO_PATH) ? find_path(l, p, slot, rbp) : root_path(p);
}

/* One instruction: a signal in between cannot lose a count. */
static inline void count_call(struct wh_block *b)
{
	__asm__ volatile("incq %0" : "+m"(b->calls));
}

/* Entry of a point that only counts. Answers where to go on. */
u64 wh_on_count(u64 index, u64 slot, const struct regs *regs, u64 rbp)
{
	const struct wh_point *p = point_at(index);
	struct local *l;

	if (unlikely(p->flags & WH_DO_LOADER)) {
		if (p->state == WH_POINT_ON)
			loader_changed();
		return p->relocated;
	}
	l = begin(p, slot);
	if (unlikely(!l))
		return p->relocated;
	struct wh_thread *t = l->block;
	if (unlikely(t->n_active && record(l, t->n_active - 1)->slot <= slot))
		drop_stale(l, slot);
	u32 path = path_of(l, p, slot, rbp) & ~WH_FOLDED;
	struct wh_block *b = path ? block_of(l, path) : 0;
	if (unlikely(!b)) {
		t->lost[WH_LOST_TABLE]++;
	} else {
		count_call(b);
		if (unlikely(p->flags & NEEDS_WORDS)) {
			values_at_entry(l, p, WH_ACTIVE - 1, slot, regs, p->flags & WH_DO_VALUES ? b : 0);
			if (p->flags & WH_DO_EMIT) {
				struct wh_active r = {.t0 = ticks(), .path = path, .point = (u32)index};

				emit(l, p, &r, WH_ACTIVE - 1, 0, 0);
			}
		}
	}
	leave(t);
	return p->relocated;
}

static inline void push(struct wh_thread *t, struct wh_active *r, u64 slot, u32 path, u32 point)
{
	t->seq_active++;
	barrier();
	r->slot = slot;
	r->t0 = 0;
	r->cpu0 = 0;
	r->path = path;
	r->point = point;
	r->usage = 0;
	barrier();
	t->n_active++;
	barrier();
	t->seq_active++;
}

/* Last of all at an entry, so that little of our own time is measured. */
static inline void start_clocks(struct local *l, u32 flags, struct wh_active *r)
{
	if (unlikely(flags & WH_DO_USAGE))
		usage_now(&r->usage, &r->major);
	if (flags & WH_DO_CPU) {
		if (unlikely(!clock_anchored(l)))
			clock_anchor(l);
		r->t0 = ticks();
		r->cpu0 = clock_cpu(l, r->t0) | 1;
	} else {
		r->t0 = ticks();
	}
	if (silent(r->t0))
		l->deaf = 1;
}

/* Entry of a point whose exit is seen. */
struct answer wh_on_entry(u64 index, u64 slot, const struct regs *regs, u64 rbp)
{
	const struct wh_point *p = point_at(index);
	struct answer answer = {p->relocated, 1};
	struct local *l = begin(p, slot);

	if (unlikely(!l))
		return answer;
	struct wh_thread *t = l->block;
	u32 flags = p->flags;
	if (unlikely(t->n_active && record(l, t->n_active - 1)->slot <= slot))
		drop_stale(l, slot);

	u32 found = path_of(l, p, slot, rbp), path = found & ~WH_FOLDED;
	struct wh_block *b = path ? block_of(l, path) : 0;
	struct wh_active *r = record(l, t->n_active);
	if (unlikely(!b || !r)) {
		t->lost[b ? WH_LOST_DEPTH : WH_LOST_TABLE]++;
		leave(t);
		return answer;
	}
	count_call(b);
	if (unlikely(l->stack.no_shadow)) {
		t->lost[WH_LOST_SHADOW]++;
		leave(t);
		return answer;
	}
	u64 ra = *(const u64 *)slot;
	if (likely(ra != G.exit)) /* else a tail call out of a probed function: the shadow is right */
		*(u64 *)(slot + WH_SHADOW) = ra;
	u32 place = t->n_active;
	push(t, r, slot, path, (u32)index);
	if (unlikely(flags & NEEDS_WORDS))
		values_at_entry(l, p, place, slot, regs, flags & WH_DO_VALUES ? b : 0);
	if ((flags & (NEEDS_CLOCK | WH_DO_USAGE)) && likely(!(found & WH_FOLDED)))
		start_clocks(l, flags, r);
	leave(t);
	answer.pass = 0;
	return answer;
}

static slow_path void add_usage(struct wh_more *m, const struct wh_active *r)
{
	u64 usage, major;

	usage_now(&usage, &major);
	m->switches += (u32)((usage >> 32) - (r->usage >> 32));
	m->faults_minor += (u32)((u32)usage - (u32)r->usage);
	m->faults_major += major - r->major;
}

/* Books a completed call. `end` 0: it was not timed. */
static inline void book(struct local *l, const struct wh_point *p, const struct wh_active *r, u32 index, u64 end, u64 ret)
{
	struct wh_block *b = block_of(l, r->path);
	u32 flags = p->flags;

	if (unlikely(!b))
		return;
	b->seq++;
	barrier();
	if (likely(end)) {
		u64 wall = end - r->t0;

		if (unlikely((s64)wall < 1))
			wall = 1;
		b->wall += wall;
		if (unlikely(wall > b->max))
			b->max = wall;
		if (unlikely(wall - 1 < b->min - 1)) /* min 0: none yet */
			b->min = wall;
		if (r->cpu0) {
			if (unlikely(!clock_anchored(l)))
				clock_anchor(l);
			s64 cpu = (s64)(clock_cpu(l, end) - r->cpu0);
			b->cpu += cpu > 0 ? (u64)cpu : 0;
		}
		if (unlikely(flags & (WH_DO_HIST | WH_DO_USAGE))) {
			struct wh_more *m = more_of(l, b);

			if (m) {
				m->done++;
				m->hist[63 - __builtin_clzll(wall)]++;
				if (r->usage)
					add_usage(m, r);
			}
		}
	}
	if (unlikely(flags & WH_DO_VALUES))
		values_at_exit(p, ret, b);
	barrier();
	b->seq++;
	if (unlikely(flags & WH_DO_EMIT))
		emit(l, p, r, index, end ? end : ticks(), ret);
}

/* The exit's record is not the innermost: longjmp, another stack, a forked child, a lost record. */
static slow_path void exit_slow(struct local *l, u64 slot, u64 ret)
{
	struct wh_active r;

	if (take_record(l, slot, &r))
		book(l, point_at(r.point), &r, WH_ACTIVE, r.t0 ? ticks() : 0, ret);
	else
		l->block->lost[WH_LOST_EXIT]++;
}

/* Exit of a call. Answers its true return address. */
u64 wh_on_exit(u64 slot, const struct regs *regs)
{
	u64 ra = *(const u64 *)(slot + WH_SHADOW);
	struct local *l;

	if (unlikely(!G.segment))
		return ra;
	l = local_of_thread();
	if (unlikely(!l || l->home != G.segment)) {
		count_lost(WH_LOST_EXIT);
		return ra;
	}
	struct wh_thread *t = l->block;
	if (unlikely(t->busy_sp) && busy_holds(t, slot)) {
		t->lost[WH_LOST_EXIT]++;
		return ra;
	}
	enter(t, slot);
	u32 n = t->n_active;
	struct wh_active *r = likely(n) ? record(l, n - 1) : 0;
	if (likely(r && r->slot == slot)) {
		do { /* more than one: functions that ended by tail calls return together */
			book(l, point_at(r->point), r, n - 1, r->t0 ? ticks() : 0, regs->rax);
			t->n_active = --n;
			r = n ? record(l, n - 1) : 0;
		} while (unlikely(r && r->slot == slot));
	} else {
		exit_slow(l, slot, regs->rax);
	}
	leave(t);
	return ra;
}
