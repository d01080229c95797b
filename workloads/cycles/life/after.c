/* The program that others become by exec. It is linked at a fixed address, as `life` is, so that the
 * same numbers mean another function: a profiler that mixes up the two lives of a pid shows it. */
#include "life.h"

#include "../work.h"
#include <unistd.h>

/* Shifts the functions below against those of `life`. */
NOINLINE uint64_t padding_of_after(uint64_t x)
{
    __asm__ volatile(".skip 32, 0x90");
    return x;
}
SPINNER(after_exec, 0x9fb21c651e98df25u)
SPINNER(after_vfork, 0xbf58476d1ce4e5b9u)
SPINNER(after_spawn, 0x94d049bb133111ebu)
SPINNER(after_reuse, 0xc2b2ae3d27d4eb4fu)

static uint64_t (*const BURN[])(uint64_t) = {padding_of_after, after_exec, after_vfork, after_spawn, after_reuse};

/* Arguments: index into BURN, rounds, kind to report, descriptor to report to. */
int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    uint64_t start = cpu_ns();
    BURN[atoi(argv[1])](strtoull(argv[2], NULL, 10));
    struct spent spent = {(uint32_t)atoi(argv[3]), (uint32_t)getpid(), cpu_ns() - start};
    return write(atoi(argv[4]), &spent, sizeof spent) != sizeof spent;
}
