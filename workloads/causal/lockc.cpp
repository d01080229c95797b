// K4: `threads` threads, each a critical section (1 ms) under one lock and a private one (2 ms); built over each
// means of waiting (sync.hpp). With two threads on two cores: critical s/3, private min(2s/3, 1/3); the same with
// four, as far as the lock and two cores are fair; --scale gives what they really are.
#include "sync.hpp"

PART(critical, 1000)
PART(apart, 2000)
NUMBER(threads, 2)

static Lock lock;

static void *work(void *)
{
    for (uint64_t round = 0; more(round); round++) {
        lock.lock();
        RUN(critical);
        lock.unlock();
        RUN(apart);
        progress();
    }
    return nullptr;
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    pthread_t threads[64];
    int n = static_cast<int>(VALUE(threads));
    MUST(n >= 1 && n <= 64);
    for (int i = 0; i < n; i++)
        threads[i] = spawn(work, nullptr);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], nullptr);
    finish();
}
