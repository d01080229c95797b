/* Puts itself under strict seccomp. */
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
	char b;
	puts("ready");
	fflush(stdout);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	read(0, &b, 1);
	syscall(SYS_exit, 0);
}
