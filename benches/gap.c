/* How long each interruption of a spinning thread is: reads the time stamp counter without a break on
 * one CPU, real-time if permitted, and takes every step longer than 300 ns for stolen time.
 *
 * usage: gap CPU SECONDS. Prints one JSON object; times in microseconds. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

enum { MAX_GAPS = 1 << 21 };
static uint64_t gaps[MAX_GAPS];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double calibrate(void)
{
    double start = now(), end;
    uint64_t ticks = __rdtsc();
    while ((end = now()) - start < 0.02)
        ;
    return (double)(__rdtsc() - ticks) / (end - start);
}

static size_t collect(uint64_t length, uint64_t threshold)
{
    size_t n = 0;
    uint64_t last = __rdtsc(), end = last + length, t;
    while ((t = __rdtsc()) < end) {
        if (t - last > threshold && n < MAX_GAPS)
            gaps[n++] = t - last;
        last = t;
    }
    return n;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s CPU SECONDS\n", argv[0]);
        return 2;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(argv[1]), &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        perror("sched_setaffinity");
        return 1;
    }
    struct sched_param priority = {.sched_priority = 50};
    int fifo = sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
    mlockall(MCL_CURRENT);
    double seconds = atof(argv[2]), hertz = calibrate();
    size_t n = collect((uint64_t)(seconds * hertz), (uint64_t)(300e-9 * hertz));
    double sum = 0, us = 1e6 / hertz;
    for (size_t i = 0; i < n; i++)
        sum += (double)gaps[i];
    qsort(gaps, n, sizeof *gaps, ascending);
#define AT(percent) (n ? (double)gaps[n * (percent) / 100] * us : 0.0)
    printf("{\"fifo\":%d,\"per_s\":%.1f,\"stolen\":%.6f,\"p10\":%.3f,\"p50\":%.3f,\"p90\":%.3f}\n", fifo,
           (double)n / seconds, sum / hertz / seconds, AT(10), AT(50), AT(90));
}
