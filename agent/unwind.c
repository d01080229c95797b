/*
 * The agent's own unwind rules, for unwinders that know those of a static program alone. Constraint: called amid an
 * exception, by whoever unwinds; reads what the linker has put together and nothing else.
 */
#include "agent.h"

extern const char wh_rules_begin[], wh_rules_end[];

/* As libgcc has it (unwind-dw2-fde.h). */
struct bases {
	u64 text, data, function;
};

static u32 word(const char *at)
{
	return *(const u32 *)at;
}

/* The description of the code at an address, and where that begins. Addresses in it are relative to where they stand
 * and have 32 bits: no compiler makes others of code that may lie anywhere. */
const void *wh_find_rules(u64 pc, struct bases *bases)
{
	const char *at = wh_rules_begin;

	while (wh_rules_end - at >= 16) {
		u32 length = word(at);

		if (!length)
			break;
		/* 0: what several descriptions share. */
		if (word(at + 4)) {
			u64 begin = (u64)(at + 8) + (u64)(s64)(s32)word(at + 8);

			if (pc - begin < word(at + 12)) {
				*bases = (struct bases){0, 0, begin};
				return at;
			}
		}
		at += 4 + (u64)length;
	}
	return 0;
}
