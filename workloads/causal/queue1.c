/* K8: requests arrive by the clock, one server serves them: arrivals fix the rate, latency is the result.
 * Every 10 ms (mode "md1": exponential times of that mean), service c = 5 ms, load r = 0.5. With c' = c(1-s) and
 * r' = r(1-s): D/D/1 W = c'; M/D/1 W = c'(1 + r'/(2(1-r'))). The mean latency is printed. */
#include "causal.h"
#include <math.h>
#include <semaphore.h>

PART(serve, 5000)
NUMBER(interval, 10000)
enum { SLOTS = 4096 };

static uint64_t arrived[SLOTS];
static uint64_t arrivals;
static volatile int closed;
static sem_t waiting;

/* A request comes in. */
NOINLINE void arrive(uint64_t now)
{
    WHITHER_BEGIN("request");
    arrived[arrivals++ % SLOTS] = now;
}

static void *clockwork(void *unused)
{
    uint64_t random = 88172645463325252u, due = wall_ns();
    for (uint64_t n = 0; more(n); n++) {
        double mean = VALUE(interval) * 1000.0, part = (double)(next_random(&random) >> 11) / 9007199254740992.0;
        due += (uint64_t)(mode_is("md1") ? -log(1.0 - part) * mean : mean);
        sleep_until(due);
        arrive(wall_ns());
        sem_post(&waiting);
    }
    closed = 1;
    sem_post(&waiting);
    return unused;
}

/* A request is done. */
NOINLINE uint64_t depart(uint64_t request)
{
    WHITHER_END("request");
    return wall_ns() - arrived[request % SLOTS];
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    sem_init(&waiting, 0, 0);
    pthread_t clock = spawn(clockwork, NULL);
    uint64_t latency = 0, served = 0;
    for (;; served++) {
        while (sem_wait(&waiting) != 0)
            MUST(errno == EINTR);
        if (closed && served == arrivals)
            break;
        RUN(serve);
        latency += depart(served);
        progress();
    }
    pthread_join(clock, NULL);
    finish();
    printf("latency_ns %.0f\n", served ? (double)latency / (double)served : 0.0);
}
