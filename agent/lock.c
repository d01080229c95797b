/*
 * A program that is about to forbid itself system calls (seccomp): it would be killed for the next one
 * of ours. Lives here: seeing that moment, and getting what can still be had. Constraint: in strict mode
 * the kernel takes the time stamp counter away as well, so that thread records nothing any more.
 */
#include "agent.h"

enum { PRCTL = 157, SECCOMP = 317, PR_SET_SECCOMP = 22 };
enum { HARMLESS, FILTER, STRICT };

static int of_prctl(u64 option, u64 mode)
{
	if ((u32)option != PR_SET_SECCOMP)
		return HARMLESS;
	return mode == 1 ? STRICT : FILTER;
}

static int asked(const struct wh_point *p, const struct regs *r)
{
	if (p->lock == 1)
		return of_prctl(r->rdi, r->rsi);
	if (r->rdi == PRCTL)
		return of_prctl(r->rsi, r->rdx);
	if (r->rdi == SECCOMP && r->rsi < 2)
		return r->rsi == 0 ? STRICT : FILTER;
	return HARMLESS;
}

/* Called with the arguments of prctl or syscall, before it runs. That it may fail is not waited for. */
slow_path void before_lock(const struct wh_point *p, u64 slot, const struct regs *regs)
{
	int how = asked(p, regs);
	struct local *l;

	if (how == HARMLESS)
		return;
	l = local_of_thread();
	if ((!l || l->home != G.segment) && header()->enabled)
		l = thread_join();
	if (l && l->home == G.segment && !l->block->busy_sp && !G.locked) {
		l->block->busy_sp = slot;
		l->block->busy_tsc = 0;
		barrier();
		if (slot - l->stack.lo < l->stack.hi - l->stack.lo || stack_enter(l, slot, 0))
			stack_reserve(l);
		barrier();
		l->block->busy_sp = 0;
	}
	G.fast = 1;
	G.locked = 1;
	if (how == STRICT && l && l->home == G.segment) {
		l->strict = 1;
		barrier();
		l->block->busy_sp = ~0ull; /* for ever: every call passes through */
	}
}
