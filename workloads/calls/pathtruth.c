/* True call paths. A deterministic walk through 16 functions of all shapes (leaf and deep, alloca and VLA,
 * recursion, calls through pointers and through qsort) that ends in `target`. The same source built with
 * -finstrument-functions (pathtruth-truth) keeps its own stack of names and prints `calls path` lines,
 * sorted; the other builds print the same sum of results. Frames of the C library (qsort) are left out
 * of the truth: leave them out of what is compared with it. */
#include "../nasty/nasty.h"
#include <alloca.h>

#define UNTRACED __attribute__((no_instrument_function))
#define SHAPE __attribute__((noinline, noclone, noipa))
typedef long shape(unsigned long way, int left);

enum { NAMES = 20, MOST_DEPTH = 64, MOST_PATHS = 20000 };

SHAPE long target(long x);
static shape plain, frameful, vla, grower, self, pointer, sorted, floats, many_args, switcher, looper, tail_like, pair_a, pair_b, wide, twice;
static shape *const shapes[] = {plain, frameful, vla, grower, self, pointer, sorted, floats, many_args, switcher, looper, tail_like, pair_a, pair_b, wide, twice};
static unsigned long long n_target;

/* The next function, or the end of the path. */
SHAPE long next(unsigned long way, int left)
{
    long y = left > 0 ? shapes[way & 15](way >> 4 | way << 60, left - 1) : target((long)(way & 0xffff));
    KEEP(y);
    return y + 1;
}

SHAPE long target(long x)
{
    n_target++;
    return x * 3 + 1;
}

static SHAPE long plain(unsigned long way, int left)
{
    long y = next(way, left);
    KEEP(y);
    return y;
}

static SHAPE long frameful(unsigned long way, int left)
{
    volatile char room[700];
    room[way % sizeof room] = 1;
    long y = next(way, left);
    KEEP(y);
    return y + room[way % sizeof room];
}

static SHAPE long vla(unsigned long way, int left)
{
    char room[(way & 127) + 1];
    memset(room, 2, sizeof room);
    long y = next(way, left);
    KEEP(y);
    return y + room[sizeof room - 1];
}

static SHAPE long grower(unsigned long way, int left)
{
    volatile char *room = alloca((way & 255) + 16);
    room[3] = 3;
    long y = next(way, left);
    KEEP(y);
    return y + room[3];
}

static SHAPE long self(unsigned long way, int left)
{
    long y = way & 3 && left > 1 ? self(way >> 1, left - 1) : next(way, left);
    KEEP(y);
    return y * 2;
}

static SHAPE long pointer(unsigned long way, int left)
{
    shape *volatile through = next;
    long y = through(way, left);
    KEEP(y);
    return y + 4;
}

static __thread unsigned long sorted_way;
static __thread int sorted_left;
static __thread long sorted_sum;

static SHAPE int compare(const void *a, const void *b)
{
    int left = sorted_left;
    unsigned long way = sorted_way;
    long y = next(way, left);
    KEEP(y);
    sorted_sum += y;
    return *(const int *)a - *(const int *)b;
}

static SHAPE long sorted(unsigned long way, int left)
{
    int values[2] = {2, 1};
    sorted_way = way;
    sorted_left = left > 2 ? 2 : left;
    qsort(values, 2, sizeof *values, compare);
    long y = sorted_sum;
    KEEP(y);
    return y & 0xffff;
}

static SHAPE long floats(unsigned long way, int left)
{
    double f = (double)(way & 1023) / 3;
    long y = next(way, left);
    KEEP(y);
    return y + (long)f;
}

static SHAPE long with_many(long a, long b, long c, long d, long e, long f, long g, long h, unsigned long way, int left)
{
    long y = next(way, left);
    KEEP(y);
    return y + a + b + c + d + e + f + g + h;
}

static SHAPE long many_args(unsigned long way, int left)
{
    long y = with_many(1, 2, 3, 4, 5, 6, 7, 8, way, left);
    KEEP(y);
    return y;
}

static SHAPE long switcher(unsigned long way, int left)
{
    long y = 0;
    switch (way & 7) {
    case 0: y = plain(way >> 3, left); break;
    case 1: y = next(way >> 3, left); break;
    case 2: y = vla(way >> 3, left) + 1; break;
    case 3: y = floats(way, left); break;
    case 4: y = next(way >> 2, left) * 2; break;
    case 5: y = frameful(way, left); break;
    default: y = 7;
    }
    KEEP(y);
    return y;
}

static SHAPE long looper(unsigned long way, int left)
{
    long y = 0;
    for (unsigned long i = 0; i < 2; i++)
        y += next(way >> i, left > 3 ? 3 : left);
    KEEP(y);
    return y;
}

static SHAPE long tail_like(unsigned long way, int left)
{
    long y = next(way ^ 5, left);
    __asm__ volatile("" : "+r"(y));
    return y;
}

static SHAPE long pair_a(unsigned long way, int left)
{
    long y = left > 0 ? pair_b(way >> 1, left - 1) : next(way, left);
    KEEP(y);
    return y + 1;
}

static SHAPE long pair_b(unsigned long way, int left)
{
    long y = left > 0 && way & 1 ? pair_a(way >> 1, left - 1) : next(way, left);
    KEEP(y);
    return y + 2;
}

static SHAPE long wide(unsigned long way, int left)
{
    struct {
        __int128 v[4];
    } big = {{(__int128)way, 1, 2, 3}};
    __asm__ volatile("" : "+m"(big));
    long y = next(way, left);
    KEEP(y);
    return y + (long)big.v[3];
}

/* Two call sites of one callee. */
static SHAPE long twice(unsigned long way, int left)
{
    long y = next(way, left > 2 ? 2 : left);
    KEEP(y);
    y += next(way ^ 1, left > 2 ? 2 : left);
    KEEP(y);
    return y;
}

SHAPE int main(void)
{
    unsigned long state = 88172645463325252ul, sum = 0;
    for (int i = 0; i < 3000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum += (unsigned long)next(state >> 8, (int)(state & 7));
    }
    printf("sum %lu\ncalls_target %llu\n", sum, n_target);
    tell("target", n_target, "exact");
    return 0;
}

#ifdef TRUTH
static const struct {
    const char *name;
    void *function;
} names[] = {{"main", main}, {"next", next}, {"target", target}, {"plain", plain}, {"frameful", frameful}, {"vla", vla},
             {"grower", grower}, {"self", self}, {"pointer", pointer}, {"sorted", sorted}, {"compare", compare},
             {"floats", floats}, {"with_many", with_many}, {"many_args", many_args}, {"switcher", switcher}, {"looper", looper},
             {"tail_like", tail_like}, {"pair_a", pair_a}, {"pair_b", pair_b}, {"wide", wide}, {"twice", twice}};
static const char *stack[MOST_DEPTH];
static int depth, paths;
static struct {
    char *path;
    unsigned long calls;
} found[MOST_PATHS];

UNTRACED void __cyg_profile_func_enter(void *function, void *site);
UNTRACED void __cyg_profile_func_exit(void *function, void *site);

UNTRACED static void book(void)
{
    char path[2048] = "";
    for (int i = 0; i < depth; i++)
        strcat(strcat(path, i ? " > " : ""), stack[i]);
    int i = 0;
    while (i < paths && strcmp(found[i].path, path))
        i++;
    if (i == paths) {
        if (paths == MOST_PATHS)
            abort();
        found[paths++].path = strdup(path);
    }
    found[i].calls++;
}

void __cyg_profile_func_enter(void *function, void *site)
{
    (void)site;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].function == function) {
            if (depth == MOST_DEPTH)
                abort();
            stack[depth++] = names[i].name;
            if (function == (void *)target)
                book();
            return;
        }
}

UNTRACED static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void __cyg_profile_func_exit(void *function, void *site)
{
    (void)site;
    if (function == (void *)main) {
        qsort(found, (size_t)paths, sizeof *found, by_path);
        for (int i = 0; i < paths; i++)
            printf("path %lu %s\n", found[i].calls, found[i].path);
    }
    depth--;
}
#endif
