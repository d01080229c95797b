/* What the programs of this folder share: parts of a known length, the progress point, the command line
 * and the truth they print.
 *
 * A *part* is a function whose whole body is one loop on one line, so that function and line are the same
 * target; its length is a number of dependent steps, fixed before the run starts: nothing that a profiler
 * inserts can shorten or lengthen it. `--scale part=0.7` really makes a part faster, which is the truth that
 * a virtual speed-up of 30 % has to predict. `--per-ms` fixes the steps per millisecond, so that runs that are
 * compared do exactly the same work.
 *
 * `--set pin=1` keeps each thread on one CPU, by turns: on a machine with other work the scheduler would put
 * both threads of a program on one CPU now and then, and then the curve is another.
 *
 *     PROGRAM [--seconds N | --rounds N] [--scale PART=X] [--set NAME=VALUE] [--mode WORD] [--per-ms N] */
#ifndef WHITHER_WORKLOADS_CAUSAL_H
#define WHITHER_WORKLOADS_CAUSAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../include/whither.h"
#include "../cycles/work.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef COZ
#include <coz.h>
#else
#define COZ_PROGRESS_NAMED(name) ((void)0)
#endif

#ifdef __cplusplus
#define PLAIN extern "C"
#else
#define PLAIN
#endif
#define MUST(call) \
    do { \
        if (!(call)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

/* A part, or a plain number that --set changes (`cost` 0). */
struct part {
    const char *name;
    double value;       /* microseconds, or the number */
    double cost;        /* of a step, in steps of the plain loop */
    double scale;       /* from --scale */
    uint64_t steps;     /* computed at the start */
    struct part *next;
};
static struct part *all_parts;

#define REGISTER(name, value, cost) \
    static struct part name##_part = {#name, value, cost, 1.0, 0, NULL}; \
    __attribute__((constructor)) static void name##_register(void) \
    { \
        name##_part.next = all_parts; \
        all_parts = &name##_part; \
    }

/* A part that computes for so many microseconds; the loop is on the line where this is written. */
#define PART(name, us) \
    REGISTER(name, us, 1.0) \
    NOINLINE uint64_t name(uint64_t steps) { uint64_t x = steps; for (uint64_t i = 0; i < steps; i++) { x = x * 6364136223846793005u + sizeof(#name); __asm__ volatile("" : "+r"(x)); } return x; }
/* A part that waits for so many microseconds: `steps` are nanoseconds. */
#define WAIT_PART(name, us) REGISTER(name, us, -1.0)
/* A number that --set changes. */
#define NUMBER(name, value) REGISTER(name, value, 0.0)

#define RUN(name) name(name##_part.steps)
#define VALUE(name) (name##_part.value)

static struct {
    double seconds;
    uint64_t rounds;
    const char *mode;
    uint64_t per_ms;
    uint64_t end_ns;
} the_run = {2.0, 0, "", 0, 0};

NUMBER(pin, 0)

/* The calling thread stays on the next CPU, if so wished. */
ALWAYS_INLINE void stay(void)
{
    static int next;
    if (!VALUE(pin))
        return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((unsigned)__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &one);
    MUST(sched_setaffinity(0, sizeof one, &one) == 0);
}

/* Visits, and the first and the last time; counted by any thread. */
static uint64_t visits, first_ns, last_ns;

/* The progress point of every program. */
PLAIN NOINLINE void progress(void);
PLAIN NOINLINE void progress(void)
{
    WHITHER_PROGRESS("round");
    COZ_PROGRESS_NAMED("round");
    uint64_t now = wall_ns();
    if (__atomic_fetch_add(&visits, 1, __ATOMIC_RELAXED) == 0)
        __atomic_store_n(&first_ns, now, __ATOMIC_RELAXED);
    __atomic_store_n(&last_ns, now, __ATOMIC_RELAXED);
}

/* Whether there is another round after so many. */
ALWAYS_INLINE int more(uint64_t done)
{
    return the_run.rounds ? done < the_run.rounds : wall_ns() < the_run.end_ns;
}

ALWAYS_INLINE int mode_is(const char *word) { return strcmp(the_run.mode, word) == 0; }

/* Relative sleep, exactly so long however often it is interrupted. */
ALWAYS_INLINE void nap_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&left, &left) != 0)
        MUST(errno == EINTR);
}

/* Sleep until an absolute time of CLOCK_MONOTONIC. */
ALWAYS_INLINE void sleep_until(uint64_t ns)
{
    struct timespec when = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while ((errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL)) != 0)
        MUST(errno == EINTR);
}

PART(calibrating, 1000)

/* Steps of the plain loop per millisecond of CPU time: the fastest of several tries, each long enough for a CPU
 * clock that a virtual machine moves in steps of 10 us. */
ALWAYS_INLINE uint64_t measure_per_ms(void)
{
    const uint64_t steps = 4000000;
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        uint64_t start = cpu_ns();
        calibrating(steps);
        uint64_t took = cpu_ns() - start;
        best = took < best ? took : best;
    }
    return steps * 1000000u / (best ? best : 1);
}

ALWAYS_INLINE void usage(const char *program, const char *what)
{
    fprintf(stderr, "%s: %s\nusage: %s [--seconds N | --rounds N] [--scale PART=X] [--set NAME=VALUE] [--mode WORD] [--per-ms N]\nparts and numbers:", program, what, program);
    for (const struct part *p = all_parts; p; p = p->next)
        fprintf(stderr, " %s=%g", p->name, p->value);
    fprintf(stderr, "\n");
    exit(2);
}

/* `NAME=VALUE` of --scale and --set. */
ALWAYS_INLINE void assign(const char *program, const char *text, int scale)
{
    const char *sign = strchr(text, '=');
    for (struct part *p = all_parts; sign && p; p = p->next) {
        if (strlen(p->name) != (size_t)(sign - text) || strncmp(p->name, text, (size_t)(sign - text)) != 0)
            continue;
        char *end;
        double value = strtod(sign + 1, &end);
        if (*end || end == sign + 1 || !(value >= 0 && value < 1e9))
            break;
        *(scale ? &p->scale : &p->value) = value;
        return;
    }
    usage(program, text);
}

/* Reads the command line, calibrates, and starts the clock of the run. */
ALWAYS_INLINE void begin(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        if (++i == argc)
            usage(argv[0], option);
        const char *value = argv[i];
        if (!strcmp(option, "--seconds"))
            the_run.seconds = strtod(value, NULL);
        else if (!strcmp(option, "--rounds"))
            the_run.rounds = strtoull(value, NULL, 10);
        else if (!strcmp(option, "--per-ms"))
            the_run.per_ms = strtoull(value, NULL, 10);
        else if (!strcmp(option, "--mode"))
            the_run.mode = value;
        else if (!strcmp(option, "--scale") || !strcmp(option, "--set"))
            assign(argv[0], value, option[3] == 'c');
        else
            usage(argv[0], option);
    }
    if (!(the_run.seconds > 0 && the_run.seconds < 86400))
        usage(argv[0], "--seconds");
    stay();
    if (!the_run.per_ms)
        the_run.per_ms = measure_per_ms();
    for (struct part *p = all_parts; p; p = p->next) {
        double us = p->value * p->scale;
        p->steps = (uint64_t)(p->cost > 0 ? us / 1000.0 * (double)the_run.per_ms / p->cost : us * 1000.0);
    }
    the_run.end_ns = wall_ns() + (uint64_t)(the_run.seconds * 1e9);
}

/* Prints the truth: visits, and the mean time between two. */
ALWAYS_INLINE void finish(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    double period = visits > 1 ? (double)(last_ns - first_ns) / (double)(visits - 1) : 0;
    printf("visits %" PRIu64 "\nperiod_ns %.0f\nrate %.3f\ncpu_s %.3f\nper_ms %" PRIu64 "\n", visits, period, period > 0 ? 1e9 / period : 0, cpu, the_run.per_ms);
    fflush(stdout);
}

/* What a new thread does. */
struct work {
    void *(*body)(void *);
    void *argument;
};

static __attribute__((unused)) void *worker(void *given)
{
    struct work work = *(struct work *)given;
    free(given);
    stay();
    return work.body(work.argument);
}

/* Starts a thread that cannot fail to start. */
ALWAYS_INLINE pthread_t spawn(void *(*body)(void *), void *argument)
{
    struct work *work = (struct work *)malloc(sizeof *work);
    MUST(work);
    work->body = body;
    work->argument = argument;
    pthread_t thread;
    MUST((errno = pthread_create(&thread, NULL, worker, work)) == 0);
    return thread;
}

#endif
