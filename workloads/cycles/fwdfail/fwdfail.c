/* Two narrow stores and a wide load of both: the load cannot take its bytes from one store and waits until both
 * are in the cache. Beside it one wide store. The next round's stores need the load, so the wait shows. */
#include "../planted.h"

extern char *const load_address, *const good_address;

static uint64_t place[8] __attribute__((aligned(64)));

NOINLINE void pieces(uint64_t rounds)
{
    uint64_t x = 1;
    __asm__ volatile("1: mov %k1, (%2)\n"
                     "mov %k1, 4(%2)\n"
                     "3: mov (%2), %1\n"
                     "add $7, %%r8\n"
                     "dec %0\n"
                     "jne 1b\n" PLANT(load_address, "3b")
                     : "+r"(rounds), "+r"(x)
                     : "r"(place)
                     : "r8", "memory", "cc");
}

NOINLINE void whole(uint64_t rounds)
{
    uint64_t x = 1;
    __asm__ volatile("1: mov %1, (%2)\n"
                     "mov %1, 8(%2)\n"
                     "3: mov (%2), %1\n"
                     "add $7, %%r8\n"
                     "dec %0\n"
                     "jne 1b\n" PLANT(good_address, "3b")
                     : "+r"(rounds), "+r"(x)
                     : "r"(place)
                     : "r8", "memory", "cc");
}

int main(int argc, char **argv)
{
    take_turns(seconds_argument(argc, argv), pieces, whole, 200000);
    TELL(load_address);
    TELL(good_address);
    return 0;
}
