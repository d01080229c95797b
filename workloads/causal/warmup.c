/* K15: y matters only in the first half of the run, x only in the second; a round is one of them (6 ms) and
 * z (4 ms). Half of the local effect each: x 0.3 s, y 0.3 s; z 0.4 s. */
#include "causal.h"

PART(x, 6000)
PART(y, 6000)
PART(z, 4000)

int main(int argc, char **argv)
{
    begin(argc, argv);
    /* The halves are halves of the work, whatever time it takes. */
    uint64_t rounds = the_run.rounds ? the_run.rounds : (uint64_t)(the_run.seconds * 100.0);
    for (uint64_t round = 0; round < rounds; round++) {
        if (2 * round < rounds)
            RUN(y);
        else
            RUN(x);
        RUN(z);
        progress();
    }
    finish();
}
