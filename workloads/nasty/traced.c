/* 29: a process that is traced already. The parent traces its child, prints the child's pid and lets
 * it work until a line arrives on stdin: attaching to the child must be refused, and nothing else happen. */
#include "nasty.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static volatile sig_atomic_t over;

PROBED long followed(long x) { return x * 3 + 1; }

static void stop(int signal)
{
    (void)signal;
    over = 1;
}

static int child(void)
{
    long sum = 0;
    signal(SIGUSR1, stop);
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    while (!over)
        sum += followed(sum);
    return 9;
}

int main(void)
{
    int status;
    char byte;
    pid_t pid = fork();
    if (pid == 0)
        return child();
    waitpid(pid, &status, 0);
    ptrace(PTRACE_CONT, pid, 0, 0);
    printf("%d\n", pid);
    fflush(stdout);
    while (read(0, &byte, 1) == 1 && byte != '\n')
        ;
    kill(pid, SIGUSR1);
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status))
        ptrace(PTRACE_CONT, pid, 0, (void *)(intptr_t)WSTOPSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
