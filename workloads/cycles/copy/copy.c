/* The copy loop of the paper's figures 2 and 7: a four-times unrolled copy of an array that fits no
 * cache; time goes to the loads (data cache) and the stores (store buffer). */
#include "../work.h"

enum { WORDS = 8 << 20 };

NOINLINE void copy(uint64_t *restrict to, const uint64_t *restrict from, uint64_t words)
{
    for (uint64_t i = 0; i < words; i += 4) {
        to[i] = from[i];
        to[i + 1] = from[i + 1];
        to[i + 2] = from[i + 2];
        to[i + 3] = from[i + 3];
    }
}

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    uint64_t *from = malloc(WORDS * sizeof *from), *to = malloc(WORDS * sizeof *to);
    if (!from || !to)
        abort();
    for (uint64_t i = 0; i < WORDS; i++)
        from[i] = i;
    uint64_t spent = 0, copies = 0;
    while (spent < length) {
        uint64_t start = cpu_ns();
        copy(to, from, WORDS);
        spent += cpu_ns() - start;
        copies++;
    }
    printf("copy_cpu_s %.3f\ngb_per_s %.2f\n", (double)spent * 1e-9,
           (double)copies * WORDS * sizeof *to / (double)spent);
    return to[WORDS - 1] != WORDS - 1;
}
