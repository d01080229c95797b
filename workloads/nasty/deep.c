/* 17, 35: recursion 100 000 deep through a probed function (the stack grows from its first pages to its
 * limit), up and down twice, and one jump of the stack by 2 MB below a probed call. */
#include "nasty.h"
#include <alloca.h>
#include <pthread.h>

enum { DEPTH = 100000 };

static uint64_t n_down, n_wide;

PROBED long down(long left)
{
    count(&n_down);
    if (left == 0)
        return 1;
    long y = down(left - 1);
    KEEP(y);
    return y + 1;
}

PROBED long wide(long bytes)
{
    count(&n_wide);
    volatile char *room = alloca((size_t)bytes);
    for (long i = bytes - 1; i >= 0; i -= 4096)
        room[i] = (char)i;
    long y = down(10);
    KEEP(y);
    return y + room[bytes - 1];
}

static void *elsewhere(void *x) { return (void *)(down(DEPTH) + (long)(intptr_t)x); }

int main(void)
{
    long sum = wide(64) + down(DEPTH) + wide(2 << 20) + down(DEPTH);
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 32 << 20);
    pthread_create(&thread, &attributes, elsewhere, NULL);
    void *result;
    pthread_join(thread, &result);
    printf("%ld\n", sum + (long)(intptr_t)result);
    tell("down", n_down, "exact");
    tell("wide", n_wide, "exact");
}
