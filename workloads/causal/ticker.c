/* K13: 5 ms of work every 10 ms by an absolute timer: work gains nothing, the rate is fixed by the timer.
 * Mode "relative": the same work, then a sleep of 5 ms: 0.5 s. */
#include "causal.h"

PART(work, 5000)
NUMBER(interval, 10000)
WAIT_PART(nap, 5000)

int main(int argc, char **argv)
{
    begin(argc, argv);
    uint64_t due = wall_ns();
    for (uint64_t round = 0; more(round); round++) {
        RUN(work);
        due += (uint64_t)(VALUE(interval) * 1000.0);
        if (mode_is("relative"))
            nap_ns(nap_part.steps);
        else
            sleep_until(due);
        progress();
    }
    finish();
}
