/* 21: functions that never return, and an end of the process inside probed calls.
 *   noreturn exit | abort | exec | quick | kill */
#include "nasty.h"
#include <signal.h>

static uint64_t n_last, n_outer, n_handler;
static const char *mode;

static void at_end(void)
{
    printf("end %lu\n", (unsigned long)n_handler);
    fflush(stdout);
}

PROBED void at_exit_probed(void)
{
    count(&n_handler);
    tell("last", n_last, "exact");
    tell("outer", n_outer, "exact");
    tell("at_exit_probed", n_handler, "exact");
}

__attribute__((noreturn)) PROBED void last(int x)
{
    count(&n_last);
    printf("last %d\n", x);
    fflush(stdout);
    if (!strcmp(mode, "exit"))
        exit(x);
    at_exit_probed();
    if (!strcmp(mode, "abort"))
        abort();
    if (!strcmp(mode, "exec"))
        execl("/bin/echo", "echo", "executed", (char *)NULL);
    if (!strcmp(mode, "kill"))
        raise(SIGKILL);
    _exit(x);
}

PROBED int outer(int depth)
{
    count(&n_outer);
    if (depth == 0)
        last(7);
    int y = outer(depth - 1);
    KEEP(y);
    return y;
}

int main(int argc, char **argv)
{
    mode = argc > 1 ? argv[1] : "exit";
    if (!strcmp(mode, "exit")) {
        atexit(at_end);
        atexit(at_exit_probed);
    }
    return outer(5);
}
