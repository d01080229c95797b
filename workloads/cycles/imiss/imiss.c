/* Straight code of 4 MiB, which fits neither the first nor the second instruction cache: each of eight functions
 * of 512 KiB is gone through once, then all again. Beside it the same code of 16 KiB, in a loop. Nothing waits for
 * anything but instructions, and few branches are there. */
#include "../planted.h"

extern char *const code_address, *const few_address;

/* `lines` cache lines of cheap instructions; the chain through r8 takes 2 cycles of each. */
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
    "nopl 0x0(%%rax,%%rax,1)\n" \
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

NOINLINE void few(uint64_t rounds)
{
    rounds /= 256;
    __asm__ volatile("3:\n" LINES("256") "dec %0\n"
                                         "jne 3b\n" PLANT(few_address, "3b")
                     : "+r"(rounds)
                     :
                     : CLOBBERS);
}

int main(int argc, char **argv)
{
    take_turns(seconds_argument(argc, argv), all, few, 8 * 8192 * 4);
    TELL(code_address);
    TELL(few_address);
    return 0;
}
