/* The same fixed work in two speeds: with `--slower`, `suspect`, which takes about 2 % of the time,
 * takes 5 % longer. A difference of profiles must find it and nothing else. */
#include "../work.h"
#include <string.h>

SPINNER(bulk_one, 0x9e3779b97f4a7c15u)
SPINNER(bulk_two, 0xbf58476d1ce4e5b9u)
SPINNER(suspect, 0x94d049bb133111ebu)

/* Rounds of one turn; about 1 ms at 4 cycles a round and 4 GHz, so SECONDS is nominal. */
enum { TURN = 1000000, SUSPECT = TURN / 50 };

int main(int argc, char **argv)
{
    int slower = argc > 2 && strcmp(argv[2], "--slower") == 0;
    uint64_t turns = (uint64_t)(seconds_argument(argc, argv) * 1000);
    uint64_t rounds = slower ? SUSPECT + SUSPECT / 20 : SUSPECT;
    uint64_t begin = cpu_ns();
    for (uint64_t i = 0; i < turns; i++) {
        bulk_one(TURN / 2);
        suspect(rounds);
        bulk_two(TURN / 2 - SUSPECT);
    }
    double cpu_s = (double)(cpu_ns() - begin) * 1e-9;
    printf("share_suspect %.3f\nsuspect_rounds %" PRIu64 "\nturns %" PRIu64 "\ncpu_s %.3f\n",
           100.0 * (double)rounds / (double)(TURN - SUSPECT + rounds), rounds * turns, turns, cpu_s);
}
