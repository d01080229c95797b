/* True call paths in C++: virtual calls, std::function, templates, std::sort comparators, destructors that
 * run while an exception is in flight, and catch blocks. Each function keeps its name on a stack of our own;
 * with the argument `truth` the paths to `target` are printed, `path CALLS NAMES`, sorted. */
#include "../nasty/nasty.h"
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static std::vector<const char *> stack;
static std::map<std::string, unsigned long> paths;
static uint64_t n_target;

struct Here {
    explicit Here(const char *name) { stack.push_back(name); }
    ~Here() { stack.pop_back(); }
};

extern "C" {
PROBED long target(long x);
PROBED long plain(unsigned long way, int left);
PROBED long by_function(unsigned long way, int left);
PROBED long by_virtual(unsigned long way, int left);
PROBED long sorting(unsigned long way, int left);
PROBED long unwinding(unsigned long way, int left);
PROBED long catching(unsigned long way, int left);
PROBED long thrower(unsigned long way, int left);
PROBED long virtual_a(unsigned long way, int left);
PROBED long virtual_b(unsigned long way, int left);
PROBED long destructor(unsigned long way, int left);
PROBED long next(unsigned long way, int left);
}

long target(long x)
{
    n_target++;
    std::string path;
    for (const char *name : stack)
        path += std::string(name) + " > ";
    paths[path + "target"]++;
    return x * 3 + 1;
}

long plain(unsigned long way, int left)
{
    Here here("plain");
    std::string text(way % 40, 'x');
    long y = next(way, left);
    return y + (long)text.size();
}

long by_function(unsigned long way, int left)
{
    Here here("by_function");
    std::function<long(int)> f = [way](int l) { return next(way, l); };
    return f(left) + 1;
}

struct Base {
    virtual ~Base() = default;
    virtual long go(unsigned long way, int left) = 0;
};
struct A : Base {
    long go(unsigned long way, int left) override { return virtual_a(way, left) + 1; }
};
struct B : virtual Base {
    long go(unsigned long way, int left) override { return virtual_b(way, left) + 2; }
};

long virtual_a(unsigned long way, int left)
{
    Here here("virtual_a");
    long y = next(way, left);
    KEEP(y);
    return y;
}

long virtual_b(unsigned long way, int left)
{
    Here here("virtual_b");
    long y = next(way >> 1, left);
    KEEP(y);
    return y;
}

long by_virtual(unsigned long way, int left)
{
    Here here("by_virtual");
    std::unique_ptr<Base> object;
    if (way & 1)
        object = std::make_unique<A>();
    else
        object = std::make_unique<B>();
    return object->go(way, left) + 1;
}

long sorting(unsigned long way, int left)
{
    Here here("sorting");
    std::vector<long> values{3, 1, 2};
    long sum = 0;
    std::sort(values.begin(), values.end(), [&](long a, long b) {
        sum += next(way + (unsigned long)a, std::min(left, 1));
        return a < b;
    });
    return sum & 0xffff;
}

struct Unwound {
    unsigned long way;
    int left;
    long *sum;
    ~Unwound() { *sum += destructor(way, left); }
};

long destructor(unsigned long way, int left)
{
    Here here("destructor");
    long y = next(way, std::min(left, 2));
    KEEP(y);
    return y;
}

long thrower(unsigned long way, int left)
{
    Here here("thrower");
    if (left <= 0)
        throw std::runtime_error("end");
    long y = thrower(way, left - 1);
    KEEP(y);
    return y;
}

long unwinding(unsigned long way, int left)
{
    Here here("unwinding");
    long sum = 0;
    try {
        Unwound unwound{way, left, &sum};
        sum += thrower(way, left);
    } catch (std::exception &) {
        sum++;
    }
    return sum;
}

long catching(unsigned long way, int left)
{
    Here here("catching");
    try {
        return thrower(way, 2);
    } catch (std::exception &e) {
        long y = next(way, std::min(left, 2));
        KEEP(y);
        return y + e.what()[0];
    }
}

long next(unsigned long way, int left)
{
    static long (*const shapes[])(unsigned long, int) = {plain, by_function, by_virtual, sorting, unwinding, catching};
    Here here("next");
    long y = left > 0 ? shapes[way % 6](way / 6, left - 1) : target((long)(way & 0xffff));
    KEEP(y);
    return y + 1;
}

int main(int argc, char **argv)
{
    Here here("main");
    unsigned long state = 88172645463325252ul, sum = 0;
    for (int i = 0; i < 1500; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum += (unsigned long)next(state >> 8, (int)(state % 7));
    }
    printf("sum %lu\ncalls_target %llu\n", sum, (unsigned long long)n_target);
    if (argc > 1 && !strcmp(argv[1], "truth"))
        for (const auto &[path, calls] : paths)
            printf("path %lu %s\n", calls, path.c_str());
    tell("target", n_target, "exact");
}
