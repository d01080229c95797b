/*
 * Unwind rules: from a return address to the rule of the frame it lies in, and the rare rules that the
 * walk does not know by heart. Constraints: runs once per new site, may take microseconds; tables come
 * from the controller and are checked anyway, a read must never fault.
 */
#include "agent.h"

static const struct wh_module *module_of(u64 address)
{
	const struct wh_module *m = (const struct wh_module *)(G.segment + WH_AT_MODULES);
	u32 n = header()->n_modules;

	if (n > WH_MAX_MODULES)
		n = WH_MAX_MODULES;
	for (u32 i = 0; i < n; i++)
		if (m[i].state == 1 && address - m[i].start < m[i].end - m[i].start)
			return &m[i];
	return 0;
}

static u32 row_rule(const struct wh_module *m, u64 address)
{
	const struct wh_row *rows = (const struct wh_row *)(G.segment + WH_AT_ROWS) + m->first_row;
	u64 offset = address - m->base;
	u32 low = 0, high = m->n_rows;

	if ((u64)m->first_row + m->n_rows > WH_MAX_ROWS)
		return WH_RULE_NONE;
	while (low < high) {
		u32 mid = low + (high - low) / 2;

		if (rows[mid].offset <= offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? rows[low - 1].rule : WH_RULE_NONE;
}

/* Rule of the frame that `ra` returns to. */
u32 rule_of(u64 ra)
{
	const struct wh_module *m = module_of(ra - 1);
	if (!m || (m->flags & 1))
		return WH_RULE_FP | WH_RULE_FOREIGN;
	u32 rule = row_rule(m, ra - 1);
	if (((rule & 7) == WH_RULE_NONE || (rule & 7) >= WH_RULE_FP) && m->flags & 4)
		return WH_RULE_FP | WH_RULE_FOREIGN | WH_RULE_FRAMED;
	if ((rule & 7) == WH_RULE_NONE || (rule & 7) >= WH_RULE_FP)
		return WH_RULE_NONE | (m->flags & 2 ? WH_RULE_FOREIGN : 0);
	return rule;
}

/* Whether the bytes before `ra` may be a call. Or it is where Go's goroutines
 * return to: behind a nop, at a call (runtime.goexit). */
int plausible(u64 ra)
{
	const u8 *code = (const u8 *)ra;

	if (ra < PAGE || ra >> 47 || G.locked || !readable(ra - 8))
		return 0;
	if (code[-5] == 0xe8 || (code[-1] == 0x90 && readable(ra) && code[0] == 0xe8))
		return 1;
	for (int length = 2; length <= 7; length++)
		if (code[-length] == 0xff && (code[1 - length] & 0x38) == 0x10)
			return 1;
	return 0;
}

/* Whether a call before `ra` may be hidden by what stands in the text in its place: jumps of ours, breakpoints of the kernel's. */
static int hidden(u64 ra)
{
	const u8 *code = (const u8 *)ra;

	if (!readable(ra - 16))
		return 0;
	for (int length = 2; length <= 16; length++)
		if (code[-length] == 0xe9 || (length <= 7 && (code[-length] == 0xeb || code[-length] == 0xcc)))
			return 1;
	return 0;
}

/* The same of a return address that a stack holds. What no call has put there tells of no frame: the begin of the function that a
 * coroutine's is to return to stands behind another function, whose rule would lead beyond the end of the stack. */
u32 rule_of_caller(u64 ra)
{
	u32 rule = rule_of(ra), kind = rule & 7;
	int frame = kind == WH_RULE_RSP || kind == WH_RULE_RBP || kind == WH_RULE_BIG;

	return frame && !G.locked && !plausible(ra) && !hidden(ra) ? WH_RULE_NONE : rule;
}

static int word_at(u64 address, u64 low, u64 top, u64 *word)
{
	if ((address & 7) || address < low || address + 8 > top)
		return 0;
	*word = *(const u64 *)address;
	return 1;
}

/* A step by one of the rare rules; words are read only between `low` and `top` of this stack. */
slow_path int big_step(u32 rule, u64 slot, u64 *rbp, u64 low, u64 top, u64 *next)
{
	const struct wh_rule *b = (const struct wh_rule *)(G.segment + WH_AT_RULES) + (rule >> 3);
	u64 cfa;

	if (rule >> 3 >= header()->n_rules || rule >> 3 >= WH_MAX_RULES)
		return 0;
	cfa = (b->reg == WH_RULE_RBP ? *rbp : slot + 8) + (u64)(s64)b->cfa_offset;
	if (b->deref) {
		if (!word_at(cfa, low, top, &cfa))
			return 0;
		cfa += (u64)(s64)b->more;
	}
	if (b->rbp && !word_at((b->rbp == 1 ? cfa : *rbp) + (u64)(s64)b->rbp_offset, low, top, rbp))
		return 0;
	*next = cfa - 8;
	return 1;
}
