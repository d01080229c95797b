/* Another thread loads a library whose constructor takes its time, again and again: the loader's lock is
 * nearly always held. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int quit;
static void *load(void *path)
{
	while (!quit) {
		void *handle = dlopen(path, RTLD_NOW);
		if (!handle)
			puts(dlerror());
		else
			dlclose(handle);
	}
	return 0;
}

int main(int n, char **v)
{
	char line[64];
	pthread_t t;
	pthread_create(&t, 0, load, v[1]);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n"))
		;
	quit = 1;
	pthread_join(t, 0);
	puts("bad 0");
	return 0;
}
