/* Loops of few turns, whose exit probability is known: the programs' own counters are the truth. Some are tested at
 * their end, some at their head, some have work as long as a turn before them. Where the
 * branch that leaves or goes on lies in the file is printed too. */
#include "../work.h"

#define STEP(x)                                                                                                      \
    do {                                                                                                             \
        x = x * 6364136223846793005u + 1442695040888963407u;                                                         \
        __asm__ volatile("" : "+r"(x));                                                                              \
        x ^= x >> 29;                                                                                                \
        __asm__ volatile("" : "+r"(x));                                                                              \
    } while (0)
#define NOTHING(x) ((void)0)
/* One turn: long beside the few cycles in which it overlaps what ran before the loop. */
#define TURN(x)                                                                                                      \
    do {                                                                                                             \
        STEP(x);                                                                                                     \
        STEP(x);                                                                                                     \
        STEP(x);                                                                                                     \
        STEP(x);                                                                                                     \
    } while (0)
/* Short enough that a sample at its begin is followed through the first turn. */
#define LONG(x)                                                                                                      \
    do {                                                                                                             \
        TURN(x);                                                                                                     \
        STEP(x);                                                                                                     \
    } while (0)

/* Goes on while the count is not the last. The address of the branch goes into a variable; a symbol of its own would cut
 * the function in two. */
#define ON(name, n, last, yes)                                                                                       \
    __asm__ goto("cmpq $" #last ", %0\n"                                                                             \
                 "1:\tjne %l[" #yes "]\n"                                                                            \
                 "\t.pushsection .data\n\t.balign 8\nat_" #name ":\t.quad 1b\n\t.popsection"                        \
                 :                                                                                                   \
                 : "r"(n)                                                                                            \
                 : "cc", "memory"                                                                                    \
                 : yes)

/* noipa: a copy of a function would have its branch twice. */
#define TESTED_AT_END(name, before)                                                                                  \
    extern const char *at_##name;                                                                                    \
    __attribute__((noipa)) uint64_t name##_loop(uint64_t x, uint64_t n)                                              \
    {                                                                                                                \
        before(x);                                                                                                   \
    again:                                                                                                           \
        TURN(x);                                                                                                     \
        n--;                                                                                                         \
        ON(name, n, 0, again);                                                                                       \
        return x;                                                                                                    \
    }

#define TESTED_AT_HEAD(name)                                                                                         \
    extern const char *at_##name;                                                                                    \
    __attribute__((noipa)) uint64_t name##_loop(uint64_t x, uint64_t n)                                              \
    {                                                                                                                \
        STEP(x);                                                                                                     \
        goto test;                                                                                                   \
    again:                                                                                                           \
        TURN(x);                                                                                                     \
    test:                                                                                                            \
        n--;                                                                                                         \
        TURN(x);                                                                                                     \
        ON(name, n, -1, again);                                                                                      \
        return x;                                                                                                    \
    }

TESTED_AT_END(end_2, NOTHING)
TESTED_AT_END(end_4, NOTHING)
TESTED_AT_END(end_8, NOTHING)
TESTED_AT_END(end_16, NOTHING)
TESTED_AT_END(late_2, LONG)
TESTED_AT_END(late_8, LONG)
TESTED_AT_HEAD(head_1)
TESTED_AT_HEAD(head_4)

/* `tests`: executions of the branch in one call. */
#define LOOP(name, turns, tests) {#name, name##_loop, &at_##name, turns, tests}
static const struct {
    const char *name;
    uint64_t (*loop)(uint64_t, uint64_t);
    const char **at;
    uint64_t turns, tests;
} loops[] = {
    LOOP(end_2, 2, 2),   LOOP(end_4, 4, 4),   LOOP(end_8, 8, 8),   LOOP(end_16, 16, 16),
    LOOP(late_2, 2, 2),  LOOP(late_8, 8, 8),  LOOP(head_1, 1, 2),  LOOP(head_4, 4, 5),
};
extern const char __ehdr_start[];
#define LOOPS (sizeof loops / sizeof *loops)
/* Turns of each loop before the next has its turn. */
#define ROUND 16384

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    uint64_t x = 1, left[LOOPS] = {0}, tests[LOOPS] = {0};
    for (uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9); wall_ns() < end;)
        for (size_t i = 0; i < LOOPS; i++)
            for (uint64_t n = 0; n < ROUND; n += loops[i].tests) {
                x = loops[i].loop(x, loops[i].turns);
                left[i]++;
                tests[i] += loops[i].tests;
            }
    for (size_t i = 0; i < LOOPS; i++)
        printf("%s %.6f\n%s_at %td\n", loops[i].name, (double)left[i] / (double)tests[i], loops[i].name,
               *loops[i].at - __ehdr_start);
    return x == 0;
}
