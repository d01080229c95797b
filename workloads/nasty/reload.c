/* 10: a library with probed functions is loaded and unloaded 20 times; in between another one takes
 * its addresses. The second argument-less build of the plug-in has the same function elsewhere. */
#include "nasty.h"
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

static uint64_t n_plugin_work, n_stay;

PROBED long stay(long x)
{
    count(&n_stay);
    return x + 2;
}

int main(int argc, char **argv)
{
    (void)argc;
    char folder[PATH_MAX], path[PATH_MAX + 32];
    snprintf(folder, sizeof folder, "%s", argv[0]);
    dirname(folder);
    long sum = 0;
    for (int i = 0; i < 20; i++) {
        snprintf(path, sizeof path, "%s/nasty-plugin-%s.so", folder, i % 2 ? "b" : "a");
        void *library = dlopen(path, RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        long (*work)(long) = (long (*)(long))dlsym(library, "plugin_work");
        for (int k = 0; k < 100; k++) {
            sum += work(k) + stay(k);
            n_plugin_work++;
        }
        dlclose(library);
    }
    printf("%ld\n", sum);
    tell("stay", n_stay, "exact");
    tell("plugin_work", n_plugin_work, "exact");
}
