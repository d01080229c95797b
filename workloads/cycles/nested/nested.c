/* Loops of many rounds inside of another one: branches that leave too seldom to be seen to. */
#include "../work.h"

extern const char *at_outer, *at_inner, *at_growing;
extern const char __ehdr_start[];

#define OUTER 300u
#define INNER 700u
#define EACH 6u
static uint32_t table[INNER];

NOINLINE uint64_t rounds(uint64_t x)
{
    for (uint32_t i = 0; i < OUTER; i++) {
        HERE(outer);
        x ^= x >> 9;
        for (uint32_t j = 0; j < INNER; j++) {
            HERE(inner);
            x = x * 6364136223846793005u + table[j];
        }
        for (uint32_t k = 0; k < EACH * i; k++) {
            HERE(growing);
            x = (x >> 1) + (x ^ k);
        }
    }
    return x;
}

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    uint64_t x = 1, n = 0;
    for (uint32_t i = 0; i < INNER; i++)
        table[i] = i * 7;
    for (uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9); wall_ns() < end; n++)
        x = rounds(x);
    n *= OUTER;
    printf("outer %" PRIu64 "\ninner %" PRIu64 "\ngrowing %" PRIu64 "\n", n, n * INNER, n * (OUTER - 1) * EACH / 2);
    printf("outer_at %td\ninner_at %td\ngrowing_at %td\n", at_outer - __ehdr_start, at_inner - __ehdr_start,
           at_growing - __ehdr_start);
    return x == 0;
}
