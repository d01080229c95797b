/* What a probed call costs: `target` (three dependent multiplications) reached by three paths of 11
 * frames, the path changed every 64 calls; or, with --random, by 256 equally likely paths, another at
 * each call. Prints the best of the repetitions: `ns_per_call`.
 *   callcost [-n CALLS] [-r REPETITIONS] [-t THREADS] [--random] [--gate]
 * --gate prints `ready` and waits for a line on stdin before it measures, and a second time after. */
#include "../cycles/work.h"
#include "../nasty/nasty.h"
#include <getopt.h>
#include <pthread.h>

#define LEVEL __attribute__((noinline, noclone))

uint64_t target(uint64_t x, uint64_t y);

enum { CHUNK = 64, MOST_THREADS = 64 };

#define INNERMOST(p) \
    LEVEL uint64_t p##7(uint64_t x, long n) \
    { \
        for (long i = 0; i < n; i++) \
            x = target(x, (uint64_t)i); \
        return x; \
    }
#define ABOVE(p, a, b) \
    LEVEL uint64_t p##a(uint64_t x, long n) \
    { \
        volatile uint64_t room[a]; \
        room[0] = x; \
        return p##b(x ^ room[0] ^ x, n) + a; \
    }
#define PATH(p) \
    INNERMOST(p) \
    ABOVE(p, 6, 7) ABOVE(p, 5, 6) ABOVE(p, 4, 5) ABOVE(p, 3, 4) ABOVE(p, 2, 3) ABOVE(p, 1, 2)
PATH(a)
PATH(b)
PATH(c)

LEVEL uint64_t r8(uint64_t x, unsigned bits)
{
    uint64_t r = target(x, bits);
    __asm__ volatile("");
    return r + 1;
}
#define FORK(n, m) \
    LEVEL uint64_t r##n(uint64_t x, unsigned bits) \
    { \
        volatile uint64_t room[2]; \
        room[0] = x; \
        uint64_t r = bits & 1 ? r##m(x + 1, bits >> 1) + room[0] : r##m(x + 2, bits >> 1) ^ room[0]; \
        return r + 1; \
    }
FORK(7, 8) FORK(6, 7) FORK(5, 6) FORK(4, 5) FORK(3, 4) FORK(2, 3) FORK(1, 2) FORK(0, 1)

static long calls = 3000000, repetitions = 5;
static int at_random, gated;

struct share {
    double best;
    uint64_t sum, calls;
};

static uint64_t round_of_calls(uint64_t x, uint64_t *made)
{
    if (at_random) {
        /* Goes on from one repetition to the next: processors learn a sequence of some thousand branches by heart. */
        static __thread uint64_t seed = 88172645463325252ull;
        for (long i = 0; i < calls; i++, ++*made)
            x += r0(x, (unsigned)next_random(&seed) & 255);
        return x;
    }
    for (long i = 0; i < calls; i += 3 * CHUNK, *made += 3 * CHUNK) {
        x = a1(x, CHUNK);
        x = b1(x, CHUNK);
        x = c1(x, CHUNK);
    }
    return x;
}

static void *measure(void *argument)
{
    struct share *share = argument;
    share->best = 1e9;
    for (long r = 0; r < repetitions; r++) {
        uint64_t made = 0, start = wall_ns();
        share->sum = round_of_calls(share->sum, &made);
        double each = (double)(wall_ns() - start) / (double)made;
        share->calls += made;
        if (each < share->best)
            share->best = each;
    }
    return NULL;
}

static void gate(void)
{
    char line[16];
    printf("ready\n");
    fflush(stdout);
    if (gated && read(0, line, sizeof line) <= 0)
        exit(0);
}

/* Returns the calls made. */
static uint64_t all(int threads)
{
    static struct share shares[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    uint64_t made = 0;
    double worst = 0;
    memset(shares, 0, sizeof shares);
    if (threads == 1)
        measure(&shares[0]);
    for (int i = 0; threads > 1 && i < threads; i++)
        pthread_create(&ids[i], NULL, measure, &shares[i]);
    for (int i = 0; threads > 1 && i < threads; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < threads; i++) {
        made += shares[i].calls;
        if (shares[i].best > worst)
            worst = shares[i].best;
    }
    printf("ns_per_call %.3f\n", worst);
    fflush(stdout);
    return made;
}

int main(int argc, char **argv)
{
    static const struct option words[] = {{"random", 0, 0, 'R'}, {"gate", 0, 0, 'G'}, {0, 0, 0, 0}};
    int threads = 1, option;
    uint64_t made = 0;
    while ((option = getopt_long(argc, argv, "n:r:t:", words, NULL)) != -1) {
        switch (option) {
        case 'n': calls = atol(optarg); break;
        case 'r': repetitions = atol(optarg); break;
        case 't': threads = atoi(optarg); break;
        case 'R': at_random = 1; break;
        case 'G': gated = 1; break;
        default: return 2;
        }
    }
    if (calls < 1 || repetitions < 1 || threads < 1 || threads > MOST_THREADS)
        return 2;
    for (int rounds = gated ? 2 : 1; rounds > 0; rounds--) {
        if (gated)
            gate();
        made += all(threads);
    }
    printf("calls_target %llu\n", (unsigned long long)made);
    tell("target", made, "exact");
}
