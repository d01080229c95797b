/* K22: one thread writes (2 ms), then two read at the same time, `scan` (2 ms) and `look` (1.2 ms), and the writer
 * waits for the later one: both are let in by one wake-up, and whichever leaves last lets the writer in. Never more
 * than two of the three run.
 *
 *     write_all: 0.5 s; scan: min(0.5 s, 0.2), knee at 40 %; look: 0
 *
 * Three read-write locks by turns, since with one a reader would come again before the writer has asked for it, now and
 * then. In round k the writer has `at(k)` and `at(k + 1)`, and the readers have `at(k + 2)`, so none of them can overtake. */
#include "causal.h"

PART(write_all, 2000)
PART(scan, 2000)
PART(look, 1200)

static pthread_rwlock_t locks[3] = {PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER};
static volatile int over;
static pthread_barrier_t ready;

static pthread_rwlock_t *at(uint64_t round)
{
    return &locks[round % 3];
}

static void *reader(void *is_first)
{
    pthread_rwlock_rdlock(at(2));
    pthread_barrier_wait(&ready);
    for (uint64_t round = 0;; round++) {
        pthread_rwlock_rdlock(at(round));
        if (over)
            return NULL;
        if (is_first)
            RUN(scan);
        else
            RUN(look);
        pthread_rwlock_unlock(at(round + 2));
    }
}

int main(int argc, char **argv)
{
    pthread_t a, b;
    uint64_t round = 0;

    begin(argc, argv);
    MUST(pthread_barrier_init(&ready, NULL, 3) == 0);
    pthread_rwlock_wrlock(at(0));
    pthread_rwlock_wrlock(at(1));
    a = spawn(reader, &ready);
    b = spawn(reader, NULL);
    pthread_barrier_wait(&ready);
    for (; more(round); round++) {
        RUN(write_all);
        progress();
        pthread_rwlock_unlock(at(round));
        pthread_rwlock_wrlock(at(round + 2));
    }
    over = 1;
    pthread_rwlock_unlock(at(round));
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    finish();
}
