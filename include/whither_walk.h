/*
 * Executes code in thought: prepared instructions (`struct wh_op`) on a copy of the registers and over a list of
 * stores, without changing anything of the process. Lives here: what each operation does, what is known after it, and where a walk has
 * to end. Not here: where instructions come from (the tool decodes them), how many are walked, who is told.
 * Constraints: it runs at an interrupt, so its work is bounded and it only reads; and it is certain or silent: a value that is not
 * known for sure is unknown, with all that depends on it. Compiled for the kernel and, for tests, for user space.
 *
 * Who includes it defines WH_READ_USER(to, size, from): 0 when `size` bytes were read.
 */
#ifndef WHITHER_WALK_H
#define WHITHER_WALK_H
#include "whither_known.h"

/* Whether a condition holds: 0, 1, or 2 for not known. Numbered as in machine code. */
static __attribute__((always_inline)) inline int wh_holds(const struct wh_walk *w, WH_U32 condition)
{
	WH_U32 f = w->flags, need, is;
	switch (condition >> 1 & 7) {
	case 0: need = WH_OF; is = f & WH_OF; break;
	case 1: need = WH_CF; is = f & WH_CF; break;
	case 2: need = WH_ZF; is = f & WH_ZF; break;
	case 3: need = WH_CF | WH_ZF; is = f & (WH_CF | WH_ZF); break;
	case 4: need = WH_SF; is = f & WH_SF; break;
	case 5: need = WH_PF; is = f & WH_PF; break;
	case 6: need = WH_SF | WH_OF; is = !(f & WH_SF) != !(f & WH_OF); break;
	default: need = WH_ZF | WH_SF | WH_OF; is = (f & WH_ZF) || !(f & WH_SF) != !(f & WH_OF); break;
	}
	if ((w->flags_known & need) != need)
		return 2;
	return !!is ^ (condition & 1);
}

static __attribute__((always_inline)) inline WH_U32 wh_result_flags(WH_U64 r, WH_U32 top)
{
	return (r == 0 ? WH_ZF : 0) | (r >> top & 1 ? WH_SF : 0) | (0x9669u >> ((r ^ r >> 4) & 15) & 1 ? WH_PF : 0);
}

static __attribute__((always_inline)) inline WH_U64 wh_extended(WH_U64 v, WH_U32 size)
{
	WH_U32 shift = (64 - size * 8) & 63;
	return (WH_U64)((long long)(v << shift) >> shift);
}

static __attribute__((always_inline)) inline WH_U32 wh_trailing(WH_U64 v)
{
	WH_U32 n = 0;
	if (!(v & 0xffffffff)) { n += 32; v >>= 32; }
	if (!(v & 0xffff)) { n += 16; v >>= 16; }
	if (!(v & 0xff)) { n += 8; v >>= 8; }
	if (!(v & 0xf)) { n += 4; v >>= 4; }
	if (!(v & 3)) { n += 2; v >>= 2; }
	return v & 1 ? n : n + 1;
}

static __attribute__((always_inline)) inline WH_U32 wh_highest(WH_U64 v)
{
	WH_U32 n = 0;
	if (v >> 32) { n += 32; v >>= 32; }
	if (v >> 16) { n += 16; v >>= 16; }
	if (v >> 8) { n += 8; v >>= 8; }
	if (v >> 4) { n += 4; v >>= 4; }
	if (v >> 2) { n += 2; v >>= 2; }
	return v >> 1 ? n + 1 : n;
}

static __attribute__((always_inline)) inline void wh_set_flags(struct wh_walk *w, WH_U32 which, WH_U32 to, WH_U32 known)
{
	w->flags = (w->flags & ~which) | (to & which);
	w->flags_known = (w->flags_known & ~which) | (known & which);
}

static __attribute__((always_inline)) inline void wh_write_gpr(struct wh_walk *w, WH_U32 n, WH_U32 size, WH_U64 v, int sure)
{
	WH_U64 *r = &w->gpr[n & 15];
	WH_U32 bit = 1u << (n & 15);
	if (size < 4 && !(w->known & bit))
		return;
	*r = size >= 4 ? v & wh_mask(size) : (*r & ~wh_mask(size)) | (v & wh_mask(size));
	w->known = sure ? w->known | bit : w->known & ~bit;
}

#include "whither_product.h"

/* A shift or rotation of `a` by `count`, which is below 64 and not 0. */
static __attribute__((noinline)) WH_U64 wh_shift(struct wh_walk *w, WH_U32 kind_size, WH_U64 a, WH_U32 count, int sure)
{
	WH_U32 kind = kind_size >> 8, size = kind_size & 15, bits = size * 8, top = (bits - 1) & 63, f = 0;
	WH_U32 known = WH_STATUS, which = WH_STATUS, carry = 0, over = 0;
	WH_U64 r = 0, m = wh_mask(size);
	count &= 63;
	switch (kind) {
	case WH_OP_SHL:
		r = a << count & m;
		carry = count <= bits ? a >> ((bits - count) & 63) & 1 : 0;
		if (count >= bits)
			known &= ~WH_CF;
		over = (r ^ a) >> top & 1;
		break;
	case WH_OP_SHR:
		r = a >> count;
		carry = a >> ((count - 1) & 63) & 1;
		if (count >= bits)
			known &= ~WH_CF;
		over = a >> top & 1;
		break;
	case WH_OP_SAR:
		r = (WH_U64)((long long)wh_extended(a, size) >> count) & m;
		carry = (long long)wh_extended(a, size) >> ((count - 1) & 63) & 1;
		break;
	default: {
		WH_U32 n = count & (bits - 1);
		if (kind == WH_OP_ROR)
			n = (bits - n) & (bits - 1);
		r = n ? (a << n | a >> ((bits - n) & 63)) & m : a;
		which = WH_CF | WH_OF;
		carry = kind == WH_OP_ROR ? r >> top & 1 : r & 1;
		over = kind == WH_OP_ROR ? (r >> top ^ r >> ((top - 1) & 63)) & 1 : (r ^ r >> top) & 1;
	}
	}
	if (count != 1)
		known &= ~WH_OF;
	f = wh_result_flags(r, top) | (carry ? WH_CF : 0) | (over ? WH_OF : 0);
	wh_set_flags(w, which, f, sure ? known : 0);
	return r;
}

/* Counts bits or looks for one. */
static __attribute__((noinline)) WH_U64 wh_scan(struct wh_walk *w, WH_U32 kind_size, WH_U64 b, int sure)
{
	WH_U32 kind = kind_size >> 8, bits = (kind_size & 15) * 8, f = 0, known = 0;
	WH_U64 r = 0;
	switch (kind) {
	case WH_OP_BSF:
	case WH_OP_TZCNT:
		r = b ? wh_trailing(b) : bits;
		break;
	case WH_OP_BSR:
		r = b ? wh_highest(b) : 0;
		break;
	case WH_OP_LZCNT:
		r = b ? bits - 1 - wh_highest(b) : bits;
		break;
	default:
		b -= b >> 1 & 0x5555555555555555ull;
		b = (b & 0x3333333333333333ull) + (b >> 2 & 0x3333333333333333ull);
		b = (b + (b >> 4)) & 0x0f0f0f0f0f0f0f0full;
		r = b * 0x0101010101010101ull >> 56;
	}
	switch (kind) {
	case WH_OP_BSF:
	case WH_OP_BSR:
		known = WH_ZF;
		f = b ? 0 : WH_ZF;
		break;
	case WH_OP_TZCNT:
	case WH_OP_LZCNT:
		known = WH_ZF | WH_CF;
		f = (b ? 0 : WH_CF) | (r ? 0 : WH_ZF);
		break;
	default:
		known = WH_STATUS;
		f = r ? 0 : WH_ZF;
	}
	wh_set_flags(w, WH_STATUS, f, sure ? known : 0);
	return r;
}

/* Address of the memory operand. 1: it is known. */
static __attribute__((always_inline)) inline int wh_address(struct wh_walk *w, const struct wh_op *o, WH_U64 *to)
{
	WH_U64 at = o->disp;
	WH_U32 need = 0;
	if (o->bits & WH_BIT_STRANGE)
		return 0;
	if (o->base < WH_GPRS) {
		at += w->gpr[o->base & 15];
		need |= 1u << (o->base & 15);
	}
	if (o->base == WH_OF_IMAGE)
		at += w->bias;
	if (o->index < WH_GPRS) {
		at += w->gpr[o->index & 15] << (o->shift & 3);
		need |= 1u << (o->index & 15);
	}
	if ((w->known & need) != need)
		return 0;
	if (o->bits & WH_BIT_SHORT)
		at &= 0xffffffff;
	if (o->bits & WH_BIT_FS) {
		if (!w->fs)
			return 0;
		at += w->fs;
	}
	*to = at;
	return 1;
}

static __attribute__((always_inline)) inline WH_U64 wh_low_bits(WH_U64 n)
{
	return n >= 64 ? ~0ull : (1ull << n) - 1;
}

/* An instruction on general registers. */
WH_APART int wh_general_step(struct wh_walk *w, const struct wh_op *o)
{
	if (!w || !o)
		return WH_LOST;
	WH_U32 kind = o->kind, size = o->size & 15, top = (size * 8 - 1) & 63, f = 0, which = 0, flags_known = 0;
	WH_U64 at = 0, memory = 0, a = 0, b = 0, c = o->imm, r = 0, m = wh_mask(size);
	int found = 0, a_known = 1, b_known = 1, c_known = 1, sure, holds, writes = o->bits & WH_BIT_KEEPS ? 0 : 1;

	if (kind == WH_OP_NOP)
		return WH_WENT_ON;
	if (kind == WH_OP_JUMP)
		return WH_WENT_AWAY;
	if (kind == WH_OP_END)
		return WH_LOST;
	if (kind == WH_OP_BRANCH) {
		holds = wh_holds(w, o->condition);
		return holds == 2 ? WH_LOST : holds ? WH_WENT_AWAY : WH_WENT_ON;
	}
	if (kind == WH_OP_BRANCH_IF_NONE) {
		if (!(w->known >> WH_RCX & 1))
			return WH_LOST;
		return w->gpr[WH_RCX] & m ? WH_WENT_ON : WH_WENT_AWAY;
	}
	/* Where memory is touched. */
	if (kind == WH_OP_PUSH || kind == WH_OP_CALL || kind == WH_OP_CALL_FAR)
		at = w->gpr[WH_RSP] - 8;
	else if (kind == WH_OP_POP || kind == WH_OP_RETURN)
		at = w->gpr[WH_RSP];
	else if (kind == WH_OP_LEAVE)
		at = w->gpr[WH_RBP];
	if (kind >= WH_OP_PUSH && kind <= WH_OP_RETURN && !(w->known >> (kind == WH_OP_LEAVE ? WH_RBP : WH_RSP) & 1))
		return WH_LOST;
	if (kind == WH_OP_POP || kind == WH_OP_RETURN || kind == WH_OP_LEAVE) {
		found = 1;
		a_known = wh_load(w, at, 8, &memory);
		if (kind == WH_OP_RETURN && !a_known)
			return WH_LOST;
		w->gpr[WH_RSP] = at + 8 + (kind == WH_OP_RETURN ? o->imm : 0);
		if (kind == WH_OP_LEAVE)
			w->known |= 1u << WH_RSP;
		if (kind == WH_OP_RETURN) {
			w->to = memory;
			return WH_WENT_FAR;
		}
		wh_write_gpr(w, kind == WH_OP_LEAVE ? WH_RBP : o->dst & 15, 8, memory, a_known);
		return WH_WENT_ON;
	}
	if (o->bits & WH_BIT_ADDRESS)
		found = wh_address(w, o, &memory);
	if (kind == WH_OP_LEA) {
		wh_write_gpr(w, o->dst, size, memory, found);
		return WH_WENT_ON;
	}
	if (o->bits & WH_BIT_ADDRESS) {
		/* `at` is the stack's for a push of a memory operand. */
		WH_U64 from = memory;
		memory = 0;
		if (o->bits & WH_BIT_WRITES) {
			if (!found)
				return WH_LOST;
			at = from;
		}
		if (kind == WH_OP_FORGET) {
			if ((o->bits & WH_BIT_WRITES) && wh_blur(w, from, o->size))
				return WH_FULL;
		} else if (o->bits & WH_BIT_READS) {
			found = found && wh_load(w, from, o->from & 15, &memory);
		}
	}
	if (kind == WH_OP_FORGET) {
		w->known &= ~o->forgets;
		if (o->dst >= WH_MASK)
			w->k_sure[o->dst & (WH_MASKS - 1)] = 0;
		else if (o->dst >= WH_VECTOR)
			w->vec[o->dst & (WH_VECTORS - 1)].sure = 0;
		if (o->bits & WH_BIT_FLAGS)
			w->flags_known &= ~WH_STATUS;
		return WH_WENT_ON;
	}
	/* Operands. */
	if (o->dst < WH_GPRS) {
		a = w->gpr[o->dst & 15] & m;
		a_known = w->known >> (o->dst & 15) & 1;
	} else if (o->dst < 2 * WH_GPRS) {
		a = w->gpr[o->dst & 15] >> 8 & 0xff;
		a_known = w->known >> (o->dst & 15) & 1;
	} else if (o->dst == WH_IN_MEMORY) {
		a = memory;
		a_known = found;
	} else if (o->dst >= WH_MASK) {
		a = w->k[o->dst & (WH_MASKS - 1)] & m;
		a_known = !(m & ~w->k_sure[o->dst & (WH_MASKS - 1)]);
	}
	if (o->src < WH_GPRS) {
		b = w->gpr[o->src & 15] & wh_mask(o->from & 15);
		b_known = w->known >> (o->src & 15) & 1;
	} else if (o->src < 2 * WH_GPRS) {
		b = w->gpr[o->src & 15] >> 8 & 0xff;
		b_known = w->known >> (o->src & 15) & 1;
	} else if (o->src == WH_IN_MEMORY) {
		b = memory;
		b_known = found;
	} else if (o->src == WH_IMMEDIATE) {
		b = o->imm;
	} else if (o->src >= WH_MASK) {
		b = w->k[o->src & (WH_MASKS - 1)] & wh_mask(o->from & 15);
		b_known = !(wh_mask(o->from & 15) & ~w->k_sure[o->src & (WH_MASKS - 1)]);
	}
	if (o->with < WH_GPRS) {
		c = w->gpr[o->with & 15];
		c_known = w->known >> (o->with & 15) & 1;
	}
	sure = a_known && b_known;
	switch (kind) {
	case WH_OP_MOVE:
		r = b;
		sure = b_known;
		break;
	case WH_OP_MOVE_SIGNED:
		r = wh_extended(b, o->from & 15) & m;
		sure = b_known;
		break;
	case WH_OP_ADD:
	case WH_OP_ADC: {
		WH_U64 carry = 0;
		if (kind == WH_OP_ADC) {
			carry = w->flags & 1;
			sure = sure && (w->flags_known & WH_CF);
		}
		b &= m;
		r = (a + b + carry) & m;
		f = wh_result_flags(r, top) | (r < a || (carry && r == a) ? WH_CF : 0) | ((a ^ r) & (b ^ r)) >> top << 11;
		which = flags_known = WH_STATUS;
		break;
	}
	case WH_OP_SUB:
	case WH_OP_SBB:
	case WH_OP_NEG: {
		WH_U64 borrow = 0;
		if (kind == WH_OP_SBB) {
			borrow = w->flags & 1;
			sure = sure && (w->flags_known & WH_CF);
		}
		if (kind == WH_OP_NEG) {
			b = a;
			a = 0;
			sure = a_known;
		}
		b &= m;
		r = (a - b - borrow) & m;
		f = wh_result_flags(r, top) | (a < b || (borrow && a == b) ? WH_CF : 0) | ((a ^ b) & (a ^ r)) >> top << 11;
		which = flags_known = WH_STATUS;
		break;
	}
	case WH_OP_ZERO_BORROW: /* sbb of a register and itself */
		r = w->flags & 1 ? m : 0;
		sure = !!(w->flags_known & WH_CF);
		f = wh_result_flags(r, top) | (r ? WH_CF : 0);
		which = flags_known = WH_STATUS;
		break;
	case WH_OP_AND:
	case WH_OP_OR:
	case WH_OP_XOR:
	case WH_OP_ZERO: /* a register less itself, or exclusive-ored with itself */
		b &= m;
		r = kind == WH_OP_AND ? a & b : kind == WH_OP_OR ? a | b : kind == WH_OP_XOR ? a ^ b : 0;
		sure = sure || kind == WH_OP_ZERO;
		f = wh_result_flags(r, top);
		which = flags_known = WH_STATUS;
		break;
	case WH_OP_INC:
		r = (a + 1) & m;
		f = wh_result_flags(r, top) | (~a & r) >> top << 11;
		sure = a_known;
		which = flags_known = WH_STATUS & ~WH_CF;
		break;
	case WH_OP_DEC:
		r = (a - 1) & m;
		f = wh_result_flags(r, top) | (a & ~r) >> top << 11;
		sure = a_known;
		which = flags_known = WH_STATUS & ~WH_CF;
		break;
	case WH_OP_NOT:
		r = ~a & m;
		sure = a_known;
		break;
	case WH_OP_SHL:
	case WH_OP_SHR:
	case WH_OP_SAR:
	case WH_OP_ROL:
	case WH_OP_ROR:
		b &= size == 8 ? 63 : 31;
		if (!b_known)
			wh_set_flags(w, WH_STATUS, 0, 0);
		r = b && b_known ? wh_shift(w, kind << 8 | size, a, b, a_known) : a;
		break;
	case WH_OP_MULTIPLY: /* dst = src * (imm or dst) */
		if (o->third)
			a = o->imm, sure = b_known;
		r = a * b & m;
		f = wh_too_large(a, b, size);
		which = WH_STATUS;
		flags_known = WH_CF | WH_OF;
		break;
	case WH_OP_MUL:
	case WH_OP_IMUL:
	case WH_OP_DIV:
	case WH_OP_IDIV:
		return wh_wide(w, o, a, a_known) ? WH_LOST : WH_WENT_ON;
	case WH_OP_BIT_TEST:
	case WH_OP_BIT_SET:
	case WH_OP_BIT_RESET:
	case WH_OP_BIT_FLIP: {
		WH_U64 bit = 1ull << (b & top);
		r = kind == WH_OP_BIT_SET ? a | bit : kind == WH_OP_BIT_RESET ? a & ~bit : kind == WH_OP_BIT_FLIP ? a ^ bit : a;
		f = a & bit ? WH_CF : 0;
		which = WH_STATUS & ~WH_ZF;
		flags_known = WH_CF;
		break;
	}
	case WH_OP_BSF:
	case WH_OP_BSR:
	case WH_OP_TZCNT:
	case WH_OP_LZCNT:
	case WH_OP_POPCNT:
		r = wh_scan(w, kind << 8 | size, b, b_known);
		/* What they make of 0 is not defined. */
		sure = b_known && (b || (kind != WH_OP_BSF && kind != WH_OP_BSR));
		break;
	case WH_OP_MOVE_IF:
		holds = wh_holds(w, o->condition);
		r = holds == 1 ? b : a;
		sure = holds == 1 ? b_known : holds == 0 ? a_known : 0;
		break;
	case WH_OP_SET_IF:
		holds = wh_holds(w, o->condition);
		r = holds & 1;
		sure = holds != 2;
		break;
	case WH_OP_SIGN:
		r = wh_extended(b, size) >> 63 ? m : 0;
		sure = b_known;
		break;
	case WH_OP_SWAP:
		wh_write_gpr(w, o->src, size, a, a_known);
		r = b;
		sure = b_known;
		break;
	case WH_OP_ADD_SWAP:
		wh_write_gpr(w, o->src, size, a, a_known);
		r = (a + b) & m;
		f = wh_result_flags(r, top) | (r < a ? WH_CF : 0) | ((a ^ r) & (b ^ r)) >> top << 11;
		which = flags_known = WH_STATUS;
		break;
	case WH_OP_SWAP_IF_EQUAL: {
		WH_U64 rax = w->gpr[WH_RAX] & m;
		int compared = a_known && (w->known & 1);
		r = (rax - a) & m;
		f = wh_result_flags(r, top) | (rax < a ? WH_CF : 0) | ((rax ^ a) & (rax ^ r)) >> top << 11;
		wh_set_flags(w, WH_STATUS, f, compared ? WH_STATUS : 0);
		if (!compared)
			wh_write_gpr(w, WH_RAX, size, 0, 0);
		else if (r)
			wh_write_gpr(w, WH_RAX, size, a, 1);
		sure = compared && (r || b_known);
		r = r ? a : b;
		break;
	}
	case WH_OP_AND_NOT:
		r = ~c & b & m;
		sure = b_known && c_known;
		f = wh_result_flags(r, top);
		which = WH_STATUS;
		flags_known = WH_STATUS & ~WH_PF;
		break;
	case WH_OP_ZERO_HIGH:
		c &= 0xff;
		r = c < size * 8 ? b & wh_low_bits(c) : b;
		sure = b_known && c_known;
		f = wh_result_flags(r, top) | (c >= size * 8 ? WH_CF : 0);
		which = WH_STATUS;
		flags_known = WH_STATUS & ~WH_PF;
		break;
	case WH_OP_CLEAR_LOWEST:
	case WH_OP_ISOLATE_LOWEST:
	case WH_OP_MASK_LOWEST:
		r = (kind == WH_OP_CLEAR_LOWEST ? b & (b - 1) : kind == WH_OP_ISOLATE_LOWEST ? b & -b : b ^ (b - 1)) & m;
		sure = b_known;
		f = wh_result_flags(r, top) | (!b == (kind != WH_OP_ISOLATE_LOWEST) ? WH_CF : 0);
		which = WH_STATUS;
		flags_known = WH_STATUS & ~WH_PF;
		break;
	case WH_OP_SWAP_BYTES:
		r = __builtin_bswap64(a) >> ((64 - size * 8) & 63);
		sure = a_known;
		break;
	case WH_OP_SHIFT_QUIETLY:
		c &= size * 8 - 1;
		r = o->condition == WH_LEFT ? b << c
		    : o->condition == WH_RIGHT ? b >> c
		    : o->condition == WH_RIGHT_SIGNED ? (WH_U64)((long long)wh_extended(b, size) >> c)
		    : c ? b >> c | b << (size * 8 - c) : b;
		r &= m;
		sure = b_known && c_known;
		break;
	case WH_OP_SHIFT_DOUBLE: {
		WH_U32 bits = size * 8;
		c &= size == 8 ? 63 : 31;
		r = a;
		if (!c_known) {
			wh_set_flags(w, WH_STATUS, 0, 0);
			sure = 0;
		} else if (c && c < bits) {
			r = (o->condition == WH_LEFT ? a << c | b >> (bits - c) : a >> c | b << (bits - c)) & m;
			f = wh_result_flags(r, top)
			    | ((o->condition == WH_LEFT ? a >> (bits - c) : a >> (c - 1)) & 1 ? WH_CF : 0)
			    | (r ^ a) >> top << 11;
			which = WH_STATUS;
			flags_known = c == 1 ? WH_STATUS : WH_STATUS & ~WH_OF;
		} else if (c) {
			which = WH_STATUS;
			sure = 0;
		}
		break;
	}
	case WH_OP_CARRY:
		wh_set_flags(w, WH_CF, o->condition == 2 ? ~w->flags : o->condition ? WH_CF : 0,
			     o->condition == 2 ? w->flags_known : WH_CF);
		return WH_WENT_ON;
	case WH_OP_PUSH:
		w->gpr[WH_RSP] = at;
		return wh_store(w, at, 8, b, b_known ? WH_SURE : 0) ? WH_FULL : WH_WENT_ON;
	case WH_OP_CALL:
	case WH_OP_CALL_FAR:
		if (kind == WH_OP_CALL_FAR && !b_known)
			return WH_LOST;
		w->gpr[WH_RSP] = at;
		w->to = b;
		if (wh_store(w, at, 8, o->imm + w->bias, WH_SURE))
			return WH_FULL;
		return kind == WH_OP_CALL ? WH_WENT_AWAY : WH_WENT_FAR;
	case WH_OP_JUMP_FAR:
		w->to = b;
		return b_known ? WH_WENT_FAR : WH_LOST;
	default:
		return WH_LOST;
	}
	if (which)
		wh_set_flags(w, which, f, sure ? flags_known : 0);
	if (!writes)
		return WH_WENT_ON;
	if (o->dst == WH_IN_MEMORY)
		return wh_store(w, at, size, r, sure ? WH_SURE : 0) ? WH_FULL : WH_WENT_ON;
	if (o->dst >= WH_MASK) {
		w->k[o->dst & (WH_MASKS - 1)] = r;
		w->k_sure[o->dst & (WH_MASKS - 1)] = sure ? ~0ull : ~m;
		return WH_WENT_ON;
	}
	if (o->dst >= WH_GPRS) {
		WH_U64 *whole = &w->gpr[o->dst & 15];
		*whole = (*whole & ~0xff00ull) | (r & 0xff) << 8;
		if (!sure)
			w->known &= ~(1u << (o->dst & 15));
		return WH_WENT_ON;
	}
	wh_write_gpr(w, o->dst, size, r, sure);
	return WH_WENT_ON;
}

/* Eight times, four times, ... the lowest bit of an element. */
static __attribute__((always_inline)) inline WH_U64 wh_lowest(WH_U32 lane)
{
	return lane == 1 ? 0x0101010101010101ull : lane == 2 ? 0x0001000100010001ull : lane == 4 ? 0x0000000100000001ull : 1;
}

/* One turn of a string instruction. */
WH_APART int wh_string_step(struct wh_walk *w, const struct wh_op *o)
{
	if (!w || !o)
		return WH_LOST;
	WH_U32 kind = o->kind, size = o->size & 15, need = 1u << WH_RDI | (o->condition ? 1u << WH_RCX : 0), take = size;
	WH_U64 m = wh_mask(size), value = w->gpr[WH_RAX] & m, other = 0, left = w->gpr[WH_RCX];
	int sure = w->known & 1, both;
	if (kind == WH_OP_STRING_COPY || kind == WH_OP_STRING_COMPARE)
		need |= 1u << WH_RSI;
	if ((w->known & need) != need || (w->flags & WH_DF))
		return WH_LOST;
	if (o->condition && !left)
		return WH_WENT_ON;
	/* Eight bytes at once where that comes to the same. */
	if (o->condition && left * size >= 8 && left < 1ull << 40 && kind <= WH_OP_STRING_COPY) {
		WH_U64 apart = w->gpr[WH_RDI] - w->gpr[WH_RSI];
		if (kind == WH_OP_STRING_STORE) {
			take = 8;
			value *= wh_lowest(size);
		} else if (apart >= 8) {
			take = 8;
		}
	}
	if (kind == WH_OP_STRING_COPY || kind == WH_OP_STRING_COMPARE)
		sure = wh_load(w, w->gpr[WH_RSI], take, &value);
	if (kind <= WH_OP_STRING_COPY) {
		if (wh_store(w, w->gpr[WH_RDI], take, value, sure ? WH_SURE : 0))
			return WH_FULL;
	} else {
		WH_U32 top = (size * 8 - 1) & 63;
		both = wh_load(w, w->gpr[WH_RDI], size, &other) && sure;
		WH_U64 r = (value - other) & m;
		wh_set_flags(w, WH_STATUS, wh_result_flags(r, top) | (value < other ? WH_CF : 0) | ((value ^ other) & (value ^ r)) >> top << 11,
			     both ? WH_STATUS : 0);
		if (o->condition && !both)
			return WH_LOST;
	}
	w->gpr[WH_RDI] += take;
	if (kind == WH_OP_STRING_COPY || kind == WH_OP_STRING_COMPARE)
		w->gpr[WH_RSI] += take;
	if (!o->condition)
		return WH_WENT_ON;
	left -= take / size;
	w->gpr[WH_RCX] = left;
	if (!left || (kind > WH_OP_STRING_COPY && !(w->flags & WH_ZF) == (o->condition == 1)))
		return WH_WENT_ON;
	return WH_WENT_ROUND;
}

#include "whither_vector.h"

/* One instruction. */
static __attribute__((always_inline)) inline int wh_walk_step(struct wh_walk *w, const struct wh_op *o)
{
	WH_U32 kind = o->kind;
	if (kind >= WH_OP_V_MOVE)
		return wh_vector_step(w, o);
	return kind >= WH_OP_STRING_STORE ? wh_string_step(w, o) : wh_general_step(w, o);
}

#endif
