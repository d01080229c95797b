/* Chains in which each operation needs the one before: integer multiplications in one loop, additions of doubles
 * in the other. All of it follows from the code: static stalls, and nothing dynamic to be blamed. A third function has
 * its chains without a loop, the second one in every other call: so often it is called, so often each of them runs. */
#include "../planted.h"

extern char *const multiply_address, *const add_address;

NOINLINE void multiplies(uint64_t rounds)
{
    uint64_t x = 3;
    __asm__ volatile("1: add $3, %%r8\n"
                     "3: imul %1, %1\n"
                     "add $5, %%r9\n"
                     "lea 1(%%r9), %%r10\n"
                     "dec %0\n"
                     "jne 1b\n" PLANT(multiply_address, "3b")
                     : "+r"(rounds), "+r"(x)
                     :
                     : "r8", "r9", "r10", "cc");
}

NOINLINE void additions(uint64_t rounds)
{
    double x = 1, y = 1e-9;
    __asm__ volatile("1: add $3, %%r8\n"
                     "3: addsd %2, %1\n"
                     "add $5, %%r9\n"
                     "addsd %2, %1\n"
                     "dec %0\n"
                     "jne 1b\n" PLANT(add_address, "3b")
                     : "+r"(rounds), "+x"(x)
                     : "x"(y)
                     : "r8", "r9", "cc");
}

NOINLINE uint64_t straight(uint64_t x, uint64_t turn)
{
    __asm__ volatile(".rept 64\n"
                     "imul %0, %0\n"
                     ".endr\n"
                     "test $1, %b1\n"
                     "jne 2f\n"
                     ".rept 64\n"
                     "imul %0, %0\n"
                     ".endr\n"
                     "2:\n"
                     : "+r"(x)
                     : "q"(turn)
                     : "cc");
    return x;
}

/* For so many seconds; prints how often it was called, and what a call took. */
static void call_straight(double seconds)
{
    uint64_t start = cpu_ns(), end = wall_ns() + (uint64_t)(seconds * 1e9), x = 3, calls = 0;
    do
        for (int i = 0; i < 1000; i++)
            x = straight(x, calls++);
    while (wall_ns() < end);
    __asm__ volatile("" : "+r"(x));
    printf("straight_calls %" PRIu64 "\nstraight_ns %.2f\n", calls, (double)(cpu_ns() - start) / (double)calls);
}

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    take_turns(seconds, multiplies, additions, 400000);
    call_straight(seconds / 2);
    TELL(multiply_address);
    TELL(add_address);
    return 0;
}
