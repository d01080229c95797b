/* A tree of processes (500 by default) made by fork, by fork + exec and through a shell; each makes
 * calls of its own number and adds them to the truth file. Prints the sum of the results.
 *   forktree [PROCESSES] */
#include "../cycles/work.h"
#include "../nasty/nasty.h"
#include <errno.h>
#include <sys/wait.h>

static uint64_t n_leafwork;

PROBED long leafwork(long x)
{
    n_leafwork++;
    return x * 7 + 1;
}

static void run(char *self, long number, long processes);

/* Starts a process that is number `number` of the tree, and those below it. */
static pid_t child(char *self, long number, long processes)
{
    char command[512], first[32], second[32];
    snprintf(first, sizeof first, "%ld", processes);
    snprintf(second, sizeof second, "%ld", number);
    snprintf(command, sizeof command, "%s %s %s; exit $?", self, first, second);
    pid_t pid = fork();
    if (pid)
        return pid;
    if (number % 3 == 1)
        execl(self, self, first, second, (char *)NULL);
    if (number % 3 == 2)
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    n_leafwork = 0;
    run(self, number, processes);
    _exit(0);
}

static void run(char *self, long number, long processes)
{
    long sum = 0;
    pid_t below[4];
    int n = 0;
    for (long i = 0; i < 100 + number; i++)
        sum += leafwork(i);
    for (long next = number * 4 + 1; next <= number * 4 + 4 && next < processes; next++)
        below[n++] = child(self, next, processes);
    for (int i = 0; i < n; i++)
        while (waitpid(below[i], NULL, 0) < 0 && errno == EINTR)
            ;
    tell("leafwork", n_leafwork, "exact");
    if (number == 0)
        printf("%ld\n", sum);
}

int main(int argc, char **argv)
{
    run(argv[0], argc > 2 ? atol(argv[2]) : 0, argc > 1 ? atol(argv[1]) : 500);
}
