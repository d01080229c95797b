/* 18, 24, 25, 26, 39: every way arguments and results travel: varargs (al), six integers and eight
 * floats and more on the stack, structs by value and returned, __int128, long double (st0), _Complex,
 * 256-bit vectors where the CPU has them. Also built static, with musl, stripped, non-PIE and with sanitizers. */
#include "nasty.h"
#include <complex.h>
#include <stdarg.h>

typedef long vector __attribute__((vector_size(32)));
struct big {
    long words[9];
};
struct pair {
    double a;
    long b;
};

static uint64_t n_sum, n_many, n_by_value, n_wide_int, n_extended, n_complex, n_pair, n_vector;

PROBED double sum_up(int n, ...)
{
    count(&n_sum);
    va_list list;
    va_start(list, n);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += i % 2 ? va_arg(list, double) : (double)va_arg(list, long);
    va_end(list);
    return sum;
}

PROBED double many(long a, long b, long c, long d, long e, long f, double p, double q, double r, double s, double t, double u,
                   double v, double w, long g, double x, long h, double y)
{
    count(&n_many);
    return a + 2.0 * b + 3.0 * c + 4.0 * d + 5.0 * e + 6.0 * f + 7 * p + 8 * q + 9 * r + 10 * s + 11 * t + 12 * u + 13 * v +
           14 * w + 15.0 * g + 16 * x + 17.0 * h + 18 * y;
}

PROBED struct big by_value(struct big in, long add)
{
    count(&n_by_value);
    for (int i = 0; i < 9; i++)
        in.words[i] += add * i;
    return in;
}

PROBED __int128 wide_int(__int128 a, unsigned __int128 b)
{
    count(&n_wide_int);
    return a * 3 + (__int128)(b >> 60);
}

PROBED long double extended(long double x, long double y)
{
    count(&n_extended);
    return x / y + 0.25L;
}

PROBED double complex turn(double complex z, float complex w)
{
    count(&n_complex);
    return z * w + I;
}

PROBED struct pair pair(struct pair p, float scale)
{
    count(&n_pair);
    return (struct pair){p.a * scale, p.b + 1};
}

__attribute__((target("avx2"))) PROBED vector vectors(vector a, vector b)
{
    count(&n_vector);
    return a * 3 + b;
}

__attribute__((target("avx2"), noinline)) static long with_vectors(int i)
{
    vector v = vectors((vector){i, i + 1, i + 2, i + 3}, (vector){1, 2, 3, 4});
    return v[0] + v[1] + v[2] + v[3];
}

/* Floating-point and vector registers a callee may use, but that hold values across nothing: each call is
 * checked against the same work done without a call. */
int main(void)
{
    double total = 0;
    long integers = 0;
    for (int i = 0; i < 2000; i++) {
        total += sum_up(6, 1L * i, 0.5, 2L, i * 0.25, 3L, 1e3);
        total += sum_up(3, 1L, 2.5, 3L);
        total += many(1, 2, 3, 4, 5, 6, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, i, 7, 8.5, 8, 9.5);
        struct big big = {{i, 1, 2, 3, 4, 5, 6, 7, 8}};
        big = by_value(big, i);
        integers += big.words[0] + big.words[8];
        __int128 product = wide_int((__int128)i << 70, (unsigned __int128)7 << 64);
        integers += (long)(product >> 70) + (long)product;
        total += (double)extended(i, 3.0L);
        double complex z = turn(i + 2.0 * I, 1.0f - 0.5f * I);
        total += creal(z) - cimag(z);
        struct pair p = pair((struct pair){i, i}, 0.5f);
        total += p.a + (double)p.b;
    }
    if (__builtin_cpu_supports("avx2"))
        for (int i = 0; i < 2000; i++)
            integers += with_vectors(i);
    printf("%.6f %ld\n", total, integers);
    tell("sum_up", n_sum, "exact");
    tell("many", n_many, "exact");
    tell("by_value", n_by_value, "exact");
    tell("wide_int", n_wide_int, "exact");
    tell("extended", n_extended, "exact");
    tell("turn", n_complex, "exact");
    tell("pair", n_pair, "exact");
    if (n_vector)
        tell("vectors", n_vector, "exact");
}
