// A hot function from a header, inlined into two callers: by symbol it does not exist, by line and by
// inline chain it has everything.
#include "hot.hpp"
#include "../work.h"

namespace demo {
[[gnu::noinline]] std::uint64_t first_caller(std::uint64_t rounds) { return inlined_hot(1, rounds); }
[[gnu::noinline]] std::uint64_t second_caller(std::uint64_t rounds) { return inlined_hot(2, rounds) + 1; }
} // namespace demo

int main(int argc, char **argv)
{
    std::uint64_t length = static_cast<std::uint64_t>(seconds_argument(argc, argv) * 1e9);
    std::uint64_t first = 0, total = 0, random = 11, x = 0;
    while (total < length) {
        std::uint64_t rounds = 100000 + next_random(&random) % 100000;
        std::uint64_t start = cpu_ns();
        x ^= demo::first_caller(2 * rounds);
        std::uint64_t between = cpu_ns();
        x ^= demo::second_caller(rounds);
        std::uint64_t end = cpu_ns();
        first += between - start;
        total += end - start;
    }
    double share = 100.0 * static_cast<double>(first) / static_cast<double>(total);
    printf("share_first_caller %.2f\nshare_second_caller %.2f\n", share, 100.0 - share);
    return x == 1;
}
