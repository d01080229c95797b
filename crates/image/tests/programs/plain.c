// A program with static, aliased and assembler functions, for comparing symbols and lines.
#include <stdio.h>
#include <string.h>

static __attribute__((noinline)) int leaf(int x) {
    return x * x + 1;
}

static inline int half(int x) {
    if (x > 10)
        return x / 2;
    return x;
}

__attribute__((noinline)) int middle(int x) {
    int sum = 0;
    for (int i = 0; i < x; i++)
        sum += leaf(half(i));
    return sum;
}

int __middle_alias(int) __attribute__((alias("middle")));

__asm__(".text\n.globl no_size\nno_size:\n\tnop\n\tnop\n\tret\n");
extern void no_size(void);

static int (*choose(void))(int) {
    return leaf;
}
int pick(int) __attribute__((ifunc("choose")));

int main(int argc, char **argv) {
    no_size();
    printf("%d %zu\n", middle(argc + 20) + pick(argc), strlen(argv[0]));
    return 0;
}
