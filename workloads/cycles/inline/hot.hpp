// The function that disappears: always inlined into its callers.
#pragma once
#include <cstdint>

[[gnu::always_inline]] inline std::uint64_t inlined_hot(std::uint64_t x, std::uint64_t rounds)
{
    for (std::uint64_t i = 0; i < rounds; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}
