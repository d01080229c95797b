/* Straight code of 4 MiB, which fits neither the first nor the second instruction cache: each of eight functions
 * of 512 KiB is gone through once, then all again. Beside it the same code of 28 KiB in a loop, which stays in the first
 * cache and is decoded anew each time as well (7,168 instructions: no cache of decoded ones holds so many), and of
 * 16 KiB. Nothing waits for anything but instructions, and few branches are there. */
#include "../planted.h"

extern char *const code_address, *const fits_address, *const few_address;

/* `lines` cache lines of cheap instructions (a `nopl` of five bytes, which assemblers make four of); the chain through r8 takes 2 cycles of each. */
#define LINES(lines) \
    ".balign 64\n" \
    ".rept " lines "\n" \
    "lea 0x12345678(%%r8), %%r9\n" \
    "add $0x1234567, %%r10\n" \
    "lea 0x1234567(%%r8), %%r11\n" \
    "add $0x1234567, %%r8\n" \
    "lea 0x12345678(%%r8), %%r9\n" \
    "add $0x1234567, %%r10\n" \
    "lea 0x1234567(%%r8), %%r11\n" \
    "add $0x1234567, %%r8\n" \
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n" \
    "nop\n" \
    "nop\n" \
    "nop\n" \
    ".endr\n"

#define CLOBBERS "r8", "r9", "r10", "r11", "cc"

#define STRAIGHT(n) \
    NOINLINE void straight##n(void) { __asm__ volatile("3:\n" LINES("8192") : : : CLOBBERS); }

STRAIGHT(1)
STRAIGHT(2)
STRAIGHT(3)
STRAIGHT(4)
STRAIGHT(5)
STRAIGHT(6)
STRAIGHT(7)

NOINLINE void straight0(void) { __asm__ volatile("3:\n" LINES("8192") PLANT(code_address, "3b") : : : CLOBBERS); }

/* A round is a line. */
NOINLINE void all(uint64_t rounds)
{
    for (uint64_t done = 0; done < rounds; done += 8 * 8192) {
        straight0();
        straight1();
        straight2();
        straight3();
        straight4();
        straight5();
        straight6();
        straight7();
    }
}

#define LOOP(lines, address) \
    __asm__ volatile("3:\n" LINES(lines) "dec %0\n" \
                                         "jne 3b\n" PLANT(address, "3b") \
                     : "+r"(rounds) \
                     : \
                     : CLOBBERS)

NOINLINE void fits(uint64_t rounds)
{
    rounds /= 448;
    LOOP("448", fits_address);
}

NOINLINE void few(uint64_t rounds)
{
    rounds /= 256;
    LOOP("256", few_address);
}

int main(int argc, char **argv)
{
    double seconds = seconds_argument(argc, argv);
    take_turns(seconds, all, fits, 8 * 8192 * 7);
    few((uint64_t)(seconds * 0x10000000));
    TELL(code_address);
    TELL(fits_address);
    TELL(few_address);
    return 0;
}
