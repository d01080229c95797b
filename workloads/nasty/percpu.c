/* 49: threads inside restartable sequences (rseq): a count per CPU by plain instructions that the kernel
 * restarts when it preempts. Prints whether none was lost; a profiler that stops threads there and
 * moves them breaks it. */
#define _GNU_SOURCE
#include "nasty.h"
#include <pthread.h>
#include <sys/rseq.h>

enum { THREADS = 3, ROUNDS = 1000000 };

static struct {
    uint64_t n;
    uint64_t pad[7];
} per_cpu[1024];
static uint64_t n_between;

PROBED long between_sections(long x)
{
    count(&n_between);
    return x + 1;
}

static struct rseq *area(void) { return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset); }

/* per_cpu[this CPU].n += 1. The section's signature word is what glibc registered. */
__attribute__((noinline, noclone)) static void add_one(struct rseq *rseq)
{
    __asm__ volatile(
        ".pushsection __rseq_cs, \"aw\"\n"
        ".balign 32\n"
        "3: .long 0, 0\n .quad 1f, (2f - 1f), 4f\n"
        ".popsection\n"
        ".pushsection __rseq_failure, \"ax\"\n"
        ".byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n"
        "4: jmp 5f\n"
        ".popsection\n"
        "5: leaq 3b(%%rip), %%rax\n"
        "movq %%rax, 8(%[rseq])\n"
        "1: movl 4(%[rseq]), %%eax\n"
        "shlq $6, %%rax\n"
        "movq (%[base], %%rax), %%rcx\n"
        "incq %%rcx\n"
        "movq %%rcx, (%[base], %%rax)\n"
        "2:\n"
        "movq $0, 8(%[rseq])\n"
        :
        : [rseq] "r"(rseq), [base] "r"(per_cpu)
        : "rax", "rcx", "memory", "cc");
}

static void *body(void *x)
{
    struct rseq *rseq = area();
    long sum = 0;
    for (long i = 0; i < ROUNDS; i++) {
        add_one(rseq);
        if (i % 8 == 0)
            sum += between_sections(i);
    }
    (void)x;
    return (void *)(intptr_t)(sum & 1);
}

int main(void)
{
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    if (__rseq_size == 0) {
        printf("no rseq here\n");
        return 0;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, body, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 1024; i++)
        sum += per_cpu[i].n;
    printf("%s\n", sum == (uint64_t)THREADS * ROUNDS ? "none lost" : "LOST");
    tell("between_sections", n_between, "exact");
}
