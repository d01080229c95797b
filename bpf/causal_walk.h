/*
 * Where a thread of the group is: frames by unwind rows, the first frame in scope, and whether what the
 * window speeds up is there. Beside it, what a blocked thread waits for, told from its system call.
 * Constraint: one walk at a time on a CPU; all callers have interrupts off.
 */
#ifndef WHITHER_CAUSAL_WALK_H
#define WHITHER_CAUSAL_WALK_H
#include "causal_maps.h"

#define WH_WALK_RULES WH_CZ_RULES
#include "walk.h"

/* Frame pointers farther apart than this are none. */
#define LARGEST_FRAME (1ull << 20)

struct walk {
	struct wh_place at;
	__u64 pc; /* of the frame looked at */
	struct wh_cz_layout code;
	__u32 n;       /* frames seen */
	__u32 want;    /* go on for so many, whatever is decided */
	__u32 unit;    /* enum wh_cz_unit */
	__u32 callers; /* still to be met */
	__u32 caller;  /* the next one */
	__u32 hit;
	__u32 decided;
	__u32 armed; /* marks are looked up */
	__u64 site;  /* address in the first frame in scope */
	__u64 marks; /* of it */
	__u64 frames[WH_CZ_DEPTH];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

struct find {
	__u32 low, high;
	__u64 address;
};

static long module_step(__u32 i, struct find *f)
{
	if (f->low >= f->high)
		return 1;
	__u32 mid = f->low + (f->high - f->low) / 2;
	struct wh_cz_module *m = bpf_map_lookup_elem(&modules, &mid);
	if (!m)
		return 1;
	if (m->start <= f->address)
		f->low = mid + 1;
	else
		f->high = mid;
	return 0;
}

/* Number of the module that holds an address, plus one; 0 for none. */
WH_APART __u32 module_at(__u32 first, __u32 n, __u64 address)
{
	struct find f = {first, first + n, address};
	bpf_loop(16, module_step, &f, 0);
	if (f.low == first)
		return 0;
	__u32 key = f.low - 1;
	struct wh_cz_module *m = bpf_map_lookup_elem(&modules, &key);
	return m && address < m->end ? f.low : 0;
}

static long mark_step(__u32 i, struct find *f)
{
	if (f->low >= f->high)
		return 1;
	__u32 mid = f->low + (f->high - f->low) / 2;
	struct wh_cz_mark *m = bpf_map_lookup_elem(&marks, &mid);
	if (!m)
		return 1;
	if (m->start <= f->address)
		f->low = mid + 1;
	else
		f->high = mid;
	return 0;
}

WH_APART __u64 marks_in(__u32 first, __u32 n, __u64 address)
{
	struct find f = {first, first + n, address};
	bpf_loop(16, mark_step, &f, 0);
	if (f.low == first)
		return 0;
	__u32 key = f.low - 1;
	struct wh_cz_mark *m = bpf_map_lookup_elem(&marks, &key);
	return m && address < m->end ? m->bits : 0;
}

static __u64 marks_at(const struct walk *w, __u64 address)
{
	return marks_in(w->code.first_mark, w->code.n_marks, address);
}

/* A further frame in scope has to be the next caller, when some are asked for. */
static void check_caller(struct walk *w, __u64 address)
{
	if (!(marks_at(w, address) & (WH_CZ_CALLER << (w->caller & 7)))) {
		w->hit = 0;
		w->decided = 1;
		return;
	}
	w->caller++;
	w->decided = w->caller >= w->callers;
}

static void first_in_scope(struct walk *w, __u64 address)
{
	w->site = address;
	w->marks = w->armed ? marks_at(w, address) : 0;
	if (w->unit == WH_CZ_FIRST) {
		w->hit = w->marks & WH_CZ_TARGET;
		w->decided = !w->hit || !w->callers;
	} else if (w->unit != WH_CZ_INCLUSIVE) {
		w->decided = 1;
	}
}

static void check(struct walk *w, const struct wh_cz_module *m, __u64 address)
{
	int in_scope = m && m->in_scope;
	if (in_scope && w->site && w->unit == WH_CZ_FIRST && !w->decided)
		check_caller(w, address);
	if (in_scope && !w->site)
		first_in_scope(w, address);
	if (w->unit == WH_CZ_INCLUSIVE) {
		if (!w->hit)
			w->hit = marks_at(w, address) & WH_CZ_TARGET;
		w->decided = w->hit && w->site;
	}
}

/* The chain of frame pointers, for code without rows. */
static int by_frame_pointer(struct walk *w)
{
	__u64 bp = w->at.bp;
	if (bp <= w->at.sp || bp - w->at.sp > LARGEST_FRAME || (bp & 7))
		return -1;
	if (wh_read_word(bp, &w->at.bp))
		return -1;
	w->at.sp = bp + 8;
	return 0;
}

/* To the return slot of the frame at `address`, and what it holds. */
static int up(struct walk *w, const struct wh_cz_module *m, __u64 address)
{
	__u32 rule = WH_RULE_NONE;
	if (m && address >= m->base)
		rule = wh_row_rule(m->first_row, m->n_rows, (__u32)(address - m->base));
	if (rule == WH_RULE_NONE ? by_frame_pointer(w) : wh_step(&w->at, rule))
		return -1;
	return wh_read_word(w->at.sp, &w->pc) || !w->pc ? -1 : 0;
}

static long walk_step(__u32 i, struct walk **hold)
{
	struct walk *w = *hold;
	/* A return address may be the first one behind its function. */
	__u64 address = i ? w->pc - 1 : w->pc;
	__u32 number = module_at(w->code.first_module, w->code.n_modules, address) - 1;
	struct wh_cz_module *m = bpf_map_lookup_elem(&modules, &number);
	w->frames[i & (WH_CZ_DEPTH - 1)] = w->pc;
	w->n = i + 1;
	check(w, m, address);
	if (w->decided && w->n >= w->want)
		return 1;
	return up(w, m, address) ? 1 : 0;
}

static struct walk *walk_now(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&walks, &zero);
}

/* The CPU's walk, made ready for a process. */
static struct walk *walk_of(__u32 tgid, const struct wh_cz_ctl *c, int armed, __u32 want)
{
	struct walk *w = walk_now();
	struct wh_cz_process *p = bpf_map_lookup_elem(&processes, &tgid);
	if (!w || !p)
		return 0;
	__u32 layout = p->layout;
	struct wh_cz_layout *code = bpf_map_lookup_elem(&layouts, &layout);
	if (!code)
		return 0;
	w->code = *code;
	w->n = 0;
	w->want = want;
	w->armed = armed;
	w->unit = armed ? c->unit : WH_CZ_NOTHING;
	w->callers = c->callers;
	w->caller = 0;
	w->hit = 0;
	w->decided = 0;
	w->site = 0;
	w->marks = 0;
	return w;
}

/* Walks what walk_of has made ready. */
WH_APART int walk_from(__u64 ip, __u64 sp, __u64 bp)
{
	struct walk *w = walk_now();
	if (!w)
		return 0;
	w->pc = ip;
	w->at.sp = sp - 8;
	w->at.bp = bp;
	bpf_loop(WH_CZ_DEPTH, walk_step, &w, 0);
	if (w->unit == WH_CZ_FIRST && w->caller < w->callers)
		w->hit = 0;
	return 0;
}

/* From where the running thread entered the kernel. */
static void walk_user(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	walk_from(regs->ip, regs->sp, regs->bp);
}

/* --- system calls of x86-64 -------------------------------------------------------------------------- */

static __u32 wait_class(const struct pt_regs *regs, int on_disk)
{
	if (on_disk)
		return WH_CZ_IO;
	switch ((__s64)regs->orig_ax) {
	case 35: case 230: case 34: /* nanosleep, clock_nanosleep, pause */
		return WH_CZ_SLEEP;
	case 7: case 271: /* poll, ppoll without descriptors */
		return regs->si ? WH_CZ_NET : WH_CZ_SLEEP;
	case 23: case 270: /* select, pselect6 */
		return regs->di ? WH_CZ_NET : WH_CZ_SLEEP;
	case 26: case 74: case 75: case 162: case 277: case 306: /* msync, fsync, fdatasync, sync... */
	case 17: case 18: case 295: case 296: case 208: case 333: /* pread, pwrite..., io_getevents */
		return WH_CZ_IO;
	case 0: case 1: case 19: case 20: case 40: case 275: case 276: /* read, write, sendfile, splice, tee */
	case 42: case 43: case 288: case 44: case 45: case 46: case 47: case 299: case 307: /* sockets */
	case 232: case 281: case 441: /* epoll_wait and its relatives */
		return WH_CZ_NET;
	case 202: case 449: case 455: case 65: case 220: case 73: case 72: /* futex, semop, flock, fcntl */
		return WH_CZ_LOCK;
	default:
		return WH_CZ_OTHER;
	}
}

/* write, sendto, sendmsg, sendmmsg, writev, sendfile, splice, connect, shutdown, close. */
static int sends(__s64 call)
{
	switch (call) {
	case 1: case 44: case 46: case 307: case 20: case 40: case 275: case 42: case 48: case 3:
		return 1;
	default:
		return 0;
	}
}

#endif
