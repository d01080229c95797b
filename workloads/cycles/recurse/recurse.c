/* A function that calls itself to a known depth and works at the bottom: inclusive counts must not
 * count a sample once per frame, and stacks must have the right depth. */
#include "../work.h"

enum { DEPTH = 40 };

SPINNER(bottom, 0x9e3779b97f4a7c15u)

NOINLINE uint64_t descend(int left, uint64_t rounds)
{
    uint64_t x = left == 0 ? bottom(rounds) : descend(left - 1, rounds);
    /* Keeps the call from becoming a jump. */
    __asm__ volatile("" : "+r"(x));
    return x;
}

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    uint64_t per_ms = rounds_per_ms(bottom), start = wall_ns(), x = 0;
    while (wall_ns() - start < length)
        x ^= descend(DEPTH, per_ms);
    printf("frames_of_descend %d\n", DEPTH + 1);
    return x == 1;
}
