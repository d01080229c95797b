/* One branch that is taken in the first half of a process's life and not in the second, as often in either. What sees only the
 * later part of short lives tells it wrongly, and with confidence. */
#include "../work.h"

#define ROUNDS_PER_SECOND 500e6

extern const char *at_branch;
extern const char __ehdr_start[];

__attribute__((noipa)) uint64_t shared(uint64_t rounds, uint32_t first, uint64_t *taken)
{
    uint64_t x = rounds | 1, seen = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        __asm__ goto("cmpl $1, %0\n"
                     "1:\tje %l[yes]\n"
                     "\t.pushsection .data\n\t.balign 8\nat_branch:\t.quad 1b\n\t.popsection"
                     :
                     : "r"(first)
                     : "cc", "memory"
                     : yes);
        x += i;
        continue;
    yes:
        seen++;
    }
    *taken += seen;
    return x;
}

int main(int argc, char **argv)
{
    uint64_t rounds = (uint64_t)(seconds_argument(argc, argv) * ROUNDS_PER_SECOND / 2), taken = 0, kept = 0;
    for (uint32_t first = 1; first < 2; first--)
        kept ^= shared(rounds, first, &taken);
    printf("branch %.6f\nbranch_at %td\nkept %llu\n", (double)taken / (double)(2 * rounds), at_branch - __ehdr_start,
           (unsigned long long)kept);
}
