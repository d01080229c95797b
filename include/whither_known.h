/*
 * What a walk knows: registers, flags, vectors, and the memory it has written. Lives here: reading and writing them. Not here: what
 * instructions do (whither_walk.h). Who includes it defines WH_READ_USER as told there.
 */
#ifndef WHITHER_KNOWN_H
#define WHITHER_KNOWN_H
#include "whither_path.h"

/* A function that the kernel's verifier looks at once, by itself, and not for each of its callers again: else the programs would be as
 * much work as it accepts. Pointers may be null as far as it knows. */
#define WH_APART __attribute__((noinline))

#define WH_CF 0x001u
#define WH_PF 0x004u
#define WH_ZF 0x040u
#define WH_SF 0x080u
#define WH_OF 0x800u
#define WH_DF 0x400u /* never changes in a walk */
#define WH_STATUS (WH_CF | WH_PF | WH_ZF | WH_SF | WH_OF)

#define WH_RAX 0
#define WH_RCX 1
#define WH_RDX 2
#define WH_RSP 4
#define WH_RBP 5
#define WH_RSI 6
#define WH_RDI 7

/* Eight bytes at an address that is a multiple of eight, as far as the walk has written them. */
struct wh_word {
	WH_U64 at;
	WH_U64 value;
	WH_U32 walk; /* written by this walk, else nothing */
	unsigned char have; /* bit per byte: written */
	unsigned char sure; /* and known */
	WH_U16 spare;
};
#define WH_WORDS 2048

/* A vector register, as far as known. */
struct wh_vector {
	WH_U64 v[8];
	WH_U64 sure; /* bit per byte */
};
#define WH_VECTORS 32
#define WH_MASKS 8

struct wh_walk {
	WH_U64 gpr[WH_GPRS];
	WH_U64 fs; /* base of thread-local data, 0: not known */
	WH_U64 bias; /* of the code that is walked through: what is added to stated addresses */
	WH_U32 known; /* bit per register */
	WH_U32 flags;
	WH_U32 flags_known;
	WH_U32 number; /* of the walk; the words of others are void */
	WH_U64 to; /* where an indirect transfer leads */
	WH_U64 k[WH_MASKS];
	WH_U64 k_sure[WH_MASKS]; /* bit per bit */
	struct wh_vector vec[WH_VECTORS];
	struct wh_vector in, out; /* of the instruction */
	struct wh_word word[WH_WORDS];
};

/* What a step of the walk came to. */
enum wh_went {
	WH_WENT_ON,
	WH_WENT_AWAY, /* to the target of the instruction */
	WH_WENT_FAR,  /* to wh_walk.to */
	WH_LOST,      /* not known where to */
	WH_FULL,      /* more stores than there is room for */
	WH_WENT_ROUND, /* to the same instruction again */
};

static __attribute__((always_inline)) inline WH_U64 wh_mask(WH_U32 size)
{
	return size >= 8 ? ~0ull : (1ull << (size * 8)) - 1;
}

/* The word at an address, or a free one for it; 0: there is none. Each address has a stride of its own, a long one: words of an array
 * lie side by side, and whoever met them would find no way out. */
static __attribute__((noinline)) struct wh_word *wh_slot(struct wh_walk *w, WH_U64 at)
{
	WH_U64 n = at >> 3;
	WH_U32 stride = WH_WORDS / 4 + ((WH_U32)n * 0x9e3779b1u >> 22 | 1);
	n ^= n >> 11 ^ n >> 22;
	for (WH_U32 i = 0; i < 8; i++) {
		struct wh_word *word = &w->word[(n + i * stride) & (WH_WORDS - 1)];
		if (word->walk != w->number || word->at == at)
			return word;
	}
	return 0;
}

/* One word's share of a store: `bits` of it get those of `value`. 0: there was room. */
static __attribute__((noinline)) int wh_put(struct wh_walk *w, WH_U64 at, WH_U64 bits, WH_U64 value, WH_U32 bytes)
{
	struct wh_word *word = wh_slot(w, at);
	int sure = bytes >> 31 & 1;
	if (!word)
		return 1;
	if (word->walk != w->number) {
		word->walk = w->number;
		word->at = at;
		word->value = 0;
		word->have = word->sure = 0;
	}
	word->value = (word->value & ~bits) | (value & bits);
	word->have |= bytes & 0xff;
	word->sure = sure ? word->sure | (bytes & 0xff) : word->sure & ~(bytes & 0xff);
	return 0;
}

#define WH_SURE 0x80000000u

/* Stores up to 8 bytes. */
WH_APART int wh_store(struct wh_walk *w, WH_U64 at, WH_U32 size, WH_U64 value, WH_U32 sure)
{
	if (!w)
		return 1;
	WH_U32 off = at & 7, bytes = ((1u << (size & 15)) - 1) << off;
	WH_U64 bits = wh_mask(size);
	if (wh_put(w, at & ~7ull, bits << off * 8, value << off * 8, (bytes & 0xff) | sure))
		return 1;
	if (bytes >> 8)
		return wh_put(w, (at & ~7ull) + 8, bits >> (64 - off * 8), value >> (64 - off * 8), bytes >> 8 | sure);
	return 0;
}

/* Bytes at an address are no longer known. */
WH_APART int wh_blur(struct wh_walk *w, WH_U64 at, WH_U32 size)
{
	if (!w)
		return 1;
	WH_U64 end = at + size;
	for (int i = 0; i < 9; i++) {
		WH_U64 word = (at & ~7ull) + 8 * i;
		if (word >= end)
			break;
		WH_U32 bytes = 0xff;
		if (word < at)
			bytes &= 0xff << (at - word);
		if (end - word < 8)
			bytes &= (1u << (end - word)) - 1;
		if (wh_put(w, word, 0, 0, bytes))
			return 1;
	}
	return 0;
}

/* Loads up to 8 bytes into `*to`, where those that are not known are 0. Which are known: a bit for each. */
WH_APART WH_U32 wh_peek(struct wh_walk *w, WH_U64 at, WH_U32 size, WH_U64 *to)
{
	if (!w || !to)
		return 0;
	WH_U32 off = at & 7, all = (1u << (size & 15)) - 1, bytes = all << off, have = 0, sure = 0;
	WH_U64 stored = 0, bits = 0, memory = 0;
	struct wh_word *word = wh_slot(w, at & ~7ull);
	if (word && word->walk == w->number) {
		have = word->have & bytes;
		sure = word->sure & bytes;
		stored = word->value >> off * 8;
	}
	if (bytes >> 8) {
		word = wh_slot(w, (at & ~7ull) + 8);
		if (word && word->walk == w->number) {
			have |= word->have << 8 & bytes;
			sure |= word->sure << 8 & bytes;
			stored |= word->value << (64 - off * 8);
		}
	}
	if (have == bytes && sure == bytes) {
		*to = stored & wh_mask(size);
		return all;
	}
	have >>= off;
	sure >>= off;
	if (have != all && !WH_READ_USER(&memory, size, at))
		sure |= all & ~have;
	for (WH_U32 i = 0; i < 8; i++)
		if (have >> i & 1)
			bits |= 0xffull << i * 8;
	/* The second word's share has shifted the first one's upper bytes aside only where it has none. */
	memory = ((memory & ~bits) | (stored & bits)) & wh_mask(size);
	bits = 0;
	for (WH_U32 i = 0; i < 8; i++)
		if (sure >> i & 1)
			bits |= 0xffull << i * 8;
	*to = memory & bits;
	return sure;
}

/* Loads up to 8 bytes into `*to`. 1: they are known. */
static __attribute__((always_inline)) inline int wh_load(struct wh_walk *w, WH_U64 at, WH_U32 size, WH_U64 *to)
{
	return wh_peek(w, at, size, to) == (1u << (size & 15)) - 1;
}

#endif
