/* Counts SIGUSR1 and tells the count for each line read. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile int count;
static void handler(int s)
{
	count += s == SIGUSR1;
}

int main(void)
{
	char line[64];
	struct sigaction a = { 0 };
	a.sa_handler = handler;
	a.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &a, 0);
	puts("ready");
	fflush(stdout);
	while (fgets(line, 64, stdin) && strcmp(line, "quit\n")) {
		printf("%d\n", count);
		fflush(stdout);
	}
	puts("bad 0");
	return 0;
}
