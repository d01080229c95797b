/* K9: thread 1: p calls h for 8 ms, then does 2 ms more; thread 2: q calls h for 6 ms; barrier each round.
 * h as called by p: min(0.8 s, 0.4); by q: 0; h for both: 0.8 s. Parts `from_p` and `from_q` scale h by caller. */
#include "causal.h"

PART(h, 1000)
PART(rest, 2000)
NUMBER(from_p, 8)
NUMBER(from_q, 6)

static pthread_barrier_t meeting;
/* The last round; written by thread 1 before the meeting of that round, read by thread 2 after a meeting. */
static uint64_t last = UINT64_MAX;

/* The result is used, so that the call is no jump and the caller stays on the stack. */
NOINLINE uint64_t p(void) { return 1 + h((uint64_t)((double)h_part.steps * VALUE(from_p) * from_p_part.scale)); }
NOINLINE uint64_t q(void) { return 1 + h((uint64_t)((double)h_part.steps * VALUE(from_q) * from_q_part.scale)); }

static void *second(void *unused)
{
    for (uint64_t round = 0;; round++) {
        q();
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
        p();
        RUN(rest);
        if (!more(round + 1))
            __atomic_store_n(&last, round, __ATOMIC_RELEASE);
        pthread_barrier_wait(&meeting);
        progress();
    }
    pthread_join(other, NULL);
    finish();
}
