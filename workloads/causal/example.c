/* K0: the paper's Figure 1. Two threads of 6.7 and 6.4 s, joined; the run as a whole is the measure.
 * a: min(s, 0.045); b: 0. `--set tenths=1` makes it ten times shorter. */
#include "causal.h"

PART(a, 670000)
PART(b, 640000)
NUMBER(tenths, 10)

static void *run_a(void *unused)
{
    for (int i = 0; i < (int)VALUE(tenths); i++)
        RUN(a);
    return unused;
}

static void *run_b(void *unused)
{
    for (int i = 0; i < (int)VALUE(tenths); i++)
        RUN(b);
    return unused;
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    uint64_t start = wall_ns();
    pthread_t threads[] = {spawn(run_a, NULL), spawn(run_b, NULL)};
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    progress();
    first_ns = start;
    visits++;
    finish();
}
