/* 5, 48: a probed handler on an alternate stack, at 1 kHz, over recursion that is probed as well; the
 * handler recurses, and sometimes leaves by siglongjmp. Its own work gives the same result whatever comes. */
#include "nasty.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static uint64_t n_ordinary, n_on_signal;
static sigjmp_buf away;
static volatile sig_atomic_t may_leave, signals;

PROBED long ordinary(long x, int depth)
{
    count(&n_ordinary);
    if (depth == 0)
        return x * 3 + 1;
    long y = ordinary(x + 1, depth - 1);
    KEEP(y);
    return y + 1;
}

PROBED long on_signal(int depth)
{
    count(&n_on_signal);
    if (depth == 0)
        return 0;
    long y = on_signal(depth - 1);
    KEEP(y);
    return y + 1;
}

static void handler(int signal)
{
    (void)signal;
    signals++;
    on_signal(8);
    if (may_leave && signals % 3 == 0) {
        may_leave = 0;
        siglongjmp(away, 1);
    }
}

int main(void)
{
    static char room[65536];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    volatile long wrong = 0;
    sigaltstack(&stack, NULL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (volatile long i = 0; i < 100000 || signals < 200; i++) {
        if (sigsetjmp(away, 1) == 0) {
            may_leave = i % 4 == 0;
            wrong += ordinary(i, (int)(i % 9)) != (i + i % 9) * 3 + 1 + i % 9;
        }
        may_leave = 0;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("wrong %ld\n", wrong);
    tell("ordinary", n_ordinary, "lost");
    tell("on_signal", n_on_signal, "lost");
}
