/* A chain of 128/64-bit divisions, few cheap independent instructions around each: time belongs to the
 * division, and a timer interrupt reports the instruction after it. The remainder stays in %rdx, so
 * a division depends on the one before it and on nothing else, and can never overflow. The loop is
 * short enough to retire in one go: each further cycle of retirement would take its own share. */
#include "../work.h"

enum { STEPS = 100000 };

extern char __executable_start;
/* Address of the division, planted by the assembly below. */
extern char *const divide_address;

NOINLINE uint64_t divide(uint64_t x, uint64_t steps)
{
    uint64_t by = 0x8000000000000003u, remainder = 1, count = 1;
    for (uint64_t i = 0; i < steps; i++)
        __asm__ volatile("add $1, %2\n"
                         "1: div %3\n"
                         "add $7, %%r10\n"
                         "nop\n"
                         ".pushsection .data.rel.ro, \"aw\"\n"
                         ".balign 8\n"
                         "divide_address: .quad 1b\n"
                         ".popsection\n"
                         : "+a"(x), "+d"(remainder), "+r"(count)
                         : "r"(by)
                         : "r10");
    return x + remainder + count;
}

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    uint64_t wall = wall_ns(), cpu = cpu_ns(), x = 0x123456789abcdefu, steps = 0;
    while (wall_ns() - wall < length) {
        x = divide(x, STEPS);
        steps += STEPS;
    }
    uint64_t spent = cpu_ns() - cpu;
    printf("divide_address 0x%" PRIx64 "\n", (uint64_t)(divide_address - &__executable_start));
    printf("divide_cpu_s %.3f\nns_per_step %.1f\n", (double)spent * 1e-9, (double)spent / (double)steps);
    return x == 0;
}
