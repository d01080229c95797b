/* Conditional branches of known probability: the programs' own counters are the truth. Three are decided by a
 * value in a register, three by one in memory. Where each branch lies in the file is printed too. */
#include "../work.h"

#define TURN 4096
#define TABLE (1u << 16)

static uint32_t table[TABLE];

/* A random number of 32 bits is below the limit with the probability wanted. */
#define P50 0x80000000u
#define P90 0xe6666666u
#define P99 0xfd70a3d7u

/* The address of the branch goes into a variable; a symbol of its own would cut the function in two. */
#define BRANCH(name, value, constraint, limit, yes)                                                                  \
    __asm__ goto("cmpl %1, %0\n"                                                                                     \
                 "1:\tjb %l[" #yes "]\n"                                                                             \
                 "\t.pushsection .data\n\t.balign 8\nat_" #name ":\t.quad 1b\n\t.popsection"                        \
                 :                                                                                                   \
                 : constraint(value), "i"(limit)                                                                     \
                 : "cc", "memory"                                                                                    \
                 : yes)

/* noipa: a copy of a function would have its branch twice. */
#define REGISTER_LOOP(name, limit)                                                                                   \
    extern const char *at_##name;                                                                                    \
    __attribute__((noipa)) uint64_t name##_loop(uint64_t *state)                                                     \
    {                                                                                                                \
        uint64_t x = *state, taken = 0, fallen = 0;                                                                  \
        for (uint32_t i = 0; i < TURN; i++) {                                                                        \
            x ^= x << 13;                                                                                            \
            x ^= x >> 7;                                                                                             \
            x ^= x << 17;                                                                                            \
            BRANCH(name, (uint32_t)(x >> 32), "r", limit, yes);                                                      \
            fallen += x & i;                                                                                         \
            continue;                                                                                                \
        yes:                                                                                                         \
            taken++;                                                                                                 \
        }                                                                                                            \
        *state = x | (fallen == 1);                                                                                  \
        return taken;                                                                                                \
    }

#define MEMORY_LOOP(name, limit)                                                                                     \
    extern const char *at_##name;                                                                                    \
    __attribute__((noipa)) uint64_t name##_loop(uint64_t *state)                                                     \
    {                                                                                                                \
        const uint32_t *from = table + (*state & (TABLE - 1) & -TURN);                                               \
        uint64_t taken = 0, fallen = 0;                                                                              \
        for (uint32_t i = 0; i < TURN; i++) {                                                                        \
            /* Work whose result the loads do not need. */                                                           \
            fallen = fallen * 6364136223846793005u + i;                                                              \
            BRANCH(name, from[i], "m", limit, yes);                                                                  \
            fallen ^= fallen >> 9;                                                                                   \
            continue;                                                                                                \
        yes:                                                                                                         \
            taken++;                                                                                                 \
        }                                                                                                            \
        *state += TURN | (fallen == 1);                                                                              \
        return taken;                                                                                                \
    }

REGISTER_LOOP(register_50, P50)
REGISTER_LOOP(register_90, P90)
REGISTER_LOOP(register_99, P99)
MEMORY_LOOP(memory_50, P50)
MEMORY_LOOP(memory_90, P90)
MEMORY_LOOP(memory_99, P99)

#define LOOP(name) {#name, name##_loop, &at_##name}
static const struct {
    const char *name;
    uint64_t (*loop)(uint64_t *);
    const char **at;
} loops[] = {
    LOOP(register_50), LOOP(register_90), LOOP(register_99), LOOP(memory_50), LOOP(memory_90), LOOP(memory_99),
};
extern const char __ehdr_start[];
#define LOOPS (sizeof loops / sizeof *loops)

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    uint64_t random = 88172645463325252u;
    for (uint32_t i = 0; i < TABLE; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        table[i] = (uint32_t)(random >> 32);
    }
    uint64_t state[LOOPS], taken[LOOPS] = {0}, turns = 0;
    for (size_t i = 0; i < LOOPS; i++)
        state[i] = random + i;
    for (uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9); wall_ns() < end; turns++)
        for (size_t i = 0; i < LOOPS; i++)
            taken[i] += loops[i].loop(&state[i]);
    for (size_t i = 0; i < LOOPS; i++)
        printf("%s %.6f\n%s_at %td\n", loops[i].name, (double)taken[i] / (double)(turns * TURN), loops[i].name,
               *loops[i].at - __ehdr_start);
    printf("turns %llu\n", (unsigned long long)turns);
}
