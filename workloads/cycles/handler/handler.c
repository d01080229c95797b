/* A stack that goes through a signal handler: main, outer, interrupted, the code handlers return to, on_trap,
 * leaf. Each trap is taken in the middle of `interrupted`, where no call stands. A second chain, without a
 * signal, takes a quarter of the time. */
#include "../work.h"
#include <signal.h>

static uint64_t rounds_left;

SPINNER(leaf, 0x9e3779b97f4a7c15u)

NOINLINE void on_trap(int number)
{
    leaf(rounds_left);
    __asm__ volatile("" : : "r"(number));
}

NOINLINE void interrupted(void) { __asm__ volatile("int3" : : : "memory"); }

NOINLINE void outer(uint64_t rounds)
{
    rounds_left = rounds;
    interrupted();
    __asm__ volatile("");
}

NOINLINE void side(uint64_t rounds)
{
    leaf(rounds);
    __asm__ volatile("");
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_trap};
    sigaction(SIGTRAP, &action, NULL);
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    uint64_t per_ms = rounds_per_ms(leaf), spent = 0, random = 7;
    while (spent < length) {
        uint64_t rounds = per_ms * (50 + next_random(&random) % 101) / 100;
        uint64_t start = cpu_ns();
        outer(3 * rounds);
        side(rounds);
        spent += cpu_ns() - start;
    }
    printf("chain main;outer;interrupted;<signal handler called>;on_trap;leaf\nshare_handler 75\nshare_side 25\n");
}
