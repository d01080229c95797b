/* K24: three clients each think for 3 ms (a sleep), then ask one server and wait for its answer, which takes it 2 ms: lookup
 * 1.2 ms, reply 0.8 ms. A client runs for microseconds between its sleep and its question: a tick hardly ever meets it, and
 * what it owes after its sleep it must pay before it asks. The server limits the program until all three clients find it
 * idle; then lookup is worth a third of that: min(0.6 s, (1 + 1.2 s) / 6), knee at 42 %, a little earlier where wake-ups take
 * time. */
#include "causal.h"

PART(lookup, 1200)
PART(reply, 800)
WAIT_PART(think, 3000)

#define CLIENTS 3

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, answered[CLIENTS];
static int queue[CLIENTS], waiting, done[CLIENTS], over;

static void *client(void *number)
{
    int me = (int)(intptr_t)number;
    for (;;) {
        nap_ns(think_part.steps);
        pthread_mutex_lock(&lock);
        done[me] = 0;
        queue[waiting++] = me;
        pthread_cond_signal(&asked);
        while (!done[me] && !over)
            pthread_cond_wait(&answered[me], &lock);
        int last = over;
        pthread_mutex_unlock(&lock);
        if (last)
            return NULL;
    }
}

/* Who asked first. */
static int take(void)
{
    pthread_mutex_lock(&lock);
    while (!waiting)
        pthread_cond_wait(&asked, &lock);
    int who = queue[0];
    waiting--;
    for (int i = 0; i < waiting; i++)
        queue[i] = queue[i + 1];
    pthread_mutex_unlock(&lock);
    return who;
}

static void answer(int who)
{
    pthread_mutex_lock(&lock);
    done[who] = 1;
    pthread_cond_signal(&answered[who]);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    pthread_t clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        pthread_cond_init(&answered[i], NULL);
        clients[i] = spawn(client, (void *)(intptr_t)i);
    }
    for (uint64_t round = 0; more(round); round++) {
        int who = take();
        RUN(lookup);
        RUN(reply);
        answer(who);
        progress();
    }
    pthread_mutex_lock(&lock);
    over = 1;
    for (int i = 0; i < CLIENTS; i++)
        pthread_cond_broadcast(&answered[i]);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    finish();
}
