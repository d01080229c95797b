/*
 * What happens at entries and exits of probed functions. Lives here: the order of things. Each handler
 * has a fast form that calls nothing and a slow one that can do everything; the fast one gives up
 * before it has changed anything. Constraints: async-signal-safe at every instruction (a signal handler may call a probed
 * function while we are here: it passes through and is counted as lost); the true return address comes
 * from the shadow alone, so an exit is right whatever happened to the records; no call out, no lock,
 * general registers only.
 */
#include "template.h"

#define NEEDS_CLOCK (WH_DO_WALL | WH_DO_CPU | WH_DO_HIST | WH_DO_EMIT)
#define NEEDS_WORDS (WH_DO_VALUES | WH_DO_EMIT)
#define BUSY_SHIFT 28 /* 2^28 ticks, about 100 ms: no one stays in the agent that long */

/* The in-agent mark is set: does it still hold? A handler that was left by siglongjmp leaves it behind:
 * stale once a call comes from further out on that stack, or after long. */
static slow_path int busy_holds(const struct local *l, u64 slot)
{
	struct wh_thread *t = l->block;

	if (l->strict)
		return 1;
	u64 now = ticks();
	if (slot >= t->busy_sp && t->busy_sp >= l->stack.lo && slot < l->stack.top)
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
		templates_forget(l);
	}
	u64 now = ticks();
	l->deaf = (u32)silent(now);
	if (G.way == 2 && !G.locked && now - l->checked > 1 << 17) {
		l->checked = now;
		if (!same_thread(l))
			return 0;
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
	if (unlikely(t->busy_sp) && busy_holds(l, slot)) {
		t->lost[WH_LOST_BUSY]++;
		return 0;
	}
	/* Before the mark is set, which would be another's: CLONE_VM on a stack of its own. */
	if (unlikely(slot - l->stack.lo >= l->stack.hi - l->stack.lo) && !stack_ours(l, slot)) {
		count_lost(WH_LOST_TABLE);
		return 0;
	}
	enter(t, slot);
	l->entries++;
	if (unlikely((l->entries & G.often) == 0 || l->deaf || l->generation != header()->generation) && !recheck(l)) {
		leave(t);
		if (!l->deaf)
			count_lost(WH_LOST_TABLE);
		return 0;
	}
	if (unlikely(slot - l->stack.lo >= l->stack.hi - l->stack.lo) && !stack_enter(l, slot)) {
		leave(t);
		count_lost(WH_LOST_TABLE);
		return 0;
	}
	return l;
}

static inline u32 path_of(struct local *l, const struct wh_point *p, u64 point, u64 slot, u64 rbp)
{
	u32 path;

	if (!(p->flags & WH_DO_PATH))
		return root_path(p);
	path = template_last(l, (u32)point, slot, rbp);
	return path ? path : find_path(l, p, (u32)point, slot, rbp);
}

/* One instruction: a signal in between cannot lose a count. */
static inline void count_call(struct wh_block *b)
{
	__asm__ volatile("incq %0" : "+m"(b->calls));
}

static slow_path u64 count_slow(u64 index, u64 slot, const struct regs *regs, u64 rbp)
{
	const struct wh_point *p = point_at(index);
	struct local *l;

	if (unlikely(p->flags & (WH_DO_LOADER | WH_DO_LOCK))) {
		if (p->flags & WH_DO_LOCK)
			before_lock(p, slot, regs);
		else if (p->state == WH_POINT_ON)
			loader_changed();
		return p->relocated;
	}
	l = begin(p, slot);
	if (unlikely(!l))
		return p->relocated;
	struct wh_thread *t = l->block;
	if (unlikely(t->n_active && record(l, t->n_active - 1)->slot <= slot))
		drop_stale(l, slot);
	u32 path = path_of(l, p, index, slot, rbp) & ~WH_FOLDED;
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
	update_begin(&t->seq_active);
	r->slot = slot;
	r->t0 = 0;
	r->cpu0 = 0;
	r->path = path;
	r->point = point;
	r->usage = 0;
	barrier();
	t->n_active++;
	update_end(&t->seq_active);
}

/* Last of all at an entry, so that little of our own time is measured. */
static inline void start_clocks(struct local *l, u32 flags, struct wh_active *r)
{
	if (unlikely(flags & WH_DO_USAGE))
		usage_now(&r->usage, &r->major);
	if (flags & WH_DO_CPU) {
		int known = 1;

		do {
			if (unlikely(!clock_anchored(l)))
				known = clock_anchor(l);
			r->t0 = ticks();
		} while (unlikely(known && l->block->cpu_mode == 1 && !clock_anchored(l)));
		if (likely(known))
			r->cpu0 = clock_cpu(l, r->t0) | 1;
	} else {
		r->t0 = ticks();
	}
	if (silent(r->t0))
		l->deaf = 1;
}

static slow_path struct answer entry_slow(u64 index, u64 slot, const struct regs *regs, u64 rbp)
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

	u32 found = path_of(l, p, index, slot, rbp), path = found & ~WH_FOLDED;
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

	if (G.locked)
		return;
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
	update_begin(&b->seq);
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
			int known = likely(clock_anchored(l)) || clock_anchor(l);
			s64 cpu = (s64)(clock_cpu(l, end) - r->cpu0);
			b->cpu += known && cpu > 0 ? (u64)cpu : 0;
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
	update_end(&b->seq);
	if (unlikely(flags & WH_DO_EMIT))
		emit(l, p, r, index, end ? end : ticks(), ret);
}

/* The exit's record is not the innermost: longjmp, another stack, a forked child, a lost record. */
static slow_path void exit_search(struct local *l, u64 slot, u64 ret)
{
	struct wh_active r;

	if (take_record(l, slot, &r))
		book(l, point_at(r.point), &r, WH_ACTIVE, r.t0 ? ticks() : 0, ret);
	else
		l->block->lost[WH_LOST_EXIT]++;
}

/* Exit of a call. Answers its true return address. */
static slow_path u64 exit_slow(u64 slot, const struct regs *regs)
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
	if (unlikely(t->busy_sp) && busy_holds(l, slot)) {
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
		exit_search(l, slot, regs->rax);
	}
	leave(t);
	return ra;
}

/* The calling thread if its entry at `slot` needs nothing out of the ordinary. */
static inline struct local *ordinary(const struct wh_point *p, u64 slot)
{
	struct local *l = local_of_thread();
	const struct wh_header *h = header();

	if (unlikely(!l || l->home != G.segment || !h->enabled || p->state != WH_POINT_ON))
		return 0;
	const struct wh_thread *t = l->block;
	u32 n = t->n_active;
	if (unlikely(t->busy_sp || l->deaf || l->generation != h->generation || (l->entries & G.often) == G.often ||
		     slot - l->stack.lo >= l->stack.hi - l->stack.lo || n >= WH_ACTIVE))
		return 0;
	return likely(n == 0 || t->active[n - 1].slot > slot) ? l : 0;
}

/* The block that an ordinary call counts in; its path with WH_FOLDED in `found`. 0: not so ordinary. */
static inline struct wh_block *ordinary_block(struct local *l, const struct wh_point *p, u64 point, u64 slot, u64 rbp,
					      u32 *found)
{
	u32 path = p->flags & WH_DO_PATH ? template_last(l, (u32)point, slot, rbp) : root_path(p);

	if (unlikely(!path))
		path = template_search(l, (u32)point, slot, rbp);
	u32 page = l->block->directory[(path & ~WH_FOLDED) / 64];

	*found = path;
	return likely(path && page) ? (struct wh_block *)(G.segment + WH_AT_PAGES + (u64)page * PAGE) + path % 64 : 0;
}

/* Entry of a point that only counts. Answers where to go on. */
u64 wh_on_count(u64 index, u64 slot, const struct regs *regs, u64 rbp)
{
	const struct wh_point *p = point_at(index);
	struct local *l = likely(!(p->flags & (WH_DO_LOADER | WH_DO_LOCK | NEEDS_WORDS))) ? ordinary(p, slot) : 0;
	u32 found;
	struct wh_block *b = likely(l) ? ordinary_block(l, p, index, slot, rbp, &found) : 0;

	if (unlikely(!b))
		return count_slow(index, slot, regs, rbp);
	l->entries++;
	count_call(b);
	return p->relocated;
}

/* Sets the anchor anew; TSC and CPU time from then on, CPU time 0: not to be had. */
static slow_path u64 anchor_again(struct local *l, u64 slot, u64 *cpu)
{
	enter(l->block, slot);
	int known = clock_anchor(l);
	leave(l->block);
	u64 now = ticks();

	*cpu = known ? clock_cpu(l, now) | 1 : 0;
	return now;
}

/* Entry of a point whose exit is seen. The place on the active stack is reserved before it is filled: a
 * signal handler's calls take places above, and give them back. */
struct answer wh_on_entry(u64 index, u64 slot, const struct regs *regs, u64 rbp)
{
	const struct wh_point *p = point_at(index);
	u32 flags = p->flags, found;
	struct local *l = likely(!(flags & (NEEDS_WORDS | WH_DO_USAGE))) ? ordinary(p, slot) : 0;
	struct wh_block *b = likely(l) ? ordinary_block(l, p, index, slot, rbp, &found) : 0;
	u64 ra = *(const u64 *)slot;

	if (unlikely(!b || l->stack.no_shadow || ra == G.exit || ((flags & WH_DO_CPU) && !clock_anchored(l))))
		return entry_slow(index, slot, regs, rbp);
	struct wh_thread *t = l->block;
	struct wh_active *r = &t->active[t->n_active];
	l->entries++;
	r->slot = slot; /* before the place is taken: a signal handler's call judges the record by it */
	barrier();
	t->n_active++;
	barrier();
	r->slot = slot; /* and behind: a handler's call may have used the place */
	r->path = found & ~WH_FOLDED;
	r->point = (u32)index;
	r->t0 = 0;
	r->cpu0 = 0;
	r->usage = 0;
	*(u64 *)(slot + WH_SHADOW) = ra;
	t->seq_active = (t->seq_active | 1) + 1;
	count_call(b);
	if ((flags & NEEDS_CLOCK) && likely(!(found & WH_FOLDED))) {
		u64 now = ticks();

		if (flags & WH_DO_CPU) {
			u64 cpu = clock_cpu(l, now) | 1;

			if (unlikely(!clock_anchored(l))) /* scheduled since the last look: the reading is not of this stretch */
				now = anchor_again(l, slot, &cpu);
			r->cpu0 = cpu;
		}
		r->t0 = now;
		if (unlikely(silent(now)))
			l->deaf = 1;
	}
	return (struct answer){p->relocated, 0};
}

/* Exit of a call. Answers its true return address. */
u64 wh_on_exit(u64 slot, const struct regs *regs)
{
	struct local *l = local_of_thread();
	u64 end;

	if (unlikely(!l || l->home != G.segment || l->block->busy_sp))
		return exit_slow(slot, regs);
	struct wh_thread *t = l->block;
	u32 n = t->n_active;
	const struct wh_active *r = &t->active[n - 1];
	if (unlikely(n - 1 >= WH_ACTIVE || r->slot != slot || (n > 1 && r[-1].slot == slot)))
		return exit_slow(slot, regs);
	const struct wh_point *p = point_at(r->point);
	if (unlikely(p->flags & (WH_DO_VALUES | WH_DO_EMIT | WH_DO_USAGE)))
		return exit_slow(slot, regs);
	if (r->t0) {
		u32 page = t->directory[r->path / 64];

		if (unlikely(!page))
			return exit_slow(slot, regs);
		struct wh_block *b = (struct wh_block *)(G.segment + WH_AT_PAGES + (u64)page * PAGE) + r->path % 64;
		struct wh_more *m = 0;
		if (p->flags & WH_DO_HIST) {
			if (unlikely(!b->extra))
				return exit_slow(slot, regs);
			m = (struct wh_more *)(G.segment + WH_AT_PAGES + (u64)b->extra * 64);
		}
		end = ticks();
		if (unlikely(r->cpu0 && !clock_anchored(l)))
			return exit_slow(slot, regs);
		u64 wall = end - r->t0;
		if (unlikely((s64)wall < 1))
			wall = 1;
		update_begin(&b->seq);
		b->wall += wall;
		if (unlikely(wall > b->max))
			b->max = wall;
		if (unlikely(wall - 1 < b->min - 1))
			b->min = wall;
		if (r->cpu0) {
			s64 cpu = (s64)(clock_cpu(l, end) - r->cpu0);

			b->cpu += cpu > 0 ? (u64)cpu : 0;
		}
		if (m) {
			m->done++;
			m->hist[63 - __builtin_clzll(wall)]++;
		}
		update_end(&b->seq);
	} else {
		u32 page = t->directory[r->path / 64];

		if (unlikely(!page))
			return exit_slow(slot, regs);
		struct wh_block *b = (struct wh_block *)(G.segment + WH_AT_PAGES + (u64)page * PAGE) + r->path % 64;
		b->seq = (b->seq | 1) + 1; /* an exit, not timed */
	}
	barrier();
	t->n_active = n - 1;
	return *(const u64 *)(slot + WH_SHADOW);
}
