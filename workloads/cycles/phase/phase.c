/* Two functions take turns of exactly 100 microseconds: the classic trap for a fixed sampling
 * period, which falls into step with them and gives either of them everything. */
#include "../work.h"
#include <x86intrin.h>

static const double TURN_S = 100e-6;

NOINLINE void turn_a(uint64_t end)
{
    while (__rdtsc() < end)
        ;
}

NOINLINE void turn_b(uint64_t end)
{
    while (__rdtsc() < end)
        ;
    __asm__ volatile("nop");
}

/* Ticks of the time stamp counter per second, against the wall clock over 50 ms. */
static double calibrate(void)
{
    uint64_t wall = wall_ns(), ticks = __rdtsc(), now;
    while ((now = wall_ns()) - wall < 50000000)
        ;
    return (double)(__rdtsc() - ticks) * 1e9 / (double)(now - wall);
}

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    double hertz = calibrate();
    uint64_t turn = (uint64_t)(TURN_S * hertz);
    uint64_t pairs = (uint64_t)(seconds / (2 * TURN_S));
    uint64_t deadline = __rdtsc();
    for (uint64_t i = 0; i < pairs; i++) {
        turn_a(deadline += turn);
        turn_b(deadline += turn);
    }
    printf("share_turn_a 50\nshare_turn_b 50\nturn_us %.0f\n", TURN_S * 1e6);
}
