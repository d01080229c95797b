/* How long the whole process stands still when probes are added: 64 threads run and call; each reads the
 * clock and compares with the last reading of any of them. Nobody ran for `longest_gap_us`. A line on
 * stdin prints the gap since the last line; the end of stdin ends the program.
 *   manythreads [THREADS]   1024 functions many_0000 ... many_1023 are there to be probed */
#include "../cycles/work.h"
#include "../nasty/nasty.h"
#include <pthread.h>

enum { MOST = 256 };

static uint64_t last, longest;
static volatile int over;
static uint64_t shares[MOST][8];

#define ONE(a, b, c, d) \
    PROBED uint64_t many_##a##b##c##d(uint64_t x) { return x * (0x##a##b##c##d + 3) + 1; }
#define TEN(X, a, b, c) X(a, b, c, 0) X(a, b, c, 1) X(a, b, c, 2) X(a, b, c, 3) X(a, b, c, 4) X(a, b, c, 5) X(a, b, c, 6) X(a, b, c, 7) X(a, b, c, 8) X(a, b, c, 9)
#define HUNDRED(X, a, b) \
    TEN(X, a, b, 0) TEN(X, a, b, 1) TEN(X, a, b, 2) TEN(X, a, b, 3) TEN(X, a, b, 4) TEN(X, a, b, 5) TEN(X, a, b, 6) TEN(X, a, b, 7) TEN(X, a, b, 8) TEN(X, a, b, 9)
#define ALL(X) \
    HUNDRED(X, 0, 0) HUNDRED(X, 0, 1) HUNDRED(X, 0, 2) HUNDRED(X, 0, 3) HUNDRED(X, 0, 4) HUNDRED(X, 0, 5) HUNDRED(X, 0, 6) \
    HUNDRED(X, 0, 7) HUNDRED(X, 0, 8) HUNDRED(X, 0, 9) TEN(X, 1, 0, 0) TEN(X, 1, 0, 1) X(1, 0, 2, 0) X(1, 0, 2, 1) X(1, 0, 2, 2) X(1, 0, 2, 3)
ALL(ONE)

#define ENTRY(a, b, c, d) many_##a##b##c##d,
static uint64_t (*const functions[])(uint64_t) = {ALL(ENTRY)};

/* Time goes on for the process: someone ran until now. A thread that was preempted between its reading and
 * the exchange finds a later time there and changes nothing. */
static void tick(void)
{
    uint64_t now = wall_ns(), before = __atomic_load_n(&last, __ATOMIC_RELAXED);
    do {
        if (now <= before)
            return;
    } while (!__atomic_compare_exchange_n(&last, &before, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    uint64_t known = __atomic_load_n(&longest, __ATOMIC_RELAXED);
    while (now - before > known && !__atomic_compare_exchange_n(&longest, &known, now - before, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void *body(void *argument)
{
    uint64_t *share = argument, x = 1;
    for (uint64_t i = 0; !over; i++) {
        x = functions[i & 1023](x);
        if ((i & 7) == 0)
            tick();
        share[0]++;
    }
    share[1] = x;
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 64;
    pthread_t ids[MOST];
    char line[64];
    uint64_t calls = 0;
    if (threads < 1 || threads > MOST)
        return 2;
    last = wall_ns();
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, body, shares[i]);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        printf("longest_gap_us %.1f\n", (double)__atomic_exchange_n(&longest, 0, __ATOMIC_RELAXED) / 1000);
        fflush(stdout);
    }
    over = 1;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        calls += shares[i][0];
    }
    printf("calls %" PRIu64 "\n", calls);
}
