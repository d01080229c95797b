/* Calls through pointers, and what is none: a switch by table, a slot of the linker, a computed goto. */
#define NI __attribute__((noinline, noclone))
typedef int (*op)(int);
extern int rand(void);
extern int scale(int n, op f) __attribute__((visibility("hidden")));
volatile int sink;
op table[2];
op volatile handler;

static inline __attribute__((always_inline)) int inlined(op f, int n) { return f(n) + 1; }

NI int plain(int n) { sink += n; return n; }
NI int direct(int n) { return plain(n) + rand(); }
NI int twice(op f, int n) { return f(n) + inlined(table[n & 1], n); }
NI int global(int n) { return handler(n) + 1; }
NI int tail(op f, int n) { sink = n; return f(n + 1); }
NI int chosen(int n) {
    switch (n) {
    case 0: sink = 3; break;
    case 1: sink = 1; sink = 4; break;
    case 2: sink = 1; break;
    case 3: sink = 5; sink = 9; break;
    case 4: sink = 2; sink = 6; break;
    case 5: sink = 5; break;
    default: sink = 3; sink = 5; sink = 8;
    }
    return sink;
}
NI int computed(const unsigned char *code) {
    static const void *const places[] = {&&add, &&back, &&done};
    int n = 0;
    goto *places[*code++];
add: n += sink; goto *places[*code++];
back: n -= sink * 3; goto *places[*code++];
done: return n;
}
/* The call is in the part that the compiler puts elsewhere. */
NI int seldom(op f, int n) {
    if (__builtin_expect(n == 77, 0)) {
        sink = f(n) * 3;
        sink += f(n + 1);
    }
    return n + sink;
}
__attribute__((cold)) NI int never(int n) { return n; }

int main(int argc, char **argv) {
    table[0] = table[1] = handler = plain;
    return direct(argc) + twice(plain, argc) + global(argc) + tail(plain, argc) + chosen(argc)
        + computed((unsigned char *)argv[0]) + seldom(plain, argc) + never(argc);
}
