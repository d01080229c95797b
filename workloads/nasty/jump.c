/* 3: longjmp over 1 to 40 probed frames, siglongjmp out of a signal handler that interrupted probed
 * functions, and calls made at the same depth right after the jump. */
#include "nasty.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static uint64_t n_leaf, n_jumper, n_victim, n_after;
static jmp_buf back;
static sigjmp_buf out;

PROBED int leaf(int x)
{
    count(&n_leaf);
    return x * 3 + 1;
}

PROBED int jumper(int depth)
{
    count(&n_jumper);
    if (depth == 0)
        longjmp(back, leaf(2));
    int y = jumper(depth - 1);
    KEEP(y);
    return y + leaf(y);
}

PROBED int after(int x)
{
    count(&n_after);
    int y = leaf(x);
    KEEP(y);
    return y + 1;
}

static void handler(int signal)
{
    (void)signal;
    siglongjmp(out, 1);
}

/* Runs until a signal jumps out of it. */
PROBED int victim(int depth)
{
    count(&n_victim);
    if (depth > 0) {
        int y = victim(depth - 1);
        KEEP(y);
        return y;
    }
    for (;;)
        pause();
}

int main(void)
{
    volatile long sum = 0;
    for (volatile int i = 0; i < 2000; i++) {
        int came = setjmp(back);
        if (came == 0)
            sum += jumper(i % 41);
        else
            sum += came + after(i);
    }
    signal(SIGALRM, handler);
    for (volatile int i = 0; i < 100; i++) {
        if (sigsetjmp(out, 1) == 0) {
            struct itimerval soon = {.it_value = {.tv_usec = 1000}, .it_interval = {.tv_usec = 1000}};
            setitimer(ITIMER_REAL, &soon, NULL);
            sum += victim(i % 7);
        }
        struct itimerval never = {0};
        setitimer(ITIMER_REAL, &never, NULL);
        sum += after(i);
    }
    printf("%ld\n", sum);
    tell("leaf", n_leaf, "exact");
    tell("jumper", n_jumper, "exact");
    tell("after", n_after, "exact");
    tell("victim", n_victim, "lost");
}
