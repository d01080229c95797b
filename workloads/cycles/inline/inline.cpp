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
    std::uint64_t spent = 0, random = 11, x = 0;
    while (spent < length) {
        std::uint64_t rounds = 100000 + next_random(&random) % 100000;
        std::uint64_t start = cpu_ns();
        x ^= demo::first_caller(2 * rounds);
        x ^= demo::second_caller(rounds);
        spent += cpu_ns() - start;
    }
    printf("share_first_caller %.2f\nshare_second_caller %.2f\n", 200.0 / 3, 100.0 / 3);
    return x == 1;
}
