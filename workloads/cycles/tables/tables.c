/* An interpreter of eight operations that are chosen by chance: its one function jumps by a table, which lies in the
 * read-only data. Its file is changed behind its back by the test. */
#include "../work.h"

__attribute__((noinline)) uint64_t interpret(uint64_t rounds)
{
    uint64_t state = 1, a = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        switch ((state >> 60) & 7) {
        case 0: a += 3; break;
        case 1: a ^= state; break;
        case 2: a *= 5; break;
        case 3: a -= i; break;
        case 4: a = a << 3 | a >> 61; break;
        case 5: a += state >> 7; break;
        case 6: a ^= a >> 9; break;
        case 7: a += i * i; break;
        }
    }
    return a;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9), sum = 0, calls = 0;
    do {
        sum += interpret((1 << 20) + (calls & 3)); /* another one each time: of equal ones one would do */
        calls++;
    } while (wall_ns() < end);
    printf("calls %" PRIu64 "\nsum %" PRIu64 "\n", calls, sum);
    return 0;
}
