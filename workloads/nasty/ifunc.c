/* 23: a symbol whose address is chosen when the program starts: the chosen implementation is probed,
 * calls by pointer and calls through the PLT are both seen. */
#include "nasty.h"

static uint64_t n_chosen;

PROBED long chosen_fast(long x)
{
    count(&n_chosen);
    return x * 3;
}

PROBED long chosen_slow(long x) { return x + x + x; }

static long (*choose(void))(long)
{
    return getpid() > 0 ? chosen_fast : chosen_slow;
}

long selected(long x) __attribute__((ifunc("choose")));

int main(void)
{
    long (*volatile pointer)(long) = selected;
    long sum = 0;
    for (long i = 0; i < 5000; i++)
        sum += selected(i) + pointer(i) + chosen_fast(i);
    printf("%ld\n", sum);
    tell("chosen_fast", n_chosen, "exact");
    tell("chosen_slow", 0, "exact");
}
