// K2: thread 1 computes a (10 ms), thread 2 b (7.5 ms), both meet at a barrier each round.
// a: min(s, 0.25); b: 0. The barrier is pthread's, C++20's, or two latches (-DSYNC_name).
#include "causal.h"

#if defined(SYNC_barrier)
#include <barrier>
static std::barrier<> meeting(2);
static void meet(uint64_t) { meeting.arrive_and_wait(); }
#elif defined(SYNC_latch)
#include <latch>
#include <new>
// A latch works once: each round has its own.
enum { MOST = 1 << 18 };
static std::latch *latches;
__attribute__((constructor)) static void make()
{
    latches = static_cast<std::latch *>(malloc(MOST * sizeof(std::latch)));
    for (int i = 0; i < MOST; i++)
        new (&latches[i]) std::latch(2);
}
static void meet(uint64_t round)
{
    MUST(round < MOST);
    latches[round].arrive_and_wait();
}
#else
static pthread_barrier_t meeting;
static void meet(uint64_t) { pthread_barrier_wait(&meeting); }
__attribute__((constructor)) static void make() { pthread_barrier_init(&meeting, nullptr, 2); }
#endif

PART(a, 10000)
PART(b, 7500)

// The last round; written by thread 1 before the meeting of that round, read by thread 2 after a meeting.
static uint64_t last = UINT64_MAX;

static void *second(void *)
{
    for (uint64_t round = 0;; round++) {
        RUN(b);
        meet(round);
        if (__atomic_load_n(&last, __ATOMIC_ACQUIRE) == round)
            return nullptr;
    }
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    pthread_t other = spawn(second, nullptr);
    for (uint64_t round = 0; last == UINT64_MAX; round++) {
        RUN(a);
        if (!more(round + 1))
            __atomic_store_n(&last, round, __ATOMIC_RELEASE);
        meet(round);
        progress();
    }
    pthread_join(other, nullptr);
    finish();
}
