/* K26: a server whose client is another process, which waits for its answer, thinks for 1 ms and asks again. A reader takes requests from a
 * socket and hands them to a worker, which takes 2 ms: lookup 1.2 ms, reply 0.8 ms. To be attached to by the server's id, so that the client is
 * not measured: what lookup takes less the client asks earlier, s * 1.2 / 3 of a round, less what wake-ups take. */
#include "causal.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

PART(lookup, 1200)
PART(reply, 800)
WAIT_PART(think, 1000)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;
static int requests, ends[2];

static void client(void)
{
    char byte = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (write(ends[1], &byte, 1) == 1 && read(ends[1], &byte, 1) == 1)
        nap_ns(think_part.steps);
    _exit(0);
}

static void *reader(void *unused)
{
    char byte;
    while (read(ends[0], &byte, 1) == 1) {
        pthread_mutex_lock(&lock);
        requests++;
        pthread_cond_signal(&asked);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t other = fork();
    if (other == 0)
        client();
    pthread_t reading = spawn(reader, NULL);
    for (uint64_t round = 0; more(round); round++) {
        char byte = 0;
        pthread_mutex_lock(&lock);
        while (!requests)
            pthread_cond_wait(&asked, &lock);
        requests--;
        pthread_mutex_unlock(&lock);
        RUN(lookup);
        RUN(reply);
        MUST(write(ends[0], &byte, 1) == 1);
        progress();
    }
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    shutdown(ends[0], SHUT_RDWR);
    pthread_join(reading, NULL);
    finish();
}
