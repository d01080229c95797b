/*
 * The causal profiler's back end without BPF, in the program: ticks by signal that credit and pay, system calls about
 * to be made, progress points. The rules of virtual time are in whither_debt.h. Constraints: as for all of the agent;
 * a delay is slept in the handler of a tick or at a progress point, never where a system call is made; a forked child
 * and a program whose controller is gone pass through.
 */
#include "pace.h"

enum { SYS_RT_SIGACTION = 13, SYS_PRCTL = 157, SYS_CLOCK_NANOSLEEP = 230 };
enum { PR_SET_TIMERSLACK_ = 29, PR_GET_TIMERSLACK_ = 30 };
/* Places of registers in the kernel's ucontext. */
enum { UC_RBP = 120, UC_RSP = 160, UC_RIP = 168 };
/* A sleep that ends so late was over in time, and its thread waited for a core. */
#define LATE_NS 150000ull
/* A core that was missed for less than this was on its way through the scheduler. */
#define SHORTEST_WAIT_NS 60000ll

volatile u32 *pace_live;
extern char wh_tick_end[];

u64 cpu_now(void)
{
	struct {
		u64 seconds, nanoseconds;
	} now = {0, 0};

	sys2(SYS_CLOCK_GETTIME, 3 /* CLOCK_THREAD_CPUTIME_ID */, &now);
	return now.seconds * 1000000000ull + now.nanoseconds;
}

/* How often the thread has given up its core to wait for something. */
u64 blocks_so_far(void)
{
	u64 usage[18] = {0};

	sys2(SYS_GETRUSAGE, 1 /* RUSAGE_THREAD */, usage);
	return usage[16];
}

static u32 cpu_number(void)
{
	u32 low, high, aux;

	__asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(aux));
	return aux & 0xfff;
}

/* --- slots -------------------------------------------------------------------------------------------- */

static u64 *index_at(u64 i)
{
	return (u64 *)(G.segment + WH_AT_PACE_INDEX) + (i & (WH_PACE_INDEX - 1));
}

/* A slot for a thread that is seen for the first time (R7). */
static slow_path struct wh_pace_slot *slot_new(u32 tid, u64 *entry)
{
	struct wh_pace_ctl *c = pace_ctl();
	u64 none = 0, n = __atomic_fetch_add(&c->n_slots, 1, __ATOMIC_ACQ_REL);

	if (n >= WH_PACE_SLOTS) {
		c->lost++;
		return 0;
	}
	struct wh_pace_slot *s = slot_at(n);
	s->clock.epoch = (u32)c->epoch;
	s->clock.d = c->born_epoch == c->epoch ? c->born_d : 0;
	s->cpu = cpu_now();
	s->tid = tid;
	if (!__atomic_compare_exchange_n(entry, &none, (u64)tid << 32 | (n + 1), 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return 0; /* another thread took the place: found at the next look */
	return s;
}

static struct wh_pace_slot *slot_of(u32 tid)
{
	for (u64 i = 0; i < 64; i++) {
		u64 *entry = index_at(tid + i), is = __atomic_load_n(entry, __ATOMIC_ACQUIRE);

		if (!is)
			return slot_new(tid, entry);
		if (is >> 32 == tid)
			return slot_at((u32)is - 1);
	}
	return 0;
}

/* The thread's slot, unless it is at it already; a mark left behind by siglongjmp does not count. */
struct wh_pace_slot *slot_take(u64 sp)
{
	struct wh_pace_slot *s = slot_of((u32)sys0(SYS_GETTID));

	if (!s || (s->busy_sp && sp < s->busy_sp && s->busy_sp - sp < 1 << 16))
		return 0;
	s->busy_sp = sp;
	barrier();
	return s;
}

void slot_leave(struct wh_pace_slot *s)
{
	barrier();
	s->busy_sp = 0;
}

/* R8, and what the thread has waited for since it was last seen. */
void slot_sync(struct wh_pace_slot *s, const struct wh_pace_ctl *c, u64 now)
{
	if (s->clock.epoch != (u32)c->epoch) {
		wh_debt_sync(&s->clock, (u32)c->epoch);
		if (s->clock.since < c->begin)
			s->clock.since = c->begin;
		if (s->granted_t < c->begin) /* woken in the window before, or not yet */
			s->granted_d = 0;
	}
	wait_over(s, pace_ctl(), now);
}

/* --- paying ------------------------------------------------------------------------------------------- */

/* Sleeps for so long, with a timer that is on time; how long that really was. */
static u64 pause(u64 ns)
{
	u64 before = ticks(), span[2] = {0, ns};
	s64 slack = sys2(SYS_PRCTL, PR_GET_TIMERSLACK_, 0);

	if (slack > 1)
		sys2(SYS_PRCTL, PR_SET_TIMERSLACK_, 1);
	sys4(SYS_CLOCK_NANOSLEEP, 1 /* CLOCK_MONOTONIC */, 0, span, 0);
	if (slack > 1)
		sys2(SYS_PRCTL, PR_SET_TIMERSLACK_, slack);
	return ticks_to_ns(ticks() - before);
}

static struct wh_pace_cpu *core(void)
{
	return (struct wh_pace_cpu *)(G.segment + WH_AT_PACE_CPUS) + cpu_number() % WH_PACE_CPUS;
}

/* The thread goes on, on this core: who gets it next follows this clock. */
static void keeps_core(const struct wh_pace_slot *s, const struct wh_pace_ctl *c, u64 now)
{
	struct wh_pace_cpu *cpu = core();

	cpu->tid = s->tid;
	cpu->d = s->clock.d;
	cpu->t = now;
	cpu->hits = s->hits;
	cpu->epoch = c->epoch;
}

/* R6: a thread that waited for a core for so long, until `now`, follows whoever was last seen on it, with the credit
 * that one still gets for its time since then. 0: nobody of the program was. */
static int handed(struct wh_pace_slot *s, const struct wh_pace_ctl *c, u64 waited, u64 now)
{
	const struct wh_pace_cpu *cpu = core();
	struct wh_clock own = s->clock;
	s64 unseen;

	if (cpu->epoch != c->epoch || cpu->tid == s->tid || cpu->t <= now - waited)
		return 0;
	own.since = now - waited;
	unseen = cpu->hits && now > cpu->t ? (s64)((now - cpu->t) * c->percent / 100) : 0;
	wh_debt_follows(&own, cpu->d + unseen, now, &c->g);
	s->clock.d = own.d;
	s->queued += waited;
	s->handed++;
	return 1;
}

/* R2: what is owed is slept, and what comes to be owed meanwhile; what was slept too much is a lead. Without the latter
 * a thread would run on while others are in the target, and let go of a lock before it should. */
void pace_pay(struct wh_pace_slot *s, struct wh_pace_ctl *c)
{
	s64 owed = wh_debt_owed(&s->clock, &c->g);

	if ((u64)owed > s->max_debt)
		s->max_debt = (u64)owed;
	while (owed >= LEAST_PAUSE_NS && !G.locked && pace_state(c, ticks()) != WH_CZ_OFF) {
		u64 ask = (u64)(owed < MOST_PAUSE_NS ? owed : MOST_PAUSE_NS), really = pause(ask);
		u64 late = really > ask + LATE_NS ? really - ask : 0;

		wh_debt_paid(&s->clock, (s64)(really - late));
		s->inserted += really;
		/* What it then waited for a core that another thread had was no pause. */
		if (late && !handed(s, c, late, ticks_to_ns(ticks())))
			wh_debt_paid(&s->clock, (s64)late);
		owed = wh_debt_owed(&s->clock, &c->g);
	}
	s->owing = owed < LEAST_PAUSE_NS ? 0 : (u64)owed;
}

/* --- ticks -------------------------------------------------------------------------------------------- */

static void keep_sample(const struct paced_walk *w, u32 tid, u64 now, u64 ns, struct wh_pace_ctl *c)
{
	u64 n = __atomic_fetch_add(&c->next_record, 1, __ATOMIC_RELAXED);
	struct wh_pace_record *r = (struct wh_pace_record *)(G.segment + WH_AT_PACE_RECORDS) + (n & (WH_PACE_RECORDS - 1));

	__atomic_store_n(&r->seq, 0, __ATOMIC_RELEASE);
	r->t = now;
	r->ns = ns;
	r->site = w->site;
	r->tid = tid;
	r->n = w->n;
	for (u32 i = 0; i < w->n; i++)
		r->frames[i] = w->frames[i];
	__atomic_store_n(&r->seq, n + 1, __ATOMIC_RELEASE);
}

static void count_from_now(struct wh_cz_visits *v, u64 counted)
{
	if (v->counted == counted)
		return;
	v->count = 0;
	v->sum_v = 0;
	v->counted = counted;
}

static void visits_by_tick(struct wh_pace_slot *s, const struct wh_pace_ctl *c, u64 points, u64 ns)
{
	for (u32 i = 0; i < WH_CZ_POINTS; i++)
		if (points >> i & 1) {
			count_from_now(&s->visits[i], c->counted);
			s->visits[i].count += ns;
		}
}

/* CPU time since the thread was last looked at, in this window. */
static u64 ran(struct wh_pace_slot *s, const struct wh_pace_ctl *c, u64 cpu, u64 now)
{
	u64 ns = cpu - s->cpu, since = s->looked > c->begin ? s->looked : c->begin;

	if (ns > now - since)
		ns = now - since;
	return ns;
}

/* The thread's CPU time at its begin. */
static u64 tick(struct wh_pace_slot *s, struct wh_pace_ctl *c, u64 state, u64 now, u64 ip, u64 sp, u64 bp)
{
	u64 cpu = cpu_now(), ns;
	s64 missed;
	struct paced_walk w;

	slot_sync(s, c, now);
	ns = ran(s, c, cpu, now);
	/* Time in which it neither ran nor waited for anything, it waited for a core. */
	missed = (s64)(now - s->looked - ns);
	if (s->looked > c->begin && missed > SHORTEST_WAIT_NS && blocks_so_far() == s->blocks)
		handed(s, c, (u64)missed, now - ns);
	s->samples++;
	s->sample_ns += ns;
	s->sampled = (u32)c->epoch;
	pace_walk(s, c, ip, sp, bp, &w);
	s->hits = state == WH_CZ_ON && w.hit;
	if (s->hits) {
		s->hit_ns += ns;
		s->hit_waits += s->waits;
		if (!wh_debt_credit(&s->clock, &c->g, (s64)(ns * c->percent / 100)))
			c->lost++;
	}
	if (state == WH_CZ_ON && w.marks / WH_CZ_POINT & c->sampled)
		visits_by_tick(s, c, w.marks / WH_CZ_POINT & c->sampled, ns);
	s->waits = 0;
	keep_sample(&w, s->tid, now, ns, c);
	return cpu;
}

/* The signal's handler. */
exported void wh_on_tick(int signal, void *info, const char *context)
{
	struct wh_pace_ctl *c;
	u64 now = ticks(), sp, cpu;

	(void)signal;
	(void)info;
	if (!pace_live || !*pace_live || G.locked)
		return;
	c = pace_ctl();
	u64 state = pace_state(c, now);
	if (state == WH_CZ_OFF)
		return;
	sp = *(const u64 *)(context + UC_RSP);
	struct wh_pace_slot *s = slot_take((u64)__builtin_frame_address(0));
	if (!s)
		return;
	cpu = tick(s, c, state, ticks_to_ns(now), *(const u64 *)(context + UC_RIP), sp, *(const u64 *)(context + UC_RBP));
	pace_pay(s, c);
	s->blocks = blocks_so_far();
	s->cpu = cpu_now();
	u64 end = ticks();
	s->looked = ticks_to_ns(end);
	keeps_core(s, c, s->looked);
	s->handler += s->cpu - cpu;
	slot_leave(s);
}

/* --- places in the code -------------------------------------------------------------------------------- */

static void visit(struct wh_pace_slot *s, struct wh_pace_ctl *c, u32 point, u64 state, u64 now)
{
	struct wh_cz_visits *v = &s->visits[point & (WH_CZ_POINTS - 1)];

	if (state == WH_CZ_ON) {
		count_from_now(v, c->counted);
		u64 at = now - c->begin;
		wh_debt_s64 virtual = (wh_debt_s64)at - s->clock.d;

		if (!v->count++) {
			v->first_t = at;
			v->first_v = virtual;
		}
		v->last_t = at;
		v->last_v = virtual;
		v->sum_v += virtual;
		if (s->absolute_epoch == (u32)c->epoch)
			__atomic_fetch_or(&c->absolute_points, 1ull << (point & 63), __ATOMIC_RELAXED);
	}
}

/* Called from a stub, with the registers of the place. */
void wh_on_site(u64 index, const struct regs *r)
{
	struct wh_pace_ctl *c;
	u64 now = ticks();

	if (!pace_live || !*pace_live || G.locked || index >= WH_MAX_POINTS)
		return;
	c = pace_ctl();
	u64 state = pace_state(c, now);
	u32 what = point_at(index)->lock;
	int takes_signals = !what && waits_for_signals(r);
	if (state == WH_CZ_OFF && !what && !takes_signals)
		return;
	struct wh_pace_slot *s = slot_take((u64)__builtin_frame_address(0));
	if (!s) {
		if (takes_signals)
			drop_tick(c->signal);
		return;
	}
	if (takes_signals)
		s->takes_signals = 1;
	if (what)
		s->visits[(what - 1) & (WH_CZ_POINTS - 1)].ever++;
	if (state != WH_CZ_OFF) {
		u64 ns = ticks_to_ns(now);

		slot_sync(s, c, ns);
		if (what) {
			visit(s, c, what - 1, state, ns);
			pace_pay(s, c);
		} else {
			before_call(s, c, r, ns);
		}
		keeps_core(s, c, ns);
	}
	slot_leave(s);
	if (takes_signals)
		drop_tick(c->signal); /* as late as can be */
}

/* --- in and out ---------------------------------------------------------------------------------------- */

struct action {
	u64 handler, flags, restorer, mask;
};
#define ACTION_FLAGS (4u | 0x08000000u | 0x10000000u | 0x40000000u | 0x04000000u) /* SIGINFO ONSTACK RESTART NODEFER RESTORER */

static s64 action_of(u64 signal, const struct action *new, struct action *old)
{
	return sys4(SYS_RT_SIGACTION, signal, new, old, 8);
}

/* Puts the handler in; nothing is changed where the program has one. */
exported u64 wh_pace_start(u64 signal)
{
	struct action ours = {(u64)wh_on_tick, ACTION_FLAGS, (u64)wh_tick_end, 0}, old = {0};

	if (action_of(signal, 0, &old) < 0)
		return WH_PACE_REFUSED;
	if (old.handler && old.handler != (u64)wh_on_tick)
		return WH_PACE_TAKEN;
	if (!pace_live) {
		u32 *page = map_own(PAGE);

		if (!page || sys3(SYS_MADVISE, page, PAGE, 18 /* MADV_WIPEONFORK */) < 0)
			return WH_PACE_REFUSED;
		pace_live = page;
	}
	*pace_live = 1;
	return action_of(signal, &ours, 0) < 0 ? WH_PACE_REFUSED : WH_PACE_DONE;
}

/* Gives the signal back, if it is still ours. */
exported u64 wh_pace_stop(u64 signal)
{
	struct action none = {0}, old = {0};

	if (pace_live)
		*pace_live = 0;
	if (action_of(signal, 0, &old) < 0 || old.handler != (u64)wh_on_tick)
		return WH_PACE_TAKEN;
	return action_of(signal, &none, 0) < 0 ? WH_PACE_REFUSED : WH_PACE_DONE;
}
