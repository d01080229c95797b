/* A storm of cheap system calls: most of the time is kernel time, and samples of a timer that cannot
 * interrupt code with interrupts off pile up where they come back on. */
#define _GNU_SOURCE
#include "../work.h"
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BATCH = 1000 };

NOINLINE void storm(uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++)
        syscall(SYS_getppid);
}

int main(int argc, char **argv)
{
    uint64_t length = (uint64_t)(seconds_argument(argc, argv) * 1e9);
    uint64_t start = wall_ns(), calls = 0;
    while (wall_ns() - start < length) {
        storm(BATCH);
        calls += BATCH;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("calls %" PRIu64 "\nuser_s %ld.%03ld\nsystem_s %ld.%03ld\n", calls, usage.ru_utime.tv_sec,
           usage.ru_utime.tv_usec / 1000, usage.ru_stime.tv_sec, usage.ru_stime.tv_usec / 1000);
}
