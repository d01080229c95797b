/* 8: ways to make a process, with probed functions on both sides.
 *   family fork    a storm of 60 forks, some nested
 *   family vfork   vfork + exec and vfork + _exit
 *   family spawn   posix_spawn, whose child runs probed code of this program again
 *   family clone   clone(CLONE_VM) without CLONE_THREAD: another process in the same memory */
#define _GNU_SOURCE
#include "nasty.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static uint64_t n_work, n_borrowed;

PROBED long work(long x)
{
    count(&n_work);
    return x * 17 + 3;
}

PROBED long borrowed(long x)
{
    count(&n_borrowed);
    return x + 1;
}

static int reap(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Leaves a child of fork; what it did before the fork is the parent's to tell. */
static void leave(uint64_t inherited, int status)
{
    tell("work", n_work - inherited, "exact");
    _exit(status);
}

static long forks(void)
{
    long sum = 0;
    for (int i = 0; i < 60; i++) {
        uint64_t before = n_work;
        pid_t pid = fork();
        if (pid == 0) {
            long x = 0;
            for (int k = 0; k < 50; k++)
                x += work(k);
            if (i % 4 == 0) {
                uint64_t inherited = n_work;
                pid_t grandchild = fork();
                if (grandchild == 0)
                    leave(inherited, (int)(work(i) & 63));
                x += reap(grandchild);
            }
            leave(before, (int)(x & 127));
        }
        sum += work(i) + reap(pid);
    }
    return sum;
}

static long vforks(void)
{
    volatile long sum = 0;
    for (int i = 0; i < 40; i++) {
        /* volatile: the child changes what the parent sees. */
        volatile pid_t pid = vfork();
        if (pid == 0) {
            long x = borrowed(i);
            if (i % 2) {
                execl("/bin/true", "true", (char *)NULL);
                _exit(99);
            }
            _exit((int)(x & 63));
        }
        sum += work(i) + reap(pid);
    }
    return sum;
}

static long spawns(char *self)
{
    long sum = 0;
    for (int i = 0; i < 20; i++) {
        pid_t pid;
        char *arguments[] = {self, (char *)"child", NULL};
        if (posix_spawn(&pid, self, NULL, NULL, arguments, environ))
            return -1;
        sum += work(i) + reap(pid);
    }
    return sum;
}

static int in_clone(void *x)
{
    long sum = 0;
    for (int i = 0; i < 1000; i++)
        sum += borrowed(i);
    return (int)((sum + (long)(intptr_t)x) & 63);
}

static long clones(void)
{
    long sum = 0;
    for (int i = 0; i < 20; i++) {
        char *stack = malloc(64 * 1024);
        int pid = clone(in_clone, stack + 64 * 1024, CLONE_VM | SIGCHLD, (void *)(intptr_t)i);
        for (int k = 0; k < 1000; k++)
            sum += work(k) & 1;
        sum += reap(pid);
        free(stack);
    }
    return sum;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "fork";
    long sum = 0;
    if (!strcmp(mode, "child")) {
        for (int i = 0; i < 100; i++)
            sum += work(i);
        tell("work", n_work, "exact");
        return (int)(sum & 63);
    }
    sum = !strcmp(mode, "fork") ? forks() : !strcmp(mode, "vfork") ? vforks() : !strcmp(mode, "spawn") ? spawns(argv[0]) : clones();
    printf("%ld\n", sum);
    /* A process that shares our memory and thread pointer may pass uncounted, and get in our way. */
    int shared = !strcmp(mode, "clone");
    tell("work", n_work, shared ? "lost" : "exact");
    if (n_borrowed)
        tell("borrowed", n_borrowed, shared ? "any" : "lost");
}
