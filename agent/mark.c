/*
 * Whether the mark that a thread is inside the agent still holds. A handler that is left by siglongjmp (a signal's, that
 * interrupted the agent) leaves the mark behind, and calls that come then must not be taken for a handler's own. What tells,
 * in this order: the frames around the call, which lead through a signal's to the agent if it is inside, and past the mark's place
 * on the stack if it is gone; a call from no further in on the same stack; time, since a handler may go on for ever. Constraints: words of
 * the stack are read by the kernel, as the frames may lie on any stack; nothing is changed that the agent needs where it was
 * interrupted.
 */
#include "agent.h"

#define SIGNAL_FRAME 0x8000ull /* none is larger */
/* From the return slot of a handler to what the kernel keeps of the registers. */
#define INTERRUPTED 128

struct interrupted {
	u64 rbp, rbx, rdx, rax, rcx, rsp, rip;
};

enum verdict { UNKNOWN, INSIDE, GONE };

/* Whether a slot lies no further in than the mark, on the same stack as far as is known. */
static int no_further_in(struct local *l, u64 slot, u64 mark)
{
	if (slot < mark)
		return 0;
	if (mark >= l->stack.lo && slot < l->stack.top)
		return 1;
	s32 which = stack_of(l, mark);
	return which >= 0 && slot < l->stacks[which].top;
}

/* From a handler's slot to where a slot of what it interrupted would be at its stack pointer. */
static enum verdict out_of_handler(struct local *l, u64 *slot, u64 *ra, u64 *rbp, u64 mark)
{
	struct interrupted was;

	if (read_asking(l, *slot + INTERRUPTED, &was, sizeof was) != sizeof was)
		return UNKNOWN;
	if (was.rip - (u64)wh_code_begin < (u64)(wh_code_end - wh_code_begin))
		return INSIDE;
	u64 before = *slot, now = was.rsp - 8;
	if (no_further_in(l, now, mark) || (before < mark && now >= mark && now - before < SIGNAL_FRAME))
		return GONE;
	*slot = now;
	*ra = was.rip + 1; /* rules are looked up before it */
	*rbp = was.rbp;
	return UNKNOWN;
}

/* What the frames around an entry tell. */
static enum verdict walked(struct local *l, u64 slot, u64 rbp, u64 mark)
{
	u64 ra = *(const u64 *)slot;
	int called = 1;

	for (u32 steps = 0; steps < MOST_STEPS; steps++) {
		if (is_exit(ra))
			ra = returns_to(exit_index(ra), slot);
		u32 rule = called ? rule_of_caller(ra) : rule_of(ra);
		called = (rule & 7) != WH_RULE_SIGNAL;
		if (!called) {
			u64 handler = slot;
			enum verdict verdict = out_of_handler(l, &slot, &ra, &rbp, mark);

			if (verdict != UNKNOWN || slot == handler)
				return verdict;
			continue;
		}
		u64 next = slot_around(l, slot, rule, &rbp);
		if (!next || read_asking(l, next, &ra, 8) != 8)
			return UNKNOWN;
		if (slot < mark && next >= mark)
			return GONE;
		slot = next;
	}
	return UNKNOWN;
}

/* Whether the mark has not been there for long yet. */
static int young(struct wh_thread *t)
{
	u64 now = ticks();

	if (!t->busy_tsc)
		t->busy_tsc = now;
	return (now - t->busy_tsc) >> BUSY_SHIFT == 0;
}

/* The mark is set at an entry: does it hold? */
slow_path int entry_inside(struct local *l, u64 slot, u64 rbp)
{
	struct wh_thread *t = l->block;
	enum verdict verdict = l->strict ? INSIDE : walked(l, slot, rbp, t->busy_sp);

	if (verdict == GONE || (verdict == UNKNOWN && no_further_in(l, slot, t->busy_sp)))
		return 0;
	return l->strict || young(t);
}

/* The same at an exit. A call that was recorded lies further out than what has interrupted the agent since. */
slow_path int exit_inside(struct local *l, u64 slot)
{
	return l->strict || (!no_further_in(l, slot, l->block->busy_sp) && young(l->block));
}
