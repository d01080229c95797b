/* 45: functions that return twice or read their own return address, probed themselves. */
#define _GNU_SOURCE
#include "nasty.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <ucontext.h>

static uint64_t n_setjmp, n_vfork, n_next, n_context, n_where;
static sigjmp_buf place;

/* An allocator wrapper's way to learn who calls. */
PROBED int where(void)
{
    char *caller = __builtin_return_address(0);
    extern int main(void);
    count(&n_where);
    long distance = caller - (char *)main;
    return distance > 0 && distance < 4096;
}

int main(void)
{
    volatile long sum = 0;
    for (volatile int i = 0; i < 500; i++) {
        n_setjmp++;
        int came = sigsetjmp(place, 1);
        if (came == 0)
            siglongjmp(place, i + 1);
        sum += came;
    }
    for (volatile int i = 0; i < 20; i++) {
        n_vfork++;
        volatile pid_t pid = vfork();
        if (pid == 0)
            _exit(i);
        int status;
        waitpid(pid, &status, 0);
        sum += WEXITSTATUS(status);
    }
    for (int i = 0; i < 100; i++) {
        void *(*next)(size_t) = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        n_next++;
        sum += next != NULL;
    }
    for (volatile int i = 0, again = 0; i < 100; i++) {
        ucontext_t context;
        again = 0;
        n_context++;
        getcontext(&context);
        if (!again++)
            setcontext(&context);
        sum += again;
    }
    int right = 0;
    for (int i = 0; i < 100; i++) {
        int y = where();
        KEEP(y);
        right += y;
    }
    printf("%ld %d\n", sum, right);
    tell("__sigsetjmp", n_setjmp, "least"); /* the loader calls it too, in dlsym */
    tell("vfork", n_vfork, "entry");
    tell("dlsym", n_next, "entry");
    tell("getcontext", n_context, "entry");
    tell("where", n_where, "entry");
}
