/*
 * Kernel side of the sampler. Lives here: the handler that aggregates samples in a table per CPU
 * (the heart of DCPI's driver, paper sections 4.1-4.2), stack capture, and records that tell which
 * life of a pid a tag belongs to, and registers for those who interpret branches. Not here: when to drain, what an address means, any policy.
 * Constraint: the handler runs in hard-interrupt or NMI context, so it takes no lock, does not
 * allocate, never wakes anybody, and touches one or two cache lines.
 */
#define WHITHER_ABI_NO_STDINT
#include "kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "../include/whither_abi.h"

#define IDLE 0
#define WH_PAGE 4096u
#define PC_MASK ((1ull << WH_PC_BITS) - 1)

/* Set before loading; the verifier removes what is off. */
const volatile __u32 wh_buckets = 4096; /* per CPU and half; power of two */
const volatile __u32 wh_by_thread = 0;
const volatile __u32 wh_filtered = 0;
const volatile __u32 wh_stack_mode = 0; /* 0 none, 1 frame pointers, 2 registers + bytes */
const volatile __u32 wh_stack_bytes = WH_MAX_STACK;
const volatile __u32 wh_stack_every = 1;
/* Registers of some samples of one event; steps by recipe too when the last is set. */
const volatile __u32 wh_regs_on = 0;
const volatile __u32 wh_regs_event = 0;
const volatile __u32 wh_recipes_on = 0;
/* Pairs of moments, for samples of that event. */
const volatile __u32 wh_pairs_on = 0;
/* The kernel's idle code: its section, and the halt that paravirtual kernels call. All 0: every
 * sample of pid 0 counts as idle. */
const volatile __u64 wh_idle_from = 0, wh_idle_to = 0;
const volatile __u64 wh_halt_from = 0, wh_halt_to = 0;

/* Half of the tables that handlers fill; flipped from user space. */
volatile __u32 wh_active = 0;
/* Registers of one in so many samples; changed from user space as they cost. */
volatile __u32 wh_regs_every = 0;
/* Phases, by process id. */
__u32 wh_phase[WH_PHASES] = {};
/* Hashes of programs seen, by place. The tool is woken for new ones fifty times a second, or 16 times at once: then
 * `wh_due`, when the next would be due at that pace, is no further ahead. With walks for programs seen before as often, too:
 * what their processes share the tool has to tell of each. One that is not told of is walked in from some later moment on,
 * and what it does first is missed. And as often where a walk ended in code that is not prepared (paths.h). */
#define PROGRAMS 4096
#define WAKE_EVERY_NS 20000000ull
#define WAKES_AT_ONCE 16
__u64 wh_programs[PROGRAMS] = {};
__u64 wh_due = 0, wh_due_again = 0, wh_due_code = 0;
/* Task records that found the ring full: their samples may end as "unknown". */
__u64 wh_task_drop = 0;

/* Table of all CPUs in one mapping: [cpu][half][bucket]. Sized before loading. Mapped into the
 * tool, so that draining costs no system call per entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_bucket);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} overflow SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* Programs that were not seen before: whoever waits for this ring reads at once what was mapped, as a program that was
 * just built may be removed as soon as it has run. And walks that ended in code that is not prepared. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} arrivals SEC(".maps");

/* What to load at which place, put there by the tool for places that need it; else empty. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct wh_place);
	__type(value, struct wh_recipe);
} recipes SEC(".maps");

/* Executable pages of processes when they last began to change their mappings, by process id. Two processes with one place
 * could hide from each other that one has unmapped code; a hash table would cost every change of mappings 0.2 us more. */
#define SPACES 16384
struct space {
	__u64 mm;
	__u64 pages;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SPACES);
	__type(key, __u32);
	__type(value, struct space);
} spaces SEC(".maps");

/* Whether the tool may be woken once more; `at_once`: so often without a pause. */
static __always_inline int may_wake(__u64 *due, __u64 now, __u64 at_once)
{
	__u64 at = *due > now ? *due : now;
	if (at > now + at_once * WAKE_EVERY_NS)
		return 0;
	*due = at + WAKE_EVERY_NS;
	return 1;
}

#include "paths.h"

/* The last sample of each CPU that registers came with, until a second moment is found for it. */
struct moment {
	__u64 time; /* when the handler was left; 0: there is none */
	__u64 pc;
	__u64 switches; /* of the thread, so far */
	__u64 handler_ns;
	__u32 tgid;
	__u32 tid;
	__u64 value[WH_GPRS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct moment);
} moments SEC(".maps");

struct stack_scratch {
	struct wh_stack head;
	__u64 frames[2 * (WH_MAX_FRAMES + 1)];
	__u8 bytes[WH_MAX_STACK];
};
/* One per CPU, by its number: what a per-CPU map holds may not exceed 32 KiB. Sized before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_scratch);
} scratch SEC(".maps");

static __always_inline __u32 tag_of(struct task_struct *task)
{
	__u64 start = BPF_CORE_READ(task, group_leader, start_time);
	__u32 execs = BPF_CORE_READ(task, self_exec_id);
	/* In large steps: an exec that looks like the end of a phase as well would leave the tag as it was, one against one. */
	return ((__u32)(start * 0x9E3779B97F4A7C15ull >> (64 - WH_TAG_BITS)) ^ execs * WH_EXEC_STEP) &
	       ((1u << WH_TAG_BITS) - 1);
}

static __always_inline __u32 draw(struct wh_cpu *cpu)
{
	/* xorshift32: the thinning must not be "every n-th", which locks onto periodic programs. */
	__u32 x = cpu->draw;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	cpu->draw = x;
	return x;
}

/* Counts the sample in its bucket; a bucket's entries move one place forward on a hit, so that hot
 * ones are found first (paper section 5.4). */
static __always_inline void count(struct wh_cpu *cpu, struct wh_bucket *b, __u64 where, __u32 who)
{
	struct wh_entry *way = b->way;
#pragma unroll
	for (int i = 0; i < WH_WAYS; i++) {
		if (way[i].where == where && way[i].who == who && way[i].count) {
			cpu->hit++;
			if (i == 0) {
				way[0].count++;
				return;
			}
			struct wh_entry before = way[i - 1];
			way[i - 1].where = where;
			way[i - 1].who = who;
			way[i - 1].count = way[i].count + 1;
			way[i] = before;
			return;
		}
	}
	cpu->miss++;
	/* The front half is protected: a newcomer replaces one of the two entries used least lately. */
	__u32 v = 2 + (cpu->victim++ & 1);
	struct wh_entry *e = &way[v & (WH_WAYS - 1)];
	if (e->count) {
		struct wh_entry *out = bpf_ringbuf_reserve(&overflow, sizeof(*out), 0);
		if (out) {
			*out = *e;
			bpf_ringbuf_submit(out, BPF_RB_NO_WAKEUP);
		} else {
			cpu->drop += e->count;
		}
	}
	e->where = where;
	e->who = who;
	e->count = 1;
}

/* The user stack from `sp` on, page by page: buffers that were never written have no pages, and the stack ends somewhere.
 * The first thread's stack ends where the arguments begin. */
static __always_inline void copy_stack(struct stack_scratch *s, struct task_struct *task)
{
	__u64 sp = s->head.sp, top = BPF_CORE_READ(task, mm, start_stack), want = wh_stack_bytes;
	__u64 got = 0;
	__u32 holes = 0;
	if (top > sp && top - sp < want)
		want = (top - sp + 8) & ~7ull;
	for (__u32 page = 0; page <= WH_MAX_STACK / WH_PAGE; page++) {
		__u64 size = WH_PAGE - ((sp + got) & (WH_PAGE - 1));
		if (got >= want)
			break;
		if (size > want - got)
			size = want - got;
		barrier_var(size);
		barrier_var(got);
		if (got > WH_MAX_STACK - WH_PAGE || size > WH_PAGE)
			break;
		long error = bpf_probe_read_user(&s->bytes[got], (__u32)size, (void *)(sp + got));
		/* Without a branch, for the verifier's sake: an error is negative. */
		holes |= (__u32)((__u64)error >> 63) << page;
		got += size;
	}
	s->head.bytes = got;
	s->head.holes = holes;
}

static __always_inline void stack(struct bpf_perf_event_data *ctx, struct task_struct *task, struct wh_cpu *cpu,
				  __u64 where, __u32 who)
{
	__u32 here = bpf_get_smp_processor_id();
	struct stack_scratch *s = bpf_map_lookup_elem(&scratch, &here);
	if (!s) {
		cpu->stack_drop++;
		return;
	}
	struct wh_stack *h = &s->head;
	h->kind = WH_STACK;
	h->who = who;
	h->where = where;
	h->tgid = bpf_get_current_pid_tgid() >> 32;
	h->tid = (__u32)bpf_get_current_pid_tgid();
	h->time = bpf_ktime_get_ns();
	h->ip = h->sp = h->bp = 0;
	h->n_kernel = h->n_user = h->bytes = h->holes = 0;
	long n = bpf_get_stack(ctx, s->frames, WH_MAX_FRAMES * 8, 0);
	__u32 used = 0;
	if (n > 0) {
		h->n_kernel = (__u32)n / 8;
		used = (__u32)n;
	}
	if (used > WH_MAX_FRAMES * 8)
		return;
	if (BPF_CORE_READ(task, mm)) {
		if (wh_stack_mode == 1) {
			n = bpf_get_stack(ctx, (void *)s->frames + used, WH_MAX_FRAMES * 8, BPF_F_USER_STACK);
			if (n > 0)
				h->n_user = (__u32)n / 8;
		} else {
			struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
			h->ip = BPF_CORE_READ(regs, ip);
			h->sp = BPF_CORE_READ(regs, sp);
			h->bp = BPF_CORE_READ(regs, bp);
			if ((ctx->regs.cs & 3) == 3) {
				h->ip = ctx->regs.ip;
				h->sp = ctx->regs.sp;
				h->bp = ctx->regs.bp;
			}
			copy_stack(s, task);
		}
	}
	/* The bytes stay at their fixed place; the reader knows sizeof(frames). */
	__u64 size = sizeof(s->head) + sizeof(s->frames) + (h->bytes & (WH_MAX_STACK * 2 - 1));
	if (size > sizeof(*s))
		size = sizeof(*s);
	if (wh_stack_mode == 1)
		size = sizeof(s->head) + (((h->n_kernel + h->n_user) * 8) & 4095);
	if (bpf_ringbuf_output(&events, s, size, BPF_RB_NO_WAKEUP))
		cpu->stack_drop++;
}

/* The steps of a recipe, in order. One that depends on a failed one fails as well: not what would be found with 0 in
 * its place, but nothing. */
static __always_inline void follow(struct wh_regs *r, const struct wh_recipe *recipe)
{
	__u32 known = 0;
	r->recipe = *(volatile const __u32 *)&recipe->again;
#pragma unroll
	for (__u32 i = 0; i < WH_STEPS; i++) {
		const struct wh_step *s = &recipe->step[i];
		__u32 need = 0;
		if (!s->used)
			break;
#pragma unroll
		for (__u32 t = 0; t < WH_TERMS; t++)
			need |= (1u << (s->source[t] & 31)) >> WH_GPRS;
		if ((known & need) != need)
			continue;
		__u64 sum = wh_sum(s, r->value);
		__u64 *to = &r->value[WH_GPRS + i];
		void *at = (void *)sum;
		long failed = 0;
		if (s->width == 0)
			*to = sum;
		else
			failed = s->width == 8	 ? bpf_probe_read_user(to, 8, at)
				 : s->width == 4 ? bpf_probe_read_user(to, 4, at)
				 : s->width == 2 ? bpf_probe_read_user(to, 2, at)
						 : bpf_probe_read_user(to, 1, at);
		if (!failed)
			known |= 1u << i;
	}
	r->known = known;
	/* The place in the map was given to another recipe meanwhile. */
	if (*(volatile const __u32 *)&recipe->id != r->recipe)
		r->known = 0;
}

static __always_inline void general(__u64 *value, struct bpf_perf_event_data *ctx)
{
	value[0] = ctx->regs.ax;
	value[1] = ctx->regs.cx;
	value[2] = ctx->regs.dx;
	value[3] = ctx->regs.bx;
	value[4] = ctx->regs.sp;
	value[5] = ctx->regs.bp;
	value[6] = ctx->regs.si;
	value[7] = ctx->regs.di;
	value[8] = ctx->regs.r8;
	value[9] = ctx->regs.r9;
	value[10] = ctx->regs.r10;
	value[11] = ctx->regs.r11;
	value[12] = ctx->regs.r12;
	value[13] = ctx->regs.r13;
	value[14] = ctx->regs.r14;
	value[15] = ctx->regs.r15;
}

static __always_inline void registers(struct bpf_perf_event_data *ctx, struct wh_cpu *cpu, __u32 tgid, __u64 pc)
{
	struct wh_regs *r = bpf_ringbuf_reserve(&events, sizeof(*r), 0);
	if (!r) {
		cpu->regs_drop++;
		return;
	}
	r->kind = WH_REGS;
	r->tgid = tgid;
	r->pc = pc;
	r->time = bpf_ktime_get_ns();
	r->flags = ctx->regs.flags;
	r->recipe = r->known = 0;
	general(r->value, ctx);
#pragma unroll
	for (__u32 i = 0; i < WH_STEPS; i++)
		r->value[WH_GPRS + i] = 0;
	if (wh_recipes_on) {
		struct wh_place place = { .pc = pc, .tgid = tgid };
		struct wh_recipe *recipe = bpf_map_lookup_elem(&recipes, &place);
		if (recipe)
			follow(r, recipe);
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* Registers of user code in 64-bit mode: 0x23 is the selector of 32-bit code. */
static __always_inline int has_user_registers(struct bpf_perf_event_data *ctx)
{
	return (ctx->regs.cs & 3) == 3 && ctx->regs.cs != 0x23;
}

static __always_inline __u64 switches_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw);
}

/* Keeps the sample, as the first moment of a pair. */
static __always_inline void keep(struct bpf_perf_event_data *ctx, struct task_struct *task, __u32 number, __u64 both,
					 __u64 began)
{
	struct moment *m = bpf_map_lookup_elem(&moments, &number);
	if (!m)
		return;
	*(volatile __u64 *)&m->time = 0;
	m->pc = ctx->regs.ip;
	m->switches = switches_of(task);
	m->tgid = both >> 32;
	m->tid = (__u32)both;
	general(m->value, ctx);
	__u64 now = bpf_ktime_get_ns();
	m->handler_ns = now - began;
	*(volatile __u64 *)&m->time = now;
}

static __always_inline int is_idle(__u64 pc)
{
	return !wh_idle_to || (pc >= wh_idle_from && pc < wh_idle_to) || (pc >= wh_halt_from && pc < wh_halt_to);
}

static __always_inline void sample(struct bpf_perf_event_data *ctx, struct wh_cpu *cpu, __u32 number)
{
	__u64 began = wh_pairs_on ? bpf_ktime_get_ns() : 0;
	__u64 both = bpf_get_current_pid_tgid();
	__u32 tgid = both >> 32, tid = (__u32)both;
	__u64 pc = ctx->regs.ip;
	if (tid == IDLE && is_idle(pc)) {
		cpu->idle++;
		return;
	}
	if (wh_filtered && !bpf_map_lookup_elem(&targets, &tgid)) {
		cpu->other++;
		return;
	}
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 tag = tag_of(task);
	__u32 phased = (tag ^ wh_phase[tgid & (WH_PHASES - 1)]) & ((1u << WH_TAG_BITS) - 1);
	__u32 who = ((wh_by_thread ? tid : tgid) & ((1u << WH_PID_BITS) - 1)) | phased << WH_PID_BITS;
	__u64 event = bpf_get_attach_cookie(ctx) & ((1 << WH_EVENT_BITS) - 1);
	__u64 where = (pc & PC_MASK) | event << WH_PC_BITS |
		      (__u64)(phased >> WH_TAG_LOW_BITS) << (WH_PC_BITS + WH_EVENT_BITS);

	__u64 hash = (where ^ ((__u64)who << 40)) * 0x9E3779B97F4A7C15ull;
	__u32 slot = (number * 2 + (wh_active & 1)) * wh_buckets + ((hash >> 40) & (wh_buckets - 1));
	struct wh_bucket *b = bpf_map_lookup_elem(&table, &slot);
	if (!b)
		return;
	count(cpu, b, where, who);
	if (wh_stack_mode && (wh_stack_every <= 1 || draw(cpu) % wh_stack_every == 0))
		stack(ctx, task, cpu, where, who);
	if (wh_regs_on && event == wh_regs_event && has_user_registers(ctx)) {
		__u32 every = wh_regs_every;
		if (every && draw(cpu) % every == 0)
			registers(ctx, cpu, tgid, pc);
		if (wh_path_tells) {
			every = wh_paths_every;
			if (every && draw(cpu) % every == 0)
				walk_from(ctx, task, cpu, tgid, tag, pc);
		}
		if (wh_pairs_on)
			keep(ctx, task, number, both, began);
	}
}

/* The other moment of a pair, by an event of its own whose period has nothing to do with the sampling one's: how far it is
 * behind the sample is drawn by chance so, and loops whose rounds fit into a period tell no false number of them. */
SEC("perf_event")
int on_second(struct bpf_perf_event_data *ctx)
{
	__u32 number = bpf_get_smp_processor_id();
	__u64 both = bpf_get_current_pid_tgid();
	struct moment *m = bpf_map_lookup_elem(&moments, &number);
	if (!m || !m->time || m->tid != (__u32)both)
		return 0;
	__u64 time = m->time, now = bpf_ktime_get_ns();
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	if (m->switches == switches_of(task)) {
		struct wh_pair *p = bpf_ringbuf_reserve(&events, sizeof(*p), 0);
		if (p) {
			int user = has_user_registers(ctx);
			p->kind = WH_PAIR;
			p->tgid = m->tgid;
			p->time = now;
			p->length_ns = now - time;
			p->handler_ns = m->handler_ns;
			p->pc[0] = m->pc;
			p->pc[1] = user ? ctx->regs.ip : 0;
			__builtin_memcpy(p->first, m->value, sizeof(p->first));
			/* The kernel's registers are none of ours. */
			if (user)
				general(p->second, ctx);
			else
				__builtin_memset(p->second, 0, sizeof(p->second));
			/* A sample that is no timer's came in between. */
			if (*(volatile __u64 *)&m->time == time)
				bpf_ringbuf_submit(p, BPF_RB_NO_WAKEUP);
			else
				bpf_ringbuf_discard(p, BPF_RB_NO_WAKEUP);
		}
	}
	m->time = 0;
	return 0;
}

SEC("perf_event")
int on_sample(struct bpf_perf_event_data *ctx)
{
	__u32 number = bpf_get_smp_processor_id();
	struct wh_cpu *cpu = bpf_map_lookup_elem(&cpus, &number);
	if (!cpu)
		return 0;
	*(volatile __u32 *)&cpu->busy = 1;
	sample(ctx, cpu, number);
	*(volatile __u32 *)&cpu->busy = 0;
	return 0;
}

static __always_inline void describe(struct wh_task *t, struct task_struct *task, __u32 why)
{
	t->kind = WH_TASK;
	t->why = why;
	t->tgid = BPF_CORE_READ(task, tgid);
	t->tid = BPF_CORE_READ(task, pid);
	t->tag = tag_of(task);
	t->parent = BPF_CORE_READ(task, real_parent, tgid);
	t->time = bpf_ktime_get_ns();
	t->start = BPF_CORE_READ(task, group_leader, start_time);
	t->cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	BPF_CORE_READ_STR_INTO(&t->comm, task, comm);
}

static __always_inline void tell(struct task_struct *task, __u32 why)
{
	struct wh_task *t = bpf_ringbuf_reserve(&events, sizeof(*t), 0);
	if (!t) {
		__sync_fetch_and_add(&wh_task_drop, 1);
		return;
	}
	describe(t, task, why);
	bpf_ringbuf_submit(t, BPF_RB_NO_WAKEUP);
}

/* Tells two processes of one pid apart; 0 stands for one that was a target from the start. */
static __always_inline __u32 life_of(struct task_struct *task)
{
	return (__u32)(BPF_CORE_READ(task, start_time) >> 10) | 1;
}

SEC("tp_btf/sched_process_fork")
int on_fork(__u64 *args)
{
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];
	__u32 from = BPF_CORE_READ(parent, tgid), to = BPF_CORE_READ(child, tgid);
	if (wh_filtered) {
		__u32 life = life_of(child);
		if (!bpf_map_lookup_elem(&targets, &from)) {
			/* The pid may have been a target's before. */
			if (from != to)
				bpf_map_delete_elem(&targets, &to);
			return 0;
		}
		if (from != to && bpf_map_update_elem(&targets, &to, &life, BPF_ANY))
			__sync_fetch_and_add(&wh_task_drop, 1);
	}
	if (from != to || wh_by_thread)
		tell(child, WH_FORKED);
	return 0;
}

/* The pid of a target is free again. Not at its exit: tearing a process down is work of its own. This comes a while
 * later, and the pid may be another target's by then. */
SEC("tp_btf/sched_process_free")
int on_free(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u32 tid = BPF_CORE_READ(task, pid), tgid = BPF_CORE_READ(task, tgid);
	if (!wh_filtered || tid != tgid)
		return 0;
	__u32 *life = bpf_map_lookup_elem(&targets, &tgid);
	if (life && (!*life || *life == life_of(task)))
		bpf_map_delete_elem(&targets, &tgid);
	return 0;
}

/* Wakes the tool for a program that it has not seen, and for what it may have to tell of a process. */
static __always_inline void arrived(struct task_struct *task)
{
	struct inode *inode = BPF_CORE_READ(task, mm, exe_file, f_inode);
	__u64 dev = BPF_CORE_READ(inode, i_sb, s_dev), generation = BPF_CORE_READ(inode, i_generation);
	__u64 file = (BPF_CORE_READ(inode, i_ino) ^ dev << 44 ^ generation << 24) * 0x9e3779b97f4a7c15ull | 1;
	__u32 place = file >> 50 & (PROGRAMS - 1);
	__u64 now = bpf_ktime_get_ns();
	int seen = wh_programs[place] == file;
	/* Of programs that begin in turn, and too often, it must not be the same one that is left out each time. */
	__u64 at_once = seen && bpf_get_prandom_u32() & 1 ? WAKES_AT_ONCE / 2 : WAKES_AT_ONCE;
	if (seen ? !wh_path_tells || !may_wake(&wh_due_again, now, at_once) : !may_wake(&wh_due, now, at_once))
		return;
	wh_programs[place] = file;
	bpf_ringbuf_output(&arrivals, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
}

SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *args)
{
	struct task_struct *task = (void *)args[0];
	__u32 tgid = BPF_CORE_READ(task, tgid);
	if (wh_filtered && !bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	tell(task, WH_EXECED);
	arrived(task);
	return 0;
}

static __always_inline void unmapped(struct task_struct *task, __u32 tgid)
{
	__u32 phase = __sync_add_and_fetch(&wh_phase[tgid & (WH_PHASES - 1)], 1);
	struct wh_task *t = bpf_ringbuf_reserve(&events, sizeof(*t), 0);
	if (!t) {
		__sync_fetch_and_add(&wh_task_drop, 1);
		return;
	}
	describe(t, task, WH_UNMAPPED);
	t->tag = phase;
	bpf_ringbuf_submit(t, BPF_RB_NO_WAKEUP);
}

/* A process begins to change its mappings. Whoever unmaps code comes here first, and whoever maps something afterwards
 * comes here again and is found to have less code than before. */
static __always_inline int changing(__u64 mm)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct mm_struct *own = task->mm;
	if (!own || (__u64)own != mm)
		return 0;
	__u32 tgid = task->tgid, place = tgid & (SPACES - 1);
	struct space *known = bpf_map_lookup_elem(&spaces, &place);
	if (!known)
		return 0;
	__u64 pages = own->exec_vm, before = known->mm == mm ? known->pages : 0;
	known->mm = mm;
	known->pages = pages;
	if (pages >= before || (wh_filtered && !bpf_map_lookup_elem(&targets, &tgid)))
		return 0;
	unmapped(task, tgid);
	return 0;
}

/* The tracepoint has had a second argument of its own in some kernels; one of the two programs can be attached. */
SEC("raw_tp/mmap_lock_start_locking")
int on_locking(__u64 *args)
{
	return (__u8)args[1] ? changing(args[0]) : 0;
}

SEC("raw_tp/mmap_lock_start_locking")
int on_locking_in_group(__u64 *args)
{
	return (__u8)args[2] ? changing(args[0]) : 0;
}

/* The start-up scan: one record for each task that exists. */
SEC("iter/task")
int scan(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	if (!task)
		return 0;
	struct wh_task t = {};
	describe(&t, task, WH_SEEN);
	bpf_seq_write(ctx->meta->seq, &t, sizeof(t));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
