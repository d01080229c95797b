/* A probed handler at 3 kHz over probed code that never pauses: counted calls and calls admitted as lost
 * are together the truth, and lost are at most 1 in 10 000.
 *   signals [SECONDS] */
#include "../cycles/work.h"
#include "../nasty/nasty.h"
#include <signal.h>
#include <sys/time.h>

static uint64_t n_steadily, n_on_tick;

/* About 50 ns of work. */
PROBED uint64_t steadily(uint64_t x)
{
    n_steadily++;
    uint64_t y = spin(45, x);
    KEEP(y);
    return x * 5 + 1;
}

PROBED uint64_t on_tick(uint64_t x)
{
    n_on_tick++;
    uint64_t y = x * 3;
    KEEP(y);
    return y;
}

static void handler(int signal) { on_tick((uint64_t)signal); }

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9), begin = wall_ns(), wrong = 0;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 333}, {0, 333}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (wall_ns() - begin < length)
        for (uint64_t i = 0; i < 1000; i++)
            wrong += steadily(i) != i * 5 + 1;
    setitimer(ITIMER_REAL, &never, NULL);
    printf("wrong %" PRIu64 "\n", wrong);
    tell("steadily", n_steadily, "lost");
    tell("on_tick", n_on_tick, "lost");
    return wrong != 0;
}
