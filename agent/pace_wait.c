/*
 * What a thread is about to ask the kernel for, as far as it moves virtual clocks: waiting at a futex and waking those
 * who wait there, waiting until a time, making threads; and waiting for signals. Lives here: who has ended whose wait. Constraints:
 * the call itself is made by the program's own instruction, so that no thread ever waits in our code; that a wait is
 * over is noticed at whatever the thread does next that we see. The kernel wakes threads in the order in which they
 * came, so whom a call wakes is known, but for those that find that they need not wait: they hand a grant on, and who was
 * woken without one takes it from somebody who still waits. A single grant that stays with the wrong thread would have
 * all later ones go to the wrong threads.
 */
#include "pace.h"

enum {
	CALL_POLL = 7, CALL_SELECT = 23, CALL_NANOSLEEP = 35, CALL_EPOLL_WAIT = 232, CALL_PSELECT = 270, CALL_PPOLL = 271,
	CALL_EPOLL_PWAIT = 281, CALL_EPOLL_PWAIT2 = 441
};
enum { CALL_FUTEX = 202, CALL_CLOCK_NANOSLEEP = 230, CALL_CLONE = 56, CALL_CLONE3 = 435, CALL_SIGTIMEDWAIT = 128 };
enum { SYS_RT_TGSIGQUEUEINFO = 297, POLL_IN_ = 1 };
enum {
	FUTEX_WAIT_ = 0, FUTEX_WAKE_ = 1, FUTEX_REQUEUE_ = 3, FUTEX_CMP_REQUEUE_ = 4, FUTEX_WAKE_OP_ = 5, FUTEX_LOCK_PI_ = 6,
	FUTEX_UNLOCK_PI_ = 7, FUTEX_WAIT_BITSET_ = 9, FUTEX_WAKE_BITSET_ = 10, FUTEX_WAIT_REQUEUE_PI_ = 11,
	FUTEX_CMP_REQUEUE_PI_ = 12, FUTEX_LOCK_PI2_ = 13
};
#define OPERATION 0x7f /* without PRIVATE and CLOCK_REALTIME */
#define SPINS 2000
/* A wait that is shorter than its time-out by more was ended by something else: CPU clocks move in steps. */
#define EARLY_NS 60000ull
/* So many periods after its last tick a thread may have blocked. */
#define LATELY 4

/* Whether another thread can run, as far as that is seen: it does not wait at a futex, and was ticked of late. */
static int others_run(const struct wh_pace_slot *s, const struct wh_pace_ctl *c, u64 now)
{
	u64 n = slots_used(), lately = now - LATELY * c->period;

	for (u64 i = 0; i < n; i++) {
		const struct wh_pace_slot *o = slot_at(i);

		if (o != s && o->clock.epoch == (u32)c->epoch && !__atomic_load_n(waiting_at(i), __ATOMIC_RELAXED) &&
		    (o->busy_sp || o->looked > lately))
			return 1;
	}
	return 0;
}

/* R5: time has woken the thread. When nobody else can run, nobody is there to be paid. */
static void woken_by_time(struct wh_pace_slot *s, struct wh_pace_ctl *c, u64 now)
{
	s->absolutes++;
	if (!others_run(s, c, now))
		wh_debt_rebase(&c->g, &s->clock);
}

static void woken_by_absolute_time(struct wh_pace_slot *s, struct wh_pace_ctl *c, u64 now)
{
	s->absolute = 0;
	s->absolute_epoch = (u32)c->epoch;
	wh_debt_woken_absolute(&s->clock);
	woken_by_time(s, c, now);
}

/* The wait that had a time-out is over: who is met since has run for what it used of its CPU, and if that leaves as much time as it had
 * asked for, time has ended it. `woken`: another thread has. */
static void time_out_over(struct wh_pace_slot *s, struct wh_pace_ctl *c, int woken, u64 now)
{
	u64 since = s->rest_since, over = now - (cpu_now() - s->rest_cpu);
	u32 wait = (u32)s->rest_wait;

	s->rest_since = 0;
	if (woken || over + EARLY_NS < since + (u64)s->rest.asked) {
		wh_rest_met(&s->rest, &s->clock, wait);
		return;
	}
	if (!wh_rest_timed_out(&s->rest, &s->clock, 0, wait, since, s->rest.asked, over > since ? over : since))
		return;
	if (s->rest.always >= WH_KEPT_ALWAYS)
		s->absolute_epoch = (u32)c->epoch;
	woken_by_time(s, c, now);
}

/* The slot that waits longest at an address; -1: none. */
static s64 longest(u64 address, u64 n, u64 but)
{
	s64 found = -1;
	u64 since = ~0ull;

	for (u64 i = 0; i < n; i++)
		if (i != but && __atomic_load_n(waiting_at(i), __ATOMIC_RELAXED) == address && slot_at(i)->clock.since < since) {
			since = slot_at(i)->clock.since;
			found = (s64)i;
		}
	return found;
}

static void grant(u64 i, u64 address, s64 d, u64 t)
{
	struct wh_pace_slot *s = slot_at(i);
	u64 seen = address;

	if (!__atomic_compare_exchange_n(waiting_at(i), &seen, address | WH_PACE_CLAIMED, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	s->granted_d = d;
	s->granted_t = t;
	__atomic_store_n(waiting_at(i), address | WH_PACE_GRANTED, __ATOMIC_RELEASE);
}

/* Takes the grant of somebody who waits at the same address; 0: there is none. */
static int take_grant(struct wh_pace_slot *s, u64 address)
{
	u64 n = slots_used(), self = index_of(s);

	for (u64 i = 0; i < n; i++) {
		u64 seen = address | WH_PACE_GRANTED;

		if (i == self || __atomic_load_n(waiting_at(i), __ATOMIC_RELAXED) != seen ||
		    !__atomic_compare_exchange_n(waiting_at(i), &seen, address | WH_PACE_CLAIMED, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		s->granted_d = slot_at(i)->granted_d;
		s->granted_t = slot_at(i)->granted_t;
		__atomic_store_n(waiting_at(i), address, __ATOMIC_RELEASE);
		return 1;
	}
	return 0;
}

/* Whether a thread of the program has ended the thread's wait at a futex. */
static int was_woken(struct wh_pace_slot *s, u64 word)
{
	u64 address = word & ~(WH_PACE_CLAIMED | WH_PACE_GRANTED);
	int blocked = blocks_so_far() != s->wait_blocks;

	if (!(word & WH_PACE_GRANTED))
		return blocked && take_grant(s, address);
	if (!blocked) {
		s64 i = longest(address, slots_used(), index_of(s));

		if (i >= 0)
			grant((u64)i, address, s->granted_d, s->granted_t);
	}
	return 1;
}

/* Ends what the thread was waiting for when it was last seen, if it was: R3 when a thread of the program has ended it,
 * R5 for absolute time, and nothing (R4) when it was the world. */
void wait_over(struct wh_pace_slot *s, struct wh_pace_ctl *c, u64 now)
{
	u64 *word = waiting_at(index_of(s)), was = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	if (s->absolute)
		woken_by_absolute_time(s, c, now);
	if (!was) {
		if (s->rest_since)
			time_out_over(s, c, 0, now);
		return;
	}
	for (u32 i = 0; was & WH_PACE_CLAIMED && i < SPINS; i++)
		was = __atomic_load_n(word, __ATOMIC_ACQUIRE);
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
	int woken = was_woken(s, was);
	if (woken) {
		wh_debt_woken(&s->clock, s->granted_d, s->granted_t < now ? s->granted_t : now, &c->g);
		s->granted++;
		s->waits++;
	} else {
		s->alone++;
	}
	s->clock.state = WH_CLOCK_RUNS;
	if (s->rest_since)
		time_out_over(s, c, woken, now);
}

static void waits(struct wh_pace_slot *s, u64 address, u64 now)
{
	wh_debt_leaves(&s->clock, now, 1);
	s->wait_blocks = blocks_so_far();
	__atomic_store_n(waiting_at(index_of(s)), address & ~(WH_PACE_CLAIMED | WH_PACE_GRANTED), __ATOMIC_RELEASE);
}

static void wakes(const struct wh_pace_slot *s, u64 address, u64 count, u64 now)
{
	u64 n = slots_used(), self = index_of(s);

	if ((u32)count >= n) {
		for (u64 i = 0; i < n; i++)
			if (i != self && __atomic_load_n(waiting_at(i), __ATOMIC_RELAXED) == address)
				grant(i, address, s->clock.d, now);
		return;
	}
	for (u32 done = 0; done < (u32)count; done++) {
		s64 i = longest(address, n, self);

		if (i < 0)
			return;
		grant((u64)i, address, s->clock.d, now);
	}
}

/* Those left at one address wait at another from now on. */
static void moves(const struct wh_pace_slot *s, u64 from, u64 to, u64 count)
{
	u64 n = slots_used(), self = index_of(s);

	for (u32 done = 0; done < (u32)count && done < n; done++) {
		s64 i = longest(from, n, self);
		u64 seen = from;

		if (i < 0)
			return;
		__atomic_compare_exchange_n(waiting_at((u64)i), &seen, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
}

static void before_futex(struct wh_pace_slot *s, const struct regs *r, u64 now)
{
	switch (r->rsi & OPERATION) {
	case FUTEX_WAIT_: case FUTEX_WAIT_BITSET_: case FUTEX_LOCK_PI_: case FUTEX_LOCK_PI2_: case FUTEX_WAIT_REQUEUE_PI_:
		waits(s, r->rdi, now);
		return;
	case FUTEX_WAKE_: case FUTEX_WAKE_BITSET_:
		wakes(s, r->rdi, r->rdx, now);
		return;
	case FUTEX_UNLOCK_PI_:
		wakes(s, r->rdi, 1, now);
		return;
	case FUTEX_REQUEUE_: case FUTEX_CMP_REQUEUE_: case FUTEX_CMP_REQUEUE_PI_:
		wakes(s, r->rdi, r->rdx, now);
		moves(s, r->rdi, r->r8, r->r10);
		return;
	case FUTEX_WAKE_OP_:
		wakes(s, r->rdi, r->rdx, now);
		wakes(s, r->r8, r->r10, now);
		return;
	default:
		return;
	}
}

/* A thread that blocks the signal of ticks may have one pending, from before that was noticed: it is taken away before
 * the program waits for signals. What is not ours is sent again. */
void drop_tick(u64 signal)
{
	u64 set = 1ull << ((signal - 1) & 63), none[2] = {0, 0};
	struct {
		s32 number, error, code;
		u32 rest[29];
	} info;

	if (!signal || sys4(CALL_SIGTIMEDWAIT, &set, &info, none, 8) < 0 || info.code == POLL_IN_)
		return;
	sys4(SYS_RT_TGSIGQUEUEINFO, G.pid, sys0(SYS_GETTID), signal, &info);
}

int waits_for_signals(const struct regs *r)
{
	return (u32)r->rax == CALL_SIGTIMEDWAIT;
}

/* A time that the program points to, in ns; the second word's unit is so many. -1: none, or it is not there. The kernel reads it, as another thread
 * may unmap it at any moment. */
static s64 time_at(u64 at, s64 unit)
{
	s64 words[2];
	u64 here[2] = {(u64)words, sizeof(words)}, there[2] = {at, sizeof(words)};

	if (!at || sys6(SYS_PROCESS_VM_READV, (u64)sys0(SYS_GETPID), (u64)here, 1, (u64)there, 1, 0) != sizeof(words))
		return -1;
	return words[0] * 1000000000ll + words[1] * unit;
}

static s64 in_ms(u64 time_out)
{
	return (s32)time_out < 0 ? -1 : (s64)(s32)time_out * 1000000ll;
}

static s64 futex_time_out(const struct regs *r)
{
	u64 operation = r->rsi & OPERATION, clock[2] = {0, 0};
	s64 until;

	if (operation == FUTEX_WAIT_)
		return time_at(r->r10, 1);
	if (operation != FUTEX_WAIT_BITSET_ || (until = time_at(r->r10, 1)) < 0)
		return -1;
	sys2(SYS_CLOCK_GETTIME, r->rsi & 0x100 ? 0 /* CLOCK_REALTIME */ : 1, clock);
	return until - (s64)(clock[0] * 1000000000ull + clock[1]);
}

/* The longest that the call waits in ns; -1: for ever, or it waits for no time. */
static s64 time_out_of(const struct regs *r)
{
	switch ((u32)r->rax) {
	case CALL_NANOSLEEP:
		return time_at(r->rdi, 1);
	case CALL_CLOCK_NANOSLEEP:
		return r->rsi & 1 ? -1 : time_at(r->rdx, 1);
	case CALL_POLL:
		return in_ms(r->rdx);
	case CALL_EPOLL_WAIT: case CALL_EPOLL_PWAIT:
		return in_ms(r->r10);
	case CALL_SELECT:
		return time_at(r->r8, 1000);
	case CALL_PSELECT:
		return time_at(r->r8, 1);
	case CALL_PPOLL: case CALL_SIGTIMEDWAIT:
		return time_at(r->rdx, 1);
	case CALL_EPOLL_PWAIT2:
		return time_at(r->r10, 1);
	case CALL_FUTEX:
		return futex_time_out(r);
	default:
		return -1;
	}
}

static void times(struct wh_pace_slot *s, const struct regs *r, u64 now)
{
	s64 most = time_out_of(r);

	if (most <= 0)
		return;
	s->rest_since = now;
	s->rest_cpu = cpu_now();
	s->rest_wait = (u32)r->rax << 22 ^ (u32)(r->rdi >> 6);
	s->rest.asked = most;
}

/* The thread is about to make a system call, with its number and arguments in the registers. */
void before_call(struct wh_pace_slot *s, struct wh_pace_ctl *c, const struct regs *r, u64 now)
{
	times(s, r, now);
	switch ((u32)r->rax) {
	case CALL_FUTEX:
		before_futex(s, r, now);
		return;
	case CALL_CLOCK_NANOSLEEP:
		s->absolute = (u32)(r->rsi & 1);
		return;
	case CALL_CLONE: case CALL_CLONE3:
		c->born_d = s->clock.d;
		c->born_epoch = c->epoch;
		__atomic_fetch_add(&c->births, 1, __ATOMIC_RELAXED);
		return;
	default:
		return;
	}
}
