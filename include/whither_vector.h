/*
 * Vector instructions of walks: SSE, AVX and, up to 64 bytes, AVX-512 as string functions and compilers use them, with masks, and
 * floating point as far as it is comparison and whole numbers. Lives here: what they do to `struct wh_walk`, byte by byte known or
 * not. Included by whither_walk.h alone. Constraint: eight bytes are handled at once, by operations on general registers.
 */
#ifndef WHITHER_VECTOR_H
#define WHITHER_VECTOR_H

/* All bits of the elements whose highest bit is set in `tops`. */
static __attribute__((always_inline)) inline WH_U64 wh_filled(WH_U64 tops, WH_U32 lane)
{
	WH_U64 low = tops >> ((lane * 8 - 1) & 63);
	return lane >= 8 ? 0 - low : low * ((1ull << lane * 8) - 1);
}

/* Bits of bytes as bytes of all ones; the other way: a bit for each element that has its highest bit set. */
static __attribute__((always_inline)) inline WH_U64 wh_bytes_of(WH_U64 bits)
{
	WH_U64 each = (bits & 0xff) * 0x0101010101010101ull & 0x8040201008040201ull;
	return wh_filled((((each & 0x7f7f7f7f7f7f7f7full) + 0x7f7f7f7f7f7f7f7full) | each) & 0x8080808080808080ull, 1);
}

static __attribute__((always_inline)) inline WH_U32 wh_tops(WH_U64 v, WH_U32 lane)
{
	switch (lane) {
	case 1: return (v & 0x8080808080808080ull) * 0x0002040810204081ull >> 56;
	case 2: return (v & 0x8000800080008000ull) * 0x0000200040008001ull >> 60 & 15;
	case 4: return (v >> 31 & 1) | (v >> 62 & 2);
	default: return v >> 63;
	}
}

/* Of bits that say which bytes are known: those of elements known as a whole. */
static __attribute__((always_inline)) inline WH_U64 wh_whole(WH_U64 sure, WH_U32 lane)
{
	switch (lane) {
	case 1: return sure;
	case 2: sure &= sure >> 1 & 0x5555555555555555ull; return sure * 3;
	case 4:
		sure &= sure >> 1;
		return (sure & sure >> 2 & 0x1111111111111111ull) * 15;
	default:
		sure &= sure >> 1;
		sure &= sure >> 2;
		return (sure & sure >> 4 & 0x0101010101010101ull) * 255;
	}
}

/* Where a relation holds, all bits of an element. */
static __attribute__((always_inline)) inline WH_U64 wh_related(WH_U64 x, WH_U64 y, WH_U32 relation, WH_U32 lane)
{
	WH_U64 top = wh_lowest(lane) << ((lane * 8 - 1) & 63), r, d;
	if (relation & WH_SIGNED) {
		x ^= top;
		y ^= top;
	}
	relation &= 7;
	d = x ^ y;
	/* Highest bits: equal; less; more. */
	WH_U64 equal = ~(((d & ~top) + ~top) | d) & top;
	WH_U64 less = ((~x & y) | (~d & ~((x | top) - (y & ~top)))) & top;
	switch (relation & 3) {
	case WH_EQUAL: r = equal; break;
	case WH_LESS: r = less; break;
	case WH_LESS_EQUAL: r = less | equal; break;
	default: r = 0;
	}
	return wh_filled(relation & 4 ? r ^ top : r, lane);
}

/* Eight bytes of most instructions. */
static __attribute__((noinline)) WH_U64 wh_lanes(WH_U64 x, WH_U64 y, const struct wh_op *o)
{
	WH_U32 lane = o->lane & 15, bits = lane * 8;
	WH_U64 one = wh_lowest(lane), top = one << ((bits - 1) & 63), imm = o->imm, r;
	switch (o->kind) {
	case WH_OP_V_AND: return x & y;
	case WH_OP_V_AND_NOT: return ~x & y;
	case WH_OP_V_OR: return x | y;
	case WH_OP_V_XOR: return x ^ y;
	case WH_OP_V_ADD: return ((x & ~top) + (y & ~top)) ^ ((x ^ y) & top);
	case WH_OP_V_SUB: return ((x | top) - (y & ~top)) ^ ((x ^ ~y) & top);
	case WH_OP_V_COMPARE: return wh_related(x, y, o->condition, lane);
	case WH_OP_V_PICK:
		r = wh_related(x, y, o->condition, lane);
		return (x & r) | (y & ~r);
	case WH_OP_V_TEST:
		r = wh_related(x & y, 0, WH_EQUAL, lane);
		return o->condition ? r : ~r;
	case WH_OP_V_SHIFT:
		if (imm >= bits) {
			if (o->condition != WH_RIGHT_SIGNED)
				return 0;
			imm = bits - 1;
		}
		if (o->condition == WH_LEFT)
			return (y & one * (wh_low_bits(bits - imm) & wh_mask(lane))) << (imm & 63);
		r = y >> (imm & 63) & one * wh_low_bits(bits - imm);
		if (o->condition == WH_RIGHT_SIGNED)
			r |= wh_filled(y & top, lane) & ~(one * wh_low_bits(bits - imm));
		return r;
	default: /* WH_OP_V_MOVE */
		return y;
	}
}

/* Byte `i` of a block of 16 comes from: 0 to 15 the first input, 16 to 31 the second, 32 nowhere: it is 0. */
static __attribute__((noinline)) WH_U32 wh_comes_from(WH_U32 i, const struct wh_op *o)
{
	WH_U32 imm = o->imm & 0xff, lane = o->lane & 15, n;
	switch (o->condition) {
	case WH_UNPACK_LOW:
	case WH_UNPACK_HIGH:
		n = (i & (lane - 1)) + (lane == 1 ? i >> 1 : lane == 2 ? i >> 2 << 1 : lane == 4 ? i >> 3 << 2 : 0);
		return n + (o->condition == WH_UNPACK_HIGH ? 8 : 0) + (i & lane ? 16 : 0);
	case WH_SHUFFLE: return 16 + (imm >> (i >> 2) * 2 & 3) * 4 + (i & 3);
	case WH_SHUFFLE_LOW: return i < 8 ? 16 + (imm >> (i >> 1) * 2 & 3) * 2 + (i & 1) : 16 + i;
	case WH_SHUFFLE_HIGH: return i < 8 ? 16 + i : 24 + (imm >> ((i - 8) >> 1) * 2 & 3) * 2 + (i & 1);
	case WH_SHUFFLE_TWO: return (imm >> (i >> 2) * 2 & 3) * 4 + (i & 3) + (i < 8 ? 0 : 16);
	case WH_ALIGN:
		n = i + imm;
		return n < 16 ? 16 + n : n < 32 ? n - 16 : 32;
	case WH_BYTES_LEFT: return i < imm ? 32 : 16 + i - imm;
	default: return i + imm < 16 ? 16 + i + imm : 32;
	}
}

/* Moves bytes within blocks of 16, to w->out. */
WH_APART int wh_permute(struct wh_walk *w, const struct wh_op *o, WH_U32 a_n, WH_U32 from_memory)
{
	if (!w || !o)
		return 0;
	const struct wh_vector *a = &w->vec[a_n & (WH_VECTORS - 1)];
	const struct wh_vector *b = from_memory ? &w->in : &w->vec[o->src & (WH_VECTORS - 1)];
	WH_U32 size = o->size & 127;
	WH_U64 v = 0;
	w->out.sure = 0;
	for (WH_U32 i = 0; i < 64; i++) {
		WH_U32 from, byte = 0, sure = 1, at;
		if (i >= size)
			break;
		if (o->kind == WH_OP_V_LOOK_UP) {
			WH_U32 index = b->v[i >> 3 & 7] >> (i & 7) * 8;
			sure = b->sure >> i & 1;
			from = index & 0x80 ? 32 : index & 15;
		} else {
			from = wh_comes_from(i & 15, o);
		}
		at = ((i & 0x30) + (from & 15)) & 63;
		if (from < 16) {
			byte = a->v[at >> 3] >> (at & 7) * 8 & 0xff;
			sure = sure && (a->sure >> at & 1);
		} else if (from < 32) {
			byte = b->v[at >> 3] >> (at & 7) * 8 & 0xff;
			sure = b->sure >> at & 1;
		}
		v |= (WH_U64)byte << (i & 7) * 8;
		w->out.sure |= (WH_U64)!!sure << i;
		if ((i & 7) == 7) {
			w->out.v[i >> 3 & 7] = v;
			v = 0;
		}
	}
	return 0;
}

/* Bytes of memory, to w->in. */
WH_APART int wh_fetch(struct wh_walk *w, WH_U64 at, WH_U32 bytes)
{
	if (!w)
		return 0;
	w->in.sure = 0;
	for (WH_U32 i = 0; i < 8; i++) {
		WH_U64 v = 0;
		WH_U32 part = bytes >= 8 ? 8 : bytes;
		w->in.v[i] = 0;
		if (i * 8 >= bytes)
			continue;
		w->in.sure |= (WH_U64)(wh_peek(w, at + i * 8, part, &v) & 0xff) << i * 8;
		w->in.v[i] = v;
	}
	/* What is beyond is 0. */
	w->in.sure |= ~wh_low_bits(bytes);
	return 0;
}

/* Which of the eight bytes from 8 * i on are of elements that a mask chooses: a bit for each. */
static __attribute__((noinline)) WH_U64 wh_chosen(WH_U64 k, WH_U32 lane, WH_U32 i)
{
	WH_U32 per = lane == 1 ? 8 : lane == 2 ? 4 : lane == 4 ? 2 : 1;
	WH_U64 bytes = 0;
	for (WH_U32 n = 0; n < 8; n++) {
		if (n >= per)
			break;
		bytes |= (k >> ((i * per + n) & 63) & 1) * (wh_low_bits(lane) << n * lane);
	}
	return bytes;
}

/* Some of eight bytes to memory: a bit for each, and WH_SURE. 0: there was room. */
static __attribute__((noinline)) int wh_put_some(struct wh_walk *w, WH_U64 at, WH_U64 value, WH_U32 bytes)
{
	WH_U32 off = at & 7, sure = bytes & WH_SURE, first = bytes << off & 0xff, second = (bytes & 0xff) >> (8 - off);
	WH_U64 bits = wh_bytes_of(bytes & 0xff);
	if (first && wh_put(w, at & ~7ull, bits << off * 8, value << off * 8, first | sure))
		return 1;
	if (!second)
		return 0;
	return wh_put(w, (at & ~7ull) + 8, bits >> ((64 - off * 8) & 63), value >> ((64 - off * 8) & 63), second | sure);
}

/* A vector or its lowest bytes to memory. 0: there was room. */
static __attribute__((noinline)) int wh_spill(struct wh_walk *w, WH_U64 at, const struct wh_vector *v, WH_U32 bytes)
{
	for (WH_U32 i = 0; i < 8; i++) {
		WH_U32 part = bytes >= 8 ? 8 : bytes;
		WH_U64 all = wh_low_bits(part), sure = v->sure >> i * 8 & all;
		if (i * 8 >= bytes)
			break;
		if (wh_store(w, at + i * 8, part, v->v[i], sure == all ? WH_SURE : 0))
			return 1;
		if (sure && sure != all && wh_put_some(w, at + i * 8, v->v[i], sure | WH_SURE))
			return 1;
	}
	return 0;
}

/* The elements of a vector that a mask chooses to memory; where it is not known whether it does, what is there is not known. 0: there
 * was room. */
WH_APART int wh_spill_chosen(struct wh_walk *w, const struct wh_op *o, WH_U64 at)
{
	if (!w || !o)
		return 1;
	const struct wh_vector *v = &w->vec[o->src & (WH_VECTORS - 1)];
	WH_U64 k = w->k[o->mask & 7], k_sure = w->k_sure[o->mask & 7];
	WH_U32 size = o->size & 127, lane = o->lane & 15;
	for (WH_U32 i = 0; i < 8; i++) {
		if (i * 8 >= size)
			break;
		WH_U32 known = wh_chosen(k_sure, lane, i), on = wh_chosen(k, lane, i) & known, had = v->sure >> i * 8 & 0xff;
		if (wh_put_some(w, at + i * 8, v->v[i], (on & had) | WH_SURE))
			return 1;
		if (wh_put_some(w, at + i * 8, 0, ((on & ~had) | ~known) & 0xff))
			return 1;
	}
	return 0;
}

/* A whole number of at most 53 bits, from the bits of a double; `*sure` falls where it is none, or is -0. */
static __attribute__((noinline)) long long wh_whole_number(WH_U64 d, int *sure)
{
	int exponent = (int)(d >> 52 & 0x7ff) - 1023;
	WH_U64 m = (d & ((1ull << 52) - 1)) | 1ull << 52;
	if (!d)
		return 0;
	if (exponent < 0 || exponent > 52 || (m & wh_low_bits(52 - exponent))) {
		*sure = 0;
		return 0;
	}
	m >>= 52 - exponent;
	return d >> 63 ? -(long long)m : (long long)m;
}

/* The bits of a double; `*sure` falls where it would be rounded. */
static __attribute__((noinline)) WH_U64 wh_double_of(long long n, int *sure)
{
	WH_U64 m = n < 0 ? -(WH_U64)n : (WH_U64)n;
	WH_U32 top;
	if (!m)
		return 0;
	if (m > 1ull << 53) {
		*sure = 0;
		return 0;
	}
	top = wh_highest(m) & 63;
	m = top > 52 ? m >> 1 : m << (52 - top);
	return (n < 0 ? 1ull << 63 : 0) | (WH_U64)(1023 + top) << 52 | (m & ((1ull << 52) - 1));
}

/* A float as a double. */
static __attribute__((always_inline)) inline WH_U64 wh_widened(WH_U64 f, int *sure)
{
	WH_U32 exponent = f >> 23 & 0xff;
	if (!(f & 0x7fffffff))
		return (f >> 31 & 1) << 63;
	if (!exponent || exponent == 255) {
		*sure = 0;
		return 0;
	}
	return (f >> 31 & 1) << 63 | (WH_U64)(exponent + 896) << 52 | (f & 0x7fffff) << 29;
}

/* Comparison of two doubles, to flags. */
static __attribute__((always_inline)) inline WH_U32 wh_ordered(WH_U64 a, WH_U64 b)
{
	WH_U64 sign = 1ull << 63, infinite = 0x7ffull << 52;
	if ((a & ~sign) > infinite || (b & ~sign) > infinite)
		return WH_ZF | WH_PF | WH_CF;
	/* In the order of unsigned numbers; -0 is 0. */
	a = a == sign ? 0 : a;
	b = b == sign ? 0 : b;
	a = a & sign ? ~a : a | sign;
	b = b & sign ? ~b : b | sign;
	return a == b ? WH_ZF : a < b ? WH_CF : 0;
}

/* Floating point: `a` and `b` are lowest elements, known as `*sure` says. */
WH_APART WH_U64 wh_float(struct wh_walk *w, const struct wh_op *o, WH_U64 a, WH_U64 b, int *sure)
{
	if (!w || !o || !sure)
		return 0;
	long long x, y, r = 0;
	if (o->kind == WH_OP_F_FROM_INTEGER)
		return wh_double_of((long long)wh_extended(b, o->from & 15), sure);
	if ((o->lane & 15) == 4) {
		a = wh_widened(a & 0xffffffff, sure);
		b = wh_widened(b & 0xffffffff, sure);
	}
	if (o->kind == WH_OP_F_COMPARE) {
		wh_set_flags(w, WH_STATUS, wh_ordered(a, b), *sure ? WH_STATUS : 0);
		return 0;
	}
	if (o->kind == WH_OP_F_TO_INTEGER) {
		WH_U32 size = o->size & 15;
		int exponent = (int)(b >> 52 & 0x7ff) - 1023;
		WH_U64 m = (b & ((1ull << 52) - 1)) | 1ull << 52, none = size == 8 ? 1ull << 63 : 1ull << 31;
		if (exponent < 0)
			return 0;
		if (exponent >= (size == 8 ? 63 : 31))
			return none;
		m = exponent <= 52 ? m >> (52 - exponent) : m << (exponent - 52);
		return (b >> 63 ? -m : m) & wh_mask(size);
	}
	x = wh_whole_number(a, sure);
	y = wh_whole_number(b, sure);
	if (!*sure)
		return 0;
	WH_U64 mx = x < 0 ? -(WH_U64)x : (WH_U64)x, my = y < 0 ? -(WH_U64)y : (WH_U64)y, mr = 0;
	switch (o->kind) {
	case WH_OP_F_ADD: r = x + y; break;
	case WH_OP_F_SUB: r = x - y; break;
	case WH_OP_F_MULTIPLY:
		mr = mx * my;
		if (wh_high(mx, my) || mr > 1ull << 53)
			*sure = 0;
		break;
	default:
		if (!my || mx % my)
			*sure = 0;
		mr = my ? mx / my : 0;
	}
	if (o->kind == WH_OP_F_MULTIPLY || o->kind == WH_OP_F_DIVIDE) {
		/* 0 of a negative number is -0. */
		if (!mr && (x < 0 || y < 0))
			*sure = 0;
		r = (x < 0) != (y < 0) ? -(long long)mr : (long long)mr;
	}
	return wh_double_of(r, sure);
}

/* Elements of w->out that the mask does not choose, as it says: 0 or as they were. */
WH_APART int wh_choose(struct wh_walk *w, const struct wh_op *o)
{
	if (!w || !o)
		return 0;
	struct wh_vector *old = &w->vec[o->dst & (WH_VECTORS - 1)];
	WH_U64 k = w->k[o->mask & 7], k_sure = w->k_sure[o->mask & 7];
	WH_U32 lane = o->lane & 15;
	for (WH_U32 i = 0; i < 8; i++) {
		WH_U64 on = wh_chosen(k, lane, i), known = wh_chosen(k_sure, lane, i), bytes = wh_bytes_of(on);
		w->out.v[i] &= bytes;
		if (!(o->mask & WH_MASK_ZERO))
			w->out.v[i] |= old->v[i] & ~bytes;
		WH_U64 had = w->out.sure >> i * 8 & 0xff, has = o->mask & WH_MASK_ZERO ? 0xff : old->sure >> i * 8 & 0xff;
		WH_U64 sure = known & ((on & had) | (~on & has)) & 0xff;
		w->out.sure = (w->out.sure & ~(0xffull << i * 8)) | sure << i * 8;
	}
	return 0;
}

/* w->out to the destination. */
WH_APART int wh_keep(struct wh_walk *w, const struct wh_op *o)
{
	if (!w || !o)
		return 0;
	struct wh_vector *to = &w->vec[o->dst & (WH_VECTORS - 1)];
	WH_U32 size = o->size & 127;
	if (o->mask & 7)
		wh_choose(w, o);
	for (WH_U32 i = 0; i < 8; i++) {
		if (i * 8 < size)
			to->v[i] = w->out.v[i];
		else if (!(o->mask & WH_KEEP))
			to->v[i] = 0;
	}
	WH_U64 part = wh_low_bits(size);
	to->sure = (w->out.sure & part) | (o->mask & WH_KEEP ? to->sure & ~part : ~part);
	return 0;
}

/* Bits of elements, to a mask register. */
WH_APART int wh_to_mask(struct wh_walk *w, const struct wh_op *o)
{
	if (!w || !o)
		return 0;
	WH_U32 lane = o->lane & 15, per = lane == 1 ? 8 : lane == 2 ? 4 : lane == 4 ? 2 : 1, size = o->size & 127;
	WH_U64 bits = 0, sure = 0;
	for (WH_U32 i = 0; i < 8; i++) {
		if (i * 8 >= size)
			break;
		bits |= (WH_U64)wh_tops(w->out.v[i], lane) << i * per;
		/* The byte that says that an element is known is its highest one. */
		sure |= (WH_U64)wh_tops(wh_bytes_of(w->out.sure >> i * 8), lane) << i * per;
	}
	sure |= ~wh_low_bits(lane == 1 ? size : lane == 2 ? size / 2 : lane == 4 ? size / 4 : size / 8);
	if (o->mask & 7) {
		WH_U64 k = w->k[o->mask & 7], k_sure = w->k_sure[o->mask & 7];
		bits &= k;
		sure = (sure & k_sure) | (k_sure & ~k);
	}
	w->k[o->dst & (WH_MASKS - 1)] = bits & sure;
	w->k_sure[o->dst & (WH_MASKS - 1)] = sure;
	return 0;
}

/* Eight bytes by eight, to w->out. */
WH_APART int wh_each(struct wh_walk *w, const struct wh_op *o, WH_U32 a_n, WH_U32 from_memory)
{
	if (!w || !o)
		return 0;
	const struct wh_vector *a = &w->vec[a_n & (WH_VECTORS - 1)];
	const struct wh_vector *b = from_memory ? &w->in : &w->vec[o->src & (WH_VECTORS - 1)];
	WH_U32 size = o->size & 127;
	for (WH_U32 i = 0; i < 8; i++) {
		if (i * 8 >= size)
			break;
		w->out.v[i] = wh_lanes(a->v[i], b->v[i], o);
	}
	w->out.sure = b->sure;
	if (o->kind == WH_OP_V_MOVE && (o->from & 127) == 8) {
		for (WH_U32 i = 1; i < 8; i++)
			w->out.v[i] = 0;
		w->out.sure |= ~0xffull;
	}
	if (o->kind != WH_OP_V_MOVE && o->kind != WH_OP_V_SHIFT)
		w->out.sure &= a->sure;
	if (o->kind >= WH_OP_V_ADD && o->kind <= WH_OP_V_TEST)
		w->out.sure = wh_whole(w->out.sure, o->lane & 15);
	return 0;
}

/* vpternlog: bit by bit the entry of the table `imm`, numbered by the three inputs. */
WH_APART int wh_ternary(struct wh_walk *w, const struct wh_op *o, WH_U32 from_memory)
{
	if (!w || !o)
		return 0;
	const struct wh_vector *a = &w->vec[o->dst & (WH_VECTORS - 1)], *b = &w->vec[o->with & (WH_VECTORS - 1)];
	const struct wh_vector *c = from_memory ? &w->in : &w->vec[o->src & (WH_VECTORS - 1)];
	for (WH_U32 i = 0; i < 8; i++) {
		WH_U64 x = a->v[i], y = b->v[i], z = c->v[i], r = 0;
		for (WH_U32 n = 0; n < 8; n++)
			if (o->imm >> n & 1)
				r |= (n & 4 ? x : ~x) & (n & 2 ? y : ~y) & (n & 1 ? z : ~z);
		w->out.v[i] = r;
	}
	w->out.sure = a->sure & b->sure & c->sure;
	return 0;
}

#include "whither_find.h"

/* What one instruction without a vector as its result says: flags, a general register or memory. */
static __attribute__((noinline)) int wh_vector_told(struct wh_walk *w, const struct wh_op *o, WH_U64 at, WH_U32 from_memory)
{
	const struct wh_vector *b = from_memory ? &w->in : &w->vec[o->src & (WH_VECTORS - 1)];
	const struct wh_vector *a = &w->vec[(o->with >= WH_VECTOR ? o->with : o->dst) & (WH_VECTORS - 1)];
	WH_U32 size = o->size & 127, lane = o->lane & 15, f;
	WH_U64 r = 0, sure = ~0ull, none = 0, all = 0;
	switch (o->kind) {
	case WH_OP_V_EXTRACT: {
		WH_U32 from = o->from & 15, shift = (o->imm & 7) * 8, word = o->imm >> 3 & 7;
		r = b->v[word] >> shift & wh_mask(from);
		sure = (b->sure >> (o->imm & 63) & wh_low_bits(from)) == wh_low_bits(from);
		if (o->dst == WH_IN_MEMORY)
			return wh_store(w, at, from, r, sure ? WH_SURE : 0) ? WH_FULL : WH_WENT_ON;
		wh_write_gpr(w, o->dst, 8, r, !!sure);
		return WH_WENT_ON;
	}
	case WH_OP_V_SIGNS: {
		WH_U32 per = lane == 1 ? 8 : lane == 4 ? 2 : 1;
		for (WH_U32 i = 0; i < 4; i++) {
			if (i * 8 >= size)
				break;
			r |= (WH_U64)wh_tops(b->v[i], lane) << i * per;
			if (wh_tops(~wh_bytes_of(b->sure >> i * 8), lane))
				sure = 0;
		}
		wh_write_gpr(w, o->dst, 8, r, !!sure);
		return WH_WENT_ON;
	}
	case WH_OP_V_ALL:
		for (WH_U32 i = 0; i < 8; i++) {
			if (i * 8 >= size)
				break;
			none |= a->v[i] & b->v[i];
			all |= ~a->v[i] & b->v[i];
		}
		sure = !(wh_low_bits(size) & ~(a->sure & b->sure));
		wh_set_flags(w, WH_STATUS, (none ? 0 : WH_ZF) | (all ? 0 : WH_CF), sure ? WH_STATUS : 0);
		return WH_WENT_ON;
	default: { /* WH_OP_K_TEST */
		WH_U64 x = w->k[o->dst & (WH_MASKS - 1)], y = w->k[o->src & (WH_MASKS - 1)], m = wh_mask(size);
		sure = !(m & ~(w->k_sure[o->dst & (WH_MASKS - 1)] & w->k_sure[o->src & (WH_MASKS - 1)]));
		f = o->condition ? (x & y & m ? 0 : WH_ZF) | (~x & y & m ? 0 : WH_CF)
				 : ((x | y) & m ? 0 : WH_ZF) | (((x | y) & m) == m ? WH_CF : 0);
		wh_set_flags(w, WH_STATUS, f, sure ? WH_STATUS : 0);
		return WH_WENT_ON;
	}
	}
}

WH_APART int wh_vector_step(struct wh_walk *w, const struct wh_op *o)
{
	if (!w || !o)
		return WH_LOST;
	WH_U32 kind = o->kind, with = o->with >= WH_VECTOR ? o->with : o->dst, memory = o->src == WH_IN_MEMORY, from = o->from & 127;
	WH_U64 at = 0;
	int found = 1, known;
	if (o->bits & WH_BIT_ADDRESS) {
		found = wh_address(w, o, &at);
		if (!found && (o->bits & WH_BIT_WRITES))
			return WH_LOST;
	}
	if (kind == WH_OP_V_UPPER_ZERO) {
		for (WH_U32 i = 0; i < 16; i++) {
			for (WH_U32 n = 2; n < 8; n++)
				w->vec[i].v[n] = 0;
			w->vec[i].sure |= ~0xffffull;
		}
		return WH_WENT_ON;
	}
	if (kind == WH_OP_K_JOIN) {
		WH_U32 bits = o->size * 8 & 63, a = o->with & (WH_MASKS - 1), b = o->src & (WH_MASKS - 1), d = o->dst & (WH_MASKS - 1);
		WH_U64 low = wh_low_bits(bits), v = (w->k[b] & low) | w->k[a] << bits;
		WH_U64 sure = (w->k_sure[b] & low) | w->k_sure[a] << bits, all = wh_low_bits(bits * 2);
		w->k[d] = v & all;
		w->k_sure[d] = sure | ~all;
		return WH_WENT_ON;
	}
	if (kind == WH_OP_V_STORE && o->mask & 7)
		return wh_spill_chosen(w, o, at) ? WH_FULL : WH_WENT_ON;
	if (kind == WH_OP_V_STORE)
		return wh_spill(w, at, &w->vec[o->src & (WH_VECTORS - 1)], o->size & 127) ? WH_FULL : WH_WENT_ON;
	/* Another second input than a vector is put into w->in. */
	if (memory) {
		if (found)
			wh_fetch(w, at, from);
		else
			w->in.sure = from ? ~wh_low_bits(from) : 0;
	} else if (o->src < WH_GPRS) {
		memory = 1;
		for (WH_U32 i = 0; i < 8; i++)
			w->in.v[i] = 0;
		w->in.v[0] = w->gpr[o->src & 15] & wh_mask(from);
		w->in.sure = ~0ull;
		if (!(w->known >> (o->src & 15) & 1))
			w->in.sure = ~wh_low_bits(from);
	}
	const struct wh_vector *b = memory ? &w->in : &w->vec[o->src & (WH_VECTORS - 1)];
	WH_U64 low = b->v[0], low_sure = b->sure;
	switch (kind) {
	case WH_OP_V_FIND:
		wh_find(w, o, memory);
		return WH_WENT_ON;
	case WH_OP_V_EXTRACT:
	case WH_OP_V_SIGNS:
	case WH_OP_V_ALL:
	case WH_OP_K_TEST:
		return wh_vector_told(w, o, at, memory);
	case WH_OP_V_ZERO:
	case WH_OP_V_ONES:
		for (WH_U32 i = 0; i < 8; i++)
			w->out.v[i] = kind == WH_OP_V_ZERO ? 0 : ~0ull;
		w->out.sure = ~0ull;
		break;
	case WH_OP_V_BROADCAST: {
		WH_U32 lane = o->lane & 15;
		low = (low & wh_mask(lane)) * wh_lowest(lane);
		for (WH_U32 i = 0; i < 8; i++)
			w->out.v[i] = low;
		w->out.sure = (low_sure & wh_low_bits(lane)) == wh_low_bits(lane) ? ~0ull : 0;
		break;
	}
	case WH_OP_V_INSERT:
	case WH_OP_F_FROM_INTEGER:
	case WH_OP_F_ADD:
	case WH_OP_F_SUB:
	case WH_OP_F_MULTIPLY:
	case WH_OP_F_DIVIDE: {
		const struct wh_vector *a = &w->vec[with & (WH_VECTORS - 1)];
		WH_U32 shift = (o->imm & 7) * 8, word = o->imm >> 3 & 7, bytes = kind == WH_OP_V_INSERT ? from & 15 : 8;
		WH_U64 all = wh_low_bits(bytes), mask = wh_mask(bytes);
		known = (low_sure & wh_low_bits(from)) == wh_low_bits(from);
		if (kind > WH_OP_F_FROM_INTEGER)
			known = known && (a->sure & 255) == 255;
		if (kind != WH_OP_V_INSERT)
			low = wh_float(w, o, a->v[0], low, &known);
		for (WH_U32 i = 0; i < 8; i++)
			w->out.v[i] = a->v[i];
		w->out.v[word] = (w->out.v[word] & ~(mask << shift)) | (low & mask) << shift;
		w->out.sure = (a->sure & ~(all << (o->imm & 63))) | (known ? all << (o->imm & 63) : 0);
		break;
	}
	case WH_OP_F_COMPARE:
	case WH_OP_F_TO_INTEGER: {
		WH_U64 all = wh_low_bits(o->lane & 15);
		const struct wh_vector *a = &w->vec[with & (WH_VECTORS - 1)];
		known = (low_sure & all) == all && (kind == WH_OP_F_TO_INTEGER || (a->sure & all) == all);
		low = wh_float(w, o, kind == WH_OP_F_TO_INTEGER ? low : a->v[0], low, &known);
		if (kind == WH_OP_F_TO_INTEGER)
			wh_write_gpr(w, o->dst, o->size & 15, low, known);
		return WH_WENT_ON;
	}
	case WH_OP_V_PERMUTE:
	case WH_OP_V_LOOK_UP:
		wh_permute(w, o, with, memory);
		break;
	case WH_OP_V_TERNARY:
		wh_ternary(w, o, memory);
		break;
	default:
		wh_each(w, o, with, memory);
	}
	if (o->dst >= WH_MASK)
		wh_to_mask(w, o);
	else
		wh_keep(w, o);
	return WH_WENT_ON;
}

#endif
