/* 9: 10 000 threads that live for one probed call each, 8 at a time. */
#include "nasty.h"
#include <pthread.h>

enum { ROUNDS = 1250, WIDTH = 8 };

static uint64_t n_brief;

PROBED long brief(long x)
{
    count(&n_brief);
    return x * 5 + 1;
}

static void *body(void *x) { return (void *)brief((long)(intptr_t)x); }

int main(void)
{
    long sum = 0;
    for (long round = 0; round < ROUNDS; round++) {
        pthread_t threads[WIDTH];
        for (long i = 0; i < WIDTH; i++)
            pthread_create(&threads[i], NULL, body, (void *)(intptr_t)(round * WIDTH + i));
        for (int i = 0; i < WIDTH; i++) {
            void *result;
            pthread_join(threads[i], &result);
            sum += (long)(intptr_t)result;
        }
    }
    printf("%ld\n", sum);
    tell("brief", n_brief, "exact");
}
