/*
 * From one return slot to the next by packed unwind rows, for kernel-side programs. Lives here: the search
 * for a row and what its rule does to the registers. Not here: which code is mapped where, what is done
 * with a frame. The includer defines the array maps `rows` and `rules`, `wh_rows_mask` (rows - 1, a power
 * of two) and WH_WALK_RULES (entries of `rules`, a power of two) before.
 */
#ifndef WHITHER_WALK_H
#define WHITHER_WALK_H

/* Registers of a frame: address of its return slot, and rbp. A frame that is not at a call stands at
 * "rsp - 8": rules count from the stack pointer behind the callee's return. */
struct wh_place {
	__u64 sp;
	__u64 bp;
};

struct wh_search {
	__u32 low, high, offset;
};

static long wh_row_step(__u32 i, struct wh_search *s)
{
	if (s->low >= s->high)
		return 1;
	__u32 mid = s->low + (s->high - s->low) / 2;
	__u32 key = mid & wh_rows_mask;
	struct wh_row *row = bpf_map_lookup_elem(&rows, &key);
	if (!row)
		return 1;
	if (row->offset <= s->offset)
		s->low = mid + 1;
	else
		s->high = mid;
	return 0;
}

/* Functions with external linkage are verified once, by themselves: their callers stay small. */
#define WH_APART __attribute__((noinline))

/* The rule at an offset of a module whose rows begin at `first`; NONE when nothing is known. */
WH_APART __u32 wh_row_rule(__u32 first, __u32 n, __u32 offset)
{
	if (!n)
		return WH_RULE_NONE;
	struct wh_search s = {first, first + n, offset};
	bpf_loop(25, wh_row_step, &s, 0);
	if (s.low == first)
		return WH_RULE_NONE;
	__u32 key = (s.low - 1) & wh_rows_mask;
	struct wh_row *row = bpf_map_lookup_elem(&rows, &key);
	return row ? row->rule : WH_RULE_NONE;
}

static int wh_read_word(__u64 at, __u64 *into)
{
	return bpf_probe_read_user(into, sizeof(*into), (const void *)at);
}

/* The unusual shapes: see struct wh_rule. 0 when applied. */
static int wh_step_big(struct wh_place *p, __u32 rule)
{
	__u32 key = (rule >> 3) & (WH_WALK_RULES - 1);
	struct wh_rule *r = bpf_map_lookup_elem(&rules, &key);
	if (!r)
		return -1;
	__u64 reg = r->reg == WH_RULE_RBP ? p->bp : p->sp + 8;
	__u64 cfa = reg + (__s64)r->cfa_offset, bp = p->bp;
	if (r->deref) {
		if (wh_read_word(cfa, &cfa))
			return -1;
		cfa += (__s64)r->more;
	}
	if (r->rbp == 1 && wh_read_word(cfa + (__s64)r->rbp_offset, &bp))
		return -1;
	if (r->rbp == 2 && wh_read_word(p->bp + (__s64)r->rbp_offset, &bp))
		return -1;
	p->sp = cfa - 8;
	p->bp = bp;
	return 0;
}

/* From a return slot to the caller's. 0 when applied, 1 at the outermost frame, -1 when unknown. */
WH_APART int wh_step(struct wh_place *p, __u32 rule)
{
	if (!p)
		return -1;
	__u32 kind = rule & 7;
	if (kind == WH_RULE_END)
		return 1;
	if (kind == WH_RULE_BIG)
		return wh_step_big(p, rule);
	/* Behind a signal frame stands an interrupted instruction, not a call: the path ends here. */
	if (kind != WH_RULE_RSP && kind != WH_RULE_RBP)
		return -1;
	__u64 reg = kind == WH_RULE_RBP ? p->bp : p->sp + 8;
	__u64 cfa = reg + ((rule >> 3) & 0x3fff) * 8;
	if (cfa <= p->sp + 8 && kind == WH_RULE_RBP)
		return -1;
	if (rule & (1u << 17)) {
		__s64 saved = (__s64)((__s32)rule >> 18) * 8;
		if (wh_read_word(cfa + saved, &p->bp))
			return -1;
	}
	p->sp = cfa - 8;
	return 0;
}

#endif
