/* An inner loop that begins at each round of the outer one where that has got to: its counter goes forwards with time, by one for
 * five rounds. */
#include "../work.h"

extern const char *at_inner;
extern const char __ehdr_start[];

#define OUTER 200000
#define INNER 5
static volatile uint32_t table[4096];

/* Compilers make one register of i + j. */
NOINLINE uint64_t rounds(uint64_t x)
{
    for (int i = 0; i < OUTER; i++)
        for (int j = 0; j < INNER; j++) {
            HERE(inner);
            x += table[(i + j) & 4095];
            __asm__ volatile("imul $3, %0, %0" : "+r"(x));
        }
    return x;
}

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    uint64_t x = 1, n = 0;
    for (uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9); wall_ns() < end; n++)
        x = rounds(x);
    printf("inner %" PRIu64 "\ninner_at %td\n", n * (OUTER * INNER), at_inner - __ehdr_start);
    return x == 0;
}
