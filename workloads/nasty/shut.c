/* 30, 33, 34: processes that are hard to enter. Each sets itself up, executes itself anew, and works.
 *   shut dump      not dumpable (as set-user-id programs are): only a privileged profiler may enter
 *   shut mdwe      memory that was writable may never become executable (SELinux and systemd do the like)
 *   shut memory    an address space limited to 48 MB: neither segment nor shadow can be mapped
 *   shut files     one file descriptor left, which the loader needs */
#include "nasty.h"
#include <sys/prctl.h>
#include <sys/resource.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

static uint64_t n_inside;

PROBED long inside(long x)
{
    count(&n_inside);
    return x * 7 + 1;
}

static void shut(const char *mode)
{
    struct rlimit memory = {48 << 20, 48 << 20}, files = {4, 4};
    /* A kernel before 6.3 does not know the word; then nothing is shut. */
    if (!strcmp(mode, "mdwe"))
        prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0);
    if (!strcmp(mode, "memory"))
        setrlimit(RLIMIT_AS, &memory);
    if (!strcmp(mode, "files")) {
        /* Whoever started it may have left more than the three open, and none would be left to tell with. */
        for (int file = 3; file < 256; file++)
            close(file);
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "dump";
    if (argc < 3) {
        shut(mode);
        execl(argv[0], argv[0], mode, "again", (char *)NULL);
        return 3;
    }
    if (!strcmp(mode, "dump"))
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    long sum = 0;
    for (long i = 0; i < 100000; i++)
        sum += inside(i);
    printf("%ld\n", sum);
    /* Whether this can be measured at all is the profiler's to say. */
    tell("inside", n_inside, strcmp(mode, "memory") && strcmp(mode, "files") ? "either" : "any");
}
