/* The cheapest instrumentation there is, written by hand for one function: an LD_PRELOAD wrapper of
 * callcost-lib's `target`. WRAP=0 counts, 1 adds two time stamp readings, 2 two clock_gettime. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

static uint64_t (*real)(uint64_t, uint64_t);
static int mode;
static __thread struct {
    uint64_t calls, time;
} mine __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void prepare(void)
{
    const char *word = getenv("WRAP");
    real = (uint64_t (*)(uint64_t, uint64_t))dlsym(RTLD_NEXT, "target");
    mode = word ? atoi(word) : 0;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t target(uint64_t x, uint64_t y);
uint64_t target(uint64_t x, uint64_t y)
{
    mine.calls++;
    if (mode == 0)
        return real(x, y);
    uint64_t start = mode == 1 ? __rdtsc() : now_ns();
    uint64_t result = real(x, y);
    mine.time += (mode == 1 ? __rdtsc() : now_ns()) - start;
    return result;
}
