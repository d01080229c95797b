/* 38, 44, 48: stacks looked at from inside: backtrace() called by probed functions and by a SIGPROF
 * handler that may interrupt a stub; frames of the profiler may appear, but this program's must all be
 * there, in order. A function that is reached only through a signal frame is probed too. */
#include "nasty.h"
#include <execinfo.h>
#include <signal.h>
#include <sys/time.h>

enum { DEPTH = 6, MOST = 64 };

static uint64_t n_outer, n_asker, n_handled;
static volatile sig_atomic_t broken, asked;

/* How often a return address lies in [start, start + bytes) in the stack of here. */
static int frames_in(void *start, size_t bytes)
{
    void *stack[MOST];
    int n = backtrace(stack, MOST), found = 0;
    for (int i = 0; i < n; i++)
        found += (char *)stack[i] > (char *)start && (char *)stack[i] <= (char *)start + bytes;
    return found;
}

PROBED long outer(int left);

PROBED int asker(void)
{
    count(&n_asker);
    /* `outer` is shorter than 256 bytes and aligned apart from its callees. */
    int found = frames_in((void *)outer, 256);
    KEEP(found);
    return found;
}

__attribute__((aligned(256))) PROBED long outer(int left)
{
    count(&n_outer);
    long y = left ? outer(left - 1) : asker();
    KEEP(y);
    return y;
}
__attribute__((aligned(256))) PROBED void behind_outer(void) {}

static volatile sig_atomic_t within;

PROBED void handled(void)
{
    count(&n_handled);
    void *stack[MOST];
    int n = backtrace(stack, MOST);
    /* The stack must go on behind the signal frame: handler, frame, and at least main and its callers. */
    if (within && n < 6)
        broken++;
    asked++;
}

static void on_profile(int signal)
{
    (void)signal;
    handled();
}

int main(void)
{
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    long wrong = 0;
    asker();
    signal(SIGPROF, on_profile);
    setitimer(ITIMER_PROF, &often, NULL);
    within = 1;
    for (int i = 0; i < 20000 || asked < 20; i++) {
        long found = outer(i % DEPTH);
        wrong += found != i % DEPTH + 1;
    }
    within = 0;
    setitimer(ITIMER_PROF, &never, NULL);
    printf("wrong %ld, broken %d\n", wrong, (int)broken);
    tell("outer", n_outer, "lost");
    tell("asker", n_asker, "lost");
    tell("handled", n_handled, "lost");
}
