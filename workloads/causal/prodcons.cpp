// K3: one thread produces (1 ms), one consumes (0.6 ms), a queue of 16 between them; built over each means of
// waiting (sync.hpp). produce: min(s, 0.4); consume: 0. `--set produce=50 --set consume=30` is K11 (bursts shorter
// than any sampling period). Mode "fork": the producer is a process of its own, K14 (pipe, eventfd, socket, sem).
#include "sync.hpp"
#include <new>
#include <sys/wait.h>

PART(produce, 1000)
PART(consume, 600)

static Queue *queue;

// An entry of 0 is the end.
static void *producer(void *)
{
    for (uint64_t made = 0; more(made); made++) {
        RUN(produce);
        queue->put(made + 1);
    }
    queue->put(0);
    return nullptr;
}

static void consumer()
{
    while (queue->get() != 0) {
        RUN(consume);
        progress();
    }
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    void *memory = mmap(nullptr, sizeof(Queue), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    queue = new (memory) Queue;
    if (mode_is("fork")) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            stay();
            producer(nullptr);
            _exit(0);
        }
        consumer();
        waitpid(child, nullptr, 0);
    } else {
        pthread_t other = spawn(producer, nullptr);
        consumer();
        pthread_join(other, nullptr);
    }
    finish();
}
