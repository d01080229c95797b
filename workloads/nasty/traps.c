/* 51, 52: functions whose first instructions trap into a handler of the program (int3, ud2, which it steps over), and functions that
 * begin with vector instructions, which kernels with uprobes on them execute as what their opcode means without the prefix.
 * Nothing of the kind may be moved or be given a breakpoint. */
#define _GNU_SOURCE
#include "nasty.h"
#include <immintrin.h>
#include <signal.h>
#include <ucontext.h>

#define ROUNDS 300

static long trapped;

__asm__(".text\n.macro leaf name\n.p2align 4\n.globl \\name\n.type \\name, @function\n\\name:\n.cfi_startproc\n.endm\n"
        ".macro end name\n.cfi_endproc\n.size \\name, . - \\name\n.endm\n"
        "leaf breaks\nint3\nlea 5(%rdi,%rdi,2), %rax\nret\nend breaks\n"
        "leaf undefined\nud2\nlea 7(%rdi,%rdi), %rax\nret\nend undefined\n"
        "leaf compares\nvpcmpeqd %xmm1, %xmm0, %xmm0\nret\nend compares\n"
        "leaf shuffles\nvpshufd $0x1b, %xmm0, %xmm0\nret\nend shuffles\n"
        /* Its own loop ends inside of the first bytes: it cannot be patched. */
        "leaf bits\nvpor %xmm1, %xmm0, %xmm0\n1: dec %edi\njnz 1b\nret\nend bits\n");
long breaks(long), undefined(long);
__m128i compares(__m128i, __m128i), shuffles(__m128i), bits(__m128i, __m128i, int);

static void on_trap(int signal)
{
    (void)signal;
    trapped++;
}

static void step_over(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
    trapped++;
}

__attribute__((target("avx"))) static long vectors(int i)
{
    __m128i a = _mm_set_epi32(i, 3, 2, 1), b = _mm_set1_epi32(8);
    return _mm_cvtsi128_si32(compares(a, a)) + _mm_cvtsi128_si32(shuffles(a)) + _mm_cvtsi128_si32(bits(a, b, 3));
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = step_over, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    signal(SIGTRAP, on_trap);
    long sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        sum += breaks(i) + undefined(i);
        if (__builtin_cpu_supports("avx"))
            sum += vectors(i);
    }
    printf("%ld %ld\n", sum, trapped);
    int vector = __builtin_cpu_supports("avx") ? ROUNDS : 0;
    tell("breaks", ROUNDS, "either");
    tell("undefined", ROUNDS, "either");
    tell("compares", vector, "either");
    tell("shuffles", vector, "either");
    tell("bits", vector, "either");
    return 0;
}
