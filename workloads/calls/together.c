/* How long threads that begin together are held at their first probed call: each reads the clock before the call and within it, then
 * works for a while.
 *   together [THREADS [MS]]   `begun` is there to be probed */
#include "../cycles/work.h"
#include "../nasty/nasty.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 256 };

static uint64_t held[MOST], worked[MOST], for_ns;

PROBED void begun(uint64_t before, long i)
{
    uint64_t now = wall_ns(), end = now + for_ns, n = 0;

    held[i] = now - before;
    while (wall_ns() < end)
        n++;
    worked[i] = n;
}

static void *one(void *i)
{
    begun(wall_ns(), (long)i);
    return 0;
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 64;
    pthread_t t[MOST];
    uint64_t sum = 0, longest = 0;

    for_ns = (argc > 2 ? strtoull(argv[2], 0, 10) : 1000) * 1000000;
    if (threads < 1 || threads > MOST)
        return 2;
    for (long i = 0; i < threads; i++)
        if (pthread_create(&t[i], 0, one, (void *)i))
            return 1;
    for (long i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
        sum += held[i];
        longest = held[i] > longest ? held[i] : longest;
    }
    printf("calls_begun %ld\nheld_us_mean %.1f\nheld_us_longest %.1f\n", threads, (double)sum / 1e3 / (double)threads, (double)longest / 1e3);
    return worked[0] == 0;
}
