/* 4: threads that end inside probed functions, by pthread_exit and by cancellation, deferred and
 * asynchronous, with cleanup handlers that call probed functions. */
#include "nasty.h"
#include <pthread.h>
#include <semaphore.h>

static uint64_t n_leaver, n_waiter, n_spinner, n_tidy;
static long tidied;
static sem_t inside;

PROBED void tidy(void *what)
{
    count(&n_tidy);
    __atomic_fetch_add(&tidied, (long)(intptr_t)what, __ATOMIC_RELAXED);
}

PROBED long leaver(long depth)
{
    count(&n_leaver);
    long y = 0;
    pthread_cleanup_push(tidy, (void *)1);
    if (depth == 0)
        pthread_exit((void *)42);
    y = leaver(depth - 1);
    KEEP(y);
    pthread_cleanup_pop(1);
    return y;
}

PROBED long waiter(long depth)
{
    count(&n_waiter);
    volatile long y = 0;
    pthread_cleanup_push(tidy, (void *)100);
    if (depth > 0)
        y = waiter(depth - 1);
    sem_post(&inside);
    while (y == 0)
        pause();
    pthread_cleanup_pop(1);
    return y;
}

PROBED long spinner(long x)
{
    count(&n_spinner);
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    sem_post(&inside);
    for (;;)
        KEEP(x);
    return x;
}

static void *leave(void *depth) { return (void *)leaver((long)(intptr_t)depth); }
static void *wait_inside(void *depth) { return (void *)waiter((long)(intptr_t)depth); }
static void *spin_inside(void *x) { return (void *)spinner((long)(intptr_t)x); }

int main(void)
{
    long sum = 0, cancelled = 0;
    sem_init(&inside, 0, 0);
    for (long i = 0; i < 60; i++) {
        pthread_t thread;
        void *result;
        void *(*body)(void *) = i % 3 == 0 ? leave : i % 3 == 1 ? wait_inside : spin_inside;
        pthread_create(&thread, NULL, body, (void *)(intptr_t)(i % 5));
        if (i % 3) {
            sem_wait(&inside);
            pthread_cancel(thread);
        }
        pthread_join(thread, &result);
        if (result == PTHREAD_CANCELED)
            cancelled++;
        else
            sum += (long)(intptr_t)result;
    }
    printf("%ld %ld %ld\n", sum, cancelled, tidied);
    tell("leaver", n_leaver, "exact");
    tell("waiter", n_waiter, "exact");
    tell("spinner", n_spinner, "exact");
    tell("tidy", n_tidy, "exact");
}
