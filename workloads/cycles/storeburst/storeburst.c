/* One store per cache line over an area that fits no cache, so that stores wait for room in the store buffer,
 * beside the same loop over an area that fits the first cache. */
#include "../planted.h"

enum { LINE = 64 };

extern char *const store_address, *const fits_address;

static char *area;
static uint64_t at[2];

#define LOOP(name, which, bytes) \
    __asm__ volatile("1: mov %2, %%rax\n" \
                     "3: mov %0, (%3, %1)\n" \
                     "add $64, %1\n" \
                     "and %4, %1\n" \
                     "dec %0\n" \
                     "jne 1b\n" PLANT(name, "3b") \
                     : "+r"(rounds), "+r"(at[which]) \
                     : "r"(rounds), "r"(area), "r"((uint64_t)(bytes)-1) \
                     : "rax", "memory", "cc")

NOINLINE void burst(uint64_t rounds) { LOOP(store_address, 0, 256 << 20); }

NOINLINE void fits(uint64_t rounds) { LOOP(fits_address, 1, 8 << 10); }

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    area = aligned_alloc(4096, 256 << 20);
    if (!area)
        abort();
    for (uint64_t i = 0; i < 256 << 20; i += LINE)
        area[i] = 1;
    take_turns(seconds, burst, fits, 100000);
    TELL(store_address);
    TELL(fits_address);
    return area[LINE] == 42;
}
