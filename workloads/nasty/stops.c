/* 36: stops and continues, 40 times, by SIGSTOP and SIGTSTP of a child that stands for the shell. A
 * profiler that swallows one of them hangs the program; stops the parent must see are counted. */
#include "nasty.h"
#include <signal.h>
#include <sys/wait.h>

enum { STOPS = 40 };

static uint64_t n_between;
static volatile sig_atomic_t continued;

PROBED long between(long x)
{
    count(&n_between);
    return x * 5 + 3;
}

static void on_continue(int signal)
{
    (void)signal;
    continued++;
}

static int worker(void)
{
    long sum = 0;
    signal(SIGCONT, on_continue);
    for (int i = 0; i < STOPS; i++) {
        for (int k = 0; k < 100; k++)
            sum += between(k);
        raise(i % 2 ? SIGSTOP : SIGTSTP);
    }
    printf("%ld, continued %d\n", sum, (int)continued);
    fflush(stdout);
    tell("between", n_between, "exact");
    return 0;
}

int main(void)
{
    int seen = 0, status;
    pid_t pid = fork();
    if (pid == 0) {
        /* A group of its own with a parent in the session: SIGTSTP stops it for sure. */
        setpgid(0, 0);
        return worker();
    }
    while (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status)) {
        seen++;
        kill(pid, SIGCONT);
    }
    printf("stops %d, status %d\n", seen, status);
}
