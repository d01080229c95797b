/*
 * Rules of the causal profiler's virtual clocks. Thread i has paid or earned D_i ns of delay in the open
 * window; its virtual clock is v_i = t - D_i. G is the largest D of any thread that runs or can run; what a
 * thread owes is G - D_i. Lives here: how each observed event moves D and G. Not here: who observes, how a
 * delay is made, which thread is meant.
 * Constraints: integers only, no loop, no call: compiled into the kernel-side program and by any C compiler
 * for the tests. A clock has one writer at a time (the thread's CPU while it runs, its waker while it is
 * blocked); only G is shared, and only ever raised, but for wh_debt_rebase.
 *
 * Every rule takes a maximum of virtual clocks, that is a minimum of D. The unpaid part of a debt travels
 * with a wake-up: waker and sleeper then both owe it, as in a schedule where the waker had paid before.
 */
#ifndef WHITHER_DEBT_H
#define WHITHER_DEBT_H

typedef unsigned int wh_debt_u32;
typedef unsigned long long wh_debt_u64;
typedef long long wh_debt_s64;

/* What a thread is doing, as far as its clock is concerned. */
enum wh_clock_state {
	WH_CLOCK_RUNS = 0,
	WH_CLOCK_QUEUED = 1, /* can run, waits for a core */
	WH_CLOCK_BLOCKED = 2,
};

/* Clock of one thread. `since` is when it was queued or blocked. */
struct wh_clock {
	wh_debt_s64 d;
	wh_debt_u64 since;
	wh_debt_u32 epoch;
	wh_debt_u32 state;
};

static inline wh_debt_s64 wh_debt_min(wh_debt_s64 a, wh_debt_s64 b)
{
	return a < b ? a : b;
}

/* R8: a clock of an older window reads as 0. To be called before any other rule. */
static inline void wh_debt_sync(struct wh_clock *c, wh_debt_u32 epoch)
{
	if (c->epoch != epoch) {
		c->epoch = epoch;
		c->d = 0;
	}
}

/* G := max(G, to). 0 when another CPU was in the way eight times: the caller counts that as a loss. */
static inline int wh_debt_raise(wh_debt_s64 *g, wh_debt_s64 to)
{
	wh_debt_s64 seen = *(volatile wh_debt_s64 *)g, was;
#define WH_DEBT_TRY                                                \
	if (seen >= to)                                            \
		return 1;                                          \
	was = __sync_val_compare_and_swap(g, seen, to);            \
	if (was == seen)                                           \
		return 1;                                          \
	seen = was;
	WH_DEBT_TRY WH_DEBT_TRY WH_DEBT_TRY WH_DEBT_TRY
	WH_DEBT_TRY WH_DEBT_TRY WH_DEBT_TRY WH_DEBT_TRY
#undef WH_DEBT_TRY
	return seen >= to;
}

/* R1, and the credit for a wait that is made shorter: D grows by `quantum`, and G follows. What the thread
 * has paid too much (D above G before) stays its lead and is asked of nobody. 0: see wh_debt_raise. */
static inline int wh_debt_credit(struct wh_clock *c, wh_debt_s64 *g, wh_debt_s64 quantum)
{
	wh_debt_s64 all = *(volatile wh_debt_s64 *)g;
	wh_debt_s64 base = wh_debt_min(c->d, all);
	c->d += quantum;
	return wh_debt_raise(g, base + quantum);
}

/* What the thread has to pay. */
static inline wh_debt_s64 wh_debt_owed(const struct wh_clock *c, const wh_debt_s64 *g)
{
	wh_debt_s64 owed = *(const volatile wh_debt_s64 *)g - c->d;
	return owed > 0 ? owed : 0;
}

/* R2: what the clock says was really paid. */
static inline void wh_debt_paid(struct wh_clock *c, wh_debt_s64 really)
{
	c->d += really;
}

/* The thread leaves its core, still able to run (queued) or not (blocked). */
static inline void wh_debt_leaves(struct wh_clock *c, wh_debt_u64 now, int blocked)
{
	c->since = now;
	c->state = blocked ? WH_CLOCK_BLOCKED : WH_CLOCK_QUEUED;
}

/* Both hand-overs: v := max(own clock when it began to wait, the other's clock, t - G). */
static inline void wh_debt_follows(struct wh_clock *c, wh_debt_s64 other, wh_debt_u64 now, const wh_debt_s64 *g)
{
	wh_debt_s64 waited = (wh_debt_s64)(now - c->since);
	wh_debt_s64 all = *(const volatile wh_debt_s64 *)g;
	/* Time does not run backwards between CPUs by more than some ns; a lead is not taken away by G. */
	if (waited < 0)
		waited = 0;
	if (all < c->d)
		all = c->d;
	c->d = wh_debt_min(wh_debt_min(other, c->d + waited), all);
}

/* R3: woken by a thread of the group, in process context. `waker` is that thread's D. */
static inline void wh_debt_woken(struct wh_clock *c, wh_debt_s64 waker, wh_debt_u64 now, const wh_debt_s64 *g)
{
	wh_debt_follows(c, waker, now, g);
}

/* R4: woken by a device, a relative timer or a foreign process: nothing. A wait is as long in virtual as in
 * real time. R5: woken by absolute time: its lead over the outside world is void. */
static inline void wh_debt_woken_absolute(struct wh_clock *c)
{
	c->d = wh_debt_min(c->d, 0);
}

/* The last sleep that a thread asked for: until when, how far behind the one before, and how far away; when that before was over, with
 * what clock, and for how long it had been awake since. The time from the end of one sleep to that of the next that came most often of
 * late, and how often of 256 times that, and a beat, was kept by sleeps of different lengths. */
struct wh_deadline {
	wh_debt_u64 at;
	wh_debt_u64 step;
	wh_debt_s64 left;
	wh_debt_u64 woke;
	wh_debt_s64 woke_d;
	wh_debt_s64 awake;
	wh_debt_s64 whole;
	wh_debt_u32 woke_epoch;
	wh_debt_u32 votes;
	wh_debt_u32 kept;
	wh_debt_u32 on_beat;
	wh_debt_u32 world; /* sleeps of late that the world has set, more or less */
	wh_debt_u32 always; /* of 65536, over more sleeps than `kept` */
};

/* What a sleep's end follows from. */
enum wh_sleep {
	WH_SLEEPS_ON = 0,      /* what was done before (R4) */
	WH_SLEEPS_UNTIL = 1,   /* the world (R5) */
	WH_SLEEPS_THE_REST = 2, /* when the round began */
	WH_SLEEPS_SEEN = 3     /* the same, and its clock is set already (whither_rest.h) */
};

/* Steps of a beat are as long to within this. */
#define WH_BEAT_NS 1000
/* Sleeps of one length are as long to within this, and a part of that length besides, from when the clock was read to when
 * the thread sleeps. */
#define WH_SAME_NS 30000
#define WH_SAME_SHIFT 7

/* Whether a deadline is as far behind the last one as that was behind the one before. */
static inline int wh_debt_is_on_the_beat(const struct wh_deadline *d, wh_debt_u64 at)
{
	wh_debt_s64 uneven = (wh_debt_s64)(at - d->at - d->step);

	return uneven >= -WH_BEAT_NS && uneven <= WH_BEAT_NS;
}

/* Sleeps that differ by less are of one length: so much passes from when a clock is read to when the thread sleeps. */
#define WH_TREMBLE_NS 2000
/* What is kept changes by less than a part of that by which sleeps do. */
#define WH_KEPT_SHIFT 2
/* From here on sleeps are what remains; all are; they are to a beat. */
#define WH_KEPT 96u
#define WH_KEPT_ALWAYS 59000u
#define WH_KEPT_BEAT 160u
#define WH_MOST_VOTES 4u
/* Who is kept from its core between looking at a clock and sleeping has two sleeps of another length by that: one, and the next. */
#define WH_OF_WORLD 3u
#define WH_MOST_WORLD 8u

static inline wh_debt_s64 wh_debt_size(wh_debt_s64 of)
{
	return of < 0 ? -of : of;
}

static inline wh_debt_u32 wh_debt_learnt(wh_debt_u32 often, int now)
{
	return now ? often + ((256 - often) >> 3) : often - (often >> 3);
}

/* Takes note of a sleep, the deadline itself aside. A thread that keeps a time by a clock sleeps for less after more work, so that what work
 * saves is slept away; it may have had no time left in rounds before, which then are part of what it was awake for. A sleep of one
 * length, however long it is thought about before, moves the next. */
static inline int wh_debt_learns(struct wh_deadline *d, wh_debt_u64 at, wh_debt_s64 left, wh_debt_u64 now)
{
	wh_debt_s64 change = wh_debt_size(left - d->left) >> WH_KEPT_SHIFT;
	wh_debt_s64 whole = left + (wh_debt_s64)(now - d->woke);
	int differs = change > WH_TREMBLE_NS >> WH_KEPT_SHIFT;
	wh_debt_s64 uneven = wh_debt_size(whole - d->whole), off_beat = wh_debt_size((wh_debt_s64)(at - d->at - d->step));
	/* Who counts from the end of a sleep has steps that are as uneven as wake-ups are, and the other way round. */
	int beats = differs && off_beat < change && off_beat < uneven;
	int keeps = differs && uneven < change && !beats;

	d->awake = whole - left;
	/* As much work as before tells nothing. */
	if (differs || uneven > WH_TREMBLE_NS) {
		d->kept = wh_debt_learnt(d->kept, keeps);
		d->always = keeps || beats ? d->always + ((65536 - d->always) >> 5) : d->always - (d->always >> 5);
		d->on_beat = wh_debt_learnt(d->on_beat, beats);
	}
	if (keeps && d->votes < WH_MOST_VOTES)
		d->votes++;
	else if (!keeps && d->votes)
		d->votes--;
	if (!d->votes) {
		d->votes = 1;
		d->whole = whole;
	}
	if (d->on_beat >= WH_KEPT_BEAT)
		return WH_SLEEPS_UNTIL;
	return d->kept >= WH_KEPT ? WH_SLEEPS_THE_REST : WH_SLEEPS_ON;
}

/* What the end of a sleep of so long follows from. */
static inline int wh_debt_sleeps(struct wh_deadline *d, wh_debt_s64 left, wh_debt_u64 now)
{
	wh_debt_u64 at = now + (wh_debt_u64)left;
	int how = wh_debt_learns(d, at, left, now);

	d->step = at - d->at;
	d->at = at;
	d->left = left;
	return how;
}

/* The thread sleeps no more. */
static inline void wh_debt_wakes(struct wh_deadline *d, const struct wh_clock *c, wh_debt_u64 now)
{
	d->woke = now;
	d->woke_d = c->d;
	d->woke_epoch = c->epoch;
}

/* A wait that was what remained of a round is over: it would have been longer by what the round has saved since its clock stood at `from`. What
 * earlier rounds have saved that had no time left is saved. */
static inline void wh_debt_keeps_saved(struct wh_clock *c, wh_debt_s64 from, wh_debt_s64 awake, wh_debt_s64 whole, wh_debt_s64 left)
{
	wh_debt_s64 saved = c->d - from, before = awake - (whole - left);
	/* Of rounds of seconds in microseconds: with a second saved the product of nanoseconds was too large from half a minute on. */
	wh_debt_u32 coarse = awake >> 31 ? 10 : 0;

	if (saved <= 0)
		return;
	if (before <= 0 || awake <= 0)
		c->d = from;
	else if (before < awake)
		c->d = from + (wh_debt_s64)((wh_debt_u64)saved * ((wh_debt_u64)before >> coarse) / ((wh_debt_u64)awake >> coarse));
}

static inline void wh_debt_woken_after_the_rest(struct wh_clock *c, const struct wh_deadline *d)
{
	wh_debt_keeps_saved(c, d->woke_epoch == c->epoch ? d->woke_d : 0, d->awake, d->whole, d->left);
}

/* The end of a sleep that follows from a clock; whether nearly all rounds of the thread end so. */
static inline int wh_debt_woken_by_time(struct wh_clock *c, const struct wh_deadline *d, wh_debt_u32 how)
{
	if (how != WH_SLEEPS_THE_REST) {
		wh_debt_woken_absolute(c);
		return 1;
	}
	wh_debt_woken_after_the_rest(c, d);
	return d->always >= WH_KEPT_ALWAYS;
}

/* What the end of a sleep until then follows from. The world sets (R5) a beat, or arrivals, which are another while away each time. Python's sleep
 * and others ask for absolute times too, of now and so much: then what is left is the same each time, and it is a
 * wait like that of a relative timer (R4). `now` may be of another clock than `at`, as long as both go as fast. */
static inline int wh_debt_sleeps_until(struct wh_deadline *d, wh_debt_u64 at, wh_debt_u64 now)
{
	wh_debt_s64 left = (wh_debt_s64)(at - now), other = left - d->left;
	wh_debt_s64 part = left > 0 && left < (1ll << 40) ? left >> WH_SAME_SHIFT : 0;
	int beat = wh_debt_is_on_the_beat(d, at);
	int same = other >= -WH_SAME_NS - part && other <= WH_SAME_NS + part;
	int how = wh_debt_learns(d, at, left, now);

	d->step = at - d->at;
	d->at = at;
	d->left = left;
	if (!beat && same)
		d->world -= d->world > 2 ? 2 : d->world;
	else if (d->world < WH_MOST_WORLD)
		d->world++;
	if (beat || (!same && how == WH_SLEEPS_ON))
		return d->world >= WH_OF_WORLD ? WH_SLEEPS_UNTIL : WH_SLEEPS_ON;
	return how;
}

/* R5, when no other thread of the group could run: nobody is there to be paid, and G is what this one holds. What
 * blocked threads hold does not count: who wakes them hands over its clock, and if it is the world, that is their
 * lead, which is asked of nobody. */
static inline void wh_debt_rebase(wh_debt_s64 *g, const struct wh_clock *c)
{
	*(volatile wh_debt_s64 *)g = c->d > 0 ? c->d : 0;
}

/* The thread can run from now on. */
static inline void wh_debt_queues(struct wh_clock *c, wh_debt_u64 now)
{
	c->since = now;
	c->state = WH_CLOCK_QUEUED;
}

/* A wait for a core below this is no hand-over but the way through the scheduler. */
#define WH_DEBT_HANDOVER_NS 20000

/* R6: a thread that was queued gets the core that `before` (its D when it left, at `left`) had held. The
 * core's idle time in between was nobody's: then v is only known to be at or behind that clock. Foreign
 * occupancy in between is external: as long in virtual as in real time. */
static inline void wh_debt_handed(struct wh_clock *c, wh_debt_s64 before, wh_debt_u64 left, wh_debt_u64 idle,
				  wh_debt_u64 now, const wh_debt_s64 *g)
{
	if (c->state != WH_CLOCK_QUEUED || (wh_debt_s64)(now - c->since) <= WH_DEBT_HANDOVER_NS)
		return;
	if ((wh_debt_s64)(left - c->since) < 0)
		return;
	wh_debt_follows(c, before + (wh_debt_s64)idle, now, g);
}

/* R11: what a core is handed on with (R6) by a thread that leaves it. One that works for itself, a runtime's watchdog say, may never
 * be met by a tick, and never pays: what it owes is no other thread's, and the core goes on with the clock it came with, that is
 * `before` and the core's `idle` time since, or G when nobody had it in this window. */
static inline wh_debt_s64 wh_debt_leaves_with(const struct wh_clock *c, int for_itself, int came, wh_debt_s64 before,
					      wh_debt_u64 idle, const wh_debt_s64 *g)
{
	wh_debt_s64 with = came ? before + (wh_debt_s64)idle : *(const volatile wh_debt_s64 *)g;

	return for_itself && with > c->d ? with : c->d;
}

/* R10: what a thread owes it may pay by standing still for another reason: while tasks of others had its core, for
 * `foreign` of the time since it was queued with `queued_d`. A pause that sleeps would have left them the core just
 * as well. Without this their share of the time counts for pauses too, which a faster program would not have. */
static inline void wh_debt_displaced(struct wh_clock *c, wh_debt_s64 queued_d, wh_debt_u64 foreign, wh_debt_u64 now,
				     const wh_debt_s64 *g)
{
	wh_debt_s64 waited = (wh_debt_s64)(now - c->since);
	wh_debt_s64 most = wh_debt_min(*(const volatile wh_debt_s64 *)g, queued_d + waited);
	wh_debt_s64 paid = wh_debt_min(c->d + (wh_debt_s64)foreign, most);
	if (paid > c->d)
		c->d = paid;
}

/* R7: a new thread has its creator's D. */
static inline void wh_debt_born(struct wh_clock *child, const struct wh_clock *parent, wh_debt_u64 now)
{
	child->d = parent->d;
	child->epoch = parent->epoch;
	wh_debt_queues(child, now);
}

#endif
