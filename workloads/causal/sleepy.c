/* K5: cpu 5 ms, then a wait of 5 ms. cpu: 0.5 s; the wait: 0.5 s. Modes:
 *   (none)     nanosleep
 *   receive    waits for the answer of a peer, `sleepy --mode serve --set port=N`, which is no part of
 *              the program that is profiled and answers 5 ms after it was asked
 *   read       O_DIRECT reads from a file below $TMPDIR; their length is what the disk makes of it (printed) */
#include "causal.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

PART(cpu, 5000)
WAIT_PART(nap, 5000)
NUMBER(port, 7411)

static int channel;
static char *block;
enum { BLOCK = 1 << 20, BLOCKS = 64 };

static struct sockaddr_in address(void)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)VALUE(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void serve(void)
{
    struct sockaddr_in own = address(), asked;
    channel = socket(AF_INET, SOCK_DGRAM, 0);
    MUST(bind(channel, (struct sockaddr *)&own, sizeof own) == 0);
    puts("serving");
    fflush(stdout);
    for (;;) {
        /* The delay to be waited comes with the question. */
        uint64_t ns;
        socklen_t size = sizeof asked;
        if (recvfrom(channel, &ns, sizeof ns, 0, (struct sockaddr *)&asked, &size) != (ssize_t)sizeof ns)
            continue;
        nap_ns(ns);
        sendto(channel, &ns, sizeof ns, 0, (struct sockaddr *)&asked, size);
    }
}

static void open_peer(void)
{
    struct sockaddr_in peer = address();
    channel = socket(AF_INET, SOCK_DGRAM, 0);
    struct timeval patience = {2, 0};
    setsockopt(channel, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    MUST(connect(channel, (struct sockaddr *)&peer, sizeof peer) == 0);
}

static void open_file(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/whither-sleepy-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    int writing = mkstemp(path);
    MUST(writing >= 0 && posix_memalign((void **)&block, 4096, BLOCK) == 0);
    memset(block, 1, BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        MUST(write(writing, block, BLOCK) == BLOCK);
    fsync(writing);
    close(writing);
    channel = open(path, O_RDONLY | O_DIRECT);
    unlink(path);
    MUST(channel >= 0);
}

/* As many megabytes as the wait has milliseconds. */
static NOINLINE void read_blocks(uint64_t round)
{
    uint64_t blocks = nap_part.steps / 1000000;
    for (uint64_t i = 0; i < blocks; i++)
        MUST(pread(channel, block, BLOCK, (off_t)((round * blocks + i) % BLOCKS) * BLOCK) == BLOCK);
}

static NOINLINE void ask_peer(void)
{
    uint64_t ns = nap_part.steps;
    MUST(send(channel, &ns, sizeof ns, 0) == (ssize_t)sizeof ns);
    MUST(recv(channel, &ns, sizeof ns, 0) == (ssize_t)sizeof ns);
}

static NOINLINE void wait_once(uint64_t round)
{
    if (mode_is("read"))
        read_blocks(round);
    else if (mode_is("receive"))
        ask_peer();
    else
        nap_ns(nap_part.steps);
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    if (mode_is("serve"))
        serve();
    else if (mode_is("receive"))
        open_peer();
    else if (mode_is("read"))
        open_file();
    uint64_t waited = 0, computed = 0;
    for (uint64_t round = 0; more(round); round++) {
        uint64_t start = wall_ns();
        RUN(cpu);
        uint64_t middle = wall_ns();
        wait_once(round);
        computed += middle - start;
        waited += wall_ns() - middle;
        progress();
    }
    finish();
    printf("share_wait %.2f\n", 100.0 * (double)waited / (double)(waited + computed + 1));
}
