/* One dependent load that misses every cache, followed by cheap instructions: nearly all time is
 * spent waiting for the load, and a timer interrupt reports the instruction after it. */
#include "../work.h"

enum { LINE = 64, BYTES = 128 << 20, STEPS = 20000 };

extern char __executable_start;
/* Address of the load, planted by the assembly below. */
extern char *const load_address;

/* Links all lines of the area into one random cycle (Sattolo's shuffle). */
NOINLINE char **set_up(void)
{
    size_t n = BYTES / LINE;
    char *area = aligned_alloc(4096, BYTES);
    uint32_t *order = malloc(n * sizeof *order);
    if (!area || !order)
        abort();
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    uint64_t random = 88172645463325252u;
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = next_random(&random) % i;
        uint32_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (size_t i = 0; i < n; i++)
        *(char **)(area + i * LINE) = area + (size_t)order[i] * LINE;
    free(order);
    return (char **)area;
}

NOINLINE char **chase(char **p, uint64_t steps)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < steps; i++)
        __asm__ volatile("1: mov (%0), %0\n"
                         "nop\n"
                         "add $1, %1\n"
                         "lea 3(%1), %%r8\n"
                         "xor %%r8, %%r9\n"
                         "add $7, %%r10\n"
                         "xor %%r10, %%r11\n"
                         "nop\n"
                         ".pushsection .data.rel.ro, \"aw\"\n"
                         ".balign 8\n"
                         "load_address: .quad 1b\n"
                         ".popsection\n"
                         : "+r"(p), "+r"(sum)
                         :
                         : "r8", "r9", "r10", "r11", "memory");
    return p;
}

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    char **p = set_up();
    uint64_t wall = wall_ns(), cpu = cpu_ns(), steps = 0;
    while (wall_ns() - wall < length) {
        p = chase(p, STEPS);
        steps += STEPS;
    }
    uint64_t spent = cpu_ns() - cpu;
    printf("load_address 0x%" PRIx64 "\n", (uint64_t)(load_address - &__executable_start));
    printf("chase_cpu_s %.3f\nns_per_step %.1f\n", (double)spent * 1e-9, (double)spent / (double)steps);
    return p == NULL;
}
