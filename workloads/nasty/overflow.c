/* 60: recursion until the first thread's stack is full, caught by a handler that takes nothing but the program's own code for the
 * cause, as OCaml's does; then again. Whoever runs code of his own in front of a function must leave the last steps alone. */
#define _GNU_SOURCE
#include "nasty.h"
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

enum { TIMES = 3, DEEP = 1 << 20 };

extern char __executable_start, etext;
static uint64_t n_down;
static sigjmp_buf back;
static volatile int foreign;

/* Counts when it is back, too, which only shallow calls are. */
PROBED long down(long depth)
{
    count(&n_down);
    if (depth == 0)
        return 1;
    long sum = down(depth - 1);
    KEEP(sum);
    return sum + depth;
}

static void fault(int signal, siginfo_t *info, void *context)
{
    char *at = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    (void)signal, (void)info;
    if (at < &__executable_start || at >= &etext)
        foreign++;
    siglongjmp(back, 1);
}

int main(void)
{
    static char other[64 << 10];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    volatile int caught = 0;
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &action, NULL);
    for (volatile int i = 0; i < TIMES; i++) {
        if (sigsetjmp(back, 1) == 0)
            down(DEEP);
        else
            caught++;
    }
    printf("caught %d, foreign %d, %ld\n", caught, foreign, down(10));
    tell("down", n_down, "lost");
}
