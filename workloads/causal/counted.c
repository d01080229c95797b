/* K25: K1 with marks of Coz: one thread, f 7 ms and g 3 ms by turns. f: 0.7 s; g: 0.3 s. What it finds in its environment
 * and among its descriptors is told at the end.
 *
 * The marks are written here, from what Coz documents of its own: each looks for a function `_coz_get_counter` when it is first
 * reached, asks it for a counter of a kind and name, and adds 1 to the counter's first word from then on. */
#include "causal.h"
#include <dlfcn.h>
#include <fcntl.h>

enum kind { PROGRESS = 1, BEGIN = 2, END = 3 };

/* A counter of Coz: the count, and a word that nobody uses. */
struct counter {
    size_t count, backoff;
};

static struct counter *ask(enum kind kind, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, "_coz_get_counter");
    struct counter *(*get)(int, const char *);
    memcpy(&get, &found, sizeof get);
    return get ? get(kind, name) : NULL;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define COUNTED(kind, name) \
    do { \
        static int asked; \
        static struct counter *counter; \
        if (!asked) \
            counter = ask(kind, name); \
        asked = 1; \
        if (counter) \
            __atomic_add_fetch(&counter->count, 1, __ATOMIC_RELAXED); \
    } while (0)

PART(f, 7000)
PART(g, 3000)

static uint64_t descriptors(void)
{
    uint64_t n = 0;
    for (int fd = 3; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

int main(int argc, char **argv)
{
    const char *preloaded = getenv("LD_PRELOAD");
    uint64_t open = descriptors();
    begin(argc, argv);
    for (uint64_t round = 0; more(round); round++) {
        COUNTED(BEGIN, "serve");
        RUN(f);
        COUNTED(END, "serve");
        RUN(g);
        COUNTED(PROGRESS, "served");
        COUNTED(PROGRESS, __FILE__ ":" TEXT(__LINE__)); /* unnamed */
        progress();
    }
    finish();
    printf("preloaded %s\nopen %" PRIu64 "\n", preloaded ? preloaded : "nothing", open);
}
