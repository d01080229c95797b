/* Recursion: a function's total counts outermost activations once, however deep; a call costs as much at
 * depth 10 000 as at depth 10.
 *   recur [REPEATS]   prints calls, outermost activations and their wall time, and ns per call at both depths */
#include "../cycles/work.h"
#include "../nasty/nasty.h"

static uint64_t n_descend, n_tree, n_bounce, wall;

PROBED uint64_t descend(long left)
{
    n_descend++;
    if (left == 0)
        return spin(20, 1);
    uint64_t y = descend(left - 1);
    KEEP(y);
    return y + 1;
}

PROBED uint64_t tree(long left)
{
    n_tree++;
    if (left == 0)
        return spin(50, 3);
    uint64_t y = tree(left - 1);
    KEEP(y);
    y += tree(left - 1);
    KEEP(y);
    return y;
}

PROBED uint64_t bounce(long left);
__attribute__((noinline, noclone)) static uint64_t between(long left)
{
    uint64_t y = bounce(left - 1);
    KEEP(y);
    return y * 3;
}
PROBED uint64_t bounce(long left)
{
    n_bounce++;
    uint64_t y = left ? between(left) : 1;
    KEEP(y);
    return y + 1;
}

static double per_call(long depth, long times)
{
    uint64_t start = wall_ns(), x = 0;
    for (long i = 0; i < times; i++)
        x ^= descend(depth);
    KEEP(x);
    uint64_t took = wall_ns() - start;
    wall += took;
    return (double)took / ((double)times * (double)(depth + 1));
}

int main(int argc, char **argv)
{
    long repeats = argc > 1 ? atol(argv[1]) : 20;
    uint64_t x = 0, outer = 0;
    double shallow = 1e9, deep = 1e9;
    descend(10000);
    outer++;
    for (long i = 0; i < repeats; i++) {
        double a = per_call(10, 1000), b = per_call(10000, 1);
        shallow = a < shallow ? a : shallow;
        deep = b < deep ? b : deep;
        outer += 1001;
        x ^= tree(10) ^ bounce(20);
    }
    printf("calls_descend %" PRIu64 "\nouter_descend %" PRIu64 "\nwall_ns_descend %" PRIu64 "\n", n_descend, outer, wall);
    printf("calls_tree %" PRIu64 "\ncalls_bounce %" PRIu64 "\nns_shallow %.2f\nns_deep %.2f\n", n_tree, n_bounce, shallow, deep);
    tell("descend", n_descend, "exact");
    tell("tree", n_tree, "exact");
    tell("bounce", n_bounce, "exact");
    return x == 1;
}
