/* A plug-in host: loads one of two libraries, has it work, unloads it, again and again. Both come to lie at the same
 * addresses, so what was sampled there belongs to the one or the other by time alone. */
#include "../work.h"

#include <dlfcn.h>
#include <libgen.h>
#include <string.h>

typedef uint64_t work(uint64_t);

static const char *const NAMES[] = {"left", "right"};

/* Loads plug-in `which` from beside the program, has it work so many rounds, unloads it; where its code was. */
static void *visit(const char *beside, int which, uint64_t rounds)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/swap-%s.so", beside, NAMES[which]);
    void *library = dlopen(path, RTLD_NOW);
    work *run = library ? (work *)dlsym(library, NAMES[which]) : NULL;
    if (!run) {
        fprintf(stderr, "swap: %s\n", dlerror());
        exit(2);
    }
    run(rounds);
    dlclose(library);
    return (void *)run;
}

static uint64_t rate(uint64_t rounds) { return spin(rounds, 3); }

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9), spent = 0, done[2] = {0};
    uint64_t turn = rounds_per_ms(rate) * 20;
    const char *beside = dirname(strdup(argv[0]));
    void *where[2] = {0};
    int same = 1;
    for (int i = 0; spent < length; i++) {
        int which = i % 3 == 2;
        uint64_t start = cpu_ns();
        void *at = visit(beside, which, turn);
        spent += cpu_ns() - start;
        done[which] += turn;
        same &= !where[which] || where[which] == at;
        where[which] = at;
    }
    for (int i = 0; i < 2; i++)
        printf("share_%s %.2f\n", NAMES[i], 100.0 * (double)done[i] / (double)(done[0] + done[1]));
    printf("same_place %d\n", same && where[0] == where[1]);
    printf("cpu_s %.3f\n", (double)spent * 1e-9);
}
