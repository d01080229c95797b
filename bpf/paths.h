/*
 * Walks from samples: from the registers of some samples on, code that the tool has prepared is executed in thought
 * (whither_walk.h), and the transfers of control on the way are told. So executions are seen that no sample chose: what
 * time is spent at is only where a walk begins. Not here: which code is prepared, what transfers mean. Constraint: a tenth of a
 * millisecond per walk, no lock, reads only.
 */
#define WH_READ_USER(to, size, from)                                    \
	((size) == 8   ? bpf_probe_read_user((to), 8, (void *)(from)) \
	 : (size) == 4 ? bpf_probe_read_user((to), 4, (void *)(from)) \
	 : (size) == 2 ? bpf_probe_read_user((to), 2, (void *)(from)) \
		       : bpf_probe_read_user((to), 1, (void *)(from)))
#include "../include/whither_walk.h"

/* Instructions of a walk that tell, and so many before them that only tell where it began: what happens next to where time is spent is
 * not what happens on average. Up to `wh_path_tells` more are passed over by chance: in a loop of some hundred instructions that
 * waits at one place, what stands at one distance behind that place would be told too often else. */
const volatile __u32 wh_path_tells = 0; /* 0: no walks */
const volatile __u32 wh_path_settles = 0;
const volatile __u32 wh_path_late = 0;

/* Walks from one in so many samples with user registers; 0: none. */
volatile __u32 wh_paths_every = 0;
/* Changes before numbers of instructions are used again. */
volatile __u32 wh_paths_code = 0;

/* The tool is woken so often without a pause for code that is to be prepared. */
#define CODE_AT_ONCE 2

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wh_op);
} path_ops SEC(".maps");

/* Numbers of the instructions that begin in each WH_CHUNK bytes of code: walks begin and go on there. They are of images, so that what
 * one process has taught serves all others that run the same. */
#define WH_CHUNK 256
struct path_slot {
	__u32 number[WH_CHUNK];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_slot);
} path_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct wh_chunk);
	__type(value, __u32);
} path_chunks SEC(".maps");

/* Where processes have what; there is no walk in others. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct wh_life);
	__type(value, struct wh_space);
} path_spaces SEC(".maps");

struct path_scratch {
	struct wh_walk walk;
	struct wh_path path;
	struct wh_part part; /* where the walk is */
	struct wh_life life;
	__u32 here;
	__u32 tells_from;
};
/* By CPU: per-CPU arrays have no room for that many stores. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_scratch);
} path_walks SEC(".maps");

/* Finds what is mapped at a place. 1: nothing that is known. */
static __always_inline int enter_part(struct path_scratch *s, __u64 pc)
{
	struct wh_space *space = bpf_map_lookup_elem(&path_spaces, &s->life);
	__u32 n = 0;
	if (!space)
		return 1;
	for (__u32 step = WH_PARTS / 2; step; step /= 2)
		if (space->part[(n + step - 1) & (WH_PARTS - 1)].start <= pc)
			n += step;
	struct wh_part *part = &space->part[(n - 1) & (WH_PARTS - 1)];
	if (!n || pc >= part->end)
		return 1;
	s->part = *part;
	s->walk.bias = part->bias;
	return 0;
}

/* The number of the instruction at a place in this process, from where the walk goes on. */
static __always_inline __u32 known_at(struct path_scratch *s, __u64 pc)
{
	if ((pc < s->part.start || pc >= s->part.end) && enter_part(s, pc))
		return WH_NO_OP;
	__u64 stated = pc - s->part.bias;
	struct wh_chunk chunk = {.number = stated / WH_CHUNK, .image = s->part.image};
	__u32 *slot = bpf_map_lookup_elem(&path_chunks, &chunk);
	struct path_slot *numbers = slot ? bpf_map_lookup_elem(&path_slots, slot) : 0;
	return numbers ? numbers->number[stated & (WH_CHUNK - 1)] : WH_NO_OP;
}

/* A transfer of control. 1: there is no room for more. */
static __always_inline int hop(struct path_scratch *s, __u32 from, __u32 to)
{
	__u32 n = s->path.hops;
	if (n >= WH_HOPS) {
		s->path.end = WH_END_HOPS;
		return 1;
	}
	s->path.hop[n & (WH_HOPS - 1)].from = from;
	s->path.hop[n & (WH_HOPS - 1)].to = to;
	s->path.hops = n + 1;
	if (s->path.steps < s->tells_from)
		s->path.passed = n + 1;
	if (s->path.steps <= WH_NEAR)
		s->path.near = n + 1;
	return 0;
}

/* One instruction; 1 ends the walk. */
static long path_step(__u32 i, void *unused)
{
	__u32 number = bpf_get_smp_processor_id(), next;
	struct path_scratch *s = bpf_map_lookup_elem(&path_walks, &number);
	if (!s)
		return 1;
	__u32 here = s->here;
	struct wh_op *op = bpf_map_lookup_elem(&path_ops, &here);
	if (!op)
		return 1;
	s->path.last = here;
	int went = wh_walk_step(&s->walk, op);
	s->path.steps = i + 1;
	if (went == WH_WENT_ON || went == WH_WENT_AWAY) {
		next = went == WH_WENT_ON ? op->next : op->taken;
		s->path.went = went == WH_WENT_AWAY;
		if (next == WH_NO_OP) {
			s->path.end = WH_END_NEW_CODE;
			return 1;
		}
	} else if (went == WH_WENT_FAR) {
		next = s->walk.to ? known_at(s, s->walk.to) : WH_NO_OP;
		if (next == WH_NO_OP) {
			s->path.end = WH_END_NEW_CODE;
			s->path.wanted = s->walk.to;
			return 1;
		}
	} else if (went == WH_WENT_ROUND) {
		return 0;
	} else {
		s->path.end = went == WH_FULL ? WH_END_STORES : WH_END_UNKNOWN;
		return 1;
	}
	if (went != WH_WENT_ON && hop(s, here, next))
		return 1;
	s->here = next;
	return 0;
}

/* Thread-local data begins with a pointer to itself (System V ABI for thread-local storage, x86-64); what the kernel keeps of the base
 * may be older than what the thread has set. */
static __always_inline __u64 fs_base(struct task_struct *task)
{
	__u64 base = BPF_CORE_READ(task, thread.fsbase), self = 0;
	if (bpf_probe_read_user(&self, sizeof(self), (void *)base) || self != base)
		return 0;
	return base;
}

static __always_inline void walk_from(struct bpf_perf_event_data *ctx, struct task_struct *task, struct wh_cpu *cpu,
				      __u32 tgid, __u32 tag, __u64 pc)
{
	__u32 number = bpf_get_smp_processor_id();
	struct path_scratch *s = bpf_map_lookup_elem(&path_walks, &number);
	if (!s)
		return;
	struct wh_path *p = &s->path;
	p->kind = WH_PATH;
	p->tgid = tgid;
	p->tag = tag;
	p->pc = pc;
	p->time = bpf_ktime_get_ns();
	p->code = wh_paths_code;
	p->last = p->went = p->steps = p->hops = p->passed = p->near = 0;
	p->end = WH_END_LENGTH;
	p->wanted = 0;
	s->life.tgid = tgid;
	s->life.tag = tag;
	s->part.start = s->part.end = 0;
	__u32 known = pc ? known_at(s, pc) : WH_NO_OP;
	if (known != WH_NO_OP) {
		struct wh_walk *w = &s->walk;
		w->gpr[0] = ctx->regs.ax;
		w->gpr[1] = ctx->regs.cx;
		w->gpr[2] = ctx->regs.dx;
		w->gpr[3] = ctx->regs.bx;
		w->gpr[4] = ctx->regs.sp;
		w->gpr[5] = ctx->regs.bp;
		w->gpr[6] = ctx->regs.si;
		w->gpr[7] = ctx->regs.di;
		w->gpr[8] = ctx->regs.r8;
		w->gpr[9] = ctx->regs.r9;
		w->gpr[10] = ctx->regs.r10;
		w->gpr[11] = ctx->regs.r11;
		w->gpr[12] = ctx->regs.r12;
		w->gpr[13] = ctx->regs.r13;
		w->gpr[14] = ctx->regs.r14;
		w->gpr[15] = ctx->regs.r15;
		w->known = 0xffff;
		w->flags = ctx->regs.flags;
		w->flags_known = WH_STATUS;
		/* What vectors hold is not told to programs like this one. */
		for (int i = 0; i < WH_VECTORS; i++)
			w->vec[i].sure = 0;
		for (int i = 0; i < WH_MASKS; i++)
			w->k_sure[i] = 0;
		w->fs = fs_base(task);
		w->number++;
		s->here = known;
		__u32 late = bpf_get_prandom_u32() % wh_path_late;
		s->tells_from = wh_path_settles + late;
		bpf_loop(wh_path_settles + late + wh_path_tells, path_step, (void *)0, 0);
	} else {
		p->end = WH_END_NEW_CODE;
		p->wanted = pc;
	}
	p->took = bpf_ktime_get_ns() - p->time;
	__u32 hops = p->hops & (2 * WH_HOPS - 1);
	if (hops > WH_HOPS)
		hops = WH_HOPS;
	if (bpf_ringbuf_output(&events, p, sizeof(*p) - sizeof(p->hop) + hops * sizeof(p->hop[0]), BPF_RB_NO_WAKEUP))
		cpu->regs_drop++;
	/* All walks that come there end there until the tool has read this one: what is entered seldom would be told too seldom. */
	if (p->end == WH_END_NEW_CODE && may_wake(&wh_due_code, p->time, CODE_AT_ONCE))
		bpf_ringbuf_output(&arrivals, &p->time, sizeof(p->time), BPF_RB_FORCE_WAKEUP);
}
