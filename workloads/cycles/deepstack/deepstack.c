/* A known chain of callers: main, outer, middle, inner, leaf; a second, shorter one through `side`
 * takes a quarter of the time, so that wrong joins of stacks show. */
#include "../work.h"

SPINNER(leaf, 0x9e3779b97f4a7c15u)

/* Bytes that `main` keeps in its frame: what called it lies behind them. */
#ifndef ROOM
#define ROOM 12000
#endif

/* The empty assembly after each call keeps it from becoming a jump. */
#define CALLER(name, callee) \
    NOINLINE uint64_t name(uint64_t rounds) \
    { \
        uint64_t x = callee(rounds); \
        __asm__ volatile("" : "+r"(x)); \
        return x; \
    }

CALLER(inner, leaf)
CALLER(middle, inner)
CALLER(outer, middle)
CALLER(side, leaf)

int main(int argc, char **argv)
{
    char room[ROOM];
    __asm__ volatile("" : : "r"(room) : "memory");
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    uint64_t per_ms = rounds_per_ms(leaf), spent = 0, random = 7;
    while (spent < length) {
        uint64_t rounds = per_ms * (50 + next_random(&random) % 101) / 100;
        uint64_t start = cpu_ns();
        outer(3 * rounds);
        side(rounds);
        spent += cpu_ns() - start;
    }
    printf("chain main;outer;middle;inner;leaf\nshare_outer 75\nshare_side 25\n");
}
