/* 6, 7, 41: coroutines by swapcontext, parked inside probed functions.
 *   coroutine local     600 coroutines on malloc stacks, freed and reused, some never finished
 *   coroutine threads   a coroutine is resumed by another thread than the one that parked it
 *   coroutine brk       stacks on the heap of a non-PIE program (below 16 TiB): build coroutine-nopie */
#include "nasty.h"
#include <malloc.h>
#include <pthread.h>
#include <ucontext.h>

enum { STACK = 64 * 1024, LIVE = 6 };

static uint64_t n_step, n_park, n_inner;

struct coroutine {
    ucontext_t self, caller;
    char *stack;
    long value;
    int done;
};

PROBED long inner(long x)
{
    count(&n_inner);
    return x * 31 + 7;
}

PROBED long park(struct coroutine *c, long x)
{
    count(&n_park);
    c->value = inner(x);
    swapcontext(&c->self, &c->caller);
    return inner(c->value);
}

PROBED long step(struct coroutine *c, int depth, long x)
{
    count(&n_step);
    long y = depth > 0 ? step(c, depth - 1, x + 1) : park(c, x);
    KEEP(y);
    return y + park(c, y);
}

static void body(unsigned low, unsigned high)
{
    struct coroutine *c = (struct coroutine *)(((uintptr_t)high << 32) | low);
    c->value = step(c, 3, c->value);
    c->done = 1;
    swapcontext(&c->self, &c->caller);
    abort();
}

static void begin(struct coroutine *c, long value)
{
    memset(c, 0, sizeof *c);
    c->stack = malloc(STACK);
    c->value = value;
    getcontext(&c->self);
    c->self.uc_stack.ss_sp = c->stack;
    c->self.uc_stack.ss_size = STACK;
    makecontext(&c->self, (void (*)(void))body, 2, (unsigned)(uintptr_t)c, (unsigned)((uintptr_t)c >> 32));
}

static void proceed(struct coroutine *c) { swapcontext(&c->caller, &c->self); }

static long local(void)
{
    static struct coroutine all[LIVE];
    long sum = 0;
    for (int i = 0; i < LIVE; i++)
        begin(&all[i], i);
    for (int round = 0; round < 1500; round++) {
        struct coroutine *c = &all[(round * 5) % LIVE];
        proceed(c);
        sum += c->value & 0xffff;
        /* Finished, or dropped while parked inside probed calls: its stack is used again. */
        if (c->done || round % 13 == 12) {
            free(c->stack);
            begin(c, round);
        }
    }
    for (int i = 0; i < LIVE; i++)
        free(all[i].stack);
    return sum;
}

static struct coroutine shared;
static pthread_barrier_t turn;

static void *even(void *unused)
{
    for (int i = 0; i < 400; i++) {
        pthread_barrier_wait(&turn);
        if (i % 2 == 0 && !shared.done)
            proceed(&shared);
    }
    return unused;
}

static long threads(void)
{
    long sum = 0;
    pthread_t other;
    pthread_barrier_init(&turn, NULL, 2);
    begin(&shared, 1);
    pthread_create(&other, NULL, even, NULL);
    for (int i = 0; i < 400; i++) {
        pthread_barrier_wait(&turn);
        if (i % 2) {
            if (!shared.done)
                proceed(&shared);
            sum += shared.value & 0xffff;
            if (shared.done) {
                free(shared.stack);
                begin(&shared, i);
            }
        }
    }
    pthread_join(other, NULL);
    return sum;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "local";
    if (!strcmp(mode, "brk")) {
        /* All of malloc on the heap, and the heap where the kernel puts it for this kind of program. */
        mallopt(M_MMAP_MAX, 0);
        char *probe = malloc(STACK);
        printf("below 16 TiB: %s\n", (uintptr_t)probe < (1ul << 44) ? "yes" : "no");
        free(probe);
    }
    printf("%ld\n", strcmp(mode, "threads") ? local() : threads());
    const char *expectation = strcmp(mode, "threads") ? "exact" : "moved";
    tell("step", n_step, expectation);
    tell("park", n_park, expectation);
    tell("inner", n_inner, expectation);
}
