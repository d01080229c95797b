/* The floor under every sampler: one cpu-clock event per CPU whose samples nobody reads. What an
 * interruption costs here is the interrupt itself.
 *
 * usage: floor HERTZ. Runs until killed. */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    long hertz = argc == 2 ? atol(argv[1]) : 0;
    if (hertz <= 0) {
        fprintf(stderr, "usage: %s HERTZ\n", argv[0]);
        return 2;
    }
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_CPU_CLOCK;
    attr.sample_period = (unsigned long)(1000000000 / hertz);
    attr.sample_type = PERF_SAMPLE_IP;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (long cpu = 0; cpu < cpus; cpu++)
        if (syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, 0) < 0) {
            perror("perf_event_open");
            return 1;
        }
    pause();
}
