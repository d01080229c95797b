/* Loops of one function whose rounds cost unlike times: time tells nothing of how often each went round. */
#include "../work.h"

extern const char *at_gather, *at_chain, *at_called;
extern const char __ehdr_start[];

#define WORDS (16u << 20)
#define GATHER 150000u
#define CHAIN 400000u
#define CALLED 120000u
static uint32_t table[WORDS];

NOINLINE uint64_t other(uint64_t x)
{
    __asm__ volatile("" : "+r"(x));
    return (x ^ x >> 7) * 9;
}

NOINLINE uint64_t rounds(uint64_t x)
{
    for (uint32_t i = 0; i < GATHER; i++) {
        HERE(gather);
        x += table[i * 2654435761u % WORDS];
    }
    for (uint32_t i = 0; i < CHAIN; i++) {
        HERE(chain);
        x = x * 6364136223846793005u + i;
        __asm__ volatile("" : "+r"(x));
    }
    for (uint32_t i = 0; i < CALLED; i++) {
        HERE(called);
        x += other(x) >> 3;
    }
    return x;
}

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    uint64_t x = 1, n = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        table[i] = i * 7;
    for (uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9); wall_ns() < end; n++)
        x = rounds(x);
    printf("gather %" PRIu64 "\nchain %" PRIu64 "\ncalled %" PRIu64 "\n", n * GATHER, n * CHAIN, n * CALLED);
    printf("gather_at %td\nchain_at %td\ncalled_at %td\n", at_gather - __ehdr_start, at_chain - __ehdr_start,
           at_called - __ehdr_start);
    return x == 0;
}
