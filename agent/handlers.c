/*
 * What happens at entries and exits of probed functions. Lives here: the order of things. Each handler
 * has a fast form that calls nothing and a slow one that can do everything; the fast one gives up
 * before it has changed anything. Constraints: async-signal-safe at every instruction (a signal handler may call a probed
 * function while we are here: it passes through and is counted as lost); the true return address comes
 * from the shadow alone, so an exit is right whatever happened to the records; no call out, no lock,
 * general registers only.
 */
#include "fast.h"

#define NEEDS_WORDS (WH_DO_VALUES | WH_DO_EMIT)
/* Points of the controller's own. */
#define NOT_COUNTED (WH_DO_LOADER | WH_DO_LOCK | WH_DO_UNWIND)
#define LISTEN_SHIFT 31 /* about a second */

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

/* Hears whether the controller is there, and when to listen again. */
static slow_path void listen(struct local *l, u64 now)
{
	const struct wh_header *h = header();
	u64 again = now + (1ull << LISTEN_SHIFT);

	l->deaf = (u32)silent(now);
	if (l->deaf)
		l->credit = 0; /* every entry is to look again */
	if (h->patience && h->heartbeat + h->patience < again)
		again = h->heartbeat + h->patience + 1;
	l->deadline = l->deaf ? 0 : again;
}

/* A handler left by siglongjmp amid learning would hold off all others for ever. */
static void free_learning(struct local *l, u64 now)
{
	if (l->learning != l->learning_seen) {
		l->learning_seen = l->learning;
		l->learning_since = now;
	} else if (l->learning && (now - l->learning_since) >> BUSY_SHIFT) {
		l->learning = 0;
	}
}

/* Rare checks before an entry is recorded; 0: pass through. */
static slow_path int recheck(struct local *l)
{
	l->credit = G.often;
	u32 generation = header()->generation;
	if (l->generation != generation) {
		for (u32 i = 0; i < CACHE; i++)
			l->cache[i] = 0;
		for (u32 i = 0; i < KNOWN; i++)
			l->known[i].ra = 0;
		templates_forget(l);
		hot_forget(l);
		barrier();
		l->generation = generation; /* now: a signal may end this half-way */
	}
	u64 now = ticks();
	free_learning(l, now);
	listen(l, now);
	if (G.way == 2 && !G.locked && now - l->checked > 1 << 17) {
		l->checked = now;
		if (!same_thread(l))
			return 0;
	}
	return !l->deaf;
}

/* Another stack comes into use, and the mark is set; 0: the thread is not ours, so the mark would be another's (CLONE_VM on a
 * stack of its own). No signal comes before a stack that is new is known: a mark on no stack known could not be told to be
 * left behind, and for a tenth of a second no call would be counted. */
static slow_path int arrive(struct local *l, u64 slot, u64 rbp)
{
	int new = stack_of(l, slot) < 0 && !G.locked;

	if (new && !same_thread(l))
		return 0;
	u64 mask = new ? signals_block() : 0;
	enter(l->block, slot);
	int found = stack_enter(l, slot, rbp);
	if (!found)
		leave(l->block);
	if (new)
		signals_restore(mask);
	return found;
}

/* Why a thread has no block. */
static slow_path enum wh_lost no_block(void)
{
	if (G.locked)
		return WH_LOST_LOCKED;
	return G.way == 2 && !thread_pointer() ? WH_LOST_EARLY : WH_LOST_TABLE;
}

/* Why a thread that found a block may not record in it. */
static slow_path enum wh_lost no_place(struct local *l)
{
	return G.locked || same_thread(l) ? WH_LOST_TABLE : WH_LOST_SHARED;
}

/* Of a call that cannot be recorded. Those of functions of our own, made to find out what calls cost, are none that the program has
 * lost: at the entry point of a program that sets up its thread pointer itself, nothing can be recorded yet. */
static slow_path void lose(const struct wh_point *p, enum wh_lost cause)
{
	if (p->address - (u64)wh_code_begin >= (u64)(wh_code_end - wh_code_begin))
		count_lost(cause);
}

/* The thread that may record an entry at `slot`, with its mark set; 0: pass through. */
static inline struct local *begin(const struct wh_point *p, u64 slot, u64 rbp)
{
	struct local *l;

	if (unlikely(!header()->enabled || p->state != WH_POINT_ON))
		return 0;
	l = local_of_thread();
	if (unlikely(!l || l->home != G.segment)) {
		if (outsider())
			return 0;
		l = thread_join();
		if (!l) {
			lose(p, no_block());
			return 0;
		}
	}
	struct wh_thread *t = l->block;
	if (unlikely(t->busy_sp) && entry_inside(l, slot, rbp)) {
		t->lost[WH_LOST_BUSY]++;
		return 0;
	}
	if (likely(is_on(&l->stack, slot))) {
		enter(t, slot);
	} else if (!arrive(l, slot, rbp)) {
		lose(p, no_place(l));
		return 0;
	}
	if (unlikely(--l->credit <= 0 || l->deaf || l->generation != header()->generation) && !recheck(l)) {
		leave(t);
		if (!l->deaf)
			lose(p, no_place(l));
		return 0;
	}
	return l;
}

/* Path of a call, with WH_FOLDED and UNSEEN as it may be; none: 0 but for UNSEEN. */
static inline u32 path_of(struct local *l, const struct wh_point *p, u64 point, u64 slot, u64 rbp)
{
	struct match match;
	u32 path;

	if (!(p->flags & WH_DO_PATH))
		return root_path(p) | (p->flags & WH_DO_EXIT && !(p->flags & WH_DO_ANY_CALLER) ? unseen_from(l, *(u64 *)slot) : 0);
	path = template_search(l, (u32)point, slot, rbp, &match);
	return path ? path : find_path(l, p, (u32)point, slot, rbp);
}

/* One instruction: a signal in between cannot lose a count. */
static inline void count_call(struct wh_block *b)
{
	__asm__ volatile("incq %0" : "+m"(b->calls));
}

/* What is found for a call, with WH_FOLDED also where it lies in a folded call and its path is in progress already: in
 * functions that call each other each has a level that is the last, and only one of them is told by its path. */
static slow_path u32 judged(struct local *l, u32 found)
{
	u32 n = l->block->n_active;

	if (likely(!n || !(record(l, n - 1)->path & WH_FOLDED)) || !found || found & WH_FOLDED)
		return found;
	return in_progress(l, found) ? found | WH_FOLDED : found;
}

struct call {
	u64 point;
	u32 path;
	u64 slot;
	const struct regs *regs;
};

/* Counts a call in `b` whose exit is not seen. */
static inline void count_alone(struct local *l, const struct wh_point *p, struct wh_block *b, struct call c)
{
	count_call(b);
	if (likely(!(p->flags & NEEDS_WORDS)))
		return;
	values_at_entry(l, p, WH_ACTIVE - 1, c.slot, c.regs, p->flags & WH_DO_VALUES ? b : 0);
	if (p->flags & WH_DO_EMIT) {
		struct wh_active r = {.t0 = ticks(), .path = c.path, .point = (u32)c.point};

		emit(l, p, &r, WH_ACTIVE - 1, 0, 0);
	}
}

/* Why the exit of a call cannot be seen, or WH_LOST_CAUSES. */
static inline enum wh_lost no_exit(const struct local *l, u64 slot, u32 unseen)
{
	if (unlikely(header()->stacks_copied || (unseen && !is_exit(*(const u64 *)slot))))
		return WH_LOST_FOREIGN;
	if (unlikely(l->stack.no_shadow))
		return slot < (u64)-WH_SHADOW + BLOCK_BYTES ? WH_LOST_LOW : WH_LOST_SHADOW;
	return WH_LOST_CAUSES;
}

/* An entry that took so long had lost its CPU. */
#define AWAY (1u << 18) /* ticks */

/* When an entry began; 0: in strict mode reading the counter would be the end. */
static inline u64 beginning(void)
{
	return likely(!G.locked) ? ticks() : 0;
}

/* What an entry has cost since `began` beyond a `usual` one, up to `now` (0: till here): for a path that is another each time,
 * a change of stack, records left behind. */
static inline void spent_long(struct local *l, u64 began, u64 now, u64 usual)
{
	if (unlikely(!began))
		return;
	u64 spent = (now ? now : ticks()) - began;

	if (unlikely(spent > usual) && likely(spent < AWAY))
		l->block->lost[WH_LOST_APART] += spent - usual;
}

static slow_path u64 count_slow(u64 index, u64 slot, const struct regs *regs, u64 rbp, u64 began)
{
	const struct wh_point *p = point_at(index);
	struct local *l;

	if (unlikely(p->flags & NOT_COUNTED)) {
		if (p->flags & WH_DO_LOCK)
			before_lock(p, slot, regs);
		else if (p->flags & WH_DO_LOADER && p->state == WH_POINT_ON)
			loader_changed();
		return p->relocated;
	}
	l = begin(p, slot, rbp);
	if (unlikely(!l))
		return p->relocated;
	struct wh_thread *t = l->block;
	if (unlikely(t->n_active && record(l, t->n_active - 1)->slot <= slot))
		drop_stale(l, slot);
	u32 path = path_of(l, p, index, slot, rbp) & ~(WH_FOLDED | UNSEEN);
	struct wh_block *b = path ? block_of(l, path) : 0;
	if (unlikely(!b))
		t->lost[WH_LOST_TABLE]++;
	else
		count_alone(l, p, b, (struct call){index, path, slot, regs});
	spent_long(l, began, 0, header()->cost_count);
	leave(t);
	return p->relocated;
}

static inline void push(struct wh_thread *t, struct wh_active *r, u64 slot, u32 found, u32 point, u64 link)
{
	update_begin(&t->seq_active);
	r->slot = slot;
	r->t0 = 0;
	r->cpu0 = 0;
	r->path = found;
	r->point = point;
	r->usage = link;
	r->major = 0;
	barrier();
	t->n_active++;
	update_end(&t->seq_active);
}

static slow_path void usage_at_entry(struct wh_active *r)
{
	u64 major;

	usage_now(&r->usage, &major);
	r->major = major << MAJOR_SHIFT;
}

/* Last of all at an entry, so that little of our own time is measured. */
static inline void start_clocks(struct local *l, u32 flags, struct wh_active *r)
{
	if (unlikely(flags & WH_DO_USAGE))
		usage_at_entry(r);
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
	if (unlikely(r->t0 >= l->deadline))
		listen(l, r->t0);
}

/* At the end of an entry whose call is `r`. */
static inline void note_apart(struct local *l, u32 flags, struct wh_active *r, u64 began)
{
	spent_long(l, began, r->t0, header()->cost_whole);
	if (r->t0 && likely(!(flags & WH_DO_USAGE))) {
		r->usage = l->block->lost[WH_LOST_APART];
		r->major = APART_NOTED;
	}
}

static slow_path struct answer entry_slow(u64 index, u64 slot, const struct regs *regs, u64 rbp, u64 began)
{
	const struct wh_point *p = point_at(index);
	struct answer answer = {p->relocated, 0};
	struct local *l = begin(p, slot, rbp);

	if (unlikely(!l))
		return answer;
	struct wh_thread *t = l->block;
	u32 flags = p->flags;
	if (unlikely(t->n_active && record(l, t->n_active - 1)->slot <= slot))
		drop_stale(l, slot);

	u32 met = path_of(l, p, index, slot, rbp);
	u32 found = judged(l, met & ~UNSEEN), path = found & ~WH_FOLDED;
	struct wh_block *b = path ? block_of(l, path) : 0;
	struct wh_active *r = record(l, t->n_active);
	if (unlikely(!b || !r)) {
		t->lost[b ? WH_LOST_DEPTH : WH_LOST_TABLE]++;
		leave(t);
		return answer;
	}
	enum wh_lost why = no_exit(l, slot, met & UNSEEN);
	if (unlikely(why != WH_LOST_CAUSES)) {
		count_alone(l, p, b, (struct call){index, path, slot, regs});
		t->lost[why]++;
		leave(t);
		return answer;
	}
	count_call(b);
	u64 ra = *(const u64 *)slot;
	if (likely(!is_exit(ra))) {
		*(u64 *)(slot + WH_SHADOW) = ra;
		answer.exit = exit_for(ra);
	} else { /* a tail call out of a probed function: the shadow is right */
		answer.exit = exit_start((u32)exit_index(ra));
	}
	u32 place = t->n_active;
	push(t, r, slot, found, (u32)index, found & WH_FOLDED ? whole_below(place ? record(l, place - 1) : 0, place) : 0);
	if (unlikely(flags & NEEDS_WORDS))
		values_at_entry(l, p, place, slot, regs, flags & WH_DO_VALUES ? b : 0);
	if (unlikely(flags & WH_DO_EVENTS))
		events_at_entry(l, p, place, !(found & WH_FOLDED));
	if ((flags & (NEEDS_CLOCK | WH_DO_USAGE)) && likely(!(found & WH_FOLDED)))
		start_clocks(l, flags, r);
	note_apart(l, flags, r, began);
	leave(t);
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
	m->faults_major += major - (r->major >> MAJOR_SHIFT);
}

/* Books a completed call. `end` 0: it was not timed. */
static inline void book(struct local *l, const struct wh_point *p, const struct wh_active *r, u32 index, u64 end, u64 ret)
{
	struct wh_block *b = block_of(l, r->path & ~WH_FOLDED);
	u32 flags = p->flags;
	u64 cpu0 = clock_at_entry(l, r); /* before there is another anchor */
	u64 apart = r->major & (HOT_TIMED | APART_NOTED) && index != WH_ACTIVE ? apart_since(l->block, r) : 0;

	if (unlikely(!b))
		return;
	if (unlikely(flags & WH_DO_EVENTS))
		events_at_exit(l, p, index, b);
	if (unlikely(r->cpu0 && !cpu0)) /* a signal handler's call has set an anchor amid the entry */
		l->block->lost[WH_LOST_CLOCK]++;
	update_begin(&b->seq);
	if (likely(end)) {
		u64 wall = end - r->t0;

		if (unlikely((s64)wall < 1))
			wall = 1;
		if (unlikely(apart >= wall))
			apart = 0;
		wall -= apart;
		b->wall += wall;
		if (unlikely(wall > b->max))
			b->max = wall;
		if (unlikely(wall - 1 < b->min - 1)) /* min 0: none yet */
			b->min = wall;
		if (cpu0) {
			int known = likely(clock_anchored(l)) || clock_anchor(l);
			s64 cpu = (s64)(clock_cpu(l, end) - cpu0 - ticks_to_ns(apart));
			b->cpu += known && cpu > 0 ? (u64)cpu : 0;
		}
		if (unlikely(flags & (WH_DO_HIST | WH_DO_USAGE))) {
			struct wh_more *m = more_of(l, b);

			if (m) {
				m->done++;
				m->hist[bin_of(header(), wall)]++;
				if (r->usage && !(r->major & (HOT_OURS | APART_NOTED)))
					add_usage(m, r);
			}
		}
	} else if (flags & NEEDS_CLOCK) {
		struct wh_more *m = more_of(l, b);

		if (m)
			m->folded++;
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

/* The call that returns to `ra` is not the one in progress at its place: the program has put back a copy of its stack. What is in
 * progress cannot be told any more. */
static slow_path void stack_was_copied(void)
{
	if (__atomic_exchange_n(&header()->stacks_copied, 1, __ATOMIC_RELAXED))
		return;
	/* What threads know of calls seen before no longer holds. */
	__atomic_fetch_add(&header()->generation, 1, __ATOMIC_RELEASE);
}

/* When a call ends. The kernel, asked for a thread's CPU time, sees whether the thread has had its turn, and takes its CPU there and
 * then: a wait for what has run till here. So it is asked before the clock is read, and the wait is the call's: read the other way
 * round, calls of 9 ms beside three hogs lacked a fifth of their wall time. At an entry what has run before is another's. */
static inline u64 end_of(struct local *l, const struct wh_active *r)
{
	if (unlikely(r->cpu0 && l->block->cpu_mode == 1 && !clock_anchored(l)))
		clock_anchor(l);
	return ticks();
}

/* Exit of a call that goes on at `ra`. */
static slow_path u64 exit_slow(u64 slot, u64 ra, const struct regs *regs)
{
	struct local *l;

	if (unlikely(!G.segment))
		return ra;
	l = local_of_thread();
	if (unlikely(!l || l->home != G.segment)) {
		if (!outsider())
			count_lost(WH_LOST_EXIT);
		return ra;
	}
	struct wh_thread *t = l->block;
	if (unlikely(t->busy_sp) && exit_inside(l, slot)) {
		t->lost[WH_LOST_EXIT]++;
		return ra;
	}
	if (unlikely(ra != *(const u64 *)(slot + WH_SHADOW))) {
		stack_was_copied();
		t->lost[WH_LOST_EXIT]++;
		return ra;
	}
	enter(t, slot);
	u32 n = t->n_active;
	struct wh_active *r = likely(n) ? record(l, n - 1) : 0;
	u64 end = 0;
	if (likely(r && r->slot == slot)) {
		do { /* more than one: functions that ended by tail calls return together */
			if (r->t0 && !end)
				end = end_of(l, r);
			book(l, point_at(r->point), r, n - 1, r->t0 ? end : 0, regs->rax);
			t->n_active = --n;
			r = n ? record(l, n - 1) : 0;
		} while (unlikely(r && r->slot == slot));
		spent_long(l, end, 0, header()->cost_inside);
	} else {
		exit_search(l, slot, regs->rax);
	}
	leave(t);
	return ra;
}

/* Read once: the controller may change them at any time. */
static inline u32 flags_of(const struct wh_point *p)
{
	return *(const volatile u32 *)&p->flags;
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
	if (unlikely(t->busy_sp || l->deaf || l->generation != h->generation || l->credit <= 0 ||
		     slot - l->stack.lo >= l->stack.hi - l->stack.lo || n >= WH_ACTIVE))
		return 0;
	return likely(n == 0 || t->active[n - 1].slot > slot) ? l : 0;
}

/* The block that an ordinary call counts in, from the segment's start; its path with WH_FOLDED in
 * `found`. 0: not so ordinary. */
static inline u64 ordinary_block(struct local *l, const struct wh_point *p, u32 flags, u64 point, u64 slot, u64 rbp,
				 u32 *found)
{
	struct match match = {0};
	u32 path = flags & WH_DO_PATH ? template_search(l, (u32)point, slot, rbp, &match) : root_path(p);

	if (flags & WH_DO_EXIT) {
		int alone = !(flags & (WH_DO_PATH | WH_DO_ANY_CALLER)) && !is_native(l, *(const u64 *)slot);

		if (unlikely(path & UNSEEN || alone || header()->stacks_copied))
			return 0;
	}
	path &= ~UNSEEN;
	u32 page = l->block->directory[(path & ~WH_FOLDED) / 64];
	*found = path;
	if (unlikely(!path || !page))
		return 0;
	/* Whether the path is in progress changes while all that a hot entry compares stays the same. */
	if (unlikely(folded_now(l->block) && flags & WH_DO_EXIT && !(path & WH_FOLDED)))
		*found = judged(l, path);
	else if (G.way == 1)
		hot_learn(l, flags, (u32)point, slot, rbp, path, &match);
	return WH_AT_PAGES + (u64)page * PAGE + path % 64 * sizeof(struct wh_block);
}

/* Entry of a point that only counts. Answers where to go on. */
u64 wh_on_count(u64 index, u64 slot, const struct regs *regs, u64 rbp)
{
	u64 began = beginning();
	const struct wh_point *p = point_at(index);
	u32 flags = flags_of(p), found;
	struct local *l = likely(!(flags & (NOT_COUNTED | NEEDS_WORDS))) ? ordinary(p, slot) : 0;
	u64 block = likely(l) ? ordinary_block(l, p, flags, index, slot, rbp, &found) : 0;

	if (unlikely(!block))
		return count_slow(index, slot, regs, rbp, began);
	l->credit--;
	count_call((struct wh_block *)(G.segment + block));
	spent_long(l, began, 0, header()->cost_count);
	return p->relocated;
}

/* Entry of a point whose exit is seen. */
struct answer wh_on_entry(u64 index, u64 slot, const struct regs *regs, u64 rbp)
{
	u64 began = beginning();
	const struct wh_point *p = point_at(index);
	u32 flags = flags_of(p), found;
	struct local *l = likely(!(flags & (NEEDS_WORDS | WH_DO_USAGE))) ? ordinary(p, slot) : 0;
	u64 block = likely(l) ? ordinary_block(l, p, flags, index, slot, rbp, &found) : 0;
	u64 ra = *(const u64 *)slot, pending = 0, now = 0;

	if (unlikely(!block || l->stack.no_shadow || is_exit(ra)))
		return entry_slow(index, slot, regs, rbp, began);
	block |= hot_bits(flags, found);
	if (block & HOT_TIMED) {
		pending = block & HOT_CPU ? l->pending : 0;
		now = ticks();
		if (unlikely(now >= l->deadline || (block & HOT_CPU && !clock_anchored(l))))
			return entry_slow(index, slot, regs, rbp, began);
	}
	spent_long(l, began, now, header()->cost_whole);
	l->credit--;
	admit(l, slot, ra, block, counter_of(G.segment, block), record_words(found, index), now, pending);
	return (struct answer){p->relocated, exit_for(ra)};
}

/* Exit of a call, in whose slot stands the index of its place in wh_exits. Answers its true return address. */
u64 wh_on_exit(u64 slot, const struct regs *regs)
{
	struct local *l = local_of_thread();
	u64 ra = returns_to(*(const u64 *)slot, slot);

	if (unlikely(!l || l->home != G.segment || ra != *(const u64 *)(slot + WH_SHADOW) ||
		     !booked((u64)G.segment, l, l->block, slot)))
		return exit_slow(slot, ra, regs);
	return ra;
}
