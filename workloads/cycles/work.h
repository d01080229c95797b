/* What every program with a known answer shares: its run time, its own CPU clock, a spin of a known
 * length, and the format of the truth it prints (`key value` lines on stdout).
 *
 * Constraint: no assumption about the clock rate of the machine enters the truth. Shares of functions
 * that take turns on one thread are those of the *work* done, as all spins cost the same per round.
 * The thread CPU clock would be wrong there: in a virtual machine it may go on while the hypervisor
 * runs somebody else, and one such gap of 40 ms moves the shares of a 2 s run by 2 points. */
#ifndef WHITHER_WORKLOADS_WORK_H
#define WHITHER_WORKLOADS_WORK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#define ALWAYS_INLINE static inline __attribute__((always_inline, unused))

ALWAYS_INLINE uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CPU time of this thread. */
ALWAYS_INLINE uint64_t cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

/* Wall time. */
ALWAYS_INLINE uint64_t wall_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* The seconds given as first argument, 2 without one; exits with 2 (usage) on nonsense. */
ALWAYS_INLINE double seconds_argument(int argc, char **argv)
{
    if (argc < 2)
        return 2.0;
    char *end;
    double seconds = strtod(argv[1], &end);
    if (*end || end == argv[1] || !(seconds > 0 && seconds < 86400)) {
        fprintf(stderr, "usage: %s [SECONDS]\n", argv[0]);
        exit(2);
    }
    return seconds;
}

/* Burns `rounds` steps of a dependent multiply-add chain (about 4 cycles each) in the caller. */
ALWAYS_INLINE uint64_t spin(uint64_t rounds, uint64_t salt)
{
    uint64_t x = salt;
    for (uint64_t i = 0; i < rounds; i++) {
        x = x * 6364136223846793005u + salt;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

/* Sets up a frame in the calling function when built with FRAMES: gcc leaves it out of leaf functions
 * whatever -fno-omit-frame-pointer says, and a frame-pointer walk then misses the caller. */
#ifdef FRAMES
#define FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
#else
#define FRAME() ((void)0)
#endif

/* Defines a function `name` that spins; the salt keeps the compiler from merging twins. */
#define SPINNER(name, salt) \
    NOINLINE uint64_t name(uint64_t rounds) \
    { \
        FRAME(); \
        return spin(rounds, (salt)); \
    }

/* Rounds of `spinner` per millisecond of CPU time, from the fastest of five tries. */
ALWAYS_INLINE uint64_t rounds_per_ms(uint64_t (*spinner)(uint64_t))
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t start = cpu_ns();
        spinner(200000);
        uint64_t took = cpu_ns() - start;
        if (took < best)
            best = took;
    }
    return 200000ull * 1000000ull / (best ? best : 1);
}

/* Deterministic pseudo-random numbers: the same sequence in every run. */
ALWAYS_INLINE uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* The address of the instruction behind it goes into a variable; a symbol would cut the function in two. */
#define HERE(name) __asm__ volatile("1:\n\t.pushsection .data\n\t.balign 8\nat_" #name ":\t.quad 1b\n\t.popsection")

#endif
