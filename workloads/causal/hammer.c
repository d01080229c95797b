/* K7: a holder works on the cache line of a lock that a second thread hammers with try-lock after having
 * thought. The faster it thinks, the more it hammers, and the slower is the holder, whose rounds are the progress:
 * think has a negative slope. The size is the machine's: measure it with --scale think=X. */
#include "causal.h"

/* The lock, and what it protects beside it, as in many programs. */
static struct {
    uint64_t lock, data;
} shared __attribute__((aligned(64)));

PART(think, 5000)
/* Steps of `hold` and `knock` each change the shared line; their cost is that of the line when nobody else wants it. */
REGISTER(hold, 5000, 5.0)
REGISTER(knock, 5000, 5.0)
static volatile int stop;

NOINLINE void hold(uint64_t steps) { for (uint64_t i = 0; i < steps; i++) __atomic_fetch_add(&shared.data, i, __ATOMIC_SEQ_CST); }
NOINLINE void knock(uint64_t steps) { for (uint64_t i = 0; i < steps; i++) __atomic_exchange_n(&shared.lock, 1, __ATOMIC_SEQ_CST); }

static void *hammer(void *unused)
{
    while (!stop) {
        RUN(think);
        RUN(knock);
    }
    return unused;
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    pthread_t other = spawn(hammer, NULL);
    shared.lock = 1;
    for (uint64_t round = 0; more(round); round++) {
        RUN(hold);
        progress();
    }
    stop = 1;
    pthread_join(other, NULL);
    finish();
}
