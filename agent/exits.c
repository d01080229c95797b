/*
 * Where calls return to whose exit is seen: a place in wh_exits for each address that they are to go on at, so that what stands
 * in a return slot tells it, whatever the shadow of the slot holds by then. Programs that copy a stack away and put it back later
 * (call/cc, green threads) have many calls at one place, and one shadow. Constraints: no locks; places are never given back,
 * as copies of stacks may hold them; the first is for all addresses that have none of their own.
 */
#include "agent.h"

#define TRIES 32u

exported u64 wh_returns[WH_EXITS];

/* Where a call that is to return to `ra` enters wh_exits. */
slow_path u64 exit_for(u64 ra)
{
	u32 at = (u32)(ra * 0x9e3779b97f4a7c15ull >> 40) % WH_EXITS;

	if (unlikely(!ra))
		return exit_start(0);
	for (u32 tries = 0; tries < TRIES; tries++, at = (at + 1) % WH_EXITS) {
		u64 have = at ? __atomic_load_n(&wh_returns[at], __ATOMIC_ACQUIRE) : 1;

		if (have == 0 && __atomic_compare_exchange_n(&wh_returns[at], &have, ra, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return exit_start(at);
		if (have == ra)
			return exit_start(at);
	}
	return exit_start(0);
}
