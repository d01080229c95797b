/* 1: exceptions thrown, rethrown and nested through 1, 2 and 50 probed frames, with destructors that
 * themselves call probed functions and throw inside; also from several threads at once. */
#include "nasty.h"
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static uint64_t n_thrower, n_middle, n_deep, n_cleanup, n_nested;

extern "C" {
PROBED int thrower(int x);
PROBED int middle(int x);
PROBED int deep(int x);
PROBED int cleanup(int x);
PROBED int nested(int x);
}

static thread_local long destroyed;

struct Guard {
    int value;
    ~Guard() { destroyed += cleanup(value); }
};

int thrower(int x)
{
    count(&n_thrower);
    if (x % 3 == 0)
        throw x;
    if (x % 3 == 1)
        throw std::runtime_error("odd " + std::to_string(x));
    return x;
}

int cleanup(int x)
{
    count(&n_cleanup);
    /* An exception that lives and dies while another one is in flight. */
    try {
        return thrower(x * 3) + 1;
    } catch (int) {
        return 1;
    }
}

int middle(int x)
{
    count(&n_middle);
    Guard guard{x};
    int y = thrower(x);
    KEEP(y);
    return y + 1;
}

int deep(int x)
{
    count(&n_deep);
    Guard guard{x};
    int y = x > 0 ? deep(x - 1) : thrower(0);
    KEEP(y);
    return y;
}

int nested(int x)
{
    count(&n_nested);
    try {
        return middle(x);
    } catch (const std::exception &e) {
        if (x % 2)
            throw;
        return (int)std::string(e.what()).size();
    }
}

static void round(long &sum)
{
    for (int i = 0; i < 300; i++) {
        try {
            sum += thrower(i);
        } catch (int v) {
            sum += v;
        } catch (std::exception &) {
            sum += 7;
        }
        try {
            sum += nested(i);
        } catch (int v) {
            sum -= v;
        } catch (std::exception &e) {
            sum += e.what()[0];
        }
    }
    for (int i = 0; i < 20; i++) {
        try {
            sum += deep(49);
        } catch (int v) {
            sum += v + 1;
        }
    }
    sum += destroyed;
}

int main()
{
    long sums[4] = {};
    std::vector<std::thread> threads;
    for (long &sum : sums)
        threads.emplace_back(round, std::ref(sum));
    for (auto &thread : threads)
        thread.join();
    long own = 0;
    round(own);
    printf("%ld %ld %ld %ld %ld\n", own, sums[0], sums[1], sums[2], sums[3]);
    tell("thrower", n_thrower, "exact");
    tell("middle", n_middle, "exact");
    tell("deep", n_deep, "exact");
    tell("cleanup", n_cleanup, "exact");
    tell("nested", n_nested, "exact");
}
