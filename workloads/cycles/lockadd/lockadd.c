/* Two threads add to one counter with a locked instruction, and, taking turns with that, each to one of its own.
 * Few cheap instructions stand around. */
#include "../planted.h"
#include <pthread.h>

extern char *const shared_address, *const own_address;

static struct {
    uint64_t value;
    char rest[248];
} counters[3] __attribute__((aligned(256)));

#define LOOP(name, counter) \
    __asm__ volatile("1: add $3, %%r8\n" \
                     "3: lock addq $1, (%1)\n" \
                     "add $7, %%r9\n" \
                     "lea 1(%%r9), %%r10\n" \
                     "dec %0\n" \
                     "jne 1b\n" PLANT(name, "3b") \
                     : "+r"(rounds) \
                     : "r"(counter) \
                     : "r8", "r9", "r10", "memory", "cc")

static _Thread_local unsigned me;

NOINLINE void shared(uint64_t rounds) { LOOP(shared_address, &counters[2].value); }

NOINLINE void own(uint64_t rounds) { LOOP(own_address, &counters[me].value); }

static double seconds;

static void *other(void *unused)
{
    me = 1;
    uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9);
    while (wall_ns() < end) {
        shared(20000);
        own(20000);
    }
    return unused;
}

int main(int argc, char **argv)
{
    seconds = seconds_argument(argc, argv);
    pthread_t thread;
    if (pthread_create(&thread, NULL, other, NULL))
        abort();
    take_turns(seconds, shared, own, 20000);
    pthread_join(thread, NULL);
    TELL(shared_address);
    TELL(own_address);
    return 0;
}
