/* What the nasty programs share: the mark of functions to probe, counting, and the truth they tell.
 *
 * stdout is the same in every run and whether probed or not. When $WHITHER_TRUTH names a file, each
 * process appends `FUNCTION CALLS EXPECTATION` lines to it (several lines of one function add up):
 *
 *   exact    the profiler counts exactly so many calls
 *   lost     the same, where calls it admits to have lost count too (and a signal that jumps away between its
 *            count and the program's may make one more)
 *   moved    exact counts; exits may be lost, because other threads make them
 *   least    at least so many (the C library or the loader calls it as well)
 *   entry    exact, and the profiler says that it sees entries only
 *   either   exact, or the function is refused with a reason
 *   any      no count is asserted
 *
 * Constraint: some programs include this as C++, or run without a C library that is in order, so the
 * truth goes out by plain system calls. */
#ifndef WHITHER_NASTY_H
#define WHITHER_NASTY_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A function the profiler is pointed at: out of line and called as the ABI says. */
#define PROBED __attribute__((noinline, noclone, noipa, used))
/* Keeps a call from becoming a jump, and its result from being known. */
#define KEEP(x) __asm__ volatile("" : "+r"(x))

/* One more call; callable from signal handlers and threads. */
static inline __attribute__((unused)) void count(uint64_t *calls)
{
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
}

static inline __attribute__((unused)) void tell(const char *function, uint64_t calls, const char *expectation)
{
    const char *path = getenv("WHITHER_TRUTH");
    if (!path)
        return;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return;
    char line[160];
    int length = snprintf(line, sizeof line, "%s %llu %s\n", function, (unsigned long long)calls, expectation);
    /* One write: lines of several processes do not mix. */
    if (write(file, line, (size_t)length) != length)
        abort();
    close(file);
}

#endif
