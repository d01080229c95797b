// K17: two threads take turns: ping (100 us), then the other's pong (200 us). Nobody ever runs beside the other, so
// ping: s/3, pong: 2s/3, less what a wake-up takes, which --scale tells. Turns are shorter than the time between two
// ticks of a profiler: what a thread earned over several turns must not be asked of the one it takes turns with.
#include "sync.hpp"

PART(ping, 100)
PART(pong, 200)

static Semaphore go{0}, back{0};
static int over;

static void *second(void *)
{
    for (;;) {
        go.take();
        if (__atomic_load_n(&over, __ATOMIC_ACQUIRE))
            return nullptr;
        RUN(pong);
        back.give();
    }
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    pthread_t other = spawn(second, nullptr);
    for (uint64_t round = 0; more(round); round++) {
        RUN(ping);
        go.give();
        back.take();
        progress();
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    go.give();
    pthread_join(other, nullptr);
    finish();
}
