/* K12: thread 1 sleeps 10 ms, thread 2 computes 7.5 ms, both meet at a barrier each round.
 * The wait: min(s, 0.25); compute: 0. */
#include "causal.h"

WAIT_PART(nap, 10000)
PART(compute, 7500)

static pthread_barrier_t meeting;
/* The last round; written by thread 1 before the meeting of that round, read by thread 2 after a meeting. */
static uint64_t last = UINT64_MAX;

static void *second(void *unused)
{
    for (uint64_t round = 0;; round++) {
        RUN(compute);
        pthread_barrier_wait(&meeting);
        if (__atomic_load_n(&last, __ATOMIC_ACQUIRE) == round)
            return unused;
    }
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    pthread_barrier_init(&meeting, NULL, 2);
    pthread_t other = spawn(second, NULL);
    for (uint64_t round = 0; last == UINT64_MAX; round++) {
        nap_ns(nap_part.steps);
        if (!more(round + 1))
            __atomic_store_n(&last, round, __ATOMIC_RELEASE);
        pthread_barrier_wait(&meeting);
        progress();
    }
    pthread_join(other, NULL);
    finish();
}
