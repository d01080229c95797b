/* 19, 20, 43: frames and registers the usual rules do not describe: nested functions (static chain in
 * r10), callees whose registers the caller knows (-fipa-ra), red-zone leaves, alloca and VLA callers,
 * rbp used as data, frames realigned for vectors, and assembly without unwind information. */
#include "nasty.h"
#include <alloca.h>

static uint64_t n_leaf, n_known, n_vla, n_realigned;
extern long bare_caller(long x), data_in_rbp(long x);

PROBED long leaf(long x)
{
    /* Enough locals to use the red zone. */
    volatile long l[6] = {x, x + 1, x + 2, x + 3, x + 4, x + 5};
    count(&n_leaf);
    return l[0] + l[5] * l[3];
}

/* Not noipa: gcc may keep values of its caller in registers this one does not touch. */
__attribute__((noinline, noclone)) static long known(long x)
{
    __asm__ volatile("" : "+r"(x));
    count(&n_known);
    return x ^ 0x55;
}

static long chain(long x)
{
    long sum = x;
    auto long nested(long);
    __attribute__((noinline, noclone, used)) long nested(long y)
    {
        sum += y;
        return leaf(sum & 15);
    }
    long (*volatile through)(long) = NULL;
    (void)through;
    return nested(x) + nested(x + 1) + sum;
}

PROBED long with_vla(long n)
{
    count(&n_vla);
    char room[n];
    memset(room, (int)n, (size_t)n);
    char *more = alloca((size_t)n * 3);
    memset(more, 1, (size_t)n * 3);
    return leaf(room[n - 1]) + more[n];
}

typedef double vector __attribute__((vector_size(32)));

__attribute__((target("avx"))) PROBED long realigned(long x)
{
    count(&n_realigned);
    volatile vector v __attribute__((aligned(64))) = {x, x + 1, x + 2, x + 3};
    char *room = alloca((size_t)(x & 63) + 1);
    room[0] = (char)x;
    long y = leaf(x & 7);
    KEEP(y);
    return y + (long)v[2] + room[0] + (long)(((uintptr_t)&v) & 31);
}

int main(void)
{
    long sum = 0;
    for (long i = 1; i < 3000; i++) {
        long a = i * 3, b = i * 5, c = i * 7;
        sum += known(i) + a;
        sum += known(i + 1) + b * c;
        sum += chain(i) + with_vla((i & 127) + 1) + bare_caller(i) + data_in_rbp(i);
    }
    if (__builtin_cpu_supports("avx"))
        for (long i = 0; i < 3000; i++)
            sum += realigned(i);
    printf("%ld\n", sum);
    tell("leaf", n_leaf, "exact");
    tell("known", n_known, "exact");
    tell("with_vla", n_vla, "exact");
    if (n_realigned)
        tell("realigned", n_realigned, "exact");
    tell("bare_caller", 2999, "exact");
    tell("data_in_rbp", 2999, "exact");
}
