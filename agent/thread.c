/*
 * From a thread to its block: finding it, claiming one, knowing a dead owner. Constraints: no lock
 * (claims are one compare-and-swap), no memory but whole mappings, and short-lived threads must not
 * make the tables grow, so blocks and private memory of the dead are used again before new ones.
 */
#include "agent.h"

__thread struct own wh_own __attribute__((tls_model("initial-exec"), visibility("hidden")));

#define OWN_LOCAL 0
#define OWN_COOKIE 1
#define LOOKED_AT 64u /* blocks that a new thread looks at before it takes a fresh one */
#define BASES 16384u

static struct {
	u64 base;
	struct local *local;
} bases[BASES];

u64 thread_pointer(void)
{
	u64 base = 0;

	if (likely(G.fsgsbase))
		__asm__ volatile("rdfsbase %0" : "=r"(base));
	else if (!G.locked)
		sys2(SYS_ARCH_PRCTL, 0x1003, &base);
	return base;
}

/* Place of the thread pointer in the table, empty or not; -1 when the table is full. */
static s64 base_place(u64 base)
{
	u32 at = (u32)((base >> 6) * 0x9e3779b97f4a7c15ull >> 40) % BASES;

	for (u32 tries = 0; tries < 64; tries++, at = (at + 1) % BASES) {
		u64 have = __atomic_load_n(&bases[at].base, __ATOMIC_ACQUIRE);

		if (have == base || have == 0)
			return at;
	}
	return -1;
}

/* Way 2 only. A thread pointer of 0 is one before the C library is set up: no block for it. */
struct local *local_by_base(void)
{
	u64 base = thread_pointer();
	s64 at = base ? base_place(base) : -1;

	return at >= 0 && bases[at].base == base ? bases[at].local : 0;
}

static int local_store(struct local *l)
{
	if (G.way == 1) {
		wh_own.local = l;
		return 1;
	}
	u64 base = thread_pointer();
	for (s64 at; base && (at = base_place(base)) >= 0;) {
		u64 none = 0;

		if (bases[at].base == base ||
		    __atomic_compare_exchange_n(&bases[at].base, &none, base, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			bases[at].local = l;
			return 1;
		}
	}
	return 0;
}

void count_lost(enum wh_lost cause)
{
	__atomic_fetch_add(&header()->lost[cause], 1, __ATOMIC_RELAXED);
}

static void clock_drop(struct local *l)
{
	if (l->clock && l->clock != &l->no_clock)
		unmap_own((u64)l->clock & ~(PAGE - 1), PAGE);
	l->clock = 0;
}

/* Whether the caller is the thread that holds the block. Way 2 finds threads by their thread pointer,
 * which a new thread may have inherited from a dead one: then it goes on with the dead one's block. */
slow_path int same_thread(struct local *l)
{
	struct wh_thread *t = l->block;
	u32 tid = (u32)sys0(SYS_GETTID);

	if (tid == t->tid)
		return 1;
	if (G.way != 2 || sys3(SYS_TGKILL, t->pid, t->tid, 0) != -ESRCH_)
		return 0;
	t->tid = tid;
	t->lives++;
	clock_drop(l);
	events_drop(l);
	return 1;
}

static struct wh_thread *thread_at(u32 index)
{
	return (struct wh_thread *)(G.segment + WH_AT_THREADS + (u64)index * WH_THREAD_STRIDE);
}

/* Takes hold of a block: until it is LIVE with its new owner's ids nobody else judges it. */
static int claim(struct wh_thread *t, u32 from)
{
	return __atomic_compare_exchange_n(&t->state, &from, WH_THREAD_CLAIMED, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Whether the owner is gone: its id answers "no such thread", or it is our own from before an exec.
 * Only within our process: another may count its ids in another namespace. Never in way 2, where a
 * block belongs to whoever has the thread pointer. */
static int owner_gone(const struct wh_thread *t, u32 pid, u32 tid)
{
	if (t->pid != pid || (G.way == 2 && t->own[OWN_COOKIE] == G.cookie))
		return 0;
	return t->tid == tid || sys3(SYS_TGKILL, pid, t->tid, 0) == -ESRCH_;
}

static struct wh_thread *claim_used(u32 from, u32 to, u32 pid, u32 tid)
{
	for (u32 i = from; i < to; i++) {
		struct wh_thread *t = thread_at(i);
		u32 state = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE);

		if (state == WH_THREAD_CLAIMED || (state == WH_THREAD_LIVE && !owner_gone(t, pid, tid)))
			continue;
		if (!claim(t, state))
			continue;
		if (state != WH_THREAD_LIVE || owner_gone(t, pid, tid))
			return t;
		__atomic_store_n(&t->state, WH_THREAD_LIVE, __ATOMIC_RELEASE); /* another had it in between */
	}
	return 0;
}

static struct wh_thread *claim_block(u32 pid, u32 tid)
{
	struct wh_header *h = header();
	u32 used = __atomic_load_n(&h->next_thread, __ATOMIC_ACQUIRE);
	struct wh_thread *t;

	if (used > WH_MAX_THREADS)
		used = WH_MAX_THREADS;
	u32 window = used < LOOKED_AT ? used : LOOKED_AT;
	u32 from = used > window ? (u32)(ticks() >> 6) % (used - window) : 0;
	t = h->apart ? 0 : claim_used(from, from + window, pid, tid);
	if (t)
		return t;
	while (h->next_thread < WH_MAX_THREADS) {
		u32 index = __atomic_fetch_add(&h->next_thread, 1, __ATOMIC_ACQ_REL);

		if (index < WH_MAX_THREADS && claim(thread_at(index), WH_THREAD_FREE))
			return thread_at(index);
	}
	return claim_used(0, WH_MAX_THREADS, pid, tid);
}

static void local_reset(struct local *l)
{
	clock_drop(l);
	events_drop(l);
	/* Only what was used: the rest is memory that was never touched. */
	for (u32 i = 0; i < STACK_PLACES && l->stack_next > FEW_STACKS; i++)
		l->stack_place[i] = 0;
	for (u32 i = 0; i < STACKS && i < l->stack_next; i++)
		l->stacks[i] = (struct stack){0};
	l->stack = (struct stack){0};
	l->stack_now = l->stack_next = l->tidy_at = 0;
	l->deaf = l->strict = l->learning = 0;
	l->credit = 0;
	l->deadline = 0;
	l->more_page = l->more_used = 0;
}

static struct local *join(void)
{
	struct local *l = local_of_thread();
	u32 pid = (u32)sys0(SYS_GETPID);
	u32 tid = (u32)sys0(SYS_GETTID);

	if (l && l->home == G.segment)
		return l; /* a signal handler was here first */
	struct wh_thread *t = claim_block(pid, tid);
	if (!t)
		return 0;
	if (!l && t->pid == pid && t->own[OWN_COOKIE] == G.cookie)
		l = (struct local *)t->own[OWN_LOCAL];
	if (l) {
		if (l->home) /* not wiped: words of the thread before, or of an earlier segment */
			local_reset(l);
		else
			__atomic_fetch_add(&header()->forks, 1, __ATOMIC_RELAXED); /* wiped: a child */
	} else {
		l = pool_take();
	}
	if (l && !local_store(l)) {
		/* For whoever takes the block next. */
		l->home = G.segment;
		t->pid = pid;
		t->own[OWN_LOCAL] = (u64)l;
		t->own[OWN_COOKIE] = G.cookie;
		l = 0;
	}
	if (!l) {
		__atomic_store_n(&t->state, WH_THREAD_DEAD, __ATOMIC_RELEASE);
		return 0;
	}
	t->pid = pid;
	t->tid = tid;
	t->lives++;
	t->n_active = 0;
	t->seq_active = 0;
	t->busy_sp = 0;
	t->cpu_mode = 0;
	t->own[OWN_LOCAL] = (u64)l;
	t->own[OWN_COOKIE] = G.cookie;
	t->started = ticks();
	__atomic_store_n(&t->state, WH_THREAD_LIVE, __ATOMIC_RELEASE);
	l->block = t;
	if (G.way == 1)
		wh_own.block = t;
	l->enabled = 1;
	/* What was learnt in another segment is forgotten. Fresh memory has nothing to forget, and to say so would touch it all. */
	l->generation = header()->generation - (l->home != 0);
	barrier();
	l->home = G.segment;
	return l;
}

/* A forked child where children are nobody's business. Asked each time: what is noted in memory might be so in
 * that of the parent, after vfork. */
slow_path int outsider(void)
{
	return header()->no_forks && !G.locked && (u32)sys0(SYS_GETPID) != G.pid;
}

/* Gives the calling thread a block; 0 when there is none. None for a thread that cannot be told from
 * others yet (way 2), and none once system calls are forbidden. */
slow_path struct local *thread_join(void)
{
	if (G.locked || (G.way == 2 && !thread_pointer()))
		return 0;
	u64 mask = signals_block();
	struct local *l = join();

	signals_restore(mask);
	return l;
}
