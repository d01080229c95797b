// Exceptions thrown through five frames in a loop: time goes to the unwinder and the C++ run-time
// library, and a profiler that touches the target's stack or unwind tables would show here.
#include "../work.h"
#include <stdexcept>

[[gnu::noinline]] int thrower(int n)
{
    if (n >= 0)
        throw std::runtime_error("planned");
    return n;
}

template <int Level> [[gnu::noinline]] int pass(int n)
{
    if constexpr (Level == 0)
        n = thrower(n);
    else
        n = pass<Level - 1>(n);
    __asm__ volatile("" : "+r"(n));
    return n;
}

int main(int argc, char **argv)
{
    std::uint64_t length = static_cast<std::uint64_t>(seconds_argument(argc, argv) * 1e9);
    std::uint64_t start = wall_ns(), thrown = 0, caught = 0;
    while (wall_ns() - start < length) {
        for (int i = 0; i < 100; i++) {
            thrown++;
            try {
                pass<4>(i);
            } catch (const std::runtime_error &) {
                caught++;
            }
        }
    }
    printf("lost %" PRIu64 "\nthrows_positive %d\n", thrown - caught, thrown > 0);
    return thrown != caught;
}
