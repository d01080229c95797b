/* CPU time per call while other processes take the CPUs away. Calls are timed from outside by the
 * thread's CPU clock, 5 ms of them at once: a reading with cold caches costs over a microsecond, which would be
 * taken for time of a short call.
 *   cputruth [SECONDS] [HOGS] */
#include "../cycles/work.h"
#include "../nasty/nasty.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { MOST_HOGS = 16 };

SPINNER(burn_10us, 0x9e3779b97f4a7c15u)
SPINNER(burn_200us, 0xbf58476d1ce4e5b9u)
SPINNER(burn_5ms, 0x94d049bb133111ebu)

/* Mostly off the CPU. */
NOINLINE uint64_t nap(uint64_t rounds)
{
    struct timespec t = {0, 1000000};
    uint64_t x = spin(rounds, 3);
    nanosleep(&t, NULL);
    return x + spin(rounds, 5);
}

static struct row {
    const char *name;
    uint64_t (*function)(uint64_t);
    double us;
    uint64_t calls, cpu, wall;
} rows[] = {{"burn_10us", burn_10us, 10, 0, 0, 0},
            {"burn_200us", burn_200us, 200, 0, 0, 0},
            {"burn_5ms", burn_5ms, 5000, 0, 0, 0},
            {"nap", nap, 100, 0, 0, 0}};

struct reading {
    uint64_t cpu, wall;
};

/* CPU outside, wall inside: the wall clock needs no system call, at whose end we might be preempted. */
ALWAYS_INLINE struct reading before(void)
{
    uint64_t cpu = cpu_ns();
    return (struct reading){cpu, wall_ns()};
}

ALWAYS_INLINE struct reading since(struct reading start)
{
    uint64_t wall = wall_ns();
    return (struct reading){cpu_ns() - start.cpu, wall - start.wall};
}

static pid_t hog(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (uint64_t x = 1;; x++)
            KEEP(x);
    }
    return pid;
}

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc > 2 ? 2 : argc, argv) * 1e9), x = 0;
    int hogs = argc > 2 ? atoi(argv[2]) : 3;
    pid_t pids[MOST_HOGS];
    if (hogs < 0 || hogs > MOST_HOGS)
        return 2;
    /* Calibrated by a twin, so that no call but the timed ones is made. */
    uint64_t per_ms = 0, best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t start = cpu_ns();
        x ^= spin(200000, 7);
        KEEP(x);
        uint64_t took = cpu_ns() - start;
        best = took < best ? took : best;
    }
    per_ms = 200000ull * 1000000ull / best;
    for (int i = 0; i < hogs; i++)
        pids[i] = hog();
    uint64_t begin = wall_ns();
    while (wall_ns() - begin < length) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct row *row = &rows[i];
            uint64_t calls = (uint64_t)(5000 / row->us), rounds = (uint64_t)(row->us / 1000 * (double)per_ms);
            struct reading start = before();
            for (uint64_t k = 0; k < calls; k++)
                x ^= row->function(rounds);
            struct reading took = since(start);
            row->cpu += took.cpu;
            row->wall += took.wall;
            row->calls += calls;
        }
    }
    for (int i = 0; i < hogs; i++)
        kill(pids[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("calls_%s %" PRIu64 "\ncpu_ns_%s %" PRIu64 "\nwall_ns_%s %" PRIu64 "\n", rows[i].name, rows[i].calls, rows[i].name,
               rows[i].cpu, rows[i].name, rows[i].wall);
        tell(rows[i].name, rows[i].calls, "exact");
    }
    return x == 1;
}
