/* The function `callcost` calls: about 4 ns of dependent work. A file of its own, so that it can also be
 * built as a library (for tools that only see calls between modules) and with other tools' flags. */
#include <stdint.h>

uint64_t target(uint64_t x, uint64_t y);

__attribute__((noinline, noclone)) uint64_t target(uint64_t x, uint64_t y)
{
    x ^= y;
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 32;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
    return x;
}
