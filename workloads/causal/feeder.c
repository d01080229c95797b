/* K20: a feeder (1.2 ms an item) fills a queue of four that is always full; three servers take from it, wait 4 ms each and
 * compute 1 ms. No more than two of the four threads mostly compute, but each may any time: delays that keep a core
 * busy stand in the others' way. feed: 0; serve: s/5; the wait: min(0.8 s, 0.28), knee at 35 %. */
#include "causal.h"

PART(feed, 1200)
PART(serve, 1000)
WAIT_PART(fetch, 4000)

#define SERVERS 3
#define ROOM 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static int items, over;

/* Whether there is an item; none are left at the end. */
static int take(void)
{
    pthread_mutex_lock(&lock);
    while (!items && !over)
        pthread_cond_wait(&not_empty, &lock);
    int found = items > 0;
    items -= found;
    pthread_cond_signal(&not_full);
    pthread_mutex_unlock(&lock);
    return found;
}

static void put(void)
{
    pthread_mutex_lock(&lock);
    while (items == ROOM)
        pthread_cond_wait(&not_full, &lock);
    items++;
    pthread_cond_signal(&not_empty);
    pthread_mutex_unlock(&lock);
}

static void *server(void *unused)
{
    while (take()) {
        nap_ns(fetch_part.steps);
        RUN(serve);
        progress();
    }
    return unused;
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    pthread_t servers[SERVERS];
    for (int i = 0; i < SERVERS; i++)
        servers[i] = spawn(server, NULL);
    for (uint64_t round = 0; more(round); round++) {
        RUN(feed);
        put();
    }
    pthread_mutex_lock(&lock);
    over = 1;
    pthread_cond_broadcast(&not_empty);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < SERVERS; i++)
        pthread_join(servers[i], NULL);
    finish();
}
