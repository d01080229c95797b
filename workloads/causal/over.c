/* K10: more threads than cores: `threads` (6) independent ones, f 6 ms and g 4 ms each. f: 0.6 s; g: 0.4 s. */
#include "causal.h"

PART(f, 6000)
PART(g, 4000)
NUMBER(threads, 6)

static void *work(void *unused)
{
    for (uint64_t round = 0; more(round); round++) {
        RUN(f);
        RUN(g);
        progress();
    }
    return unused;
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    pthread_t threads[64];
    int n = (int)VALUE(threads);
    MUST(n >= 1 && n <= 64);
    for (int i = 0; i < n; i++)
        threads[i] = spawn(work, NULL);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    finish();
}
