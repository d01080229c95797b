/* 57: memory next to stacks that is unmapped while calls go on below it.
 *   unmapped coroutines   stacks of coroutines side by side; one that has ended has its stack unmapped while its neighbours
 *                         run on, on two threads
 *   unmapped ends         the same with stacks used to their very end: what begins a coroutine was not called, so that there is no
 *                         return slot above it, though its unwind rule tells of one
 *   unmapped threads      blocks right above the stacks of threads, unmapped while these call from ever other depths */
#include "nasty.h"
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 64 * 1024, COROUTINES = 48, STACK_BYTES = 1 << 20, BLOCK = 1 << 20 };

static uint64_t n_leaf, n_sink, n_other;

PROBED long leaf(long x)
{
    count(&n_leaf);
    return x * 31 + 7;
}

/* Two ways to the next level, so that the call sites around a call differ from one to the next. */
PROBED long sink(long depth, unsigned way);
PROBED long other(long depth, unsigned way)
{
    count(&n_other);
    char room[800 + way % 1200];
    room[0] = (char)way;
    KEEP(room[0]);
    return sink(depth - 1, way * 1103515245u + 12345u) + leaf(room[0]);
}

PROBED long sink(long depth, unsigned way)
{
    count(&n_sink);
    long sum = leaf(depth);
    if (depth > 0)
        sum += way >> 16 & 1 ? other(depth, way) : sink(depth - 1, way * 1103515245u + 12345u);
    KEEP(sum);
    return sum + leaf(sum);
}

/* One call site at many depths: what is known of the deepest reaches far beyond the stack's end from the shallowest. Not
 * told, so not probed: calls in progress would end what is looked at. */
PROBED long straight(long depth)
{
    volatile char room[600];
    room[depth] = (char)depth;
    long sum = leaf(depth);
    return (depth > 0 ? sum + straight(depth - 1) : sum) + room[depth];
}

struct coroutine {
    ucontext_t self, caller;
    char *stack;
    int rounds, done;
};

static void body(unsigned low, unsigned high)
{
    struct coroutine *c = (struct coroutine *)(((uintptr_t)high << 32) | low);
    for (int i = 0; i < c->rounds; i++) {
        sink(i % 9, (unsigned)i * 7919u);
        swapcontext(&c->self, &c->caller);
    }
    c->done = 1;
    swapcontext(&c->self, &c->caller);
    abort();
}

static void begin(struct coroutine *c, int rounds)
{
    c->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    c->rounds = rounds;
    getcontext(&c->self);
    c->self.uc_stack.ss_sp = c->stack;
    c->self.uc_stack.ss_size = STACK;
    makecontext(&c->self, (void (*)(void))body, 2, (unsigned)(uintptr_t)c, (unsigned)((uintptr_t)c >> 32));
}

/* Every second one ends early, so that holes come between those that go on. */
static void *coroutines(void *unused)
{
    struct coroutine *all = calloc(COROUTINES, sizeof *all);
    for (int i = 0; i < COROUTINES; i++)
        begin(&all[i], i % 2 ? 20 : 200);
    for (int left = COROUTINES; left;) {
        for (int i = 0; i < COROUTINES; i++) {
            if (all[i].done)
                continue;
            swapcontext(&all[i].caller, &all[i].self);
            if (all[i].done) {
                munmap(all[i].stack, STACK);
                left--;
            }
        }
    }
    free(all);
    return unused;
}

/* Coroutines switched by hand; all but the stack pointer is on the stack. */
struct bare {
    void *self, *caller;
    char *stack;
    int rounds, done;
};

void change(void **from, void *to);
void begins(void);
__asm__(".text\n"
        ".type change, @function\n"
        "change:\n"
        ".cfi_startproc\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n    ret\n"
        ".cfi_endproc\n"
        ".size change, . - change\n"
        ".type begins, @function\n"
        "begins:\n"
        ".cfi_startproc\n"
        "    mov %rbx, %rdi\n    xor %eax, %eax\n    nopl 0(%rax)\n    call *%r12\n    ud2\n"
        ".cfi_endproc\n"
        ".size begins, . - begins\n");

static void bare_body(struct bare *c)
{
    for (int i = 0; i < c->rounds; i++) {
        sink(i % 9, (unsigned)i * 7919u);
        change(&c->self, c->caller);
    }
    c->done = 1;
    change(&c->self, c->caller);
    abort();
}

static void bare_begin(struct bare *c, int rounds)
{
    c->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    c->rounds = rounds;
    void **top = (void **)(c->stack + STACK);
    *--top = (void *)begins;
    *--top = NULL; /* rbp */
    *--top = c;    /* rbx */
    *--top = (void *)bare_body;
    *--top = NULL;
    *--top = NULL;
    *--top = NULL;
    c->self = top;
}

static void *ends(void *unused)
{
    struct bare *all = calloc(COROUTINES, sizeof *all);
    for (int i = 0; i < COROUTINES; i++)
        bare_begin(&all[i], i % 2 ? 20 : 200);
    for (int left = COROUTINES; left;) {
        for (int i = 0; i < COROUTINES; i++) {
            if (all[i].done)
                continue;
            change(&all[i].caller, all[i].self);
            if (all[i].done) {
                munmap(all[i].stack, STACK);
                left--;
            }
        }
    }
    free(all);
    return unused;
}

static pthread_barrier_t turn;

static void *calls(void *unused)
{
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 300; i++)
            straight(i % 40);
        pthread_barrier_wait(&turn);
        /* The block is unmapped here. */
        pthread_barrier_wait(&turn);
    }
    return unused;
}

/* The C library asks for stacks right below large blocks of malloc's where addresses are free there; here they always are. */
static void threads(void)
{
    pthread_barrier_init(&turn, NULL, 2);
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        pthread_attr_t attributes;
        char *both = mmap(NULL, STACK_BYTES + BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, both, STACK_BYTES);
        pthread_create(&thread, &attributes, calls, NULL);
        for (int half = 0; half < 2; half++) {
            pthread_barrier_wait(&turn);
            munmap(both + STACK_BYTES, BLOCK);
            pthread_barrier_wait(&turn);
        }
        pthread_join(thread, NULL);
        munmap(both, STACK_BYTES);
    }
}

int main(int argc, char **argv)
{
    pthread_t second;
    if (argc > 1 && !strcmp(argv[1], "threads")) {
        threads();
    } else {
        void *(*mode)(void *) = argc > 1 && !strcmp(argv[1], "ends") ? ends : coroutines;
        pthread_create(&second, NULL, mode, NULL);
        mode(NULL);
        pthread_join(second, NULL);
        if (mode == ends)
            tell("begins", 2 * COROUTINES, "lost");
    }
    printf("done\n");
    tell("leaf", n_leaf, "exact");
    if (n_sink) {
        tell("sink", n_sink, "exact");
        tell("other", n_other, "exact");
    }
}
