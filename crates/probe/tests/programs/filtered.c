/* A seccomp filter that kills for everything but what it does itself. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(void)
{
	char line[64];
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_restart_syscall),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog filter = { sizeof code / sizeof *code, code };
	puts("ready");
	fflush(stdout);
	fflush(stdin);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return 2;
	line[0] = 0;
	while (strncmp(line, "quit\n", 5)) {
		long n;
		asm volatile("syscall" : "=a"(n) : "a"(SYS_read), "D"(0), "S"(line), "d"(sizeof line) : "rcx", "r11", "memory");
		if (n <= 0)
			return 3;
	}
	puts("bad 0");
	return 0;
}
