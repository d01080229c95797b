/* 56: the first thread ends, inside a probed function, and others go on: the process is listed as a body from then on, and what
 * /proc shows of its memory by its own number is gone. */
#include "nasty.h"
#include <pthread.h>
#include <unistd.h>

static uint64_t n_leaves, n_works;

PROBED long leaves(long x)
{
    count(&n_leaves);
    KEEP(x);
    pthread_exit(NULL);
    return x;
}

PROBED long works(long x)
{
    count(&n_works);
    for (int i = 0; i < 2000; i++)
        x = x * 6364136223846793005L + 1442695040888963407L;
    return x;
}

static void *survive(void *first)
{
    long sum = 0;
    pthread_join(*(pthread_t *)first, NULL);
    /* Several looks of the controller long. */
    for (int i = 0; i < 200000; i++)
        sum = works(sum);
    printf("%ld\n", sum);
    tell("leaves", n_leaves, "exact");
    tell("works", n_works, "exact");
    return NULL;
}

int main(void)
{
    static pthread_t first;
    pthread_t other;
    first = pthread_self();
    pthread_create(&other, NULL, survive, &first);
    return (int)leaves(works(1) & 1);
}
