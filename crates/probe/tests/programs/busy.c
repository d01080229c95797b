/* One thread that never rests: floating point sums under a timer signal 3,000 times a second, allocations
 * now and then; and processes made by vfork, whose parent sleeps where no signal reaches it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int ticks, quit;
static void tick(int s)
{
	ticks++;
}
static void stop(int s)
{
	quit = 1;
}

static double sum(void)
{
	double f[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, all = 0;
	for (int n = 0; n < 20000; n++)
		for (int i = 0; i < 8; i++)
			f[i] = f[i] * 0.999 + 1.0 / (n + 1);
	for (int i = 0; i < 8; i++)
		all += f[i];
	return all;
}

int main(int n, char **v)
{
	struct itimerval t = { { 0, 333 }, { 0, 333 } };
	struct sigaction a = { 0 };
	int bad = 0;
	double first = sum();

	a.sa_flags = SA_RESTART;
	a.sa_handler = stop;
	sigaction(SIGTERM, &a, 0);
	a.sa_handler = tick;
	sigaction(SIGALRM, &a, 0);
	puts("ready");
	fflush(stdout);
	if (n == 1)
		setitimer(ITIMER_REAL, &t, 0);
	while (!quit) {
		double now = sum();
		char *p = malloc(100000);
		memset(p, 1, 100000);
		if (memcmp(&now, &first, 8))
			bad++;
		free(p);
		if (n > 1) {
			int status;
			pid_t child = vfork();
			if (child == 0) {
				usleep(30000);
				_exit(3);
			}
			if (waitpid(child, &status, 0) != child || status != 3 << 8)
				bad++;
		}
	}
	printf("bad %d\n", bad + (n == 1 && ticks < 100));
	return 0;
}
