/* 22, 23: the functions everything stands on are probed: allocator, memcpy (an IFUNC), locks, clocks,
 * thread-local storage; from several threads, with fork in between. */
#include "nasty.h"
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t n_allocations, n_copies, n_locks, n_clocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long shared;

static void *work(void *seed)
{
    long x = (long)(intptr_t)seed, sum = 0;
    char *kept[32] = {0};
    for (int i = 0; i < 4000; i++) {
        x = x * 1103515245 + 12345;
        size_t bytes = 16 + ((size_t)x >> 8 & 1023);
        char **slot = &kept[i % 32];
        free(*slot);
        *slot = malloc(bytes);
        count(&n_allocations);
        memset(*slot, i, bytes);
        char copy[2048];
        /* Through a pointer: a call, not a row of moves. */
        void *(*volatile copier)(void *, const void *, size_t) = memcpy;
        copier(copy, *slot, bytes);
        count(&n_copies);
        sum += copy[bytes - 1];
        pthread_mutex_lock(&lock);
        count(&n_locks);
        shared += copy[0];
        pthread_mutex_unlock(&lock);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        count(&n_clocks);
        sum += now.tv_nsec < 0;
    }
    for (int i = 0; i < 32; i++)
        free(kept[i]);
    return (void *)(intptr_t)sum;
}

int main(void)
{
    pthread_t threads[3];
    long sum = 0;
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, (void *)(intptr_t)(i + 1));
    pid_t pid = fork();
    if (pid == 0) {
        /* A thread that does not exist here may hold it. */
        pthread_mutex_init(&lock, NULL);
        _exit((int)(intptr_t)work((void *)9) & 63);
    }
    int status;
    waitpid(pid, &status, 0);
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)(intptr_t)result;
    }
    printf("%ld %ld %d\n", sum, shared, WEXITSTATUS(status));
    tell("malloc", n_allocations, "least");
    tell("free", n_allocations, "least");
    tell("memcpy", n_copies, "any");
    tell("pthread_mutex_lock", n_locks, "least");
    tell("clock_gettime", n_clocks, "any");
    tell("__tls_get_addr", 0, "any");
}
