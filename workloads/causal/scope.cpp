// K16: time spent in the C library belongs to the line of the program that called it; a template inlined into
// two places belongs to each. Prints the four lines and their shares by the CPU clock.
#include "causal.h"
#include <algorithm>
#include <vector>

static std::vector<char> from(1 << 20, 1), to(1 << 20);
static std::vector<int> unsorted(20000), one(20000), two(20000);

static int ascending(const void *a, const void *b)
{
    int x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

NUMBER(copies, 25)

// One generic body, inlined where it is used; the line that uses it is what a user knows.
template <typename T> ALWAYS_INLINE uint64_t stir(T seed, uint64_t steps)
{
    uint64_t x = static_cast<uint64_t>(seed);
    for (uint64_t i = 0; i < steps; i++) {
        x = x * 6364136223846793005u + sizeof(T);
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

static uint64_t spent[4], mark;
static void account(int part)
{
    uint64_t now = cpu_ns();
    spent[part] += now - mark;
    mark = now;
}

NOINLINE void round_of_work(uint64_t per_ms, int copies)
{
    mark = cpu_ns();
    for (int i = 0; i < copies; i++)
        memcpy(to.data(), from.data(), from.size() - static_cast<size_t>(to[static_cast<size_t>(i)] & 1));
    const int copy_line = __LINE__ - 1;
    account(0);
    one = unsorted;
    qsort(one.data(), one.size(), sizeof one[0], ascending);
    const int sort_line = __LINE__ - 1;
    account(1);
    to[0] = static_cast<char>(stir<int>(3, 2 * per_ms));
    const int int_line = __LINE__ - 1;
    account(2);
    to[1] = static_cast<char>(stir<long>(5, per_ms));
    const int long_line = __LINE__ - 1;
    account(3);
    static bool told;
    if (!told)
        printf("line_copy %d\nline_sort %d\nline_int %d\nline_long %d\n", copy_line, sort_line, int_line, long_line);
    told = true;
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    uint64_t random = 88172645463325252u;
    for (int &value : unsorted)
        value = static_cast<int>(next_random(&random));
    for (uint64_t done = 0; more(done); done++) {
        round_of_work(the_run.per_ms, static_cast<int>(VALUE(copies)));
        progress();
    }
    finish();
    const char *names[] = {"copy", "sort", "int", "long"};
    uint64_t all = spent[0] + spent[1] + spent[2] + spent[3] + 1;
    for (int i = 0; i < 4; i++)
        printf("share_%s %.2f\n", names[i], 100.0 * static_cast<double>(spent[i]) / static_cast<double>(all));
}
