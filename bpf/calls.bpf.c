/*
 * Kernel side of call-path profiling by uprobes: the fallback for functions whose text cannot or may
 * not be patched. Lives here: entry and exit of a call, the walk of its call path by the same unwind
 * rows the agent uses, counters by (point, path, process), off-CPU time of the threads concerned. Not
 * here: which functions, names, policy.
 * Constraints: no uretprobe anywhere (it rewrites return addresses, and kills programs that unwind
 * through it); user memory may be paged out, then the path is truncated and says so; a call is found
 * again by the address of its return slot, which longjmp and exceptions cannot confuse.
 */
#include "kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "../include/whither_agent.h"
#include "../include/whither_uprobe.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define WALKS 4

/* Set before loading. */
const volatile __u32 wh_rows_mask = 0xffffff; /* rows - 1, a power of two */

/* Code ranges in use: half `wh_ranges_half` of `ranges`, sorted by start. */
volatile __u32 wh_ranges_half = 0;
volatile __u32 wh_n_ranges[2] = {0, 0};
/* Words both sides read: calls not counted because a table was full, exits without their entry. */
__u64 wh_lost_table = 0;
__u64 wh_lost_exit = 0;
__u64 wh_lost_jumped = 0;
__u64 wh_lost_paths = 0;
/* Traps, and what these programs took in them. */
__u64 wh_traps = 0;
__u64 wh_spent_ns = 0;
/* Where the agent works too: return slots may hold an address in its exits, and the true one stands in the slot's
 * shadow, so far away. */
volatile __u64 wh_agent_exits = 0;
volatile __u64 wh_agent_exit_bytes = 0;
volatile __s64 wh_agent_shadow = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * WH_UP_RANGES);
	__type(key, __u32);
	__type(value, struct wh_module);
} ranges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wh_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WH_UP_RULES);
	__type(key, __u32);
	__type(value, struct wh_rule);
} rules SEC(".maps");

#define WH_WALK_RULES WH_UP_RULES
#include "walk.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WH_MAX_POINTS);
	__type(key, __u32);
	__type(value, __u32);
} points SEC(".maps");

/* 1 since breakpoints were set anew for the first time: since then two turns of them may stand at one place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} changed SEC(".maps");

/* What each thread met last, since then. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct wh_up_met);
} met SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct wh_up_call_key);
	__type(value, struct wh_up_call);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WH_UP_PATHS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct wh_up_path_key);
	__type(value, struct wh_up_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WH_UP_PATHS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct wh_up_frames);
} paths SEC(".maps");

/* Off-CPU time of threads that have entered a point, by thread id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct wh_up_off);
} off SEC(".maps");

/* A handler can be preempted by another thread's on the same CPU: each claims a walk of its own. */
struct walk {
	__u64 busy;
	struct wh_place at;
	__u32 half;
	__u32 n_ranges;
	struct wh_up_frames frames;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WALKS);
	__type(key, __u32);
	__type(value, struct walk);
} scratch SEC(".maps");

static const struct wh_up_counts no_counts;

/* Largest index whose start is <= key, among n sorted ones; n when none. Both searches are bounded by
 * the table sizes so that the verifier sees an end. */
static __u32 find_range(__u64 address, __u32 half, __u32 n)
{
	__u32 low = 0, high = n;
	for (int i = 0; i < 13 && low < high; i++) {
		__u32 mid = (low + high) / 2;
		__u32 key = half * WH_UP_RANGES + (mid & (WH_UP_RANGES - 1));
		struct wh_module *m = bpf_map_lookup_elem(&ranges, &key);
		if (!m)
			return n;
		if (m->start <= address)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? low - 1 : n;
}

/* The rule for a return address, looked up one byte before it; NONE when nothing is known. */
static __u32 rule_for(__u64 ra, const struct walk *w)
{
	__u64 address = ra - 1;
	__u32 at = find_range(address, w->half, w->n_ranges);
	if (at >= w->n_ranges)
		return WH_RULE_NONE;
	__u32 key = w->half * WH_UP_RANGES + (at & (WH_UP_RANGES - 1));
	struct wh_module *m = bpf_map_lookup_elem(&ranges, &key);
	if (!m || address >= m->end || address < m->base)
		return WH_RULE_NONE;
	return wh_row_rule(m->first_row, m->n_rows, (__u32)(address - m->base));
}

static long walk_step(__u32 i, struct walk **hold)
{
	struct walk *w = *hold;
	__u64 ra;
	if (w->frames.n >= WH_UP_FRAMES || wh_read_word(w->at.sp, &ra)) {
		w->frames.flags = WH_ROOT_TRUNCATED;
		return 1;
	}
	if (ra - wh_agent_exits < wh_agent_exit_bytes && wh_read_word(w->at.sp + wh_agent_shadow, &ra)) {
		w->frames.flags = WH_ROOT_TRUNCATED;
		return 1;
	}
	w->frames.ra[w->frames.n & (WH_UP_FRAMES - 1)] = ra;
	w->frames.n++;
	int done = wh_step(&w->at, rule_for(ra, w));
	if (!done)
		return 0;
	w->frames.flags = done > 0 ? WH_ROOT_END : WH_ROOT_TRUNCATED;
	return 1;
}

static __u64 mix(__u64 h, __u64 word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ull;
	return h ^ (h >> 29);
}

struct hash {
	__u64 value;
	struct walk *walk;
};

static long hash_step(__u32 i, struct hash *h)
{
	if (i >= h->walk->frames.n)
		return 1;
	h->value = mix(h->value, h->walk->frames.ra[i & (WH_UP_FRAMES - 1)]);
	return 0;
}

/* Path of the call that begins here, stored on first sight; its hash. */
static __u64 path_of(const struct wh_user_regs *regs, struct walk *w)
{
	w->at.sp = regs->sp;
	w->at.bp = regs->bp;
	w->half = wh_ranges_half & 1;
	w->n_ranges = wh_n_ranges[w->half];
	w->frames.n = 0;
	w->frames.flags = WH_ROOT_TRUNCATED;
	bpf_loop(WH_UP_FRAMES + 1, walk_step, &w, 0);
	struct hash h = {w->frames.flags, w};
	bpf_loop(WH_UP_FRAMES, hash_step, &h, 0);
	if (!bpf_map_lookup_elem(&paths, &h.value) && bpf_map_update_elem(&paths, &h.value, &w->frames, BPF_NOEXIST) &&
	    !bpf_map_lookup_elem(&paths, &h.value)) {
		__sync_fetch_and_add(&wh_lost_paths, 1);
		return 0;
	}
	return h.value;
}

static struct wh_up_counts *counts_of(__u32 point, __u32 tgid, __u64 path)
{
	struct wh_up_path_key key = {path, point, tgid};
	struct wh_up_counts *c = bpf_map_lookup_elem(&counts, &key);
	if (c)
		return c;
	bpf_map_update_elem(&counts, &key, &no_counts, BPF_NOEXIST);
	return bpf_map_lookup_elem(&counts, &key);
}

/* Off-CPU ns of the running thread so far; begins the account at its first call. */
static __u64 off_time(__u32 tid)
{
	struct wh_up_off *o = bpf_map_lookup_elem(&off, &tid);
	if (o)
		return o->total;
	struct wh_up_off none = {0, 0};
	bpf_map_update_elem(&off, &tid, &none, BPF_NOEXIST);
	return 0;
}

static __u64 path_in_scratch(const struct wh_user_regs *regs)
{
	for (__u32 i = 0; i < WALKS; i++) {
		__u32 key = i;
		struct walk *w = bpf_map_lookup_elem(&scratch, &key);
		if (!w || __sync_val_compare_and_swap(&w->busy, 0, 1))
			continue;
		__u64 path = path_of(regs, w);
		__sync_lock_test_and_set(&w->busy, 0);
		return path;
	}
	__sync_fetch_and_add(&wh_lost_paths, 1);
	return 0;
}

/*
 * Breakpoints that stay when others of their link go are set anew before the old link is closed. The kernel puts new
 * consumers first (kernel/events/uprobes.c, consumer_add), so where several stand, the newest one runs, and says so to
 * the older ones, in the same trap of the same thread. That never ends: an old link stands for as long as anybody has a
 * copy of its descriptor, which every process has between fork and exec, and what it says of a place stays true, as
 * the newest goes last.
 */
static int is_second(__u32 side, __u64 cookie, __u64 ip, __u32 tid)
{
	__u32 zero = 0, turn = WH_UP_TURN(cookie);
	__u32 *is_changed = bpf_map_lookup_elem(&changed, &zero);
	if (!is_changed || !*is_changed)
		return 0;
	struct wh_up_met *last = bpf_map_lookup_elem(&met, &tid);
	if (last) {
		if (last->ip[side] == ip && (__s32)(last->turn[side] - turn) > 0)
			return 1;
		last->ip[side] = ip;
		last->turn[side] = turn;
		return 0;
	}
	struct wh_up_met now = {};
	now.ip[side] = ip;
	now.turn[side] = turn;
	/* Untold, both would count. */
	if (!bpf_map_update_elem(&met, &tid, &now, BPF_ANY))
		return 0;
	__sync_fetch_and_add(&wh_lost_table, 1);
	return 1;
}

/* What is second ran in a trap that is accounted for already. */
static void account(__u64 from, int second)
{
	if (!second)
		__sync_fetch_and_add(&wh_traps, 1);
	__sync_fetch_and_add(&wh_spent_ns, bpf_ktime_get_ns() - from);
}

static __u32 value_of(__u32 flags, int i)
{
	return flags >> (WH_UP_VALUE_SHIFT + WH_UP_VALUE_BITS * i);
}

/* What of a register the value is. */
static __u64 narrowed(__u64 word, __u32 value)
{
	__u32 rest = 64 - WH_UP_WIDTH(value);
	return WH_UP_SIGNED(value) ? (__u64)((__s64)(word << rest) >> rest) : word << rest >> rest;
}

/* Whether it was second. */
static int enter(struct wh_user_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(regs);
	__u32 point = WH_UP_POINT(cookie), tgid = id >> 32, tid = (__u32)id;
	if (is_second(WH_UP_ENTRY, cookie, regs->ip, tid))
		return 1;
	__u32 *flags = bpf_map_lookup_elem(&points, &point);
	if (!flags || !(*flags & WH_UP_ON))
		return 0;
	__u64 path = *flags & WH_DO_PATH ? path_in_scratch(regs) : 0;
	struct wh_up_counts *c = counts_of(point, tgid, path);
	if (!c) {
		__sync_fetch_and_add(&wh_lost_table, 1);
		return 0;
	}
	__sync_fetch_and_add(&c->calls, 1);
	/* The verifier wants context loads at constant offsets: all six before one is chosen. */
	__u64 args[8] = {0, regs->di, regs->si, regs->dx, regs->cx, regs->r8, regs->r9, 0};
	for (int i = 0; i < 2; i++) {
		__u32 value = value_of(*flags, i), from = WH_UP_FROM(value);
		if (from && from != WH_UP_RET)
			__sync_fetch_and_add(&c->value[i], narrowed(args[from], value));
	}
	if (!(*flags & WH_DO_EXIT))
		return 0;
	struct wh_up_call_key key = {regs->sp, tgid, 0};
	struct wh_up_call call = {0, 0, path, point, tid};
	if (bpf_map_lookup_elem(&calls, &key))
		__sync_fetch_and_add(&wh_lost_jumped, 1);
	call.off0 = off_time(tid);
	call.t0 = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&calls, &key, &call, BPF_ANY))
		__sync_fetch_and_add(&wh_lost_exit, 1);
	return 0;
}

SEC("uprobe.multi")
int wh_enter(struct wh_user_regs *regs)
{
	__u64 from = bpf_ktime_get_ns();
	account(from, enter(regs));
	return 0;
}

static void note_extremes(struct wh_up_counts *c, __u64 wall)
{
	for (int i = 0; i < 8; i++) {
		__u64 old = c->min;
		if ((old && old <= wall) || __sync_val_compare_and_swap(&c->min, old, wall) == old)
			break;
	}
	for (int i = 0; i < 8; i++) {
		__u64 old = c->max;
		if (old >= wall || __sync_val_compare_and_swap(&c->max, old, wall) == old)
			break;
	}
}

static __u32 log2_of(__u64 v)
{
	__u32 r = 0;
	for (int s = 32; s; s >>= 1)
		if (v >> s) {
			v >>= s;
			r += s;
		}
	return r;
}

/* Whether it was second. A call is counted once in any case, as what counts it takes it out; functions that share code
 * may leave it at one place, set anew at different times. */
static int leave(struct wh_user_regs *regs, __u64 now)
{
	__u64 id = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(regs);
	__u32 point = WH_UP_POINT(cookie), tgid = id >> 32, tid = (__u32)id;
	int second = is_second(WH_UP_EXIT, cookie, regs->ip, tid);
	struct wh_up_call_key key = {regs->sp, tgid, 0};
	struct wh_up_call *call = bpf_map_lookup_elem(&calls, &key);
	if (!call || call->point != point) {
		/* Entered before it was probed, or an inner `ret` of shared code. */
		if (!second)
			__sync_fetch_and_add(&wh_lost_exit, 1);
		return second;
	}
	struct wh_up_call mine = *call;
	bpf_map_delete_elem(&calls, &key);
	struct wh_up_counts *c = counts_of(point, tgid, mine.path);
	__u32 *flags = bpf_map_lookup_elem(&points, &point);
	if (!c || !flags)
		return second;
	__u64 wall = now - mine.t0, away = off_time(tid) - mine.off0;
	if (!wall)
		wall = 1;
	__sync_fetch_and_add(&c->done, 1);
	__sync_fetch_and_add(&c->wall, wall);
	__sync_fetch_and_add(&c->cpu, away < wall ? wall - away : 0);
	note_extremes(c, wall);
	for (int i = 0; i < 2; i++)
		if (WH_UP_FROM(value_of(*flags, i)) == WH_UP_RET)
			__sync_fetch_and_add(&c->value[i], narrowed(regs->ax, value_of(*flags, i)));
	__sync_fetch_and_add(&c->hist[log2_of(wall) & 63], 1);
	return second;
}

SEC("uprobe.multi")
int wh_leave(struct wh_user_regs *regs)
{
	__u64 now = bpf_ktime_get_ns();
	account(now, leave(regs, now));
	return 0;
}

SEC("raw_tp/sched_switch")
int wh_switch(struct bpf_raw_tracepoint_args *args)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_struct *from = (void *)args->args[1], *to = (void *)args->args[2];
	__u32 prev = BPF_CORE_READ(from, pid), next = BPF_CORE_READ(to, pid);
	struct wh_up_off *o = bpf_map_lookup_elem(&off, &prev);
	if (o)
		o->since = now;
	o = bpf_map_lookup_elem(&off, &next);
	if (o && o->since) {
		o->total += now - o->since;
		o->since = 0;
	}
	return 0;
}

SEC("raw_tp/sched_process_exit")
int wh_exit(struct bpf_raw_tracepoint_args *args)
{
	struct task_struct *task = (void *)args->args[0];
	__u32 tid = BPF_CORE_READ(task, pid);
	bpf_map_delete_elem(&off, &tid);
	bpf_map_delete_elem(&met, &tid);
	return 0;
}
