/* 28: probed calls after the process has locked itself in: `filter` kills on any system call but a few,
 * `strict` on any but read, write and exit. Runs 0.3 s or so, long enough to be preempted many times. */
#include "nasty.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static uint64_t n_locked_in, n_deeper;
static char truth[200];

PROBED unsigned long deeper(unsigned long x, int left)
{
    count(&n_deeper);
    /* Frames that reach stack the profiler has not seen before the doors closed. */
    volatile char room[2048];
    room[x % sizeof room] = (char)x;
    unsigned long y = left ? deeper(x + 1, left - 1) : x;
    KEEP(y);
    return y + (unsigned long)room[x % sizeof room];
}

PROBED unsigned long locked_in(unsigned long x)
{
    count(&n_locked_in);
    for (int i = 0; i < 1000; i++) {
        x = x * 31 + 7;
        KEEP(x);
    }
    return x;
}

static void filter(void)
{
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write), ALLOW(SYS_exit), ALLOW(SYS_exit_group), ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        exit(3);
}

int main(int argc, char **argv)
{
    int strict = argc > 1 && !strcmp(argv[1], "strict");
    const char *path = getenv("WHITHER_TRUTH");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
    unsigned long sum = locked_in(1);
    if (strict ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) : (filter(), 0))
        return 3;
    for (unsigned long i = 0; i < 200000; i++)
        sum += locked_in(i);
    for (unsigned long i = 0; i < 50; i++)
        sum += deeper(i, 1000);
    /* Strict mode takes the time stamp counter away too: calls may be passed through, if that is told. */
    const char *want = strict ? "lost" : "exact";
    int length = snprintf(truth, sizeof truth, "locked_in %lu %s\ndeeper %lu %s\n", (unsigned long)n_locked_in, want,
                          (unsigned long)n_deeper, want);
    if (file >= 0 && write(file, truth, (size_t)length) != length)
        sum++;
    length = snprintf(truth, sizeof truth, "%lu\n", sum);
    if (write(1, truth, (size_t)length) != length)
        sum++;
    syscall(SYS_exit, 5);
}
