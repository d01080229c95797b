/*
 * Products and quotients of walks. Lives here: what is twice as wide as a register, and whether it would have fitted. Included by
 * whither_walk.h alone. Constraint: there are no numbers of 128 bits in the kernel.
 */
#ifndef WHITHER_PRODUCT_H
#define WHITHER_PRODUCT_H

/* High half of a product. */
static __attribute__((always_inline)) inline WH_U64 wh_high(WH_U64 a, WH_U64 b)
{
	WH_U64 al = (WH_U32)a, ah = a >> 32, bl = (WH_U32)b, bh = b >> 32;
	WH_U64 low = al * bl, m = ah * bl + (low >> 32), n = al * bh + (WH_U32)m;
	return ah * bh + (m >> 32) + (n >> 32);
}

/* Whether a signed product is more than `size` bytes hold: then a multiplication sets carry and overflow. */
static __attribute__((noinline)) WH_U32 wh_too_large(WH_U64 a, WH_U64 b, WH_U32 size)
{
	WH_U64 low, high;
	a = wh_extended(a, size);
	b = wh_extended(b, size);
	low = a * b;
	if (size < 8)
		return wh_extended(low, size) == low ? 0 : WH_CF | WH_OF;
	high = wh_high(a, b) - ((long long)a < 0 ? b : 0) - ((long long)b < 0 ? a : 0);
	return high == (low >> 63 ? ~0ull : 0) ? 0 : WH_CF | WH_OF;
}

/* rax and rdx of a multiplication or division of `size` 4 or 8. 0: done, else it faults. */
static __attribute__((noinline)) int wh_wide(struct wh_walk *w, const struct wh_op *o, WH_U64 b, int sure)
{
	WH_U32 size = o->size, carry = 0;
	WH_U64 m = wh_mask(size), a = w->gpr[WH_RAX] & m, d = w->gpr[WH_RDX] & m, low = 0, high = 0;
	WH_U32 need = o->kind == WH_OP_MUL || o->kind == WH_OP_IMUL ? 1u : 1u | 1u << WH_RDX;
	sure = sure && (w->known & need) == need;
	if (sure && size == 4 && o->kind == WH_OP_MUL) {
		low = a * b;
		high = low >> 32;
	} else if (sure && size == 4 && o->kind == WH_OP_IMUL) {
		low = wh_extended(a, 4) * wh_extended(b, 4);
		high = low >> 32;
	} else if (sure && (o->kind == WH_OP_MUL || o->kind == WH_OP_IMUL)) {
		low = a * b;
		high = wh_high(a, b);
		if (o->kind == WH_OP_IMUL)
			high -= ((long long)a < 0 ? b : 0) + ((long long)b < 0 ? a : 0);
	} else if (sure) {
		int is_signed = o->kind == WH_OP_IDIV, minus_n = 0, minus_d = 0;
		WH_U64 n = size == 4 ? d << 32 | a : a;
		if (b == 0)
			return 1;
		if (is_signed) {
			WH_U64 by = wh_extended(b, size);
			minus_n = (long long)n < 0;
			minus_d = (long long)by < 0;
			n = minus_n ? -n : n;
			b = minus_d ? -by : by;
		}
		/* 128 by 64 bits only where the upper half says nothing. */
		if (size == 8 && d != (is_signed && minus_n ? ~0ull : 0))
			sure = 0;
		low = n / b;
		high = n % b;
		if (minus_n)
			high = -high;
		if (minus_n != minus_d)
			low = -low;
		if (sure && (is_signed ? wh_extended(low, size) != low || (low >> 63 && minus_n == minus_d)
				       : low != (low & m)))
			return 1;
	}
	if (o->kind == WH_OP_IMUL)
		carry = wh_too_large(a, b, size);
	else if (high & m)
		carry = WH_CF | WH_OF;
	wh_write_gpr(w, WH_RAX, size, low, sure);
	wh_write_gpr(w, WH_RDX, size, high, sure);
	wh_set_flags(w, WH_STATUS, carry, sure && (o->kind == WH_OP_MUL || o->kind == WH_OP_IMUL) ? WH_CF | WH_OF : 0);
	return 0;
}

#endif
