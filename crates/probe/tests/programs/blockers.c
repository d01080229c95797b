/* Threads blocked in many ways, one that spins, and a count of everything they notice that no event of
 * theirs explains: EINTR, a sleep too short, a wrong sum. `blockers N` has N idle threads more. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static _Atomic int quit, bad;
static _Atomic unsigned long longest;
static int pipes[3][2], listener, event, epoll;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static unsigned long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ul + t.tv_nsec;
}

static void wrong(const char *what)
{
	bad++;
	fprintf(stderr, "wrong: %s: %s\n", what, strerror(errno));
}

static void *reader(void *x)
{
	char b;
	if (read(pipes[0][0], &b, 1) != 1)
		wrong("read");
	return x;
}

static void *poller(void *x)
{
	struct pollfd p = { pipes[1][0], POLLIN, 0 };
	if (poll(&p, 1, 600000) != 1)
		wrong("poll");
	return x;
}

static void *acceptor(void *x)
{
	if (accept(listener, 0, 0) < 0)
		wrong("accept");
	return x;
}

static void *waiter(void *x)
{
	struct epoll_event e;
	if (epoll_wait(epoll, &e, 1, -1) != 1)
		wrong("epoll_wait");
	return x;
}

static void *conditional(void *x)
{
	pthread_mutex_lock(&mutex);
	while (!quit)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
	return x;
}

static void *sleeper(void *x)
{
	while (!quit) {
		struct timespec t = { 0, 20000000 };
		unsigned long begin = now();
		if (nanosleep(&t, 0))
			wrong("nanosleep");
		if (now() - begin < 20000000)
			wrong("short sleep");
	}
	return x;
}

static void *long_sleeper(void *x)
{
	struct timespec t = { 2, 0 };
	unsigned long begin = now();
	if (nanosleep(&t, 0))
		wrong("nanosleep of 2 s");
	if (now() - begin < 2000000000)
		wrong("2 s were too short");
	/* As many threads as before, however slow the machine is. */
	return conditional(x);
}

static void *spinner(void *x)
{
	unsigned long before = now(), after;
	double f = 1, g = 1;
	long n = 0;
	while (!quit) {
		for (int i = 0; i < 100; i++, n++)
			f = f * 1.0000001 + 1e-9;
		if (f > 1e6)
			f = 1, n = 0;
		after = now();
		if (after - before > longest)
			longest = after - before;
		before = after;
	}
	for (long i = 0; i < n; i++)
		g = g * 1.0000001 + 1e-9;
	if (memcmp(&f, &g, 8))
		wrong("sum");
	return x;
}

static void *idle(void *x)
{
	char b;
	if (read(pipes[2][0], &b, 1) != 0)
		wrong("idle read");
	return x;
}

int main(int n, char **v)
{
	void *(*all[])(void *) = { reader, poller, acceptor, waiter, conditional, sleeper, long_sleeper, spinner };
	int extra = n > 1 ? atoi(v[1]) : 0, k = 0, s;
	pthread_t t[512];
	char line[64];
	struct sockaddr_in a = { AF_INET };
	socklen_t al = sizeof a;
	struct epoll_event e = { EPOLLIN };

	for (int i = 0; i < 3; i++)
		if (pipe(pipes[i]))
			return 2;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&a, al) || listen(listener, 1) || getsockname(listener, (void *)&a, &al))
		return 2;
	event = eventfd(0, 0);
	epoll = epoll_create1(0);
	epoll_ctl(epoll, EPOLL_CTL_ADD, event, &e);
	for (int i = 0; i < 8; i++)
		pthread_create(&t[k++], 0, all[i], 0);
	for (int i = 0; i < extra; i++)
		pthread_create(&t[k++], 0, idle, 0);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n")) {
		printf("%lu\n", longest);
		fflush(stdout);
		longest = 0;
	}
	quit = 1;
	if (write(pipes[0][1], "x", 1) != 1 || write(pipes[1][1], "x", 1) != 1)
		wrong("write");
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (void *)&a, al))
		wrong("connect");
	eventfd_write(event, 1);
	pthread_mutex_lock(&mutex);
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	close(pipes[2][1]);
	for (int i = 0; i < k; i++)
		pthread_join(t[i], 0);
	printf("bad %d\n", bad);
	return bad != 0;
}
