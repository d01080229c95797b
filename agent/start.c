#include "agent.h"

struct global G;
extern char wh_exit_address[];

exported u64 wh_start(struct wh_start *start)
{
	G.segment = (char *)start->segment;
	G.exit = (u64)wh_exit_address;
	return 0;
}

exported void wh_stop(void)
{
}

exported u64 wh_shadow_set[65536];

struct answer {
	u64 to, pass;
};

struct answer wh_on_entry(u64 index)
{
	return (struct answer){point_at(index)->relocated, 1};
}

u64 wh_on_count(u64 index)
{
	return point_at(index)->relocated;
}

u64 wh_on_exit(u64 *slot)
{
	return *(u64 *)((char *)slot + WH_SHADOW);
}

exported u64 wh_calibrate(u64 rounds)
{
	return rounds;
}
