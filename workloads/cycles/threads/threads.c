/* Two named threads that spend exactly 70 and 30 percent of the program's CPU time, then end: a
 * profiler must keep their names although they are gone when the profile is written.
 *
 * Constraint: the threads may run on CPUs of different speed, so the truth is time here, not work;
 * time in which a hypervisor ran somebody else must not count, though the CPU clock goes on in it. */
#define _GNU_SOURCE
#include "../work.h"
#include <pthread.h>

SPINNER(work_seventy, 0x9e3779b97f4a7c15u)
SPINNER(work_thirty, 0xbf58476d1ce4e5b9u)

struct job {
    const char *name;
    uint64_t (*run)(uint64_t);
    uint64_t quota_ns;
    uint64_t spent_ns;
};

static void *worker(void *argument)
{
    struct job *job = argument;
    pthread_setname_np(pthread_self(), job->name);
    uint64_t least = UINT64_MAX, usual = 0;
    while (job->spent_ns < job->quota_ns) {
        uint64_t start = cpu_ns();
        job->run(50000);
        uint64_t took = cpu_ns() - start;
        if (took < least)
            least = took;
        /* Some 50 us of work: what takes four times as long was not running all the time. */
        if (took < 4 * least)
            usual = took;
        job->spent_ns += usual;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    struct job jobs[] = {{"seventy", work_seventy, (uint64_t)(0.7e9 * seconds), 0},
                         {"thirty", work_thirty, (uint64_t)(0.3e9 * seconds), 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, worker, &jobs[i]))
            abort();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    double total = (double)(jobs[0].spent_ns + jobs[1].spent_ns);
    for (int i = 0; i < 2; i++)
        printf("share_%s %.2f\n", jobs[i].name, 100.0 * (double)jobs[i].spent_ns / total);
}
