/* 59: a program that sets the thread pointer itself for a while, to nothing, to a block of its own, and to what is no memory, as
 * other threading libraries and emulators do: nobody may look for thread-local words there. */
#include "nasty.h"
#include <asm/prctl.h>
#include <sys/syscall.h>

enum { CALLS = 1000 };

static uint64_t n_work;

#define NO_CANARY __attribute__((optimize("no-stack-protector")))

PROBED NO_CANARY long work(long x)
{
    count(&n_work);
    return x * 3;
}

/* Past the C library, which keeps errno there. */
static inline long call(long number, long first, long second)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second) : "rcx", "r11", "memory");
    return result;
}

static NO_CANARY long with(unsigned long pointer)
{
    unsigned long before;
    long sum = 0;
    call(SYS_arch_prctl, ARCH_GET_FS, (long)&before);
    call(SYS_arch_prctl, ARCH_SET_FS, (long)pointer);
    for (int i = 0; i < CALLS; i++)
        sum += work(i);
    call(SYS_arch_prctl, ARCH_SET_FS, (long)before);
    return sum;
}

int main(void)
{
    static unsigned long block[64];
    block[32] = (unsigned long)&block[32];
    long sum = work(1) + with(0) + with((unsigned long)&block[32]) + with(0x10000) + work(2);
    printf("sum %ld\n", sum);
    tell("work", n_work, "lost");
}
