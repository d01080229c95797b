/* 37, 47: threads that sit inside probed functions while probes come and go.
 *   inside read   3 threads block in read() of a pipe, two calls deep in functions that are to be probed
 *   inside load   one thread is inside a library's constructor and holds the loader's lock, main is in read()
 * Prints `ready`, then a line on stdin lets everyone go on; each function is then called some more. */
#include "nasty.h"
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>

static uint64_t n_sleeper, n_holder, n_later;
static int gate[2];

PROBED long later(long x)
{
    count(&n_later);
    return x + 4;
}

PROBED long sleeper(long x)
{
    char byte = 0;
    count(&n_sleeper);
    /* read() returns to here whatever has happened to the code meanwhile. */
    if (x >= 0 && read(gate[0], &byte, 1) != 1)
        return -1;
    return later(x) + byte;
}

PROBED long holder(long x)
{
    count(&n_holder);
    long y = sleeper(x);
    KEEP(y);
    return y * 2;
}

static void *body(void *x)
{
    long sum = holder((long)(intptr_t)x);
    for (int i = 0; i < 1000; i++)
        sum += holder(-2);
    return (void *)(intptr_t)sum;
}

static void *load(void *path)
{
    /* Its constructor calls back into `waiting` below. */
    return dlopen(path, RTLD_NOW) ? (void *)7 : NULL;
}

/* Called by the constructor of nasty-holds.so. */
__attribute__((visibility("default"))) void waiting(void) { holder(0); }

int main(int argc, char **argv)
{
    char path[PATH_MAX], folder[PATH_MAX - 32], line[16];
    long sum = 0, threads = argc > 1 && !strcmp(argv[1], "load") ? 1 : 3;
    pthread_t all[3];
    if (pipe(gate))
        return 1;
    snprintf(folder, sizeof folder, "%s", argv[0]);
    snprintf(path, sizeof path, "%s/nasty-holds.so", dirname(folder));
    for (long i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, threads == 1 ? load : body, threads == 1 ? (void *)path : (void *)(intptr_t)i);
    while (__atomic_load_n(&n_sleeper, __ATOMIC_RELAXED) < (uint64_t)threads)
        usleep(1000);
    printf("ready\n");
    fflush(stdout);
    if (read(0, line, sizeof line) <= 0)
        return 2;
    if (write(gate[1], "abc", (size_t)threads) != threads)
        return 1;
    for (long i = 0; i < threads; i++) {
        void *result;
        pthread_join(all[i], &result);
        sum += (long)(intptr_t)result;
    }
    for (long i = 0; i < 1000; i++)
        sum += holder(-3);
    printf("%ld\n", sum);
    tell("sleeper", n_sleeper, "exact");
    tell("holder", n_holder, "exact");
    tell("later", n_later, "exact");
}
