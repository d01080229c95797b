// A program without a C library, also for 32 bits, with more than two pages of code.
__attribute__((noinline)) int add(int a, int b) {
    return a + b;
}

__attribute__((noinline)) int loop(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum = add(sum, i);
    return sum;
}

__asm__(".globl room\n.type room, @function\nroom:\n\t.fill 9000, 1, 0x90\n\tret\n.size room, . - room\n");

void _start(void) {
    volatile int result = loop(1000);
    (void)result;
    for (;;) {
    }
}
