/* A program that cannot stand interrupted system calls: two threads work in step, and six wait in poll, epoll_wait,
 * nanosleep, read, semop and sigtimedwait, each for a while between pieces of work, and count what should not have happened:
 * calls that ended early, signals that nobody sent. Truth: `interrupted 0`, `strange 0`. Work of a is worth as in K2. */
#include "causal.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/time.h>

PART(a, 4000)
PART(b, 3000)
PART(bit, 100)

static pthread_barrier_t meet;
static uint64_t interrupted, strange, alarms;
static volatile int closed;
static int quiet[2];

static void count(uint64_t *what, int there)
{
    if (there)
        __atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static void *polls(void *u)
{
    struct pollfd one = {quiet[0], POLLIN, 0};
    while (!closed) {
        count(&interrupted, poll(&one, 1, 5) < 0);
        RUN(bit);
    }
    return u;
}

static void *epolls(void *u)
{
    int all = epoll_create1(0);
    struct epoll_event got;
    while (!closed) {
        count(&interrupted, epoll_wait(all, &got, 1, 5) < 0);
        RUN(bit);
    }
    return u;
}

static void *naps(void *u)
{
    const struct timespec time = {0, 5000000};
    while (!closed) {
        count(&interrupted, nanosleep(&time, NULL) < 0);
        RUN(bit);
    }
    return u;
}

static void *reads(void *u)
{
    char byte;
    while (!closed) {
        count(&interrupted, read(quiet[0], &byte, 1) < 0);
        RUN(bit);
    }
    return u;
}

static void *semops(void *u)
{
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf down = {0, -1, 0};
    const struct timespec time = {0, 5000000};
    MUST(set >= 0);
    while (!closed) {
        count(&interrupted, semtimedop(set, &down, 1, &time) < 0 && errno == EINTR);
        RUN(bit);
    }
    semctl(set, 0, IPC_RMID);
    return u;
}

/* Takes all signals there are, but for the program's own. */
static void *waits(void *u)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    sigdelset(&all, SIGALRM);
    const struct timespec time = {0, 5000000};
    while (!closed) {
        count(&strange, sigtimedwait(&all, NULL, &time) > 0);
        RUN(bit);
    }
    return u;
}

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

static void *other(void *u)
{
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    while (!closed) {
        RUN(b);
        pthread_barrier_wait(&meet);
    }
    return u;
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    MUST(pipe(quiet) == 0 && pthread_barrier_init(&meet, NULL, 2) == 0);
    sigset_t alarm, mine;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, &mine);
    void *(*const bodies[])(void *) = {polls, epolls, naps, reads, semops, waits};
    pthread_t threads[6], second = spawn(other, NULL);
    for (int i = 0; i < 6; i++)
        threads[i] = spawn(bodies[i], NULL);
    /* The program's own timer, for the first thread alone. */
    pthread_sigmask(SIG_SETMASK, &mine, NULL);
    struct sigaction action = {.sa_handler = on_alarm};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    const struct itimerval every = {{0, 20000}, {0, 20000}};
    MUST(setitimer(ITIMER_REAL, &every, NULL) == 0);
    for (uint64_t round = 0;; round++) {
        RUN(a);
        MUST(write(quiet[1], "x", 1) == 1);
        closed = !more(round);
        pthread_barrier_wait(&meet);
        progress();
        if (closed)
            break;
    }
    MUST(write(quiet[1], "x", 1) == 1);
    pthread_join(second, NULL);
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    finish();
    printf("interrupted %" PRIu64 "\nstrange %" PRIu64 "\nalarms %" PRIu64 "\n", interrupted, strange, alarms);
}
