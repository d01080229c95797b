/* K6: f is active in a quarter of the time: phases of 50 rounds with f (6 ms) and g (4 ms), then of 150 rounds
 * with other (10 ms). While it runs f is worth 0.6 s, over the run 0.15 s. */
#include "causal.h"

PART(f, 6000)
PART(g, 4000)
PART(other, 10000)
NUMBER(phase, 50)

int main(int argc, char **argv)
{
    begin(argc, argv);
    uint64_t phase = (uint64_t)VALUE(phase);
    for (uint64_t round = 0; more(round); round++) {
        if (round % (4 * phase) < phase) {
            RUN(f);
            RUN(g);
        } else {
            RUN(other);
        }
        progress();
    }
    finish();
}
