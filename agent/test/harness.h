/*
 * Stands in for the controller in tests of the agent: loads it, makes a segment, reads unwind rows from
 * .eh_frame, patches functions that begin with eight nops (PROBED), adds up what was counted. One
 * process is controller and target; nothing of the product's controller is used.
 */
#ifndef WH_HARNESS_H
#define WH_HARNESS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../../include/whither_agent.h"
#include "../offsets.h"

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;
typedef int64_t s64;

#define PROBED __attribute__((noipa, patchable_function_entry(8, 0)))
#define NOINLINE __attribute__((noipa))
#define ALL_TIMES (WH_DO_EXIT | WH_DO_PATH | WH_DO_WALL)

#ifdef __cplusplus
extern "C" {
#endif
extern char *seg;
extern void *agent;
void setup(const char *so);
u32 probe(void *function, u32 flags);
void unprobe(u32 point);
struct sums {
	u64 calls, wall, cpu, min, max, value[2], done, hist, paths;
};
struct sums sums(u32 point);
struct sums sums_of_path(u32 path);
u64 lost(int cause);
int frames_of(u32 path, u64 *ra, u32 *root, int max); /* from the innermost caller outwards */
int by_frame_pointers(u32 path);
u64 folded(u32 point); /* calls that were part of a timed one */
u32 joined(u32 path); /* the path it joins, 0 = none */
int exact_path(u32 path, u64 *ra, int max); /* joins resolved */
u64 now_ns(void);
extern int failures;
#ifdef __cplusplus
}
#endif

#define HEADER ((struct wh_header *)seg)
#define POINTS ((struct wh_point *)(seg + WH_AT_POINTS))
#define FRAMES ((unsigned short *)(seg + WH_AT_FRAMES))
#define SITES ((struct wh_site *)(seg + WH_AT_SITES))
#define PATH_FRAME ((u32 *)(seg + WH_AT_PATH_FRAMES))
#define PATH_POINT ((unsigned short *)(seg + WH_AT_PATH_POINTS))
#define PATH_SAME(path) (((u32 *)(seg + WH_AT_PATH_LINKS))[path] >> WH_LINK_SAME_SHIFT)
#define THREAD(i) ((struct wh_thread *)(seg + WH_AT_THREADS + (u64)(i) * WH_THREAD_STRIDE))

#define CHECK(cond, ...) do { if (!(cond)) { failures++; printf("FAILED %s:%d %s: ", __FILE__, __LINE__, #cond); \
	printf(__VA_ARGS__); printf("\n"); fflush(stdout); } } while (0)
#endif
