/* What programs with a planted stall share: two loops that differ in the cause alone take turns, and the
 * address of the planted instruction is told as `objdump` shows it.
 *
 * Constraint: the loops are assembly as a whole, so that no compiler moves the planted instruction or adds
 * another one; they are kept in symbols of their own. */
#ifndef WHITHER_WORKLOADS_PLANTED_H
#define WHITHER_WORKLOADS_PLANTED_H

#include "work.h"

extern char __executable_start;

/* Inside assembly: stores the address of a local label (a string: "3b") under `name`. */
#define PLANT(name, label) \
    ".pushsection .data.rel.ro, \"aw\"\n" \
    ".balign 8\n" #name ": .quad " label "\n" \
    ".popsection\n"

/* Prints a planted address. */
#define TELL(name) printf(#name " 0x%" PRIx64 "\n", (uint64_t)(name - &__executable_start))

/* Lets `guilty` and `innocent` take turns for `seconds` of wall time and prints the CPU time of each and
 * the nanoseconds per round. Both run `rounds` rounds per call. */
ALWAYS_INLINE void take_turns(double seconds, void (*guilty)(uint64_t), void (*innocent)(uint64_t), uint64_t rounds)
{
    uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9), spent[2] = {0, 0}, turns = 0;
    do {
        uint64_t start = cpu_ns();
        guilty(rounds);
        uint64_t between = cpu_ns();
        innocent(rounds);
        spent[0] += between - start;
        spent[1] += cpu_ns() - between;
        turns++;
    } while (wall_ns() < end);
    double all = (double)turns * (double)rounds;
    printf("guilty_cpu_s %.3f\ninnocent_cpu_s %.3f\n", (double)spent[0] * 1e-9, (double)spent[1] * 1e-9);
    printf("guilty_ns %.2f\ninnocent_ns %.2f\n", (double)spent[0] / all, (double)spent[1] / all);
}

#endif
