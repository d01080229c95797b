/* Eight threads call `toggled` and `steady` without pause while probes come and go. Every result is checked:
 * `ready` when they run, `wrong 0` at the end; `calls_steady` is exact, `calls_toggled` is the upper bound.
 *   toggle [SECONDS] [THREADS]; a line on stdin ends it early */
#include "../cycles/work.h"
#include "../nasty/nasty.h"
#include <poll.h>
#include <pthread.h>

enum { MOST = 64 };

static volatile int over;
static struct share {
    uint64_t toggled, steady, wrong, pad[5];
} shares[MOST];

PROBED uint64_t toggled(uint64_t x, uint64_t y) { return x * 3 + (y ^ 0x55); }
PROBED uint64_t steady(uint64_t x, uint64_t y)
{
    uint64_t z = toggled(x, y);
    KEEP(z);
    return z + 1;
}

static void *body(void *argument)
{
    struct share *share = argument;
    for (uint64_t i = 0; !over; i++) {
        share->wrong += toggled(i, i + 1) != i * 3 + ((i + 1) ^ 0x55);
        share->toggled++;
        if (i % 4 == 0) {
            share->wrong += steady(i, i) != i * 3 + (i ^ 0x55) + 1;
            share->toggled++;
            share->steady++;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc > 2 ? 2 : argc, argv);
    int threads = argc > 2 ? atoi(argv[2]) : 8;
    pthread_t ids[MOST];
    struct share sum = {0};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    if (threads < 1 || threads > MOST)
        return 2;
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, body, &shares[i]);
    printf("ready\n");
    fflush(stdout);
    poll(isatty(0) ? NULL : &input, isatty(0) ? 0 : 1, (int)(seconds * 1000));
    over = 1;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum.toggled += shares[i].toggled;
        sum.steady += shares[i].steady;
        sum.wrong += shares[i].wrong;
    }
    printf("wrong %" PRIu64 "\ncalls_toggled %" PRIu64 "\ncalls_steady %" PRIu64 "\n", sum.wrong, sum.toggled, sum.steady);
    tell("toggled", sum.toggled, "exact");
    tell("steady", sum.steady, "exact");
    return sum.wrong != 0;
}
