/*
 * Search in strings of 16 bytes (pcmpistri), as C libraries look for characters. Lives here: what is found, and whether that is known: bytes
 * behind a string's end may be unknown. Included by whither_vector.h alone. Constraint: the kernel's verifier looks at each of these
 * functions by itself; as one, they are more work than it accepts.
 */
#ifndef WHITHER_FIND_H
#define WHITHER_FIND_H

/* What wh_find looks for: bits 2 and 3 of its immediate. */
#define WH_FIND_ANY 0
#define WH_FIND_RANGES 1
#define WH_FIND_SAME 2
#define WH_FIND_ORDERED 3
#define WH_NO_LENGTH 31

/* Bits of the elements of 16 bytes that have a relation to one. */
WH_APART WH_U32 wh_those(const struct wh_vector *v, WH_U64 element, WH_U32 relation, WH_U32 lane)
{
	if (!v)
		return 0;
	WH_U64 all = (element & wh_mask(lane)) * wh_lowest(lane);
	WH_U64 low = wh_related(v->v[0], all, relation, lane), high = wh_related(v->v[1], all, relation, lane);
	return lane == 1 ? wh_tops(low, 1) | wh_tops(high, 1) << 8 : wh_tops(low, 2) | wh_tops(high, 2) << 4;
}

/* Elements before the first one that is 0, of 16 bytes; WH_NO_LENGTH where that depends on bytes that are not known. */
WH_APART WH_U32 wh_string_length(const struct wh_vector *v, WH_U32 lane)
{
	if (!v)
		return WH_NO_LENGTH;
	WH_U32 n = wh_trailing(wh_those(v, 0, WH_EQUAL, lane) | 1u << (lane == 1 ? 16 : 8)), bytes = (n + 1) * lane;
	WH_U64 need = wh_low_bits(bytes < 16 ? bytes : 16);
	return (v->sure & need) == need ? n : WH_NO_LENGTH;
}

/* What element j of a says of those of b, of both so many as their lengths: which it finds, or of WH_FIND_ORDERED, where b may hold a as
 * far as it goes. */
WH_APART WH_U32 wh_find_one(const struct wh_vector *a, const struct wh_vector *b, WH_U32 j, WH_U32 imm, WH_U32 lengths)
{
	if (!a || !b)
		return 0;
	WH_U32 lane = imm & 1 ? 2 : 1, all = lane == 1 ? 0xffff : 0xff, sign = imm & 2 ? WH_SIGNED : 0, bits = j * lane * 8;
	WH_U32 valid = (1u << (lengths >> 8 & 31)) - 1, found;
	WH_U64 one = a->v[bits >> 6 & 1] >> (bits & 63), next;
	switch (imm >> 2 & 3) {
	case WH_FIND_ANY:
		return wh_those(b, one, WH_EQUAL, lane) & valid;
	case WH_FIND_RANGES:
		if (j & 1 || j + 1 >= (lengths & 31))
			return 0;
		bits += lane * 8;
		next = a->v[bits >> 6 & 1] >> (bits & 63);
		found = wh_those(b, one, WH_NOT_LESS | sign, lane);
		return found & wh_those(b, next, WH_LESS_EQUAL | sign, lane) & valid;
	case WH_FIND_SAME:
		return wh_those(b, one, WH_EQUAL, lane) & valid & 1u << (j & 15);
	default:
		return (wh_those(b, one, WH_EQUAL, lane) & valid) >> (j & 15) | (all & ~(all >> (j & 15)));
	}
}

/* pcmpistri (Intel's manual, volume 2, section 4.1): elements of b that a string in a has, that lie in ranges of a, that equal those of a at
 * the same place, or where a begins in b. */
WH_APART int wh_find(struct wh_walk *w, const struct wh_op *o, WH_U32 from_memory)
{
	if (!w || !o)
		return 0;
	const struct wh_vector *a = &w->vec[o->with & (WH_VECTORS - 1)];
	const struct wh_vector *b = from_memory ? &w->in : &w->vec[o->src & (WH_VECTORS - 1)];
	WH_U32 imm = o->imm & 0x7f, lane = imm & 1 ? 2 : 1, n = lane == 1 ? 16 : 8, all = (1u << n) - 1, how = imm >> 2 & 3;
	WH_U32 long_a = wh_string_length(a, lane), long_b = wh_string_length(b, lane);
	WH_U32 valid_a = (1u << (long_a & 31)) - 1, valid_b = (1u << (long_b & 31)) - 1, found = how == WH_FIND_ORDERED ? all : 0;
	int sure = long_a != WH_NO_LENGTH && long_b != WH_NO_LENGTH;
	for (WH_U32 j = 0; j < 16; j++) {
		if (j >= long_a || j >= n)
			break;
		WH_U32 one = wh_find_one(a, b, j, imm, long_a | long_b << 8);
		found = how == WH_FIND_ORDERED ? found & one : found | one;
	}
	/* Behind the end of both all are the same. */
	if (how == WH_FIND_SAME)
		found |= all & ~valid_a & ~valid_b;
	if (imm & 0x10)
		found ^= imm & 0x20 ? valid_b : all;
	wh_write_gpr(w, WH_RCX, 8, !found ? n : imm & 0x40 ? wh_highest(found) : wh_trailing(found), sure);
	wh_set_flags(w, WH_STATUS, (found ? WH_CF : 0) | (found & 1 ? WH_OF : 0) | (long_b < n ? WH_ZF : 0) | (long_a < n ? WH_SF : 0),
		     sure ? WH_STATUS : 0);
	return 0;
}

#endif
