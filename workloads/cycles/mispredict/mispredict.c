/* A branch that no predictor foresees, beside the same branch that always goes one way. What decides it is
 * computed from the round's number alone, so nothing waits for a load or for an earlier round. */
#include "../planted.h"

extern char *const branch_address, *const foreseen_address;

#define LOOP(name) \
    __asm__ volatile("1: mov %0, %%rax\n" \
                     "imul %2, %%rax\n" \
                     "mov %%rax, %%rdx\n" \
                     "shr $32, %%rdx\n" \
                     "xor %%rdx, %%rax\n" \
                     "imul %2, %%rax\n" \
                     "shr $40, %%rax\n" \
                     "test %%rax, %1\n" \
                     "3: jne 2f\n" \
                     "add $1, %%rcx\n" \
                     "2: dec %0\n" \
                     "jne 1b\n" PLANT(name, "3b") \
                     : "+r"(rounds) \
                     : "r"(mask), "r"(0x9e3779b97f4a7c15u) \
                     : "rax", "rcx", "rdx", "cc")

NOINLINE void unforeseen(uint64_t rounds)
{
    uint64_t mask = 1;
    LOOP(branch_address);
}

NOINLINE void foreseen(uint64_t rounds)
{
    uint64_t mask = 0;
    LOOP(foreseen_address);
}

/* It is so much quicker that it would hardly be sampled: a round of it is six. */
static void six_foreseen(uint64_t rounds) { foreseen(6 * rounds); }

int main(int argc, char **argv)
{
    take_turns(seconds_argument(argc, argv), unforeseen, six_foreseen, 200000);
    TELL(branch_address);
    TELL(foreseen_address);
    return 0;
}
