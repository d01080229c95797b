/*
 * Private memory of threads, mapped for several of them at a time. To map it for each takes the lock of the address space twice,
 * and makes whoever touches new pages meanwhile wait for that lock; where dozens of threads begin at once on few processors, each
 * wait costs a turn of all of them: a thread's first call was held 1.6 to 2.9 s among 36 to 64 running ones. Constraint: no locks
 * of ours. What is taken is never given back: it goes on with the thread's block.
 */
#include "agent.h"

#define PLACE ((sizeof(struct local) + PAGE - 1) & ~(PAGE - 1))
#define FEWEST 16u
#define MOST 128u

/* Where the first free place is, and in the low bits how many there are from there on; 0: none. The second one comes when the
 * first is used up. */
static u64 pool, next;
static u32 size; /* of the chunk in `pool` */

static u64 chunk_new(u32 places)
{
	char *p = map_own(places * PLACE);

	if (p && sys3(SYS_MADVISE, p, places * PLACE, 18 /* MADV_WIPEONFORK */) < 0) {
		unmap_own((u64)p, places * PLACE);
		return 0;
	}
	if (p) {
		sys3(SYS_MADVISE, p, places * PLACE, MADV_DONTDUMP_);
		touch((u64)p);
	}
	return p ? (u64)p | places : 0;
}

/* The last one of a chunk; how many are left goes to `left`. */
static struct local *take(u64 *chunk, u32 *left)
{
	u64 now = __atomic_load_n(chunk, __ATOMIC_ACQUIRE);

	while (now) {
		u64 count = now % PAGE;

		if (__atomic_compare_exchange_n(chunk, &now, count > 1 ? now - 1 : 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			*left = (u32)count - 1;
			return (struct local *)(now - count + (count - 1) * PLACE);
		}
	}
	return 0;
}

/* The next chunk becomes the one in use. Whoever comes in between finds neither, and maps memory for itself. */
static void go_on(void)
{
	u64 fresh = __atomic_exchange_n(&next, 0, __ATOMIC_ACQ_REL), none = 0;

	if (!fresh)
		return;
	size = (u32)(fresh % PAGE);
	/* Another one has been as far: that chunk stays unused, but for whoever looks for the next. */
	if (!__atomic_compare_exchange_n(&pool, &none, fresh, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		__atomic_store_n(&next, fresh, __ATOMIC_RELEASE);
}

/* For whoever finds neither: the very first one, which is a thread that calibrates while all others stand still, maps memory for the
 * next ones as well, and where that costs nothing for all that may come. */
static struct local *pool_begin(void)
{
	u32 places = size || !is_roomy() ? 1 : FEWEST;
	u64 own = chunk_new(places), none = 0;
	struct local *l;

	u64 fresh = (own & ~(PAGE - 1)) + places * PLACE - PAGE; /* its last page, untouched as yet */
	l = take(&own, &places);

	if (own) { /* there are more places in it */
		size = FEWEST;
		__atomic_compare_exchange_n(&pool, &none, own, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
		if (header()->ahead == WH_AHEAD_NOW && untouched_is_free(fresh)) {
			__atomic_store_n(&next, chunk_new(MOST), __ATOMIC_RELEASE);
			shadows_ahead(fresh);
		}
	}
	return l;
}

/* Memory of zeros for one thread; 0 when none is to be had. */
struct local *pool_take(void)
{
	u32 left = 0;
	struct local *l = take(&pool, &left);

	if (!l) {
		go_on();
		l = take(&pool, &left);
	}
	if (!l)
		return pool_begin();
	/* One of them sees to it that there will be more, and may be held by that. */
	if (left == size / 4 && !__atomic_load_n(&next, __ATOMIC_ACQUIRE))
		__atomic_store_n(&next, chunk_new(size < MOST ? size * 2 : MOST), __ATOMIC_RELEASE);
	return l;
}
