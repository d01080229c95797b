/*
 * The list of memory that the agent has mapped for itself, for a controller that leaves without trace.
 * Constraint: filled by any thread without locks; a mapping that finds no place in it is not made.
 */
#include "agent.h"

exported u64 wh_maps[WH_MAPS][2];

/* `pid`: the mapping is not inherited by children of that process; 0: it is. */
static int list(u64 address, u64 bytes, u32 pid)
{
	for (u32 i = 0; i < WH_MAPS; i++) {
		u64 free = 0;

		if (wh_maps[i][0] == 0 && __atomic_compare_exchange_n(&wh_maps[i][0], &free, address, 0, __ATOMIC_ACQ_REL,
								      __ATOMIC_RELAXED)) {
			wh_maps[i][1] = bytes | (u64)pid << 32;
			return 1;
		}
	}
	return 0;
}

/* Private memory for the agent itself, anywhere. */
void *map_own(u64 bytes)
{
	void *p = map_private(0, (bytes + PAGE - 1) & ~(PAGE - 1));

	if (p && !list((u64)p, (bytes + PAGE - 1) & ~(PAGE - 1), 0)) {
		sys2(SYS_MUNMAP, p, bytes);
		return 0;
	}
	return p;
}

/* Lists a page that the kernel shares with this process alone. */
int map_listed(u64 address, u32 pid)
{
	return list(address, PAGE, pid);
}

void unmap_own(u64 address, u64 bytes)
{
	for (u32 i = 0; i < WH_MAPS; i++) {
		if (wh_maps[i][0] == address) {
			wh_maps[i][1] = 0;
			__atomic_store_n(&wh_maps[i][0], 0, __ATOMIC_RELEASE);
			break;
		}
	}
	sys2(SYS_MUNMAP, address, bytes);
}
