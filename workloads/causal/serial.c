/* K1: one thread, f 6 ms and g 4 ms by turns. f: 0.6 s; g: 0.4 s. */
#include "causal.h"

PART(f, 6000)
PART(g, 4000)

int main(int argc, char **argv)
{
    begin(argc, argv);
    for (uint64_t round = 0; more(round); round++) {
        RUN(f);
        RUN(g);
        progress();
    }
    finish();
}
