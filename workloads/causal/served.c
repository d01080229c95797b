/* K27: a server that clients ask over loopback TCP. A dispatcher (epoll) takes requests and hands them to one worker, which takes 2 ms: lookup
 * 1.2 ms, reply 0.8 ms. To be attached to: the clients are not measured. `--mode` tells what they are like:
 *   (none)   one that looks at its socket without ever sleeping, and asks again when it has its answer
 *   think    the same, but it sleeps for 1 ms after each answer
 *   blocks   it sleeps until its answer is there
 *   fresh    a new connection for each request
 *   many     four of them that block
 *   udp      datagrams
 * Time per answer: lookup 1.2 of 2 ms and what asking takes (3 with `think`, 2 with `many`). Clients have the last CPU, the server all others. */
#include "causal.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

PART(lookup, 1200)
PART(reply, 800)
WAIT_PART(think, 1000)

#define MOST 64
/* An answer that is the last one: nothing else tells whoever waits for a datagram. */
#define END 1

/* Whom to answer: a connection, or the address of a datagram. */
struct request {
    int socket;
    struct sockaddr_in from;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;
static struct request queue[MOST];
static int waiting, datagrams, listener;
static struct sockaddr_in address;

/* CPUs of the server, or the last one, of its clients. */
static void stay_on(int clients)
{
    int all = (int)sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < all; i++)
        if (all == 1 || (i == all - 1) == clients)
            CPU_SET((unsigned)i, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
}

/* A client's way to the server; without one it ends. */
static int way(void)
{
    int one = 1, to = socket(AF_INET, datagrams ? SOCK_DGRAM : SOCK_STREAM, 0);
    if (connect(to, (struct sockaddr *)&address, sizeof address) != 0)
        _exit(0);
    if (!datagrams)
        MUST(setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    return to;
}

/* Ends when nobody answers any more. */
static void client(void)
{
    int blocks = mode_is("blocks") || mode_is("many"), to = way();
    for (;;) {
        char byte = 0;
        ssize_t got;
        if (send(to, &byte, 1, MSG_NOSIGNAL) != 1)
            _exit(0);
        do
            got = recv(to, &byte, 1, blocks ? 0 : MSG_DONTWAIT);
        while (got < 0 && errno == EAGAIN);
        if (got != 1 || byte == END)
            _exit(0);
        if (mode_is("think"))
            nap_ns(think_part.steps);
        if (mode_is("fresh")) {
            close(to);
            to = way();
        }
    }
}

static void hand_over(struct request request)
{
    pthread_mutex_lock(&lock);
    if (waiting < MOST)
        queue[waiting++] = request;
    pthread_cond_signal(&asked);
    pthread_mutex_unlock(&lock);
}

static struct request taken(void)
{
    pthread_mutex_lock(&lock);
    while (!waiting)
        pthread_cond_wait(&asked, &lock);
    struct request first = queue[0];
    memmove(queue, queue + 1, sizeof *queue * (size_t)--waiting);
    pthread_mutex_unlock(&lock);
    return first;
}

static void answer(struct request request, char byte)
{
    struct sockaddr *to = datagrams ? (struct sockaddr *)&request.from : NULL;
    sendto(request.socket, &byte, 1, MSG_NOSIGNAL, to, datagrams ? sizeof request.from : 0);
}

static void watch(int epoll, int socket)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = socket};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) == 0);
}

/* One thing has come: a connection, a request or the end of a connection. */
static void came(int epoll, int socket)
{
    struct request request = {socket, {0}};
    socklen_t length = sizeof request.from;
    char byte;
    if (socket == listener && !datagrams) {
        int one = 1, connection = accept(listener, NULL, NULL);
        MUST(connection >= 0 && setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
        watch(epoll, connection);
    } else if (recvfrom(socket, &byte, 1, 0, (struct sockaddr *)&request.from, &length) == 1) {
        hand_over(request);
    } else {
        close(socket);
    }
}

static void *dispatcher(void *unused)
{
    int epoll = epoll_create1(0);
    watch(epoll, listener);
    for (;;) {
        struct epoll_event events[MOST];
        int n = epoll_wait(epoll, events, MOST, -1);
        for (int i = 0; i < n; i++)
            came(epoll, events[i].data.fd);
    }
    return unused;
}

static void listen_here(void)
{
    socklen_t length = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, datagrams ? SOCK_DGRAM : SOCK_STREAM, 0);
    MUST(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    MUST(datagrams || listen(listener, MOST) == 0);
    MUST(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
}

/* No children of the server's, which would be measured with it. */
static void begin_clients(int n)
{
    pid_t between = fork();
    MUST(between >= 0);
    if (between) {
        waitpid(between, NULL, 0);
        return;
    }
    close(listener);
    stay_on(1);
    for (int i = 0; i < n; i++)
        if (fork() == 0)
            client();
    _exit(0);
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    datagrams = mode_is("udp");
    listen_here();
    begin_clients(mode_is("many") ? 4 : 1);
    stay_on(0);
    spawn(dispatcher, NULL);
    for (uint64_t round = 0; more(round); round++) {
        struct request request = taken();
        RUN(lookup);
        RUN(reply);
        answer(request, 0);
        progress();
    }
    answer(taken(), END);
    finish();
    exit(0);
}
