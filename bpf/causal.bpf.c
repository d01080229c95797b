/*
 * Kernel side of the causal profiler. Lives here: ticks that credit, pay and record; the events of the
 * scheduler that move virtual clocks (the rules themselves are in whither_debt.h); progress points. Not
 * here: what is speeded up, by how much and for how long, names of code.
 * Constraints: delays are inserted only where user mode was interrupted, or at a progress point, so that
 * nobody who holds a kernel lock is kept waiting; without a heartbeat nothing is credited and nothing
 * paid; all but the progress points runs with interrupts off, so that words of a CPU have one writer.
 */
#include "kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "causal_maps.h"
#include "causal_nap.h"
#include "causal_points.h"
#include "causal_relay.h"
#include "causal_sleeps.h"
#include "causal_socket.h"
#include "causal_time.h"
#include "causal_walk.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define RUNNING 0u
#define STOPPED_OR_TRACED (4u | 8u)
#define DEAD 0x80u
#define EXITING 4u
#define USER_MODE(regs) (((regs).cs & 3) == 3)
#define BLOCKS_PER_100MS 100

/* --- ticks ------------------------------------------------------------------------------------------- */

static void record_run(const struct wh_cz_thread *t, const struct walk *w, __u32 tid, __u64 now, __u64 ns,
		       __u32 kernel, struct wh_cz_cpu *cpu)
{
	struct wh_cz_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r) {
		cpu->lost++;
		return;
	}
	r->kind = WH_CZ_RUN;
	r->kernel = kernel;
	r->tgid = t->tgid;
	r->tid = tid;
	r->t = now;
	r->ns = ns;
	r->site = w->site;
	r->waker_site = 0;
	r->waker = 0;
	r->times = 1;
	r->n = w->n < WH_CZ_FRAMES ? w->n : WH_CZ_FRAMES;
	r->spare = 0;
	__builtin_memcpy(r->frames, w->frames, sizeof(r->frames));
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

struct ticked {
	__u64 points;
	__u64 ns;
	__u64 counted;
};

static long count_step(__u32 i, const struct ticked *t)
{
	if (!(t->points >> (i & (WH_CZ_POINTS - 1)) & 1))
		return 0;
	__u32 key = bpf_get_smp_processor_id() * WH_CZ_POINTS + i;
	struct wh_cz_visits *v = bpf_map_lookup_elem(&visits, &key);
	if (v) {
		counts(v, t->counted);
		v->count += t->ns;
	}
	return 0;
}

/* Points that are counted by ticks, one bit each: by the run time that the tick stands for. A paused thread
 * is met at one place by all ticks of its pause, and has not been there again. */
WH_APART int visit_by_tick(__u64 points, __u64 ns, __u64 counted)
{
	struct ticked t = {points, ns, counted};
	bpf_loop(WH_CZ_POINTS, count_step, &t, 0);
	return 0;
}

static void credit(struct wh_cz_thread *t, struct wh_cz_ctl *c, struct wh_cz_cpu *cpu, __u64 ns)
{
	cpu->hit_ns += ns;
	if (!wh_debt_credit(&t->clock, &c->g, (__s64)(ns * c->percent / 100)))
		cpu->lost++;
}

/* Looks at the stack when somebody wants it, credits, records. */
static void look(struct bpf_perf_event_data *ctx, struct wh_cz_thread *t, __u32 tid, struct wh_cz_ctl *c,
		 struct wh_cz_cpu *cpu, __u64 now, __u32 state)
{
	int records_now = cpu->ticks % c->record_every == 0;
	int credits_now = state == WH_CZ_ON && cpu->ticks % c->credit_every == 0;
	if (!records_now && !(credits_now && (c->unit || c->sampled)))
		return;
	int user = USER_MODE(ctx->regs);
	struct walk *w = walk_of(t->tgid, c, credits_now, records_now ? WH_CZ_FRAMES : 0);
	if (!w)
		return;
	if (credits_now && !w->code.n_modules)
		cpu->unknown_ns += cpu->credit;
	if (user)
		walk_from(ctx->regs.ip, ctx->regs.sp, ctx->regs.bp);
	else if (c->kernel_time)
		walk_user(bpf_get_current_task_btf());
	if (credits_now) {
		if (w->hit) {
			credit(t, c, cpu, cpu->credit);
			cpu->hit_waits += cpu->waits;
		}
		__u64 points = w->marks / WH_CZ_POINT & c->sampled;
		if (points)
			visit_by_tick(points, cpu->credit, c->counted);
		cpu->credit = 0;
		cpu->waits = 0;
	}
	if (records_now) {
		record_run(t, w, tid, now, cpu->record, !user, cpu);
		cpu->record = 0;
	}
}

static void tick(struct bpf_perf_event_data *ctx, struct wh_cz_cpu *cpu, struct wh_cz_ctl *c, __u64 now)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &tid);
	cpu->owing = 0;
	if (!t)
		return;
	if (fresh_of(t) == WH_CZ_PAYING) {
		cpu->owing = wh_debt_owed(&t->clock, &c->g);
		return;
	}
	if (USER_MODE(ctx->regs))
		is_now(t, WH_CZ_STALE);
	__u64 ns = ran(t, c, cpu->tick, now);
	__u32 state = mode(c, now);
	wh_debt_sync(&t->clock, (__u32)c->epoch);
	t->clock.state = WH_CLOCK_RUNS;
	cpu->ticks++;
	cpu->credit += ns;
	cpu->record += ns;
	cpu->waits += t->waits;
	t->waits = 0;
	cpu->samples++;
	cpu->sample_ns += ns;
	if (t->sampled != (__u32)c->epoch) {
		t->sampled = (__u32)c->epoch;
		cpu->threads++;
	}
	look(ctx, t, tid, c, cpu, now, state);
	if (state == WH_CZ_OFF)
		return;
	__u64 owed = wh_debt_owed(&t->clock, &c->g);
	if (owed > cpu->max_debt)
		cpu->max_debt = owed;
	if (owed && USER_MODE(ctx->regs) && !naps(t, c, cpu, owed, now)) {
		/* A debt of more than a tick is not let grow: who goes on with it to a lock that is free takes it from
		 * there without the delay. The tick that is met meanwhile comes right behind. */
		__s64 limit = now + cpu->tick - c->margin - bpf_ktime_get_ns();
		if (limit > (__s64)c->cap || owed > cpu->tick)
			limit = c->cap;
		__u64 paid = pay(&t->clock, c, limit, cpu->worth);
		t->spun += paid * cpu->worth / 1024;
		cpu->inserted += paid;
		cpu->handler -= paid;
	}
	cpu->owing = wh_debt_owed(&t->clock, &c->g);
	if (c->nap_signal && cpu->owing < LEAST_NAP_NS)
		cpu->owing = 0;
}

SEC("perf_event")
int cz_tick(struct bpf_perf_event_data *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct wh_cz_ctl *c = ctl_now();
	struct wh_cz_cpu *cpu = cpu_now();
	if (!c || !cpu)
		return 0;
	tick(ctx, cpu, c, now);
	cpu->handler += bpf_ktime_get_ns() - now;
	return 0;
}

/* --- the scheduler ----------------------------------------------------------------------------------- */

/* Whether this block is looked at: all, until there are many; then one in 2^shift, at random. */
static int chosen(struct wh_cz_cpu *cpu, __u64 now)
{
	cpu->blocks++;
	if (now - cpu->blocks_at > 100000000) {
		if (cpu->shift && cpu->blocks < BLOCKS_PER_100MS / 2)
			cpu->shift--;
		cpu->blocks_at = now;
		cpu->blocks = 0;
	} else if (cpu->blocks > (BLOCKS_PER_100MS << cpu->shift) && cpu->shift < 12) {
		cpu->shift++;
	}
	__u64 x = cpu->draw ^ now;
	x = (x ^ (x >> 29)) * 0x9e3779b97f4a7c15ull;
	cpu->draw = x;
	return !((x >> 40) & ((1ull << (cpu->shift & 15)) - 1));
}

/* A thread blocks: why, and where in the program if that is wanted. */
static void blocks(struct wh_cz_thread *t, struct task_struct *task, struct wh_cz_ctl *c, struct wh_cz_cpu *cpu,
		   __u64 now)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	t->class_ = wait_class(regs, BPF_CORE_READ_BITFIELD(task, in_iowait));
	falls_asleep_until(t, regs, now);
	t->looked = chosen(cpu, now) ? 1u << (cpu->shift & 15) : 0;
	t->site = 0;
	t->marks = 0;
	t->n = 0;
	int armed = c->unit == WH_CZ_OFF_CPU && !c->any_site && (c->classes & (1ull << (t->class_ & 7)));
	if (!t->looked && !armed)
		return;
	struct walk *w = walk_of(t->tgid, c, armed, t->looked ? WH_CZ_FRAMES : 0);
	if (!w)
		return;
	walk_from(regs->ip, regs->sp, regs->bp);
	t->site = w->site;
	t->marks = (__u32)w->marks;
	t->marks_epoch = (__u32)c->epoch;
	t->n = w->n < WH_CZ_FRAMES ? w->n : WH_CZ_FRAMES;
	__builtin_memcpy(t->frames, w->frames, sizeof(t->frames));
}

/* Whether it is a watched thread. */
static int leaves(struct task_struct *task, int preempted, struct wh_cz_ctl *c, struct wh_cz_cpu *cpu, __u64 now)
{
	__u32 tid = task->pid;
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &tid);
	if (!t)
		return 0;
	wh_debt_sync(&t->clock, (__u32)c->epoch);
	__u32 state = preempted ? RUNNING : task->__state;
	cpu->out_tid = tid;
	cpu->out_d = wh_debt_leaves_with(&t->clock, t->fresh >= WH_CZ_ALONE, cpu->out_epoch == c->epoch, cpu->out_d, cpu->idle,
					 &c->g);
	cpu->out_t = now;
	cpu->out_epoch = c->epoch;
	cpu->idle = 0;
	if (state & DEAD) {
		bpf_map_delete_elem(&threads, &tid);
		return 1;
	}
	ran_unseen(t, c, cpu->tick, now);
	wh_debt_leaves(&t->clock, now, state != RUNNING);
	if (state == RUNNING)
		return 1;
	cpu->hasty += fresh_of(t) == WH_CZ_FRESH;
	if (state & STOPPED_OR_TRACED)
		c->stopped = 1;
	if (!falls_asleep(t, (struct pt_regs *)bpf_task_pt_regs(task)))
		blocks(t, task, c, cpu, now);
	return 1;
}

/* Who had the core while this thread waited for it; how long others did. */
static __u64 account_wait(const struct wh_clock *clock, struct wh_cz_cpu *cpu, __u64 now, int from_idle)
{
	__u64 waited = now - clock->since;
	if ((__s64)waited < 0 || clock->state != WH_CLOCK_QUEUED)
		return 0;
	__s64 own = cpu->out_t - clock->since;
	if (own > (__s64)waited || own < 0)
		own = 0;
	cpu->own_wait += own;
	if (from_idle)
		return 0;
	cpu->foreign_wait += waited - own;
	return waited - own;
}

/* Whether it is a watched thread. */
static int enters(struct task_struct *task, struct wh_cz_ctl *c, struct wh_cz_cpu *cpu, __u64 now, int from_idle)
{
	__u32 tid = task->pid;
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &tid);
	if (!t)
		return 0;
	struct wh_clock *clock = &t->clock;
	wh_debt_sync(clock, (__u32)c->epoch);
	/* Woken on another CPU while it was still on its way out: that wake-up was seen first. */
	if (clock->state == WH_CLOCK_BLOCKED && t->early_t && (__s64)(t->early_t - clock->since) > -20000)
		wh_debt_woken(clock, t->early_d, now, &c->g);
	/* The same, and it was a nap. */
	if (t->nap == WH_CZ_ASLEEP)
		wakes_up(t, c, cpu, now);
	__u64 foreign = account_wait(clock, cpu, now, from_idle);
	__s64 before = clock->d;
	if (cpu->out_epoch == c->epoch && cpu->out_tid != tid) {
		wh_debt_handed(clock, cpu->out_d, cpu->out_t, cpu->idle, now, &c->g);
		cpu->handed += before != clock->d;
	}
	if (foreign && mode(c, now) != WH_CZ_OFF)
		wh_debt_displaced(clock, before, foreign, now, &c->g);
	/* It may take a lock before a tick lets it pay: a delay that is paid behind the lock moves nobody's turn. */
	if (fresh_of(t) == WH_CZ_FRESH && mode(c, now) == WH_CZ_ON && wh_debt_owed(clock, &c->g) > WH_DEBT_HANDOVER_NS)
		cpu->hasty++;
	t->early_t = 0;
	t->from = now;
	t->spun = 0;
	if (!t->deadline.woke)
		wh_debt_wakes(&t->deadline, clock, now);
	/* A round is counted from when the program reads its clock. */
	if (t->rest.woke == clock->since)
		t->rest.woke = now;
	clock->state = WH_CLOCK_RUNS;
	return 1;
}

SEC("tp_btf/sched_switch")
int cz_switch(__u64 *args)
{
	struct task_struct *from = (void *)args[1], *to = (void *)args[2];
	int preempted = (args[0] & 1) != 0;
	struct wh_cz_ctl *c = ctl_now();
	struct wh_cz_cpu *cpu = cpu_now();
	if (!c || !cpu)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	if (!from->pid) {
		cpu->idle += cpu->idle_since ? now - cpu->idle_since : 0;
		cpu->idle_since = 0;
	} else if (!leaves(from, preempted, c, cpu, now)) {
		passes_time(from);
	}
	cpu->arrival = 0;
	if (cpu->others_at) {
		cpu->others_ns += now - cpu->others_at;
		cpu->others_at = 0;
	}
	if (!to->pid)
		cpu->idle_since = now;
	else if (!enters(to, c, cpu, now, !from->pid) && !(to->flags & KERNEL_THREAD))
		cpu->others_at = now;
	return 0;
}

static void record_wait(const struct wh_cz_thread *t, __u32 tid, __u64 ns, const struct wh_cz_thread *waker,
			__u32 waker_tid, struct wh_cz_ctl *c, struct wh_cz_cpu *cpu, __u64 now)
{
	__u64 waker_site = 0;
	if (waker) {
		struct walk *w = walk_of(waker->tgid, c, 0, 0);
		if (w) {
			walk_user(bpf_get_current_task_btf());
			waker_site = w->site;
		}
	}
	struct wh_cz_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r) {
		cpu->lost++;
		return;
	}
	r->kind = WH_CZ_BLOCKED;
	r->kernel = t->class_;
	r->tgid = t->tgid;
	r->tid = tid;
	r->t = now;
	r->ns = ns;
	r->site = t->site;
	r->waker_site = waker_site;
	r->waker = waker ? waker_tid : WH_CZ_NOBODY;
	r->times = t->looked;
	r->n = t->n;
	r->spare = 0;
	__builtin_memcpy(r->frames, t->frames, sizeof(r->frames));
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* The thread of the group that ends a wait: the running one, if it does so in its own system call. What an
 * interrupt does on its back is not its doing, but for data it is just sending to itself. */
static struct wh_cz_thread *waker_of(const struct wh_cz_cpu *cpu, __u32 tid, __u32 class)
{
	struct wh_cz_thread *w = bpf_map_lookup_elem(&threads, &tid);
	if (!w || cpu->in_timer || cpu->in_device)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__s64 call = (__s64)regs->orig_ax;
	if (cpu->in_softirq)
		return class == WH_CZ_NET && sends(call) ? w : 0;
	return call >= 0 || (task->flags & EXITING) ? w : 0;
}

static int speeded_up(const struct wh_cz_thread *t, const struct wh_cz_ctl *c)
{
	if (c->unit != WH_CZ_OFF_CPU || !(c->classes & (1ull << (t->class_ & 7))))
		return 0;
	return c->any_site || (t->marks_epoch == (__u32)c->epoch && (t->marks & WH_CZ_SITE));
}

static void wakes(struct wh_cz_thread *t, __u32 tid, struct wh_cz_ctl *c, struct wh_cz_cpu *cpu, __u64 now)
{
	__u32 waker_tid = (__u32)bpf_get_current_pid_tgid();
	struct wh_cz_thread *w = waker_of(cpu, waker_tid, t->class_);
	if (w) {
		wh_debt_sync(&w->clock, (__u32)c->epoch);
		t->waits += t->nap != WH_CZ_ASLEEP;
	}
	if (cpu->in_timer && t->nap != WH_CZ_ASLEEP && t->clock.state == WH_CLOCK_BLOCKED)
		times_out(t, now);
	if (t->nap != WH_CZ_ASLEEP)
		turn_begins(t, w);
	struct asked a = {};
	if (!w && t->nap != WH_CZ_ASLEEP)
		a = asked_by(c, cpu, waker_tid, t->class_);
	if (t->clock.state != WH_CLOCK_BLOCKED) {
		t->early_d = w ? w->clock.d : a.d;
		t->early_t = w || a.known ? now : 0;
		return;
	}
	if (t->nap == WH_CZ_ASLEEP) {
		wakes_up(t, c, cpu, now);
		wh_debt_queues(&t->clock, now);
		return;
	}
	__u64 since = t->clock.since;
	if (w) {
		wh_debt_woken(&t->clock, w->clock.d, now, &c->g);
		cpu->woken_in++;
	} else {
		if (a.known)
			wh_debt_woken(&t->clock, a.d, now, &c->g);
		else if (t->absolute)
			woken_by_time(t, tid, c, cpu);
		else if (mode(c, now) == WH_CZ_ON && speeded_up(t, c))
			credit(t, c, cpu, now - (since > c->begin ? since : c->begin));
		is_asked(t, &a, c, cpu);
		cpu->woken_out++;
	}
	if (!cpu->in_timer) {
		t->handed |= w && t->wait != t->rest.wait;
		wh_rest_met(&t->rest, &t->clock, t->wait);
	}
	if (t->looked)
		record_wait(t, tid, now - since, w, waker_tid, c, cpu, now);
	t->looked = 0;
	wh_debt_queues(&t->clock, now);
}

SEC("tp_btf/sched_waking")
int cz_waking(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u32 tid = task->pid;
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &tid);
	if (!t) {
		if (!(task->flags & KERNEL_THREAD))
			passes_on(task, (__u32)bpf_get_current_pid_tgid());
		return 0;
	}
	struct wh_cz_ctl *c = ctl_now();
	struct wh_cz_cpu *cpu = cpu_now();
	if (!c || !cpu)
		return 0;
	wh_debt_sync(&t->clock, (__u32)c->epoch);
	wakes(t, tid, c, cpu, bpf_ktime_get_ns());
	return 0;
}

/* --- processes and threads --------------------------------------------------------------------------- */

static void tell(__u32 kind, __u32 tgid, __u32 other)
{
	struct wh_cz_cpu *cpu = cpu_now();
	struct wh_cz_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r) {
		if (cpu)
			cpu->lost++;
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->tgid = tgid;
	r->tid = other;
	r->t = bpf_ktime_get_ns();
	/* Nothing of a program is made faster before it was looked at. */
	bpf_ringbuf_submit(r, kind == WH_CZ_EXECED ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* A thread of the group begins: with its creator's clock (R7). */
static void join(struct task_struct *task, const struct wh_cz_thread *creator)
{
	__u32 tid = task->pid;
	struct wh_cz_ctl *c = ctl_now();
	struct wh_cz_cpu *cpu = cpu_now();
	struct wh_cz_thread *t = fresh_thread();
	if (!c || !cpu || !t)
		return;
	t->tgid = task->tgid;
	t->start = task->start_time;
	if (creator)
		wh_debt_born(&t->clock, &creator->clock, bpf_ktime_get_ns());
	else
		wh_debt_queues(&t->clock, bpf_ktime_get_ns());
	if (bpf_map_update_elem(&threads, &tid, t, BPF_ANY))
		cpu->lost++;
}

SEC("tp_btf/sched_process_fork")
int cz_fork(__u64 *args)
{
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];
	__u32 parent_tid = parent->pid, from = parent->tgid, to = child->tgid;
	struct wh_cz_ctl *c = ctl_now();
	struct wh_cz_process *p = bpf_map_lookup_elem(&processes, &from);
	if (!p || !c)
		return 0;
	if (from != to) {
		if (!c->follow)
			return 0;
		struct wh_cz_process same = *p;
		if (bpf_map_update_elem(&processes, &to, &same, BPF_ANY))
			return 0;
		tell(WH_CZ_FORKED, to, from);
	}
	struct wh_cz_thread *creator = bpf_map_lookup_elem(&threads, &parent_tid);
	if (creator)
		wh_debt_sync(&creator->clock, (__u32)c->epoch);
	join(child, creator);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int cz_wakeup_new(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u32 tid = task->pid, tgid = task->tgid;
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &tid);
	if (t && t->start == task->start_time) {
		wh_debt_queues(&t->clock, bpf_ktime_get_ns());
		return 0;
	}
	/* Workers that the kernel makes for a process are not forked. */
	if (!bpf_map_lookup_elem(&processes, &tgid))
		return 0;
	__u32 by = (__u32)bpf_get_current_pid_tgid();
	join(task, bpf_map_lookup_elem(&threads, &by));
	return 0;
}

SEC("tp_btf/sched_process_exec")
int cz_exec(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u32 old = (__u32)args[1], tid = task->pid, tgid = task->tgid;
	struct wh_cz_process *p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p)
		return 0;
	/* A thread that execs takes over its leader's id, and with it a slot. */
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &old);
	if (old != tid && t) {
		struct wh_cz_thread *moved = fresh_thread();
		if (moved) {
			moved->clock = t->clock;
			moved->tgid = tgid;
			moved->start = task->start_time;
			bpf_map_update_elem(&threads, &tid, moved, BPF_ANY);
		}
		bpf_map_delete_elem(&threads, &old);
	}
	p->layout = 0;
	p->napper = 0;
	tell(WH_CZ_EXECED, tgid, 0);
	return 0;
}

/* The id is free again. The thread's slot went when it left its core for the last time, unless the table
 * was busy just then; a new owner of the id has begun since. */
SEC("tp_btf/sched_process_free")
int cz_free(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u32 tid = task->pid, tgid = task->tgid;
	struct wh_cz_thread *t = bpf_map_lookup_elem(&threads, &tid);
	int mine = t && (!t->start || t->start == task->start_time);
	if (mine)
		bpf_map_delete_elem(&threads, &tid);
	if (tid == tgid && (mine || !t))
		bpf_map_delete_elem(&processes, &tgid);
	return 0;
}

/* --- contexts of a wake-up --------------------------------------------------------------------------- */

#define CONTEXT(name, event, word, value)            \
	SEC("tp_btf/" event)                         \
	int name(__u64 *args)                        \
	{                                            \
		struct wh_cz_cpu *cpu = cpu_now();   \
		if (cpu) {                           \
			cpu->word = value;           \
			cpu->arrival = 0;            \
		}                                    \
		return 0;                            \
	}
CONTEXT(cz_timer_entry, "local_timer_entry", in_timer, 1)
CONTEXT(cz_timer_exit, "local_timer_exit", in_timer, 0)
CONTEXT(cz_device_entry, "irq_handler_entry", in_device, 1)
CONTEXT(cz_device_exit, "irq_handler_exit", in_device, 0)
/* Data has come for whoever reads from this socket: they are woken next. */
SEC("tp_btf/sk_data_ready")
int cz_data_ready(__u64 *args)
{
	struct sock *sk = (void *)args[0];
	struct wh_cz_cpu *cpu = cpu_now();
	if (!cpu)
		return 0;
	cpu->arrival_of_many = sk->__sk_common.skc_state != CONNECTED;
	cpu->arrival = (__u64)sk;
	return 0;
}

SEC("tp_btf/sock_send_length")
int cz_sent(__u64 *args)
{
	struct sock *sk = (void *)args[0];
	if ((__s32)args[1] > 0)
		sent((__u64)sk, sk->sk_protocol == TCP);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int cz_connects(__u64 *args)
{
	connects(args[0], (__s32)args[1], (__s32)args[2]);
	return 0;
}

CONTEXT(cz_softirq_entry, "softirq_entry", in_softirq, 1)
CONTEXT(cz_softirq_exit, "softirq_exit", in_softirq, 0)

/* --- progress points --------------------------------------------------------------------------------- */

/* Where the kernel can: it needs neither a uprobe event source nor a descriptor for each place. */
SEC("uprobe.multi")
int cz_uprobe_multi(void *regs)
{
	visit((__u32)bpf_get_attach_cookie(regs), 1);
	return 0;
}

SEC("uprobe")
int cz_uprobe(void *regs)
{
	visit((__u32)bpf_get_attach_cookie(regs), 1);
	return 0;
}

/* The kernel may hold any lock here: the next tick in user mode lets the thread pay. */
SEC("tracepoint")
int cz_tracepoint(void *ctx)
{
	visit((__u32)bpf_get_attach_cookie(ctx), 0);
	return 0;
}

/* A system call that returned no error is a visit. */
SEC("tp_btf/sys_exit")
int cz_sys_exit(__u64 *args)
{
	struct pt_regs *regs = (void *)args[0];
	__s64 result = (__s64)args[1];
	__u32 call = (__u32)regs->orig_ax;
	__u32 *point = bpf_map_lookup_elem(&calls, &call);
	pays_awake(result);
	if (point && *point && result >= 0)
		visit(*point - 1, 1);
	return 0;
}
